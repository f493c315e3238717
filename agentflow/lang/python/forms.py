"""Forms: calls with their own compilation rules. Their table, and the arguments they accept."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.lang.kernel.nodes import Const, Node
from agentflow.lang.python.lowering import Lowering

Lower = Callable[[Lowering, ast.Call], Node]


@frozen
class PythonForm:
    """A form: ``usage`` is its syntax, ``about`` its description, ``lower`` its rule.

    ``takes`` is a word of :mod:`agentflow.lang.literals` for the types of its arguments, ``gives`` the type of its value.
    For a form with a number and code that it ``runs``, ``runs`` gives the position of each. ``asks`` names the effect
    that a policy may guard. ``calls``: its first argument is called.
    """

    name: str
    usage: str
    about: str
    lower: Lower
    takes: str | None = None
    gives: type[Any] | None = None
    runs: tuple[int, int] | None = None
    asks: str | None = None
    calls: bool = False


FORMS: dict[str, PythonForm] = {}
"""The forms by name. Names with a dot are those that models write on their own, of ``asyncio`` and similar modules."""


def form(usage: str, *also: str, **columns: Any) -> Callable[[Lower], Lower]:
    """Declare that the function is the rule for the calls of a form, and of the names ``also``. The columns are those of :class:`PythonForm`."""

    def mark(lower: Lower) -> Lower:
        name = usage.partition("(")[0]
        about = inspect.getdoc(lower) or ""
        for each in (name, *also):
            FORMS[each] = PythonForm(each, usage, about, lower, **columns)
        return lower

    return mark


def keywords_of(
    g: Lowering, node: ast.Call, least: int, most: int, *names: str, usage: str | None = None
) -> dict[str, ast.expr] | None:
    """The keyword arguments of a form, if its number of positional arguments is right; else an error."""
    keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
    fits = least <= len(node.args) <= most and len(keywords) == len(node.keywords) and set(names).issuperset(keywords)
    if not fits or any(isinstance(each, ast.Starred) for each in node.args):
        misused(g, node, usage)
        return None
    return keywords


def misused(g: Lowering, node: ast.Call, usage: str | None = None) -> Node:
    """Collect the error with the syntax of a form."""
    name = ast.unparse(node.func)
    written = usage or (FORMS[name].usage if name in FORMS else name)
    g.wrong(node, "form/arity", f"'{name}' is not called like this", f"write {written}")
    return g.refused()


def optional(g: Lowering, node: ast.Call, options: dict[str, ast.expr], at: int, name: str) -> Node:
    """An argument by position ``at`` or by ``name``; None without."""
    value = node.args[at] if len(node.args) > at else options.get(name)
    return Const(None, None) if value is None else g.value(value)
