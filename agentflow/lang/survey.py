"""Mistakes and names of a program text for an editor; the mistakes are those that ``check`` reports.

A text usually changes in one form at a time, so the analysis of each top-level form is kept, together with what the form
was told of the others: the names among its own that they define. It is redone when either changes. A text that does not divide that way (a text that cannot be read, one too large) is analysed whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentflow.core.data.errors import AgentflowError, Frame
from agentflow.core.data.limits import Limits
from agentflow.core.data.names import DEFINE, NameInfo
from agentflow.core.data.names import Names as NamesPort
from agentflow.core.data.source import Source, Span
from agentflow.core.data.walk import Work, finish
from agentflow.lang.allowance import Allowance
from agentflow.lang.analyzer import nodes_in
from agentflow.lang.checks import Suspects, failures_of_parts, names_in_sight, suspects
from agentflow.lang.diagnosis import Diagnostic, diagnose
from agentflow.lang.model_names import Trail, answers_of_parts, trail
from agentflow.lang.naming import MAX_ERRORS, Scope, defined_tasks
from agentflow.lang.program import describer, new_analyzer, start_of
from agentflow.lang.reader import read, read_datum_nodes
from agentflow.lang.size import DATA_PER_NODE
from agentflow.lang.stack import collector_paused
from agentflow.lang.symbol_analyzer import SymbolAnalyzer
from agentflow.lang.symbols import SymbolTable
from agentflow.lang.syntax import DictForm, Form, Name, Node

_BEGINNING = re.compile(r"(?<=\n)\(")
"""Where a top-level form begins, as most are written; one that begins elsewhere belongs to the form before."""
_JOINED = 8
"""How many of these a form may seem to be before the rest of the text is taken as one."""
_VARIANTS = 4
"""How many results are kept of a form that stands in a text more than once."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The survey of a text. ``symbols`` is None where it cannot be read; ``tasks`` says what calls of its tasks take."""

    source: Source
    diagnostics: list[Diagnostic]
    symbols: SymbolTable | None = None
    tasks: dict[str, list[NameInfo]] = field(default_factory=dict[str, "list[NameInfo]"])


@dataclass(frozen=True, slots=True)
class _Result:
    """The analysis of a form, and what it adds to what the forms after it are told."""

    analyzer: SymbolAnalyzer
    suspects: Suspects
    trail: Trail
    counts: dict[str, int]
    lambdas: dict[str, Any]
    macros: dict[str, Any]
    own: set[str]


@dataclass(slots=True)
class _Part:
    """A top-level form, and what its text alone says: the names in it, those it defines, and how many nodes it has."""

    source: Source
    forms: list[Node]
    names: frozenset[str]
    defines: list[str]
    tasks: set[str]
    nodes: int
    results: dict[Any, _Result] = field(default_factory=dict[Any, _Result])


class _Told:
    """What a form is told of those before it, and of what all of them define."""

    def __init__(self, parts: Sequence[tuple[int, _Part]], *, defining: bool) -> None:
        self.counts = {name: 0 for _, part in parts for name in part.defines}
        self.own: set[str] = {name for _, part in parts for name in part.tasks} if defining else set()
        self.lambdas: dict[str, Any] = {}
        self.macros: dict[str, Any] = {}
        self.expanded = 0

    def of(self, part: _Part) -> Any:
        """What matters to ``part``; None if that cannot be told, since macros are involved."""
        if not part.names.isdisjoint(self.macros) or "defmacro" in part.names:
            return None
        counts = self.counts
        defined = frozenset([(name, counts[name], name in self.lambdas) for name in part.names if name in counts])
        return defined, part.names & self.own

    def add(self, result: _Result) -> None:
        """Count what a form defines."""
        for name, count in result.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.lambdas.update(result.lambdas)
        self.own |= result.own
        self.macros.update(result.macros)
        self.expanded += result.analyzer.expanded


class Surveyor:
    """Surveys one text after another, and keeps of the last what may serve for the next.

    ``names`` says what free names are; ``bindings`` are those the host binds, and then no others.
    """

    def __init__(
        self, *, names: NamesPort | None = None, limits: Limits | None = None, bindings: Iterable[str] | None = None
    ) -> None:
        self.names = names
        self.limits = limits or Limits()
        self._bindings = frozenset(bindings or ())
        self._closed = bindings is not None
        self._describe = describer(names, self._bindings)
        self._parts: dict[str, _Part] = {}

    def survey(self, source: Source) -> Survey:
        """The mistakes of a text, in order, and its names."""
        return finish(self.work(source))

    def work(self, source: Source) -> Work[Survey]:
        """The same as work that can be interrupted between two forms; the collector is paused until it ends."""
        with collector_paused():
            if source.surface == "python":
                return (yield from self._python(source))
            return (yield from self._surveying(source))

    def _python(self, source: Source) -> Work[Survey]:
        """The survey of a text in Python. A file that is no workflow text is none of ours: it has neither mistakes nor names."""
        from agentflow.lang.python.symbols import is_workflow_text, look_over  # Most processes never see such a text.

        if source.name.endswith(".py") and not is_workflow_text(source.text):
            return Survey(source, [], SymbolTable([]))
        looked_over = yield from look_over(source, self._describe, self.limits, self.names, closed=self._closed)
        diagnostics = [Diagnostic(each, "error") for each in looked_over.errors]
        diagnostics += [Diagnostic(each, "warning") for each in looked_over.doubts]
        diagnostics.sort(key=lambda each: start_of(each.error))
        if looked_over.names is None:
            return Survey(source, diagnostics)
        return Survey(source, diagnostics, SymbolTable([(0, looked_over.names)]), looked_over.tasks)

    def _surveying(self, source: Source) -> Work[Survey]:
        try:
            parts = yield from self._divide(source)
        except AgentflowError as error:
            return Survey(source, [Diagnostic(error, "error")])
        results = yield from self._analyse(source, parts)
        if sum(len(each.analyzer.errors) for each in results) > MAX_ERRORS:
            return Survey(source, self._whole(source))
        tasks: dict[str, list[NameInfo]] = {}
        for each in results:
            for name, infos in each.analyzer.own_infos.items():
                tasks.setdefault(name, []).extend(infos)
        symbols = SymbolTable(
            [(offset, result.analyzer.names) for (offset, _), result in zip(parts, results, strict=True)]
        )
        yield 1
        return Survey(source, self._judge(source, parts, results, tasks), symbols, tasks)

    def _whole(self, source: Source) -> list[Diagnostic]:
        return diagnose(
            source,
            names=self.names,
            limits=self.limits,
            env_names=self._bindings,
            closed=True if self._closed else None,
        )

    # -- dividing -----------------------------------------------------------------------------------------------------

    def _divide(self, source: Source) -> Work[list[tuple[int, _Part]]]:
        """The parts of a text with their offsets. Raises what reading the whole raises.

        A text that can be read by itself ends where a form ends, so what follows it can be read by itself too.
        """
        text, limits = source.text, self.limits
        if len(text) > limits.source_bytes:
            read(source, limits=limits)
        starts = [0, *(match.start() for match in _BEGINNING.finditer(text)), len(text)]
        parts: list[tuple[int, _Part]] = []
        kept: dict[str, _Part] = {}
        index = 0
        while index < len(starts) - 1:
            for last in range(index + 1, min(index + _JOINED, len(starts))):
                piece = text[starts[index] : starts[last]]
                part = kept.get(piece) or self._parts.get(piece)
                try:
                    if part is None:
                        part = self._read(source.name, piece)
                        yield 1
                except AgentflowError:
                    continue
                break
            else:
                read(source, limits=limits)
                last = len(starts) - 1
                piece = text[starts[index] :]
                part = self._read(source.name, piece)
            kept[piece] = part
            parts.append((starts[index], part))
            index = last
        self._parts = kept
        nodes = sum(part.nodes for _, part in parts)
        if nodes * DATA_PER_NODE + text.count("#;") > limits.nodes * DATA_PER_NODE or not nodes:
            read(source, limits=limits)
        return parts

    def _read(self, name: str, text: str) -> _Part:
        source = Source(name, text)
        forms = read_datum_nodes(source, limits=self.limits)
        naming = new_analyzer(SymbolAnalyzer, source, self._describe, self.limits, None, None)
        return _Part(
            source,
            forms,
            frozenset(_names(forms)),
            naming.scan_defines(forms, Scope(None, naming.main)),
            defined_tasks(forms),
            sum(map(nodes_in, forms)),
        )

    # -- analysing ----------------------------------------------------------------------------------------------------

    def _analyse(self, source: Source, parts: Sequence[tuple[int, _Part]]) -> Work[list[_Result]]:
        told = _Told(parts, defining=DEFINE in source.text)
        allowance = Allowance(self.limits.steps)
        results: list[_Result] = []
        for _, part in parts:
            key = told.of(part)
            result = part.results.get(key) if key is not None else None
            if result is None:
                result = self._analyse_part(part, told, allowance)
                yield 1
                if key is not None and not result.analyzer.errors:
                    part.results[key] = result
                    while len(part.results) > _VARIANTS:
                        del part.results[next(iter(part.results))]
            told.add(result)
            results.append(result)
        for each in results:
            each.analyzer.globals_defined = told.counts
            each.analyzer.own = told.own
            each.analyzer.global_lambdas = told.lambdas
        return results

    def _analyse_part(self, part: _Part, told: _Told, allowance: Allowance) -> _Result:
        a = new_analyzer(SymbolAnalyzer, part.source, self._describe, self.limits, None, self.names, allowance)
        a.globals_defined = dict(told.counts)
        a.global_lambdas = dict(told.lambdas)
        a.own = set(told.own)
        a.macros = dict(told.macros)
        a.expanded = told.expanded
        tree = a.forms_of_program(part.forms)
        a.expanded -= told.expanded
        # a form that expands no macro defines names that stand in it; there are many more in a large text
        names = part.names if not a.expanded else a.globals_defined.keys() | a.macros.keys()
        counts = {
            name: a.globals_defined[name] - told.counts.get(name, 0)
            for name in names & a.globals_defined.keys()
            if a.globals_defined[name] != told.counts.get(name)
        }
        lambdas = {
            name: a.global_lambdas[name]
            for name in names & a.global_lambdas.keys()
            if told.lambdas.get(name) is not a.global_lambdas[name]
        }
        macros = {
            name: a.macros[name] for name in names & a.macros.keys() if told.macros.get(name) is not a.macros[name]
        }
        return _Result(a, suspects(tree), trail(tree), counts, lambdas, macros, a.own - told.own)

    def _judge(
        self,
        source: Source,
        parts: Sequence[tuple[int, _Part]],
        results: Sequence[_Result],
        tasks: dict[str, list[NameInfo]],
    ) -> list[Diagnostic]:
        own = [each.analyzer.own_infos for each in results]
        analyzers = [each.analyzer for each in results]
        for each in analyzers:
            each.own_infos = tasks
        failures = failures_of_parts(
            [(each.analyzer, each.suspects) for each in results], names_in_sight(analyzers), closed=self._closed
        )
        answers = answers_of_parts([(each.analyzer, each.trail) for each in results])
        for analyzer, infos in zip(analyzers, own, strict=True):
            analyzer.own_infos = infos
        wrong: list[Diagnostic] = []
        for (offset, _), analyzer, failed, called in zip(parts, analyzers, failures, answers, strict=True):
            wrong += [Diagnostic(_moved(error, source, offset), "error") for error in analyzer.errors]
            wrong += [
                Diagnostic(_moved(each.error, source, offset), "warning" if each.caught else "error")
                for each in [*failed, *called]
            ]
        return sorted(wrong, key=lambda each: each.error.span.start if each.error.span is not None else 0)


def _names(forms: Sequence[Node]) -> set[str]:
    """The names in forms, quoted ones and those of task calls in texts too."""
    names: set[str] = set()
    pending = list(forms)
    while pending:
        at = pending.pop()
        if type(at) is Name:
            names.add(at.name)
        elif isinstance(at, Form | DictForm):
            pending.extend(at.items)
        elif isinstance(value := getattr(at, "value", None), str) and "{{" in value:
            names.update(re.findall(r"[^\s.(){},]+", value))
    return names


def _moved(error: AgentflowError, source: Source, offset: int) -> AgentflowError:
    """An error in a part, as one in the whole text."""
    moved = type(error).__new__(type(error))
    moved.__dict__.update(error.__dict__)
    moved.args, moved.__cause__ = error.args, error.__cause__
    moved.span = _span(error.span, source, offset)
    moved.frames = [Frame(each.name, _span(each.span, source, offset)) for each in error.frames]
    return moved


def _span(span: Span | None, source: Source, offset: int) -> Span | None:
    return None if span is None else Span(source, span.start + offset, span.end + offset)
