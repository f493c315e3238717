"""What an exploration says of a program: the errors it can come to, and the arms that no run reached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from agentflow.core.errors import AgentflowError, clip
from agentflow.core.source import Span
from agentflow.core.values import to_json
from agentflow.exploration.answers import Answer
from agentflow.lang.passes.arms import Arm

FindingKind = Literal["error", "endless", "unhandled"]
_SHOWN = 60


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Something that can happen to a program, with the shortest run in which it does.

    ``kind``: an ``error`` of the program, a loop that is ``endless``, or a failed call that is ``unhandled`` (of a task, a tool, a
    person). ``code`` and ``message`` are the error's, ``span`` is where. ``answers`` are all that was answered in that run, in order,
    and ``deciding`` those of them that differ from the plainest, without fields that do not; ``always`` names who answers alike throughout. ``effects`` is how
    many calls an endless loop was watched for. ``places`` are the spans of all calls that fail unhandled.
    """

    kind: FindingKind
    code: str
    message: str
    span: Span | None
    answers: tuple[Answer, ...] = ()
    deciding: tuple[Answer, ...] = ()
    always: frozenset[str] = frozenset()
    error: AgentflowError | None = None
    effects: int = 0
    places: tuple[Span, ...] = ()
    who: str = ""

    @property
    def when(self) -> str:
        """The answers that bring it about, in words; empty if the plainest do."""
        shown: dict[str, None] = {}
        for answer in self.deciding:
            often = sum(each.name == answer.name for each in self.answers) > 1
            always = "always " if often and answer.name in self.always else ""
            shown[f"{answer.name} {always}{said(answer)}"] = None
        listed = [*shown]
        return " and ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")

    @property
    def script(self) -> tuple[Answer, ...]:
        """The answers with which :func:`agentflow.testing.rehearse` comes to the same: equal ones at an end are one that is
        given again and again."""
        by_asker: dict[tuple[str, str], list[Answer]] = {}
        for answer in self.answers:
            by_asker.setdefault((answer.name, answer.branch), []).append(answer)
        script: list[Answer] = []
        for answers in by_asker.values():
            last = answers[-1]
            while len(answers) > 1 and answers[-2] == last:
                answers.pop()
            script += [*answers[:-1], replace(last, always=True)]
        return tuple(script)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": self.kind,
            "code": self.code,
            "message": self.message,
            "who": self.who or None,
            "span": None if self.span is None else self.span.to_dict(),
            "when": self.when or None,
            "places": [each.to_dict() for each in self.places],
            "answers": [
                {"name": each.name, "branch": each.branch, "kind": each.kind, "value": each.value}
                for each in self.answers
            ],
        }

    def __str__(self) -> str:
        at = "" if self.span is None else f" at {self.span.line}:{self.span.column}"
        when = f"  when {self.when}" if self.when else ""
        if self.kind == "endless":
            return f"no end{at}: {self.effects} calls, and it would go on{when}"
        if self.kind == "unhandled":
            count = len(self.places)
            where = (
                f"{count} calls" if count > 1 else f"at {self.places[0].line}:{self.places[0].column}" if count else ""
            )
            return (
                f"{self.message} and nobody handles it ({where})" if where else f"{self.message} and nobody handles it"
            )
        return f"error[{self.code}]{at} {self.message}{when}"


@dataclass(frozen=True, slots=True)
class Exploration:
    """What came of exploring a program: what was ``found``, its ``arms``, those that were ``missed``, and how many ``runs`` it took."""

    found: tuple[Finding, ...]
    arms: tuple[Arm, ...]
    missed: tuple[Arm, ...]
    runs: int

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What was found without failures that nobody handles."""
        return tuple([each for each in self.found if each.kind != "unhandled"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "runs": self.runs,
            "arms": len(self.arms),
            "missed": [{"kind": each.kind, "span": each.span.to_dict()} for each in self.missed],
            "found": [each.to_dict() for each in self.found],
        }

    def __str__(self) -> str:
        reached = len(self.arms) - len(self.missed)
        lines = [f"{self.runs} runs, {reached} of {len(self.arms)} arms", *map(str, self.found)]
        return "\n".join([*lines, *(f"not reached: {arm}" for arm in self.missed)])


def said(answer: Answer) -> str:
    """What somebody does, in words."""
    match answer.kind:
        case "fails":
            return "fails"
        case "late":
            return "takes too long"
        case "no-json":
            return "gives no JSON"
        case "turns":
            return "calls tools for all of its turns"
        case "calls":
            arguments = to_json(answer.value["arguments"])
            return f"calls {answer.value['tool']} with {clip(arguments, _SHOWN)}"
        case "value":
            text = (
                to_json(answer.value)
                if not isinstance(answer.value, str)
                else json.dumps(answer.value, ensure_ascii=False)
            )
            return f"gives {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'}"


def shortened(answer: Answer, places: Sequence[str]) -> Answer:
    """An answer without the fields in which none of the ``places`` is, where it is an object."""
    value: object = answer.value
    if answer.kind != "value" or not isinstance(value, dict):
        return answer
    fields = cast("dict[str, Any]", value)
    kept = {name: each for name, each in fields.items() if any([_is_in(place, name) for place in places])}
    return replace(answer, value=kept) if kept else answer


def _is_in(place: str, name: str) -> bool:
    """Whether a place in an answer is in its field of that name."""
    start = f"=.{name}"
    return place.startswith(start) and place[len(start) : len(start) + 1] in ("", ".", "[", "#", "|", "?")


def in_order(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Errors first, then loops, then failures, each as they stand in the text."""
    kinds = ("error", "endless", "unhandled")
    return tuple(
        sorted(found, key=lambda each: (kinds.index(each.kind), each.span.start if each.span else -1, each.code))
    )


__all__ = ["Exploration", "Finding", "in_order", "said", "shortened"]
