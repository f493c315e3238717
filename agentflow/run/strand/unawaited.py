"""Errors for a call used as a value because its ``await`` was forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentflow.core.data.errors import UnawaitedAttribute, WorkflowError

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "matmul": "@", "pow": "**",
    "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_WRITTEN: dict[str, str] = {
    **{f"__{name}__": f"({{}}) {sign} ..." for name, sign in _BINARY.items()},
    **{f"__r{name}__": f"... {sign} ({{}})" for name, sign in _BINARY.items()},
    "__eq__": "({}) == ...",
    "__ne__": "({}) != ...",
    "__lt__": "({}) < ...",
    "__le__": "({}) <= ...",
    "__gt__": "({}) > ...",
    "__ge__": "({}) >= ...",
    "__neg__": "-({})",
    "__pos__": "+({})",
    "__invert__": "~({})",
    "__bool__": "if {}",
    "__iter__": "for each in {}",
    "__aiter__": "for each in {}",
    "__contains__": "... in {}",
    "__getitem__": "({})[...]",
    "__setitem__": "({})[...] = ...",
    "__delitem__": "del ({})[...]",
    "__enter__": "with {}",
    "__exit__": "with {}",
    "__aenter__": "with {}",
    "__aexit__": "with {}",
    "__str__": "str({})",
    "__format__": 'f"{{{}}}"',
    "__index__": "...[{}]",
    "__copy__": "copy({})",
    "__deepcopy__": "deepcopy({})",
    "__reduce_ex__": "pickle.dumps({})",
    **{
        f"__{name}__": f"{name}({{}})"
        for name in ("abs", "bytes", "ceil", "complex", "divmod", "float", "floor", "int", "len", "reversed", "round", "trunc")
    },
    "__rdivmod__": "divmod(..., {})",
}  # fmt: skip
"""Special methods that use a value, with the code that calls each. Those that asyncio and ``callable`` check are not among
them: a call is not an iterator, is not callable, and can be in a set."""


class Unawaited:
    """An awaitable that raises a clear error when it is used as if it were its value.

    ``label`` says which call it is, and where in the code.
    """

    __slots__ = ()

    name: str

    @property
    def label(self) -> str:
        raise NotImplementedError

    def drop(self) -> None:
        """Give the call up unless it has begun: the raised error replaces the warning."""
        raise NotImplementedError

    def misused(self, written: str) -> WorkflowError:
        """The error for using the call as its value; ``written`` is a template of the code that does."""
        self.drop()
        return WorkflowError(
            f"{self.label} is a call used as if it were its value: an await is missing",
            code="python/not-awaited",
            hint=f"write {written.format(f'await {self.name}(...)')}",
        )

    if not TYPE_CHECKING:  # type checkers report these mistakes themselves

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # of its own, and not set yet
                raise AttributeError(name)
            raise UnawaitedAttribute(
                f"{self.label} is a call, which has no '{name}'; its value may have one: an await is missing",
                hint=f"write (await {self.name}(...)).{name}",
            )


def _refusal(written: str) -> Callable[..., Any]:
    def refuse(self: Unawaited, *others: object) -> Any:
        raise self.misused(written)

    return refuse


for _method, _use in _WRITTEN.items():
    setattr(Unawaited, _method, _refusal(_use))
