"""Literal arguments of a type that a function, method or form does not take, found before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from agentflow.core.data.values import OrderedSet
from agentflow.lang.closure import Closure
from agentflow.lang.literals import ANYTHING, misfit
from agentflow.lang.python.builtins import BUILTINS, ISINSTANCE
from agentflow.lang.python.compare import NUMBERS
from agentflow.lang.python.errors import article, kind_of_type
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.functions import known_function
from agentflow.lang.python.lowering import Lowering
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.rows import Row

KEYWORDS: dict[str, str] = {"key": "P", "reverse": "w", "limit": "I", "timeout": "x"}
"""The types of arguments passed by keyword only, or of forms."""
_WHAT = {
    **dict.fromkeys("nNx", "a number"),
    **dict.fromkeys("iIw", "an integer"),
    **dict.fromkeys("sS", "text"),
    **dict.fromkeys("pP", "a function"),
    "v": "a number, or text",
    "u": "text, or a tuple of texts",
    "t": "what is not a text",
    "c": "a list, or another collection",
    "k": "a key",
    "m": "a dict, or a list of pairs",
}
_DISPLAYS: dict[type[ast.AST], type[Any]] = {
    ast.JoinedStr: str,
    ast.List: list,
    ast.ListComp: list,
    ast.GeneratorExp: list,
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.Tuple: tuple,
    ast.Set: OrderedSet,
    ast.SetComp: OrderedSet,
    ast.Lambda: Closure,
}
_NUMBERS = (int, float)
_JOINED = (str, list, tuple)
"""The types that '+' joins with values of the same type."""


def type_of(g: Lowering, node: ast.expr) -> type[Any] | None:
    """The exact type that an expression always has; None if it varies."""
    if isinstance(node, ast.Constant):
        return type(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return type(node.operand.value)
    if isinstance(node, ast.Name):
        var = g.scope.find(node.id)
        if known_function(g, node.id, var) is not None:
            return Closure
        if var is not None:
            return g.kinds.of_variable(var)
        is_function = g.kind(g.callable_name(node.id)) in ("task", "tool") or node.id in BUILTINS
        return Closure if is_function and g.kind(node.id) != "variable" else None
    if isinstance(node, ast.Call):
        return _result(g, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = (type_of(g, node.left), type_of(g, node.right))
        return next((each for each in sides if each in _JOINED), None)
    return _DISPLAYS.get(type(node))


def _result(g: Lowering, node: ast.Call) -> type[Any] | None:
    """The type that a function of the table always returns, if any."""
    function = node.func
    if isinstance(function, ast.Name):
        name, root = function.id, function.id
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name, root = f"{function.value.id}.{function.attr}", function.value.id
    else:
        return None
    row = FORMS.get(name) or BUILTINS.get(name) or (ISINSTANCE if name == ISINSTANCE.name else None)
    return row.gives if row is not None and g.scope.find(root) is None and g.kind(root) == "unknown" else None


def check_sum(g: Lowering, node: ast.BinOp) -> None:
    """Note a sum of values that cannot be added."""
    left, right = type_of(g, node.left), type_of(g, node.right)
    if left is None or right is None or (left in NUMBERS and right in NUMBERS) or (left is right and left in _JOINED):
        return
    hint = 'write an f-string: f"{a}{b}"; str(x) makes text of a value' if str in (left, right) else None
    if list in (left, right):
        hint = "[*a, *b] joins lists and other iterables; xs.append(x) adds one element"
    kinds = f"{article(kind_of_type(left))} and {article(kind_of_type(right))}"
    g.fails(node, "type/argument", f"'+' does not work on {kinds}", hint)


def check_builtin(g: Lowering, node: ast.Call, row: Row) -> None:
    """Note an argument of a function that it certainly does not take."""
    word = (row.alone if len(node.args) == 1 else None) or row.takes
    usage = row.hint or f"{row.name}({', '.join(row.names)})"
    _check(g, node, row.name, word, usage, () if row.positional < 0 else row.names[: row.positional])


def check_form(g: Lowering, node: ast.Call, name: str) -> None:
    """The same for a form; and whether a number is passed for the code it runs."""
    form = FORMS[name]
    usage, (number, run) = form.usage, form.runs or (0, 0)
    if number != run and len(node.args) > max(number, run):
        first, second = node.args[number], node.args[run]
        if type_of(g, second) in _NUMBERS and isinstance(first, ast.Call | ast.Await | ast.Lambda):
            message = f"{name} runs its {'second' if run else 'first'} argument, and that is a number here"
            g.fails(node, "type/argument", message, f"the other way round: {usage}")
            return
    _check(g, node, name, form.takes, usage, ())


def check_method(g: Lowering, node: ast.Call, function: ast.Attribute) -> None:
    """The same for a method, in every type that has it and that its value may have; and whether that type has it."""
    name = function.attr
    kind = type_of(g, function.value)
    having = [each for each in METHODS if name in METHODS[each] or (name == "sort" and each is list)]
    if kind is not None and kind not in having:
        shown = article(kind_of_type(kind))
        if str in having and len(node.args) == 1 and name == "join":
            hint = METHODS[str][name].hint
        else:
            hint = f"it is a method of {' and '.join(kind_of_type(each) for each in having)}"
        g.fails(node, "name/not-here", f"{shown} has no method '{name}'", hint)
        return
    entries = [METHODS[each][name] for each in having if kind in (None, each) and name != "sort"]
    if not any(isinstance(each, ast.Starred) for each in node.args) and all(each.arg for each in node.keywords):
        problems = [each.problem(len(node.args), [str(key.arg) for key in node.keywords]) for each in entries]
        first = problems[0] if problems else None
        if first is not None and all(each is not None for each in problems):
            g.fails(node, first.code, first.message, first.hint)
            return
    words = [each.takes for each in entries]
    if None in words:
        return
    kinds = _kinds(g, node.args)
    wrong = [misfit(each, kinds) for each in words if each is not None]
    if wrong and all(each is not None for each in wrong):
        entry = METHODS[having[0]][name]
        usage = entry.hint or f"x.{name}({', '.join(entry.names)})"
        _check(g, node, name, words[0], usage, ())


def _kinds(g: Lowering, nodes: Iterable[ast.expr]) -> list[type[Any] | None]:
    """The types of positional arguments as far as they are certain: none is certain after a starred one."""
    kinds: list[type[Any] | None] = []
    for each in nodes:
        if isinstance(each, ast.Starred):
            break
        kinds.append(type_of(g, each))
    return kinds


def _check(g: Lowering, node: ast.Call, name: str, word: str | None, usage: str, names: tuple[str, ...]) -> None:
    wrong = None if word is None else misfit(word, _kinds(g, node.args))
    if wrong is not None:
        which = "" if len(node.args) == 1 else f" as argument {wrong.index + 1}"
        message = f"{name} takes {_WHAT[wrong.letter]}{which}, and is given {article(kind_of_type(wrong.kind))}"
        hint = f"the other way round: {usage}" if wrong.swapped else f"write {usage}"
        g.fails(node.args[wrong.index], "type/argument", message, hint)
    for each in node.keywords:
        if each.arg is None:
            continue
        at = names.index(each.arg) if each.arg in names else -1
        letters = word if word is not None and at >= 0 else KEYWORDS.get(each.arg)
        if letters is None:
            continue
        wrong = misfit(letters, [*[None] * max(at, 0), type_of(g, each.value)])
        if wrong is not None:
            what = f"{_WHAT[wrong.letter]} as {each.arg}"
            message = f"{name} takes {what}, and is given {article(kind_of_type(wrong.kind))}"
            g.fails(each.value, "type/argument", message, f"write {usage}")


def literal(node: ast.expr) -> Any:
    """The value of an expression as far as it is literal; ``ANYTHING`` for each other part."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value: Any = node.operand.value
        return -value if type(value) in _NUMBERS else ANYTHING
    if isinstance(node, ast.List) and not any(isinstance(each, ast.Starred) for each in node.elts):
        return [literal(each) for each in node.elts]
    if isinstance(node, ast.Dict) and all(isinstance(each, ast.Constant) for each in node.keys):
        keys = [each.value for each in node.keys if isinstance(each, ast.Constant)]
        return dict(zip(keys, map(literal, node.values), strict=True))
    return ANYTHING
