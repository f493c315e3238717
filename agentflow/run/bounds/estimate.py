"""Upper bounds of a program's effects and cost, computed before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from agentflow.core.data.errors import AgentflowError, SexpSyntaxError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Definitions, NameInfo, Names, Template, file_grants, narrowed
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import CAP_SETTINGS, ModelProfile, Usage
from agentflow.core.data.requests import MOST_SUMMARIES
from agentflow.core.data.source import Source, Span, Surface
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.events.facts import Authority, TaskFacts, ToolFacts
from agentflow.core.ports.ports import NameFacts
from agentflow.handler.reserving import default_cap
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.bounds.analysis import Analysis, Unbounded
from agentflow.lang.bounds.cost import WIDTH
from agentflow.lang.bounds.flow import Flows
from agentflow.lang.bounds.inner import PARAMETER, Inner
from agentflow.lang.bounds.interpret import ANYTHING, SETTINGS, AnalysisInputs
from agentflow.lang.bounds.polynomial import UNBOUNDED, ZERO, Bound
from agentflow.lang.bounds.texts import readied
from agentflow.lang.program import as_source
from agentflow.providers.dialects.decoding import MAX_TOOL_CALLS
from agentflow.providers.table import Router
from agentflow.run.bounds.sinks import reach_of

_INNER_LEVELS = 8
"""Maximum depth of inner programs to follow."""


@dataclass(frozen=True)
class NamesAround:
    """The names around an inner program: those of the flow, and the tasks that the programs around it define."""

    names: Names
    templates: Mapping[str, Sequence[Any]]

    def describe(self, name: str) -> NameInfo | None:
        own = self.templates.get(name)
        if not own:
            return self.names.describe(name)
        last = own[-1]
        return NameInfo("task", None, open=True) if isinstance(last, Mapping) else last.info

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """Build the template of a definition from its fields. Raises AgentflowError that says how they are wrong."""
        return self.names.prepare(fields)

    def known_names(self) -> Iterable[str]:
        return [*self.names.known_names(), *self.templates]


@dataclass(frozen=True)
class InnerPrograms:
    """Analyses the programs that a program runs, with the authority of that program.

    ``grants`` are those of the program, ``templates`` the tasks that it and those around it define; ``outer`` are the
    programs being analysed, the outermost first.
    """

    facts: NameFacts
    names: Names
    limits: Limits
    weights: _Weights
    grants: frozenset[str] | None
    allowance: StepAllowance | None
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
        if len(self.outer) >= _INNER_LEVELS:
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


_FILE_TOOLS = ("system:read_files", "system:write_file", "system:list_directory")


def authority_of(
    analysis: Analysis,
    templates: Mapping[str, Sequence[Any]],
    facts: NameFacts,
    grants: frozenset[str] | None,
    defined: Definitions | None,
    models_of: Callable[[TaskTemplate], Iterable[str]],
    *,
    flows: Callable[[], Flows],
    bindings: Mapping[str, Any],
) -> Authority:
    """The reach of a program with this analysis, directly and through its tasks.

    ``templates`` are the tasks that it defines; ``models_of`` returns the models that may answer a task. A call with a
    target from data reaches everything that ``grants`` (None: the host's authority) allow. ``flows`` are the flows of data in
    the text, ``bindings`` its inputs.
    """
    names = {name for kind, name in analysis.reaches if kind == "task"}
    tools = {name for kind, name in analysis.reaches if kind == "tool"}
    if analysis.by_data:
        names |= {*_granted(facts.task_names(), grants), *templates}
        tools |= {*_granted(facts.tool_names(), grants)}
    tasks: dict[str, list[TaskFacts]] = {}
    own: list[ToolFacts] = []
    pending = sorted(names)
    while pending:
        name = pending.pop()
        if name in tasks:
            continue
        registered = facts.task(name, defined, grants)
        defined_here = [facts.own_task(each, grants, defined=defined) for each in templates.get(name, ())]
        tasks[name] = [*defined_here, *([] if registered is None else [registered])]
        for each in tasks[name]:
            pending.extend(each.calls)
            own.extend(each.own)
            offered = set(each.tools).difference([tool.name for tool in each.own])
            asked = {tool for tool in offered if facts.tool(tool) is None}  # tasks, which its model may call
            pending.extend(asked)
            tools |= offered - asked
    models = {
        model
        for several in tasks.values()
        for each in several
        if not each.template.is_function
        for model in models_of(each.template)
    }
    reads = bool(tasks) or any(name in tools for name in _FILE_TOOLS)
    described = [each for name in sorted(tools) if (each := facts.tool(name)) is not None]
    described += sorted([each for each in own if each not in described], key=lambda each: each.name)
    return Authority(
        tasks=tuple(sorted(tasks)),
        tools=tuple(described),
        models=tuple(sorted(name for name in models if name)),
        files=tuple(sorted(each.removeprefix("files:") for each in file_grants(grants))) if reads else (),
        workflows=tuple(sorted(name for kind, name in analysis.reaches if kind == "workflow")),
        sinks=reach_of(flows, described, tasks, bindings, by_data=bool(analysis.by_data), guards=facts.guards()),
        complete=ANYTHING not in analysis.counts and ("solve", "solve") not in analysis.reaches and all(tasks.values()),
    )


def _granted(names: Sequence[str], grants: frozenset[str] | None) -> list[str]:
    return [name for name in names if grants is None or name in grants]


_MODEL, _TOOL, _USD, _INPUT, _OUTPUT = "model", "tool", "usd", "input", "output"
FIGURES = ("model_calls", "tool_calls", "width", "usd", "input_tokens", "output_tokens")
"""The figures of :class:`Bounds`."""
_DEEPEST = 6
"""Maximum depth of tasks in the texts of tasks to follow."""


@frozen
class Bounds:
    """Upper bounds of the work of a program, as polynomials in named sizes (``1 + 2*len(files)``).

    ``model_calls`` and ``tool_calls`` include those of its tasks; ``width`` is the number of calls that run at once.
    ``input_tokens``, ``output_tokens`` and ``usd`` (US dollars) assume that every call has the longest input and answer
    that its model allows. ``calls`` has the calls of each task, tool and other effect, under names such as ``task:review``.
    ``unbounded`` are the parts without a bound, with span and reason; ``by_data`` the spans of calls with a target from data;
    ``authority`` is the program's reach. ``loose`` names tasks that may take far more turns than they need, with advice;
    ``notes`` name the causes of unknown or needlessly large bounds, and rules of a policy that do not apply.
    """

    model_calls: Bound
    tool_calls: Bound
    width: Bound
    usd: Bound
    calls: Mapping[str, Bound]
    input_tokens: Bound = UNBOUNDED
    output_tokens: Bound = UNBOUNDED
    unbounded: Sequence[Unbounded] = ()
    by_data: Sequence[Span] = ()
    notes: Sequence[str] = ()
    loose: Sequence[str] = ()
    authority: Authority = field(default_factory=Authority)

    @property
    def sizes(self) -> frozenset[str]:
        """The names of all sizes that the bounds depend on."""
        all_bounds = [*(getattr(self, name) for name in FIGURES), *self.calls.values()]
        return frozenset[str]().union(*(each.sizes for each in all_bounds))

    def at(self, sizes: Mapping[str, float]) -> dict[str, float | None]:
        """The value of each of :data:`FIGURES` for lists of these ``sizes``: ``{"files": 50}``.

        None for a figure without a bound, or with missing sizes.
        """
        values = named_sizes(sizes)
        return {name: _at(getattr(self, name), values) for name in FIGURES}

    def to_text(self) -> dict[str, str]:
        """The figures that have a bound, as text."""
        return {name: str(bound) for name in FIGURES if (bound := getattr(self, name)) != UNBOUNDED}

    def to_dict(self, sizes: Mapping[str, float] | None = None) -> dict[str, Any]:
        """The bounds as JSON data: each as text, with its value if ``sizes`` has all sizes in it."""
        values = named_sizes(sizes or {})

        def both(bound: Bound) -> dict[str, Any]:
            return {"bound": None if bound == UNBOUNDED else str(bound), "at": _at(bound, values)}

        return {
            **{name: both(getattr(self, name)) for name in FIGURES},
            "calls": {name: both(bound) for name, bound in sorted(self.calls.items())},
            "sizes": sorted(self.sizes),
            "unbounded": [{"span": each.span.to_dict(), "reason": each.reason} for each in self.unbounded],
            "by_data": [each.to_dict() for each in self.by_data],
            "notes": list(self.notes),
            "loose": list(self.loose),
            "authority": self.authority.to_dict(),
        }


def named_sizes(sizes: Mapping[str, float]) -> dict[str, float]:
    """Sizes under the names they have in bounds: ``{"files": 50}`` becomes ``{"len(files)": 50}``."""
    return {name if name.startswith("len(") else f"len({name})": size for name, size in sizes.items()}


def _at(bound: Bound, sizes: Mapping[str, float]) -> float | None:
    return bound.at(sizes) if bound.sizes <= sizes.keys() else None


class ProgramEstimator:
    """Computes the bounds of programs of a flow.

    Parameters: ``facts`` describes the tasks and tools, ``router`` the models and their prices, ``limits`` are those of runs;
    ``looks_up`` says that file lookups ask models, ``fallbacks`` are the models after the flow's own.
    """

    def __init__(
        self,
        facts: NameFacts,
        router: Router,
        limits: Limits,
        *,
        looks_up: bool = False,
        fallbacks: Sequence[str] = (),
    ) -> None:
        self._fallbacks = fallbacks
        self.facts = facts
        self.looks_up = looks_up
        self._router = router
        self._limits = limits

    def bounds(
        self,
        program: str | Source,
        names: Names,
        *,
        bindings: Mapping[str, Any] | None = None,
        sources: Iterable[str] = (),
        allow: Iterable[str] | None = None,
        defined: Definitions | None = None,
        allowance: StepAllowance | None = None,
        limits: Limits | None = None,
    ) -> Bounds:
        """The bounds of a program text. ``bindings`` are the values of its variables, ``sources`` names of variables with
        unknown values, as are those of all unbound names; ``allow`` are the only names that it may call,
        ``defined`` the tasks defined by programs around it, ``allowance`` the resources of macros, ``limits`` those of the
        run (None: the flow's).

        Raises SexpSyntaxError and SexpEvaluationError for a text that cannot be compiled.
        """
        granted = None if allow is None else frozenset(allow)
        variables = {*(bindings or {}), *sources}
        text = readied(
            program, names=names, limits=self._limits, allow=granted, env_names=variables, allowance=allowance
        )
        surface = as_source(program).surface
        weights = _Weights(self, granted, defined, surface, text.templates, limits or self._limits)
        inner = InnerPrograms(self.facts, names, self._limits, weights, granted, allowance, text.templates)
        bindings = bindings or {}
        analysis = text.follow(AnalysisInputs(weights.of, bindings, variables - bindings.keys(), weights.shape, inner))
        authority = authority_of(
            analysis,
            text.templates,
            self.facts,
            granted,
            defined,
            lambda template: map(self._router.full_name, self._models_of(template)),
            flows=text.flows,
            bindings=bindings,
        )
        return _bounds(analysis, weights, authority)

    async def ready(self) -> None:
        """Load the prices of models and the saved workflows. Call it before :meth:`bounds`."""
        await self._router.prices.loaded()
        await self.facts.ready()

    def consumption(
        self, template: TaskTemplate, model_calls: int, limits: Limits, note: Callable[[str], None]
    ) -> dict[str, float]:
        """The most tokens and US dollars that the model calls of a task may take in a run within ``limits``. ``note`` gets a text for
        each unknown price, and one for each answer bounded by the window alone."""
        most: dict[str, float] = {}
        for name in self._models_of(template):
            full, dialect, window, cost = self._route(name)
            profile = ModelProfile(provider="", model=full, dialect=dialect, context_window=window)
            cap: int | None = template.max_output_tokens or default_cap(profile, template.settings, 0)
            if not (_is_capped(template, dialect) or limits.tokens is not None or limits.usd is not None):
                cap = window  # nothing is sent that ends an answer sooner
                note(
                    f"an answer of {full} may fill its window: (max-output-tokens n) in a task, or a limit of tokens or money, bounds it"
                )
            most = _greater(most, {_INPUT: window} if window is not None else {_UNCOUNTED: 1})
            most = _greater(most, {_OUTPUT: cap} if cap is not None else {_UNENDED: 1})
            if cost(Usage(1_000_000, 1_000_000)) == 0:
                continue
            tokens, cap = window or 0, cap or 0
            costs = [cost(Usage(tokens, cap)), cost(Usage(tokens, cap, cache_write_tokens=tokens))]
            prices = [each for each in costs if each is not None]
            if window is None or len(prices) < len(costs):
                note(
                    f"no price: the context window or the price of {full} is unknown"
                    if full
                    else "no price: no model is configured"
                )
                most[_UNPRICED] = 1
                continue
            most = _greater(most, {_USD: max(prices)})
        return {key: each * model_calls for key, each in most.items() if each}

    def _models_of(self, template: TaskTemplate) -> Sequence[str | None]:
        """The models that may answer a task; None for the flow's own."""
        return (template.model, *template.fallbacks, *(self._fallbacks if template.model is None else ()))

    def _route(self, name: str | None) -> tuple[str, str, int | None, Callable[[Usage], float | None]]:
        """A model's full name, its dialect, its context window in tokens, and its prices. Needs no API key."""
        full = self._router.full_name(name)
        if self._router.has_own_adapter:
            adapter, model = self._router.resolve(name)
            profile = adapter.profile(model)
            return (
                full or model,
                profile.dialect,
                profile.context_window,
                partial(self._router.prices.cost_of, adapter, model),
            )
        dialect, _, model = full.partition(":")
        prices = self._router.prices
        return full, dialect, prices.context_window(dialect, model), partial(prices.cost, dialect, model)


def _is_capped(template: TaskTemplate, dialect: str) -> bool:
    """Whether requests to the server state the maximum answer length of a task, in a run with unlimited tokens."""
    own = template.max_output_tokens is not None or any(name in template.settings for name in CAP_SETTINGS)
    return own or dialect in _ALWAYS_CAPPED


_ALWAYS_CAPPED = frozenset({"anthropic", "local", "offline", ""})
"""Dialects with requests that always state a maximum length of the answer, the stand-in without a model, and none."""
_FEWER: Mapping[Surface, str] = MappingProxyType(
    {
        "sexp": "(tools) offers none, (max-turns 4) fewer turns",
        "python": "@task(tools=[]) offers none, @task(max_turns=4) fewer turns",
    }
)
"""Advice for a task that may take far more turns than it needs."""


class _Weights:
    """The weights of the effects of one program."""

    def __init__(
        self,
        estimator: ProgramEstimator,
        grants: frozenset[str] | None,
        defined: Definitions | None,
        surface: Surface,
        templates: Mapping[str, Sequence[Any]],
        limits: Limits,
    ) -> None:
        self._e = estimator
        self._templates = templates
        self._limits = limits
        self._seen: dict[str, Mapping[str, float]] = {}
        self._surface: Surface = surface
        self._facts = estimator.facts
        self._defined = defined
        self._grants = grants
        self.notes: dict[str, None] = {}
        self.loose: dict[str, None] = {}

    def of(self, kind: str, name: str, own: Sequence[Any]) -> Mapping[str, float] | str:
        """The weights of an effect; a text says why it has no bound."""
        if kind == "tool":
            return self._tool(name)
        if kind == "context":
            return "file lookups ask models, as often as the files need" if self._e.looks_up else {}
        if kind == "task":
            return self._tasks(name, own)
        if kind == "any":
            return self._any()
        if kind in SETTINGS:
            return self._setting(kind, name, own)
        if kind == "solve":
            self.notes["the other effects of a program of 'solve' are unknown before it is written"] = None
            return {_MODEL: 1, _UNTOLD: 1}
        return {}

    def within(self, grants: frozenset[str] | None, templates: Mapping[str, Sequence[Any]]) -> _Weights:
        """The weights in an inner program with fewer grants, which finds ``templates``; its notes are collected here."""
        inner = _Weights(self._e, grants, self._defined, self._surface, templates, self._limits)
        inner.notes, inner.loose = self.notes, self.loose
        return inner

    def shape(self, name: str, own: Sequence[Any]) -> Mapping[str, Any] | None:
        """The JSON Schema of the answers of a task; None if it has several or none."""
        tasks = self._called_by(name, own)
        return tasks[0].returns if len(tasks) == 1 and tasks[0].checked else None

    def _called_by(self, name: str, own: Sequence[Any]) -> list[TaskFacts]:
        """The tasks that a name may mean: those that the program defines, and the one defined before it."""
        grants, turns = self._grants, self._limits.turns
        outer = self._facts.task(name, self._defined, grants, turns=turns)
        tasks = [self._facts.own_task(each, grants, turns=turns, defined=self._defined) for each in own]
        return tasks if outer is None else [*tasks, outer]

    def _tool(self, name: str) -> Mapping[str, float] | str:
        facts = self._facts.tool(name)
        if facts is not None and facts.calls_models:
            return f"'{name}' runs tasks, or asks the model, as often as it likes"
        return {_TOOL: 1}

    def _tasks(self, name: str, own: Sequence[Any], depth: int = 0) -> Mapping[str, float] | str:
        """The weights of one call of the most expensive of the tasks that a name may mean."""
        most: Mapping[str, float] | None = None
        for task in self._called_by(name, own):
            weights = self._task(task, depth)
            if isinstance(weights, str):
                return weights
            most = weights if most is None else _greater(most, weights)
        return f"nothing is known of task '{name}'" if most is None else most

    def _task(self, task: TaskFacts, depth: int) -> Mapping[str, float] | str:
        template = task.template
        if depth > _DEEPEST:
            return f"the texts of task '{task.name}' call tasks that call tasks, without end"
        total = self._called(task, depth)
        if isinstance(total, str) or template.is_function:
            return total
        if task.model_calls is None:
            return task.reason
        if task.offered_all and template.max_turns is None:
            self.loose[
                f"task '{task.name}' names no tools: it is offered all {len(task.tools)} and may take {task.model_calls} "
                f"turns; {_FEWER[self._surface]}"
            ] = None
        weights = {
            _MODEL: float(task.model_calls),
            **({_TOOL: float(task.model_calls * MAX_TOOL_CALLS), WIDTH: float(MAX_TOOL_CALLS)} if task.tools else {}),
        }
        taken = self._e.consumption(template, task.model_calls, self._limits, lambda note: self.notes.setdefault(note))
        return _sum(_sum(total, weights), taken)

    def _called(self, task: TaskFacts, depth: int) -> Mapping[str, float] | str:
        """The weights of the tasks that a task's texts call, which may all be at work at once."""
        total: dict[str, float] = {}
        wide = 0.0
        for name, count in Counter(task.calls).items():
            weights = self._seen.get(name)
            if weights is None:
                own = self._templates.get(name, ())
                if not self._called_by(name, own):
                    continue  # such a call fails
                called = self._tasks(name, own, depth + 1)
                if isinstance(called, str):
                    return called
                weights = self._seen[name] = {**called, f"task:{name}": called.get(f"task:{name}", 0) + 1}
            total = _sum(total, weights, count)
            wide += count * weights.get(WIDTH, 1)
        return total | {WIDTH: wide} if wide > 1 else total

    def _setting(self, setting: str, name: str, own: Sequence[Any]) -> Mapping[str, float] | str:
        """The additional weight of a task's call that has its own setting."""
        tasks = self._called_by(name, own)
        if not name:
            tasks = [task for each in self._facts.task_names() for task in self._called_by(each, ())]
        most: Mapping[str, float] = {}
        for task in tasks:
            template = task.template
            if setting in template.params or template.is_function:
                continue
            if setting == "context":
                if self._e.looks_up:
                    return f"this call of '{task.name}' looks up files, which asks models as often as the files need"
                continue
            taken = self._e.consumption(
                template, MOST_SUMMARIES, self._limits, lambda note: self.notes.setdefault(note)
            )
            most = _greater(most, {_MODEL: float(MOST_SUMMARIES), **taken})
        return most

    def _any(self) -> Mapping[str, float] | str:
        most: Mapping[str, float] = {_TOOL: 1}
        for name in (*self._facts.task_names(), *self._facts.tool_names()):
            if self._grants is not None and name not in self._grants:
                continue
            task = self._facts.task(name, self._defined, self._grants, turns=self._limits.turns)
            weights = self._tool(name) if task is None else self._task(task, 0)
            if isinstance(weights, str):
                return f"the target of this call is data, and {weights}"
            most = _greater(most, weights)
        return most


_UNPRICED, _UNCOUNTED, _UNENDED, _UNTOLD = "unpriced", "uncounted", "unended", "untold"
"""Counted instead of unknown dollars, of unknown input tokens, of unknown output tokens, and of everything unknown but model calls."""


def _sum(a: Mapping[str, float], b: Mapping[str, float], count: int = 1) -> dict[str, float]:
    """The weights of ``a`` and then, ``count`` times, those of ``b``."""
    total = {key: a.get(key, 0) + b.get(key, 0) * count for key in {**a, **b}}
    return total | {WIDTH: max(a.get(WIDTH, 0), b.get(WIDTH, 0))} if WIDTH in total else total


def _greater(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {key: max(a.get(key, 0), b.get(key, 0)) for key in {**a, **b}}


def _bounds(analysis: Analysis, weights: _Weights, authority: Authority) -> Bounds:
    def unless(unknown: str, key: str) -> Bound:
        return analysis.bound(key) if analysis.bound(unknown) == analysis.bound(_UNTOLD) == ZERO else UNBOUNDED

    calls = {
        key: bound for key, bound in analysis.counts.items() if ":" in key and not key.startswith(("any:", "solve:"))
    }
    return Bounds(
        model_calls=analysis.bound(_MODEL),
        tool_calls=unless(_UNTOLD, _TOOL),
        width=unless(_UNTOLD, WIDTH),
        usd=unless(_UNPRICED, _USD),
        calls=calls,
        input_tokens=unless(_UNCOUNTED, _INPUT),
        output_tokens=unless(_UNENDED, _OUTPUT),
        unbounded=tuple(analysis.unbounded),
        by_data=tuple(analysis.by_data),
        notes=tuple(weights.notes),
        loose=tuple(weights.loose),
        authority=authority,
    )


def over_budget(bounds: Bounds, calls: int | None, usd: float | None, are: str) -> AgentflowError | None:
    """The error for a program that may make more than ``calls`` model calls or cost more than ``usd`` dollars, which ``are left``."""
    for what, bound, left in (("make {} model calls", bounds.model_calls, calls), ("cost ${}", bounds.usd, usd)):
        most = bound.number
        if left is not None and most is not None and most > left:
            return AgentflowError(
                f"this program may {what.format(f'{most:,.6g}')}, and {f'{left:,.6g}'} {are}",
                code="bounds/over-budget",
                hint="work on fewer elements, repeat less, or give tasks no tools: (tools)",
            )
    return None
