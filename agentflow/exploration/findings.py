"""The results of an exploration: the errors that a program can reach, and the arms that no run reached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from agentflow.core.data.errors import AgentflowError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Span
from agentflow.core.data.values import to_json
from agentflow.exploration.stand_ins import Answer
from agentflow.lang.passes.arms import Arm

FindingKind = Literal["error", "endless", "unhandled"]
_SHOWN = 60


@frozen(eq=False)
class Finding:
    """A fault that a program can reach, with the shortest run that reaches it.

    ``kind``: an ``error`` of the program, an ``endless`` loop, or an ``unhandled`` failure (of a task, tool or person, ``who``).
    ``code`` and ``message`` are the error's, ``span`` is its position. ``answers`` are all answers in that run, in order;
    ``deciding`` are those that differ from the simplest ones, without irrelevant fields; ``always`` names the effects that give the
    same answer throughout. ``effects`` is the number of calls for which an endless loop was watched. ``places`` are the spans of all calls
    that fail unhandled.
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
        """The answers that cause it, in words; empty if the simplest ones do."""
        shown: dict[str, None] = {}
        for answer in self.deciding:
            often = sum(each.name == answer.name for each in self.answers) > 1
            always = "always " if often and answer.name in self.always else ""
            shown[f"{answer.name} {always}{describe_answer(answer)}"] = None
        listed = [*shown]
        return " and ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")

    @property
    def script(self) -> tuple[Answer, ...]:
        """The answers that make :func:`agentflow.testing.rehearse` reach it again; equal ones at the end become one repeated
        answer."""
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
            return f"no end{at}: {self.effects} calls, and it would continue{when}"
        if self.kind == "unhandled":
            count = len(self.places)
            where = (
                f"{count} calls" if count > 1 else f"at {self.places[0].line}:{self.places[0].column}" if count else ""
            )
            return (
                f"{self.message} and the program does not handle it ({where})"
                if where
                else f"{self.message} and the program does not handle it"
            )
        return f"error[{self.code}]{at} {self.message}{when}"


@frozen
class Exploration:
    """The results of an exploration: the faults ``found``, the ``arms``, those ``missed``, and the number of ``runs``;
    ``warnings`` name the assumptions that held for no answer."""

    found: tuple[Finding, ...]
    arms: tuple[Arm, ...]
    missed: tuple[Arm, ...]
    runs: int
    warnings: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are not unhandled failures."""
        return tuple([each for each in self.found if each.kind != "unhandled"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "runs": self.runs,
            "arms": len(self.arms),
            "missed": [{"kind": each.kind, "span": each.span.to_dict()} for each in self.missed],
            "found": [each.to_dict() for each in self.found],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        reached = len(self.arms) - len(self.missed)
        lines = [f"{self.runs} runs, {reached} of {len(self.arms)} arms", *map(str, self.found)]
        lines += [f"not reached: {arm}" for arm in self.missed]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


def describe_answer(answer: Answer) -> str:
    """An answer in words, to follow the name of the effect that gives it."""
    match answer.kind:
        case "fails":
            return "fails"
        case "late":
            return "takes too long"
        case "no-json":
            return "does not give JSON"
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
    """An answer without the fields, if it is an object, that contain none of the ``paths``."""
    value: object = answer.value
    if answer.kind != "value" or not isinstance(value, dict):
        return answer
    fields = cast("dict[str, Any]", value)
    kept = {name: each for name, each in fields.items() if any([_is_in(decision, name) for decision in places])}
    return replace(answer, value=kept) if kept else answer


def _is_in(decision: str, name: str) -> bool:
    """Whether a path in an answer is inside the field called ``name``."""
    start = f"=.{name}"
    return decision.startswith(start) and decision[len(start) : len(start) + 1] in ("", ".", "[", "#", "|", "?")


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Errors first, then loops, then failures, each in the order of the text."""
    kinds = ("error", "endless", "unhandled")
    return tuple(
        sorted(findings, key=lambda each: (kinds.index(each.kind), each.span.start if each.span else -1, each.code))
    )
