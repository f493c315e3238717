"""A typed function is stateless: it sees its arguments. A conversation is something one asks for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, ScriptedProvider, Session, TaskResult
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.templates import HistoryConfig
from agentflow.errors import ConfigurationError
from tests.support.model_server import ModelServer, Reply
from tests.support.values import value_of


def echo(request: ModelRequest) -> str:
    """How many messages the model was sent."""
    return str(len(request.messages))


def said(session: Session) -> list[str]:
    return [message.text for message in session.messages if message.role == "user"]


DEFATOM = '(defatom say (params (text string)) (instructions "{{text}}")) (value-of (say (text text)))'
SAYS = (
    '(defatom say (params (text string)) (instructions "{{text}}") (history_config true)) (value-of (say (text text)))'
)
TEXT = '''@task
def say(text: str) -> str:
    """{{text}}"""

say(text)
'''
TEXT_SAYS = TEXT.replace("@task", "@task(history=True)")


class Verdict(BaseModel):
    """An answer with fields."""

    good: bool


class TestStateless:
    """Calls in a row send each only its own prompt, on every surface."""

    @pytest.mark.parametrize(("text", "surface"), [(DEFATOM, "sexp"), (TEXT, "python")])
    async def test_tasks_of_programs(self, text: str, surface: Any) -> None:
        """``defatom`` and ``@task`` have no history, and leave none, whatever the session has."""
        model, session = ScriptedProvider(echo), Session()
        async with AgentFlow(provider=model) as flow:
            for number in range(3):
                ran = await flow.run(text, bindings={"text": f"{number}"}, session=session, surface=surface)
                assert ran.value == "1"
        assert session.turn_count == 0

    @pytest.mark.parametrize(("text", "surface"), [(SAYS, "sexp"), (TEXT_SAYS, "python")])
    async def test_tasks_of_programs_that_ask_for_it(self, text: str, surface: Any) -> None:
        """With history they go on with the session that the run was given."""
        model, session = ScriptedProvider(echo), Session()
        async with AgentFlow(provider=model) as flow:
            values = [
                (await flow.run(text, bindings={"text": f"{number}"}, session=session, surface=surface)).value
                for number in range(3)
            ]
        assert values == ["1", "3", "5"] and said(session) == ["0", "1", "2"]

    async def test_functions(self) -> None:
        """In a workflow tasks and asks see their arguments alone, also where the run was given a session."""
        model, session = ScriptedProvider(echo), Session()
        flow = AgentFlow(provider=model)

        @flow.task
        async def review(text: str) -> str:
            """Review {{text}}"""

        @flow.workflow
        async def every() -> list[str]:
            return [await review("a"), await review("b"), await flow.ask("c"), await flow.ask("d")]

        assert await every() == ["1"] * 4
        assert (await flow.run(every(), session=session)).value == ["1"] * 4
        assert session.turn_count == 0
        assert await flow.ask("e") == await flow.ask("f") == "1"

    async def test_twenty_calls_pay_for_twenty_prompts(self, tmp_path: Path) -> None:
        """The input of twenty reviews in a row is twenty times that of one."""
        async with ModelServer([Reply(text="Fine.")] * 21) as server:
            flow = AgentFlow("openai-chat:m", base_url=server.url, api_key="key", root=tmp_path)

            @flow.task
            async def review(text: str) -> str:
                """Review this: {{text}}"""

            @flow.workflow
            async def every() -> None:
                for _ in range(20):
                    await review("x" * 400)

            async with flow:
                await flow.run(review("x" * 400))
                await every()
        one, *others = [len(json.dumps(request.body)) for request in server.requests]
        assert others == [one] * 20

    async def test_an_edited_prompt_runs_again_alone(self, tmp_path: Path) -> None:
        """Of three independent tasks only the one whose prompt has changed is asked again."""
        model = ScriptedProvider(lambda request: f"about {request.messages[-1].text}")
        program = " ".join([
            f'(defatom t{each} (params (x string)) (instructions "Prompt {each} {{{{x}}}}"))' for each in range(3)
        ]) + ' (list (value-of (t0 (x "a"))) (value-of (t1 (x "b"))) (value-of (t2 (x "c"))))'  # fmt: skip
        async with AgentFlow(provider=model, root=tmp_path, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
            await (await flow.start(program, run_id="one")).result()
            assert len(model.requests) == 3
            edited = program.replace("Prompt 0", "Another prompt 0")
            await (await flow.resume("one", program=edited)).result()
        assert [request.messages[-1].text for request in model.requests[3:]] == ["Another prompt 0 a"]


class TestOutermost:
    """``session=``: the outermost call takes part; inside of it, what asks for history."""

    @pytest.mark.parametrize("how", ["run", "stream", "start"])
    @pytest.mark.parametrize("what", ["task", "ask"])
    async def test_a_call_that_is_the_run(self, tmp_path: Path, how: str, what: str) -> None:
        """A task that is the whole of a run goes on with the run's session."""
        model, session = ScriptedProvider(echo), Session()
        flow = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db")

        @flow.task
        async def say(text: str) -> str:
            """{{text}}"""

        async with flow:
            for number, expected in enumerate(["1", "3", "5"]):
                call = say(f"{number}") if what == "task" else flow.ask(f"{number}")
                if how == "run":
                    value = (await flow.run(call, session=session)).value
                elif how == "stream":
                    async with flow.stream(call, session=session) as run:
                        value = await run.value()
                elif what == "task":
                    value = (await (await flow.start(call, session=session)).result()).value
                else:
                    call.close()
                    return  # an ask is not a durable run of its own
                assert value == expected
        assert said(session) == ["0", "1", "2"]

    async def test_an_ask_with_a_session(self) -> None:
        """``flow.ask(session=)`` goes on with it: alone, in a workflow and in a tool, beside the session of the run."""
        model, chat = ScriptedProvider(echo), Session()
        flow = AgentFlow(provider=model)

        @flow.workflow
        async def talk() -> list[str]:
            return [await flow.ask("a", session=chat), await flow.ask("b"), await flow.ask("c", session=chat)]

        assert await flow.ask("first", session=chat) == "1"
        assert await talk() == ["3", "1", "5"]
        assert said(chat) == ["first", "a", "c"]

        @flow.tool
        async def inside() -> str:
            """Talk."""
            return await flow.ask("d", session=chat)

        assert (await flow.run("(value-of (inside))")).value == "7"
        with pytest.raises(ConfigurationError) as twice:
            await flow.run(flow.ask("e", session=chat), session=Session())
        assert twice.value.code == "config/session"

    async def test_an_ask_with_a_session_in_a_durable_run(self, tmp_path: Path) -> None:
        """The conversation has its turns after a replay as after the first time."""
        model, database = ScriptedProvider(echo), f"sqlite:///{tmp_path}/runs.db"
        talked: list[Session] = []

        async def once(flow: AgentFlow) -> list[str]:
            @flow.workflow
            async def talk() -> list[str]:
                chat = Session()
                talked.append(chat)
                return [await flow.ask("a", session=chat), await flow.ask("b", session=chat), str(await flow.now() > 0)]

            async with flow:
                return (await (await flow.start(talk(), run_id="r")).result()).value

        assert await once(AgentFlow(provider=model, durable=database)) == ["1", "3", "True"]
        assert said(talked[0]) == ["a", "b"]

    async def test_history_that_was_declined(self) -> None:
        """A task that says ``history=False`` takes part nowhere, and single settings hold in a session too."""
        model, session = ScriptedProvider(echo), Session()
        flow = AgentFlow(provider=model)

        @flow.task(history=False)
        async def never(text: str) -> str:
            """{{text}}"""

        @flow.task(history={"record_in_session_history": False})
        async def private(text: str) -> str:
            """{{text}}"""

        await flow.run(flow.ask("a"), session=session)
        assert (await flow.run(never("b"), session=session)).value == "1"
        assert (await flow.run(private("c"), session=session)).value == "3"
        assert said(session) == ["a"]

    async def test_the_block_is_not_ambient(self, tmp_path: Path) -> None:
        """Within ``flow.session`` only what is given the session goes on with it."""
        model = ScriptedProvider(echo)
        async with (
            AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow,
            flow.session("ada") as session,
        ):
            await flow.ask("a", session=session)
            assert await flow.ask("b") == "1"
            assert await flow.ask("c", session=session) == "3"
        async with AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db") as flow, flow.session("ada") as session:
            assert said(session) == ["a", "c"]


class TestSettings:
    """Settings adjust those below them one by one, and naming one switches nothing on."""

    async def test_naming_one_setting(self) -> None:
        """A limit of turns is no wish for history."""
        model = ScriptedProvider(echo)
        flow = AgentFlow(provider=model)

        @flow.task(history={"history_turns_to_include": 5})
        async def say(text: str) -> str:
            """{{text}}"""

        @flow.workflow
        async def twice() -> list[str]:
            talking = say.with_options(history=True)
            return [await say("a"), await say("b"), await talking("c"), await talking("d")]

        assert await twice() == ["1", "1", "1", "3"]

    async def test_a_call_of_a_program_adjusts(self) -> None:
        """A private task stays private when a call says how many turns to send."""
        program = """
            (defatom chat (params (say string)) (instructions "{{say}}") (history_config true))
            (defatom private (params (say string)) (instructions "{{say}}")
              (history_config (use_session_history true)))
            (list (value-of (chat (say "a"))) (value-of (chat (say "b")))
                  (value-of (private (say "c") (history_config '((history_turns_to_include 1)))))
                  (value-of (chat (say "d") (history_config false)))
                  (value-of (private (say "e") (history_config true))))"""
        session = Session()
        async with AgentFlow(provider=ScriptedProvider(echo)) as flow:
            assert (await flow.run(program, session=session)).value == ["1", "3", "3", "1", "5"]
        assert said(session) == ["a", "b", "e"]

    async def test_registered_templates_and_prompts_keep_theirs(self) -> None:
        """Templates of the specification and the handler's prompts converse, unless they say otherwise."""
        async with AgentFlow(provider=ScriptedProvider(echo)) as flow:
            flow.task_system.register_template({"name": "t", "subtype": "t", "params": "x", "instructions": "{{x}}"})
            program = '(list (value-of (t (x "a"))) (value-of (t (x "b"))))'
            assert (await flow.run(program)).value == ["1", "3"]
            assert [(await flow.handler.execute_prompt(each)).content for each in "ab"] == ["1", "3"]
            private = HistoryConfig(record_in_session_history=False)
            assert (await flow.handler.execute_prompt("c", history=private)).content == "5"
            assert len(flow.handler.conversation_history) == 4


class TestTheSchema:
    """The form of the answer is said once, and never stored as said by the user."""

    async def test_of_tasks_and_prompts(self) -> None:
        """A dialect with a field for it has no text; what is stored is the prompt."""
        model, session = ScriptedProvider(lambda request: '{"good": true}'), Session()
        async with AgentFlow(provider=model) as flow:
            await flow.run(flow.ask("Is it good?", output=Verdict), session=session)
            await flow.handler.execute_prompt("Is it?", output_model=Verdict)
            await flow.handler.execute_prompt("Any JSON?", json_output=True)
            assert [request.messages[-1].text for request in model.requests[:2]] == ["Is it good?", "Is it?"]
            assert all(request.output_schema for request in model.requests[:2])
            assert "JSON" in model.requests[2].messages[-1].text.removeprefix("Any JSON?")
            assert said(flow.handler.session) == ["Is it?", "Any JSON?"]
        assert said(session) == ["Is it good?"]

    @pytest.mark.parametrize("any_json", [False, True])
    async def test_of_other_servers(self, tmp_path: Path, any_json: bool) -> None:
        """A server that may not read the field is told in words too, and only the prompt is stored."""
        async with ModelServer([Reply(text='{"good": true}')]) as server:
            session = Session()
            async with AgentFlow("openai-chat:m", base_url=server.url, api_key="key", root=tmp_path) as flow:
                output = dict[str, Any] if any_json else Verdict
                await flow.run(flow.ask("Good?", output=output), session=session)
        assert "JSON" in str(server.requests[0].body) and said(session) == ["Good?"]


class TestSideBySide:
    """Runs in one conversation fork it and commit whole turns; nobody is refused."""

    async def test_programs_of_one_handler(self) -> None:
        """Five programs at once on one handler all work, and the conversation has the turns of all."""
        async with AgentFlow(provider=ScriptedProvider(echo)) as flow:
            await flow.evaluator.evaluate_string(SAYS.replace("(text text)", '(text "before")'))
            programs = [SAYS.replace("(text text)", f'(text "{number}")') for number in range(5)]
            values = await asyncio.gather(*[flow.evaluator.evaluate_string(each) for each in programs])
            assert values == ["3"] * 5
            assert sorted(said(flow.handler.session)) == ["0", "1", "2", "3", "4", "before"]

    async def test_tasks_of_one_system(self) -> None:
        """Tasks with history settings do the same, whichever method calls them."""
        async with AgentFlow(provider=ScriptedProvider(echo)) as flow:
            flow.task_system.register_template({
                "name": "t", "subtype": "t", "params": "x", "instructions": "{{x}}", "history_config": {},
            })  # fmt: skip
            results: list[TaskResult] = await asyncio.gather(
                *[flow.task_system.execute_task("atomic", "t", {"x": f"{number}"}) for number in range(5)],
                *[flow.task_system.execute_subtask_directly({"name": "t", "inputs": {"x": "y"}}) for _ in range(2)],
                flow.handler.execute_prompt("z"),
            )
            assert [result.content for result in results] == ["1"] * 8
            assert flow.handler.session.turn_count == 8

    async def test_runs_in_one_session(self) -> None:
        """Each sees what was said before it began and its own; a reset of one leaves what the others say."""
        session, gate = Session(), asyncio.Event()
        flow = AgentFlow(provider=ScriptedProvider(echo))

        @flow.tool
        async def hold() -> str:
            """Wait."""
            await gate.wait()
            return "held"

        @flow.tool
        async def forget() -> str:
            """Forget what was said."""
            flow.handler.reset_conversation()
            return "forgotten"

        async with flow:
            assert await flow.ask("old", session=session) == "1"
            held = f"(hold) {SAYS}"
            runs = [
                asyncio.create_task(value_of(flow.run(held, bindings={"text": each}, session=session))) for each in "ab"
            ]
            clear = asyncio.create_task(value_of(flow.run(f"(forget) {held}", bindings={"text": "c"}, session=session)))
            await asyncio.sleep(0)
            assert await flow.ask("new", session=session) == "3" and session.busy
            gate.set()
            assert await asyncio.gather(*runs, clear) == ["3", "3", "1"]
        assert not session.busy and sorted(said(session)) in (["a", "b", "c", "new"], ["a", "c", "new"], ["c", "new"])

    async def test_a_stored_session(self, tmp_path: Path) -> None:
        """Runs side by side in a stored conversation are all stored."""
        database = f"sqlite:///{tmp_path}/runs.db"
        async with AgentFlow(provider=ScriptedProvider(echo), durable=database) as flow, flow.session("ada") as session:
            assert await asyncio.gather(*[flow.ask(f"{each}", session=session) for each in range(5)]) == ["1"] * 5
        async with AgentFlow(durable=database) as flow, flow.session("ada") as session:
            assert sorted(said(session)) == ["0", "1", "2", "3", "4"]
