"""Logs of runs in JSON lines: a directory with a file per run, or one file for all runs of a command."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentflow.core.data.event_log import (
    CONTENT,
    FIRST,
    EventId,
    LogBounds,
    LogEntry,
    LogInfo,
    event_id,
    in_order,
    parse,
)
from agentflow.lib.file_writer import make_private_directory, open_private
from agentflow.observe.log_lines import content_line

SUFFIX = ".jsonl"
_TAIL_BYTES = 64 * 1024
_HEAD_LINES = 100


class EventFile:
    """A file to which the events of all runs are appended. The sink of ``--events-file``."""

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
