"""Rules about what a vendor issues and wants back: signed thinking, encrypted reasoning, signatures of calls, ids of items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.vendors.row import Fault, Rule
from tests.support.vendors.table import CLAUDE, RESPONSES
from tests.support.vendors.view import Asked, Step

NO_SIGNATURE = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
"""What Gemini takes for the signature of a call that another model made."""
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}


def _signed(asked: Asked) -> Iterator[Fault]:
    for step in asked.steps:
        if step.kind == "thinking":
            kind = step.data["type"]
            key = "signature" if kind == "thinking" else "data"
            seal = step.data.get(key)
            if not seal:
                yield {"where": step.where, "why": f"{step.where}.{kind}.{key}: Field required"}
            elif asked.memory.sealed.get(seal) != {
                name: step.data[name] for name in step.data if name != "cache_control"
            }:
                yield {"where": step.where, "why": f"{step.where}: Invalid `{key}` in `{kind}` block"}


def _own_turns(asked: Asked) -> Iterator[tuple[int, list[Step], list[dict[str, Any]]]]:
    """Each message of the latest turn with calls of this vendor's own: its number, its steps, and the answer as it was."""
    for at in dict.fromkeys(step.at for step in asked.steps if step.kind == "call" and step.at >= asked.turn):
        steps = [step for step in asked.steps if step.at == at]
        answer = next((found for step in steps if (found := asked.memory.answer_of(step.id)) is not None), None)
        if answer is not None:
            yield at, steps, answer.content


def _unmodified(asked: Asked) -> Iterator[Fault]:
    for at, steps, content in _own_turns(asked):
        was = [(n, block) for n, block in enumerate(content) if block["type"] in ("thinking", "redacted_thinking")]
        now = [(n, step.data) for n, step in enumerate(steps) if step.kind == "thinking"]
        if now and [block for _, block in now] != [block for _, block in was]:
            yield {"where": f"messages.{at}.content.0"}


def _begins_with_thinking(asked: Asked) -> Iterator[Fault]:
    if (asked.body.get("thinking") or {}).get("type") != "enabled":
        return
    for step in asked.steps:
        first = step.role == "assistant" and step.where.endswith(".content.0") and step.at > asked.turn
        if first and step.kind != "thinking":
            yield {"where": step.where, "kind": step.data.get("type")}


def _encrypted(asked: Asked) -> Iterator[Fault]:
    for item in asked.messages:
        if item.get("type") == "reasoning":
            seal = item.get("encrypted_content")
            if seal and (asked.memory.sealed.get(seal) or {}).get("id") != item.get("id"):
                yield {"id": item.get("id"), "param": None}


def _kept(asked: Asked) -> Iterator[Fault]:
    for item in asked.messages:
        if item.get("type") == "reasoning" and not item.get("encrypted_content"):
            yield {"id": item.get("id"), "param": "input"}


def _followed(asked: Asked) -> Iterator[Fault]:
    for at, item in enumerate(asked.messages):
        if item.get("type") == "reasoning":
            rest = asked.messages[at + 1 :]
            following = next((each for each in rest if each.get("type") != "reasoning"), {})
            kind = following.get("type", "message")
            own = kind == "function_call" or (kind == "message" and following.get("role") == "assistant")
            answer = next((each.content for each in asked.memory.answers if item in each.content), None)
            if answer is not None and own:
                known = [each for each in answer[answer.index(item) + 1 :] if each["type"] != "reasoning"]
                own = not known or (known[0]["type"], known[0].get("call_id")) == (kind, following.get("call_id"))
            if not own:
                yield {"id": item.get("id"), "param": "input"}


def _led(asked: Asked) -> Iterator[Fault]:
    for at, item in enumerate(asked.messages):
        if item.get("id") and item.get("type") == "function_call":
            answer = asked.memory.answer_of(item.get("call_id", ""))
            thought = [each for each in answer.content if each["type"] == "reasoning"] if answer is not None else []
            there = [each.get("id") for each in asked.messages[:at] if each.get("type") == "reasoning"]
            if thought and thought[0]["id"] not in there:
                yield {"id": item["id"], "missing": thought[0]["id"], "param": "input"}


def _prefixes(asked: Asked) -> Iterator[Fault]:
    for at, item in enumerate(asked.messages):
        prefix = _PREFIXES.get(item.get("type", "message"))
        if item.get("id") is not None and prefix and not item["id"].startswith(prefix):
            yield {"at": at, "id": item["id"], "prefix": prefix, "param": f"input[{at}].id"}


def _items(asked: Asked) -> Iterator[Fault]:
    seen: set[str] = set()
    for item in asked.messages:
        if item.get("id") in seen:
            yield {"id": item["id"], "param": "input"}
        seen.update([item["id"]] if item.get("id") else [])


def _signature(call: dict[str, Any]) -> str | None:
    return ((call.get("extra_content") or {}).get("google") or {}).get("thought_signature")


def _call_signatures(asked: Asked) -> Iterator[Fault]:
    first = -1
    for step in asked.steps:
        if step.kind == "call" and step.at > asked.turn and step.at != first:
            first = step.at
            if not _signature(step.data):
                yield {"name": step.name, "at": step.at + 1, "param": step.where}


def _true_signatures(asked: Asked) -> Iterator[Fault]:
    for step in asked.steps:
        seal = _signature(step.data) if step.kind == "call" else None
        if seal and seal not in (*NO_SIGNATURE, *asked.memory.sealed):
            yield {"param": step.where}
    for at, message in enumerate(asked.messages):
        seal = _signature(message)
        if seal and seal not in (*NO_SIGNATURE, *asked.memory.sealed):
            yield {"param": f"messages[{at}]"}


def _reasons(asked: Asked) -> Iterator[Fault]:
    for step in asked.steps:
        if step.kind == "call" and step.at > asked.turn and asked.messages[step.at].get("reasoning_content") is None:
            yield {"at": step.at, "param": step.where}


def _details(asked: Asked) -> Iterator[Fault]:
    issued = [
        message["reasoning_details"]
        for each in asked.memory.answers
        for message in each.content
        if message.get("reasoning_details")
    ]
    for at, message in enumerate(asked.messages):
        if message.get("reasoning_details") and message["reasoning_details"] not in issued:
            yield {"at": at, "param": f"messages[{at}].reasoning_details"}


def _details_kept(asked: Asked) -> Iterator[Fault]:
    for at, _, content in _own_turns(asked):
        if content[0].get("reasoning_details") and not asked.messages[at].get("reasoning_details"):
            yield {"at": at, "param": f"messages[{at}].reasoning_details"}


RULES = (
    Rule(
        "signed thinking goes back to its issuer alone, unchanged", "replay", CLAUDE, _signed,
        "{why}",
        "https://github.com/anthropics/anthropic-sdk-python/issues/1598", "2026-08-05",
    ),
    Rule(
        "thinking of the latest turn is whole and in order", "replay", CLAUDE, _unmodified,
        "{where}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
        "https://github.com/anthropics/claude-code/issues/63574", "2026-05-29",
    ),
    Rule(
        "with thinking on, the answers of a turn begin with it", "replay", CLAUDE, _begins_with_thinking,
        "{where}.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks).",
        "https://github.com/znlsl/Antigravity2Api/issues/11", "2026-01-06",
    ),
    Rule(
        "encrypted reasoning goes back to its issuer alone", "replay", RESPONSES, _encrypted,
        "The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
        "https://github.com/smallmain/vscode-unify-chat-provider/issues/178", "2026-05-08",
    ),
    Rule(
        "no reasoning without its encrypted content", "replay", RESPONSES, _kept,
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input.",
        "https://github.com/continuedev/continue/issues/9101", "2025-12-10",
        status=dict.fromkeys(RESPONSES, 404),
    ),
    Rule(
        "reasoning is followed by the item that it led to", "replay", RESPONSES, _followed,
        "Item '{id}' of type 'reasoning' was provided without its required following item.",
        "https://github.com/continuedev/continue/issues/8933", "2025-11-28",
    ),
    Rule(
        "an item with its id comes with its reasoning", "replay", RESPONSES, _led,
        "Item '{id}' of type 'function_call' was provided without its required 'reasoning' item: '{missing}'.",
        "https://github.com/TanStack/ai/issues/1212", "2026-08-23",
    ),
    Rule(
        "ids of items begin with their kind", "ids", RESPONSES, _prefixes,
        "Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{prefix}'.",
        "https://github.com/Wei-Shaw/sub2api/issues/3785", "2026-07-07",
    ),
    Rule(
        "no two items have one id", "ids", RESPONSES, _items,
        "Duplicate item found with id {id}. Remove duplicate items from your input and try again.",
        "https://github.com/earendil-works/pi/issues/5151", "2026-05-28",
    ),
    Rule(
        "the first call of each answer in a turn has its signature", "replay", ("gemini",), _call_signatures,
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{name}` , position {at}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
        "https://github.com/TokenRhythm/opensquilla/issues/225", "2026-06-08",
    ),
    Rule(
        "signatures of calls are the vendor's own", "replay", ("gemini",), _true_signatures,
        "Corrupted thought signature.",
        "https://github.com/lbjlaq/Antigravity-Manager/issues/970", "2026-01-22",
    ),
    Rule(
        "calls of a turn come with reasoning_content", "replay", ("deepseek",), _reasons,
        "Missing `reasoning_content` field in the assistant message at message index {at}. For more information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls",
        "https://github.com/continuedev/continue/issues/11285", "2026-03-11",
    ),
    Rule(
        "reasoning_details go back to their issuer alone, whole and in order", "replay", ("openrouter",), _details,
        "messages.{at}.content.0: Invalid `signature` in `thinking` block",
        "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens", "2026-06-07",
    ),
    Rule(
        "calls of a turn come with their reasoning_details", "replay", ("openrouter",), _details_kept,
        "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
        "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens", "2026-06-07",
    ),
)  # fmt: skip
