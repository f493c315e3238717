"""Invalid requests, and all errors as HTTP responses with a body in OpenAI's format.

A 5xx status says that the server or a provider is at fault. Clients repeat such requests on their own, so the failure of a
program is 422: a repeated run is paid for again, and mostly fails again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from starlette.responses import Response

from agentflow.core.data import provider_errors as providers
from agentflow.core.data.errors import (
    AgentflowError,
    ConfigurationError,
    DataError,
    HostPanic,
    JournalError,
    LimitExceeded,
    ProviderError,
    PurseEmpty,
    RunCancelled,
    SandboxUnavailable,
    SessionBusy,
    SexpSyntaxError,
    WorkflowError,
)

_TIMEOUTS = (providers.FirstByteTimeout, providers.IdleTimeout, providers.CallTimeout, providers.ConnectTimeout)
_OF_THE_SERVER = (ConfigurationError, JournalError, SandboxUnavailable, HostPanic)
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_REASONS = {
    "input_validation_failure": 400,
    "llm_error": 502,
    "connection_error": 502,
    "protocol_error": 502,
    "configuration_error": 500,
}
_RAISED = "host/raised"
_SERVERS = frozenset({"config", "durable", "sandbox"})
"""Families of codes for faults that only the server's operator can fix."""
_SERVERS_OWN = {
    500: "the server cannot do this as it is set up; its log has the cause",
    502: "the model's provider failed; the server's log has the cause",
    503: "the model's provider is overloaded; ask again later",
    504: "the model's provider took too long; ask again later",
}
"""The public message of an error on the server's side, by status."""
_REFUSED = {
    "files": "a file cannot be used here: there is none, or it is not allowed",
    "commands": "a command cannot be run here: there is none, or it is not allowed",
}
"""The message of an error about the files and commands of the host, by the family of its code: its own words name paths and settings."""
_OF_PROGRAMS = frozenset(
    {
        "context/near-limit",
        "handler/bad-output",
        "handler/cache-broken",
        "history/not-compacted",
        "name/not-granted",
        "provenance/denied",
        "provenance/readers",
        "provenance/write",
        "solve/unknown-name",
        "task/redefined",
        "tool/retried",
    }
)
"""Warnings without information about the host."""


class Reader(NamedTuple):
    """The audience of an error: an ``operator``, who can fix the server; the ``author`` of the failed program, who is shown
    its hint."""

    operator: bool = False
    author: bool = True


CLIENT = Reader()


class RequestError(AgentflowError):
    """A refused or invalid request.

    ``status`` is the HTTP status, ``param`` the invalid field; ``retry_after`` the seconds until the request may be
    repeated. ``hint`` names the correct request to clients, ``setting`` the setting to operators.
    """

    default_code = "serve/request"

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int = 400,
        hint: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        setting: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.setting = setting
        self.status = status
        self.param = param
        self.retry_after = retry_after


class ProgramRefused(RequestError):
    """A sent program that cannot be run: ``diagnostics`` lists all its errors, in order."""

    def __init__(self, diagnostics: Sequence[AgentflowError]) -> None:
        first = diagnostics[0]
        super().__init__(diagnosis_of(first), code=first.code, hint=first.hint, param="program")
        self.diagnostics = tuple(diagnostics)


def diagnosis_of(error: AgentflowError) -> str:
    """The message of an error in a program, with its position."""
    span = error.span
    return error.message if span is None else f"line {span.line}, column {span.column}: {error.message}"


def _diagnostic(error: AgentflowError) -> dict[str, Any]:
    span = None if error.span is None else error.span.to_dict()
    return {"code": error.code, "message": error.message, "hint": error.hint, "span": span}


def _fills_up(error: BaseException) -> bool:
    """Whether a run was ended by a purse that has another period: that of its key, or one of the host."""
    return isinstance(error, PurseEmpty) and error.ends_at is not None


def status_of(error: BaseException) -> int:
    """The HTTP status for ``error``."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(
        error, LimitExceeded
    ):  # 429 says that it is worth trying again later: a purse fills up, a run's limit does not
        return 429 if _fills_up(error) else 422
    if isinstance(error, providers.RateLimited):
        return 429
    if isinstance(error, providers.Overloaded):
        return 503
    if isinstance(error, providers.Refused | providers.ContextWindowExceeded):
        return 422
    if isinstance(error, ProviderError):
        return 504 if isinstance(error, _TIMEOUTS) else 502
    if isinstance(error, SexpSyntaxError | DataError):
        return 400
    if not isinstance(error, AgentflowError):
        return 500
    if isinstance(error, RunCancelled) or error.code == "durable/interrupted":
        return 503
    if isinstance(error, SessionBusy):
        return 409
    return 500 if isinstance(error, _OF_THE_SERVER) else _REASONS.get(error.reason, 422)


def is_of_host(error: BaseException) -> bool:
    """Whether an exception of host code is behind ``error``. Its text may contain anything, and only goes to the log."""
    return not isinstance(error, AgentflowError) or error.code == _RAISED


def failure_of_run(error: BaseException) -> AgentflowError:
    """The error that clients see for the failure of a run: of an exception of the host's code, its class."""
    if isinstance(error, AgentflowError) and not is_of_host(error):
        return error
    raised = error.__cause__ or error
    kind = "the code of the host" if isinstance(raised, AgentflowError) else type(raised).__name__
    shown = WorkflowError(f"the run failed because of {kind}; the server's log has the cause", code=_RAISED)
    shown.__cause__ = raised
    return shown


def is_of_server(error: BaseException) -> bool:
    """Whether ``error`` is about the server or its provider, not about the request."""
    if isinstance(error, RequestError | RunCancelled) or getattr(error, "code", "") in ("durable/interrupted", _RAISED):
        return False
    return status_of(error) >= 500


def bare_error(error: dict[str, Any]) -> dict[str, Any]:
    """The error of an event in the form for readers who may not see the host: the same object if it is about the request.

    ``error`` is the result of :meth:`AgentflowError.to_dict`, a result's error, or stands for an exception of the host.
    """
    code = _code_in(error.get("code"), error.get("details"))
    family = code.partition("/")[0]
    message = _REFUSED.get(family)
    if message is None:
        of_server = code in ("exception", _RAISED) or family in _SERVERS
        message = _SERVERS_OWN.get(500 if of_server else _REASONS.get(str(error.get("reason")), 422))
    if message is None:
        return error
    kept = {name: error[name] for name in ("code", "type", "reason") if name in error} | {"message": message}
    return kept if "code" in kept or not code else {**kept, "details": {"code": code}}


def bare_warning(event: Mapping[str, Any]) -> dict[str, Any]:
    """A warning in the form for readers who may not see the host: its code, and its text if it is about the program."""
    code = str(event.get("code"))
    message = event.get("message") if code in _OF_PROGRAMS else "the operator of the server sees more"
    return {**event, "message": message, "details": None}


def _code_in(code: object, details: object) -> str:
    """The code of an error; of one that stands for another the code in its details."""
    inner = cast("Mapping[str, Any]", details).get("code") if isinstance(details, Mapping) else None
    return str(inner or code or "")


def message_of(error: AgentflowError, reader: Reader) -> str:
    """The form of an error for ``reader``. Only operators learn of the server's faults, and only they and the author of a
    refused program learn which file or command it was about."""
    refused = None if reader.operator else _REFUSED.get(_code_in(error.code, error.details).partition("/")[0])
    if refused is not None:
        return error.message if reader.author else refused
    if is_of_server(error) and not reader.operator:
        return _SERVERS_OWN.get(status_of(error), _SERVERS_OWN[500])
    setting = error.setting if isinstance(error, RequestError) and reader.operator else None
    hint = error.hint if reader.operator or reader.author else None
    return ": ".join([each for each in (error.message, setting or hint) if each])


def body_of(error: BaseException, reader: Reader = CLIENT) -> dict[str, Any]:
    """The response body: ``message`` as for ``reader``, ``type`` by status, ``param``, our ``code``.

    For a sent program also ``diagnostics``, each with ``code``, ``message``, ``hint`` and ``span``.
    """
    if isinstance(error, AgentflowError):
        message, code = message_of(error, reader), error.code
    else:
        message, code = "the server failed; its log has the cause", "internal/error"
    param = error.param if isinstance(error, RequestError) else None
    kind = _TYPES.get(status_of(error), "invalid_request_error" if status_of(error) < 500 else "server_error")
    told: dict[str, Any] = {"message": message, "type": kind, "param": param, "code": code}
    if isinstance(error, ProgramRefused):
        told["diagnostics"] = [_diagnostic(each) for each in error.diagnostics]
    return {"error": told}


def error_response(
    error: BaseException,
    *,
    run_id: str | None = None,
    body: Mapping[str, Any] | None = None,
    reset_s: float | None = None,
) -> Response:
    """The response for ``error``, with ``body`` or the error's own; ``run_id`` names the failed run, if any.

    ``reset_s`` are the seconds until the purse has a new period, for a run that it ended. The headers ask clients not to
    repeat a request on their own once its run has started.
    """
    status = status_of(error)
    if status == 400 and run_id is not None:
        status = 422  # the request was good: its run failed
    headers: dict[str, str] = {}
    wait = error.retry_after if isinstance(error, RequestError) else reset_s if _fills_up(error) else None
    if wait is not None:
        headers["retry-after"] = str(max(1, math.ceil(wait)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if run_id is not None:
        headers["x-request-id"] = run_id
        headers["x-should-retry"] = "false"
    return Response(json.dumps(body or body_of(error)), status, headers, "application/json")


def text_field(body: Mapping[str, Any], name: str) -> str | None:
    """A field of a body that must be text if present. Raises RequestError."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"'{name}' must be text, not {type(value).__name__}", code="serve/field", param=name)
    return value


def dict_field(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field of a body that must be an object if present; otherwise an empty one. Raises RequestError."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise RequestError(f"'{name}' must be an object, not {type(value).__name__}", code="serve/field", param=name)
    return cast("dict[str, Any]", value or {})
