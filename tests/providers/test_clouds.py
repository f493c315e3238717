"""Claude on the clouds: the released SDK signs, a server of our own checks the signature and speaks the cloud's framing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agentflow.core.data.errors import ConfigurationError, ProviderError
from agentflow.core.data.messages import Message, ModelRequest, ModelResponse, TextPart
from agentflow.core.data.provider_errors import (
    IncompleteStream,
    Overloaded,
    PermissionDenied,
    ProtocolError,
    RateLimited,
)
from agentflow.providers.dialects.aws_events import AwsEventParser
from agentflow.providers.dialects.retry import RetryPolicy
from agentflow.providers.prices import Prices
from agentflow.providers.table import open_provider
from tests.support.cloud_server import EVENTS, MESSAGE, Asked, chunk, cloud_server, frame, frames, signature, sse
from tests.support.model_server import ModelServer

MODEL = "us.anthropic.claude-sonnet-4-20250514-v1:0"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
AWS = "application/vnd.amazon.eventstream"
Answer = Callable[[Asked], tuple[int, str, bytes]]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials as a user sets them."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-west-1",
        "CLOUD_ML_REGION": "europe-west1",
        "ANTHROPIC_VERTEX_PROJECT_ID": "project-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)


def text_of(response: ModelResponse) -> str:
    return "".join(part.text for part in response.parts if isinstance(part, TextPart))


async def call(
    dialect: str, url: str, model: str, *, stream: bool, api_key: str | None = None, **options: Any
) -> ModelResponse:
    adapter = open_provider(
        dialect, base_url=url, api_key=api_key, retry=RetryPolicy(attempts=1), prices=Prices(), **options
    )
    request = ModelRequest(model=model, messages=(Message("user", (TextPart("Capital?"),)),), stream=stream)
    try:
        async for delta in adapter.stream(request):
            if delta.response is not None:
                return delta.response
        raise AssertionError("no response")
    finally:
        await adapter.aclose()


def signed(answer: Answer, secret: str = SECRET) -> Answer:
    """A Bedrock that answers only what is signed with the secret."""

    def check(asked: Asked) -> tuple[int, str, bytes]:
        given = asked.headers["authorization"].rpartition("Signature=")[2]
        if given != signature(secret, asked.method, asked.path, asked.headers, asked.data):
            return 403, "application/json", b'{"message": "The request signature we calculated does not match"}'
        return answer(asked)

    return check


@pytest.mark.parametrize("pieces", [1, 7, 100_000])
async def test_bedrock_streams_frames(pieces: int) -> None:
    """Signed by the SDK, at the cloud's path, without model and stream in the body; frames arrive in any pieces."""
    async with cloud_server(signed(lambda _: (200, AWS, frames())), pieces) as server:
        response = await call("bedrock", server.url, MODEL, stream=True)
    (asked,) = server.asked
    assert asked.path == f"/model/{MODEL}/invoke-with-response-stream"
    assert not {"model", "stream"} & set(asked.body) and asked.body["anthropic_version"]
    assert text_of(response) == "Paris" and response.usage.output_tokens == 3
    assert response.cost_usd == pytest.approx((12 * 3 + 3 * 15) / 1e6)


async def test_bedrock_answers_whole() -> None:
    """A request that nobody watches is a plain one."""
    async with cloud_server(signed(lambda _: (200, "application/json", json.dumps(MESSAGE).encode()))) as server:
        assert text_of(await call("bedrock", server.url, MODEL, stream=False, traits={"own": False})) == "Paris"
    assert server.asked[0].path == f"/model/{MODEL}/invoke"


async def test_a_wrong_signature_is_refused() -> None:
    """The server's check can fail: where it has another secret, the call is refused, and says so."""
    async with cloud_server(signed(lambda _: (200, AWS, frames()), "another")) as server:
        with pytest.raises(PermissionDenied, match="signature"):
            await call("bedrock", server.url, MODEL, stream=True)


async def test_bedrock_takes_a_bearer_token() -> None:
    """A key of Bedrock's own needs no signature."""
    async with cloud_server(lambda _: (200, AWS, frames())) as server:
        assert text_of(await call("bedrock", server.url, MODEL, stream=True, api_key="token-1")) == "Paris"
    assert server.asked[0].headers["authorization"] == "Bearer token-1"


async def test_vertex() -> None:
    """The model is in the path, the token in the header, the events are server-sent."""
    async with cloud_server(lambda _: (200, "text/event-stream", sse())) as server:
        response = await call("vertex", server.url, "claude-sonnet-4@20250514", stream=True, api_key="token-2")
    (asked,) = server.asked
    where = "/projects/project-1/locations/europe-west1/publishers/anthropic/models"
    assert asked.path == f"{where}/claude-sonnet-4@20250514:streamRawPredict"
    assert asked.headers["authorization"] == "Bearer token-2"
    assert "model" not in asked.body and asked.body["stream"] is True
    assert text_of(response) == "Paris" and response.cost_usd is not None


async def test_foundry() -> None:
    """Anthropic's own path and body, with the resource's key."""
    async with cloud_server(lambda _: (200, "text/event-stream", sse())) as server:
        assert text_of(await call("foundry", server.url, "my-deployment", stream=True, api_key="key-3")) == "Paris"
    (asked,) = server.asked
    assert asked.path == "/v1/messages" and asked.body["model"] == "my-deployment"
    assert "key-3" in (asked.headers.get("api-key"), asked.headers.get("x-api-key"))


EFFORTS = [
    ("bedrock", MODEL, None),
    ("vertex", "claude-opus-4-6", "max"),
    ("vertex", "claude-sonnet-4@20250514", None),
    ("foundry", "claude-opus-4-5", "high"),
    ("foundry", "my-deployment", None),
]


@pytest.mark.parametrize(("dialect", "model", "effort"), EFFORTS)
async def test_an_effort_is_sent_to_the_models_whose_profile_takes_one(
    dialect: str, model: str, effort: str | None
) -> None:
    """On a cloud as elsewhere: who is warned that an effort is left out is not sent one, and the other way about."""
    async with cloud_server(lambda _: (200, AWS if dialect == "bedrock" else "text/event-stream", b"")) as server:
        adapter = open_provider(dialect, base_url=server.url, api_key="t", retry=RetryPolicy(attempts=1))
        request = ModelRequest(model=model, messages=(Message("user", (TextPart("Hi."),)),), effort="max", stream=True)
        with pytest.raises(ProviderError):
            async for _ in adapter.stream(request):
                pass
        await adapter.aclose()
    (asked,) = server.asked
    assert asked.body.get("output_config", {}).get("effort") == effort
    assert adapter.profile(model).takes_effort == (effort is not None)


def exception(kind: str, said: str) -> bytes:
    return frame(json.dumps({"message": said}).encode(), message_type="exception", exception_type=kind)


FAULTS: list[tuple[bytes, type[ProviderError]]] = [
    (chunk(EVENTS[0]) + exception("throttlingException", "slow down"), RateLimited),
    (chunk(EVENTS[0]) + exception("serviceUnavailableException", "later"), Overloaded),
    (chunk(EVENTS[0]) + exception("modelStreamErrorException", "broke"), ProviderError),
    (b"".join(map(chunk, EVENTS[:4])), IncompleteStream),
    (frames()[:200] + b"\x00" + frames()[201:], ProtocolError),
    (frames()[:150], IncompleteStream),
    (b"\xff" * 64, ProtocolError),
    (frame(b'{"bytes": "%%%"}', message_type="event", event_type="chunk"), ProtocolError),
    (frame(b"no json", message_type="event", event_type="chunk"), ProtocolError),
]


@pytest.mark.parametrize(("body", "error"), FAULTS)
async def test_what_goes_wrong_in_frames_is_a_typed_error(body: bytes, error: type[ProviderError]) -> None:
    """Exceptions, cut and garbled frames: an error of the kind it is, never a short answer that looks whole."""
    async with cloud_server(lambda _: (200, AWS, body)) as server:
        with pytest.raises(error):
            await call("bedrock", server.url, MODEL, stream=True, api_key="t")


def test_every_changed_byte_of_a_frame_is_noticed() -> None:
    """Each byte stands under a checksum."""
    whole = chunk({"type": "ping"})
    for at in range(len(whole)):
        garbled = bytearray(whole)
        garbled[at] ^= 0x10
        with pytest.raises(ProtocolError) as caught:
            AwsEventParser().feed(bytes(garbled))
        assert caught.value.code == "provider/bad-frame"


def test_a_frame_has_a_largest_size() -> None:
    """A frame that would not fit is refused before it has arrived."""
    with pytest.raises(ProtocolError) as caught:
        AwsEventParser(1_000).feed(frame(b"x" * 2_000, message_type="event")[:20])
    assert caught.value.code == "provider/too-large"


MISSING: list[tuple[str, dict[str, Any], str]] = [
    ("bedrock", {}, "AWS_REGION"),
    ("vertex", {"api_key": "t"}, "CLOUD_ML_REGION"),
    ("foundry", {}, "ANTHROPIC_FOUNDRY_API_KEY"),
    ("foundry", {"api_key": "k"}, "ANTHROPIC_FOUNDRY_RESOURCE"),
]


@pytest.mark.parametrize(("dialect", "options", "variable"), MISSING)
def test_what_is_not_set_is_named(
    dialect: str, options: dict[str, Any], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is imported or connected."""
    for name in ("AWS_REGION", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name)
    with pytest.raises(ConfigurationError) as caught:
        open_provider(dialect, **options)
    assert caught.value.code == "config/no-key" and caught.value.details["variable"] == variable


@pytest.mark.parametrize(("dialect", "package"), [("bedrock", "boto3"), ("vertex", "google.auth")])
def test_a_missing_package_is_named_with_its_extra(dialect: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what signs, the model is refused before anything is sent, with the extra that brings it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError) as caught:
        open_provider(dialect, base_url="http://127.0.0.1:9", prices=Prices())
    assert caught.value.code == "config/extra" and caught.value.hint == f"pip install 'agentflow[{dialect}]'"
    assert package in caught.value.message


@pytest.mark.parametrize("stream", [True, False])
async def test_azures_address_for_openais_models(stream: bool) -> None:
    """It is OpenAI's own dialect below ``/openai/v1/``: the path stays, the deployment is the model, the resource's key goes along."""
    async with ModelServer(["Paris."]) as server:
        answer = await call("openai", f"{server.url}/openai/v1/", "my-deployment", stream=stream, api_key="azure-key")
        assert text_of(answer) == "Paris."
        (asked,) = server.requests
    assert asked.path == "/openai/v1/responses" and asked.body["model"] == "my-deployment"
    assert asked.headers["authorization"] == "Bearer azure-key"
