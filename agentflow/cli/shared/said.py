"""What a program says, where nobody watches its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from agentflow.core.events.events import Event, Log, Warning


class Said:
    """An observer that writes messages of programs (``print``, ``log-message``) and warnings to ``stream``, a line each.

    ``clean`` is applied to them: they may hold what a model said.
    """

    def __init__(self, stream: TextIO, clean: Callable[[str], str]) -> None:
        self._stream = stream
        self._clean = clean

    def __call__(self, event: Event) -> None:
        match event:
            case Log() if event.level != "debug":
                self._write(event.message)
            case Warning():
                self._write(f"warning[{event.code}]: {event.message}")
            case _:
                pass

    def _write(self, text: str) -> None:
        self._stream.write(self._clean(text) + "\n")
        self._stream.flush()


__all__ = ["Said"]
