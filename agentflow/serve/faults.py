"""Faults of requests, and every error as an HTTP status with a body of OpenAI's shape."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from starlette.responses import Response

from agentflow.core import provider_errors as providers
from agentflow.core.errors import (
    AgentflowError,
    ConfigurationError,
    DataError,
    LimitExceeded,
    ProviderError,
    SessionBusy,
    SexpEvaluationError,
    SexpSyntaxError,
    TaskError,
)

_TIMEOUTS = (providers.FirstByteTimeout, providers.IdleTimeout, providers.CallTimeout, providers.ConnectTimeout)
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_REASONS = {"input_validation_failure": 400, "execution_timeout": 504, "llm_error": 502, "connection_error": 502}


class RequestError(AgentflowError):
    """A request that is refused.

    ``status`` is that of the answer, ``param`` the field at fault; ``retry_after`` the seconds after which it may be tried
    again.
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
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.status = status
        self.param = param
        self.retry_after = retry_after


class ProgramRefused(RequestError):
    """A program that was sent and cannot be run: ``diagnostics`` are everything that is wrong with it, in order."""

    def __init__(self, diagnostics: Sequence[AgentflowError]) -> None:
        first = diagnostics[0]
        super().__init__(diagnosis_of(first), code=first.code, hint=first.hint, param="program")
        self.diagnostics = tuple(diagnostics)


def diagnosis_of(error: AgentflowError) -> str:
    """What is wrong with a program, and where in it."""
    span = error.span
    return error.message if span is None else f"line {span.line}, column {span.column}: {error.message}"


def _diagnostic(error: AgentflowError) -> dict[str, Any]:
    span = None if error.span is None else error.span.to_dict()
    return {"code": error.code, "message": error.message, "hint": error.hint, "span": span}


def _is_of_key(error: BaseException) -> bool:
    """Whether a run was cut off by a limit of the key it is done for."""
    return isinstance(error, LimitExceeded) and error.code == "limits/tenant"


def status_of(error: BaseException) -> int:
    """The status that says what ``error`` is."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, LimitExceeded):
        return 429 if _is_of_key(error) else 504 if error.limit == "wall_s" else 422
    if isinstance(error, ProviderError):
        if isinstance(error, providers.RateLimited):
            return 429
        if isinstance(error, providers.Overloaded):
            return 503
        return 504 if isinstance(error, _TIMEOUTS) else 502
    if isinstance(error, SexpSyntaxError | DataError):
        return 400
    if isinstance(error, SessionBusy):
        return 409
    if isinstance(error, ConfigurationError):
        return 500
    if isinstance(error, TaskError | SexpEvaluationError):
        return _REASONS.get(error.reason or "", 500)
    return 500


def body_of(error: BaseException) -> dict[str, Any]:
    """The body of the answer: ``message`` with what to do instead, ``type`` by status, ``param``, our ``code``.

    Of a program that was sent also ``diagnostics``, each with ``code``, ``message``, ``hint`` and ``span``.
    """
    if isinstance(error, AgentflowError):
        message = f"{error.message}: {error.hint}" if error.hint else error.message
        code = error.code
    else:
        message, code = "the server failed; its log says why", "internal/error"
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
    day_left: float | None = None,
) -> Response:
    """The answer that says what failed, with ``body`` or that of the error.

    ``day_left`` is the seconds after which a run that was cut off by what its key may use in a day may be tried again. What a
    run has begun is not to be asked for again by a client's own accord.
    """
    headers: dict[str, str] = {}
    wait = error.retry_after if isinstance(error, RequestError) else day_left if _is_of_key(error) else None
    if wait is not None:
        headers["retry-after"] = str(max(1, math.ceil(wait)))
    if status_of(error) == 401:
        headers["www-authenticate"] = "Bearer"
    if run_id is not None:
        headers["x-request-id"] = run_id
        headers["x-should-retry"] = "false"
    return Response(json.dumps(body or body_of(error)), status_of(error), headers, "application/json")


def text_field(body: Mapping[str, Any], name: str) -> str | None:
    """A field of a body that is text if it is there. Raises RequestError."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"'{name}' is text, not {type(value).__name__}", code="serve/field", param=name)
    return value


def dict_field(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field of a body that is an object if it is there; else an empty one. Raises RequestError."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise RequestError(f"'{name}' is an object, not {type(value).__name__}", code="serve/field", param=name)
    return cast("dict[str, Any]", value or {})


__all__ = [
    "ProgramRefused",
    "RequestError",
    "body_of",
    "diagnosis_of",
    "dict_field",
    "error_response",
    "status_of",
    "text_field",
]
