"""Frozen dataclasses that are cheap to build, for the messages, effects, results and events of every call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")


class _Default:
    """Stands for a missing argument whose default a factory builds."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET = _Default()
_CLASS: Any = object.__dict__["__class__"]
_FEW = 4
"""Fields up to which setting each by its descriptor is as fast as changing the object's class twice."""


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, init: bool = True, **options: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Any] | None = None, /, *, init: bool = True, **options: bool) -> Any:
    """Make a class a frozen, slotted dataclass: ``@frozen`` or, with options of :func:`dataclasses.dataclass`, ``@frozen(eq=False)``.

    It differs from one of the standard library in its constructor alone, which takes half the time or less. ``init=False``
    leaves the constructor to the class (see :func:`slot_setters`). There is no ``__post_init__``.
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
    """``__init__`` of a frozen class.

    While it runs, an object with more than a few fields is of the class's open twin, whose fields are set by ordinary
    assignment: the only way of filling slots that the interpreter makes fast, and not open to a frozen class. Of
    a subclass, which has another layout, and of small objects, each field is set by the descriptor of its slot.
    """
    positional: list[str] = []
    named: list[str] = []
    slowly: list[str] = []
    quickly: list[str] = []
    scope: dict[str, Any] = {"_unset": _UNSET, "_class": cls, "_type": type, "_turn": _CLASS.__set__}
    for each, put in zip(fields(cls), slot_setters(cls), strict=True):
        name = parameter = value = each.name
        scope[f"set_{name}"] = put
        if each.default_factory is not MISSING:
            scope[f"new_{name}"] = each.default_factory
            parameter, value = f"{name}=_unset", f"new_{name}() if {name} is _unset else {name}"
        elif each.default is not MISSING:
            scope[f"default_{name}"] = each.default
            parameter = f"{name}=default_{name}"
        (named if each.kw_only else positional).append(parameter)
        slowly.append(f"set_{name}(self, {value})")
        quickly.append(f"self.{name} = {value}")
    body = slowly or ["pass"]
    if len(slowly) > _FEW:
        scope["_twin"] = _open_twin(cls)
        quick = ["_turn(self, _twin)", *quickly, "self.__class__ = _class"]
        body = ["if _type(self) is _class:", *_indented(quick), "else:", *_indented(slowly)]
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    exec("\n".join([f"def __init__({parameters}):", *_indented(body)]), scope)
    init = scope["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**{each.name: each.type for each in fields(cls)}, "return": None}
    return init


def _open_twin(cls: type[Any]) -> type[Any]:
    """A class with the layout of the frozen ``cls`` whose fields can be set."""
    body: dict[str, Any] = {
        "__slots__": cls.__dict__["__slots__"],
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    if "__orig_bases__" in cls.__dict__:
        body["__orig_bases__"] = cls.__dict__["__orig_bases__"]  # a generic class is one by this
    return cast(Any, type(cls))(cls.__name__, cls.__bases__, body)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
