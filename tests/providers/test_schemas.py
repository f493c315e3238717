"""Schemas as vendors take them: whatever a program asks for, the request is accepted and the answer is the value that was meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import httpx2
import pytest
from pydantic import TypeAdapter

from agentflow import AgentFlow
from agentflow.core.data.messages import ModelRequest, ToolSpec, user
from agentflow.core.events.events import Event, Warning
from agentflow.handler.model_turn import OutputSchema
from agentflow.lib.schema.json_schema import check
from agentflow.providers.dialects.schema_translation import Place, SchemaForm, subsets_of, tool_form, translated
from agentflow.providers.dialects.traits import SchemaRules, Traits
from agentflow.providers.dialects.wire import Wire
from agentflow.providers.table import open_provider
from tests.support.model_server import ModelServer
from tests.support.schema_kinds import SCHEMAS, TYPES

RULES: tuple[SchemaRules, ...] = get_args(SchemaRules)
RULES_OF: dict[str, SchemaRules] = {"anthropic": "anthropic", "openai-chat": "common", "openai": "openai"}
DIALECTS = tuple(RULES_OF)
_STRICT = frozenset(
    [
        "type",
        "title",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "$ref",
        "$defs",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
    ]
)
_FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
_ANTHROPIC = frozenset(["type", "title", "description", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs", "format", "minItems"])  # fmt: skip
_GEMINI = frozenset(
    [
        "type",
        "title",
        "description",
        "properties",
        "required",
        "items",
        "enum",
        "anyOf",
        "format",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minProperties",
        "maxProperties",
        "pattern",
    ]
)


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas in a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs", "patternProperties"):
        for each in schema.get(key, {}).values():
            yield from parts(each)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for each in schema.get(key, ()):
            yield from parts(each)
    for key in ("items", "additionalProperties", "not", "if", "then", "contains", "propertyNames"):
        yield from parts(schema.get(key))


def refused(rules: str, place: str, form: SchemaForm) -> list[str]:
    """What a vendor refuses in a form, read from its pages a second time."""
    schema: Any = form.schema
    found: list[str] = []
    if (rules != "plain" or place != "output") and schema.get("type") != "object":
        found.append("the root is not an object")
    if (rules != "plain" or place != "output") and schema.keys() & {"anyOf", "oneOf", "allOf", "enum", "not"}:
        found.append("a union at the root")
    for each in parts(schema):
        kinds = each.get("type") if isinstance(each.get("type"), list) else [each.get("type")]
        if (
            rules != "anthropic"
            and "array" in kinds
            and not each.keys() & {"items", "prefixItems" if rules == "plain" else "items"}
        ):
            found.append("an array without items")
        if re.search(r"\(\?(=|!|<)|\\[1-9]", each.get("pattern", "")):
            found.append("look-around")
        names = each.get("properties", {})
        if (
            rules in ("anthropic", "gemini", "common")
            and place != "output"
            and not all(re.fullmatch(r"[\w.-]{1,64}", n, re.A) for n in names)
        ):
            found.append("names")
        if form.strict:
            allowed = _STRICT if rules in ("openai", "common") else _ANTHROPIC
            found += each.keys() - allowed
            if "object" in kinds and each.get("additionalProperties") is not False:
                found.append("an open object")
            if "object" in kinds and not names:
                found.append("an object that can only be {}")
            if not each.keys() & (
                {"type", "anyOf", "$ref"}
                if rules in ("openai", "common")
                else {"type", "anyOf", "$ref", "enum", "const"}
            ):
                found.append("no type")
            if each.get("format", "date") not in _FORMATS | ({"uri"} if rules == "anthropic" else set()):
                found.append("format")
            if "$ref" in each and len(each) > 1:
                found.append("beside $ref")
            if rules in ("openai", "common") and "object" in kinds and set(each.get("required", ())) != set(names):
                found.append("required")
            if rules == "anthropic" and (each.get("minItems", 0) > 1 or isinstance(each.get("type"), list)):
                found.append("minItems or a list of types")
        if rules == "gemini":
            found += each.keys() - _GEMINI
            if isinstance(each.get("type"), list) or not all(isinstance(one, str) for one in each.get("enum", ())):
                found.append("types")
    return found


def answer_of(meant: Any, form: Any) -> Any:
    """What a server says that is held to ``form``, for what is meant: null for what may be left out."""
    whole = json.loads(json.dumps(form).replace('"$ref": "#"', '"$ref": "#/$defs/the root"'))
    definitions = {**whole.get("$defs", {}), "the root": whole}

    def said(meant: Any, schema: Any) -> Any:
        while "$ref" in schema:
            schema = definitions[schema["$ref"].rpartition("/")[2]]
        for each in schema.get("anyOf", ()):
            one = said(meant, each)
            if not check(one, {**each, "$defs": definitions}):
                return one
        if isinstance(meant, dict) and "properties" in schema:
            named = schema["properties"]
            told = {key: said(each, named[key]) if key in named else each for key, each in meant.items()}
            return {**told, **{key: None for key in schema.get("required", ()) if key not in meant}}
        if isinstance(meant, list) and isinstance(schema.get("items"), dict):
            return [said(each, schema["items"]) for each in meant]
        return meant

    return said(meant, whole)


def shape_of(name: str) -> tuple[OutputSchema, Any]:
    if name in TYPES:
        kind, meant = TYPES[name]
        return OutputSchema(None, kind), meant
    schema, meant = SCHEMAS[name]
    return OutputSchema(schema, None), meant


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("name", [*TYPES, *SCHEMAS])
def test_a_form_is_accepted_and_admits_what_is_meant(name: str, rules: SchemaRules) -> None:
    """Of each type and schema, a vendor is sent a form that it takes, under which the value can be said and is read."""
    shape, meant = shape_of(name)
    shape = shape.as_object()
    said = {"value": meant} if shape._enclosed else meant  # pyright: ignore[reportPrivateUsage]
    form = translated(shape.requested or {}, rules, "output")
    if form.schema is not None:
        assert refused(rules, "output", form) == []
        said = answer_of(said, form.schema)
        assert check(said, form.schema) == [], form.schema
    value, problem, missed = shape.read(json.dumps(said))
    assert problem is None and missed == (), missed
    kind = TYPES[name][0] if name in TYPES else None
    if kind is None or shape._unions is not None:  # pyright: ignore[reportPrivateUsage]
        return
    assert value == TypeAdapter(kind).validate_json(json.dumps(meant))


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("place", ["tool", "strict tool"])
@pytest.mark.parametrize("name", [*TYPES, *SCHEMAS])
def test_a_tools_schema_is_accepted(name: str, place: Place, rules: SchemaRules) -> None:
    """Of each type as a parameter, and each schema of an object, a vendor is sent a form that it takes; none is left out."""
    if name in TYPES:
        kind, meant = TYPES[name]
        shape = OutputSchema(None, kind)
        schema, said = {"type": "object", "properties": {"p": shape.requested}, "required": ["p"]}, {"p": meant}
        schema = {**schema, "$defs": schema["properties"]["p"].pop("$defs", {})}  # type: ignore[union-attr]
    else:
        schema, said = SCHEMAS[name]
        if schema.get("type", "object") != "object" or not isinstance(said, dict):
            return
    form = translated(schema, rules, place)
    assert form.schema is not None and refused(rules, place, form) == []
    said = answer_of(said, form.schema)
    assert check(said, form.schema) == [], form.schema


def schema_sent(dialect: str, body: dict[str, Any]) -> Any:
    """The form of the answer's schema in a request; None if there is none."""
    if dialect == "anthropic":
        return (body.get("output_config", {}).get("format") or {}).get("schema")
    form = body.get("response_format", {}).get("json_schema") if dialect == "openai-chat" else body.get("text", {}).get("format")  # fmt: skip
    return form and form["schema"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", [each for each in TYPES if each not in ("str", "Any", "a secret")])
async def test_a_flow_gives_what_was_meant(name: str, dialect: str) -> None:
    """Asked through a flow, a server held to the form gives the value of the type."""
    kind, meant = TYPES[name]
    shape = OutputSchema(None, kind).as_object()
    form = translated(shape.requested or {}, RULES_OF[dialect], "output")
    said = {"value": meant} if shape._enclosed else meant  # pyright: ignore[reportPrivateUsage]
    said = said if form.schema is None else answer_of(said, form.schema)
    async with (
        ModelServer([json.dumps(said)]) as server,
        AgentFlow(f"{dialect}:m", base_url=server.url, api_key="k") as flow,
    ):
        value = await flow.ask("Which?", output=kind)
    assert len(server.requests) == 1 and schema_sent(dialect, server.requests[0].body) == form.schema
    assert value == shape.read(json.dumps(said))[0]


class Loopback(httpx2.AsyncBaseTransport):
    """Sends all requests to one server on this machine, whatever host they are for."""

    def __init__(self, url: str) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._url = httpx2.URL(url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(scheme="http", host=self._url.host, port=self._url.port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.parametrize("name", ["dict[str, int]", "list", "a recursive class", "list[Any]"])
async def test_what_a_vendor_has_no_form_for_stands_in_the_prompt_with_a_warning(name: str) -> None:
    """Anthropic closes every object: a type with any keys is asked for in words, and checked here."""
    kind, meant = TYPES[name]
    events: list[Event] = []
    replies = ["5 apples", json.dumps(meant)]
    async with ModelServer(replies) as server:
        provider = open_provider("anthropic", api_key="k", transport=Loopback(server.url))
        async with AgentFlow("claude-sonnet-5", provider=provider, system="Be brief.") as flow:
            flow.subscribe(events.append)
            value = await flow.ask("Count", output=kind)
    assert value == TypeAdapter(kind).validate_python(meant)
    first = server.requests[0].body
    assert "output_config" not in first
    assert first["system"].startswith("Be brief.\n\n") and "<schema>" in first["system"]
    assert "<schema>" not in json.dumps(first["messages"])
    assert "provider/schema-in-prompt" in {event.code for event in events if isinstance(event, Warning)}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_one_tool_does_not_take_the_request_with_it(dialect: str) -> None:
    """A tool with a union at its top, lists without items and odd names is described, called and checked as it was declared."""
    schema = {
        "type": "object",
        "properties": {"content": {"type": "string"}, "url": {"type": "string"}, "rows": {"type": "array"}, "größe": {"type": "integer"}},
        "anyOf": [{"required": ["content"]}, {"required": ["url"]}],
    }  # fmt: skip
    ran: list[Any] = []
    calls = [{"rows": [1]}, {"url": "u", "rows": [1], "größe": 5}]
    replies: list[Any] = [{"tool_calls": [{"name": "attach", "arguments": each}]} for each in calls]
    async with (
        ModelServer([*replies, "done"]) as server,
        AgentFlow(f"{dialect}:m", base_url=server.url, api_key="k") as flow,
    ):
        flow.handler.register_tool({"name": "attach", "description": "Attach.", "input_schema": schema}, ran.append)
        assert await flow.ask("Go", tools=["attach"]) == "done"
        (tool,) = server.requests[0].body["tools"]
    tool = tool.get("function", tool)
    sent = tool.get("input_schema", tool.get("parameters"))
    assert "anyOf" not in sent and sent["type"] == "object"
    assert '{"anyOf": [{"required": ["content"]}, {"required": ["url"]}]}' in tool["description"]
    assert ran == [calls[1]] and "content" in json.dumps(server.requests[1].body)
    if dialect != "openai":
        assert "größe" not in sent["properties"] and "größe" in sent["description"]
    if dialect != "anthropic":
        assert "items" in sent["properties"]["rows"]


def test_a_strict_tool_is_strict_where_the_vendor_can_hold_it() -> None:
    """``ToolSpec.strict`` asks for enforcement; a schema that cannot be enforced is sent weaker."""
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    for rules in ("openai", "anthropic"):
        wire = Wire(ModelRequest((user("x"),)), Traits(schemas=rules))
        for schema, strict in ((closed, True), ({"type": "object"}, False)):
            _, form = tool_form(ToolSpec("t", "T.", schema, True), wire)
            assert form.strict is strict and form.schema is not None


def test_a_form_is_made_once() -> None:
    """An adapter keeps the form of a schema with it; another schema, even at the same place in memory, has its own."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    forms: dict[Any, Any] = {}

    def form_of(schema: dict[str, Any]) -> Any:
        wire = Wire(ModelRequest((user("x"),)), Traits(schemas="openai"), forms=forms)
        return tool_form(ToolSpec("t", "T.", schema), wire)[1]

    first = form_of(schema)
    assert form_of(schema) is first
    assert form_of(dict(schema)) is not first


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"type": "object", "properties": 5},
        {"type": "object", "properties": {"a": {"$ref": "http://x"}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a", "title": "x"}}, "$ref": "#/$defs/a"},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"allOf": [{"$ref": "#"}]},
        {"type": "object", "properties": {"a": False}},
        {"anyOf": []},
        {"type": 5},
        {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/d0"} for n in range(9)}, "$defs": {
            **{f"d{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(40)},
            "d40": {"type": "string"}}},
    ],
)  # fmt: skip
def test_what_is_no_schema_has_no_form_and_raises_nothing(schema: Any, rules: SchemaRules) -> None:
    """A translation never raises, and ends, whoever wrote the schema: what it cannot read is not expressible."""
    for place in ("output", "tool", "strict tool"):
        form = translated(schema, rules, place)
        assert place == "output" or form.schema is not None
        assert len(json.dumps(form.schema)) < 100_000


def test_each_row_has_its_source_and_date() -> None:
    """A rule of a vendor says where it is from, and when it was read."""
    for rules in RULES:
        for place in get_args(Place):
            for row in subsets_of(rules, place):
                assert row.source.startswith("https://") and re.fullmatch(r"20\d\d-\d\d", row.date)


def test_a_description_that_is_too_long_goes_on_in_the_system_text() -> None:
    """Azure takes 1,024 characters of a tool's description; the model reads the rest elsewhere, and other servers all of it."""
    tool = ToolSpec("look", "word " * 600 + "END", {"type": "object", "properties": {}})
    request = ModelRequest((user("hi"),), system="Be brief.", tools=(tool,), model="m")
    for address, limit in (("https://a.openai.azure.com/openai/v1", 1_024), ("https://api.openai.com/v1", 0)):
        body = open_provider("openai-chat", base_url=address, api_key="k").described(request)["body"]
        description, system = body["tools"][0]["function"]["description"], body["messages"][0]["content"]
        assert len(description) <= (limit or len(tool.description)) and system.startswith("Be brief.")
        assert (description + system).count("word ") == 600 and ("END" in system) == bool(limit)
