"""Runs a program once, with everything real except the effects behind the ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ASK, PUBLISH, SIGNAL, CompiledTask
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.data.templates import HOST_FUNCTIONS
from agentflow.core.data.values import to_json
from agentflow.core.events.effects import (
    AwaitSignal,
    CallTool,
    CallWorkflow,
    Draw,
    Effect,
    HostCall,
    Solve,
    Step,
    TaskCall,
)
from agentflow.core.events.questions import Question
from agentflow.core.ports.ports import Tool
from agentflow.executors.note_tools import NOTE_TOOLS
from agentflow.executors.system_tools import SystemTools
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.exploration.constants import Constants, constants_of
from agentflow.exploration.outcomes import Values
from agentflow.exploration.python_constants import constants_of_python
from agentflow.exploration.rehearsal_ports import (
    RehearsedCommands,
    RehearsedFiles,
    RehearsedMemory,
    RehearsedPrompts,
    Stage,
    failure,
)
from agentflow.exploration.stand_ins import Answer, Answers, AnswerShape, branch_of
from agentflow.handler.data_context import DataContexts
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.passes.arms import Arm, mark_arms
from agentflow.lang.passes.python_arms import mark_python_arms
from agentflow.lang.program import compile_program
from agentflow.lang.words import TOOL_FORMS, WORDS
from agentflow.run.engine import Engine
from agentflow.run.questions import asked_form
from agentflow.run.run_spec import RunSpec
from agentflow.run.strand.perform import EffectRunner
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService
from agentflow.tasks.template import request_from_arguments
from agentflow.tasks.template_registry import CompiledTemplate

STEPS = 20_000
EFFECTS = 60


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The surroundings of a rehearsed program.

    ``bindings`` are its variables; ``templates`` are the tasks of the flow, ``tools`` its tools, which are never called; ``grants``
    are the only names it may call (None: all). ``assumed`` has additional schema rules for values of fields, tasks and tools.
    """

    bindings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    templates: tuple[CompiledTask, ...] = ()
    tools: tuple[Tool, ...] = ()
    grants: frozenset[str] | None = None
    assumed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


@frozen
class Trial:
    """One run: the times it reached each arm, its outcome, and the number of its effects."""

    reached: Mapping[int, int]
    value: Any
    error: AgentflowError | None
    effects: int


class Rehearsal:
    """A program prepared for repeated runs. Raises the errors of its text.

    ``arms`` are its arms, ``constants`` those of its text, ``values`` generates answers for it.
    """

    def __init__(self, source: Source, setting: Setting) -> None:
        self.source = source
        self.setting = setting
        self._stage = Stage()
        tools = ToolRegistry(words=WORDS)
        files, memory, commands = (
            RehearsedFiles(self._stage),
            RehearsedMemory(self._stage),
            RehearsedCommands(self._stage),
        )
        tasks = TaskService(
            AtomicTaskExecutor(RehearsedPrompts(self._stage, tools), files), memory, commands=commands, words=WORDS
        )
        tasks.publish([_without_code(template) for template in setting.templates])
        for tool in SystemTools(memory, files, commands, DataContexts(memory, files)).tools():
            tools.add(replace(tool, approval=False))
        for spec, returns in NOTE_TOOLS.values():
            tools.add(self._stand_in(Tool(spec=spec, call=_never, builtin=True, returns=returns)))
        for tool in setting.tools:
            tools.add(self._stand_in(tool))
        effects = _RehearsedEffects(
            tasks=tasks,
            tools=tools,
            memory=memory,
            request_from_arguments=request_from_arguments,
            stage=self._stage,
        )
        self._engine = Engine(tasks, tools, effects=effects, answerer=self._answered)
        self.arms: list[Arm] = []
        self.constants = Constants()
        self._counts: list[int] = []
        self._program = compile_program(
            source,
            names=self._engine.names(SexpEnvironment(dict(setting.bindings))),
            limits=self._engine.limits,
            allow=setting.grants,
            passes=[self._prepare],
        )
        self.values = Values(self.constants, setting.assumed)

    async def run(self, answers: Answers, *, steps: int = STEPS, effects: int = EFFECTS) -> Trial:
        """Run the program once with these answers, within ``steps`` and ``effects``, which are limits on both."""
        self._stage.begin(answers)
        self._counts[:] = [0] * len(self.arms)
        spec = RunSpec(limits=Limits(steps=steps, effects=effects))
        value, error, used = None, None, 0
        try:
            opened = self._engine.open(self.source.name, spec, grants=self.setting.grants, quiet=True)
            async with opened as (run, call):
                try:
                    environment = SexpEnvironment(dict(self.setting.bindings))
                    value = await self._engine.evaluate(self._program, environment, call, fitted=True)
                finally:
                    used = run.budget.effects_used
        except AgentflowError as raised:
            error = raised
        return Trial({arm: count for arm, count in enumerate(self._counts) if count}, value, error, used)

    def _prepare(self, source: Source, tree: Any) -> None:
        if source.surface == "python":
            self.constants = constants_of_python(tree.tree)
            self.arms = mark_python_arms(tree, self._reach)
        else:
            self.constants = constants_of(tree)
            self.arms = mark_arms(source, tree, self._reach)
        self._counts = [0] * len(self.arms)

    def _reach(self, arm: int) -> None:
        self._counts[arm] += 1

    def _stand_in(self, tool: Tool) -> Tool:
        """A tool with the same parameters that returns chosen answers."""
        schema = tool.facts().returns or {}

        async def call(arguments: dict[str, Any], _: CallContext) -> Any:
            return _result(await self._stage.ask(AnswerShape(schema)))

        return replace(
            tool,
            call=call,
            kind="direct",
            validates=False,
            timeout_s=None,
            retries=0,
            approval=False,
            prepare=None,
            reuse=None,
        )

    async def _answered(self, question: Question) -> Any:
        """The chosen answer to a question of the program. Raises SexpEvaluationError for an unanswered one."""
        answer = await self._stage.ask(AnswerShape(question.schema or {"type": "string"}))
        if answer.kind == "fails":
            raise SexpEvaluationError("nobody answers", code="question/unanswered", details={"rehearsed": answer.name})
        return answer.value


def _without_code(compiled: CompiledTask) -> CompiledTemplate:
    """A task that calls no function of the host."""
    own = cast(CompiledTemplate, compiled)
    functions = [name for name in HOST_FUNCTIONS if getattr(own.template, name) is not None]
    if not functions:
        return own
    without = {**dict.fromkeys(functions), **({"prompt_function": _prompt} if "prompt_function" in functions else {})}
    return replace(own, template=own.template.model_copy(update=without))


async def _prompt(values: Mapping[str, Any], call: CallContext) -> str:
    return "The prompt of the host's function."


async def _never(arguments: dict[str, Any], call: CallContext) -> Any:
    raise AssertionError("the stand-in for the tool replaces this")


def _result(answer: Answer) -> TaskResult:
    """The result of a tool, or of writing or saving a program."""
    if answer.kind == "fails":
        return TaskResult.from_error(failure(answer.name))
    if isinstance(answer.value, str):
        return TaskResult.complete(answer.value)
    return TaskResult.complete(to_json(answer.value), answer.value)


@dataclass(frozen=True)
class _RehearsedEffects(EffectRunner):
    """Performs effects through ports that touch nothing; performs those without a port itself."""

    stage: Stage = field(default_factory=Stage)

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        token = self.stage.asking.set((_name(effect), branch_of(call.path)))
        try:
            match effect:
                case HostCall() | Step():
                    answer = await self.stage.ask(AnswerShape({}))
                    if answer.kind == "fails":
                        raise failure(answer.name)
                    return answer.value
                case Solve() | CallWorkflow():
                    return _result(await self.stage.ask(AnswerShape({})))
                case Draw():
                    return await self._drawn(effect)
                case AwaitSignal():
                    schema = {"type": "string"} if effect.schema is None else asked_form(effect.schema, call, SIGNAL)
                    return (await self.stage.ask(AnswerShape(schema, fails=False))).value
                case _:
                    return await super().perform(effect, call)
        except AgentflowError as error:
            error.at(call.span)
            raise
        finally:
            self.stage.asking.reset(token)

    async def _drawn(self, effect: Draw) -> Any:
        match effect.source:
            case "now":
                return 1_700_000_000.0
            case "uuid":
                return "00000000-0000-4000-8000-000000000000"
            case "random":
                most = None if effect.below is None else effect.below - 1
                drawn = [0.5, 0.0, 0.999] if most is None else sorted({0, most // 2, most})
                return (await self.stage.ask(AnswerShape({"enum": drawn}, fails=False, late=False))).value


def _name(effect: Effect) -> str:
    """The name of an effect in answers and findings."""
    match effect:
        case TaskCall() | CallTool():
            return effect.name
        case CallWorkflow():
            return f"workflow {effect.name}"
        case HostCall() | Step():
            return effect.name or getattr(effect.function, "__name__", "a function of the host")
        case _:
            return _FORMS.get(type(effect).__name__, type(effect).__name__)


_FORMS: Mapping[str, str] = {
    "AskHuman": ASK,
    "AwaitSignal": SIGNAL,
    "Publish": PUBLISH,
    "GetContext": "get_context",
    "Solve": "solve",
    "Draw": "random",
}


def tools_of(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """The tools of a flow, without the system tools, which are rehearsed as they are."""
    return tuple([tool for tool in tools if tool.name not in SCHEMAS and tool.name not in TOOL_FORMS])
