"""The forms that run their arguments themselves: branches, time limits, recovery."""

from __future__ import annotations

import ast

from agentflow.core.data.source import Span
from agentflow.lang.abi import Operation
from agentflow.lang.kernel.inline import as_list
from agentflow.lang.kernel.nodes import Lambda, Node, Op, Prim
from agentflow.lang.python.forms import form, keywords_of, misused, optional
from agentflow.lang.python.functions import info_of, thunk
from agentflow.lang.python.lowering import Lowering
from agentflow.lang.python.names import parameters
from agentflow.lang.python.support import listed


def _thunks(g: Lowering, items: list[ast.expr]) -> Node:
    return Prim(None, as_list, [thunk(g, each) for each in items])


def _on_workers(g: Lowering, node: ast.Call) -> ast.Call | None:
    """The call without ``on="workers"``; None for one without that argument. Any other text there is an error."""
    on = next((each.value for each in node.keywords if each.arg == "on"), None)
    if on is None:
        return None
    if not (isinstance(on, ast.Constant) and on.value == "workers"):
        what = "after 'on=' stands \"workers\": branches run here, or on workers"
        g.wrong(on, "form/on", what, 'write on="workers", or leave it out')
    return ast.copy_location(ast.Call(node.func, node.args, [each for each in node.keywords if each.arg != "on"]), node)


def _sent(g: Lowering, operation: Operation, node: ast.Call, call: ast.Call, least: int) -> Node:
    """Branches to send to other machines, each with its text, as a lambda has one; ``call`` is ``node`` without ``on``."""
    usage = f'{ast.unparse(node.func)}(lambda: f(a), lambda: g(b), on="workers")'
    if keywords_of(g, call, least, 10_000, usage=usage) is None:
        return g.refused()
    for each in node.args:
        if not isinstance(each, ast.Lambda) or parameters(each.args):
            hint = "write lambda: f(x)" if isinstance(each, ast.Lambda) else f"write lambda: {ast.unparse(each)}"
            g.wrong(each, "form/on", "a branch on workers is a lambda without parameters", hint)
    return Op(g.span_at(node), operation, [], g.values(node.args))


@form("parallel(f(a), g(b), ...)", "asyncio.gather", gives=list)
def parallel(g: Lowering, node: ast.Call) -> Node:
    """Runs its arguments concurrently and returns the list of their values. ``parallel(*[f(x) for x in xs])`` too.

    With ``on="workers"`` each branch, a lambda, of a run on workers is a separate run that any of them may take.
    """
    elsewhere = _on_workers(g, node)
    if elsewhere is not None:
        return _sent(g, "parallel-on", node, elsewhere, 0)
    for each in node.keywords:
        if each.arg == "return_exceptions" and isinstance(each.value, ast.Constant) and each.value.value is False:
            continue
        what = f"'{each.arg}' of branches" if each.arg is not None else "'**' in this call"
        g.refuse(each, what, "catch failures within a branch, or write outcome(f(x)) for a result that may have failed")
    only = node.args[0] if len(node.args) == 1 else None
    if isinstance(only, ast.List | ast.ListComp | ast.GeneratorExp):
        call = ast.unparse(node.func)
        g.wrong(node, "form/arity", f"{call} takes calls, and is given one list of them", f"write {call}(*[...])")
        return g.refused()
    if isinstance(only, ast.Starred) and isinstance(only.value, ast.ListComp | ast.GeneratorExp):
        return _each(g, node, only.value)
    if any(isinstance(each, ast.Starred) for each in node.args):
        g.refuse(node, "'*' beside other branches", "pmap(f, xs) goes over a list; parallel(*[f(x) for x in xs]) too")
        return g.refused()
    return Op(g.span_at(node), "parallel", [], [_thunks(g, node.args)])


def _each(g: Lowering, node: ast.Call, over: ast.ListComp | ast.GeneratorExp) -> Node:
    generator = over.generators[0]
    if len(over.generators) > 1 or generator.ifs or not isinstance(generator.target, ast.Name):
        g.refuse(over, "such a comprehension of branches", "pmap(f, xs) takes a list of arguments of f")
        return g.refused()
    at, name = g.span_at(node), generator.target.id
    items = _items(g, generator.iter, at)
    frame, body = g.within(over, lambda: g.value(over.elt))
    frame.is_function = True
    variable = g.variables[g.scopes.scopes[over].vars[name]]
    info = info_of(g, over, None, (name,), portable=False)
    procedure = Lambda(g.span_at(over), info, [variable], [None], frame, body, None, gives_body=True, by_position=1)
    return Op(at, "pmap", [], [procedure, items])


def _items(g: Lowering, node: ast.expr, at: Span) -> Node:
    return Prim(at, listed, [g.value(node)], takes_rt=True)


@form("pmap(f, xs, limit=8)", takes="pcI", gives=list, calls=True)
def pmap(g: Lowering, node: ast.Call) -> Node:
    """Calls a function with each element concurrently, at most ``limit`` at once; returns the list of values, in order.

    With ``on="workers"``, and without a limit, each call of a run on workers is a separate run that any of them may take.
    """
    at, elsewhere = g.span_at(node), _on_workers(g, node)
    if elsewhere is not None:
        # the queue decides how many run at once: agentflow worker --queue name:8
        if keywords_of(g, elsewhere, 2, 2, usage='pmap(f, xs, on="workers")') is None:
            return g.refused()
        return Op(at, "pmap-on", [], [g.value(node.args[0]), _items(g, node.args[1], at)])
    options = keywords_of(g, node, 2, 3, "limit")
    if options is None:
        return g.refused()
    args = [g.value(node.args[0]), _items(g, node.args[1], at), optional(g, node, options, 2, "limit")]
    return Op(at, "pmap", [], args)


@form("race(f(a), g(b), ...)")
def race(g: Lowering, node: ast.Call) -> Node:
    """Runs its arguments concurrently; returns the first value, and stops the others; ``on="workers"`` as in ``parallel``."""
    elsewhere = _on_workers(g, node)
    if elsewhere is not None:
        return _sent(g, "race-on", node, elsewhere, 1)
    if keywords_of(g, node, 1, 10_000) is None:
        return g.refused()
    g.guarded += 1
    arms = _thunks(g, node.args)
    g.guarded -= 1
    return Op(g.span_at(node), "race", [], [arms])


@form("timeout(30, f(x))", takes="x.", runs=(0, 1))
def timeout(g: Lowering, node: ast.Call) -> Node:
    """The value of its second argument, or TimeoutError after so many seconds."""
    return _bounded(g, node, "timeout")


def _bounded(g: Lowering, node: ast.Call, operation: Operation) -> Node:
    """An operation with a number and the code it runs."""
    if keywords_of(g, node, 2, 2) is None:
        return g.refused()
    return Op(g.span_at(node), operation, [], [g.value(node.args[0]), thunk(g, node.args[1])])


@form("asyncio.wait_for(f(x), 30)", takes=".x", runs=(1, 0))
def wait_for(g: Lowering, node: ast.Call) -> Node:
    """As timeout(30, f(x))."""
    options = keywords_of(g, node, 1, 2, "timeout")
    if options is None:
        return g.refused()
    if len(node.args) + len(options) != 2:
        return misused(g, node)
    seconds = optional(g, node, options, 1, "timeout")
    return Op(g.span_at(node), "timeout", [], [seconds, thunk(g, node.args[0])])


@form("retry(3, f(x))", takes="i.", runs=(0, 1))
def retry(g: Lowering, node: ast.Call) -> Node:
    """The value of its second argument, with that number of tries if it fails."""
    return _bounded(g, node, "retry")
