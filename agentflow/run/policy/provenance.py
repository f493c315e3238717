"""The policy of a run at the door of effects: what may be done, and what has flown where."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from os.path import join, realpath
from typing import Any, TypeAlias

from agentflow.core.call.call import CallContext
from agentflow.core.call.provenance import USER, Denial, Provenance
from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.labels import NO_SOURCES, Following, Sources, joined
from agentflow.core.data.names import Definitions
from agentflow.core.data.notes import Notes
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.data.values import to_json
from agentflow.core.events.events import PolicyDenied
from agentflow.core.ports.ports import TemplatePort, Tool, ToolPort
from agentflow.lib.schema.json_schema import Schema
from agentflow.lib.schema.schema_capacity import canonical, capacity
from agentflow.run.policy.written_files import WrittenFiles

_NOTED = 10_000
"""Effects whose flow is kept, the latest ones, to show how something came about."""
_TRAIL = 5


@frozen
class EffectFlow:
    """An effect that was done: the sources of its arguments by name, of the whole of it, and of what it gave."""

    name: str
    labels: Mapping[str, Sources]
    around: Sources
    given: Sources
    span: Span | None

    def takes(self, source: str) -> str | None:
        """The argument by which a source reached the effect; "" if the whole effect depends on it, None if it did not."""
        for argument, sources in self.labels.items():
            if source in sources:
                return argument
        return "" if source in self.around else None


_Noted: TypeAlias = "tuple[str, Mapping[str, Sources], Sources, Sources, Span | None]"
"""The fields of a :class:`EffectFlow`, which is made of them when somebody asks how something came about."""


class RunGuard:
    """A :class:`~agentflow.core.call.reading.Guard`: the policy in force in one run, and the flows of its effects.

    ``tools`` and ``tasks`` know the flow's, ``roots`` are what paths are relative to, ``written`` knows what runs wrote files from. ``denials`` are what was denied so far, or with ``explain`` would have been; ``told``
    the names in the policy of which it was told that nothing has them.
    """

    def __init__(
        self,
        policy: Provenance,
        tools: ToolPort,
        tasks: TemplatePort,
        roots: Sequence[str] = (),
        written: WrittenFiles | None = None,
    ) -> None:
        self.policy = policy
        self._written = written
        self._start = roots[0] if roots else "."
        self._roots = [f"{realpath(root).rstrip('/')}/" for root in roots]
        self._tools = tools
        self._tasks = tasks
        self.denials: list[Denial] = []
        self.told: set[str] = set()
        self._sources: dict[str, tuple[Tool | None, Sources]] = {}
        self._flows: deque[_Noted] = deque(maxlen=_NOTED)

    @property
    def following(self) -> Following:
        """How programs of the run are followed."""
        return self.policy.following

    @property
    def explains(self) -> bool:
        """Whether what the policy forbids is told, and done."""
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
        """The error of an effect whose arguments depend on sources that may not reach them; None if it may be done."""
        if not around and not any(labels.values()):
            return None
        registered = self._tools.find(name, call if isinstance(call, CallContext) else None) if tool else None
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
        if isinstance(call, CallContext):
            self._tell(denial, error, span, call)
        return error

    def small(
        self, task: str, defined: Definitions | None, value: object, sources: Sources
    ) -> tuple[TaskResult, Sources] | None:
        """The result of a task whose schema has few values, with its data alone, and the sources that it keeps."""
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
        """Where the results of a tool come from, unless they say so themselves; ``call`` is the model's, if it has one."""
        registered = self._tools.find(tool, call if isinstance(call, CallContext) else None)
        seen = self._sources.get(tool)
        if seen is None or seen[0] is not registered:
            seen = self._sources[tool] = (registered, self._looked_up(tool, registered))
        return seen[1]

    def _looked_up(self, tool: str, registered: Tool | None) -> Sources:
        if registered is not None and registered.kind == "subtask":
            return NO_SOURCES  # a task adds nothing to what it reads
        source = self.policy.source_of(tool, (registered.source if registered is not None else None) or "")
        return NO_SOURCES if source == USER else frozenset((source,))

    def of_files(self, paths: Iterable[str]) -> Sources:
        """``file:PATH`` of what each path leads to, relative to a root where that is beneath one, and what a run wrote it from."""
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
        """A block in which a file is written from ``sources``, which it keeps."""
        return nullcontext() if self._written is None else self._written.writing(self._real(path), sources)

    def written_from(self, task: str, defined: Definitions | None) -> Sources:
        """What the texts of a task were made of by a program."""
        compiled = self._tasks.find_compiled(task, defined)
        return NO_SOURCES if compiled is None else frozenset(compiled.template.sources)

    def note(
        self, name: str, labels: Mapping[str, Sources], around: Sources, value: Sources, span: Span | None
    ) -> None:
        """Note an effect that has been done: what its arguments depended on, and the sources of its value."""
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
        """The effects by which the first refused source came to the argument, the first ones and the last."""
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
