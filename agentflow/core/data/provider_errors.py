"""The failures of model calls, by cause. The tree of all errors is drawn in :mod:`agentflow.core.data.errors`."""

from __future__ import annotations

from agentflow.core.data.errors import ProviderError


class AuthenticationFailed(ProviderError):
    """The key was not accepted (401)."""

    default_code = "provider/authentication"
    default_reason = "configuration_error"


class PermissionDenied(ProviderError):
    """The key may not do this (403)."""

    default_code = "provider/permission"
    default_reason = "configuration_error"


class BadRequest(ProviderError):
    """The provider refused the request as invalid (400, 404, 409, 413, 422)."""

    default_code = "provider/bad-request"


class RateLimited(ProviderError):
    """Too many requests or tokens (429)."""

    default_code = "provider/rate-limited"
    retryable = True


class Overloaded(ProviderError):
    """The provider is overloaded (503, 529)."""

    default_code = "provider/overloaded"
    retryable = True


class ServerError(ProviderError):
    """The provider failed (500, 502, other 5xx)."""

    default_code = "provider/server-error"
    retryable = True


class ContextWindowExceeded(ProviderError):
    """The provider says that the input is longer than the model's context window."""

    default_code = "provider/context-window"
    default_kind = "RESOURCE_EXHAUSTION"
    default_reason = "execution_halted"


class Refused(ProviderError):
    """The model refused to answer."""

    default_code = "provider/refused"


class ConnectionLost(ProviderError):
    """The connection failed or broke."""

    default_code = "provider/connection-lost"
    default_reason = "connection_error"
    retryable = True


class ConnectionRefused(ConnectionLost):
    """There is nothing to connect to: the port is closed, or the host has no address. Not retried."""

    default_code = "provider/connection-refused"
    retryable = False


class ConnectTimeout(ConnectionLost):
    """No connection within the connect clock."""

    default_code = "provider/connect-timeout"


class FirstByteTimeout(ProviderError):
    """Nothing was received within the first-byte clock."""

    default_code = "provider/first-byte-timeout"
    default_reason = "execution_timeout"
    retryable = True


class IdleTimeout(ProviderError):
    """The stream stalled: nothing but pings within the idle clock."""

    default_code = "provider/idle-timeout"
    default_reason = "execution_timeout"
    retryable = True


class CallTimeout(ProviderError):
    """The call took longer than its wall clock."""

    default_code = "provider/call-timeout"
    default_reason = "execution_timeout"


class IncompleteStream(ProviderError):
    """The answer has no end: no stop reason, or a truncated body; ``partial`` holds the text received."""

    default_code = "provider/incomplete-stream"
    default_reason = "connection_error"
    retryable = True


class BatchUncertain(ProviderError):
    """The vendor's list cannot tell yet whether a batch was sent. It is not sent again until the list can."""

    default_code = "provider/batch-uncertain"
    default_reason = "connection_error"
    retryable = True


class ProtocolError(ProviderError):
    """The server answered in something other than its dialect (HTML, bad JSON, bad UTF-8, too large, too deep)."""

    default_code = "provider/protocol"
    default_reason = "protocol_error"
