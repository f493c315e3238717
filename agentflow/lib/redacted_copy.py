"""Copies live values without their secrets, for observers, records and the host.

The values themselves never change. A value without a secret is returned unchanged; otherwise every container of the secret
is copied: lists, dicts, dataclasses, models, and errors with their causes. Objects of other classes, with unknown
contents, are kept.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from agentflow.core.call.host_calls import PartialValues
from agentflow.core.data.source import Source
from agentflow.core.data.values import Symbol
from agentflow.core.data.walk import ELEMENTS_PER_STEP, LONG_TEXT, MAX_DEPTH, PART, Work, exact, finish
from agentflow.lib.redact import MARK, MIN_SECRET, Redactor, Secret

T = TypeVar("T")
_Copying: TypeAlias = Generator[Any, Any, Any]
"""Makes the copy of one value: yields its parts, is sent their copies, returns the copy."""

_TEXTLESS = frozenset(
    f"{name}{optional}" for name in ("int", "float", "bool", "Outcome", "Role", "Usage") for optional in ("", " | None")
)
_PLAIN = frozenset({int, float, bool, type(None), complex})
_WHOLE = sys.maxsize
_PER_UNIT = 32
"""Characters that take as long to search as another value takes to look at."""


def redacted(value: T, redactor: Redactor) -> T:
    """``value`` itself if it holds no secret, else a copy without any."""
    return finish(_copied(value, redactor)) if holds_secret(value, redactor) else value


def holds_secret(value: object, redactor: Redactor) -> bool:
    """Whether any text within ``value`` contains a secret."""
    return _look([value], set(), redactor, _WHOLE, None)


def redacted_json(data: T, redactor: Redactor) -> T:
    """The result of :func:`redacted` for JSON data with lists and dicts of no other owner: in less than half the time."""
    clean, finds = redactor.clean, redactor.finds
    pending: list[Any] = [data]
    for item in pending:
        kind: Any = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            if len(item) >= MIN_SECRET and item not in clean and finds(item):
                return finish(_copied(data, redactor))
        elif kind is dict:
            pending += item
            pending += item.values()
        elif kind is list or kind is tuple:
            pending += item
    return data


def examination(value: T, redactor: Redactor) -> Work[T]:
    """Search ``value`` in slices, shortly before the event that shows it; the next event uses the result.

    Returns the redacted value. The value must not change in between.
    """
    shown = yield from redaction(value, redactor)
    if not isinstance(value, str):
        redactor.examined[id(value)] = (value, shown)
    if isinstance(value, dict) and len(cast(Any, shown)) == len(cast(dict[Any, Any], value)):
        # Arguments, which the event may hold in a dict of its own.
        pairs = zip(cast(dict[Any, Any], value).values(), cast(dict[Any, Any], shown).values(), strict=True)
        redactor.examined.update({id(each): (each, copy) for each, copy in pairs})
    return shown


def redaction(value: T, redactor: Redactor) -> Work[T]:
    """The work of :func:`redacted`; ``redactor`` caches the results for long texts."""
    pending: list[Any] = [value]
    seen: set[int] = set()
    long: list[str] = []
    holds = False
    while pending and not holds:
        holds = _look(pending, seen, redactor, PART, long)
        for text in long:
            shown = yield from redactor.redaction(text)
            holds = holds or shown is not text
        long.clear()
        yield PART // ELEMENTS_PER_STEP
    return (yield from _copied(value, redactor)) if holds else value


def _look(pending: list[Any], seen: set[int], redactor: Redactor, most: int, long: list[str] | None) -> bool:
    """Whether a secret is in the ``pending`` values; about ``most`` of them are searched and removed.

    With ``long``, long texts are put there instead of being searched.
    """
    clean, finds, examined = redactor.clean, redactor.finds, redactor.examined
    while pending and most > 0:
        item = pending.pop()
        most -= 1
        kind: Any = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            size = len(item)
            if size < MIN_SECRET:
                continue
            if long is not None and size > LONG_TEXT:
                long.append(item)
            elif (size > LONG_TEXT or item not in clean) and finds(item):
                return True
            most -= size // _PER_UNIT
        elif kind in _PLAIN or id(item) in seen:
            continue
        elif examined and (cached := examined.get(id(item))) is not None:
            if cached[1] is not item:
                return True
        elif kind is tuple:
            pending += item
        else:
            seen.add(id(item))
            if kind is dict:
                if item:
                    pending += item
                    pending += item.values()
            elif kind is list:
                pending += item
            elif (fields := _field_getter(kind)) is not None:
                pending += fields(item)
            elif kind is Secret:
                return True
            else:
                pending += _parts(item)
    return False


def _parts(item: Any) -> Iterable[Any]:
    """The parts of a value of a less common kind."""
    if isinstance(item, PartialValues):
        return ()
    if isinstance(item, BaseException):
        members = [getattr(item, name, None) for name in _members(type(item))]
        return [item.args, item.__cause__, item.__context__, item.__dict__, _text(item), *members]
    if isinstance(item, BaseModel):
        return [item.__dict__, item.__pydantic_extra__, item.__pydantic_private__]
    item = exact(item)
    if isinstance(item, Mapping):
        mapping = cast(Mapping[Any, Any], item)
        return [*mapping, *mapping.values()]
    if isinstance(item, list | tuple | set | frozenset):
        return cast(Iterable[Any], item)
    if isinstance(item, bytes | bytearray):
        return [item.decode("utf-8", "surrogateescape")]
    if isinstance(item, str):
        return [item]
    return [item.name] if isinstance(item, Symbol) else ()


def _text(error: BaseException) -> str:
    """The message of an error, which for some classes is not among its arguments."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - foreign code; an error that cannot be shown shows nothing
        return ""


def _nothing(value: object) -> tuple[Any, ...]:
    return ()


@functools.lru_cache(maxsize=1024)
def _field_getter(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]] | None:
    """A function that returns a dataclass's values that may hold text; None for other classes, and for errors."""
    if not dataclasses.is_dataclass(kind) or issubclass(kind, BaseException):
        return None
    textless = _TEXTLESS if kind.__module__.startswith("agentflow.") else ()
    names = [field.name for field in dataclasses.fields(kind) if field.type not in textless]
    return operator.attrgetter(*names, names[0]) if names else _nothing


@functools.lru_cache(maxsize=1024)
def _fields(kind: type[Any]) -> tuple[str, ...]:
    """The field names of a dataclass; empty for other classes."""
    return tuple([field.name for field in dataclasses.fields(kind)]) if dataclasses.is_dataclass(kind) else ()


@functools.lru_cache(maxsize=1024)
def _members(kind: type[BaseException]) -> tuple[str, ...]:
    """The attributes that exceptions of a class keep outside their dict: slots, and members of C classes."""
    inherited = {object, BaseException, Exception}
    return tuple(
        [
            name
            for base in kind.__mro__
            if base not in inherited
            for name, member in vars(base).items()
            if isinstance(member, MemberDescriptorType | GetSetDescriptorType) and not name.startswith("__")
        ]
    )


def _copied(value: Any, redactor: Redactor) -> Work[Any]:
    """A copy without secrets. Does not recurse: the values being copied are on a stack."""
    copier = _Copier(redactor)
    stack: list[tuple[Any, _Copying]] = []
    item, count = value, 0
    while True:
        count += 1
        kind = cast(type[Any], type(item))
        if kind is str:
            count += len(item) // _PER_UNIT
            copy: Any = (yield from redactor.redaction(item)) if len(item) > LONG_TEXT else redactor.redact(item)
        elif kind in _PLAIN:
            copy = item
        else:
            copy = copier.copies.get(id(item))
            if copy is None and len(stack) >= MAX_DEPTH:
                copy = MARK
            elif copy is None:
                stack.append((item, copier.begun(item)))
        if count >= PART:
            yield count // ELEMENTS_PER_STEP
            count = 0
        while stack:
            try:
                item = stack[-1][1].send(copy)
                break
            except StopIteration as done:
                copy = copier.copies[id(stack.pop()[0])] = done.value
        else:
            return copy


class _Copier:
    """Copies values, each shared part once: :meth:`begun` asks for the copies of a value's parts, one by one."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.copies: dict[int, Any] = {key: shown for key, (_, shown) in redactor.examined.items()}

    def begun(self, value: Any) -> _Copying:
        """The work of copying one value that may have parts."""
        kind = cast(type[Any], type(value))
        if isinstance(value, BaseException):
            return self._error(value)
        if names := _fields(kind):
            return self._leaf(self._source(value)) if isinstance(value, Source) else self._dataclass(value, names)
        if isinstance(value, list):
            return self._list(cast(list[Any], value))
        if isinstance(value, tuple | set | frozenset) and not isinstance(value, PartialValues):
            return self._fixed(cast(Iterable[Any], value))
        if isinstance(value, BaseModel):
            return self._model(value)
        if isinstance(value, Mapping):
            return self._mapping(cast(Mapping[Any, Any], value))
        return self._leaf(self._without_parts(value, kind))

    def _without_parts(self, value: Any, kind: type[Any]) -> Any:
        if isinstance(value, bytes | bytearray):
            return kind(self._redactor.data(bytes(value)))
        if isinstance(value, Secret):
            return MARK
        if isinstance(value, str):
            return self._redactor.redact(str(value))
        return Symbol(self._redactor.redact(value.name)) if isinstance(value, Symbol) else value

    def _leaf(self, copy: Any) -> _Copying:
        return copy
        yield

    def _list(self, value: list[Any]) -> _Copying:
        copy: list[Any] = []
        self.copies[id(value)] = copy
        for item in value:
            copy.append((yield item))
        return copy

    def _fixed(self, value: Iterable[Any]) -> _Copying:
        kind = cast(type[Any], type(value))
        items: list[Any] = []
        for item in value:
            items.append((yield item))
        return kind._make(items) if hasattr(kind, "_make") else kind(items)  # pyright: ignore

    def _mapping(self, value: Mapping[Any, Any]) -> _Copying:
        copy: dict[Any, Any] = {}
        self.copies[id(value)] = copy
        for key, item in value.items():
            name = yield key
            copy[name] = yield item
        return copy

    def _dataclass(self, value: Any, names: tuple[str, ...]) -> _Copying:
        copy: Any = object.__new__(cast(type[Any], type(value)))
        self.copies[id(value)] = copy
        for name in names:
            if hasattr(value, name):
                object.__setattr__(copy, name, (yield getattr(value, name)))
        return copy

    def _model(self, value: BaseModel) -> _Copying:
        copy = value.model_copy(update=(yield value.__dict__))
        private = value.__pydantic_private__
        if private:
            object.__setattr__(copy, "__pydantic_private__", (yield private))
        return copy

    def _source(self, value: Source) -> Source:
        """A copy of a program text that keeps all positions, and the digest of the original."""
        shown = copy.copy(value)
        shown.__dict__.update(text=self._redactor.mask(value.text), digest=value.digest)
        return shown

    def _error(self, error: BaseException) -> _Copying:
        """A copy of an error with the same class, attributes, traceback and notes, and with copies of its causes."""
        args = yield error.args
        try:
            copy = type(error).__new__(type(error), *args)
        except Exception:  # noqa: BLE001 - a class that cannot be built so (some are written in C) is shown as text
            copy = Exception(self._redactor.redact(f"{type(error).__name__}: {_text(error)}"))
        else:
            copy.args = args
            for name in _members(type(error)):
                # An unset attribute has no value, and a read-only one was set by the constructor.
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(copy, name, (yield getattr(error, name)))
        self.copies[id(error)] = copy
        copy.__dict__.update((yield error.__dict__))
        cause, context = (yield error.__cause__), (yield error.__context__)
        copy.__cause__ = cause if isinstance(cause, BaseException) else None
        copy.__context__ = context if isinstance(context, BaseException) else None
        copy.__suppress_context__ = error.__suppress_context__
        copy.__traceback__ = error.__traceback__
        return copy
