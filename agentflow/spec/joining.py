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
from agentflow.core.ports import ContextFinder, Prompt, PromptOutcome, PromptRunner, TemplatePort, ToolPort
from agentflow.core.session import Session
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.runtime.engine import Engine
from agentflow.tasks.prompt_runners import NoPrompts


def executing_call() -> CallContext | None:
    """The call whose tool or host callable is executing here; None outside of a run."""
    return current_call.get()


@contextlib.asynccontextmanager
async def in_run(engine: Engine, name: str, session: Session | None = None) -> AsyncGenerator[CallContext, None]:
    """The call that is executing, when there is one; else a run of its own around the block, in ``session``.

    Raises SessionBusy when a run of its own finds ``session`` in use.
    """
    call = executing_call()
    if call is not None:
        yield call
        return
    async with engine.open(name, session=session) as (_, call):
        yield call


class LatePrompts:
    """Runs the prompts of a task system that was built before the handler which answers them."""

    def __init__(self, runner: PromptRunner | None = None) -> None:
        self.runner = runner

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Run a prompt with what is there by now. Raises ConfigurationError when there is nothing yet."""
        return await (self.runner or NoPrompts()).run_prompt(prompt, call)


class Joint:
    """The engine that faces share, and what it is made of.

    Parameters: ``tasks``, ``tools`` and ``memory`` are what programs use; ``late`` the prompts that a handler may still
    bring; ``limits`` those of its runs; ``engine`` the flow's, which has all of it.
    """

    def __init__(
        self,
        tasks: TemplatePort,
        tools: ToolPort | None = None,
        memory: ContextFinder | None = None,
        *,
        late: LatePrompts | None = None,
        limits: Limits | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.tasks = tasks
        self.tools = tools
        self.memory = memory
        self._late = late
        self._limits = limits
        self._engine = engine

    @property
    def engine(self) -> Engine:
        """The engine over what has joined so far."""
        if self._engine is None:
            self._engine = Engine(self.tasks, self.tools or ToolRegistry(), self.memory, limits=self._limits)
        return self._engine

    def shares(self, other: Joint) -> bool:
        """Whether both stand for one engine."""
        return other is self or (self._engine is not None and other._engine is self._engine)

    def take(self, tools: ToolPort, prompts: PromptRunner, limits: Limits | None = None) -> bool:
        """Let a handler's tools and prompts join. Whether they did: the first handler's do."""
        if self._late is None or self.tools is not None:
            return False
        self.tools = tools
        self._late.runner = self._late.runner or prompts
        self._limits = limits or self._limits
        self._engine = None
        return True
