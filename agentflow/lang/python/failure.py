"""Errors as Python's classes: the names of an error in ``except``, and the errors that ``raise`` raises."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError, TaskError
from agentflow.core.data.frozen import frozen
from agentflow.lang.builtins.records import field_of
from agentflow.lang.python.errors import article, kind_of
from agentflow.lang.python.rows import code

PARENTS: dict[str, str] = {
    "KeyError": "LookupError",
    "IndexError": "LookupError",
    "ZeroDivisionError": "ArithmeticError",
    "OverflowError": "ArithmeticError",
    "UnboundLocalError": "NameError",
    "JSONDecodeError": "ValueError",
    "NotImplementedError": "RuntimeError",
    "RecursionError": "RuntimeError",
}
"""The parent of each class that is not directly below Exception."""
CLASSES = frozenset(
    {
        "Exception",
        *PARENTS,
        *PARENTS.values(),
        "AssertionError",
        "AttributeError",
        "RuntimeError",
        "TaskError",
        "TimeoutError",
        "TypeError",
    }
)
"""The classes that ``raise`` and ``except`` know."""
_CODES: dict[str, tuple[str, ...]] = {
    "dict/missing": ("KeyError",),
    "field/missing": ("AttributeError", "KeyError"),
    "list/index": ("IndexError",),
    "list/empty": ("IndexError",),
    "value/invalid": ("ValueError",),
    "json/invalid": ("JSONDecodeError",),
    "json/unrepresentable": ("TypeError",),
    "number/division-by-zero": ("ZeroDivisionError",),
    "number/overflow": ("OverflowError",),
    "name/unbound": ("NameError",),
    "name/not-here": ("AttributeError",),
    "binding/uninitialised": ("UnboundLocalError",),
    "timeout/elapsed": ("TimeoutError", "TaskError"),
    "dict/key": ("TypeError",),
}
_FAMILIES: dict[str, str] = {"type": "TypeError", "arity": "TypeError", "call": "TypeError", "name": "NameError"}


@frozen(eq=False)
class Failure:
    """The value that ``except ... as e`` binds: ``name`` is its class, ``error`` the value that raises it again."""

    name: str
    code: str
    message: str
    reason: str
    _names: frozenset[str]
    _error: Any

    @property
    def classes(self) -> frozenset[str]:
        """The names of the exception classes that a value is an instance of."""
        return self._names

    @property
    def error(self) -> Any:
        """The error as the runtime's value."""
        return self._error


@code("ko")
def caught(raised: Exception, value: Any) -> Failure:
    """The failure of an exception, which the runtime has turned into ``value``."""
    code = str(field_of(value, "code", ""))
    details: dict[str, Any] = field_of(value, "details", {})
    own = details.get("class")
    if isinstance(own, str):
        names: tuple[str, ...] = (own,)
    else:
        names = _CODES.get(code, ())
        family = _FAMILIES.get(code.partition("/")[0])
        if not names:
            names = (family,) if family is not None else ("Exception",)
        if isinstance(raised, TaskError):
            names = (*names, "TaskError") if names != ("Exception",) else ("TaskError",)
    message = str(field_of(value, "message", ""))
    return Failure(names[0], code, message, str(field_of(value, "reason", "")), _above(names), value)


def _above(names: tuple[str, ...]) -> frozenset[str]:
    classes = {"Exception"}
    for each in names:
        at: str | None = each
        while at is not None:
            classes.add(at)
            at = PARENTS.get(at)
    return frozenset(classes)


@code("ok", out="bare")
def matches(failure: Failure, names: tuple[str, ...]) -> bool:
    """Whether ``except`` with these classes catches a failure."""
    return not failure.classes.isdisjoint(names)


@code("kr", out="error")
def raised(name: str, message: str) -> AgentflowError:
    """The error of ``raise name(message)``."""
    return SexpEvaluationError(message or name, code="program/raised", details={"class": name})


@code("o", out="bare")
def raised_again(value: Any) -> Any:
    """Raises a caught failure again. Raises ``type/argument`` for anything else."""
    if isinstance(value, Failure):
        return value.error
    raise SexpEvaluationError(
        f"'raise' takes an error, and was given {article(kind_of(value))}",
        code="type/argument",
        hint='write raise ValueError("the fault")',
    )
