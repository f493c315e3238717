"""Strands of flows with a policy: the sources of a program's values accompany every effect, and are judged before it.

A :class:`LabelledStrand` runs a program and tracks each value. A :class:`HostStrand` runs host code, which is opaque:
everything it has read reaches all its later effects.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import Guard, Reading
from agentflow.core.data.context import MatchItem
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.json_text import encoded
from agentflow.core.data.labels import (
    NO_SOURCES,
    UNBOXED,
    Label,
    Sources,
    blame,
    box,
    joined,
    sources_within,
    strip,
    stripped,
)
from agentflow.core.data.source import Span
from agentflow.core.data.values import opened
from agentflow.core.data.walk import Work, copied
from agentflow.core.events.effects import (
    AwaitSignal,
    CallTool,
    CallWorkflow,
    Draw,
    Effect,
    Endorse,
    GetContext,
    NamedCall,
    TaskCall,
)
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.builtins import Primitive
from agentflow.lang.builtins.labelled import twin_of
from agentflow.lang.calling import TAIL, bounce
from agentflow.lang.closure import Closure
from agentflow.lang.environment import SexpEnvironment
from agentflow.run.strand.procedure_calls import by_names, name_of_effect, values_by_name
from agentflow.run.strand.strand import Strand

_NONE: Mapping[str, Sources] = {}


class LabelledStrand(Strand):
    """A strand with values that may stand in boxes. ``ambient`` are the sources that all its work depends on.

    These are the sources of the data that chose the running code: a program's text, or a procedure.
    """

    __slots__ = ("ambient", "guard")

    def __init__(self, call: CallContext, *arguments: Any, parent: Strand | None = None, **options: Any) -> None:
        super().__init__(call, *arguments, parent=parent, **options)
        reading = call.reading
        assert reading is not None
        self.guard: Guard = reading.guard
        if parent is not None:
            self.steps.sources = parent.steps.sources
        self.ambient: Sources = parent.ambient if isinstance(parent, LabelledStrand) else reading.sources

    # -- calls ----------------------------------------------------------------------------------------------------

    def pick(self, function: Any, count: int, d: int) -> Code:
        """The code of a value in operator position. The effects of a procedure from a box depend on the box's sources."""
        if type(function) is Label:
            try:
                return _led(self.pick(function.value, count, d), function.sources)
            except AgentflowError as error:
                blame(error, function.sources)
                raise
        if type(function) is Closure and not function.info.follows:
            raise not_followed(function, "without a policy: it loses where values come from")
        return super().pick(twin_of(function) if type(function) is Primitive else function, count, d)

    def takes_named_arguments(self, function: Any, env: SexpEnvironment | None = None) -> bool:
        if type(function) is not Label:
            return super().takes_named_arguments(function, env)
        try:
            return super().takes_named_arguments(function.value, env)
        except AgentflowError as error:
            blame(error, function.sources)
            raise

    async def call_named(
        self,
        d: int,
        function: Any,
        names: tuple[str, ...],
        values: tuple[Any, ...],
        span: Span | None,
        env: SexpEnvironment | None = None,
    ) -> Any:
        if type(function) is not Label:
            return await super().call_named(d, function, names, values, span, env)
        work = super().call_named(d, function.value, names, values, span, env)
        return await self.under(function.sources, work)

    async def under(self, sources: Sources, work: Coroutine[Any, Any, Any]) -> Any:
        outer, self.ambient = self.ambient, joined(self.ambient, sources)
        try:
            return box(await work, sources)
        except AgentflowError as error:
            blame(error, sources)
            raise
        finally:
            self.ambient = outer

    # -- effects --------------------------------------------------------------------------------------------------

    async def perform(self, effect: Effect | Label, span: Span | None) -> Any:
        """Carry out an effect, if the policy lets the sources of its arguments reach them; its value is labelled."""
        if isinstance(effect, Label):  # the effect was built from values with sources
            return await self.under(effect.sources, self.perform(effect.value, span))
        around = self.ambient
        labels = _NONE
        if around or not _is_bare(effect):
            effect, labels = await self._opened(effect)
        elif type(effect) is CallTool:  # nothing to be judged, as in most calls
            reading = Reading(self.guard, default=self.guard.source_of(effect.name))
            return box(await self._read_by(reading, effect, labels, around, span), reading.given())
        if type(effect) is Endorse:
            sources = tuple(sorted(joined(around, labels.get("1", NO_SOURCES))))
            try:
                return await super().perform(replace(effect, sources=sources), span)
            except AgentflowError as error:
                blame(error, joined(around, labels.get("2", NO_SOURCES)))  # it shows the reason
                raise
        value, reading = await self._judged(effect, labels, around, span)
        sources = reading.given()
        return box(self._of_files(value) if type(effect) is GetContext else value, sources)

    async def _judged(
        self, effect: Effect, labels: Mapping[str, Sources], around: Sources, span: Span | None
    ) -> tuple[Any, Reading]:
        """The bare value of an effect, and the sources read by it."""
        name = name_of_effect(effect)
        kind = type(effect)
        if kind is AwaitSignal and self.guard.in_arm:
            self._leave_signal(around.union(*labels.values()), span)
        named = kind is CallTool or kind is TaskCall
        if kind is TaskCall:
            around = joined(around, self.guard.written_from(name, self.definitions(cast(Any, effect).env)))
            if around and not labels:
                labels = dict.fromkeys(cast(TaskCall, effect).arguments, NO_SOURCES)
        if name and (around or any(labels.values())):
            labels = by_names(effect, labels)
            error = self.guard.judge(
                name, labels, around, span, self.call, tool=named, arguments=values_by_name(effect)
            )
            if error is not None:
                for sources in (around, *labels.values()):
                    blame(error, sources)
                raise error
        reading = self._reading(effect, labels, around)
        value = await self._read_by(reading, effect, labels, around, span)
        if kind is TaskCall:
            task = cast(TaskCall, effect)
            small = self.guard.small(name, self.definitions(cast(Any, task.env)), value, reading.given())
            if small is not None:
                value, kept = small
                reading.say(kept, alone=True)
        return value, reading

    def _leave_signal(self, sources: Sources, span: Span | None) -> None:
        """Refuse to take a signal in an arm, or by a name that depends on something: the next wait would show whether it was taken."""
        shown = sorted(sources)
        error = SexpEvaluationError(
            f"a signal would be taken because of {', '.join(shown)}, so the next one would leak the test",
            code="provenance/write",
            span=span,
            hint="wait for it before the test, by a name that is written out; or ask a person",
            details={"sources": shown},
        )
        blame(error, sources)
        self.forbid(error)

    def forbid(self, error: AgentflowError) -> None:
        """Raise an error of the policy; if the policy only explains, report it."""
        if self.guard.explains:
            self.call.warn(error.code, f"would be refused: {error.message}", **error.details)
            return
        blame(error, self.ambient)
        raise error

    async def _read_by(
        self, reading: Reading, effect: Effect, labels: Mapping[str, Sources], around: Sources, span: Span | None
    ) -> Any:
        """The bare value of an effect that may be done; ``reading`` goes along with its call."""
        call = self.call
        outer, call.reading = call.reading, reading
        try:
            # This draws the effect's number, and its call takes the reading with it.
            work = Strand.perform(self, effect, span)
        finally:
            call.reading = outer
        try:
            value = await work
        except AgentflowError as error:
            blame(error, reading.given())
            raise
        sources = reading.given()
        if sources:
            name = name_of_effect(effect)
            if isinstance(effect, CallTool | TaskCall):
                self.steps.sources = joined(self.steps.sources, sources)
            if name:
                self.guard.note(name, labels, around, sources, span)
        return value

    def _reading(self, effect: Effect, labels: Mapping[str, Sources], around: Sources) -> Reading:
        if isinstance(effect, CallWorkflow):
            return Reading(self.guard, around, inputs=labels)
        sources = around
        for each in labels.values():
            sources = joined(sources, each)
        default = self.guard.source_of(effect.name) if isinstance(effect, CallTool) else NO_SOURCES
        return Reading(self.guard, sources, default=default, labels=labels, around=around)

    def _of_files(self, value: Any) -> Any:
        """The results of a question to memory, each with its file as its source."""
        return [self._of_file(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value

    def _of_file(self, match: Any) -> Any:
        """A path that a question to memory gave, or a match, with its file as its source."""
        path = match.path if isinstance(match, MatchItem) else match
        return box(match, self.guard.of_files((path,))) if isinstance(path, str) else match

    async def _opened(self, effect: Effect) -> tuple[Effect, Mapping[str, Sources]]:
        """An effect without boxes in its data, and the sources of each of its arguments."""
        if isinstance(effect, Draw):
            below, sources = strip(effect.below)
            return (replace(effect, below=below), {"below": sources}) if sources else (effect, _NONE)
        field = effect.data
        data: Any = None if field is None else getattr(effect, field)
        if field is None or data is None:
            return effect, _NONE
        pairs = _arguments(data)
        if pairs is None:
            bare, sources = strip(data)
            return (effect, _NONE) if bare is data else (replace(effect, **{field: bare}), {field: sources})
        labels: dict[str, Sources] = {}
        changed = False
        values: list[Any] = []
        for key, value in pairs:
            bare, sources = value, NO_SOURCES
            if type(value) not in UNBOXED:
                bare, sources = await self.work(stripped(value))
                changed = changed or bare is not value
            values.append(bare)
            labels[str(key)] = sources
        if not changed:
            return effect, labels
        names = [name for name, _ in pairs]
        opened = tuple(values) if type(data) is tuple else dict(zip(names, values, strict=True))
        return replace(effect, **{field: opened}), labels


class HostStrand(LabelledStrand):
    """A strand for effects of the host's own code, which receives bare values.

    Its use of them is opaque, so each effect depends on all earlier results, except an argument that as a whole equals a
    value endorsed before. Branches depend on everything read before they began, but not on one another.
    """

    __slots__ = ("endorsed", "pending")

    def __init__(self, call: CallContext, *arguments: Any, parent: Strand | None = None, **options: Any) -> None:
        super().__init__(call, *arguments, parent=parent, **options)
        self.pending = NO_SOURCES
        self.endorsed = NO_SOURCES
        if parent is not None:
            around = _read(parent.call)
            call.reading = Reading(self.guard, around.sources)
            call.reading.endorsed = around.endorsed

    async def perform(self, effect: Effect | Label, span: Span | None) -> Any:
        """Carry out an effect, if the sources read by this code may reach its arguments; returns a bare value."""
        assert not isinstance(effect, Label)  # code of the host has bare values
        read = _read(self.call)
        read.add(self.pending)
        read.endorsed |= self.endorsed
        effect, labels = await self._opened(effect)
        if type(effect) is Endorse:
            await Strand.perform(self, replace(effect, sources=tuple(sorted(read.sources))), span)
            read.endorsed |= {await self.work(_as_endorsed(effect.arguments[0]))}
            return None
        around = read.sources
        if around and read.endorsed:
            around, labels = await self._without_endorsed(effect, labels, around, read.endorsed)
        value, reading = await self._judged(effect, labels, around, span)
        read.add(reading.given())
        if type(effect) is GetContext:
            read.add(await self.work(sources_within(self._of_files(value))))
        return value

    async def _without_endorsed(
        self, effect: Effect, labels: Mapping[str, Sources], around: Sources, endorsed: Sources
    ) -> tuple[Sources, Mapping[str, Sources]]:
        """The sources of a whole effect, and of each argument: none for an endorsed one, everything read for the others."""
        pairs = _arguments(None if effect.data is None else getattr(effect, effect.data))
        apart = [str(key) for key, value in pairs or () if await self.work(_as_endorsed(value)) in endorsed]
        if not apart:
            return around, labels
        return NO_SOURCES, {
            str(key): NO_SOURCES if str(key) in apart else joined(around, labels.get(str(key), NO_SOURCES))
            for key, _ in pairs or ()
        }

    def end(self) -> None:
        """Return unused steps, and pass on the sources read and the values endorsed."""
        parent = self.parent
        read = _read(self.call)
        if isinstance(parent, HostStrand):
            parent.pending = joined(parent.pending, joined(read.sources, self.pending))
            parent.endorsed |= read.endorsed | self.endorsed
        else:
            read.add(self.pending)
        super().end()


def _as_endorsed(value: Any) -> Work[str]:
    """A host value as the text that identifies an endorsed value."""
    data, _ = yield from copied(value, opened)
    return (yield from encoded(data))


def not_followed(function: Closure, why: str) -> SexpEvaluationError:
    """The error of a call of a procedure compiled for another kind of flow."""
    return SexpEvaluationError(
        f"{function.name or 'this procedure'} was made in a flow {why}",
        code="provenance/not-followed",
        hint="create it in this flow; or load the output of dump_closure here",
    )


def _read(call: CallContext) -> Reading:
    assert call.reading is not None
    return call.reading


def _is_bare(effect: Effect) -> bool:
    """Whether the arguments of an effect cannot contain boxes, as in most effects over the user's own data."""
    if isinstance(effect, NamedCall):
        return UNBOXED.issuperset(map(type, effect.arguments.values()))
    return False


def _arguments(data: Any) -> list[tuple[Any, Any]] | None:
    """The arguments in the data of an effect by name, or by number from 1; None if it is not such a collection."""
    if isinstance(data, dict):
        return list(cast("dict[Any, Any]", data).items())
    return list(enumerate(cast("tuple[Any, ...]", data), 1)) if isinstance(data, tuple) else None


def _led(code: Code, sources: Sources) -> Code:
    """``code`` as it runs when something from ``sources`` has chosen it."""

    async def led(rt: Runtime, d: int, *arguments: Any) -> Any:
        assert isinstance(rt, LabelledStrand)
        return await rt.under(sources, _whole(rt, d, code, arguments))

    return led


async def _whole(rt: Runtime, d: int, code: Code, arguments: tuple[Any, ...]) -> Any:
    value = await code(rt, d, *arguments)
    return await bounce(rt, d) if value is TAIL else value
