"""A function, task or workflow that stands in ``tools=`` is that object, for that task or question alone."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import (
    AgentFlow,
    AgentflowError,
    BaseHandler,
    CallContext,
    ConfigurationError,
    Limits,
    Provenance,
    ScriptedProvider,
    Sink,
    tool,
)
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.messages import ModelRequest, ToolResultPart
from agentflow.core.events.events import Event, Warning


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def results(model: ScriptedProvider) -> list[str]:
    """The texts of all tool results that the model was sent, in order."""
    last = [request.messages[-1].parts for request in model.requests]
    return [part.text for parts in last for part in parts if isinstance(part, ToolResultPart)]


def offered(request: ModelRequest) -> list[str]:
    """The names of the tools that a request offers."""
    return [each.name for each in request.tools]


def account(amount: int) -> Any:
    """A closure called ``balance``."""

    async def balance() -> int:
        """The balance of this user."""
        return amount

    return balance


class Purse:
    """Something with a tool of its own."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    async def balance(self) -> int:
        """The balance of this purse."""
        return self.amount


async def of_user(amount: int) -> int:
    """The balance, times ten."""
    return amount * 10


@pytest.mark.parametrize(
    "make",
    [
        account,
        lambda amount: Purse(amount).balance,
        lambda amount: tool(name="balance")(functools.partial(of_user, amount // 10)),
    ],
    ids=["closure", "bound method", "partial"],
)
@pytest.mark.parametrize("start", ["ask", "task", "options", "execute_prompt"])
async def test_two_objects_of_one_name_answer_for_themselves(make: Any, start: str) -> None:
    """Two closures, bound methods or partials called ``balance`` each answer for the prompt that they were given to."""
    model = ScriptedProvider([calls("balance"), "a", calls("balance"), "b"])
    async with AgentFlow(provider=model) as flow:
        for amount in (10, 20):
            given_tools = [make(amount)]

            async def review(prompt: str) -> str:
                """{{prompt}}"""

            if start == "ask":
                await flow.ask("How much?", tools=given_tools)
            elif start == "task":
                await flow.task(tools=given_tools)(review)("How much?")
            elif start == "options":
                await flow.task(review).with_options(tools=given_tools)("How much?")
            else:
                await flow.handler.execute_prompt("How much?", tools=given_tools)
    assert results(model) == ["10", "20"]


async def test_two_modules_with_a_tool_of_one_name() -> None:
    """Functions of one name from two places, each given to a task of its own."""
    model = ScriptedProvider([calls("search", q="x"), "a", calls("search", q="x"), "b"])

    def of(place: str) -> Any:
        async def search(q: str) -> str:
            return f"{place}: {q}"

        return search

    async with AgentFlow(provider=model) as flow:
        await flow.ask("?", tools=[of("web")])
        await flow.ask("?", tools=[of("mail")])
    assert results(model) == ["web: x", "mail: x"]


@pytest.mark.parametrize("kind", ["task", "workflow"])
async def test_tasks_and_workflows_of_one_name_run_themselves(kind: str) -> None:
    """Two tasks, or workflows, of one name, each given as a tool: each call runs the one that was given."""
    script = [
        calls("helper", x="1"),
        "first" if kind == "task" else "end",
        "end",
        calls("helper", x="2"),
        "second",
        "end",
    ]
    model = ScriptedProvider(
        script if kind == "task" else [calls("helper", x="1"), "end", calls("helper", x="2"), "end"]
    )
    flow = AgentFlow(provider=model)

    def make(which: str) -> Any:
        if kind == "workflow":

            async def helper(x: str) -> str:
                return f"{which} {x}"

            return flow.workflow(helper)

        async def helper(x: str) -> str:
            return f"{which}: {x}"

        return flow.task(helper)

    one, two = make("one"), make("two")
    async with flow:
        await flow.ask("?", tools=[one])
        await flow.ask("?", tools=[two])
    if kind == "workflow":
        assert results(model) == ["one 1", "two 2"]
    else:
        asked = [
            part.text for request in model.requests for part in request.messages[-1].parts if hasattr(part, "text")
        ]  # type: ignore[union-attr]
        assert asked[1] == "one: 1" and asked[4] == "two: 2"


async def test_a_tool_given_to_one_task_is_offered_by_no_other(tmp_path: Path) -> None:
    """Neither a task, a question, a prompt nor a program is offered what another task was given, before or after its call."""
    model = ScriptedProvider(lambda request: "ok")
    async with AgentFlow(provider=model, root=tmp_path) as flow:

        @flow.task(tools=[account(1)])
        async def rich(x: str) -> str:
            """{{x}}"""

        @flow.task
        async def poor(x: str) -> str:
            """{{x}}"""

        for _ in range(2):
            await poor("a")
            await flow.ask("a")
            await flow.handler.execute_prompt("a")
            await flow.run('(defatom plain (params) (instructions "Say ok.")) (plain)')
            await rich("a")
        assert [offered(each) for each in model.requests] == [[], [], [], [], ["balance"]] * 2
        with pytest.raises(AgentflowError):
            await flow.run("(balance)")
        assert flow.tools.find("balance") is None


@given(st.permutations(["ask", "task", "prompt", "other"]))
async def test_what_a_model_may_call_does_not_depend_on_the_order_of_calls(order: list[str]) -> None:
    """Whatever ran before in the process, each prompt is offered the tools that it was declared with."""
    model = ScriptedProvider(lambda request: "ok")

    async def search(q: str) -> str:
        return q

    async with AgentFlow(provider=model, tools=[search]) as flow:

        @flow.task(tools=[account(1), "search"])
        async def task(x: str) -> str:
            """{{x}}"""

        @flow.task
        async def other(x: str) -> str:
            """{{x}}"""

        expected = {"ask": ["balance"], "task": ["balance", "search"], "prompt": ["search"], "other": []}
        for name in order:
            if name == "ask":
                await flow.ask("a", tools=[account(2)])
            elif name == "task":
                await task("a")
            elif name == "prompt":
                await flow.handler.execute_prompt("a")
            else:
                await other("a")
            assert offered(model.requests[-1]) == expected[name]


async def test_two_objects_of_one_name_in_one_list_are_refused() -> None:
    """The error names both places, and comes where the list is written."""
    flow = AgentFlow(provider=ScriptedProvider([]))
    with pytest.raises(ConfigurationError, match="two tools called 'balance'") as refused:
        flow.ask("?", tools=[account(1), account(2)])
    assert refused.value.code == "tool/duplicate" and refused.value.message.count(__file__) == 2
    one = account(1)
    flow.ask("?", tools=[one, one]).close()  # the same object twice is no conflict


async def test_the_flows_table_refuses_another_object_of_a_name() -> None:
    """``AgentFlow(tools=)``, ``flow.tool`` and ``flow.tools.add`` refuse a second object, unless it is to replace the first."""
    with pytest.raises(ConfigurationError, match="balance") as refused:
        AgentFlow(provider=ScriptedProvider([]), tools=[account(1), account(2)])
    assert refused.value.code == "tool/duplicate"
    first = account(1)
    flow = AgentFlow(provider=ScriptedProvider([]), tools=[first])
    assert flow.tools.add(first) is flow.tools.find("balance")
    for register in (flow.tool, flow.tools.add):
        with pytest.raises(ConfigurationError):
            register(account(2))
    flow.tools.add(account(2), replace=True)
    assert (await flow.run("(parsedContent (balance))".replace("parsedContent", "value-of"))).value == 2


async def test_a_handler_replaces_a_tool_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The specification's ``register_tool`` replaces, and logs it."""
    flow = AgentFlow(provider=ScriptedProvider([]))
    spec = {"name": "look", "description": "", "input_schema": {"type": "object"}}
    assert flow.handler.register_tool(spec, lambda given_input: "one") and not caplog.records
    assert flow.handler.register_tool(spec, lambda given_input: "two")
    assert "look is registered again" in caplog.text
    assert (await flow.run("(value-of (look))")).value == "two"


@pytest.mark.parametrize("name", ["system:read_files", "files:all", "ask:1", "ask-human", "defatom", "map"])
async def test_names_of_the_language_are_no_names_of_local_tools(name: str) -> None:
    """A tool of one task may not be called as a grant or a word of the language is."""

    @tool(name=name)
    async def mine() -> str:
        return ""

    flow = AgentFlow(provider=ScriptedProvider([]))
    with pytest.raises(ConfigurationError) as refused:
        flow.ask("?", tools=[mine])
    assert refused.value.code == "tool/reserved-name"
    with pytest.raises(ConfigurationError) as refused:
        await BaseHandler(None, None, ScriptedProvider([])).execute_prompt("?", tools=[mine])
    assert refused.value.code == "tool/reserved-name"


@pytest.mark.parametrize("wrong", ["search", 3, None, [3], [SimpleNamespace()], [int], {"name": "x"}])
def test_a_list_of_tools_that_is_none(wrong: Any) -> None:
    """What cannot be a tool is refused where it is written, with what to write."""
    flow = AgentFlow(provider=ScriptedProvider([]))
    with pytest.raises(ConfigurationError) as refused:
        flow.ask("?", tools=wrong)
    assert refused.value.code == "config/option" and refused.value.hint


async def test_tools_of_the_flow_are_offered_where_asked_for() -> None:
    """``tools=flow.tools`` offers all of the flow's, beside objects too; a question without ``tools`` is offered none, and told once."""
    model = ScriptedProvider(lambda request: "ok")
    events: list[Event] = []

    async def search(q: str) -> str:
        return q

    async with AgentFlow(provider=model, tools=[search]) as flow:
        flow.subscribe(events.append)
        await flow.ask("a")
        await flow.ask("a")
        await flow.ask("a", tools=flow.tools)
        await flow.ask("a", tools=[flow.tools, account(1)])
        await flow.ask("a", tools=[])
    assert [offered(each) for each in model.requests] == [[], [], ["search"], ["balance", "search"], []]
    warned = [each for each in events if isinstance(each, Warning) and each.code == "tools/not-offered"]
    assert len(warned) == 1 and "tools=flow.tools" in warned[0].message


async def test_a_task_as_a_tool_keeps_its_own_tools() -> None:
    """At every depth a task is offered what it declares, whatever the model above was offered."""
    model = ScriptedProvider(
        [calls("middle", q="1"), calls("inner", q="2"), calls("balance"), "seven", "inner done", "middle done"]
    )
    flow = AgentFlow(provider=model)

    @flow.task(tools=[account(7)])
    async def inner(q: str) -> str:
        """Look up {{q}}."""

    @flow.task(tools=[inner])
    async def middle(q: str) -> str:
        """Find {{q}}."""

    async with flow:
        assert await flow.ask("How much?", tools=[middle]) == "middle done"
    assert [offered(each) for each in model.requests][:3] == [["middle"], ["inner"], ["balance"]]
    assert results(model) == ["7", "seven", "inner done"]


async def test_a_program_names_a_task_as_a_tool() -> None:
    """``(tools billing)`` of a task in a program offers the task ``billing``, which keeps its own tools."""
    model = ScriptedProvider([calls("billing", question="q"), calls("balance"), "5", "done"])
    flow = AgentFlow(provider=model)

    @flow.task(tools=[account(5)])
    async def billing(question: str) -> str:
        """Answer {{question}}."""

    async with flow:
        program = '(defatom desk (params) (instructions "Help.") (tools billing)) (value-of (desk))'
        assert (await flow.run(program)).value == "done"
    assert [offered(each) for each in model.requests] == [["billing"], ["balance"], ["balance"], ["billing"]]


async def test_a_tool_awaits_anything_with_the_hosts_authority(tmp_path: Path) -> None:
    """Questions, tasks, workflows, tools, lookups, people: what a tool awaits is not narrowed to what its model was offered."""
    (tmp_path / "a.txt").write_text("balance sheet")
    model = ScriptedProvider([calls("everything"), "asked", "tasked", "worked", "end"])
    seen: list[Any] = []
    flow = AgentFlow(provider=model, root=tmp_path, answer=lambda question: "yes", tools=[account(3)])

    @flow.task
    async def helper(x: str) -> str:
        """{{x}}"""

    @flow.workflow
    async def work(x: str) -> str:
        return await helper(x)

    async def everything(ctx: CallContext) -> str:
        """All of it."""
        seen.append(ctx.grants)
        seen.append(await flow.ask("Why?"))
        seen.append(await helper("a"))
        seen.append(await work("b"))
        seen.append(await flow.call_tool("balance"))
        seen.append([Path(each).name for each in await flow.context("balance sheet")])
        seen.append(await flow.ask_human("Sure?"))
        seen.append(await ctx.ask_human("Sure?"))
        return "done"

    async with flow:
        assert await flow.ask("Go.", tools=[everything]) == "end"
    assert "everything" in seen[0] and "balance" not in seen[0]
    assert seen[1:] == ["asked", "tasked", "worked", 3, ["a.txt"], "yes", "yes"]


async def test_another_flow_inside_a_tool() -> None:
    """A second flow that a tool calls has its own model and tools, within the budget of the run."""
    other = AgentFlow(provider=ScriptedProvider([calls("balance"), "inner"]))
    model = ScriptedProvider([calls("delegate", q="x"), "outer"])

    async def delegate(q: str) -> str:
        return await other.ask(q, tools=[account(4)])

    async with other, AgentFlow(provider=model) as flow:
        result = await flow.run(flow.ask("Go.", tools=[delegate]))
    assert result.value == "outer" and result.usage.requests == 4


@pytest.mark.parametrize("run", ["run", "program"])
async def test_texts_in_a_tool_stay_narrowed(run: str) -> None:
    """A text that a tool has carried out may call what the model above was offered; ``allow=`` says otherwise."""

    async def secret() -> str:
        return "secret"

    seen: list[str] = []

    async def execute(text: str) -> str:
        work = flow.program(text)() if run == "program" else None
        try:
            result = await (flow.run(text) if work is None else flow.run(work))
            seen.append(str(result.value))
        except AgentflowError as error:
            seen.append(error.code)
        seen.append(str((await flow.run("(value-of (secret))", allow=["secret"])).value))
        return "ok"

    model = ScriptedProvider([calls("execute", text="(value-of (secret))"), "end"])
    flow = AgentFlow(provider=model, tools=[secret])
    async with flow:
        await flow.ask("Go.", tools=[execute])
    assert seen == ["name/not-granted", "secret"]


async def test_texts_hold_only_objects_of_the_flow() -> None:
    """A text names a tool of its task only where that is the flow's object; another of that name is not its."""

    async def search(q: str) -> str:
        return f"flow {q}"

    def local() -> Any:
        async def search(q: str) -> str:
            return f"local {q}"

        return search

    seen: list[str] = []

    async def execute(text: str) -> str:
        try:
            seen.append(str((await flow.run(text)).value))
        except AgentflowError as error:
            seen.append(error.code)
        return "ok"

    text = '(value-of (search (q "x")))'
    model = ScriptedProvider([calls("execute", text=text), "end"] * 2)
    flow = AgentFlow(provider=model, tools=[search])
    async with flow:
        await flow.ask("Go.", tools=[execute, search])
        await flow.ask("Go.", tools=[execute, local()])
    assert seen == ["flow x", "name/not-granted"]


async def test_an_inner_call_still_asks() -> None:
    """A tool that needs approval asks for it also where host code calls it in a tool of a model; without a model it does not."""
    asked: list[str] = []

    @tool(approval=True)
    async def transfer(amount: int) -> str:
        return f"sent {amount}"

    async def pay(amount: int) -> str:
        return str(await flow.call_tool("transfer", amount=amount))

    def approve(request: Any) -> bool:
        asked.append(request.tool)
        return True

    model = ScriptedProvider([calls("pay", amount=5), "end"])
    flow = AgentFlow(provider=model, tools=[transfer], approve=approve)
    async with flow:
        assert await flow.call_tool("transfer", amount=1) == "sent 1" and asked == []
        await flow.ask("Go.", tools=[pay])
    assert asked == ["transfer"] and results(model) == ["sent 5"]


@pytest.mark.parametrize("through", ["ask", "workflow", "program"])
async def test_recursion_through_tools_ends(through: str) -> None:
    """A tool that asks a model which is offered the tool again ends at the depth of subtasks, whatever it asks by."""
    model = ScriptedProvider(lambda request: calls("again", n=1) if request.tools else "x")
    flow = AgentFlow(provider=model)

    async def again(n: int) -> str:
        if through == "workflow":
            return await work()
        if through == "program":
            return str((await flow.run("(value-of (down))", allow=["down"])).value)
        return await flow.ask("Deeper.", tools=[again])

    @flow.workflow
    async def work() -> str:
        return await flow.ask("Deeper.", tools=[again])

    @flow.task(tools=[again])
    async def down() -> str:
        """Deeper."""

    async with flow:
        with pytest.raises(LimitExceeded) as ended:
            await flow.run(flow.ask("Go.", tools=[again]), limits=Limits(subtask_depth=3))
    assert ended.value.code == "limits/subtask-depth" and len(model.requests) == 4


async def test_own_tools_after_a_kill(tmp_path: Path) -> None:
    """A durable run that goes on in another process offers a task the tools that it is declared with, and no others."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    reached: list[str] = []

    def build(script: list[Any]) -> tuple[AgentFlow, Any, ScriptedProvider]:
        model = ScriptedProvider(script)
        flow = AgentFlow(provider=model, durable=url)

        @flow.task(tools=[account(9)])
        async def desk(q: str) -> str:
            """Answer {{q}}."""

        @flow.workflow
        async def day() -> list[str]:
            first = await desk("one")
            reached.append(first)
            answer = await flow.ask_human("Go on?")
            return [first, str(answer), await desk("two"), await flow.ask("three", tools=[account(8)])]

        return flow, day, model

    flow, day, _ = build([calls("balance"), "1st"])
    async with flow:
        handle = await flow.start(day(), run_id="day")
        assert await handle.wait() == "waiting"
    flow, day, model = build([calls("balance"), "2nd", calls("balance"), "3rd"])
    async with flow:
        handle = await flow.resume("day")
        assert await handle.wait() == "waiting"
        [question] = handle.waiting
        await flow.send("day", question.key, "yes")
        assert (await handle.result()).value == ["1st", "yes", "2nd", "3rd"]
    assert results(model) == ["9", "8"] and {name for each in model.requests for name in offered(each)} == {"balance"}


@pytest.mark.parametrize("where", ["tool", "ask", "task"])
async def test_reuse_of_what_holds_values_needs_a_key(where: str, tmp_path: Path) -> None:
    """A closure answers by more than its arguments: reusing its results is refused until ``reuse_key=`` says by what."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    model = ScriptedProvider(
        lambda request: "ok" if isinstance(request.messages[-1].parts[0], ToolResultPart) else calls("balance")
    )
    async with AgentFlow(provider=model, durable=url) as flow:

        def declare(amount: int, **key: Any) -> Any:
            if where == "tool":
                return flow.ask("?", tools=[tool(reuse="1d", **key)(account(amount))])
            if where == "ask":
                return flow.ask("?", tools=[account(amount)], reuse="1d", **key)

            @flow.task(tools=[account(amount)], reuse="1d", **key)
            async def desk() -> str:
                """How much?"""

            return desk()

        with pytest.raises(ConfigurationError) as refused:
            declare(1)
        assert refused.value.code == "config/reuse-key"
        for amount, key in ((1, "a"), (1, "a"), (2, "b")):
            await declare(amount, reuse_key=key)
    assert [*dict.fromkeys(results(model))] == ["1", "2"]


@pytest.mark.parametrize("door", ["command", "write", "endorse"])
async def test_every_door_asks_below_a_model(door: str, tmp_path: Path) -> None:
    """Commands, writes and endorsements that host code makes in a tool are asked for, since a model called the tool; a no is a no."""
    asked: list[str] = []

    def approve(request: Any) -> bool:
        asked.append(request.tool)
        return False

    async def act() -> str:
        try:
            if door == "command":
                await flow.call_tool("system:execute_shell_command", command="touch made.txt")
            elif door == "write":
                await flow.call_tool("system:write_file", file_path="made.txt", content="x")
            else:
                await flow.endorse("x", "because")
        except AgentflowError as error:
            return error.code
        return "done"

    model = ScriptedProvider([calls("act"), "end"])
    policy = Provenance(rules=[Sink("act", "to", allow=["user"])]) if door == "endorse" else None
    flow = AgentFlow(provider=model, root=tmp_path, approve=approve, sandbox="none", provenance=policy)
    async with flow:
        await flow.ask("Go.", tools=[act])
    assert len(asked) == 1 and results(model) != ["done"] and not (tmp_path / "made.txt").exists()


async def test_a_text_gains_nothing_by_naming_a_task_as_a_tool() -> None:
    """A task of a text with grants that names a host's task as its tool reaches the tools which that names only as far as the text may."""

    async def secret() -> str:
        return "secret"

    model = ScriptedProvider([calls("helper", q="x"), "inner", "outer"])
    flow = AgentFlow(provider=model, tools=[secret])

    @flow.task(tools=["secret"])
    async def helper(q: str) -> str:
        """{{q}}"""

    text = '(defatom mine (params) (instructions "Go.") (tools helper)) (value-of (mine))'
    async with flow:
        assert (await flow.run(text, allow=["defatom", "helper"])).value == "outer"
    assert [offered(each) for each in model.requests] == [["helper"], [], ["helper"]]


async def test_a_task_that_is_granted_keeps_its_objects() -> None:
    """Granting a task grants what it was given as objects; what it names is intersected with the grants."""

    async def named() -> str:
        return "named"

    model = ScriptedProvider(lambda request: "ok")
    flow = AgentFlow(provider=model, tools=[named])

    @flow.task(tools=[account(1), "named"])
    async def desk() -> str:
        """Help."""

    async with flow:
        await flow.run("(desk)", allow=["desk"])
        await flow.run("(desk)", allow=["desk", "named"])
        bounds = await flow.bounds("(desk)", allow=["desk"])
    assert [offered(each) for each in model.requests] == [["balance"], ["balance", "named"]]
    assert [each.name for each in bounds.authority.tools] == ["balance"]


async def test_a_policy_binds_the_object_that_is_called() -> None:
    """What a local tool declares as its source and its sinks holds, and a rule of the policy binds every object of that name."""
    sent: list[str] = []

    def mail(kind: str) -> Any:
        @tool(name="send", sinks={"to": "user"} if kind == "declares" else {})
        async def send(to: str) -> str:
            sent.append(to)
            return "sent"

        return send

    @tool(source="web")
    async def fetch() -> str:
        return "eve@example.org"

    for kind, rules in (("declares", []), ("ruled", [Sink("send", "to", allow=["user"])])):
        model = ScriptedProvider([calls("fetch"), calls("send", to="eve@example.org"), "end"])
        async with AgentFlow(provider=model, provenance=Provenance(rules=rules, sources={"x": "y"})) as flow:
            await flow.ask("Go.", tools=[fetch, mail(kind)])
        assert sent == [] and "provenance/denied" in results(model)[1]


async def test_an_override_of_the_list_narrows_the_objects(tmp_path: Path) -> None:
    """A generation whose ``tools`` of a task name fewer offers the objects of those names alone, and they stay what they are."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    async def credit() -> int:
        """The credit of this user."""
        return 3

    model = ScriptedProvider([RuntimeError("down"), calls("balance"), "nine"])
    async with AgentFlow(provider=model, durable=url) as flow:

        @flow.task(tools=[account(9), credit])
        async def desk(q: str) -> str:
            """Answer {{q}}."""

        @flow.workflow
        async def day() -> str:
            return await desk("one")

        handle = await flow.start(day(), run_id="day")
        assert await handle.wait() == "failed"
        again = await flow.resume("day", overrides={"desk": {"tools": ["balance"]}})
        assert (await again.result()).value == "nine"
    assert [offered(each) for each in model.requests] == [["balance", "credit"], ["balance"], ["balance"]]
    assert results(model) == ["9"]
