"""Mistakes and names of a program text for an editor; the mistakes are those that ``check`` reports.

A text usually changes in one form at a time, so the analysis of each top-level form is cached, together with its facts
about the others: the names among its own that they define. It is redone when either changes. A text that cannot be divided
this way (a text that cannot be read, one too large) is analysed whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentflow.core.data.errors import AgentflowError, Frame
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import DEFINE, NameInfo
from agentflow.core.data.known_names import Names as NamesPort
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Span
from agentflow.core.data.walk import Work, finish
from agentflow.lang import ir
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.analyzer import EFFECT_NAMES, LOOP_CONFIG, Analyzer, Tail, nodes_in
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.checks import Suspects, failures_of_parts, names_in_sight, suspects
from agentflow.lang.diagnosis import Diagnostic, diagnose
from agentflow.lang.ir import IR, Var
from agentflow.lang.model_names import Trail, answers_of_parts, trail
from agentflow.lang.naming import MAX_ERRORS, Scope, defined_tasks
from agentflow.lang.program import describer, new_analyzer, start_of
from agentflow.lang.reader import DATA_PER_NODE, read, read_datum_nodes
from agentflow.lang.symbols import Binding, Kind, Occurrence, Role, SymbolTable, TextSymbols
from agentflow.lang.syntax import Atom, DictForm, Form, Name, Node, head_name
from agentflow.lib.text.slots import SLOT
from agentflow.lib.text.stack import collector_paused

_CALL = re.compile(r"([^\s.(){},]+)\s*\(")
_WORD = re.compile(r"[^\s.(){},\"']+")
_TEMPLATES = ("quote", "quasiquote")


class SymbolAnalyzer(Analyzer):
    """An analysis that keeps every binding and reference in ``names``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.names = TextSymbols()
        self._within: Node | None = None
        self._bindings: dict[Var, Binding] = {}

    # -- references -------------------------------------------------------------------------------------------------

    def _expr(self, node: Node, scope: Scope, tail: Tail) -> IR:
        if type(node) is Name:
            self._refer(node, "read", scope)
        if type(node) is not Form or not node.items:
            return super()._expr(node, scope, tail)
        around, self._within = self._within, node
        try:
            head = node.items[0]
            if type(head) is Name:
                self._refer(head, "call", scope)
                if head.name in _TEMPLATES and scope.find(head.name) is None:
                    self._data(node.items[1:])
            return super()._expr(node, scope, tail)
        finally:
            self._within = around

    def pair(self, node: Node, scope: Scope) -> ir.Pair:
        at = node
        while isinstance(at, Form) and self.pair_shaped(at, scope):
            head, operand = at.items
            assert isinstance(head, Name)
            if self._meaning(head, "call", scope) == "unknown":
                self._add(head, "argument", "argument")
            else:
                self._refer(head, "call", scope)
            at = operand
        return super().pair(node, scope)

    def effect(self, node: Form, kind: str, name: str, scope: Scope) -> ir.EffectCall:
        for each in node.items[1:]:
            head = each.items[0] if type(each) is Form and len(each.items) == 2 else None
            if type(head) is Name:
                self._add(head, "argument", "argument", owner=name)
        return super().effect(node, kind, name, scope)

    def written(self, name: Name, scope: Scope) -> None:
        self._refer(name, "write", scope)

    def mentioned(self, name: Node) -> None:
        if type(name) is Name:
            self._add(name, "mention", self._free(name.name))

    def expansion(self, macro: Any, node: Form, scope: Scope, tail: Tail) -> IR:
        self.opaque(node)
        return super().expansion(macro, node, scope, tail)

    def opaque(self, node: Node, name: Name | None = None) -> None:
        self.names.opaque.append((node.start, node.end))
        if name is not None:
            self._file_level(name, node, "macro", Binding(name.name, "macro", name.start, name.end, _extent(node)))

    def _data(self, nodes: Sequence[Node]) -> None:
        """Quoted names: the evaluated ones of a template are read later, which counts for more."""
        pending = list(nodes)
        while pending:
            at = pending.pop()
            if type(at) is Name:
                self._add(at, "data", "data")
            elif isinstance(at, Form | DictForm):
                pending.extend(at.items)

    def _refer(self, node: Name, role: Role, scope: Scope) -> None:
        var = scope.find(node.name)
        if var is None:
            self._add(node, role, self._meaning(node, role, scope))
            return
        self._add(node, role, "local", self._bindings.get(var))

    def _meaning(self, node: Name, role: Role, scope: Scope) -> Kind:
        name = node.name
        if scope.find(name) is not None:
            return "local"
        if role == "call" and name in self.forms:
            return "form"
        if role == "call" and name in self.macros:
            return "macro"
        return "context" if name == LOOP_CONFIG else self._free(name)

    def _free(self, name: str) -> Kind:
        kind = self.kind(name)
        if kind == "variable":
            return "global" if name in self.globals_defined else "host"
        if name in PRIMITIVES:
            return "primitive"
        return "context" if name in EFFECT_NAMES else kind

    # -- bindings -----------------------------------------------------------------------------------------------------

    def var(self, name: str, scope: Scope, at: Node | None = None, within: Node | None = None) -> Var:
        var = super().var(name, scope, at, within)
        around = within or self._within
        if at is not None and around is not None:
            binding = Binding(name, "variable", at.start, at.end, _extent(around), _extent(around))
            self._bind(binding, var)
        elif not name.startswith(" ") and around is not None:
            self._bindings[var] = Binding(name, "variable", -1, -1, _extent(around), _extent(around))
        return var

    def block(self, nodes: Sequence[Node], scope: Scope, tail: Tail, at: Node) -> IR:
        around, self._within = self._within, at
        try:
            return super().block(nodes, scope, tail, at)
        finally:
            self._within = around

    def lambda_(self, node: Node, params: Node, *rest: Any, **options: Any) -> ir.Lambda:
        around, self._within = self._within, node
        try:
            result = super().lambda_(node, params, *rest, **options)
        finally:
            self._within = around
        for var in [*result.params, *([result.rest] if result.rest is not None else [])]:
            if var in self._bindings:
                self._bindings[var].kind = "parameter"
        return result

    def defined(self, name: Name, node: Node, var: Var | None, value: IR) -> None:
        binding = Binding(name.name, "variable", name.start, name.end, _extent(node))
        if var is None:
            self._file_level(name, node, "global", binding)
        elif var in self._bindings:
            first = self._bindings[var]
            if first.start < 0 and self._stands(name):
                first.start, first.end, first.form = name.start, name.end, _extent(node)
                self.names.bindings.append(first)
            self._add(name, "binding", "local", first)
            binding = first
        if isinstance(value, ir.Lambda):
            _take(binding, value)

    def finish(self) -> None:
        super().finish()
        for var, binding in self._bindings.items():
            if var.value is not None and binding.kind == "variable":
                _take(binding, var.value)

    def defined_task(self, name: Name, node: Form, options: Mapping[str, Form]) -> None:
        own: dict[str, Binding] = {}
        for each in options["params"].items[1:] if "params" in options else ():
            parameter = each.items[0] if isinstance(each, Form) and each.items else each
            if type(parameter) is Name:
                extent = _extent(node)
                binding = Binding(
                    parameter.name, "parameter", parameter.start, parameter.end, extent, extent, owner=name.name
                )
                own[parameter.name] = binding
                self._bind(binding, None)
        task = Binding(name.name, "task", name.start, name.end, _extent(node), parameters=tuple(own))
        self._file_level(name, node, "task", task)
        for key in ("instructions", "system"):
            text = options[key].items[-1] if key in options else None
            if type(text) is Atom:
                self._slots(text, own)
        listed = options["tools"].items[1:] if "tools" in options else []
        for each in listed:
            for item in each.items[1:] if isinstance(each, Form) and head_name(each) == "quote" else [each]:
                self.mentioned(item)

    def _slots(self, text: Node, parameters: Mapping[str, Binding]) -> None:
        """The parameters and tasks that the slots of a text name, as the text of the program has them."""
        for slot in SLOT.finditer(self.source.text, text.start, text.end):
            called = _CALL.match(slot[1])
            if called is not None:
                self.mentioned(Name(called[1], slot.start(1), slot.start(1) + called.end(1)))
            for word in _WORD.finditer(slot[1], called.end() if called is not None else 0):
                start = slot.start(1) + word.start()
                if word[0] in parameters:
                    self._add(Name(word[0], start, start + len(word[0])), "read", "local", parameters[word[0]])
                if called is None:
                    break

    def _file_level(self, name: Name, node: Node, kind: Kind, binding: Binding) -> None:
        if self._stands(name):
            self.names.bindings.append(binding)
        self._add(name, "binding", kind)

    def _bind(self, binding: Binding, var: Var | None) -> None:
        name = Name(binding.name, binding.start, binding.end)
        if var is not None:
            self._bindings[var] = binding
        if self._stands(name):
            self.names.bindings.append(binding)
        self._add(name, "binding", "local", binding)

    def _stands(self, name: Name) -> bool:
        """Whether the text has a name, or an expansion put it there."""
        return self.source.text[name.start : name.end] == name.name

    def _add(
        self, name: Name, role: Role, kind: Kind, binding: Binding | None = None, *, owner: str | None = None
    ) -> None:
        if self._stands(name):
            self.names.add(Occurrence(name.name, name.start, name.end, role, kind, binding, owner))
        elif binding is None:
            self.names.hidden.add(name.name)


def _take(binding: Binding, value: ir.Lambda) -> None:
    """Record that a binding is a procedure, with its parameters."""
    binding.kind = "procedure"
    binding.parameters = tuple(each.name for each in value.params)
    binding.rest = value.rest.name if value.rest is not None else None


def _extent(node: Node) -> tuple[int, int]:
    return node.start, node.end


_BEGINNING = re.compile(r"(?<=\n)\(")
"""The usual beginning of a top-level form; a form that begins differently belongs to the one before."""
_JOINED = 8
"""The most of these that a form may seem to be before the rest of the text is taken as one."""
_VARIANTS = 4
"""The number of results kept for a form that occurs in a text more than once."""


@frozen
class Survey:
    """The survey of a text. ``symbols`` is None if it cannot be read; ``tasks`` are the parameters of its tasks."""

    source: Source
    diagnostics: list[Diagnostic]
    symbols: SymbolTable | None = None
    tasks: dict[str, list[NameInfo]] = field(default_factory=dict[str, "list[NameInfo]"])


@frozen
class _Result:
    """The analysis of a form, and the facts it adds for later forms."""

    analyzer: SymbolAnalyzer
    suspects: Suspects
    trail: Trail
    counts: dict[str, int]
    lambdas: dict[str, Any]
    macros: dict[str, Any]
    own: set[str]


@dataclass(slots=True)
class _Part:
    """A top-level form, and the facts in its text: its names, its definitions, and its number of nodes."""

    source: Source
    forms: list[Node]
    names: frozenset[str]
    defines: list[str]
    tasks: set[str]
    nodes: int
    results: dict[Any, _Result] = field(default_factory=dict[Any, _Result])


class _Told:
    """The facts for a form: about earlier forms, and about the definitions of all forms."""

    def __init__(self, parts: Sequence[tuple[int, _Part]], *, defining: bool) -> None:
        self.counts = {name: 0 for _, part in parts for name in part.defines}
        self.own: set[str] = {name for _, part in parts for name in part.tasks} if defining else set()
        self.lambdas: dict[str, Any] = {}
        self.macros: dict[str, Any] = {}
        self.expanded = 0

    def of(self, part: _Part) -> Any:
        """The facts that matter to ``part``; None if they cannot be determined because of macros."""
        if not part.names.isdisjoint(self.macros) or "defmacro" in part.names:
            return None
        counts = self.counts
        defined = frozenset([(name, counts[name], name in self.lambdas) for name in part.names if name in counts])
        return defined, part.names & self.own

    def add(self, result: _Result) -> None:
        """Count the definitions of a form."""
        for name, count in result.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.lambdas.update(result.lambdas)
        self.own |= result.own
        self.macros.update(result.macros)
        self.expanded += result.analyzer.expanded


class Surveyor:
    """Surveys one text after another, and keeps reusable parts of the last one.

    ``names`` returns the meanings of free names; ``bindings`` are the names that the host binds, if known completely.
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
        """The survey of a text in Python. A file other than a workflow text has neither mistakes nor names."""
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
        """The parts of a text with their offsets. Raises the errors of reading the whole.

        A text that can be read by itself ends at the end of a form, so the text after it can be read by itself too.
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
        allowance = StepAllowance(self.limits.steps)
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

    def _analyse_part(self, part: _Part, told: _Told, allowance: StepAllowance) -> _Result:
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
