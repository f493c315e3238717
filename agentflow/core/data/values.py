"""Values of programs without a Python equivalent, and conversion of values to text and JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Set
from enum import Enum
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from agentflow.core.data.json_text import encoded, written
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.walk import (
    ELEMENTS_PER_STEP,
    LEAVES,
    LONG_TEXT,
    MAX_DEPTH,
    PART,
    Work,
    copied,
    elements,
    exact,
    finish,
    in_slices,
    keyed,
    sizes,
    slices,
)


class OrderedSet(Set[Any]):
    """A set of a program: the keys of the dict ``items``, in the order they were added."""

    __slots__ = ("items",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        self.items: dict[Any, None] = dict.fromkeys(elements)

    @classmethod
    def of(cls, items: dict[Any, None]) -> OrderedSet:
        """The set of the keys of ``items``, which it keeps and changes."""
        result = cls()
        result.items = items
        return result

    def plain(self) -> list[Any]:
        """The elements as a new Python list: the form of a set outside programs."""
        return list(self.items)

    def __contains__(self, value: object) -> bool:
        return value in self.items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self.items))}}}" if self.items else "set()"


SHARED_FROM = 64
"""Minimum number of elements of a shared list; shorter lists are always Python lists."""


class SharedList:
    """An immutable list: ``count`` elements of ``front``, last to first, and then those of ``base``.

    ``base`` is a Python list, read from ``start`` on, or another SharedList. ``front`` is only appended to, by the list
    that holds its end, so lists that share it do not disturb each other.
    """

    __slots__ = ("__weakref__", "base", "count", "front", "length", "start")

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, front: list[Any], count: int, base: list[Any] | SharedList, start: int) -> None:
        self.front = front
        self.count = count
        self.base = base
        self.start = start
        self.length = count + len(base) - start

    @classmethod
    def of(cls, elements: list[Any] | tuple[Any, ...]) -> SharedList:
        """A list with a copy of these elements: the original list may still change."""
        return cls([], 0, list(elements), 0)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.plain())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedList):
            return self.plain() == other.plain()
        return self.plain() == other if isinstance(other, list) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.plain())

    def plain(self) -> list[Any]:
        """The elements as a new Python list."""
        elements: list[Any] = []
        at: list[Any] | SharedList = self
        start = 0
        while isinstance(at, SharedList):
            if at.count:
                elements += at.front[at.count - 1 :: -1]
            at, start = at.base, at.start
        elements += at[start:] if start else at
        return elements

    def first(self) -> Any:
        """The first element."""
        if self.count:
            return self.front[self.count - 1]
        base = self.base
        return base.first() if isinstance(base, SharedList) else base[self.start]

    def rest(self) -> SharedList | list[Any]:
        """All elements but the first."""
        if self.length <= SHARED_FROM:
            return self.plain()[1:]
        if self.count > 1:
            return SharedList(self.front, self.count - 1, self.base, self.start)
        if self.count:
            return self.base if isinstance(self.base, SharedList) else SharedList([], 0, self.base, self.start)
        assert isinstance(self.base, list)
        return SharedList([], 0, self.base, self.start + 1)

    def after(self, value: Any) -> SharedList:
        """``value``, and then these elements."""
        front = self.front
        if len(front) == self.count:
            front.append(value)
            return SharedList(front, self.count + 1, self.base, self.start)
        return SharedList([value], 1, self, 0)


_OWN = frozenset((SharedList, OrderedSet))
HELD = frozenset((list, tuple, dict, *_OWN))
"""The types of values that may hold a list or set of the language."""


def as_list(value: Any) -> list[Any] | None:
    """The elements of a list of the language, to be read from; None when ``value`` is none."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    if isinstance(value, SharedList):
        return value.plain()
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else None


def plain_lists(value: Any) -> Any:
    """``value`` with Python lists in place of shared ones, at any depth; the same object when there were none.

    Where there are any, all is copied, each object once. Does not recurse.
    """
    return value if type(value) not in HELD else finish(unshared(value))[0]


async def plain_result(value: Any) -> Any:
    """The same in slices, for the value of a program."""
    return value if type(value) not in HELD else (await in_slices(unshared(value)))[0]


def unshared(value: Any) -> Work[tuple[Any, bool]]:
    """The work of :func:`plain_lists`; also gives whether any list or dict occurs more than once."""
    holds, repeated = yield from _survey(value)
    if holds:
        value, repeated = yield from copied(value, _python_list, deepest=float("inf"))
    return value, repeated


def _python_list(value: Any) -> Any:
    if type(value) in _OWN:
        return value.plain()
    return value if type(value) not in HELD else value.copy() if keyed(value) else list(value)


def _survey(value: Any) -> Work[tuple[bool, bool]]:
    """Whether there are shared lists in ``value``, and whether any list or dict occurs more than once."""
    keep: dict[int, Any] = {}
    holds = repeated = False
    count = 0
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if id(item) in keep:
            repeated = True
            continue
        keep[id(item)] = item
        own = type(item) in _OWN
        holds = holds or own
        for part in slices(item.plain() if own else elements(item)):
            count += len(part) + 1
            if count >= PART:
                yield count // ELEMENTS_PER_STEP
                count = 0
            if not HELD.isdisjoint(map(type, part)):
                pending += [each for each in part if type(each) in HELD]
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return holds, repeated


MAX_DATA_DEPTH = MAX_DEPTH
"""Maximum nesting for comparison, printing and JSON; beyond it ``limits/depth``."""
MAX_SHARED_TEXT = 64_000_000
"""Maximum number of characters of the text of data that shares its parts, which takes much less room than its text."""


class Symbol:
    """A name as a value. Equal and hash-equal to its own string, so that ``(eq? 'a "a")`` is true.

    Parameters: ``name`` is the symbol's text.
    """

    __slots__ = ("__weakref__", "name")
    name: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Symbol cannot be changed")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Symbol):
            return self.name == other.name
        return isinstance(other, str) and self.name == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Symbol({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[type[Symbol], tuple[str]]:
        return Symbol, (self.name,)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def load(value: object) -> Symbol:
            if isinstance(value, Symbol):
                return value
            if isinstance(value, str):
                return cls(value)
            raise ValueError("a symbol is written as a string")

        return core_schema.no_info_plain_validator_function(
            load, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


def name_of(value: object) -> str | None:
    """The text of a string or symbol; None for anything else."""
    if type(value) is str:
        return value
    if type(value) is Symbol:
        return value.name
    return exact(value) if isinstance(value, str) else None


def pairs_to_dict(value: object) -> dict[str, Any] | None:
    """A dict, or a list of two-element lists, as a dict with string keys; None if ``value`` is neither.

    The arguments ``context``, ``inputs`` and ``history_config`` take both forms. None for duplicate names.
    """
    if is_dict(value):
        entries: dict[str, Any] = {}
        for key, item in value.items():
            name = name_of(key)
            if name is None:
                return None
            entries[name] = item
        return entries
    pairs = as_list(value) if not isinstance(value, tuple) else None
    if pairs is None:
        return None
    result: dict[str, Any] = {}
    for entry in pairs:
        pair = as_list(entry)
        if pair is None or len(pair) != 2:
            return None
        key, item = pair
        name = name_of(key)
        if name is None or name in result:
            return None
        result[name] = item
    return result


def plain(value: object, text: Callable[[object], str] = str) -> Any:
    """``value`` as JSON data: symbols become their names, models and dataclasses dicts, tuples lists, members of an Enum
    their values.

    Objects without a JSON form become their ``text``. A shared part is converted once, and shared in the result. Raises
    ValueError past 1,000 levels of nesting.
    """
    if type(value) in LEAVES:
        return value
    return finish(plain_work(value, text))


def plain_work(value: object, text: Callable[[object], str] = str) -> Work[Any]:
    """:func:`plain` as work."""
    return (yield from copied(value, opened if text is str else partial(opened, text=text)))[0]


def opened(value: Any, text: Callable[[object], str] = str) -> Any:
    """One step of :func:`plain`: a list or dict of a value's parts, not converted yet; the JSON form of one without parts."""
    kind = cast("type[Any]", type(value))
    if kind is dict:
        plain_keys = all(type(key) is str for key in value)
        return value.copy() if plain_keys else {_key(key, text): value[key] for key in value}
    if kind is list or kind is tuple:
        return list(value)
    if isinstance(value, Enum):
        return opened(value.value, text)
    value = exact(value)
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return {_key(key, text): item for key, item in mapping.items()}
    if isinstance(value, list | tuple | set | frozenset | SharedList):
        return list(cast("Iterable[Any]", value))
    if isinstance(value, BaseModel):
        return _fields(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = getattr(kind, "type", None)  # one of several classes that may stand in its place
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.repr}
        return {"type": tag, **fields} if isinstance(tag, str) else fields
    if isinstance(value, MutableSequence) and not isinstance(value, bytearray):  # such as a list of a run's state
        return list(cast("Iterable[Any]", value))
    return text(value)


def _fields(value: BaseModel) -> dict[str, Any]:
    """The fields of a model as JSON data; unchanged if one of them has no JSON form, for example bytes without a text form."""
    try:
        return value.model_dump(mode="json", by_alias=True)
    except ValueError:
        return value.model_dump(by_alias=True)


def _key(key: object, text: Callable[[object], str] = str) -> str:
    if type(key) is str:
        return key
    if isinstance(key, Enum):
        return str(key.value)
    return key.name if isinstance(key, Symbol) else text(exact(key))


def text_size(value: object) -> Work[int]:
    """About how many characters ``value`` has as JSON text. Raises ValueError past 1,000 levels."""
    data, _ = yield from copied(value, opened)
    measured = yield from sizes(data)
    return measured[id(data)][0] if measured else len(str(data))


def json_work(
    value: object,
    *,
    indent: int | None = None,
    limit: int | None = None,
    compact: bool = False,
    text: Callable[[object], str] = str,
) -> Work[str]:
    """The work of :func:`to_json`; ``limit`` is the maximum number of characters (TooLong), ``text`` is as in :func:`plain`."""
    data, shared = yield from copied(value, opened if text is str else partial(opened, text=text))
    limit = MAX_SHARED_TEXT if limit is None and shared else limit
    return (yield from encoded(data, indent=indent, limit=limit, compact=compact))


def json_bytes(value: object, *, text: Callable[[object], str] = str) -> Work[bytes]:
    """The work of encoding ``value`` as compact JSON in UTF-8, a lone surrogate as an escape. Raises ValueError, TooLong."""
    data, shared = yield from copied(value, opened if text is str else partial(opened, text=text))
    buffer = io.BytesIO()  # grows in place, and its content is handed over without a copy

    def take(piece: str) -> None:
        buffer.write(piece.encode("utf-8", "backslashreplace"))

    yield from written(data, take, limit=MAX_SHARED_TEXT if shared else None, compact=True)
    return buffer.getvalue()


def rough_size(value: object, most: int) -> int:
    """About how many characters ``value`` has as JSON text; no more of it is looked at once it has more than ``most``."""
    pending: list[Any] = [value]
    size = 0
    while pending and size <= most:
        item = pending.pop()
        kind = cast("type[Any]", type(item))
        if kind is str:
            size += len(item)
        elif kind in LEAVES:
            size += 1
        else:
            parts = item if kind is list or kind is tuple or kind is dict else opened(item)
            if type(parts) in LEAVES:
                size += len(parts) if type(parts) is str else 1
                continue
            size += len(parts)
            if size <= most:
                pending += parts
                if type(parts) is dict:
                    pending += parts.values()
    return size


def is_long(value: object, size: int = LONG_TEXT) -> bool:
    """Whether the JSON text of ``value`` has more than about ``size`` characters."""
    return rough_size(value, size) > size


def to_json(value: object, *, indent: int | None = None) -> str:
    """``value`` as JSON text (see :func:`plain`).

    Raises ValueError past 1,000 levels of nesting, and for data that shares its parts and would have a text of more than
    64,000,000 characters.
    """
    if type(value) in LEAVES:
        return json.dumps(value, ensure_ascii=False)
    data, shared = finish(copied(value, opened))
    if not shared:
        with contextlib.suppress(RecursionError):
            return json.dumps(data, ensure_ascii=False, indent=indent)
    return finish(encoded(data, indent=indent, limit=MAX_SHARED_TEXT if shared else None))


def text_work(value: object, *, limit: int | None = None) -> Work[str]:
    """The work of :func:`as_text`; ``limit`` is the maximum number of characters (TooLong)."""
    if isinstance(value, str | Symbol) or value is None:
        return as_text(value)
    return (yield from json_work(value, limit=limit))


def as_text(value: object) -> str:
    """``value`` as text inside a prompt: text unchanged, symbols as their names, other data as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Symbol):
        return value.name
    if value is None:
        return ""
    if isinstance(value, Enum):
        return as_text(value.value)
    return to_json(value)
