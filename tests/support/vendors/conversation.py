"""Rules about what was said: ids of calls, calls and their results, roles, blank texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.vendors.row import Fault, Rule
from tests.support.vendors.table import ALL, CHAT, CLAUDE, OPENAI, RESPONSES
from tests.support.vendors.view import Asked, Step

_PATTERNS = {
    **dict.fromkeys(RESPONSES, r".{1,64}"),
    **dict.fromkeys(OPENAI, r".{1,40}"),
    **dict.fromkeys((*CLAUDE, "openrouter"), r"[a-zA-Z0-9_-]+"),
    "mistral": r"[a-zA-Z0-9]{9}",
}
"""The ids of calls that a vendor takes; others take any that is not empty."""


def _ids(asked: Asked) -> Iterator[Fault]:
    pattern = _PATTERNS.get(asked.vendor.name, r".+")
    for step in asked.steps:
        if step.kind in ("call", "result") and not re.fullmatch(pattern, step.id, re.DOTALL):
            field = {"anthropic": "id", "responses": "call_id", "chat": "id"}[asked.vendor.dialect]
            if step.kind == "result":
                field = {"anthropic": "tool_use_id", "responses": "call_id", "chat": "tool_call_id"}[
                    asked.vendor.dialect
                ]
            limit = 64 if asked.vendor.dialect == "responses" else 40
            param = f"{step.where}.{field}"
            yield {"where": step.where, "param": param, "id": step.id, "length": len(step.id), "limit": limit}


def _unique(asked: Asked) -> Iterator[Fault]:
    seen: set[Any] = set()
    for step in asked.steps:
        if step.kind == "call":
            # Most vendors look at one message at a time: some of their own models count calls from 0 in each.
            key = step.id if asked.vendor.name in (*CLAUDE, "openrouter", *RESPONSES) else (step.at, step.id)
            if key in seen:
                yield {"where": step.where, "id": step.id, "param": step.where}
            seen.add(key)


def _groups(asked: Asked) -> Iterator[tuple[str, Step]]:
    """What is wrong with calls and their results: ``unanswered``, ``uncalled`` or ``twice``, and the step."""
    pending: dict[str, Step] = {}
    answered: set[str] = set()
    loose = asked.vendor.dialect == "responses"  # results may come later there
    for step in asked.steps:
        if step.kind == "call":
            if not loose and pending and next(iter(pending.values())).at != step.at:
                yield "unanswered", next(iter(pending.values()))
                pending = {}
            if not pending:
                answered = answered if loose else set()
            pending[step.id] = step
        elif step.kind == "result":
            if step.id in pending:
                del pending[step.id]
                answered.add(step.id)
            else:
                yield ("twice" if step.id in answered else "uncalled"), step
        elif not loose:
            if pending and next(iter(pending.values())).at != step.at:
                yield "unanswered", next(iter(pending.values()))
                pending = {}
            if not pending:
                answered = set()
    if pending:
        yield "unanswered", next(iter(pending.values()))


def _wrong(kind: str) -> Any:
    def check(asked: Asked) -> Iterator[Fault]:
        for found, step in _groups(asked):
            if found == kind:
                message = step.where.split(".content")[0]
                yield {
                    "where": step.where,
                    "message": message,
                    "id": step.id,
                    "at": step.at,
                    "next": step.at + 1,
                    "param": step.where,
                }

    return check


def _arguments(asked: Asked) -> Iterator[Fault]:
    for step in asked.steps:
        if step.kind == "call":
            try:
                wrong = not isinstance(json.loads(step.text), dict)
                why = "Input should be a valid dictionary"
            except ValueError as error:
                wrong, why = True, str(error)
            if wrong:
                yield {"where": step.where, "why": why, "name": step.name, "param": step.where}


_ROLES = {
    **dict.fromkeys(CLAUDE, ("user", "assistant")),
    **dict.fromkeys(("deepseek", "mistral"), ("system", "user", "assistant", "tool")),
    **dict.fromkeys(RESPONSES, ("system", "developer", "user", "assistant")),
}


def _roles(asked: Asked) -> Iterator[Fault]:
    known = _ROLES.get(asked.vendor.name, ("system", "developer", "user", "assistant", "tool"))
    for at, message in enumerate(asked.messages):
        role = message.get("role")
        if asked.vendor.dialect == "responses" and message.get("type", "message") != "message":
            continue
        if role not in known:
            yield {
                "at": at,
                "role": role,
                "known": ", ".join([f"`{each}`" for each in known]),
                "param": f"messages[{at}].role",
            }


def _first(asked: Asked) -> Iterator[Fault]:
    if not asked.messages or asked.messages[0].get("role") != "user":
        yield {"param": "messages"}


def _system_first(asked: Asked) -> Iterator[Fault]:
    for at, message in enumerate(asked.messages):
        if at and message.get("role") == "system":
            yield {"at": at, "param": f"messages[{at}]"}


def _last(asked: Asked) -> Iterator[Fault]:
    last = asked.messages[-1] if asked.messages else {}
    if last.get("role") == "assistant":
        yield {"param": "messages"}


def _call_after_user(asked: Asked) -> Iterator[Fault]:
    for at, message in enumerate(asked.messages):
        if message.get("tool_calls") and (at == 0 or asked.messages[at - 1].get("role") not in ("user", "tool")):
            yield {"at": at, "param": f"messages[{at}]"}


def _user_after_result(asked: Asked) -> Iterator[Fault]:
    for at, message in enumerate(asked.messages):
        if at and message.get("role") == "user" and asked.messages[at - 1].get("role") == "tool":
            yield {"at": at, "param": f"messages[{at}]"}


def _blank(asked: Asked) -> Iterator[Fault]:
    for step in asked.steps:
        if step.kind == "text" and not step.text.strip():
            what = "contain non-whitespace text" if step.text else "be non-empty"
            yield {"where": step.where, "at": step.at, "what": what}


def _blank_within(asked: Asked) -> Iterator[Fault]:
    for step in asked.steps:
        if step.kind == "result":
            content = step.data.get("content")
            for index, block in enumerate(content if isinstance(content, list) else ()):
                if block.get("type") == "text" and not block["text"].strip():
                    what = "contain non-whitespace text" if block["text"] else "be non-empty"
                    yield {"where": f"{step.where}.content.{index}", "at": step.at, "what": what}
    system = asked.body.get("system")
    for index, block in enumerate(system if isinstance(system, list) else ()):
        if not block["text"].strip():
            yield {"where": f"system.{index}", "at": 0, "what": "be non-empty"}


def _empty(asked: Asked) -> Iterator[Fault]:
    for at, message in enumerate(asked.messages):
        if not message.get("content") and not message.get("tool_calls"):
            yield {"at": at, "param": f"messages[{at}].content"}


def _nothing(asked: Asked) -> Iterator[Fault]:
    for at, message in enumerate(asked.messages):
        if message.get("role") == "assistant" and message.get("content") is None and not message.get("tool_calls"):
            yield {"at": at, "param": f"messages[{at}].content"}


def _ends_blank(asked: Asked) -> Iterator[Fault]:
    last = asked.steps[-1] if asked.steps else None
    if last is not None and last.role == "assistant" and last.kind == "text" and last.text != last.text.rstrip():
        yield {}


def _parts(asked: Asked) -> Iterator[Fault]:
    for at, message in enumerate(asked.messages):
        content = message.get("content")
        for index, part in enumerate(content if isinstance(content, list) else ()):
            texts = message.get("role") in ("tool", "system", "assistant") or not asked.vendor.pictures
            if texts and part.get("type") not in ("text", "refusal"):
                yield {"at": at, "part": index, "kind": part.get("type"), "param": f"messages[{at}].content[{index}]"}


def _item_parts(asked: Asked) -> Iterator[Fault]:
    for at, item in enumerate(asked.messages):
        content = item.get("content")
        if item.get("type", "message") == "message" and isinstance(content, list):
            known = ("output_text", "refusal") if item.get("role") == "assistant" else ("input_text", "input_image", "input_file", "input_audio")  # fmt: skip
            for index, part in enumerate(content):
                if part.get("type") not in known:
                    names = " and ".join([f"'{each}'" for each in known])
                    yield {"kind": part.get("type"), "known": names, "param": f"input[{at}].content[{index}]"}


RULES = (
    Rule(
        "ids of calls fit the vendor's pattern", "ids", ALL, _ids,
        "Invalid '{param}': string too long. Expected a string with maximum length {limit}, but got a string with length {length} instead.",
        "https://github.com/agno-agi/agno/issues/5382", "2025-11-11",
        {
            **dict.fromkeys(CLAUDE, "{param}: String should match pattern '^[a-zA-Z0-9_-]+$'"),
            "openrouter": "{param}: String should match pattern '^[a-zA-Z0-9_-]+$'",
            "mistral": "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.",
            **dict.fromkeys(("gemini", "groq", "vllm", "llama.cpp"), "'{param}' : a tool call needs an id"),
            "deepseek": "Failed to deserialize the JSON body into the target type: {param}: missing field `id`",
        },
    ),
    Rule(
        "no two calls have one id", "ids", ALL, _unique,
        "Duplicate value for 'tool_call_id' of '{id}' in message at {where}",
        "https://github.com/anthropics/claude-code/issues/28515", "2026-02-25",
        {
            **dict.fromkeys((*CLAUDE, "openrouter"), "{where}: `tool_use` ids must be unique"),
            **dict.fromkeys(RESPONSES, "Duplicate item found with call_id {id}. Remove duplicate items from your input and try again."),
        },
    ),
    Rule(
        "every call has its result directly after it", "calls", ALL, _wrong("unanswered"),
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {id}",
        "https://github.com/Kilo-Org/kilocode/issues/5163", "2026-01-17",
        {
            **dict.fromkeys((*CLAUDE, "openrouter"), "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."),
            **dict.fromkeys(RESPONSES, "No tool output found for function call {id}."),
            "gemini": "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
            "mistral": "Not the same number of function calls and responses",
        },
    ),
    Rule(
        "every result has its call directly before it", "calls", ALL, _wrong("uncalled"),
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        "https://github.com/tghamm/Anthropic.SDK/issues/184", "2026-02-16",
        {
            **dict.fromkeys((*CLAUDE, "openrouter"), "{where}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."),
            **dict.fromkeys(RESPONSES, "No tool call found for function call output with call_id {id}."),
            "gemini": "Please ensure that function response turn comes immediately after a function call turn.",
            "mistral": "Unexpected tool call id {id} in tool results",
        },
    ),
    Rule(
        "every call has one result", "calls", ALL, _wrong("twice"),
        "Duplicate tool message for tool_call_id {id}",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use", "2026-11-28",
        {**dict.fromkeys((*CLAUDE, "openrouter"), "{message}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}")},
    ),
    Rule(
        "the arguments of calls in the history are JSON objects", "calls",
        (*CLAUDE, "gemini", "openrouter", "deepseek", "groq", "mistral", "vllm", "llama.cpp"), _arguments,
        "{why}",
        "https://github.com/vllm-project/vllm/pull/48922", "2026-07-17",
        {
            **dict.fromkeys(CLAUDE, "{where}.tool_use.input: Input should be a valid dictionary"),
            "llama.cpp": "Failed to parse tool call arguments as JSON: {why}",
        },
    ),
    Rule(
        "roles are known", "roles", ALL, _roles,
        "Invalid value: '{role}'. Supported values are: {known}.",
        "https://github.com/earendil-works/pi/issues/1048", "2026-01-28",
        {
            **dict.fromkeys(CLAUDE, "messages.{at}.role: Input should be 'user' or 'assistant'"),
            "deepseek": "Failed to deserialize the JSON body into the target type: messages[{at}].role: unknown variant `{role}`, expected one of {known}",
        },
    ),
    Rule(
        "the user begins", "roles", CLAUDE, _first,
        "messages: first message must use the \"user\" role",
        "https://platform.claude.com/docs/en/api/messages", "2026-11-28",
    ),
    Rule(
        "system text comes first", "roles", ("mistral", "vllm", "llama.cpp"), _system_first,
        "System message must be at the beginning.",
        "https://github.com/vllm-project/vllm/issues/41114", "2026-04-28",
    ),
    Rule(
        "the assistant is not the last", "roles", ("mistral",), _last,
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        "https://github.com/0xPlaygrounds/rig/pull/1130", "2025-12-08",
    ),
    Rule(
        "a call follows the user or a result", "roles", ("gemini",), _call_after_user,
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
        "https://github.com/continuedev/continue/issues/11164", "2026-03-07",
    ),
    Rule(
        "the user does not follow a result",
        "roles",
        ("mistral",),
        _user_after_result,
        "Unexpected role 'user' after role 'tool'",
        "https://github.com/aliou/pi-neuralwatt/issues/12",
        "2026-06-02",
    ),
    Rule(
        "no text is blank", "texts", (*CLAUDE, "openrouter"), _blank,
        "messages: text content blocks must {what}",
        "https://github.com/anthropics/claude-code/issues/59812", "2026-05-16",
    ),
    Rule(
        "no text in results or the system text is blank", "texts", CLAUDE, _blank_within,
        "{where}: text content blocks must {what}",
        "https://github.com/anthropics/claude-code/issues/23440", "2026-02-05",
    ),
    Rule(
        "no message is empty", "texts", (*CLAUDE, "gemini"), _empty,
        "messages.{at}: all messages must have non-empty content except for the optional final assistant message",
        "https://github.com/aaif-goose/goose/pull/1425", "2025-02-27",
        {"gemini": "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."},
    ),
    Rule(
        "an assistant message has content or calls", "texts", CHAT, _nothing,
        "Invalid value for 'content': expected a string, got null.",
        "https://platform.openai.com/docs/api-reference/chat/create", "2026-11-28",
        {
            "mistral": "Assistant message must have either content or tool_calls, but not none.",
            "llama.cpp": "Assistant message must contain either 'content' or 'tool_calls'!",
        },
    ),
    Rule(
        "a final assistant text does not end in white space", "texts", CLAUDE, _ends_blank,
        "messages: final assistant content cannot end with trailing whitespace",
        "https://platform.claude.com/docs/en/build-with-claude/working-with-messages", "2026-11-28",
    ),
    Rule(
        "parts of a message are those its role may have", "parts", CHAT, _parts,
        "Invalid value: '{kind}'. Supported values are: 'text'.",
        "https://github.com/ChatLunaLab/chatluna/issues/867", "2026-05-18",
        {
            "deepseek": "Failed to deserialize the JSON body into the target type: messages[{at}]: unknown variant `{kind}`, expected `text`",
            "groq": "messages[{at}].content must be a string",
            "llama.cpp": "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        },
        {"llama.cpp": 500},
    ),
    Rule(
        "parts of an item are those its role may have", "parts", RESPONSES, _item_parts,
        "Invalid value: '{kind}'. Supported values are: {known}.",
        "https://platform.openai.com/docs/api-reference/responses/create", "2026-11-28",
    ),
)  # fmt: skip
