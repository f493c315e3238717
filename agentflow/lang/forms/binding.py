"""Forms that bind names."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.builtins.internal import ELEMENTS, WRONG_COUNT
from agentflow.lang.forms.form import bindings, distinct, form, head, operands
from agentflow.lang.ir import IR, Function, Var
from agentflow.lang.syntax import Form, Name, Node, head_name


def _value(a: Analyzer, var: Var, node: Node, scope: Scope) -> IR:
    """Analyse an initialiser; a lambda without a name takes the variable's."""
    value = a.expr(node, scope)
    if isinstance(value, ir.Lambda):
        value.name = value.name or var.name
        var.value = value
    return value


@form("let", usage="(let ((name value) ...) body ...)", scoping=True, body=1)
def let(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates the values in the outer scope, binds the names and evaluates the body; returns the last form's value.

    With a name before the bindings, the body may call that name with new values: a loop.
    """
    items = operands(a, node, 2, None, "(let ((name value) ...) body ...)")
    if type(items[0]) is Name:
        return _named_let(a, node, items[0], items[1:], scope, tail)
    pairs = bindings(a, items[0], "let")
    distinct(a, [name for name, _ in pairs], "let")
    values = [a.expr(value, scope) for _, value in pairs]
    inner = _scope(scope)
    inits: list[tuple[Var, IR]] = []
    for (name, _), value in zip(pairs, values, strict=True):
        var = a.var(name.name, inner, name)
        if isinstance(value, ir.Lambda):
            value.name = value.name or name.name
            var.value = value
        inits.append((var, value))
    body = a.block(items[1:], inner, tail, node)
    return ir.Let(node, [var for var, _ in inits], inits, body)


@form("let*", usage="(let* ((name value) ...) body ...)", scoping=True, body=1)
def let_star(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Like let, but each value is evaluated with the preceding names bound."""
    items = operands(a, node, 2, None, "(let* ((name value) ...) body ...)")
    inits: list[tuple[Var, IR]] = []
    inner = scope
    for name, value in bindings(a, items[0], "let*"):
        init = a.expr(value, inner)
        inner = _scope(inner)
        var = a.var(name.name, inner, name)
        if isinstance(init, ir.Lambda):
            init.name = init.name or name.name
            var.value = init
        inits.append((var, init))
    body = a.block(items[1:], inner, tail, node)
    return ir.Let(node, [var for var, _ in inits], inits, body)


@form("letrec", usage="(letrec ((name value) ...) body ...)", scoping=True, body=1)
def letrec(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Like let, but the values are evaluated, in order, with all names bound: for procedures that call each other.

    Reading a name before it has its value is an error.
    """
    parts = operands(a, node, 2, None, "(letrec ((name value) ...) body ...)")
    pairs = bindings(a, parts[0], "letrec")
    distinct(a, [name for name, _ in pairs], "letrec")
    inner = _scope(scope)
    variables = [a.var(name.name, inner, name) for name, _ in pairs]
    for var in variables:
        var.defined = False
    items: list[IR] = []
    for var, (name, value) in zip(variables, pairs, strict=True):
        items.append(ir.Define(name, var, _bound_value(a, var, value, inner)))
        var.defined = True
    items.append(a.block(parts[1:], inner, tail, node))
    return ir.Let(node, variables, [], ir.Seq(node, items))


def _bound_value(a: Analyzer, var: Var, node: Node, scope: Scope) -> IR:
    """Analyse a value in the scope of its own variable: a lambda may call itself by that name."""
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
    loop = a.var(name.name, outer, name)
    loop.arity = len(pairs)
    function = Function("lambda", scope.function)
    inner = type(scope)(outer, function)
    params = [a.var(each.name, inner, each) for each, _ in pairs]
    expansions = a.expansions
    body = a.block(rest[1:], inner, loop, node)
    if loop.looping:
        function.merged = True
        return ir.NamedLoop(node, params, inits, body, loop)
    procedure = ir.Lambda(node, name.name, params, None, body, function, loop)
    procedure.body_place = (rest[1].start, rest[-1].end)
    procedure.portable = expansions == a.expansions
    loop.value = procedure
    a.lambdas.append(procedure)
    call = ir.Call(node, ir.Local(name, loop), inits)
    if loop.mutated:
        return ir.Let(node, [loop], [], ir.Seq(node, [ir.Define(name, loop, procedure), call]))
    # The initialisers come first: they are outside the scope of the loop's name.
    return ir.Let(node, [loop], [(loop, procedure)], call)


_VALUES = "(let-values (((name ... [. rest]) list) ...) body ...)"


@form("let-values", usage=_VALUES, scoping=True, body=1)
def let_values(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Like let, but each binding names the elements of a list: several values are a list here.

    A list with more or fewer elements than names is an error; `. rest` takes the remaining ones, as a list.
    """
    parts = operands(a, node, 2, None, _VALUES)
    if type(parts[0]) is not Form:
        raise a.error(parts[0], "form/bindings", "the bindings of 'let-values' are a list", f"write {_VALUES}")
    inner = _scope(scope)
    lists: list[tuple[Var, IR]] = []
    elements: list[tuple[Var, IR]] = []
    names: list[Name] = []
    for binding in parts[0].items:
        if type(binding) is not Form or len(binding.items) != 2:
            raise a.error(
                binding, "form/bindings", "a binding of 'let-values' is ((name ...) list)", f"write {_VALUES}"
            )
        formals, value = binding.items
        required, rest = a.parameters(formals)
        whole = a.var(" values", _scope(scope))
        checked = [a.expr(value, scope), ir.Const(formals, len(required)), ir.Const(formals, rest is not None)]
        lists.append((whole, ir.PrimCall(value, ELEMENTS, checked)))
        bound: list[Name] = [*required, *([rest] if rest is not None else [])]
        names += bound
        for index, name in enumerate(bound):
            position: list[IR] = [ir.Local(name, whole), ir.Const(name, index)]
            elements.append((a.var(name.name, inner, name), ir.PrimCall(name, PRIMITIVES["nth"], position)))
    distinct(a, names, "let-values")
    body = a.block(parts[1:], inner, tail, node)
    inits = [*lists, *elements]
    return ir.Let(node, [var for var, _ in inits], inits, body)


_CASES = "(case-lambda ((name ... [. rest]) body ...) ...)"


@form("case-lambda", usage=_CASES, scoping=True, body=0)
def case_lambda(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Returns a procedure that runs the first of its clauses that accepts the number of arguments."""
    clauses = operands(a, node, 1, None, _CASES)
    outer = _scope(scope)
    inits: list[tuple[Var, IR]] = []
    counts: list[tuple[int, bool]] = []
    for clause in clauses:
        if type(clause) is not Form or len(clause.items) < 2:
            raise a.error(
                clause, "form/clause", "a clause of 'case-lambda' has parameters and a body", f"write {_CASES}"
            )
        procedure = a.lambda_(clause, clause.items[0], clause.items[1:], scope)
        counts.append((len(procedure.params), procedure.rest is not None))
        inits.append((a.var(" case", _scope(scope)), procedure))
    function = Function("lambda", scope.function)
    inner = type(scope)(outer, function)
    arguments, count = a.var(" arguments", inner), a.var(" count", inner)
    choices: list[ir.Clause] = []
    for (var, procedure), (least, more) in zip(inits, counts, strict=True):
        at = procedure.at
        var.readers.add(function)
        var.escapes = True
        test = ir.PrimCall(at, PRIMITIVES[">=" if more else "="], [ir.Local(at, count), ir.Const(at, least)])
        apply = ir.PrimCall(at, PRIMITIVES["apply"], [ir.Local(at, var), ir.Local(at, arguments)])
        choices.append(ir.Clause(test, apply))
    takes = " or ".join(f"at least {least}" if more else str(least) for least, more in counts)
    refuse = ir.PrimCall(node, WRONG_COUNT, [ir.Const(node, takes), ir.Local(node, count)])
    length = ir.PrimCall(node, PRIMITIVES["length"], [ir.Local(node, arguments)])
    body = ir.Let(node, [count], [(count, length)], ir.Cond(node, choices, refuse))
    dispatch = ir.Lambda(
        node, "case-lambda", [], arguments, body, function, body_place=(node.start, node.end), portable=False
    )
    a.lambdas.append(dispatch)
    return ir.Let(node, [var for var, _ in inits], inits, dispatch)


@form("lambda", usage="(lambda (name ... [. rest]) body ...)", scoping=True, body=1)
def lambda_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Returns a procedure with these parameters and this body; `. rest` takes any further arguments, as a list."""
    parts = operands(a, node, 2, None, "(lambda (name ...) body ...)")
    return a.lambda_(node, parts[0], parts[1:], scope)


@form("define", usage="(define name value)  (define (name parameter ...) body ...)", body=1)
def define(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Binds a name in the current scope to a value or a procedure; returns the value.

    At top level the binding goes to the environment, where later programs see it. All defines of a body see each other.
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
    body = scope.body_scope()
    if body is None:
        return _define_global(a, node, name, scope, procedure=procedure)
    var = body.names.get(name.name)
    if var is None:
        var = a.var(name.name, body)
        body.vars.append(var)
    again = var.defined
    if procedure and isinstance(target, Form):
        value: IR = a.lambda_(node, _parameters(target), node.items[2:], scope, name.name, None if again else var)
    elif again:
        value = a.expr(node.items[2], scope)
    else:
        value = _bound_value(a, var, node.items[2], scope)
    if again:
        var.mutated = True
    var.defined = True
    if scope.function is not var.function:
        var.readers.add(scope.function)
    a.defined(name, node, var, value)
    return ir.Define(node, var, value)


def _callable(a: Analyzer, name: Name) -> None:
    """Refuse a procedure at top level with the name of a form: a call of it would be that form."""
    what = "a special form" if name.name in a.forms else "a macro" if name.name in a.macros else None
    if what is not None:
        hint = "give the procedure another name; a local variable may have this one"
        raise a.error(name, "form/define", f"'{name.name}' is {what}, and could not be called as this procedure", hint)


def _parameters(target: Form) -> Form:
    start = target.items[1].start if len(target.items) > 1 else target.start
    return Form(target.items[1:], start, target.end)


def _define_global(a: Analyzer, node: Form, name: Name, scope: Scope, *, procedure: bool) -> IR:
    a.globals_defined[name.name] = a.globals_defined.get(name.name, 0) + 1
    target, value = node.items[1], node.items[2]
    fixed = name.name if a.globals_defined[name.name] == 1 else None
    if procedure or head_name(value) == "lambda":
        _callable(a, name)
    if procedure and isinstance(target, Form):
        result: IR = a.lambda_(node, _parameters(target), node.items[2:], scope, name.name, None, fixed)
    elif type(value) is Form and value.items and type(value.items[0]) is Name and value.items[0].name == "lambda":
        operands(a, value, 2, None, "(lambda (name ...) body ...)")
        result = a.lambda_(value, value.items[1], value.items[2:], scope, name.name, None, fixed)
    else:
        result = a.expr(value, scope)
    a.defined(name, node, None, result)
    return ir.DefineGlobal(node, name.name, result)


@form("bind", usage="(bind name value)", body=1)
def bind(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Binds a name in the current scope and returns the value; the same form as define."""
    operands(a, node, 2, 2, "(bind name value)")
    return define(a, node, scope, tail)


@form("set!", usage="(set! name value)")
def set_(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Changes the nearest existing binding of a name and returns the value. An unbound name is an error.

    Branches of parallel, pmap and race may not change variables of the code around them.
    """
    name, value = operands(a, node, 2, 2, "(set! name value)")
    if type(name) is not Name:
        raise a.error(name, "form/set", "what 'set!' changes is a name", "write (set! name value)")
    analysed = a.expr(value, scope)
    a.written(name, scope)
    var = scope.find(name.name)
    if var is not None:
        var.mutated = True
        var.looping = False  # an assigned name is an ordinary variable, not a loop to jump back to
        if not var.defined:
            var.early = True
        write = ir.SetLocal(node, var, analysed)
        var.writers.append((scope.function, write))
        return write
    a.kind(name.name)
    path = scope.function.path_to(a.main)
    if "branch" in path and "lambda" not in path[: path.index("branch")]:
        raise a.shared_set(node, name.name)
    return ir.SetGlobal(node, name.name, analysed, foreign="lambda" in path)
