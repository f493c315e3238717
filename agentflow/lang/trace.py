"""From a Python traceback to places in the program: how an error learns where it happened and through which calls.

Nothing is recorded while a program runs well. Every generated function carries a :class:`CodeInfo` among its constants;
when an error passes a boundary, its traceback is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType, TracebackType
from typing import Any

from agentflow.core.errors import AgentflowError, SexpEvaluationError, UnboundSymbolError
from agentflow.core.source import Span
from agentflow.lang.closure import LambdaInfo
from agentflow.lang.environment import unbound
from agentflow.lang.positions import Positions

_QUOTED = re.compile(r"'([^']+)'")
_MAX_WALK = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class CodeInfo:
    """What generated code knows of its program.

    ``positions`` are places; ``names`` the program's names for Python's, ``cells`` those of environment variables;
    ``lambdas`` describe the functions. ``places`` remembers where instructions that were asked about are: finding one
    takes a walk over all of its function's.
    """

    positions: Positions
    names: dict[str, str]
    cells: dict[str, str]
    lambdas: dict[str, LambdaInfo]
    places: dict[tuple[int, int], Span | None] = field(default_factory=dict[tuple[int, int], "Span | None"])


@dataclass(slots=True)
class _Seen:
    """What was read of an error's traceback so far: up to which entry, the name of the outermost function, and places.

    A deep recursion passes the same few instructions a million times; ``places`` looks each up once.
    """

    upto: TracebackType | None = None
    open_name: str | None = None
    places: dict[tuple[int, int], Span | None] = field(default_factory=dict[tuple[int, int], "Span | None"])
    codes: list[CodeType] = field(default_factory=list[CodeType])

    def place(self, code: CodeType, lasti: int) -> Span | None:
        """The place of an instruction."""
        key = (id(code), lasti)
        if key not in self.places:
            self.codes.append(code)
            self.places[key] = place_of(code, lasti)
        return self.places[key]


def stamp(code: CodeType, info: CodeInfo) -> CodeType:
    """``code`` and all functions within it, carrying ``info``."""
    done: dict[int, CodeType] = {}
    order: list[CodeType] = []
    pending = [code]
    while pending:
        at = pending.pop()
        order.append(at)
        pending.extend(each for each in at.co_consts if isinstance(each, CodeType))
    for at in reversed(order):
        constants = tuple(done[id(each)] if isinstance(each, CodeType) else each for each in at.co_consts)
        done[id(at)] = at.replace(co_consts=(*constants, info))
    return done[id(code)]


def info_of(code: CodeType) -> CodeInfo | None:
    """The CodeInfo of generated code; None for any other."""
    constants = code.co_consts
    last: Any = constants[-1] if constants else None
    return last if isinstance(last, CodeInfo) else None


def place_of(code: CodeType, lasti: int) -> Span | None:
    """The place in the program of an instruction of generated code."""
    info = info_of(code)
    if info is None or lasti < 0:
        return None
    # All code that carries this info is made at once and lives as long: an identity is of one code only.
    key = (id(code), lasti)
    if key not in info.places:
        positions: Iterable[Any] = code.co_positions()
        position: Any = next(islice(iter(positions), lasti // 2, None), None)
        info.places[key] = info.positions.span(position) if position is not None else None
    return info.places[key]


def annotate(error: BaseException) -> AgentflowError:
    """``error`` with its place and the program calls it passed through, read from its traceback.

    What Python itself raised in generated code (a variable read too early) becomes the language's own error, and so
    does any exception of a host object. Reading again after the error was raised on adds what is new.
    """
    made = _convert(error)
    seen = getattr(made, "_seen", None)
    if not isinstance(seen, _Seen):
        seen = _Seen()
        made._seen = seen  # type: ignore[attr-defined]
    tb = error.__traceback__
    frames: list[tuple[str, Span | None]] = []
    first = tb
    count = 0
    while tb is not None and tb is not seen.upto and count < _MAX_WALK:
        code = tb.tb_frame.f_code
        info = info_of(code)
        if info is not None:
            frames.append((info.names.get(code.co_name, ""), seen.place(code, tb.tb_lasti)))
        tb = tb.tb_next
        count += 1
    seen.upto = first
    before: tuple[str, Span | None] | None = None
    for name, span in reversed(frames):
        if seen.open_name is None:
            made.at(span)
        elif seen.open_name and (seen.open_name, span) != before:
            before = (seen.open_name, span)
            made.add_frame(seen.open_name, span)
        # A part of a function that has no name of its own belongs to the function around it.
        seen.open_name = name or ""
    return made


def _convert(error: BaseException) -> AgentflowError:
    if isinstance(error, AgentflowError):
        return error
    made: AgentflowError
    if isinstance(error, NameError):
        made = _uninitialised(error)
    else:
        made = SexpEvaluationError(
            f"a value of the host raised {type(error).__name__}: {error}"[:1_000], code="host/raised"
        )
    made.__cause__ = error
    return made


def _uninitialised(error: NameError) -> UnboundSymbolError:
    found = _QUOTED.search(str(error))
    py = error.name or (found[1] if found else "")
    tb = error.__traceback__
    name = py
    while tb is not None:
        info = info_of(tb.tb_frame.f_code)
        if info is not None:
            name = info.names.get(py, name)
        tb = tb.tb_next
    return too_early(name)


def too_early(name: str) -> UnboundSymbolError:
    """The error of reading a variable of a body before its definition."""
    return unbound(
        name,
        f"'{name}' is read before it has a value",
        "move its define up, or the use of it into a procedure that is called later",
        "binding/uninitialised",
    )
