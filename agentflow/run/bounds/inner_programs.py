"""The bounds of programs that a program runs: saved workflows, and constant texts of ``eval-program``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agentflow.core.data.errors import AgentflowError, SexpSyntaxError
from agentflow.core.data.limits import Limits
from agentflow.core.data.names import NameInfo, Names, Template, narrowed
from agentflow.core.data.source import Source, Surface
from agentflow.core.ports.ports import NameFacts
from agentflow.lang.allowance import Allowance
from agentflow.lang.bounds.inner import PARAMETER, Inner
from agentflow.lang.bounds.interpret import AnalysisInputs
from agentflow.lang.bounds.texts import readied

_DEEPEST = 8
"""Depth to which inner programs are followed."""


class Weighing(Protocol):
    """The weights of the effects of a program."""

    @property
    def of(self) -> Callable[[str, str, Sequence[Any]], Mapping[str, float] | str]: ...
    @property
    def shape(self) -> Callable[[str, Sequence[Any]], Mapping[str, Any] | None]: ...
    def within(self, grants: frozenset[str] | None, templates: Mapping[str, Sequence[Any]]) -> Weighing:
        """The weights in an inner program with fewer grants, which finds ``templates`` by name."""
        ...


@dataclass(frozen=True)
class NamesAround:
    """The names around an inner program: those of the flow, and the tasks that the programs around it define."""

    names: Names
    templates: Mapping[str, Sequence[Any]]

    def describe(self, name: str) -> NameInfo | None:
        """The description of ``name``, or None if there is no such task or tool."""
        own = self.templates.get(name)
        if not own:
            return self.names.describe(name)
        last = own[-1]
        return NameInfo("task", None, open=True) if isinstance(last, Mapping) else last.info

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """Build the template of a definition from its fields. Raises AgentflowError that says what is wrong with them."""
        return self.names.prepare(fields)

    def known_names(self) -> Iterable[str]:
        """The names of all tasks and tools, for suggestions."""
        return [*self.names.known_names(), *self.templates]


@dataclass(frozen=True)
class InnerPrograms:
    """Analyses the programs that a program runs, with the authority of that program.

    ``grants`` are those of the program, ``templates`` the tasks that it and those around it define; ``outer`` are the
    programs that are being analysed, the outermost first.
    """

    facts: NameFacts
    names: Names
    limits: Limits
    weights: Weighing
    grants: frozenset[str] | None
    allowance: Allowance | None
    templates: Mapping[str, Sequence[Any]]
    outer: tuple[str, ...] = ()
    cache: dict[tuple[Any, ...], Inner | str] = field(default_factory=dict[tuple[Any, ...], "Inner | str"])

    def workflow(self, name: str, visits: int) -> Inner | str:
        """The analysis of the saved workflow called ``name`` in at most ``visits`` visits; a text says why there is none."""
        saved = self.facts.workflow(name)
        if saved is None:
            return f"there is no workflow '{name}' yet"
        if f"workflow {name}" in self.outer:
            return f"workflow '{name}' calls itself"
        program = Source.unnamed(saved.program, saved.surface)
        return self._analysed(f"workflow {name}", program, saved.allow, saved.parameters, visits)

    def text(
        self,
        text: str,
        allow: frozenset[str],
        parameters: frozenset[str],
        visits: int,
        surface: Surface = "sexp",
    ) -> Inner | str:
        """The analysis of a program text that may only call ``allow``, with ``parameters`` bound; a text says why there is none."""
        return self._analysed(text, Source.unnamed(text, surface), allow, parameters, visits)

    def _analysed(
        self, key: str, program: Source, allow: frozenset[str] | None, parameters: frozenset[str], visits: int
    ) -> Inner | str:
        if len(self.outer) >= _DEEPEST:
            return "programs run programs that run programs, too many levels deep"
        whole = key, program.surface, allow, parameters
        seen = self.cache.get(whole)
        if seen is None:
            seen = self.cache[whole] = self._worked_out(key, program, narrowed(self.grants, allow), parameters, visits)
            return seen
        return seen if isinstance(seen, str) else replace(seen, visits=0)

    def _worked_out(
        self, key: str, program: Source, grants: frozenset[str] | None, parameters: frozenset[str], visits: int
    ) -> Inner | str:
        around = NamesAround(self.names, self.templates)
        try:
            text = readied(
                program,
                names=around,
                limits=self.limits,
                allow=grants,
                env_names=parameters,
                allowance=self.allowance,
            )
        except SexpSyntaxError:
            return Inner({})  # it is refused before its first effect
        except AgentflowError as error:
            return f"the program that is run here cannot be compiled: {error.message}"
        templates = {name: [*self.templates.get(name, ()), *own] for name, own in text.templates.items()}
        around_it = {**self.templates, **templates}
        weights = self.weights.within(grants, around_it)
        inner = replace(
            self,
            weights=weights,
            grants=grants,
            templates=around_it,
            outer=(*self.outer, key),
            cache={},
        )
        sources = {name: f"{PARAMETER}{name}" for name in parameters}
        analysis = text.follow(
            AnalysisInputs(weights.of, {}, sources, weights.shape, inner, around=self.templates, visits=visits)
        )
        reasons = [f"line {each.span.line}: {each.reason}" for each in analysis.unbounded]
        return Inner(
            analysis.counts, analysis.reaches, reasons, bool(analysis.by_data), analysis.visits, analysis.changes
        )
