"""What the two OpenAI dialects have in common."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from agentflow.core.errors import ConfigurationError
from agentflow.core.messages import DocumentPart, ImagePart, ModelRequest, ToolCallPart, ToolSpec, Usage
from agentflow.providers.decoding import count
from agentflow.providers.wire import ToolNames, dump_json, record, strict_schema

_VENDOR_HOST = "api.openai.com"
NO_KEY = "no-key-needed"


def is_vendor(base_url: str | None) -> bool:
    """Whether OpenAI itself is asked at ``base_url`` (None: the environment's), rather than a server that speaks its dialect."""
    base_url = base_url or os.environ.get("OPENAI_BASE_URL")
    return not base_url or urlsplit(base_url).hostname == _VENDOR_HOST


def check_key(base_url: str | None, api_key: str | None) -> None:
    """Raise ConfigurationError when the vendor is to be asked and no key can be found."""
    if api_key or os.environ.get("OPENAI_API_KEY"):
        return
    if is_vendor(base_url):
        raise ConfigurationError(
            "no API key for openai: the environment variable OPENAI_API_KEY is not set",
            code="config/no-key",
            hint="set OPENAI_API_KEY, or pass api_key=...; a local server (base_url=...) needs none",
            details={"variable": "OPENAI_API_KEY"},
        )


def data_url(part: ImagePart | DocumentPart) -> str:
    """The part's content as a ``data:`` URL."""
    return f"data:{part.media_type};base64,{part.data or ''}"


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON-schema output format; strict where the schema meets strict mode's rules."""
    return {"name": "output", "schema": schema, "strict": strict_schema(schema)}


def function(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    """A tool as both dialects describe a function."""
    return {"name": names.to_wire(tool.name), "description": tool.description, "parameters": tool.input_schema}


def called(call: ToolCallPart, names: ToolNames) -> dict[str, Any]:
    """A tool call as both dialects put it into the history."""
    return {"name": names.to_wire(call.name), "arguments": dump_json(call.arguments).decode()}


def tool_choice(request: ModelRequest, names: ToolNames) -> tuple[str | None, str | None]:
    """A mode (None: the server's default, ``auto``) or the wire name of the one tool that must be called."""
    choice = request.tool_choice
    if choice == "auto":
        return None, None
    return (choice, None) if choice in ("none", "required") else (None, names.to_wire(choice))


def usage(read: Any, written: Any, read_details: Any, written_details: Any) -> Usage:
    """Normalised usage: OpenAI's input tokens include what the cache gave."""
    read_details = record(read_details)
    return Usage(
        count(read),
        count(written),
        count(read_details.get("cached_tokens")),
        count(read_details.get("cache_write_tokens")),
        count(record(written_details).get("reasoning_tokens")),
        1,
    )
