"""Access to the results of tasks and tools."""

from __future__ import annotations

from typing import Any, cast

from pydantic import ValidationError

from agentflow.core.errors import AgentflowError, SexpEvaluationError
from agentflow.core.results import TaskResult, error_from_notes
from agentflow.lang.builtins.registry import primitive, wrong_type


def result(who: str, value: object) -> TaskResult:
    """``value``, a TaskResult or a dict in its shape, as a TaskResult. Raises ``type/argument`` for anything else."""
    if isinstance(value, TaskResult):
        return value
    if isinstance(value, dict) and "status" in value:
        try:
            return TaskResult.model_validate(value)
        except ValidationError as error:
            raise SexpEvaluationError(
                f"{who}: the dict has a status and is no result: {error.errors()[0]['msg']}", code="type/result"
            ) from None
    wrong_type(who, 1, "the result of a task or tool", value, hint="plain values need no unwrapping")


@primitive("value-of", usage="(value-of result)", arity=(1, 1))
def value_of(value: Any) -> Any:
    """The parsed content of a COMPLETE result, or its content if it has none.

    Raises the error of a FAILED one, and ``task/invalid-output`` if JSON was requested and the answer was not JSON.
    """
    outcome = result("value-of", value)
    error = outcome.error
    if error is not None and not isinstance(error, AgentflowError):
        raise error_from_notes(outcome.notes.get("error"), outcome.content) from error
    return outcome.value()


@primitive("content", usage="(content result)", arity=(1, 1))
def content(value: Any) -> str:
    """The result's text, whatever its status."""
    return result("content", value).content


@primitive("status", usage="(status result)", arity=(1, 1))
def status(value: Any) -> str:
    """The result's status: ``"COMPLETE"``, ``"CONTINUATION"`` or ``"FAILED"``."""
    return result("status", value).status


@primitive("failed?", usage="(failed? value)", arity=(1, 1))
def failed(value: Any) -> bool:
    """Whether the value is a FAILED result. False for any other value."""
    if isinstance(value, TaskResult):
        return value.status == "FAILED"
    return isinstance(value, dict) and cast("dict[str, Any]", value).get("status") == "FAILED"
