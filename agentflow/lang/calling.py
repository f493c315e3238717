"""The calling convention shared by generated code, primitives and the runtime."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from agentflow.core.data.walk import Work
from agentflow.lang.abi import Code, Runtime

# A fresh task instead of a higher recursion limit, which would crash the process (decision 5)
MAX_STACK_CALLS = 150
"""Maximum number of nested calls on one Python stack; the next one runs in a fresh task."""
TAIL_NEST = 64
"""Maximum number of tail calls nested as plain calls, which keep frames for tracebacks; later ones are bounced."""


MANY_OPERANDS = 256
"""Number of operands from which on any primitive may leave its work for slices."""


class Sentinel:
    """A value that code compares by identity and that programs never see."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"#<{self.name}>"


class Sliced:
    """Returned by a primitive with long work: the work, which the strand carries out in slices."""

    __slots__ = ("work",)

    def __init__(self, work: Work[Any]) -> None:
        self.work = work


def begun(work: Work[Any]) -> Any:
    """The value of ``work`` if its first slice finishes it; otherwise the rest, for slices."""
    try:
        return Sliced(_resumed(next(work), work))
    except StopIteration as done:
        return done.value


def _resumed(cost: int, work: Work[Any]) -> Work[Any]:
    yield cost
    return (yield from work)


TAIL = Sentinel("tail call")
"""Returned by a function that leaves a tail call to its caller; ``rt.tail`` holds code and arguments."""
AGAIN = Sentinel("next round")
"""Returned by a nested part of a loop's body to start the next iteration; ``rt.again`` holds the new values."""
NOTHING = Sentinel("nothing")
"""Stands for the closure of a procedure before its definition."""


async def bounce(rt: Runtime, d: int) -> Any:
    """Make the tail call in ``rt.tail``, and those that it leaves in turn, in constant space."""
    while True:
        tail = rt.tail
        assert tail is not None
        rt.tail = None
        result = await tail[0](rt, d + 1, *tail[1:])
        if result is not TAIL:
            return result


def whole(code: Code, look: Callable[[Any, Any], None] | None = None) -> Code:
    """``code`` separated from later code under a strict policy: its tail calls are made, the ambient sources restored, and
    its value carries them. ``look`` is called with the strand and that value."""

    async def done(rt: Any, d: int, *arguments: Any) -> Any:
        before = rt.ambient
        value = await code(rt, d, *arguments)
        if value is TAIL:
            value = await bounce(rt, d)
        value = rt.left(before, value)
        if look is not None:
            look(rt, value)
        return value

    return done


def guard(code: Code, grants: frozenset[str]) -> Code:
    """``code`` for other callers, limited to the ``grants`` of its author.

    It runs with the intersection of ``grants`` and the caller's, including its tail calls; the caller's are restored
    however it ends.
    """

    # A closure keeps its author's grants for every caller (decision 17)
    def guarded(rt: Runtime, d: int, *arguments: Any) -> Coroutine[Any, Any, Any]:
        caller = rt.grants
        if caller is not None and (caller is grants or caller <= grants):
            return code(rt, d, *arguments)  # Nothing narrows, so that tail calls stay the caller's, in constant space.
        return _narrowed(rt, d, code, grants if caller is None else caller & grants, arguments)

    return guarded


async def _narrowed(rt: Runtime, d: int, code: Code, grants: frozenset[str], arguments: tuple[Any, ...]) -> Any:
    caller, rt.grants = rt.grants, grants
    try:
        result = await code(rt, d, *arguments)
        return await bounce(rt, d) if result is TAIL else result
    finally:
        rt.grants = caller
