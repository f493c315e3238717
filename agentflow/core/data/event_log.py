"""The log of a run: its events as lines of JSON, with shared contents written once under their digests.

In an event's line the messages, tools, instructions and schema of a model request, the parts of an answer (as those of the
message it becomes) and a program's text are ``{"digest": ...}``; the line ``{"type": "content", "digest": ..., "value":
...}`` before it holds the value. Readers that use :func:`whole` see events as
:meth:`~agentflow.core.events.events.EventBase.to_dict` gave them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from agentflow.core.data.frozen import frozen

CONTENT = "content"
"""The ``type`` of a line with the fields that several events share."""
PIECES_LINE = "pieces"
"""The ``type`` of a line that holds deltas of one stream, of type ``of``, from ``time`` to ``until``: ``text`` is a list,
and ``seq`` the number of the first, or a list where they do not follow one another."""
LIVE_S = 3_600.0
"""Seconds after its last event while an unfinished run counts as alive."""
SHARED = frozenset({"messages", "tools", "system", "output_schema"})
"""The fields of a model request written by digest."""

EventId: TypeAlias = tuple[int, int]
"""The slice and the ``seq`` of an event, which name it within its run; as text ``slice.seq``."""
FIRST: EventId = (0, 0)
"""Before every event."""


class LogEntry(NamedTuple):
    """One event as it is written: its ``line`` (without the line end), and the contents that no line before it held."""

    slice: int
    seq: int
    line: bytes
    contents: tuple[tuple[str, bytes], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the line and the contents."""
        return len(self.line) + (sum([len(body) for _, body in self.contents]) if self.contents else 0)


@frozen
class LogInfo:
    """Summary of a log, from its first and last lines: the data of its first RunStarted and of the RunFinished that closes it.

    ``finished`` is None while the run works, or when it was cut off. ``updated`` is the unix time of the last write,
    ``where`` the file or database.
    """

    run_id: str
    started: Mapping[str, Any]
    finished: Mapping[str, Any] | None
    bytes: int
    updated: float
    where: str

    def is_kept(self, now: float) -> bool:
        """Whether the run may still continue: it waits, or works."""
        if self.finished is None:
            return now - self.updated < LIVE_S
        return self.finished.get("outcome") == "suspended"


@frozen
class LogBounds:
    """How much is kept: total ``bytes`` and number of ``runs``."""

    bytes: int = 1_000_000_000
    runs: int = 500

    def excess(self, logs: list[LogInfo], spare: Callable[[LogInfo], bool]) -> list[LogInfo]:
        """The logs to remove, of ``logs``, the newest first: the oldest, until the others are within bounds."""
        size, count = sum(log.bytes for log in logs), len(logs)
        gone: list[LogInfo] = []
        for log in reversed(logs):
            if size <= self.bytes and count <= self.runs:
                break
            if not spare(log):
                gone.append(log)
                size -= log.bytes
                count -= 1
        return gone


def parse(line: str | bytes) -> dict[str, Any] | None:
    """The object on a line of a log; None for a damaged line or one without an object."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return fields if isinstance(fields.get("type"), str) else None


def whole(event: dict[str, Any], contents: Callable[[str], Any]) -> dict[str, Any]:
    """``event`` from a line, with values in place of their digests; ``contents`` returns the value of a digest.

    The event is changed in place. Missing values remain digests.
    """
    request, response = event.get("request"), event.get("response")
    if isinstance(request, dict) and event["type"] == "model_started":
        fields = cast("dict[str, Any]", request)
        for name in SHARED & fields.keys():
            fields[name] = _resolved(fields[name], contents)
    if isinstance(response, dict):
        answer = cast("dict[str, Any]", response)
        message = _resolved(answer.get("parts"), contents)
        answer["parts"] = (
            cast("dict[str, Any]", message).get("parts", message) if isinstance(message, dict) else message
        )
    if event["type"] == "program_loaded":
        event["text"] = _resolved(event.get("text"), contents)
    return event


def pieces(line: dict[str, Any]) -> list[dict[str, Any]]:
    """The deltas on a line that holds several."""
    header = {name: value for name, value in line.items() if name not in ("of", "until")}
    header["type"] = line["of"]
    first = line["seq"]
    seqs: Iterable[int] = cast("list[int]", first) if isinstance(first, list) else itertools.count(first)
    step = (line["until"] - line["time"]) / max(1, len(line["text"]) - 1)
    return [
        {**header, "seq": seq, "time": line["time"] + step * at, "text": text}
        for at, (seq, text) in enumerate(zip(seqs, line["text"], strict=False))
    ]


def in_order(lines: Iterable[dict[str, Any]], contents: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
    """The events on the parsed ``lines`` of a log, each whole and by itself, in the order of their numbers."""
    deltas: list[dict[str, Any]] = []
    for line in lines:
        if line["type"] == PIECES_LINE:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                deltas += pieces(line)
            continue
        yield from sorted(deltas, key=_number)
        deltas.clear()
        yield whole(line, contents)
    yield from sorted(deltas, key=_number)


def event_id(event: Mapping[str, Any]) -> EventId:
    """The id of an event from its data."""
    return event.get("slice", 1), event.get("seq", 0)


def _number(event: dict[str, Any]) -> int:
    return event["seq"]


def reference(digest: str) -> dict[str, str]:
    """The reference that stands for a content in an event's line."""
    return {"digest": digest}


def _resolved(value: Any, contents: Callable[[str], Any]) -> Any:
    if isinstance(value, list):
        return [_resolved(item, contents) for item in cast("list[Any]", value)]
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    digest = fields.get("digest")
    content = contents(digest) if len(fields) == 1 and isinstance(digest, str) else None
    return cast(Any, value) if content is None else content
