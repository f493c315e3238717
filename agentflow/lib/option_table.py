"""The options of tasks and tools: one closed table.

``TaskSettings``, ``ToolSettings``, the stub of workflow texts and the pages repeat rows for type checkers and readers;
tests compare them with the table. ``@task`` of workflow texts, ``defatom`` and the hints read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, cast

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.lib.text.suggest import did_you_mean

T = TypeVar("T")
Place: TypeAlias = Literal["task", "ask", "text", "atom", "tool"]
"""Where an option may stand: ``@flow.task`` and ``with_options``; ``flow.ask``; ``@task`` of a workflow text in Python;
``defatom``; ``@tool`` and ``@flow.tool``."""

CALLED: Mapping[Place, str] = MappingProxyType(
    {"task": "@flow.task", "ask": "flow.ask", "text": "@task", "atom": "defatom", "tool": "@tool"}
)
"""How messages and pages call a place."""


@frozen
class Option:
    """One option: its name, its type as annotations write it, the places where it may stand, and its effect.

    ``field`` is its name as a field of a template, if different; ``atom`` its name in ``defatom``.
    """

    name: str
    kind: str
    places: tuple[Place, ...]
    effect: str
    field: str = ""
    atom: str = ""


_PROMPTS: tuple[Place, ...] = ("task", "ask", "text", "atom")
_PYTHON: tuple[Place, ...] = ("task", "ask")
_NAMED: tuple[Place, ...] = ("task", "text", "atom")

# A closed table: a misspelt option is an error that names the intended one (decision 29)
OPTIONS: tuple[Option, ...] = (
    Option("name", "str", ("task",), "the task's name for programs, models and records; else the function's"),
    Option("model", "str", _PROMPTS, "the model, as `dialect:name`; else the flow's"),
    Option("fallbacks", "Sequence[str]", _PYTHON, "models to try after it, in order"),
    Option("system", "str | SystemFunction", _PYTHON, "the system prompt, with `{{slots}}` of the parameters, or a function of `ctx` that returns it; it follows the flow's own"),
    Option("system", "str", ("text", "atom"), "the system prompt, with `{{slots}}` of the parameters; it follows the flow's own"),
    Option("output", "type", ("ask",), "the type of the answer: `str` unless it says so"),
    Option("session", "Session | None", ("ask",), "a conversation to continue"),
    Option("purse", "str | None", ("ask",), "the purse that pays, where the question is a run of its own"),
    Option("deps", "Any", ("ask",), "the dependencies of its tools, `ctx.deps`, in place of the run's"),
    Option("tools", "Sequence[Any] | ToolRegistry | ToolsFunction", _PYTHON, "tools of the model: functions, tasks, workflows, names, or `flow.tools` for all; or a function of `ctx` that returns such a list before each turn"),
    Option("tools", "Sequence[Any] | ToolRegistry", ("text", "atom"), "tools of the model: functions, tasks, workflows, names, or `flow.tools` for all"),
    Option("handoffs", "Sequence[Any]", _PYTHON, "the tasks that the model may hand the conversation over to, as `transfer_to_NAME`: tasks, names, `Handoff`s"),
    Option("skills", "SkillsLike", _PYTHON, "directories of skills (`SKILL.md`), which the model reads with the tool `read_skill`; `[]` for none of the flow's"),
    Option("provider_tools", "Sequence[Mapping[str, Any]]", _PROMPTS, "tools that the provider runs, such as a web search"),
    Option("tool_choice", "str", _PYTHON, "which tool the first turn must call: `auto`, `required`, `none` or a name"),
    Option("tool_choice_each", "bool", _PYTHON, "`tool_choice` holds for every turn, not for the first alone"),
    Option("check", "Check", _PYTHON, "a function of `(value, ctx)` that returns the answer, changed or not, or raises `Retry`"),
    Option("rounds", "int", _PYTHON, "how often the model may repair an answer that misses its type or that `check` refuses; 1 by default"),
    Option("clear_tool_results", "Clear", _PYTHON, "when old tool results are cleared from the requests of a long loop: `Clear(after_tokens=50_000)`"),
    Option("max_turns", "int", _PROMPTS, "model calls of the tool loop, at most", atom="max-turns"),
    Option("max_output_tokens", "int", _PROMPTS, "tokens of one answer, at most", atom="max-output-tokens"),
    Option("effort", "Effort", _PROMPTS, "how hard the model thinks: `none`, `low`, `medium`, `high` or `max`"),
    Option("settings", "Mapping[str, Any]", _PROMPTS, "request fields of the model's dialect: `{\"temperature\": 0}`"),
    Option("timeout_s", "float", _PYTHON, "seconds for one attempt"),
    Option("retries", "int", _PYTHON, "further attempts after a failure that may pass: a rate, a server, a connection, the form of the answer"),
    Option("history", "HistoryConfig | Mapping[str, Any] | bool", _PROMPTS, "whether and how the task takes part in the conversation",
           "history_config", "history_config"),
    Option("context", "ContextManagement | Mapping[str, Any]", _PROMPTS, "material that the task reads, in addition to its arguments",
           "context_management"),
    Option("file_paths", "Sequence[str]", _PROMPTS, "files that the task always reads"),
    Option("reuse", "str", _PROMPTS, "how old the result of an equal call may be to be used again: `1d`, `12h`"),
    Option("reuse_key", "str", _PYTHON, "with `reuse`: identifies the values in tools that are closures, bound methods or partials"),
    Option("version", "str", _PROMPTS, "a text that you change when earlier results are to answer no more: for `reuse`, resumed generations and evaluations"),
    Option("prompt_cache", "PromptCache", _PROMPTS, "how long the provider keeps the beginning of the prompt"),
    Option("batch", "Batching", _PYTHON, "model calls are made in the vendor's batches, at half the price, within a day or a time such as `\"2h\"`; durable runs only"),
    Option("priority", "int", _PROMPTS, "-1000 to 1000: which call goes first where calls wait"),
    Option("decompose", "int", _PYTHON, "rounds in which a model may split the task by a program, once it ran out of room"),
    Option("around_tool", "Sequence[ToolMiddleware]", _PYTHON, "async functions around each call of a tool: `async def careful(call, run, ctx)`"),
    Option("around_model", "Sequence[ModelMiddleware]", _PYTHON, "async functions around each call of the model: `async def redact(request, run, ctx)`"),
    Option("description", "str", _NAMED, "the purpose of the task, for models and lookups"),
    Option("subtype", "str", _NAMED, "the group by which `atomic:SUBTYPE` finds the task"),
    Option("name", "str | None", ("tool",), "the tool's name; else the function's"),
    Option("description", "str | None", ("tool",), "the description for models; else the docstring"),
    Option("read_only", "bool", ("tool",), "the tool changes nothing"),
    Option("idempotent", "bool | None", ("tool",), "a call may be repeated; with `False` an interrupted durable run goes by its `on_inflight`"),
    Option("sequential", "bool", ("tool",), "never runs at the same time as another call of the same answer, and keeps its place among them"),
    Option("timeout_s", "float | None", ("tool",), "bounds one try, in seconds: FAILED, `execution_timeout`"),
    Option("retries", "int", ("tool",), "further tries after a failure, with growing pauses; wrong arguments are not tried again"),
    Option("approval", "bool | NeedsApproval", ("tool",), "the run's approver is asked before each call of a model or an untrusted program, or before those for which a function of `(arguments, ctx)` does not give `False`"),
    Option("reuse", "str | None", ("tool",), "how old the result of an equal call may be to be used again, in any run: `1d`, `12h`"),
    Option("reuse_key", "str | None", ("tool",), "with `reuse`: identifies the values in a closure, a bound method or a partial"),
    Option("version", "str | None", ("tool",), "a text that you change when earlier results of it, and of tasks that may call it, are to answer no more"),
    Option("source", "str | None", ("tool",), "where its result comes from: `web`; read by policies"),
    Option("sinks", "Mapping[str, str]", ("tool",), "who may fill arguments that leave the program by it: `{\"to\": \"user\"}`; held to under a policy"),
    Option("defer_loading", "bool", ("tool",), "the tool is not sent to models, which find it with the tool `search_tools`"),
    Option("ends", "bool", ("tool",), "its result is the value of the calling task, and ends it"),
    Option("around", "Sequence[ToolMiddleware]", ("tool",), "async functions around each call of it, within all others: `async def careful(call, run, ctx)`"),
)  # fmt: skip


def options_of(where: Place) -> tuple[Option, ...]:
    """The options that may stand at a place."""
    return tuple([each for each in OPTIONS if where in each.places])


NAMES: Mapping[Place, frozenset[str]] = MappingProxyType(
    {where: frozenset([each.name for each in options_of(where)]) for where in CALLED}
)
"""The names of the options at each place."""
FIELDS: Mapping[str, str] = MappingProxyType({each.name: each.field for each in OPTIONS if each.field})
"""Options with another name for their template field."""


def wrong_value(where: str, name: str, value: object, problem: str, instead: str) -> ConfigurationError:
    """The error (``config/option``) for a value that the option or argument ``name`` cannot have."""
    return ConfigurationError(
        f"{where}: {name}={clip(repr(value), 120)} {problem}",
        code="config/option",
        hint=instead,
        details={"option": name},
    )


def over(table: Mapping[str, Any], stated: T | Mapping[str, Any] | None) -> T | Mapping[str, Any] | None:
    """An argument of several fields over the settings' ``table`` of the same name; None where neither says anything."""
    if isinstance(stated, Mapping):
        return {**table, **cast(Mapping[str, Any], stated)}
    return (table or None) if stated is None else stated


def policy_of(kind: type[T], name: str, stated: T | Mapping[str, Any] | None, usual: T | None = None) -> T:
    """A frozen settings class from an argument ``name``: whole as it was stated, or by field over the ``usual`` one (None:
    its defaults).

    Raises ConfigurationError (``config/option``) for an unknown field or another type, and the errors of the class about a
    value.
    """
    usual = kind() if usual is None else usual
    if stated is None or isinstance(stated, kind):
        return usual if stated is None else stated
    names = [each.name for each in fields(cast(Any, kind))]
    if not isinstance(stated, Mapping):
        written = f"write {name}={{'{names[0]}': ...}} or {kind.__name__}({names[0]}=...)"
        raise wrong_value("Provider", name, stated, f"is neither a mapping nor {kind.__name__}", written)
    for each in cast(Mapping[str, Any], stated):
        if each not in names:
            raise ConfigurationError(
                f"{name} has no option '{clip(str(each), 80)}'",
                code="config/option",
                hint=did_you_mean(str(each), names) or f"the options are {', '.join(names)}",
                details={"option": str(each)},
            )
    return cast(T, replace(cast(Any, usual), **stated))
