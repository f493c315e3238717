"""A run without a runtime: enough to evaluate programs with plain Python functions as tasks and tools."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.known_names import NameInfo, NameKind, ParameterInfo
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source
from agentflow.core.events.effects import (
    CallTool,
    CallWorkflow,
    Endorse,
    GetContext,
    HostCall,
    LogMessage,
    Solve,
    TaskCall,
    Timer,
)
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.program import Program, ProgramCache, compile_program
from agentflow.run.engine import run_program
from agentflow.run.run import WallClock
from agentflow.run.strand.budget import Budget
from tests.support.fakes import FakeRun


class KindsOf:
    """A Names port that knows the kind of each name in a table, and nothing more of it."""

    def __init__(self, kinds: Mapping[str, NameKind]) -> None:
        self.kinds = kinds

    def describe(self, name: str) -> NameInfo | None:
        return NameInfo(self.kinds[name]) if name in self.kinds else None

    def prepare(self, fields: Mapping[str, Any]) -> FakeTemplate:
        return FakeTemplate(dict(fields))

    def known_names(self) -> Iterable[str]:
        return self.kinds


@dataclass(frozen=True)
class FakeTemplate:
    """A template that is its fields."""

    fields: dict[str, Any]
    grants: frozenset[str] | None = None
    functions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.fields["name"]

    @property
    def info(self) -> NameInfo:
        return NameInfo("task", {name: ParameterInfo() for name in self.fields["params"]}, lenient=True)

    def granted(self, grants: frozenset[str] | None) -> FakeTemplate:
        return replace(self, grants=grants)


def signature_info(kind: NameKind, function: Callable[..., Any]) -> NameInfo:
    """What a call of a Python function takes, by its signature."""
    parameters = inspect.signature(function).parameters.values()
    named = {
        each.name: ParameterInfo(each.default is each.empty) for each in parameters if each.kind != each.VAR_KEYWORD
    }
    return NameInfo(kind, named, open=any(each.kind == each.VAR_KEYWORD for each in parameters))


class FakePerformer:
    """Tasks and tools are functions of keyword arguments; every effect is noted in ``effects``."""

    def __init__(
        self, tasks: dict[str, Callable[..., Any]] | None = None, tools: dict[str, Callable[..., Any]] | None = None
    ) -> None:
        self.tasks = dict(tasks or {})
        self.tools = dict(tools or {})
        self.effects: list[Any] = []
        self.keys: list[str] = []
        self.infos: dict[str, NameInfo] = {}
        self.logged: list[str] = []

    @property
    def names(self) -> FakePerformer:
        return self

    def describe(self, name: str) -> NameInfo | None:
        function = self.tasks.get(name) or self.tools.get(name)
        if function is None:
            return None
        if name not in self.infos:
            self.infos[name] = signature_info("task" if name in self.tasks else "tool", function)
        return self.infos[name]

    def prepare(self, fields: Mapping[str, Any]) -> FakeTemplate:
        return FakeTemplate(dict(fields))

    def known_names(self) -> Iterable[str]:
        return [*self.tasks, *self.tools]

    async def perform(self, effect: Any, call: CallContext) -> Any:
        self.effects.append(effect)
        self.keys.append(call.path)
        match effect:
            case TaskCall(name, arguments) | CallTool(name, arguments):
                if isinstance(effect, TaskCall):
                    call.run.charge_model_call()
                function = self.tasks.get(name) or self.tools.get(name)
                if function is None:
                    return TaskResult.complete(f"{name} {arguments}")
                value = function(**arguments)
                return TaskResult.of(await value if inspect.isawaitable(value) else value)
            case HostCall(function, arguments, name):
                try:
                    value = function(*arguments)
                    return await value if inspect.isawaitable(value) else value
                except Exception as error:
                    raise SexpEvaluationError(f"{name}: {error}", code="host/raised", span=call.span) from error
            case LogMessage(text):
                self.logged.append(text)
                return text
            case Endorse():
                return []
            case Timer():
                await asyncio.sleep(0)
                return []
            case GetContext(arguments):
                return [f"found:{arguments}"]
            case Solve() | CallWorkflow():
                return effect
        raise AssertionError(effect)


class FakeFlow:
    """Runs programs. ``env`` is kept from one to the next."""

    def __init__(
        self,
        *,
        tasks: dict[str, Callable[..., Any]] | None = None,
        tools: dict[str, Callable[..., Any]] | None = None,
        limits: Limits | None = None,
        bindings: dict[str, Any] | None = None,
        watched: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self.performer = FakePerformer(tasks, tools)
        self.env = SexpEnvironment(bindings)
        self.run = FakeRun(limits=self.limits, watched=watched, approve=True)
        self.budget = Budget(self.limits)
        self.cache = ProgramCache()
        self.session = Session()

    def names(self, env: SexpEnvironment | None = None) -> NamesInForce:
        """What free names of a program in ``env`` are."""
        return NamesInForce(self.performer.names, env or self.env, env or self.env)

    def compile(
        self, text: Source | str, allow: Iterable[str] | None = None, env: SexpEnvironment | None = None
    ) -> Program:
        return compile_program(
            text,
            names=self.names(env),
            limits=self.limits,
            allow=allow,
            cache=self.cache,
        )

    async def __call__(
        self, text: str | Program, *, allow: Iterable[str] | None = None, env: SexpEnvironment | None = None
    ) -> Any:
        """Evaluate a program with a fresh budget."""
        self.budget = Budget(self.limits)
        grants = frozenset(allow) if allow is not None else None
        env = env or self.env
        program = self.compile(text, grants, env) if isinstance(text, str) else text
        call = CallContext(self.run, session=self.session, grants=grants)
        async with WallClock(self.budget):
            return await run_program(
                program, env, performer=self.performer, call=call, budget=self.budget, programs=self.cache
            )


async def evaluate(text: str, **options: Any) -> Any:
    """The value of a program in a flow of its own."""
    return await FakeFlow(**options)(text)
