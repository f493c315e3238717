"""Frozen dataclasses that cost little to build: for what every call builds, as messages, effects, results and events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


class _Default:
    """Stands for an argument that was not given, whose default a factory builds."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET = _Default()


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, init: bool = True, **options: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Any] | None = None, /, *, init: bool = True, **options: bool) -> Any:
    """Make a class a frozen, slotted dataclass: ``@frozen`` or, with options of :func:`dataclasses.dataclass`, ``@frozen(eq=False)``.

    It differs from one of the standard library in its constructor alone, which sets each slot by the slot's own
    descriptor instead of by name, in half the time. ``init=False`` leaves the constructor to the class (see
    :func:`slot_setters`). There is no ``__post_init__``.
    """

    def wrap(plain: type[Any]) -> type[Any]:
        target = dataclass(frozen=True, slots=True, init=False, **options)(plain)
        if init:
            target.__init__ = _constructor(target)
        return target

    return wrap if cls is None else wrap(cls)


def slot_setters(cls: type[Any]) -> tuple[Callable[[Any, Any], None], ...]:
    """The functions that set the fields of an instance of a frozen class, in order. For the class's own constructor."""
    return tuple([getattr(cls, each.name).__set__ for each in fields(cls)])


def _constructor(cls: type[Any]) -> Callable[..., None]:
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    scope: dict[str, Any] = {"unset": _UNSET}
    for each, put in zip(fields(cls), slot_setters(cls), strict=True):
        name = parameter = value = each.name
        scope[f"set_{name}"] = put
        if each.default_factory is not MISSING:
            scope[f"new_{name}"] = each.default_factory
            parameter, value = f"{name}=unset", f"new_{name}() if {name} is unset else {name}"
        elif each.default is not MISSING:
            scope[f"default_{name}"] = each.default
            parameter = f"{name}=default_{name}"
        (named if each.kw_only else positional).append(parameter)
        body.append(f"  set_{name}(self, {value})")
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    exec("\n".join([f"def __init__({parameters}):", *(body or ["  pass"])]), scope)
    init = scope["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**{each.name: each.type for each in fields(cls)}, "return": None}
    return init


__all__ = ["frozen", "slot_setters"]
