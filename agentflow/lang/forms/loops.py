"""Loops."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.forms.form import distinct, form, operands
from agentflow.lang.ir import IR, Function
from agentflow.lang.syntax import Form, Name, Node


@form("loop", usage="(loop count body)", body=1)
def loop(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the body `count` times, in the current scope; returns the last value, nil for 0.

    The count, a non-negative integer, is evaluated once.
    """
    count, body = operands(a, node, 2, 2, "(loop count body)")
    return ir.Repeat(node, a.expr(count, scope), a.expr(body, scope))


@form("while", usage="(while test body ...)", body=1)
def while_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the body as long as the test is true; returns nil."""
    parts = operands(a, node, 1, None, "(while test body ...)")
    test = a.expr(parts[0], scope)
    return ir.While(node, test, True, a.body(parts[1:], scope, None, node), ir.Quote(node, []))


@form("do", usage="(do ((name start [step]) ...) (test result ...) body ...)", scoping=True, body=2)
def do(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Binds the names to their starts; evaluates body and steps until the test is true; returns the result.

    Each iteration has fresh bindings, so a procedure created in the body keeps the values of its iteration.
    """
    usage = "(do ((name start step) ...) (test result ...) body ...)"
    parts = operands(a, node, 2, None, usage)
    specs, exit_ = parts[0], parts[1]
    if type(specs) is not Form or type(exit_) is not Form or not exit_.items:
        raise a.error(
            node, "form/do", "'do' has a list of variables and a list of a test and results", f"write {usage}"
        )
    names: list[Name] = []
    starts: list[IR] = []
    steps: list[Node] = []
    for spec in specs.items:
        if type(spec) is not Form or len(spec.items) not in (2, 3) or type(spec.items[0]) is not Name:
            raise a.error(spec, "form/do", "a variable of 'do' is (name start) or (name start step)", f"write {usage}")
        name = spec.items[0]
        names.append(name)
        starts.append(a.expr(spec.items[1], scope))
        steps.append(spec.items[2] if len(spec.items) == 3 else name)
    distinct(a, names, "do")
    outer = type(scope)(scope, scope.function)
    again = a.var(" do", outer)
    again.arity = len(names)
    function = Function("lambda", scope.function)
    function.merged = True
    inner = type(scope)(outer, function)
    params = [a.var(name.name, inner, name) for name in names]
    test = a.expr(exit_.items[0], inner)
    result = a.body(exit_.items[1:], inner, None, exit_)
    position = (node.start, node.end)
    body = a.block(parts[2:], inner, None, node) if len(parts) > 2 else None
    step = a.expr(Form([Name(" do", *position), *steps], *position), inner, again)
    more = step if body is None else ir.Seq(node, [body, step])
    return ir.NamedLoop(node, params, starts, ir.If(node, test, result, more), again)
