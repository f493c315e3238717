"""``/v1``: the real OpenAI SDK talks to exports over TCP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from agentflow import AgentFlow, Limits, ModelDelta, ScriptedProvider, tool
from agentflow.core.data.provider_errors import CallTimeout, Overloaded, RateLimited, ServerError
from agentflow.core.data.results import TaskResult
from agentflow.serve import Export
from agentflow.serve.exports import files_in
from tests.support.serve_clients import openai_client
from tests.support.served import served

CAPITAL = '(defatom capital (params (country)) (instructions "Capital of {{country}}?")) (value-of (capital (country message)))'


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def test_an_export_answers_as_a_model() -> None:
    """Plain and streamed: the same words, usage, and the run's id; the list of models is the exports that take a message."""
    model = ScriptedProvider(lambda request: f"Paris, for {request.messages[-1].text!r}")
    exports = {"capital": CAPITAL, "sum": Export(program="(+ a b)", parameters={"a": "integer", "b": "integer"})}
    async with AgentFlow(provider=model) as flow, served(flow, exports) as server, openai_client(server) as client:
        models = (await client.models.list()).data
        assert [(each.id, each.owned_by) for each in models] == [("capital", "agentflow")]
        assert (await client.models.retrieve("capital")).id == "capital"
        plain = await client.chat.completions.create(model="capital", messages=say("France"))
        text = plain.choices[0].message.content
        assert text == "Paris, for 'Capital of France?'" and plain.choices[0].finish_reason == "stop"
        assert plain.usage is not None and plain.usage.completion_tokens > 0 and plain.usage.prompt_tokens > 0
        assert plain.id == f"chatcmpl-{plain._request_id}"
        stream = await client.chat.completions.create(
            model="capital", messages=say("France"), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(pieces) == text and len([each for each in pieces if each]) > 1, "word by word"
        assert chunks[0].choices[0].delta.role == "assistant" and chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage == plain.usage and not chunks[-1].choices


async def test_only_the_call_in_tail_position_is_the_answer() -> None:
    """What other tasks of the program say on the way is not part of it; where nobody says the value, the value is sent."""
    text = """(defatom say (params (what)) (instructions "{{what}}"))
      (define notes (pmap (lambda (n) (content (say (what n)))) (list "one" "two")))
      (if (string-contains? message "value") (string-join notes " and ") (content (say (what message))))"""
    model = ScriptedProvider(lambda request: f"said {request.messages[-1].text}")
    async with AgentFlow(provider=model) as flow, served(flow, {"x": text}) as server, openai_client(server) as client:
        answers: dict[str, str] = {}
        for asked in ("three", "value"):
            stream = await client.chat.completions.create(model="x", messages=say(asked), stream=True)
            answers[asked] = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            plain = await client.chat.completions.create(model="x", messages=say(asked))
            assert plain.choices[0].message.content == answers[asked]
        assert answers == {"three": "said three", "value": "said one and said two"}


async def test_what_was_said_before_is_the_history_that_tasks_see() -> None:
    """Earlier messages are exchanges of the session, a client's system text the beginning of what its user said.

    A task that is exported takes part, unless it declines; of a program the tasks with history do.
    """
    model = ScriptedProvider(lambda request: " | ".join(f"{each.role}: {each.text}" for each in request.messages))
    exports = {"capital": CAPITAL.replace('?"))', '?") (history_config true))'), "plain": CAPITAL}
    flow = AgentFlow(provider=model)

    @flow.task
    async def visit(country: str) -> str:
        """Capital of {{country}}?"""

    @flow.task(history={"use_session_history": False})
    async def alone(country: str) -> str:
        """Capital of {{country}}?"""

    async with flow, served(flow, {**exports, "visit": visit, "alone": alone}) as server:
        async with openai_client(server) as client:
            before: list[Any] = [
                {"role": "system", "content": "Be brief."},
                *say("Hello"),
                {"role": "assistant", "content": [{"type": "text", "text": "Hi!"}]},
            ]
            answers = {
                name: (await client.chat.completions.create(model=name, messages=[*before, *say("France")])).choices[0]
                for name in ("capital", "plain", "visit", "alone")
            }
    asked = "user: Capital of France?"
    expected = f"user: Be brief.\n\nHello | assistant: Hi! | {asked}"
    said = {name: answer.message.content for name, answer in answers.items()}
    assert said == {"capital": expected, "plain": asked, "visit": expected, "alone": asked}


async def test_thinking_is_shown_apart() -> None:
    """The thinking of the answering model comes as ``reasoning_content``."""

    class Thinking(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            yield ModelDelta(thinking="hm, ")
            async for delta in super().stream(request):
                yield delta

    async with AgentFlow(provider=Thinking(["Paris."])) as flow, served(flow, {"capital": CAPITAL}) as server:
        async with openai_client(server) as client:
            stream = await client.chat.completions.create(model="capital", messages=say("France"), stream=True)
            deltas = [chunk.choices[0].delta async for chunk in stream]
    assert "".join(getattr(each, "reasoning_content", None) or "" for each in deltas) == "hm, "
    assert "".join(each.content or "" for each in deltas) == "Paris."


async def test_tasks_and_python_workflows_are_exports_by_name() -> None:
    """Their parameters are the export's; a single text one takes the message."""
    async with AgentFlow(provider=ScriptedProvider(lambda request: request.messages[-1].text.upper())) as flow:
        flow.task_system.register_template({"name": "shout", "params": "what", "instructions": "{{what}}"})

        @flow.workflow
        async def audit(question: str, depth: int = 1) -> str:
            """Audit."""
            return f"{question} at {depth}"

        async with served(flow, ["shout", audit]) as server, openai_client(server) as client:
            for name, expected in (("shout", "HEY"), ("audit", "hey at 1")):
                answer = await client.chat.completions.create(model=name, messages=say("hey"))
                assert answer.choices[0].message.content == expected
                stream = await client.chat.completions.create(model=name, messages=say("hey"), stream=True)
                assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == expected


async def test_a_text_in_python_has_the_parameters_of_its_main(tmp_path: Path) -> None:
    """With their types, defaults and the docstring, decorated or not, as ``agentflow run`` reads them."""
    body = (
        'def main(paths: list[str], limit: int = 8) -> str:\n    """Look at files."""\n    return f"{limit} {paths}"\n'
    )
    plain, declared, chat = [tmp_path / name for name in ("plain.py", "declared.py", "chat.py")]
    plain.write_text(body)
    declared.write_text(f"@workflow(allow=[])\n{body}")
    chat.write_text('def main(question: str) -> str:\n    return question + "!"\n')
    header = tmp_path / "header.py"
    header.write_text('### agentflow workflow 1\n### {"name": "h", "params": {"word": "string"}}\nword + "?"\n')
    async with (
        AgentFlow(provider=ScriptedProvider([])) as flow,
        served(flow, [plain, declared, chat, header]) as server,
    ):
        offers = server.server.service.offers
        for name in ("plain", "declared"):
            assert offers[name].description == "Look at files."
            assert offers[name].input_schema["required"] == ["paths"]
            assert offers[name].input_schema["properties"]["limit"] == {"type": "integer"}
            for given, value in (({}, "8 ['a']"), ({"limit": 2}, "2 ['a']")):
                ended = await server.ended(await server.begin(name, paths=["a"], **given))
                assert ended["value"] == value
            refused = await server.post("/runs", {"export": name, "bindings": {"paths": "a", "limit": "many"}})
            assert refused.status_code == 400 and "limit" in refused.text
        assert (await server.ended(await server.begin("header", word="so")))["value"] == "so?"
        async with openai_client(server) as client:
            answer = await client.chat.completions.create(model="chat", messages=say("hey"))
            assert answer.choices[0].message.content == "hey!"


FAILURES = [
    (RateLimited("slow down"), openai.RateLimitError, "provider/rate-limited"),
    (Overloaded("busy"), openai.InternalServerError, "provider/overloaded"),
    (ServerError("broken"), openai.InternalServerError, "provider/server-error"),
    (CallTimeout("late"), openai.InternalServerError, "provider/call-timeout"),
]


async def test_failures_of_a_model_are_the_sdks_errors() -> None:
    """Whole answers have their status, streams end with an error; neither is to be repeated by the client by itself."""

    class Failing(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            raise FAILURES[int(request.messages[-1].text[11])][0]
            yield

    async with AgentFlow(provider=Failing()) as flow, served(flow, {"capital": CAPITAL}) as server:
        async with openai_client(server) as client:
            for at, (_, kind, code) in enumerate(FAILURES):
                with pytest.raises(kind) as caught:
                    await client.chat.completions.create(model="capital", messages=say(str(at)))
                assert isinstance(caught.value, openai.APIStatusError) and caught.value.code == code
                assert caught.value.response.headers["x-should-retry"] == "false"
                with pytest.raises(openai.APIError) as streamed:
                    stream = await client.chat.completions.create(model="capital", messages=say(str(at)), stream=True)
                    async for _ in stream:
                        pass
                assert streamed.value.code == code


async def test_a_failed_result_is_a_failure() -> None:
    """A program whose value is a FAILED result did not answer, and would not if it was asked again; neither would a run that met a limit."""

    @tool
    def fail() -> TaskResult:
        """Fail."""
        return TaskResult.failure("tool_execution_error", "no such thing")

    exports = {"failing": "(fail)", "long": Export(program="(while true 1)", limits=Limits(steps=1_000))}
    async with AgentFlow(tools=[fail]) as flow, served(flow, exports) as server, openai_client(server) as client:
        with pytest.raises(openai.UnprocessableEntityError, match="no such thing"):
            await client.chat.completions.create(model="failing", messages=say("x"))
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            await client.chat.completions.create(model="long", messages=say("x"))
        assert caught.value.code == "limits/steps"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": "none", "messages": say("x")}, "serve/unknown-export"),
    ({"model": "sum", "messages": say("x")}, "serve/no-message"),
    ({"model": "capital", "messages": []}, "serve/messages"),
    ({"model": "capital", "messages": [{"role": "assistant", "content": "x"}]}, "serve/messages"),
    ({"model": "capital", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "serve/content"),
    ({"model": "capital", "messages": [3]}, "serve/messages"),
    ({"model": "capital", "messages": say("x"), "n": 2}, "serve/field"),
    ({"messages": say("x")}, "serve/field"),
]


async def test_requests_that_cannot_be_answered_say_why() -> None:
    """Each is refused before a run begins, with our code and what to write instead."""
    exports = {"capital": CAPITAL, "sum": Export(program="(+ a b)", parameters={"a": "integer", "b": "integer"})}
    async with AgentFlow() as flow, served(flow, exports) as server:
        for body, code in BAD:
            answer = await server.post("/v1/chat/completions", body)
            assert answer.status_code in (400, 404) and answer.json()["error"]["code"] == code, answer.text
        assert not list(server.runs)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_has_its_run_cancelled(stream: bool) -> None:
    """Closing the connection cancels the tool that is at work, and nothing of the run is left."""
    began, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def nap() -> str:
        """Sleep."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "slept"

    async with AgentFlow(tools=[nap]) as flow, served(flow, {"nap": "(nap)"}) as server:
        body = {"model": "nap", "messages": say("x"), "stream": stream}
        async with httpx2.AsyncClient(timeout=30) as client:
            asking = asyncio.create_task(client.post(f"{server.url}/v1/chat/completions", json=body))
            await began.wait()
            asking.cancel()
            await asyncio.wait([asking])
        await asyncio.wait_for(ended.wait(), 10)
        [run] = server.runs
        await run.wait()
        assert run.status == "cancelled" and not server.runs.live and run.key.active == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_approval_cannot_be_given_in_a_chat(stream: bool) -> None:
    """The answer says what was asked for, and the run ends without having done it."""
    done: list[str] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        done.append(str(amount))
        return "paid"

    async with AgentFlow(tools=[pay]) as flow:
        export = Export(program="(content (pay (amount 7)))", allow=["pay"])
        async with served(flow, {"pay": export}) as server, openai_client(server) as client:
            if stream:
                chunks = await client.chat.completions.create(model="pay", messages=say("x"), stream=True)
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
            else:
                answer = await client.chat.completions.create(model="pay", messages=say("x"))
                text = answer.choices[0].message.content or ""
            [run] = server.runs
            await run.wait()
    assert "approval" in text and "pay" in text and "7" in text and not done and run.status == "cancelled"


async def test_files_and_saved_workflows_are_exports(tmp_path: Path) -> None:
    """A file is called by its name; the header of a saved workflow says its parameters and what it may call."""
    (tmp_path / "capital.sexp").write_text(CAPITAL)
    (tmp_path / "add.sexp").write_text(
        ';;; agentflow workflow 1\n;;; {"name": "add", "params": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "allow": []}\n(+ a b)\n'
    )
    async with AgentFlow(provider=ScriptedProvider(["Paris."])) as flow:
        async with served(flow, files_in(tmp_path)) as server:
            assert (await server.ended(await server.begin("add", a=1, b=2)))["value"] == 3
            wrong = await server.post("/runs", {"export": "add", "bindings": {"a": "x"}})
            assert wrong.status_code == 400 and "'a'" in wrong.json()["error"]["message"], wrong.text
            unknown = await server.post("/runs", {"export": "add", "bindings": {"a": 1, "b": 2, "c": 3}})
            assert unknown.status_code == 400 and unknown.json()["error"]["code"] == "serve/bindings"
            assert (await server.ended(await server.begin("capital", message="France")))["value"] == "Paris."
