"""The rules for calls, and for names of functions and modules."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from agentflow.lang.calling import MAX_STACK_CALLS
from agentflow.lang.code_writer import LOAD, as_bool
from agentflow.lang.python import world
from agentflow.lang.python.absent import ABSENT, DOTTED, HIDDEN, METHODS_ABSENT, MODULES
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS, KINDS, is_instance, sort
from agentflow.lang.python.comprehensions import collected
from agentflow.lang.python.emitter import Emitter, expression, unless_boxed
from agentflow.lang.python.expressions import builtin
from agentflow.lang.python.failure import CLASSES
from agentflow.lang.python.forms import FORMS, PythonForm
from agentflow.lang.python.functions import code_name, known_function
from agentflow.lang.python.kinds import as_counted
from agentflow.lang.python.labelled import OF_KEYS, labelled_entry
from agentflow.lang.python.methods import ALL_METHODS, OF_TEXTS, method
from agentflow.lang.python.names import Function
from agentflow.lang.python.native import appended, got
from agentflow.lang.python.rows import Row, takes_long
from agentflow.lang.python.support import call, rebound
from agentflow.lang.python.takes import check_builtin, check_form, check_method
from agentflow.lang.python.values import MISSING
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
_FEW = 2
"""Arguments of methods that code tests itself."""


@expression(ast.Name)
def name(g: Emitter, node: ast.Name) -> ast.expr:
    if node.id.startswith("_") and node.id != "_":
        hint = "write the statements at the end of the text" if node.id == "__name__" else HIDDEN.get(node.id)
        g.refuse(node, f"the name '{node.id}'", hint or "names do not begin with _")
        return g.const(None)
    var = g.scope.find(node.id)
    if var is not None or g.kind(node.id) == "variable":
        return g.read(var, node.id)
    callee = g.callable_name(node.id)
    if g.kind(callee) in ("task", "tool"):
        return world.task_value(g, node, callee)
    if node.id in FORMS or g.is_record(node.id):
        g.wrong(node, "form/value", f"'{node.id}' is not a value", f"wrap it: lambda x: {node.id}(x)")
        return g.const(None)
    if node.id in BUILTINS:
        g.meanings[node] = ("builtin", node.id)
        entry = BUILTINS[node.id]
        return g.const_param(builtin(_entry(g, entry), follows=g.labelled), f"B_{node.id}")
    if node.id in g.foreign:
        return g.const(None)
    other = nearest(g, node.id)
    hint = None if other is None else meant(other)
    if not absent(g, node):
        if g.closed:
            g.wrong(node, "name/unbound", f"'{node.id}' is not bound", hint)
        elif other is not None:
            g.doubtful.setdefault(node.id, (node, other))
    return g.read(None, node.id, hint)


def absent(g: Emitter, node: ast.Name) -> bool:
    """Whether a name is a Python name missing here, which is then an error."""
    hint = ABSENT.get(node.id)
    if hint is not None:
        g.wrong(node, "name/not-here", f"'{node.id}' is not there in workflow texts", hint)
    return hint is not None


def near(g: Emitter, wanted: str) -> str | None:
    """The hint that names the visible name closest to ``wanted``."""
    name = nearest(g, wanted)
    return None if name is None else meant(name)


def nearest(g: Emitter, wanted: str) -> str | None:
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
def call_(g: Emitter, node: ast.Call) -> ast.expr:
    function = node.func
    if isinstance(function, ast.Name):
        return _by_name(g, node, function)
    if isinstance(function, ast.Attribute):
        return _by_attribute(g, node, function)
    return generic(g, node, g.value(function))


def _by_name(g: Emitter, node: ast.Call, function: ast.Name) -> ast.expr:
    var = g.scope.find(function.id)
    callee = known_function(g, function.id, var)
    if callee is not None and (var is not None or function.id not in g.own_tasks):
        g.meanings[node] = ("direct", callee)
        return _direct(g, node, callee, local=var is not None)
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
        return g.const(None)
    if function.id in g.foreign:
        return g.const(None)
    if g.closed and g.allow is None:
        message = f"'{function.id}' is nothing that can be called here"
        g.wrong(function, "name/unknown-operator", message, near(g, function.id))
        return g.const(None)
    if g.allow is not None:
        granted = ", ".join(sorted(g.allow)[:20]) or "none"
        hint = near(g, function.id) or f"the names it may call: {granted}"
        g.wrong(function, "name/not-granted", f"'{function.id}' is nothing this program may call", hint)
        return g.const(None)
    return generic(g, node, g.value(function))


def _form(g: Emitter, node: ast.Call, form: PythonForm) -> ast.expr:
    g.meanings[node] = ("form", form.name)
    before = len(g.errors)
    code = form.write(g, node)
    if not g.seeks_failures:
        return code
    start = g.span_at(node).start
    if not any(each.span is not None and each.span.start == start for each in g.errors[before:]):
        check_form(g, node, ast.unparse(node.func))
    return code


def _by_attribute(g: Emitter, node: ast.Call, function: ast.Attribute) -> ast.expr:
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
            return g.const(None)
    if _root(base) in g.foreign and g.scope.find(_root(base)) is None:
        return g.const(None)  # The refusal of the import already names the replacement.
    if function.attr == "format":
        g.wrong(function, "name/not-here", "'.format' is not there in workflow texts", 'write an f-string: f"{x:.2f}"')
        return g.const(None)
    if function.attr not in ALL_METHODS:
        if function.attr not in g.foreign_methods:
            hint = METHODS_ABSENT.get(function.attr) or did_you_mean(function.attr, ALL_METHODS)
            hint = hint or f"f = x.{function.attr}, and then f(), calls the value of a field"
            g.wrong(function, "name/not-here", f"there is no method '{function.attr}'", hint)
        return g.const(None)
    g.meanings[node] = ("method", function.attr)
    if g.seeks_failures:
        check_method(g, node, function)
    value = g.value(base)
    args, names = positional(g, node)
    if function.attr == "sort":
        if len(names) != len(args) or not {"key", "reverse"}.issuperset(names):
            unknown = [each for each in names if each not in ("key", "reverse")]
            near_one = did_you_mean(unknown[0], ("key", "reverse")) if unknown else None
            g.wrong(node, "arity/primitive", "sort() takes key= and reverse=", near_one or "xs.sort(key=f)")
            return g.const(None)
        keywords = [ast.keyword(each, arg, **g.loc) for each, arg in zip(names, args, strict=True)]
        result = g.ours(sort, g.name("rt"), g.name("d"), value)
        assert isinstance(result, ast.Call)
        result.keywords = keywords
        return g.await_(result)
    if function.attr == "append" and len(args) == 1 and not names:
        return appended(g, value, args[0])
    if function.attr == "get" and len(args) in (1, 2) and not names:
        return got(g, value, args)
    more = [g.packed_constant(("names", names), lambda: names)] if names else []
    if not g.labelled or names or len(args) > _FEW or function.attr in OF_KEYS:
        result = g.ours(method, g.name("rt"), g.const(function.attr), value, g.tuple_of(args), *more)
        return result if function.attr in OF_TEXTS and not g.labelled else g.long(result)

    def arguments(values: Sequence[ast.expr]) -> list[ast.expr]:
        return [g.name("rt"), g.const(function.attr), values[0], g.tuple_of(list(values[1:]))]

    itself = g.const_param(method, "P_method")
    return g.long(
        unless_boxed(
            g,
            "c" + "r" * len(args),
            [value, *args],
            lambda values: g.call(itself, arguments(values)),
            lambda values: g.boxed(method, arguments(values)),
        )
    )


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


def positional(g: Emitter, node: ast.Call) -> tuple[list[ast.expr], tuple[str, ...]]:
    """The code of all arguments, keyword arguments last; and the keywords."""
    args = [g.const(None) if _is_foreign(g, each) else g.value(each) for each in node.args]
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


def _is_foreign(g: Emitter, node: ast.expr) -> bool:
    """Whether an argument is ``*args`` with a refused definition."""
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) and node.value.id in g.foreign


def generic(g: Emitter, node: ast.Call, function: ast.expr) -> ast.expr:
    """A call of an unknown procedure value."""
    g.meanings[node] = ("generic", None)
    args, names = positional(g, node)
    more = [g.packed_constant(("names", names), lambda: names)] if names else []
    return g.await_(g.ours(call, g.name("rt"), g.name("d"), function, g.tuple_of(args), *more))


def _direct(g: Emitter, node: ast.Call, callee: ast.FunctionDef | ast.AsyncFunctionDef, *, local: bool) -> ast.expr:
    """A call of a function of this text, with known parameters."""
    args = _arranged(g, node, callee)
    if args is None:
        return g.const(None)
    py = code_name(g, callee)
    near_enough = ast.Compare(g.name("d"), [ast.Lt()], [g.const(MAX_STACK_CALLS)], **g.loc)
    if local:
        other = g.call(g.rt("on_fresh_stack"), [g.name(py)])
        code = g.ifexp(near_enough, g.name(py), other)
    else:
        cell = g.cell(callee.name)
        g.global_functions.add(py)
        same = g.is_(g.attr(cell, "v"), g.name(f"{py}_c"))
        test = ast.BoolOp(ast.And(), [near_enough, same], **g.loc)
        code = g.ifexp(test, g.name(py), g.ours(rebound, g.name("rt"), g.env(), cell, g.const(callee.name)))
    return g.await_(g.call(code, [g.name("rt"), g.deeper(), *args]))


def _arranged(g: Emitter, node: ast.Call, callee: Function) -> list[ast.expr] | None:
    """The arguments of a call in the order of the parameters, each evaluated at its own position; None if they do not fit."""
    args, names = positional(g, node)
    if callee.args.vararg is not None or callee.args.kwarg is not None:
        return None  # The refusal of its definition already names the replacement.
    by_position = [each.arg for each in (*callee.args.posonlyargs, *callee.args.args)]
    every = [*by_position, *(each.arg for each in callee.args.kwonlyargs)]
    title = callee.name if not isinstance(callee, ast.Lambda) else "this lambda"
    count = len(args) - len(names)
    if count > len(by_position):
        message = f"{title} takes {len(by_position)} arguments, and is given {count}"
        g.wrong(node, "arity/closure", message, f"its parameters are {', '.join(every) or '(none)'}")
        return None
    bound: dict[str, ast.expr] = dict(zip(by_position, args[:count], strict=False))
    for each, value in zip(names, args[count:], strict=True):
        if each not in every or each in bound:
            what = "twice" if each in bound else "and has no such parameter"
            hint = did_you_mean(each, every) or f"its parameters are {', '.join(every) or '(none)'}"
            g.wrong(node, "arity/closure", f"{title} is given '{each}' {what}", hint)
            return None
        bound[each] = value
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
    in_order = [each for each in every if each in bound]
    if names and in_order != list(bound):
        # Python evaluates arguments in the order of the text: a tuple keeps them for the order of the parameters.
        kept, again = g.walrus(g.tuple_of(list(bound.values())))
        places = {each: ast.Subscript(again, g.const(at), LOAD, **g.loc) for at, each in enumerate(bound)}
        first: ast.expr = ast.Subscript(kept, g.const(list(bound).index(in_order[0])), LOAD, **g.loc)
        bound = {each: first if each == in_order[0] else places[each] for each in in_order}
    return [bound.get(each) or g.const_param(MISSING, "MISSING") for each in every]


def _builtin(g: Emitter, node: ast.Call, title: str) -> ast.expr:
    entry = BUILTINS[title]
    g.meanings[node] = ("builtin", title)
    if title in ("any", "all") and len(node.args) == 1 and not node.keywords:
        inner = node.args[0]
        if isinstance(inner, ast.GeneratorExp | ast.ListComp):
            with g.at(inner):
                return collected(g, inner, title == "any")
    for each in node.args:
        if isinstance(each, ast.Starred) and title in _OF_LISTS:
            g.refuse(each, f"'*' in {title}(...)", _OF_LISTS[title])
            return g.const(None)
    args, names = positional(g, node)
    count = len(args) - len(names)
    problem = entry.problem(count, names)
    if problem is not None:
        shown = [f'"{each}": {ast.unparse(value.value)}' for each, value in zip(names, node.keywords, strict=False)]
        before = [f"**{ast.unparse(each)}" for each in node.args]
        hint = f"write {{{', '.join([*before, *shown])}}}" if title == "dict" and names else problem.hint
        g.wrong(node, problem.code, problem.message, hint)
        return g.const(None)
    if g.seeks_failures:
        check_builtin(g, node, entry)
    first = [g.name("rt"), g.name("d")] if entry.is_async else [g.name("rt")]
    title_ = title.replace(".", "_")
    called = _entry(g, entry).function
    function = g.const_param(called, f"{'L' if g.labelled else 'B'}_{title_}_f")
    if g.labelled and entry.tested is not None and not names:
        itself = g.const_param(entry.function, f"B_{title_}_f")
        late = takes_long(entry.function, labelled=True) and not takes_long(entry.function)

        def boxed(values: Sequence[ast.expr]) -> ast.expr:
            code = g.call(function, [*first, *values])
            return g.long(code) if late else code

        result = unless_boxed(
            g,
            entry.tested * count,
            args,
            lambda values: g.call(itself, [*first, *values]),
            boxed,
        )
    else:
        result = g.call(function, [*first, *args[:count]])
        result.keywords = [ast.keyword(each, arg, **g.loc) for each, arg in zip(names, args[count:], strict=True)]
    if entry.is_async:
        return g.await_(result)
    if title == "bool":
        return as_bool(result)
    if title == "len" and not g.labelled:
        return as_counted(result)
    return g.long(result) if takes_long(entry.function) else result


def _entry(g: Emitter, entry: Row) -> Row:
    """An entry of a table with the function that this code calls."""
    return labelled_entry(entry) if g.labelled else entry


def _isinstance(g: Emitter, node: ast.Call) -> ast.expr:
    g.meanings[node] = ("builtin", "isinstance")
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
            return g.const(None)
        kinds += KINDS[each.id]
    constant = g.packed_constant(("kinds", tuple(kinds)), lambda: tuple(kinds))
    return as_bool(g.ours(is_instance, g.value(node.args[0]), constant))
