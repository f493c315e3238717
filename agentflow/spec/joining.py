"""Which run a public method belongs to, and which engine opens it.

A method called from inside a tool or host callable joins the run that is executing; outside it opens a run of its own.
The faces of a flow are given its engine. Faces built by hand, in the specification's order, share one through a
:class:`Joint`: a task system comes first and knows nobody to run prompts with, the handler built on it brings that and
the tools, and an evaluator built on both finds everything there. That is the one late join, and it is made here only.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from agentflow.core.call import CallContext, current_call
from agentflow.core.limits import Limits
from agentflow.core.ports import CommandPort, ContextFinder, FilePort, PromptRunner, TemplatePort, ToolPort
from agentflow.core.session import Session
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.lang.card import language_card
from agentflow.runtime.engine import Engine
from agentflow.tasks.service import TaskService
from agentflow.tasks.solve import Solver


def executing_call() -> CallContext | None:
    """The call whose tool or host callable is executing here; None outside of a run."""
    return current_call.get()


@contextlib.asynccontextmanager
async def in_run(engine: Engine, name: str, session: Session | None = None) -> AsyncGenerator[CallContext, None]:
    """The call that is executing, when there is one; else a run of its own around the block, in ``session``.

    In a run of another engine (a flow that is used by another's tool) it is a part of that run, done by this engine.
    Raises SessionBusy when a run of its own finds ``session`` in use.
    """
    call = executing_call()
    if call is None:
        async with engine.open(name, session=session) as (_, call):
            yield call
    elif call.run.services is engine:
        yield call
    else:
        yield engine.join(call, call.next_path(name), session=call.session)[1]


class Joint:
    """The engine that faces share, and what it is made of.

    Parameters: ``tasks``, ``tools`` and ``memory`` are what programs use (no tools: those of a handler that joins later);
    ``limits`` those of its runs; ``engine`` the flow's, which has all of it.
    """

    def __init__(
        self,
        tasks: TemplatePort,
        tools: ToolPort | None = None,
        memory: ContextFinder | None = None,
        *,
        limits: Limits | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.tasks = tasks
        self.tools = tools
        self.memory = memory
        self._limits = limits
        self._engine = engine
        self._engine_given = engine is not None

    @property
    def engine(self) -> Engine:
        """The engine over what has joined so far."""
        if self._engine is None:
            tools, solver = self.tools or ToolRegistry(), None
            if isinstance(self.tasks, TaskService):
                solver = Solver(self.tasks.executor, language_card(), self.tasks, tools)
            self._engine = Engine(self.tasks, tools, self.memory, solver=solver, limits=self._limits)
        return self._engine

    def take(
        self,
        tools: ToolPort,
        prompts: PromptRunner,
        files: FilePort | None,
        commands: CommandPort | None,
        limits: Limits | None = None,
    ) -> None:
        """Let what the first handler of a task system has join; what another has does not."""
        if self._engine_given or self.tools is not None or not isinstance(self.tasks, TaskService):
            return
        self.tasks.supply(prompts, files, commands)
        self.tools = tools
        self._limits = limits or self._limits
        self._engine = None
