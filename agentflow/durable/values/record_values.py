"""The value of a record beyond its data: the span of its effect and its sources."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, cast
from zlib import crc32

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import Reading
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask
from agentflow.core.data.labels import joined
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.data.values import is_long
from agentflow.core.events.journal_rows import EffectRow, JsonText, named_arguments
from agentflow.core.ports.ports import Tool
from agentflow.durable.values.codec import LONG_TEXT, Shaped, comparable
from agentflow.durable.values.data_adapter import DataAdapter, adapter_of, refuse_secret, unfit
from agentflow.tasks.template_registry import PARTS, TASKS_BELOW

_FEW = 16
_SMALL = 1 << 62
"""Limits below which data is first checked for being plain JSON, which is written unchanged."""


def fingerprint(kind: str, *content: Any) -> bytes:
    """A digest of the content of an effect, equal for equal content in every process and for any order of keys.

    A value other than data counts by its type.
    """
    quick = quick_fingerprint(kind, *content)
    return _digest(comparable([kind, *content])) if quick is None else quick


def quick_fingerprint(kind: str, *content: Any) -> bytes | None:
    """The :func:`fingerprint` of small content in plain JSON, like that of most effects; None for any other content."""
    written: list[Any] = [kind]
    for each in content:
        if not _stands(each, 2):
            return None
        entries: Any = each
        written.append(dict(sorted(entries.items())) if type(each) is dict and len(entries) > 1 else each)
    return _digest(written)


def without_below(parts: Any) -> Any:
    """The parts of an effect's content, the list of :func:`content_of` or by name, without the tasks that a model may run; the
    same object if there are none: these never change the requests of the task itself."""
    if isinstance(parts, dict):
        named = cast("dict[str, Any]", parts)
        return {name: each for name, each in named.items() if name != TASKS_BELOW} if TASKS_BELOW in named else named
    if not isinstance(parts, list) or len(cast("list[Any]", parts)) < len(PARTS):
        return cast(Any, parts)
    return cast("list[Any]", parts)[:-1]


_MARK = 4
_UNKNOWN = "0" * _MARK


def parts_of(arguments: Any, definition: Any) -> dict[str, Any]:
    """The parts of an effect's content, by their names in messages, in the same order for equal names."""
    parts: dict[str, Any] = {}
    if isinstance(arguments, dict):
        parts = named_arguments(dict(sorted(cast("dict[str, Any]", arguments).items())))
    elif isinstance(arguments, list | tuple):
        parts = {f"argument {at}": each for at, each in enumerate(cast("Sequence[Any]", arguments), 1)}
    if isinstance(definition, list):
        parts |= dict(zip(PARTS, cast("list[Any]", definition), strict=False))
    elif definition is not None:
        parts["the definition"] = definition
    return parts


def marks_of(arguments: Any, definition: Any = None) -> str:
    """Short digests of the parts of an effect's content, one after the other as :func:`parts_of` has them; zeros for a long
    part, nothing for a single part.

    They locate the difference after :func:`fingerprint` has found one. Every record has them, so they are checksums of 16
    bits; one in 65,536 misses a difference; the part names come from the comparing side.
    """
    parts: list[Any] = []
    if isinstance(arguments, dict):
        entries = cast("dict[str, Any]", arguments)
        parts += entries.values() if len(entries) < 2 else [entries[name] for name in sorted(entries)]
    elif isinstance(arguments, list | tuple):
        parts += cast("Sequence[Any]", arguments)
    if isinstance(definition, list):
        parts += cast("list[Any]", definition)
    elif definition is not None:
        parts.append(definition)
    if len(parts) < 2:
        return ""
    marks = ""
    for each in parts:
        kind: Any = type(each)  # pyright: ignore[reportUnknownVariableType]
        if (kind is str and len(each) <= LONG_TEXT) or (kind is int and -_SMALL < each < _SMALL):
            written = ascii(each)  # the form of most arguments; this runs for every effect
        elif is_long(each):
            marks += _UNKNOWN
            continue
        else:
            written = ascii(comparable(each))
        marks += f"{crc32(written.encode('ascii')) & 0xFFFF:0{_MARK}x}"
    return marks


def differing(was: str, parts: Mapping[str, Any]) -> list[str]:
    """The parts of the content that differ from the marks ``was``; empty if their numbers differ."""
    now = marks_of([*parts.values()])
    if len(was) != len(now):
        return []
    if len(parts) == 1:
        return list(parts)
    pairs = [(was[at : at + _MARK], now[at : at + _MARK]) for at in range(0, len(now), _MARK)]
    return [
        name for name, (one, other) in zip(parts, pairs, strict=True) if one != other and _UNKNOWN not in (one, other)
    ]


def _digest(written: Any) -> bytes:
    return blake2b(ascii(written).encode("ascii"), digest_size=16).digest()


def _stands(value: Any, depth: int) -> bool:
    """Whether a value is small plain JSON. A dict may only be at the top level: its keys are sorted there."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return len(value) <= LONG_TEXT and value.isascii()
    if kind is list or kind is dict:
        if len(value) > _FEW or not depth or (kind is dict and depth < 2 and len(value) > 1):
            return False
        for key in value:
            if kind is dict and (type(key) is not str or key[:1] == "$" or not key.isascii()):
                return False
            each = value[key] if kind is dict else key
            if each is not None and not _stands(each, depth - 1):
                return False
        return True
    return value is None or kind is bool or (kind is int and -_SMALL < value < _SMALL)


_COUNTED = re.compile(r'\{"exchanges":(\d+),')


def counted(changes: dict[str, Any]) -> dict[str, Any]:
    """The stored changes of a conversation: if they are only exchanges, their number comes first."""
    return {"exchanges": len(changes["turns"]), **changes} if changes.keys() == {"turns"} else changes


def exchanges_of(stored: Any) -> int | None:
    """The number of exchanges in stored changes, read from the first characters; None if they hold other changes."""
    if not isinstance(stored, JsonText):
        return stored.get("exchanges")
    match = _COUNTED.match(stored)
    return None if match is None else int(match[1])


def data_of(stored: Any) -> dict[str, Any]:
    """Stored changes as JSON data."""
    return json.loads(stored) if isinstance(stored, JsonText) else stored


def output_of(gives: Tool | CompiledTask) -> DataAdapter[Any] | None:
    """The adapter for the values of a task or tool; None for plain data.

    Raises ConfigurationError for values that cannot be stored (``durable/no-value``, ``durable/secret``).
    """
    if isinstance(gives, Tool):
        if gives.function is None or gives.kind == "subtask":
            return None
        return adapter_of(gives.function, f"the tool {gives.name}", checks=False)
    output = gives.output_adapter
    if output is None:
        return None
    adapter = gives.memo.get("data_adapter")
    if adapter is None:
        adapter = gives.memo["data_adapter"] = DataAdapter[Any](gives.template.output_model, output, checks=True)
    refuse_secret(adapter, f"the task {gives.name}")
    return adapter


def as_data(adapter: DataAdapter[Any], outcome: Any) -> Any:
    """An outcome with its value as data, for its record. Raises NotData for a value that cannot be read back."""
    if not isinstance(outcome, TaskResult):
        return adapter.write(outcome)
    if outcome.parsed_content is None or outcome.failed:
        return outcome
    return replace(outcome, parsed_content=adapter.write(outcome.parsed_content))


def from_data(adapter: DataAdapter[Any] | None, outcome: Any, what: str, path: str) -> Any:
    """The outcome that :func:`as_data` wrote, of the effect ``what`` at ``path``; without an adapter its data.

    Raises JournalError (``durable/mismatch``).
    """
    if not isinstance(outcome, TaskResult):
        return _read(adapter, outcome, what, path)
    if outcome.parsed_content is None or outcome.failed:
        return outcome
    return replace(outcome, parsed_content=_read(adapter, outcome.parsed_content, what, path))


def _read(adapter: DataAdapter[Any] | None, data: Any, what: str, path: str) -> Any:
    if adapter is None:
        return data.data if type(data) is Shaped else data
    try:
        return adapter.read(data)
    except ValueError as error:
        raise unfit(what, path, error) from None


SPAN = "at"
"""Key, in the value of a record, of the offsets where its expression begins and ends in the stored program."""

SOURCES = "from"
"""Key, in the value of a record, of the sources of a result, in a flow with a policy."""

STATE = "state"
"""Key, in the value of a record, of the changes of the run's state that the effect has made."""
MARKS = "of"
"""Key, in the value of a record, of the marks of the request; see :func:`agentflow.durable.values.record_values.marks_of`."""


REQUEST = "by"
"""Key, in the value of a record, of the identity and the sources of its request, under a strict policy."""


@frozen
class Request:
    """A request under a strict policy: the ``identity`` of its call, and the ``sources`` of its arguments and of the tests that led
    to it."""

    identity: str
    sources: frozenset[str]

    @property
    def data(self) -> list[Any]:
        """As JSON data."""
        return [self.identity, sorted(self.sources)]


def request_of(call: CallContext) -> Request | None:
    """The request at ``call``, before it is carried out; None where no tests are followed."""
    reading = call.reading
    if reading is None or reading.guard.following != "strict":
        return None
    sources = reading.sources if call.reasons is None else joined(reading.sources, call.reasons.sources)
    return Request(call.identity, sources)


def request_in(row: EffectRow) -> Request | None:
    """The request that a record answers; None if no tests were followed."""
    value: Any = row.value
    stored: Any = cast("dict[str, Any]", value).get(REQUEST) if isinstance(value, dict) else None
    return None if stored is None else Request(stored[0], frozenset(stored[1]))


def with_request(data: dict[str, Any] | None, request: Request | None) -> dict[str, Any] | None:
    """The value of a record with its request."""
    return data if request is None else {**(data or {}), REQUEST: request.data}


def marks_in(row: EffectRow) -> str:
    """The marks of the request that a record answers; empty if it has none."""
    value: Any = row.value
    return cast("dict[str, Any]", value).get(MARKS, "") if isinstance(value, dict) else ""


def with_marks(data: dict[str, Any], marks: str) -> dict[str, Any]:
    """The value of a record with the marks of its request, if any."""
    return {**data, MARKS: marks} if marks else data


def sources_in(row: EffectRow) -> frozenset[str] | None:
    """The sources of a recorded value; None if it was recorded without a policy, so that they are unknown."""
    value: Any = row.value
    sources: Any = cast("dict[str, Any]", value).get(SOURCES) if isinstance(value, dict) else None
    return None if sources is None else frozenset(sources)


def with_sources(data: dict[str, Any], reading: Reading | None) -> dict[str, Any]:
    """The value of a record with where it came from, in a flow with a policy."""
    return data if reading is None else {**data, SOURCES: sorted(reading.given())}


def offsets_in(program: str | None, span: Span | None) -> list[int] | None:
    """The offsets of ``span`` if it is in the text with the digest ``program``; None for another text."""
    return None if span is None or span.source.digest != program else [span.start, span.end]


def with_span(data: dict[str, Any] | None, site: list[int] | None) -> dict[str, Any] | None:
    """The value of a record with the offsets of its span instead of any it had."""
    if site is None:
        return {key: each for key, each in data.items() if key != SPAN} if data and SPAN in data else data
    return {**(data or {}), SPAN: site}


def span_of(row: EffectRow) -> tuple[int, int] | None:
    """Start and end of a record's expression, in characters of the stored program; None if not recorded."""
    value: Any = row.value
    site: Any = cast("dict[str, Any]", value).get(SPAN) if isinstance(value, dict) else None
    if site is None:
        return None
    start, end = site
    return start, end
