"""The sources that may reach the guarded arguments of a program's calls, from its text and the facts about names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, cast

from agentflow.core.call.provenance import USER, Labelled, declared_sources
from agentflow.core.call.reading import ASKED, is_restriction
from agentflow.core.data.labels import UNKNOWN, Label
from agentflow.core.events.facts import GuardedArgument, TaskFacts, ToolFacts
from agentflow.lang.bounds.flow import AMBIENT, ANY_ARGUMENT, ANY_RESULT, RAISED, UNSEEN, Done, Flows, Point, variable
from agentflow.lang.closure import Closure
from agentflow.run.strand.procedure_calls import name_of_function, parameters_of

_SESSION: Point = "session"
_STEPS: Point = "steps"
_EVERYTHING: Point = "everything"
_FILES = "file:*"
_WITH_FILES = frozenset({"context", "file_paths", "files", "*"})
"""Arguments that pass files to a task."""
_PRIMES = "system:prime_handler_data_context"
_FILE_TOOLS = frozenset({"system:read_files", "system:list_directory"})
_MOST = 10_000
"""Parts of a value looked at."""
_ANYBODY = ("anyone", "*")


Guards: TypeAlias = "Callable[[str, Iterable[str]], Mapping[str, Sequence[str]]]"
"""The guarded arguments of a callable other than a tool, with their allowed sources."""


def reach_of(
    flows: Callable[[], Flows],
    tools: Sequence[ToolFacts],
    tasks: Mapping[str, Sequence[TaskFacts]],
    bindings: Mapping[str, Any],
    *,
    by_data: bool,
    guards: Guards | None = None,
) -> tuple[GuardedArgument, ...]:
    """Each sink of ``tools``, which a program may call directly or through its ``tasks``, with the sources that may reach
    it.

    ``bindings`` are its inputs; ``by_data``: data may choose the callee. ``guards`` are those of everything except tools:
    tasks, saved workflows, functions of the host, questions to memory, to people and to models that write programs, and
    messages; None if nothing guards these.
    """
    sinks = [
        (tool.name, argument, declared_sources(who)) for tool in tools for argument, who in sorted(tool.sinks.items())
    ]
    sinks = [each for each in sinks if not set(_ANYBODY) & set(each[2])]
    if not sinks and guards is None:
        return ()
    text = flows()
    held = held_by(bindings)
    if guards is not None:
        for name, arguments in sorted(_others(text, tasks, held).items()):
            for argument, allow in guards(name, sorted(arguments)).items():
                sinks += [] if set(_ANYBODY) & set(allow) else [(name, argument, list(allow))]
    if not sinks:
        return ()
    graph = _Graph(text, tools, tasks, held)
    reached = graph.reached(by_data=by_data)
    return tuple(
        [_reach(name, argument, allow, graph.into(reached, name, argument)) for name, argument, allow in sinks]
    )


def _others(flows: Flows, tasks: Mapping[str, Sequence[TaskFacts]], held: Held) -> dict[str, set[str]]:
    """The callables of a program other than tools, with their arguments by name."""
    arguments: dict[str, set[str]] = {}
    for name, facts in tasks.items():
        arguments[name] = {each for fact in facts for each in fact.template.params}
    for done in flows.effects:
        if done.kind != "tool":
            names = {argument for argument, _ in done.arguments if argument != "*"}
            arguments.setdefault(_policy_name(done), set()).update(names)
    for name in ASKED:
        if name in arguments or _is_unseen(flows):
            arguments.setdefault(name, set()).update(ASKED[name])
    for _, function in held.functions:
        parameters, rest = parameters_of(function)
        names = {*parameters, *([rest] if rest is not None else [])}
        arguments.setdefault(name_of_function(function), set()).update(names or {"*"})
    return arguments


def _is_unseen(flows: Flows) -> bool:
    """Whether there is code that the text does not show."""
    return any(UNSEEN in each for each in flows.edges.values())


def _policy_name(done: Done) -> str:
    return "get_context" if done.kind == "context" else done.name


def _reach(name: str, argument: str, allow: Sequence[str], sources: Iterable[str]) -> GuardedArgument:
    refused = [each for each in sources if not any(fnmatchcase(each, pattern) for pattern in allow)]
    return GuardedArgument(name, argument, tuple(allow), tuple(sorted(sources)), tuple(sorted(refused)))


class _Graph:
    """The flows of a text, with the effects of its calls: tasks read, call tools and remember; results of tools have their
    source."""

    def __init__(
        self, flows: Flows, tools: Sequence[ToolFacts], tasks: Mapping[str, Sequence[TaskFacts]], held: Held
    ) -> None:
        self._flows = flows
        self._held = held
        self._tools = {each.name: each for each in tools}
        self._origins: dict[Point, set[str]] = {}
        flow = flows.flow
        for name, facts in tasks.items():
            for each in facts:
                self._task(name, each)
        for done in flows.effects:
            for argument, point in done.arguments:
                flow(point, ("sink", _policy_name(done), argument))
                if done.kind not in ("tool", "asked"):
                    flow(point, (done.kind, done.name))
            if done.kind == "tool":
                self._comes(done.result, self._source(done.name))
                flow(done.result, _STEPS)
            elif done.kind == "task":
                flow(("task", done.name), done.result)
                self._asked(done)
            elif done.kind == "context":
                self._comes(done.result, _FILES)
            elif done.kind != "asked":
                flow((done.kind, done.name), UNSEEN)
                flow(UNSEEN, done.result)
        for variable_name, function in held.functions:
            self._function(variable_name, function)

    def _function(self, held_by: str | None, function: Callable[..., Any]) -> None:
        """A function of the host, that a variable holds or something in it: called by the variable's name, or from elsewhere with anything."""
        name = name_of_function(function)
        parameters, rest = parameters_of(function)
        if held_by is None or held_by in self._flows.given_away:
            self._flows.flow(ANY_ARGUMENT, ("sink", name, "*"))
        for arguments, spread in self._flows.calls.get(held_by or "", ()):
            for at, point in enumerate(arguments):
                into = parameters[at] if at < len(parameters) else rest or "*"
                self._flows.flow(point, ("sink", name, "*" if spread else into))

    def _source(self, tool: str) -> str:
        facts = self._tools.get(tool)
        return _FILES if tool in _FILE_TOOLS else (facts.source if facts is not None else "") or f"tool:{tool}"

    def _comes(self, point: Point, source: str) -> None:
        if source != USER:
            self._origins.setdefault(point, set()).add(source)

    def _task(self, name: str, facts: TaskFacts) -> None:
        flow, task, template = self._flows.flow, ("task", name), facts.template
        for each in facts.calls:
            flow(task, ("task", each))
            flow(task, ("sink", each, "*"))
            flow(("task", each), task)
        own = {each.name: each.source for each in facts.own}
        for each in facts.tools:
            self._comes(task, own.get(each) or self._source(each))
            flow(task, ("sink", each, "*"))
        settings = template.context_management
        looks_up = settings.fresh_context == "enabled" or template.subtype == "subtask"
        if template.file_paths or template.file_paths_source or looks_up or _PRIMES in self._tools:
            self._comes(task, _FILES)
        for each in template.provider_tools:
            self._comes(task, f"tool:{each.get('type', '')}")
        for each in template.sources:
            self._comes(task, each)
        if facts.history:
            flow(task, _SESSION)
            flow(_SESSION, task)
        flow(task, _STEPS)
        if settings.accumulate_data:
            flow(_STEPS, task)
        if template.decompose:
            flow(task, UNSEEN)
            flow(UNSEEN, task)

    def _asked(self, done: Done) -> None:
        """Inputs of a task's call beyond its template: files, earlier steps, and the session."""
        flow, task = self._flows.flow, ("task", done.name)
        names = {name for name, _ in done.arguments}
        if names & _WITH_FILES:
            self._comes(task, _FILES)
        if names & {"context", "*"}:
            flow(_STEPS, task)
        if names & {"history_config", "*"}:
            flow(task, _SESSION)
            flow(_SESSION, task)

    def reached(self, *, by_data: bool) -> dict[Point, set[str]]:
        """The sources that get to each point."""
        for name, sources in self._held.sources.items():
            for source in sources:
                self._comes(variable(name), source)
        every = {self._source(each) for each in self._tools}.union(*self._origins.values())
        self._origins[_EVERYTHING] = every - {USER}
        flow = self._flows.flow
        flow(_EVERYTHING, RAISED)
        if by_data:
            flow(_EVERYTHING, ANY_RESULT)
            flow(ANY_ARGUMENT, AMBIENT)
        flow(UNSEEN, AMBIENT)
        if _is_unseen(self._flows):
            flow(_EVERYTHING, UNSEEN)
        return self._flows.reached(self._origins)

    def into(self, reached: Mapping[Point, set[str]], tool: str, argument: str) -> frozenset[str]:
        """The sources that may reach an argument."""
        points: list[Point] = [AMBIENT, ("sink", tool, argument), ("sink", tool, "*")]
        if argument == "*":
            points += [each for each in reached if isinstance(each, tuple) and each[:2] == ("sink", tool)]
        return frozenset[str]().union(*[reached.get(each, set()) for each in points])


@dataclass(slots=True)
class Held:
    """The contents of bindings: for each the sources of labelled values in it, and the host functions with the name each is
    bound to (None: it is inside a value)."""

    sources: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    functions: list[tuple[str | None, Callable[..., Any]]] = field(
        default_factory=list["tuple[str | None, Callable[..., Any]]"]
    )


def held_by(bindings: Mapping[str, Any]) -> Held:
    """The contents of bindings, incomplete for a large one."""
    held = Held()
    for name, value in bindings.items():
        held.sources[name] = sources = set[str]()
        seen: set[int] = set()
        pending = [value]
        while pending:
            each = pending.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            if type(each) in (Label, Labelled):
                sources.update(source for source in each.sources if not is_restriction(source))
                pending.append(each.value)
            elif type(each) in (list, dict):
                parts: list[Any] = list(cast("dict[Any, Any]", each).values() if type(each) is dict else each)
                if len(seen) + len(parts) > _MOST:
                    sources.update(UNKNOWN)
                    break
                pending += parts
            elif callable(each) and type(each) is not Closure:
                held.functions.append((name if each is value else None, each))
    return held
