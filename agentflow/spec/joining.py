"""Decides which run a public method belongs to, and which engine opens it.

A method called from inside a tool or host callable joins the executing run; elsewhere it opens a run. The faces of a
flow are passed its engine. Faces built by hand, in the specification's order, share one through a :class:`Joint`: the
task system comes first, without a way to run prompts; the handler built on it adds that and the tools; an evaluator
built on both finds everything there. This is the only late join, and it happens only here.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from agentflow.core.call import CallContext
from agentflow.core.executor_ports import CommandPort, FilePort
from agentflow.core.host_code import executing
from agentflow.core.limits import Limits
from agentflow.core.memory_ports import ContextFinder
from agentflow.core.ports import PromptRunner, TemplatePort, ToolPort
from agentflow.core.session import Session
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.lang.card import language_card
from agentflow.runtime.engine import Engine
from agentflow.runtime.line import in_turn
from agentflow.tasks.granted import GrantedNames
from agentflow.tasks.service import TaskService
from agentflow.tasks.solve import Solver


@contextlib.asynccontextmanager
async def in_run(engine: Engine, name: str, session: Session | None = None) -> AsyncGenerator[CallContext, None]:
    """Yield the executing call, if there is one; otherwise open a run in ``session`` for the block.

    In a run of another engine (one flow used by a tool of another) the block is a part of that run, executed by this
    engine. In the code of a Python workflow it is one of its calls. Raises SessionBusy if a new run finds ``session`` in
    use, PythonOverlap.
    """
    call, line = executing()
    if call is None:
        async with engine.open(name, session=session) as (_, call):
            yield call
    else:
        with in_turn(line, name):
            async with engine.called_back(call):
                if call.run.services is engine:
                    yield call
                else:
                    yield engine.join(call, call.next_path(name), session=call.session)[1]


class Joint:
    """The engine that several faces share, and its parts.

    Parameters: ``tasks``, ``tools`` and ``memory`` for programs (None: the tools of a handler that joins later);
    ``limits`` of its runs; ``engine`` the flow's, which has all of these. ``session`` is the conversation of the first
    handler that joins.
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
        self.session: Session | None = None
        self._limits = limits
        self._engine = engine
        self._engine_given = engine is not None

    @property
    def engine(self) -> Engine:
        """The engine, built from the parts that have joined so far."""
        if self._engine is None:
            tools, solver = self.tools or ToolRegistry(), None
            if isinstance(self.tasks, TaskService):
                solver = Solver(self.tasks.executor, language_card, GrantedNames(self.tasks, tools))
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
