"""Real traffic, recorded once at the transport and replayed byte for byte.

    cassette = Cassette("tests/cassettes/summary.json")
    provider = cassette.provider("anthropic")          # a real adapter on a recorded (or replayed) transport

The first run, with a key and network, records; later ones replay without either. The file holds the method, endpoint
and JSON body of each request, and the status, headers and bytes of each answer, chunk by chunk; keys, cookies and
account headers are left out.
"""

from __future__ import annotations

import base64
import contextlib
import difflib
import json
import os
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any, Literal, cast

import aiofiles
import aiofiles.os
import httpx2

from agentflow.core.errors import DataError
from agentflow.core.ports import ProviderAdapter
from agentflow.lib.private_files import replace_private, write_private
from agentflow.providers.table import open_provider

_VERSION = 2
_KEPT_HEADERS = ("content-type", "request-id", "x-request-id", "retry-after", "retry-after-ms")
_REDACTED = "replayed"


class Cassette:
    """A file of recorded model calls.

    Parameters: ``path`` of the file; ``mode`` ``auto`` (replay when the file exists, else record), ``record`` or
    ``replay``. Calls replay in recorded order, each only for the request it was recorded with: method, endpoint and
    JSON body must be equal (``matching=False`` checks only the order). Raises DataError if the file is missing or not a
    cassette, and from the call itself for a request that was not recorded (the message shows the difference).
    Call :meth:`save` after recording, or use the cassette as a context manager. On an event loop write
    ``async with await Cassette.open(path) as cassette``, which reads and writes the file without holding the loop.
    """

    def __init__(
        self, path: str | os.PathLike[str], mode: Literal["auto", "record", "replay"] = "auto", *, matching: bool = True
    ) -> None:
        self.path = Path(path)
        self.recording = mode == "record" or (mode == "auto" and not self.path.exists())
        self.matching = matching
        self._calls: list[dict[str, Any]] = []
        self._next = 0
        if not self.recording:
            with _reading(self.path):
                self._calls = _calls(self.path, self.path.read_text("utf-8"))

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str], mode: Literal["auto", "record", "replay"] = "auto", *, matching: bool = True
    ) -> Cassette:
        """A cassette, read without holding the event loop. Parameters and errors as for the constructor."""
        recording = mode == "record" or (mode == "auto" and not await aiofiles.os.path.exists(path))
        cassette = cls(path, "record", matching=matching)
        cassette.recording = recording
        if not recording:
            with _reading(cassette.path):
                async with aiofiles.open(path, encoding="utf-8") as file:
                    cassette._calls = _calls(cassette.path, await file.read())
        return cassette

    def __enter__(self) -> Cassette:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.save()

    async def __aenter__(self) -> Cassette:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None and self.recording:
            await replace_private(self.path, self._text())

    @property
    def left(self) -> int:
        """Number of recorded calls not yet replayed."""
        return 0 if self.recording else len(self._calls) - self._next

    def provider(self, dialect: str, **options: Any) -> ProviderAdapter:
        """A real adapter of ``dialect`` on this cassette; ``options`` are those of ``open_provider``."""
        if not self.recording:
            options["api_key"] = _REDACTED
        return open_provider(dialect, transport=self.transport(), **options)

    def transport(self) -> httpx2.AsyncBaseTransport:
        """The transport that records or replays, for a client of your own."""
        return _Recorder(self) if self.recording else _Player(self)

    def save(self) -> None:
        """Write the recording, replacing the file atomically. Does nothing when replaying."""
        if self.recording:
            write_private(self.path, self._text())

    def _text(self) -> str:
        return json.dumps({"agentflow_cassette": _VERSION, "calls": self._calls}, indent=1, ensure_ascii=False) + "\n"

    def record(self, call: dict[str, Any]) -> None:
        """Add a call; used by the transport."""
        self._calls.append(call)

    def take(self, request: dict[str, Any]) -> dict[str, Any]:
        """The recorded call for a request. Raises DataError if it is not the next one."""
        if self._next >= len(self._calls):
            raise DataError(
                f"the cassette {self.path.name} holds {len(self._calls)} calls, and this is one more",
                code="cassette/exhausted",
                hint="record it again: delete the file and run once with a key",
            )
        call = self._calls[self._next]
        if self.matching and call["request"] != request:
            raise DataError(
                f"call {self._next + 1} is not the one recorded in {self.path.name}:\n{_difference(call['request'], request)}",
                code="cassette/mismatch",
                hint="record it again if the change is meant: delete the file and run once with a key",
            )
        self._next += 1
        return call


@contextlib.contextmanager
def _reading(path: Path) -> Generator[None]:
    """Around code that reads a cassette. Raises DataError for a file that is missing or is none."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"there is no cassette {path}", code="cassette/missing", hint="record it: mode='record', with a key"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{path} is no cassette this version can read",
            code="cassette/unreadable",
            hint="delete it and record again",
        ) from None


def _calls(path: Path, text: str) -> list[dict[str, Any]]:
    """The calls in the text of a cassette of any version up to this one."""
    data = json.loads(text)
    version = data["agentflow_cassette"]
    if type(version) is not int or version < 1:
        raise ValueError
    if version > _VERSION:
        raise DataError(
            f"the cassette {path} is of version {version}, and this agentflow reads version {_VERSION}",
            code="cassette/version",
            hint="use the agentflow that wrote it, or a later one; or delete it and record again",
        )
    read = _read if version > 1 else _read_prefixed
    calls = cast(list[dict[str, Any]], data["calls"])
    for call in calls:
        answer = call["response"]
        answer["chunks"] = [_written(read(chunk)) for chunk in answer["chunks"]]
    return calls


def _difference(recorded: dict[str, Any], request: dict[str, Any]) -> str:
    lines = [json.dumps(side, indent=1, sort_keys=True, ensure_ascii=False).split("\n") for side in (recorded, request)]
    diff = difflib.unified_diff(lines[0], lines[1], "recorded", "asked", lineterm="", n=1)
    return "\n".join(list(diff)[:40])


async def _asked(request: httpx2.Request) -> dict[str, Any]:
    content = await request.aread()
    try:
        body = json.loads(content) if content else None
    except ValueError:
        body = base64.b64encode(content).decode()
    # The base URL may differ when replaying; the request may not.
    return {"method": request.method, "path": request.url.path.rpartition("/v1")[2], "body": body}


class _Recorder(httpx2.AsyncBaseTransport):
    """Passes calls to the network and records them."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asked = await _asked(request)
        # Compressed data would be unreadable in the file, and its bytes would depend on the library's version.
        request.headers["accept-encoding"] = "identity"
        response = await self._network.handle_async_request(request)
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        call: dict[str, Any] = {
            "request": asked,
            "response": {"status": response.status_code, "headers": headers, "chunks": []},
        }
        self._cassette.record(call)
        response.stream = _Tape(response.stream, call["response"]["chunks"])
        return response

    async def aclose(self) -> None:
        await self._network.aclose()


class _Tape(httpx2.AsyncByteStream):
    """A response stream that records its chunks."""

    def __init__(self, inner: Any, chunks: list[Any]) -> None:
        self._inner = inner
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._chunks.append(_written(chunk))
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Player(httpx2.AsyncBaseTransport):
    """Answers from the cassette."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        recorded = self._cassette.take(await _asked(request))["response"]
        chunks = [_read(chunk) for chunk in recorded["chunks"]]
        return httpx2.Response(recorded["status"], headers=recorded["headers"], stream=_Replay(chunks), request=request)


class _Replay(httpx2.AsyncByteStream):
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def _written(chunk: bytes) -> str | dict[str, str]:
    """A chunk as a readable string, or as ``{"base64": ...}`` if it is not valid UTF-8 by itself."""
    try:
        return chunk.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode()}


def _read(chunk: str | dict[str, str]) -> bytes:
    return base64.b64decode(chunk["base64"]) if isinstance(chunk, dict) else chunk.encode("utf-8")


def _read_prefixed(chunk: str) -> bytes:
    """A chunk of version 1, in which base64 is told by a prefix."""
    return base64.b64decode(chunk[7:]) if chunk.startswith("base64:") else chunk.encode("utf-8")
