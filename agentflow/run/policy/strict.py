"""Strands under a ``strict`` policy: what is done depends on what was tested to get there, too.

``ambient`` are the sources on which it depends that a strand is where it is. Tests raise it, and generated code puts it back where arms
end (:mod:`agentflow.lang.emit_strict`). While somebody may catch an error (``trying``), it is never put back, and everything that may raise one
raises it: that the code went on says that there was none.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import Reading
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.labels import NO_SOURCES, Label, Sources, blame, box, outer_sources
from agentflow.core.data.source import Span
from agentflow.core.events.effects import Effect
from agentflow.lang.abi import Code
from agentflow.lang.builtins import Primitive
from agentflow.lang.builtins.strict import Called, strict_twin_of
from agentflow.lang.changeable import Changeable
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment
from agentflow.lang.equality import truth
from agentflow.lang.program import Program
from agentflow.run.policy.labelled import LabelledStrand, not_followed
from agentflow.run.strand.calls import calling_span
from agentflow.run.strand.strand import Strand
from agentflow.tasks.history import ProgramSteps


class StrictStrand(LabelledStrand):
    """A strand of a flow with a strict policy.

    ``began`` are the ambient sources with which its program began, ``floor`` those with which the run did, whose session it talks in.
    """

    __slots__ = ("_names_in_arms", "began", "changeable", "floor", "trying")

    def __init__(self, call: CallContext, *arguments: Any, parent: Strand | None = None, **options: Any) -> None:
        super().__init__(call, *arguments, parent=parent, **options)
        strict = parent if isinstance(parent, StrictStrand) else None
        self.trying = 0 if strict is None else strict.trying
        self.floor: Sources = self.ambient if strict is None else strict.floor
        self.began: Sources = self.ambient
        self.changeable = Changeable() if strict is None else strict.changeable
        self._names_in_arms = 0

    async def main(self, program: Program, env: SexpEnvironment, depth: int = 0, calls: int | None = None) -> Any:
        """Run a program in ``env``; its value says what the program tested to get to it."""
        before = self.began = self.ambient
        return self.left(before, await super().main(program, env, depth, calls))

    def end(self) -> None:
        """Return unused steps. Where somebody may catch an error of this strand, what it looked at is told to the one around it."""
        if isinstance(self.parent, StrictStrand):
            self.parent.saw(self.ambient)
        super().end()

    def host_procedure(self, function: Any) -> Any:
        """A procedure that code of the host calls: its value says all that it depends on."""
        return Called(function)

    # -- tests ----------------------------------------------------------------------------------------------------

    def raise_to(self, sources: Sources) -> None:
        """What is done next depends on these sources."""
        if not sources <= self.ambient:
            self.ambient = self.ambient | sources

    def saw(self, sources: Sources) -> None:
        """Something from these sources was looked at that might have raised an error."""
        if self.trying:
            self.raise_to(sources)

    def chosen(self, value: Any) -> bool:
        """Whether a value counts as true, by which something is chosen."""
        return truth(self.opened(value))

    def opened(self, value: Any) -> Any:
        """A value out of its box, by which something is decided."""
        if type(value) is not Label:
            return value
        self.raise_to(value.sources)
        return value.value

    def left(self, before: Sources, value: Any) -> Any:
        """A value that is given where the ambient sources were ``before``, and are again unless an error may be caught."""
        now = self.ambient
        if now is before:
            return value
        if not self.trying:
            self.ambient = before
        return box(value, now)

    # -- variables ------------------------------------------------------------------------------------------------

    def marked(self, value: Any) -> Any:
        """The value of a variable that is bound here."""
        return box(value, self.ambient)

    def upgraded(self, value: Any, since: Sources) -> Any:
        """The value of a variable that may be changed by what has just been chosen, if it says already that it may be because of ``since``."""
        return value if value is UNBOUND or not since <= outer_sources(value) else box(value, self.ambient)

    def upgrade(self, cell: Cell, since: Sources) -> None:
        """The same for a variable of the environment."""
        cell.v = self.upgraded(cell.v, since)

    def written(self, name: str, old: Any, value: Any, since: Sources) -> Any:
        """The value that a variable gets, whose value was ``old`` and has to say that it may change because of ``since``.

        Raises SexpEvaluationError (``provenance/write``): had the test come out otherwise, nothing would say that it did.
        """
        if not self.ambient:
            return value
        if not since <= outer_sources(old):
            self._refuse(name, since)
        return box(value, self.ambient)

    def defined(self, name: str, old: Any, value: Any) -> Any:
        """The value with which a variable is defined, or defined again if it has an ``old`` one."""
        return self.marked(value) if old is UNBOUND else self.written(name, old, value, self.ambient)

    def _refuse(self, name: str, since: Sources) -> None:
        self.forbid(
            SexpEvaluationError(
                f"'{name}' would be changed because of what came from {', '.join(sorted(since))}, and does not say so if it is not",
                code="provenance/write",
                span=calling_span(2),
                hint=f"change it in any case: (set! {name} (if test new {name}))",
                details={"name": name, "sources": sorted(since)},
            )
        )

    def forbid(self, error: SexpEvaluationError) -> None:
        """Raise ``error``, for what a strict policy does not allow; where it only explains, warn of it."""
        if self.guard.explains:
            self.call.warn(error.code, f"would be refused: {error.message}", **error.details)
            return
        blame(error, self.ambient)
        raise error

    def unbound(self, env: SexpEnvironment, name: str) -> Any:
        """The value of a name that has none yet; that it has none may depend on what a text in Python tested."""
        self.raise_to(self.changeable.unbound.get(name, NO_SOURCES))
        return super().unbound(env, name)

    def fresh_name(self, stem: str) -> str:
        """A unique name; how many there are in arms shows in none outside of them."""
        if self.ambient <= self.floor:
            return super().fresh_name(stem)
        self._names_in_arms += 1
        return f"{stem}%{self.call.path}.~{self._names_in_arms}"

    # -- calls ----------------------------------------------------------------------------------------------------

    def pick(self, function: Any, count: int, d: int) -> Code:
        """The code of a value in operator position."""
        if type(function) is Called:
            return function.code(self.pick(function.function, count, d))
        if type(function) is Closure and function.info.follows is True:
            raise not_followed(function, "whose policy is not strict: what it tests would not count")
        if type(function) is Primitive:
            return Strand.pick(self, strict_twin_of(function), count, d)
        if type(function) is Label:
            self.saw(function.sources)
        return super().pick(function, count, d)

    def takes_named_arguments(self, function: Any, env: SexpEnvironment | None = None) -> bool:
        """Whether a value in operator position takes named arguments, which decides how its operands are evaluated."""
        return super().takes_named_arguments(self.opened(function), env)

    async def under(self, sources: Sources, work: Coroutine[Any, Any, Any]) -> Any:
        """The value of ``work``, which is done because of what came from ``sources``."""
        before = self.ambient
        self.raise_to(sources)
        try:
            return self.left(before, box(await work, sources))
        except AgentflowError as error:
            blame(error, sources)
            raise

    # -- effects --------------------------------------------------------------------------------------------------

    async def _judged(
        self, effect: Effect, labels: Mapping[str, Sources], around: Sources, span: Span | None
    ) -> tuple[Any, Reading]:
        try:
            if around <= self.floor:
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
        """The value of an effect in an arm. What it adds to the session and to the steps is not seen by what comes after."""
        call, steps = self.call, self.steps
        session = call.session
        call.session, self.steps = session.fork(), ProgramSteps()
        self.steps.before, self.steps.sources = steps, steps.sources
        try:
            return await super()._judged(effect, labels, around, span)
        finally:
            call.session, self.steps = session, steps
