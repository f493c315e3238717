"""SexpEvaluator: the specification's entry to the language, and what a flow runs its programs with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from agentflow.core.call import CallContext
from agentflow.core.errors import AgentflowError, ConfigurationError
from agentflow.core.limits import Limits
from agentflow.core.ports import MemoryPort, TemplatePort, ToolPort
from agentflow.core.requests import SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.source import Source
from agentflow.lang.analyzer import Kind
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program, ProgramCache, check_program, compile_program
from agentflow.runtime.budget import Budget
from agentflow.runtime.hops import on_fresh_task
from agentflow.runtime.perform import EffectRunner, SolverPort, WorkflowPort
from agentflow.runtime.run import Run, Runs
from agentflow.runtime.strand import call_closure, run_program
from agentflow.tasks.history import SequentialHistory
from agentflow.tasks.inputs import request_from_arguments


class SexpEvaluator:
    """Parses, checks and runs workflow programs.

    Parameters: ``task_system`` holds the atomic tasks, ``handler`` the tools (its ``registry``) and the session of
    calls made outside a run, ``memory_system`` answers ``get_context``. ``runs`` opens runs (default: a set of its own,
    with ``limits``); ``solver`` and ``workflows`` carry out ``solve`` and ``call-workflow``.
    """

    def __init__(
        self,
        task_system: Any,
        handler: Any,
        memory_system: Any,
        *,
        runs: Runs | None = None,
        limits: Limits | None = None,
        solver: SolverPort | None = None,
        workflows: WorkflowPort | None = None,
    ) -> None:
        tools = getattr(handler, "registry", None)
        if tools is None:
            raise ConfigurationError(
                f"SexpEvaluator: the handler {handler!r} has no tool registry (`registry`)", code="config/handler"
            )
        self.task_system = cast(TemplatePort, task_system)
        self.handler = handler
        self.memory_system = cast("MemoryPort | None", memory_system)
        self.runs = runs or Runs(services=lambda: self, limits=limits or Limits())
        self._cache = ProgramCache()
        self.performer = EffectRunner(
            tasks=self.task_system,
            tools=cast(ToolPort, tools),
            memory=self.memory_system,
            request_from_arguments=request_from_arguments,
            solver=solver,
            workflows=workflows,
        )

    async def evaluate_string(self, sexp_string: str, initial_env: SexpEnvironment | None = None) -> Any:
        """Run a program text and give its last value.

        ``initial_env`` is where top-level definitions go and free names are looked up; a new one when None. Called
        from inside a tool it joins that call's run; else it is a run of its own in the handler's session.
        Raises SexpSyntaxError, SexpEvaluationError, TaskError and LimitExceeded.
        """
        env = initial_env if initial_env is not None else SexpEnvironment()
        async with self.runs.open_call("evaluate_string", self.handler.session) as call:
            program = self.compile(sexp_string, env=env, grants=call.grants)
            place = call if call.is_ordered else call.at(call.next_path("program", program.source.digest))
            return await self.evaluate(program, env, place)

    def compile(
        self,
        program: str | Source | Program,
        *,
        env: SexpEnvironment | None = None,
        bindings: Iterable[str] = (),
        grants: frozenset[str] | None = None,
        limits: Limits | None = None,
    ) -> Program:
        """Check and compile a program text against the names known now.

        ``bindings`` are names the program will find bound; ``grants`` the only tasks and tools it may name.
        Raises SexpSyntaxError and SexpEvaluationError with the place.
        """
        limits = limits or self.runs.limits
        if isinstance(program, Program):
            same = program.allow == grants and (program.limits is limits or program.limits == limits)
            if same and program.fits(self._kinds(env, bindings)):
                return program
        source = program.source if isinstance(program, Program) else program
        return compile_program(
            source,
            kinds=self.performer.kind_of,
            limits=limits,
            allow=grants,
            env_names=_names(env, bindings),
            cache=self._cache,
        )

    def diagnostics(
        self,
        program: str | Source,
        *,
        bindings: Iterable[str] = (),
        grants: frozenset[str] | None = None,
    ) -> list[AgentflowError]:
        """All that is wrong with a program text, in order; nothing is run. Parameters as for :meth:`compile`."""
        return check_program(
            program,
            kinds=self.performer.kind_of,
            limits=self.runs.limits,
            allow=grants,
            env_names=_names(None, bindings),
        )

    def _kinds(self, env: SexpEnvironment | None, bindings: Iterable[str]) -> Callable[[str], Kind | None]:
        names = _names(env, bindings)
        return lambda name: "variable" if name in names else self.performer.kind_of(name)

    async def evaluate(self, program: Program, env: SexpEnvironment, call: CallContext) -> Any:
        """Run a compiled program in ``env`` at the place ``call`` of a run."""
        return await run_program(program, env, performer=self.performer, call=call, budget=budget_of(call))

    async def run_subtask(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run what a CONTINUATION asks for, where the Python stack is empty: a subtask may ask for the next."""
        return await on_fresh_task(self.task_system.run_subtask(request, call))  # pyright: ignore

    async def call_value(
        self, function: Any, arguments: tuple[Any, ...], call: CallContext, budget: Budget | None = None
    ) -> Any:
        """Call a Closure or Python callable with ``arguments`` at the place ``call``."""
        return await call_closure(
            function, arguments, performer=self.performer, call=call, budget=budget or budget_of(call)
        )

    def sequential_history(self, **options: Any) -> SequentialHistory:
        """A history for a sequence of steps driven from Python; see SequentialHistory."""
        return SequentialHistory(**options)


def _names(env: SexpEnvironment | None, bindings: Iterable[str]) -> frozenset[str]:
    return frozenset([*bindings, *(env.names() if env is not None else ())])


def budget_of(call: CallContext) -> Budget:
    """The budget of the run ``call`` belongs to; a fresh one when no runtime opened that run."""
    return call.run.budget if isinstance(call.run, Run) else Budget(call.run.limits)
