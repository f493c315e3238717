"""Parts of generated code: functions, loops and the destinations of values; and properties visible in an expression."""

from __future__ import annotations

import ast

from agentflow.lang.ir import Var

LOAD, STORE = ast.Load(), ast.Store()


class Dest:
    """Destination of a statement's value: return, drop or assign; ``leave``: also break out of the loop."""

    __slots__ = ("kind", "leave", "name")

    def __init__(self, kind: str, name: str = "", *, leave: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.leave = leave

    @property
    def final(self) -> bool:
        """Whether control leaves the block after the statement."""
        return self.leave or self.kind == "return"


RETURN = Dest("return")
DROP = Dest("drop")


class PyFn:
    """A Python function being generated."""

    __slots__ = ("blocks", "crossing", "declared", "kind", "loops", "nonlocals", "tail_ok")

    def __init__(self, kind: str, *, tail_ok: bool) -> None:
        self.kind = kind
        self.tail_ok = tail_ok
        self.nonlocals: set[str] = set()
        self.declared: set[str] = set()
        self.blocks = 0
        self.loops = 0
        self.crossing: Var | None = None


class Loop:
    """A loop that tail calls of its name continue: its function and the variables they assign."""

    __slots__ = ("fn", "params")

    def __init__(self, fn: PyFn, params: list[Var]) -> None:
        self.fn = fn
        self.params = params


def height(node: ast.AST) -> int:
    return getattr(node, "_h", 0)


def is_bool(value: ast.expr) -> bool:
    """Whether code always yields True or False."""
    if isinstance(value, ast.Compare) or getattr(value, "_bool", False):
        return True
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.op, ast.Not)
    if isinstance(value, ast.BoolOp):
        return all(map(is_bool, value.values))
    if isinstance(value, ast.IfExp):
        return is_bool(value.body) and is_bool(value.orelse)
    if isinstance(value, ast.Constant):
        return type(value.value) is bool
    return False


def as_bool(value: ast.expr) -> ast.expr:
    """Note that code gives True or False."""
    value._bool = True  # type: ignore[attr-defined]
    return value
