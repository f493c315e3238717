"""Forms that do things at the same time, or within a time, or again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentflow.lang import ir
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Form

if TYPE_CHECKING:
    from agentflow.lang.analyzer import Analyzer, Scope, Tail


def _branches(a: Analyzer, node: Form, scope: Scope) -> IR:
    return ir.ThunkList(node, [a.thunk([each], scope, each, branch=True) for each in node.items[1:]])


@form("parallel", usage="(parallel form ...)", scoping=True)
def parallel(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms at the same time, each in a branch; gives the list of all values, in the order written.

    The first failure cancels the other branches and is raised when they have ended.
    """
    return ir.RuntimeCall(node, "parallel", [_branches(a, node, scope)])


@form("pmap", usage="(pmap procedure list [limit])")
def pmap(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Calls the procedure on every element at the same time, at most `limit` at once; gives the values in order.

    The first failure cancels the other branches and is raised when they have ended.
    """
    found = operands(a, node, 2, 3, "(pmap procedure list limit)")
    return ir.RuntimeCall(node, "pmap", [a.expr(each, scope) for each in found])


@form("race", usage="(race form ...)", scoping=True)
def race(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms at the same time; the first success wins, the others are cancelled and have ended.

    A FAILED result counts as a failure. When all fail, an error with every cause is raised; when some fail as results,
    the last of those, in the order written, is the value.
    """
    operands(a, node, 1, None, "(race form ...)")
    return ir.RuntimeCall(node, "race", [_branches(a, node, scope)])


@form("timeout", usage="(timeout seconds form)")
def timeout(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the form; when it has not ended in time, it is cancelled and an error `timeout/elapsed` is raised."""
    seconds, body = operands(a, node, 2, 2, "(timeout seconds form)")
    return ir.RuntimeCall(node, "timeout", [a.expr(seconds, scope), a.thunk([body], scope, body)])


@form("retry", usage="(retry tries form)")
def retry(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the form, again while it fails, at most `tries` times in all; waits in between, longer each time.

    A failure is a raised task error or a FAILED result; the last one is what retry gives or raises.
    """
    tries, body = operands(a, node, 2, 2, "(retry tries form)")
    return ir.RuntimeCall(node, "retry", [a.expr(tries, scope), a.thunk([body], scope, body)])
