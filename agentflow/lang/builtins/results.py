"""Access to the results of tasks and tools."""

from __future__ import annotations

from typing import Any, cast

from agentflow.core.data.errors import AgentflowError, DataError, SexpEvaluationError, copied_error
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.result_notes import ErrorInfo
from agentflow.core.data.results import NO_NOTES, TaskResult
from agentflow.lang.builtins.registry import primitive, wrong_type


def result(who: str, value: object) -> TaskResult:
    """``value``, a TaskResult or a dict in its shape, as a TaskResult. Raises ``type/argument`` for anything else."""
    if isinstance(value, TaskResult):
        return value
    if is_dict(value) and "status" in value:
        try:
            return TaskResult.from_mapping(value)
        except DataError as error:
            raise SexpEvaluationError(
                f"{who}: the dict has a status and is not a result: {error.message}", code="type/result"
            ) from None
    wrong_type(who, 1, "the result of a task or tool", value, hint="plain values need no unwrapping")


@primitive("value-of", usage="(value-of result)", arity=(1, 1), size="value", flow="o", takes="r")
def value_of(value: Any) -> Any:
    """The parsed content of a COMPLETE result, or its content if it has none.

    Raises the error of a FAILED one, ``task/invalid-output`` if JSON was requested and the answer was not JSON, and
    the error of the first failed part that its caller named: a result with a failed part is not a success.
    """
    outcome = value if isinstance(value, TaskResult) else result("value-of", value)
    # a failed result has notes, so that without any all is well: nearly all are such
    problem = None if outcome.notes is NO_NOTES else outcome.problem()
    if problem is None:
        return outcome.content if outcome.parsed_content is None else outcome.parsed_content
    if isinstance(problem, AgentflowError):
        raise copied_error(problem)  # the result may be asked several times
    described = outcome.notes.error if outcome.failed else outcome.failed_parts[0].error
    raise cast("ErrorInfo", described).exception() from problem


@primitive("content", usage="(content result)", arity=(1, 1), size="text", flow="o", takes="r")
def content(value: Any) -> str:
    """The result's text, for any status."""
    return result("content", value).content


@primitive("status", usage="(status result)", arity=(1, 1), size="status", flow="o", takes="r")
def status(value: Any) -> str:
    """The result's status: ``"COMPLETE"``, ``"CONTINUATION"`` or ``"FAILED"``."""
    return result("status", value).status


@primitive("failed?", usage="(failed? value)", arity=(1, 1), size="plain", flow="o")
def failed(value: Any) -> bool:
    """Whether the value is a FAILED result. False for any other value."""
    if isinstance(value, TaskResult):
        return value.status == "FAILED"
    return is_dict(value) and value.get("status") == "FAILED"
