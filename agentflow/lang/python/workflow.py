"""``@workflow``: what a text declares of itself, so that it can be saved and called by name."""

from __future__ import annotations

import ast
from typing import Any

from agentflow.lang.python.declarations import Unclear, no_type, schema_of
from agentflow.lang.python.emitter import Emitter
from agentflow.lang.python.functions import DECORATORS, is_literal

_PLAIN = frozenset(("string", "integer", "number", "boolean"))
_USAGE = '@workflow(allow=["review"])'


def declaration(g: Emitter, *, undecorated: bool = False) -> dict[str, Any] | None:
    """The ``params``, ``allow`` and ``description`` of the workflow that a text declares; None if it declares none.

    With ``undecorated`` those of any text that has a ``main``. Records in ``g`` what is wrong with the declaration.
    """
    main = g.scopes.function("main")
    decorator = None if main is None else _decorator(main)
    if main is None or (decorator is None and not undecorated):
        return None
    g.suite([each for each in g.tree.body if isinstance(each, ast.ClassDef)])
    return {
        "params": _params(g, main.args),
        "allow": None if decorator is None else _allow(g, decorator),
        "description": " ".join((ast.get_docstring(main) or "").split()),
    }


def _decorator(main: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    for each in main.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name) and called.id == "workflow":
            return each
    return None


def _params(g: Emitter, args: ast.arguments) -> dict[str, Any]:
    """The parameters of ``main`` as a template declares its own."""
    positional = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(positional) - len(args.defaults)), *args.defaults, *args.kw_defaults]
    params: dict[str, Any] = {}
    for parameter, default in zip([*positional, *args.kwonlyargs], defaults, strict=True):
        fields = params[parameter.arg] = _type(g, parameter.annotation)
        if default is not None and is_literal(default):
            fields.update(required=False, default=ast.literal_eval(default))
    return params


def _type(g: Emitter, annotation: ast.expr | None) -> dict[str, Any]:
    if annotation is None or (isinstance(annotation, ast.Name) and annotation.id in ("Any", "object")):
        return {}
    try:
        schema = schema_of(g, annotation)
    except Unclear as unclear:
        no_type(g, unclear, "this is no type of a workflow's parameter")
        return {}
    kind = schema.get("type")
    return {"type": kind} if schema == {"type": kind} and kind in _PLAIN else {"json_schema": schema}


def _allow(g: Emitter, decorator: ast.expr) -> list[str] | None:
    """The names that the workflow may call; None for all that its caller may."""
    if not isinstance(decorator, ast.Call):
        return None
    named = {each.arg: each.value for each in decorator.keywords}
    if decorator.args or named.keys() - {"allow"}:
        g.wrong(decorator, "form/arity", "'@workflow' takes the names that it may call", f"write {_USAGE}")
    listed = named.get("allow")
    if listed is None:
        return None
    names = listed.elts if isinstance(listed, ast.List | ast.Tuple) else [listed]
    texts = [each.value for each in names if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if len(texts) != len(names) or not isinstance(listed, ast.List | ast.Tuple):
        g.wrong(listed, "form/clause", "'allow' is a list of names", f"write {_USAGE}")
    return texts


def workflow(g: Emitter, node: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.expr) -> None:
    """``@workflow`` above a function, which it leaves a function; its arguments are for ``main`` of the text."""
    if isinstance(decorator, ast.Call) and (g.scope.parent is not None or node.name != "main"):
        g.refuse(decorator, "'@workflow(...)' here", "only main declares a workflow; write @workflow")
        return
    _allow(g, decorator)


DECORATORS["workflow"] = workflow
