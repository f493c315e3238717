"""Scorers: functions of a case and the run of one of its samples.

A scorer returns a number, a bool, a dict of them by name, or None where it does not apply. You can pass any such function;
those here cover the usual comparisons.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Usage
from agentflow.core.data.values import plain
from agentflow.evals.cases import Case
from agentflow.lib.schema.json_schema import check

Score: TypeAlias = float | bool | None
"""A score: a number, or whether the sample passes. None: the scorer does not apply."""

ACCOUNT = ("cost", "latency", "calls", "steps")
"""The scorers that show the account of a run, also of a failed one. More is not better in them."""


@frozen
class ToolUse:
    """A call of a tool in a sample: the ``path`` of the call, the tool's ``name`` and its ``arguments``; None for a call from a
    recorded run, since the record has only their digest."""

    path: str
    name: str
    arguments: Mapping[str, Any] | None


class SampleRun(Protocol):
    """The run of one sample, as scorers see it.

    ``value`` is its value, ``error`` the error if it failed. ``usage`` and ``cost_usd`` (None for an unknown price) are
    those of all its calls, also of reused ones; ``latency_s`` is None unless every call was carried out in this evaluation.
    ``steps`` counts steps of its program, ``tools`` are its tool calls.
    """

    value: Any
    error: BaseException | None
    usage: Usage
    cost_usd: float | None
    latency_s: float | None
    steps: int
    tools: Sequence[ToolUse]


Judges: TypeAlias = Callable[[Case, SampleRun], Score]


def _called(name: str) -> Callable[[Judges], Judges]:
    def rename(judges: Judges) -> Judges:
        judges.__name__ = name
        return judges

    return rename


def picked(value: Any, path: str) -> Any:
    """The part of ``value`` at ``path``: keys, fields and positions, separated by dots. Raises KeyError."""
    for part in filter(None, path.split(".")):
        if isinstance(value, Mapping) and part in value:
            value = cast("Mapping[str, Any]", value)[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.lstrip("-").isdecimal():
            try:
                value = cast("Sequence[Any]", value)[int(part)]
            except IndexError:
                raise KeyError(path) from None
        elif hasattr(cast(object, value), part) and not part.startswith("_"):
            value = getattr(cast(object, value), part)
        else:
            raise KeyError(path)
    return value


def _both(case: Case, run: SampleRun, path: str) -> tuple[Any, Any] | None:
    """The value of the run at ``path``, and the expected one there; None where nothing is expected."""
    if not case.expects:
        return None
    rest = path.removeprefix("value").lstrip(".")
    expected = case.expected
    if rest and isinstance(expected, Mapping):
        try:
            expected = picked(expected, rest)
        except KeyError:
            return None
    return picked(run.value, rest), expected


def _compared(name: str, path: str, same: Callable[[Any, Any], Score]) -> Judges:
    """A scorer that compares the value of the run with the expected one. A part that the value does not have fails."""

    @_called(name)
    def compare(case: Case, run: SampleRun) -> Score:
        try:
            both = _both(case, run, path)
        except KeyError:
            return False
        return None if both is None else same(*both)

    compare.needs_expected = True  # pyright: ignore[reportFunctionMemberAccess] - a live run expects nothing
    return compare


def exact(at: str = "value") -> Judges:
    """Whether the value, or the part of it at the path ``at`` (``value.city``), equals the expected one."""
    return _compared("exact", at, lambda value, expected: plain(value) == plain(expected))


def contains(text: str | None = None, *, at: str = "value", ignore_case: bool = True) -> Judges:
    """Whether the value, as text, contains ``text``, or without one the expected text (all of a list)."""

    def holds(value: Any, expected: Any) -> bool:
        wanted = cast("Sequence[Any]", expected) if isinstance(expected, list | tuple) else [expected]
        shown, texts = text_of(value), [text_of(each) for each in wanted]
        if ignore_case:
            shown, texts = shown.casefold(), [each.casefold() for each in texts]
        return all([each in shown for each in texts])

    if text is None:
        return _compared("contains", at, holds)
    return _on_value("contains", at, lambda value: holds(value, text))


def matches(pattern: str, *, at: str = "value") -> Judges:
    """Whether the value, as text, has a match of the regular expression ``pattern``. Raises ConfigurationError
    (``evals/scorer``) for an invalid one."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(
            f"matches({pattern!r}): no regular expression: {error}", code="evals/scorer", hint="see the module re"
        ) from None
    return _on_value("matches", at, lambda value: compiled.search(text_of(value)) is not None)


def json_equal(at: str = "value") -> Judges:
    """Whether the value, or the JSON in its text, equals the one that the case expects, in any order of keys."""
    return _compared("json_equal", at, lambda value, expected: json_of(value) == json_of(expected))


def close(tolerance: float = 1e-6, *, at: str = "value", relative: bool = False) -> Judges:
    """Whether the value is a number at most ``tolerance`` (with ``relative``, that part of it) from the expected one."""

    def near(value: Any, expected: Any) -> bool:
        try:
            one, other = float(value), float(expected)
        except (TypeError, ValueError):
            return False
        return math.isclose(one, other, rel_tol=tolerance if relative else 0.0, abs_tol=0.0 if relative else tolerance)

    return _compared("close", at, near)


def schema_ok(schema: Mapping[str, Any], *, at: str = "value") -> Judges:
    """Whether the value, or the JSON in its text, fits the JSON Schema ``schema``."""
    return _on_value("schema_ok", at, lambda value: not check(json_of(value), schema))


def cost(case: Case, run: SampleRun) -> Score:
    """The cost of the sample in US dollars, with that of reused calls; None for an unknown price."""
    return run.cost_usd


def latency(case: Case, run: SampleRun) -> Score:
    """The time of the sample in seconds; None if an answer in it was reused."""
    return run.latency_s


def calls(case: Case, run: SampleRun) -> Score:
    """The number of model calls of the sample, with reused ones."""
    return run.usage.requests


def steps(case: Case, run: SampleRun) -> Score:
    """The number of steps of the sample's program."""
    return run.steps


def tool_called(name: str, **arguments: Any) -> Judges:
    """Whether the tool ``name`` was called, with these ``arguments`` and any others. It does not apply to arguments of calls
    from a recorded run: only their digest is recorded."""

    @_called(f"tool_called_{name}")
    def was_called(case: Case, run: SampleRun) -> Score:
        wanted = plain(arguments)
        uses = [use.arguments for use in run.tools if use.name == name]
        if not wanted:
            return bool(uses)
        if any([each is not None and all([plain(each.get(key)) == wanted[key] for key in wanted]) for each in uses]):
            return True
        return None if None in uses else False

    return was_called


def _on_value(name: str, path: str, good: Callable[[Any], bool]) -> Judges:
    @_called(name)
    def judged(case: Case, run: SampleRun) -> Score:
        try:
            return good(picked(run.value, path.removeprefix("value").lstrip(".")))
        except KeyError:
            return False

    return judged


def text_of(value: Any) -> str:
    """A value as a text: itself, or its JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)


def json_of(value: Any) -> Any:
    """The JSON in a text, or a value as data; a text without JSON unchanged."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return plain(value)
