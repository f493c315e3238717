"""Task results: what the specification's components give back."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from agentflow.core.errors import AgentflowError, InvalidOutput, ResourceExhausted, TaskError
from agentflow.core.messages import Usage
from agentflow.core.records import MappingModel
from agentflow.core.values import to_json

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

    model_config = ConfigDict(frozen=False)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, "parsed_content" if key == "parsedContent" else key) if key in self else self.notes[""]

    def __contains__(self, key: object) -> bool:
        return key in _RESULT_KEYS

    def get(self, key: str, default: Any = None) -> Any:
        return default if key not in _RESULT_KEYS else self[key]

    def keys(self) -> Any:
        return iter(("status", "content", "parsedContent", "criteria", "notes"))

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
