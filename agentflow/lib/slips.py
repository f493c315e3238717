"""Suggests the right spelling where an option, or a context, was written in a place that does not take it."""

from __future__ import annotations

from agentflow.core.data.errors import ConfigurationError
from agentflow.lib.option_table import NAMES

OF_RUN = frozenset({"session", "deps", "limits", "purse", "approve", "labels", "run_id", "max_cost", "bindings"})
"""Options of runs looked for at tasks."""


def misplaced(label: str, options: list[str]) -> str | None:
    """The hint for the first of the ``options`` that a call of ``label``, a task or workflow, was given as an argument; None for none."""
    kind, _, name = label.partition(" ")
    for each in options:
        if each in OF_RUN:
            return f"{each} is an option of the run: flow.run({name[1:-1]}(...), {each}=...)"
        if kind == "task" and each in NAMES["task"]:
            return f"{each} is an option of the task: {name[1:-1]}.with_options({each}=...)(...)"
    return None


def no_context(label: str, name: str) -> ConfigurationError:
    """The error for a workflow that wants a CallContext, which it never gets."""
    return ConfigurationError(
        f"{label}: its parameter '{name}' is a CallContext, which tools, checks and system functions get",
        code="python/annotation",
        hint="read the dependencies of the run in its body: flow.deps(Bank)",
    )
