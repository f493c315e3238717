"""Values of the host are data: what a program writes, says and waits for runs no method of a class derived from a plain one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance
from agentflow.core.data.source import Surface
from agentflow.core.data.walk import exact

PLAIN: tuple[type[Any], ...] = (str, int, float, list, dict, tuple)
_NEEDED = {"__new__", "__init__", "__class__", "__getattribute__", "__init_subclass__", "__subclasshook__", "__doc__"}


def telling(base: type[Any], called: list[str]) -> type[Any]:
    """A class derived from ``base`` whose methods note that they were called."""

    def method(name: str) -> Callable[..., Any]:
        def run(self: Any, *arguments: Any, **named: Any) -> Any:
            called.append(f"{base.__name__}.{name}")
            return getattr(base, name)(self, *arguments, **named)

        return run

    names = [name for name in dir(base) if name not in _NEEDED and callable(getattr(base, name))]
    return type(f"{base.__name__.title()}OfHost", (base,), {name: method(name) for name in names})


def bindings_of(called: list[str]) -> dict[str, Any]:
    """A value of each derived class, by the first letter of its base."""
    values: dict[str, Any] = {"s": "a", "i": 5, "f": 1.5, "l": [1, "b"], "d": {"a": 1}, "t": (1, 2)}
    bindings = {name: telling(type(value), called)(value) for name, value in values.items()}
    called.clear()
    return bindings


TEXTS: dict[Surface, list[str]] = {
    "python": [
        *[text.format(name) for name in "siflt" for text in ("{0}.a", "json.dumps({0})", "json.dumps([{0}])", "print({0})", "timeout({0}, 1)",
                                                                "retry({0}, 1)", "f'{{{0}}}'", "raise ValueError({0})")],
        "json.dumps(d)", "print(d)", "d.zz", "timeout(d, 1)", "pmap(s, [1])", "sleep(i)", "json.dumps({'a': l})",
    ],
    "sexp": [
        *[text.format(name) for name in "siflt" for text in ("(get-field {0} 'a)", "(to-json {0})", "(to-json (list {0}))", "(log-message {0})",
                                                                "(timeout {0} 1)", "(retry {0} 1)", "({0} 1)", "(raise {0})", '(error "a" {0})', "(sleep {0})")],
        "(to-json d)", "(log-message d)", "(raise d)", "(timeout d 1)", "(pmap s (list 1))", "(error s)", "(+ s l)", "(to-json (dict 'a l))",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("surface", "text"), [(surface, text) for surface, texts in TEXTS.items() for text in texts])
async def test_no_method_of_a_host_class_runs(surface: Surface, text: str) -> None:
    """Not for JSON, for a message of an error or of the log, for a number of seconds or of tries, or to find a name."""
    called: list[str] = []
    bindings = bindings_of(called)
    async with AgentFlow() as flow:
        try:
            await flow.run(text, surface=surface, bindings=bindings, allow=[])
        except Exception as error:
            assert "Error" in type(error).__name__
            assert str(error)
    assert called == []


async def test_they_are_written_as_the_plain_values_they_are() -> None:
    """JSON of them is that of the values of the plain types."""
    async with AgentFlow() as flow:
        result = await flow.run("(to-json (list s i f l d t))", bindings=bindings_of([]), allow=[])
    assert result.value == '["a", 5, 1.5, [1, "b"], {"a": 1}, [1, 2]]'


def test_exact_gives_plain_values() -> None:
    """Of each derived class, and the same object of a plain one."""
    called: list[str] = []
    for value in bindings_of(called).values():
        assert type(exact(value)) in (*PLAIN, list) and called == []
    for value in ("a", 5, 1.5, [1], {"a": 1}, (1,), True, None):
        assert exact(value) is value


class _Noted:
    """Methods of a record that note that they were called."""

    def __getattr__(self, name: str) -> Any:
        CALLED.append(f"__getattr__ {name}")
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        CALLED.append(f"__setattr__ {name}")
        object.__setattr__(self, name, value)

    def __copy__(self) -> Any:
        CALLED.append("__copy__")
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        CALLED.append("__reduce_ex__")
        return object.__reduce_ex__(self, protocol)

    def __eq__(self, other: object) -> bool:
        CALLED.append("__eq__")
        return True

    def __hash__(self) -> int:
        CALLED.append("__hash__")
        return 1


class _Descriptor:
    """A field that the class computes."""

    def __get__(self, record: Any, kind: Any) -> Any:
        CALLED.append("__get__")
        return [1]

    def __set__(self, record: Any, value: Any) -> None:
        CALLED.append("__set__")


CALLED: list[str] = []
"""The methods of records of the host that were called."""


@dataclass(eq=False)
class _Plain(_Noted):
    xs: Any
    later: Any = field(init=False)


@dataclass(eq=False, slots=True)
class _Slots:
    xs: Any
    later: Any = field(init=False)


class _Slotted(_Slots, _Noted):
    __slots__ = ()

    @property
    def xs(self) -> Any:
        """Computes a field that is stored, too."""
        CALLED.append("property")
        return [1]


class _Model(BaseModel, extra="allow"):
    xs: Any

    def __getattr__(self, name: str) -> Any:
        CALLED.append(f"__getattr__ {name}")
        raise AttributeError(name)

    def __copy__(self) -> Any:
        CALLED.append("__copy__")
        return self


class _Pair(NamedTuple):
    xs: Any


class _Named(_Pair):
    @property
    def xs(self) -> Any:
        """Computes a field that is stored, too."""
        CALLED.append("property")
        return [1]

    def __iter__(self) -> Any:
        CALLED.append("__iter__")
        return iter([1])

    def __getitem__(self, index: Any) -> Any:
        CALLED.append("__getitem__")
        return 1

    @classmethod
    def _make(cls, iterable: Any) -> Any:
        CALLED.append("_make")
        return tuple.__new__(cls, iterable)


def _slotted() -> Any:
    """A record whose value is in a slot, beneath a property of the same name."""
    record = object.__new__(_Slotted)
    _Slots.__dict__["xs"].__set__(record, [1])
    return record


def _computed() -> Any:
    """A dataclass with a field that is a descriptor from later on."""
    kind = dataclass(type("_Computed", (_Noted,), {"__annotations__": {"xs": Any}}))
    kind.xs = _Descriptor()
    return object.__new__(kind)


RECORDS: dict[str, Callable[[], Any]] = {
    "dataclass": lambda: _Plain([1]),
    "slots under a property": _slotted,
    "model": lambda: _Model(xs=[1]),
    "named tuple under a property": lambda: _Named([1]),
    "descriptor": _computed,
}
HOLDS: list[tuple[Surface, str]] = [
    ("sexp", "r"),
    ("sexp", "(list r {\"a\" r} (if (> s 1) r 2) (get-field r 'xs) (get-field r 'later))"),
    ("sexp", "(begin (take r) (take (list r s)) (parallel r (take r)))"),
    ("python", "ys = [r, (r, s)]\nif s > 1:\n    ys.append(r)\nreturn [ys, r.xs]"),
    ("python", "try:\n    r.xs.append(s)\nexcept TypeError:\n    0\nif s > 1:\n    ys = [r.xs]\ntake(r)\nreturn r"),
    ("python", "def f():\n    return r\nreturn [parallel(f(), f()), pmap(lambda x: x, [r])]"),
]
"""Programs that read, hold, change and hand on a record."""


@pytest.mark.parametrize("policy", [None, Provenance(), Provenance(strict=True)], ids=["none", "ordinary", "strict"])
@pytest.mark.parametrize("kind", RECORDS)
async def test_no_method_of_a_record_runs(kind: str, policy: Provenance | None) -> None:
    """Its declared fields are read and copied as they are stored, with a policy and without."""

    async def take(value: Any) -> int:
        taken.append(value)
        return 1

    for surface, text in HOLDS:
        taken: list[Any] = []
        record = RECORDS[kind]()
        CALLED.clear()
        bindings = {"r": record, "s": Labelled(2, "web") if policy is not None else 2, "take": take}
        async with AgentFlow(provenance=policy) as flow:
            try:
                await flow.run(text, surface=surface, bindings=bindings)
            except AgentflowError as error:
                assert kind == "descriptor" and error.code == "field/missing", error.render()
        assert CALLED == [], (text, CALLED)
        assert all([type(each) is type(record) for each in taken if not isinstance(each, list)])


async def test_a_record_that_copies_itself_as_itself_keeps_its_sources() -> None:
    """What leaves is a copy without boxes, even if ``__copy__`` gives the record itself, which keeps them."""
    text = "r.xs.append(s)\ntake(r)\nreturn sources(r.xs)"

    async def take(value: Any) -> int:
        return 1

    async with AgentFlow(provenance=Provenance()) as flow:
        bindings = {"r": _Plain([1]), "s": Labelled(2, "web"), "take": take}
        assert (await flow.run(text, surface="python", bindings=bindings)).value == ["web"]
