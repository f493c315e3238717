"""Procedures as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentflow.core.source import Source, Span
from agentflow.lang.abi import Code
from agentflow.lang.environment import SexpEnvironment


@dataclass(frozen=True, slots=True, eq=False)
class LambdaInfo:
    """What all closures of one lambda share: its name, parameters and place; ``body`` is where its body is.

    ``portable`` is false when a macro made part of it, whose definition its text would lack elsewhere.
    """

    name: str | None
    params: tuple[str, ...]
    rest: str | None
    source: Source
    start: int
    end: int
    body: tuple[int, int]
    portable: bool

    @property
    def least(self) -> int:
        """Fewest arguments."""
        return len(self.params)

    @property
    def span(self) -> Span:
        """Where it is written."""
        return Span(self.source, self.start, self.end)

    @property
    def text(self) -> str:
        """The text of a lambda form that means the same, whichever form it was written as."""
        names = [*self.params, *([".", self.rest] if self.rest else [])]
        start, end = self.body
        return f"(lambda ({' '.join(names)}) {self.source.text[start:end]})"


class Closure:
    """A procedure made by ``lambda`` or ``define``: compiled code with the variables it was made among.

    ``code`` is ``async (rt, d, *arguments)``; ``arity`` the number of arguments it takes, -1 with a rest parameter. Prints
    as its source; :func:`agentflow.lang.portable.dump_closure` makes JSON of it when what it captured is data.
    """

    __slots__ = ("__weakref__", "arity", "code", "env", "info")
    is_procedure: ClassVar[bool] = True

    def __init__(self, code: Code, arity: int, info: LambdaInfo, env: SexpEnvironment) -> None:
        self.code = code
        self.arity = arity
        self.info = info
        self.env = env

    @property
    def name(self) -> str | None:
        """The name it was defined with, if any."""
        return self.info.name

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameter names, the rest parameter last."""
        rest = self.info.rest
        return (*self.info.params, rest) if rest else self.info.params

    @property
    def source(self) -> str:
        """The text it was defined by."""
        return self.info.span.text

    @property
    def span(self) -> Span:
        """Where it was defined."""
        return self.info.span

    def __repr__(self) -> str:
        return f"#<closure {self.name or 'lambda'} at {self.info.span}>"
