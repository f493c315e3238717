"""Logs of runs in JSON lines: a directory with a file per run, or one file for all runs of a command."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.event_log import (
    CONTENT,
    FIRST,
    PIECES_LINE,
    EventId,
    LogBounds,
    LogEntry,
    LogInfo,
    event_id,
    in_order,
    parse,
    reference,
)
from agentflow.core.data.messages import Message, ModelResponse
from agentflow.core.data.values import is_long, json_bytes, opened, to_json
from agentflow.core.data.walk import CHARACTERS_PER_STEP, Work
from agentflow.core.events.events import (
    VERSION,
    Event,
    ModelFinished,
    ModelStarted,
    ProgramLoaded,
    TextDelta,
    ThinkingDelta,
    as_data,
)
from agentflow.lib.file_writer import make_private_directory, open_private

_MOST_KNOWN = 4_096
_DIGEST = 16
_MOST_READY = 64
"""Values written beforehand that no event has shown yet."""
_PIECE = 262_144
"""Bytes added to a digest at once."""
_WITHIN = 4
_ENTRIES = 256
"""Levels below a field, and entries of a container, to search for values written beforehand."""
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class LogLines:
    """Encodes the events of one run. Parameter ``text`` gives the text of objects without a JSON form."""

    __slots__ = ("_cached", "_contents", "_encode", "_mark", "_ready", "_text", "_written")

    def __init__(self, text: Callable[[object], str] = str) -> None:
        self._text = text
        self._encode = json.JSONEncoder(
            ensure_ascii=False, separators=(",", ":"), check_circular=False, default=partial(opened, text=text)
        ).encode
        self._written: set[str] = set()
        self._contents: list[tuple[str, bytes]] = []
        self._cached: dict[int, tuple[Any, dict[str, str]]] = {}
        self._ready: dict[int, tuple[Any, bytes]] = {}
        self._mark = ""

    def preparation(self, value: Any) -> Work[None]:
        """Write large values beforehand and in parts: ``value``, or those in it if it is a dict of arguments.

        The next event that shows the same object contains the written text, so the value must not change in between.
        """
        if isinstance(value, ModelResponse | Message):
            shared = value.parts if isinstance(value, ModelResponse) else value
            if id(shared) not in self._cached and is_long(shared):
                body = yield from self._bytes(value.message() if isinstance(value, ModelResponse) else value)
                digest = blake2b(digest_size=_DIGEST)
                for start in range(0, len(body), _PIECE):
                    digest.update(body[start : start + _PIECE])
                    yield _PIECE // CHARACTERS_PER_STEP
                self._keep(shared, self._content(body, digest.hexdigest()))
            return
        parts: Iterable[Any] = cast("dict[Any, Any]", value).values() if type(value) is dict else (value,)
        for each in parts:
            if id(each) not in self._ready and is_long(each):
                body = yield from self._bytes(each)
                if len(self._ready) >= _MOST_READY:
                    del self._ready[next(iter(self._ready))]
                self._ready[id(each)] = (each, body)

    def _bytes(self, value: Any) -> Work[bytes]:
        try:
            return (yield from json_bytes(value, text=self._text))
        except ValueError:  # nested too deep, or its text is too long
            return self._body(as_data(value, self._text))

    def entry(self, event: Event) -> LogEntry:
        """``event`` as a line, with the contents it is the first to need."""
        line = self._line(event)
        contents, self._contents = self._contents, []
        return LogEntry(event.slice, event.seq, line, tuple(contents))

    def _line(self, event: Event) -> bytes:
        fields = self._fields(event)
        shown: list[int] = []
        if self._ready:
            fields = {name: self._marked(value, shown, _WITHIN) for name, value in fields.items()}
        try:
            line = self._encode(fields).encode("utf-8", "backslashreplace")
        except (RecursionError, TypeError, ValueError):  # no plain data: names as keys, a container that holds itself
            line = _encoded({name: as_data(value, self._text) for name, value in fields.items()})
        if not shown:
            return line
        texts = line.split(f'"{self._mark}"'.encode())
        bodies = [self._ready[key][1] for key in shown]
        for key in set(shown):
            del self._ready[key]
        return b"".join([each for pair in zip(texts, [*bodies, b""], strict=True) for each in pair])

    def _marked(self, value: Any, shown: list[int], within: int) -> Any:
        """``value`` with marks instead of values already written; their keys are appended to ``shown``."""
        if id(value) in self._ready:
            shown.append(id(value))
            self._mark = self._mark or os.urandom(16).hex()
            return self._mark
        if within and dataclasses.is_dataclass(value):
            value = opened(value)
        elif within and isinstance(value, ContextGenerationInput):
            value = dict(value)
        entries = cast("dict[Any, Any]", value) if within and type(value) is dict else {}
        if entries and len(entries) <= _ENTRIES:
            return {key: self._marked(each, shown, within - 1) for key, each in entries.items()}
        return cast(Any, value)

    def _fields(self, event: Event) -> dict[str, Any]:
        """The fields of an event's line, with unconverted values."""
        fields = event.fields(self._text)
        if isinstance(event, ModelStarted) and event.request is not None:
            request = event.request
            cached = self._cached
            shared = self._shared
            data = opened(replace(request, messages=(), tools=(), system="", output_schema=None))
            data["messages"] = [
                cached[id(message)][1] if id(message) in cached else shared(message) for message in request.messages
            ]
            data["tools"] = [shared(tool) for tool in request.tools]
            if request.system:
                data["system"] = shared(request.system)
            if request.output_schema is not None:
                data["output_schema"] = shared(request.output_schema)
            fields["request"] = data
        elif isinstance(event, ModelFinished) and event.response is not None:
            response = event.response
            answer = opened(replace(response, parts=()))
            cached = self._cached.get(id(response.parts))
            answer["parts"] = self._content(self._body(response.message())) if cached is None else cached[1]
            fields["response"] = answer
        elif isinstance(event, ProgramLoaded):
            fields["text"] = self._content(self._body(event.text))
        return fields

    def _shared(self, value: Any) -> dict[str, str]:
        """The reference to a value that recurs as the same object."""
        cached = self._cached.get(id(value))
        return self._keep(value, self._content(self._body(value))) if cached is None else cached[1]

    def _keep(self, value: Any, content: dict[str, str]) -> dict[str, str]:
        """Remember that ``content`` is the reference to ``value``."""
        if len(self._cached) >= _MOST_KNOWN:
            self._cached.clear()
        self._cached[id(value)] = (value, content)
        return content

    def _content(self, body: bytes, digest: str = "") -> dict[str, str]:
        """The reference to a value with the JSON text ``body``."""
        digest = digest or blake2b(body, digest_size=_DIGEST).hexdigest()
        if digest not in self._written:
            self._written.add(digest)
            self._contents.append((digest, body))
        return reference(digest)

    def _body(self, value: Any) -> bytes:
        try:
            return self._encode(value).encode("utf-8", "backslashreplace")
        except (RecursionError, TypeError, ValueError):
            return _encoded(as_data(value, self._text))


Piece = TextDelta | ThinkingDelta
"""Pieces of text: the commonest events by far, which differ from the one before in number, time and text alone."""


class PieceLine(list[Piece]):
    """Pieces of one stream that share a line.

    It spans no more time than the recorder's writer leaves between two looks, so that the times of the first and the last
    piece are enough.
    """

    def entry(self) -> LogEntry:
        """The line."""
        first, last = self[0], self[-1]
        follow = last.seq - first.seq == len(self) - 1
        data = {
            **replace(first, text="").to_dict(),
            "type": PIECES_LINE,
            "of": first.type,
            "seq": first.seq if follow else [piece.seq for piece in self],
            "until": last.time,
            "text": [piece.text for piece in self],
        }
        return LogEntry(first.slice, last.seq, _encoded(data))


def content_line(digest: str, body: bytes) -> bytes:
    """The line that holds a content, in a log file."""
    return b'{"v":%d,"type":"%s","digest":"%s","value":%s}' % (VERSION, CONTENT.encode(), digest.encode(), body)


def _encoded(data: Any) -> bytes:
    """JSON data as bytes on one line. Lone surrogates are escaped, as JSON can."""
    try:
        line = _ENCODE(data)
    except RecursionError:  # far down in the stack, or far down in the data
        line = to_json(data)
    return line.encode("utf-8", "backslashreplace")


Redact = Callable[[Any], Any]
"""Returns JSON data without its secrets; ``AgentFlow.redact`` is one."""


def _as_it_is(data: Any) -> Any:
    return data


def event_line(event: Event, redact: Redact = _as_it_is) -> str:
    """``event`` as one JSON line, without the line end.

    ``redact`` removes the secrets from the event's data, text by text: applied to the line, a pattern without an end
    would remove the rest of the line.
    """
    return json.dumps(redact(event.to_dict()), ensure_ascii=False, default=lambda other: redact(str(other)))


SUFFIX = ".jsonl"
_TAIL_BYTES = 64 * 1024
_HEAD_LINES = 100


class EventFile:
    """A file for the events of all runs. The sink of ``--events-file``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: set[str] | None = None

    def open(self) -> None:
        """Create the file and its directories if they are missing, closed to other users. Raises OSError."""
        make_private_directory(self.path.parent)
        os.close(open_private(str(self.path), os.O_WRONLY | os.O_APPEND | os.O_CREAT))

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        """Append events, without the contents that the file holds already."""
        make_private_directory(self.path.parent)
        fd = open_private(str(self.path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            torn = False
            if self._written is None:
                torn = self._look(fd)
            assert self._written is not None
            lines: list[bytes] = [b""] if torn else []
            for entry in entries:
                for digest, body in entry.contents:
                    if digest not in self._written:
                        self._written.add(digest)
                        lines.append(content_line(digest, body))
                lines.append(entry.line)
            _write_all(fd, b"\n".join(lines) + b"\n")
        except BaseException:  # also when interrupted
            self._written = None  # the file may end in part of a line, so the next write reads it
            raise
        finally:
            os.close(fd)

    def close(self) -> None:
        """Nothing is held open."""

    def _look(self, fd: int) -> bool:
        """Note the contents that the file holds. Returns whether it ends within a line."""
        self._written = set()
        at = os.fstat(fd)
        if not stat.S_ISREG(at.st_mode) or at.st_size == 0:
            return False
        line = b"\n"
        with self.path.open("rb") as file:
            for line in file:
                if (digest := _digest_of(line)) is not None:
                    self._written.add(digest)
        return not line.endswith(b"\n")


class EventFiles:
    """The :class:`~agentflow.core.ports.store_ports.EventStore` in a directory, where ``<run>.jsonl`` is the log of a run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: dict[str, EventFile] = {}

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        file = self._open.get(run) or EventFile(self._path(run))
        self._open[run] = file
        try:
            file.append(run, entries)
        finally:
            if last:
                del self._open[run]

    def close(self) -> None:
        self._open.clear()

    def list(self, *, limit: int | None = None) -> list[LogInfo]:
        logs: list[LogInfo] = []
        for path in self._files():
            logs += read_infos(path)
            if limit is not None and len(logs) >= limit:
                return logs[:limit]
        return logs

    def find(self, run: str) -> LogInfo | None:
        named = self._path(run)
        paths = [named] if run and os.sep not in run and named.is_file() else self._files()
        return next((log for path in paths for log in read_infos(path) if log.run_id == run), None)

    def read(self, run: str, after: EventId = FIRST) -> Iterator[dict[str, Any]]:
        log = self.find(run)
        if log is not None:
            with contextlib.suppress(FileNotFoundError), open(log.where, "rb") as file:
                for event in read_events(file):
                    if event.get("run_id") == run and event_id(event) > after:
                        yield event

    def gc(self, bounds: LogBounds, spare: Collection[str] = ()) -> list[str]:
        now = time.time()
        files = self._files()
        if len(files) <= bounds.runs and sum(_size(path) for path in files) <= bounds.bytes:
            return []  # the common case: no file needs to be read
        logs = [log for path in files if (log := read_info(path)) is not None]
        gone = bounds.excess(logs, lambda log: log.run_id in spare or log.is_kept(now))
        for log in gone:
            Path(log.where).unlink(missing_ok=True)
        return [log.run_id for log in gone]

    def _files(self) -> list[Path]:
        """The files of the directory, the most recent first."""
        files: list[tuple[float, Path]] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX):
                    with contextlib.suppress(FileNotFoundError):
                        files.append((entry.stat().st_mtime, self.directory / entry.name))
        files.sort(key=lambda each: (-each[0], each[1].name))
        return [path for _, path in files]

    def _path(self, run: str) -> Path:
        return self.directory / f"{run}{SUFFIX}"


def read_events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON data of the events in the lines of a log, with their shared contents; other lines are skipped."""
    contents: dict[str, Any] = {}

    def parsed() -> Iterator[dict[str, Any]]:
        for line in lines:
            event = parse(line)
            if event is not None and event["type"] == CONTENT:
                contents[str(event.get("digest"))] = event.get("value")
            elif event is not None:
                yield event

    return in_order(parsed(), contents.get)


def read_info(path: Path) -> LogInfo | None:
    """The summary of a run from the beginning and the end of its log; None if the file is missing or not a log."""
    try:
        with path.open("rb") as file:
            head = (parse(line) for line, _ in zip(file, range(_HEAD_LINES), strict=False))
            started = next((event for event in head if event is not None and event["type"] == "run_started"), None)
            if started is None:
                return None
            at = os.fstat(file.fileno())
            file.seek(max(0, at.st_size - _TAIL_BYTES))
            tail = file.read().splitlines()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    last = parse(tail[-1]) if tail else None
    finished = last if last is not None and last["type"] == "run_finished" else None
    return LogInfo(str(started.get("run_id")), started, finished, at.st_size, at.st_mtime, str(path))


def read_infos(path: Path) -> list[LogInfo]:
    """As :func:`read_info`, for each run of a file that may hold several, the last first."""
    log = read_info(path)
    if log is None:
        return []
    if log.finished is not None and log.finished.get("run_id") == log.run_id:
        return [log]
    ends: dict[str, list[dict[str, Any] | None]] = {}
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if b'"run_started"' in line or b'"run_finished"' in line:
                event = parse(line) or {"type": ""}
                if event["type"] == "run_started":
                    ends.setdefault(str(event.get("run_id")), [event, None])[1] = None
                elif event["type"] == "run_finished" and event.get("run_id") in ends:
                    ends[str(event.get("run_id"))][1] = event
    return [
        replace(log, run_id=run, started=first or {}, finished=last) for run, (first, last) in reversed(ends.items())
    ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _digest_of(line: bytes) -> str | None:
    if f'"type":"{CONTENT}"'.encode() not in line[:40]:
        return None
    content = parse(line)
    return None if content is None else str(content.get("digest"))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
