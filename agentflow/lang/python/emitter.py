"""Writes code: the parts shared by the rules for statements, expressions and calls.

The small builders and the parameters of ``link`` are those of :mod:`agentflow.lang.code_writer`. A rule takes a node of the parsed
tree and returns new nodes, which carry its position. Expressions stay expressions, so that Python itself keeps the order of
evaluation.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, Literal, TypeAlias
from weakref import proxy

from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError
from agentflow.core.data.known_names import DEFINE, NameInfo, NameKind, Names
from agentflow.core.data.labels import UNBOXED, Label
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Span
from agentflow.core.data.values import OrderedSet
from agentflow.lang.abi import Operation
from agentflow.lang.calling import Sliced
from agentflow.lang.code_writer import LOAD, STORE, CodeWriter, PyFn, as_bool, is_bool
from agentflow.lang.environment import UNBOUND
from agentflow.lang.python.absent import REFUSED
from agentflow.lang.python.kinds import Kinds
from agentflow.lang.python.labelled import twin_of
from agentflow.lang.python.names import LocalVariable, PythonScope
from agentflow.lang.python.names import ProgramScopes as Scopes
from agentflow.lang.python.reader import fields_of, span_of
from agentflow.lang.python.rows import traits_of
from agentflow.lang.python.support import check_global, unbound_name
from agentflow.lang.python.values import truth
from agentflow.lang.stack import LEVELS, on_fresh_stack

_KINDS = {
    "r": (UNBOXED, "UNBOXED"),
    "c": (frozenset((*UNBOXED, dict, OrderedSet)), "KEYED"),
    "n": (frozenset((*UNBOXED, list, tuple)), "LISTED"),
}
Written = Callable[[Sequence[ast.expr]], ast.expr]
"""The writer of the code for values, which are simple."""


def is_simple(value: ast.expr) -> bool:
    """Whether an expression can be read again without an effect or a cost."""
    return isinstance(value, ast.Name | ast.Constant)


def unless_boxed(g: CodeWriter, letters: str, values: Sequence[ast.expr], plain: Written, boxed: Written) -> ast.expr:
    """``plain`` for values outside of boxes that hold no relevant box; else ``boxed``.

    Relevant are: for the letter ``o`` of a value none of the boxes in it, for ``r`` all, for ``c`` those in lists and tuples, for ``n`` those of keys.
    The values are evaluated once, in their order, before the first of them is tested.
    """
    last = max((at for at, each in enumerate(values) if not is_simple(each)), default=-1)
    first: list[ast.expr] = []
    again: list[ast.expr] = []
    for at, each in enumerate(values):
        kept = at <= last and not isinstance(each, ast.Constant)
        named = _named(g, each) if kept else each
        first.append(named)
        again.append(g.name(named.target.id) if isinstance(named, ast.NamedExpr) else each)
    looked = [at for at, each in enumerate(values) if not isinstance(each, ast.Constant)]
    if not looked:
        return plain(again)
    tests = [_test(g, letters[at], first[at]) for at in looked]
    # ``and`` skips the tests after one that fails, and the evaluations in them.
    early = [test for at, test in zip(looked, tests, strict=True) if at <= last]
    late = [test for at, test in zip(looked, tests, strict=True) if at > last]
    if early:
        late.insert(0, reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b, **g.loc), early))
    test = late[0] if len(late) == 1 else ast.BoolOp(ast.And(), late, **g.loc)
    return g.ifexp(test, plain(again), boxed(again))


def _named(g: CodeWriter, value: ast.expr) -> ast.expr:
    return g.named(g.tmp(), value)


def _test(g: CodeWriter, letter: str, value: ast.expr) -> ast.expr:
    kind = g.call(g.const_param(type, "type_"), [value])
    if letter == "o":
        return g.is_(kind, g.const_param(Label, "T_Label"), negate=True)
    kinds, name = _KINDS[letter]
    return ast.Compare(kind, [ast.In()], [g.const_param(kinds, name)], **g.loc)


Describe = Callable[[str], NameInfo]
MAX_BLOCKS = 18
"""Loops and ``try`` statements nested in one function: Python's compiler takes 20."""
MAX_ERRORS = 50
Meaning: TypeAlias = "tuple[Literal['builtin', 'direct', 'effect', 'form', 'generic', 'method', 'record'], Any]"
"""The kind of a call and its target: the name of a task, a form or a function, or the definition of a function."""
Expression = Callable[["Emitter", Any], ast.expr]
Statement = Callable[["Emitter", Any], "list[ast.stmt]"]
EXPRESSION_CODE: dict[type[ast.AST], Expression] = {}
STATEMENT_CODE: dict[type[ast.AST], Statement] = {}
"""The writers of each kind of expression and statement; the two decorators below fill them when the rooms are imported."""


def expression(*kinds: type[ast.AST]) -> Callable[[Expression], Expression]:
    """Declare that the function writes the code of these kinds of expression."""

    def mark(function: Expression) -> Expression:
        EXPRESSION_CODE.update(dict.fromkeys(kinds, function))
        return function

    return mark


def statement(*kinds: type[ast.AST]) -> Callable[[Statement], Statement]:
    """Declare that the function writes the code of these kinds of statement."""

    def mark(function: Statement) -> Statement:
        STATEMENT_CODE.update(dict.fromkeys(kinds, function))
        return function

    return mark


class TooManyMistakes(Exception):
    """Raised after so many mistakes that more would not help."""


class Emitter(CodeWriter):
    """One translation of a text.

    ``meanings`` holds the meanings of calls and of names other than variables, and ``templates`` the tasks that the text
    defines, for analyses of the text. Code that reaches a node of ``marks`` first calls ``reach`` with its numbers.
    ``errors`` collects its mistakes; ``failures``, if ``seeks_failures``, collects the certain failures at run time and whether
    the text may continue after each (``guarded``: a handler or a ``race`` is around); ``doubtful`` collects unbound
    names that resemble visible names, each with its first position and the visible name; ``foreign`` are
    names, and ``foreign_methods`` methods, with a refused definition, so that using them is not refused again; ``asked`` the free
    names and the kind of each, ``own_tasks`` the names of the tasks that it defines. ``remembered`` are the parameters with
    code that remembers whether they are integers, and whether any code asks; ``rounds`` the tests for the end of the slice in the
    loops around, of one function, and how many suites are around each; ``bound`` the variables that these suites have certainly
    assigned before. ``closed``: no names but the currently known ones will exist. ``allow`` are the names it may call
    (None: all), ``port`` makes templates.
    """

    def __init__(
        self,
        source: Source,
        tree: ast.Module,
        scopes: Scopes,
        describe: Describe,
        allow: frozenset[str] | None,
        port: Names | None,
        limits: Limits,
        *,
        closed: bool = False,
    ) -> None:
        super().__init__(source, set(scopes.defined))
        self.tree = tree
        self.scopes = scopes
        self.scope: PythonScope = scopes.module
        self.describe = describe
        self.allow = allow
        self.closed = closed or allow is not None
        self.port = port
        self.limits = limits
        self.errors: list[AgentflowError] = []
        self.failures: dict[tuple[str, int], tuple[SexpEvaluationError, bool]] = {}
        self.seeks_failures = False
        self.guarded = 0
        self.doubts: list[AgentflowError] = []
        self.meanings: dict[ast.AST, Meaning] = {}
        self.marks: dict[ast.AST, list[int]] = {}
        self.reach: Callable[[int], None] | None = None
        self.templates: dict[str, list[Any]] = {}
        self.asked: dict[str, NameInfo] = {}
        self.own_tasks: set[str] = set()
        self.own_infos: dict[str, NameInfo] = {}
        self.records: dict[str, dict[str, ast.expr | None]] = {}
        self.schemas: dict[str, dict[str, Any]] = {}
        self.at_start: dict[str, ast.stmt] = {}
        self.before: list[ast.stmt] = []
        self.blocks = 0
        self.handlers: int = 0
        self.in_thunk = 0
        weak = proxy(self)  # so that its trees are freed with it: the collector would hold the interpreter
        self.kinds = Kinds(lambda name: name not in scopes.classes and weak.kind(name) == "unknown")
        self.remembered: dict[LocalVariable, bool] = {}
        self.rounds: list[tuple[ast.If, int]] = []
        self.bound: list[set[LocalVariable]] = []
        self.known_code: dict[ast.AST, str] = {}
        self.global_functions: set[str] = set()
        self.doubtful: dict[str, tuple[ast.AST, str]] = {}
        self.foreign: set[str] = set()
        self.foreign_methods: set[str] = set()

    # -- errors ---------------------------------------------------------------------------------------------------

    def span_at(self, node: ast.AST) -> Span:
        """The span of a node."""
        return span_of(self.positions, node) or self.source.span(0, 1)

    def wrong(self, node: ast.AST, code: str, message: str, hint: str | None = None) -> None:
        """Collect an error at ``node``."""
        self.errors.append(SexpEvaluationError(message, code=code, span=self.span_at(node), hint=hint))
        if len(self.errors) > MAX_ERRORS:
            raise TooManyMistakes

    def fails(self, node: ast.AST, code: str, message: str, hint: str | None = None) -> None:
        """Note a certain failure, which is a reason to refuse the text only if failures are sought."""
        span = self.span_at(node)
        error = SexpEvaluationError(message, code=code, span=span, hint=hint)
        before = self.failures.get((code, span.start))
        self.failures[code, span.start] = (error, self.guarded > 0 and (before is None or before[1]))

    def refuse(self, node: ast.AST, what: str, hint: str | None = None) -> None:
        """Collect the error for a construct missing in this subset of Python."""
        self.wrong(node, "syntax/not-here", f"{what} is not part of workflow texts", hint)

    # -- nodes ----------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> ast.expr:
        """The code of an expression. A kind of node without a rule is refused."""
        rule = EXPRESSION_CODE.get(type(node))
        if rule is None:
            what, hint = REFUSED.get(type(node), (f"'{type(node).__name__}'", None))
            self.refuse(node, what, hint)
            return ast.Constant(None, **self.loc)
        self.level = level = self.level + 1
        saved, self.loc = self.loc, _position(node)
        if level % LEVELS:
            code = rule(self, node)
        else:
            self.deepest = max(self.deepest, level)
            code = on_fresh_stack(lambda: rule(self, node))
        if self.marks and node in self.marks:
            code = ast.Subscript(self.tuple_of([self._reached(node), code]), self.const(1), LOAD, **self.loc)
        self.loc = saved
        self.level = level - 1
        return code

    def _reached(self, node: ast.AST) -> ast.expr:
        reach = self.const_param(self.reach, "reach_")
        return self.tuple_of([self.call(reach, [self.const(each)]) for each in self.marks[node]])

    def suite(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The code of statements. A kind of node without a rule is refused."""
        written: list[ast.stmt] = []
        self.bound.append(set())
        for node in nodes:
            rule = STATEMENT_CODE.get(type(node))
            if rule is None:
                what, hint = REFUSED.get(type(node), (f"'{type(node).__name__}'", None))
                self.refuse(node, what, hint)
                continue
            self.level += 1
            saved, self.loc = self.loc, _position(node)
            if self.level % LEVELS:
                code = rule(self, node)
            else:
                self.deepest = max(self.deepest, self.level)
                code = on_fresh_stack(partial(rule, self, node))
            if node in self.marks:
                written.append(ast.Expr(self._reached(node), **self.loc))
            written += [*self.flushed(), *code]
            self.loc = saved
            self.level -= 1
        self.bound.pop()
        return written or [ast.Pass(**self.loc)]

    # -- positions and spans --------------------------------------------------------------------------------------

    @contextmanager
    def at(self, node: ast.AST) -> Generator[None]:
        """Give nodes built meanwhile the position of ``node``."""
        saved, self.loc = self.loc, _position(node)
        yield
        self.loc = saved

    def span_constant(self, node: ast.AST) -> ast.expr:
        """The span of a node as a constant."""
        span = self.span_at(node)
        return self.packed_constant((span.start, span.end), lambda: span)

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
        name = f"L_{function.__name__}"
        return self.call(self.const_param(twin_of(function), name), arguments)

    def env(self) -> ast.expr:
        """The environment that the program is linked to."""
        return self.name("E")

    def depth(self) -> ast.expr:
        """The depth of the code being written."""
        return self.name("d")

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
        return [ast.If(self.is_(named, self.const(None), negate=True), [ast.Expr(work, **self.loc)], [], **self.loc)]

    def operation_at(self, op: Operation, node: ast.AST, *arguments: ast.expr) -> ast.expr:
        """An operation of the runtime, awaited."""
        first = [self.const(op), self.name("d"), self.span_constant(node)]
        return self.await_(self.call(self.rt("operation"), [*first, *arguments]))

    def true(self, value: ast.expr) -> ast.expr:
        """Whether a value counts as true."""
        return value if is_bool(value) else self.ours(truth, value)

    # -- names ----------------------------------------------------------------------------------------------------

    def kind(self, name: str) -> NameKind:
        """The meaning of a name of the module: the environment before tasks and tools; ``unknown`` for Python's functions."""
        if name in self.scopes.defined and name not in self.own_tasks:
            return "variable"
        if name in self.scopes.classes:
            return "unknown"
        info = self.asked.get(name)
        if info is None:
            info = self.asked[name] = self.describe(name)
        return "task" if name in self.own_tasks and info.kind != "variable" else info.kind

    def is_record(self, name: str) -> bool:
        """Whether a name is a class of this text, or of an earlier one in the same environment, which this text then defines too."""
        if name in self.records or name in self.scopes.classes:
            return name in self.records
        if self.kind(name) != "unknown" or (record := self.asked[name].record) is None:
            return False
        self.records[name] = fields_of(record.text, self.loc)
        self.schemas[name] = dict(record.schema)
        return True

    def callable_name(self, name: str) -> str:
        """The task or tool that a name in call position means: ``read_file`` is ``read-file`` too, if nothing else has it."""
        other = name.replace("_", "-")
        if other != name and self.kind(name) == "unknown" and self.kind(other) in ("task", "tool"):
            return other
        return name

    def info(self, name: str) -> NameInfo:
        """The parameters of a task or tool."""
        return self.own_infos.get(name) or self.asked[name]

    def granted(self, name: str, node: ast.AST, *, own: bool = False) -> bool:
        """Whether the program may call ``name``; an error if not."""
        if self.allow is None or name in self.allow or (own and DEFINE in self.allow):
            return True
        shown = ", ".join(sorted(self.allow)[:20]) or "none"
        message = f"'{name}' is not granted to this program"
        self.wrong(node, "name/not-granted", message, f"the names it may call: {shown}")
        return False

    def read(self, var: LocalVariable | None, name: str, hint: str | None = None) -> ast.expr:
        """The value of a variable; ``hint`` is for an unbound one of the environment."""
        if var is not None:
            code = self.name(var.py)
            code._var = var  # type: ignore[attr-defined]
            return code
        named, again = self.walrus(self.attr(self.cell(name), "v"))
        more = [] if hint is None else [self.const(hint)]
        missing = self.ours(unbound_name, self.name("rt"), self.env(), self.const(name), *more)
        return self.ifexp(self.is_(named, self.const_param(UNBOUND, "U"), negate=True), again, missing)

    def target(self, name: str) -> ast.expr:
        """The target of an assignment to a variable; ``before`` gets the checks to make first."""
        var = self.scope.find(name)
        if var is None:
            if self.scope.parent is not None:
                check = self.ours(check_global, self.name("rt"), self.env(), self.const(name))
                self.before.append(ast.Expr(check, **self.loc))
            return ast.Attribute(self.cell(name), "v", STORE, **self.loc)
        self.names[var.py] = var.name
        if var.fn is None:
            var.fn = self.fn
        if var.fn is not self.fn:
            self.fn.nonlocals.add(var.py)
            var.fn.declared.add(var.py)
            if var.shared and var.scope is not self.scope:
                owner = self.name(f"o_{var.py}")
                check = ast.Expr(self.call(self.rt("check_owner"), [owner, self.const(name)]), **self.loc)
                self.before.append(ast.If(self.is_(owner, self.name("rt"), negate=True), [check], [], **self.loc))
        return ast.Name(var.py, STORE, **self.loc)

    def flushed(self) -> list[ast.stmt]:
        """The checks before the statement being written."""
        checks, self.before = self.before, []
        return checks

    # -- functions ------------------------------------------------------------------------------------------------

    def define(
        self,
        py: str,
        parameters: list[str],
        scope: PythonScope | None,
        build: Callable[[], list[ast.stmt]],
        *,
        step: bool = True,
    ) -> ast.AsyncFunctionDef:
        """``async def py(rt, d, *parameters)`` with the statements that ``build`` writes, in ``scope`` (None: the same)."""
        fn = PyFn()
        handlers = self.handlers
        saved = (self.fn, self.scope, self.blocks, self.before, self.rounds, self.bound)
        self.fn, self.blocks, self.before, self.rounds, self.bound, self.handlers = fn, 0, [], [], [], 0
        if scope is not None:
            self.scope = scope
            for var in scope.vars.values():
                var.fn = fn
                self.names[var.py] = var.name
        else:
            self.handlers = handlers
        body = build()
        used = scope.vars.values() if scope is not None else ()
        shared = [var for var in used if var.shared]
        self.fn, self.scope, self.blocks, self.before, self.rounds, self.bound = saved
        self.handlers = handlers
        head = self.shared_variables(fn, parameters)
        for var in shared:
            owner = ast.Name(f"o_{var.py}", STORE, **self.loc)
            head.append(ast.Assign([owner], self.name("rt"), **self.loc))
        if step:
            head.extend(self.fuel())
        return self.coroutine(py, parameters, [*head, *body])

    @contextmanager
    def nested(self, node: ast.AST, count: int = 1) -> Generator[None]:
        """A context for the inside of a loop or ``try``. Raises LimitExceeded (``limits/blocks``) past Python's bound."""
        self.blocks += count
        if self.blocks > MAX_BLOCKS:
            raise LimitExceeded(
                f"loops and try statements are nested deeper than {MAX_BLOCKS} in one function",
                limit="blocks",
                allowed=MAX_BLOCKS,
                span=self.span_at(node),
                hint="move the inner ones into a function",
            )
        yield
        self.blocks -= count


def _position(node: Any) -> dict[str, Any]:
    """The position of a node, as keyword arguments of nodes."""
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.end_lineno,
        "end_col_offset": node.end_col_offset,
    }
