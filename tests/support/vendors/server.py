"""The fakes behind a proxy on the loopback address, which takes requests for any vendor's host.

The proxy speaks plain HTTP: it is asked for ``http://HOST/PATH`` as any forward proxy is. :class:`_Transport` is the client's side:
an adapter keeps the vendor's own address, ``https`` included, and its requests come here. A child process reaches the fakes by
``HTTP_PROXY`` and addresses with ``http``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers import open_provider
from tests.support.model_server_wire import Reply
from tests.support.vendors import answers
from tests.support.vendors.row import Rule
from tests.support.vendors.rules import broken
from tests.support.vendors.table import VENDORS, Vendor, refusal
from tests.support.vendors.view import Asked, Memory

Script = Callable[[Asked], Any]
"""Gives the reply to a request, in the shapes that :class:`~tests.support.model_server_wire.Reply` reads."""


@dataclass(frozen=True)
class Refusal:
    """A request that broke a rule: of which vendor, which rule, and in what words it was refused."""

    vendor: str
    rule: Rule
    said: str


class _Transport(httpx2.AsyncBaseTransport):
    """Sends every request to the proxy, as plain HTTP for the host that it was meant for."""

    def __init__(self, proxy: str) -> None:
        # Nothing is encrypted on this way; reading the certificates of the machine would take most of a test's time.
        self._inner = httpx2.AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), proxy=proxy)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(scheme="http")
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class Vendors:
    """The fakes; an async context manager. ``script`` is what the models say: replies in order, or a function of the request.

    ``asked`` holds the requests that arrived, ``refusals`` the rules that they broke, all of them, and ``down`` the names of
    vendors that answer 503. ``heads`` are the headers of HEAD requests, which a vendor answers with 404: they open connections.
    """

    script: list[Any] | Script
    asked: list[Asked] = field(default_factory=list[Asked])
    refusals: list[Refusal] = field(default_factory=list[Refusal])
    heads: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    down: set[str] = field(default_factory=set[str])
    url: str = ""

    def __post_init__(self) -> None:
        self._next = 0
        self._memories: dict[str, Memory] = {name: Memory() for name in VENDORS}
        self._tasks: set[asyncio.Task[None]] = set()
        self._adapters: list[ProviderAdapter] = []

    async def __aenter__(self) -> Vendors:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for adapter in self._adapters:
            await adapter.aclose()
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def adapter(self, name: str, **options: Any) -> ProviderAdapter:
        """The adapter that speaks to a vendor, at the vendor's own address."""
        vendor = VENDORS[name]
        adapter = open_provider(
            vendor.route, **{"base_url": vendor.address, "api_key": "key", "transport": self.transport(), **options}
        )
        self._adapters.append(adapter)
        return adapter

    def transport(self) -> httpx2.AsyncBaseTransport:
        """A transport for an adapter of one's own."""
        return _Transport(self.url)

    def of(self, name: str) -> list[Asked]:
        """The requests to one vendor."""
        return [each for each in self.asked if each.vendor.name == name]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                raw = await reader.readexactly(int(headers.get("content-length", "0")))
                if head[0].startswith("HEAD "):
                    self.heads.append(headers)
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    await writer.drain()
                    continue
                host, _, path = head[0].split(" ")[1].partition("://")[2].partition("/")
                await self._answer(_vendor(host, "/" + path), f"/{path}", headers, raw, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client went, or the server is closed: this is the outermost frame
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(
        self, vendor: Vendor, path: str, headers: dict[str, str], raw: bytes, writer: asyncio.StreamWriter
    ) -> None:
        asked = Asked(vendor, path.partition("?")[0], headers, raw, self._memories[vendor.name])
        self.asked.append(asked)
        if vendor.name in self.down:
            _write(
                writer,
                503,
                {"retry-after": "0"},
                [json.dumps({"error": {"message": "down", "type": "overloaded_error"}}).encode()],
            )
        else:
            reply = Reply.of(self._reply(asked))
            with contextlib.suppress(ValueError):
                asked.meant = json.loads(reply.text)
            if found := broken(asked):
                self.refusals += [Refusal(vendor.name, rule, said) for rule, said in found]
                rule, said = found[0]
                more, body = refusal(vendor, rule.code(vendor.name), said, None)
                _write(writer, rule.code(vendor.name), more, [json.dumps(body).encode()])
            else:
                self._next += 1
                kind, pieces = answers.answer(asked, reply)
                _write(writer, 200, {"content-type": kind}, pieces)
        await writer.drain()

    def _reply(self, asked: Asked) -> Any:
        if callable(self.script):
            return self.script(asked)
        return self.script[min(self._next, len(self.script) - 1)]


def _vendor(host: str, path: str) -> Vendor:
    """Whose a host is; OpenAI and Azure have two dialects on one."""
    for vendor in VENDORS.values():
        if (
            vendor.host == host
            and (vendor.dialect != "responses" or "/responses" in path)
            and (vendor.dialect == "responses" or "/responses" not in path)
        ):
            return vendor
    raise LookupError(f"no vendor is at {host}")


def _write(writer: asyncio.StreamWriter, status: int, headers: dict[str, str], pieces: Iterable[bytes]) -> None:
    lines = {"content-type": "application/json", **headers, "transfer-encoding": "chunked"}
    head = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in lines.items())]
    writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
    for piece in pieces:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    writer.write(b"0\r\n\r\n")
