"""Results of tasks whose value is of a class: stored as JSON data, and validated as that class again when they are read."""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from agentflow.core.errors import JournalError
from agentflow.core.models import validation_messages
from agentflow.core.names import OutputAdapter
from agentflow.core.results import TaskResult
from agentflow.runtime.error_codec import NotData


def as_data(adapter: OutputAdapter, result: TaskResult) -> TaskResult:
    """A result with its value as JSON data, for its record. Raises NotData for a value that cannot be read back."""
    if result.parsed_content is None or result.failed:
        return result
    try:
        data = adapter.dump_python(result.parsed_content, mode="json", by_alias=True, warnings=False)
        adapter.validate_python(data)
    except (PydanticSerializationError, ValueError) as error:
        raise NotData(f"a {type(result.parsed_content).__name__} that its own JSON data does not give again") from error
    return replace(result, parsed_content=data)


def from_data(adapter: OutputAdapter, result: TaskResult, name: str, path: str) -> TaskResult:
    """The result that :func:`as_data` wrote, of the task ``name`` at ``path``. Raises JournalError (``durable/mismatch``)."""
    if result.parsed_content is None or result.failed:
        return result
    try:
        return replace(result, parsed_content=adapter.validate_python(result.parsed_content))
    except ValueError as error:
        problems = validation_messages(error) if isinstance(error, ValidationError) else [str(error)]
        raise JournalError(
            f"what is recorded of the task {name} at {path} is no value of its output class as it is now:"
            f" {'; '.join(problems)}",
            code="durable/mismatch",
            hint="let the class take what was stored, or carry the task out again: agentflow runs fork RUN --at PATH",
            details={"path": path},
        ) from None


__all__ = ["as_data", "from_data"]
