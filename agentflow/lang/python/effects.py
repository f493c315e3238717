"""Calls of tasks and tools, and the forms that run their arguments themselves."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from agentflow.core.effects import CallWorkflow, GetContext, LogMessage
from agentflow.core.names import NameInfo
from agentflow.lang.codegen import LOAD
from agentflow.lang.python.emitter import Emitter
from agentflow.lang.python.functions import procedure, thunk
from agentflow.lang.python.support import (
    arguments_of,
    context_paths,
    data_of,
    data_of_dict,
    listed,
    log_text,
    outcome_of,
    outcome_of_dict,
    task_procedure,
)
from agentflow.lib.suggest import did_you_mean

Form = Callable[[Emitter, ast.Call], ast.expr]


# -- tasks and tools ----------------------------------------------------------------------------------------------


def call_task(g: Emitter, node: ast.Call, name: str, function: Any = data_of) -> ast.expr:
    """A call of a task or tool: its data or text, or with ``outcome_of`` its result."""
    own = name in g.own_tasks or g.info(name).untrusted
    if not g.granted(name, node.func, own=own):
        return g.const(None)
    args, names, spread = _named(g, node, name)
    constant = g.packed_constant(("names", names), lambda: names)
    given = [g.name("rt"), g.name("d"), g.env(), g.const(name), constant, g.tuple_of(args), g.span_constant(node)]
    if spread:
        given = [*given[:4], *given[6:], g.ours(arguments_of, constant, g.tuple_of(args), *spread)]
        return g.await_(g.ours(_SPREAD[function], *given))
    return g.await_(g.ours(function, *given))


def _named(g: Emitter, node: ast.Call, name: str) -> tuple[list[ast.expr], tuple[str, ...], list[ast.expr]]:
    """The arguments of a call by name, in the order of the text; and the dicts behind ``**``."""
    info = g.info(name)
    declared = list(info.parameters or ())
    if any(isinstance(each, ast.Starred) for each in node.args):
        g.refuse(node, "'*' in a call of a task", "name the arguments, or give **d")
        return [], (), []
    if len(node.args) > len(declared):
        hint = f"it takes {', '.join(declared) or 'no parameters'}" if info.parameters is not None else f"{name}(x=...)"
        g.wrong(node, "call/positional", f"'{name}' is given {len(node.args)} arguments by position", hint)
        return [], (), []
    args = [g.value(each) for each in node.args]
    names = declared[: len(node.args)]
    spread: list[ast.expr] = []
    for each in node.keywords:
        if each.arg is None:
            spread.append(g.value(each.value))
            continue
        if each.arg in names:
            g.wrong(each.value, "call/duplicate", f"'{name}' is given '{each.arg}' twice")
        elif info.parameters is not None and info.parameter(each.arg) is None and not info.open:
            hint = did_you_mean(each.arg, [*declared, *info.reserved]) or f"it takes {', '.join(declared)}"
            g.wrong(each.value, "call/unknown-parameter", f"'{name}' has no parameter '{each.arg}'", hint)
        names.append(each.arg)
        args.append(g.value(each.value))
    if info.parameters is not None and not spread and "inputs" not in names:
        missing = [each for each, about in info.parameters.items() if about.required and each not in names]
        if missing:
            shown = ", ".join(f"'{each}'" for each in missing)
            hint = f"write {name}({', '.join(f'{each}=...' for each in declared)})"
            g.wrong(node, "call/missing-parameter", f"the call of '{name}' misses {shown}", hint)
    return args, tuple(names), spread


_SPREAD: dict[Any, Any] = {data_of: data_of_dict, outcome_of: outcome_of_dict}
"""What is called with the arguments in a dict."""


def task_value(g: Emitter, node: ast.Name, name: str) -> ast.expr:
    """A task or tool as a value: a procedure of its parameters in order."""
    info: NameInfo = g.info(name)
    if not g.granted(name, node, own=name in g.own_tasks or info.untrusted):
        return g.const(None)
    names = (
        tuple(each for each, about in (info.parameters or {}).items() if about.required)
        or tuple(info.parameters or ())[:1]
    )
    constant = g.packed_constant(("names", names), lambda: names)
    return g.ours(task_procedure, g.name("rt"), g.env(), g.const(name), constant, g.span_constant(node))


# -- forms --------------------------------------------------------------------------------------------------------


def _arguments(
    g: Emitter, node: ast.Call, usage: str, least: int, most: int, *names: str
) -> dict[str, ast.expr] | None:
    """The arguments of a form by keyword, if there are as many by position as it takes; else an error."""
    keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
    fits = least <= len(node.args) <= most and len(keywords) == len(node.keywords) and set(names).issuperset(keywords)
    if not fits or any(isinstance(each, ast.Starred) for each in node.args):
        g.wrong(node, "form/arity", f"this is written {usage}", None)
        return None
    return keywords


def _thunks(g: Emitter, nodes: list[ast.expr]) -> ast.expr:
    return ast.List([thunk(g, each) for each in nodes], LOAD, **g.loc)


def parallel(g: Emitter, node: ast.Call) -> ast.expr:
    """``parallel(a, b, ...)`` and ``parallel(*[f(x) for x in xs])``."""
    only = node.args[0] if len(node.args) == 1 else None
    if isinstance(only, ast.Starred) and isinstance(only.value, ast.ListComp | ast.GeneratorExp):
        return _each(g, node, only.value)
    if _arguments(g, node, "parallel(f(a), g(b), ...)", 0, 10_000) is None:
        return g.const(None)
    return g.operation_at("parallel", node, _thunks(g, node.args))


def _each(g: Emitter, node: ast.Call, over: ast.ListComp | ast.GeneratorExp) -> ast.expr:
    generator = over.generators[0]
    if len(over.generators) > 1 or generator.ifs or not isinstance(generator.target, ast.Name):
        g.refuse(over, "such a comprehension of branches", "pmap(f, xs) goes over a list of what f takes")
        return g.const(None)
    scope = g.scopes.scopes[over]
    g.counter += 1
    py, var = f"each_{g.counter}", scope.vars[generator.target.id]
    items = g.ours(listed, g.name("rt"), g.value(generator.iter))

    def build() -> list[ast.stmt]:
        value = g.value(over.elt)
        return [*g.flushed(), ast.Return(value, **g.loc)]

    g.before.append(g.define(py, [var.py], scope, build))
    return g.operation_at("pmap", node, procedure(g, py, (var.name,), over), items)


def pmap(g: Emitter, node: ast.Call) -> ast.expr:
    """``pmap(f, xs, limit=8)``."""
    given = _arguments(g, node, "pmap(f, xs, limit=8)", 2, 3, "limit")
    if given is None:
        return g.const(None)
    function = g.value(node.args[0])
    items = g.ours(listed, g.name("rt"), g.value(node.args[1]))
    limit = node.args[2] if len(node.args) == 3 else given.get("limit")
    return g.operation_at("pmap", node, function, items, g.const(None) if limit is None else g.value(limit))


def race(g: Emitter, node: ast.Call) -> ast.expr:
    """``race(a, b, ...)``."""
    if _arguments(g, node, "race(f(a), g(b), ...)", 1, 10_000) is None:
        return g.const(None)
    return g.operation_at("race", node, _thunks(g, node.args))


def timeout(g: Emitter, node: ast.Call) -> ast.expr:
    """``timeout(30, x)``."""
    if _arguments(g, node, "timeout(30, f(x))", 2, 2) is None:
        return g.const(None)
    seconds = g.value(node.args[0])
    return g.operation_at("timeout", node, seconds, thunk(g, node.args[1]))


def wait_for(g: Emitter, node: ast.Call) -> ast.expr:
    """``asyncio.wait_for(x, 30)``."""
    given = _arguments(g, node, "timeout(30, f(x))", 1, 2, "timeout")
    seconds = None if given is None else node.args[1] if len(node.args) == 2 else given.get("timeout")
    if seconds is None:
        g.wrong(node, "form/arity", "this is written timeout(30, f(x))", None)
        return g.const(None)
    code = g.value(seconds)
    return g.operation_at("timeout", node, code, thunk(g, node.args[0]))


def retry(g: Emitter, node: ast.Call) -> ast.expr:
    """``retry(3, x)``."""
    if _arguments(g, node, "retry(3, f(x))", 2, 2) is None:
        return g.const(None)
    tries = g.value(node.args[0])
    return g.operation_at("retry", node, tries, thunk(g, node.args[1]))


def outcome(g: Emitter, node: ast.Call) -> ast.expr:
    """``outcome(task(...))``: the result of a task or tool, which is not raised when it failed."""
    inner = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if isinstance(inner, ast.Await):
        inner = inner.value
    name = _task_name(g, inner.func) if isinstance(inner, ast.Call) else None
    if name is None or not isinstance(inner, ast.Call):
        g.wrong(node, "form/arity", "outcome takes a call of a task or tool", "write outcome(review(path))")
        return g.const(None)
    with g.at(inner):
        return call_task(g, inner, name, outcome_of)


def _task_name(g: Emitter, function: ast.expr) -> str | None:
    if isinstance(function, ast.Name):
        name = function.id if g.scope.find(function.id) is None else None
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name = f"{function.value.id}:{function.attr}"
    else:
        name = None
    return name if name is not None and g.kind(name) in ("task", "tool") else None


def print_(g: Emitter, node: ast.Call) -> ast.expr:
    """``print(...)``: a message of the run's log."""
    given = _arguments(g, node, "print(a, b, ...)", 0, 1_000, "sep", "end")
    if given is None:
        return g.const(None)
    args = [g.value(each) for each in node.args]
    separator = g.value(given["sep"]) if "sep" in given else g.const(" ")
    message = g.await_(g.ours(log_text, g.name("rt"), separator, g.tuple_of(args)))
    effect = g.call(g.const_param(LogMessage, "LogMessage"), [message])
    done = g.await_(g.call(g.rt("perform"), [effect, g.span_constant(node)]))
    return ast.Subscript(g.tuple_of([g.const(None), done]), g.const(0), LOAD, **g.loc)


def solve(g: Emitter, node: ast.Call) -> ast.expr:
    """``solve(goal, allow=["review"], max_rounds=3, inputs={...})``."""
    given = _arguments(g, node, 'solve(goal, allow=["review"])', 1, 1, "allow", "max_rounds", "inputs")
    if given is None or not g.granted("solve", node.func):
        return g.const(None)
    allow = given.pop("allow", None)
    names = _texts(allow)
    if allow is not None and names is None:
        g.wrong(allow, "form/clause", "'allow' is a list of names", 'write allow=["review"]')
    goal = g.value(node.args[0])
    options = tuple(each.replace("_", "-") for each in given)
    values = [g.value(each) for each in given.values()]
    allowed, keys = tuple(names or ()), options
    constants = [g.packed_constant(("names", each), lambda each=each: each) for each in (allowed, keys)]
    return g.operation_at("solve", node, *constants, g.env(), goal, *values)


def _texts(node: ast.expr | None) -> list[str] | None:
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    texts = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return texts if len(texts) == len(node.elts) else None


def call_workflow(g: Emitter, node: ast.Call) -> ast.expr:
    """``call_workflow("name", parameter=value)``."""
    first = node.args[0] if len(node.args) == 1 else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        g.wrong(node, "form/arity", "this is written call_workflow('name', parameter=value)", None)
        return g.const(None)
    if not g.granted(first.value, first):
        return g.const(None)
    effect = g.call(g.const_param(CallWorkflow, "CallWorkflow"), [g.const(first.value), _dict(g, node)])
    return g.await_(g.call(g.rt("perform"), [effect, g.span_constant(node)]))


def get_context(g: Emitter, node: ast.Call) -> ast.expr:
    """``get_context(query="...")``: the paths of files that matter for a question."""
    if g.allow is not None and not g.allow.intersection(("get_context", "system:get_context")):
        g.granted("get_context", node.func)
        return g.const(None)
    if len(node.args) > 1 or (node.args and any(each.arg == "query" for each in node.keywords)):
        g.wrong(node, "form/arity", 'this is written get_context("what matters", ...)', None)
        return g.const(None)
    query = ast.keyword("query", node.args[0]) if node.args else None
    whole = ast.Call(node.func, [], [*([query] if query else []), *node.keywords], **g.loc)
    effect = g.call(g.const_param(GetContext, "GetContext"), [_dict(g, whole)])
    done = g.await_(g.call(g.rt("perform"), [effect, g.span_constant(node)]))
    return g.ours(context_paths, done)


def _dict(g: Emitter, node: ast.Call) -> ast.expr:
    """The keywords of a call as a dict."""
    keys: list[ast.expr | None] = []
    values: list[ast.expr] = []
    for each in node.keywords:
        if each.arg is None:
            g.refuse(each.value, "'**' in this call", "name the arguments")
            continue
        keys.append(g.const(each.arg))
        values.append(g.value(each.value))
    return ast.Dict(keys, values, **g.loc)


def record(g: Emitter, node: ast.Call, name: str) -> ast.expr:
    """``Review(worst="...", grade="low")``: a dict with the fields of the class, in order."""
    fields: dict[str, ast.expr | None] = g.records[name]
    given = dict(zip(fields, node.args, strict=False))
    given.update({each.arg: each.value for each in node.keywords if each.arg is not None})
    unknown = [each for each in given if each not in fields]
    missing = [each for each, default in fields.items() if default is None and each not in given]
    if unknown or missing or len(node.args) > len(fields) or len(given) != len(node.args) + len(node.keywords):
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
    entries = [(each, given.get(each) or default) for each, default in fields.items()]
    keys: list[ast.expr | None] = [g.const(each) for each, _ in entries]
    return ast.Dict(keys, [g.value(value) for _, value in entries if value is not None], **g.loc)


FORMS: dict[str, Form] = {
    "parallel": parallel,
    "pmap": pmap,
    "race": race,
    "timeout": timeout,
    "retry": retry,
    "outcome": outcome,
    "print": print_,
    "solve": solve,
    "call_workflow": call_workflow,
    "get_context": get_context,
}
"""The forms by name."""
ASYNCIO: dict[str, Form] = {"asyncio.gather": parallel, "asyncio.wait_for": wait_for}
"""What of ``asyncio`` is taken for a form: models write it unasked."""
