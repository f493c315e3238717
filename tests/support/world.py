"""The language without the rest of the house: a performer whose effects are immediate, and one call to run a text."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from agentflow.core.call import CallContext
from agentflow.core.effects import Effect, GetContext, HostCall, LogMessage, TaskCall, Timer, ToolCall
from agentflow.core.limits import Limits
from agentflow.core.results import TaskResult
from agentflow.core.source import Source
from agentflow.core.templates import TaskTemplate
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import compile_program
from agentflow.runtime.budget import Budget
from agentflow.runtime.entry import run_program
from tests.support.fakes import FakeRun

Tool = Callable[[dict[str, Any]], Any]


def _shout(arguments: dict[str, Any]) -> TaskResult:
    return TaskResult.of(str(arguments.get("text", "")).upper())


def _broken(arguments: dict[str, Any]) -> TaskResult:
    return TaskResult.failure("tool_execution_error", "this tool is broken")


class World:
    """A performer: ``tools`` by name (``shout`` and ``broken`` when None), any ``defatom`` is answered by its prompt.

    ``effects`` records what was asked for, in order.
    """

    def __init__(self, tools: Mapping[str, Tool] | None = None) -> None:
        self.tools = dict(tools if tools is not None else {"shout": _shout, "broken": _broken})
        self.tasks: dict[str, TaskTemplate] = {}
        self.effects: list[Effect] = []

    def kind_of(self, name: str, grants: frozenset[str] | None = None) -> Literal["task", "tool"] | None:
        if grants is not None and name not in grants:
            return None
        return "task" if name in self.tasks else "tool" if name in self.tools else None

    def known_names(self) -> Iterable[str]:
        return [*self.tasks, *self.tools]

    def define_task(self, template: TaskTemplate, call: CallContext) -> None:
        self.tasks[template.name] = template

    def parameters_of(self, name: str) -> Sequence[str] | None:
        return list(self.tasks[name].params) if name in self.tasks else None

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        self.effects.append(effect)
        await asyncio.sleep(0)
        match effect:
            case ToolCall():
                return self.tools[effect.name](effect.arguments)
            case TaskCall():
                return TaskResult.of(f"answer of {effect.name}")
            case HostCall():
                value = effect.function(*effect.arguments)
                return await value if inspect.isawaitable(value) else value
            case LogMessage():
                return effect.text
            case GetContext() | Timer():
                return []
            case _:
                return TaskResult.of("done")

    async def run(
        self,
        text: str,
        env: SexpEnvironment | None = None,
        *,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        name: str = "<string>",
    ) -> Any:
        """The value of a program text in ``env``. Raises what the program raises."""
        limits = limits or Limits()
        env = env if env is not None else SexpEnvironment()
        granted = frozenset(allow) if allow is not None else None
        program = compile_program(
            Source(name, text), kinds=self.kind_of, limits=limits, allow=granted, env_names=list(env.names())
        )
        call = FakeRun(limits=limits, watched=False).call(grants=granted)
        return await run_program(program, env, performer=self, call=call, budget=Budget(limits))
