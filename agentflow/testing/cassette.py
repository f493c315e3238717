"""Real traffic, recorded once at the transport and replayed byte for byte.

    cassette = Cassette("tests/cassettes/summary.json")
    provider = cassette.provider("anthropic")          # a real adapter on a recorded (or replayed) transport

The first run, with a key and network, records; later ones replay without either. The file holds the method, endpoint
and JSON body of each request, and the status, headers and bytes of each answer, chunk by chunk; keys, cookies and
account headers are left out. Calls replay by content, so those of concurrent branches may come in any order.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import aiofiles
import aiofiles.os
import httpx2

from agentflow.core.data.errors import ConfigurationError, DataError, clip
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.lib.file_writer import write_private
from agentflow.providers.table import open_provider

if TYPE_CHECKING:
    from agentflow.app import AgentFlow


_SHOWN = 10
"""Number of differences to describe."""
_COMPARED = 2_000
"""Maximum number of characters compared of two texts."""
_AROUND = 40
"""Number of characters shown before and after the first difference."""
_ABSENT = object()
_OF_THE_CACHE = frozenset({"cache_control", "prompt_cache_key"})


def without_cache_markers(value: Any) -> Any:
    """A request, or a part of it, without cache markers, which depend on the requests sent before."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        kept = {key: without_cache_markers(inner) for key, inner in entries.items() if key not in _OF_THE_CACHE}
        return kept["text"] if len(kept) == 2 and kept.get("type") == "text" and "text" in kept else kept
    if isinstance(value, list):
        parts = [without_cache_markers(inner) for inner in cast("list[Any]", value)]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    return value


def nearest(recorded: Sequence[dict[str, Any]], request: dict[str, Any]) -> int:
    """The index of the recorded request with the smallest distance to ``request``; the first of equals."""
    leaves = dict(_leaves(request))
    return min(range(len(recorded)), key=lambda index: _distance(dict(_leaves(recorded[index])), leaves))


def describe_difference(recorded: dict[str, Any], request: dict[str, Any]) -> str:
    """The fields that differ between two requests, one per line; long texts are cut around the first difference."""
    before, after = dict(_leaves(recorded)), dict(_leaves(request))
    paths = [path for path in {**before, **after} if before.get(path, _ABSENT) != after.get(path, _ABSENT)]
    lines = [f"  {path}: {_change(before.get(path, _ABSENT), after.get(path, _ABSENT))}" for path in paths[:_SHOWN]]
    if len(paths) > _SHOWN:
        lines.append(f"  and {len(paths) - _SHOWN} more")
    return "\n".join(lines)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths in JSON data, such as ``body.messages[0].content``, with their scalars and empty containers."""
    if isinstance(value, dict) and value:
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _distance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Number of fields that differ; two texts count by the share that differs."""
    total = 0.0
    for path in {**before, **after}:
        old, new = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if old == new:
            continue
        if isinstance(old, str) and isinstance(new, str):
            total += 1 - SequenceMatcher(None, old[:_COMPARED], new[:_COMPARED], autojunk=False).quick_ratio() / 2
        else:
            total += 1
    return total


def _change(old: Any, new: Any) -> str:
    if isinstance(old, str) and isinstance(new, str):
        parted = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, parted - _AROUND)
        return f"recorded {_excerpt(old, start)}, sent {_excerpt(new, start)}"
    return f"recorded {_short(old)}, sent {_short(new)}"


def _excerpt(text: str, start: int) -> str:
    end = start + 2 * _AROUND
    shown = json.dumps(text[start:end], ensure_ascii=False)
    return f"{'...' if start else ''}{shown}{'...' if end < len(text) else ''}"


def _short(value: Any) -> str:
    return "nothing" if value is _ABSENT else clip(json.dumps(value, ensure_ascii=False), 2 * _AROUND)


_VERSION = 3
_KEPT_HEADERS = ("content-type", "request-id", "x-request-id", "retry-after", "retry-after-ms")
_REDACTED = "replayed"


class Cassette:
    """A file of recorded model calls.

    Parameters: ``path`` of the file; ``mode`` ``auto`` (replay if the file exists, else record), ``record`` or ``replay``.
    Requests replay in any order; method, endpoint and JSON body must equal those of the recording. Equal requests with
    different answers replay in the order of sending. With ``matching=False`` only the order counts, for
    requests that differ every time. A call that was abandoned during recording (the loser of a race) replays the data that
    had arrived, and then waits until it is abandoned again. Raises DataError if the file is missing or not a cassette; the
    call itself raises DataError for a request that was not recorded (the message names the nearest one and the differences).
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
        self._left: dict[str, deque[dict[str, Any]]] = {}
        if not self.recording:
            with _reading(self.path):
                self._load(self.path.read_text("utf-8"))

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str], mode: Literal["auto", "record", "replay"] = "auto", *, matching: bool = True
    ) -> Cassette:
        """Load a cassette without blocking the event loop. Parameters and errors as for the constructor."""
        recording = mode == "record" or (mode == "auto" and not await aiofiles.os.path.exists(path))
        cassette = cls(path, "record", matching=matching)
        cassette.recording = recording
        if not recording:
            with _reading(cassette.path):
                async with aiofiles.open(path, encoding="utf-8") as file:
                    cassette._load(await file.read())
        return cassette

    def __enter__(self) -> Cassette:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.save()

    async def __aenter__(self) -> Cassette:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await asyncio.to_thread(self.save)

    @property
    def left(self) -> int:
        """Number of recorded calls not replayed yet."""
        return sum(map(len, self._left.values()))

    def provider(self, dialect: str, **options: Any) -> ProviderAdapter:
        """A real adapter of ``dialect`` on this cassette; ``options`` are those of ``open_provider``."""
        if not self.recording:
            options["api_key"] = _REDACTED
        return open_provider(dialect, transport=self.transport(), **options)

    @contextlib.contextmanager
    def answers(self, flow: AgentFlow) -> Generator[AgentFlow]:
        """Within the block, replay or record the model calls of ``flow``, for all of its models; yields the flow.

        Raises ConfigurationError for a flow with an adapter object as its ``provider=``.
        """
        if flow.router.has_own_adapter:
            raise ConfigurationError(
                "the flow uses an adapter object, and a cassette cannot record its traffic",
                code="cassette/provider",
                hint="create the flow with a model instead of provider=, or with provider=cassette.provider('anthropic')",
            )
        key = None if self.recording else _REDACTED
        with flow.router.replacing(transport=self.transport(), api_key=key):
            yield flow

    def transport(self) -> httpx2.AsyncBaseTransport:
        """The recording or replaying transport, for an HTTP client of your own."""
        return _Recorder(self) if self.recording else _Player(self)

    def save(self) -> None:
        """Write the recording; an existing file keeps its mode. Does nothing in replay mode. Blocking."""
        if self.recording:
            write_private(self.path, self._text())

    def _text(self) -> str:
        return json.dumps({"agentflow_cassette": _VERSION, "calls": self._calls}, indent=1, ensure_ascii=False) + "\n"

    def record(self, request: dict[str, Any]) -> dict[str, Any]:
        """Add a call being sent, without an answer yet, and return it. Used by the transport."""
        call: dict[str, Any] = {"request": request, "response": None}
        self._calls.append(call)
        return call

    def forget(self, call: dict[str, Any]) -> None:
        """Remove a call that never reached the server; used by the transport."""
        self._calls.remove(call)

    def take(self, request: dict[str, Any]) -> dict[str, Any]:
        """The recorded call for a request. Raises DataError if none matches, or all matching ones were replayed."""
        key = self._key(request)
        left = self._left.get(key)
        if left:
            return left.popleft()
        equal = sum(self._key(call["request"]) == key for call in self._calls)
        if equal or not self._calls:
            raise DataError(
                f"the cassette {self.path.name} holds {equal} such calls, and all of them were replayed",
                code="cassette/exhausted",
                hint="record it again: delete the file and run once with a key",
            )
        number = nearest(
            [without_cache_markers(call["request"]) for call in self._calls], without_cache_markers(request)
        )
        recorded = self._calls[number]
        replayed = all(call is not recorded for call in self._left[self._key(recorded["request"])])
        raise DataError(
            f"this request is not in the cassette {self.path.name}; the nearest is call {number + 1} of "
            f"{len(self._calls)}{', which was replayed already' if replayed else ''}. The differences:\n"
            + describe_difference(without_cache_markers(recorded["request"]), without_cache_markers(request)),
            code="cassette/mismatch",
            hint="if the change is intended, record it again: delete the file and run once with a key",
        )

    def _load(self, text: str) -> None:
        self._calls = _calls(self.path, text)
        for call in self._calls:
            self._left.setdefault(self._key(call["request"]), deque()).append(call)

    def _key(self, request: dict[str, Any]) -> str:
        return json.dumps(without_cache_markers(request), sort_keys=True) if self.matching else ""


@contextlib.contextmanager
def _reading(path: Path) -> Generator[None]:
    """Convert errors of reading a cassette. Raises DataError if the file is missing or not a cassette."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"there is no cassette {path}",
            code="cassette/missing",
            hint="record it with a key: mode='record', or pytest --record-cassettes",
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{path} is not a cassette that this version can read",
            code="cassette/unreadable",
            hint="delete it and record again",
        ) from None


def _calls(path: Path, text: str) -> list[dict[str, Any]]:
    """The calls in the text of a cassette of this version of the format or an earlier one."""
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
        if answer is not None:
            answer["chunks"] = [_written(read(chunk)) for chunk in answer["chunks"]]
    return calls


async def _asked(request: httpx2.Request) -> dict[str, Any]:
    content = await request.aread()
    try:
        body = json.loads(content) if content else None
    except ValueError:
        body = base64.b64encode(content).decode()
    # The base URL may differ when replaying; the request may not.
    return {"method": request.method, "path": request.url.path.rpartition("/v1")[2], "body": body}


class _Recorder(httpx2.AsyncBaseTransport):
    """Sends calls over the network and records them."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = self._cassette.record(await _asked(request))
        # Ask for uncompressed data: compressed bytes are unreadable in the file and depend on the library's version.
        request.headers["accept-encoding"] = "identity"
        try:
            response = await self._network.handle_async_request(request)
        except Exception:  # not on cancellation: an abandoned call stays, since its replay must wait as well
            self._cassette.forget(call)
            raise
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        answer: dict[str, Any] = {"status": response.status_code, "headers": headers, "chunks": [], "abandoned": True}
        call["response"] = answer
        response.stream = _Tape(response.stream, answer)
        return response

    async def aclose(self) -> None:
        await self._network.aclose()


class _Tape(httpx2.AsyncByteStream):
    """A response stream that records its chunks, and whether it was read to the end or broke off."""

    def __init__(self, inner: Any, answer: dict[str, Any]) -> None:
        self._inner = inner
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._answer["chunks"].append(_written(chunk))
                yield chunk
        except Exception:  # broken off, and raised again; a cancellation leaves it abandoned
            del self._answer["abandoned"]
            raise
        del self._answer["abandoned"]

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Player(httpx2.AsyncBaseTransport):
    """Replays answers from the cassette."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        recorded: dict[str, Any] | None = self._cassette.take(await _asked(request))["response"]
        while recorded is None:
            await _until_abandoned()
        return httpx2.Response(
            recorded["status"], headers=recorded["headers"], stream=_Replay(recorded), request=request
        )


class _Replay(httpx2.AsyncByteStream):
    def __init__(self, recorded: dict[str, Any]) -> None:
        self._recorded = recorded

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._recorded["chunks"]:
            yield _read(chunk)
        if self._recorded.get("abandoned"):
            await _until_abandoned()


async def _until_abandoned() -> None:
    """Wait forever, as the caller did in the recording until it gave up."""
    await asyncio.get_running_loop().create_future()


def _written(chunk: bytes) -> str | dict[str, str]:
    """A chunk as a readable string, or as ``{"base64": ...}`` if it is not valid UTF-8 by itself."""
    try:
        return chunk.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode()}


def _read(chunk: str | dict[str, str]) -> bytes:
    return base64.b64decode(chunk["base64"]) if isinstance(chunk, dict) else chunk.encode("utf-8")


def _read_prefixed(chunk: str) -> bytes:
    """A chunk in version 1 of the format, with a prefix for base64."""
    return base64.b64decode(chunk[7:]) if chunk.startswith("base64:") else chunk.encode("utf-8")
