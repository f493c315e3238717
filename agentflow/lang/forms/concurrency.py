"""Forms for concurrency, time limits and retries."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Form, Name, Node

_ON = ":on"
_WORKERS = "workers"


def _branches(a: Analyzer, node: Form, scope: Scope) -> IR:
    return ir.ThunkList(node, [a.thunk([each], scope, each, branch=True) for each in node.items[1:]])


def _on_workers(a: Analyzer, node: Form, usage: str) -> list[Node] | None:
    """The operand of ``:on workers``; None for a form without it. Raises SexpEvaluationError (``form/on``)."""
    items = node.items[1:]
    if not items or not (type(items[0]) is Name and items[0].name == _ON):
        return None
    if len(items) < 2 or not (type(items[1]) is Name and items[1].name == _WORKERS):
        raise a.error(
            items[0], "form/on", "after ':on' stands 'workers': branches run here, or on workers", f"write {usage}"
        )
    return items[2:]


def _procedures(a: Analyzer, forms: list[Node], scope: Scope) -> list[IR]:
    """Each form as a procedure without parameters, which can be sent elsewhere."""
    return [a.lambda_(each, Form([], each.start, each.start), [each], scope) for each in forms]


@form("parallel", usage="(parallel [:on workers] form ...)", scoping=True, body=0)
def parallel(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms concurrently, each in a branch; returns the list of their values, in the order written.

    The first failure cancels the other branches and is raised when they have ended. With `:on workers` each branch of
    a run on workers is a separate run on any of them: its captured variables and its value have to be data.
    """
    forms = _on_workers(a, node, "(parallel :on workers form ...)")
    if forms is None:
        return ir.RuntimeCall(node, "parallel", [_branches(a, node, scope)])
    return ir.RuntimeCall(node, "parallel-on", _procedures(a, forms, scope))


@form("pmap", usage="(pmap [:on workers] procedure list [limit])", takes="olI")
def pmap(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Calls the procedure on the elements concurrently, at most `limit` at once; returns the values in order.

    The first failure cancels the other branches and is raised when they have ended. With `:on workers`, and without a
    limit, each call of a run on workers is a separate run on any of them: the procedure, the elements and the values
    have to be data.
    """
    remote = _on_workers(a, node, usage := "(pmap :on workers procedure list)")
    if remote is not None:
        if len(remote) != 2:
            raise a.error(
                node,
                "form/arity",
                f"'pmap' on workers takes a procedure and a list, and was given {len(remote)} operands",
                f"write {usage}; how many branches are done at once is said by the queue: agentflow worker --queue name:8",
            )
        return ir.RuntimeCall(node, "pmap-on", [a.expr(each, scope) for each in remote])
    items = operands(a, node, 2, 3, "(pmap procedure list limit)")
    return ir.RuntimeCall(node, "pmap", [a.expr(each, scope) for each in items])


@form("race", usage="(race [:on workers] form ...)", scoping=True, body=0)
def race(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms concurrently and returns the first success, after cancelling the others.

    A FAILED result counts as a failure. If all fail, an error with every cause is raised; if some of them are results,
    the last of those, in the order written, is returned. With `:on workers` each branch of a run on workers is a
    separate run, as in `parallel`.
    """
    forms = _on_workers(a, node, usage := "(race :on workers form ...)")
    if forms is not None:
        if not forms:
            raise a.error(node, "form/arity", "'race' on workers takes at least one form", f"write {usage}")
        return ir.RuntimeCall(node, "race-on", _procedures(a, forms, scope))
    operands(a, node, 1, None, "(race form ...)")
    return ir.RuntimeCall(node, "race", [_branches(a, node, scope)])


@form("timeout", usage="(timeout seconds form)", body=1, takes="x.", runs=True)
def timeout(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the form; if it takes too long, cancels it and raises the error `timeout/elapsed`."""
    seconds, body = operands(a, node, 2, 2, "(timeout seconds form)")
    return ir.RuntimeCall(node, "timeout", [a.expr(seconds, scope), a.thunk([body], scope, body)])


@form("retry", usage="(retry tries form)", body=1, takes="i.", runs=True)
def retry(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the form until it succeeds, at most `tries` times; waits in between, longer each time.

    A failure is a raised task error or a FAILED result; retry raises or returns the last one.
    """
    tries, body = operands(a, node, 2, 2, "(retry tries form)")
    return ir.RuntimeCall(node, "retry", [a.expr(tries, scope), a.thunk([body], scope, body)])
