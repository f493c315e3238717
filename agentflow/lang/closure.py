"""Closures: procedures as values."""

from __future__ import annotations

from types import FunctionType
from typing import Any, ClassVar, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.labels import Following
from agentflow.core.data.source import Source, Span
from agentflow.lang.abi import Code
from agentflow.lang.calling import guard
from agentflow.lang.environment import SexpEnvironment


@frozen(eq=False)
class LambdaInfo:
    """Shared by all closures of one lambda: name, parameters, span; ``body`` the offsets of its body.

    ``optional`` are parameters that may be missing, after ``params``; only texts in Python have them. ``portable`` is false
    if a macro produced part of it, because its text alone would lack the macro's definition. ``follows``: its code can be
    called with values in boxes, and reports its conditions.
    """

    name: str | None
    params: tuple[str, ...]
    rest: str | None
    source: Source
    start: int
    end: int
    body: tuple[int, int]
    portable: bool
    optional: tuple[str, ...] = ()
    follows: Following = False

    @property
    def least(self) -> int:
        """Minimum number of arguments."""
        return len(self.params)

    @property
    def span(self) -> Span:
        """The span of the definition."""
        return Span(self.source, self.start, self.end)

    @property
    def text(self) -> str:
        """The text of an equivalent lambda form, whichever form defined it."""
        if self.source.surface == "python":
            return self.span.text
        names = [*self.params, *([".", self.rest] if self.rest else [])]
        start, end = self.body
        return f"(lambda ({' '.join(names)}) {self.source.text[start:end]})"


class Closure:
    """A procedure created by ``lambda`` or ``define``: compiled code together with the variables it captured.

    ``code`` is ``async (rt, d, *arguments)``; ``arity`` the number of arguments, -1 with a rest parameter. ``grants``
    are those in force where it was created (None: the host's own authority): ``code`` narrows its caller's to them, and
    ``raw`` is the function itself. Prints as its source; :func:`agentflow.lang.portable.dump_closure` converts it to JSON if
    it captured only data.
    """

    __slots__ = ("__weakref__", "_cells", "_compiled", "_globals", "arity", "code", "env", "grants", "info", "raw")
    is_procedure: ClassVar[bool] = True

    def __init__(
        self, code: Code, arity: int, info: LambdaInfo, env: SexpEnvironment, grants: frozenset[str] | None = None
    ) -> None:
        if grants is None:
            self.raw = self.code = code
        elif type(code) is FunctionType and not (code.__defaults__ or info.optional):
            self._compiled, self._globals, self._cells = code.__code__, code.__globals__, code.__closure__
        else:
            self.raw = code
        self.grants = grants
        self.arity = arity
        self.info = info
        self.env = env

    def __getattr__(self, name: str) -> Code:
        # Most of the closures that a program with grants makes are never called. Until its first call, a closure keeps only the parts of
        # its function: every object fewer saves work of the garbage collector, which holds up the loop.
        if name == "raw":
            code = self.raw = cast(Code, FunctionType(self._compiled, self._globals, closure=self._cells))
            return code
        if name != "code":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        assert self.grants is not None
        code = self.code = guard(self.raw, self.grants)
        return code

    @property
    def identity(self) -> tuple[int, int]:
        """Equal for closures of the same code over the same variables, as long as both live."""
        code: Any = getattr(self.raw, "__wrapped__", self.raw)
        return id(code.__code__), id(code.__closure__)

    @property
    def name(self) -> str | None:
        """The name from its definition, or None."""
        return self.info.name

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameter names, the rest parameter last."""
        rest = self.info.rest
        return (*self.info.params, rest) if rest else self.info.params

    @property
    def source(self) -> str:
        """The text of its definition."""
        return self.info.span.text

    @property
    def span(self) -> Span:
        """The span of its definition."""
        return self.info.span

    def __repr__(self) -> str:
        return f"#<closure {self.name or 'lambda'} at {self.info.span}>"
