"""The ``anthropic.messages`` dialect."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelProfile, ModelRequest, thinking_tokens
from agentflow.providers.dialects import anthropic_wire as messages
from agentflow.providers.dialects.address import is_host_of
from agentflow.providers.dialects.decoding import Decoder
from agentflow.providers.dialects.openai_wire import anthropic_efforts
from agentflow.providers.dialects.wire import Wire
from agentflow.providers.exchange import HttpCall, Sdk
from agentflow.providers.http_adapter import NO_KEY, HttpAdapter
from agentflow.providers.proxies import ClientPool

_PLAIN_LIMIT = 21_333
"""Maximum output tokens of a request without streaming. The API's guide asks for streaming where a call may take more than ten
minutes, at 128,000 tokens an hour by the SDK's estimate."""
ADDRESS = "https://api.anthropic.com"
CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
    "ANTHROPIC_CONFIG_DIR",
)
"""The variables that may hold a key or say where one is."""


def check_key(base_url: str | None, api_key: str | None) -> None:
    """Raise ConfigurationError if the server is the vendor's and a credential is missing. Looks at the environment only, without
    importing the SDK."""
    if api_key or has_credentials():
        return
    if is_host_of(base_url or os.environ.get("ANTHROPIC_BASE_URL") or ADDRESS, AnthropicProvider.hosts):
        raise _no_key()


def has_credentials() -> bool:
    """Whether the environment or the user's directory may hold a credential of Anthropic."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return any([os.environ.get(name) for name in CREDENTIALS]) or (home / "anthropic").exists()


def _no_key() -> ConfigurationError:
    return ConfigurationError(
        "no API key for anthropic: the environment variable ANTHROPIC_API_KEY is not set",
        code="config/no-key",
        hint="set ANTHROPIC_API_KEY, or pass api_key=...; model='offline' needs no key",
        details={"variable": "ANTHROPIC_API_KEY"},
    )


class AnthropicProvider(HttpAdapter):
    """Claude models through the Messages API. Parameters: see :class:`HttpAdapter`."""

    dialect: ClassVar[str] = messages.DIALECT
    provider: ClassVar[str] = "anthropic"
    route: ClassVar[str] = "anthropic"
    batch_api: ClassVar[str] = "anthropic"
    address = ADDRESS
    hosts = ("anthropic.com",)
    address_variable = "ANTHROPIC_BASE_URL"
    _needed = frozenset(["max_tokens"])
    shown_headers = MappingProxyType({"x-api-key": "$ANTHROPIC_API_KEY", "anthropic-version": "2023-06-01"})

    def profile(self, model: str) -> ModelProfile:
        """The profile of ``model``; models named ``claude-3...`` have no structured output."""
        return ModelProfile(
            self.name,
            model,
            self.dialect,
            context_window=self._prices.context_window(self.provider, model),
            max_output_tokens=self._cap,
            native_json_schema=self.traits.enforces and messages.takes_schemas(model),
            counts_tokens=True,
            object_output=True,
            wall_s=self._clocks.wall_s,
            takes_effort=bool(anthropic_efforts(model)),
            thinking_tokens=thinking_tokens(self._settings),
            searches_tools=self.traits.tool_search and messages.searches_tools(model),
            route=self.route,
        )

    def _open(self) -> tuple[ClientPool, Sdk]:
        import anthropic

        from agentflow.providers import transport

        self._prices.load()
        make, size = self._http_clients(anthropic)
        http = make()
        kind, options = self._make_client(anthropic)
        client = transport.quiet_client(kind)(
            **options, base_url=self._client_address, max_retries=0, open_telemetry=False, http_client=http
        )
        if (
            kind is anthropic.AsyncAnthropic
            and client.api_key is None
            and client.auth_token is None
            and client.credentials is None
        ):
            raise _no_key()
        return ClientPool(client, http, make, size), Sdk(
            anthropic.APIStatusError,
            anthropic.AnthropicError,
            transport.transport_errors(self._aiohttp),
            transport.connection_fault,
            transport.RESPONSE,
            anthropic.AsyncStream[object],
        )

    def _make_client(self, sdk: Any) -> tuple[Any, Mapping[str, Any]]:
        """The class of the SDK's client, and its arguments except the address."""
        key = self._api_key
        if key is None and not self._is_vendors and (self._base_url or not has_credentials()):
            key = NO_KEY  # without an argument the SDK would take the vendor's from the environment
        return sdk.AsyncAnthropic, {"api_key": key}

    def _plain(self, request: ModelRequest) -> bool:
        return self._limit(request) <= _PLAIN_LIMIT

    def _limit(self, request: ModelRequest) -> int:
        """The maximum of tokens of an answer: as stated, or the usual one on top of a budget of thinking, which is a part of it.

        Raises ConfigurationError (``config/thinking-budget``) for a budget of the stated maximum or more.
        """
        settings = {**self._settings, **request.settings}
        budget = thinking_tokens(settings)
        stated = request.max_output_tokens or settings.get("max_tokens")
        if not isinstance(stated, int):
            return messages.DEFAULT_MAX_TOKENS + budget
        if stated <= budget:
            raise ConfigurationError(
                f"the budget of thinking, {budget:,} tokens, is not below the {stated:,} tokens that the whole answer may have",
                code="config/thinking-budget",
                hint=f"raise max_output_tokens above {budget:,}, leave it out, or lower thinking's budget_tokens",
            )
        return stated

    def _encode(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        body = messages.encode(request, wire, streaming, self._limit(request))
        if streaming:
            body["stream"] = True
        return "/v1/messages", body

    def _decoder(self, call: HttpCall) -> Decoder:
        return messages.MessagesDecoder(call.wire, provider=self.name, model=call.request.model)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens as counted by the API; estimated if the server cannot count (404, 405, 501)."""
        fields = ("model", "messages", "system", "tools", "tool_choice", "output_config", "thinking")
        return await self._count(request, "/v1/messages/count_tokens", fields)
