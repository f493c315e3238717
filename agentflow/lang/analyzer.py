"""Syntax to intermediate form: names resolved, malformed forms refused, the shapes of calls decided.

All malformed forms are found here, several per program; :mod:`agentflow.lang.checks` finds well-formed code that will certainly
fail. :mod:`agentflow.lang.naming` resolves names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import DEFINE, GUARDED, Names
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang import ir
from agentflow.lang.abi import Code
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.ir import IR, Function, Var
from agentflow.lang.naming import Describe, Naming, Scope, TooManyErrors, defined_tasks
from agentflow.lang.syntax import Atom, DictForm, Form, Name, Node, datum
from agentflow.lib.text.stack import LEVELS, on_fresh_stack

EFFECT_NAMES = {"get_context": "context", "get-context-items": "items"}
"""Primitives that take named arguments, as tasks and tools do."""
LOOP_CONFIG = "*loop-config*"

Tail: TypeAlias = Var | Function | None
"""The owner of the tail position a form is in: a named let, a function, or none."""


@frozen
class SpecialForm:
    """A special form: its name, the function that analyses it, its usage, documentation and group.

    A ``scoping`` form opens a scope, so a ``define`` inside does not bind outside. ``body`` is the number of operands before its body, for the
    formatter; None without a body. ``takes`` is a word of :mod:`agentflow.lang.literals` for the types of the operands, and ``runs``: the first
    is a number, and the second code that it runs.
    """

    name: str
    function: FormFunction
    usage: str
    doc: str
    group: str
    scoping: bool = False
    body: int | None = None
    takes: str | None = None
    runs: bool = False


FormFunction: TypeAlias = "Callable[[Analyzer, Form, Scope, Tail], IR]"
"""The analysis of one form: its node. Raises SexpEvaluationError when it is malformed."""
CompileTemplate: TypeAlias = "Callable[[Analyzer, Form], Code]"
"""Compiles the template of a macro, a lambda that may call primitives and earlier macros only."""


class Analyzer(Naming):
    """One analysis of one program.

    ``forms`` are the available special forms, ``compile_template`` makes macros of their templates, ``port`` makes templates of
    the tasks it defines (None: they are made when the definition is reached), ``allowance`` bounds its macros.
    """

    def __init__(
        self,
        source: Source,
        describe: Describe,
        limits: Limits,
        allow: frozenset[str] | None,
        port: Names | None = None,
        *,
        forms: Mapping[str, SpecialForm],
        compile_template: CompileTemplate,
        allowance: StepAllowance,
    ) -> None:
        super().__init__(source, describe, allow, forms)
        self.limits = limits
        self.forms = forms
        self.compile_template = compile_template
        self.allowance = allowance
        self.port = port
        self.macros: dict[str, Any] = {}
        self.lambdas: list[ir.Lambda] = []
        self.expanded = 0
        self.macro_depth = 0
        self.expansions = 0
        self.level = 0
        self.deepest = 0
        self.doubts: list[SexpEvaluationError] = []

    # -- programs -------------------------------------------------------------------------------------------------

    def program(self, forms: Sequence[Node]) -> ir.Seq:
        """The whole program. Errors are collected; the result is only good when there are none."""
        scope = Scope(None, self.main)
        for name in self.scan_defines(forms, scope):
            self.globals_defined.setdefault(name, 0)
        if DEFINE in self.source.text:
            self.own.update(defined_tasks(forms))
        return self.forms_of_program(forms, scope)

    def forms_of_program(self, forms: Sequence[Node], scope: Scope | None = None) -> ir.Seq:
        """Forms of a program, with their definitions noted before."""
        scope = scope or Scope(None, self.main)
        items: list[IR] = []
        try:
            for form in forms:
                try:
                    items.append(self.expr(form, scope, None))
                except AgentflowError as error:
                    self.level = 0
                    self.collect(error)
            self.finish()
        except TooManyErrors:
            pass
        return ir.Seq(forms[-1] if forms else Form([], 0, 0), items)

    # -- expressions ----------------------------------------------------------------------------------------------

    def expr(self, node: Node, scope: Scope, tail: Tail = None) -> IR:
        """One expression. A malformed form is recorded as an error, and analysis continues around it."""
        level = self.level
        self.level += 1
        try:
            if self.level % LEVELS:
                return self._expr(node, scope, tail)
            self.deepest = max(self.deepest, self.level)
            return on_fresh_stack(lambda: self.expr(node, scope, tail))
        except AgentflowError as error:
            self.collect(error)
            return ir.Seq(node, [])
        finally:
            self.level = level

    def _expr(self, node: Node, scope: Scope, tail: Tail) -> IR:
        kind = type(node)
        if kind is Name:
            assert isinstance(node, Name)
            return self.reference(node, scope)
        if kind is Atom:
            assert isinstance(node, Atom)
            return ir.Const(node, node.value)
        if kind is DictForm:
            assert isinstance(node, DictForm)
            keys = [key.name if isinstance(key, Name) else datum(key) for key in node.items[::2]]
            return ir.MakeDict(node, keys, [self.expr(value, scope) for value in node.items[1::2]])
        assert isinstance(node, Form)
        if not node.items:
            return ir.Quote(node, [])
        head = node.items[0]
        if type(head) is Name:
            name = head.name
            var = scope.find(name)
            if var is None:
                form = self.forms.get(name)
                if form is not None:
                    return form.function(self, node, scope, tail)
                macro = self.macros.get(name)
                if macro is not None:
                    return self.expansion(macro, node, scope, tail)
                return self.named_call(node, head, scope, tail)
            return self.lexical_call(node, head, var, scope, tail)
        return self.call(node, self.expr(head, scope), scope)

    def expansion(self, macro: Any, node: Form, scope: Scope, tail: Tail) -> IR:
        """Analyse the expansion of a macro call. The nesting of expansions is bounded."""
        if self.macro_depth >= self.limits.nesting // 4:
            raise LimitExceeded(
                f"macros expand to macro calls more than {self.limits.nesting // 4} levels deep",
                limit="nesting",
                allowed=self.limits.nesting // 4,
                span=self.span(node),
                hint="let the expansion be a loop",
            )
        self.macro_depth += 1
        self.expansions += 1
        try:
            expanded = macro.expand(self, node)
            if scope.parent is None:
                for name in self.scan_defines([expanded], scope):
                    self.globals_defined.setdefault(name, 0)
            return self.expr(expanded, scope, tail)
        finally:
            self.macro_depth -= 1

    def enter_expansion(self, expanded: Node, node: Form, name: str) -> None:
        """Count expanded nodes, which bounds the growth of a program by macros."""
        self.expanded += nodes_in(expanded)

    def body(self, nodes: Sequence[Node], scope: Scope, tail: Tail, at: Node) -> IR:
        """Forms in order, in an existing scope; an error in one does not hide errors in the next."""
        if not nodes:
            return ir.Quote(at, [])
        if len(nodes) == 1:
            return self.expr(nodes[0], scope, tail)
        items: list[IR] = []
        last = len(nodes) - 1
        level = self.level
        for index, node in enumerate(nodes):
            try:
                items.append(self.expr(node, scope, tail if index == last else None))
            except AgentflowError as error:
                self.level = level
                self.collect(error)
        return ir.Seq(at, items)

    def block(self, nodes: Sequence[Node], scope: Scope, tail: Tail, at: Node) -> IR:
        """A body with its own scope, where ``define`` binds like ``letrec*``."""
        inner = Scope(scope, scope.function, body=True)
        for name in self.scan_defines(nodes, scope):
            if name not in inner.names:
                var = self.var(name, inner)
                var.defined = False
                inner.vars.append(var)
        body = self.body(nodes, inner, tail, at)
        return ir.Let(at, inner.vars, [], body) if inner.vars else body

    def reference(self, node: Name, scope: Scope) -> IR:
        """A name in value position."""
        name = node.name
        var = scope.find(name)
        if var is not None:
            self.read(var, scope)
            var.escapes = True
            var.looping = False
            return ir.Local(node, var)
        if name == LOOP_CONFIG:
            return ir.Dynamic(node)
        kind = self.kind(name)
        if kind == "variable":
            return ir.Global(node, name)
        primitive = PRIMITIVES.get(name)
        if primitive is not None:
            return ir.Prim(node, primitive)
        if name in self.forms or name in self.macros:
            what = "a special form" if name in self.forms else "a macro"
            hint = f"wrap it: (lambda (x) ({name} ...))"
            raise self.error(node, "form/value", f"'{name}' is {what}, not a value", hint)
        return ir.Unknown(node, name, scope.nearest())

    # -- calls ----------------------------------------------------------------------------------------------------

    def named_call(self, node: Form, head: Name, scope: Scope, tail: Tail) -> IR:
        """A call of a free name."""
        name = head.name
        kind = self.kind(name)
        if kind == "variable":
            self.global_calls.add(name)
            function = self.global_lambdas.get(name)
            call = self.call(node, ir.Global(head, name), scope, plain=function is not None)
            call.self_tail = isinstance(tail, Function) and function is not None and function.function is tail
            return call
        primitive = PRIMITIVES.get(name)
        if primitive is not None:
            if name in GUARDED:
                self.granted(name, head)
            return ir.PrimCall(node, primitive, self.operands(node, scope))
        effect = EFFECT_NAMES.get(name)
        if effect is not None:
            self.granted(name, head, aliases=(f"system:{name}", "get_context", "system:get_context"))
            return self.effect(node, effect, name, scope)
        if kind == "unknown":
            self.refuse_unknown(name, head)
            return self.call(node, ir.Unknown(head, name, scope.nearest()), scope)
        if not (self.may_define and (name in self.own or self.asked[name].untrusted)):
            self.granted(name, head)
        return self.effect(node, kind, name, scope)

    def lexical_call(self, node: Form, head: Name, var: Var, scope: Scope, tail: Tail) -> IR:
        """A call of a lexical variable."""
        self.read(var, scope)
        function = var.value
        call = self.call(node, ir.Local(head, var), scope, plain=function is not None or var.arity is not None)
        if call.pairs is None:
            var.counts.add(len(call.args))
        else:
            var.escapes = True
        if tail is var and var.arity == len(node.items) - 1:
            call.self_tail = True
        else:
            var.looping = False
            call.self_tail = isinstance(tail, Function) and function is not None and function.function is tail
        return call

    def call(self, node: Form, operator: IR, scope: Scope, *, plain: bool = False) -> ir.Call:
        """A call of a value. If it may turn out to name a task or tool, operands that look like pairs are both."""
        operands = node.items[1:]
        plain = plain or isinstance(operator, ir.Lambda)
        if not plain and operands and all(self.pair_shaped(operand, scope) for operand in operands):
            pairs = [self.pair(operand, scope) for operand in operands]
            return ir.Call(node, operator, [], pairs)
        return ir.Call(node, operator, self.operands(node, scope))

    def operands(self, node: Form, scope: Scope) -> list[IR]:
        """The operands of a call, in order."""
        return [self.expr(item, scope) for item in node.items[1:]]

    def pair_shaped(self, node: Node, scope: Scope) -> bool:
        """Whether an operand can be read as ``(name expr)``."""
        if type(node) is not Form or len(node.items) != 2 or type(node.items[0]) is not Name:
            return False
        name = node.items[0].name
        return scope.find(name) is not None or (name not in self.forms and name not in self.macros)

    def pair(self, node: Node, scope: Scope) -> ir.Pair:
        """An operand ``(name expr)``: an argument called ``name``, or a call of ``name``.

        While that is undecided, so is ``expr`` if it looks like a pair itself: the names are collected down to the first with an
        operand that is an expression in any case.
        """
        links: list[ir.Link] = []
        while True:
            assert isinstance(node, Form)
            head, operand = node.items
            assert isinstance(head, Name)
            link = self.link(node, head, scope) if self.pair_shaped(operand, scope) else None
            if link is None:
                break
            links.append(link)
            node = operand
        var = self.var(" value", Scope(scope, scope.function))
        value = self.expr(operand, scope)
        return ir.Pair(links, node, head.name, var, value, self.applied(head, operand, node, var, scope))

    def link(self, node: Form, head: Name, scope: Scope) -> ir.Link | None:
        """``head`` in ``(head (name expr))``, when it may take a named argument; None when it certainly does not."""
        var = scope.find(head.name)
        if var is not None:
            if var.value is not None or var.arity is not None:
                return None
            self.read(var, scope)
            var.escapes = True
            return ir.Link(node, head.name, ir.Local(head, var))
        kind = self.kind(head.name)
        if kind == "variable":
            self.global_calls.add(head.name)
            is_lambda = head.name in self.global_lambdas
            return None if is_lambda else ir.Link(node, head.name, ir.Global(head, head.name))
        if head.name in PRIMITIVES:
            return None
        return ir.Link(node, head.name, ir.Unknown(head, head.name, scope.nearest()), EFFECT_NAMES.get(head.name))

    def applied(self, head: Name, operand: Node, node: Form, var: Var, scope: Scope) -> IR:
        """``head`` called on the value in ``var``, once the operand is evaluated."""
        argument = Name(var.name, operand.start, operand.end)
        lexical = scope.find(head.name)
        if lexical is None and head.name not in PRIMITIVES and self.kind(head.name) != "variable":
            return ir.Call(node, ir.Unknown(head, head.name, scope.nearest()), [ir.Local(argument, var)])
        inner = Scope(scope, scope.function)
        inner.names[var.name] = var
        return self.expr(Form([head, argument], node.start, node.end), inner)

    def effect(self, node: Form, kind: str, name: str, scope: Scope) -> ir.EffectCall:
        """A call with named arguments ``(param expr) ...``."""
        names: list[str] = []
        args: list[IR] = []
        for param, value in self.named_arguments(node.items[1:], name, strings=kind in ("task", "tool")):
            names.append(param)
            args.append(self.expr(value, scope))
        return ir.EffectCall(node, kind, name, names, args)

    def named_arguments(self, nodes: Sequence[Node], who: str, *, strings: bool = False) -> list[tuple[str, Node]]:
        """``(param expr) ...`` as pairs. Any other argument, or a repeated name, is an error.

        With ``strings`` a name may be a string: hosts choose the names of parameters, and not all are valid symbols.
        """
        arguments: dict[str, Node] = {}
        for node in nodes:
            param = self.pair_name(node, strings=strings)
            if param is None and self.pair_name(node, strings=True) is not None:
                assert isinstance(node, Form)
                problem = f"the name of an argument of '{who}' is a symbol, and this is a string"
                raise self.error(node.items[0], "call/positional", problem, f"write ({who} (name value) ...)")
            if param is None:
                raise self.error(
                    node,
                    "call/positional",
                    f"'{who}' takes named arguments, and this is none",
                    f"write ({who} (name value) ...)",
                )
            if param in arguments:
                raise self.error(node, "call/duplicate", f"'{who}' is given '{param}' twice", "give each name once")
            assert isinstance(node, Form)
            arguments[param] = node.items[1]
        return list(arguments.items())

    def pair_name(self, node: Node, *, strings: bool) -> str | None:
        """The name of a ``(name expr)`` operand; None if it is not a pair."""
        if type(node) is not Form or len(node.items) != 2:
            return None
        head = node.items[0]
        if type(head) is Name:
            return head.name
        return head.value if strings and type(head) is Atom and isinstance(head.value, str) else None

    # -- lambdas --------------------------------------------------------------------------------------------------

    def lambda_(
        self,
        node: Node,
        params: Node,
        body: Sequence[Node],
        scope: Scope,
        name: str | None = None,
        self_var: Var | None = None,
        self_global: str | None = None,
    ) -> ir.Lambda:
        """A function of ``params`` (names, the last of which may follow a dot).

        ``self_var`` or ``self_global`` is the variable it is being bound to, so that it can call itself directly.
        """
        function = Function("lambda", scope.function)
        inner = Scope(scope, function)
        required, rest = self.parameters(params)
        result = ir.Lambda(node, name, [], None, ir.Const(node, None), function, self_var)
        self.lambdas.append(result)
        result.params = [self.var(each.name, inner, each) for each in required]
        if rest is not None:
            result.rest = self.var(rest.name, inner, rest)
        if self_var is not None:
            self_var.value = result
        if self_global is not None:
            result.self_global = self_global
            self.global_lambdas[self_global] = result
        if not body:
            raise self.error(node, "form/body", "a lambda needs a body", "write (lambda (x ...) body ...)")
        expansions = self.expansions
        result.body = self.block(body, inner, function, node)
        result.body_place = (body[0].start, body[-1].end)
        result.portable = expansions == self.expansions
        return result

    def parameters(self, params: Node) -> tuple[list[Name], Name | None]:
        """The parameter list ``(a b . rest)``."""
        if type(params) is not Form:
            raise self.error(
                params,
                "form/parameters",
                "a parameter list is a list of names",
                "write (lambda (x y) ...), or (lambda (x . rest) ...) for any number of arguments",
            )
        names: list[Name] = []
        rest: Name | None = None
        items = params.items
        for index, item in enumerate(items):
            if type(item) is not Name:
                raise self.error(item, "form/parameters", "a parameter is a name", "write (lambda (x y) ...)")
            if item.name == ".":
                last = items[-1]
                if index != len(items) - 2 or type(last) is not Name:
                    raise self.error(
                        item, "form/parameters", "one name follows the dot", "write (lambda (x . rest) ...)"
                    )
                rest = last
                break
            names.append(item)
        seen: set[str] = set()
        for each in [*names, *([rest] if rest else [])]:
            if each.name in seen:
                raise self.error(each, "form/duplicate", f"the parameter '{each.name}' is named twice")
            seen.add(each.name)
        return names, rest

    def thunk(self, nodes: Sequence[Node], scope: Scope, at: Node, *, branch: bool = False) -> ir.Thunk:
        """A part of the program that the runtime calls: a branch, or code run in place."""
        function = Function("branch" if branch else "thunk", scope.function)
        inner = Scope(scope, function)
        body = self.block(nodes, inner, None, at) if branch else self.body(nodes, inner, None, at)
        return ir.Thunk(at, body, function)


def nodes_in(node: Node) -> int:
    """The number of nodes of a piece of syntax."""
    count = 0
    pending = [node]
    while pending:
        at = pending.pop()
        count += 1
        if isinstance(at, Form | DictForm):
            pending.extend(at.items)
    return count
