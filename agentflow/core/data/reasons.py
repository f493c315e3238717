"""The closed list of reasons why a task or tool failed: the specification's lower-case conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

Reason: TypeAlias = Literal[
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
]
REASONS: frozenset[str] = frozenset(get_args(Reason))
"""All reasons of TaskErrors and FAILED results."""

UNKNOWN_REASON = "unknown_reason"
"""The key in an error's details for a reason missing from the list, as its host wrote it."""


def known_reason(reason: object, details: Mapping[str, Any]) -> tuple[Reason, Mapping[str, Any]]:
    """``reason`` and ``details``; an unlisted reason becomes ``unexpected_error`` and is kept in the details."""
    if isinstance(reason, str) and reason in REASONS:
        return cast(Reason, reason), details
    return "unexpected_error", {**details, UNKNOWN_REASON: str(reason)}
