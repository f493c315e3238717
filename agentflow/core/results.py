"""Task results, task templates and subtask requests: the types the specification's components exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from agentflow.core.errors import AgentflowError, InvalidOutput, ResourceExhausted, TaskError
from agentflow.core.messages import Usage
from agentflow.core.values import pairs_to_dict, to_json

Status = Literal["COMPLETE", "CONTINUATION", "FAILED"]

REASONS: tuple[str, ...] = (
    "context_retrieval_failure",
    "context_matching_failure",
    "context_parsing_failure",
    "xml_validation_failure",
    "output_format_failure",
    "execution_timeout",
    "execution_halted",
    "subtask_failure",
    "input_validation_failure",
    "template_not_found",
    "tool_execution_error",
    "llm_error",
    "dependency_error",
    "connection_error",
    "protocol_error",
    "configuration_error",
    "context_priming_failure",
    "unexpected_error",
)
"""Every reason a FAILED result may carry."""


class MappingModel(BaseModel):
    """A pydantic model that also reads like a mapping: ``result["status"]``, ``result.get("notes")``, ``dict(result)``.

    Keys are the field names and their aliases.
    """

    model_config = ConfigDict(populate_by_name=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True)

    def _field(self, key: str) -> str | None:
        fields = type(self).model_fields
        if key in fields:
            return key
        for name, info in fields.items():
            if info.alias == key or info.serialization_alias == key:
                return name
        return None

    def __getitem__(self, key: str) -> Any:
        name = self._field(key)
        if name is None:
            raise KeyError(key)
        return getattr(self, name)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._field(key) is not None

    def get(self, key: str, default: Any = None) -> Any:
        """The field ``key``, or ``default`` when there is no such field."""
        name = self._field(key)
        return default if name is None else getattr(self, name)

    def keys(self) -> Iterator[str]:
        """The field names, by alias where there is one (``parsedContent``)."""
        for name, info in type(self).model_fields.items():
            yield info.serialization_alias or info.alias or name


class TaskResult(MappingModel):
    """What a task or tool call gives.

    ``status`` is COMPLETE, CONTINUATION (a subtask is wanted: ``notes["subtask_request"]``) or FAILED; ``content`` the
    text; ``parsedContent`` (``parsed_content`` in Python) the data where the output is data; ``criteria`` free;
    ``notes`` a dict, in a FAILED one with ``notes["error"] = {type, reason, message, details}``. ``usage`` is what it
    cost in tokens. ``model_dump()`` gives the specification's shape.
    """

    status: Status = "COMPLETE"
    content: str = ""
    parsed_content: Any = Field(default=None, alias="parsedContent")
    criteria: str | None = None
    notes: dict[str, Any] = Field(default_factory=dict)

    _error: BaseException | None = PrivateAttr(default=None)
    _usage: Usage = PrivateAttr(default_factory=lambda: _NO_USAGE)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        options.setdefault("by_alias", True)
        return super().model_dump(**options)

    @property
    def parsedContent(self) -> Any:
        """``parsed_content`` under the specification's name."""
        return self.parsed_content

    @property
    def failed(self) -> bool:
        """Whether the status is FAILED."""
        return self.status == "FAILED"

    @property
    def usage(self) -> Usage:
        """Tokens spent on it, all turns and subtasks included."""
        return self._usage

    def with_usage(self, usage: Usage) -> TaskResult:
        """This result, with its usage set."""
        self._usage = usage
        return self

    @property
    def error(self) -> BaseException | None:
        """The exception behind a FAILED result: the original where there was one, else made from the notes."""
        if self.status != "FAILED":
            return None
        if self._error is None:
            self._error = error_from_notes(self.notes.get("error"), self.content)
        return self._error

    def value(self) -> Any:
        """The parsed content, or the content, of a COMPLETE result.

        Raises the error of a FAILED one, and InvalidOutput when JSON was asked for and did not come.
        """
        if self.status == "FAILED":
            error = self.error
            assert error is not None
            raise error
        if self.notes.get("parseError") is not None:
            raise InvalidOutput(
                f"the answer is not the JSON asked for: {self.notes['parseError']}",
                details={"content": self.content[:2_000]},
                hint="look at (content r) for what the model said, or ask for a plainer format",
            )
        return self.content if self.parsed_content is None else self.parsed_content

    @classmethod
    def complete(cls, content: str = "", parsed: Any = None, **notes: Any) -> TaskResult:
        """A COMPLETE result with these notes."""
        return cls(status="COMPLETE", content=content, parsedContent=parsed, notes=notes)

    @classmethod
    def failure(
        cls,
        reason: str,
        message: str,
        *,
        type: str = "TASK_FAILURE",
        details: dict[str, Any] | None = None,
        error: BaseException | None = None,
        **notes: Any,
    ) -> TaskResult:
        """A FAILED result: ``reason`` one of :data:`REASONS`; ``error`` the exception behind it, kept as it is."""
        made = {"type": type, "reason": reason, "message": message, "details": details or {}}
        result = cls(status="FAILED", content=message, notes={**notes, "error": made})
        result._error = error
        return result

    @classmethod
    def from_error(cls, error: BaseException, *, reason: str | None = None, **notes: Any) -> TaskResult:
        """The FAILED result of an exception, which it keeps."""
        if isinstance(error, AgentflowError):
            kind = error.kind if isinstance(error, TaskError) else "TASK_FAILURE"
            body: dict[str, Any] = {
                "type": kind,
                "reason": reason or error.reason,
                "message": error.message,
                "details": {"code": error.code, **error.details},
            }
            if error.hint:
                body["details"]["hint"] = error.hint
            if isinstance(error, ResourceExhausted) or kind == "RESOURCE_EXHAUSTION":
                body["resource"] = error.details.get("resource", "context")
                body["metrics"] = error.details.get("metrics", {})
            message = error.message
        else:
            message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            message = message[:2_000]
            body = {
                "type": "TASK_FAILURE",
                "reason": reason or "unexpected_error",
                "message": message,
                "details": {"exception": type(error).__name__},
            }
        result = cls(status="FAILED", content=message, notes={**notes, "error": body})
        result._error = error
        return result

    @classmethod
    def of(cls, value: object) -> TaskResult:
        """``value`` as a TaskResult: one as it is, a dict in its shape, or any plain value as a COMPLETE one.

        Text becomes the content; other data becomes JSON in the content and itself in ``parsedContent``.
        """
        given: Any = value
        if isinstance(given, TaskResult):
            return given
        if isinstance(given, dict):
            data = given = cast(dict[str, Any], given)
            if data.get("status") in ("COMPLETE", "CONTINUATION", "FAILED") and set(data) <= _RESULT_KEYS:
                content: Any = data.get("content", "")
                if not isinstance(content, str):
                    parsed = data.get("parsedContent", content)
                    data = {**data, "content": to_json(content), "parsedContent": parsed}
                return cls.model_validate(data)
        if type(given) is str:
            return complete_result(given)
        if type(given) is int:
            return complete_result(to_json(given) if abs(given) > _SMALL else str(given), given)
        if given is None:
            return cls()
        if isinstance(given, str):
            return cls(content=str(given))
        if isinstance(given, BaseModel):
            return cls(content=given.model_dump_json(), parsedContent=given)
        return cls(content=to_json(given), parsedContent=given)


_NO_USAGE = Usage()  # shared: pydantic would deep-copy a default, which costs more than all of the rest
_RESULT_KEYS = {"status", "content", "parsedContent", "parsed_content", "criteria", "notes"}


_SMALL = 10**15


_put = object.__setattr__


def complete_result(
    content: str, parsed: Any = None, *, notes: dict[str, Any] | None = None, usage: Usage = _NO_USAGE
) -> TaskResult:
    """A COMPLETE result of values known to be right.

    Nothing is validated or copied: for each trivial tool result and each answer that would cost more than the rest of
    the call. ``notes`` becomes the result's own.
    """
    result = TaskResult.__new__(TaskResult)
    fields: dict[str, Any] = {
        "status": "COMPLETE",
        "content": content,
        "parsed_content": parsed,
        "criteria": None,
        "notes": {} if notes is None else notes,
    }
    _put(result, "__dict__", fields)
    _put(result, "__pydantic_fields_set__", {"content", "parsed_content" if notes is None else "notes"})
    _put(result, "__pydantic_extra__", None)
    _put(result, "__pydantic_private__", {"_error": None, "_usage": usage})
    return result


def error_from_notes(error: object, content: str) -> TaskError:
    """A TaskError made from ``notes["error"]``, for a FAILED result that no exception stands behind."""
    if not isinstance(error, dict):
        return TaskError(content or "the task failed", reason="unexpected_error")
    data = cast(dict[str, Any], error)
    details = data.get("details")
    return TaskError(
        str(data.get("message") or content or "the task failed"),
        kind=str(data.get("type") or "TASK_FAILURE"),
        reason=str(data.get("reason") or "unexpected_error"),
        details=cast(dict[str, Any], details) if isinstance(details, dict) else {},
    )


class ContextManagement(MappingModel):
    """How a task's context is put together; ``None`` means the default of the template's subtype.

    ``inherit_context`` full, none or subset; ``accumulate_data``; ``accumulation_format`` notes_only or full_output;
    ``fresh_context`` enabled or disabled. camelCase keys are read too.
    """

    inherit_context: Literal["full", "none", "subset"] | None = Field(
        default=None, validation_alias=AliasChoices("inherit_context", "inheritContext")
    )
    accumulate_data: bool | None = Field(
        default=None, validation_alias=AliasChoices("accumulate_data", "accumulateData")
    )
    accumulation_format: Literal["notes_only", "full_output"] | None = Field(
        default=None, validation_alias=AliasChoices("accumulation_format", "accumulationFormat")
    )
    fresh_context: Literal["enabled", "disabled"] | None = Field(
        default=None, validation_alias=AliasChoices("fresh_context", "freshContext")
    )


class HistoryConfig(MappingModel):
    """How a task uses its session's history.

    ``use_session_history`` sends earlier turns; ``history_turns_to_include`` at most that many of the last (None: all);
    ``record_in_session_history`` commits this turn.
    """

    use_session_history: bool = True
    history_turns_to_include: int | None = Field(default=None, ge=0)
    record_in_session_history: bool = True


class Parameter(MappingModel):
    """A declared parameter of a template: ``type`` a simple name (``string``, ``integer``, ``string[]``, ...)."""

    type: str = "any"
    description: str = ""
    required: bool = True
    default: Any = None


class TaskTemplate(MappingModel):
    """A task as registered with the task system.

    ``name`` identifies it, ``type`` is ``atomic``, ``subtype`` groups. ``params`` maps parameter names to
    :class:`Parameter` (a ``"a,b"`` string, a list or a dict is read). ``instructions`` is the prompt with ``{{param}}``
    places; ``system`` the system prompt; ``model`` a model name or None for the flow's; ``output_format`` a dict
    ``{"type": "json" | "text", "schema": ...}``; ``tools`` the names the task may call (None: none of them unless the
    caller grants some); ``fallbacks`` models to try when ``model`` fails; ``decompose`` how many rounds a model may take
    to write a program for the task once it ran out of context or output (0: never); ``is_function`` makes a text
    function: its rendered instructions are its value and no model is called; ``max_turns``, ``max_output_tokens`` and
    ``timeout_s`` (seconds) bound its prompt; ``settings`` are request fields native to the model's dialect.
    """

    name: str
    type: str = "atomic"
    subtype: str = "standard"
    description: str = ""
    params: dict[str, Parameter]
    instructions: str = Field(
        default="", validation_alias=AliasChoices("instructions", "taskPrompt", "task_prompt", "body")
    )
    system: str = Field(default="", validation_alias=AliasChoices("system", "systemPrompt", "system_prompt"))
    model: str | None = None
    fallbacks: list[str] = Field(default_factory=list)
    decompose: int = Field(default=0, ge=0, le=20)
    output_format: dict[str, Any] = Field(
        default_factory=dict, validation_alias=AliasChoices("output_format", "outputFormat")
    )
    context_management: ContextManagement = Field(
        default_factory=ContextManagement, validation_alias=AliasChoices("context_management", "contextManagement")
    )
    history_config: HistoryConfig | None = None
    file_paths: list[str] = Field(default_factory=list, validation_alias=AliasChoices("file_paths", "filePaths"))
    file_paths_source: dict[str, Any] | None = None
    tools: list[str] | None = None
    is_function: bool = False
    settings: dict[str, Any] = Field(default_factory=dict)
    max_turns: int | None = Field(default=None, ge=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    timeout_s: float | None = Field(default=None, gt=0)
    output_model: Any = Field(default=None, exclude=True)

    @field_validator("output_format", mode="before")
    @classmethod
    def _read_format(cls, value: object) -> object:
        """``"json"`` and ``"text"`` name a format, any other text is a simple schema; a list of pairs is a dict."""
        if isinstance(value, str):
            return {"type": value} if value in ("json", "text") else {"type": "json", "schema": value}
        if isinstance(value, list):
            return pairs_to_dict(cast(list[Any], value)) or value  # pyright: ignore[reportUnknownVariableType]
        return value

    @field_validator("params", mode="before")
    @classmethod
    def _read_params(cls, value: object) -> object:
        if isinstance(value, str):
            return {name.strip(): Parameter() for name in value.split(",") if name.strip()}
        if isinstance(value, list | tuple):
            return {str(name): Parameter() for name in cast(list[object], value)}
        if isinstance(value, dict):
            read: dict[str, object] = {}
            for name, given in cast(dict[object, object], value).items():
                read[str(name)] = {"type": given} if isinstance(given, str) else (given or {})
            return read
        return value


class SubtaskRequest(MappingModel):
    """A request to run an atomic task: by ``name``, else by ``type:subtype``, else by hints or description.

    ``inputs`` its arguments; ``file_paths`` files to give it (they take precedence over any lookup);
    ``context_management`` and ``history_config`` override the template's; ``template_hints`` names to try;
    ``depth`` counts nesting.
    """

    type: str = "atomic"
    subtype: str | None = None
    name: str | None = None
    description: str = ""
    inputs: dict[str, Any] = Field(default_factory=dict)
    template_hints: list[str] = Field(
        default_factory=list, validation_alias=AliasChoices("template_hints", "templateHints")
    )
    context_management: ContextManagement | None = None
    file_paths: list[str] | None = None
    history_config: HistoryConfig | None = None
    max_depth: int | None = None
    depth: int = 0

    @field_validator("context_management", "history_config", mode="before")
    @classmethod
    def _read_pairs(cls, value: object) -> object:
        return value if value is None or isinstance(value, BaseModel) else (pairs_to_dict(value) or value)


def named_request(template: TaskTemplate, inputs: dict[str, Any]) -> SubtaskRequest:
    """The request for a template with ``inputs``, which become its own; like :func:`complete_result`, unchecked."""
    request = SubtaskRequest.__new__(SubtaskRequest)
    fields: dict[str, Any] = {
        "type": template.type,
        "subtype": template.subtype,
        "name": template.name,
        "description": "",
        "inputs": inputs,
        "template_hints": [],
        "context_management": None,
        "file_paths": None,
        "history_config": None,
        "max_depth": None,
        "depth": 0,
    }
    _put(request, "__dict__", fields)
    _put(request, "__pydantic_fields_set__", {"type", "subtype", "name", "inputs"})
    _put(request, "__pydantic_extra__", None)
    _put(request, "__pydantic_private__", None)
    return request


class FunctionCallNode(MappingModel):
    """A call of a function template: ``template_name`` and its ``arguments``.

    Arguments may be nested FunctionCallNodes, text (a variable of the environment first, else literal) or data.
    """

    template_name: str = Field(validation_alias=AliasChoices("template_name", "templateName", "name"))
    arguments: list[Any] = Field(default_factory=list)
    named_arguments: dict[str, Any] = Field(default_factory=dict)
