"""SexpEvaluator: the specification's entry to the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentflow.core.call.call import executing_call
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.known_names import Template, narrowed
from agentflow.core.data.source import Source
from agentflow.core.ports.memory_ports import MemoryPort
from agentflow.core.ports.ports import Observer
from agentflow.flow.python import in_run
from agentflow.lang.environment import SexpEnvironment
from agentflow.run.engine import Engine
from agentflow.run.handle import Account, RunResult, account_of
from agentflow.run.run import new_run_id
from agentflow.run.run_stream import OwnReader, RunStream
from agentflow.run.sending import FlowSender
from agentflow.run.strand.budget import budget_of
from agentflow.spec.argument_types import check_argument
from agentflow.spec.handler import BaseHandler
from agentflow.spec.host_tasks import LOOKED_UP, RUN, check_double
from agentflow.spec.joining import Face, House, Joint, Parts
from agentflow.spec.task_system import TaskSystem
from agentflow.spec.wiring import parts_of
from agentflow.tasks.step_history import SequentialHistory


class SexpEvaluator(Face):
    """Parses, checks and runs workflow programs.

    Parameters: ``task_system`` holds the atomic tasks, ``handler`` the tools (its ``registry``) and the session of calls
    made outside a run, ``memory_system`` answers ``get_context``. ``engine`` is the flow's; without it the evaluator shares
    the engine of the two, or builds its own. All three may be assigned later, and may be the host's own objects: missing
    methods are reported when the evaluator is built (``config/part``, ``config/handler``).
    """

    parts = frozenset({"task_system", "handler", "memory_system"})

    def __init__(
        self, task_system: Any, handler: Any, memory_system: MemoryPort | None, *, engine: Engine | None = None
    ) -> None:
        self.task_system = task_system
        self.handler = handler
        self.memory_system = memory_system
        self._house = House()
        self.joint = Joint(self._home, self._found, engine)
        if engine is None:
            if isinstance(task_system, TaskSystem) and isinstance(handler, BaseHandler):
                task_system.adopt(handler)
            self._found()  # an unfit part is refused now

    def _home(self) -> House:
        return self.task_system.house if isinstance(self.task_system, TaskSystem) else self._house

    def _found(self) -> Parts | Engine:
        """The flow's engine if all three are the flow's; else the parts of these three."""
        system, handler, memory = self.task_system, self.handler, self.memory_system
        tools = getattr(handler, "registry", None)
        if tools is None:
            raise ConfigurationError(
                f"SexpEvaluator: the handler {handler!r} has no tool registry (`registry`)",
                code="config/handler",
                hint="subclass BaseHandler, or give the object a ToolRegistry as `registry`",
            )
        if not isinstance(system, TaskSystem):
            check_double(system)
            return parts_of(system, handler, memory, own=(*LOOKED_UP, *RUN), lookups=memory)
        engine = system.joint.given
        if engine is not None and engine.tools is tools and system.memory_system is memory:
            return engine
        return system.parts_with(handler, memory)

    async def evaluate_string(
        self, sexp_string: str, initial_env: SexpEnvironment | Mapping[str, Any] | None = None
    ) -> Any:
        """Run a program text and return its last value.

        ``initial_env`` receives top-level definitions and resolves free names; None means a new one, and a mapping a new
        one with these bindings. Called from inside
        a tool it joins that call's run; otherwise it opens a run in the handler's session, and the tasks it defines are
        also registered with the task system.
        Raises SexpSyntaxError, SexpEvaluationError, TaskError and LimitExceeded.
        """
        return await self.evaluate(sexp_string, initial_env)

    async def evaluate(
        self, program: str | Source, initial_env: SexpEnvironment | Mapping[str, Any] | None = None
    ) -> Any:
        """:meth:`evaluate_string` of a program in either surface."""
        _check(program, initial_env)
        return (await self._run(program, initial_env, None)).value

    def stream(
        self, program: str | Source, initial_env: SexpEnvironment | Mapping[str, Any] | None = None
    ) -> RunStream[Any]:
        """Run a program and watch it: ``async with evaluator.stream(text) as run: async for event in run: ...``.

        Parameters as for :meth:`evaluate_string`. ``await run.value()`` gives the value or raises the program's error, ``run.account``
        the tokens and the cost so far. Leaving the block cancels the run.
        """
        _check(program, initial_env)
        return RunStream(
            lambda own: self._run(program, initial_env, own), run_id=new_run_id(), sender=FlowSender(self.joint.engine)
        )

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Send every event of every later run of this evaluator, and of the faces it is wired with, to ``observer``, plain
        or async.

        Call the returned function to end this. An evaluator of a flow watches the flow's runs.
        """
        return self.joint.subscribe(observer)

    async def _run(
        self, program: str | Source, initial_env: SexpEnvironment | Mapping[str, Any] | None, own: OwnReader | None
    ) -> RunResult[Any]:
        env = initial_env if isinstance(initial_env, SexpEnvironment) else SexpEnvironment(initial_env)
        engine = self.joint.engine
        inside = executing_call() is not None
        async with in_run(engine, "evaluate_string", self.handler.session, own) as call:
            grants = narrowed(call.grants, call.held)
            compiled = await engine.compiler.compiled(
                program, env=env, grants=grants, defined=call.definitions, budget=budget_of(call)
            )
            child = call
            if grants != call.grants or not call.is_ordered:
                child = call.at(call.next_path("program", compiled.source.digest), grants=grants)

            def publish(template: Template) -> None:
                engine.effects.publish([template], call)

            value = await engine.evaluate(compiled, env, child, publish=None if inside else publish)
        account = Account() if own is None or own.run is None else account_of(own.run)
        return RunResult(value, account.usage, account.cost, account.run_id, account.steps)

    def sequential_history(self, **options: Any) -> SequentialHistory:
        """A history for a sequence of steps run from Python; see SequentialHistory."""
        return SequentialHistory(**options)


def _check(program: object, initial_env: object) -> None:
    check_argument("evaluate_string", "sexp_string", program, str, Source)
    check_argument("evaluate_string", "initial_env", initial_env, SexpEnvironment, Mapping, optional=True)
