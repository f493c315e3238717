"""What generated code, primitives and the runtime agree on about calls."""

from __future__ import annotations

MAX_STACK_CALLS = 150
"""Calls nested on one Python stack; deeper ones go on in a fresh task."""
TAIL_NEST = 64
"""Tail calls that nest as plain calls, for the sake of the frames they leave, before they are bounced."""


class Sentinel:
    """A value that code compares by identity and programs never see."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"#<{self.name}>"


TAIL = Sentinel("tail call")
"""What a function returns that leaves a call to its caller: ``rt.tail`` holds code and arguments."""
AGAIN = Sentinel("next round")
"""What a part of a loop's body returns to go round again: ``rt.again`` holds the new values."""
NOTHING = Sentinel("nothing")
"""The closure of a procedure that is not defined yet."""
