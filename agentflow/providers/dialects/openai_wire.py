"""Shared by the two OpenAI dialects."""

from __future__ import annotations

import os
import re
from types import MappingProxyType
from typing import Any

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import (
    AudioPart,
    DocumentPart,
    Effort,
    ImagePart,
    ModelRequest,
    ToolCallPart,
    ToolSpec,
    Usage,
)
from agentflow.providers.dialects.address import is_host_of
from agentflow.providers.dialects.decoding import count
from agentflow.providers.dialects.schema_translation import SchemaForm, tool_form
from agentflow.providers.dialects.wire import Wire, record, unsupported

_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_USUAL = ("low", "medium", "high")
_ANTHROPIC = (
    (r"claude-opus-4-5", _USUAL),
    (r"claude-(opus|sonnet)-4-6|claude-mythos-preview", (*_USUAL, "max")),
    (r"claude-haiku-[5-9]", _USUAL),
    (r"claude-opus-4-[7-9]|claude-[a-z]+-([5-9]|\d\d)\b", (*_USUAL, "xhigh", "max")),
)
_OPENAI = (
    (r"gpt-5(\.\d)?-pro", ("high",)),
    (r"gpt-5\.1-codex-max", (*_USUAL, "xhigh")),
    (r"gpt-5\.1", ("none", *_USUAL)),
    (r"gpt-5\.[2-5]\b", ("none", *_USUAL, "xhigh")),
    (r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)\b", ("none", *_USUAL, "xhigh", "max")),
    (r"gpt-5\b", ("minimal", *_USUAL)),
    (r"o\d|codex|(.*/)?gpt-oss", _USUAL),
)


def anthropic_efforts(model: str) -> tuple[str, ...]:
    """The values of ``output_config.effort`` that a model accepts; empty if it accepts none or is unknown."""
    return _levels(_ANTHROPIC, model)


def openai_efforts(model: str) -> tuple[str, ...]:
    """The values of ``reasoning.effort`` that a model accepts; empty if it accepts none or is unknown."""
    return _levels(_OPENAI, model)


def nearest(effort: Effort, levels: tuple[str, ...]) -> str:
    """The one of ``levels`` nearest to ``effort``."""
    wanted = _ORDER.index(effort)
    return min(levels, key=lambda level: abs(_ORDER.index(level) - wanted))


def _levels(table: tuple[tuple[str, tuple[str, ...]], ...], model: str) -> tuple[str, ...]:
    return next((levels for pattern, levels in table if re.match(pattern, model)), ())


ADDRESS = "https://api.openai.com/v1"
HOSTS = ("openai.com",)
ADDRESS_VARIABLE = "OPENAI_BASE_URL"
_KEEPS_AT_A_PRICE = re.compile(r"gpt-(5\.[6-9]|5\.\d\d|[6-9]|\d\d)").match
"""Models that charge for caching a prompt, which can be turned off.
https://developers.openai.com/api/docs/guides/prompt-caching"""
_SOUNDS = MappingProxyType({"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"})


def check_key(base_url: str | None, api_key: str | None) -> None:
    """Raise ConfigurationError if the server is the vendor's and the key is missing."""
    if api_key or os.environ.get("OPENAI_API_KEY"):
        return
    if is_host_of(base_url or os.environ.get(ADDRESS_VARIABLE) or ADDRESS, HOSTS):
        raise ConfigurationError(
            "no API key for openai: the environment variable OPENAI_API_KEY is not set",
            code="config/no-key",
            hint="set OPENAI_API_KEY, or pass api_key=...; a local server (base_url=...) needs none",
            details={"variable": "OPENAI_API_KEY"},
        )


def data_url(part: ImagePart | DocumentPart) -> str:
    """The part's content as a ``data:`` URL."""
    return f"data:{part.media_type};base64,{part.data or ''}"


def audio(part: AudioPart, dialect: str) -> dict[str, Any]:
    """Audio as both dialects accept it: WAV or MP3 data, no URLs. Raises ConfigurationError for anything else."""
    kind = _SOUNDS.get(part.media_type)
    if part.data is None or kind is None:
        what = "audio by URL" if part.data is None else f"audio of type {part.media_type}"
        raise unsupported(dialect, what, "send the content of a WAV or MP3 file")
    return {"type": "input_audio", "input_audio": {"data": part.data, "format": kind}}


def schema_format(form: SchemaForm, wire: Wire) -> dict[str, Any]:
    """The JSON-schema output format, marked strict if the server enforces that."""
    return {"name": "output", "schema": form.schema, "strict": form.strict and wire.traits.strict}


def function(tool: ToolSpec, wire: Wire) -> tuple[dict[str, Any], bool]:
    """A tool as a function of both dialects, and whether it is strict."""
    description, form = tool_form(tool, wire)
    return {"name": wire.to_wire(tool.name), "description": description, "parameters": form.schema}, form.strict


def called(call: ToolCallPart, wire: Wire) -> dict[str, Any]:
    """A tool call as both dialects represent it in the history."""
    return {"name": wire.to_wire(call.name), "arguments": wire.arguments(call)}


def tool_choice(request: ModelRequest, wire: Wire) -> tuple[str | None, str | None]:
    """A mode (None: the server's default, ``auto``), or the wire name of the required tool."""
    choice = request.tool_choice
    if choice == "auto":
        return None, None
    return (choice, None) if choice in ("none", "required") else (None, wire.to_wire(choice))


def effort(request: ModelRequest) -> str | None:
    """The effort for the model in the vendor's terms; None if the request states none."""
    levels = openai_efforts(request.model) if request.effort is not None else ()
    return nearest(request.effort, levels) if request.effort is not None and levels else None


def cache_fields(request: ModelRequest) -> dict[str, Any]:
    """The fields for OpenAI's prompt cache, which other servers' traits omit: it caches the beginnings of prompts by itself, and
    finds them more often if requests with the same beginning share a key."""
    if request.prompt_cache is False:
        return {"prompt_cache_options": {"mode": "explicit"}} if _KEEPS_AT_A_PRICE(request.model) else {}
    return {"prompt_cache_key": request.cache_key} if request.cache_key else {}


def usage(read: Any, written: Any, total: Any, read_details: Any, written_details: Any) -> Usage:
    """Normalised usage: OpenAI's input tokens include cache reads, its output tokens the reasoning.

    Other servers count reasoning separately from the output: then ``total`` is more than both, or reasoning more than the
    output.
    """
    read_details = record(read_details)
    reasoning = count(record(written_details).get("reasoning_tokens"))
    output = count(written) if count(written) >= reasoning else count(written) + reasoning
    return Usage(
        count(read),
        max(output, count(total) - count(read)),
        count(read_details.get("cached_tokens")),
        count(read_details.get("cache_write_tokens")),
        reasoning,
        1,
    )
