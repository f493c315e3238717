"""A terminal in which the command runs: a pseudo-terminal whose screen is rendered as a person would see it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyte

from tests.support.commands import Command

WHERE = b"\x1b[6n"
"""The question for the cursor's position. A prompt that gets no answer waits for it, two seconds."""


@dataclass
class Terminal:
    """What has been drawn so far: the rendered ``lines`` and the ``raw`` bytes."""

    columns: int
    raw: bytes = b""
    shown: list[list[str]] = field(default_factory=list[list[str]])

    def __post_init__(self) -> None:
        self._screen = pyte.HistoryScreen(self.columns, 24, history=5_000)
        self._stream = pyte.ByteStream(self._screen)

    def feed(self, data: bytes) -> None:
        """Draw what was written."""
        self.raw += data
        self._stream.feed(data)
        self.shown.append([line.rstrip() for line in self._screen.display])

    @property
    def position(self) -> bytes:
        """The answer to :data:`WHERE`."""
        return b"\x1b[%d;%dR" % (self._screen.cursor.y + 1, self._screen.cursor.x + 1)

    @property
    def lines(self) -> list[str]:
        """All lines, those that have scrolled away too, without blank ones at the end."""
        gone = ["".join(line[column].data for column in range(self.columns)) for line in self._screen.history.top]
        lines = [line.rstrip() for line in [*gone, *self._screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def ever_showed(self, text: str) -> bool:
        """Whether some line of the screen held ``text`` at any time."""
        return any(text in line for lines in self.shown for line in lines)


async def in_terminal(
    *arguments: str,
    environment: Mapping[str, str],
    columns: int = 80,
    react: Callable[[Terminal], bytes] = lambda terminal: b"",
    standard_output: int | None = None,
    pause_s: float = 0.0,
) -> tuple[int, Terminal]:
    """Run the command in a terminal. Returns the exit code and what was drawn.

    ``react`` is asked after everything drawn what to type, which is typed ``pause_s`` seconds later; ``standard_output`` is a
    descriptor to use in the terminal's stead for that stream.
    """
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    output = slave if standard_output is None else standard_output
    command = Command(arguments, (slave, output, slave), cwd=Path.cwd(), environment=environment, session=True)
    os.close(slave)
    terminal = Terminal(columns)
    ended = asyncio.Event()

    def readable() -> None:
        try:
            data = os.read(master, 65_536)
        except OSError:  # nobody holds the other end any more
            data = b""
        if not data:
            loop.remove_reader(master)
            ended.set()
            return
        terminal.feed(data)
        for _ in range(data.count(WHERE)):
            os.write(master, terminal.position)
        if typed := react(terminal):
            loop.call_later(pause_s, os.write, master, typed)

    loop = asyncio.get_running_loop()
    loop.add_reader(master, readable)
    try:
        await asyncio.wait_for(ended.wait(), 60)
        return await asyncio.to_thread(command.wait), terminal
    except BaseException:
        command.kill()
        await asyncio.to_thread(command.wait)
        raise
    finally:
        loop.remove_reader(master)
        os.close(master)
