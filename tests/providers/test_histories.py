"""A conversation goes on with any server, whichever it began with: each is sent what it issued itself, and nothing it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow import AgentFlow, Session, tool
from agentflow.core.data.message_json import exchange_data, read_message
from agentflow.core.data.messages import (
    ImagePart,
    Message,
    ModelRequest,
    ModelResponse,
    Native,
    OtherPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    user,
)
from agentflow.providers import open_provider
from agentflow.providers.dialects.request_history import EMPTY, NO_RESULT
from agentflow.providers.fallback import FallbackProvider
from agentflow.providers.http_adapter import HttpAdapter
from tests.support.model_server import ModelServer

# --- Any history, any target -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A server by its adapter and address; ``alternates`` and ``echo`` are its rules, as in the table of traits."""

    name: str
    route: str
    address: str
    call_id: str = r"[A-Za-z0-9_-]{1,40}"
    alternates: bool = True
    echo: str = "all"


TARGETS = (
    Target("anthropic", "anthropic", "https://api.anthropic.com", r"[A-Za-z0-9_-]{1,64}"),
    Target("imitator", "anthropic", "http://claude.test", r"[A-Za-z0-9_-]{1,64}"),
    Target("openai", "openai", "https://api.openai.com/v1", r"[A-Za-z0-9_-]{1,64}", alternates=False),
    Target("azure", "openai", "https://we.openai.azure.com/openai/v1", r"[A-Za-z0-9_-]{1,64}", alternates=False),
    Target("openai-chat", "openai-chat", "https://api.openai.com/v1", alternates=False, echo="none"),
    Target("deepseek", "openai-chat", "https://api.deepseek.com", echo="calls"),
    Target("groq", "openai-chat", "https://api.groq.com/openai/v1", echo="none"),
    Target("mistral", "openai-chat", "https://api.mistral.ai/v1", r"[A-Za-z0-9]{9}", echo="none"),
    Target("gemini", "openai-chat", "https://generativelanguage.googleapis.com/v1beta/openai"),
    Target("kimi", "openai-chat", "http://kimi.test/v1"),
)
DIALECTS = {"anthropic": "anthropic.messages", "openai": "openai.responses", "openai-chat": "openai.chat"}


@cache
def adapter(target: Target) -> HttpAdapter:
    """The adapter of a target; nothing is sent."""
    made = open_provider(target.route, base_url=target.address, api_key="k")
    assert isinstance(made, HttpAdapter)
    return made


def sent_to(target: Target, messages: list[Message]) -> dict[str, Any]:
    """The body that goes out to ``target`` for a history."""
    return adapter(target).described(ModelRequest(tuple(messages), model="m"))["body"]


def mark(target: Target | None) -> str:
    """Stands in all that a server issued and only it can read."""
    return f"<only {target.name if target else 'nobody'}>"


texts = st.sampled_from(["so", "yes", "two\nlines", "", " ", "\n\n"])
foreign_ids = st.sampled_from(["call_1", "made_1", "functions.look:0", "", "x" * 80, "a b", "ünl"])


@st.composite
def answers(draw: st.DrawFn) -> Message:
    """An answer as one of the servers, or nobody known, gave it."""
    target = draw(st.sampled_from((*TARGETS, None)))
    parts: list[Part] = []
    for number in range(draw(st.integers(0, 4))):
        parts.append(_part(draw, target, number))
    return Message("assistant", tuple(parts))


def _part(draw: st.DrawFn, target: Target | None, number: int) -> Part:
    route = target.route if target else "anthropic"
    opaque = mark(target)

    def native(data: dict[str, Any]) -> Native:
        return Native(DIALECTS[route], data, adapter(target).issuer if target else "")

    kind = draw(st.sampled_from(["text", "thinking", "call", "call", "other", "image"]))
    if kind == "text":
        text = draw(texts)
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [{"type": "output_text", "text": text, "x": opaque}]}  # fmt: skip
        return TextPart(text, native=native(item) if route == "openai" else None)
    if kind == "thinking":
        signed = draw(st.booleans())
        if route == "anthropic":
            return ThinkingPart("hm", native({"type": "thinking", "thinking": "hm", "x": opaque, **({"signature": "s"} if signed else {})}))  # fmt: skip
        if route == "openai":
            return ThinkingPart("", native({"type": "reasoning", "id": f"rs_{number}", "summary": [], "x": opaque, **({"encrypted_content": "e"} if signed else {})}))  # fmt: skip
        return ThinkingPart("hm", native({"reasoning_content": opaque}))
    if kind == "call":
        own_ids = st.uuids().map(lambda made: made.hex[:9])
        call_id = draw(own_ids if target and target.name != "kimi" else foreign_ids)
        data: dict[str, Any] = {}
        if route == "openai":
            data = {"type": "function_call", "id": f"fc_{number}", "call_id": call_id, "name": "look", "arguments": "{}", "x": opaque}  # fmt: skip
        elif draw(st.booleans()):
            data = {"extra_content": {"google": {"thought_signature": opaque}}}
        return ToolCallPart(call_id, "look", {}, native(data) if target else None)
    if kind == "other":
        types = {"anthropic": "redacted_thinking", "openai": "web_search_call", "openai-chat": "details"}
        return OtherPart(native({"type": types[route], "data": opaque}))
    return ImagePart("image/png", "aW1n")


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Messages in any order; results mostly answer calls that there were, some are missing, doubled or of no call."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            messages.append(draw(answers()))
            continue
        calls = [part for message in messages[-2:] for part in message.parts if isinstance(part, ToolCallPart)]
        results = [ToolResultPart(call.id, call.name, "seven") for call in calls if draw(st.integers(0, 3))]
        if not draw(st.integers(0, 3)):
            results.append(ToolResultPart("nobody's", "look", "eight"))
        said = [TextPart(draw(texts))] if draw(st.booleans()) or not results else []
        messages.append(Message("user", tuple(draw(st.permutations([*results, *said])))))
    messages.append(user("Go on"))
    return messages


def own_ids(target: Target, messages: list[Message]) -> set[str]:
    """Ids of calls that the target issued itself."""
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    return {call.id for call in calls if call.native and call.native.issuer == adapter(target).issuer and "made_" not in call.id}  # fmt: skip


def check_ids(target: Target, ids: list[str], own: set[str]) -> None:
    """Ids have the form that the server wants and are unique, but for those that it issued."""
    others = [each for each in ids if each not in own]
    assert all(re.fullmatch(target.call_id, each) for each in others), others
    assert len(set(others)) == len(others)


def check_chat(target: Target, body: dict[str, Any], own: set[str]) -> None:
    """The rules of Chat Completions: results right after their calls, no blank message, roles by turns."""
    messages = body["messages"]
    waiting: list[str] = []
    ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "a call without its result"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        ids += waiting
        content = message.get("content")
        assert waiting or (content if isinstance(content, list) else str(content).strip())
    assert not waiting
    check_ids(target, ids, own)
    roles = [message["role"] for message in messages]
    if target.alternates:
        assert roles[0] == "user"
        assert not any(a == b and a != "tool" for a, b in pairwise(roles)), roles
    if target.name == "deepseek":
        assert all(("reasoning_content" in message) == ("tool_calls" in message) for message in messages)
    if target.name == "gemini":
        firsts = [message["tool_calls"][0] for message in messages if "tool_calls" in message]
        assert all("extra_content" in call for call in firsts if call["id"] not in own)


def check_anthropic(target: Target, body: dict[str, Any], own: set[str]) -> None:
    """The rules of Anthropic Messages."""
    messages = body["messages"]
    assert [message["role"] for message in messages] == (["user", "assistant"] * len(messages))[: len(messages)]
    waiting: list[str] = []
    ids: list[str] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks and all(block["text"].strip() for block in blocks if block["type"] == "text")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert [block["type"] for block in blocks[: len(results)]] == ["tool_result"] * len(results)
        assert sorted(results) == sorted(waiting)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        ids += waiting
        if message["role"] == "assistant":
            assert blocks[-1]["type"] not in ("thinking", "redacted_thinking")
            assert not any(block["type"] == "image" for block in blocks)
            if target.name == "anthropic":
                assert all(block["signature"] for block in blocks if block["type"] == "thinking")
    assert not waiting
    check_ids(target, ids, own)


def check_responses(target: Target, body: dict[str, Any], own: set[str]) -> None:
    """The rules of the Responses API where nothing is stored."""
    waiting: list[str] = []
    ids: list[str] = []
    before: dict[str, Any] = {}
    for item in [*body["input"], {}]:
        kind = item.get("type")
        if before.get("type") == "reasoning":
            assert kind is not None and item.get("role") != "user" and kind != "function_call_output", (
                "nothing follows the reasoning"
            )
        if kind == "reasoning":
            assert item.get("encrypted_content")
        elif kind == "function_call":
            waiting.append(item["call_id"])
            ids.append(item["call_id"])
        elif kind == "function_call_output":
            waiting.remove(item["call_id"])
        elif item.get("role") == "user":
            assert not waiting
        before = item
    assert not waiting
    check_ids(target, ids, own)


CHECKS = {"anthropic": check_anthropic, "openai": check_responses, "openai-chat": check_chat}


@settings(max_examples=300, deadline=None)
@given(histories(), st.sampled_from(TARGETS))
def test_any_history_meets_the_rules_of_any_target(messages: list[Message], target: Target) -> None:
    """Whatever the history holds and whoever wrote it, the request is one that the target takes, also after it was stored;
    what one server issued is sent to no other."""
    body = sent_to(target, messages)
    CHECKS[target.route](target, body, own_ids(target, messages))
    text = json.dumps(body)
    assert not [other.name for other in (*TARGETS, None) if other is not target and mark(other) in text]
    assert sent_to(target, [read_message(each) for each in exchange_data(messages)]) == body
    assert sent_to(target, [*messages, Message("assistant", (TextPart("so"),)), user("more")])["model"] == "m"


@settings(max_examples=100, deadline=None)
@given(histories(), st.sampled_from(TARGETS))
def test_a_request_begins_as_the_one_before_it(messages: list[Message], target: Target) -> None:
    """What was sent once is sent the same way with the next request, so that a cache of prompts serves both."""
    key = "input" if target.route == "openai" else "messages"
    more = [*messages, Message("assistant", (TextPart("so"),)), user("more")]
    before, after = sent_to(target, messages)[key], sent_to(target, more)[key]
    assert json.dumps(unmarked(after[: len(before)])) == json.dumps(unmarked(before))


def unmarked(node: Any) -> Any:
    """Messages without cache marks, which move."""
    if isinstance(node, dict):
        plain = {key: unmarked(value) for key, value in node.items() if key != "cache_control"}
        content = plain.get("content")
        return {**plain, "content": [{"type": "text", "text": content}] if isinstance(content, str) else content}
    return [unmarked(each) for each in node] if isinstance(node, list) else node


# --- One rule each ---------------------------------------------------------------------------------------------------

ANTHROPIC, IMITATOR, OPENAI, AZURE, OPENAI_CHAT, DEEPSEEK, GROQ, MISTRAL, GEMINI, KIMI = TARGETS


def called(call_id: str, of: Target | None = None, data: dict[str, Any] | None = None) -> list[Message]:
    """A question, a call that ``of`` issued, and its result."""
    native = Native(DIALECTS[of.route], data or {}, adapter(of).issuer) if of else None
    call = ToolCallPart(call_id, "look", {"city": "Oslo"}, native)
    return [user("How warm?"), Message("assistant", (call,)), Message("user", (ToolResultPart(call_id, "look", "7"),))]


def chat_ids(body: dict[str, Any]) -> list[str]:
    return [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]


@pytest.mark.parametrize("target", [ANTHROPIC, OPENAI, MISTRAL, KIMI], ids=lambda target: target.name)
def test_an_id_of_another_server_is_mapped_only_where_it_does_not_fit(target: Target) -> None:
    """``functions.look:0`` is Kimi's, and goes back to Kimi as it is; a plain one is nobody's and stays."""
    messages = called("functions.look:0", KIMI)
    body = json.dumps(sent_to(target, messages))
    assert ("functions.look:0" in body) == (target is KIMI)
    assert body == json.dumps(sent_to(target, messages)), "the same each time"
    if target is not MISTRAL:
        assert '"toolu_01abc"' in json.dumps(sent_to(target, called("toolu_01abc", ANTHROPIC)))


def test_ids_that_a_server_uses_again_are_unique_for_another() -> None:
    """A server that counts the calls of each answer from 0 may, with itself alone."""
    messages = [*called("look_0", KIMI), *called("look_0", KIMI)]
    assert chat_ids(sent_to(KIMI, messages)) == ["look_0", "look_0"]
    blocks = [block for message in sent_to(ANTHROPIC, messages)["messages"] if isinstance(message["content"], list) for block in message["content"]]  # fmt: skip
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(calls)) == 2
    assert calls == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def test_an_id_that_the_target_issued_is_nobody_elses() -> None:
    """Where another server's id is one of the target's own, the other one is mapped, though it stands first."""
    ids = chat_ids(sent_to(DEEPSEEK, [*called("call_1", KIMI), *called("call_1", DEEPSEEK)]))
    assert ids[1] == "call_1" and ids[0] != "call_1"


def test_natives_of_nobody_known_are_not_sent() -> None:
    """A record from before issuers were kept, or a message that a host wrote, is said without its opaque blocks."""
    signed = ThinkingPart("hm", Native("anthropic.messages", {"type": "thinking", "thinking": "hm", "signature": "s"}))
    body = sent_to(ANTHROPIC, [user("hi"), Message("assistant", (signed, TextPart("so"))), user("and?")])
    assert "signature" not in json.dumps(body)
    assert body["messages"][1]["content"] == "so" or body["messages"][1]["content"][0]["text"] == "so"


def test_another_organisation_is_another_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encrypted reasoning is readable for the organisation it was made for; a key is not part of who that is."""
    address = {"base_url": OPENAI.address}

    def issuer(**options: Any) -> str:
        made = open_provider("openai", **address, **options)
        assert isinstance(made, HttpAdapter)
        return made.issuer

    plain = issuer(api_key="one")
    assert plain == issuer(api_key="two")
    named = issuer(api_key="one", settings={"extra_headers": {"OpenAI-Organization": "org-1"}})
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    assert plain != named == issuer(api_key="one")


def test_reasoning_without_its_content_is_left_out_with_the_ids_that_ask_for_it() -> None:
    """Nothing is stored, so reasoning goes back encrypted or not at all; what followed it then has no id, which would ask
    for the reasoning. Reasoning that nothing follows is left out too."""
    issuer = adapter(OPENAI).issuer

    def item(kind: str, **data: Any) -> Native:
        return Native("openai.responses", {"type": kind, **data}, issuer)

    call = ToolCallPart("c1", "look", {}, item("function_call", id="fc_1", call_id="c1", name="look", arguments="{}"))
    result = Message("user", (ToolResultPart("c1", "look", "7"),))
    bare = ThinkingPart("", item("reasoning", id="rs_1", summary=[]))
    whole = ThinkingPart("", item("reasoning", id="rs_2", summary=[], encrypted_content="e"))
    without = sent_to(OPENAI, [user("hi"), Message("assistant", (bare, call)), result])["input"]
    assert [entry["type"] for entry in without] == ["message", "function_call", "function_call_output"]
    assert "id" not in without[1]
    kept = sent_to(OPENAI, [user("hi"), Message("assistant", (whole, call)), result])["input"]
    assert [entry.get("id") for entry in kept] == [None, "rs_2", "fc_1", None]
    last = sent_to(OPENAI, [user("hi"), Message("assistant", (whole,)), user("and?")])["input"]
    assert "reasoning" not in [entry["type"] for entry in last]


def test_calls_and_results_that_miss_each_other_are_put_right() -> None:
    """A call without a result gets one that says so, a result without its call is said by the user, a second one too."""
    call, result = ToolCallPart("c1", "look", {}), ToolResultPart("c1", "look", "7")
    body = sent_to(ANTHROPIC, [user("hi"), Message("assistant", (call,)), user("and?")])
    added, said = body["messages"][2]["content"]
    assert (added["type"], added["tool_use_id"], added["is_error"]) == ("tool_result", "c1", True)
    assert added["content"] == NO_RESULT and said["text"] == "and?"
    body = sent_to(ANTHROPIC, [Message("user", (result,))])
    assert "[result of the tool look: 7]" in json.dumps(body)
    body = sent_to(KIMI, [user("hi"), Message("assistant", (call,)), Message("user", (result, result))])
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "user"]


def test_a_message_of_which_nothing_is_left_says_so() -> None:
    """Blank texts and thinking of others leave no empty message behind."""
    foreign = Message("assistant", (ThinkingPart("hm"), TextPart("\n")))
    body = sent_to(KIMI, [user("hi"), foreign, Message("user", (TextPart(" "),))])
    assert [message["content"] for message in body["messages"]] == ["hi", EMPTY, EMPTY]


def test_an_answer_of_thinking_and_opaque_fields_has_a_text() -> None:
    """Thinking and the fields beside it are no content: servers of Chat Completions refuse a message of these alone."""
    own = adapter(GEMINI).issuer
    thinking = ThinkingPart("hm", Native("openai.chat", {"reasoning_content": "hm"}, own))
    opaque = OtherPart(Native("openai.chat", {"type": "details", "data": "x"}, own))
    body = sent_to(GEMINI, [user("hi"), Message("assistant", (thinking, opaque)), user("Go on")])
    assert [message["content"] for message in body["messages"]] == ["hi", EMPTY, "Go on"]


def test_a_history_that_is_plain_text_is_not_copied() -> None:
    """The usual conversation is checked and sent as it is."""
    wire = adapter(KIMI)._wire  # pyright: ignore[reportPrivateUsage]
    messages = (user("hi"), Message("assistant", (TextPart("so"),)), user("and?"))
    assert wire(ModelRequest(messages)).messages is messages


# --- Through real parts ----------------------------------------------------------------------------------------------


@tool
async def look(city: str) -> str:
    """How warm it is."""
    return "seven"


THINKS = {
    "thinking": "hm",
    "text": "I look.",
    "tool_calls": [{"name": "look", "arguments": {"city": "Oslo"}, "id": "c1"}],
}
FAILS = {"status": 401}


@pytest.mark.parametrize("second", DIALECTS)
@pytest.mark.parametrize("first", DIALECTS)
async def test_a_session_moves_to_another_server(first: str, second: str) -> None:
    """A fallback takes a session over in which another server thought and called: calls and text stay, thinking does not go."""
    async with ModelServer([THINKS, "seven degrees", FAILS]) as one, ModelServer(["done"]) as two:
        routes = [(open_provider(route, base_url=server.url, api_key="k"), "m") for route, server in ((first, one), (second, two))]  # fmt: skip
        async with AgentFlow(provider=FallbackProvider(routes)) as flow:
            session = Session()
            await flow.run(flow.ask("How warm?", tools=[look]), session=session)
            assert (await flow.run(flow.ask("And now?"), session=session)).value == "done"
        own, moved = json.dumps(one.requests[1].body), json.dumps(two.requests[-1].body)
        assert "seven degrees" in moved and "I look." in moved and "hm" not in moved
        assert "hm" in own or first == "openai"
        assert '"c1"' in own and '"c1"' in moved


async def test_a_stored_session_goes_on_with_the_server_it_began_with(tmp_path: Any) -> None:
    """Signatures and their issuer are in the stored session: the same server gets them back, another does not."""
    async with ModelServer([THINKS, "seven degrees", "done"]) as one, ModelServer(["done"]) as two:
        async with AgentFlow("anthropic:m", base_url=one.url, api_key="k") as flow:
            session = Session()
            await flow.run(flow.ask("How warm?", tools=[look]), session=session)
            stored = session.to_json()
            await flow.run(flow.ask("And now?"), session=Session.from_json(stored))
        async with AgentFlow("anthropic:m", base_url=two.url, api_key="k") as flow:
            await flow.run(flow.ask("And now?"), session=Session.from_json(stored))
        assert "c2lnbmF0dXJl" in json.dumps(one.requests[-1].body)
        assert "c2lnbmF0dXJl" not in json.dumps(two.requests[-1].body)


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
async def test_calls_without_ids_have_one_each_in_a_conversation(dialect: str) -> None:
    """Ids that are made here do not begin anew with each answer."""
    calls = {"tool_calls": [{"name": "look", "arguments": {"city": "Oslo"}, "id": ""}] * 2}
    async with (
        ModelServer([calls, calls, "done"]) as server,
        AgentFlow(f"{dialect}:m", base_url=server.url, api_key="k") as flow,
    ):
        assert await flow.ask("How warm?", tools=[look]) == "done"
        ids = re.findall(r'"id": "(made_\d+)"', json.dumps(server.requests[-1].body))
        assert len(ids) == len(set(ids)) == 4


async def test_a_broken_call_goes_back_as_valid_json() -> None:
    """Servers that read the history refuse arguments that are not JSON; the result says what was wrong with them."""
    response = ModelResponse((ToolCallPart("c1", "look", {}, None, "cut off"),), "tool_calls")
    for target in TARGETS:
        body = json.dumps(sent_to(target, [user("hi"), replace(response).message(), user("and?")]))
        assert "cut off" not in body
