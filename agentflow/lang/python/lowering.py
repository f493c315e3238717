"""Reads texts in Python: the parts shared by the rules for statements, expressions and calls.

A rule takes a node of the parsed tree, collects the mistakes in it, and gives the node of the kernel
(:mod:`agentflow.lang.kernel.nodes`) that does the same. A refused part becomes a constant: such a text never runs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import proxy

from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError
from agentflow.core.data.known_names import DEFINE, NameInfo, NameKind, Names
from agentflow.core.data.labels import Following
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Span
from agentflow.lang.kernel.inline import owned
from agentflow.lang.kernel.local_variables import captured, finally_names, perhaps_unbound
from agentflow.lang.kernel.nodes import Const, Env, FrameLayout, Node, Prim, Ref, Seq, Variable, owner_of
from agentflow.lang.python.absent import REFUSED
from agentflow.lang.python.kinds import Kinds
from agentflow.lang.python.names import COMPREHENSIONS, LocalVariable, PythonScope, parameters
from agentflow.lang.python.names import ProgramScopes as Scopes
from agentflow.lang.python.reader import fields_of, span_of
from agentflow.lang.python.support import check_global, reached
from agentflow.lang.trace import Positions
from agentflow.lib.text.stack import LEVELS, on_fresh_stack

Describe = Callable[[str], NameInfo]
MAX_BLOCKS = 18
"""Loops and ``try`` statements nested in one function: Python's compiler takes 20."""
MAX_ERRORS = 50
Expression = Callable[["Lowering", Any], Node]
Statement = Callable[["Lowering", Any], "list[Node]"]
EXPRESSION_RULES: dict[type[ast.AST], Expression] = {}
STATEMENT_RULES: dict[type[ast.AST], Statement] = {}
"""The rules for each kind of expression and statement; the two decorators below fill them when the rooms are imported."""


def expression(*kinds: type[ast.AST]) -> Callable[[Expression], Expression]:
    """Declare that the function reads these kinds of expression."""

    def mark(function: Expression) -> Expression:
        EXPRESSION_RULES.update(dict.fromkeys(kinds, function))
        return function

    return mark


def statement(*kinds: type[ast.AST]) -> Callable[[Statement], Statement]:
    """Declare that the function reads these kinds of statement."""

    def mark(function: Statement) -> Statement:
        STATEMENT_RULES.update(dict.fromkeys(kinds, function))
        return function

    return mark


class TooManyMistakes(Exception):
    """Raised after so many mistakes that more would not help."""


# Each construct of a text has one rule: it was checked in one place and given its meaning in two others (decision 72)
class Lowering:
    """One reading of a text.

    ``templates`` are the tasks that the text defines. Code that reaches a node of ``marks`` first calls ``reach`` with its numbers.
    ``errors`` collects its mistakes; ``failures``, if ``seeks_failures``, collects the certain failures at run time and whether
    the text may continue after each (``guarded``: a handler or a ``race`` is around); ``doubtful`` collects unbound
    names that resemble visible names, each with its first position and the visible name; ``foreign`` are
    names, and ``foreign_methods`` methods, with a refused definition, so that using them is not refused again; ``asked`` the free
    names and the kind of each, ``own_tasks`` the names of the tasks that it defines. ``free`` are the variables of the environment
    that it met, ``named_in`` the named variables of each frame, ``before`` the checks before the statement being read. ``closed``: no names but the currently known ones will exist.
    ``allow`` are the names it may call (None: all), ``port`` makes templates. ``follows``: how its code treats values in boxes.
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
        follows: Following = False,
    ) -> None:
        self.source = source
        self.positions = Positions(source)
        self.locations: dict[tuple[int, int], dict[str, int]] = {}
        self._starts = source.line_starts if source.text.isascii() else None
        self.tree = tree
        self.scopes = scopes
        self.scope: PythonScope = scopes.module
        self.describe = describe
        self.allow = allow
        self.closed = closed or allow is not None
        self.port = port
        self.limits = limits
        self.follows: Following = follows
        self.errors: list[AgentflowError] = []
        self.failures: dict[tuple[str, int], tuple[SexpEvaluationError, bool]] = {}
        self.seeks_failures = False
        self.guarded = 0
        self.doubts: list[AgentflowError] = []
        self.marks: dict[ast.AST, list[int]] = {}
        self.reach: Callable[[int], None] | None = None
        self.templates: dict[str, list[Any]] = {}
        self.asked: dict[str, NameInfo] = {}
        self.own_tasks: set[str] = set()
        self.own_infos: dict[str, NameInfo] = {}
        self.records: dict[str, dict[str, ast.expr | None]] = {}
        self.schemas: dict[str, dict[str, Any]] = {}
        self.at_start: dict[str, Node] = {}
        self.before: list[Node] = []
        self.frame = FrameLayout(None)
        self.free: set[str] = set()
        self.variables: dict[LocalVariable, Variable] = {}
        self.numbers: dict[ast.AST, int] = {}
        self.named_in: dict[FrameLayout, list[LocalVariable]] = {}
        self.blocks = 0
        self.handlers: int = 0
        self.in_thunk = 0
        self.level = 0
        self.deepest = 0
        self.node: ast.AST = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
        weak = proxy(self)  # so that its trees are freed with it: the collector would hold the interpreter
        self.kinds = Kinds(lambda name: name not in scopes.classes and weak.kind(name) == "unknown")
        self.doubtful: dict[str, tuple[ast.AST, str]] = {}
        self.foreign: set[str] = set()
        self.foreign_methods: set[str] = set()

    # -- errors ---------------------------------------------------------------------------------------------------

    def span_at(self, node: ast.AST) -> Span:
        """The span of a node; ``locations`` keeps its position for the code."""
        location = position_of(node)
        if location is None:
            return self.source.span(0, 1)
        starts = self._starts
        if starts is None:
            span = span_of(self.positions, node) or self.source.span(0, 1)
        else:  # in texts of ASCII, most, a column is one as Python counts it
            start = starts[location["lineno"] - 1] + location["col_offset"]
            span = Span(self.source, start, starts[location["end_lineno"] - 1] + location["end_col_offset"])
        self.locations[span.start, span.end] = location
        return span

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

    def refused(self) -> Node:
        """A stand-in for an expression that was refused."""
        return Const(None, None)

    # -- nodes ----------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Node:
        """An expression. A kind of node without a rule is refused."""
        rule = EXPRESSION_RULES.get(type(node))
        if rule is None:
            what, hint = REFUSED.get(type(node), (f"'{type(node).__name__}'", None))
            self.refuse(node, what, hint)
            return self.refused()
        self.level = level = self.level + 1
        saved, self.node = self.node, node
        if level % LEVELS:
            lowered = rule(self, node)
        else:
            self.deepest = max(self.deepest, level)
            lowered = on_fresh_stack(lambda: rule(self, node))
        if self.marks and node in self.marks:
            lowered = Seq(lowered.at, [*self._reached(node), lowered])
        self.node = saved
        self.level = level - 1
        return lowered

    def values(self, items: Sequence[ast.expr]) -> list[Node]:
        """Expressions, in order."""
        return [self.value(each) for each in items]

    def _reached(self, node: ast.AST) -> list[Node]:
        """The nodes that report that a marked part is reached."""
        reach = self.reach
        marks = self.marks.get(node, ()) if reach is not None else ()
        return [Prim(None, reached, [Const(None, reach), Const(None, each)]) for each in marks]

    def suite(self, nodes: Sequence[ast.stmt]) -> Seq:
        """Statements. A kind of node without a rule is refused."""
        items: list[Node] = []
        for node in nodes:
            rule = STATEMENT_RULES.get(type(node))
            if rule is None:
                what, hint = REFUSED.get(type(node), (f"'{type(node).__name__}'", None))
                self.refuse(node, what, hint)
                continue
            self.level += 1
            saved, self.node = self.node, node
            if self.level % LEVELS:
                lowered = rule(self, node)
            else:
                self.deepest = max(self.deepest, self.level)
                lowered = on_fresh_stack(partial(rule, self, node))
            items += [*self._reached(node), *self.flushed(), *lowered]
            self.node = saved
            self.level -= 1
        return Seq(None, [*items, Const(None, None)])

    def flushed(self) -> list[Node]:
        """The checks before the statement being read."""
        checks, self.before = self.before, []
        return checks

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

    def is_outside(self, name: str) -> bool:
        """Whether a name is none of the text's and its host's, so that it may mean a function of Python."""
        return self.scope.find(name) is None and self.kind(name) == "unknown"

    def is_record(self, name: str) -> bool:
        """Whether a name is a class of this text, or of an earlier one in the same environment, which this text then defines too."""
        if name in self.records or name in self.scopes.classes:
            return name in self.records
        if self.kind(name) != "unknown" or (record := self.asked[name].record) is None:
            return False
        self.records[name] = fields_of(record.text, self.node)
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

    def variable(self, name: str) -> Variable | str:
        """The variable that a name means here; the name itself for one of the environment."""
        var = self.scope.find(name)
        if var is not None:
            return self.variables[var]
        self.free.add(name)
        return name

    def read(self, name: str, at: Span, hint: str | None = None) -> Node:
        """The value of a variable; ``hint`` is for an unbound one of the environment."""
        return Ref(at, self.variable(name), hint)

    def target(self, name: str, at: Span) -> Variable | str:
        """A variable about to be assigned; ``before`` gets the checks to make first."""
        var, variable = self.scope.find(name), self.variable(name)
        if var is None:
            if self.scope.parent is not None:
                args: list[Node] = [Env(None), Const(None, name)]
                self.before.append(Prim(at, check_global, args, takes_rt=True))
        elif var.shared and var.scope is not self.scope:
            assert isinstance(variable, Variable)
            owner = Ref(None, owner_of(variable))
            self.before.append(Prim(at, owned, [Const(None, None), owner, Const(None, name)], takes_rt=True))
        return variable

    def number_of(self, definition: ast.AST) -> int:
        """The number by which calls mean a function of the text."""
        return self.numbers.setdefault(definition, len(self.numbers))

    def temporary(self) -> Variable:
        """A new variable that no text names."""
        return Variable("", self.frame)

    # -- functions ------------------------------------------------------------------------------------------------

    def within(self, node: Any, build: Callable[[], Node]) -> tuple[FrameLayout, Node]:
        """The result of ``build`` within the scope of a function or comprehension, and its frame."""
        saved = self.frame, self.scope, self.before, self.blocks, self.handlers
        frame, self.before, self.blocks, self.handlers = self._enter(node), [], 0, 0
        body = build()
        body = Seq(None, [*self.before, body]) if self.before else body
        self.frame, self.scope, self.before, self.blocks, self.handlers = saved
        return frame, body

    def apart(self, build: Callable[[], Node]) -> tuple[FrameLayout, Node]:
        """The result of ``build`` as code of its own in the same scope, and its frame."""
        saved = self.before, self.blocks
        frame = self.frame = FrameLayout(self.frame)
        self.before, self.blocks = [], 0
        body = build()
        body = Seq(None, [*self.before, body]) if self.before else body
        assert frame.parent is not None
        self.frame = frame.parent
        self.before, self.blocks = saved
        return frame, body

    def _enter(self, node: Any) -> FrameLayout:
        """The frame of a function or comprehension, with the variables of its scope; its parameters come first."""
        scope = self.scopes.scopes[node]
        is_function = not isinstance(node, COMPREHENSIONS)
        frame = FrameLayout(self.frame, is_function=is_function)
        first = parameters(node.args) if is_function else []
        for name in [*first, *[each for each in scope.vars if each not in first]]:
            var = scope.vars[name]
            variable = self.variables[var] = Variable(name, frame, shared=var.shared)
            variable.python_name, variable.parameter = var.py, name in first
            if self.follows != "strict":  # its machine keeps the nodes, and would keep the tree
                variable.local = var
        self.named_in[frame] = list(scope.vars.values())
        if self.follows == "strict":
            self._note_readers(scope)
        self.frame, self.scope = frame, scope
        return frame

    def _note_readers(self, scope: PythonScope) -> None:
        """Note which variables other code reads, and which may have no value."""
        outliving, finals, perhaps = captured(self.scopes), finally_names(scope), perhaps_unbound(self.scopes, scope)
        for name, var in scope.vars.items():
            variable = self.variables[var]
            variable.private = not var.shared and var not in outliving and name not in finals
            variable.unsure = name in perhaps

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


def position_of(node: Any) -> dict[str, int] | None:
    """The position of a node, as keyword arguments of nodes; None for one without."""
    try:
        return {
            "lineno": node.lineno,
            "col_offset": node.col_offset,
            "end_lineno": node.end_lineno,
            "end_col_offset": node.end_col_offset,
        }
    except AttributeError:
        return None
