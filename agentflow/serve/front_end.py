"""Shared by the protocols of front ends: a run shown while it executes, over several requests, with its questions between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from agentflow.core.data.errors import AgentflowError, ConfigurationError, DataError, clip, cut
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import plain
from agentflow.core.events.events import (
    Event,
    ModelFinished,
    RunFinished,
    RunStarted,
    SubtaskStarted,
    ToolFinished,
    ToolStarted,
    WaitFinished,
    WaitStarted,
    as_data,
)
from agentflow.core.events.questions import Question
from agentflow.handler.tools import SEARCH_TOOLS
from agentflow.lib.schema.json_schema import Schema
from agentflow.serve.answer import AnswerReader, Piece
from agentflow.serve.error_responses import RequestError, bare_error
from agentflow.serve.exports import Offer
from agentflow.serve.keys import Key
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.streaming import EventStream
from agentflow.serve.waiting_runs import WaitingRuns, nobody_waits


class Asked:
    """The ``open`` questions, approvals and external calls of a run by key; ``declined`` is the question that ended the run by its
    refusal."""

    def __init__(self, service: ServedFlow, run: ServedRun) -> None:
        self.open: dict[str, Question] = {
            key: each for key, each in run.waits.items() if each.signal is None and run.key.may_answer(each)
        }
        self.declined: str | None = None
        self._service = service
        self._run = run
        self._answered: set[str] = set()
        self.state: Mapping[str, Any] | None = None
        """The present state of the client, if it differs from the run's: it goes along with the first answer."""
        self._calls: dict[int, ToolStarted] = {}
        self._askers: dict[str, int | None] = {}

    def take(self, event: Event) -> str | None:
        """Process an event of the run. Returns the key of the question that it asks, if still open."""
        if isinstance(event, WaitFinished):
            if event.outcome != "suspended":  # else the run was unloaded from memory, and the question stays open
                self.open = {key: each for key, each in self.open.items() if each.path != event.path}
        elif isinstance(event, WaitStarted) and event.key and event.key not in {*self._answered, *self.open}:
            question = self._run.waits.get(event.key)
            if question is not None and question.signal is None and self._run.key.may_answer(question):
                self.open[event.key] = question
                caller = self._calls.get(event.parent or 0)
                self._askers[event.key] = event.parent if caller is None else caller.parent
                return event.key
        elif isinstance(event, ToolStarted):
            self._calls[event.seq] = event
        elif isinstance(event, ToolFinished):
            self._calls.pop(event.started, None)
        elif (
            isinstance(event, RunStarted | RunFinished) and event.path == "0"
        ):  # event numbers restart in each slice of a run
            self._calls.clear()
        return None

    @property
    def beside(self) -> bool:
        """Whether other calls that a model asked for at the same time as an open one are at work: their questions are asked together."""
        askers = {self._askers.get(key) for key in self.open} - {None}
        paths = [question.path for question in self.open.values()]
        return any(
            [
                each.parent in askers and not any([path.startswith(f"{each.path}/") for path in paths])
                for each in self._calls.values()
            ]
        )

    async def answer(self, key: str, answer: Any) -> bool:
        """Pass an answer on; False if it is invalid, so that the question stays open."""
        return await self._send(key, answer) is None

    async def _send(self, key: str, answer: Any) -> DataError | None:
        """Pass an answer on; the error of one that does not fit."""
        try:
            await self._service.flow.send(self._run.run_id, key, answer, state=self.state)
        except DataError as error:
            if error.code != "question/unknown":  # answered or withdrawn meanwhile
                return error
        self.state = None
        self._answered.add(key)
        self.open.pop(key, None)
        return None

    async def finish(self, key: str, result: Any, fault: str | None = None) -> None:
        """Pass on the result of an external call, or why it failed.

        One that does not fit fails the call, which its model reads: to call the front end's program once more would give the
        same. Of a text that does not fit, its JSON is tried.
        """
        error = await self._send(key, result) if fault is None else None
        if error is not None and isinstance(result, str):
            with contextlib.suppress(ValueError):
                error = await self._send(key, json.loads(result))
        if fault is not None or error is not None:
            why = fault if error is None else f"the result of the front end does not fit: {error.message}"
            await self._send(key, TaskResult.failure("tool_execution_error", why or "the front end gave no reason"))

    async def decline(self, key: str) -> None:
        """Decline for want of an answer: an approval is denied, and a question ends the run."""
        question = self.open.pop(key, None)
        if question is None:
            return
        if question.reason == "approval":
            await self.answer(key, False)
        else:
            self.declined = question.question
            await self._run.cancel()


BESIDE_S = 0.05
"""Seconds to wait for more questions after the first, before asking a client all of them."""
MAX_TEXT = 65_536
"""Maximum number of characters shown of any text except the answer."""


class ProtocolView(Protocol):
    """Encodes a run in a protocol: each method returns whole events of the stream."""

    def begin(self) -> bytes:
        """The first events of a request's stream."""
        ...

    def take(self, event: Event, piece: Piece | None) -> bytes:
        """The encoding of ``event``; ``piece`` is the piece of the answer in it, if any."""
        ...

    def ask(self, questions: Mapping[str, Question]) -> bytes:
        """The events that ask open questions and end the stream."""
        ...

    async def end(self, *, cut_off: bool) -> bytes:
        """The events that report how the run ended; ``cut_off``: it failed because its answer reached the output limit."""
        ...


V = TypeVar("V", bound=ProtocolView)


class Shown(Generic[V]):
    """A run and its ``view``; ``waiting`` keeps it while its client is asked. A durable run is kept by the journal, too."""

    def __init__(
        self, service: ServedFlow, run: ServedRun, offer: Offer, view: V, waiting: WaitingRuns[Shown[V]]
    ) -> None:
        self.run = run
        self.view = view
        self.asked = Asked(service, run)
        self._service = service
        self._waiting = waiting
        self._events = run.reader()
        self._answer = AnswerReader(offer)

    def stream(self, headers: Mapping[str, str]) -> EventStream:
        """The response to a request: events until the run has ended or asks.

        If the client disconnects before, the run is cancelled; a run that asks waits for the next request.
        """
        waits = False

        async def frames() -> AsyncGenerator[bytes, None]:
            nonlocal waits
            yield self.view.begin()
            while (event := await self._next()) is not None:
                encoded = self.view.take(event, self._answer.take(event))
                if encoded:
                    yield encoded
                self.asked.take(event)
            if self.asked.open:
                waits = True  # set before the question is sent, since the client may answer at once
                self._waiting.put(self.run, self)
                yield self.view.ask(self.asked.open)
            else:
                await self.run.wait()
                yield await self.view.end(cut_off=self._answer.is_cut_off(self.run.failure))

        async def over() -> None:
            if not waits:
                await self._service.left(self.run)

        return EventStream(frames(), {**headers, "x-request-id": self.run.run_id}, after=over)

    async def _next(self) -> Event | None:
        """The next event; None after the last one, and where the run asks."""
        if not self.asked.open or self.asked.beside:
            return await self._events.next()
        try:
            async with asyncio.timeout(BESIDE_S):
                return await self._events.next()
        except TimeoutError:
            return None


def come_back(
    service: ServedFlow,
    run_id: str,
    key: Key,
    offer: Offer,
    view: Callable[[ServedRun], V],
    waiting: WaitingRuns[Shown[V]],
) -> Shown[V]:
    """The run that a client returns to with answers; a durable one also after a restart of the server.

    Raises RequestError (404, ``serve/unknown-run``) if no run with this id waits for this key.
    """
    shown = waiting.find(run_id, key)
    if shown is None:
        run = service.runs.parked(run_id, key, offer.name)
        if run is None:
            raise nobody_waits(run_id)
        shown = Shown(service, run, offer, view(run), waiting)
    return shown


async def leave_behind(
    service: ServedFlow, calls: Iterable[str], key: Key, offer: Offer, waiting: WaitingRuns[Shown[V]]
) -> None:
    """Cancel the runs that wait for results of these ``calls`` and for nothing else: their client continued without them."""
    for run_id in dict.fromkeys([each.rpartition(".")[0] for each in calls]):
        shown = waiting.find(run_id, key)
        run = service.runs.parked(run_id, key, offer.name) if shown is None else shown.run
        if run is None:
            continue
        if all([each.external is not None for each in run.waits.values()]):
            await run.cancel()
        elif shown is not None:
            waiting.put(run, shown)


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_NO_ARGUMENTS = {"type": "object", "properties": dict[str, Any]()}


def client_tools(tools: object, schema: str = "parameters") -> tuple[ToolSpec, ...]:
    """The tools that a client carries out itself, from a list of objects with ``name``, ``description`` and ``schema``.

    Raises RequestError (``serve/tools``).
    """
    if not tools:
        return ()
    specs: dict[str, ToolSpec] = {}
    for at, each in enumerate(cast("list[Any]", tools) if isinstance(tools, list) else [tools]):
        fields = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        name, about, form = fields.get("name"), fields.get("description"), fields.get(schema) or _NO_ARGUMENTS
        wrong = ""
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            wrong = "its name must be a text of letters, digits, '_', '.' and '-'"
        elif name == SEARCH_TOOLS or name in specs:
            wrong = f"the name '{name}' is taken"
        else:
            try:
                Schema(form)
            except (ConfigurationError, ValueError) as error:
                wrong = f"its {schema} are not a JSON Schema: {cut(str(error), 200)}"
            else:
                if not isinstance(form, dict) or cast("dict[str, Any]", form).get("type", "object") != "object":
                    wrong = f"its {schema} must be the JSON Schema of an object"
        if wrong:
            raise RequestError(
                f"a tool of the client cannot be offered: {wrong}",
                code="serve/tools",
                param=f"tools.{at}",
                hint=f'write {{"name": "go_to", "description": "...", "{schema}": {{"type": "object", "properties": {{...}}}}}}',
            )
        told = about if isinstance(about, str) else ""
        specs[cast(str, name)] = ToolSpec(cast(str, name), told, {"type": "object", **cast("dict[str, Any]", form)})
    return tuple(specs.values())


def arguments_of(arguments: Any) -> str:
    """The arguments of a tool call as JSON text, cut to the shown length."""
    try:
        text = json.dumps(as_data(arguments or {}), allow_nan=False)
    except ValueError:  # NaN and infinities, which JSON lacks
        text = json.dumps({"arguments": str(arguments)[:MAX_TEXT]})
    return text if len(text) <= MAX_TEXT else json.dumps({"beginning": text[:MAX_TEXT]})


def subtask_name(event: SubtaskStarted) -> str:
    """The name of the task that a subtask requests, or else its kind."""
    return (event.request.name if event.request is not None else None) or "subtask"


def text_of_model(event: ModelFinished) -> str:
    """The text of a model's answer, cut to the shown length."""
    return "" if event.response is None else clip(event.response.text, MAX_TEXT)


def output_of(event: ToolFinished) -> Any:
    """The value that a tool returned, as JSON data; its text, cut to the shown length, for a text and for long or other values."""
    result = event.result
    if result is None or result.parsed_content is None or len(result.content) > MAX_TEXT:
        return text_of_result(event)
    try:
        data = plain(result.parsed_content)
        json.dumps(data, allow_nan=False)
    except (ValueError, TypeError):
        return text_of_result(event)
    return data


def text_of_result(event: ToolFinished) -> str:
    """The result or the error of a tool call, as clients may see it, cut to the shown length."""
    result = event.result
    error = event.error if result is None else result.notes.error
    if isinstance(error, BaseException) and not isinstance(error, AgentflowError):
        return type(error).__name__
    if error is not None:
        said = error.to_dict() if isinstance(error, AgentflowError) else dict(error)
        told = bare_error(said)
        if told is not said or result is None:
            return clip(str(told["message"]), MAX_TEXT)
    return event.outcome if result is None else clip(result.content, MAX_TEXT)
