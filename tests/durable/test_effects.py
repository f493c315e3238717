"""What is another value every time is the same again when a durable run goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import JournalError
from agentflow.core.data.messages import ModelRequest


async def test_chance_and_time_are_recorded(tmp_path: Path) -> None:
    """A run that goes on has the numbers, names and times it had before."""
    text = "(begin (define seen (list (now) (random) (random 1000000) (uuid) (sleep 0))) (note seen) (hold) (note seen) seen)"
    noted: list[Any] = []
    reached, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await release.wait()

    bindings = {"note": noted.append, "hold": hold}
    for last in (False, True):
        async with AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db", root=tmp_path) as flow:
            handle = await flow.start(text, bindings, run_id="r")
            if last:
                release.set()
                noted.append((await handle.result()).value)
            else:
                await reached.wait()
    assert noted[0] == noted[1] == noted[2] and handle.replayed == 6


class Answer(BaseModel):
    words: list[str] = Field(alias="the words")


@dataclass
class Point:
    x: int
    at: date


@pytest.mark.parametrize(("kind", "said"), [(Answer, '{"the words": ["a"]}'), (Point, '{"x": 1, "at": "2026-11-22"}')])
async def test_a_value_of_a_class_is_one_again(tmp_path: Path, kind: type[Any], said: str) -> None:
    """What a task with an output class gives is of that class at first, and when its record answers; nobody asks again."""
    asked: list[str] = []
    seen: list[Any] = []

    def reply(request: ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        return said

    async def go(answer: str | None) -> None:
        db = f"sqlite:///{tmp_path}/runs.db"
        async with AgentFlow(provider=ScriptedProvider(reply), durable=db) as flow:
            flow.task_system.register_template(
                {"name": "ask", "params": {"q": "string"}, "instructions": "{{q}}", "output_model": kind}
            )
            text = '(define r (ask (q "x"))) (look r) (ask-human "go on?") (look r)'
            look = {"look": lambda result: seen.append(result.parsed_content)}
            handle = await flow.start(text, look, run_id="r")
            await handle.wait()
            if answer is not None:
                await flow.send("r", handle.waiting[0].key, answer)
                await handle.result()

    await go(None)
    await go("yes")
    assert len(asked) == 1 and len(seen) == 2 and seen[0] == seen[1] and type(seen[1]) is kind


async def test_a_record_that_its_class_no_longer_takes_ends_the_run(tmp_path: Path) -> None:
    """A class that has changed, unseen by its schema, is no silent change of a value: the run is told, and keeps its records."""
    allowed = {"a", "b"}

    def check(text: str) -> str:
        assert text in allowed, f"{text} is not allowed"
        return text

    class Choice(BaseModel):
        text: Annotated[str, AfterValidator(check)]

    async def go() -> str:
        db = f"sqlite:///{tmp_path}/runs.db"
        async with AgentFlow(provider=ScriptedProvider(['{"text": "a"}']), durable=db) as flow:
            fields = {"name": "ask", "params": {"q": "string"}, "instructions": "{{q}}", "output_model": Choice}
            flow.task_system.register_template(fields)
            handle = await flow.start(
                '(define r (ask (q "x"))) (ask-human "go on?") (get-field r "content")', run_id="r"
            )
            return "waiting" if await handle.wait() == "waiting" else (await handle.result()).value

    assert await go() == "waiting"
    allowed.remove("a")
    with pytest.raises(JournalError, match="no longer matches its output class") as caught:
        await go()
    assert caught.value.code == "durable/mismatch" and "runs fork" in str(caught.value.hint)
    allowed.add("a")
    assert await go() == "waiting"
