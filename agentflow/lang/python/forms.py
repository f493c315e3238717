"""Forms: calls with their own compilation rules. Their table, and the arguments they accept."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.lang.python.emitter import Emitter

Write = Callable[[Emitter, ast.Call], ast.expr]


@frozen
class PythonForm:
    """A form: ``usage`` is its syntax, ``about`` its description, ``write`` the rule that writes its code.

    ``takes`` is a word of :mod:`agentflow.lang.literals` for the types of its arguments, ``gives`` the type of its value.
    For a form with a number and code that it ``runs``, ``runs`` gives the position of each. ``asks`` names the effect
    that a policy may guard. ``calls``: its first argument is called.
    """

    name: str
    usage: str
    about: str
    write: Write
    takes: str | None = None
    gives: type[Any] | None = None
    runs: tuple[int, int] | None = None
    asks: str | None = None
    calls: bool = False


FORMS: dict[str, PythonForm] = {}
"""The forms by name. Names with a dot are those that models write on their own, of ``asyncio`` and similar modules."""


def form(usage: str, *also: str, **columns: Any) -> Callable[[Write], Write]:
    """Declare that the function writes the calls of a form, and of the names ``also``. The columns are those of :class:`PythonForm`."""

    def mark(write: Write) -> Write:
        name = usage.partition("(")[0]
        about = inspect.getdoc(write) or ""
        for each in (name, *also):
            FORMS[each] = PythonForm(each, usage, about, write, **columns)
        return write

    return mark


def keywords_of(
    g: Emitter, node: ast.Call, least: int, most: int, *names: str, usage: str | None = None
) -> dict[str, ast.expr] | None:
    """The keyword arguments of a form, if its number of positional arguments is right; else an error."""
    keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
    fits = least <= len(node.args) <= most and len(keywords) == len(node.keywords) and set(names).issuperset(keywords)
    if not fits or any(isinstance(each, ast.Starred) for each in node.args):
        misused(g, node, usage)
        return None
    return keywords


def misused(g: Emitter, node: ast.Call, usage: str | None = None) -> ast.expr:
    """Collect the error with the syntax of a form; None as its code."""
    name = ast.unparse(node.func)
    written = usage or (FORMS[name].usage if name in FORMS else name)
    g.wrong(node, "form/arity", f"'{name}' is not called like this", f"write {written}")
    return g.const(None)


def optional(g: Emitter, node: ast.Call, options: dict[str, ast.expr], at: int, name: str) -> ast.expr:
    """The code of an argument by position ``at`` or by ``name``; None without."""
    value = node.args[at] if len(node.args) > at else options.get(name)
    return g.const(None) if value is None else g.value(value)
