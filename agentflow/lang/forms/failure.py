"""Forms that raise and handle errors."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.forms.control import cond_clauses
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Form, Name, Node, head_name

_TRY = "(try body ... (catch (e) handler ...) (finally form ...))"


@form("try", usage=_TRY, body=0)
def try_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the body; if it raises an error of the program, evaluates the handler with `e` bound to the error.

    `e` has the fields code, message, reason, span, cause, and, if raise created it, value. Limits and cancellation are
    never caught. The finally forms are evaluated on every exit; their value is dropped.
    """
    rest = list(node.items[1:])
    final: ir.Thunk | None = None
    handler: Form | None = None
    if rest and type(rest[-1]) is Form and head_name(rest[-1]) == "finally":
        last = rest.pop()
        assert isinstance(last, Form)
        final = a.thunk(last.items[1:], scope, last)
    if rest and type(rest[-1]) is Form and head_name(rest[-1]) == "catch":
        last = rest.pop()
        assert isinstance(last, Form)
        handler = last
    for each in rest:
        if head_name(each) in ("catch", "finally"):
            raise a.error(each, "form/try", "catch and finally come last, catch before finally, each once", _TRY)
    if handler is None and final is None:
        raise a.error(node, "form/try", "'try' has a catch or a finally clause", f"write {_TRY}")
    body = a.body(rest, scope, None, node)
    if handler is None:
        return ir.Try(node, body, None, None, final)
    names = handler.items[1] if len(handler.items) > 1 else None
    if type(names) is not Form or len(names.items) != 1 or type(names.items[0]) is not Name:
        raise a.error(handler, "form/try", "'catch' names one variable for the error", f"write {_TRY}")
    inner = type(scope)(scope, scope.function)
    var = a.var(names.items[0].name, inner, names.items[0], handler)
    handled = a.block(handler.items[2:], inner, None, handler)
    return ir.Try(node, body, var, handled, final)


_GUARD = "(guard (e (test handler ...) ... (else handler ...)) body ...)"


@form("guard", usage=_GUARD, scoping=True, body=1)
def guard(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the body; if it raises an error of the program, evaluates the first clause whose test is true.

    The clauses are those of cond, with `e` bound to the error as catch binds it. If none applies, the error is raised
    again.
    """
    parts = operands(a, node, 2, None, _GUARD)
    spec = parts[0]
    if type(spec) is not Form or not spec.items or type(spec.items[0]) is not Name:
        raise a.error(spec, "form/clause", "'guard' begins with a name for the error and clauses", f"write {_GUARD}")
    name = spec.items[0]
    body = a.block(parts[1:], scope, None, node)
    inner = type(scope)(scope, scope.function)
    var = a.var(name.name, inner, name)
    raised_on = ir.RuntimeCall(node, "raise", [a.expr(name, inner)])
    return ir.Try(node, body, var, cond_clauses(a, node, spec.items[1:], inner, None, raised_on), None)


@form("dynamic-wind", usage="(dynamic-wind before body after)", body=0)
def dynamic_wind(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Calls three procedures of no arguments: `before`, then `body`, whose value it returns, and always `after`.

    `after` runs like the finally forms of a try. If `before` raises, the other two are not called.
    """
    parts = operands(a, node, 3, 3, "(dynamic-wind before body after)")
    inner = type(scope)(scope, scope.function)
    variables = [a.var(name, inner) for name in (" before", " body", " after")]
    inits = [(var, a.expr(part, scope)) for var, part in zip(variables, parts, strict=True)]
    before, body, after = [
        Form([Name(var.name, part.start, part.end)], part.start, part.end)
        for var, part in zip(variables, parts, strict=True)
    ]
    final = a.thunk([after], inner, parts[2])
    wound = ir.Try(node, a.expr(body, inner), None, None, final)
    return ir.Let(node, variables, inits, ir.Seq(node, [a.expr(before, inner), wound]))


def _stray(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    raise a.error(node, "form/try", f"'{head_name(node)}' means something inside 'try' only", f"write {_TRY}")


@form("catch", usage=_TRY, scoping=True, body=1)
def catch(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """The handler of a try."""
    return _stray(a, node, scope, tail)


@form("finally", usage=_TRY, scoping=True, body=0)
def finally_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """The last clause of a try."""
    return _stray(a, node, scope, tail)


@form("raise", usage="(raise value)")
def raise_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Raises an error with this `value`. A caught error is raised again unchanged."""
    (value,) = operands(a, node, 1, 1, "(raise value)")
    return ir.RuntimeCall(node, "raise", [a.expr(value, scope)])


@form("error", usage='(error "message" irritant ...)')
def error(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Raises an error whose message is followed by the irritants as text."""
    parts = operands(a, node, 1, None, '(error "message" irritant ...)')
    return ir.RuntimeCall(node, "error", [a.expr(each, scope) for each in parts])


def clause(a: Analyzer, nodes: list[Node], name: str, who: str) -> Form | None:
    """The clause ``(name ...)`` among ``nodes``, or None. Raises SexpEvaluationError if there are two."""
    matches = [node for node in nodes if head_name(node) == name]
    if len(matches) > 1:
        raise a.error(matches[1], "form/duplicate", f"'{who}' is given '{name}' twice", "give it once")
    one = matches[0] if matches else None
    return one if isinstance(one, Form) else None
