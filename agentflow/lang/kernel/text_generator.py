"""Generates Python code from the nodes of texts in Python: the parts shared by the rules for statements and values.

Expressions stay expressions, so that Python itself keeps the order of evaluation; functions that one needs are defined before the
statement it is in. Statements stay statements, and ``return``, ``break`` and ``continue`` are Python's own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias, TypeVar

from agentflow.core.data.labels import Label
from agentflow.core.data.source import Span
from agentflow.lang.builtins.opening import PLAIN
from agentflow.lang.calling import Sliced
from agentflow.lang.kernel.code_writer import STORE, CodeWriter, as_bool, is_bool
from agentflow.lang.kernel.generator import CodeFn, Generator
from agentflow.lang.kernel.nodes import FrameLayout, Node, Seq, Variable
from agentflow.lang.python.boxed.labelled import twin_of
from agentflow.lang.python.lowering import Lowering
from agentflow.lang.python.names import LocalVariable
from agentflow.lang.python.rows import traits_of
from agentflow.lang.python.values import truth
from agentflow.lib.text.stack import LEVELS, on_fresh_stack

C = TypeVar("C")
Written: TypeAlias = "Callable[[Sequence[ast.expr]], ast.expr]"
"""The writer of the code for values, which are simple."""


class TextGenerator(Generator):
    """One translation of a lowered text; ``kinds`` are the types that are certain.

    ``before`` are the functions that the statement being generated needs. ``remembered`` are the parameters with code that remembers
    whether they are integers, and whether any code asks; ``rounds`` the tests for the end of the slice in the loops around, of one function,
    and how many suites are around each; ``bound`` the variables that these suites have certainly assigned before. ``numbered`` are the
    names of functions by their numbers, ``called`` those of the environment that calls mean. ``out`` is the variable of the
    comprehension being generated, and its kind.
    """

    # how deep expressions are nested matters to programs in S-expressions alone, which may be deeper than Python's compiler takes
    call = CodeWriter.call
    await_ = CodeWriter.await_
    ifexp = CodeWriter.ifexp

    def __init__(self, lowering: Lowering) -> None:
        super().__init__(lowering.source, set(lowering.scopes.defined), {}, labelled=lowering.follows)
        self.kinds = lowering.kinds
        self.locations = lowering.locations
        self.named_in = lowering.named_in
        self.before: list[ast.stmt] = []
        self.remembered: dict[LocalVariable, bool] = {}
        self.rounds: list[tuple[ast.If, int]] = []
        self.bound: list[set[LocalVariable]] = []
        self.numbered: dict[int, str] = {}
        self.called: set[str] = set()
        self.out: tuple[str, str] | None = None
        self.temporaries: dict[Variable, ast.Constant] = {}

    # -- nodes ----------------------------------------------------------------------------------------------------

    def expr(self, node: Node) -> ast.expr:
        return self._by(TEXT_EXPRESSIONS[type(node)], node)

    def exprs(self, items: Sequence[Node]) -> list[ast.expr]:
        """Expressions, in order."""
        return [self.expr(each) for each in items]

    def statements(self, node: Node) -> list[ast.stmt]:
        """The statements for a node whose value is not used; first the functions that they need."""
        code = self._by(TEXT_STATEMENTS.get(type(node), _unused), node)
        return [*self.flushed(), *code] if self.before else code

    def _by(self, rule: Callable[[TextGenerator, Any], C], node: Node) -> C:
        """The code of a node by its rule, at its position."""
        at, saved = node.at, self.loc
        if at is not None:
            self.loc = self.locations.get((at.start, at.end)) or self._located(at)
        self.level = level = self.level + 1
        if level % LEVELS:
            code = rule(self, node)
        else:
            self.deepest = max(self.deepest, level)
            code = on_fresh_stack(lambda: rule(self, node))
        self.level = level - 1
        self.loc = saved
        return code

    def _located(self, at: Span) -> dict[str, Any]:
        """The position of a part of the text that no node of its tree is."""
        saved = self.move_to(at)
        location, self.loc = self.loc, saved
        return location

    def suite(self, node: Node | None) -> list[ast.stmt]:
        """The statements of a suite; none for one that does nothing."""
        if node is None:
            return []
        self.bound.append(set())
        code = self.statements(node)
        self.bound.pop()
        return code

    def returning(self, node: Node) -> list[ast.stmt]:
        """The statements that return the value of a node."""
        if isinstance(node, Seq):
            first = [one for each in node.items[:-1] for one in self.statements(each)]
            return [*first, *self.returning(node.items[-1])]
        value = self.expr(node)
        return [*self.flushed(), self.return_(value)]

    def flushed(self) -> list[ast.stmt]:
        """The functions that the statement being generated needs."""
        before, self.before = self.before, []
        return before

    # -- small parts ----------------------------------------------------------------------------------------------

    def ours(self, function: Any, *arguments: ast.expr) -> ast.expr:
        """A call of a function of this package."""
        code = self.const_param(function, f"P_{function.__name__}")
        if not self.labelled:
            return self.call(code, arguments)
        traits = traits_of(function)
        letters = traits.tested
        if letters is None or len(arguments) < len(letters):
            return self.boxed(function, arguments)
        hidden = arguments[: len(arguments) - len(letters)]

        def plain(values: Sequence[ast.expr]) -> ast.expr:
            return self.call(code, [*hidden, *values])

        def boxed(values: Sequence[ast.expr]) -> ast.expr:
            return self.boxed(function, [*hidden, *values])

        return unless_boxed(self, letters, arguments[len(hidden) :], plain, boxed)

    def boxed(self, function: Any, arguments: Sequence[ast.expr]) -> ast.expr:
        """A call of a function of this package with values that may be in boxes: of its twin."""
        return self.call(self.const_param(twin_of(function), f"L_{function.__name__}"), arguments)

    def walrus(self, value: ast.expr) -> tuple[ast.expr, ast.expr]:
        """``value`` assigned to a temporary, and the temporary for reading it again."""
        name = self.tmp()
        return self.named(name, value), self.name(name)

    def exact(self, value: ast.expr) -> type[Any] | None:
        """The exact type that a value always has; None if it varies."""
        return None if self.labelled else self.kinds.of(value)

    def is_counted(self, value: ast.expr) -> bool:
        """Whether a value is certainly an integer that counts something: one so small that its size is not charged for."""
        return not self.labelled and self.kinds.is_counted(value)

    def type_is(self, value: ast.expr, kind: type[Any]) -> ast.expr:
        """``type(value) is kind``, computed once for a parameter that is used several times."""
        var: LocalVariable | None = getattr(value, "_var", None)
        if kind is int and var is not None and var in self.remembered and var.fn is self.fn:
            self.remembered[var] = True
            return as_bool(self.name(f"i_{var.py}"))
        named = self.call(self.const_param(type, "type_"), [value])
        return self.is_(named, self.const_param(kind, f"T_{kind.__name__}"))

    def long(self, value: ast.expr) -> ast.expr:
        """The value of a function that may leave its work for slices."""
        named, again = self.walrus(value)
        rest = self.await_(self.call(self.rt("work"), [self.attr(again, "work")]))
        return self.ifexp(self.type_is(named, Sliced), rest, again)

    def settled(self, value: ast.expr) -> list[ast.stmt]:
        """The statements for a function that changes a value: it returns None, or work to carry out first."""
        named, again = self.walrus(value)
        work = self.await_(self.call(self.rt("work"), [self.attr(again, "work")]))
        return [self.if_(self.is_(named, self.const(None), negate=True), [self.done(work)])]

    def true(self, value: ast.expr) -> ast.expr:
        """Whether a value counts as true."""
        return value if is_bool(value) else self.ours(truth, value)

    def environment(self) -> ast.expr:
        return self.name("E")

    def constant(self, value: Any) -> ast.expr:
        """A constant of the text, or one that a rule needs."""
        if value is None or type(value) in (bool, int, float, str):
            return self.const(value)
        return self.packed_constant(id(value), lambda: value)

    def names_constant(self, names: tuple[str, ...]) -> ast.expr:
        """Names as a constant: one for all places with the same."""
        return self.packed_constant(("names", names), lambda: names)

    # -- variables ------------------------------------------------------------------------------------------------

    def target(self, variable: Variable | str) -> ast.expr:
        """The target of an assignment."""
        if isinstance(variable, str):
            return ast.Attribute(self.cell(variable), "v", STORE, **self.loc)
        var: LocalVariable | None = variable.local
        if var is None:
            if not variable.python_name:
                variable.python_name = self.tmp()
            return self.stored(variable.python_name)
        self.names[var.py] = var.name
        if var.fn is None:
            var.fn = self.fn
        if var.fn is not self.fn:
            self.fn.nonlocals.add(var.py)
            var.fn.declared.add(var.py)
        return self.stored(var.py)

    # -- functions ------------------------------------------------------------------------------------------------

    def define(
        self,
        py: str,
        params: Sequence[str],
        frame: FrameLayout | None,
        build: Callable[[], list[ast.stmt]],
        *,
        steps: bool = False,
    ) -> ast.AsyncFunctionDef:
        """``async def py(rt, d, *params)`` with the statements that ``build`` writes; ``frame`` has its variables. ``steps``: calling it takes a step."""
        fn = CodeFn()
        saved = (self.fn, self.before, self.rounds, self.bound, self.out)
        self.fn, self.before, self.rounds, self.bound, self.out = fn, [], [], [], None
        variables = self.named_in.get(frame, ()) if frame is not None else ()
        for var in variables:
            var.fn = fn
            self.names[var.py] = var.name
        body = build()
        self.fn, self.before, self.rounds, self.bound, self.out = saved
        head = self.shared_variables(fn, params)
        for var in variables:
            if var.shared:
                head.append(self.assignment(self.stored(f"o_{var.py}"), self.name("rt")))
        if steps:
            head.extend(self.fuel())
        return self.coroutine(py, params, [*head, *body])

    def number_name(self, number: int, name: str) -> str:
        """The Python name of the code of a function that calls mean by its number."""
        py = self.numbered.get(number)
        if py is None:
            self.counter += 1
            py = self.numbered[number] = f"f_{name}_{self.counter}"
            self.names[py] = name
        return py


def _unused(g: TextGenerator, node: Node) -> list[ast.stmt]:
    return discarded(g, g.expr(node))


def discarded(g: TextGenerator, value: ast.expr) -> list[ast.stmt]:
    """An unused value. A choice becomes a statement: CPython compiles a call to faster code if its value is dropped at once."""
    if not isinstance(value, ast.IfExp):
        return [g.done(value)]
    return [g.if_(value.test, discarded(g, value.body), discarded(g, value.orelse))]


def is_simple(value: ast.expr) -> bool:
    """Whether an expression can be read again without an effect or a cost."""
    return isinstance(value, ast.Name | ast.Constant)


def unless_boxed(
    g: TextGenerator, letters: str, values: Sequence[ast.expr], plain: Written, boxed: Written
) -> ast.expr:
    """``plain`` for values outside of boxes that hold no relevant box; else ``boxed``.

    Relevant are: for the letter ``o`` of a value none of the boxes in it, for ``r`` all, for ``c`` those in lists and tuples, for ``n`` those of keys.
    The values are evaluated once, in their order, before the first of them is tested.
    """
    last = max((at for at, each in enumerate(values) if not is_simple(each)), default=-1)
    first: list[ast.expr] = []
    again: list[ast.expr] = []
    for at, each in enumerate(values):
        kept = at <= last and not isinstance(each, ast.Constant)
        named, name = g.walrus(each) if kept else (each, each)
        first.append(named)
        again.append(name)
    looked = [at for at, each in enumerate(values) if not isinstance(each, ast.Constant)]
    if not looked:
        return plain(again)
    tests = [_test(g, letters[at], first[at]) for at in looked]
    # ``and`` skips the tests after one that fails, and the evaluations in them.
    early = [test for at, test in zip(looked, tests, strict=True) if at <= last]
    late = [test for at, test in zip(looked, tests, strict=True) if at > last]
    if early:
        late.insert(0, reduce(lambda a, b: g.combined(a, ast.BitAnd(), b), early))
    test = late[0] if len(late) == 1 else g.every(late)
    return g.ifexp(test, plain(again), boxed(again))


def _test(g: TextGenerator, letter: str, value: ast.expr) -> ast.expr:
    kind = g.call(g.const_param(type, "type_"), [value])
    if letter == "o":
        return g.is_(kind, g.const_param(Label, "T_Label"), negate=True)
    return g.compared(kind, ast.In(), g.const_param(PLAIN[letter], f"PLAIN_{letter}"))


TextExpression = Callable[[TextGenerator, Any], ast.expr]
TextStatement = Callable[[TextGenerator, Any], "list[ast.stmt]"]
TEXT_EXPRESSIONS: dict[type[Any], TextExpression] = {}
TEXT_STATEMENTS: dict[type[Any], TextStatement] = {}
"""The rules for each kind of node; the two decorators below fill them when the rooms are imported."""


def text_expression(kind: type[Any]) -> Callable[[TextExpression], TextExpression]:
    """Declare that the function generates the code of this kind of node as an expression."""

    def mark(function: TextExpression) -> TextExpression:
        TEXT_EXPRESSIONS[kind] = function
        return function

    return mark


def text_statement(kind: type[Any]) -> Callable[[TextStatement], TextStatement]:
    """Declare that the function generates the code of this kind of node as statements."""

    def mark(function: TextStatement) -> TextStatement:
        TEXT_STATEMENTS[kind] = function
        return function

    return mark
