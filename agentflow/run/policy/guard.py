"""The policy of a run before each effect: which effects are allowed, and a log of their flows."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from dataclasses import replace
from fnmatch import fnmatchcase
from os.path import join, realpath
from pathlib import Path
from typing import Any, TypeAlias, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.provenance import USER, Denial, Provenance, Sink
from agentflow.core.call.reading import ASKED
from agentflow.core.data.errors import ConfigurationError, SexpEvaluationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Definitions
from agentflow.core.data.labels import NO_SOURCES, Following, Sources, joined
from agentflow.core.data.result_notes import Notes
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.data.values import to_json
from agentflow.core.events.events import PolicyDenied
from agentflow.core.ports.ports import TemplatePort, Tool, ToolPort, WorkflowPort
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.kernel.container_labels import ContainerLabels
from agentflow.lang.program import Program
from agentflow.lib.file_writer import make_private_directory, open_private, state_path
from agentflow.lib.schema.json_schema import Schema
from agentflow.lib.schema.schema_capacity import canonical, capacity
from agentflow.lib.text.suggest import did_you_mean, suggest
from agentflow.run.bounds.sinks import held_by
from agentflow.run.strand.procedure_calls import name_of_function, parameters_of


class WrittenFiles:
    """The sources of files by their real paths, in the file ``path``; its last line about a file counts.

    It is read once, when it is first asked for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Sources] | None = None

    def sources_of(self, real: str) -> Sources:
        """The sources of a file's content, other than the file itself. Blocking for some milliseconds, once."""
        return self._read().get(real, NO_SOURCES)

    @asynccontextmanager
    async def writing(self, real: str, sources: Sources) -> AsyncGenerator[None]:
        """A block that writes a file: when it ends the file has ``sources``, until then its earlier ones too.

        A block that raises leaves the file unchanged. Raises OSError, before anything is written, if the sources cannot be
        stored.
        """
        before = self.sources_of(real)
        if before == sources == NO_SOURCES:
            yield
            return
        await self._put(real, joined(before, sources))
        try:
            yield
        except Exception:  # of any kind, raised again: a failed block wrote nothing. A cancelled one may have.
            await self._put(real, before)
            raise
        await self._put(real, sources)

    async def _put(self, real: str, sources: Sources) -> None:
        stored = self._read()
        if stored.get(real, NO_SOURCES) == sources:
            return
        await asyncio.to_thread(self._append, json.dumps([real, sorted(sources)]) + "\n")
        stored[real] = sources

    def _append(self, line: str) -> None:
        make_private_directory(self._path.parent)
        file = open_private(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def _read(self) -> dict[str, Sources]:
        if self._known is None:
            self._known = {}
            try:
                lines = self._path.read_bytes().splitlines()
            except FileNotFoundError:
                lines = []
            for line in lines:
                read: Any = json.loads(line)
                self._known[read[0]] = frozenset(cast("list[str]", read[1]))
        return self._known


_NOTED = 10_000
"""The maximum number of latest effects with a stored flow, for explanations."""
_TRAIL = 5


@frozen
class EffectFlow:
    """A completed effect: the sources of its arguments by name, of the whole effect, and of its result."""

    name: str
    labels: Mapping[str, Sources]
    around: Sources
    given: Sources
    span: Span | None

    def takes(self, source: str) -> str | None:
        """The argument that carried a source to the effect; "" if the whole effect depends on it, None if it did not reach
        it."""
        for argument, sources in self.labels.items():
            if source in sources:
                return argument
        return "" if source in self.around else None


_Noted: TypeAlias = "tuple[str, Mapping[str, Sources], Sources, Sources, Span | None]"
"""The fields of an :class:`EffectFlow`, which is only built for an explanation."""


class RunGuard:
    """A :class:`~agentflow.core.call.reading.Guard`: the policy in force in one run, and the flows of its effects.

    ``tools`` and ``tasks`` know the flow's, paths are relative to ``roots``, ``written`` knows the sources of files that
    runs wrote, ``containers`` those of the host's containers. ``denials`` are the denials so far, or with ``explain`` those that would have happened; ``told`` the
    unmatched names in the policy that were already reported.
    """

    def __init__(
        self,
        policy: Provenance,
        tools: ToolPort,
        tasks: TemplatePort,
        roots: Sequence[str] = (),
        written: WrittenFiles | None = None,
        containers: ContainerLabels | None = None,
    ) -> None:
        self.policy = policy
        self.containers = containers
        self._written = written
        self._start = roots[0] if roots else "."
        self._roots = [f"{realpath(root).rstrip('/')}/" for root in roots]
        self._tools = tools
        self._tasks = tasks
        self.denials: list[Denial] = []
        self.told: set[str] = set()
        self._sources: dict[str, tuple[Tool | None, Sources]] = {}
        self._flows: deque[_Noted] = deque(maxlen=_NOTED)
        self.in_arm = False

    def for_arm(self) -> RunGuard:
        if self.in_arm:
            return self
        guard = copy(self)  # all that changes is shared
        guard.in_arm = True
        return guard

    @property
    def following(self) -> Following:
        return self.policy.following

    @property
    def explains(self) -> bool:
        return self.policy.explain

    def judge(
        self,
        name: str,
        labels: Mapping[str, Sources],
        around: Sources,
        span: Span | None,
        call: object,
        *,
        tool: bool,
        arguments: Mapping[str, Any],
    ) -> SexpEvaluationError | None:
        if not around and not any(labels.values()):
            return None
        registered = self._tools.find(name, _as_call(call)) if tool else None
        declared = None if registered is None else registered.sinks
        first: SexpEvaluationError | None = None
        for argument, own in (labels or {"*": NO_SOURCES}).items():
            sources = joined(own, around)
            refused = self.policy.refused(name, argument, sources, declared)
            hidden = self.policy.hidden(name, argument, sources, arguments, tool=registered is not None)
            denials = [Denial(name, argument, sources, refused)] if refused else []
            if hidden:
                readers = tuple(dict.fromkeys([each for those in hidden.values() for each in those]))
                denials.append(Denial(name, argument, sources, frozenset(hidden), readers))
            for denial in denials:
                error = self._denied(denial, span, call)
                first = first or error
        return None if self.policy.explain else first

    def _denied(self, denial: Denial, span: Span | None, call: object) -> SexpEvaluationError:
        self.denials.append(denial)
        error = self._error(denial, span)
        here = _as_call(call)
        if here is not None:
            self._tell(denial, error, span, here)
        return error

    def small(
        self, task: str, defined: Definitions | None, value: object, sources: Sources
    ) -> tuple[TaskResult, Sources] | None:
        most = self.policy.most_values
        compiled = self._tasks.find_compiled(task, defined) if most and isinstance(value, TaskResult) else None
        if compiled is None or compiled.template.is_function or not isinstance(value, TaskResult):
            return None
        number = capacity(compiled.returns)
        if (
            number is None
            or number > most
            or value.status != "COMPLETE"
            or not _fits(compiled.returns, value.parsed_content)
        ):
            return None
        data = canonical(value.parsed_content)
        notes = Notes(template_used=value.notes.template_used)
        bare = replace(value, content=to_json(data), parsed_content=data, criteria=None, notes=notes)
        return bare, self.policy.restrictions(sources)

    def _tell(self, denial: Denial, error: SexpEvaluationError, span: Span | None, call: CallContext) -> None:
        if not call.run.watched:
            return
        here = call.at(call.path)
        here.span = span or call.span
        if self.policy.explain:
            here.warn(error.code, f"would be denied: {error.message}", **error.details)
            return
        sources, refused = tuple(sorted(denial.sources)), tuple(sorted(denial.refused))
        name, argument, message = denial.name, denial.argument, error.message
        here.emit(PolicyDenied, name=name, argument=argument, sources=sources, refused=refused, message=message)

    def source_of(self, tool: str, call: object = None) -> Sources:
        registered = self._tools.find(tool, _as_call(call))
        seen = self._sources.get(tool)
        if seen is None or seen[0] is not registered:
            seen = self._sources[tool] = (registered, self._looked_up(tool, registered))
        return seen[1]

    def _looked_up(self, tool: str, registered: Tool | None) -> Sources:
        if registered is not None and registered.kind == "subtask":
            return NO_SOURCES  # a task adds nothing to the sources it reads
        source = self.policy.source_of(tool, (registered.source if registered is not None else None) or "")
        return NO_SOURCES if source == USER else frozenset((source,))

    def of_files(self, paths: Iterable[str]) -> Sources:
        sources: Sources = NO_SOURCES
        for path in paths:
            real = self._real(path)
            root = next((root for root in self._roots if real.startswith(root)), "")
            sources = joined(sources, frozenset((f"file:{real[len(root) :]}",)))
            if self._written is not None:
                sources = joined(sources, self._written.sources_of(real))
        return sources

    def _real(self, path: str) -> str:
        return realpath(join(self._start, path))

    def writing(self, path: str, sources: Sources) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._written is None else self._written.writing(self._real(path), sources)

    def written_from(self, task: str, defined: Definitions | None) -> Sources:
        compiled = self._tasks.find_compiled(task, defined)
        return NO_SOURCES if compiled is None else frozenset(compiled.template.sources)

    def note(
        self, name: str, labels: Mapping[str, Sources], around: Sources, value: Sources, span: Span | None
    ) -> None:
        if value:
            self._flows.append((name, labels, around, value, span))

    def _error(self, denial: Denial, span: Span | None) -> SexpEvaluationError:
        shown = ", ".join(sorted(denial.refused))
        what = f"'{denial.argument}' of {denial.name}" if denial.argument != "*" else denial.name
        trail = self._trail(denial, span)
        words = " -> ".join(trail)
        hint = 'take it from the user; or (endorse value "reason"), if this program was granted it'
        problem = f"{what} depends on {shown}, which may not reach it"
        if denial.readers:
            hint = 'leave it out; or (endorse value "reason"), if this program was granted it'
            problem = f"{what} depends on {shown}, which {' and '.join(map(repr, denial.readers))} may not see"
        return SexpEvaluationError(
            problem + (f"; came by: {words}" if len(trail) > 1 else ""),
            code="provenance/readers" if denial.readers else "provenance/denied",
            span=span,
            hint=hint,
            details={
                "name": denial.name,
                "argument": denial.argument,
                "sources": sorted(denial.sources),
                "refused": sorted(denial.refused),
                "trail": trail,
                **({"readers": list(denial.readers)} if denial.readers else {}),
            },
        )

    def _trail(self, denial: Denial, span: Span | None) -> list[str]:
        """The effects through which the first refused source reached the argument, the first ones and the last."""
        source = min(denial.refused)
        steps: list[str] = []
        for noted in self._flows:
            flow = EffectFlow(*noted)
            if source not in flow.given:
                continue
            argument = flow.takes(source)
            if not steps or argument is not None:
                steps.append(_place(flow.name if not argument else f"{argument} of {flow.name}", flow.span))
        if len(steps) > _TRAIL:
            steps = [*steps[:2], "...", *steps[3 - _TRAIL :]]
        what = denial.name if denial.argument == "*" else f"{denial.argument} of {denial.name}"
        return [*steps, _place(what, span)]


def _fits(schema: Mapping[str, Any] | None, data: object) -> bool:
    return schema is not None and not Schema(schema).check(data)


def _place(what: str, span: Span | None) -> str:
    return what if span is None else f"{what} {span.line}:{span.column}"


_log = logging.getLogger(__name__)
_CHOICE = frozenset({"patternProperties", "anyOf", "oneOf", "allOf", "$ref", "if"})
"""Keywords of a schema that allow more arguments than its properties."""
_OF_TASKS = ("context", "files", "file_paths", "history_config")
"""Arguments that any task accepts."""
_UNNAMED = frozenset({*ASKED, "get_context"})
_PATTERN = re.compile(r"[*?\[]")
_IN_NAME = r"[\w:!?*/<>=-]"


@frozen
class _Named:
    """A name in a policy, and its subject: ``what``."""

    name: str
    what: str


class RulesMet:
    """Puts policies in force, and looks for rules that never apply among the ``tools``, ``tasks`` and saved ``workflows`` of a flow.

    Files in a policy are relative to ``roots``.
    """

    def __init__(
        self, tools: ToolPort, tasks: TemplatePort, workflows: WorkflowPort | None = None, roots: Sequence[str] = ()
    ) -> None:
        self._tools = tools
        self._tasks = tasks
        self._workflows = workflows
        self._roots = roots
        self._written = WrittenFiles(state_path() / "written.jsonl")
        self._logged: set[str] = set()
        self._containers = ContainerLabels()

    def guard(self, policy: Provenance) -> RunGuard:
        """The guard of a run that begins. Raises as :meth:`check_arguments`."""
        self.check_arguments(policy)
        return RunGuard(policy, self._tools, self._tasks, self._roots, self._written, self._containers)

    def check_arguments(self, policy: Provenance) -> None:
        """Refuse a rule for an argument that its callable does not have. Raises ConfigurationError (``provenance/policy``)."""
        for rule in _rules_of(policy):
            _check_arguments(rule, self._arguments(rule.tool))

    async def check_names(self, program: Program, env: SexpEnvironment, call: CallContext) -> None:
        """Warn of :meth:`unmet` names in the policy of a run (``provenance/unmet``), once in a run; without observers, once
        in the log."""
        guard = call.reading.guard if call.reading is not None else None
        if not isinstance(guard, RunGuard):
            return
        unmet = await self.unmet(guard.policy, program.text, lambda: {name: _value(env, name) for name in env.names()})
        for name, message in unmet.items():
            if name not in guard.told:
                guard.told.add(name)
                call.warn("provenance/unmet", message, name=name)
                if not call.run.watched and name not in self._logged:
                    self._logged.add(name)
                    _log.warning("%s", message)

    async def unmet(self, policy: Provenance, text: str, variables: Callable[[], Mapping[str, Any]]) -> dict[str, str]:
        """Messages about the names in a policy that match nothing in the flow, a program's text or its variables.

        A match may come later: a tool of a server, a task defined by a program. It is an error only if the name resembles
        that of something without its own rule: then a tool would be unguarded. Raises ConfigurationError
        (``provenance/policy``).
        """
        self._check_readers(policy)
        named = [each for each in _named(policy) if not self._has(each.name)]
        if not named:
            return {}
        names = {*self._tools.names(), *self._tasks.template_names(), *_UNNAMED}
        named = [each for each in named if not _is_met(each.name, names)]
        if not named:
            return {}
        if self._workflows is not None:
            names.update(await self._workflows.load_names())
        functions = held_by(variables()).functions
        _check_functions(policy, names, functions)
        names.update([name_of_function(each) for _, each in functions])
        ruled = {each.name for each in _named(policy)}
        return {
            each.name: _missing(each, names, ruled)
            for each in named
            if not _is_met(each.name, names) and not _is_word(each.name, text)
        }

    def _has(self, name: str) -> bool:
        """Whether something has exactly this name, without going over all there are."""
        return name in _UNNAMED or self._tools.find(name) is not None or self._tasks.find_compiled(name) is not None

    def _check_readers(self, policy: Provenance) -> None:
        """Refuse readers of an unmatched source with a name that resembles that of one without a rule for its readers."""
        for one in (policy, *policy.narrowed_by):
            if not one.readers:
                continue
            tools = [(name, self._tools.find(name)) for name in self._tools.names()]
            sources = {policy.source_of(name, (tool and tool.source) or "") for name, tool in tools}
            for source in one.readers:
                if source in sources or _PATTERN.search(source):
                    continue
                near = suggest(source, [each for each in sources if each not in one.readers])
                if near is not None:
                    raise _wrong(
                        f"readers are of '{source}', which is the source of nothing here, and not of '{near}', which is",
                        f"write '{near}'",
                    )

    def _arguments(self, name: str) -> set[str] | None:
        """The arguments that tools and tasks of this name have; None if there are none of this name, or it may have any."""
        if name in ASKED and name != "solve":
            return set(ASKED[name])
        arguments: set[str] = set()
        tool, task = self._tools.find(name), self._tasks.find_compiled(name)
        if tool is not None:
            schema = tool.spec.input_schema
            if schema.get("additionalProperties") or not _CHOICE.isdisjoint(schema):
                return None
            arguments.update(schema.get("properties") or ())
        if task is not None:
            arguments.update(task.template.params, _OF_TASKS)
        return None if tool is None and task is None else arguments


def _missing(named: _Named, names: Iterable[str], ruled: set[str]) -> str:
    near = None if _PATTERN.search(named.name) else suggest(named.name, [each for each in names if each not in ruled])
    if near is not None:
        raise _wrong(
            f"{named.what} '{named.name}', which is nothing here, so that '{near}' goes unguarded",
            f"write '{near}'; or register '{named.name}' before the run",
        )
    hint = did_you_mean(named.name, names)
    return f"{named.what} '{named.name}', which is nothing here: it does not apply{f'; {hint}' if hint else ''}"


def _check_arguments(rule: Sink, arguments: set[str] | None) -> None:
    if arguments is None:
        return
    for argument in (rule.argument, rule.readers_in):
        if argument not in ("", "*") and argument not in arguments:
            near = did_you_mean(argument, arguments)
            raise _wrong(
                f"a rule is for '{argument}' of {rule.tool}, which has no such argument: it would never apply",
                near or (f"it has {', '.join(map(repr, sorted(arguments)))}" if arguments else "it has none"),
            )


def _rules_of(policy: Provenance) -> list[Sink]:
    return [rule for one in (policy, *policy.narrowed_by) for rule in one.rules]


def _named(policy: Provenance) -> list[_Named]:
    """The names of tools, tasks and functions that a policy says something of."""
    named: dict[str, _Named] = {}
    for one in (policy, *policy.narrowed_by):
        for rule in one.rules:
            named.setdefault(rule.tool, _Named(rule.tool, "a rule is for"))
        for name in one.sources:
            named.setdefault(name, _Named(name, "sources name"))
        for source in one.readers:
            if source.startswith("tool:") and one.sources.get(source.removeprefix("tool:"), USER) == USER:
                name = source.removeprefix("tool:")
                named.setdefault(name, _Named(name, "readers belong to values of the tool"))
    return list(named.values())


def _is_met(name: str, names: Iterable[str]) -> bool:
    """Whether something has this name, or one that fits the pattern."""
    return name in names or (_PATTERN.search(name) is not None and any([fnmatchcase(each, name) for each in names]))


def _is_word(name: str, text: str) -> bool:
    """Whether a text contains a name, perhaps as its own definition."""
    return re.search(rf"(?<!{_IN_NAME}){re.escape(name)}(?!{_IN_NAME})", text) is not None


def _check_functions(
    policy: Provenance, others: Iterable[str], functions: Iterable[tuple[str | None, Callable[..., Any]]]
) -> None:
    """Refuse rules for functions of the host that go by the name of a variable, or name no parameter."""
    by_name = {name_of_function(function): function for _, function in functions}
    by_variable = {name: function for name, function in functions if name is not None}
    for rule in _rules_of(policy):
        if rule.tool in others:
            continue
        if rule.tool in by_name:
            parameters, rest = parameters_of(by_name[rule.tool])
            names = {*parameters, *([rest] if rest is not None else ())}
            _check_arguments(rule, names or None)
        elif rule.tool in by_variable:
            own = name_of_function(by_variable[rule.tool])
            raise _wrong(
                f"a rule is for '{rule.tool}', a variable that holds the function '{own}': it would never apply",
                f"a rule knows a function by its own name: '{own}'",
            )


def _value(env: SexpEnvironment, name: str) -> Any:
    cell = env.find(name)
    return None if cell is None else cell.v


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="provenance/policy", hint=hint)


def _as_call(call: object) -> CallContext | None:
    """A call, from the port that passes it without its type."""
    return cast("CallContext", call) if isinstance(call, CallContext) else None
