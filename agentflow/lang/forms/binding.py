"""Forms that bind names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentflow.lang import ir
from agentflow.lang.forms.form import bindings, distinct, form, head, operands
from agentflow.lang.ir import IR, Function, Var
from agentflow.lang.syntax import Form, Name, Node, head_name

if TYPE_CHECKING:
    from agentflow.lang.analyzer import Analyzer, Scope, Tail


def _value(a: Analyzer, var: Var, node: Node, scope: Scope) -> IR:
    """An initialiser; a lambda gets the variable's name."""
    made = a.expr(node, scope)
    if isinstance(made, ir.Lambda):
        made.name = made.name or var.name
        var.value = made
    return made


@form("let", usage="(let ((name value) ...) body ...)", scoping=True)
def let(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the values outside, binds the names, evaluates the body; the last form's value is the result.

    With a name before the bindings, the body may call it as a procedure with new values: a loop.
    """
    found = operands(a, node, 2, None, "(let ((name value) ...) body ...)")
    if type(found[0]) is Name:
        return _named_let(a, node, found[0], found[1:], scope, tail)
    pairs = bindings(a, found[0], "let")
    distinct(a, [name for name, _ in pairs], "let")
    values = [a.expr(value, scope) for _, value in pairs]
    inner = _scope(scope)
    inits: list[tuple[Var, IR]] = []
    for (name, _), value in zip(pairs, values, strict=True):
        var = a.var(name.name, inner)
        if isinstance(value, ir.Lambda):
            value.name = value.name or name.name
            var.value = value
        inits.append((var, value))
    body = a.block(found[1:], inner, tail, node)
    return ir.Let(node, [var for var, _ in inits], inits, body)


@form("let*", usage="(let* ((name value) ...) body ...)", scoping=True)
def let_star(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Like let, with each value evaluated where the names before it are bound."""
    found = operands(a, node, 2, None, "(let* ((name value) ...) body ...)")
    inits: list[tuple[Var, IR]] = []
    inner = scope
    for name, value in bindings(a, found[0], "let*"):
        made = a.expr(value, inner)
        inner = _scope(inner)
        var = a.var(name.name, inner)
        if isinstance(made, ir.Lambda):
            made.name = made.name or name.name
            var.value = made
        inits.append((var, made))
    body = a.block(found[1:], inner, tail, node)
    return ir.Let(node, [var for var, _ in inits], inits, body)


@form("letrec", usage="(letrec ((name value) ...) body ...)", scoping=True)
def letrec(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Like let, with the values evaluated in order where all the names are bound: for procedures that call each other.

    Reading a name before its value is there is an error.
    """
    found = operands(a, node, 2, None, "(letrec ((name value) ...) body ...)")
    pairs = bindings(a, found[0], "letrec")
    distinct(a, [name for name, _ in pairs], "letrec")
    inner = _scope(scope)
    made = [a.var(name.name, inner) for name, _ in pairs]
    for var in made:
        var.defined = False
    items: list[IR] = []
    for var, (name, value) in zip(made, pairs, strict=True):
        items.append(ir.Define(name, var, _bound_value(a, var, value, inner)))
        var.defined = True
    items.append(a.block(found[1:], inner, tail, node))
    return ir.Let(node, made, [], ir.Seq(node, items))


def _bound_value(a: Analyzer, var: Var, node: Node, scope: Scope) -> IR:
    """The value a variable gets where it is in sight: a lambda may call itself by it."""
    if isinstance(node, Form) and len(node.items) > 1 and head_name(node) == "lambda" and scope.find("lambda") is None:
        return a.lambda_(node, node.items[1], node.items[2:], scope, var.name, var)
    return _value(a, var, node, scope)


def _scope(parent: Scope) -> Scope:
    return type(parent)(parent, parent.function)


def _named_let(a: Analyzer, node: Form, name: Name, rest: list[Node], scope: Scope, tail: Tail) -> IR:
    if len(rest) < 2:
        raise a.error(node, "form/arity", "a named let has bindings and a body", "write (let loop ((i 0)) body ...)")
    pairs = bindings(a, rest[0], "let")
    distinct(a, [each for each, _ in pairs], "let")
    inits = [a.expr(value, scope) for _, value in pairs]
    outer = _scope(scope)
    loop = a.var(name.name, outer)
    loop.arity = len(pairs)
    function = Function("lambda", scope.function)
    inner = type(scope)(outer, function)
    params = [a.var(each.name, inner) for each, _ in pairs]
    expansions = a.expansions
    body = a.block(rest[1:], inner, loop, node)
    if loop.looping:
        function.merged = True
        return ir.NamedLoop(node, params, inits, body, loop)
    made = ir.Lambda(node, name.name, params, None, body, function, loop)
    made.body_place = (rest[1].start, rest[-1].end)
    made.portable = expansions == a.expansions
    loop.value = made
    a.lambdas.append(made)
    call = ir.Call(node, ir.Local(name, loop), inits)
    if loop.mutated:
        return ir.Let(node, [loop], [], ir.Seq(node, [ir.Define(name, loop, made), call]))
    # The initialisers come first: they are outside the scope of the loop's name, and evaluated before it matters.
    return ir.Let(node, [loop], [(loop, made)], call)


@form("lambda", usage="(lambda (name ... [. rest]) body ...)", scoping=True)
def lambda_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """A procedure of its parameters, in the scope it is written in; with `. rest`, of any number of arguments more."""
    found = operands(a, node, 2, None, "(lambda (name ...) body ...)")
    return a.lambda_(node, found[0], found[1:], scope)


@form("define", usage="(define name value)  (define (name parameter ...) body ...)")
def define(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Binds a name in the current scope, to a value or a procedure; gives the value.

    At top level the binding is one of the environment, which later programs see. In a body all defines of the body are
    in sight of each other.
    """
    who = head(node)
    usage = f"write ({who} name value) or ({who} (name parameter ...) body ...)"
    if len(node.items) < 3:
        raise a.error(node, "form/arity", f"'{who}' takes a name and a value", usage)
    target = node.items[1]
    procedure = type(target) is Form and bool(target.items) and who == "define"
    name = target.items[0] if procedure and isinstance(target, Form) else target
    if type(name) is not Name:
        raise a.error(target, "form/define", f"what '{who}' binds is a name", usage)
    if not procedure and len(node.items) > 3:
        raise a.error(node, "form/arity", f"'{who}' takes one value, and was given {len(node.items) - 2}", usage)
    place = scope.body_scope()
    if place is None:
        return _define_global(a, node, name, scope, procedure=procedure)
    var = place.names.get(name.name)
    if var is None:
        var = a.var(name.name, place)
        place.vars.append(var)
    again = var.defined
    if procedure and isinstance(target, Form):
        made: IR = a.lambda_(node, _parameters(target), node.items[2:], scope, name.name, None if again else var)
    elif again:
        made = a.expr(node.items[2], scope)
    else:
        made = _bound_value(a, var, node.items[2], scope)
    if again:
        var.mutated = True
    var.defined = True
    if scope.function is not var.function:
        var.readers.add(scope.function)
    return ir.Define(node, var, made)


def _parameters(target: Form) -> Form:
    start = target.items[1].start if len(target.items) > 1 else target.start
    return Form(target.items[1:], start, target.end)


def _define_global(a: Analyzer, node: Form, name: Name, scope: Scope, *, procedure: bool) -> IR:
    a.globals_defined[name.name] = a.globals_defined.get(name.name, 0) + 1
    target, value = node.items[1], node.items[2]
    known = name.name if a.globals_defined[name.name] == 1 else None
    if procedure and isinstance(target, Form):
        made: IR = a.lambda_(node, _parameters(target), node.items[2:], scope, name.name, None, known)
    elif type(value) is Form and value.items and type(value.items[0]) is Name and value.items[0].name == "lambda":
        operands(a, value, 2, None, "(lambda (name ...) body ...)")
        made = a.lambda_(value, value.items[1], value.items[2:], scope, name.name, None, known)
    else:
        made = a.expr(value, scope)
    return ir.DefineGlobal(node, name.name, made)


@form("bind", usage="(bind name value)")
def bind(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Binds a name in the current scope and gives the value; the same form as define."""
    operands(a, node, 2, 2, "(bind name value)")
    return define(a, node, scope, tail)


@form("set!", usage="(set! name value)")
def set_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Changes the nearest existing binding of a name and gives the value. A name that nothing binds is an error.

    Branches of parallel, pmap and race may not change what the code around them holds.
    """
    name, value = operands(a, node, 2, 2, "(set! name value)")
    if type(name) is not Name:
        raise a.error(name, "form/set", "what 'set!' changes is a name", "write (set! name value)")
    made = a.expr(value, scope)
    var = scope.find(name.name)
    if var is not None:
        var.mutated = True
        var.looping = False  # what is changed is a variable that holds a procedure, and no loop to jump back to
        if not var.defined:
            var.early = True
        write = ir.SetLocal(node, var, made)
        var.writers.append((scope.function, write))
        return write
    a.kind(name.name)
    path = scope.function.path_to(a.main)
    if "branch" in path and "lambda" not in path[: path.index("branch")]:
        raise a.shared_set(node, name.name)
    return ir.SetGlobal(node, name.name, made, foreign="lambda" in path)
