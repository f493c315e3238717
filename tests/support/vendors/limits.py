"""Rules about the request itself: its bytes, its fields, counts and lengths, names, cache marks, thinking budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.support.vendors.row import Fault, Rule
from tests.support.vendors.table import ALL, CHAT, CLAUDE, OPENAI, RESPONSES
from tests.support.vendors.view import Asked


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_OPENAI = _set(
    "messages model moderation audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata modalities n "
    "parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format "
    "safety_identifier seed service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options"
)
_RESPONSES = _set(
    "access_programs background background_options context_management conversation image moderation include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls "
    "previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream "
    "stream_options temperature text tool_choice tools top_logprobs top_p truncation user"
)
_ANTHROPIC = _set(
    "model messages max_tokens system metadata stop_sequences stream temperature top_k top_p tools tool_choice thinking output_config cache_control "
    "container context_management diagnostics user_profile_id workspace_id mcp_servers service_tier inference_geo speed"
)
_BEDROCK = _set(
    "anthropic_version anthropic_beta messages max_tokens system metadata stop_sequences temperature top_k top_p tools tool_choice thinking "
    "output_config cache_control"
)
_GEMINI = _set(
    "messages model max_tokens max_completion_tokens n stream stream_options temperature top_p stop tools tool_choice parallel_tool_calls "
    "response_format reasoning_effort seed extra_body modalities audio user"
)
_GROQ = _set(
    "messages model citation_options compound_custom disable_tool_validation documents exclude_domains frequency_penalty function_call functions "
    "include_domains include_reasoning logit_bias logprobs max_completion_tokens max_tokens metadata n parallel_tool_calls presence_penalty "
    "reasoning_effort reasoning_format response_format search_settings seed service_tier stop store stream stream_options temperature tool_choice "
    "tools top_logprobs top_p user"
)
_MISTRAL = _set(
    "model messages temperature top_p max_tokens stream stop random_seed metadata response_format tools tool_choice presence_penalty "
    "frequency_penalty n prediction parallel_tool_calls prompt_mode safe_prompt guardrails reasoning_effort prompt_cache_key"
)
FIELDS = {
    **dict.fromkeys(OPENAI, _OPENAI), **dict.fromkeys(RESPONSES, _RESPONSES), "anthropic": _ANTHROPIC, "bedrock": _BEDROCK,
    "gemini": _GEMINI, "groq": _GROQ, "mistral": _MISTRAL,
}  # fmt: skip
"""The fields of a request that a vendor knows; those without a row leave unknown fields alone.

OpenAI's and Anthropic's are those of their SDKs, and a few that left an SDK with models that are still there.
"""
_CALL = _set("id type function")
_CHAT_MESSAGE = {
    "system": _set("role content name"), "developer": _set("role content name"), "user": _set("role content name"),
    "assistant": _set("role content name refusal audio tool_calls function_call annotations"), "tool": _set("role content tool_call_id"),
}  # fmt: skip
_MESSAGES: dict[str, dict[str, frozenset[str]]] = {
    **dict.fromkeys(OPENAI, _CHAT_MESSAGE),
    "gemini": {**_CHAT_MESSAGE, "assistant": _set("role content name refusal tool_calls extra_content"), "tool": _set("role content tool_call_id name")},
    "groq": {**_CHAT_MESSAGE, "assistant": _set("role content name tool_calls reasoning"), "tool": _set("role content tool_call_id name")},
    "mistral": {
        "system": _set("role content"), "user": _set("role content"), "assistant": _set("role content tool_calls prefix"),
        "tool": _set("role content tool_call_id name"),
    },
}  # fmt: skip
_CALLS = {
    **dict.fromkeys(OPENAI, _CALL),
    "gemini": _CALL | {"extra_content"},
    "groq": _CALL,
    "mistral": _CALL | {"index"},
}
_ITEMS = {
    "message": _set("type role content id status phase"),
    "function_call": _set("type call_id name arguments id status namespace"),
    "function_call_output": _set("type call_id output id status"),
    "reasoning": _set("type id summary content encrypted_content status"),
    "input_text": _set("type text"), "output_text": _set("type text annotations logprobs"), "refusal": _set("type refusal"),
    "input_image": _set("type image_url file_id detail"), "input_file": _set("type file_id file_url filename file_data detail"),
    "input_audio": _set("type input_audio"),
}  # fmt: skip
_BLOCKS = {
    "text": _set("type text cache_control citations"), "image": _set("type source cache_control"),
    "document": _set("type source title context citations cache_control"), "tool_use": _set("type id name input cache_control caller"),
    "tool_result": _set("type tool_use_id content is_error cache_control"), "thinking": _set("type thinking signature"),
    "redacted_thinking": _set("type data"),
}  # fmt: skip
_TOOL = {"chat": _set("name description parameters strict"), "responses": _set("type name description parameters strict defer_loading"),
         "anthropic": _set("type name description input_schema strict cache_control input_examples defer_loading allowed_callers eager_input_streaming")}  # fmt: skip


_ESCAPED = re.compile(r"\\\\|\\u(d[89ab]..)\\u(d[c-f]..)|\\u(d[89a-f]..)", re.IGNORECASE)
"""A backslash, a whole pair of halves, or a lone half: the last group."""


def _halves(asked: Asked) -> Iterator[Fault]:
    try:
        text = asked.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        yield {"at": error.start + 1}
        return
    for found in _ESCAPED.finditer(text):
        if found[3]:
            yield {"at": found.start() + 1}


def _unknown(asked: Asked) -> Iterator[Fault]:
    known = FIELDS.get(asked.vendor.name)
    for field in asked.body:
        if known is not None and field not in known:
            yield {"field": field, "param": field}


def _unknown_within(asked: Asked) -> Iterator[Fault]:
    for place, field, at, role in _strangers(asked):
        yield {"place": place, "field": field, "at": at, "role": role, "param": f"{place}.{field}"}


def _strangers(asked: Asked) -> Iterator[tuple[str, str, int, str]]:
    """Each field of a message, item, block, call or tool that the vendor does not know: its place, its name, its message."""
    name, dialect = asked.vendor.name, asked.vendor.dialect
    for at, message in enumerate(asked.messages):
        if dialect == "responses":
            kind = message.get("type", "message")
            parts = [(f"input[{at}]", kind, message)]
            content = message.get("content") if kind == "message" else message.get("output")
            parts += [(f"input[{at}].content[{n}]", part.get("type", ""), part) for n, part in enumerate(content)] if isinstance(content, list) else []  # fmt: skip
            for place, kind, data in parts:
                for field in data.keys() - _ITEMS.get(kind, data.keys()):
                    yield place, field, at, kind
        elif dialect == "anthropic":
            for field in message.keys() - {"role", "content"}:
                yield f"messages.{at}", field, at, ""
            content = message.get("content")
            for n, block in enumerate(content if isinstance(content, list) else ()):
                kind = block.get("type", "")
                for field in block.keys() - _BLOCKS.get(kind, block.keys()):
                    yield f"messages.{at}.content.{n}.{kind}", field, at, kind
        elif name in _MESSAGES:
            role = message.get("role", "")
            for field in message.keys() - _MESSAGES[name].get(role, message.keys()):
                yield f"messages[{at}]", field, at, role
            for n, call in enumerate(message.get("tool_calls") or ()):
                for field in (call.keys() - _CALLS[name]) | (call.get("function", {}).keys() - {"name", "arguments"}):
                    yield f"messages[{at}].tool_calls[{n}]", field, at, role
    if name in FIELDS:
        for place, tool in asked.tools:
            for field in tool.keys() - _TOOL[dialect]:
                yield place, field, 0, "tool"


def _limit_field(asked: Asked) -> Iterator[Fault]:
    if "max_tokens" in asked.body:
        yield {"param": "max_tokens"}


def _stream_options(asked: Asked) -> Iterator[Fault]:
    if asked.body.get("stream_options") is not None and not asked.body.get("stream"):
        yield {"param": "stream_options"}


def _choice(asked: Asked) -> Iterator[Fault]:
    if asked.body.get("tool_choice") is not None and not asked.body.get("tools"):
        yield {"param": "tool_choice"}


def _no_tools(asked: Asked) -> Iterator[Fault]:
    if asked.body.get("tools") == []:
        yield {"param": "tools"}


def _smallest(asked: Asked) -> Iterator[Fault]:
    limit = asked.body.get("max_output_tokens")
    if limit is not None and limit < 16:
        yield {"limit": limit, "param": "max_output_tokens"}


def _needed(asked: Asked) -> Iterator[Fault]:
    if not isinstance(asked.body.get("max_tokens"), int) or asked.body["max_tokens"] < 1:
        yield {}


def _version(asked: Asked) -> Iterator[Fault]:
    if not asked.body.get("anthropic_version"):
        yield {}


def _count(asked: Asked) -> Iterator[Fault]:
    count = len(asked.body.get("tools") or ())
    if count > 128:
        yield {"count": count, "param": "tools"}


_NAMES = {"gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", **dict.fromkeys(CLAUDE, r"[a-zA-Z0-9_-]{1,128}")}


def _names(asked: Asked) -> Iterator[Fault]:
    pattern = _NAMES.get(asked.vendor.name, r"[a-zA-Z0-9_-]{1,64}")
    named = [(place, tool.get("name", "")) for place, tool in asked.tools]
    named += [(step.where, step.name) for step in asked.steps if step.kind == "call"]
    for place, name in named:
        if not re.fullmatch(pattern, name):
            yield {"param": f"{place}.name", "name": name, "pattern": pattern}


def _same_names(asked: Asked) -> Iterator[Fault]:
    seen: set[str] = set()
    for place, tool in asked.tools:
        if tool.get("name") in seen:
            yield {"param": f"{place}.name", "name": tool["name"]}
        seen.add(tool.get("name", ""))


def _described(asked: Asked) -> Iterator[Fault]:
    for place, tool in asked.tools:
        if len(tool.get("description") or "") > 1_024:
            yield {"param": f"{place}.description", "length": len(tool["description"])}


def _cache_key(asked: Asked) -> Iterator[Fault]:
    if len(asked.body.get("prompt_cache_key") or "") > 64:
        yield {"param": "prompt_cache_key", "length": len(asked.body["prompt_cache_key"])}


def _format_name(asked: Asked) -> Iterator[Fault]:
    if asked.output is not None and not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", asked.output.get("name", "")):
        yield {"param": "response_format.json_schema.name"}


def _format_kind(asked: Asked) -> Iterator[Fault]:
    if (asked.body.get("response_format") or {}).get("type") == "json_schema":
        yield {"param": "response_format"}


def _format_and_tools(asked: Asked) -> Iterator[Fault]:
    if (asked.body.get("response_format") or {}).get("type") in ("json_schema", "json_object") and asked.body.get(
        "tools"
    ):
        yield {"param": "response_format"}


def _says_json(asked: Asked) -> Iterator[Fault]:
    form = asked.body.get("response_format") or (asked.body.get("text") or {}).get("format") or {}
    said = str(asked.messages) + str(asked.body.get("instructions") or "")
    if form.get("type") == "json_object" and "json" not in said.lower():
        yield {"param": "messages"}


def _marks(asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    """Each block that is marked for the cache, with its place, in the order of tools, system text and messages."""
    found: list[tuple[str, dict[str, Any]]] = []

    def look(place: str, value: Any) -> None:
        if isinstance(value, list):
            for n, each in enumerate(value):
                look(f"{place}.{n}", each)
        elif isinstance(value, dict):
            if "cache_control" in value:
                found.append((place, value))
            look(f"{place}.content", value.get("content"))

    for part in ("tools", "system", "messages"):
        look(part, asked.body.get(part))
    return found


def _many_marks(asked: Asked) -> Iterator[Fault]:
    if len(marks := _marks(asked)) > 4:
        yield {"count": len(marks)}


def _blank_marks(asked: Asked) -> Iterator[Fault]:
    for place, block in _marks(asked):
        if block.get("type") == "text" and not block["text"].strip():
            yield {"where": place}


def _long_marks(asked: Asked) -> Iterator[Fault]:
    short = False
    for place, block in _marks(asked):
        if (block["cache_control"] or {}).get("ttl", "5m") == "5m":
            short = True
        elif short:
            yield {"where": place}


def _budget(asked: Asked) -> dict[str, Any]:
    thinking = asked.body.get("thinking") or {}
    return thinking if thinking.get("type") == "enabled" else {}


def _below(asked: Asked) -> Iterator[Fault]:
    budget = _budget(asked).get("budget_tokens")
    if budget is not None and budget >= (asked.body.get("max_tokens") or 0):
        yield {}


def _least(asked: Asked) -> Iterator[Fault]:
    if (budget := _budget(asked).get("budget_tokens")) is not None and budget < 1_024:
        yield {}


def _forced(asked: Asked) -> Iterator[Fault]:
    if _budget(asked) and (asked.body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        yield {}


def _warm(asked: Asked) -> Iterator[Fault]:
    if _budget(asked) and asked.body.get("temperature") not in (None, 1):
        yield {}


def _deferred(asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    return [(place, tool) for place, tool in asked.tools if tool.get("defer_loading")]


def _all_deferred(asked: Asked) -> Iterator[Fault]:
    tools = asked.body.get("tools") or ()
    if tools and all([tool.get("defer_loading") for tool in tools]):
        yield {}


def _marked_deferred(asked: Asked) -> Iterator[Fault]:
    for _, tool in _deferred(asked):
        if "cache_control" in tool:
            yield {"name": tool["name"]}


def _unsearched(asked: Asked) -> Iterator[Fault]:
    if _deferred(asked) and not any([tool.get("type") == "tool_search" for tool in asked.body["tools"]]):
        yield {"param": "tools"}


def _unasked(asked: Asked) -> Iterator[Fault]:
    searches = any([tool.get("type") == "tool_search" for tool in asked.body.get("tools") or ()])
    for at, item in enumerate(asked.messages):
        if item.get("type") in ("tool_search_call", "tool_search_output") and not searches:
            yield {"param": f"input[{at}]", "type": item["type"]}


def _references(asked: Asked) -> Iterator[Fault]:
    known = {tool.get("name") for _, tool in asked.tools}
    for message in asked.messages:
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if block.get("type") == "tool_search_tool_result":
                for each in block["content"].get("tool_references", ()):
                    if each["tool_name"] not in known:
                        yield {"name": each["tool_name"]}


def _stops(asked: Asked) -> Iterator[Fault]:
    stop = asked.body.get("stop")
    if isinstance(stop, list) and len(stop) > 4:
        yield {"count": len(stop), "param": "stop"}


RULES = (
    Rule(
        "the body is UTF-8 without halves of characters", "text", ALL, _halves,
        "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly.)",
        "https://github.com/anthropics/claude-code/issues/60394", "2026-05-19",
        {
            **dict.fromkeys(CLAUDE, "The request body is not valid JSON: no low surrogate in string: line 1 column {at} (char {at})"),
            "vllm": "Input should be a valid string, unable to parse raw data as a unicode string",
            "llama.cpp": "[json.exception.parse_error.101] parse error at line 1, column {at}: invalid string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF",
            "gemini": "Invalid JSON payload received. Unexpected token.",
        },
    ),
    Rule(
        "no field of the request is unknown", "fields", tuple(FIELDS), _unknown,
        "Unknown parameter: '{field}'.",
        "https://github.com/leookun/cursor-byok/issues/112", "2026-06-02",
        {
            **dict.fromkeys(CLAUDE, "{field}: Extra inputs are not permitted"),
            "gemini": "Invalid JSON payload received. Unknown name \"{field}\": Cannot find field.",
            "groq": "property '{field}' is unsupported",
            "mistral": "[{{'type': 'extra_forbidden', 'loc': ['body', '{field}'], 'msg': 'Extra inputs are not permitted'}}]",
        },
        {"mistral": 422},
    ),
    Rule(
        "no field of a message, a call or a tool is unknown", "fields", tuple(FIELDS), _unknown_within,
        "Unknown parameter: '{param}'.",
        "https://github.com/janhq/jan/issues/8136", "2026-05-13",
        {
            **dict.fromkeys(CLAUDE, "{param}: Extra inputs are not permitted"),
            "gemini": "Invalid JSON payload received. Unknown name \"{field}\" at '{place}': Cannot find field.",
            "groq": "'messages.{at}' : for 'role:{role}' the following must be satisfied[('messages.{at}' : property '{field}' is unsupported)]",
            "mistral": "[{{'type': 'extra_forbidden', 'loc': ['body', 'messages', {at}, '{role}', '{field}'], 'msg': 'Extra inputs are not permitted'}}]",
        },
        {"mistral": 422},
    ),
    Rule(
        "the length of the answer is max_completion_tokens", "fields", OPENAI, _limit_field,
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "https://github.com/bmen25124/SillyTavern-WorldInfo-Recommender/issues/16", "2025-11-26",
    ),
    Rule(
        "stream_options only in a stream", "fields", CHAT, _stream_options,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        "https://platform.openai.com/docs/api-reference/chat/create#chat_create-stream_options", "2026-11-28",
        {"vllm": "Stream options can only be defined when `stream=True`.", "deepseek": "stream_options should be set along with stream = true"},
    ),
    Rule(
        "tool_choice only with tools", "fields", (*OPENAI, *RESPONSES, *CLAUDE, "vllm"), _choice,
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
        "https://platform.openai.com/docs/api-reference/chat/create#chat_create-tool_choice", "2026-11-28",
        {"vllm": "When using `tool_choice`, `tools` must be set."},
    ),
    Rule(
        "a list of tools is not empty", "limits", (*OPENAI, "mistral", "vllm", "groq", "deepseek"), _no_tools,
        "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "https://github.com/partITech/php-mistral/issues/76", "2025-11-13",
    ),
    Rule(
        "at least 16 output tokens", "limits", RESPONSES, _smallest,
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {limit} instead.",
        "https://github.com/earendil-works/pi/issues/6265", "2026-07-02",
    ),
    Rule(
        "max_tokens is stated", "limits", CLAUDE, _needed,
        "max_tokens: Field required",
        "https://platform.claude.com/docs/en/api/messages", "2026-11-28",
    ),
    Rule(
        "the version of the API is in the body", "fields", ("bedrock",), _version,
        "anthropic_version: Field required",
        "https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages-request-response.html", "2026-11-28",
    ),
    Rule(
        "at most 128 tools", "limits", (*OPENAI, *RESPONSES, "deepseek", "groq", "gemini", "mistral"), _count,
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length {count} instead.",
        "https://github.com/zed-industries/zed/issues/42393", "2025-11-10",
    ),
    Rule(
        "names of tools fit the pattern", "names", ALL, _names,
        "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        "https://platform.openai.com/docs/api-reference/chat/create#chat_create-tools", "2026-11-28",
        {
            **dict.fromkeys(CLAUDE, "{param}: String should match pattern '^{pattern}$'"),
            "gemini": "* GenerateContentRequest.{param}: Invalid function name. Must start with a letter or an underscore.",
        },
    ),
    Rule(
        "no two tools have one name", "names", ALL, _same_names,
        "Duplicate function name: {name}",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use", "2026-11-28",
        {**dict.fromkeys(CLAUDE, "tools: Tool names must be unique."), "gemini": "Duplicate function declaration found: {name}"},
    ),
    Rule(
        "descriptions of tools have at most 1,024 characters", "limits", ("azure-chat",), _described,
        "Invalid '{param}': string too long. Expected a string with maximum length 1024, but got a string with length {length} instead.",
        "https://github.com/langchain-ai/open_deep_research/issues/80", "2025-04-23",
    ),
    Rule(
        "the key of the prompt cache has at most 64 characters", "limits", (*OPENAI, *RESPONSES), _cache_key,
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string with length {length} instead.",
        "https://github.com/theopenco/llmgateway/pull/3110", "2026-07-17",
    ),
    Rule(
        "at most four stop sequences", "limits", OPENAI, _stops,
        "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length {count} instead.",
        "https://platform.openai.com/docs/api-reference/chat/create#chat_create-stop", "2026-11-28",
    ),
    Rule(
        "the name of an output format fits the pattern", "names", (*OPENAI, *RESPONSES), _format_name,
        "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        "https://platform.openai.com/docs/guides/structured-outputs", "2026-11-28",
    ),
    Rule(
        "no schema of the answer", "output", ("deepseek",), _format_kind,
        "This response_format type is unavailable now",
        "https://github.com/ItzCrazyKns/Vane/issues/969", "2026-01-04",
    ),
    Rule(
        "no form of the answer together with tools", "output", ("groq",), _format_and_tools,
        "json mode cannot be combined with tool/function calling",
        "https://console.groq.com/docs/structured-outputs", "2026-11-28",
    ),
    Rule(
        "a request for JSON mentions it in the prompt", "output", (*OPENAI, *RESPONSES, "deepseek", "groq"), _says_json,
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        "https://api-docs.deepseek.com/guides/json_mode", "2026-11-28",
        {"deepseek": "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."},
    ),
    Rule(
        "at most four cache marks", "cache", CLAUDE, _many_marks,
        "A maximum of 4 blocks with cache_control may be provided. Found {count}.",
        "https://github.com/vellum-ai/vellum-assistant/pull/18023", "2026-03-16",
    ),
    Rule(
        "no cache mark on an empty text", "cache", CLAUDE, _blank_marks,
        "{where}.text: cache_control cannot be set for empty text blocks",
        "https://platform.claude.com/docs/en/build-with-claude/prompt-caching", "2026-11-28",
    ),
    Rule(
        "cache marks of an hour come before those of five minutes", "cache", CLAUDE, _long_marks,
        "{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.",
        "https://platform.claude.com/docs/en/build-with-claude/prompt-caching", "2026-11-28",
    ),
    Rule(
        "the thinking budget is below max_tokens", "thinking", CLAUDE, _below,
        "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size",
        "https://github.com/liuw1535/antigravity2api-nodejs/issues/149", "2026-02-10",
    ),
    Rule(
        "the thinking budget is at least 1,024", "thinking", CLAUDE, _least,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        "https://platform.claude.com/docs/en/build-with-claude/extended-thinking", "2026-11-28",
    ),
    Rule(
        "no forced tool while thinking", "thinking", CLAUDE, _forced,
        "Thinking may not be enabled when tool_choice forces tool use.",
        "https://github.com/usestrix/strix/issues/505", "2026-06-29",
    ),
    Rule(
        "a tool that is not deferred", "tools", CLAUDE, _all_deferred,
        "All tools have defer_loading set. At least one tool must be non-deferred.",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool", "2026-11-29",
    ),
    Rule(
        "no cache mark on a deferred tool", "cache", CLAUDE, _marked_deferred,
        "Tool '{name}' cannot have both defer_loading=true and cache_control set. Tools with defer_loading cannot use prompt caching.",
        "https://github.com/Wei-Shaw/sub2api/issues/4990", "2026-07-28",
    ),
    Rule(
        "tools that a search has found are there", "tools", CLAUDE, _references,
        "Tool reference '{name}' has no corresponding tool definition",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool", "2026-11-29",
    ),
    Rule(
        "searches for tools in the history come with a search", "tools", RESPONSES, _unasked,
        "Invalid value: '{type}' items require the tool_search tool.",
        "https://developers.openai.com/api/docs/guides/tools-tool-search", "2026-11-29",
    ),
    Rule(
        "deferred tools come with a search", "tools", RESPONSES, _unsearched,
        "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search.",
        "https://github.com/pydantic/pydantic-ai/issues/5938", "2026-06-15",
    ),
    Rule(
        "temperature 1 while thinking", "thinking", CLAUDE, _warm,
        "`temperature` may only be set to 1 when thinking is enabled.",
        "https://platform.claude.com/docs/en/build-with-claude/extended-thinking", "2026-11-28",
    ),
)  # fmt: skip
