"""Calls of tasks and tools, which take their arguments by name, and of records."""

from __future__ import annotations

import ast
from typing import Any

from agentflow.core.data.names import NameInfo
from agentflow.lang.literals import mismatch
from agentflow.lang.python.emitter import Emitter
from agentflow.lang.python.support import (
    arguments_of,
    data_of,
    data_of_dict,
    outcome_of,
    outcome_of_dict,
    task_procedure,
)
from agentflow.lang.python.takes import literal
from agentflow.lib.text.suggest import did_you_mean


def call_task(g: Emitter, node: ast.Call, name: str, function: Any = data_of) -> ast.expr:
    """A call of a task or tool: its data or text, or with ``outcome_of`` its result."""
    own = name in g.own_tasks or g.info(name).untrusted
    if not g.granted(name, node.func, own=own):
        return g.const(None)
    g.meanings[node] = ("effect", name)
    args, names, spread = _named(g, node, name)
    constant = g.packed_constant(("names", names), lambda: names)
    arguments = [g.name("rt"), g.name("d"), g.env(), g.const(name), constant, g.tuple_of(args), g.span_constant(node)]
    if spread:
        every = g.ours(arguments_of, constant, g.tuple_of(args), *spread)
        arguments = [*arguments[:4], *arguments[6:], g.long(every) if g.labelled else every]
        return g.await_(g.ours(_SPREAD[function], *arguments))
    return g.await_(g.ours(function, *arguments))


def _named(g: Emitter, node: ast.Call, name: str) -> tuple[list[ast.expr], tuple[str, ...], list[ast.expr]]:
    """The arguments of a call by name, in the order of the text; and the dicts behind ``**``."""
    info, title = g.info(name), ast.unparse(node.func)
    declared = list(info.parameters or ())
    if any(isinstance(each, ast.Starred) for each in node.args):
        g.refuse(node, "'*' in a call of a task", "name the arguments, or give **d")
        return [], (), []
    if len(node.args) > len(declared):
        hint = (
            f"it takes {', '.join(declared) or 'no parameters'}" if info.parameters is not None else f"{title}(x=...)"
        )
        g.wrong(node, "call/positional", f"'{title}' is given {len(node.args)} arguments by position", hint)
        return [], (), []
    args = [g.value(each) for each in node.args]
    names = declared[: len(node.args)]
    for each, value in zip(names, node.args, strict=True):
        _check_literal(g, title, info, each, value)
    spread: list[ast.expr] = []
    for each in node.keywords:
        if each.arg is None:
            spread.append(g.value(each.value))
            continue
        if each.arg in names:
            g.wrong(each, "call/duplicate", f"'{title}' is given '{each.arg}' twice")
        elif info.parameters is not None and info.parameter(each.arg) is None and not info.open:
            hint = did_you_mean(each.arg, [*declared, *info.reserved]) or f"it takes {', '.join(declared)}"
            g.wrong(each, "call/unknown-parameter", f"'{title}' has no parameter '{each.arg}'", hint)
        _check_literal(g, title, info, each.arg, each.value)
        names.append(each.arg)
        args.append(g.value(each.value))
    if info.parameters is not None and not spread and "inputs" not in names:
        missing = [each for each, about in info.parameters.items() if about.required and each not in names]
        if missing:
            shown = ", ".join(f"'{each}'" for each in missing)
            hint = f"write {title}({', '.join(f'{each}=...' for each in declared)})"
            g.wrong(node, "call/missing-parameter", f"the call of '{title}' misses {shown}", hint)
    return args, tuple(names), spread


def _check_literal(g: Emitter, title: str, info: NameInfo, name: str, node: ast.expr) -> None:
    """Note a literal that the schema of a parameter certainly rejects."""
    parameter = info.parameter(name) if g.seeks_failures and info.parameters is not None else None
    if parameter is None:
        return
    value = literal(node)
    if value is None and not parameter.required:  # None stands for the default
        return
    problem = mismatch(value, parameter.schema, lenient=info.lenient)
    if problem is not None:
        code = "call/unknown-key" if problem.key else "call/argument"
        g.fails(node, code, f"'{name}' of '{title}': {problem.text}", problem.hint)


_SPREAD: dict[Any, Any] = {data_of: data_of_dict, outcome_of: outcome_of_dict}
"""What is called with the arguments in a dict."""


def task_value(g: Emitter, node: ast.Name, name: str) -> ast.expr:
    """A task or tool as a value: a procedure of its parameters in order."""
    info: NameInfo = g.info(name)
    g.meanings[node] = ("effect", name)
    if not g.granted(name, node, own=name in g.own_tasks or info.untrusted):
        return g.const(None)
    names = (
        tuple(each for each, about in (info.parameters or {}).items() if about.required)
        or tuple(info.parameters or ())[:1]
    )
    constant = g.packed_constant(("names", names), lambda: names)
    return g.ours(task_procedure, g.name("rt"), g.env(), g.const(name), constant, g.span_constant(node))


def record(g: Emitter, node: ast.Call, name: str) -> ast.expr:
    """``Review(worst="...", grade="low")``: a dict with the fields of the class, in order."""
    fields: dict[str, ast.expr | None] = g.records[name]
    g.meanings[node] = ("record", name)
    values = dict(zip(fields, node.args, strict=False))
    values.update({each.arg: each.value for each in node.keywords if each.arg is not None})
    if any(each.arg is None for each in node.keywords):
        g.refuse(node, f"'**' in {name}(...)", "a record is a dict: {**d} has the fields of d")
        return g.const(None)
    unknown = [each for each in values if each not in fields]
    missing = [each for each, default in fields.items() if default is None and each not in values]
    if unknown or missing or len(node.args) > len(fields) or len(values) != len(node.args) + len(node.keywords):
        what = (
            f"has no field '{unknown[0]}'"
            if unknown
            else f"misses {', '.join(missing)}"
            if missing
            else "has too many values"
        )
        hint = did_you_mean(unknown[0], fields) if unknown else None
        g.wrong(node, "call/argument", f"{name}(...) {what}", hint or f"its fields are {', '.join(fields)}")
        return g.const(None)
    entries = [(each, values.get(each) or default) for each, default in fields.items()]
    keys: list[ast.expr | None] = [g.const(each) for each, _ in entries]
    return ast.Dict(keys, [g.value(value) for _, value in entries if value is not None], **g.loc)
