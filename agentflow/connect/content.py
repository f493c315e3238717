"""Converts the answer of a server to the result of a tool: text, data, and content parts for a model."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence, Set
from typing import Any, cast

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.media import MEDIA_TYPES, part_of
from agentflow.core.data.messages import ContentPart, TextPart, text_of_parts
from agentflow.core.data.reasons import Reason
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_schema import Schema, is_large
from agentflow.lib.text.safe_text import escape

_SHOWN = frozenset(MEDIA_TYPES.values())


async def result_of(answer: CallToolResult, schema: dict[str, Any] | None) -> TaskResult:
    """The result of a tool call; ``schema`` is the JSON Schema that the tool declares for its data, if any."""
    parts = await parts_of(answer.content)
    data = answer.structured_content
    if data is not None:
        unsaid = (
            await asyncio.to_thread(_unsaid, answer, parts, data) if is_large(data) else _unsaid(answer, parts, data)
        )
        parts = parts if unsaid is None else (*parts, TextPart(unsaid))
    text = text_of_parts(parts)
    shown = {} if all([isinstance(part, TextPart) for part in parts]) else {"parts": parts}
    if answer.is_error:
        message = text or "the tool failed without a message"
        return failed("tool_execution_error", message, code="mcp/tool-error").with_notes(**shown)
    if schema is not None:
        problems = await _problems(data, schema) if data is not None else ["there is no data"]
        if problems:
            return failed(
                "output_format_failure",
                f"the tool's data do not fit its declared output schema: {'; '.join(problems[:5])}",
                code="mcp/output-schema",
                problems=problems[:20],
                content=clip(text, 2_000),
            )
    return TaskResult.complete(text, data).with_notes(**shown)


def _unsaid(answer: CallToolResult, parts: Sequence[ContentPart], data: Any) -> str | None:
    """The ``data`` as JSON, without the bytes of parts shown next to it; None if the contents express it already."""
    if _hold(parts, data):
        return None
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_unset=True) for block in answer.content]
    if data in (blocks, {"content": blocks}):
        return None
    shown = {encoded for block in answer.content if (encoded := _encoded(block)) is not None}
    return to_json(_without(data, shown) if shown else data)


def _encoded(block: ContentBlock) -> str | None:
    """The bytes of a content, in base64; None for text."""
    if isinstance(block, ImageContent | AudioContent):
        return block.data
    resource = block.resource if isinstance(block, EmbeddedResource) else None
    return resource.blob if isinstance(resource, BlobResourceContents) else None


def _without(data: Any, shown: Set[str]) -> Any:
    """``data`` with a mark in the place of each ``shown`` text: pictures and sounds as JSON are all base64 to a model."""
    if isinstance(data, dict):
        return {key: _without(each, shown) for key, each in cast("dict[str, Any]", data).items()}
    if isinstance(data, list):
        return [_without(each, shown) for each in cast("list[Any]", data)]
    return "[shown above]" if isinstance(data, str) and data in shown else data


def _hold(parts: Sequence[ContentPart], data: Any) -> bool:
    """Whether the texts among ``parts`` express the ``data``: as JSON, or as the content of its only field.

    The latter is how servers return a value other than an object: a text, or a list, whole or with a text for each of its
    elements.
    """
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if any([_says(text, data) for text in texts]):
        return True
    if not texts or not isinstance(data, dict) or len(cast("dict[str, Any]", data)) != 1:
        return False
    (only,) = cast("dict[str, Any]", data).values()
    if any([_says(text, only) for text in texts]):
        return True
    if not isinstance(only, list) or len(cast("list[Any]", only)) != len(texts):
        return False
    return all([_says(text, each) for text, each in zip(texts, cast("list[Any]", only), strict=True)])


def _says(text: str, data: Any) -> bool:
    if text == data:
        return True
    try:
        return json.loads(text) == data
    except (ValueError, RecursionError):
        return False


def failed(reason: Reason, message: str, *, code: str, **details: Any) -> TaskResult:
    """A FAILED result with this ``reason`` and ``code``; ``details`` are further entries of its error."""
    return TaskResult.failure(reason, message, details={"code": code, **details})


async def _problems(data: Any, schema: dict[str, Any]) -> list[str]:
    check = Schema(schema).check
    return await asyncio.to_thread(check, data) if is_large(data) else check(data)


async def parts_of(blocks: Sequence[ContentBlock]) -> tuple[ContentPart, ...]:
    """The content parts of an answer, in order."""
    return tuple([await _part_of(block) for block in blocks])


async def _part_of(block: ContentBlock) -> ContentPart:
    match block:
        case TextContent():
            return TextPart(block.text)
        case ImageContent() | AudioContent():
            return await _media(block.data, block.mime_type, "")
        case EmbeddedResource():
            return await resource_part(block.resource)
        case _:
            description = f": {clip(block.description, 500)}" if block.description else ""
            return TextPart(f"[{block.name}] {block.uri}{description}")


async def resource_part(resource: TextResourceContents | BlobResourceContents) -> ContentPart:
    """The content of a resource; a line of text describes content that models do not accept."""
    if isinstance(resource, TextResourceContents):
        return TextPart(resource.text)
    return await _media(resource.blob, resource.mime_type, str(resource.uri))


async def _media(data: str, kind: str | None, name: str) -> ContentPart:
    try:
        content = await asyncio.to_thread(base64.b64decode, data, validate=True)
        if kind is None or kind in _SHOWN:
            return part_of(content, kind, name.rpartition("/")[2])
    except (binascii.Error, ValueError, ConfigurationError):
        content = b""
    return TextPart(
        f"[{escape(clip(name or 'content', 200))}: {escape(clip(kind or 'of unknown type', 100))}, {len(content):,} bytes]"
    )
