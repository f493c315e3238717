"""From what went wrong on the wire to one typed error: by status first, then by the error's own type or code.

A failure inside a stream carries status 200, so its type decides. Types are those of the vendors' error pages:
https://docs.anthropic.com/en/api/errors and https://platform.openai.com/docs/guides/error-codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agentflow.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    PermissionDenied,
    ProtocolError,
    ProviderError,
    RateLimited,
    ServerError,
    clip,
)
from agentflow.providers.retry import retry_after

_BY_TYPE: dict[str, type[ProviderError]] = {
    "authentication_error": AuthenticationFailed,
    "invalid_api_key": AuthenticationFailed,
    "permission_error": PermissionDenied,
    "billing_error": PermissionDenied,
    "insufficient_quota": PermissionDenied,
    "invalid_request_error": BadRequest,
    "invalid_prompt": BadRequest,
    "not_found_error": BadRequest,
    "model_not_found": BadRequest,
    "request_too_large": BadRequest,
    "conflict_error": BadRequest,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "overloaded_error": Overloaded,
    "server_overloaded": Overloaded,
    "slow_down": Overloaded,
    "api_error": ServerError,
    "server_error": ServerError,
    "internal_server_error": ServerError,
    "timeout_error": ServerError,
    "context_length_exceeded": ContextWindowExceeded,
}
_BY_STATUS: dict[int, type[ProviderError]] = {
    401: AuthenticationFailed,
    402: PermissionDenied,
    403: PermissionDenied,
    408: ServerError,
    429: RateLimited,
    503: Overloaded,
    529: Overloaded,
}
_CONTEXT_WORDS = ("prompt is too long", "context window", "context length", "maximum context")
_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_error")


def from_status(
    status: int, body: Any, headers: Mapping[str, str], *, provider: str, model: str, request_id: str | None
) -> ProviderError:
    """The error for a response with a failure status. ``body`` is its JSON, its text or None."""
    kind, said = describe(body)
    cls = _BY_STATUS.get(status) or (ServerError if status >= 500 else BadRequest)
    if 300 <= status < 400:
        return ProtocolError(
            f"{provider} answered with a redirect ({status}), which is not followed: it would carry the key elsewhere",
            code="provider/redirect",
            status=status,
            request_id=request_id,
            provider=provider,
            model=model,
            hint="set base_url to the address the server really has",
        )
    if status < 500 and _about_context(kind, said):
        cls = ContextWindowExceeded
    quota = kind in _QUOTA
    if quota:
        cls = PermissionDenied
    error = cls(
        f"{provider} answered {status}{f' {kind}' if kind else ''} for {model or 'the model'}: {said or 'no message'}",
        code="provider/quota" if quota else None,
        status=status,
        request_id=request_id,
        provider=provider,
        model=model,
        retry_after=retry_after(headers),
        hint=_hint(cls, status, provider),
        details={"type": kind},
    )
    return error


def from_stream(
    kind: str, said: str, *, provider: str, model: str, request_id: str | None, status: int = 200
) -> ProviderError:
    """The error for a failure reported inside a stream or a 200 answer."""
    cls = _BY_TYPE.get(kind, ServerError)
    if cls in (BadRequest, ServerError) and _about_context(kind, said):
        cls = ContextWindowExceeded
    return cls(
        f"{provider} failed while answering: {kind or 'error'}: {said or 'no message'}",
        code="provider/quota" if kind in _QUOTA else None,
        status=status,
        request_id=request_id,
        provider=provider,
        model=model,
        details={"type": kind},
    )


def describe(body: Any) -> tuple[str, str]:
    """Type (or code) and message of an error body of any dialect; a page of HTML is cut to a line."""
    if isinstance(body, str):
        return "", clip(" ".join(body.split()), 300)
    if not isinstance(body, dict):
        return "", ""
    data = cast(dict[str, Any], body)
    inner = data.get("error", data)
    if isinstance(inner, str):
        return "", clip(inner, 1_000)
    if not isinstance(inner, dict):
        return "", ""
    error = cast(dict[str, Any], inner)
    code, kind, message = error.get("code"), error.get("type"), error.get("message")
    # OpenAI's code is the finer of the two; Anthropic has only the type.
    best = code if isinstance(code, str) and code else kind if isinstance(kind, str) else ""
    return best, clip(message, 1_000) if isinstance(message, str) else ""


def _about_context(kind: str, said: str) -> bool:
    lowered = said.lower()
    return kind == "context_length_exceeded" or any(words in lowered for words in _CONTEXT_WORDS)


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
    """Fill in what the place that raised ``error`` did not know."""
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
    )
