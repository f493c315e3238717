"""Outcomes of effects whose values are of a type: written by the adapter of the type, and read by it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentflow.core.data.names import CompiledTask
from agentflow.core.data.results import TaskResult
from agentflow.core.ports.ports import Tool
from agentflow.durable.values.codec import Shaped
from agentflow.durable.values.data_adapter import DataAdapter, adapter_of, refuse_secret, unfit


def output_of(gives: Tool | CompiledTask) -> DataAdapter[Any] | None:
    """The adapter for the values of a task or tool; None where it gives plain data.

    Raises ConfigurationError for what cannot be stored (``durable/no-value``, ``durable/secret``).
    """
    if isinstance(gives, Tool):
        if gives.function is None or gives.kind == "subtask":
            return None
        return adapter_of(gives.function, f"the tool {gives.name}", checks=False)
    output = gives.output_adapter
    if output is None:
        return None
    adapter = gives.memo.get("data_adapter")
    if adapter is None:
        adapter = gives.memo["data_adapter"] = DataAdapter[Any](gives.template.output_model, output, checks=True)
    refuse_secret(adapter, f"the task {gives.name}")
    return adapter


def as_data(adapter: DataAdapter[Any], outcome: Any) -> Any:
    """An outcome with its value as data, for its record. Raises NotData for a value that cannot be read back."""
    if not isinstance(outcome, TaskResult):
        return adapter.write(outcome)
    if outcome.parsed_content is None or outcome.failed:
        return outcome
    return replace(outcome, parsed_content=adapter.write(outcome.parsed_content))


def from_data(adapter: DataAdapter[Any] | None, outcome: Any, what: str, path: str) -> Any:
    """The outcome that :func:`as_data` wrote, of the effect ``what`` at ``path``; without an adapter its data.

    Raises JournalError (``durable/mismatch``).
    """
    if not isinstance(outcome, TaskResult):
        return _read(adapter, outcome, what, path)
    if outcome.parsed_content is None or outcome.failed:
        return outcome
    return replace(outcome, parsed_content=_read(adapter, outcome.parsed_content, what, path))


def _read(adapter: DataAdapter[Any] | None, data: Any, what: str, path: str) -> Any:
    if adapter is None:
        return data.data if type(data) is Shaped else data
    try:
        return adapter.read(data)
    except ValueError as error:
        raise unfit(what, path, error) from None


__all__ = ["as_data", "from_data", "output_of"]
