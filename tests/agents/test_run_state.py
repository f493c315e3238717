"""The state that a run shares: ``state=`` of a run is ``ctx.state`` of its tools, and what they assign is published and recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ConfigurationError, ScriptedProvider, external, tool
from agentflow.core.data.errors import DataError
from agentflow.events import StateChanged


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def watching(flow: AgentFlow) -> list[dict[str, Any]]:
    """The changes that observers of a flow are told, as they come."""
    told: list[dict[str, Any]] = []
    flow.subscribe(lambda event: told.extend(map(dict, event.changes)) if isinstance(event, StateChanged) else None)
    return told


@tool
async def plan(steps: list[str], ctx: CallContext) -> str:
    """Note the steps."""
    ctx.state["steps"] = [{"about": step, "done": False} for step in steps]
    return f"{len(steps)} steps for {ctx.state['goal']}"


@tool
async def finish(step: int, ctx: CallContext) -> str:
    """Mark a step as done."""
    ctx.state["steps"][step]["done"] = True
    ctx.state["steps"].append({"about": "rest", "done": False})
    return str(ctx.state["steps"])


async def test_what_tools_assign_is_published_as_json_patches() -> None:
    """At any depth and at once; a tool sees what those before it have done, and the state that the run began with."""
    model = ScriptedProvider([calling("plan", steps=["dig", "look"]), calling("finish", step=1), "done"])
    async with AgentFlow(provider=model) as flow:
        told = watching(flow)
        state = {"goal": "gold"}

        @flow.task(tools=[plan, finish])
        async def work(task: str) -> str:
            """{{task}}"""

        await flow.run(work("dig for gold"), state=state)
    steps = [{"about": "dig", "done": False}, {"about": "look", "done": False}]
    assert told == [
        {"op": "add", "path": "/steps", "value": steps},
        {"op": "replace", "path": "/steps/1/done", "value": True},
        {"op": "add", "path": "/steps/-", "value": {"about": "rest", "done": False}},
    ]
    assert state == {"goal": "gold"}, "the caller's own is not changed"


async def test_it_reads_and_changes_as_dicts_and_lists_do() -> None:
    """Lookups, loops, equality, removal, insertion, a whole other state; names with slashes are escaped in paths."""
    seen: list[Any] = []

    def change(ctx: CallContext) -> str:
        state = ctx.state
        state["a/b~"] = {"x": [1, 2, 3]}
        numbers = state["a/b~"]["x"]
        numbers.insert(0, 0)
        del numbers[2]
        numbers[-1] += 1
        seen.append((list(numbers), numbers == [0, 1, 4], numbers[1:], state.get("none"), "a/b~" in state, len(state)))
        del state["a/b~"]
        ctx.state = {"other": True}
        seen.append(dict(ctx.state))
        with pytest.raises(KeyError):
            del ctx.state["none"]
        return "done"

    async with AgentFlow(tools=[tool(change)]) as flow:
        told = watching(flow)
        await flow.run("(content (change))")
    assert seen == [([0, 1, 4], True, [1, 4], None, True, 1), {"other": True}]
    assert [(each["op"], each["path"]) for each in told] == [
        ("add", "/a~1b~0"), ("add", "/a~1b~0/x/0"), ("remove", "/a~1b~0/x/2"), ("replace", "/a~1b~0/x/2"),
        ("remove", "/a~1b~0"), ("replace", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("as_task", [True, False])
async def test_a_durable_run_has_its_state_after_an_interruption(tmp_path: Path, as_task: bool) -> None:
    """Tools whose results are recorded do not run again, and what they assigned is there: in a task that goes on, and of one that
    had ended. It is told once."""
    model = ScriptedProvider([calling("plan", steps=["dig"]), calling("press"), lambda request: "pressed", "done"])
    ran: list[str] = []

    def app() -> AgentFlow:
        flow = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db", tools=[external("press", {}), show])
        flow.tools.add(plan)

        @flow.task(name="work", tools=[plan, "press"])
        async def work(task: str) -> str:
            """{{task}}"""

        return flow

    @tool
    async def show(ctx: CallContext) -> dict[str, Any]:
        """Show the state."""
        ran.append("show")
        return ctx.state.plain()

    text = '(work (task "x")) (content (show))' if as_task else '(plan (steps (list "dig"))) (press) (content (show))'
    async with app() as flow:
        told = watching(flow)
        run = await flow.start(text, run_id="r", state={"goal": "gold"})
        assert await run.wait() == "waiting"
        assert [each["path"] for each in told] == ["/steps"]
    async with app() as flow:
        told = watching(flow)
        (question,) = await flow.questions("r")
        await flow.send("r", question.key, "yes", state={"goal": "silver", "steps": ["mine"]} if as_task else None)
        value = (await (await flow.resume("r")).result()).value
        value = json.loads(value)
        assert told == []
    steps: list[Any] = [{"about": "dig", "done": False}]
    assert value == ({"goal": "silver", "steps": ["mine"]} if as_task else {"goal": "gold", "steps": steps})
    assert ran == ["show"]


async def test_a_third_begin_has_what_was_recorded_in_parts(tmp_path: Path) -> None:
    """A task that was interrupted twice: what tools of its first and second begin assigned is in its own record, too, in the order in
    which it was made."""
    model = ScriptedProvider(
        [calling("plan", steps=["dig"]), calling("press"), calling("finish", step=0), calling("press"), "done"]
    )

    def app() -> AgentFlow:
        flow = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db", tools=[external("press", {}), show])
        for each in (plan, finish):
            flow.tools.add(each)

        @flow.task(name="work", tools=[plan, finish, "press"])
        async def work(task: str) -> str:
            """{{task}}"""

        return flow

    @tool
    async def show(ctx: CallContext) -> str:
        """Show the state."""
        return json.dumps(ctx.state.plain())

    text = '(work (task "x")) (press) (content (show))'
    async with app() as flow:
        run = await flow.start(text, run_id="r", state={"goal": "gold"})
        assert await run.wait() == "waiting"
    for _ in range(2):
        async with app() as flow:
            (question,) = await flow.questions("r")
            await flow.send("r", question.key, "yes")
            assert await (await flow.resume("r")).wait() == "waiting"
    async with app() as flow:
        (question,) = await flow.questions("r")
        await flow.send("r", question.key, "yes")
        value = json.loads((await (await flow.resume("r")).result()).value)
    steps = [{"about": "dig", "done": True}, {"about": "rest", "done": False}]
    assert value == {"goal": "gold", "steps": steps}


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


async def test_only_data_can_be_assigned() -> None:
    """A function, a key that is not text, a state that is not a mapping: the tool fails with an error that says what may stand there."""
    said: list[str] = []

    def change(ctx: CallContext) -> str:
        wrong: Any = ctx
        for attempt in (
            lambda: ctx.state.update(run=print),
            lambda: wrong.state.update({1: "one"}),
            lambda: setattr(wrong, "state", ["x"]),
        ):
            with pytest.raises(DataError) as error:
                attempt()
            assert error.value.code == "state/not-data" and error.value.hint
            said.append(error.value.message)
        return "done"

    async with AgentFlow(tools=[tool(change)]) as flow:
        assert (await flow.run("(content (change))")).value == "done"
    assert len(said) == 3


async def test_a_state_that_is_no_mapping_is_refused() -> None:
    """``state=`` of a run is an object, as front ends have it."""
    wrong: Any = ["steps"]
    async with AgentFlow() as flow:
        with pytest.raises(ConfigurationError, match="state="):
            await flow.run("1", state=wrong)


async def test_a_run_in_a_run_has_the_state_of_that() -> None:
    """``flow.run(..., state=)`` in a tool is told to change the run's own."""
    async with AgentFlow() as flow:

        async def inner() -> str:
            """Run."""
            await flow.run("1", state={"x": 1})
            return "done"

        flow.tools.add(inner)
        said = (await flow.run("(inner)")).value
        assert "ctx.state" in str(said.notes.error)


async def test_the_state_is_changed_as_dicts_and_lists_are() -> None:
    """The methods that return what they take or leave: the result is the same as of plain data, and so is the state."""

    def change(state: Any) -> list[Any]:
        state.setdefault("items", []).append({"name": "egg"})
        state.setdefault("items", []).append({"name": "milk"})
        state["items"].extend([{"name": "bread"}, {"name": "salt"}])
        state["items"].reverse()
        taken = [
            state["items"].pop(),
            state["items"].pop(0),
            state.pop("goal"),
            state.pop("none", 7),
            state.pop("deep"),
        ]
        state["last"] = {"a": [1]}
        taken.append(state.popitem())
        return taken

    begun = {"goal": "food", "deep": {"a": [1, 2]}}
    plain: dict[str, Any] = json.loads(json.dumps(begun))
    told: list[Any] = []

    @tool
    async def shop(ctx: CallContext) -> str:
        """Shop."""
        told.extend(change(ctx.state))
        with pytest.raises(KeyError):
            ctx.state.pop("none")
        return json.dumps(ctx.state.plain())

    model = ScriptedProvider([calling("shop"), lambda request: request.messages[-1].parts[0].text])
    async with AgentFlow(provider=model) as flow:
        answer = (await flow.run(flow.ask("Shop.", tools=[shop]), state=begun)).value
    assert told == change(plain)
    assert json.loads(answer) == plain == {"items": [{"name": "bread"}, {"name": "milk"}]}


async def test_a_part_is_what_was_read_wherever_it_stands_now() -> None:
    """As names for dicts and lists are: parts swap their places, and one whose place has changed is changed where it is.

    A part was a place: after ``del steps[0]`` the last step was marked as another one, and a swap in one line raised KeyError.
    """
    seen: list[Any] = []

    def change(ctx: CallContext) -> str:
        state = ctx.state
        state["a"], state["b"] = [1], {"x": 2}
        state["a"], state["b"] = state["b"], state["a"]
        state["steps"] = [{"n": 0}, {"n": 1}, {"n": 2}]
        first, last = state["steps"][0], state["steps"][2]
        del state["steps"][0]
        last["done"] = True
        state["steps"].insert(0, {"n": 9})
        last["n"] = 3
        state["steps"].reverse()
        seen.append((state.plain(), dict(first)))
        for gone, do in ((first, "n"), (last, "n")):
            with pytest.raises(DataError) as error:
                gone[do] = 7
            seen.append((error.value.code, error.value.hint))
        return "done"

    async with AgentFlow(provider=ScriptedProvider(), tools=[change]) as flow:
        told = watching(flow)
        await flow.run("(change)")
    steps = [{"n": 3, "done": True}, {"n": 1}, {"n": 9}]
    assert seen[0] == ({"a": {"x": 2}, "b": [1], "steps": steps}, {"n": 0})
    assert seen[1:] == [("state/replaced", "read it again: ctx.state['steps']")] * 2
    assert {"op": "add", "path": "/steps/1/done", "value": True} in told
    assert {"op": "replace", "path": "/steps/2/n", "value": 3} in told
