"""What stands in for models, tools, files and people in a rehearsal: each of their answers, and who decides which it is."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from agentflow.exploration.outcomes import Values

AnswerKind: TypeAlias = Literal["value", "fails", "no-json", "late", "turns", "calls"]
"""How something answers: with a value, by failing, with text where JSON was asked for, after any time-out is over; a model, by calling
tools until its turns are over, or by calling one, of which the value is ``{"tool": name, "arguments": {...}}``."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: of whom (the ``name`` of a task or tool, ``ask-human``, ``get_context``, ``file a.md`` ...), and its ``value``.

    ``branch`` says in which branch of ``parallel``, ``pmap`` or ``race`` it was given: the indices of the branches around it, from the
    outside in, ``"2"`` or ``"0.1"``; empty outside of any. With ``always`` it is given again and again.
    """

    name: str
    value: Any = None
    kind: AnswerKind = "value"
    branch: str = ""
    always: bool = False


class Shape(NamedTuple):
    """What is asked for: data of a ``schema`` (None: text), which a model writes as ``json``; whether it may fail, and whether
    that may be by calling tools for all of its ``turns``; the ``tools`` that the program may see the effects of, and the schemas of their
    arguments."""

    schema: Mapping[str, Any] | None = None
    json: bool = False
    fails: bool = True
    turns: bool = False
    tools: tuple[tuple[str, Mapping[str, Any]], ...] = ()


class Answers(Protocol):
    """Decides what is answered in one run."""

    def answer(self, name: str, branch: str, shape: Shape) -> Answer:
        """The next answer of ``name`` in ``branch``."""
        ...


class Point(NamedTuple):
    """A choice of a run: at a place in the ``number``th answer (from 0) of somebody in a branch; in all of them if None."""

    name: str
    at: str
    branch: str = ""
    number: int | None = None

    @property
    def for_good(self) -> Point:
        """The same choice in every answer of that name."""
        return Point(self.name, self.at)


class Choice(NamedTuple):
    """A choice that was made: the index of what was taken, of so many options."""

    point: Point
    taken: int
    options: int


Script: TypeAlias = Mapping[Point, int]
"""The choices that are not the plainest. The rest follows from the program."""
ANOTHER = -1
"""Chosen for all answers of a name: each takes another option than the one before it."""


@dataclass(slots=True)
class ChosenAnswers:
    """Answers by a script of choices, which keeps what was chosen and answered; ``changed`` are the places in each answer that are not plain.

    ``deadlines`` lets answers be late.
    """

    script: Script
    values: Values
    deadlines: bool = False
    choices: list[Choice] = field(default_factory=list[Choice])
    answers: list[Answer] = field(default_factory=list[Answer])
    changed: list[list[str]] = field(default_factory=list[list[str]])
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def answer(self, name: str, branch: str, shape: Shape) -> Answer:
        """The next answer of ``name`` in ``branch``."""
        number = self._counts[name, branch]
        self._counts[name, branch] += 1
        changed: list[str] = []

        def choose(at: str, options: int) -> int:
            point = Point(name, at, branch, number)
            taken = self.script.get(point)
            if taken is None:
                taken = self.script.get(point.for_good, 0)
            if taken == ANOTHER:
                taken = number % options
            taken = taken if taken < options else 0
            if taken:
                changed.append(at)
            self.choices.append(Choice(point, taken, options))
            return taken

        kinds: list[AnswerKind] = ["value"]
        if shape.fails:
            kinds.append("fails")
        if shape.json:
            kinds.append("no-json")
        if self.deadlines and shape.fails:
            kinds.append("late")
        if shape.turns:
            kinds.append("turns")
        if shape.tools:
            kinds.append("calls")
        kind = kinds[choose("", len(kinds))] if len(kinds) > 1 else "value"
        value: Any = None
        if kind in ("value", "late"):
            schema = shape.schema if shape.schema is not None else {"type": "string"}
            value = self.values.value({**schema, **self.values.assumed.get(name, {})}, "=", choose)
        if kind == "calls":
            tool, schema = shape.tools[choose("tool", len(shape.tools)) if len(shape.tools) > 1 else 0]
            value = {"tool": tool, "arguments": self.values.value(schema, f"={tool}", choose)}
        answer = Answer(name, value, kind, branch)
        self.answers.append(answer)
        self.changed.append(changed)
        return answer


class GivenAnswers:
    """Answers by name and branch, in order; who has none left gives the plainest."""

    def __init__(self, answers: Iterable[Answer], values: Values) -> None:
        self._left: defaultdict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        for answer in answers:
            self._left[answer.name, answer.branch].append(answer)
        self._plain = ChosenAnswers({}, values)

    def answer(self, name: str, branch: str, shape: Shape) -> Answer:
        """The next answer of ``name`` in ``branch``."""
        left = self._left.get((name, branch))
        if not left:
            return self._plain.answer(name, branch, shape)
        return left[0] if left[0].always else left.popleft()


def branch_of(path: str) -> str:
    """The branches around an effect, from its path in the run: ``0/4.2/1.0`` is in branch 2."""
    return ".".join([part.rpartition(".")[2] for part in path.split("/")[1:-1]])


__all__ = [
    "ANOTHER",
    "Answer",
    "AnswerKind",
    "Answers",
    "Choice",
    "ChosenAnswers",
    "GivenAnswers",
    "Point",
    "Script",
    "Shape",
    "branch_of",
]
