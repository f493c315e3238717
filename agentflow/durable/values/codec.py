"""Values of programs as JSON data that can be stored, and back: ``decode(encode(value)) == value``.

Numbers, texts, booleans, null, lists and dicts stand for themselves, dicts with their keys in order. Everything else is an
object with a single key, which begins with ``$``:

========  ==================================================================
``$s``    a symbol
``$f``    an infinite float or NaN; ``$i`` an integer too long for JSON readers, in hexadecimal
``$u``    a text with two lone surrogates that would be read as one character, cut between them
``$d``    a dict with keys other than text or that begin with ``$``: its pairs
``$r``    a TaskResult, ``$e`` an ErrorValue, ``$m`` a MatchItem, ``$q`` a SubtaskRequest
``$c``    a procedure (see :mod:`agentflow.lang.portable`), ``$n`` a primitive by name
``$v``    a value of Python's own types by its name and a text (Decimal, dates and times, UUID, bytes, paths), ``$o`` a set
``$t``    data of an annotated type, in the form written by the type
``$p``    a pydantic model without an annotation: the dict of its fields, which it becomes
``$g``    deep or widely shared data: a numbered list of its containers; ``$k`` refers to one by number
========  ==================================================================

No class is ever looked up by a stored name, and nothing is pickled.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from operator import attrgetter
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, TypeGuard, cast
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from agentflow.core.data.context import MatchItem
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Names
from agentflow.core.data.labels import Following, Label, box
from agentflow.core.data.mapping_records import Entries, is_dict
from agentflow.core.data.media import MEDIA_PARTS
from agentflow.core.data.message_json import CONTENT_PARTS, read_part
from agentflow.core.data.messages import Usage
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.result_notes import ErrorInfo, FailedPart, Notes
from agentflow.core.data.results import NO_NOTES, NO_USAGE, TaskResult
from agentflow.core.data.source import Source
from agentflow.core.data.values import SharedList, Symbol, plain
from agentflow.durable.values.error_codec import NotData, read_error, write_error
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.closure import Closure
from agentflow.lang.portable import captured, dump_closure, load_closure
from agentflow.lang.program import ProgramCache
from agentflow.run.strand.recovery import ErrorValue


@frozen
class NativeCodec:
    """How values of one type are written and read."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _span(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


NATIVE: Mapping[type, NativeCodec] = MappingProxyType(
    {
        Decimal: NativeCodec("decimal", str, Decimal),
        datetime: NativeCodec("datetime", datetime.isoformat, datetime.fromisoformat),
        date: NativeCodec("date", date.isoformat, date.fromisoformat),
        time: NativeCodec("time", time.isoformat, time.fromisoformat),
        timedelta: NativeCodec("timedelta", _span, lambda data: timedelta(*data)),
        UUID: NativeCodec("uuid", str, UUID),
        bytes: NativeCodec("bytes", lambda value: b64encode(value).decode(), b64decode),
    }
)
"""The forms of exactly these types; a subclass is another type, which a text would not give again."""

READERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {**{each.name: each.read for each in NATIVE.values()}, "path": Path}
)


LONG_NOTE = 1_000
"""Maximum number of characters of a text stored unchanged."""
SMALL = 1 << 62
"""The size of integers above which they are not."""


def entries_of(notes: Notes) -> dict[str, Any]:
    """The entries of notes, read from its fields: reading them through the mapping takes four times as long."""
    entries = {key: _note(entry) for key, name in Notes.FIELDS.items() if (entry := getattr(notes, name)) is not None}
    for key, entry in notes.others.items():
        entries[key] = _note(entry)
    return entries


def is_short(entries: dict[Any, Any], depth: int = 1) -> bool:
    """Whether entries are written unchanged: short texts and numbers, in dicts no deeper than ``depth``."""
    for key, each in entries.items():
        kind: Any = type(each)  # pyright: ignore[reportUnknownVariableType]
        if type(key) is not str or key[:1] == "$" or not key.isascii():
            return False
        if kind is str:
            if len(each) > LONG_NOTE or not each.isascii():
                return False
        elif kind is dict:
            if not depth or not is_short(each, depth - 1):
                return False
        elif kind is not bool and (kind is not int or not -SMALL < each < SMALL):
            return False
    return True


def _note(entry: Any) -> Any:
    """An entry of notes as data for :meth:`Notes.of` to restore; a dict as a copy."""
    if type(entry) is dict:
        return dict(cast("dict[Any, Any]", entry))
    if isinstance(entry, Entries):
        return {key: each for key, name in entry.FIELDS.items() if (each := getattr(entry, name)) is not None}
    if isinstance(entry, tuple):
        items = cast("tuple[Any, ...]", entry)
        if items and isinstance(items[0], FailedPart):
            return [{"part": part.part, "error": dict(part.error)} for part in cast("tuple[FailedPart, ...]", items)]
        return [plain(part) if isinstance(part, CONTENT_PARTS) else part for part in items]
    return entry


MAX_DEPTH = 60
"""Depth of nesting beyond which data is written as a list of containers."""
MAX_CONTAINERS = 20_000
MAX_TEXT = 8_000_000
"""Numbers of containers and characters beyond which shared data is written only once."""
_PROGRAMS = 64
"""Number of texts of procedures kept compiled."""
LONG_TEXT = 1_000
"""Maximum number of characters of a short text."""
_INTEGER_BITS = 10_000
_RESULT_USAGE = 5
"""Index of the usage in the data of a TaskResult."""
_PAIR = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
_USAGE: Callable[[Usage], tuple[int, ...]] = attrgetter(*[field.name for field in fields(Usage)])


@frozen
class Shaped:
    """A value of an annotated type as data, in the form that its adapter names; see :mod:`agentflow.durable.values.data_adapter`."""

    form: str
    data: Any


class _TooMuch(Exception):
    """A value is too deep or too large to be written directly."""


class Codec:
    """Writes and reads values. ``names`` resolves the free names of procedures read back, each text compiled once.

    ``following`` says how values are followed where they are read back: a flow may be given a policy later. None: not at all.
    """

    def __init__(self, names: Names | None = None, following: Callable[[], Following] | None = None) -> None:
        self._names = names
        self._following = following
        self._programs = ProgramCache(_PROGRAMS)

    def encode(self, value: Any, *, strict: bool = False) -> Any:
        """``value`` as JSON data. Raises NotData, which names the invalid part; with ``strict`` also for values
        that would be read as another type: a model, a member of an Enum."""
        return _Writer(strict=strict).write(value)

    def decode(self, data: Any, source: Source | None = None) -> Any:
        """The value that :meth:`encode` wrote. Spans of errors are read if they point into ``source``."""
        return self._reader(source).read(data)

    def encode_error(self, error: AgentflowError) -> Any:
        """An error as JSON data. Raises NotData."""
        return write_error(error, self.encode)

    def decode_error(self, data: Any, source: Source | None = None) -> AgentflowError:
        """The error that :meth:`encode_error` wrote."""
        return read_error(data, self._reader(source).read, source)

    def _reader(self, source: Source | None) -> _RecordReader:
        labelled = False if self._following is None else self._following()
        return _RecordReader(self._names, source, self._programs, labelled=labelled)


def comparable(value: Any) -> Any:
    """``value`` as data, equal for equal values: keys are sorted, and a value other than data is represented by its
    type."""
    return _Writer(lenient=True).write(value)


def text_result(value: object) -> Any:
    """The data of a result with a short text and nothing else, like those of most tools; None for any other value.

    Only the text in it is new, and it reads back as an equal result.
    """
    if not is_text(value):
        return None
    content = value.content
    if len(content) > LONG_TEXT or not content.isascii():
        return None
    written: list[Any] = [value.status, content, None, None, {}, write_usage(value.usage), None, []]
    return {"$r": written}


def is_text(value: object) -> TypeGuard[TaskResult]:
    """Whether ``value`` is a result with a text and nothing else: its stored form surely reads back as an equal value."""
    return (
        type(value) is TaskResult
        and type(value.content) is str
        and value.notes is NO_NOTES
        and value.parsed_content is None
        and value.criteria is None
        and value.exception is None
    )


def lasting(data: Any) -> Any:
    """The data of a value without the usage of the results in it, which differs between runs."""
    if isinstance(data, list):
        return [lasting(each) for each in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    entries = cast("dict[str, Any]", data)
    if entries.keys() == {"$r"}:
        return {"$r": [lasting(each) for at, each in enumerate(entries["$r"]) if at != _RESULT_USAGE]}
    return {key: lasting(each) for key, each in entries.items()}


def write_usage(usage: Usage) -> tuple[int, ...] | None:
    """The fields of a usage in order; None if all are zero."""
    return None if usage is NO_USAGE else _USAGE(usage)


def read_usage(tokens: Iterable[int] | None) -> Usage:
    """The usage that :func:`write_usage` wrote."""
    return NO_USAGE if tokens is None else Usage(*tokens)


class _Writer:
    """Writes one value. ``lenient``, for fingerprints, writes the type of a value other than data, and sorts keys;
    ``strict`` refuses values that would be read as another type."""

    def __init__(self, *, lenient: bool = False, strict: bool = False) -> None:
        self._lenient = lenient
        self._strict = strict
        self._containers = 0
        self._text = 0

    def write(self, value: Any) -> Any:
        try:
            try:
                return self._any(value, 0)
            except _TooMuch:
                return self._graph(value)
        except RecursionError:
            raise NotData("objects nested in objects without end") from None

    def _any(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            return self._string(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if value.bit_length() <= _INTEGER_BITS else {"$i": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$f": repr(value)}
        self._containers += 1
        if depth > MAX_DEPTH or self._containers > MAX_CONTAINERS:
            raise _TooMuch
        depth += 1
        if kind is list or kind is tuple:  # the most frequent case: no call for each short text
            return [
                each
                if each is None or (type(each) is str and len(each) <= LONG_TEXT and each.isascii())
                else self._any(each, depth)
                for each in value
            ]
        if kind is dict:
            for key in value:
                if type(key) is not str or key[:1] == "$" or not key.isascii():
                    break
            else:
                return {
                    key: each
                    if each is None or (type(each) is str and len(each) <= LONG_TEXT and each.isascii())
                    else self._any(each, depth)
                    for key, each in (sorted(value.items()) if self._lenient and len(value) > 1 else value.items())
                }
        return self._container(value, partial(self._any, depth=depth))

    def _container(self, value: Any, write: Callable[[Any], Any]) -> Any:
        """A value other than text or number; ``write`` writes its parts."""
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is list or kind is tuple or kind is SharedList:
            return [write(each) for each in value]
        return self._dict(cast("dict[Any, Any]", value), write) if kind is dict else self._object(value, write)

    def _string(self, value: str) -> Any:
        self._text += len(value)
        if self._text > MAX_TEXT and len(value) < self._text:
            raise _TooMuch
        if value.isascii():
            return value
        parts = _PAIR.split(value)
        return value if len(parts) == 1 else {"$u": parts}

    def _dict(self, value: Mapping[Any, Any], write: Callable[[Any], Any]) -> Any:
        simple = True
        for key in value:
            if type(key) is str:
                simple &= not key.startswith("$") and (key.isascii() or len(_PAIR.split(key)) == 1)
            elif key is None or isinstance(key, Symbol | str | int | float | Label) or type(key) in NATIVE:
                simple = False
            else:
                self._foreign(f"a dict with a key of type {type(key).__qualname__}")
                simple = False
        if simple:
            return {key: write(each) for key, each in (sorted(value.items()) if self._lenient else value.items())}
        return {"$d": [[write(key), write(each)] for key, each in value.items()]}

    def _object(self, value: Any, write: Callable[[Any], Any]) -> Any:
        """A value other than a plain text or number, a list or a Python dict."""
        if isinstance(value, TaskResult):
            return {"$r": self._result(value, write)}
        if isinstance(value, Symbol):
            return {"$s": write(value.name)}
        if type(value) is Label:
            # The request identifies an effect, no matter its origin.
            return write(value.value) if self._lenient else {"$l": [sorted(value.sources), write(value.value)]}
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
        native = NATIVE.get(kind)
        if native is not None:
            return {"$v": [native.name, native.write(value)]}
        if kind is set or kind is frozenset:
            return {"$o": [kind.__name__, sorted([write(each) for each in value], key=repr)]}
        if isinstance(value, PurePath):
            return {"$v": ["path", write(str(value))]}
        if kind is Shaped:
            return {"$t": [value.form, write(value.data)]}
        if isinstance(value, MatchItem):
            return {"$m": {name: write(getattr(value, name)) for name in MatchItem.model_fields}}
        if isinstance(value, MEDIA_PARTS):
            return {"$a": write(plain(value)) if self._lenient else plain(value)}
        if isinstance(value, SubtaskRequest):
            return {"$q": {name: write(_settings(getattr(value, name))) for name in _REQUEST}}
        if isinstance(value, ErrorValue):
            return {"$e": write_error(value.error, write)}
        if isinstance(value, Closure):
            return {"$c": self._closure(value)}
        if isinstance(value, Primitive):
            return {"$n": value.name}
        if is_dict(value):
            return self._dict(value, write)
        if self._strict:
            return self._foreign(f"{kind.__module__}.{kind.__qualname__}")
        if isinstance(value, BaseModel):
            return {"$p": write(self._fields(value))}
        # Subclasses (the members of enums, for example) are written as the language sees them: as numbers and texts.
        if isinstance(value, str):
            return write(str.__str__(value))
        if isinstance(value, int):
            return write(int(value))
        if isinstance(value, float):
            return write(float(value))
        if isinstance(value, list | tuple):
            return [write(each) for each in cast("list[Any]", value)]
        return self._foreign(f"{type(value).__module__}.{type(value).__qualname__}")

    def _fields(self, value: BaseModel) -> Any:
        """The fields of a model if they represent it completely: neither a masked secret nor an omitted field does."""
        try:
            data = value.model_dump(mode="json", round_trip=True)
            if self._lenient or _is_all_of(value, data):
                return data
        except (PydanticSerializationError, ValueError):
            pass
        return self._foreign(
            f"a {type(value).__qualname__} with more state than its fields as JSON data, and without an annotation of its type"
        )

    def _foreign(self, what: str) -> Any:
        if self._lenient:
            return {"$?": what}
        raise NotData(what)

    def _result(self, value: TaskResult, write: Callable[[Any], Any]) -> Any:
        return [
            value.status,
            write(value.content),
            None if value.parsed_content is None else write(value.parsed_content),
            None if value.criteria is None else write(value.criteria),
            {} if value.notes is NO_NOTES else self._notes(value.notes, write),
            write_usage(value.usage),
            None if value.exception is None else self._exception(value.exception, write),
            [self._exception(part.exception, write) for part in value.notes.failed_parts or ()],
        ]

    def _notes(self, notes: Notes, write: Callable[[Any], Any]) -> Any:
        entries = entries_of(notes)
        if not self._lenient and is_short(entries):
            return entries
        return self._dict(entries, write)

    def _exception(self, error: BaseException | None, write: Callable[[Any], Any]) -> Any:
        return write_error(error, write) if isinstance(error, AgentflowError) and not self._lenient else None

    def _closure(self, closure: Closure) -> Any:
        if self._lenient:
            return closure.info.text
        name = _assigned(closure)
        if name is not None:
            raise NotData(f"a procedure that uses '{name}', which is changed with set!")
        try:
            return dump_closure(closure)
        except AgentflowError as error:
            raise NotData(f"a procedure that is not data ({error.message})") from error

    def _graph(self, value: Any) -> Any:
        """A value as a list of its containers, each written once and after its parts."""
        self._containers = self._text = -(1 << 62)  # each container is written once here, so the limits do not apply
        nodes: list[Any] = []
        numbers: dict[int, int] = {}
        parts: dict[int, list[Any]] = {}
        alive: list[Any] = []

        def reference(each: Any) -> Any:
            if not _shared(each):
                return self._any(each, 0)
            number = numbers.get(id(each))
            return {"$k": number} if number is not None else self._foreign("data that contains itself")

        pending: list[tuple[Any, bool]] = [(value, False)]
        while pending:
            item, ready = pending.pop()
            if not _shared(item) or id(item) in numbers:
                continue
            if isinstance(item, str):
                node = self._string(item)
            elif ready:
                written = iter(parts[id(item)])  # not its parts as of now: some objects build them on each request
                node = self._container(item, lambda _, written=written: reference(next(written)))
            else:
                if id(item) not in parts:  # else it is open, and contains itself
                    inner: list[Any] = []
                    parts[id(item)] = inner
                    alive.append(item)
                    self._container(item, inner.append)
                    pending.append((item, True))
                    pending += [(part, False) for part in reversed(inner)]
                continue
            numbers[id(item)] = len(nodes)
            nodes.append(node)
        return {"$g": [*nodes, reference(value)]}


def _shared(item: Any) -> bool:
    """Whether an item is written by itself in a graph."""
    if isinstance(item, str):
        return len(item) > LONG_TEXT
    return item is not None and not isinstance(item, int | float | Symbol)


def _is_all_of(value: BaseModel, data: Any) -> bool:
    """Whether a model of the class of ``value``, built from the data of its fields, equals it."""
    kind = type(value)
    try:
        return kind.model_validate_json(json.dumps(data)) == value
    except ValueError:  # by names, where the class reads by alias
        pass
    try:
        return kind.model_validate_json(value.model_dump_json(by_alias=True, round_trip=True)) == value
    except (PydanticSerializationError, ValueError):
        return False


_REQUEST = tuple(field.name for field in fields(SubtaskRequest))


def _settings(value: Any) -> Any:
    """A field of a request; settings become the dicts that they are validated from."""
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value


def _assigned(closure: Closure) -> str | None:
    """A free variable of a closure, or of one it uses, that its program assigns; None if there is none."""
    pending, seen = [closure], {closure.identity}
    while pending:
        at = pending.pop()
        text = at.info.source.text
        for name, value in captured(at).items():
            if "set!" in text and re.search(rf"set!\s+{re.escape(name)}[\s()\[\]]", text):
                return name
            if isinstance(value, Closure) and value.identity not in seen:
                seen.add(value.identity)
                pending.append(value)
    return None


_TEXT_NOTES = ("template_used", "context_source", "model", "program")
_COUNT_NOTES = ("context_files_count", "turns")
"""The fields of notes stored unchanged, by their keys, which are their names."""
_MADE_NOTES = frozenset({*Notes.FIELDS, "$d"}) - {*_TEXT_NOTES, *_COUNT_NOTES}
"""The keys of notes with entries rebuilt from their data."""
_TEXT, _COUNT = frozenset({str, type(None)}), frozenset({int, type(None)})
_HELD = frozenset({list, dict})
"""Types of JSON data that may hold other data."""


class _RecordReader:
    """Reads one value."""

    def __init__(
        self, names: Names | None, source: Source | None, programs: ProgramCache, *, labelled: Following
    ) -> None:
        self._names = names
        self._labelled: Following = labelled
        self._programs = programs
        self._source = source
        self._nodes: list[Any] = []

    def read(self, data: Any) -> Any:
        kind: Any = type(data)  # pyright: ignore[reportUnknownVariableType]
        if kind is list:
            return [self.read(each) if type(each) in _HELD else each for each in data]
        if kind is not dict:
            return data
        if len(data) == 1:
            ((key, inner),) = data.items()
            if key == "$r":
                return self._result(inner)
            if key.startswith("$"):
                return self._marked(key, inner)
        return {key: self.read(each) if type(each) in _HELD else each for key, each in data.items()}

    def _marked(self, key: str, inner: Any) -> Any:
        match key:
            case "$s":
                return Symbol(self.read(inner))
            case "$l":
                value = self.read(inner[1])
                return box(value, frozenset(inner[0])) if self._labelled else value
            case "$f":
                return float(inner)
            case "$i":
                return int(inner, 16)
            case "$u":
                return "".join(inner)
            case "$d":
                return {self.read(key): self.read(each) for key, each in inner}
            case "$m":
                return MatchItem(**self.read(inner))
            case "$a":
                return read_part(inner)
            case "$q":
                return SubtaskRequest(**self.read(inner))
            case "$e":
                return ErrorValue.of(read_error(inner, self.read, self._source))
            case "$c":
                return load_closure(inner, names=self._names, cache=self._programs, labelled=self._labelled)
            case "$n":
                return PRIMITIVES[inner]
            case "$p":
                return self.read(inner)
            case "$v":
                return READERS[inner[0]](self.read(inner[1]))
            case "$o":
                items = [self.read(each) for each in inner[1]]
                return set(items) if inner[0] == "set" else frozenset(items)
            case "$t":
                return Shaped(inner[0], self.read(inner[1]))
            case "$k":
                return self._nodes[inner]
            case "$g":
                outer, self._nodes = self._nodes, []
                try:
                    for node in inner:
                        self._nodes.append(self.read(node))
                    return self._nodes[-1]
                finally:
                    self._nodes = outer
            case _:
                raise ValueError(f"no value is written as {key}")

    def _result(self, data: list[Any]) -> TaskResult:
        status, content, parsed, criteria, notes, usage, error, parts = data
        return TaskResult(
            status,
            content if type(content) is str else self.read(content),
            None if parsed is None else self.read(parsed),
            None if criteria is None else self.read(criteria),
            self._notes(notes, parts) if notes else NO_NOTES,
            read_usage(usage),
            self._error(error),
        )

    def _notes(self, notes: Any, parts: list[Any]) -> Notes:
        if _MADE_NOTES.isdisjoint(notes) and None not in notes.values():  # as of most results
            others = {key: self.read(each) if type(each) in _HELD else each for key, each in notes.items()}
            pop = others.pop
            template, source, model, program = texts = [pop(key, None) for key in _TEXT_NOTES]
            count, turns = counts = [pop(key, None) for key in _COUNT_NOTES]
            if _TEXT.issuperset(map(type, texts)) and _COUNT.issuperset(map(type, counts)):
                return Notes(None, None, None, None, None, template, source, count, model, turns, program, others)
        entries = self.read(notes)
        if entries.get("error") is not None:
            entries["error"] = ErrorInfo(**entries["error"])
        if parts:
            entries["failed_parts"] = [
                FailedPart(each["part"], ErrorInfo(**each["error"]), exception=self._error(shown))
                for each, shown in zip(entries["failed_parts"], parts, strict=True)
            ]
        return Notes.of(entries)

    def _error(self, data: Any) -> AgentflowError | None:
        return None if data is None else read_error(data, self.read, self._source)
