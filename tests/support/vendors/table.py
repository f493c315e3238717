"""The vendors: where each is, which dialect it speaks, how its ids look and how it refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Dialect = Literal["anthropic", "chat", "responses"]
Thinks = Literal["signed", "encrypted", "reasoning_content", "reasoning", "details", "signed calls", ""]
"""How thinking comes: a signed block, an encrypted item, a field of the message, a list of signed details, or as a signature
beside each call; empty for a model that does not show any."""


def _digits(seed: str, length: int) -> str:
    return hashlib.sha256(seed.encode()).hexdigest()[:length]


@dataclass(frozen=True)
class Vendor:
    """A row of the table.

    ``route`` is the name of the adapter that speaks to it, ``address`` its base URL, ``model`` the model that the fake is.
    ``call_id`` makes the id of a call (None: it gives none) from a text that differs from call to call, the name of the tool
    and the number of the call in its answer. ``pictures`` says whether that model takes images.
    """

    name: str
    title: str
    dialect: Dialect
    route: str
    address: str
    model: str
    call_id: Callable[[str, str, int], str | None]
    thinks: Thinks
    pictures: bool = True

    @property
    def host(self) -> str:
        """The name of its server."""
        return self.address.split("://")[1].split("/")[0]


_ROWS = (
    Vendor("openai", "OpenAI Responses", "responses", "openai", "https://api.openai.com/v1", "gpt-5.2", lambda s, *_: f"call_{_digits(s, 24)}", "encrypted"),
    Vendor("openai-chat", "OpenAI Chat Completions", "chat", "openai-chat", "https://api.openai.com/v1", "gpt-5.2", lambda s, *_: f"call_{_digits(s, 24)}", ""),
    Vendor("azure", "Azure OpenAI (Responses)", "responses", "openai", "https://contoso.openai.azure.com/openai/v1", "writer", lambda s, *_: f"call_{_digits(s, 24)}", "encrypted"),
    Vendor("azure-chat", "Azure OpenAI (Chat Completions)", "chat", "openai-chat", "https://contoso.openai.azure.com/openai/v1", "writer", lambda s, *_: f"call_{_digits(s, 24)}", ""),
    Vendor("anthropic", "Anthropic", "anthropic", "anthropic", "https://api.anthropic.com", "claude-sonnet-4-5", lambda s, *_: f"toolu_01{_digits(s, 22)}", "signed"),
    Vendor("bedrock", "Amazon Bedrock (Claude)", "anthropic", "bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", lambda s, *_: f"toolu_bdrk_01{_digits(s, 22)}", "signed"),
    Vendor("gemini", "Gemini's OpenAI-compatible endpoint", "chat", "openai-chat", "https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-pro-preview", lambda s, *_: f"function-call-{int(_digits(s, 15), 16)}", "signed calls"),
    Vendor("openrouter", "OpenRouter (a Claude model)", "chat", "openai-chat", "https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5", lambda s, *_: f"toolu_vrtx_01{_digits(s, 22)}", "details"),
    Vendor("deepseek", "DeepSeek", "chat", "openai-chat", "https://api.deepseek.com", "deepseek-reasoner", lambda s, *_: f"call_00_{_digits(s, 24)}", "reasoning_content", False),
    Vendor("groq", "Groq", "chat", "openai-chat", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b", lambda s, *_: f"fc_{_digits(s, 8)}-{_digits(s[::-1], 4)}-4{_digits(s, 3)}", "reasoning", False),
    Vendor("mistral", "Mistral", "chat", "openai-chat", "https://api.mistral.ai/v1", "mistral-large-latest", lambda s, *_: _digits(s, 9), ""),
    Vendor("vllm", "vLLM (a Kimi model)", "chat", "openai-chat", "http://vllm.test:8000/v1", "moonshotai/Kimi-K2", lambda s, name, n: f"functions.{name}:{n}", "reasoning"),
    Vendor("llama.cpp", "llama.cpp", "chat", "openai-chat", "http://llama.test:8080/v1", "qwen3", lambda s, *_: None, "reasoning_content", False),
)  # fmt: skip

VENDORS: Mapping[str, Vendor] = {row.name: row for row in _ROWS}
"""All vendors by name."""
CLAUDE = ("anthropic", "bedrock")
RESPONSES = ("openai", "azure")
OPENAI = ("openai-chat", "azure-chat")
CHAT = tuple(row.name for row in _ROWS if row.dialect == "chat")
ALL = tuple(VENDORS)


def refusal(vendor: Vendor, status: int, message: str, param: str | None) -> tuple[dict[str, str], Any]:
    """Headers and body of a refusal, as the vendor writes them."""
    openai = {"message": message, "type": "invalid_request_error", "param": param, "code": None}
    match vendor.name:
        case "anthropic":
            error = {"type": "invalid_request_error", "message": message}
            return {}, {"type": "error", "error": error, "request_id": "req_011"}
        case "bedrock":
            return {"x-amzn-errortype": "ValidationException"}, {"message": message}
        case "gemini":
            return {}, [{"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}}]
        case "openrouter":
            raw = {"raw": message, "provider_name": "Anthropic"}
            return {}, {"error": {"message": "Provider returned error", "code": status, "metadata": raw}}
        case "mistral":
            return {}, {
                "object": "error",
                "message": message,
                "type": "invalid_request_error",
                "param": param,
                "code": "3051",
            }
        case "vllm":
            return {}, {"error": {"message": message, "type": "BadRequestError", "param": param, "code": status}}
        case "llama.cpp":
            return {}, {"error": {"code": status, "message": message, "type": "invalid_request_error"}}
        case _:
            return {}, {"error": openai}
