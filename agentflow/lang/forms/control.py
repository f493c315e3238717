"""Forms that choose and sequence."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms.form import form, head, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Form, Name, Node, datum


@form("if", usage="(if test then [else])")
def if_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the test, then `then` if it is true, `else` otherwise (nil without one).

    0, "", (), {}, false and none are false; everything else is true.
    """
    parts = operands(a, node, 2, 3, "(if test then else)")
    test = a.expr(parts[0], scope)
    then = a.expr(parts[1], scope, tail)
    other = a.expr(parts[2], scope, tail) if len(parts) == 3 else ir.Quote(node, [])
    return ir.If(node, test, then, other)


def _when(a: Analyzer, node: Form, scope: Scope, tail: Tail, *, sense: bool) -> IR:
    parts = operands(a, node, 1, None, f"({head(node)} test body ...)")
    test = a.expr(parts[0], scope)
    body = a.body(parts[1:], scope, tail, node)
    nil = ir.Quote(node, [])
    return ir.If(node, test, body, nil) if sense else ir.If(node, test, nil, body)


@form("when", usage="(when test body ...)", body=1)
def when(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the body if the test is true; returns nil otherwise."""
    return _when(a, node, scope, tail, sense=True)


@form("unless", usage="(unless test body ...)", body=1)
def unless(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the body if the test is false; returns nil otherwise."""
    return _when(a, node, scope, tail, sense=False)


@form("cond", usage="(cond (test body ...) ... (else body ...))")
def cond(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the tests in order, and the body of the first that is true; returns nil if none is.

    A clause `(test => f)` calls `f` with the test's value; a clause of a test alone returns that value.
    """
    return cond_clauses(a, node, node.items[1:], scope, tail, ir.Quote(node, []))


def cond_clauses(a: Analyzer, node: Form, nodes: list[Node], scope: Scope, tail: Tail, other: IR) -> IR:
    """The clauses of a ``cond``, or of another form that chooses like it; ``other`` is the code if no clause applies."""
    who = head(node)
    clauses: list[ir.Clause] = []
    last = len(nodes) - 1
    for index, each in enumerate(nodes):
        if type(each) is not Form or not each.items:
            raise a.error(each, "form/clause", f"a clause of '{who}' is a list", "write (test body ...)")
        first = each.items[0]
        if type(first) is Name and first.name == "else" and scope.find("else") is None:
            if index != last:
                raise a.error(each, "form/clause", "'else' comes last", "nothing after it could be reached")
            other = a.body(each.items[1:], scope, tail, each)
            break
        test = a.expr(first, scope)
        rest = each.items[1:]
        if rest and not (type(rest[0]) is Name and rest[0].name == "=>" and scope.find("=>") is None):
            clauses.append(ir.Clause(test, a.body(rest, scope, tail, each)))
            continue
        inner = type(scope)(scope, scope.function)
        var = a.var(" test", inner)
        value: IR = ir.Local(first, var)
        if rest:
            if len(rest) != 2:
                raise a.error(each, "form/clause", "one procedure follows '=>'", "write (test => procedure)")
            call = Form([rest[1], Name(" test", first.start, first.end)], each.start, each.end)
            value = a.expr(call, inner, tail)
        clauses.append(ir.Clause(test, value, var))
    return ir.Cond(node, clauses, other)


@form("case", usage="(case key ((datum ...) body ...) ... (else body ...))", body=1)
def case(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the key, then the body of the clause that lists its value; returns nil if none does.

    The data are not evaluated; they are compared with `equal?`.
    """
    parts = operands(a, node, 1, None, "(case key ((datum ...) body ...) ... (else body ...))")
    inner = type(scope)(scope, scope.function)
    key = a.expr(parts[0], scope)
    var = a.var(" key", inner)
    clauses: list[ir.Clause] = []
    other: IR = ir.Quote(node, [])
    equal = PRIMITIVES["member"]
    for index, each in enumerate(parts[1:], 1):
        usage = "write ((datum ...) body ...) or (else body ...)"
        if type(each) is not Form or not each.items:
            raise a.error(each, "form/clause", "a clause of 'case' is a list", usage)
        first = each.items[0]
        if type(first) is Name and first.name == "else":
            if index != len(parts) - 1:
                raise a.error(each, "form/clause", "'else' comes last", "nothing after it could be reached")
            other = _case_body(a, each, var, inner, tail)
            break
        if type(first) is not Form:
            raise a.error(first, "form/clause", "a clause of 'case' begins with a list of data", usage)
        test = ir.PrimCall(first, equal, [ir.Local(first, var), ir.Quote(first, datum(first))])
        clauses.append(ir.Clause(test, _case_body(a, each, var, inner, tail)))
    return ir.Let(node, [var], [(var, key)], ir.Cond(node, clauses, other))


def _case_body(a: Analyzer, clause: Form, var: ir.Var, scope: Scope, tail: Tail) -> IR:
    rest = clause.items[1:]
    if len(rest) == 2 and type(rest[0]) is Name and rest[0].name == "=>":
        key = Name(" key", clause.start, clause.end)
        return a.expr(Form([rest[1], key], clause.start, clause.end), scope, tail)
    return a.body(rest, scope, tail, clause)


@form("progn", usage="(progn form ...)", body=0)
def progn(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms in order and returns the last value; nil without any. Opens no scope."""
    return a.body(node.items[1:], scope, tail, node)


@form("begin", usage="(begin form ...)", body=0)
def begin(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """The same form as progn."""
    return a.body(node.items[1:], scope, tail, node)


def _logic(a: Analyzer, node: Form, scope: Scope, tail: Tail, *, every: bool) -> IR:
    items: list[Node] = node.items[1:]
    if not items:
        return ir.Const(node, every)
    last = len(items) - 1
    operands = [a.expr(item, scope, tail if index == last else None) for index, item in enumerate(items)]
    return operands[0] if len(operands) == 1 else ir.Logic(node, every, operands)


@form("and", usage="(and form ...)")
def and_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms in order until one is false; returns the last value, true without any."""
    return _logic(a, node, scope, tail, every=True)


@form("or", usage="(or form ...)")
def or_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the forms in order until one is true; returns the last value, false without any."""
    return _logic(a, node, scope, tail, every=False)
