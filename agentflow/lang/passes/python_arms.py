"""Marks the branches of a text in Python, so that a run reports which of them it reached, and how often its loops went
round."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from agentflow.core.data.source import Span
from agentflow.lang.passes.arms import Arm, ArmKind
from agentflow.lang.python.functions import without_docstring
from agentflow.lang.python.lowering import Lowering

_BRANCHES = frozenset(("parallel", "race", "gather"))


def mark_python_arms(g: Lowering, reach: Callable[[int], None]) -> list[Arm]:
    """Have the code that ``g`` is about to write call ``reach`` with the number of each arm that it comes to; the arms, by number."""
    marker = _PythonMarker(g)
    marker.walk()
    g.reach = reach
    return marker.arms


class _PythonMarker:
    def __init__(self, g: Lowering) -> None:
        self._g = g
        self.arms: list[Arm] = []
        self._calls: dict[str, set[str]] = {}

    def walk(self) -> None:
        """Mark all arms."""
        functions = [
            each for each in ast.walk(self._g.tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for each in functions:
            self._calls.setdefault(each.name, set()).update(_called(each))
        pending: list[tuple[ast.AST, Mapping[str, ast.AST]]] = [(self._g.tree, {})]
        while pending:
            node, around = pending.pop()
            inside = around
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = {**around, node.name: node}
            self._visit(node, around)
            pending.extend((each, inside) for each in reversed(list(ast.iter_child_nodes(node))))

    def _visit(self, node: ast.AST, around: Mapping[str, ast.AST]) -> None:
        match node:
            case ast.If():
                self._statements("then", node.body)
                self._statements("else", node.orelse)
            case ast.IfExp():
                self._mark("then", node.body)
                self._mark("else", node.orelse)
            case ast.BoolOp():
                for each in node.values[1:]:
                    self._mark("operand", each)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not self._is_task(node):
                self._statements("body", without_docstring(node.body))
            case ast.Lambda():
                self._mark("body", node.body)
            case ast.For():
                self._statements("body", node.body)
                self._statements("else", node.orelse)
            case ast.While():
                self._statements("round", node.body, node)
                self._statements("else", node.orelse)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                self._mark("body", node.elt)
            case ast.DictComp():
                self._mark("body", node.value)
            case ast.Try():
                self._statements("else", node.orelse)
            case ast.ExceptHandler():
                self._statements("handler", node.body)
            case ast.Call():
                self._call(node, around)
            case _:
                pass

    def _is_task(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a function is a prompt, which is not run."""
        return bool(node.decorator_list) and node.name in self._g.own_tasks

    def _call(self, node: ast.Call, around: Mapping[str, ast.AST]) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if last in _BRANCHES:
            for each in node.args:
                branch = each.body if isinstance(each, ast.Lambda) else each
                if not isinstance(branch, ast.Starred):
                    self._mark("branch", branch)
        loops = [at for caller, at in around.items() if name is not None and self._comes_to(name, caller)]
        if loops:
            self._mark("round", node, loops[-1])

    def _comes_to(self, start: str, end: str) -> bool:
        """Whether a function calls another one, directly or through others, or is that one."""
        reached, pending = {start}, [start]
        while pending:
            for each in self._calls.get(pending.pop(), ()):
                if each not in reached:
                    reached.add(each)
                    pending.append(each)
        return end in reached

    def _statements(self, kind: ArmKind, nodes: Sequence[ast.stmt], loop: ast.AST | None = None) -> None:
        if nodes:
            self._mark(kind, nodes[0], loop, loop)

    def _mark(self, kind: ArmKind, node: ast.AST, loop: ast.AST | None = None, at: ast.AST | None = None) -> None:
        """Have ``node`` report that it is reached; ``at`` is the location of the branch, if different."""
        self._g.marks.setdefault(node, []).append(len(self.arms))
        self.arms.append(Arm(kind, self._span(at or node), None if loop is None else self._span(loop)))

    def _span(self, node: ast.AST) -> Span:
        return self._g.span_at(node)


def _called(function: ast.AST) -> Iterator[str]:
    for each in ast.walk(function):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            yield each.func.id
