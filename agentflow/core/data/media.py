"""Images, documents and sound for a model: message parts made of bytes, addresses and files.

The type of a file is taken from its first bytes, else from its name.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.messages import AudioPart, ContentPart, DocumentPart, ImagePart, TextPart
from agentflow.core.data.values import plain

MediaPart: TypeAlias = ImagePart | DocumentPart | AudioPart
MEDIA_PARTS = (ImagePart, DocumentPart, AudioPart)
PromptParts: TypeAlias = "str | Sequence[str | os.PathLike[str] | ContentPart]"
"""A prompt as hosts may write it: text, or a list of texts, paths of files and parts."""
MAX_MEDIA_BYTES = 64_000_000
"""Size of a file above which no provider takes it."""
MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        ".gif": "image/gif",
        ".jpeg": "image/jpeg",
        ".jpg": "image/jpeg",
        ".mp3": "audio/mpeg",
        ".pdf": "application/pdf",
        ".png": "image/png",
        ".wav": "audio/wav",
        ".webp": "image/webp",
    }
)
"""The media types that models take, by the endings of file names."""
_TEXTS: Mapping[str, str] = MappingProxyType({".md": "text/markdown", ".txt": "text/plain"})
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
)


async def attachment(
    source: bytes | str | os.PathLike[str], *, media_type: str | None = None, name: str = ""
) -> MediaPart:
    """An image, document or sound for a prompt, or as an argument of a task.

    Parameters: ``source`` is the content, an address (``https:`` or ``data:``; the provider fetches it, not agentflow) or
    the path of a file, which is read on a thread; ``media_type`` is its type if its first bytes or its name do not show it;
    ``name`` is the title of a document. Returns an ImagePart, DocumentPart or AudioPart. Raises ConfigurationError
    (``media/type``, ``media/file``, ``media/too-large``).
    """
    if isinstance(source, bytes):
        return part_of(source, media_type, name)
    if isinstance(source, str) and "://" in source:
        return _of_address(source, media_type, name)
    if isinstance(source, str) and source.startswith("data:"):
        head, _, data = source.partition(",")
        return _part(media_type or head[5:].partition(";")[0], data, name)
    path = Path(source)
    try:
        data = await asyncio.to_thread(_read, path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror or error}", code="media/file", hint="name a file that exists"
        ) from error
    return part_of(data, media_type, name or path.name)


def part_of(data: bytes, media_type: str | None = None, name: str = "") -> MediaPart:
    """The part for the content of a file. Raises ConfigurationError (``media/type``, ``media/too-large``)."""
    if len(data) > MAX_MEDIA_BYTES:
        raise ConfigurationError(
            f"{name or 'an attachment'} has {len(data):,} bytes; at most {MAX_MEDIA_BYTES:,} are sent",
            code="media/too-large",
            hint="make it smaller, or give its address",
        )
    kind = media_type or _sniffed(data) or _named(name)
    if kind is None:
        raise ConfigurationError(
            f"{name or 'an attachment'} is not a known image, PDF or sound: {clip(repr(data[:16]), 80)}",
            code="media/type",
            hint="state the type: attachment(..., media_type='image/png')",
        )
    return _part(kind, base64.b64encode(data).decode("ascii"), name)


def is_media(value: object) -> bool:
    """Whether an argument is an image, document or sound, or a list of such."""
    if isinstance(value, list | tuple):
        parts = cast("Sequence[object]", value)
        # Not a list: of other data, of any length, only the first element is examined.
        return bool(parts) and all(isinstance(part, MEDIA_PARTS) for part in parts)
    return isinstance(value, MEDIA_PARTS)


def media_fields(value: object) -> object:
    """The fields of such an argument as data, for validation by a schema."""
    if isinstance(value, list | tuple):
        return [media_fields(part) for part in cast("Sequence[object]", value)]
    return {name: field for name, field in cast("dict[str, Any]", plain(value)).items() if name != "type"}


async def load_parts(parts: str | Iterable[object]) -> tuple[ContentPart, ...]:
    """The parts of a prompt: a text, or a list of texts, paths of files and parts. Raises the errors of
    :func:`attachment`."""
    if isinstance(parts, str):
        return (TextPart(parts),)
    read: list[ContentPart] = []
    for part in parts:
        if isinstance(part, str):
            read.append(TextPart(part))
        elif isinstance(part, os.PathLike):
            read.append(await attachment(cast("os.PathLike[str]", part)))
        elif isinstance(part, (TextPart, *MEDIA_PARTS)):
            read.append(part)
        else:
            raise ConfigurationError(
                f"a prompt is made of texts, paths and parts, not of {type(part).__name__}",
                code="media/type",
                hint="bytes and addresses are parts by await attachment(...)",
            )
    return tuple(read)


def _of_address(url: str, media_type: str | None, name: str) -> MediaPart:
    path = PurePath(url.partition("?")[0].partition("#")[0])
    kind = media_type or _named(path.name)
    if kind is None:
        raise ConfigurationError(
            f"the address {clip(url, 200)} does not show its media type",
            code="media/type",
            hint="say it: attachment(url, media_type='image/png')",
        )
    part = _part(kind, None, name or path.name, url)
    return part


def _part(kind: str, data: str | None, name: str, url: str | None = None) -> MediaPart:
    if kind.startswith("image/"):
        return ImagePart(kind, data, url)
    if kind.startswith("audio/"):
        return AudioPart(kind, data, url)
    return DocumentPart(kind, data, url, name or "document")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_MEDIA_BYTES + 1)


def _sniffed(data: bytes) -> str | None:
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12])
    return next((kind for start, kind in _MAGIC if data.startswith(start)), None)


def _named(name: str) -> str | None:
    suffix = PurePath(name).suffix.lower()
    return MEDIA_TYPES.get(suffix) or _TEXTS.get(suffix)
