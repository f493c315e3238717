"""Frozen classes are those of the standard library, but for the time that their constructor takes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from agentflow.core.data.frozen import frozen, slotted
from agentflow.core.data.results import TaskResult
from agentflow.events import EVENTS, Log


@frozen
class Point:
    """Fields with and without a default, and one that a factory builds."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str])


@frozen
class Named(Point):
    """Its base's fields come first."""

    name: str = "p"


@frozen
class Many:
    """So many fields that they are set by assignment; their names are those of builtins and of the constructor's own."""

    type: str
    cls: int
    turn: int = 1
    twin: int = 2
    unset: list[str] = field(default_factory=list[str])


class Special(Many):
    """A subclass that is not frozen has another layout."""


@frozen(kw_only=True, eq=False)
class Keyed:
    """Keywords only, compared by identity."""

    a: int
    b: int = 1


@frozen
class Part:
    """A field that takes no part in comparison."""

    name: str
    note: int = field(compare=False)


@frozen
class Loud(Part):
    """A comparison of its own, and a field that is set after the constructor."""

    loud: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loud", self.name.upper())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud) and self.loud == other.loud

    def __hash__(self) -> int:
        return hash(self.loud)


@frozen
class Wide(Loud):
    """So many fields that they are set by assignment."""

    a: int
    b: int
    c: int
    kept: list[int] = field(default_factory=list[int], init=False)


@slotted
class Slot:
    """Fields can be set."""

    name: str
    number: int = 2


@dataclass(frozen=True, slots=True)
class Standard:
    """What :class:`Point` would be without us."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str])


@pytest.mark.parametrize(
    "value",
    [Point(1), Named(1, name="q"), Many("t", 3), Keyed(a=1), Log("r", 1, 1, "0", None, None, 0.0), TaskResult()],
)
def test_a_frozen_object_cannot_be_changed(value: object) -> None:
    """No field can be set or deleted, none added."""
    name = dataclasses.fields(value)[0].name  # type: ignore[arg-type]
    before = getattr(value, name)
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, "other")
    with pytest.raises(FrozenInstanceError):
        delattr(value, name)
    with pytest.raises((FrozenInstanceError, TypeError)):
        value.another = 1  # type: ignore[attr-defined]
    assert getattr(value, name) is before


def test_defaults_are_those_of_the_declaration() -> None:
    """A default that a factory builds is built anew for each object; fields of the base class come first."""
    first, second = Named(1), Named(1)
    assert (first.x, first.y, first.tags, first.name) == (1, 2, [], "p")
    assert first.tags is not second.tags and first == second
    assert Named(1, 5, ["t"], "n") == Named(x=1, y=5, tags=["t"], name="n")
    assert Keyed(a=1) != Keyed(a=1)


@pytest.mark.parametrize(("args", "named"), [((), {}), ((1, 2, [], 4), {}), ((1,), {"z": 1}), ((1,), {"x": 1})])
def test_wrong_arguments_are_refused_as_by_the_standard_library(
    args: tuple[object, ...], named: dict[str, object]
) -> None:
    """A missing, unknown, surplus or repeated argument is a TypeError with the words that Python has for it."""
    with pytest.raises(TypeError) as ours:
        Point(*args, **named)  # type: ignore[arg-type]
    with pytest.raises(TypeError) as theirs:
        Standard(*args, **named)  # type: ignore[arg-type]
    assert str(ours.value).removeprefix("Point.") == str(theirs.value).removeprefix("Standard.")


def test_everything_but_the_constructor_is_the_standard_library() -> None:
    """``replace``, ``fields``, ``asdict``, patterns, copies, pickles, ``repr`` and signatures work as ever."""
    point = Point(1, tags=["t"])
    assert dataclasses.replace(point, y=3) == Point(1, 3, ["t"])
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "tags": ["t"]}
    assert repr(point) == repr(Standard(1, tags=["t"])).replace("Standard", "Point")
    assert copy.deepcopy(point) == point == pickle.loads(pickle.dumps(point))
    assert hash(Keyed(a=1)) and Point.__match_args__ == ("x", "y", "tags")
    assert list(inspect.signature(Point).parameters) == ["x", "y", "tags"]
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_equal_objects_have_equal_fields_and_one_hash() -> None:
    """Objects of one class are compared and hashed by the fields that take part; a class may have its own comparison."""
    assert Part("a", 1) == Part("a", 2) != Part("b", 1) and len({Part("a", 1), Part("a", 2)}) == 1
    assert Part("a", 1) != Loud("a", 1) and Loud("a", 1) == Loud("A", 2) and hash(Loud("a", 1)) == hash(Loud("A", 2))
    with pytest.raises(TypeError):
        hash(Point(1))


def test_post_init_runs_after_the_constructor() -> None:
    """It sets the fields that the constructor does not take, in small objects and in large ones."""
    assert Loud("a", 1).loud == "A" and Wide("b", 1, 2, 3, 4).loud == "B" and Wide("b", 1, 2, 3, 4).kept == []
    assert list(inspect.signature(Loud).parameters) == ["name", "note"]


def test_a_method_is_compiled_when_it_is_first_looked_up() -> None:
    """A class that nobody uses costs no compiling; its methods are then ordinary functions."""

    @frozen
    class Unused:
        a: int

    assert not any([inspect.isfunction(vars(Unused)[name]) for name in ("__init__", "__eq__", "__hash__")])
    assert Unused(1) == Unused(1) and hash(Unused(1)) == hash(Unused(1))
    assert all([inspect.isfunction(vars(Unused)[name]) for name in ("__init__", "__eq__", "__hash__")])


def test_a_slotted_object_can_be_changed() -> None:
    """``slotted`` is the same, but that fields can be set, and that an object has no hash."""
    slot = Slot("a")
    slot.number = 3
    assert slot == Slot("a", 3) and repr(slot) == "Slot(name='a', number=3)" and copy.deepcopy(slot) == slot
    with pytest.raises(AttributeError):
        slot.other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(slot)


def test_a_large_object_is_of_its_own_class() -> None:
    """However an object is filled, its class, its copies and its subclasses are those of the declaration."""
    many, special = Many("t", 3, unset=["u"]), Special("t", cls=3, unset=["u"])
    assert type(many) is Many and type(special) is Special
    assert dataclasses.astuple(many) == dataclasses.astuple(special) == ("t", 3, 1, 2, ["u"])
    assert (
        copy.copy(many)
        == many
        == pickle.loads(pickle.dumps(many))
        == dataclasses.replace(Many("s", 3), type="t", unset=["u"])
    )
    assert Many("t", 3).unset is not Many("t", 3).unset


def test_every_event_is_built_by_the_cheap_constructor() -> None:
    """No event class falls back on the standard constructor, which takes twice as long."""
    assert [kind.__name__ for kind in EVENTS if "_turn" not in kind.__init__.__code__.co_names] == []
