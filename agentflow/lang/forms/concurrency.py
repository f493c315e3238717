"""Forms for concurrency, time limits and retries."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Form


def _branches(a: Analyzer, node: Form, scope: Scope) -> IR:
    return ir.ThunkList(node, [a.thunk([each], scope, each, branch=True) for each in node.items[1:]])


@form("parallel", usage="(parallel form ...)", scoping=True)
def parallel(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms concurrently, each in a branch; returns the list of their values, in the order written.

    The first failure cancels the other branches and is raised when they have ended.
    """
    return ir.RuntimeCall(node, "parallel", [_branches(a, node, scope)])


@form("pmap", usage="(pmap procedure list [limit])")
def pmap(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Calls the procedure on the elements concurrently, at most `limit` at once; returns the values in order.

    The first failure cancels the other branches and is raised when they have ended.
    """
    items = operands(a, node, 2, 3, "(pmap procedure list limit)")
    return ir.RuntimeCall(node, "pmap", [a.expr(each, scope) for each in items])


@form("race", usage="(race form ...)", scoping=True)
def race(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms concurrently and returns the first success, after cancelling the others.

    A FAILED result counts as a failure. If all fail, an error with every cause is raised; if some of them are results,
    the last of those, in the order written, is returned.
    """
    operands(a, node, 1, None, "(race form ...)")
    return ir.RuntimeCall(node, "race", [_branches(a, node, scope)])


@form("timeout", usage="(timeout seconds form)")
def timeout(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the form; if it takes too long, cancels it and raises the error `timeout/elapsed`."""
    seconds, body = operands(a, node, 2, 2, "(timeout seconds form)")
    return ir.RuntimeCall(node, "timeout", [a.expr(seconds, scope), a.thunk([body], scope, body)])


@form("retry", usage="(retry tries form)")
def retry(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the form until it succeeds, at most `tries` times; waits in between, longer each time.

    A failure is a raised task error or a FAILED result; retry raises or returns the last one.
    """
    tries, body = operands(a, node, 2, 2, "(retry tries form)")
    return ir.RuntimeCall(node, "retry", [a.expr(tries, scope), a.thunk([body], scope, body)])
