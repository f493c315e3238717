"""Values of the host are data: what a program writes, says and waits for runs no method of a class derived from a plain one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentflow import AgentFlow
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
