"""Maps failures on the wire to typed errors: by status first, then by the error's own code or type.

A failure inside a stream has status 200, so its code or type decides. Types are those of the vendors' error pages
(https://docs.anthropic.com/en/api/errors, https://platform.openai.com/docs/guides/error-codes) and of servers that
speak their dialects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentflow.core.data.errors import ProviderError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.provider_errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    PermissionDenied,
    ProtocolError,
    RateLimited,
    Refused,
    ServerError,
)
from agentflow.core.data.values import to_json
from agentflow.providers.dialects.retry import retry_after
from agentflow.providers.dialects.wire import record, records, string

_BY_KIND: Mapping[str, type[ProviderError]] = MappingProxyType(
    {
        "authentication": AuthenticationFailed,
        "unauthenticated": AuthenticationFailed,
        "unauthorized": AuthenticationFailed,
        "invalidapikey": AuthenticationFailed,
        "permission": PermissionDenied,
        "permissiondenied": PermissionDenied,
        "accessdenied": PermissionDenied,
        "forbidden": PermissionDenied,
        "billing": PermissionDenied,
        "billinghardlimitreached": PermissionDenied,
        "insufficientquota": PermissionDenied,
        "invalidrequest": BadRequest,
        "invalidargument": BadRequest,
        "invalidprompt": BadRequest,
        "badrequest": BadRequest,
        "validation": BadRequest,
        "notfound": BadRequest,
        "modelnotfound": BadRequest,
        "notsupported": BadRequest,
        "requesttoolarge": BadRequest,
        "conflict": BadRequest,
        "contentfilter": Refused,
        "contentpolicyviolation": Refused,
        "ratelimit": RateLimited,
        "ratelimitexceeded": RateLimited,
        "toomanyrequests": RateLimited,
        "resourceexhausted": RateLimited,
        "throttling": RateLimited,
        "overloaded": Overloaded,
        "serveroverloaded": Overloaded,
        "serviceunavailable": Overloaded,
        "slowdown": Overloaded,
        "unavailable": Overloaded,
        "contextlengthexceeded": ContextWindowExceeded,
        "contextwindowexceeded": ContextWindowExceeded,
        "exceedcontextsize": ContextWindowExceeded,
    }
)
"""Error kinds in lower case, without separators and a final ``error``; any other is a ServerError."""
_BY_STATUS: Mapping[int, type[ProviderError]] = MappingProxyType(
    {
        401: AuthenticationFailed,
        402: PermissionDenied,
        403: PermissionDenied,
        408: ServerError,
        425: ServerError,
        429: RateLimited,
        503: Overloaded,
        529: Overloaded,
    }
)
_CONTEXT_WORDS = (
    "prompt is too long",
    "input is too long",
    "context window",
    "context length",
    "context size",
    "maximum context",
    "exceeds the context",
    "larger than the context",
)
"""Phrases for an input longer than the model's context, which servers report under various statuses and types."""
_QUOTA = ("insufficientquota", "billinghardlimitreached", "billing")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d+)?)s").fullmatch
_SAID = ("message", "detail", "msg", "status_msg", "error_description", "reason", "title", "error")
"""Keys of an error body that hold its message, best first."""


_MINIMAX: Mapping[object, str] = MappingProxyType(
    {
        1002: "rate_limit",
        1004: "authentication",
        1008: "insufficient_quota",
        1026: "content_filter",
        1027: "content_filter",
        1039: "rate_limit",
        2013: "invalid_request",
        2049: "authentication",
    }
)
"""Numbers of ``base_resp``, which reports errors despite status 200
(https://platform.minimax.io/docs/api-reference/errorcode, 2026-11)."""


@frozen
class Fault:
    """The contents of an error body: its textual ``kind``, ``code`` if it is an HTTP status, its ``message``, and the request
    field at fault (``param``)."""

    kind: str
    code: int | None
    message: str
    param: str = ""


def describe(body: Any) -> Fault:
    """Parse the error body of any dialect: an object, an object in a list, FastAPI's ``detail``, an HTML page."""
    if isinstance(body, str):
        return Fault("", None, clip(" ".join(body.split()), 300))
    outer = records(body)[0] if records(body) else body
    base = record(record(outer).get("base_resp"))
    errors = record(outer).get("error") or record(outer).get("errors") or base
    error = record((records(errors) or [errors])[0]) or record(outer)
    numbers = [_status(error.get(key)) for key in ("code", "status", "status_code", "type")]
    # OpenAI's code is more specific than its type; Anthropic has only a type, Google a status in words.
    kinds = [error.get(key) for key in ("code", "type", "status") if _status(error.get(key)) is None]
    kinds.append(_MINIMAX.get(base.get("status_code")))
    return Fault(
        next((kind for kind in kinds if isinstance(kind, str) and kind not in ("", "None", "null")), ""),
        next((number for number in numbers if number is not None), None),
        clip(_words(error) or (errors if isinstance(errors, str) else "") or _words(outer), 1_000),
        string(error.get("param")),
    )


def is_failure(body: Any) -> bool:
    """Whether a body without an answer is a failure, though it has no ``error``: MiniMax's ``base_resp`` says so."""
    return bool(record(record(body).get("base_resp")).get("status_code"))


def _asked_wait(body: Any) -> float | None:
    """The seconds that an error body of Google's asks to wait (``google.rpc.RetryInfo``); None if it does not."""
    outer = records(body)[0] if records(body) else body
    for detail in records(record(record(outer).get("error")).get("details")):
        delay = record(detail).get("retryDelay")
        if isinstance(delay, str) and (seconds := _DURATION(delay)):
            return float(seconds[1])
    return None


def _status(value: Any) -> int | None:
    """``value`` as an error status if it is one, as a number or digits."""
    number = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else 0
    return number if 400 <= number < 600 else None


def _words(value: Any, depth: int = 0) -> str:
    """The message of an error body; the whole body as JSON if there is none under a usual key."""
    if isinstance(value, str) or depth > 4 or not value:
        return str(value or "")
    if isinstance(value, list):
        return "; ".join(_words(item, depth + 1) for item in records(value)[:5])
    body = record(value)
    message = next((words for key in _SAID if (words := body.get(key)) and (words := _words(words, depth + 1))), "")
    where = ".".join(str(part) for part in records(body.get("loc")))
    return (f"{where}: {message}" if where else message) if message else to_json(value)


def from_status(
    status: int, body: Any, headers: Mapping[str, str], *, provider: str, model: str, request_id: str | None
) -> ProviderError:
    """The error for a response with an error status. ``body`` is its JSON, its text or None."""
    if 300 <= status < 400:
        return ProtocolError(
            f"{provider} answered with a redirect ({status}), which is not followed: that would send the key to another address",
            code="provider/redirect",
            status=status,
            request_id=request_id,
            provider=provider,
            model=model,
            hint="set base_url to the server's actual address",
        )
    fault = describe(body)
    kind = f" {fault.kind}" if fault.kind else ""
    message = f"{provider} answered {status}{kind} for {model or 'the model'}: {fault.message or 'no message'}"
    cls = _by_status(status)
    error = _error(cls, fault, message, provider=provider, model=model, request_id=request_id, status=status)
    wait = retry_after(headers)
    error.retry_after = wait if wait is not None else _asked_wait(body)
    error.hint = error.hint or _hint(type(error), status, provider)
    return error


def from_stream(body: Any, *, provider: str, model: str, request_id: str | None = None) -> ProviderError:
    """The error for a failure reported inside a stream or a 200 answer, by its number or else its kind."""
    fault = describe(body)
    message = (
        f"{provider} failed while answering: {fault.kind or fault.code or 'error'}: {fault.message or 'no message'}"
    )
    cls = _by_status(fault.code) if fault.code else _BY_KIND.get(_plain(fault.kind), ServerError)
    error = _error(cls, fault, message, provider=provider, model=model, request_id=request_id, status=200)
    error.retry_after = _asked_wait(body)
    return error


def _by_status(status: int) -> type[ProviderError]:
    return _BY_STATUS.get(status) or (ServerError if status >= 500 else BadRequest)


def _error(cls: type[ProviderError], fault: Fault, message: str, *, status: int, **about: Any) -> ProviderError:
    """An error of ``cls``, or a more specific one by the body: a full context window, a spent quota, a refusal."""
    kind = _plain(fault.kind)
    finer = _BY_KIND.get(kind)
    if cls in (BadRequest, ServerError) and (finer is ContextWindowExceeded or _about_context(fault.message)):
        cls = ContextWindowExceeded
    elif cls is BadRequest and finer is Refused:
        cls = Refused
    quota = kind in _QUOTA
    if quota:
        cls = PermissionDenied
    details = {"type": fault.kind, "provider_code": fault.kind or fault.code}
    if fault.param:
        details["param"] = fault.param
    return cls(message, code="provider/quota" if quota else None, status=status, details=details, **about)


def _plain(kind: str) -> str:
    return (
        kind.lower().replace("_", "").replace("-", "").replace(" ", "").removesuffix("error").removesuffix("exception")
    )


def _about_context(message: str) -> bool:
    lowered = message.lower()
    return any(words in lowered for words in _CONTEXT_WORDS)


def _hint(cls: type[ProviderError], status: int, provider: str) -> str | None:
    if cls is AuthenticationFailed:
        return f"check the API key for {provider}"
    if cls is PermissionDenied and status == 402:
        return "the account has no credit left"
    if status == 404:
        return "check the model's name and the base URL"
    return None


def complete(
    error: ProviderError, *, provider: str, model: str, request_id: str | None, status: int | None, partial: str
) -> None:
    """Fill in fields that the code that raised ``error`` did not know."""
    error.provider = error.provider or provider
    error.model = error.model or model
    error.request_id = error.request_id or request_id
    error.status = error.status if error.status is not None else status
    error.partial = error.partial or partial
    error.details.update(
        provider=error.provider,
        model=error.model,
        request_id=error.request_id,
        status=error.status,
        partial=clip(error.partial),
        attempts=error.attempts,
        retry_after=error.retry_after,
    )


def describe_attempts(error: ProviderError) -> None:
    """Append the number of attempts, and the wait that the server asked for, to the message of a call's last error."""
    tries = f"{error.attempts} attempts were made" if error.attempts > 1 else ""
    asked = f"the server asks to wait {error.retry_after:g} s" if error.retry_after is not None else ""
    if tries or asked:
        error.message = f"{error.message} ({', '.join(filter(None, (tries, asked)))})"
        error.args = (error.message,)
