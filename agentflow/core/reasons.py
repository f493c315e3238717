"""Why a task or tool failed: the closed list of reasons, the specification's lower-case conditions."""

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
"""Every reason that a TaskError or a FAILED result has."""

UNKNOWN_REASON = "unknown_reason"
"""The key of an error's details under which a reason stands that is none of them, as its host wrote it."""


def known_reason(reason: object, details: Mapping[str, Any]) -> tuple[Reason, Mapping[str, Any]]:
    """``reason`` and ``details``; for a reason that is not in the list ``unexpected_error``, and details that keep it."""
    if isinstance(reason, str) and reason in REASONS:
        return cast(Reason, reason), details
    return "unexpected_error", {**details, UNKNOWN_REASON: str(reason)}
