"""Errors as JSON data, and back: a stable tag for the class, then the error's attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from agentflow import errors
from agentflow.core.call.host_calls import PartialValues
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source, Span
from agentflow.core.data.values import plain


class NotData(Exception):
    """A value cannot be stored: it holds an object of the host, or a procedure that changes a variable."""


TAGS: Mapping[str, type[AgentflowError]] = MappingProxyType(
    {
        "error": AgentflowError,
        "syntax": errors.SexpSyntaxError,
        "evaluation": errors.SexpEvaluationError,
        "unbound": errors.UnboundSymbolError,
        "run-stopped": errors.RunStopped,
        "limit": errors.LimitExceeded,
        "purse-empty": errors.PurseEmpty,
        "change-refused": errors.ChangeRefused,
        "host-panic": errors.HostPanic,
        "stray-exit": errors.StrayExit,
        "configuration": errors.ConfigurationError,
        "session-busy": errors.SessionBusy,
        "run-cancelled": errors.RunCancelled,
        "workflow": errors.WorkflowError,
        "overlap": errors.PythonOverlap,
        "unawaited": errors.UnawaitedAttribute,
        "data": errors.DataError,
        "journal": errors.JournalError,
        "path-denied": errors.PathDenied,
        "file-failure": errors.FileFailure,
        "command-denied": errors.CommandDenied,
        "denied": errors.Denied,
        "sandbox": errors.SandboxUnavailable,
        "task": errors.TaskError,
        "exhausted": errors.ResourceExhausted,
        "invalid-output": errors.InvalidOutput,
        "provider": errors.ProviderError,
        "authentication": errors.AuthenticationFailed,
        "permission": errors.PermissionDenied,
        "bad-request": errors.BadRequest,
        "rate-limited": errors.RateLimited,
        "overloaded": errors.Overloaded,
        "server-error": errors.ServerError,
        "context-window": errors.ContextWindowExceeded,
        "refused": errors.Refused,
        "connection-lost": errors.ConnectionLost,
        "connection-refused": errors.ConnectionRefused,
        "connect-timeout": errors.ConnectTimeout,
        "first-byte-timeout": errors.FirstByteTimeout,
        "idle-timeout": errors.IdleTimeout,
        "call-timeout": errors.CallTimeout,
        "incomplete-stream": errors.IncompleteStream,
        "protocol": errors.ProtocolError,
    }
)
"""The class of each tag. A tag is never reused for another class; an error of a host's own class is stored as its base class."""
NO_VALUE = "durable/no-value"
"""The code for an effect that was carried out but has a result that cannot be stored."""
_CLASSES = {kind: tag for tag, kind in TAGS.items()}
_STATE = (
    *("message", "code", "hint", "__notes__"),
    *("value", "irritants", "name", "kind", "_reason", "resource", "limit", "allowed", "used", "purse", "ends_at"),
    *("status", "why", "request_id", "partial", "provider", "model", "retry_after", "attempts"),
)
"""The attributes of errors stored if present."""


def write_error(error: AgentflowError, write: Callable[[Any], Any]) -> Any:
    """``error`` as JSON data; ``write`` writes the values in it."""
    tag = next(_CLASSES[kind] for kind in type(error).__mro__ if kind in _CLASSES)
    held = dict(vars(error))
    if isinstance(error, NameError):
        held["name"] = error.name
    state = {name: write(held[name]) for name in _STATE if name in held and not isinstance(held[name], PartialValues)}
    state["details"] = _details(error, write)
    if error.sources:
        state["sources"] = sorted(error.sources)
    span = error.span
    return [tag, state, None if span is None else [span.source.digest, span.start, span.end], write(error.cause_text)]


def _details(error: AgentflowError, write: Callable[[Any], Any]) -> Any:
    """The details, which should be JSON data; those of a host may hold anything."""
    try:
        return write(error.details)
    except NotData:
        return write(plain(error.details))


def bare_error(error: AgentflowError) -> AgentflowError:
    """An error without the values in it, which are not data."""
    return AgentflowError(error.message, code=error.code, hint=error.hint, span=error.span)


def as_recorded(error: AgentflowError, recorded: AgentflowError) -> AgentflowError:
    """An error raised here in its recorded form: the error itself, or its replacement if no record has its class."""
    if type(recorded) is type(error):
        state = vars(recorded)
        error.__dict__.update({name: state[name] for name in (*_STATE, "details") if name in state})
        return error
    recorded.__cause__ = error.__cause__ or error
    recorded.frames, recorded.frames_dropped, recorded.span = error.frames, error.frames_dropped, error.span
    return recorded.with_traceback(error.__traceback__)


def read_error(data: Any, read: Callable[[Any], Any], source: Source | None) -> AgentflowError:
    """The error that :func:`write_error` wrote; its span if it points into ``source``."""
    tag, state, span, cause = data
    kind = TAGS[tag]
    error = kind.__new__(kind)
    for name, value in state.items():
        setattr(error, name, read(value))
    error.sources = frozenset(state.get("sources", ()))
    Exception.__init__(error, error.message)
    error.span = Span(source, span[1], span[2]) if span and source and source.digest == span[0] else None
    error.frames = []
    error.frames_dropped = 0
    error.recorded_cause = read(cause)
    return error
