"""The constants of a text in Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from agentflow.exploration.constants import LARGEST, Comparisons, Constants, words_of

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
    comparisons = Comparisons()
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
                operands = [node.left, *node.comparators]
                for each in operands:
                    compared.update(dict.fromkeys(_texts(each)))
                comparisons.note([name for each in operands for name in _names(each)], _constants(operands))
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
    return Constants(tuple(numbers), tuple(words), tuple(keys), parses, reads_numbers, deadlines, comparisons.all)


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


def _names(node: ast.expr) -> list[str]:
    """The names of an operand of a comparison: the field, variable or task that it is the value of."""
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [node.attr]
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return [key]
        case ast.Await():
            return _names(node.value)
        case ast.Call(func=ast.Attribute(), args=[ast.Constant(value=str() as key), *_]) if (
            _name(node.func) in _LOOKUPS
        ):
            return [key]
        case ast.Call(func=ast.Attribute() as method, args=[]):  # of a text: in lower case, without spaces
            return _names(method.value)
        case ast.Call():
            return [_name(node.func), *(name for each in node.args[:1] for name in _names(each))]
        case _:
            return []


def _constants(operands: list[ast.expr]) -> list[Any]:
    """The constants among the operands of a comparison, and in the collections that they list."""
    values: list[Any] = []
    for each in operands:
        if isinstance(each, ast.Constant):
            values.append(each.value)
        elif isinstance(each, ast.List | ast.Tuple | ast.Set):
            values += _constants(each.elts)
        elif isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.USub):
            values += [-value for value in _constants([each.operand]) if isinstance(value, int | float)]
    return values


def _texts(node: ast.expr) -> list[str]:
    """The texts that an operand is, or that it lists."""
    if isinstance(node, ast.Constant):
        return words_of(node.value) if isinstance(node.value, str) else []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [word for each in node.elts for word in _texts(each)]
    return []
