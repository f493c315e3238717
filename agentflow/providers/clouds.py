"""Claude on other clouds: the Messages API with the cloud's paths, and requests signed by the SDK's clients.

The SDK's clients rewrite only requests that they encode themselves. We send bytes to a complete address, so we build the
path and the body for the cloud from the start, and the client only signs them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, Unpack
from urllib.parse import quote

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelProfile, ModelRequest, thinking_tokens
from agentflow.lib.distribution import install
from agentflow.providers.anthropic import AnthropicProvider
from agentflow.providers.dialects.aws_events import AwsEventParser
from agentflow.providers.dialects.openai_wire import anthropic_efforts
from agentflow.providers.dialects.wire import Wire, estimate_tokens
from agentflow.providers.exchange import ResponseBody
from agentflow.providers.http_adapter import NO_KEY, AdapterOptions, EventParser

API_VERSION = "2026-10-21"
"""The version of the Messages API sent in the body, as in the SDK's own cloud clients."""
_EVENT_STREAM = b"application/vnd.amazon.eventstream"


def _variable(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def check_bedrock(base_url: str | None, api_key: str | None) -> None:
    """Raise ConfigurationError without a region, or without a key if boto3, which reads credentials, is not installed."""
    if _variable("AWS_REGION", "AWS_DEFAULT_REGION") is None:
        raise _no_setting("bedrock", "the region", "AWS_REGION")
    if api_key is None and _variable("AWS_BEARER_TOKEN_BEDROCK") is None:
        _check_package("bedrock", "boto3")


def check_vertex(base_url: str | None, api_key: str | None) -> None:
    """Raise ConfigurationError without a region or project, or without a token if google-auth is not installed."""
    if _variable("CLOUD_ML_REGION") is None:
        raise _no_setting("vertex", "the region", "CLOUD_ML_REGION")
    if _variable("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT") is None:
        raise _no_setting("vertex", "the project", "ANTHROPIC_VERTEX_PROJECT_ID")
    if api_key is None:
        _check_package("vertex", "google.auth")


def check_foundry(base_url: str | None, api_key: str | None) -> None:
    """Raise ConfigurationError without a key, or without a resource if there is no ``base_url``."""
    if api_key is None and _variable("ANTHROPIC_FOUNDRY_API_KEY") is None:
        raise _no_setting("foundry", "the key", "ANTHROPIC_FOUNDRY_API_KEY")
    if base_url is None and _variable("ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_FOUNDRY_BASE_URL") is None:
        raise _no_setting("foundry", "the resource", "ANTHROPIC_FOUNDRY_RESOURCE")


def _no_setting(dialect: str, what: str, variable: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} for {dialect} is missing: the environment variable {variable} is not set",
        code="config/no-key",
        hint=f"set {variable}",
        details={"variable": variable},
    )


def _check_package(extra: str, module: str) -> None:
    try:
        missing = find_spec(module) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ConfigurationError(
            f"{extra} signs requests with a package that is not installed: {module}",
            code="config/extra",
            hint=install(extra),
        )


class CloudProvider(AnthropicProvider):
    """Base of the clouds. Model names are those of the cloud."""

    batch_api = ""

    shown_headers: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, **options: Unpack[AdapterOptions]) -> None:
        super().__init__(**options)
        self.name = options.get("name") or self.route

    def profile(self, model: str) -> ModelProfile:
        """The profile of ``model``, without features that some cloud lacks."""
        return ModelProfile(
            self.name,
            model,
            self.dialect,
            context_window=self._prices.context_window(self.route, model),
            max_output_tokens=self._cap,
            object_output=True,
            wall_s=self._clocks.wall_s,
            takes_effort=bool(anthropic_efforts(model)),
            thinking_tokens=thinking_tokens(self._settings),
            route=self.route,
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens of ``request``, estimated: not every cloud has a counting endpoint."""
        return estimate_tokens(request)

    @property
    def _cloud_key(self) -> str | None:
        """The key, or None for that of the environment, which goes to the vendor's addresses only."""
        return self._api_key or (None if self._takes_keys else NO_KEY)

    def _cloud_body(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        """The model's name, and the body without it."""
        _, body = super()._encode(request, wire, streaming)
        return str(body.pop("model")), {"anthropic_version": API_VERSION, **body}


class BedrockProvider(CloudProvider):
    """Claude on Amazon Bedrock, for example ``bedrock:anthropic.claude-sonnet-4-20250514-v1:0``.

    ``api_key`` is a bearer token of Bedrock; without one, requests are signed with the credentials that boto3 finds.
    The region is that of ``AWS_REGION``.
    """

    route: ClassVar[str] = "bedrock"
    hosts = ("amazonaws.com",)
    address_variable = "ANTHROPIC_BEDROCK_BASE_URL"

    def _own_address(self) -> str:
        return f"https://bedrock-runtime.{self._region()}.amazonaws.com"

    def _region(self) -> str:
        return _variable("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"

    def _make_client(self, sdk: Any) -> tuple[Any, Mapping[str, Any]]:
        return sdk.AsyncAnthropicBedrock, {
            "aws_region": self._region(),
            # requests are signed for any address, which gives nothing away; a bearer token would
            "api_key": self._cloud_key if _variable("AWS_BEARER_TOKEN_BEDROCK") else self._api_key,
        }

    def _encode(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        model, body = self._cloud_body(request, wire, streaming)
        body.pop("stream", None)
        call = "invoke-with-response-stream" if streaming else "invoke"
        return f"/model/{quote(model, safe=':')}/{call}", body

    def _is_stream(self, answer: ResponseBody, opening: bytes, streaming: bool) -> bool:
        kind = answer.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        return kind == _EVENT_STREAM or super()._is_stream(answer, opening, streaming)

    def _parser(self, answer: ResponseBody) -> EventParser:
        kind = answer.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        return AwsEventParser() if kind == _EVENT_STREAM else super()._parser(answer)


class VertexProvider(CloudProvider):
    """Claude on Google's Vertex AI, for example ``vertex:claude-sonnet-4@20250514``.

    ``api_key`` is an access token; without one, google-auth finds credentials. The region is that of ``CLOUD_ML_REGION``.
    """

    route: ClassVar[str] = "vertex"
    hosts = ("googleapis.com",)
    address_variable = "ANTHROPIC_VERTEX_BASE_URL"

    def _own_address(self) -> str:
        region = self._where()[1]
        if region in ("us", "eu"):
            return f"https://aiplatform.{region}.rep.googleapis.com/v1"
        return f"https://{'' if region == 'global' else f'{region}-'}aiplatform.googleapis.com/v1"

    def _make_client(self, sdk: Any) -> tuple[Any, Mapping[str, Any]]:
        project, region = self._where()
        return sdk.AsyncAnthropicVertex, {"region": region, "project_id": project, "access_token": self._cloud_key}

    def _encode(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        model, body = self._cloud_body(request, wire, streaming)
        project, region = self._where()
        call = "streamRawPredict" if streaming else "rawPredict"
        where = f"/projects/{quote(project, safe='')}/locations/{quote(region, safe='')}"
        return f"{where}/publishers/anthropic/models/{quote(model, safe='@')}:{call}", body

    def _where(self) -> tuple[str, str]:
        project = _variable("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT") or ""
        return project, _variable("CLOUD_ML_REGION") or "global"


class FoundryProvider(CloudProvider):
    """Claude on Microsoft Foundry, by the name of its deployment: ``foundry:claude-sonnet-4-5``.

    ``ANTHROPIC_FOUNDRY_RESOURCE`` determines the address unless ``base_url`` is set.
    """

    route: ClassVar[str] = "foundry"
    hosts = ("azure.com",)
    address_variable = "ANTHROPIC_FOUNDRY_BASE_URL"

    def _own_address(self) -> str:
        return f"https://{_variable('ANTHROPIC_FOUNDRY_RESOURCE') or 'RESOURCE'}.services.ai.azure.com/anthropic"

    def _make_client(self, sdk: Any) -> tuple[Any, Mapping[str, Any]]:
        return sdk.AsyncAnthropicFoundry, {"api_key": self._cloud_key}
