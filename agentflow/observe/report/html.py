"""Builds the HTML file of a report: data, script and style in one, which requests nothing.

The events are packed: every longer text is stored once, the whole is gzipped, and the browser folds it. Nothing of a run
becomes markup: the data is base64, and the script sets text only. A strict content security policy names script and style
by their hashes.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import html
import json
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any, TypeAlias, cast

from agentflow.observe.joined_runs import DoneEffect, Record, pairs_of

Wire: TypeAlias = Callable[[Record, str], Mapping[str, Any] | None]
"""The HTTP request of a model request to a provider, by name, as ``{url, headers, body}``; None if it is unknown."""

MAX_TEXT = 64 * 1024
"""Maximum length of a shown text, which is cut there; its full length is stated. Programs are not cut."""
MAX_STEPS = 200_000
"""Number of steps above which successful steps without inner ones are counted instead of shown."""
MAX_WIRES = 500
"""Maximum number of model calls that can be copied as curl."""
_SHARED = 24
_APART = 10_000_000
_SHARED_SCRIPTS = (
    "text.js",
    "sources.js",
    "fold.js",
    "source.js",
    "program.js",
    "timeline.js",
    "drawer.js",
    "compare.js",
    "view.js",
)
_LEFT_OUT = frozenset({"v", "run_id"})
_DELTAS = frozenset({"text_delta", "thinking_delta", "tool_arguments_delta", "partial_output", "tool_progress"})


def report_html(
    run: Iterable[Record],
    other: Iterable[Record] | None = None,
    *,
    wire: Wire | None = None,
    max_steps: int = MAX_STEPS,
) -> str:
    """The HTML file of a recorded run; with ``other``, an earlier run, their difference too.

    The records are those of one run, in order; slices follow one another. ``wire`` returns the HTTP request of a model
    call. Above ``max_steps`` steps, successful ones without inner steps are only counted.
    """
    runs = [list(run)]
    if other is not None:
        runs.append(list(other))
    title = next((str(event.get("name")) for event in runs[0] if event.get("type") == "run_started"), "run")
    packed = _Packer()
    data: dict[str, Any] = {
        "runs": [packed.events(events, max_steps) for events in runs],
        "wires": packed.wires(runs[0], wire),
    }
    data["pairs"] = _pairs(runs[1], runs[0]) if other is not None else []
    data["texts"] = packed.texts
    return _page(title, (*_SHARED_SCRIPTS, "unpack.js", "start.js"), ("report.css",), _embedded(data))[0]


def evaluation_html(title: str, data: Mapping[str, Any]) -> str:
    """The HTML file of an evaluation: ``evaluation.js`` shows ``data``. Longer texts are cut, as those of a run are."""
    packed = _Packer()
    rows = packed.data(data)
    scripts = ("text.js", "drawer.js", "compare.js", "unpack.js", "evaluation.js")
    return _page(title, scripts, ("report.css", "evaluation.css"), _embedded({**rows, "texts": packed.texts}))[0]


def _embedded(data: Mapping[str, Any]) -> str:
    """The data of a page as its only element other than the script; no text in it can leave the element."""
    body = gzip.compress(json.dumps(data, separators=(",", ":")).encode("ascii"), 6, mtime=0)
    return f'<script type="text/plain" id="data">{base64.b64encode(body).decode("ascii")}</script>\n'


@functools.cache
def live_html() -> tuple[str, str]:
    """The page that shows runs while they run, and its content security policy: it may ask the server it came from."""
    return _page("agentflow", (*_SHARED_SCRIPTS, "live.js"), ("report.css", "live.css"), "", "; connect-src 'self'")


def _page(title: str, scripts: tuple[str, ...], styles: tuple[str, ...], body: str, more: str = "") -> tuple[str, str]:
    """An HTML file of these ``scripts``, and its policy: no other script runs, and only ``more`` sends requests."""
    script = "\n".join(_asset(name) for name in scripts)
    style = "\n".join(_asset(name) for name in styles)
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'{more}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title[:200])}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}<script>{script}</script>\n</body>\n</html>\n"
    ), policy


def _pairs(earlier: list[Record], later: list[Record]) -> list[tuple[str, int | None, int | None]]:
    """The steps of two runs joined: the change, and the step's number in each run as the page counts them."""
    first, second = _bases(earlier), _bases(later)

    def number(effect: DoneEffect | None, bases: Mapping[int, int]) -> int | None:
        return None if effect is None else bases[effect.at[0]] + effect.at[1]

    return [(each.change, number(each.first, first), number(each.second, second)) for each in pairs_of(earlier, later)]


def _bases(events: list[Record]) -> dict[int, int]:
    """The offset that the page adds to ``seq`` in each slice of a run, to number its steps uniquely."""
    slices = dict.fromkeys([1, *[event.get("slice", 1) for event in events]])
    return {part: at * _APART for at, part in enumerate(slices)}


def _asset(name: str) -> str:
    return (resources.files("agentflow.observe.report") / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


class _Packer:
    """Turns events into JSON data where any but a short text is ``U+0001`` and its number in the table."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, str] = {}

    def events(self, events: list[Record], most: int) -> list[dict[str, Any]]:
        dropped, counts = _crowd(events, most)
        shown: list[dict[str, Any]] = []
        for event in events:
            kind = event["type"]
            if kind in _DELTAS or (dropped and (event.get("slice", 1), event.get("started", event["seq"])) in dropped):
                continue
            whole = kind == "program_loaded"
            # only the first event keeps the id, which names the run
            row = {
                key: self._put(value, whole)
                for key, value in event.items()
                if (key not in _LEFT_OUT or kind == "run_started") and value is not None
            }
            if "seq" in row and "parent" not in row:
                row["parent"] = None
            count = counts.get((event.get("slice", 1), event["started"])) if "started" in event else None
            if count:
                row["folded"] = count
            shown.append(row)
        return shown

    def data(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Data other than events."""
        return self._put(entries, whole=False)

    def wires(self, events: list[Record], wire: Wire | None) -> dict[str, Any]:
        if wire is None:
            return {}
        wires: dict[str, Any] = {}
        asked: dict[int, Record] = {}
        bases = _bases(events)
        for event in events:
            base = bases[event.get("slice", 1)]
            if event["type"] == "model_started":
                asked[base + event["seq"]] = event
            elif event["type"] == "attempt_started" and len(wires) < MAX_WIRES:
                started = asked.pop(base + (event.get("parent") or 0), None)
                request = None if started is None else wire(started.get("request") or {}, event.get("provider") or "")
                if request is not None:
                    wires[str(base + event["parent"])] = self._put(request, whole=True)
        return wires

    def _put(self, value: Any, whole: bool) -> Any:
        if isinstance(value, str):
            return value if len(value) < _SHARED and not value.startswith("\x01") else self._text(value, whole)
        if isinstance(value, Mapping):
            entries = cast(Mapping[str, Any], value)
            return {key: self._put(item, whole) for key, item in entries.items()}
        if isinstance(value, list | tuple):
            return [self._put(item, whole) for item in cast("list[Any]", value)]
        return value

    def _text(self, text: str, whole: bool) -> str:
        if len(text) > MAX_TEXT and not whole:
            text = f"{text[:MAX_TEXT]}\n[{len(text) - MAX_TEXT:,} more characters are left out]"
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = f"\x01{len(self.texts)}"
            self.texts.append(text)
        return number


Key = tuple[int, int]


def _crowd(events: list[Record], most: int) -> tuple[set[Key], dict[Key, int]]:
    """The steps to leave out of a run of too many, and how many are left out below each step."""
    starts = [event for event in events if event["type"].endswith("_started")]
    if len(starts) <= most:
        return set(), {}
    parents = {
        (event.get("slice", 1), event.get("parent")) for event in events if not event["type"].endswith("_finished")
    }
    fine = {
        (event.get("slice", 1), event["started"])
        for event in events
        if event["type"].endswith("_finished") and event.get("outcome") == "ok"
    }
    dropped: set[Key] = set()
    counts: dict[Key, int] = {}
    for event in starts:
        key = (event.get("slice", 1), event["seq"])
        if key in fine and key not in parents and event.get("parent") is not None:
            dropped.add(key)
            around = (key[0], event["parent"])
            counts[around] = counts.get(around, 0) + 1
    return dropped, counts
