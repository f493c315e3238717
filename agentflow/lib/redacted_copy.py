"""Copies live values without their secrets, for observers, records and the host.

The values themselves never change. A value without a secret is returned as it is; otherwise everything on the way to
the secret is copied: lists, dicts, dataclasses, models, and errors with their causes. Objects of other classes, whose
contents are unknown, are kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from agentflow.core.source import Source
from agentflow.core.values import Symbol
from agentflow.lib.redact import MARK, Redactor, Secret
from agentflow.lib.secret_forms import MIN_SECRET

T = TypeVar("T")

MAX_DEPTH = 200
"""Maximum nesting that is copied; deeper parts of a value that holds a secret become a mark."""

_TEXTLESS = frozenset(
    f"{name}{optional}" for name in ("int", "float", "bool", "Outcome", "Role", "Usage") for optional in ("", " | None")
)
_PLAIN = frozenset({int, float, bool, type(None), complex})


def redacted(value: T, redactor: Redactor) -> T:
    """``value`` itself if it holds no secret, else a copy without any."""
    return _Copier(redactor).copy(value) if holds_secret(value, redactor) else value


def holds_secret(value: object, redactor: Redactor) -> bool:
    """Whether any text within ``value`` contains a secret."""
    clean, finds = redactor.clean, redactor.finds
    pending: list[Any] = [value]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        kind: Any = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            if len(item) >= MIN_SECRET and item not in clean and finds(item):
                return True
        elif kind in _PLAIN or id(item) in seen:
            continue
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
    if isinstance(item, BaseException):
        members = [getattr(item, name, None) for name in _members(type(item))]
        return [item.args, item.__cause__, item.__context__, item.__dict__, _text(item), *members]
    if isinstance(item, BaseModel):
        return [item.__dict__, item.__pydantic_extra__, item.__pydantic_private__]
    if isinstance(item, Mapping):
        mapping = cast(Mapping[Any, Any], item)
        return [*mapping, *mapping.values()]
    if isinstance(item, list | tuple | set | frozenset):
        return cast(Iterable[Any], item)
    if isinstance(item, bytes | bytearray):
        return [item.decode("utf-8", "surrogateescape")]
    if isinstance(item, str):
        return [str(item)]
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


class _Copier:
    """Makes one copy; a shared part is copied once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._copies: dict[int, Any] = {}
        self._depth = 0

    def copy(self, value: Any) -> Any:
        kind = cast(type[Any], type(value))
        if kind is str:
            return self._redactor.redact(value)
        if kind in _PLAIN:
            return value
        existing = self._copies.get(id(value))
        if existing is not None:
            return existing
        if self._depth >= MAX_DEPTH:
            return MARK
        self._depth += 1
        try:
            copied = self._composite(value)
        finally:
            self._depth -= 1
        self._copies[id(value)] = copied
        return copied

    def _composite(self, value: Any) -> Any:
        kind = cast(type[Any], type(value))
        if isinstance(value, BaseException):
            return self._error(value)
        if kind is Source:
            return self._source(value)
        names = _fields(kind)
        if names:
            return self._dataclass(value, names)
        if isinstance(value, list):
            copied: list[Any] = []
            self._copies[id(cast(object, value))] = copied
            copied += [self.copy(item) for item in cast(list[Any], value)]
            return copied
        if isinstance(value, tuple | set | frozenset):
            items = [self.copy(item) for item in cast(Iterable[Any], value)]
            return kind._make(items) if hasattr(kind, "_make") else kind(items)  # pyright: ignore
        if isinstance(value, BaseModel):
            return self._model(value)
        if isinstance(value, Mapping):
            return self._mapping(cast(Mapping[Any, Any], value))
        if isinstance(value, bytes | bytearray):
            return kind(self._redactor.data(bytes(value)))
        if isinstance(value, Secret):
            return MARK
        if isinstance(value, str):
            return self._redactor.redact(str(value))
        return Symbol(self._redactor.redact(value.name)) if isinstance(value, Symbol) else value

    def _mapping(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        copied: dict[Any, Any] = {}
        self._copies[id(value)] = copied
        for key, item in value.items():
            copied[self.copy(key)] = self.copy(item)
        return copied

    def _dataclass(self, value: Any, names: tuple[str, ...]) -> Any:
        copied: Any = object.__new__(cast(type[Any], type(value)))
        self._copies[id(value)] = copied
        for name in names:
            if hasattr(value, name):
                object.__setattr__(copied, name, self.copy(getattr(value, name)))
        return copied

    def _model(self, value: BaseModel) -> BaseModel:
        copied = value.model_copy(update=self._mapping(value.__dict__))
        private = value.__pydantic_private__
        if private:
            object.__setattr__(copied, "__pydantic_private__", self._mapping(private))
        return copied

    def _source(self, value: Source) -> Source:
        """A copy of a program text that keeps all positions, and the digest of the original."""
        copied = Source(value.name, self._redactor.mask(value.text))
        copied.__dict__["digest"] = value.digest
        return copied

    def _error(self, error: BaseException) -> BaseException:
        """A copy of an error with the same class, attributes, traceback and notes, and with copies of its causes."""
        args = self.copy(error.args)
        try:
            copied = type(error).__new__(type(error), *args)
        except Exception:  # noqa: BLE001 - a class that cannot be built so (some are written in C) is shown as text
            copied = Exception(self._redactor.redact(f"{type(error).__name__}: {_text(error)}"))
        else:
            copied.args = args
            for name in _members(type(error)):
                # An unset attribute has no value, and a read-only one was set by the constructor.
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(copied, name, self.copy(getattr(error, name)))
        self._copies[id(error)] = copied
        copied.__dict__.update(self._mapping(error.__dict__))
        copied.__cause__ = self._beneath(error.__cause__)
        copied.__context__ = self._beneath(error.__context__)
        copied.__suppress_context__ = error.__suppress_context__
        copied.__traceback__ = error.__traceback__
        return copied

    def _beneath(self, error: BaseException | None) -> BaseException | None:
        copied = self.copy(error)
        return copied if isinstance(copied, BaseException) else None
