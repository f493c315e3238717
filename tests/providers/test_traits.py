"""What a server takes: known by its host, stated by a user, or guessed, and learned from a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, Provider, Traits
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelRequest, ToolSpec, user
from agentflow.core.data.provider_errors import BadRequest
from agentflow.core.events.events import Event, Warning
from agentflow.providers import RetryPolicy, open_provider
from agentflow.providers.known_servers import ROWS, row_of, traits_of
from agentflow.settings import load_settings
from tests.support.model_server import ModelServer, Request

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ADD = ToolSpec("add", "Adds", {"type": "object", "properties": {"a": {"type": "integer"}}})


class City(BaseModel):
    name: str


def sent(address: str, *, route: str = "openai-chat", traits: Any = None, **fields: Any) -> dict[str, Any]:
    """The body that an adapter would send to an address."""
    adapter = open_provider(route, base_url=address, api_key="k", traits=traits)
    return adapter.described(ModelRequest((user("hi"),), model="gpt-5.2", **fields))["body"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://us.api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1/", "max_completion_tokens"),
        ("https://mine.services.ai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://api.groq.com/openai/v1", "max_completion_tokens"),
        ("https://api.deepseek.com", "max_tokens"),
        ("https://api.mistral.ai/v1", "max_tokens"),
        ("http://localhost:8080/v1", "max_tokens"),
        ("https://api.openai.com.evil.example/v1", "max_tokens"),
    ],
)
def test_the_limit_goes_by_the_host(address: str, field: str) -> None:
    """Regional hosts are their vendor's; a host that only begins like one is not."""
    body = sent(address, max_output_tokens=100)
    assert [name for name in body if "tokens" in name] == [field] and body[field] == 100


def test_each_row_says_where_its_rules_are_from() -> None:
    """A row is certain, has a source with its month, and is the one that is found at its own host."""
    for route, host, traits in ROWS:
        assert traits.sure and traits.vendor and traits.source.count("20") >= 1, host
        address = f"http://localhost{host}/v1" if host.startswith(":") else f"https://{host}/v1"
        assert row_of(route, address) is traits


@pytest.mark.parametrize(
    ("address", "alone", "beside_tools"),
    [
        ("https://api.openai.com/v1", "json_schema", "json_schema"),
        ("https://api.deepseek.com", "json_object", "json_object"),
        ("https://api.groq.com/openai/v1", "json_object", None),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "json_schema", None),
        ("http://127.0.0.1:11434/v1", "json_schema", None),
        ("https://api.anthropic.com/v1", None, None),
    ],
)
def test_the_form_of_answers_is_asked_for_as_the_server_takes_it(
    address: str, alone: str | None, beside_tools: str | None
) -> None:
    """With a schema, as an object, or by the prompt alone; some servers take no format beside tools or in streams."""
    for tools, expected in (((), alone), ((ADD,), beside_tools)):
        body = sent(address, output_schema=SCHEMA, tools=tools, stream=False)
        assert body.get("response_format", {}).get("type") == expected
    groq = sent("https://api.groq.com/openai/v1", output_schema=SCHEMA, stream=True)
    assert "response_format" not in groq


def test_only_servers_that_enforce_schemas_are_trusted_with_them() -> None:
    """Elsewhere the schema is in the prompt as well: a server may ignore the field."""
    known = {
        ("openai", "https://eu.api.openai.com/v1"): True,
        ("openai-chat", "https://mine.openai.azure.com/openai/v1"): True,
        ("anthropic", "https://api.anthropic.com"): True,
        ("openai-chat", "https://openrouter.ai/api/v1"): False,
        ("openai-chat", "http://localhost:8000/v1"): False,
        ("anthropic", "https://gateway.example"): False,
    }
    for (route, address), expected in known.items():
        adapter = open_provider(route, base_url=address, api_key="k")
        assert adapter.profile("m").native_json_schema is expected, address


def test_what_a_user_states_goes_over_what_is_known() -> None:
    """Stated traits replace single ones; what is to be left out is added to what is left out anyway."""
    address = "http://localhost:8000/v1"
    body = sent(address, traits={"limit_field": "max_completion_tokens"}, max_output_tokens=5, stream=True)
    assert body["max_completion_tokens"] == 5 and "stream_options" in body
    body = sent(address, traits={"omit": ["stream_options"]}, stream=True, cache_key="abc")
    assert "stream_options" not in body and "prompt_cache_key" not in body
    body = sent(address, traits={"output": "prompt"}, output_schema=SCHEMA)
    assert "response_format" not in body
    adapter = open_provider(
        "openai-chat", base_url=address, api_key="k", traits={"output": "json_schema", "strict": True}
    )
    assert adapter.profile("m").native_json_schema
    whole = sent(
        address, traits=Traits(output="json_object", system_role="developer"), output_schema=SCHEMA, system="Be brief."
    )
    assert whole["response_format"] == {"type": "json_object"}
    assert whole["messages"][0] == {"role": "developer", "content": "Be brief."}


def test_a_server_without_a_role_for_the_system_text_is_told_it_by_the_user() -> None:
    """It stands at the beginning of the first message, since such servers want the roles to alternate."""
    body = sent("http://localhost:8000/v1", traits={"system_role": "user"}, system="Be brief.")
    assert body["messages"] == [{"role": "user", "content": "Be brief.\n\nhi"}]


@pytest.mark.parametrize(
    ("traits", "words"),
    [
        ({"max_tokens": "max_completion_tokens"}, "limit_field"),
        ({"response_format": "json_object"}, "'output'"),
        ({"stream_options": False}, "'omit'"),
        ({"outputs": "prompt"}, "did you mean 'output'?"),
        ({"output": "json"}, "json_object"),
        ({"omit": "stream_options"}, "['stream_options']"),
        ({"vendor": "openai"}, "the options are"),
        ("json_object", "traits={'output': 'json_object'}"),
    ],
)
def test_traits_that_there_are_not_are_refused(traits: Any, words: str) -> None:
    """By the flow and by the adapter, when they are built, with the word that was meant."""
    for build in (
        lambda: AgentFlow("openai-chat:m", provider=Provider(traits=traits)),
        lambda: open_provider("openai-chat", traits=traits, base_url="http://localhost/v1"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            build()
        assert caught.value.code == "config/option" and words in str(caught.value.hint)


def test_the_settings_file_states_traits(tmp_path: Path) -> None:
    """A table [traits]; a wrong one names the file."""
    file = tmp_path / "agentflow.toml"
    file.write_text('[traits]\noutput = "json_object"\nlimit_field = "max_tokens"\n')
    assert load_settings(tmp_path, {}).traits == {"output": "json_object", "limit_field": "max_tokens"}
    file.write_text('[traits]\noutput = "json"\n')
    with pytest.raises(ConfigurationError, match=r"agentflow.toml: traits: output = 'json'") as caught:
        load_settings(tmp_path, {})
    assert caught.value.code == "config/option"


def test_a_setting_of_none_leaves_its_field_out() -> None:
    """Of one task's settings and of the adapter's."""
    body = sent("http://localhost:8000/v1", stream=True, settings={"stream_options": None, "seed": 1})
    assert "stream_options" not in body and body["seed"] == 1
    adapter = open_provider("openai", base_url="http://localhost:8000/v1", api_key="k", settings={"store": None})
    assert "store" not in adapter.described(ModelRequest((user("hi"),), model="m"))["body"]  # type: ignore[attr-defined]


def refusing(*fields: str, words: str = "{0}: Extra inputs are not permitted", status: int = 400) -> Any:
    """A script that refuses requests with one of the fields, and answers others."""

    def reply(request: Request) -> Any:
        for field in fields:
            if field in request.body:
                return {"status": status, "error": {"type": "invalid_request_error", "message": words.format(field)}}
        return '{"name": "Oslo"}'

    return reply


async def ask(server: ModelServer, model: str, calls: int = 2, **options: Any) -> tuple[list[Any], list[str]]:
    """What some calls of one flow give, and the codes of its warnings."""
    codes: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Warning):
            codes.append(event.code)

    async with AgentFlow(
        model, base_url=f"{server.url}/v1" if "openai" in model else server.url, api_key="k", **options
    ) as flow:
        flow.subscribe(note)
        return [await flow.ask("Which city?", output=City, max_output_tokens=50) for _ in range(calls)], codes


@pytest.mark.parametrize(
    ("model", "fields", "requests"),
    [
        ("openai-chat:m", ["response_format"], 4),
        ("openai-chat:m", ["max_tokens"], 3),
        ("openai-chat:m", ["max_tokens", "response_format"], 5),
        ("openai:m", ["store"], 3),
        ("anthropic:m", ["output_config"], 3),
    ],
)
async def test_a_refused_field_is_left_out_and_that_is_remembered(model: str, fields: list[str], requests: int) -> None:
    """The call succeeds in a further attempt, with a warning, and later calls leave the field out from the start."""
    async with ModelServer(
        refusing(*fields, words="Unsupported parameter: '{0}' is not supported with this model.")
    ) as server:
        values, codes = await ask(server, model)
        assert values == [City(name="Oslo")] * 2
        assert set(codes) == {"provider/field-refused"} and len(codes) == requests - 2
        assert len(server.requests) == requests
        assert not set(fields) & set(server.requests[-1].body)


async def test_json_schema_gives_way_to_json_object() -> None:
    """A server that knows no schemas is asked for an object, before it is asked for nothing."""

    def reply(request: Request) -> Any:
        if request.body.get("response_format", {}).get("type") == "json_schema":
            return {
                "status": 400,
                "error": {"message": "json_schema is not offered here", "type": "invalid_request_error"},
            }
        return '{"name": "Oslo"}'

    async with ModelServer(reply) as server:
        assert (await ask(server, "openai-chat:m"))[0] == [City(name="Oslo")] * 2
        forms = [request.body["response_format"]["type"] for request in server.requests]
        assert forms == ["json_schema", "json_object", "json_object"]


async def test_streams_go_on_without_stream_options() -> None:
    """FastAPI's 422 names the field by its path."""
    async with (
        ModelServer(refusing("stream_options", words="body.stream_options: no such field", status=422)) as server,
        AgentFlow("openai-chat:m", base_url=f"{server.url}/v1", api_key="k") as flow,
    ):
        async with flow.stream(flow.ask("hi")) as run:
            assert await run.value() == '{"name": "Oslo"}'


async def test_a_field_of_the_settings_is_the_users() -> None:
    """It is not left out behind the user's back: the error says where it comes from."""
    async with (
        ModelServer(refusing("seed")) as server,
        AgentFlow("openai-chat:m", base_url=f"{server.url}/v1", api_key="k") as flow,
    ):
        with pytest.raises(BadRequest) as caught:
            await flow.ask("hi", settings={"seed": 1})
        assert "settings" in str(caught.value.hint) and len(server.requests) == 1


async def test_stated_traits_are_not_changed() -> None:
    """What a user states about a server holds, and the error says what to write instead."""
    async with ModelServer(refusing("response_format")) as server:
        with pytest.raises(BadRequest) as caught:
            await ask(server, "openai-chat:m", provider=Provider(traits={"output": "json_object"}))
        assert "traits={'output': 'prompt'}" in str(caught.value.hint) and len(server.requests) == 1


async def test_a_guess_that_does_not_help_is_forgotten() -> None:
    """A request that is refused without the field too raises the refusal, and the next call begins as before."""

    def reply(request: Request) -> Any:
        return {
            "status": 400,
            "error": {"message": "max_tokens is too large: at most 10", "type": "invalid_request_error"},
        }

    async with ModelServer(reply) as server:
        adapter = open_provider("openai-chat", base_url=f"{server.url}/v1", api_key="k", retry=RetryPolicy(attempts=1))
        with pytest.raises(BadRequest, match="too large"):
            async for _ in adapter.stream(ModelRequest((user("hi"),), model="m", max_output_tokens=50)):
                pass
        await adapter.aclose()
        assert len(server.requests) == 2
        assert adapter.traits == traits_of("openai-chat", server.url)  # type: ignore[attr-defined]


def test_models_before_structured_output_are_told_the_form_by_the_prompt() -> None:
    """Anthropic refuses a format for them."""
    adapter = open_provider("anthropic", api_key="k")
    for model, expected in (("claude-3-haiku-20240307", False), ("claude-sonnet-4-5", True)):
        body = adapter.described(ModelRequest((user("hi"),), model=model, output_schema=SCHEMA))["body"]  # type: ignore[attr-defined]
        assert ("output_config" in body) is expected
        assert adapter.profile(model).native_json_schema is expected


async def test_a_format_that_is_refused_leaves_the_schema_in_the_prompt_once() -> None:
    """The request without the field says the schema as the first one did, and not twice."""
    async with ModelServer(
        refusing("response_format", words="Unsupported parameter: '{0}' is not supported.")
    ) as server:
        assert (await ask(server, "openai-chat:m"))[0] == [City(name="Oslo")] * 2
        told = [json.dumps(request.body["messages"]).count("properties") for request in server.requests]
    assert len(told) > 2 and set(told) == {1}
