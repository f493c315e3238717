"""Reads programs from files."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TypeAlias, TypeVar, cast, get_args

import aiofiles

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source, Surface, is_file_name
from agentflow.lang.program import Program, as_source
from agentflow.lib.event_loop import running_loop

T = TypeVar("T")
ProgramLike: TypeAlias = str | Path | Source | Program


def source_of(program: ProgramLike) -> str | Source | Program:
    """The program to compile: the text of the file for a Path, anything else unchanged. Blocks.

    Raises AgentflowError: ``program/unreadable``, ``program/file-name`` for a file name passed as a text, and
    ``program/kind``.
    """
    if not isinstance(program, Path):
        if isinstance(program, str) and is_file_name(program):
            raise AgentflowError(
                f"{program!r} is the name of a file, and a str is the text of a program",
                code="program/file-name",
                hint=f"write Path({program!r})",
            )
        if not isinstance(cast(object, program), str | Source | Program):
            raise AgentflowError(
                f"a program is text, a Path, a Source, a compiled Program or a call, not {program!r}",
                code="program/kind",
                hint="call it, and leave the call unawaited: flow.run(review('a.py'))" if callable(program) else None,
            )
        return program
    with _reading(program):
        return Source.of(str(program), program.read_text("utf-8-sig"))


def check_surface(surface: Surface | None) -> Surface | None:
    """Return ``surface`` if it is a language. Raises AgentflowError (``program/surface``) otherwise."""
    if surface is not None and surface not in get_args(Surface):
        raise AgentflowError(
            f"there is no surface {surface!r}",
            code="program/surface",
            hint="write 'sexp' for S-expressions, or 'python' for the subset of Python",
        )
    return surface


def in_surface(program: T, surface: Surface | None) -> T | Source:
    """``program``, with a plain text marked as written in ``surface`` (None: S-expressions).

    Raises AgentflowError (``program/surface``) for a file name that implies another language.
    """
    if surface is None:
        return program
    check_surface(surface)
    if isinstance(program, str):
        source_of(program)
        return Source.unnamed(program, surface)
    own = Source.of(str(program), "").surface if isinstance(program, Path) else getattr(program, "surface", surface)
    if own != surface:
        raise AgentflowError(
            f"this program is not in the surface {surface!r}, its name or source says {own!r}",
            code="program/surface",
            hint="leave out surface=: a file ending in .py is Python, every other one is S-expressions",
        )
    return program


async def load_program(program: ProgramLike) -> str | Source | Program:
    """:func:`source_of` in a thread, for code on an event loop. Raises ConfigurationError without a loop."""
    if not isinstance(program, Path):
        return source_of(program)
    running_loop()
    with _reading(program):
        async with aiofiles.open(program, encoding="utf-8-sig") as file:
            return Source.of(str(program), await file.read())


def source_in(program: str | Source | Program) -> Source:
    """The text of a loaded program."""
    return program.source if isinstance(program, Program) else as_source(program)


@contextlib.contextmanager
def _reading(program: Path) -> Generator[None]:
    """A block that reads a program file. Raises AgentflowError (``program/unreadable``) for errors in it."""
    try:
        yield
    except OSError as error:
        raise AgentflowError(
            f"cannot read the program {program}: {error.strerror or error}",
            code="program/unreadable",
            hint="give a .sexp or .py file, or the program text as a str",
        ) from error
    except UnicodeDecodeError as error:
        raise AgentflowError(
            f"the program {program} is not UTF-8: byte {error.start}", code="program/unreadable"
        ) from error
