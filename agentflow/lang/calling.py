"""The calling convention shared by generated code, primitives and the runtime."""

from __future__ import annotations

MAX_STACK_CALLS = 150
"""Maximum number of nested calls on one Python stack; the next one runs in a fresh task."""
TAIL_NEST = 64
"""Maximum number of tail calls nested as plain calls, which keep frames for tracebacks; later ones are bounced."""


class Sentinel:
    """A value that code compares by identity and that programs never see."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"#<{self.name}>"


TAIL = Sentinel("tail call")
"""Returned by a function that leaves a tail call to its caller; ``rt.tail`` holds code and arguments."""
AGAIN = Sentinel("next round")
"""Returned by a nested part of a loop's body to start the next iteration; ``rt.again`` holds the new values."""
NOTHING = Sentinel("nothing")
"""Stands for the closure of a procedure that is not defined yet."""
