"""Compiles programs against the names defined where they run, on the spot or off the event loop, and within the limits of
the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from agentflow.core.call.provenance import PolicyInForce
from agentflow.core.data.known_names import Definitions
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.program import Program, ProgramCache, compile_program, compiled_before, describer, python_is_loaded
from agentflow.lib.event_loop import running_loop
from agentflow.run.strand.authority import grants_of
from agentflow.run.strand.budget import BYTES_PER_STEP, Budget, MemoryAccount, out_of_time
from agentflow.run.strand.perform import EffectRunner
from agentflow.run.strand.strand import view

T = TypeVar("T")

SMALL_TEXT = 1_000
"""Longest text, in characters, to compile on the loop: about 3 ms of processor time, at most 10. A thread costs 0.2 ms."""


class _CompileAllowance(StepAllowance):
    """An allowance with memory bounded like a run's. It is used by one thread at a time."""

    def __init__(self, steps: int | None, memory: int | None) -> None:
        super().__init__(steps)
        self._memory = MemoryAccount(memory)

    def take(self, steps: int) -> None:
        super().take(steps)
        self._memory.add(steps * BYTES_PER_STEP)

    def allocate(self, count: int) -> None:
        """Count bytes. Raises LimitExceeded."""
        self._memory.add(count)


def is_small(program: str | Source | Program) -> bool:
    """Whether a text may be compiled on the loop: it is short, has no macros that could take long, and its compiler has been loaded."""
    if isinstance(program, str):
        return len(program) <= SMALL_TEXT and "defmacro" not in program
    if program.surface == "python":
        return len(program.text) <= SMALL_TEXT and python_is_loaded()
    return is_small(program.text)


async def beside_the_loop(
    program: str | Source | Program,
    work: Callable[[StepAllowance], T],
    limits: Limits,
    budget: Budget | None = None,
    *,
    at_once: bool = True,
) -> T:
    """The result of ``work``, which compiles or checks ``program``: in a thread, unless ``at_once`` is true and
    its text :func:`is_small`.

    Macros take their steps from ``budget``, that of the run; without one, before the run is opened, ``limits`` bound
    them, and its wall time the whole. On cancellation the thread gets a signal to stop, without waiting for it.
    """
    allowance = _CompileAllowance(limits.steps if budget is None else budget.steps_left, limits.memory)
    try:
        if at_once and is_small(program):
            return work(allowance)
        seconds = limits.wall_s if budget is None else None
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await asyncio.to_thread(work, allowance)
        except TimeoutError:
            if seconds is None or not clock.expired():
                raise
            raise out_of_time(seconds) from None
    finally:
        allowance.stop()
        if budget is not None and allowance.used:
            budget.owe(allowance.used)


class ProgramCompiler:
    """Compiles programs for one flow, and caches the results.

    Parameters: ``effects`` carries out the effects of programs, and so knows their names; ``limits`` hold for a program
    without its own; ``in_force`` says how values of programs are followed. ``cache`` is public: it also compiles the programs written by running ones.
    """

    def __init__(self, effects: EffectRunner, limits: Limits, in_force: PolicyInForce) -> None:
        self._effects = effects
        self._limits = limits
        self._in_force = in_force
        self.cache = ProgramCache()

    def compile(
        self,
        program: str | Source | Program,
        *,
        env: SexpEnvironment | None = None,
        bindings: Iterable[str] = (),
        grants: frozenset[str] | None = None,
        limits: Limits | None = None,
        defined: Definitions | None = None,
    ) -> Program:
        """Check and compile a program text against the names defined now.

        ``bindings`` are names that will be bound; ``grants`` the only tasks and tools it may name; ``defined`` the tasks
        defined by programs around it. Raises SexpSyntaxError and SexpEvaluationError with the span.
        """
        fitting, request = self._request(program, env, bindings, grants, limits, defined)
        return fitting or compile_program(**request)

    async def compiled(
        self,
        program: str | Source | Program,
        *,
        env: SexpEnvironment | None = None,
        grants: frozenset[str] | None = None,
        limits: Limits | None = None,
        defined: Definitions | None = None,
        budget: Budget | None = None,
    ) -> Program:
        """Like :meth:`compile`, without blocking the event loop; macros take their steps from ``budget``.

        A small text without a budget is compiled at once.
        """
        if (revision := self._revision(env, defined)) is not None:
            ready = self.cache.current(
                program, grants, limits or self._limits, revision, labelled=self._in_force.following
            )
            if ready is not None:
                return ready
        if budget is None and is_small(program):
            return self.compile(program, env=env, grants=grants, limits=limits, defined=defined)
        running_loop()  # raises a clear error if there is none
        fitting, request = self._request(program, env, (), grants, limits, defined)
        fitting = fitting or compiled_before(**request)
        if fitting is not None:
            return fitting
        source = request["source"]
        return await beside_the_loop(
            source,
            lambda allowance: compile_program(**request, allowance=allowance),
            request["limits"],
            budget,
        )

    def _request(
        self,
        program: str | Source | Program,
        env: SexpEnvironment | None,
        bindings: Iterable[str],
        grants: frozenset[str] | None,
        limits: Limits | None,
        defined: Definitions | None,
    ) -> tuple[Program | None, dict[str, Any]]:
        """The program itself if it needs no compiling, and the arguments of :func:`compile_program` for it."""
        limits = limits or self._limits
        names = self.names(env, defined)
        revision = None if bindings else self._revision(env, defined)
        source, fitting = program, None
        if isinstance(program, Program):
            same = program.allow == grants and (program.limits is limits or program.limits == limits)
            same = same and program.labelled == self._in_force.following
            if same and program.fits(describer(names, frozenset(bindings)), revision):
                fitting = program
            source = program.source
        return fitting, {
            "source": source,
            "names": names,
            "limits": limits,
            "allow": grants,
            "env_names": bindings,
            "cache": self.cache,
            "revision": revision,
            "labelled": self._in_force.following,
        }

    def _revision(self, env: SexpEnvironment | None, defined: Definitions | None) -> tuple[object, object] | None:
        """A value that stays equal as long as every name means the same; None if there are names other than the flow's."""
        ours = defined is None and (env is None or env.is_empty)
        return (self._effects.tasks.revision, self._effects.tools.revision) if ours else None

    def names(self, env: SexpEnvironment | None = None, defined: Definitions | None = None) -> NamesInForce:
        """The names of a program in ``env``, where ``defined`` are the tasks of the programs around it."""
        if env is not None:
            defined = env if defined is None else view(env, None, defined)
        return NamesInForce(self._effects.names, env, defined)

    async def granted(
        self,
        allow: Iterable[str] | None,
        program: str | Source | Program,
        env: SexpEnvironment,
        defined: Definitions | None = None,
    ) -> frozenset[str] | None:
        """The grants that ``allow`` gives a program; None for the host's authority.

        Raises ConfigurationError (``config/allow``) for an undefined name.
        """
        if allow is None:
            return None
        text = program if isinstance(program, str) else program.text
        return await grants_of(allow, text, self.names(env, defined), self._effects.workflows)
