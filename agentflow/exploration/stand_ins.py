"""Stand-ins for models, tools, files and people in a rehearsal: their answers, and the strategies that choose them."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.exploration.outcomes import Values

AnswerKind: TypeAlias = Literal["value", "fails", "no-json", "late", "turns", "calls"]
"""How an effect answers: with a value, by failing, with text instead of JSON, or after every time-out has expired. A model
may also call tools until its turns are used up, or call one tool with the value ``{"tool": name, "arguments": {...}}``."""


@frozen
class Answer:
    """An answer: its ``name`` (of a task or tool, ``ask-human``, ``get_context``, ``file a.md`` ...), and its ``value``.

    ``branch`` is the branch of ``parallel``, ``pmap`` or ``race`` that received it: the indices of the enclosing branches, outermost
    first, ``"2"`` or ``"0.1"``; empty outside of branches. With ``always`` it is repeated.
    """

    name: str
    value: Any = None
    kind: AnswerKind = "value"
    branch: str = ""
    always: bool = False


class AnswerShape(NamedTuple):
    """The shape of a requested answer: data of a ``schema`` (None: text), which a model writes as ``json``; whether it may fail, and
    whether it may be late; whether a model may use up its ``turns`` with tool calls; and the ``tools`` with effects that the program can see, with the
    schemas of their arguments."""

    schema: Mapping[str, Any] | None = None
    json: bool = False
    fails: bool = True
    late: bool = True
    turns: bool = False
    tools: tuple[tuple[str, Mapping[str, Any]], ...] = ()


class Answers(Protocol):
    """Chooses the answers of one run."""

    def answer(self, name: str, branch: str, shape: AnswerShape) -> Answer:
        """The next answer of ``name`` in ``branch``."""
        ...


class Point(NamedTuple):
    """A decision in a run: which option is taken at the path ``at`` in the ``number``th answer (from 0) of a name and branch, or
    in all of its answers if ``number`` is None."""

    name: str
    at: str
    branch: str = ""
    number: int | None = None

    @property
    def for_good(self) -> Point:
        """The same decision for every answer of that name."""
        return Point(self.name, self.at)


class Choice(NamedTuple):
    """A decision that was made: the index of the option taken, and the number of options."""

    point: Point
    taken: int
    options: int


Script: TypeAlias = Mapping[Point, int]
"""The decisions that depart from the simplest answers. The program determines the rest."""
ANOTHER = -1
"""An option for all answers of a name: each takes a different value."""


@dataclass(slots=True)
class ChosenAnswers:
    """Answers from a script of decisions; records the decisions and the answers. ``changed`` holds for each answer the paths that
    depart from the simplest value.

    ``deadlines`` allows late answers.
    """

    script: Script
    values: Values
    deadlines: bool = False
    choices: list[Choice] = field(default_factory=list[Choice])
    answers: list[Answer] = field(default_factory=list[Answer])
    changed: list[list[str]] = field(default_factory=list[list[str]])
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._names = frozenset([point.name for point in self.script])

    def answer(self, name: str, branch: str, shape: AnswerShape) -> Answer:
        number = self._counts[name, branch]
        self._counts[name, branch] += 1
        changed: list[str] = []
        script = self.script if name in self._names else None

        def choose(at: str, options: int) -> int:
            point = Point(name, at, branch, number)
            taken = None if script is None else script.get(point)
            if taken is None:
                taken = 0 if script is None else script.get(point.for_good, 0)
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
        if self.deadlines and shape.late:
            kinds.append("late")
        if shape.turns:
            kinds.append("turns")
        if shape.tools:
            kinds.append("calls")
        kind = kinds[choose("", len(kinds))] if len(kinds) > 1 else "value"
        value: Any = None
        if kind in ("value", "late"):
            schema = shape.schema if shape.schema is not None else {"type": "string"}
            value = self.values.value(self.values.narrowed(name, schema), "=", choose, name)
        if kind == "calls":
            tool, schema = shape.tools[choose("tool", len(shape.tools)) if len(shape.tools) > 1 else 0]
            value = {"tool": tool, "arguments": self.values.value(schema, f"={tool}", choose)}
        answer = Answer(name, value, kind, branch)
        self.answers.append(answer)
        self.changed.append(changed)
        return answer


class PrescribedAnswers:
    """Answers by name and branch, in order; once those are used up, the simplest value follows."""

    def __init__(self, answers: Iterable[Answer], values: Values) -> None:
        self._left: defaultdict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        for answer in answers:
            self._left[answer.name, answer.branch].append(answer)
        self._plain = ChosenAnswers({}, values)

    def answer(self, name: str, branch: str, shape: AnswerShape) -> Answer:
        left = self._left.get((name, branch))
        if not left:
            return self._plain.answer(name, branch, shape)
        return left[0] if left[0].always else left.popleft()


def branch_of(path: str) -> str:
    """The enclosing branches of an effect, from its path in the run: ``0/4.2/1.0`` is in branch 2."""
    return ".".join([part.rpartition(".")[2] for part in path.split("/")[1:-1]])
