"""Events as spans, by the GenAI conventions of OpenTelemetry: one fold for live traces and for exports of recorded runs.

The names are those of the GenAI conventions; where its editions differ, :mod:`agentflow.observe.conventions` has both.
Attributes outside the conventions begin with ``agentflow.``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import plain
from agentflow.core.events.events import EventBase
from agentflow.observe.conventions import ConventionEdition
from agentflow.observe.span_content import fitting, fitting_messages

MAX_CONTENT = 64 * 1024
"""Maximum length of the JSON of a content attribute, which is cut as data; ``agentflow.content.cut`` then says so."""

Record: TypeAlias = EventBase | Mapping[str, Any]
"""An event, or the JSON object of a recorded one."""
Attribute: TypeAlias = str | bool | int | float | list[str]
Attributes: TypeAlias = dict[str, Attribute]
Kind = Literal["internal", "client"]

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "openai-chat": "openai",
        "openai": "openai",
        "anthropic": "anthropic",
        "bedrock": "aws.bedrock",
        "vertex": "gcp.vertex_ai",
        "foundry": "azure.ai.inference",
    }
)
"""The conventions' names of providers by dialect; another dialect is its own name."""
AZURE_OPENAI = ".openai.azure.com"
"""Where OpenAI's models on Azure are asked, in OpenAI's own dialect."""


@frozen
class SpanStart:
    """The start of a span."""

    name: str
    kind: Kind
    attributes: Attributes


@frozen
class Closed:
    """The end of a span: ``error_type`` is set where it failed or was cancelled, ``failed`` where its status is an error."""

    attributes: Attributes
    error_type: str | None = None
    failed: bool = False
    message: str = ""


@frozen
class Noted:
    """Something that happened within the enclosing span."""

    name: str
    attributes: Attributes


@frozen
class Told:
    """Later attributes of an open span."""

    attributes: Attributes


Key: TypeAlias = tuple[str, int, int]
"""Run, slice, and ``seq`` of the Started event of a span."""


@frozen
class Written:
    """The contents of spans: ``content`` adds the input and output of models and tools, ``edition`` is that of the names."""

    edition: ConventionEdition
    content: bool = False


class SpanFold:
    """Maps each event to its effect on a span, as ``written`` says.

    Keeps the open spans, and for steps without a span of their own (attempts, waits) the spans around them.
    """

    def __init__(self, written: Written) -> None:
        self._written = written
        self._open: set[Key] = set()
        self._around: dict[Key, Key] = {}

    def __call__(self, record: Record) -> tuple[Key, SpanStart | Closed | Noted | Told] | None:
        """The span that an event concerns, and the change to it; None for an event that no span shows."""
        kind = type_of(record)
        if kind.endswith("_finished"):
            return self._finish(record)
        if kind.endswith("_started"):
            return self._start(record)
        return self._within(self.around(record), noted(record))

    def around(self, record: Record) -> Key | None:
        """The open span that an event happens in."""
        key = self._key(record, "parent")
        if key is None:
            return None
        key = self._around.get(key, key)
        return key if key in self._open else None

    def left_open(self, record: Record) -> list[Key]:
        """Remove and return the spans that the slice of ``record`` has left open, the inner ones first."""
        mine = (field(record, "run_id"), field(record, "slice") or 1)
        left = sorted((key for key in self._open if key[:2] == mine), reverse=True)
        self._open.difference_update(left)
        for key in [key for key in self._around if key[:2] == mine]:
            del self._around[key]
        return left

    def _start(self, record: Record) -> tuple[Key, SpanStart | Told] | None:
        key, around = self._key(record, "seq"), self.around(record)
        assert key is not None
        row = opened(record, self._written)
        if row is not None:
            self._open.add(key)
            return key, row
        if around is None:
            return None
        self._around[key] = around
        asked = provider_attributes(record)
        return (around, Told(asked)) if asked else None

    def _finish(self, record: Record) -> tuple[Key, Closed | Noted] | None:
        key = self._key(record, "started")
        if key is None:
            return None
        around = self._around.pop(key, None)
        if around is not None:
            return self._within(around, noted(record))
        if key not in self._open:
            return None
        self._open.discard(key)
        return key, closed(record, self._written)

    def _within(self, key: Key | None, note: Noted | None) -> tuple[Key, Noted] | None:
        return None if key is None or note is None or key not in self._open else (key, note)

    def _key(self, record: Record, name: str) -> Key | None:
        seq = field(record, name)
        return None if seq is None else (field(record, "run_id"), field(record, "slice") or 1, seq)


def field(record: object, name: str) -> Any:
    """A field of an event or of a part of one, as an object or JSON data; None if it is missing."""
    if isinstance(record, Mapping):
        return cast(Mapping[str, Any], record).get(name)
    return getattr(record, name, None)


def type_of(record: Record) -> str:
    """The type of an event: ``task_started``."""
    return cast(str, field(record, "type"))


def opened(record: Record, written: Written) -> SpanStart | None:
    """The start of a span; None for any other event."""
    kind = type_of(record)
    row = _OPEN.get(kind.removesuffix("_started")) if kind.endswith("_started") else None
    if row is None:
        return None
    span = row(record, written)
    span.attributes.update(_where(record))
    return span


def closed(record: Record, written: Written) -> Closed:
    """The end of a span; ``record`` is a Finished event."""
    attributes = _END.get(type_of(record).removesuffix("_finished"), _nothing)(record, written)
    outcome = field(record, "outcome")
    if outcome == "ok":
        return Closed(attributes)
    if outcome in ("cancelled", "suspended"):
        return Closed(attributes, outcome)
    code, message = _failure(record)
    return Closed(attributes, code, True, message)


def provider_attributes(record: Record) -> Attributes:
    """Attributes of a model call that its attempts know: provider and server."""
    if type_of(record) != "attempt_started":
        return {}
    dialect = field(record, "provider")
    attributes: Attributes = {"gen_ai.provider.name": PROVIDERS.get(dialect, dialect)} if dialect else {}
    try:
        server = urlsplit(f"//{field(record, 'server') or ''}")
        address, port = server.hostname, server.port
    except ValueError:  # records may come from elsewhere
        return attributes
    if (address or "").endswith(AZURE_OPENAI) and attributes.get("gen_ai.provider.name") == "openai":
        attributes["gen_ai.provider.name"] = "azure.ai.openai"
    return attributes | _present([("server.address", address), ("server.port", port)])


def noted(record: Record) -> Noted | None:
    """A note on the span around an event; None if the event makes none."""
    row = _NOTES.get(type_of(record))
    return None if row is None else Noted(row[0], {name: value for name, value in row[1](record) if value is not None})


def _where(record: Record) -> Attributes:
    attributes: Attributes = {"agentflow.path": field(record, "path")}
    span = field(record, "span")
    if span is not None:
        source = field(span, "source")
        attributes["code.file.path"] = str(source if isinstance(source, str) else field(source, "name"))
        line = field(span, "line")
        if isinstance(line, int):
            attributes["code.line.number"] = line
    return attributes


def _failure(record: Record) -> tuple[str, str]:
    """The code and message of a failure."""
    error = field(record, "error")
    if error is None:
        error = field(field(field(record, "result"), "notes"), "error")
        code = field(field(error, "details"), "code") or field(error, "reason")
    else:
        code = field(error, "code") or type(error).__name__
    message = field(error, "message") if error is not None else None
    return str(code or "error"), str(message if message is not None else error or "")[:1_000]


def _present(pairs: Iterable[tuple[str, Any]]) -> Attributes:
    return {name: value for name, value in pairs if value is not None and value != ""}


# -- starts of spans


def _run(record: Record, written: Written) -> SpanStart:
    name = field(record, "name") or ""
    labels: Mapping[str, str] = field(record, "labels") or {}
    attributes = _present(
        [
            ("gen_ai.operation.name", "invoke_workflow"),
            (written.edition.workflow, name),
            ("agentflow.run.id", field(record, "run_id")),
            ("agentflow.slice", field(record, "slice")),
            ("gen_ai.conversation.id", labels.get("thread")),
        ]
    )
    attributes.update({f"agentflow.label.{key}": value for key, value in labels.items()})
    return SpanStart(f"invoke_workflow {name}".rstrip(), "internal", attributes)


def _branch(record: Record, written: Written) -> SpanStart:
    return SpanStart(f"branch {field(record, 'form')}[{field(record, 'index')}]", "internal", {})


def _task(record: Record, written: Written) -> SpanStart:
    name = field(record, "name") or ""
    return SpanStart(
        f"invoke_agent {name}".rstrip(),
        "internal",
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name},
    )


def _subtask(record: Record, written: Written) -> SpanStart:
    request = field(record, "request")
    name = field(request, "name") or field(request, "subtype") or ""
    attributes = _present(
        [
            ("gen_ai.operation.name", "invoke_agent"),
            ("gen_ai.agent.name", name),
            ("agentflow.subtask.depth", field(record, "depth")),
        ]
    )
    return SpanStart(f"invoke_agent {name}".rstrip(), "internal", attributes)


def _model(record: Record, written: Written) -> SpanStart:
    request, model = field(record, "request"), field(record, "model") or ""
    schema = field(request, "output_schema")
    attributes = _present(
        [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.request.model", model),
            ("gen_ai.request.max_tokens", field(request, "max_output_tokens")),
            ("gen_ai.request.stream", field(request, "stream")),
            ("gen_ai.request.reasoning.level", field(request, "effort")),
            ("gen_ai.output.type", None if request is None else "text" if schema is None else "json"),
            ("agentflow.turn", field(record, "turn")),
        ]
    )
    if written.content and request is not None:
        _put_messages(
            attributes, "gen_ai.input.messages", [_message(each) for each in field(request, "messages") or ()]
        )
        system = field(request, "system")
        if system:
            _put(attributes, "gen_ai.system_instructions", [{"type": "text", "content": system}])
    return SpanStart(f"chat {model}".rstrip(), "client", attributes)


def _tool(record: Record, written: Written) -> SpanStart:
    name = field(record, "name") or ""
    attributes = _present(
        [
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", name),
            ("gen_ai.tool.type", "function"),
            ("gen_ai.tool.call.id", field(record, "call_id")),
        ]
    )
    if written.content:
        _put(attributes, "gen_ai.tool.call.arguments", _data(field(record, "arguments")))
    return SpanStart(f"execute_tool {name}", "internal", attributes)


def _context(record: Record, written: Written) -> SpanStart:
    question = field(record, "input")
    attributes = _present(
        [("gen_ai.operation.name", "retrieval"), ("gen_ai.retrieval.top_k", field(question, "max_results"))]
    )
    if written.content:
        _put_text(attributes, "gen_ai.retrieval.query.text", str(field(question, "query") or ""))
    return SpanStart("retrieval", "internal", attributes)


_OPEN: Mapping[str, Callable[[Record, Written], SpanStart]] = MappingProxyType(
    {
        "run": _run,
        "branch": _branch,
        "task": _task,
        "subtask": _subtask,
        "model": _model,
        "tool": _tool,
        "context": _context,
    }
)


# -- ends of spans


def _nothing(record: Record, written: Written) -> Attributes:
    return {}


def _end_run(record: Record, written: Written) -> Attributes:
    names = ("steps", "effects", "max_concurrency", "cost_usd")
    return _present([(f"agentflow.{name}", field(record, name)) for name in names]) | usage_attributes(
        record, written.edition
    )


def _end_task(record: Record, written: Written) -> Attributes:
    return _present([("agentflow.cost_usd", field(record, "cost_usd"))]) | usage_attributes(record, written.edition)


def _end_model(record: Record, written: Written) -> Attributes:
    response = field(record, "response")
    reason = field(record, "stop_reason")
    reason = written.edition.finish_reasons.get(reason, reason)
    attributes = _present(
        [
            ("gen_ai.response.model", field(record, "model")),
            ("gen_ai.response.id", field(record, "request_id")),
            ("gen_ai.response.finish_reasons", [reason] if reason else None),
            ("agentflow.cost_usd", field(record, "cost_usd")),
        ]
    ) | usage_attributes(record, written.edition)
    if written.content and response is not None:
        answer = _message({"role": "assistant", "parts": field(response, "parts")})
        _put_messages(attributes, "gen_ai.output.messages", [{**answer, "finish_reason": str(reason or "")}])
    return attributes


def _end_tool(record: Record, written: Written) -> Attributes:
    attributes: Attributes = {}
    if written.content:
        _put_text(attributes, "gen_ai.tool.call.result", str(field(field(record, "result"), "content") or ""))
    return attributes


def _end_context(record: Record, written: Written) -> Attributes:
    return {"agentflow.context.paths": len(field(record, "paths") or ())}


_END: Mapping[str, Callable[[Record, Written], Attributes]] = MappingProxyType(
    {
        "run": _end_run,
        "task": _end_task,
        "subtask": _end_task,
        "model": _end_model,
        "tool": _end_tool,
        "context": _end_context,
    }
)

_USAGE = (
    ("gen_ai.usage.input_tokens", "input_tokens"),
    ("gen_ai.usage.output_tokens", "output_tokens"),
    ("gen_ai.usage.cache_read.input_tokens", "cache_read_tokens"),
    ("gen_ai.usage.reasoning.output_tokens", "reasoning_tokens"),
)
"""The attribute of each count of a usage that all editions name alike."""


def usage_attributes(record: Record, edition: ConventionEdition) -> Attributes:
    """The tokens of a Finished event: input and output always, others unless zero."""
    usage = field(record, "usage")
    if usage is None:
        return {}
    rows = [*_USAGE, *((name, "cache_write_tokens") for name in edition.cache_writes)]
    counts = [(name, field(usage, key) or 0) for name, key in rows]
    return {name: count for at, (name, count) in enumerate(counts) if count or at < 2}


# -- notes on spans

_NOTES: Mapping[str, tuple[str, Callable[[Record], Iterable[tuple[str, Any]]]]] = MappingProxyType(
    {
        "log": ("agentflow.log", lambda r: [("message", field(r, "message")), ("level", field(r, "level"))]),
        "warning": ("agentflow.warning", lambda r: [("code", field(r, "code")), ("message", field(r, "message"))]),
        "effect_replayed": (
            "agentflow.replayed",
            lambda r: [(name, field(r, name)) for name in ("kind", "name", "outcome")],
        ),
        "history_compacted": (
            "agentflow.history_compacted",
            lambda r: [(name, field(r, name)) for name in ("turns", "tokens_before", "tokens_after")],
        ),
        "tool_results_cleared": (
            "agentflow.tool_results_cleared",
            lambda r: [
                ("results", len(field(r, "results") or ())),
                *[(name, field(r, name)) for name in ("tokens_before", "tokens_after")],
            ],
        ),
        "policy_denied": (
            "agentflow.denied",
            lambda r: [(name, field(r, name)) for name in ("name", "argument", "sources", "refused")],
        ),
        "endorsed": ("agentflow.endorsed", lambda r: [(name, field(r, name)) for name in ("sources", "reason")]),
        "attempt_finished": (
            "agentflow.attempt",
            lambda r: [
                ("number", field(r, "number")),
                ("duration_s", field(r, "duration_s")),
                ("error.type", None if field(r, "outcome") == "ok" else _failure(r)[0]),
                ("status", field(r, "status")),
                ("retry_in_s", field(r, "retry_in_s")),
            ],
        ),
        "wait_finished": (
            "agentflow.wait",
            lambda r: [("reason", field(r, "reason")), ("duration_s", field(r, "duration_s"))],
        ),
    }
)


# -- content


def _put_messages(attributes: Attributes, name: str, messages: list[dict[str, Any]]) -> None:
    _set(attributes, name, *fitting_messages(messages, MAX_CONTENT))


def _put(attributes: Attributes, name: str, value: object) -> None:
    _set(attributes, name, *fitting(value, MAX_CONTENT))


def _put_text(attributes: Attributes, name: str, text: str) -> None:
    _set(attributes, name, text[:MAX_CONTENT], len(text) > MAX_CONTENT)


def _set(attributes: Attributes, name: str, text: str, cut: bool) -> None:
    attributes[name] = text
    if cut:
        attributes["agentflow.content.cut"] = True


def _data(value: Any) -> Any:
    try:
        return plain(value)
    except (ValueError, RecursionError):
        return f"({type(value).__name__})"


def _message(message: Any) -> dict[str, Any]:
    """A message in the conventions' shape: ``{role, parts: [{type, ...}]}``."""
    return {"role": field(message, "role"), "parts": [_part(part) for part in field(message, "parts") or ()]}


def _part(part: Any) -> dict[str, Any]:
    match field(part, "type"):
        case "text":
            return {"type": "text", "content": field(part, "text")}
        case "thinking":
            return {"type": "reasoning", "content": field(part, "text")}
        case "tool_call":
            return {
                "type": "tool_call",
                "id": field(part, "id"),
                "name": field(part, "name"),
                "arguments": _data(field(part, "arguments")),
            }
        case "tool_result":
            return {"type": "tool_call_response", "id": field(part, "call_id"), "response": field(part, "text")}
        case other:
            return {"type": str(other)}
