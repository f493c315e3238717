"""Fakes of the ports: a run that collects its events, a provider that plays a script, a router that knows one provider."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from agentflow.core.call.approval import ApprovalRequest, Decision, decided
from agentflow.core.call.call import CallContext
from agentflow.core.call.run_port import RunShared
from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import (
    Message,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Part,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.events.events import Event, FinishedBase
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.crew import together


class Programs(Protocol):
    """What a FakeRun checks and runs programs with."""

    async def check(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str]
    ) -> Sequence[AgentflowError]: ...
    async def run(
        self,
        program: str | Source,
        allow: frozenset[str] | None,
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        steps: int | None = None,
    ) -> Any: ...


class FakeAdmission:
    """Admits every program of which ``checker`` finds nothing wrong."""

    def __init__(self, checker: Programs | None) -> None:
        self._checker = checker

    async def errors(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str], call: CallContext
    ) -> Sequence[AgentflowError]:
        assert self._checker is not None
        return await self._checker.check(program, allow, names)

    async def past_budget(
        self, program: str | Source, allow: Any, bindings: Any, call: CallContext, taken: int = 0
    ) -> None:
        return None

    async def granted(self, program: str | Source, bindings: Any, call: CallContext) -> frozenset[str] | None:
        return call.grants


class FakeRun:
    """A RunPort that keeps every event, approves as told and runs subtasks with a given function.

    ``checker`` checks and runs programs; ``solver`` takes over tasks that ran out of context or output.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        deps: object = None,
        watched: bool = True,
        streaming: bool | None = None,
        approve: bool | Callable[[ApprovalRequest], object] = False,
        subtask: Callable[[SubtaskRequest, CallContext], TaskResult] | None = None,
        checker: Programs | None = None,
        solver: Any = None,
    ) -> None:
        self.run_id = "run-1"
        self.deps = deps
        self.limits = limits or Limits()
        self.slice = 1
        self.journal = None
        self.programs: set[str] = set()
        self.shared = RunShared()
        self.watched = watched
        self.streaming = watched if streaming is None else streaming
        self.events: list[Event] = []
        self.usage = Usage()
        self.model_calls = 0
        self.characters = 0
        self.approvals: list[ApprovalRequest] = []
        self.subtasks: list[tuple[SubtaskRequest, CallContext]] = []
        self._approve = approve
        self._subtask = subtask
        self.checker = checker
        self.solver = solver
        self.budget = None
        self.funds = None
        self.tools = None
        self.around_tool: tuple[Any, ...] = ()
        self.around_model: tuple[Any, ...] = ()
        self.priority = 0
        self.services = self
        self.admission = FakeAdmission(checker)
        self.next_seq = itertools.count(1).__next__

    def call(self, session: Session | None = None, grants: frozenset[str] | None = None) -> CallContext:
        """The root call of this run."""
        return CallContext(self, session=session, grants=grants)

    def congested(self) -> bool:
        return False

    waits_at_limits = False
    batches = False
    wraps_up = False

    def calls_left(self) -> None:
        return None

    def left(self, limit: str) -> None:
        return None

    async def beyond(self, error: LimitExceeded, call: CallContext) -> None:
        """The run ends at its limits."""
        raise error

    def publish(self, event: Event) -> None:
        self.events.append(event)

    async def examine(self, *values: object, lasting: bool = False) -> None:
        """Nothing is redacted."""

    async def room(self) -> None:
        await asyncio.sleep(0)

    def under_way(self, call: object, begins: bool) -> None:
        """No account is read while it works."""

    def charge_model_call(self) -> None:
        self.model_calls += 1

    def charge_usage(self, usage: Usage, cost_usd: float | None, put_by: bool = False) -> None:
        self.usage += usage

    def task(self, name: str, call: CallContext) -> None:
        """No task can be named here."""

    async def run_subtask(self, request: SubtaskRequest, call: CallContext, task: Any = None) -> TaskResult:
        self.subtasks.append((request, call))
        await asyncio.sleep(0)
        if self._subtask is None:
            return TaskResult.complete(f"subtask {request.name or request.description} done")
        return self._subtask(request, call)

    async def approve(self, request: ApprovalRequest, call: CallContext) -> Decision:
        self.approvals.append(request)
        answer = self._approve(request) if callable(self._approve) else self._approve
        return decided(answer, request, call.warn)

    async def ask(
        self, question: str, schema: Mapping[str, Any] | None, call: CallContext, external: object = None
    ) -> Any:
        raise AssertionError("nobody can be asked here")

    def charge_text(self, characters: int) -> None:
        self.characters += characters

    async def together(self, work: Sequence[Callable[[], Awaitable[Any]]], call: CallContext) -> list[Any]:
        return await together(Budget(self.limits), work, call)

    async def call_value(self, function: Any, arguments: tuple[Any, ...], call: CallContext) -> Any:
        result = function(*arguments)
        return await result if asyncio.iscoroutine(result) else result

    async def take_over(
        self,
        template: TaskTemplate,
        request: SubtaskRequest,
        goal: str,
        failed: TaskResult,
        call: CallContext,
        *,
        rounds: int,
    ) -> TaskResult | None:
        if self.solver is None:
            return None
        return await self.solver.decompose(template, request, goal, failed, call, rounds=rounds)

    def limited(self, model_calls: int, call: CallContext) -> FakeRun:
        return self

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        return None

    async def run_program(
        self,
        program: str | Source,
        allow: frozenset[str] | None,
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        steps: int | None = None,
        written: bool = False,
    ) -> Any:
        assert self.checker is not None
        return await self.checker.run(program, allow, inputs, call, steps=steps)

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one type, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def unbalanced(self) -> list[Event]:
        """Started events without exactly one Finished."""
        ended = [event.started for event in self.events if isinstance(event, FinishedBase)]
        return [event for event in self.events if event.type.endswith("_started") and ended.count(event.seq) != 1]


Reply = str | ModelResponse | BaseException | Callable[[ModelRequest], Any]


def answer(text: str = "", *, stop: StopReason = "end", usage: Usage | None = None) -> ModelResponse:
    """A text answer."""
    return ModelResponse(
        (TextPart(text),) if text else (), stop, usage or Usage(10, 5, requests=1), model="fake-1", request_id="req-1"
    )


def tool_calls(*calls: tuple[str, dict[str, Any]], text: str = "", first_id: int = 1) -> ModelResponse:
    """An answer that calls tools: ``(name, arguments)`` each, with ids ``call-1`` ..."""
    parts: list[Part] = [TextPart(text)] if text else []
    parts += [ToolCallPart(f"call-{i}", name, args) for i, (name, args) in enumerate(calls, first_id)]
    return ModelResponse(tuple(parts), "tool_calls", Usage(10, 5, requests=1), model="fake-1", request_id="req-1")


class FakeProvider:
    """A ProviderAdapter that plays replies in order; unless told otherwise it checks every request as a strict server would.

    A reply is text, a ModelResponse, an exception to raise, or a function of the request giving one of these.
    """

    def __init__(self, *replies: Reply, window: int | None = None, strict: bool = True) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.open_streams = 0
        self.chunks_sent = 0
        self.window = window
        self.strict = strict

    def profile(self, model: str) -> ModelProfile:
        return ModelProfile("fake", model, "fake", self.window, native_json_schema=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        if self.strict:
            check_strictly(request.messages)
        self.requests.append(request)
        self.open_streams += 1
        try:
            await asyncio.sleep(0)
            if not self.replies:
                raise AssertionError("the script has no reply left")
            reply: Any = self.replies.pop(0)
            if callable(reply):
                reply = reply(request)
            if isinstance(reply, BaseException):
                raise reply
            response = answer(reply) if isinstance(reply, str) else reply
            for part in response.parts:
                for delta in _deltas(part):
                    self.chunks_sent += 1
                    yield delta
                    await asyncio.sleep(0)
            yield ModelDelta(response=response)
        finally:
            self.open_streams -= 1

    async def count_tokens(self, request: ModelRequest) -> int:
        return sum(len(message.text) for message in request.messages) // 4

    async def aclose(self) -> None:
        pass


def _deltas(part: Part) -> Iterable[ModelDelta]:
    if isinstance(part, TextPart):
        for word in part.text.split(" "):
            yield ModelDelta(text=word + " ")
    elif isinstance(part, ToolCallPart):
        yield ModelDelta(tool_call_id=part.id, tool_name=part.name)
        yield ModelDelta(tool_call_id=part.id, arguments="{}")


def check_strictly(messages: tuple[Message, ...]) -> None:
    """What a strict server demands: sides alternate, the user begins, every tool call has exactly one result, at once."""
    waiting: list[str] = []
    last = "assistant"
    for message in messages:
        if message.role == last:
            raise AssertionError(f"two {message.role} messages in a row")
        last = message.role
        results = [part.call_id for part in message.parts if isinstance(part, ToolResultPart)]
        assert sorted(results) == sorted(waiting), f"tool calls {waiting} were answered by {results}"
        waiting = [part.id for part in message.parts if isinstance(part, ToolCallPart)]
        assert len(set(waiting)) == len(waiting), "tool call ids are not unique"
        assert message.parts, "an empty message"
    assert not waiting, f"tool calls {waiting} have no result"
    assert not messages or last == "user", "the last message is not the user's"


class FakeRouter:
    """A ModelRouter that knows one provider under every name."""

    def __init__(self, provider: ProviderAdapter) -> None:
        self.provider = provider
        self.asked: list[str | None] = []

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        self.asked.append(model)
        return self.provider, model or "fake-1"

    def full_name(self, model: str | None) -> str:
        return model or "fake-1"
