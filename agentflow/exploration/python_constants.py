"""The constants of a text in Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agentflow.exploration.constants import LARGEST, Constants, words_of

_DEADLINES = frozenset(("timeout", "race", "wait_for"))
_LOOKUPS = frozenset(("get", "pop", "setdefault"))
_COMPARES = frozenset(("startswith", "endswith", "count", "find", "index"))


def constants_of_python(tree: ast.Module) -> Constants:
    """The constants of a text, in its order."""
    numbers: dict[int | float, None] = {}
    compared: dict[str, None] = {}
    others: dict[str, None] = {}
    keys: dict[str, None] = {}
    parses = reads_numbers = deadlines = False
    skipped: set[ast.AST] = set()
    for node in _nodes(tree):
        match node:
            case ast.Constant(value=int() | float() as number) if (
                not isinstance(number, bool) and abs(number) < LARGEST
            ):
                numbers[number] = None
            case ast.Constant(value=str() as word) if node not in skipped:
                others.update(dict.fromkeys(words_of(word)))
            case ast.JoinedStr():
                skipped.update(node.values)
            case ast.Expr(value=ast.Constant()):
                skipped.add(node.value)
            case ast.Compare():
                for each in (node.left, *node.comparators):
                    compared.update(dict.fromkeys(_texts(each)))
            case ast.Subscript(slice=ast.Constant(value=str() as key)):
                keys[key] = None
            case ast.Attribute():
                keys[node.attr] = None
            case _:
                pass
        if isinstance(node, ast.Call):
            name = _name(node.func)
            parses = parses or name == "loads"
            reads_numbers = reads_numbers or name in ("int", "float")
            deadlines = deadlines or name in _DEADLINES
            for each in node.args[:1]:
                constants = keys if name in _LOOKUPS else compared if name in _COMPARES else {}
                constants.update(dict.fromkeys(_texts(each)))
    words = [*compared, *(word for word in others if word not in compared and word not in keys)]
    return Constants(tuple(numbers), tuple(words), tuple(keys), parses, reads_numbers, deadlines)


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes in the order of the text, without annotations and decorators."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            children = list(node.body)
        elif isinstance(node, ast.ClassDef):
            children = []
        elif isinstance(node, ast.AnnAssign):
            children = [each for each in (node.target, node.value) if each is not None]
        pending.extend(reversed(children))


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _texts(node: ast.expr) -> list[str]:
    """The texts that an operand is, or lists."""
    if isinstance(node, ast.Constant):
        return words_of(node.value) if isinstance(node.value, str) else []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [word for each in node.elts for word in _texts(each)]
    return []


__all__ = ["constants_of_python"]
