"""Operators: other forms of a candidate that no model has to propose.

Some change fields of tasks, in any program. The others change the text of a program: they put a step in, take one out, or join
two. Their candidates pass the gates before they cost anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Source
from agentflow.durable.generations import Overrides
from agentflow.evals.apart import value_text
from agentflow.evals.improvement.candidates import ProgramCandidate
from agentflow.evals.improvement.editable import EditableTask
from agentflow.evals.improvement.proposals import Trace
from agentflow.evals.improvement.written_calls import WRITERS, SurfaceWriter, WrittenCall, WrittenText, written

_EFFORTS = ("low", "high")
_EXAMPLES = 3
"""Number of good records that become examples in instructions."""
_DO = "It follows these instructions:\n\n"


@frozen
class OperatorChange:
    """A change of a candidate, in words: its new ``overrides``, or its new ``program``; ``faster`` if only its time can be better."""

    text: str
    overrides: Overrides | None = None
    program: Source | None = None
    faster: bool = False


@frozen
class Material:
    """A candidate to change: its ``text`` (None: a Python function), the ``tasks`` to edit, good ``traces``, and ``models`` to try."""

    candidate: ProgramCandidate
    text: Source | None
    tasks: Mapping[str, EditableTask]
    traces: Sequence[Trace]
    models: Sequence[str]

    def instructions(self, task: str) -> str:
        """The instructions of a task in the candidate."""
        return self.candidate.overrides.get(task, {}).get("instructions", self.tasks[task].instructions)

    def field(self, task: str, name: str, value: Any) -> OperatorChange:
        """The candidate with another field of a task."""
        return OperatorChange(f"{name} of {task}", self.candidate.with_field(task, name, value))


Operator: TypeAlias = Callable[[Material], Iterator[OperatorChange]]


# -- fields of tasks ---------------------------------------------------------------------------------------------------


def _model(material: Material) -> Iterator[OperatorChange]:
    for model in material.models:
        for task in material.tasks:
            yield replace(material.field(task, "model", model), text=f"model of {task}: {model}")


def _effort(material: Material) -> Iterator[OperatorChange]:
    for task in material.tasks:
        for effort in _EFFORTS:
            yield replace(material.field(task, "effort", effort), text=f"effort of {task}: {effort}")


def _few_shot(material: Material) -> Iterator[OperatorChange]:
    """Good records as examples: of the tasks with parameters that are inputs of the cases, where the record has both sides."""
    for task, own in material.tasks.items():
        shown: list[str] = []
        for trace in material.traces:
            inputs = trace.sample.case.inputs
            rows = [each for each in trace.rows if each.kind == "task" and each.name == task]
            if len(rows) == 1 and own.parameters and set(own.parameters) <= inputs.keys():
                inputs_text = "\n".join([f"{name}: {inputs[name]}" for name in own.parameters])
                shown.append(f"{inputs_text}\nanswer: {value_text(rows[0].value)}")
        examples = [each for each in shown if "{{" not in each][:_EXAMPLES]
        if examples:
            text = "\n\n".join([material.instructions(task), "Examples of good answers:", *examples])
            yield replace(material.field(task, "instructions", text), text=f"examples for {task}")


# -- texts -------------------------------------------------------------------------------------------------------------


@frozen
class _Site:
    """A call in the text of a candidate, and how to write others around it."""

    material: Material
    text: WrittenText
    call: WrittenCall

    @property
    def writer(self) -> SurfaceWriter:
        return WRITERS[self.text.source.surface]

    @property
    def value(self) -> str:
        return self.text.part(self.call.span)

    @property
    def arguments(self) -> dict[str, str]:
        return {name: self.text.part(span) for name, span in self.call.arguments.items()}

    @property
    def is_simple(self) -> bool:
        """Whether its arguments may be written twice."""
        return len(self.call.simple) == len(self.call.arguments)

    @property
    def instructions(self) -> str:
        return self.material.instructions(self.call.task)

    def task(self, what: str, parameters: Sequence[str], instructions: str, *, judges: bool = False) -> tuple[str, str]:
        """A new task with the model of the one that is called: its name and its definition."""
        name = self.name(what)
        model = self.material.tasks[self.call.task].model
        return name, self.writer.task(name, parameters, instructions, model, judges=judges)

    def name(self, what: str) -> str:
        """A name that the text does not have yet."""
        name = self.writer.name(self.call.task, what)
        while name in self.text.source.text:
            name += "2"
        return name

    def change(self, what: str, text: str, *definitions: str) -> OperatorChange:
        return OperatorChange(f"{what} {self.call.task}", None, self.text.changed(self.call.span, text, definitions))


def _sites(material: Material, *added: str, simple: bool = False, plain: bool = True) -> Iterator[_Site]:
    """The calls in the text of tasks without parameters of the ``added`` names. ``simple``: their arguments may be written twice;
    ``plain``: they answer with text and name no tools."""
    text = _written(material)
    if text is None:
        return
    for call in text.calls:
        site, task = _Site(material, text, call), material.tasks[call.task]
        if (site.is_simple or not simple) and (task.is_plain or not plain) and not {*added} & call.arguments.keys():
            yield site


def _written(material: Material) -> WrittenText | None:
    if material.text is None:
        return None
    try:
        return written(material.text, {name: each.parameters for name, each in material.tasks.items()})
    except AgentflowError:
        return None


def _critic(material: Material) -> Iterator[OperatorChange]:
    """A critic reads the arguments that may be written twice, and of the others the names."""
    for site in _sites(material, "draft"):
        inputs = {name: text for name, text in site.arguments.items() if name in site.call.simple}
        told = site.instructions
        for name in site.arguments.keys() - inputs.keys():
            told = told.replace(f"{{{{{name}}}}}", f"({name})")
        asks = (
            f"Check this answer, and give it in full as it should be, without comments.\n\n{{{{draft}}}}\n\n{_DO}{told}"
        )
        name, task = site.task("critic", [*inputs, "draft"], asks)
        yield site.change("a critic after", site.writer.call(name, {**inputs, "draft": site.value}), task)


def _vote(material: Material) -> Iterator[OperatorChange]:
    for site in _sites(material, simple=True):
        anew = f"{site.instructions}\n\nThink of it anew"
        second, one = site.task("second", [*site.arguments], f"{anew} (2).")
        third, other = site.task("third", [*site.arguments], f"{anew} (3).")
        asks = "Three answers to one question. Give the one that most of them agree on, and nothing else."
        slots = "\n\n".join(["1. {{one}}", "2. {{two}}", "3. {{three}}"])
        vote, task = site.task("vote", ["one", "two", "three"], f"{asks}\n\n{slots}")
        call = site.writer.call
        answers = {"one": site.value, "two": call(second, site.arguments), "three": call(third, site.arguments)}
        yield site.change("a vote of three on", call(vote, answers), one, other, task)


def _retry(material: Material) -> Iterator[OperatorChange]:
    for site in _sites(material, plain=False):
        yield site.change("a retry of", site.writer.retried(site.value))


def _check(material: Material) -> Iterator[OperatorChange]:
    for site in _sites(material, "answer", simple=True):
        own = {**{name: name for name in site.arguments}, "answer": "answer"}
        asks = f"Is this answer right?\n\n{{{{answer}}}}\n\n{_DO}{site.instructions}"
        check, one = site.task("check", [*own], asks, judges=True)
        again, other = site.task("again", [*own], f"{site.instructions}\n\nThis answer was wrong: {{{{answer}}}}")
        name, call = site.name("checked"), site.writer.call
        checked = site.writer.checked(name, [*site.arguments], call(check, own), call(again, own))
        text = site.writer.applied(name, {"answer": site.value, **site.arguments})
        yield site.change("a check of", text, one, other, checked)


def _drop(material: Material) -> Iterator[OperatorChange]:
    for site in _sites(material, plain=False):
        for name, text in site.arguments.items():
            yield replace(site.change("without", text), text=f"without {site.call.task}, its {name} in its place")


def _merge(material: Material) -> Iterator[OperatorChange]:
    for site in _sites(material):
        for inner in _sites(material):
            into = [name for name, span in site.call.arguments.items() if span == inner.call.span]
            others = {name: text for name, text in site.arguments.items() if name not in into}
            if not into or not others.keys().isdisjoint(inner.arguments):
                continue
            rest = site.instructions.replace(f"{{{{{into[0]}}}}}", "the result")
            asks = f"First do this, for yourself:\n\n{inner.instructions}\n\nThen do this with the result, and answer with its outcome alone:\n\n{rest}"
            name, task = site.task(inner.call.task, [*inner.arguments, *others], asks)
            call = site.writer.call(name, {**inner.arguments, **others})
            yield site.change(f"one step for {inner.call.task} and", call, task)


def _split(material: Material) -> Iterator[OperatorChange]:
    for site in _sites(material, "notes", simple=True):
        asks = f"Note what is needed to do this, without doing it.\n\n{site.instructions}"
        notes, one = site.task("notes", [*site.arguments], asks)
        rest, other = site.task("noted", [*site.arguments, "notes"], f"{site.instructions}\n\nNotes: {{{{notes}}}}")
        call = site.writer.call
        yield site.change(
            "two steps for", call(rest, {**site.arguments, "notes": call(notes, site.arguments)}), one, other
        )


def _concurrent(material: Material) -> Iterator[OperatorChange]:
    text = _written(material)
    for number, (span, concurrent) in enumerate(text.concurrent if text is not None else (), 1):
        assert text is not None
        yield OperatorChange(f"calls at once ({number})", None, text.changed(span, concurrent), faster=True)


OPERATORS: Mapping[str, Operator] = {
    "model": _model,
    "effort": _effort,
    "few_shot": _few_shot,
    "critic": _critic,
    "vote": _vote,
    "retry": _retry,
    "check": _check,
    "drop": _drop,
    "merge": _merge,
    "split": _split,
    "concurrent": _concurrent,
}
"""The operators by name: the first three change fields of tasks, the others need a program text."""


OF_TEXTS = frozenset({"critic", "vote", "retry", "check", "drop", "merge", "split", "concurrent"})
"""The operators that change the text of a program."""


def changes_of(material: Material, operators: Sequence[str]) -> list[OperatorChange]:
    """The changes that these operators make of a candidate, the operators taking turns."""
    several = [list(OPERATORS[name](material)) for name in operators]
    longest = max([len(each) for each in several], default=0)
    return [each[at] for at in range(longest) for each in several if at < len(each)]
