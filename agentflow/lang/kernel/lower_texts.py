"""Statements and expressions of texts in Python lowered."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from agentflow.core.data.source import Span
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.inline import as_dict, as_list, owned
from agentflow.lang.kernel.local_variables import captured, finally_names, perhaps_unbound
from agentflow.lang.kernel.lowered_functions import (
    as_set,
    as_tuple,
    entries_of,
    gathered_of,
    is_false,
    is_within,
)
from agentflow.lang.kernel.nodes import (
    Const,
    Env,
    FrameLayout,
    LoweredInfo,
    Node,
    Prim,
    Ref,
    Seq,
    Set,
    Variable,
    owner_of,
)
from agentflow.lang.python import changes, compare, expressions, failure, support, texts, values
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS, KINDS, rounds
from agentflow.lang.python.comprehensions import shape_of
from agentflow.lang.python.emitter import Emitter
from agentflow.lang.python.expressions import builtin, method_of
from agentflow.lang.python.failure import CLASSES
from agentflow.lang.python.functions import without_docstring
from agentflow.lang.python.names import COMPREHENSIONS, LocalVariable, PythonScope, is_range, parameters
from agentflow.lang.python.operators import BINARY, ORDERED, SIGNED
from agentflow.lang.python.statements import IN_PLACE, classes_of


class TextLowering:
    """One lowering of a text that ``g`` has checked. ``free`` are the variables of the environment that it met."""

    def __init__(self, g: Emitter) -> None:
        self.g = g
        self.scope: PythonScope = g.scopes.module
        self.frame = FrameLayout(None)
        self.free: set[str] = set()
        self.variables: dict[LocalVariable, Variable] = {}
        self.templates = {name: list(each) for name, each in g.templates.items()}
        self.checks: list[Node] = []
        """The checks before the statement being lowered."""

    def span(self, node: ast.AST) -> Span:
        return self.g.span_at(node)

    # -- names ----------------------------------------------------------------------------------------------------

    def variable(self, name: str) -> Variable | str:
        var = self.scope.find(name)
        if var is not None:
            return self.variables[var]
        self.free.add(name)
        return name

    def is_outside(self, name: str) -> bool:
        """Whether a name is none of the text's and its host's, so that it may mean a function of Python."""
        return self.scope.find(name) is None and self.g.kind(name) == "unknown"

    def target(self, name: str, at: Span) -> Variable | str:
        """A variable about to be assigned; whether it may be is checked before the statement."""
        var, variable = self.scope.find(name), self.variable(name)
        if var is None:
            if self.scope.parent is not None:
                args: list[Node] = [Env(None), Const(None, name)]
                self.checks.append(Prim(at, support.check_global, args, takes_rt=True))
        elif var.shared and var.scope is not self.scope:
            assert isinstance(variable, Variable)
            owner = Ref(None, owner_of(variable))
            self.checks.append(Prim(at, owned, [Const(None, None), owner, Const(None, name)], takes_rt=True))
        return variable

    def enter(self, node: Any) -> FrameLayout:
        """The frame of a function or comprehension, with the variables of its scope; its parameters come first."""
        scope = self.g.scopes.scopes[node]
        is_function = not isinstance(node, COMPREHENSIONS)
        frame = FrameLayout(self.frame, is_function=is_function)
        first = parameters(node.args) if is_function else []
        outliving, finals = captured(self.g.scopes), finally_names(scope)
        perhaps = perhaps_unbound(self.g.scopes, scope)
        for name in [*first, *[each for each in scope.vars if each not in first]]:
            var = scope.vars[name]
            variable = self.variables[var] = Variable(name, frame, shared=var.shared)
            variable.private = not var.shared and var not in outliving and name not in finals
            variable.unsure, variable.parameter = name in perhaps, name in first
        self.frame, self.scope = frame, scope
        return frame

    def within(self, node: Any, build: Callable[[], Node]) -> tuple[FrameLayout, Node]:
        """The result of ``build`` within the scope of a function or comprehension, and its frame."""
        saved = self.frame, self.scope, self.checks
        frame, self.checks = self.enter(node), []
        body = build()
        body = Seq(None, [*self.checks, body]) if self.checks else body
        self.frame, self.scope, self.checks = saved
        return frame, body

    def temporary(self) -> Variable:
        return Variable("", self.frame)

    # -- statements -----------------------------------------------------------------------------------------------

    def suite(self, statements: list[ast.stmt]) -> Node:
        items: list[Node] = []
        for each in statements:
            lowered = self.statement(each)
            items += [*self.reached(each), *self.flushed(), *lowered]
        return Seq(None, [*items, Const(None, None)])

    def flushed(self) -> list[Node]:
        checks, self.checks = self.checks, []
        return checks

    def statement(self, node: ast.stmt) -> list[Node]:
        at = self.span(node)
        match node:
            case ast.Expr():
                return [self.value(node.value)]
            case ast.Pass() | ast.Global() | ast.Nonlocal() | ast.Import() | ast.ImportFrom() | ast.ClassDef():
                return []
            case ast.Assign():
                value = self.value(node.value)
                if len(node.targets) == 1:
                    return self.assigned(node.targets[0], value)
                kept = self.temporary()
                rest = [one for each in node.targets for one in self.assigned(each, Ref(at, kept))]
                return [Set(at, kept, value), *rest]
            case ast.AnnAssign():
                return [] if node.value is None else self.assigned(node.target, self.value(node.value))
            case ast.AugAssign():
                return self.augmented(node, at)
            case ast.Delete():
                return [one for each in node.targets for one in self.deleted(each)]
            case ast.If():
                return [nodes.If(at, [(self.value(node.test), self.suite(node.body))], self.suite(node.orelse))]
            case ast.While():
                test = self.value(node.test)
                before = self.flushed()
                other = self.suite(node.orelse) if node.orelse else None
                return [*before, nodes.While(at, test, self.suite(node.body), other)]
            case ast.For():
                return self.loop(node)
            case ast.Break():
                return [nodes.Leave(at, "break")]
            case ast.Continue():
                return [nodes.Leave(at, "continue")]
            case ast.Return():
                return [nodes.Leave(at, "return", Const(at, None) if node.value is None else self.value(node.value))]
            case ast.Raise():
                return [self.raised(node, at)]
            case ast.Assert():
                message = (
                    Const(at, "") if node.msg is None else Prim(at, texts.text, [self.value(node.msg)], takes_rt=True)
                )
                failed = Prim(at, failure.raised, [Const(at, "AssertionError"), message])
                return [nodes.If(at, [(self.value(node.test), Const(None, None))], nodes.Raise(at, failed))]
            case ast.Try():
                return [self.recovery(node, at)]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self.definition(node, at)
            case _:
                raise NotImplementedError(type(node).__name__)

    def assigned(self, target: ast.expr, value: Node) -> list[Node]:
        at = self.span(target)
        if isinstance(target, ast.Name):
            return [Set(at, self.target(target.id, at), value)]
        if isinstance(target, ast.Subscript):
            container, key = self.value(target.value), self.value(target.slice)
            return [Prim(at, changes.store, [value, container, key], takes_rt=True)]
        assert isinstance(target, ast.Tuple | ast.List)
        leaves: list[ast.expr] = []
        shape = shape_of(target, leaves)
        parts = self.temporary()
        unpacked = Prim(at, values.unpacked, [value, Const(None, shape)], takes_rt=True)
        lowered: list[Node] = [Set(at, parts, unpacked)]
        for index, each in enumerate(leaves):
            taken = Prim(at, operator.getitem, [Ref(at, parts), Const(None, index)])
            lowered += self.assigned(each, taken)
        return lowered

    def augmented(self, node: ast.AugAssign, at: Span) -> list[Node]:
        target = node.target
        if isinstance(target, ast.Name):
            before = self.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            return self.assigned(target, self.changed(at, node.op, before, self.value(node.value)))
        assert isinstance(target, ast.Subscript)
        whole, key = self.temporary(), self.temporary()
        first: list[Node] = [Set(at, whole, self.value(target.value)), Set(at, key, self.value(target.slice))]
        before = Prim(at, values.element, [Ref(at, whole), Ref(at, key)], takes_rt=True)
        changed = self.changed(at, node.op, before, self.value(node.value))
        return [*first, Prim(at, changes.store, [changed, Ref(at, whole), Ref(at, key)], takes_rt=True)]

    def changed(self, at: Span, op: ast.operator, before: Node, value: Node) -> Node:
        function, sign = IN_PLACE.get(type(op), (None, None))
        if function is None:
            return self.operation(at, op, before, value)
        first = [] if sign is None else [Const(at, sign)]
        return Prim(at, function, [*first, before, value], takes_rt=True)

    def deleted(self, target: ast.expr) -> list[Node]:
        at = self.span(target)
        if isinstance(target, ast.Subscript):
            return [Prim(at, changes.remove, [self.value(target.value), self.value(target.slice)], takes_rt=True)]
        assert isinstance(target, ast.Name)
        variable = self.variable(target.id)
        if not isinstance(variable, str):
            return [nodes.Del(at, variable)]
        args: list[Node] = [Env(None), Const(None, target.id)]
        return [Ref(at, variable), Prim(at, support.check_global, args, takes_rt=True), nodes.Del(at, variable)]

    def loop(self, node: ast.For) -> list[Node]:
        at = self.span(node)
        over = self.iterable(node.iter, at)
        before = self.flushed()
        item, inside = self.item(node.target)
        if not inside:
            before += self.flushed()
        first = [*self.flushed(), *inside]
        body = Seq(None, [*first, self.suite(node.body)])
        other = self.suite(node.orelse) if node.orelse else None
        return [*before, nodes.For(at, over, item, body, other)]

    def item(self, target: ast.expr) -> tuple[Variable | str, list[Node]]:
        """The variable that gets the element of a round, and the nodes that take it apart for other targets."""
        if isinstance(target, ast.Name):
            return self.target(target.id, self.span(target)), []
        item = self.temporary()
        return item, self.assigned(target, Ref(self.span(target), item))

    def iterable(self, node: ast.expr, at: Span) -> Node:
        """The iterable of the loop ``at``."""
        if is_range(node) and self.is_outside("range"):
            assert isinstance(node, ast.Call)
            return Prim(self.span(node), rounds, [self.value(each) for each in node.args])
        return Prim(at, values.iterated, [self.value(node)], takes_rt=True)

    def raised(self, node: ast.Raise, at: Span) -> Node:
        if node.exc is None:
            return nodes.Raise(at, None)
        call = node.exc if isinstance(node.exc, ast.Call) else None
        name = node.exc if call is None else call.func
        if isinstance(name, ast.Name) and self.is_outside(name.id) and name.id in CLASSES:
            message: Node = Const(at, "")
            if call is not None and call.args:
                message = Prim(at, texts.text, [self.value(call.args[0])], takes_rt=True)
            return nodes.Raise(at, Prim(at, failure.raised, [Const(at, name.id), message]))
        return nodes.Op(at, "raise", [], [Prim(at, failure.raised_again, [self.value(node.exc)])])

    def recovery(self, node: ast.Try, at: Span) -> Node:
        final = None
        if node.finalbody:
            frame = self.frame = FrameLayout(self.frame)
            body = self.suite(node.finalbody)
            assert frame.parent is not None
            self.frame = frame.parent
            final = nodes.Thunk(at, body, frame)
        body = self.suite(node.body)
        other = self.suite(node.orelse) if node.orelse else None
        handlers: list[tuple[tuple[str, ...] | None, Variable | str | None, Node]] = []
        for each in node.handlers:
            caught = self.temporary()
            bound: list[Node] = []
            if each.name is not None:
                at_handler = self.span(each)
                bound = [Set(at_handler, self.target(each.name, at_handler), Ref(None, caught))]
                bound = [*self.flushed(), *bound]
            handlers.append((classes_of(self.g, each.type), caught, Seq(None, [*bound, self.suite(each.body)])))
        return nodes.Try(at, body, handlers, other, final)

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef, at: Span) -> list[Node]:
        if any(name_of(each) == "task" for each in node.decorator_list):
            definition = self.templates[node.name].pop(0)
            return [nodes.Op(at, "define-task", [definition, ()], [Env(None)])]
        procedure = self.function(node, node.name, lambda: self.suite(without_docstring(node.body)))
        return [Set(at, self.target(node.name, at), procedure)]

    def function(self, node: Any, name: str | None, build: Callable[[], Node], *, gives_body: bool = False) -> Node:
        args, span = node.args, self.span(node)
        positional = [each.arg for each in (*args.posonlyargs, *args.args)]
        least = len(positional) - len(args.defaults)
        optional = (*positional[least:], *(each.arg for each in args.kwonlyargs))
        ends = (span.start, span.end)
        info = LoweredInfo(
            name, tuple(positional[:least]), None, self.g.source, *ends, ends, True, optional, follows="strict"
        )
        defaults: list[Any] = [None] * least + [self.value(each) for each in args.defaults]
        defaults += [nodes.MISSING_KEYWORD if each is None else self.value(each) for each in args.kw_defaults]
        frame, body = self.within(node, build)
        params = [self.variables[self.g.scopes.scopes[node].vars[each]] for each in parameters(args)]
        by_position = len(positional)
        return nodes.Lambda(span, info, params, defaults, frame, body, None, gives_body, by_position)

    # -- expressions ----------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Node:
        lowered = self.expression(node)
        return Seq(lowered.at, [*self.reached(node), lowered]) if node in self.g.marks else lowered

    def reached(self, node: ast.AST) -> list[Node]:
        """The nodes that report that a marked part is reached."""
        reach = self.g.reach
        return [] if reach is None else [Prim(None, reach, [Const(None, each)]) for each in self.g.marks.get(node, ())]

    def expression(self, node: ast.expr) -> Node:
        at = self.span(node)
        match node:
            case ast.Constant():
                return Const(at, node.value)
            case ast.Name():
                return self.name(node, at)
            case ast.JoinedStr():
                return self.text(node, at)
            case ast.List():
                return self.items(node.elts, at) or Prim(at, as_list, self.values(node.elts))
            case ast.Tuple():
                items = self.items(node.elts, at)
                return Prim(at, tuple, [items]) if items is not None else Prim(at, as_tuple, self.values(node.elts))
            case ast.Set():
                items = self.items(node.elts, at)
                if items is not None:
                    return Prim(at, expressions.as_set, [items])
                return Prim(at, as_set, [Prim(at, compare.key, [self.value(each)]) for each in node.elts])
            case ast.Dict():
                return self.dict(node, at)
            case ast.Subscript():
                if not isinstance(node.slice, ast.Slice):
                    return Prim(at, values.element, [self.value(node.value), self.value(node.slice)], takes_rt=True)
                ends = (node.slice.lower, node.slice.upper, node.slice.step)
                bounds = [Const(None, None) if each is None else self.value(each) for each in ends]
                return Prim(at, values.part, [self.value(node.value), *bounds], takes_rt=True)
            case ast.Attribute():
                return self.attribute(node, at)
            case ast.Await():
                return self.value(node.value)
            case ast.NamedExpr():
                variable = self.variable(node.target.id)
                return Set(at, variable, self.value(node.value))
            case ast.BinOp():
                return self.operation(at, node.op, self.value(node.left), self.value(node.right))
            case ast.UnaryOp():
                return self.unary(node, at)
            case ast.BoolOp():
                return nodes.Logic(at, isinstance(node.op, ast.And), self.values(node.values))
            case ast.IfExp():
                return nodes.If(at, [(self.value(node.test), self.value(node.body))], self.value(node.orelse))
            case ast.Compare():
                return self.comparison(node, at)
            case ast.Lambda():
                return self.function(node, None, lambda: self.value(node.body), gives_body=True)
            case ast.ListComp() | ast.GeneratorExp():
                return self.comprehension(node, "list")
            case ast.SetComp():
                return self.comprehension(node, "set")
            case ast.DictComp():
                return self.comprehension(node, "dict")
            case ast.Call():
                return self.call(node, at)
            case _:
                raise NotImplementedError(type(node).__name__)

    def values(self, items: list[ast.expr]) -> list[Node]:
        return [self.value(each) for each in items]

    def name(self, node: ast.Name, at: Span) -> Node:
        g = self.g
        if self.scope.find(node.id) is not None or g.kind(node.id) == "variable":
            return Ref(at, self.variable(node.id))
        callee = g.callable_name(node.id)
        if g.kind(callee) in ("task", "tool"):
            described = g.info(callee).parameters or {}
            names = tuple(each for each, about in described.items() if about.required) or tuple(described)[:1]
            args: list[Node] = [Env(None), Const(None, callee), Const(None, names), Const(None, at)]
            return Prim(at, support.task_procedure, args, takes_rt=True)
        if node.id in BUILTINS:
            return Const(at, builtin(BUILTINS[node.id]), BUILTINS[node.id])
        self.free.add(node.id)
        return Ref(at, node.id, self.near(node.id))

    def near(self, name: str) -> str | None:
        """The hint of an unbound name, which is the compiler's own."""
        from agentflow.lang.python.calls import near

        scope, self.g.scope = self.g.scope, self.scope
        try:
            return near(self.g, name)
        finally:
            self.g.scope = scope

    def text(self, node: ast.JoinedStr, at: Span) -> Node:
        parts: list[Node] = []
        for each in node.values:
            if not isinstance(each, ast.FormattedValue):
                parts.append(self.value(each))
                continue
            value = self.value(each.value)
            if each.conversion in (ord("r"), ord("a")):
                value = Prim(at, texts.written, [value], takes_rt=True)
            elif each.conversion == ord("s") or each.format_spec is None:
                value = Prim(at, texts.text, [value], takes_rt=True)
            if each.format_spec is not None:
                value = Prim(at, texts.formatted, [value, self.value(each.format_spec)], takes_rt=True)
            parts.append(value)
        return parts[0] if len(parts) == 1 else Prim(at, texts.joined, parts, takes_rt=True)

    def items(self, elements: list[ast.expr], at: Span) -> Node | None:
        """The list of elements some of which are starred; None if none is."""
        if not any(isinstance(each, ast.Starred) for each in elements):
            return None
        spread = tuple(isinstance(each, ast.Starred) for each in elements)
        parts: list[Node] = []
        for each in elements:
            if isinstance(each, ast.Starred):
                args = [self.value(each.value), Const(None, "'*'")]
                parts.append(Prim(at, values.elements, args, takes_rt=True))
            else:
                parts.append(self.value(each))
        return Prim(at, partial(gathered_of, spread), parts, takes_rt=True)

    def dict(self, node: ast.Dict, at: Span) -> Node:
        keys = [each.value if isinstance(each, ast.Constant) else node for each in node.keys]
        if all(type(each) in (str, bool, type(None)) for each in keys):
            return Prim(at, partial(as_dict, tuple(keys)), self.values(node.values))
        spread = tuple(each is None for each in node.keys)
        parts: list[Node] = []
        for key, value in zip(node.keys, node.values, strict=True):
            parts.append(Const(None, None) if key is None else self.value(key))
            lowered = self.value(value)
            parts.append(Prim(at, expressions.spread_dict, [lowered]) if key is None else lowered)
        return Prim(at, partial(entries_of, spread), parts, takes_rt=True)

    def attribute(self, node: ast.Attribute, at: Span) -> Node:
        if isinstance(node.value, ast.Name) and self.is_outside(node.value.id):
            dotted = f"{node.value.id}.{node.attr}"
            if node.value.id in KINDS:
                method = (KINDS[node.value.id][0], node.attr, dotted)
                return Const(at, method_of(*method), method)
            if dotted in CONSTANTS:
                return Const(at, CONSTANTS[dotted])
        return Prim(at, values.member, [self.value(node.value), Const(None, node.attr)], takes_rt=True)

    def operation(self, at: Span, op: ast.operator, left: Node, right: Node) -> Node:
        if type(op) in SIGNED:
            function, sign = SIGNED[type(op)]
            return Prim(at, function, [Const(None, sign), left, right], takes_rt=True)
        return Prim(at, BINARY[type(op)], [left, right], takes_rt=True)

    def unary(self, node: ast.UnaryOp, at: Span) -> Node:
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and type(number) in (int, float):
            return Const(at, -number)  # type: ignore[operator]
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return Prim(at, is_false, [value])
        functions: dict[type[ast.unaryop], Any] = {
            ast.USub: values.negative,
            ast.UAdd: values.positive,
            ast.Invert: values.inverted,
        }
        return Prim(at, functions[type(node.op)], [value], takes_rt=True)

    def comparison(self, node: ast.Compare, at: Span) -> Node:
        tests: list[Node] = []
        left = self.value(node.left)
        for index, (op, each) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = again = self.value(each)
            if index + 1 < len(node.ops):
                kept = self.temporary()
                right, again = Set(at, kept, right), Ref(at, kept)
            tests.append(self.compared(at, op, left, right))
            left = again
        return tests[0] if len(tests) == 1 else nodes.Logic(at, True, tests)

    def compared(self, at: Span, op: ast.cmpop, left: Node, right: Node) -> Node:
        if isinstance(op, ast.Is | ast.IsNot):
            return Prim(at, operator.is_ if isinstance(op, ast.Is) else operator.is_not, [left, right])
        if isinstance(op, ast.In | ast.NotIn):
            within = Prim(at, is_within, [left, right], takes_rt=True)
            return within if isinstance(op, ast.In) else Prim(at, operator.not_, [within])
        if type(op) in ORDERED:
            return Prim(at, compare.ordered, [Const(None, ORDERED[type(op)]), left, right], takes_rt=True)
        return Prim(at, compare.eq if isinstance(op, ast.Eq) else compare.ne, [left, right], takes_rt=True)

    def comprehension(self, node: Any, kind: Any) -> Node:
        at = self.span(node)
        first = self.iterable(node.generators[0].iter, at)

        def rounds_from(index: int) -> Node:
            if index == len(node.generators):
                if kind == "dict":
                    key = Prim(at, compare.key, [self.value(node.key)])
                    return nodes.Yield(at, key, self.value(node.value))
                value = self.value(node.elt)
                return (
                    nodes.Yield(at, Prim(at, compare.key, [value]), None)
                    if kind == "set"
                    else nodes.Yield(at, None, value)
                )
            generator = node.generators[index]
            over = first if index == 0 else self.iterable(generator.iter, at)
            item, inside = self.item(generator.target)
            tests = self.values(generator.ifs)
            body = rounds_from(index + 1)
            for test in reversed(tests):
                body = nodes.If(at, [(test, body)], Const(None, None))
            return nodes.For(at, over, item, Seq(None, [*self.flushed(), *inside, body]))

        frame, body = self.within(node, lambda: rounds_from(0))
        return nodes.Collect(at, kind, frame, body)

    def call(self, node: ast.Call, at: Span) -> Node:
        """A call; see :class:`~agentflow.lang.kernel.lower_python.PythonLowering`."""
        raise NotImplementedError


def name_of(node: ast.expr) -> str:
    """The name that an expression is, calls, or ends with; empty for any other."""
    called = node.func if isinstance(node, ast.Call) else node
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
