"""An edited program takes over what it has in common with the run before it: only what depends on the change runs again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, CallContext, Limits, ScriptedProvider
from agentflow.core.data.errors import JournalError
from tests.durable.world import Flow, World, interrupted

ASK = '(defatom ask (params (q string)) (instructions "{{q}}") (history_config (record_in_session_history true)))'
TOLD = '(defatom told (params (q string)) (instructions "{{q}}") (history_config true))'


class Rated(BaseModel):
    """The answer of a typed task."""

    stars: int


async def done(flow: Flow, text: str, run_id: str = "r", **options: Any) -> Any:
    """The value of a run that is started and comes to its end."""
    async with flow() as opened:
        return (await (await opened.start(text, run_id=run_id, **options)).result()).value


async def edited(world: World, flow: Flow, text: str, run_id: str = "r", **options: Any) -> tuple[Any, dict[str, int]]:
    """The value of the edited program, and what was carried out for it."""
    world.done.clear()
    async with flow() as opened:
        handle = await opened.resume(run_id, program=text, **options)
        value = (await handle.result()).value
        again = await opened.resume(run_id, program=text, **options)
        assert again.run_id == handle.run_id and (await again.result()).value == value
    return value, dict(world.done)


@pytest.mark.parametrize(
    ("change", "carried_out"),
    [
        (lambda text: "\n\n; moved\n" + text.replace(" (ask", "\n\n   (ask"), set[str]()),
        (lambda text: text.replace('"one"', '"first"'), {"first"}),
        (lambda text: text.replace("(list ", '(list (content (ask (q "new"))) '), {"new"}),
        (lambda text: text.replace('\'("x" "y" "z")', '\'("z" "y" "v" "x" "w")'), {"v", "w"}),
        (lambda text: text.replace('(content (ask (q "two")))', "2"), set[str]()),
        (lambda text: text.replace('(look (at "a"))', '(look (at "b"))'), {"b"}),
        (lambda text: text.replace('"{{q}}"', '"Say {{q}}"'), {"Say one", "Say x", "Say y", "Say z", "Say two"}),
    ],
    ids=["moved", "first prompt", "inserted", "map reversed and longer", "removed", "a tool's argument", "template"],
)
async def test_only_what_depends_on_the_change_runs_again(
    world: World, flow: Flow, change: Any, carried_out: set[str]
) -> None:
    """Whatever moved, was inserted, removed or put in another order, equal effects are answered from their records."""
    text = f"""{ASK}
    (list (content (ask (q "one"))) (content (look (at "a")))
          (pmap (lambda (i) (content (ask (q i)))) '("x" "y" "z")) (content (ask (q "two"))))"""
    await done(flow, text)
    _, seen = await edited(world, flow, change(text))
    assert set(seen) == carried_out and set(seen.values()) <= {1}


async def test_tasks_that_send_history_depend_on_what_was_said(world: World, flow: Flow) -> None:
    """A changed first prompt changes what every later task sends; one that sends no history is not concerned."""
    text = f"""{ASK} {TOLD}
    (list (content (told (q "one"))) (content (told (q "two"))) (content (ask (q "alone"))) (content (told (q "three"))))"""
    await done(flow, text)
    _, seen = await edited(world, flow, text.replace('"three"', '"last"'))
    assert seen == {"last": 1}
    value, seen = await edited(world, flow, text.replace('"one"', '"first"'))
    assert seen == {"first": 1, "two": 1, "three": 1} and value[3] == "answer to three after 7"


async def test_a_run_in_flight_goes_on_as_its_generation(world: World, flow: Flow) -> None:
    """The edited program takes over an unfinished run, which then says where it went on; killed again, it goes on itself."""
    text = '(list (content (look (at "a"))) (content (look (at "b"))) (content (look (at "c"))))'
    await interrupted(world, flow, text, "b")
    new = text.replace('"c"', '"d"').replace('"b"', '"b2"')
    world.hold, world.awaited = {"d"}, "d"
    world.reached.clear()
    async with flow() as opened:
        handle = await opened.resume("r", program=new)
        await world.reached.wait()
    world.hold = set()
    async with flow() as opened:
        with pytest.raises(JournalError) as caught:
            await (await opened.resume("r")).result()
        assert caught.value.code == "durable/superseded" and handle.run_id in str(caught.value)
        with pytest.raises(JournalError) as caught:
            await opened.start(new, run_id="r")
        assert caught.value.code == "durable/mismatch" and handle.run_id in (caught.value.hint or "")
        again = await opened.resume(handle.run_id)
        assert (await again.result()).value == ["<a>", "<b2>", "<d>"]
        listed = {run.run_id: (run.status, run.base, run.successor) for run in await opened.runs()}
    assert listed == {"r": ("cancelled", None, handle.run_id), handle.run_id: ("done", "r", None)}
    assert world.done == {"a": 1, "b2": 1, "d": 1}
    async with flow() as opened:
        later = await opened.resume("r", program=new.replace('"a"', '"a2"'))
        assert (await later.result()).value == ["<a2>", "<b2>", "<d>"]
        assert (await opened.find_run(later.run_id)).base == handle.run_id  # type: ignore[union-attr]
    assert world.done == {"a": 1, "b2": 1, "d": 1, "a2": 1}


async def test_a_started_run_says_how_to_adopt_the_edited_text(world: World, flow: Flow) -> None:
    """The same id with another text is an error that names what adopts it; with other bindings it is not."""
    await interrupted(world, flow, '(list x (look (at "a")))', "a", bindings={"x": 1})
    async with flow() as opened:
        with pytest.raises(JournalError) as caught:
            await opened.start('(list x (look (at "b")))', {"x": 1}, run_id="r")
        assert caught.value.code == "durable/mismatch" and "resume r --program" in (caught.value.hint or "")
        with pytest.raises(JournalError) as caught:
            await opened.start('(list x (look (at "b")))', {"x": 2}, run_id="r")
        assert caught.value.code == "durable/mismatch" and "--program" not in (caught.value.hint or "")


async def test_a_run_that_works_is_not_taken_over(world: World, flow: Flow) -> None:
    """Its owner would go on paying for what the generation pays for too."""
    world.hold = {"a"}
    async with flow() as opened:
        await opened.start('(look (at "a"))', run_id="r")
        await world.reached.wait()
        with pytest.raises(JournalError) as caught:
            await opened.resume("r", program='(look (at "b"))')
        assert caught.value.code == "durable/owned"
        assert len(await opened.runs()) == 1


async def test_failures_and_decisions_are_made_again(world: World, flow: Flow) -> None:
    """What failed is tried again, and a race is run again: their outcomes belonged to the old program."""
    text = """
    (list (try (value-of (look (at "bad"))) (catch (e) "caught"))
          (race (content (look (at "left"))) (content (look (at "right")))))"""
    world.fail.add("bad")
    world.hold = {"right"}
    value = await done(flow, text)
    assert value == ["caught", "<left>"]
    world.fail, world.hold = set(), set()
    value, seen = await edited(world, flow, text.replace("list (try", "list  (try"))
    assert value[0] == "<bad>" and value[1] in ("<left>", "<right>") and seen["bad"] == 1 and "left" not in seen


async def test_what_is_adopted_costs_nothing_and_says_what_it_saved(world: World, flow: Flow) -> None:
    """Usage and limits of a generation are its own; the handle says what the records it took over had cost."""
    text = f'{ASK} (list (ask (q "one")) (ask (q "two")))'
    await done(flow, text)
    async with flow() as opened:
        handle = await opened.resume("r", program=text.replace("two", "other"), limits=Limits(model_calls=1))
        result = await handle.result()
        assert result.usage.requests == 1 and handle.saved.requests == 1 and handle.replayed == 1
        assert handle.saved.input_tokens > 0


async def test_overrides_change_exactly_those_tasks(world: World, flow: Flow) -> None:
    """Another model or other instructions for one task: defined by the program, or registered; others keep their records."""
    text = f"""{ASK} {TOLD.replace("told", "other")}
    (parallel (content (ask (q "one"))) (content (other (q "two"))) (content (kept (q "three"))))"""
    template = {"name": "kept", "params": "q", "instructions": "Keep {{q}}"}

    async with flow() as opened:
        opened.task_system.register_template(template)
        await (await opened.start(text, run_id="r")).result()
        world.done.clear()
        handle = await opened.resume("r", overrides={"other": {"model": "big"}, "kept": {"instructions": "Put {{q}}"}})
        assert (await handle.result()).value[2] == "answer to Put three after 1"
        assert world.done == {"two": 1, "Put three": 1}
        for overrides, said in (
            ({"othr": {"model": "x"}}, "othr"),
            ({"ask": {"modell": "x"}}, "model"),
            ({"kept": {"max_turns": -1}}, "max_turns"),
            ({"kept": {"params": "z"}}, "params"),
        ):
            with pytest.raises(JournalError) as caught:
                await opened.resume("r", overrides=overrides)
            assert caught.value.code == "durable/override" and said in f"{caught.value.message} {caught.value.hint}"


async def test_a_fork_begins_at_a_path(world: World, flow: Flow) -> None:
    """The effect at the path and what started after it had ended run again; what came before, or ran beside it, does not."""
    text = f"""{ASK}
    (list (content (ask (q "one"))) (content (ask (q "same"))) (content (ask (q "same"))) (content (look (at "z"))))"""
    value = await done(flow, text)
    world.done.clear()
    async with flow() as opened:
        handle = await opened.fork("r", "0/2.0")
        assert (await handle.result()).value == value and handle.run_id != "r"
        assert world.done == {"same": 1, "z": 1}
        assert (await opened.find_run("r")).status == "done"  # type: ignore[union-attr]
        named = await opened.fork("r", "0/0.0", as_run="mine", overrides={"ask": {"model": "big"}})
        await named.result()
        assert named.run_id == "mine" and world.done == {"one": 1, "same": 3, "z": 2}
        with pytest.raises(JournalError) as caught:
            await opened.fork("r", "0/9.0")
        assert caught.value.code == "durable/path"


async def test_a_task_in_its_third_turn_goes_on_although_the_program_moved(world: World, tmp_path: Path) -> None:
    """The steps of an unfinished task are adopted with it, at another path too; not those of one that asks for something else."""
    asked: list[str] = []
    reached = asyncio.Event()

    async def answer(request: Any) -> Any:
        first = next(message.text for message in request.messages if message.text)
        turn = f"{first}-{len(request.messages)}"
        if turn in world.hold:
            reached.set()
            await asyncio.Event().wait()
        asked.append(turn)
        if len(request.messages) < 5:
            return {"tool_calls": [{"name": "look", "arguments": {"at": turn}}]}
        return f"read {len(request.messages)}"

    text = """(defatom work (params (q string)) (instructions "{{q}}") (tools (look)) (history_config '((use_session_history false))))
    (list (content (work (q "go"))))"""

    def opened() -> AgentFlow:
        return AgentFlow(
            provider=ScriptedProvider(answer), tools=[world.look], durable=f"sqlite:///{tmp_path}/r.db", root=tmp_path
        )

    world.hold = {"go-5"}
    async with opened() as flow:
        await flow.start(text, run_id="r")
        await reached.wait()
    world.hold = set()
    asked.clear()
    looked = dict(world.done)
    moved = text.replace("(list ", "(list (content (look (at 'first))) ")
    async with opened() as flow:
        handle = await flow.resume("r", program=moved)
        assert (await handle.result()).value == ["<first>", "read 5"]
        assert asked == ["go-5"] and world.done == {**looked, "first": 1}
        await (await flow.resume(handle.run_id, program=moved.replace('"go"', '"went"'))).result()
        assert asked == ["go-5", "went-1", "went-3", "went-5"]


async def test_the_session_of_a_run_goes_on_with_its_generation(world: World, flow: Flow) -> None:
    """A generation that takes a run over has its session; one of a run that has ended leaves the session alone."""
    text = f'{TOLD} (list (told (q "one")) (content (look (at "x"))))'
    world.hold, world.awaited = {"x"}, "x"
    async with flow() as opened, opened.session("s") as session:
        await opened.start(text, run_id="r", session=session)
        await world.reached.wait()
    world.hold = set()
    async with flow() as opened:
        await (await opened.resume("r", program=text.replace('"x"', '"y"'))).result()
        async with opened.session("s") as session:
            assert [turn[0].text for turn in session.turns()] == ["one"]
        again = await opened.resume("r", program=text.replace('"x"', '"z"').replace("one", "two"))
        await again.result()
        async with opened.session("s") as session:
            assert [turn[0].text for turn in session.turns()] == ["one"]
    assert world.done == {"one": 1, "y": 1, "z": 1, "two": 1}


async def test_a_saved_workflow_is_that_of_the_first_call(world: World, flow: Flow, tmp_path: Path) -> None:
    """A file that changes, comes or goes while a run is interrupted does not change the run; a generation reads it anew."""
    saved = tmp_path / "saved"
    saved.mkdir()
    header = ';;; agentflow workflow 1\n;;; {"name": "step", "params": {"x": {"type": "string"}}}\n'
    (saved / "step.sexp").write_text(header + "(list x (content (look (at x))) 1)")
    text = """(list (content (call-workflow step (x "a"))) (status (call-workflow later (x "a")))
                    (content (look (at "b"))) (content (call-workflow step (x "c"))))"""
    world.hold, world.awaited = {"b"}, "b"
    async with flow(workflows=saved) as opened:
        await opened.start(text, run_id="r")
        await world.reached.wait()
    world.hold = set()
    (saved / "step.sexp").write_text(header + "(list x 2)")
    (saved / "later.sexp").write_text(header.replace("step", "later") + "3")
    async with flow(workflows=saved) as opened:
        value = (await (await opened.resume("r")).result()).value
        assert value == ['["a", "<a>", 1]', "FAILED", "<b>", '["c", "<c>", 1]']
        again = (await (await opened.resume("r", program=text + " ")).result()).value
        assert again == ['["a", 2]', "COMPLETE", "<b>", '["c", 2]']
    assert world.done == {"a": 1, "b": 1, "c": 1}


async def test_an_override_leaves_a_task_what_its_host_gave_it(tmp_path: Path) -> None:
    """The class of its answer, its check and its functions are not data of the template, and stay; the text of an override takes
    the place of the function that gave one."""

    def few(value: Rated, ctx: CallContext) -> Rated:
        return Rated(stars=min(value.stars, 5))

    def system(ctx: CallContext) -> str:
        return "from the host"

    model = ScriptedProvider(lambda request: f'{{"stars": {"9" if "host" in request.system else "3"}}}')
    async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task(check=few, system=system)
        async def rate(text: str) -> Rated:
            """Rate {{text}}."""
            raise NotImplementedError

        @flow.workflow
        async def rating(text: str) -> int:
            return (await rate(text)).stars

        assert (await (await flow.start(rating("a"), run_id="r")).result()).value == 5
        for override, stars in (
            ({"instructions": "Score {{text}}."}, 5),
            ({"system": "Be strict."}, 3),
            ({"*": {}}, 5),
        ):
            overrides = override if "*" in override else {"rate": override}
            handle = await flow.resume("r", overrides=overrides)
            assert (await handle.result()).value == stars
