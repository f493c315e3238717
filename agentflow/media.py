"""Messages and their parts: texts, images, documents and sound, calls of tools and their results. :func:`attachment` makes a part of a
prompt from bytes, an address or a file."""

from agentflow.core.data.media import attachment
from agentflow.core.data.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

__all__ = [
    "AudioPart",
    "ContentPart",
    "DocumentPart",
    "ImagePart",
    "Message",
    "TextPart",
    "ToolCallPart",
    "ToolResultPart",
    "attachment",
]
