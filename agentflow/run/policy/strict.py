"""Strands under a ``strict`` policy: effects also depend on the conditions that led to them.

``ambient`` are the sources of the conditions on the way to the current position. Conditions raise it, and the machine that carries
programs out restores it where branches end (:mod:`agentflow.lang.kernel.machine`). While an error may be caught (``trying``), it is
never restored, and everything that may raise one raises it: continuing shows that there was no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.identities import Reasons, mark_of
from agentflow.core.call.reading import Reading
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.labels import Label, Sources, blame, box, outer_sources
from agentflow.core.data.source import Span
from agentflow.core.data.walk import finish
from agentflow.core.events.effects import AwaitSignal, Effect
from agentflow.lang.abi import Code
from agentflow.lang.builtins import Primitive
from agentflow.lang.builtins.strict import Called, strict_twin_of
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, SexpEnvironment
from agentflow.lang.kernel.container_labels import ContainerLabels
from agentflow.lang.program import Program
from agentflow.lang.python.boxed.sharing import reachable
from agentflow.run.policy.labelled import LabelledStrand, not_followed
from agentflow.run.strand.hops import on_fresh_task
from agentflow.run.strand.strand import Strand
from agentflow.tasks.step_history import ProgramSteps


class StrictStrand(LabelledStrand):
    """A strand of a flow with a strict policy.

    ``began`` are the ambient sources at the start of its program, ``floor`` those at the start of the run that has the
    session it uses.
    """

    __slots__ = ("_names_in_arms", "began", "containers", "floor", "trying")

    def __init__(self, call: CallContext, *arguments: Any, parent: Strand | None = None, **options: Any) -> None:
        super().__init__(call, *arguments, parent=parent, **options)
        strict = parent if isinstance(parent, StrictStrand) else None
        self.trying = 0 if strict is None else strict.trying
        self.floor: Sources = self.ambient if strict is None else strict.floor
        self.began: Sources = self.ambient
        assert call.reading is not None
        host = call.reading.guard.containers
        self.containers = (
            ContainerLabels(host if isinstance(host, ContainerLabels) else None)
            if strict is None
            else strict.containers
        )
        self._names_in_arms: dict[Sources, int] = {}

    async def main(self, program: Program, env: SexpEnvironment, depth: int = 0, calls: int | None = None) -> Any:
        """Run a program in ``env``; its value gets the sources of the conditions that led to it."""
        before = self.began = self.ambient
        bound = [each.v for each in env.cells()]
        self._meet(env)
        try:
            return self.left(before, await super().main(program, env, depth, calls))
        finally:
            if self.parent is None and not self.containers.is_empty:
                await self._hand_over(bound)

    async def _hand_over(self, bound: list[Any]) -> None:
        """Keep the sources of the host's containers for later runs: in slices without steps, as a run takes as many in all modes."""
        looking = reachable(bound)
        try:
            while True:
                next(looking)
                await asyncio.sleep(0)
        except StopIteration as done:
            self.containers.hand_over(done.value)
        except asyncio.CancelledError:  # the labels are kept in any case
            self.containers.hand_over(finish(looking))
            raise

    def _meet(self, env: SexpEnvironment) -> None:
        """Use the labels of the containers that programs left in an environment, and leave those of this one there."""
        at: SexpEnvironment | None = env
        while at is not None:
            if at.labels is not self.containers:
                if isinstance(at.labels, ContainerLabels):
                    self.containers.join(at.labels)
                at.labels = self.containers
            at = at.parent

    def end(self) -> None:
        """Return unused steps. If an error of this strand may be caught, the sources it looked at pass to the surrounding
        one."""
        if isinstance(self.parent, StrictStrand):
            self.parent.saw(self.ambient)
        super().end()

    def host_procedure(self, function: Any) -> Any:
        """A procedure that code of the host calls: its value says all that it depends on."""
        return Called(function)

    # -- tests ----------------------------------------------------------------------------------------------------

    def raise_to(self, sources: Sources) -> None:
        if not sources <= self.ambient:
            self.ambient = self.ambient | sources

    def saw(self, sources: Sources) -> None:
        """Something from these sources was looked at that might have raised an error."""
        if self.trying:
            self.raise_to(sources)

    def opened(self, value: Any) -> Any:
        if type(value) is not Label:
            return value
        self.raise_to(value.sources)
        return value.value

    def left(self, before: Sources, value: Any) -> Any:
        """A value computed where the ambient sources were ``before``; they are again, unless an error may be caught."""
        now = self.ambient
        if now is before:
            return value
        if not self.trying:
            self.ambient = before
        return box(value, now)

    # -- variables ------------------------------------------------------------------------------------------------

    def written(self, name: str, old: Any, value: Any, since: Sources) -> Any:
        """The new value of a variable that must already depend on ``since`` by its ``old`` value.

        Raises SexpEvaluationError (``provenance/write``) if it does not: with the opposite outcome of the condition, the
        unchanged value would carry no trace of it.
        """
        if not self.ambient:
            return value
        if not since <= outer_sources(old):
            self._refuse(name, since)
        return box(value, self.ambient)

    def defined(self, name: str, old: Any, value: Any) -> Any:
        return box(value, self.ambient) if old is UNBOUND else self.written(name, old, value, self.ambient)

    def _refuse(self, name: str, since: Sources) -> None:
        self.forbid(
            SexpEvaluationError(
                f"'{name}' would be changed in a branch that depends on {', '.join(sorted(since))}, so its old value would leak the test",
                code="provenance/write",
                hint=f"assign {name} in both branches: its own value where it does not change",
                details={"name": name, "sources": sorted(since)},
            )
        )

    def unbound(self, env: SexpEnvironment, name: str, near: tuple[str, ...] = ()) -> Any:
        """The value of an undefined name; that it is undefined may depend on the conditions of a Python text."""
        self.raise_to(env.presence(name))
        return super().unbound(env, name, near)

    def fresh_name(self, stem: str) -> str:
        """A unique name; how many there are in an arm shows in none that depends on anything else."""
        sources = self.ambient
        if sources <= self.floor:
            return super().fresh_name(stem)
        count = self._names_in_arms[sources] = self._names_in_arms.get(sources, 0) + 1
        return f"{stem}%{self.call.identity}.{mark_of(sources)}~{count}"

    def on_fresh_task(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return on_fresh_task(work)

    # -- calls ----------------------------------------------------------------------------------------------------

    def pick(self, function: Any, count: int, d: int) -> Code:
        if type(function) is Called:
            return function.code(self.pick(function.function, count, d))
        if type(function) is Closure and function.info.follows is True:
            raise not_followed(function, "whose policy is not strict: its tests would not count")
        if type(function) is Closure and function.env.labels is not self.containers:
            self._meet(function.env)
        if type(function) is Primitive:
            return Strand.pick(self, strict_twin_of(function), count, d)
        if type(function) is Label:
            self.saw(function.sources)
        return super().pick(function, count, d)

    def takes_named_arguments(self, function: Any, env: SexpEnvironment | None = None) -> bool:
        """Whether a value in operator position takes named arguments, which decides how its operands are evaluated."""
        return super().takes_named_arguments(self.opened(function), env)

    async def under(self, sources: Sources, work: Coroutine[Any, Any, Any]) -> Any:
        before = self.ambient
        self.raise_to(sources)
        try:
            return self.left(before, box(await work, sources))
        except AgentflowError as error:
            blame(error, sources)
            raise

    # -- effects --------------------------------------------------------------------------------------------------

    def because(self, call: CallContext) -> None:
        """Number a call that starts now among those that depend on the same tests."""
        outer = self.call
        reasons = outer.reasons
        if reasons is None or reasons.path != outer.path:
            reasons = outer.reasons = Reasons(outer.path, outer.identity)
        call.reasons = reasons.of_part(call.path, self.ambient)

    async def _judged(
        self, effect: Effect, labels: Mapping[str, Sources], around: Sources, span: Span | None
    ) -> tuple[Any, Reading]:
        try:
            if around <= self.floor and (type(effect) is not AwaitSignal or not any(labels.values())):
                value, reading = await super()._judged(effect, labels, around, span)
            else:
                value, reading = await self._in_arm(effect, labels, around, span)
        except AgentflowError as error:
            self.saw(error.sources)
            raise
        self.saw(reading.given())
        return value, reading

    async def _in_arm(
        self, effect: Effect, labels: Mapping[str, Sources], around: Sources, span: Span | None
    ) -> tuple[Any, Reading]:
        """The value of an effect in a branch. Later code does not see its additions to the session and the steps, and all that
        was sent to the run is left for it."""
        call, steps, guard = self.call, self.steps, self.guard
        session = call.session
        call.session, self.steps = session.fork(), ProgramSteps()
        self.steps.before, self.steps.sources = steps, steps.sources
        self.guard = guard.for_arm()
        try:
            return await super()._judged(effect, labels, around, span)
        finally:
            call.session, self.steps, self.guard = session, steps, guard
