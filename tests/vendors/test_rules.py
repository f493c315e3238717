"""The strict vendors themselves: each rule refuses a request that breaks it, and accepts one that does not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.model_server_wire import Reply
from tests.support.vendors import RULES, VENDORS, Asked, Memory, Rule, Vendor, Vendors, broken
from tests.support.vendors.answers import answer
from tests.support.vendors.limits import FIELDS

Body = dict[str, Any]
SCHEMA: Body = {
    "type": "object",
    "properties": {"place": {"type": "string"}},
    "required": ["place"],
    "additionalProperties": False,
}
EXTRA = {"look": "Look at a place.", "wait": "Wait."}


def replied(vendor: Vendor, memory: Memory, reply: Reply) -> Any:
    """The JSON of an answer that the vendor has issued."""
    asked = Asked(vendor, "/", {}, json.dumps({"include": ["reasoning.encrypted_content"]}).encode(), memory)
    return json.loads(b"".join(answer(asked, reply)[1]))


def conversation(vendor: Vendor, memory: Memory) -> Body:
    """A request that meets all rules: two calls with thinking, their results, an output schema and tools."""
    place = json.dumps({"place": "Oslo"})
    called = Reply(
        thinking="hm",
        text="I look.",
        tool_calls=[{"name": "look", "arguments": place}, {"name": "wait", "arguments": place}],
    )
    said = replied(vendor, memory, called)
    if vendor.dialect == "chat":
        message = said["choices"][0]["message"]
        for n, call in enumerate(message["tool_calls"]):
            call.setdefault("id", f"made_{n}")
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in message["tool_calls"]]
        functions = [
            {"type": "function", "function": {"name": name, "description": text, "parameters": SCHEMA}}
            for name, text in EXTRA.items()
        ]
        form = {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA, "strict": True}}
        body: Body = {"model": vendor.model, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How?"}, message, *results], "tools": functions}  # fmt: skip
        return body if vendor.name in ("deepseek", "groq") else {**body, "response_format": form}
    if vendor.dialect == "responses":
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "seen"}
            for item in said["output"]
            if item["type"] == "function_call"
        ]
        tools = [
            {"type": "function", "name": name, "description": text, "parameters": SCHEMA, "strict": True}
            for name, text in EXTRA.items()
        ]
        form = {"format": {"type": "json_schema", "name": "output", "schema": SCHEMA, "strict": True}}
        return {"model": vendor.model, "store": False, "input": [{"type": "message", "role": "user", "content": "How?"}, *said["output"], *results], "tools": tools, "text": form}  # fmt: skip
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "seen"}
        for block in said["content"]
        if block["type"] == "tool_use"
    ]
    messages = [
        {"role": "user", "content": "How?"},
        {"role": "assistant", "content": said["content"]},
        {"role": "user", "content": results},
    ]
    tools = [{"name": name, "description": text, "input_schema": SCHEMA} for name, text in EXTRA.items()]
    body = {"messages": messages, "max_tokens": 20_000, "tools": tools, "thinking": {"type": "enabled", "budget_tokens": 10_000},
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}  # fmt: skip
    return {**body, "anthropic_version": "x"} if vendor.name == "bedrock" else {**body, "model": vendor.model}


# --- what breaks each rule ------------------------------------------------------------------------------------------


def said(body: Body) -> list[Body]:
    """The messages or items."""
    return body["messages"] if "messages" in body else body["input"]


def assistant(body: Body) -> Body:
    """The message with calls."""
    return next(
        each
        for each in said(body)
        if each.get("role") == "assistant" and (each.get("tool_calls") or "messages" in body)
    )


def calls(body: Body) -> list[Body]:
    """The calls."""
    if "input" in body:
        return [item for item in body["input"] if item["type"] == "function_call"]
    message = assistant(body)
    return (
        message["tool_calls"]
        if "tool_calls" in message
        else [block for block in message["content"] if block["type"] == "tool_use"]
    )


def results(body: Body) -> list[Body]:
    """The results."""
    if "input" in body:
        return [item for item in body["input"] if item["type"] == "function_call_output"]
    found = [each for each in body["messages"] if each["role"] == "tool"]
    return found or [block for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]


def drop(body: Body, wrong: Body) -> None:
    """Leave out a message, an item or a block."""
    for rows in (said(body), *[each["content"] for each in said(body) if isinstance(each.get("content"), list)]):
        rows[:] = [each for each in rows if each is not wrong]


def function(body: Body, n: int = 0) -> Body:
    """A tool."""
    return body["tools"][n].get("function", body["tools"][n])


def renamed(body: Body, call_id: str) -> None:
    """Give the first call and its result another id."""
    first = calls(body)[0]
    was = first.get("call_id", first["id"])
    for each in (*calls(body), *results(body)):
        for key in ("id", "call_id", "tool_call_id", "tool_use_id"):
            if each.get(key) == was:
                each[key] = call_id


def twice(body: Body) -> None:
    """Two calls of one id."""
    one, two = calls(body)
    key = "call_id" if "call_id" in one else "id"
    two[key] = one[key]


def schema(body: Body) -> Body:
    """The schema of the first tool."""
    return function(body).get("input_schema") or function(body)["parameters"]


def output(body: Body) -> Body:
    """The output format with its schema."""
    if "text" in body:
        return body["text"]["format"]
    return body["output_config"]["format"] if "output_config" in body else body["response_format"]["json_schema"]


def everywhere(**more: Any) -> Callable[[Body], None]:
    """Put keywords into the schema of a property: of the answer, or of a tool where there is no answer's."""

    def change(body: Body) -> None:
        holder = output(body)["schema"] if {"text", "output_config", "response_format"} & set(body) else schema(body)
        holder["properties"]["place"] = more

    return change


def of_tool(**more: Any) -> Callable[[Body], None]:
    """Put keywords into the schema of a tool's parameter."""
    return lambda body: schema(body)["properties"].update(place=more)


def thinking(body: Body) -> Body:
    """The first thought, wherever it is."""
    if "input" in body:
        return next(item for item in body["input"] if item["type"] == "reasoning")
    return assistant(body)["content"][0]


def put(place: Callable[[Body], Body], **more: Any) -> Callable[[Body], None]:
    """Set keys of a part of the body."""
    return lambda body: place(body).update(more)


def marks(count: int) -> Callable[[Body], None]:
    """Mark blocks for the cache."""

    def change(body: Body) -> None:
        body["messages"][0]["content"] = [
            {"type": "text", "text": f"{n}", "cache_control": {"type": "ephemeral"}} for n in range(count)
        ]

    return change


def whole(body: Body) -> Body:
    """The body itself."""
    return body


def both_whole(body: Body) -> None:
    """Answers' forms beside tools."""
    body["response_format"] = {"type": "json_object"}
    said(body)[0]["content"] = "JSON"


def deep(body: Body) -> None:
    """A strict schema of eleven levels."""
    inner: Body = {"type": "string"}
    for _ in range(11):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False}
    output(body)["schema"] = inner


def many_optional(body: Body) -> None:
    """More optional properties than are compiled."""
    output(body)["schema"] = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(25)},
        "additionalProperties": False,
    }


def wants_json(body: Body) -> None:
    """Ask for JSON without a word of it."""
    body.pop("tools")
    if "text" in body:
        body["text"] = {"format": {"type": "json_object"}}
    else:
        body["response_format"] = {"type": "json_object"}


def later(body: Body, message: Body) -> None:
    """A further message."""
    said(body).append(message)


BREAKS: dict[str, Callable[[Body], Any]] = {
    "the body is UTF-8 without halves of characters": lambda body: said(body)[0].update(content="half \ud83d"),
    "no field of the request is unknown": put(whole, unheard_of=1),
    "no field of a message, a call or a tool is unknown": lambda body: said(body)[-1].update(unheard_of=1),
    "the length of the answer is max_completion_tokens": put(whole, max_tokens=5),
    "stream_options only in a stream": put(whole, stream_options={"include_usage": True}),
    "tool_choice only with tools": lambda body: (body.pop("tools"), body.update(tool_choice={"type": "auto"})),
    "a list of tools is not empty": put(whole, tools=[]),
    "at least 16 output tokens": put(whole, max_output_tokens=5),
    "max_tokens is stated": lambda body: body.pop("max_tokens"),
    "the version of the API is in the body": lambda body: body.pop("anthropic_version"),
    "at most 128 tools": lambda body: body.update(tools=[renumbered(body["tools"][0], n) for n in range(129)]),
    "names of tools fit the pattern": lambda body: function(body, 1).update(name="wait a moment"),
    "no two tools have one name": lambda body: function(body, 1).update(name="look"),
    "descriptions of tools have at most 1,024 characters": lambda body: function(body).update(description="x" * 1_025),
    "the key of the prompt cache has at most 64 characters": put(whole, prompt_cache_key="x" * 65),
    "at most four stop sequences": put(whole, stop=list("abcde")),
    "the name of an output format fits the pattern": put(output, name="the output"),
    "no schema of the answer": put(whole, response_format={"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}),
    "no form of the answer together with tools": both_whole,
    "a request for JSON mentions it in the prompt": wants_json,
    "at most four cache marks": marks(5),
    "no cache mark on an empty text": lambda body: body.update(system=[{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}]),
    "cache marks of an hour come before those of five minutes": lambda body: (marks(2)(body), body["messages"][0]["content"][1]["cache_control"].update(ttl="1h")),
    "the thinking budget is below max_tokens": put(whole, max_tokens=10_000),
    "the thinking budget is at least 1,024": put(whole, thinking={"type": "enabled", "budget_tokens": 1_000}),
    "no forced tool while thinking": put(whole, tool_choice={"type": "any"}),
    "temperature 1 while thinking": put(whole, temperature=0),
    "a tool that is not deferred": lambda body: [tool.update(defer_loading=True) for tool in body["tools"]],
    "no cache mark on a deferred tool": lambda body: function(body).update(defer_loading=True, cache_control={"type": "ephemeral"}),
    "tools that a search has found are there": lambda body: assistant(body)["content"].insert(1, {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "tool_search_tool_search_result", "tool_references": [{"type": "tool_reference", "tool_name": "gone"}]}}),
    "searches for tools in the history come with a search": lambda body: later(body, {"type": "tool_search_call", "id": "tsc_1", "call_id": None, "execution": "server", "status": "completed", "arguments": {}}),
    "deferred tools come with a search": lambda body: function(body).update(defer_loading=True),
    "ids of calls fit the vendor's pattern": lambda body: renamed(body, "functions.look:0" + "x" * 60) if "input" in body or body.get("max_tokens") else renamed(body, "" if VENDORS["vllm"].model != "" and body["model"] in LOOSE else "functions.look:0" + "x" * 60),
    "no two calls have one id": twice,
    "every call has its result directly after it": lambda body: drop(body, results(body)[0]),
    "every result has its call directly before it": lambda body: results(body)[0].update({next(key for key in ("tool_call_id", "tool_use_id", "call_id") if key in results(body)[0]): "abcdefghi"}),
    "every call has one result": lambda body: next(rows for rows in (said(body), *[each["content"] for each in said(body) if isinstance(each.get("content"), list)]) if results(body)[0] in rows).append(results(body)[0]),
    "the arguments of calls in the history are JSON objects": lambda body: calls(body)[0].update(input="[]") if "input" in calls(body)[0] else calls(body)[0]["function"].update(arguments='{"place": "Os'),
    "roles are known": lambda body: said(body)[0].update(role="critic"),
    "the user begins": lambda body: said(body).insert(0, {"role": "assistant", "content": "Hello"}),
    "system text comes first": lambda body: later(body, {"role": "system", "content": "More"}),
    "the assistant is not the last": lambda body: later(body, {"role": "assistant", "content": "done"}),
    "a call follows the user or a result": lambda body: said(body).insert(2, {"role": "assistant", "content": "Well."}),
    "the user does not follow a result": lambda body: later(body, {"role": "user", "content": "More"}),
    "a strict schema is closed and requires all": lambda body: (body.pop("tools"), body.update(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True}})),
    "no text is blank": lambda body: said(body)[-1 if "tools" not in body else 1 if said(body)[0]["role"] == "system" else 0].update(content=" \n"),
    "no text in results or the system text is blank": lambda body: results(body)[0].update(content=[{"type": "text", "text": " "}]),
    "no message is empty": lambda body: said(body)[1 if said(body)[0]["role"] == "system" else 0].update(content=""),
    "an assistant message has content or calls": lambda body: later(body, {"role": "assistant", "content": None}),
    "a final assistant text does not end in white space": lambda body: later(body, {"role": "assistant", "content": "It is "}),
    "parts of a message are those its role may have": lambda body: results(body)[0].update(content=[{"type": "image_url", "image_url": {"url": "data:"}}]),
    "parts of an item are those its role may have": lambda body: said(body)[0].update(content=[{"type": "output_text", "text": "x"}]),
    "signed thinking goes back to its issuer alone, unchanged": lambda body: thinking(body).update(thinking="other"),
    "thinking of the latest turn is whole and in order": lambda body: assistant(body)["content"].insert(1, dict(thinking(body))),
    "with thinking on, the answers of a turn begin with it": lambda body: assistant(body)["content"].pop(0),
    "encrypted reasoning goes back to its issuer alone": lambda body: thinking(body).update(encrypted_content="Zm9yZWlnbg=="),
    "no reasoning without its encrypted content": lambda body: thinking(body).pop("encrypted_content"),
    "reasoning is followed by the item that it led to": lambda body: said(body).append(said(body).pop(1)),
    "an item with its id comes with its reasoning": lambda body: drop(body, thinking(body)),
    "ids of items begin with their kind": lambda body: calls(body)[0].update(id="call_1"),
    "no two items have one id": lambda body: calls(body)[1].update(id=calls(body)[0]["id"]),
    "the first call of each answer in a turn has its signature": lambda body: calls(body)[0].pop("extra_content"),
    "signatures of calls are the vendor's own": lambda body: calls(body)[0].update(extra_content={"google": {"thought_signature": "Zm9yZWlnbg=="}}),
    "calls of a turn come with reasoning_content": lambda body: assistant(body).pop("reasoning_content"),
    "reasoning_details go back to their issuer alone, whole and in order": lambda body: assistant(body)["reasoning_details"][0].update(text="other"),
    "calls of a turn come with their reasoning_details": lambda body: assistant(body).pop("reasoning_details"),
    "schemas are JSON Schema": lambda body: schema(body).update(required="place"),
    "the root of a schema is an object": lambda body: schema(body).update(type="array", items={}),
    "no union at the top of a tool's schema": lambda body: schema(body).update(anyOf=[{"required": ["place"]}]),
    "lists have items": of_tool(type="array"),
    "a strict schema keeps to the subset of strict mode": everywhere(type="string", oneOf=[{"type": "string"}]),
    "a strict schema has at most 5,000 properties, 10 levels, 1,000 values of enums": deep,
    "schemas of answers and of strict tools keep to Anthropic's subset": everywhere(type="integer", minimum=1),
    "at most 20 strict tools, 24 optional parameters, 16 unions": many_optional,
    "names of a tool's parameters fit the pattern": lambda body: schema(body)["properties"].update({"filter[id]": {"type": "string"}}),
    "schemas of tools keep to Gemini's fields": of_tool(type=["string", "null"]),
    "patterns are whole and without look-around": everywhere(type="string", pattern="[a-z]+"),
    "patterns of answers have no look-around": everywhere(type="string", pattern="^(?!a)b$"),
}  # fmt: skip
"""A change that breaks each rule; other rules may be broken with it."""
LOOSE = [VENDORS[name].model for name in ("gemini", "deepseek", "groq", "vllm", "llama.cpp")]
"""Models whose vendors take any id that is not empty."""


def renumbered(tool: Body, n: int) -> Body:
    """A copy of a tool with another name."""
    made = copy.deepcopy(tool)
    made.get("function", made)["name"] = f"tool_{n}"
    return made


def asked(vendor: Vendor, memory: Memory, body: Body) -> Asked:
    """The request as it arrives."""
    return Asked(vendor, "/", {}, json.dumps(body).encode(), memory)


CASES = [(rule, name) for rule in RULES for name in rule.vendors if rule.name in BREAKS]


@pytest.mark.parametrize(("rule", "name"), CASES, ids=lambda each: getattr(each, "name", each))
def test_each_rule_refuses_what_breaks_it_and_nothing_else(rule: Rule, name: str) -> None:
    """For each vendor that has the rule: a whole conversation meets all of its rules, and a change breaks this one."""
    vendor, memory = VENDORS[name], Memory()
    body = conversation(vendor, memory)
    assert broken(asked(vendor, memory, body)) == []
    BREAKS[rule.name](body := json.loads(json.dumps(body)))
    found = dict(broken(asked(vendor, memory, body), [rule]))
    assert (
        list(found) == [rule]
        and found[rule].strip()
        and "{"
        not in found[rule]
        .split("[{")[0]
        .replace("^[a-zA-Z0-9_.-]{1,64}$", "")
        .replace("{1,128}", "")
        .replace("{0,63}", "")
    )


def test_every_rule_can_fail() -> None:
    """A rule that no request breaks would be no rule; that an answer's schema admits what is meant has a test of its own."""
    assert {rule.name for rule in RULES} - set(BREAKS) == {"the schema of an answer admits what is meant"}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_fake_knows_the_fields_of_the_vendors_sdk() -> None:
    """What the SDK that is installed may send is no unknown field."""
    from anthropic.types import message_create_params as messages
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses

    for name, params in (
        ("openai-chat", chat.CompletionCreateParamsStreaming),
        ("openai", responses.ResponseCreateParamsStreaming),
        ("anthropic", messages.MessageCreateParamsStreaming),
    ):
        sent = {field for kind in params.__mro__ for field in getattr(kind, "__annotations__", ())}
        assert sent <= FIELDS[name], f"{name}: {sent - FIELDS[name]}"


def test_a_rule_says_where_it_is_from_and_when() -> None:
    """Each has the address of its source and a date."""
    for rule in RULES:
        assert rule.source.startswith("https://") and len(rule.date) == 10 and set(rule.vendors) <= set(VENDORS), (
            rule.name
        )


@pytest.mark.parametrize("name", [name for name in VENDORS if name not in ("deepseek", "groq")])
def test_a_model_that_is_held_to_a_schema_says_what_it_admits(name: str) -> None:
    """An answer that is meant but does not fit the schema that was sent is not an answer: the schema says something else."""
    vendor, memory = VENDORS[name], Memory()
    request = asked(vendor, memory, conversation(vendor, memory))
    request.meant = {"place": "Oslo"}
    assert broken(request) == []
    request.meant = {"place": {"a": 1}}
    assert [rule.name for rule, _ in broken(request)] == ["the schema of an answer admits what is meant"]


@pytest.mark.parametrize("name", VENDORS)
async def test_a_vendor_answers_under_its_own_name_and_refuses_in_its_own_words(name: str) -> None:
    """Its host is reached through the proxy; what it issued to one account is foreign to another; refusals are its 400."""
    vendor = VENDORS[name]
    async with Vendors(["fine"]) as vendors, httpx2.AsyncClient(transport=vendors.transport()) as client:
        path = {"chat": "/chat/completions", "responses": "/responses", "anthropic": "/v1/messages"}[vendor.dialect]
        good = conversation(vendor, vendors._memories[name])  # pyright: ignore[reportPrivateUsage]
        assert (await client.post(vendor.address + path, json=good)).status_code == 200
        drop(good, results(good)[0])
        answer_ = await client.post(vendor.address + path, json=good)
        assert vendors.refusals and vendors.refusals[0].vendor == name
        assert answer_.status_code in (400, 422) and vendors.refusals[0].said[:40] in json.dumps(
            answer_.json()
        ).replace('\\"', '"')
        assert [each.vendor.name for each in vendors.asked] == [name, name]
