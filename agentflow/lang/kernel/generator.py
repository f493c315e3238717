"""Generates a Python ``ast`` from the nodes of a program: of plain code, or of code with values that may stand in boxes.

The program becomes one function ``link``. Its parameters are the cells that the code uses, its globals the constants, and it
returns the coroutine function ``main(rt, d)``. ``rt`` is the strand the code runs on, ``d`` its depth in calls.

Generating an expression returns a Python expression and may emit statements before it; earlier operands are then spilled
to temporaries, so that evaluation stays left to right. Generating a statement delivers its value to a destination: a
:class:`Dest`. Every generated node has the position of the program node it came from.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentflow.core.data.labels import Following
from agentflow.core.data.source import Source, Span
from agentflow.lang.abi import Operation
from agentflow.lang.calling import AGAIN
from agentflow.lang.equality import truth
from agentflow.lang.kernel.code_writer import STORE, CodeWriter, PyFn, as_bool, is_bool
from agentflow.lang.kernel.nodes import Lambda, NamedLet, Node, Variable
from agentflow.lib.text.stack import LEVELS, on_fresh_stack

_MAX_HEIGHT = 20
MAX_BLOCKS = 8
"""Loops and ``try`` nested in one Python function; its compiler takes 20, and a piece may be nested in others."""


class Dest:
    """Destination of a statement's value: return, drop or assign; ``leave``: also break out of the loop."""

    __slots__ = ("kind", "leave", "name")

    def __init__(self, kind: str, name: str = "", *, leave: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.leave = leave

    @property
    def final(self) -> bool:
        """Whether control leaves the block after the statement."""
        return self.leave or self.kind == "return"


RETURN = Dest("return")
DROP = Dest("drop")


class CodeFn(PyFn):
    """A Python function being generated: of the text itself, or of a procedure or branch.

    ``tail_ok``: it may leave a call to its caller. ``blocks`` and ``loops`` count those around the code being generated; ``crossing`` is
    the loop of which a nested part begins the next round.
    """

    __slots__ = ("blocks", "crossing", "is_main", "loops", "tail_ok")

    def __init__(self, *, is_main: bool = False, tail_ok: bool = False) -> None:
        super().__init__()
        self.is_main = is_main
        self.tail_ok = tail_ok
        self.blocks = 0
        self.loops = 0
        self.crossing: NamedLet | None = None


class Round:
    """A loop that rounds may be added to: its function, and the variables that each assigns."""

    __slots__ = ("fn", "params")

    def __init__(self, fn: CodeFn, params: Sequence[str]) -> None:
        self.fn = fn
        self.params = params


def height(node: ast.AST) -> int:
    """How deep an expression is nested, as far as it matters."""
    return getattr(node, "_h", 0)


# Programs become Python coroutines: walking their tree took ten times as long (decision 4)
class Generator(CodeWriter):
    """One translation of lowered code. ``procedures`` are those of variables of the environment that are defined once.

    In ``labelled`` code the functions of the language are called by the twins that follow data, which the door also calls
    (:mod:`agentflow.lang.kernel.door`).
    """

    def __init__(
        self,
        source: Source,
        defined: set[str],
        procedures: Mapping[str, Lambda],
        *,
        labelled: Following = False,
    ) -> None:
        super().__init__(source, defined, labelled=labelled)
        self.procedures = procedures
        self.fn: CodeFn = CodeFn(is_main=True)
        self.main = self.fn
        self.owner: dict[str, CodeFn] = {}
        self.body: list[ast.stmt] = []
        self.locations: dict[tuple[int, int], dict[str, int]] = {}
        self.loops: dict[NamedLet, Round] = {}
        self.code_names: dict[Lambda, str] = {}
        self.global_names: dict[str, tuple[str, str]] = {}
        self.tails: dict[Lambda, bool] = {}
        self.emptied: set[Variable] = set()
        self.in_procedures = 0

    # -- small parts ----------------------------------------------------------------------------------------------

    def move_to(self, span: Span | None) -> dict[str, Any]:
        """Give the nodes created from now on the position of a program node; returns the position before."""
        before = self.loc
        if span is not None:
            start, end = span.start, span.end
            location = self.locations.get((start, end))
            if location is None:
                line, column, end_line, end_column = self.positions.of(start, end)
                location = {"lineno": line, "col_offset": column, "end_lineno": end_line, "end_col_offset": end_column}
                self.locations[start, end] = location
            self.loc = location
        return before

    def call(self, function: ast.expr, args: Sequence[ast.expr]) -> ast.Call:
        """A call, and how deep it is nested."""
        node = super().call(function, args)
        tallest = 0
        for each in args:
            h = getattr(each, "_h", 0)
            if h > tallest:
                tallest = h
        node._h = tallest + 1  # type: ignore[attr-defined]
        return node

    def await_(self, value: ast.expr) -> ast.expr:
        node = super().await_(value)
        node._h = height(value)  # type: ignore[attr-defined]
        return node

    def ifexp(self, test: ast.expr, then: ast.expr, other: ast.expr) -> ast.expr:
        node = super().ifexp(test, then, other)
        node._h = 1 + max(height(test), height(then), height(other))  # type: ignore[attr-defined]
        return node

    def operation(self, op: Operation, at: Span | None, arguments: Sequence[ast.expr]) -> ast.expr:
        """An operation of the runtime, awaited."""
        return self.await_(self.call(self.rt("operation"), [self.const(op), self.name("d"), self.span(at), *arguments]))

    def test(self, value: ast.expr) -> ast.expr:
        """Whether a value counts as true: code that calls no method of a host object (:func:`~agentflow.lang.equality.truth`)."""
        if is_bool(value) or isinstance(value, ast.Constant):
            return value
        named = value if isinstance(value, ast.Name) else self.named("r_", value)
        again = self.name(value.id if isinstance(value, ast.Name) else "r_")
        other = self.call(self.const_param(truth, "truth"), [again])
        rest = self.every([self.is_(again, self.const(False), negate=True), as_bool(other)])
        code = self.some([self.is_(named, self.const(True)), rest])
        code._h = height(value) + 3  # type: ignore[attr-defined]
        return code

    def assign(self, name: str, value: ast.expr) -> None:
        """Assign a Python variable, declaring it nonlocal if it belongs to an enclosing function."""
        owner = self.owner.setdefault(name, self.fn)
        if owner is not self.fn:
            self.fn.nonlocals.add(name)
            owner.declared.add(name)
        self.body.append(self.assignment(self.stored(name), value))

    def new_temporary(self) -> str:
        """A new variable of the function being generated."""
        name = self.tmp()
        self.owner[name] = self.fn
        return name

    def span(self, span: Span | None) -> ast.expr:
        """A span as a constant."""
        assert span is not None
        return self.packed_constant((span.start, span.end), lambda: span)

    def environment(self) -> ast.expr:
        """The environment that the program is linked to."""
        return self.stable_name("E")

    def spill(self, value: ast.expr) -> ast.expr:
        """Assign a value to a temporary."""
        name = self.tmp()
        self.assign(name, value)
        return self.stable_name(name)

    def stable_name(self, name: str) -> ast.expr:
        """A variable that does not change."""
        node = self.name(name)
        node._stable = True  # type: ignore[attr-defined]
        return node

    def stable(self, value: ast.expr) -> bool:
        """Whether evaluating it later, or twice, has the same result."""
        return isinstance(value, ast.Constant) or getattr(value, "_stable", False)

    def atom(self, value: ast.expr) -> ast.expr:
        """A value that can be used several times."""
        return value if self.stable(value) else self.spill(value)

    def capture(self, work: Callable[[], Any]) -> tuple[list[ast.stmt], Any]:
        """The statements that ``work`` emits, collected separately, and its result."""
        saved, self.body = self.body, []
        try:
            result = work()
            return self.body, result
        finally:
            self.body = saved

    # -- operands -------------------------------------------------------------------------------------------------

    def operands(self, items: Sequence[Node]) -> list[ast.expr]:
        """Expressions to be evaluated in order; earlier ones are spilled if a later one emits statements."""
        values: list[ast.expr] = []
        settled = 0
        for item in items:
            saved, self.body = self.body, []
            value = self.expr(item)
            emitted, self.body = self.body, saved
            if emitted:
                if not all(isinstance(each, ast.AsyncFunctionDef) for each in emitted):
                    values[settled:] = [self.atom(each) for each in values[settled:]]
                    settled = len(values)
                self.body.extend(emitted)
            values.append(value)
        return values

    def atoms(self, items: Sequence[Node]) -> list[ast.expr]:
        """Like :meth:`operands`, but each can be used several times."""
        values = self.operands(items)
        simple = all(self.stable(each) or isinstance(each, ast.Name) for each in values)
        return values if simple else [self.atom(each) for each in values]

    # -- expressions and statements -------------------------------------------------------------------------------

    def expr(self, node: Node) -> ast.expr:
        """The code of ``node`` as a Python expression."""
        self.level += 1
        if not self.level % LEVELS:
            self.deepest = max(self.deepest, self.level)
            value = on_fresh_stack(lambda: self.expr(node))
            self.level -= 1
            return value
        saved = self.move_to(node.at)
        rule = _EXPRESSIONS.get(type(node))
        if rule is not None:
            value = rule(self, node)
            if height(value) > _MAX_HEIGHT:
                value = self.spill(value)
        else:
            value = self.stated(node)
        self.loc = saved
        self.level -= 1
        return value

    def stated(self, node: Node) -> ast.expr:
        """The value of a node with statements as its code."""
        name = self.new_temporary()
        _STATEMENTS[type(node)](self, node, Dest("assign", name))
        return self.stable_name(name)

    def stmt(self, node: Node, dest: Dest) -> None:
        """The code of ``node`` as statements that deliver its value to ``dest``."""
        self.level += 1
        if not self.level % LEVELS:
            self.deepest = max(self.deepest, self.level)
            on_fresh_stack(lambda: self.stmt(node, dest))
            self.level -= 1
            return
        saved = self.move_to(node.at)
        rule = _STATEMENTS.get(type(node))
        if rule is not None:
            rule(self, node, dest)
        else:
            self.deliver(_EXPRESSIONS[type(node)](self, node), dest)
        self.loc = saved
        self.level -= 1

    def deliver(self, value: ast.expr, dest: Dest) -> None:
        """Deliver a value to ``dest``."""
        if dest.kind == "return":
            self.body.append(self.return_(value))
            return
        if dest.kind == "drop":
            if not self.stable(value) or getattr(value, "_unsure", False):  # reading it may be an error
                self.body.append(self.done(value))
        else:
            self.assign(dest.name, value)
        if dest.leave:
            self.body.append(ast.Break(**self.loc))

    def block(self, node: Node, dest: Dest) -> list[ast.stmt]:
        """The code of ``node`` as a separate block."""
        emitted, _ = self.capture(lambda: self.stmt(node, dest))
        return emitted or [ast.Pass(**self.loc)]

    # -- functions ------------------------------------------------------------------------------------------------

    def function(
        self,
        name: str,
        params: Sequence[str],
        fn: CodeFn,
        build: Callable[[], None],
        *,
        rest: str | None = None,
        steps: bool = False,
    ) -> ast.AsyncFunctionDef:
        """``async def name(rt, d, *params)`` with a body that ``build`` emits; ``steps``: calling it takes a step."""
        saved, self.fn = self.fn, fn
        for each in (*params, *([rest] if rest is not None else [])):
            self.owner[each] = fn
        body, _ = self.capture(build)
        self.fn = saved
        head = self.shared_variables(fn, params)
        if rest is not None:
            rest_list = self.call(self.const_param(list, "list_"), [self.name(rest)])
            head.append(ast.Assign([self.stored(rest)], rest_list, **self.loc))
        if steps:
            head += self.fuel()
        return self.coroutine(name, params, [*head, *body], rest)

    def helper(self, params: Sequence[Variable], args: list[ast.expr], build: Callable[[], None], dest: Dest) -> None:
        """Continue in a nested function, for fresh variables in a loop and where Python blocks would nest too deep."""
        self.counter += 1
        name = f"h{self.counter}"
        fn = CodeFn(is_main=self.fn.is_main, tail_ok=self.fn.tail_ok and dest is RETURN)
        self.body.append(self.function(name, [each.python_name for each in params], fn, build))
        value = self.await_(self.call(self.name(name), [self.name("rt"), self.deeper(), *args]))
        if fn.crossing is None:
            self.deliver(value, dest)
            return
        result = self.spill(value)
        loop = self.loops[fn.crossing]
        test = self.is_(result, self.const_param(AGAIN, "AGAIN"))
        jump: list[ast.stmt]
        if loop.fn is self.fn:
            jump, _ = self.capture(lambda: self._go_round(loop))
        else:
            self.fn.crossing = fn.crossing
            jump = [self.return_(self.const_param(AGAIN, "AGAIN"))]
        self.body.append(self.if_(test, jump))
        self.deliver(result, dest)

    def _go_round(self, loop: Round) -> None:
        if loop.params:
            targets: list[ast.expr] = [self.stored(each) for each in loop.params]
            self.body.append(self.assignment(ast.Tuple(targets, STORE, **self.loc), self.rt("again")))
        self.body.append(ast.Continue(**self.loc))

    # -- variables ------------------------------------------------------------------------------------------------

    def bind(self, variable: Variable, value: ast.expr) -> None:
        """Assign a variable its initial value."""
        if not variable.python_name:
            variable.python_name = self.tmp()
        self.assign(variable.python_name, value)
        self.own(variable)

    def own(self, variable: Variable) -> None:
        """Record the strand that a variable belongs to, if ``set!`` elsewhere has to check it."""
        if variable.name:
            self.names[variable.python_name] = variable.name
        if variable.shared:
            self.assign(f"o_{variable.python_name}", self.name("rt"))


Expression = Callable[[Generator, Any], ast.expr]
Statement = Callable[[Generator, Any, Dest], None]
_EXPRESSIONS: dict[type[Any], Expression] = {}
_STATEMENTS: dict[type[Any], Statement] = {}


def expression(kind: type[Any]) -> Callable[[Expression], Expression]:
    """Declare that the function generates the code of this kind of node as an expression."""

    def mark(function: Expression) -> Expression:
        _EXPRESSIONS[kind] = function
        return function

    return mark


def statement(kind: type[Any]) -> Callable[[Statement], Statement]:
    """Declare that the function generates the code of this kind of node as statements."""

    def mark(function: Statement) -> Statement:
        _STATEMENTS[kind] = function
        return function

    return mark
