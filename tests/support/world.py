"""The language without the rest of the house: a performer whose effects are immediate, and one call to run a text."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.events.effects import CallTool, Effect, GetContext, HostCall, LogMessage, TaskCall, Timer
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.program import ProgramCache, compile_program
from agentflow.run.engine import run_program
from agentflow.run.strand.budget import Budget
from agentflow.tasks.template_registry import CompiledTemplate, prepare_definition
from tests.support.fakes import FakeRun

Tool = Callable[[dict[str, Any]], Any]
TOOL = NameInfo("tool", {}, open=True)


def _shout(arguments: dict[str, Any]) -> TaskResult:
    text = arguments.get("text", "")
    return TaskResult.of((text.content if isinstance(text, TaskResult) else str(text)).upper())


def _broken(arguments: dict[str, Any]) -> TaskResult:
    return TaskResult.failure("tool_execution_error", "this tool is broken")


class World:
    """A performer: ``tools`` by name (``shout`` and ``broken`` when None), any ``defatom`` is answered by its prompt.

    ``effects`` records what was asked for, in order; ``programs`` keeps what was compiled, if it is wanted again.
    """

    def __init__(self, tools: Mapping[str, Tool] | None = None, programs: ProgramCache | None = None) -> None:
        self.tools = dict(tools if tools is not None else {"shout": _shout, "broken": _broken})
        self.programs = programs
        self.effects: list[Effect] = []

    @property
    def names(self) -> World:
        return self

    def describe(self, name: str) -> NameInfo | None:
        return TOOL if name in self.tools else None

    def prepare(self, fields: Mapping[str, Any]) -> CompiledTemplate:
        return prepare_definition(fields)

    def known_names(self) -> Iterable[str]:
        return self.tools

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        self.effects.append(effect)
        await asyncio.sleep(0)
        match effect:
            case CallTool():
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
        text: str | Source,
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
        names, cache = NamesInForce(self, env, env), self.programs
        source = text if isinstance(text, Source) else Source(name, text)
        program = compile_program(source, names=names, limits=limits, allow=granted, cache=cache)
        call = FakeRun(limits=limits, watched=False).call(grants=granted)
        return await run_program(program, env, performer=self, call=call, budget=Budget(limits), programs=cache)
