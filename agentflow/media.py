"""Parts of prompts other than text: images, documents and sound. :func:`attachment` makes a part from bytes, an address or
a file."""

from agentflow.core.data.media import attachment
from agentflow.core.data.messages import AudioPart, ContentPart, DocumentPart, ImagePart, TextPart

__all__ = ["AudioPart", "ContentPart", "DocumentPart", "ImagePart", "TextPart", "attachment"]
