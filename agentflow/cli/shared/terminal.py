"""The terminal: encodings, colours, widths and live lines, on top of Rich."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group, OverflowMethod
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

_PLAIN_WIDTH = 120
"""Columns of a progress line without a terminal."""
_TICK_S = 0.1
_SHARE = 50
_ESCAPES = "agentflow-escapes"


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def prepare_streams() -> None:
    """Let standard output and error write every character.

    Characters that their encoding lacks become JSON escapes: text stays legible and JSON stays JSON.
    """
    codecs.register_error(_ESCAPES, _escape)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=_ESCAPES)


def screen(stream: TextIO) -> Console:
    """Rich's console for ``stream``, with its colours (not with ``NO_COLOR``) and width; text is never read as markup."""
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def is_interactive(stream: TextIO) -> bool:
    """Whether live rows can be shown: on a terminal that can move its cursor, with a person in front of it."""
    return stream.isatty() and not screen(stream).is_dumb_terminal and not os.environ.get("CI")


def same_screen(one: TextIO, other: TextIO) -> bool:
    """Whether output to both streams ends up on the same lines: one terminal, or one pipe or file."""
    if one.isatty() and other.isatty():
        return True
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except (OSError, ValueError):
        return one is other


def print_line(console: Console, line: Text) -> None:
    """Print ``line`` on one line of the screen, cut at its width."""
    console.print(line, no_wrap=True, overflow=_overflow(console))


def print_text(console: Console, text: Text) -> None:
    """Print ``text`` unchanged, without wrapping its lines."""
    console.print(text, soft_wrap=True)


def error_text(rendered: str) -> Text:
    """A rendered error with its colours."""
    text = Text(rendered)
    text.highlight_regex(r"^(error|warning)(\[[^\]]*\])?", "bold red")
    text.highlight_regex(r"(?m)^ *\|( *\^+)$", "bold red")
    text.highlight_regex(r"(?m)^ *hint:", "cyan")
    return text


class LiveRows:
    """The last lines of a terminal, redrawn while things run. Used on the event loop.

    Parameters: ``console`` is the terminal; ``describe`` returns the lines for the spinner's frame and a maximum number of
    lines. Drawing takes at most a fiftieth of the time: slow drawings happen less often.
    """

    def __init__(self, console: Console, describe: Callable[[str, int], list[Text]]) -> None:
        self._console = console
        self._describe = describe
        self._spinner = Spinner("dots" if is_utf8(console) else "line")
        self._live: Live | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Show the lines until :meth:`stop`."""
        if self._live is None:
            self._live = Live(
                get_renderable=self._rows,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
            self._tick(self._live)

    def stop(self) -> None:
        """Remove the lines."""
        live, self._live = self._live, None
        if self._timer is not None:
            self._timer.cancel()
        if live is not None:
            live.stop()

    def _tick(self, live: Live) -> None:
        began = time.process_time()
        live.refresh()
        taken = time.process_time() - began
        self._timer = asyncio.get_running_loop().call_later(max(_TICK_S, taken * _SHARE), self._tick, live)

    def _rows(self) -> Group:
        frame = self._spinner.render(self._console.get_time())
        rows = self._describe(str(frame), max(1, self._console.height - 2))
        for row in rows:
            row.no_wrap, row.overflow = True, _overflow(self._console)
        return Group(*rows)


def is_utf8(console: Console) -> bool:
    """Whether a terminal can show every character."""
    return console.encoding.startswith("utf")


def _overflow(console: Console) -> OverflowMethod:
    return "ellipsis" if is_utf8(console) else "crop"
