"""Makes one model call, from request to response, publishes its progress, and parses and checks structured answers."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Protocol, Union, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import to_json, to_jsonable_python

from agentflow.core.call.call import CallContext, EventScope, RunPort, contained, is_stray, view_of
from agentflow.core.call.spending import may_be_billed
from agentflow.core.data.errors import ConfigurationError, ProviderError, ResourceExhausted, clip
from agentflow.core.data.messages import (
    WRITTEN,
    Attempt,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Notice,
    ToolCallPart,
    Usage,
    Waiting,
    are_long,
)
from agentflow.core.data.provider_errors import CallTimeout, IncompleteStream, ProtocolError, Refused
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.walk import LONG_TEXT
from agentflow.core.events.events import (
    AttemptStarted,
    Event,
    ModelStarted,
    PartialOutput,
    TextDelta,
    ThinkingDelta,
    ToolArgumentsDelta,
    WaitStarted,
)
from agentflow.core.ports.ports import Prompt, ProviderAdapter
from agentflow.handler.token_estimate import Estimator
from agentflow.lib.schema.json_schema import Schema, check
from agentflow.lib.schema.partial_json import (
    PartialJson,
    disclosed,
    enclosed,
    parse_answer,
    prune,
    with_root,
    without_thoughts,
)
from agentflow.lib.schema.tagged_unions import TaggedUnions, UnionMissed, tagged_unions


def checked_calls(
    response: ModelResponse, request: ModelRequest, adapter: ProviderAdapter, longest: int
) -> tuple[ToolCallPart, ...]:
    """The tool calls of the answer to ``request``, before any tool has run.

    Raises ResourceExhausted (``output``, ``context``) for an answer that was cut off or has more than ``longest``
    characters, Refused, and ProtocolError for tool calls that cannot be answered: none where some were announced, a
    missing or duplicate id, arguments other than an object, any where no tool was offered.
    """
    calls = response.tool_calls
    if calls and not (request.tools or request.provider_tools):
        raise _unanswerable(
            response, f"the model called '{clip(calls[0].name, 80)}', and no tool is offered", "no tool was run"
        )
    if response.stop_reason not in ("end", "pause", "stop_sequence"):
        _check_stop(response, request, adapter, calls)
    seen: set[str] = set()
    for part in calls:
        problem = None
        if not part.id:
            problem = f"the call of '{clip(part.name, 80)}' has no id"
        elif part.id in seen:
            problem = f"two tool calls have the id '{clip(part.id, 80)}'"
        elif not isinstance(part.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - adapters are foreign code
            problem = f"the arguments of '{clip(part.name, 80)}' are not an object"
        if problem:
            raise _unanswerable(
                response,
                f"the model's tool calls cannot be answered: {problem}",
                "the server is at fault; no tool was run",
            )
        seen.add(part.id)
    size = 0
    for part in response.parts:
        if isinstance(part, WRITTEN):
            size += len(part.text)
    if size > longest:
        raise ResourceExhausted(
            f"the answer has {size:,} characters, at most {longest:,} fit into a string",
            resource="output",
            used=size,
            limit=longest,
            hint="ask for a shorter answer, or raise limits.string",
        )
    return calls


def without_calls(response: ModelResponse, call: CallContext, *, checked: bool) -> ModelResponse:
    """An answer with tool calls to a prompt without tools: its text alone, with a Warning.

    One without text is left unchanged, unless it is ``checked``, and so sent back to be repaired.
    """
    calls = response.tool_calls
    if not checked and not response.text.strip():
        return response
    called = clip(calls[0].name, 80)
    call.warn(
        "handler/no-tools",
        f"the model called '{called}', and no tool is offered: its text alone is the answer",
        model=response.model,
    )
    parts = tuple([part for part in response.parts if not isinstance(part, ToolCallPart)])
    stop = "end" if response.stop_reason == "tool_calls" else response.stop_reason
    return replace(response, parts=parts, stop_reason=stop)


def _check_stop(
    response: ModelResponse, request: ModelRequest, adapter: ProviderAdapter, calls: tuple[ToolCallPart, ...]
) -> None:
    stop = response.stop_reason
    if stop == "max_tokens":
        used = response.usage.output_tokens
        error = ResourceExhausted(
            "the answer was cut off: the model reached its output limit",
            resource="output",
            used=used,
            limit=request.max_output_tokens or used,
            hint="raise max_output_tokens, or ask for a shorter answer",
        )
        error.partial, error.model = response.text, response.model
        error.details["partial"] = clip(response.text)
        error.details["request_id"] = response.request_id
        raise error
    if stop == "context_window":
        window = adapter.profile(request.model).context_window
        raise ResourceExhausted(
            "the answer was cut off: the model's context window is full",
            resource="context",
            used=response.usage.total_tokens,
            limit=window or response.usage.total_tokens,
            hint="give it less: fewer files, fewer history turns, or split the task",
        )
    if stop == "refusal":
        raise Refused(
            f"the model refused to answer{': ' + clip(response.text, 500) if response.text else ''}",
            request_id=response.request_id,
            partial=response.text,
            provider=response.provider,
            model=response.model,
        )
    if stop == "tool_calls" and not calls:
        raise _unanswerable(response, "the model stopped to call tools, but its answer has no tool call")


def _unanswerable(response: ModelResponse, message: str, hint: str | None = None) -> ProtocolError:
    return ProtocolError(
        message,
        request_id=response.request_id,
        partial=response.text,
        provider=response.provider,
        model=response.model,
        hint=hint,
    )


class OutputSchema:
    """The required form of an answer: a JSON Schema, a pydantic model (or any annotated type), or any JSON.

    ``schema`` is the schema of a value, ``requested`` the one sent to the model: the same, with tags for the members of
    unions of classes, and perhaps an object around it.
    """

    __slots__ = ("_adapter", "_enclosed", "_partial", "_unions", "model", "requested", "schema")

    def __init__(self, schema: dict[str, Any] | None, model: Any) -> None:
        self.model = model
        self._adapter: TypeAdapter[Any] | None = None
        self._partial: TypeAdapter[Any] | None = None
        self._unions: TaggedUnions | None = None
        self._enclosed = False
        if model is not None:
            try:
                self._adapter = TypeAdapter(model)
                self._unions = tagged_unions(model)
                schema = schema if schema is not None else self._adapter.json_schema()
            except PydanticUserError as error:
                raise ConfigurationError(
                    f"the output model {model!r} has no JSON Schema: {clip(str(error), 300)}",
                    code="handler/output-model",
                    hint="give a pydantic model, a dataclass, or a type such as list[str]",
                ) from error
        self.schema = schema
        self.requested = schema if self._unions is None else self._unions.schema

    def asking(self, schema: dict[str, Any]) -> OutputSchema:
        """A copy that requests another JSON Schema; the pydantic model still determines the value."""
        result = copy(self)
        result.schema = result.requested = schema
        result._unions = None
        return result

    def as_object(self) -> OutputSchema:
        """A schema with objects as answers: this one, or a copy that requests an object around the value."""
        if self.requested is None or self.requested.get("type") == "object":
            return self
        result = copy(self)
        result.requested = with_root(self.requested)
        if result.requested.get("type") != "object":
            result.requested = enclosed(self.requested)
            result._enclosed = True
        return result

    def text_of(self, text: str) -> str:
        """The JSON text of the value in an answer: the whole answer, or a valid one without its object and its tags."""
        if self._unions is not None:
            value, *problems = self.read(text)
            if not any(problems):
                return self._unions.untagged(value)
        if not self._enclosed:
            return without_thoughts(text)
        value = parse_answer(text)
        inner = disclosed(value)
        return without_thoughts(text) if inner is value else to_json(inner).decode()

    def read(self, text: str) -> tuple[Any, str | None, tuple[str, ...]]:
        """``(value, parse error, schema violations)`` of a complete answer; with a model, the value is its instance."""
        try:
            value = parse_answer(text)
        except ValueError as error:
            return None, clip(str(error), 500), ()
        if self._enclosed:
            value = disclosed(value)
        checked = self._checked(value)
        if checked[2] and (schema := self.schema if self._unions is None else self._unions.schema) is not None:
            completed = Schema(schema).without_nulls(value)
            if completed is not value:
                return self._checked(completed)
        return checked

    def _checked(self, value: Any) -> tuple[Any, str | None, tuple[str, ...]]:
        if self._unions is not None:
            try:
                return self._unions.validate_python(value), None, ()
            except UnionMissed as error:
                return value, None, error.problems[:20]
            except ValidationError as error:
                return value, None, tuple(_problem(problem) for problem in error.errors(include_url=False)[:20])
        if self._adapter is not None:
            try:
                # As JSON, not as Python data: a strict model accepts a date as text only in JSON.
                return self._adapter.validate_json(to_json(value)), None, ()
            except ValidationError as error:
                return value, None, tuple(_problem(problem) for problem in error.errors(include_url=False)[:20])
        if self.schema is not None:
            return value, None, tuple(check(value, self.schema))
        return value, None, ()

    def of_value(self, value: object) -> tuple[Any, str, tuple[str, ...]]:
        """``(value, its JSON text, schema violations)`` of a value that code of the host gives in place of an answer.

        Raises ValueError for a value other than data.
        """
        text = to_json(to_jsonable_python(value)).decode()
        if self._adapter is None:
            return (data := parse_answer(text)), text, () if self.schema is None else tuple(check(data, self.schema))
        try:
            read = self._adapter.validate_json(text)
        except ValidationError as error:
            return value, text, tuple([_problem(problem) for problem in error.errors(include_url=False)[:20]])
        return read, self._adapter.dump_json(read).decode(), ()

    async def read_aside(self, text: str) -> tuple[Any, str | None, tuple[str, ...]]:
        """Like :meth:`read`, but in a thread if the text is long: checking it may take a second."""
        return self.read(text) if len(text) <= LONG_TEXT else await asyncio.to_thread(self.read, text)

    def partial(self, value: Any) -> Any | None:
        """The valid part of an incomplete ``value``; with a model, an instance of its partial type."""
        if self._enclosed:
            value = disclosed(value)
            if not value or isinstance(value, str | int | float):
                return None
        schema = self.schema if self._unions is None else self._unions.schema
        if schema:
            value = prune(value, schema)
        if value is None or self.model is None:
            return value
        if self._partial is None:
            self._partial = TypeAdapter(partial_type(self.model))
        part = _validated(self._partial, value)
        if self._unions is not None and isinstance(part, BaseModel) and not part.model_fields_set:
            return None  # nothing but a tag, which no partial class has
        return part


def _problem(problem: Mapping[str, Any]) -> str:
    location = ".".join(str(part) for part in problem["loc"]) or "the value"
    return f"{location}: {problem['msg']}"


def _validated(adapter: TypeAdapter[Any], value: Any) -> Any | None:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if not isinstance(value, dict):
            return None
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
    kept = {key: item for key, item in cast(dict[str, Any], value).items() if key not in wrong}
    try:
        return adapter.validate_python(kept)
    except ValidationError:
        return None


class PartialModel(BaseModel):
    """Base of the partial types: a field yet to arrive is None, and absent from :meth:`model_dump`."""

    model_config = ConfigDict(populate_by_name=True)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """The fields that have arrived. Options are those of pydantic."""
        options.setdefault("exclude_unset", True)
        return super().model_dump(**options)


def partial_type(kind: Any, _made: dict[Any, Any] | None = None) -> Any:
    """``kind`` with every field of every model in it optional; missing fields are None and not in ``model_fields_set``.

    Lists, dicts and unions are converted inside; other types are unchanged. A recursive model becomes a plain dict.
    """
    built = _made if _made is not None else {}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind in built:
            return built[kind]
        built[kind] = dict[str, Any]
        fields: dict[str, Any] = {
            name: (
                partial_type(info.annotation, built) | None,
                Field(default=None, alias=info.alias, validation_alias=info.validation_alias),
            )
            for name, info in kind.model_fields.items()
        }
        built[kind] = create_model(f"Partial{kind.__name__}", __base__=PartialModel, **fields)
        return built[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return Union[tuple(partial_type(item, built) for item in inner)]  # noqa: UP007 - built from a tuple
    if origin is list and inner:
        return list[partial_type(inner[0], built)]
    if origin is dict and len(inner) == 2:
        return dict[inner[0], partial_type(inner[1], built)]
    return cast(Any, kind)


class OutputSchemas:
    """OutputSchemas by output model, cached while the model lives: a type adapter takes a millisecond to build."""

    def __init__(self) -> None:
        self._by_model: WeakKeyDictionary[Any, OutputSchema] = WeakKeyDictionary()

    def of(self, prompt: Prompt) -> OutputSchema | None:
        """The output schema of a prompt; None if it asks for text. Raises ConfigurationError."""
        model, schema = prompt.output_model, prompt.output_schema
        if model is None:
            return OutputSchema(schema, None) if prompt.json_output or schema is not None else None
        try:
            cached = self._by_model.get(model)
            if cached is None:
                cached = self._by_model[model] = OutputSchema(None, model)
        except TypeError:  # not every annotation can be referenced weakly
            cached = OutputSchema(None, model)
        return cached if schema is None or schema == cached.schema else cached.asking(schema)


class PartialAnswer:
    """A structured answer while it streams: takes text, returns partial values."""

    __slots__ = ("_last", "_shape", "_text")

    def __init__(self, shape: OutputSchema) -> None:
        self._shape = shape
        self._text = PartialJson()
        self._last: Any = None

    def feed(self, text: str) -> Any | None:
        """Add ``text``. Returns the partial value if it has changed, else None."""
        value = self._text.feed(text)
        if not value or isinstance(value, str | int | float):
            return None
        part = self._shape.partial(value)
        if part is None or part == self._last:
            return None
        self._last = part
        return part


Show = Callable[[Event, Callable[[], int]], Iterable[Event]]
ALLOWANCE = 64
"""Number of unread events that make the producer wait for the reader."""


class PromptEvents:
    """A queue of the events of a prompt in ``run``, for one reader; delta producers wait for it.

    Parameters: ``show`` returns the events to show the reader for an event, with numbers from its second argument.
    """

    def __init__(self, run: RunPort, show: Show | None = None) -> None:
        self._run = run
        self._show = show
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._room = asyncio.Event()

    def congested(self) -> bool:
        """Whether the reader, or the run's own stream, is behind."""
        return self.queue.qsize() > ALLOWANCE or self._run.congested()

    def publish(self, event: Event) -> None:
        """Publish to the run's observers and to the reader."""
        self._run.publish(event)
        for shown in (event,) if self._show is None else self._show(event, self._run.next_seq):
            self.queue.put_nowait(shown)

    async def room(self) -> None:
        """Wait until the reader and the run's own stream take deltas again."""
        if self._run.congested():
            await self._run.room()
        while self.queue.qsize() > ALLOWANCE:
            self._room.clear()
            await self._room.wait()

    async def next(self) -> Event | None:
        """The next event; None after the last."""
        event = await self.queue.get()
        if self.queue.qsize() <= ALLOWANCE // 2:
            self._room.set()
        return event

    def end(self) -> None:
        """End the stream: no more events will come."""
        self.queue.put_nowait(None)


def watch(call: CallContext, *content: object, show: Show | None = None) -> tuple[PromptEvents, CallContext]:
    """The events of a prompt, and its call, which has the same path as without watching.

    ``content`` identifies the prompt if ``call`` is not ordered; ``show`` as for :class:`PromptEvents`.
    """
    inner, events = call.start(call.span, "Prompt", *content), PromptEvents(call.run, show)
    inner.run = view_of(
        call.run, watched=True, streaming=True, publish=events.publish, congested=events.congested, room=events.room
    )
    return events, inner


_log = logging.getLogger(__name__)

WARN_AT = 0.8
"""Share of the window that causes a warning."""


class ContextGuard:
    """Watches how much of its model's context window a prompt uses. ``window`` is its size in tokens."""

    __slots__ = ("_adapter", "_call", "_estimator", "_profile", "_warned", "_window")

    def __init__(
        self, adapter: ProviderAdapter, profile: ModelProfile, window: int, estimator: Estimator, call: CallContext
    ) -> None:
        self._adapter = adapter
        self._profile = profile
        self._window = window
        self._estimator = estimator
        self._call = call
        self._warned = False

    async def before(self, request: ModelRequest, used: int) -> None:
        """Check a request of about ``used`` tokens before it is sent. Raises ResourceExhausted if it cannot fit."""
        window = self._window
        if used < window * WARN_AT:
            return
        if not self._estimator.counted and self._profile.counts_tokens:
            used = await self._count(request, used)
        self._look(used)
        if used >= window:
            raise ResourceExhausted(
                f"the prompt needs about {used:,} tokens, {self._profile.model} has a context window of {window:,}",
                resource="context",
                used=used,
                limit=window,
                hint="give it less: fewer files, fewer history turns, or split the task",
            )

    async def _count(self, request: ModelRequest, otherwise: int) -> int:
        try:
            return await self._adapter.count_tokens(request)
        except ProviderError as error:  # a failed count must not fail a call that may succeed
            _log.info("tokens could not be counted (%s); the estimate stands", error.code)
            return otherwise

    def after(self, response: ModelResponse) -> None:
        """Check the provider's own figures after an answer, and warn if the window is nearly full."""
        usage = response.usage
        if usage.input_tokens:
            self._look(usage.input_tokens + usage.output_tokens)

    def _look(self, used: int) -> None:
        window = self._window
        if used >= window * WARN_AT and not self._warned:
            self._warned = True
            self._call.warn(
                "context/near-limit",
                f"{used:,} of {window:,} tokens of {self._profile.model}'s context window are in use",
                used=used,
                limit=window,
            )


class Payer(Protocol):
    """The prompt that makes a model call, and accounts for its cost.

    ``arrived`` characters of an answer have come so far; ``due`` says that the call was sent and is not charged yet; ``shown`` are
    the texts of the present answer that were published, None if they need not be kept.
    """

    arrived: int
    due: bool
    shown: list[str] | None

    def broken(self, request: ModelRequest, arrived: int) -> Usage:
        """Charge a call that was cancelled or broke after ``arrived`` characters had come. Returns its usage."""
        ...

    def unwanted(self, response: ModelResponse) -> None:
        """Charge an unused answer, which an adapter returned although its call was cancelled."""
        ...

    async def again(self, request: ModelRequest) -> None:
        """Reserve for sending ``request`` again after it broke. Raises LimitExceeded if too little is left."""
        ...

    def waits(self, over: bool) -> None:
        """Note that the call begins to wait for its rate or budget, or with ``over`` that it has waited."""
        ...


def model_turn(
    adapter: ProviderAdapter,
    request: ModelRequest,
    call: CallContext,
    turn: int,
    shape: OutputSchema | None,
    account: Payer,
) -> Coroutine[Any, Any, ModelResponse]:
    """Make one model call within ``call``; the returned coroutine gives the complete answer.

    ``turn`` is its number in the prompt, ``shape`` the required form of the answer. ``account`` receives waits, and a call
    without an answer. Publishes ModelStarted and ModelFinished, a pair of events per attempt and, if there are observers of
    them, deltas. Closes the provider's stream on cancellation and on errors. Raises ProviderError; IncompleteStream if
    there was no answer.
    """
    if call.run.watched:
        return _watched(adapter, request, call, turn, shape, account)
    call.next_path()  # paths must not depend on observers
    return answered(adapter, request, None, account)


async def _watched(
    adapter: ProviderAdapter,
    request: ModelRequest,
    call: CallContext,
    turn: int,
    shape: OutputSchema | None,
    account: Payer,
) -> ModelResponse:
    for message in request.messages:
        if are_long(message.parts):
            await call.run.examine(message)
    with call.scope(ModelStarted, request=request, turn=turn, model=request.model) as scope:
        progress = TurnProgress(scope.call, shape, account.shown)
        try:
            response = await answered(adapter, request, progress, account)
        except BaseException as error:  # also when cancelled: the event reports the lost tokens
            progress.ended(error)
            scope.set(usage=sum(progress.lost, NO_USAGE) if progress.lost else None)
            raise
        progress.ended()
        if are_long(response.parts):
            await call.run.examine(response)
        scope.set(
            model=response.model or request.model,
            stop_reason=response.stop_reason,
            request_id=response.request_id,
            cost_usd=response.cost_usd,
            metadata=response.metadata or None,
            usage=sum(progress.lost, response.usage),
            response=response,
        )
        return response


async def answered(
    adapter: ProviderAdapter, request: ModelRequest, progress: TurnProgress | None, account: Payer
) -> ModelResponse:
    """The answer that ends a model call; ``progress`` publishes the deltas before it."""
    response: ModelResponse | None = None
    sent = charged = account.due = False
    arrived = account.arrived = 0
    lost: list[Usage] = []
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    stream = adapter.stream(request)
    try:
        async for delta in stream:
            if size := len(delta.text) + len(delta.thinking) + len(delta.arguments):
                sent = account.due = True
                arrived += size
                account.arrived = arrived
            elif delta.response is not None:
                response = delta.response
                continue
            elif delta.wait is not None:
                sent = account.due = delta.wait.over
                account.waits(delta.wait.over)
            elif (attempt := delta.attempt) is not None:
                sent = True
                if attempt.outcome is None:
                    if charged:
                        await account.again(request)
                    charged, account.due = False, True
                elif attempt.error is not None:
                    account.due = False
                    if arrived or may_be_billed(attempt.error):
                        lost.append(account.broken(request, arrived))
                        charged = True
                        if progress is not None:
                            progress.lost = lost
            elif delta.notice is None:
                sent = account.due = True
            if progress is not None:
                if size > LONG_TEXT:
                    await progress.show_long(delta)
                elif size:
                    progress.show_piece(delta)
                else:
                    progress.show(delta)
                if progress.run.congested():
                    await progress.room(adapter, request)
        if task is not None and task.cancelling() > before:  # the adapter caught its cancellation
            if response is not None:
                account.unwanted(response)
            raise asyncio.CancelledError
        if response is None:
            raise IncompleteStream(
                "the model's stream ended without an answer", provider=type(adapter).__name__, model=request.model
            )
    except BaseException as error:  # also when cancelled: the server may bill an attempt that was sent
        if response is None and sent and not charged and (arrived or may_be_billed(error)):
            lost.append(account.broken(request, arrived))
            if progress is not None:
                progress.lost = lost
        account.due = False
        if is_stray(error, task is None or task.cancelling() > before):  # an adapter is code of the host
            raise contained(error) from error
        raise
    finally:
        await stream.aclose()
    return response


class TurnProgress:
    """Publishes a provider's deltas as events; ``shown`` gets the texts of the last attempt."""

    __slots__ = ("_attempt", "_began", "_call", "_names", "_partial", "_shown", "_wait", "lost", "run")

    def __init__(self, call: CallContext, shape: OutputSchema | None, shown: list[str] | None = None) -> None:
        self.run = call.run
        self._shown = shown
        self._call = call
        self._partial = PartialAnswer(shape) if shape is not None and self.run.streaming else None
        self._names: dict[str, str] = {}
        self._attempt: EventScope | None = None
        self._began: float | None = None
        self._wait: EventScope | None = None
        self.lost: Sequence[Usage] = ()
        """The cost of attempts without an answer."""

    async def room(self, adapter: ProviderAdapter, request: ModelRequest) -> None:
        """Wait until the caller's own stream has been read far enough.

        Raises CallTimeout at twice the time limit of the call, even without a reader.
        """
        wall = request.timeout_s if request.timeout_s is not None else adapter.profile(request.model).wall_s
        end = None if wall is None or self._began is None else self._began + 2 * wall
        timer = asyncio.timeout_at(end)
        try:
            async with timer:
                await self.run.room()
        except TimeoutError:
            if not timer.expired():
                raise
            raise CallTimeout(
                "the model call took longer than its time limit: its stream is not read",
                model=request.model,
                hint="read the stream to its end, or raise timeout_s or Clocks(wall_s=...)",
            ) from None

    async def show_long(self, delta: ModelDelta) -> None:
        """Publish a long delta in several pieces, and let other tasks run in between."""
        for start in range(0, max(len(delta.text), len(delta.thinking), len(delta.arguments)), LONG_TEXT):
            end = start + LONG_TEXT
            piece = replace(
                delta,
                text=delta.text[start:end],
                thinking=delta.thinking[start:end],
                arguments=delta.arguments[start:end],
            )
            self.show_piece(piece if not start else replace(piece, tool_name=""))
            await asyncio.sleep(0)

    def show(self, delta: ModelDelta) -> None:
        """Publish the event of a delta."""
        if delta.attempt is not None:
            self._show_attempt(delta.attempt)
        elif delta.wait is not None:
            self._show_wait(delta.wait)
        elif delta.notice is not None:
            self._show_notice(delta.notice)
        else:
            self.show_piece(delta)

    def show_piece(self, delta: ModelDelta) -> None:
        """Publish a piece of the answer, if anybody takes deltas."""
        if not self.run.streaming:
            return
        call = self._call
        if delta.text:
            if self._shown is not None:
                self._shown.append(delta.text)
            call.emit(TextDelta, text=delta.text)
            if self._partial is not None:
                value = self._partial.feed(delta.text)
                if value is not None:
                    call.emit(PartialOutput, value=value)
        elif delta.thinking:
            call.emit(ThinkingDelta, text=delta.thinking)
        elif delta.tool_name:
            self._names[delta.tool_call_id] = delta.tool_name
            call.emit(ToolArgumentsDelta, call_id=delta.tool_call_id, name=delta.tool_name, text=delta.arguments)
        elif delta.arguments:
            name = self._names.get(delta.tool_call_id, "")
            call.emit(ToolArgumentsDelta, call_id=delta.tool_call_id, name=name, text=delta.arguments)

    def _show_notice(self, notice: Notice) -> None:
        if notice.code:
            self._call.warn(notice.code, notice.message, **notice.details)
        else:
            self._call.log(notice.message, "debug")

    def _show_wait(self, wait: Waiting) -> None:
        if wait.over:
            self._waited()
        else:
            self._wait = self._call.scope(WaitStarted, self._call.path, reason=wait.reason)
            self._wait.__enter__()

    def _waited(self, error: BaseException | None = None) -> None:
        scope, self._wait = self._wait, None
        if scope is not None:
            scope.__exit__(type(error) if error is not None else None, error, None)

    def _show_attempt(self, attempt: Attempt) -> None:
        if attempt.outcome is None:
            if self._shown is not None:
                self._shown.clear()
            if self._began is None:
                self._began = asyncio.get_running_loop().time()
            self.ended()
            self._attempt = self._call.scope(
                AttemptStarted,
                number=attempt.number,
                provider=attempt.provider,
                model=attempt.model,
                server=attempt.server,
            )
            self._attempt.__enter__()
        elif self._attempt is not None:
            self._attempt.set(retry_in_s=attempt.retry_in_s, status=attempt.status)
            if attempt.outcome == "failed":
                self._attempt.set(outcome="error", error=attempt.error)
            self.ended()

    def ended(self, error: BaseException | None = None) -> None:
        if self._wait is not None:
            self._waited(error)
        scope, self._attempt = self._attempt, None
        if scope is not None:
            scope.__exit__(type(error) if error is not None else None, error, None)
