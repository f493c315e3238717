"""What the two OpenAI dialects have in common."""

from __future__ import annotations

import os
from typing import Any

from agentflow.core.errors import ConfigurationError
from agentflow.core.messages import DocumentPart, ImagePart, Usage
from agentflow.providers.wire import record, strict_schema

VENDOR_URL = "https://api.openai.com"
NO_KEY = "no-key-needed"


def check_key(base_url: str | None, api_key: str | None) -> None:
    """Raise ConfigurationError when the vendor is to be asked and no key can be found."""
    if api_key or os.environ.get("OPENAI_API_KEY"):
        return
    base_url = base_url or os.environ.get("OPENAI_BASE_URL")
    if not base_url or base_url.startswith(VENDOR_URL):
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


def usage(given: Any, made: Any, given_details: Any, made_details: Any) -> Usage:
    """Normalised usage: OpenAI's input tokens include what the cache gave."""
    given_details = record(given_details)
    return Usage(
        given or 0,
        made or 0,
        given_details.get("cached_tokens") or 0,
        given_details.get("cache_write_tokens") or 0,
        record(made_details).get("reasoning_tokens") or 0,
        1,
    )
