"""Exports: the programs, tasks and Python workflows that a server offers, each under a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias, cast

from agentflow.app import AgentFlow
from agentflow.core.data.errors import ConfigurationError, DataError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Span
from agentflow.core.data.templates import Parameter
from agentflow.flow.program_files import ProgramLike, source_of
from agentflow.flow.python_functions import TaskFunction, WorkflowFunction
from agentflow.lang.answers import answer_spans
from agentflow.lang.diagnosis import diagnose
from agentflow.lang.program import Program
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.describe import arguments_schema
from agentflow.tasks.template import required, resolve_inputs
from agentflow.tasks.workflows import declared_parts

MESSAGE = "message"
"""The parameter for a chat client's message, unless an export names another or has just one text parameter."""
_TEXT = ("any", "string")
_VALUE = "(value-of "
_HISTORY = "history_config"
_SWITCHES = ("use_session_history", "record_in_session_history")


@frozen(kw_only=True)
class Export:
    """A program, task or workflow that a server offers.

    ``program`` is a program (text, a Path, a Source), the name of a task or tool of the flow, or a function decorated with
    ``@flow.workflow`` or ``@flow.task``. ``parameters`` are its parameters, declared as in a template (default: those of the
    task, tool or saved workflow, or of the ``main`` of a text in Python; for other programs one text, ``message``). ``message`` names the parameter for a chat
    client's message. ``bindings`` are variables set by the server. ``allow`` makes it an untrusted program that may call only
    these names; ``limits`` are those of its runs.
    """

    program: ProgramLike | Callable[..., Any]
    parameters: Mapping[str, Parameter | Mapping[str, Any] | str] | None = None
    message: str | None = None
    description: str = ""
    bindings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    allow: Iterable[str] | None = None
    limits: Limits | None = None


Exportable: TypeAlias = Export | ProgramLike | Callable[..., Any]
"""Values that can be exported; anything but an Export stands for one with defaults."""


@frozen(kw_only=True)
class Offer:
    """A checked export: ``program`` is run with ``bindings`` and the values of ``parameters``.

    ``callee`` is a task or tool to call with the values instead, with the settings ``history`` of a call that takes part in a
    conversation. ``answering`` are the spans of the calls in the text that compute the
    value.
    """

    name: str
    description: str
    parameters: Mapping[str, Parameter]
    message: str | None
    program: Program | None
    callee: str | None
    bindings: Mapping[str, Any]
    allow: frozenset[str] | None
    limits: Limits | None
    answering: frozenset[tuple[int, int]]
    history: tuple[str, ...] = ()

    def work(self, inputs: Mapping[str, Any]) -> tuple[Program | Source, dict[str, Any]]:
        """The program to run for the values in ``inputs``, and its bindings.

        Raises DataError (``serve/bindings``) for an unknown parameter, TaskError for missing or invalid values.
        """
        values, undeclared = resolve_inputs(self.name, self.parameters, inputs)
        if undeclared:
            hint = did_you_mean(undeclared[0], self.parameters) or f"it has {', '.join(self.parameters) or 'none'}"
            raise DataError(
                f"the export '{self.name}' has no parameter '{cut(undeclared[0], 100)}'",
                code="serve/bindings",
                hint=hint,
            )
        if self.program is not None:
            return self.program, {**values, **self.bindings}
        named = {name: value for name, value in values.items() if name in inputs}
        return self.call(named), named

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the inputs of :meth:`work`."""
        return arguments_schema(self.parameters)

    def call(self, named: Iterable[str]) -> Source:
        """Program text that calls the task or tool with variables of these names."""
        words = [str(self.callee), *[f"({each} {each})" for each in named], *self.history]
        return Source(self.name, f"{_VALUE}({' '.join(words)}))")

    def answers_at(self, span: Span | None) -> bool:
        """Whether the call at ``span`` of the program produces its value."""
        if span is None:
            return False
        if self.program is None:
            return span.start == len(_VALUE)
        return (span.start, span.end) in self.answering and span.source.digest == self.program.source.digest


def offers_of(flow: AgentFlow, exports: Mapping[str, Exportable] | Iterable[Exportable]) -> dict[str, Offer]:
    """All exports, checked and compiled, by name. Blocking: call it before a server starts.

    An export without a name is named after its function or file. Raises ConfigurationError (``serve/export``), and the
    errors of :meth:`AgentFlow.compile`.
    """
    if isinstance(exports, Mapping):
        named = list(cast("Mapping[str, Exportable]", exports).items())
    else:
        named = [(_own_name(each), each) for each in exports]
    offers: dict[str, Offer] = {}
    for name, each in named:
        if name in offers:
            raise _wrong(f"two exports are called '{name}'", "give them names: {'first': ..., 'second': ...}")
        offers[name] = _offer(flow, name, each if isinstance(each, Export) else Export(program=each))
    return offers


def files_in(path: Path) -> list[Path]:
    """The programs to export for ``path``: the file itself, or all ``.sexp`` files of a directory. Blocking."""
    if path.is_dir():
        files = sorted(path.glob("*.sexp"))
        if not files:
            raise _wrong(f"there is no .sexp file in {path}", "each program of the directory is an export")
        return files
    return [path]


def exports_of(paths: Iterable[str], names: Iterable[str]) -> list[Exportable]:
    """Exports named on a command line: the programs in ``paths``, and the tasks, tools and workflows ``names``. Blocking."""
    return [*names, *[file for path in paths for file in files_in(Path(path))]]


def _own_name(export: Exportable) -> str:
    what = export.program if isinstance(export, Export) else export
    if isinstance(what, Path):
        return what.stem
    if isinstance(what, TaskFunction | WorkflowFunction):
        return str(cast(Any, what).name)
    if isinstance(what, str) and "(" not in what:
        return what
    raise _wrong(
        f"an export has no name: {cut(str(what), 80)!r}",
        "give exports as {'name': program}, a file, a function or a name",
    )


def _offer(flow: AgentFlow, name: str, export: Export) -> Offer:
    what = export.program
    if isinstance(what, TaskFunction | WorkflowFunction):
        what = str(cast(Any, what).name)
    if isinstance(what, str) and "(" not in what:
        return _called(flow, name, what, export)
    if not isinstance(what, str | Path | Source | Program):
        raise _wrong(cut(f"the export '{name}' is not a program, task or workflow: {what!r}", 300))
    source = source_of(what)
    if isinstance(source, str):
        source = Source(name, source)
    elif isinstance(source, Program):
        source = source.source
    if isinstance(what, Path):  # clients see the name, and directories of the server are none of their business
        source = Source.of(what.name, source.text)
    declared, description, allow = export.parameters, export.description, export.allow
    own = declared_parts(source, flow.workflows.checker)
    if own is not None:
        declared = own["params"] if declared is None else declared
        description = description or own["description"]
        if own["allow"] is not None:
            allow = set(own["allow"]) if allow is None else set(own["allow"]) & set(allow)
    if declared is None:
        declared = {export.message or MESSAGE: Parameter(type="string")}
    parameters = {key: _parameter(name, key, value) for key, value in declared.items()}
    variables = {*parameters, *export.bindings}
    grants = None if allow is None else frozenset(allow)
    names = flow.engine.names()
    limits = export.limits or flow.limits
    wrong = diagnose(source, names=names, limits=limits, allow=grants, env_names=variables, closed=True)
    for each in wrong:
        if each.severity == "error":
            raise _unconnected(flow, name, each.error.message) or each.error
    program = flow.engine.compiler.compile(source, bindings=variables, grants=grants, limits=limits)
    return Offer(
        name=name,
        description=description,
        parameters=parameters,
        message=_message(name, export, parameters),
        program=program,
        callee=None,
        bindings=dict(export.bindings),
        allow=grants,
        limits=export.limits,
        answering=answer_spans(program, names),
    )


def _called(flow: AgentFlow, name: str, callee: str, export: Export) -> Offer:
    info = flow.engine.names().describe(callee)
    if info is None or info.parameters is None:
        hint = did_you_mean(callee, flow.engine.names().known_names())
        raise _unconnected(flow, name, f"'{callee}'") or _wrong(
            f"the flow has no task or tool '{cut(callee, 100)}'", hint or "pass a program as a Path or as text"
        )
    declared = export.parameters or {
        key: Parameter(required=each.required, json_schema=dict(each.schema) or None)
        for key, each in info.parameters.items()
    }
    parameters = {key: _parameter(name, key, value) for key, value in declared.items()}
    if export.bindings:
        raise _wrong(f"the export '{name}' sets variables, but '{callee}' has none", "export a program that calls it")
    return Offer(
        name=name,
        description=export.description or _purpose(flow, callee),
        parameters=parameters,
        message=_message(name, export, parameters),
        program=None,
        callee=callee,
        bindings={},
        allow=None if export.allow is None else frozenset(export.allow),
        limits=export.limits,
        answering=frozenset(),
        history=_in_conversation(flow, callee),
    )


def _in_conversation(flow: AgentFlow, callee: str) -> tuple[str, ...]:
    """The history settings that a call gives a task which is stateless by itself: those that the task does not name are on."""
    compiled = flow.engine.tasks.find_compiled(callee)
    if compiled is None or not compiled.template.stateless or _HISTORY in compiled.template.params:
        return ()
    own = compiled.template.history_config
    missing = _SWITCHES if own is None else [each for each in _SWITCHES if each not in own.model_fields_set]
    return (f"({_HISTORY} '({' '.join([f'({each} true)' for each in missing])}))",) if missing else ()


def _purpose(flow: AgentFlow, callee: str) -> str:
    """The description of a task or tool."""
    compiled = flow.engine.tasks.find_compiled(callee)
    if compiled is not None:
        return compiled.template.description
    tool = flow.engine.tools.find(callee)
    return "" if tool is None else tool.spec.description


def _parameter(name: str, key: str, value: Parameter | Mapping[str, Any] | str) -> Parameter:
    if isinstance(value, Parameter):
        return value
    try:
        return Parameter(type=value) if isinstance(value, str) else Parameter.model_validate(dict(value))
    except ValueError as error:
        raise _wrong(f"the export '{name}': its parameter '{key}' is invalid: {error}") from error


def _message(name: str, export: Export, parameters: Mapping[str, Parameter]) -> str | None:
    """The parameter for a chat client's message; None if the export cannot be used in chats."""
    if export.message is not None:
        if export.message not in parameters:
            raise _wrong(f"the export '{name}' has no parameter '{export.message}' for messages")
        return export.message
    if MESSAGE in parameters:
        return MESSAGE
    needed = [key for key, each in parameters.items() if required(each)]
    texts = [key for key in needed if _is_text(parameters[key])]
    return texts[0] if len(texts) == 1 and len(needed) == 1 else None


def _is_text(parameter: Parameter) -> bool:
    schema = parameter.json_schema
    return (parameter.type in _TEXT) if schema is None else schema.get("type") == "string"


def _unconnected(flow: AgentFlow, name: str, message: str) -> ConfigurationError | None:
    """The error for an export that names a tool of an MCP server before the flow has connected; None for any other mistake."""
    servers = [] if flow.mcp.is_open else [each.name for each in flow.mcp.servers if f"'{each.name}:" in message]
    if not servers:
        return None
    return _wrong(
        f"the export '{name}' calls a tool of the MCP server '{servers[0]}', which is not connected yet; exports are checked"
        " when the application is created",
        "create the application inside 'async with flow', or after 'await flow.connect()'",
    )


def _wrong(message: str, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(message, code="serve/export", hint=hint)
