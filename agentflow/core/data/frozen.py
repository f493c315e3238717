"""Frozen dataclasses, cheap to build, for the messages, effects, results and events of every call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")


class _Default:
    """Stands for a missing argument with a default from a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET = _Default()
_CLASS: Any = object.__dict__["__class__"]
_FEW = 4
"""Maximum number of fields where setting each by its descriptor is as fast as changing the object's class twice."""


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(
    *, init: bool = True, eq: bool = True, repr: bool = True, **options: bool
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[Any] | None = None, /, *, init: bool = True, eq: bool = True, repr: bool = True, **options: bool
) -> Any:
    """Make a class a frozen, slotted dataclass: ``@frozen`` or, with options of :func:`dataclasses.dataclass`, ``@frozen(eq=False)``.

    It differs from one of the standard library in its cost: its constructor takes half the time or less, and the class
    itself a tenth, since methods are compiled when they are first called. A subclass that adds fields is made by ``frozen``, too.
    ``init=False`` leaves the constructor to the class (see :func:`slot_setters`).
    """

    def wrap(plain: type[Any]) -> type[Any]:
        late: dict[str, Any] = {"__init__": _constructor} if init else {}
        if eq:
            late |= {"__eq__": _comparison, "__hash__": _hashing}
        return _made(plain, late, {**_SEALED, "__repr__": _shown} if repr else _SEALED, options)

    return wrap if cls is None else wrap(cls)


@overload
def slotted(cls: type[T], /) -> type[T]: ...
@overload
def slotted(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,))
def slotted(cls: type[Any] | None = None, /, *, eq: bool = True) -> Any:
    """Make a class a slotted dataclass with settable fields, as cheaply as :func:`frozen` does; without ``eq`` it is equal to itself alone."""

    def wrap(plain: type[Any]) -> type[Any]:
        late: dict[str, Any] = {"__init__": _setting}
        shared: dict[str, Any] = {"__repr__": _shown}
        if eq:
            late["__eq__"], shared["__hash__"] = _comparison, None
        return _made(plain, late, shared, {})

    return wrap if cls is None else wrap(cls)


def _made(plain: type[Any], late: dict[str, Any], shared: dict[str, Any], options: dict[str, bool]) -> Any:
    """A slotted dataclass with these methods where the class has none of its own; ``late`` are the functions that compile them."""
    plain.__doc__ = plain.__doc__ or plain.__name__  # else dataclass writes a signature, for half the time of the class
    own = {name for name, method in vars(plain).items() if method is not None}
    target = dataclass(slots=True, init=False, eq=False, repr=False, **options)(plain)
    # Afterwards: from Python 3.14 on dataclass looks up the constructor, which would compile it.
    for name, method in {**shared, **{name: _Late(target, name, late[name]) for name in late}}.items():
        if name not in own:
            setattr(target, name, method)
    return target


# Methods are compiled when first called: making 240 classes was two fifths of the import (decision 51)
class _Late:
    """Stands for a method until it is first looked up, which compiles it; half of the methods of classes never are."""

    __slots__ = ("_cls", "_compiled", "_name")

    def __init__(self, cls: type[Any], name: str, compiled: Callable[[type[Any]], Callable[..., Any]]) -> None:
        self._cls, self._name, self._compiled = cls, name, compiled

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        method: Any = self._compiled(self._cls)
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


def _shown(self: Any) -> str:
    """``__repr__`` of every frozen class."""
    return f"{type(self).__qualname__}({', '.join([f'{each.name}={getattr(self, each.name)!r}' for each in fields(self) if each.repr])})"


def _set(self: Any, name: str, value: Any) -> None:
    """``__setattr__`` of every frozen class: a subclass without this decorator may have attributes of its own."""
    _check_open(self, name, "assign to")
    object.__setattr__(self, name, value)


def _delete(self: Any, name: str) -> None:
    """``__delattr__`` of every frozen class."""
    _check_open(self, name, "delete")
    object.__delattr__(self, name)


def _check_open(self: Any, name: str, verb: str) -> None:
    if "__dataclass_fields__" in type(self).__dict__ or name in self.__dataclass_fields__:
        raise FrozenInstanceError(f"cannot {verb} field {name!r}")


def _state(self: Any) -> list[Any]:
    """``__getstate__`` of every frozen class, for copies and pickles."""
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    """``__setstate__`` of every frozen class."""
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_SEALED = {"__setattr__": _set, "__delattr__": _delete, "__getstate__": _state, "__setstate__": _restore}


# Setting slots by their descriptors: object.__setattr__ takes twice as long (decision 19)
def slot_setters(cls: type[Any]) -> tuple[Callable[[Any, Any], None], ...]:
    """The functions that set the fields of an instance of a frozen class, in order. For the class's own constructor."""
    return tuple([getattr(cls, each.name).__set__ for each in fields(cls)])


def _comparison(cls: type[Any]) -> Callable[..., bool]:
    """``__eq__`` of a frozen class: equal fields, in an object of the same class."""
    names = [each.name for each in fields(cls) if each.compare]
    ours, theirs = _tuple_of("self", names), _tuple_of("other", names)
    body = ["if other.__class__ is self.__class__:", f"  return {ours} == {theirs}", "return NotImplemented"]
    return _compiled(cls, "__eq__", "self, other", body, {})


def _hashing(cls: type[Any]) -> Callable[..., int]:
    """``__hash__`` of a frozen class."""
    names = [each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash)]
    return _compiled(cls, "__hash__", "self", [f"return hash({_tuple_of('self', names)})"], {})


def _tuple_of(of: str, names: list[str]) -> str:
    return f"({''.join([f'{of}.{name},' for name in names])})"


def _constructor(cls: type[Any], *, plainly: bool = False) -> Callable[..., None]:
    """``__init__`` of a class with fields set ``plainly``, or of a frozen one.

    While that runs, an object with more than a few fields is of the class's open twin, with fields set by ordinary
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
        if not each.init:
            if each.default_factory is MISSING:
                continue  # __post_init__ sets it
            value = f"new_{name}()"
        else:
            (named if each.kw_only else positional).append(parameter)
        slowly.append(f"set_{name}(self, {value})")
        quickly.append(f"self.{name} = {value}")
    body = (quickly if plainly else slowly) or ["pass"]
    if len(slowly) > _FEW and not plainly:
        scope["_twin"] = _open_twin(cls)
        quick = ["_turn(self, _twin)", *quickly, "self.__class__ = _class"]
        body = ["if _type(self) is _class:", *_indented(quick), "else:", *_indented(slowly)]
    if hasattr(cls, "__post_init__"):
        body = [*body, "self.__post_init__()"]
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    init = _compiled(cls, "__init__", parameters, body, scope)
    init.__annotations__ = {**{each.name: each.type for each in fields(cls) if each.init}, "return": None}
    return init


def _compiled(cls: type[Any], name: str, parameters: str, body: list[str], scope: dict[str, Any]) -> Any:
    exec("\n".join([f"def {name}({parameters}):", *_indented(body)]), scope)
    method = scope[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _setting(cls: type[Any]) -> Callable[..., None]:
    """``__init__`` of a class with settable fields."""
    return _constructor(cls, plainly=True)


def _open_twin(cls: type[Any]) -> type[Any]:
    """A class with the layout of the frozen ``cls`` and settable fields."""
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
