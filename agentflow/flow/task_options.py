"""The options of tasks and questions in Python, and the parts that run one of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast

from typing_extensions import TypedDict

from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import called_by_host
from agentflow.core.data.errors import TaskError
from agentflow.core.data.known_names import CompiledTask, Template
from agentflow.core.data.messages import Batching, Effort, PromptCache
from agentflow.core.data.source import Span
from agentflow.core.data.templates import Clear, ContextManagement, HistoryConfig
from agentflow.core.events.effects import TaskCall
from agentflow.core.ports.ports import USUAL_RULES, ModelMiddleware, Tool, ToolChooser, ToolMiddleware, TurnRules
from agentflow.core.ports.toolbox import NO_TOOLBOX, Toolbox
from agentflow.flow.line import Line
from agentflow.flow.python import Host
from agentflow.handler.tool_lists import duplicate, entry_of, read_handoffs
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import holds_values, no_reuse_key
from agentflow.lang.environment import SexpEnvironment
from agentflow.lib.option_table import CALLED, FIELDS, NAMES, Place, wrong_value
from agentflow.lib.signature import context_in, hints_of
from agentflow.tasks.from_function import Returns, check_by, deps_of, standing_for, system_by
from agentflow.tasks.template_registry import prepare_definition

R = TypeVar("R")
Check: TypeAlias = Callable[[Any, CallContext[Any]], Any] | Callable[[Any, Any, CallContext[Any]], Any]
"""Judges the answer of a task: of the value and the call, async or plain. Returns the value, changed or not, or raises Retry. In a
class it may be a method."""
_Tools: TypeAlias = "Sequence[Any] | Awaitable[Sequence[Any]]"
ToolsFunction: TypeAlias = Callable[[CallContext[Any]], _Tools] | Callable[[Any, CallContext[Any]], _Tools]
"""Returns the tools of the next turn for a call; async or plain, in a class also a method."""
_Text: TypeAlias = "str | Awaitable[str]"
SystemFunction: TypeAlias = Callable[[CallContext[Any]], _Text] | Callable[[Any, CallContext[Any]], _Text]
"""Returns the system prompt for a call; async or plain, in a class also a method."""


SkillsLike: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""A directory of skills, the folder of one skill, or several of these."""


class AskSettings(TypedDict, total=False):
    """The options that ``flow.ask`` and ``@flow.task`` share.

    ``model`` and ``fallbacks`` are names of models; ``system`` is the system prompt, sent after the flow's own: a text with
    ``{{slots}}``, or a function of the :class:`CallContext`, async or plain;
    ``tools`` are the tools that the model may call: functions, tasks, workflows, Tools, MCP servers, names of the flow's
    tools, or ``flow.tools`` for all of these; the default is none. A function of ``ctx`` that returns such a list is called
    before each turn. ``handoffs`` are the tasks, as functions, names or :class:`~agentflow.Handoff`,
    that it may hand the conversation over to. ``skills`` are directories of Agent Skills, folders with a ``SKILL.md``: the model
    reads their names and descriptions in its system prompt, and their texts with the tool ``read_skill``; ``[]`` leaves out the
    flow's own. ``provider_tools`` are tools of the provider itself, for
    example a web search. ``tool_choice`` is ``auto``, ``required``, ``none`` or the name of a tool, for the first turn, or with
    ``tool_choice_each`` for every one. ``check`` is called with each answer and the :class:`CallContext`: it returns the value,
    changed or not, or raises :class:`~agentflow.Retry` to have the model repair its answer, ``rounds`` times at most
    (default 1), those of a wrong type included. ``clear_tool_results`` says when old results of tools are cleared from the
    requests of a long loop (:class:`~agentflow.Clear`). ``max_turns`` bounds the model calls of the tool loop, ``max_output_tokens`` one answer;
    ``effort`` says how hard the model thinks, ``settings`` are request fields native to its dialect. ``timeout_s`` are the
    seconds for one attempt, ``retries`` the further attempts after a temporary failure: of a rate, a server or a
    connection, or an answer of the wrong form. ``history`` says whether the task takes part in the conversation (True: it
    sends earlier messages and adds its own; otherwise only if the call names a session), or sets its details one by one;
    ``context`` controls its reading material, ``file_paths`` are files to read every time. ``reuse="1d"`` is the maximum
    age of an equal call's result that may be reused, ``reuse_key`` identifies the state of closures and bound methods as
    tools, a changed ``version`` says that earlier results no longer apply, ``prompt_cache`` is how long the provider caches the prompt, ``priority`` (-1000 to 1000) the place of its
    calls among waiting ones, ``decompose`` the number of rounds that a model has to split the task by a program once it
    ran out of room. ``around_tool`` and ``around_model`` are async functions around the calls of its tools and of its model,
    within those of the flow and the run.
    """

    model: str
    fallbacks: Sequence[str]
    system: str | SystemFunction
    tools: Sequence[Any] | ToolRegistry | ToolsFunction
    handoffs: Sequence[Any]
    skills: SkillsLike
    provider_tools: Sequence[Mapping[str, Any]]
    tool_choice: str
    tool_choice_each: bool
    check: Check
    rounds: int
    clear_tool_results: Clear
    max_turns: int
    max_output_tokens: int
    effort: Effort
    settings: Mapping[str, Any]
    timeout_s: float
    retries: int
    history: HistoryConfig | Mapping[str, Any] | bool
    context: ContextManagement | Mapping[str, Any]
    file_paths: Sequence[str]
    reuse: str
    reuse_key: str
    version: str
    prompt_cache: PromptCache
    batch: Batching
    priority: int
    decompose: int
    around_tool: Sequence[ToolMiddleware]
    around_model: Sequence[ModelMiddleware]


class TaskSettings(AskSettings, total=False):
    """The options of a task: those of :class:`AskSettings`, and those of named tasks.

    ``name`` is the name of the task in programs, models and records, in place of the function's; ``description`` states its
    purpose, and ``subtype`` groups it: ``atomic:SUBTYPE`` finds the last one of it.
    """

    name: str
    description: str
    subtype: str


class Task(Generic[R]):
    """A task called from Python: its template, the type of its answer, and the number of attempts."""

    def __init__(self, host: Host, fields: Mapping[str, Any], returns: Returns[R], settings: TaskSettings) -> None:
        names, toolbox = tools_of(host, settings, f"task '{fields['name']}'")
        chosen = {
            "stateless": True,
            **fields,
            **returns.fields,
            **_fields(settings, fields["name"], returns, host),
            "tools": names,
        }
        self._template: CompiledTask = prepare_definition(chosen)
        if toolbox:
            self._template = self._template.with_tools(toolbox)
            from agentflow.tasks.handoffs import check_handoffs  # without tools there are none

            check_handoffs(self._template)
        self._env = _alone(self._template)
        self._returns = returns
        self._attempts = 1 + settings.get("retries", 0)

    @property
    def template(self) -> CompiledTask:
        """The template as the task system has it."""
        return self._template

    def given(self, toolbox: Toolbox) -> Task[R]:
        """This task with other tool objects of the same names."""
        task = cast("Task[R]", object.__new__(Task))
        task.__dict__.update(self.__dict__)
        task._template = self._template.with_tools(toolbox)
        task._env = _alone(task._template)
        return task

    async def work(self, line: Line, inputs: dict[str, Any], span: Span | None) -> R:
        """Run the task on a line and return its value. Raises the error of a FAILED result."""
        journal = line.strand.call.run.journal
        template: Template = self._template.conversing() if line.converses else self._template
        if journal is not None:
            template = journal.template(template)
        env = self._env if template is self._template else _alone(template)
        effect = TaskCall(template.name, inputs, env)

        async def once() -> R:
            return self._returns.read(await line.perform(effect, span))

        return await (once() if self._attempts == 1 else line.retry(self._attempts, once, span, _may_pass))


def _may_pass(error: BaseException | None) -> bool:
    return isinstance(error, TaskError) and error.may_pass


def _alone(template: Template) -> SexpEnvironment:
    """Definitions with this task alone: Python calls this one even if programs define another under its name."""
    env = SexpEnvironment()
    env.define_task(template)
    return env


_MOST_ROUNDS = 20
READS_DEPS = "may read the dependencies of a run"
HOLDS_VALUES = "is a closure, a bound method or a partial"


def check_options(settings: Mapping[str, Any], where: Place) -> None:
    """Raise ConfigurationError (``config/option``) for an option that does not exist at ``where``, or cannot have its value."""
    if not settings.keys() <= NAMES[where]:
        from agentflow.lib.option_hints import unknown_option

        raise unknown_option(settings, where)
    retries: object = settings.get("retries", 0)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise wrong_value(CALLED[where], "retries", retries, "is not a number of attempts", "0 or more: retries=2")
    rounds: object = settings.get("rounds", 1)
    if type(rounds) is not int or not 0 <= rounds <= _MOST_ROUNDS:
        raise wrong_value(
            CALLED[where], "rounds", rounds, "is not a number of repairs", f"0 to {_MOST_ROUNDS}: rounds=2"
        )
    if "clear_tool_results" in settings:
        clear: object = settings["clear_tool_results"]
        if not isinstance(clear, Clear):
            instead = "write clear_tool_results=Clear(after_tokens=50_000, keep=3)"
            raise wrong_value(CALLED[where], "clear_tool_results", clear, "is not a Clear", instead)
    if settings.get("reuse") is not None and settings.get("reuse_key") is None:
        for name in ("system", "check", "tools"):
            if callable(settings.get(name)):
                raise no_reuse_key(CALLED[where], f"its {name} function", READS_DEPS)


def tools_of(host: Host, settings: TaskSettings, label: str) -> tuple[list[str] | None, Toolbox]:
    """The names of the tools of a task, and the objects among them. Raises ConfigurationError."""
    names, toolbox = [], NO_TOOLBOX
    if "tools" in settings and not chooses_tools(settings["tools"]):
        names, toolbox = host.read_tools(settings["tools"], label)
    if "handoffs" in settings:
        others, own = read_handoffs(host.all_bound(settings["handoffs"]), label)
        names = None if names is None else [*names, *others]
        toolbox = toolbox.with_all(own) if own else toolbox
    skills = host.skills if "skills" not in settings else host.read_skills(settings["skills"], label)
    if skills is not None:
        if skills.name in toolbox or skills.name in (names or ()):
            raise duplicate(f"{label} has skills, so '{skills.name}' is offered", skills, toolbox.get(skills.name))
        names = None if names is None else [*names, skills.name]
        toolbox = toolbox.with_others(Toolbox([entry_of(skills)]))
    if not AROUND.isdisjoint(settings):
        toolbox = _with_middleware(toolbox, settings, label)
    if settings.get("reuse") is None:
        return names, toolbox
    key = settings.get("reuse_key")
    readers = [name for name, tool in toolbox.items() if tool.deps is not None]
    if readers and key is None:
        raise no_reuse_key(label, f"its tool '{readers[0]}'", READS_DEPS)
    holders = [name for name, tool in toolbox.items() if holds_values(tool.function)]
    if holders and key is None:
        raise no_reuse_key(label, f"its tool '{holders[0]}'", HOLDS_VALUES)
    return names, toolbox if key is None else toolbox.with_around(toolbox.around_tool, toolbox.around_model, key)


AROUND = frozenset({"around_tool", "around_model"})
"""The options of a task that hold middleware."""
SETTLED = AROUND | {"tools", "handoffs", "skills"}
"""The toolbox options of a task."""


def _with_middleware(toolbox: Toolbox, settings: TaskSettings, label: str) -> Toolbox:
    """A toolbox with the middleware of its task. Raises ConfigurationError."""
    from agentflow.core.ports.around import middleware_in, name_of

    around_tool, around_model = [
        middleware_in(name, settings.get(name), label) for name in ("around_tool", "around_model")
    ]
    functions, key = (*around_tool, *around_model), settings.get("reuse_key")
    if functions and settings.get("reuse") is not None and key is None:
        raise no_reuse_key(label, f"its middleware '{name_of(functions[0])}'", READS_DEPS)
    return toolbox.with_around(around_tool, around_model)


RULES = frozenset({"tools", "tool_choice_each", "check", "rounds", "clear_tool_results"})
"""The options of a task for its turns, ``tools`` where it is a function."""
_OURS = frozenset({"retries", "reuse_key", "handoffs", "skills", *AROUND, *RULES})
"""Options without a field in a template."""


def chooses_tools(tools: object) -> bool:
    """Whether the value of ``tools=`` is a function of ``ctx`` that chooses them."""
    if not callable(tools) or isinstance(tools, ToolRegistry | type):
        return False
    try:
        first = next(iter(inspect.signature(tools).parameters.values()), None)
    except ValueError:  # a callable without a signature
        return False
    return first is not None and (
        first.name == "ctx" or context_in(hints_of(tools, "tools=").get(first.name)) is not None
    )


def _tools_by(function: Any, host: Host, label: str) -> ToolChooser:
    """The chooser of a prompt from a host's function of the call. Raises ConfigurationError (``config/option``) for a function
    of other parameters."""
    deps = deps_of(function, 1, label, "tools", "def tools(ctx: CallContext) -> list")

    @standing_for(function)
    async def choose(call: CallContext) -> tuple[Sequence[str] | None, Mapping[str, Tool]]:
        call.require_deps(deps, f"the tools function of {label}")
        inner = call.at(call.marked_path("tools"))
        listed = await called_by_host(function, (inner,), inner, f"the tools function of {label}")
        return host.read_tools(listed, label)

    return choose


def _rules(settings: TaskSettings, name: str, returns: Returns[Any], host: Host) -> TurnRules | None:
    """The rules for the turns of the task called ``name``; None for the usual ones. Raises ConfigurationError."""
    label, tools = f"task '{name}'", settings.get("tools")
    rules = TurnRules(
        chooser=_tools_by(tools, host, label) if chooses_tools(tools) else None,
        choice_lasts=bool(settings.get("tool_choice_each")),
        check=check_by(settings["check"], returns, label) if "check" in settings else None,
        rounds=settings.get("rounds", 1),
        clear=settings.get("clear_tool_results"),
    )
    return None if rules == USUAL_RULES else rules


def _fields(settings: TaskSettings, name: str, returns: Returns[Any], host: Host) -> dict[str, Any]:
    """The fields of a template for the options of the task called ``name``."""
    fields: dict[str, Any] = {FIELDS.get(name, name): value for name, value in settings.items() if name not in _OURS}
    system = settings.get("system", "")
    if not isinstance(system, str):
        del fields["system"]
        fields["system_function"] = system_by(system, f"task '{name}'")
    if not RULES.isdisjoint(settings):
        fields["rules"] = _rules(settings, name, returns, host)
    return fields
