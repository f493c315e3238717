"""What can be put between a strand and the world without touching the language: recording, and answering from records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.results import TaskResult
from agentflow.core.events.effects import Effect
from agentflow.run.strand.strand import EffectHandler
from tests.support.fake_run import FakeFlow

PROGRAM = """
(define (twice i) (list (content (slow (x i))) (content (slow (x (* 10 i))))))
(list (pmap twice '(1 2 3)) (content (retry 3 (flaky))) (try (timeout 60 (twice 4)) (catch (e) 'late)) (parallel (twice 5) (twice 6)))
"""


class Between:
    """A performer before another one; ``records`` holds what each path gave."""

    def __init__(self, inner: EffectHandler, records: dict[str, Any]) -> None:
        self.inner = inner
        self.names = inner.names
        self.records = records

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        raise NotImplementedError


class Recording(Between):
    """Keeps what each effect gave under its path."""

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        assert call.path not in self.records, "no two effects have one path"
        value = self.records[call.path] = await self.inner.perform(effect, call)
        return value


class Replaying(Between):
    """Answers from records, in no hurry and in any order."""

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        await asyncio.sleep(random.random() * 0.002)
        return self.records[call.path]


def tools() -> dict[str, Callable[..., Any]]:
    tries: list[int] = []

    async def slow(x: int) -> str:
        await asyncio.sleep(random.random() * 0.002)
        return f"{x} of {random.random()}"

    def flaky() -> TaskResult:
        tries.append(1)
        if len(tries) < 3:
            return TaskResult.failure("tool_execution_error", "not yet")
        return TaskResult.complete("at last")

    return {"slow": slow, "flaky": flaky}


async def test_a_run_is_repeated_from_its_records_alone() -> None:
    """The same program over the records of a run gives the same value, and no effect is carried out again."""
    flow = FakeFlow(tools=tools())
    performer, records = flow.performer, dict[str, Any]()
    flow.performer = Recording(performer, records)  # type: ignore[assignment]
    value = await flow(PROGRAM)
    count = len(performer.effects)
    assert count > 15 and len(records) == count
    for _ in range(5):
        flow.performer = Replaying(performer, records)  # type: ignore[assignment]
        assert await flow(PROGRAM) == value
    assert len(performer.effects) == count
