"""A loopback server of ``/v1/embeddings`` whose toy model is deterministic: words of one meaning are one direction.

``server.asked`` records the texts of each request. ``meanings`` lists words that mean the like; ``size`` is the length of
vectors, ``failures`` how many requests are answered with ``status`` before any other (0: not at all).
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import Any


@dataclass
class EmbeddingServer:
    """The server; an async context manager."""

    meanings: list[set[str]] = field(default_factory=list)
    size: int = 64
    failures: int = 0
    status: int = 500
    asked: list[list[str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def texts(self) -> list[str]:
        """All texts asked for, in order."""
        return [text for texts in self.asked for text in texts]

    async def __aenter__(self) -> EmbeddingServer:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        request = json.loads(await reader.readexactly(int(fields["content-length"])))
        self.keys.append(fields.get("authorization", ""))
        self.asked.append(request["input"])
        if self.failures:
            self.failures -= 1
            if self.status:
                self._write(writer, self.status, {"error": {"message": "no vectors today", "type": "server_error"}})
        else:
            rows = [{"index": n, "embedding": self.vector(text)} for n, text in enumerate(request["input"])]
            usage = {"prompt_tokens": sum(len(text.split()) for text in request["input"])}
            self._write(writer, 200, {"data": rows[::-1], "model": request["model"], "usage": usage})
        await writer.drain()
        writer.close()

    def vector(self, text: str) -> list[float]:
        """The sum of the directions of its words."""
        vector = [0.0] * self.size
        for word in re.findall(r"[a-z]+", text.lower()) if vector else ():
            meaning = next((min(words) for words in self.meanings if word in words), word)
            vector[zlib.crc32(meaning.encode()) % self.size] += 1.0
        return vector

    def _write(self, writer: asyncio.StreamWriter, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        head = (
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        )
        writer.write(f"{head}\r\n\r\n".encode() + body)
