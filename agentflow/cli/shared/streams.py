"""The standard streams of the command: usable when they are closed, full, without a reader, or do not block."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any, TextIO

from agentflow.cli.shared.common import show_error
from agentflow.core.data.errors import AgentflowError


class _Output(io.FileIO):
    """A standard stream to write to. Text that cannot be written is dropped, and ``lost`` is the first error.

    A reader that has gone away is not an error: it has read enough.
    """

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        while True:
            try:
                written = super().write(data)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            except OSError as error:
                self.lost = self.lost or error
                return memoryview(data).nbytes
            else:
                if written is not None:
                    return written
                select.select([], [self.fileno()], [])  # it does not block: wait until it takes more


class StandardStreams:
    """Replaces :data:`sys.stdin`, :data:`sys.stdout` and :data:`sys.stderr` for the life of the command.

    A closed descriptor is opened on the null device: otherwise the next file or socket would take its number, and receive
    the output. Standard input is then at its end; standard output refuses, as a full disk does.
    """

    def __init__(self) -> None:
        for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
            if _is_closed(number):
                os.open(os.devnull, flags)  # the lowest free number, which is this one
                os.set_inheritable(number, True)
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
        self._out = _Output(1, "w", closefd=False)
        sys.stdout = _text(self._out, sys.stdout)
        sys.stderr = _text(_Output(2, "w", closefd=False), sys.stderr)

    def end(self, code: Any) -> Any:
        """The exit code, given that of the command: 1 instead of 0 if output was lost, which is reported on standard error."""
        sys.stdout.flush()
        lost = self._out.lost
        if lost is None:
            return code
        why = "it is closed" if lost.errno == errno.EBADF else lost.strerror or lost
        show_error(AgentflowError(f"standard output could not be written: {why}", code="cli/output"))
        return code or 1


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """A text stream over ``raw`` with the encoding of the one ``before``, which is None if the stream was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if before is None else before.encoding,
        errors=None if before is None else before.errors,
        line_buffering=raw.fileno() == 2 or raw.isatty(),
        write_through=getattr(before, "write_through", False),
    )
