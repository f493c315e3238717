"""The rules for calls, and for names of functions and modules."""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.lowered_functions import call_method, call_with_names
from agentflow.lang.kernel.nodes import Const, Node, Prim
from agentflow.lang.python import methods, world
from agentflow.lang.python.absent import ABSENT, DOTTED, HIDDEN, METHODS_ABSENT, MODULES
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS, KINDS, is_instance, sort
from agentflow.lang.python.comprehensions import collected
from agentflow.lang.python.failure import CLASSES
from agentflow.lang.python.forms import FORMS, PythonForm
from agentflow.lang.python.function_values import builtin
from agentflow.lang.python.functions import known_function
from agentflow.lang.python.lowering import Lowering, expression
from agentflow.lang.python.methods import ALL_METHODS, SORT
from agentflow.lang.python.names import Function
from agentflow.lang.python.takes import check_builtin, check_form, check_method
from agentflow.lib.text.suggest import did_you_mean, meant, suggest

_OF_LISTS = {
    "zip": "[[row[i] for row in rows] for i in range(len(rows[0]))] makes columns of rows",
    "max": "max(xs) takes a list",
    "min": "min(xs) takes a list",
    "range": "a, b = bounds, and then range(a, b)",
}
"""Advice for functions called with ``*``."""
_HERE = frozenset(("json", "math", "asyncio", "system", "time", "random", "uuid"))
"""Modules with some names that exist without an import."""
_NO_KINDS = {
    "NoneType": "x is None",
    "Mapping": "isinstance(x, dict)",
    "Sequence": "isinstance(x, (list, tuple))",
    "Iterable": "isinstance(x, (list, tuple, set, dict))",
    "Callable": "functions are called where they are taken, and cannot be passed on",
    "Exception": "errors are caught, and no values: try and except, or outcome(f(x)).status",
}
"""Advice for tests of types missing here."""


@expression(ast.Name)
def name(g: Lowering, node: ast.Name) -> Node:
    if node.id.startswith("_") and node.id != "_":
        hint = "write the statements at the end of the text" if node.id == "__name__" else HIDDEN.get(node.id)
        g.refuse(node, f"the name '{node.id}'", hint or "names do not begin with _")
        return g.refused()
    var = g.scope.find(node.id)
    at = g.span_at(node)
    if var is not None or g.kind(node.id) == "variable":
        return g.read(node.id, at)
    callee = g.callable_name(node.id)
    if g.kind(callee) in ("task", "tool"):
        return world.task_value(g, node, callee)
    if node.id in FORMS or g.is_record(node.id):
        g.wrong(node, "form/value", f"'{node.id}' is not a value", f"wrap it: lambda x: {node.id}(x)")
        return g.refused()
    if node.id in BUILTINS:
        return Const(at, builtin(BUILTINS[node.id]), BUILTINS[node.id])
    if node.id in g.foreign:
        return g.refused()
    other = nearest(g, node.id)
    hint = None if other is None else meant(other)
    if not absent(g, node):
        if g.closed:
            g.wrong(node, "name/unbound", f"'{node.id}' is not bound", hint)
        elif other is not None:
            g.doubtful.setdefault(node.id, (node, other))
    return g.read(node.id, at, hint)


def absent(g: Lowering, node: ast.Name) -> bool:
    """Whether a name is a Python name missing here, which is then an error."""
    hint = ABSENT.get(node.id)
    if hint is not None:
        g.wrong(node, "name/not-here", f"'{node.id}' is not there in workflow texts", hint)
    return hint is not None


def near(g: Lowering, wanted: str) -> str | None:
    """The hint that names the visible name closest to ``wanted``."""
    name = nearest(g, wanted)
    return None if name is None else meant(name)


def nearest(g: Lowering, wanted: str) -> str | None:
    """A visible name with a spelling close to ``wanted``."""
    names = {*BUILTINS, *FORMS, *g.scopes.defined, *g.own_tasks, *g.records}
    names.update(g.port.known_names() if g.port is not None else ())
    names.update(each.replace("-", "_") for each in g.scopes.announced(g.tree))
    scope = g.scope
    while scope.parent is not None:
        names.update(scope.vars)
        scope = scope.parent
    return suggest(wanted, names)


@expression(ast.Call)
def call_(g: Lowering, node: ast.Call) -> Node:
    function = node.func
    if isinstance(function, ast.Name):
        return _by_name(g, node, function)
    if isinstance(function, ast.Attribute):
        return _by_attribute(g, node, function)
    return generic(g, node, g.value(function))


def _by_name(g: Lowering, node: ast.Call, function: ast.Name) -> Node:
    var = g.scope.find(function.id)
    callee = known_function(g, function.id, var)
    if callee is not None and (var is not None or function.id not in g.own_tasks):
        return _direct(g, node, function, callee)
    if var is not None or g.kind(function.id) == "variable":
        return generic(g, node, g.value(function))
    name = g.callable_name(function.id)
    if g.kind(name) in ("task", "tool"):
        return world.call_task(g, node, name)
    if g.is_record(function.id):
        return world.record(g, node, function.id)
    form = FORMS.get(function.id)
    if form is not None:
        return _form(g, node, form)
    if function.id == "isinstance":
        return _isinstance(g, node)
    if function.id in BUILTINS:
        return _builtin(g, node, function.id)
    if function.id in ABSENT:
        absent(g, function)
        return g.refused()
    if function.id in g.foreign:
        return g.refused()
    if g.closed and g.allow is None:
        message = f"'{function.id}' is nothing that can be called here"
        g.wrong(function, "name/unknown-operator", message, near(g, function.id))
        return g.refused()
    if g.allow is not None:
        granted = ", ".join(sorted(g.allow)[:20]) or "none"
        hint = near(g, function.id) or f"the names it may call: {granted}"
        g.wrong(function, "name/not-granted", f"'{function.id}' is nothing this program may call", hint)
        return g.refused()
    return generic(g, node, g.value(function))


def _form(g: Lowering, node: ast.Call, form: PythonForm) -> Node:
    before = len(g.errors)
    lowered = form.lower(g, node)
    if not g.seeks_failures:
        return lowered
    start = g.span_at(node).start
    if not any(each.span is not None and each.span.start == start for each in g.errors[before:]):
        check_form(g, node, ast.unparse(node.func))
    return lowered


def _by_attribute(g: Lowering, node: ast.Call, function: ast.Attribute) -> Node:
    if function.attr.startswith("_"):
        return g.value(function)
    base = function.value
    if isinstance(base, ast.Name) and g.scope.find(base.id) is None and g.kind(base.id) == "unknown":
        dotted = f"{base.id}.{function.attr}"
        if dotted in BUILTINS:
            return _builtin(g, node, dotted)
        tool = f"{base.id}:{function.attr}"
        if g.kind(tool) in ("task", "tool"):
            return world.call_task(g, node, tool)
        form = FORMS.get(dotted)
        if form is not None:
            return _form(g, node, form)
        if base.id in _HERE or base.id in MODULES or dotted in DOTTED:
            if base.id not in g.foreign or dotted in DOTTED:
                message = f"'{dotted}' is not there in workflow texts"
                g.wrong(function, "name/not-here", message, _instead(base.id, dotted))
            return g.refused()
    if _root(base) in g.foreign and g.scope.find(_root(base)) is None:
        return g.refused()  # The refusal of the import already names the replacement.
    if function.attr == "format":
        g.wrong(function, "name/not-here", "'.format' is not there in workflow texts", 'write an f-string: f"{x:.2f}"')
        return g.refused()
    if function.attr not in ALL_METHODS:
        if function.attr not in g.foreign_methods:
            hint = METHODS_ABSENT.get(function.attr) or did_you_mean(function.attr, ALL_METHODS)
            hint = hint or f"f = x.{function.attr}, and then f(), calls the value of a field"
            g.wrong(function, "name/not-here", f"there is no method '{function.attr}'", hint)
        return g.refused()
    if g.seeks_failures:
        check_method(g, node, function)
    at, value = g.span_at(node), g.value(base)
    args, names = positional(g, node)
    if function.attr == "sort":
        if len(names) != len(args) or not {"key", "reverse"}.issuperset(names):
            unknown = [each for each in names if each not in ("key", "reverse")]
            near_one = did_you_mean(unknown[0], ("key", "reverse")) if unknown else None
            g.wrong(node, "arity/primitive", "sort() takes key= and reverse=", near_one or "xs.sort(key=f)")
            return g.refused()
        return Prim(at, sort, [value, *args], names, waits=0, row=SORT)
    if function.attr == "append" and len(args) == 1 and not names:
        return Prim(at, methods.append, [value, *args], takes_rt=True)
    return Prim(at, partial(call_method, function.attr, names), [value, *args], takes_rt=True)


def _root(node: ast.expr) -> str:
    """The name that attributes and calls begin at; None for any other expression."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _instead(module: str, dotted: str) -> str:
    """Advice for a missing name of a module or type."""
    there = [each for each in (*BUILTINS, *CONSTANTS, *FORMS) if each.startswith(f"{module}.")]
    hint = DOTTED.get(dotted) or did_you_mean(dotted, there) or MODULES.get(module)
    return hint or f"there are {', '.join(there)}"


def positional(g: Lowering, node: ast.Call) -> tuple[list[Node], tuple[str, ...]]:
    """All arguments, keyword arguments last; and the keywords."""
    args = [g.refused() if _is_foreign(g, each) else g.value(each) for each in node.args]
    names: list[str] = []
    for each in node.keywords:
        if each.arg is None:
            if not (isinstance(each.value, ast.Name) and each.value.id in g.foreign):
                g.refuse(each.value, "'**' in this call", "name the arguments; tasks and tools take **d")
            continue
        if each.arg in names:
            g.wrong(node, "call/duplicate", f"'{each.arg}' is given twice", "give it once")
        names.append(each.arg)
        args.append(g.value(each.value))
    return args, tuple(names)


def _is_foreign(g: Lowering, node: ast.expr) -> bool:
    """Whether an argument is ``*args`` with a refused definition."""
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) and node.value.id in g.foreign


def generic(g: Lowering, node: ast.Call, function: Node) -> Node:
    """A call of an unknown procedure value."""
    args, names = positional(g, node)
    return nodes.Call(g.span_at(node), function, args, names)


def _direct(g: Lowering, node: ast.Call, called: ast.Name, callee: ast.FunctionDef | ast.AsyncFunctionDef) -> Node:
    """A call of a function of this text, with known parameters."""
    at = g.span_at(node)
    args, names = positional(g, node)
    order = _arranged(g, node, callee, len(args) - len(names), names)
    if order is None:
        return g.refused()
    function = g.read(called.id, g.span_at(called))
    return nodes.Call(at, function, args, names, callee=g.number_of(callee), order=order)


def _arranged(
    g: Lowering, node: ast.Call, callee: Function, count: int, names: tuple[str, ...]
) -> tuple[int | None, ...] | None:
    """The argument for each parameter, by its position in the text: ``count`` without names, then those with ``names``; None if they do not fit."""
    if callee.args.vararg is not None or callee.args.kwarg is not None:
        return None  # The refusal of its definition already names the replacement.
    by_position = [each.arg for each in (*callee.args.posonlyargs, *callee.args.args)]
    every = [*by_position, *(each.arg for each in callee.args.kwonlyargs)]
    title = callee.name if not isinstance(callee, ast.Lambda) else "this lambda"
    if count > len(by_position):
        message = f"{title} takes {len(by_position)} arguments, and is given {count}"
        g.wrong(node, "arity/closure", message, f"its parameters are {', '.join(every) or '(none)'}")
        return None
    bound = {each: at for at, each in enumerate(by_position[:count])}
    for at, each in enumerate(names):
        if each not in every or each in bound:
            what = "twice" if each in bound else "and has no such parameter"
            hint = did_you_mean(each, every) or f"its parameters are {', '.join(every) or '(none)'}"
            g.wrong(node, "arity/closure", f"{title} is given '{each}' {what}", hint)
            return None
        bound[each] = count + at
    least = len(by_position) - len(callee.args.defaults)
    needed = by_position[:least]
    needed += [
        each.arg
        for each, default in zip(callee.args.kwonlyargs, callee.args.kw_defaults, strict=True)
        if default is None
    ]
    missing = [each for each in needed if each not in bound]
    if missing:
        hint = f"its parameters are {', '.join(every)}"
        if title == "main" and g.scope.parent is None:
            hint = "leave the call out: main is called at the end of the text, with bindings of these names"
        g.wrong(node, "arity/closure", f"the call of {title} misses {', '.join(missing)}", hint)
        return None
    return tuple([bound.get(each) for each in every])


def _builtin(g: Lowering, node: ast.Call, title: str) -> Node:
    entry = BUILTINS[title]
    if title in ("any", "all") and len(node.args) == 1 and not node.keywords:
        inner = node.args[0]
        if isinstance(inner, ast.GeneratorExp | ast.ListComp):
            return collected(g, inner, "any" if title == "any" else "all")
    for each in node.args:
        if isinstance(each, ast.Starred) and title in _OF_LISTS:
            g.refuse(each, f"'*' in {title}(...)", _OF_LISTS[title])
            return g.refused()
    args, names = positional(g, node)
    count = len(args) - len(names)
    problem = entry.problem(count, names)
    if problem is not None:
        shown = [f'"{each}": {ast.unparse(value.value)}' for each, value in zip(names, node.keywords, strict=False)]
        before = [f"**{ast.unparse(each)}" for each in node.args]
        hint = f"write {{{', '.join([*before, *shown])}}}" if title == "dict" and names else problem.hint
        g.wrong(node, problem.code, problem.message, hint)
        return g.refused()
    if g.seeks_failures:
        check_builtin(g, node, entry)
    at = g.span_at(node)
    if entry.is_async:
        return Prim(at, entry.function, args, names, waits=0, row=entry)
    function = partial(call_with_names, entry.function, names) if names else entry.function
    return Prim(at, function, args, takes_rt=True, row=entry)


def _isinstance(g: Lowering, node: ast.Call) -> Node:
    kinds: list[Any] = []
    listed = node.args[1] if len(node.args) == 2 and not node.keywords else None
    for each in listed.elts if isinstance(listed, ast.Tuple) else [listed]:
        if not isinstance(each, ast.Name) or each.id not in KINDS:
            hint = _NO_KINDS.get(each.id) if isinstance(each, ast.Name) else None
            if isinstance(each, ast.Name) and each.id in CLASSES:
                hint = "errors are caught, and no values: try and except, or outcome(f(x)).status"
            elif isinstance(each, ast.Name) and g.is_record(each.id):
                hint = "a record is a dict: isinstance(x, dict)"
            hint = hint or f"the types are {', '.join(KINDS)}"
            g.wrong(node, "form/arity", "isinstance takes a value and a type", hint)
            return g.refused()
        kinds += KINDS[each.id]
    return Prim(g.span_at(node), is_instance, [g.value(node.args[0]), Const(None, tuple(kinds))])
