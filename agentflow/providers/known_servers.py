"""The rows of known servers: the traits of each, by route and by the end of its host's name, and the guess for all others.

Each row names the documentation of its rules and the date it was read. Add a row if the guess for a dialect contradicts a
server's documentation or refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.providers.clocks import Clocks
from agentflow.providers.dialects.address import is_own
from agentflow.providers.dialects.traits import UNKNOWN, Traits, stated_traits
from agentflow.providers.dialects.wire import record, records

OWN_GATE = 4
"""Calls at once to a server of unknown capacity."""
OWN_LIMIT = 2_048
"""Tokens of an answer without a stated maximum: such servers have no default, and a small model may never end."""
OWN_CLOCKS = Clocks(first_byte_s=600.0, idle_s=600.0, wall_s=1_800.0)
LOOK_CLOCKS = Clocks(connect_s=2.0, first_byte_s=2.0, plain_first_byte_s=2.0, idle_s=2.0, wall_s=5.0)
"""The clocks of a question about the server itself, which an idle server answers at once."""
SLOTS = MappingProxyType({"/props": "total_slots", "/info": "max_concurrent_requests"})
"""The addresses where servers state the number of calls they answer at once: llama.cpp (github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md,
2026-11) and TGI (huggingface.github.io/text-generation-inference, 2026-11). Neither is below ``/v1``."""
MODELS = "/v1/models"
_BATCHING = MappingProxyType({"vllm": 256, "sglang": 256})
"""By ``owned_by`` of a model: servers that put calls into batches, with the usual size of one (``--max-num-seqs`` of vLLM)."""
_MOST_SLOTS = 4_096


def slots_of(path: str, body: Any) -> int:
    """The number of calls at once that a server reports at ``path``; 0 if it reports no valid number."""
    if path == MODELS:
        owners = [record(model).get("owned_by") for model in records(record(body).get("data"))]
        return max([_BATCHING.get(owner, 0) for owner in owners if isinstance(owner, str)], default=0)
    said = record(body).get(SLOTS[path])
    return said if type(said) is int and 0 < said <= _MOST_SLOTS else 0


# Few slots and slow answers: a call sent twice takes another slot (decision 39)
class Observed:
    """Observations of the calls to one of your own servers: how many answers arrived concurrently, how often none came in time,
    and the loop time when it was ``heard`` last, in any call."""

    __slots__ = ("answering", "asked", "heard", "timed_out", "widest")

    def __init__(self) -> None:
        self.answering: set[object] = set()
        self.widest = self.timed_out = 0
        self.asked = False
        self.heard = 0.0

    def begin(self, call: object) -> None:
        """The answer to ``call`` has begun."""
        self.answering.add(call)
        self.widest = max(self.widest, len(self.answering))

    def silence(self, first_byte_s: float | None, gate: int) -> str:
        """The hint for a call without a first byte in time."""
        self.timed_out += 1
        if self.timed_out > 1 and 0 < self.widest < gate:
            return (
                f"the server answers {self.widest} at a time, and {gate} calls were sent to it: write Provider(traits={{'slots': {self.widest}}}) or "
                f"concurrency={self.widest}, so that the others wait here"
            )
        return (
            f"its first byte did not come within {first_byte_s:g} s, and the call is not sent again while the server may be working on it: "
            "raise Provider(clocks={'first_byte_s': ...}), shorten the prompt, or send fewer calls at once (concurrency=1)"
        )


_NAME = late_pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_KEYS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers that hold the key."""


def check_headers(headers: Mapping[str, object], provider: str) -> None:
    """Raise ConfigurationError (``config/header``) for a header with a name or value that cannot be sent."""
    for name, value in headers.items():
        if value is None or isinstance(value, int | float | bytes):
            raise _refused(f"the header {name} for {provider}", f"is {type(value).__name__}, not text")
        if not isinstance(value, str):
            continue  # the SDK's mark for an omitted header
        if not _NAME(name):
            raise _refused(
                f"a header's name for {provider}, {clip(repr(name), 80)},",
                "is not a name of letters, digits and hyphens",
            )
        if problem := _problem(value):
            what = "API key" if name.lower() in _KEYS else f"header {name}"
            raise _refused(f"the {what} for {provider}", problem)


def _problem(text: str) -> str:
    if text != text.strip():
        return "begins or ends with a blank or a line end"
    if not text.isascii():
        return "contains characters that are not ASCII"
    return "contains a line end or another control character" if not text.isprintable() else ""


def _refused(what: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} {problem}",
        code="config/header",
        hint="strip it where it is read: open(path).read().strip(); copy it again if it has typographic characters",
    )


_LONG_ID = r"[A-Za-z0-9_-]{1,64}"
_CHAT = "openai-chat"
_RESPONSES = "openai"
_OPENAI_DOCS = "platform.openai.com/docs/api-reference, 2026-11"
_AZURE_DOCS = "learn.microsoft.com/azure/ai-foundry/openai/reference-preview-latest, 2026-11"

_OPENAI = Traits(
    "openai", True, "max_completion_tokens", schemas="openai", strict=True, echo="none", source=_OPENAI_DOCS
)
_OPENAI_RESPONSES = Traits(
    "openai",
    True,
    "max_output_tokens",
    schemas="openai",
    strict=True,
    call_id=_LONG_ID,
    least_limit=16,
    signed=True,
    model_names=True,
    tool_search=True,
    source=_OPENAI_DOCS,
)
_NO_CACHE_OPTIONS = ("prompt_cache_options",)
_AZURE = replace(_OPENAI, vendor="azure", description_limit=1_024, omit=_NO_CACHE_OPTIONS, source=_AZURE_DOCS)
_AZURE_RESPONSES = replace(
    _OPENAI_RESPONSES, vendor="azure", model_names=False, tool_search=False, omit=_NO_CACHE_OPTIONS, source=_AZURE_DOCS
)
_ANTHROPIC = Traits(
    "anthropic",
    True,
    schemas="anthropic",
    strict=True,
    call_id=_LONG_ID,
    alternates=True,
    signed=True,
    tool_search=True,
    source="platform.claude.com/docs/en/api/messages, 2026-11",
)
_NO_CACHE_FIELDS = ("prompt_cache_key", "prompt_cache_options")


def _chat(vendor: str, source: str, omit: tuple[str, ...] = (), **traits: object) -> Traits:
    """A row for a vendor with its own Chat Completions: OpenAI's fields for its prompt cache are not sent there."""
    return Traits(vendor, True, alternates=True, omit=(*_NO_CACHE_FIELDS, *omit), source=source, **traits)  # pyright: ignore[reportArgumentType]


GUESSES: Mapping[str, Traits] = MappingProxyType(
    {
        "anthropic": Traits(schemas="anthropic", call_id=_LONG_ID, alternates=True),
        **dict.fromkeys(("bedrock", "vertex", "foundry"), replace(_ANTHROPIC, strict=False, tool_search=False)),
        _RESPONSES: Traits(
            limit_field="max_output_tokens", schemas="openai", strict=True, call_id=_LONG_ID, omit=_NO_CACHE_FIELDS
        ),
        _CHAT: Traits(schemas="common", strict=True, alternates=True, omit=_NO_CACHE_FIELDS),
        "local": _chat(
            "llama.cpp",
            "the server of the extra local, which is started here: tests/providers/test_local_model.py",
            strict=True,
        ),
    }
)
"""The guess for an unknown server, by route."""

ROWS: tuple[tuple[str, str, Traits], ...] = (
    ("anthropic", "api.anthropic.com", _ANTHROPIC),
    (_RESPONSES, "api.openai.com", _OPENAI_RESPONSES),
    (_CHAT, "api.openai.com", _OPENAI),
    (_RESPONSES, "openai.azure.com", _AZURE_RESPONSES),
    (_RESPONSES, "services.ai.azure.com", _AZURE_RESPONSES),
    (_RESPONSES, "cognitiveservices.azure.com", _AZURE_RESPONSES),
    (_CHAT, "openai.azure.com", _AZURE),
    (_CHAT, "services.ai.azure.com", _AZURE),
    (_CHAT, "cognitiveservices.azure.com", _AZURE),
    (_CHAT, "api.anthropic.com", _chat("anthropic", "platform.claude.com/docs/en/api/openai-sdk, 2026-11", output="prompt")),
    (_CHAT, "api.deepseek.com", _chat("deepseek", "api-docs.deepseek.com/api/create-chat-completion, 2026-11; json_schema is"
        " refused: github.com/llm-exe/llm-exe/issues/662, 2026-07; reasoning goes back with the calls it led to: api-docs.deepseek.com/guides/thinking_mode,"
        " 2026-11, also an empty one: github.com/vercel/ai/pull/13203, 2026-03", output="json_object", echo="calls",
        blank_thinking="reasoning_content", pictures=False)),
    (_CHAT, "api.groq.com", _chat("groq", "console.groq.com/docs/structured-outputs, 2026-07: neither with tools nor in streams,"
        " json_schema for some models alone; reasoning in messages is refused: github.com/janhq/jan/issues/8136, 2026-05",
        limit_field="max_completion_tokens", output="json_object", echo="none", output_with_tools=False, output_in_streams=False)),
    (_CHAT, "api.mistral.ai", _chat("mistral", "docs.mistral.ai/api, 2026-11; fields that are not listed there are refused with 422:"
        " github.com/editor-code-assistant/eca/issues/231, 2025-12; no user after results: github.com/aliou/pi-neuralwatt/issues/12, 2026-06", omit=("stream_options",), call_id=r"[A-Za-z0-9]{9}",
        echo="none", user_after_results=False)),
    (_CHAT, "api.together.xyz", _chat("together", "docs.together.ai/docs/json-mode, 2026-11")),
    (_CHAT, "api.together.ai", _chat("together", "docs.together.ai/docs/json-mode, 2026-11")),
    (_CHAT, "openrouter.ai", _chat("openrouter", "openrouter.ai/docs/features/structured-outputs, 2026-11: ignored by models without it",
        schemas="common")),
    (_CHAT, "api.x.ai", _chat("x.ai", "docs.x.ai/docs/guides/structured-outputs, 2026-11",
        limit_field="max_completion_tokens", schemas="openai")),
    (_CHAT, ":11434", _chat("ollama", "github.com/ollama/ollama/blob/main/docs/openai.md, 2026-11: a format keeps a model from calling tools",
        output_with_tools=False)),
    (_CHAT, "generativelanguage.googleapis.com", _chat("gemini", "ai.google.dev/gemini-api/docs/openai, 2026-11; no format beside tools:"
        " github.com/googleapis/python-genai/issues/867, 2025-05; a signature for calls of others: ai.google.dev/gemini-api/docs/thought-signatures, 2026-11",
        schemas="gemini", output_with_tools=False, call_signature="skip_thought_signature_validator")),
    (_CHAT, "api.fireworks.ai", _chat("fireworks", "docs.fireworks.ai/structured-responses/structured-response-formatting, 2026-11")),
    (_CHAT, "api.cerebras.ai", _chat("cerebras", "inference-docs.cerebras.ai/capabilities/structured-outputs, 2026-11: not beside tools",
        limit_field="max_completion_tokens", output_with_tools=False)),
    (_CHAT, "api.perplexity.ai", _chat("perplexity", "docs.perplexity.ai/guides/structured-outputs, 2026-11", omit=("stream_options",))),
    (_CHAT, "api.moonshot.ai", _chat("moonshot", "platform.moonshot.ai/docs/api/chat, 2026-11", output="json_object")),
    (_CHAT, "api.moonshot.cn", _chat("moonshot", "platform.moonshot.ai/docs/api/chat, 2026-11", output="json_object")),
    (_CHAT, "api.z.ai", _chat("z.ai", "docs.z.ai/guides/capabilities/struct-output, 2026-11", output="json_object")),
    (_CHAT, "dashscope.aliyuncs.com", _chat("dashscope", "help.aliyun.com/zh/model-studio/json-mode, 2026-11", output="json_object")),
    (_CHAT, "dashscope-intl.aliyuncs.com", _chat("dashscope", "help.aliyun.com/zh/model-studio/json-mode, 2026-11", output="json_object")),
)  # fmt: skip
"""Known servers: the route, the end of the host's name or ``:port``, and the traits."""


def row_of(route: str, address: str) -> Traits:
    """The traits of the server at ``address`` over ``route``: those of its row, or the guess for the route."""
    parts = urlsplit(address)
    host = (parts.hostname or "").lower().rstrip(".")
    for of, end, traits in ROWS:
        if of == route and (host == end or host.endswith("." + end) or end == f":{parts.port}"):
            return traits
    return GUESSES.get(route, UNKNOWN)


def traits_of(route: str, address: str, stated: Mapping[str, Any] | Traits | None = None) -> Traits:
    """The traits of the server at ``address``, reached over ``route`` (``openai-chat``, ``openai``, ``anthropic``).

    An address on this machine or on a private network is a server of one's own. ``stated`` goes over its row, or over the guess.
    Raises as :func:`~agentflow.providers.dialects.traits.stated_traits`.
    """
    row = row_of(route, address)
    if is_own(address):
        row = replace(row, own=True)
    return row if stated is None else stated_traits(stated, row)
