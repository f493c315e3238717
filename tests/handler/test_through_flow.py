"""The handler inside a whole flow: programs, tasks, tools and models together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ScriptedProvider, Session, tool
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.data.provider_errors import ProtocolError
from agentflow.events import PartialOutput, SubtaskStarted, TextDelta, ToolStarted
from agentflow.handler.tools import subtask_tool
from agentflow.lib.schema.partial_json import PartialJson, parse_answer
from agentflow.providers.dialects.decoding import parse_arguments
from agentflow.providers.dialects.wire import parse_json
from tests.support.fakes import check_strictly

ASK = '(defatom ask (params (q string)) (instructions "Answer {{q}}") (history_config true))'


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


def flow_of(root: Path, *replies: Any, **options: Any) -> tuple[AgentFlow, ScriptedProvider]:
    provider = ScriptedProvider(list(replies))
    return AgentFlow(provider=provider, root=root, **options), provider


async def test_task_with_tools(tmp_path: Path) -> None:
    """A task's model calls tools side by side; the value is its answer, the usage that of all its calls."""
    flow, provider = flow_of(
        tmp_path, calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), "3 and 7", tools=[add]
    )
    async with flow:
        result = await flow.run(f'{ASK} (ask (q "sums"))')
    assert result.value.content == "3 and 7" and result.usage.requests == 2
    parts = provider.requests[1].messages[-1].parts
    assert [part.text for part in parts if isinstance(part, ToolResultPart)] == ["3", "7"]
    assert [spec.name for spec in provider.requests[0].tools] == ["add"]


async def test_nested_text_is_tagged(tmp_path: Path) -> None:
    """A subtask's text is on the parent's stream, with a path below the subtask that it belongs to."""
    flow, _ = flow_of(tmp_path, calls(("dig", {"q": "bees"})), "inner words", "outer words")
    async with flow:
        flow.tools.add(subtask_tool("dig", "Digs.", template="digger", parameters={"q": "string"}))
        program = f'{ASK} (defatom digger (params (q string)) (instructions "Dig {{{{q}}}}")) (ask (q "x"))'
        events = []
        async with flow.stream(program) as run:
            async for event in run:
                events.append(event)
            assert (await run.value()).content == "outer words"
    subtask = next(event for event in events if isinstance(event, SubtaskStarted))
    inner = [event for event in events if isinstance(event, TextDelta) and event.path.startswith(subtask.path)]
    outer = [event for event in events if isinstance(event, TextDelta) and event not in inner]
    assert "".join(event.text for event in inner) == "inner words"
    assert "".join(event.text for event in outer) == "outer words"


async def test_partial_output(tmp_path: Path) -> None:
    """A task with a JSON schema shows its answer growing, in the shape asked for."""
    flow, _ = flow_of(tmp_path, '{"title": "a long title here", "n": 3}')
    program = (
        '(defatom j (params (q string)) (instructions "{{q}}") (output_format ((type "json") '
        '(schema {"type" "object" "properties" {"title" {"type" "string"} "n" {"type" "integer"}}})))) (j (q "x"))'
    )
    async with flow, flow.stream(program) as run:
        seen = [event.value async for event in run if isinstance(event, PartialOutput)]
        assert (await run.value()).parsed_content == {"title": "a long title here", "n": 3}
    assert seen[0]["title"].startswith("a") and len(seen) > 2 and seen[-1]["n"] == 3


async def test_session_goes_on(tmp_path: Path) -> None:
    """A session given to several runs holds whole turns that a strict server accepts, tools included."""
    session = Session()
    flow, provider = flow_of(tmp_path, calls(("add", {"a": 1, "b": 2})), "3", "still 3", tools=[add])
    async with flow:
        await flow.run(f'{ASK} (ask (q "sum"))', session=session)
        await flow.run(f'{ASK} (ask (q "and now?"))', session=session)
    check_strictly(provider.requests[-1].messages)
    assert len(session.turns()) == 2 and len(provider.requests[-1].messages) == 5


async def test_data_context_of_a_run(tmp_path: Path) -> None:
    """A program primes its run's session; the next run's starts without."""
    (tmp_path / "note.txt").write_text("the secret is bees")
    flow, provider = flow_of(tmp_path, "1", "2")
    async with flow:
        primed = await flow.run(
            f'{ASK} (system:prime_handler_data_context (initial_files (list "note.txt"))) (ask (q "what?"))'
        )
        await flow.run(f'{ASK} (ask (q "what?"))')
    assert primed.value.content == "1"
    sent = ["".join(message.text for message in request.messages) for request in provider.requests]
    assert "the secret is bees" in sent[0] and "bees" not in sent[1]


async def test_limits_reach_the_turn_loop(tmp_path: Path) -> None:
    """The run's token limit ends a prompt between two turns as LimitExceeded; its tools have run once."""
    flow, _ = flow_of(tmp_path, *[calls(("add", {"a": 1, "b": 2}))] * 5, tools=[add], limits=Limits(model_calls=2))
    started: list[Any] = []
    async with flow:
        flow.subscribe(lambda event: started.append(event) if isinstance(event, ToolStarted) else None)
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(f'{ASK} (ask (q "x"))')
    assert caught.value.limit == "model_calls" and len(started) == 2


async def test_untrusted_programs_offer_what_they_were_granted(tmp_path: Path) -> None:
    """Under ``allow`` a task's model is offered the granted tools only."""
    flow, provider = flow_of(tmp_path, "ok", tools=[add])
    async with flow:
        await flow.define(ASK)
        await flow.run('(ask (q "x"))', allow=["ask"])
    assert provider.requests[0].tools == ()


async def test_approval_of_a_models_call(tmp_path: Path) -> None:
    """A model's call of a tool that needs approval is asked about, also in the host's own run."""
    asked: list[str] = []

    @tool(approval=True)
    async def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    def approve(request: Any) -> bool:
        asked.append(request.text)
        return "tmp" in request.text

    flow, provider = flow_of(
        tmp_path, calls(("wipe", {"path": "/tmp/x"}), ("wipe", {"path": "/"})), "done", tools=[wipe], approve=approve
    )
    async with flow:
        await flow.run(f'{ASK} (ask (q "x"))')
    results = [part for part in provider.requests[1].messages[-1].parts if isinstance(part, ToolResultPart)]
    assert results[0].text == "wiped /tmp/x" and results[1].is_error and len(asked) == 2


async def test_an_answer_longer_than_a_string_may_be_is_refused(tmp_path: Path) -> None:
    """What a model says is bounded like any text of a program: the task has failed for its output, and says how long."""
    flow, _ = flow_of(tmp_path, "word " * 300)
    async with flow:
        result = (await flow.run('(defatom t (params) (instructions "x")) (t)', limits=Limits(string=1_000))).value
    assert result["status"] == "FAILED" and result["notes"]["error"]["type"] == "RESOURCE_EXHAUSTION"
    assert result["notes"]["error"]["metrics"] == {"used": 1_500, "limit": 1_000}


def test_json_of_a_model_is_bounded_in_values() -> None:
    """A parser in C cannot be interrupted, so what would hold the loop is refused before it is parsed."""
    many = "[" + "[]," * 200_000 + "1]"
    with pytest.raises(ValueError, match="more than 200,000"):
        parse_answer(many)
    with pytest.raises(ValueError, match="more than 200,000"):
        parse_answer(f"```json\n{many}\n```")
    partial = PartialJson()
    assert partial.feed(many) is None
    assert parse_arguments('{"a": ' + many + "}", "t")[1].startswith("the arguments for t have more than")
    with pytest.raises(ProtocolError, match="more than 200,000"):
        parse_json(many.encode())
