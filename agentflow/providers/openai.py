"""The two OpenAI dialects on one SDK client: ``openai.chat`` and ``openai.responses``."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Any, ClassVar

from agentflow.core.data.messages import ModelProfile, ModelRequest
from agentflow.providers.dialects import openai_chat_wire as chat
from agentflow.providers.dialects import openai_responses_wire as responses
from agentflow.providers.dialects import openai_wire as common
from agentflow.providers.dialects.decoding import Decoder
from agentflow.providers.dialects.openai_wire import openai_efforts
from agentflow.providers.dialects.wire import Wire
from agentflow.providers.exchange import HttpCall, Sdk
from agentflow.providers.http_adapter import NO_KEY, HttpAdapter
from agentflow.providers.proxies import ClientPool


class OpenAIProvider(HttpAdapter):
    """The base of both dialects. Parameters: see :class:`HttpAdapter`."""

    provider: ClassVar[str] = "openai"
    address = common.ADDRESS
    hosts = common.HOSTS
    address_variable = common.ADDRESS_VARIABLE
    shown_headers = MappingProxyType({"authorization": "Bearer $OPENAI_API_KEY"})

    @property
    def _organisation(self) -> str:
        headers: dict[str, str] = self._settings.get("extra_headers") or {}
        named = [value for name, value in headers.items() if name.lower() == "openai-organization"]
        return named[0] if named else os.environ.get("OPENAI_ORG_ID") or ""

    def profile(self, model: str) -> ModelProfile:
        return ModelProfile(
            self.name,
            model,
            self.dialect,
            context_window=self._prices.context_window(self.provider, model)
            if self.traits.vendor == self.provider
            else None,
            max_output_tokens=self._cap,
            native_json_schema=self.traits.enforces,
            counts_tokens=self.dialect == responses.DIALECT,
            object_output=True,
            wall_s=self._clocks.wall_s,
            takes_effort=bool(openai_efforts(model)),
            searches_tools=self.dialect == responses.DIALECT
            and self.traits.tool_search
            and responses.searches_tools(model),
            route=self.route,
        )

    def _open(self) -> tuple[ClientPool, Sdk]:
        import openai

        from agentflow.providers import transport

        common.check_key(self._base_url, self._api_key)
        self._prices.load()
        make, size = self._http_clients(openai)
        http = make()
        client = transport.quiet_client(openai.AsyncOpenAI)(
            api_key=self._api_key or (self._takes_keys and os.environ.get("OPENAI_API_KEY")) or NO_KEY,
            base_url=self._client_address,
            max_retries=0,
            http_client=http,
        )
        return ClientPool(client, http, make, size), Sdk(
            openai.APIStatusError,
            openai.OpenAIError,
            transport.transport_errors(self._aiohttp),
            transport.connection_fault,
            transport.RESPONSE,
            openai.AsyncStream[object],
        )


class OpenAIChatProvider(OpenAIProvider):
    """The ``openai.chat`` dialect: Chat Completions, and the local servers that speak it."""

    dialect: ClassVar[str] = chat.DIALECT
    route: ClassVar[str] = "openai-chat"
    batch_api: ClassVar[str] = "openai"

    def _encode(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        body = {**chat.encode(request, wire, streaming), **common.cache_fields(request)}
        if streaming:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        return "/chat/completions", body

    def _decoder(self, call: HttpCall) -> Decoder:
        return chat.ChatDecoder(call.wire, provider=self.name, model=call.request.model)


class OpenAIResponsesProvider(OpenAIProvider):
    """The ``openai.responses`` dialect."""

    dialect: ClassVar[str] = responses.DIALECT
    route: ClassVar[str] = "openai"
    batch_api: ClassVar[str] = "openai"

    def _encode(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        body = {**responses.encode(request, wire, streaming), **common.cache_fields(request)}
        if streaming:
            body["stream"] = True
        return "/responses", body

    def _decoder(self, call: HttpCall) -> Decoder:
        return responses.ResponsesDecoder(call.wire, provider=self.name, model=call.request.model)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens as counted by the API; estimated if the server cannot count."""
        fields = ("model", "input", "instructions", "tools", "tool_choice", "text", "reasoning")
        return await self._count(request, "/responses/input_tokens", fields)
