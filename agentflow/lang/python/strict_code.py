"""Code of texts in Python under a ``strict`` policy: it reports the sources of each condition to the strand, which then
mark everything that depends on it.

As in S-expressions (:mod:`agentflow.lang.emit_strict`), conditions raise ``rt.ambient``, and it is restored at the end of
their branches, unless one of them may leave by ``return``, ``break`` or ``continue``: then at the end of the loop, or by
the caller of the function. Variables that branches assign, or change the contents of, are marked before the choice. A
local variable that may have no value then holds :data:`UNBOUND`, marked as any other value. Temporaries are cleared after
each statement, so that a single reference to a container in a variable can be recognized.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from agentflow.core.data.labels import NO_SOURCES, Label
from agentflow.lang.environment import UNBOUND
from agentflow.lang.generated import LOAD, STORE, is_bool
from agentflow.lang.python import strict
from agentflow.lang.python.names import LocalVariable, PythonScope, parameters
from agentflow.lang.python.writes import (
    Target,
    captured,
    certainly_bound,
    exits,
    finally_names,
    perhaps_unbound,
    targets,
)

Emitter: TypeAlias = Any
"""An :class:`~agentflow.lang.python.emitter.Emitter`; its module imports this one."""


class StrictChanges:
    """The additions of an emitter to code that changes lists, dicts and sets; ``caught`` is the name of the ambient sources
    at the start of the innermost ``try``."""

    def __init__(self, g: Emitter) -> None:
        self.g = g
        self.caught: str | None = None
        self._finals: dict[int, set[str]] = {}

    # -- variables ------------------------------------------------------------------------------------------------

    def is_private(self, var: LocalVariable) -> bool:
        """Whether only the function being written assigns a variable."""
        finals = self._finals.get(id(var.scope))
        if finals is None:
            finals = self._finals[id(var.scope)] = finally_names(var.scope)
        return var.fn is self.g.fn and not var.shared and var not in captured(self.g.scopes) and var.name not in finals

    def since(self) -> ast.expr:
        """The ambient sources that a variable must carry for a change now: within a ``try``, those at its beginning."""
        return self.g.rt("ambient") if self.caught is None else self.g.name(self.caught)

    def local(self, var: LocalVariable) -> tuple[ast.expr, ast.Name, ast.expr]:
        """The variable for reading and for writing, and whether only the function being written sees it."""
        g = self.g
        if var.fn is not g.fn and var.fn is not None:
            g.fn.nonlocals.add(var.py)
            var.fn.declared.add(var.py)
        return g.name(var.py), ast.Name(var.py, STORE, **g.loc), g.const(self.is_private(var))

    # -- changes --------------------------------------------------------------------------------------------------

    def holder(self, node: ast.expr) -> str | None:
        """The variable that a container is changed through."""
        g = self.g
        if not isinstance(node, ast.Name) or node.id.startswith("_"):
            return None
        var = g.scope.find(node.id)
        is_there = g.kind(node.id) == "variable" if var is None else var.scope.is_function
        return node.id if is_there else None

    def is_steady(self, name: str, others: Sequence[ast.AST]) -> bool:
        """Whether ``others`` certainly assign no variable meanwhile."""
        g = self.g
        inner = [each for other in others for each in ast.walk(other)]
        if not any(isinstance(each, ast.Call | ast.NamedExpr) for each in inner):
            return True
        var = g.scope.find(name)
        if var.shared if var is not None else any(name in each.globals for each in g.scopes.scopes.values()):
            return False
        return not any(isinstance(each, ast.NamedExpr) and each.target.id == name for each in inner)

    def readied(self, name: str, how: str, arguments: Sequence[ast.expr]) -> ast.expr:
        """Mark the variable ``name`` before its container is changed in place, if that depends on any source."""
        g = self.g
        var = g.scope.find(name)
        value = g.attr(g.cell(name), "v") if var is None else g.name(var.py)
        tests: list[ast.expr] = [g.rt("ambient"), g.type_is(value, Label)]
        more: ast.expr = g.const_param(NO_SOURCES, "NO_SOURCES")
        if arguments and strict.depends_on(how):
            more = g.call(
                g.const_param(strict.depends, "P_depends"), [g.const(how), value, g.tuple_of(list(arguments))]
            )
            tests = (
                []
                if strict.depends_on(how) != "i" or how in ("extend", "+=")
                else [
                    *tests,
                    ast.UnaryOp(
                        ast.Not(), g.call(g.const_param(strict.is_plain, "P_is_plain"), [arguments[0]]), **g.loc
                    ),
                ]
            )
        if var is None:
            mark = g.ours(strict.ready, g.cell(name), self.since(), more)
        else:
            read, store, private = self.local(var)
            mark = ast.NamedExpr(
                store, g.ours(strict.readied, g.tuple_of([read]), self.since(), private, more), **g.loc
            )
        if not tests:
            return mark
        test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.Or(), tests, **g.loc)
        return ast.BoolOp(ast.And(), [test, mark], **g.loc)

    def before_change(
        self,
        node: ast.expr,
        how: str,
        arguments: Sequence[ast.expr],
        others: Sequence[ast.AST],
        change: Callable[[list[ast.expr]], ast.expr],
    ) -> ast.expr:
        """A change of the value of ``node``, as an expression: its arguments, with ``others`` as their nodes, then the mark,
        then the change.

        If the arguments may assign the variable themselves, it is marked before them, for the position of the code only.
        """
        g = self.g
        name = self.holder(node)
        if name is None:
            return self._within(node, how, change(list(arguments)))
        if not self.is_steady(name, others):
            code = g.tuple_of([self.readied(name, how, []), change(list(arguments))])
            return ast.Subscript(code, g.const(-1), LOAD, **g.loc)
        pairs: list[tuple[ast.expr, ast.expr]] = [
            (each, each) if isinstance(each, ast.Constant) else g.walrus(each) for each in arguments
        ]
        again = [each for _, each in pairs]
        parts = [first for first, each in pairs if first is not each]
        code = g.tuple_of([*parts, self.readied(name, how, again), change(again)])
        return ast.Subscript(code, g.const(-1), LOAD, **g.loc)

    def _within(self, node: ast.expr, how: str, change: ast.expr) -> ast.expr:
        """A change of a part of a variable's value; the variable is marked before."""
        g = self.g
        while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
        name = self.holder(node)
        if name is None:
            return change
        code = g.tuple_of([self.readied(name, how, []), change])
        return ast.Subscript(code, g.const(-1), LOAD, **g.loc)

    def fresh(self, container: ast.expr) -> ast.expr:
        """A new list, dict or set, noted if it is created because of a condition."""
        g = self.g
        named, again = g.walrus(container)
        first = ast.BoolOp(ast.Or(), [g.is_(named, g.const(None)), g.rt("ambient")], **g.loc)
        noted = ast.BoolOp(ast.And(), [first, g.ours(strict.fresh, again)], **g.loc)
        return ast.BoolOp(ast.Or(), [noted, again], **g.loc)


_BEGAN = "at_"
"""The variable of each function that holds the ambient sources at its start."""
_BEGUN = "pn_"
"""The variable of a function for the tests that have begun and are not decided: the number of each, the ambient sources before it, and those around it."""


class StrictPython(StrictChanges):
    """The additions of an emitter to the code of such texts.

    ``loops`` are the loops of the function being written, ``depth`` the number of surrounding branches, ``bound`` its
    variables that have a value by now, ``outer`` those of the functions around. ``begun`` are, for each of its conditions,
    the shared variables marked because of it; None in the program itself, which leaves nothing behind when it fails.
    """

    def __init__(self, g: Emitter) -> None:
        super().__init__(g)
        self.loops: list[ast.AST] = []
        self.depth = 0
        self.bound: set[str] = set()
        self.outer: set[str] = set()
        self.begun: list[list[Target]] | None = None
        self.temporaries: list[str] = []
        self._targets: dict[int, tuple[Any, list[Target]]] = {}
        self._perhaps: dict[int, set[str]] = {}
        self._certain: set[str] | None = None

    # -- functions ------------------------------------------------------------------------------------------------

    def enter(self) -> tuple[Any, ...]:
        """Begin a function; returns the state that :meth:`leave_function` restores."""
        saved = (self.loops, self.caught, self.depth, self.bound, self.outer, self.begun, self.temporaries)
        self.outer = self.outer | self.bound
        self.loops, self.caught, self.depth, self.bound, self.begun, self.temporaries = [], None, 0, set(), [], []
        return saved

    def leave_function(self, saved: tuple[Any, ...]) -> None:
        """End a function."""
        self.loops, self.caught, self.depth, self.bound, self.outer, self.begun, self.temporaries = saved

    def whole(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The body of a function, with marks at its end.

        An error may leave it during a condition, and be caught by its caller. Shared variables that branches of that
        condition write are then marked here as the condition would have done once decided: so they carry its sources
        whether it failed or not.
        """
        if not self.begun:
            return body
        g = self.g
        at = g.name(_BEGUN)
        choice: list[ast.stmt] = []
        for number, written in reversed(list(enumerate(self.begun))):
            before = ast.Subscript(at, g.const(1), LOAD, **g.loc)
            same = ast.Compare(ast.Subscript(at, g.const(0), LOAD, **g.loc), [ast.Eq()], [g.const(number)], **g.loc)
            marks: list[ast.stmt] = [ast.Expr(self._marked_as_value(each, before), **g.loc) for each in written]
            choice = [ast.If(same, marks, choice, **g.loc)]
        left = ast.Assign([ast.Name(_BEGUN, STORE, **g.loc)], ast.Subscript(at, g.const(2), LOAD, **g.loc), **g.loc)
        told: list[ast.stmt] = [ast.Expr(g.ours(strict.failed, g.name("x_")), **g.loc)]
        marked = ast.While(g.is_(at, g.const(None), negate=True), [*choice, left], [], **g.loc)
        kind = g.const_param(Exception, "Exception_")
        handler = ast.ExceptHandler(kind, "x_", [*told, marked, ast.Raise(None, None, **g.loc)], **g.loc)
        return [self._none_begun(), ast.Try(body, [handler], [], [], **g.loc)]

    def _none_begun(self) -> ast.stmt:
        return ast.Assign([ast.Name(_BEGUN, STORE, **self.g.loc)], self.g.const(None), **self.g.loc)

    def _begins(self, written: Sequence[Target], before: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
        """Two expressions, for before and after a condition, if its marks are visible to other code."""
        g = self.g
        if self.begun is None:
            return []
        seen = [each for each in written if isinstance(each.variable, str) or not self.is_private(each.variable)]
        if not seen:
            return []
        self.begun.append(seen)
        around = ast.Subscript(g.name(_BEGUN), g.const(2), LOAD, **g.loc)
        test = g.tuple_of([g.const(len(self.begun) - 1), before, g.name(_BEGUN)])
        name = ast.Name(_BEGUN, STORE, **g.loc)
        return [(ast.NamedExpr(name, test, **g.loc), ast.NamedExpr(name, around, **g.loc))]

    def head(self, scope: PythonScope | None, parameters: Sequence[str]) -> list[ast.stmt]:
        """The first statements of a function."""
        if scope is None:
            return []
        g = self.g
        written: list[ast.stmt] = [ast.Assign([ast.Name(_BEGAN, STORE, **g.loc)], g.rt("ambient"), **g.loc)]
        names = sorted(var.py for name, var in scope.vars.items() if name in self.perhaps(scope))
        unset: list[ast.expr] = [ast.Name(each, STORE, **g.loc) for each in names if each not in parameters]
        if unset:
            written.append(ast.Assign(unset, g.const_param(UNBOUND, "U"), **g.loc))
        return written

    def perhaps(self, scope: PythonScope) -> set[str]:
        """The variables of a function that may have no value."""
        names = self._perhaps.get(id(scope))
        if names is None:
            names = self._perhaps[id(scope)] = perhaps_unbound(self.g.scopes, scope)
        return names

    def cleared(self, before: int) -> list[ast.stmt]:
        """Empty the temporaries that a statement took, but for the first ``before``."""
        g = self.g
        names = list(dict.fromkeys(self.temporaries[before:]))
        del self.temporaries[before:]
        held: list[ast.expr] = [ast.Name(each, STORE, **g.loc) for each in names]
        return [ast.Assign(held, g.const(None), **g.loc)] if held else []

    # -- tests ----------------------------------------------------------------------------------------------------

    def decided(self, value: ast.expr) -> ast.expr:
        """Whether a value counts as true, reported to the strand."""
        g = self.g
        if isinstance(value, ast.Constant) and type(value.value) is bool:
            return value
        if not is_bool(value):
            return g.ours(strict.decides, value)
        named, again = g.walrus(value)
        rest = ast.BoolOp(
            ast.And(), [g.is_(again, g.const(False), negate=True), g.ours(strict.decides, again)], **g.loc
        )
        return ast.BoolOp(ast.Or(), [g.is_(named, g.const(True)), rest], **g.loc)

    def choosing(self, value: ast.expr, nodes: Sequence[ast.AST], around: Sequence[ast.AST] = ()) -> ast.expr:
        """The same, as an expression that marks the variables that ``nodes``, which depend on it, may change."""
        g = self.g
        test = self.decided(value)
        written = self.written(nodes, around)
        if not written or isinstance(test, ast.Constant):
            return test
        name = g.tmp()
        before = ast.NamedExpr(ast.Name(name, STORE, **g.loc), g.rt("ambient"), **g.loc)
        marks = g.tuple_of([self._marked_as_value(each, g.name(name)) for each in written])
        changed = ast.BoolOp(ast.And(), [g.is_(g.rt("ambient"), g.name(name), negate=True), marks], **g.loc)
        around_it = self._begins(written, g.name(name))
        parts = [before, *(each for each, _ in around_it), test, *(each for _, each in around_it), changed]
        return ast.Subscript(g.tuple_of(parts), g.const(1 + len(around_it)), LOAD, **g.loc)

    def left(self, value: ast.expr) -> ast.expr:
        """The value of an expression that may raise the ambient sources, as it leaves that."""
        g = self.g
        return g.call(g.rt("left"), [g.rt("ambient"), value])

    def statement(
        self,
        nodes: Sequence[ast.stmt],
        build: Callable[[Callable[[], list[ast.stmt]]], list[ast.stmt]],
        *,
        loop: ast.stmt | None = None,
    ) -> list[ast.stmt]:
        """The code of a statement with a condition on which ``nodes`` depend.

        ``build`` writes it, and is passed a function that returns the statements marking variables after the condition.
        """
        g = self.g
        name = g.tmp()
        self.temporaries.remove(name)
        around = self.around(nodes)
        first = ast.Assign([ast.Name(name, STORE, **g.loc)], g.rt("ambient"), **g.loc)
        if loop is not None:
            self.loops.append(loop)
        begins: list[ast.stmt] = []

        def decided() -> list[ast.stmt]:
            begin, marks = self.tested([loop] if loop is not None else nodes, around, g.name(name))
            begins.extend(begin)
            return marks

        code = build(decided)
        if loop is not None:
            self.loops.pop()
        return [first, *begins, *code, *self.left_after(nodes, g.name(name))]

    def tested(
        self, nodes: Sequence[ast.AST], around: Sequence[ast.AST], before: ast.expr
    ) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Statements for before a condition, and statements that mark the variables that may be changed depending on it."""
        g = self.g
        parts = self._begins(self.written(nodes, around), before)
        begin: list[ast.stmt] = [ast.Expr(each, **g.loc) for each, _ in parts]
        end: list[ast.stmt] = [ast.Expr(each, **g.loc) for _, each in parts]
        return begin, [*end, *self.marks(nodes, around, before)]

    def around(self, nodes: Sequence[ast.AST]) -> list[ast.AST]:
        """Other code that depends on a condition, since ``nodes`` may be left early: the loop around, or the whole
        function."""
        how = exits(nodes)
        inside: list[ast.AST] = [self.loops[-1]] if how.jumps and self.loops else []
        node = self.g.scope.node
        if how.returns and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside += node.body
        return inside

    def left_after(self, nodes: Sequence[ast.AST], before: ast.expr) -> list[ast.stmt]:
        """Put the ambient sources back after a statement, unless the statement may be left early."""
        g = self.g
        how = exits(nodes)
        if how.jumps or how.returns:
            return []
        back = ast.Expr(g.ours(strict.leave, before), **g.loc)
        return [ast.If(g.is_(g.rt("ambient"), before, negate=True), [back], [], **g.loc)]

    def marks(self, nodes: Sequence[ast.AST], around: Sequence[ast.AST], before: ast.expr) -> list[ast.stmt]:
        """Mark the variables that may be changed depending on the last condition."""
        g = self.g
        marks: list[ast.stmt] = [
            ast.Expr(self._marked_as_value(each, before), **g.loc) for each in self.written(nodes, around)
        ]
        return [ast.If(g.is_(g.rt("ambient"), before, negate=True), marks, [], **g.loc)] if marks else []

    @contextmanager
    def arms(self) -> Generator[None]:
        """A context for the code of a branch."""
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def outside(self) -> Generator[None]:
        """A context for the ``else`` of a loop, which is not part of its rounds."""
        loop = self.loops.pop()
        yield
        self.loops.append(loop)

    def catching(self, node: ast.Try, build: Callable[[], list[ast.stmt]]) -> list[ast.stmt]:
        """A ``try``: everything read in it decides whether it runs to its end."""
        g = self.g
        name = g.tmp()
        self.temporaries.remove(name)
        nodes: list[ast.stmt] = [
            *node.body,
            *(each for handler in node.handlers for each in handler.body),
            *node.orelse,
        ]
        outer, self.caught = self.caught, name
        with self.arms():
            inside = build()
        self.caught = outer
        marks = self.marks([node], self.around(nodes), g.name(name))
        return [
            ast.Assign([ast.Name(name, STORE, **g.loc)], g.rt("ambient"), **g.loc),
            self._trying(ast.Add()),
            ast.Try(
                inside,
                [],
                [],
                [self._trying(ast.Sub()), *marks, *([self._none_begun()] if self.begun else [])],
                **g.loc,
            ),
            *self.left_after(nodes, g.name(name)),
        ]

    def _trying(self, operator: ast.operator) -> ast.stmt:
        g = self.g
        changed = ast.BinOp(g.rt("trying"), operator, g.const(1), **g.loc)
        return ast.Assign([ast.Attribute(g.name("rt"), "trying", STORE, **g.loc)], changed, **g.loc)

    # -- variables ------------------------------------------------------------------------------------------------

    def written(self, nodes: Sequence[ast.AST], around: Sequence[ast.AST] = ()) -> list[Target]:
        """The variables that may be changed depending on a condition for ``nodes``, and for those ``around``."""
        g = self.g
        merged: dict[Any, Target] = {}
        for each in (*nodes, *around):
            if id(each) not in self._targets:
                self._targets[id(each)] = (each, targets(g.scopes, g.scope, [each]))
            for target in self._targets[id(each)][1]:
                target_of = merged.setdefault(target.variable, Target(target.variable))
                target_of.assigned = target_of.assigned or target.assigned
        return [each for each in merged.values() if self._in_reach(each)]

    def _in_reach(self, target: Target) -> bool:
        var = target.variable
        if isinstance(var, str):
            return bool(self.g.kind(var) == "variable")
        if var.name in self.perhaps(var.scope) or var.name in self._parameters(var.scope):
            return True
        return var.py in self.bound or var.py in self.outer

    def _parameters(self, scope: PythonScope) -> set[str]:
        node = scope.node
        return (
            set(parameters(node.args))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            else set()
        )

    def _marked_as_value(self, target: Target, before: ast.expr) -> ast.expr:
        """Mark a variable, as an expression."""
        g, var = self.g, target.variable
        if isinstance(var, str):
            return g.ours(strict.upgrade, g.cell(var), g.const(var), before, g.const(target.assigned))
        read, store, private = self.local(var)
        marked = g.ours(strict.upgraded, g.tuple_of([read]), before, private)
        return ast.NamedExpr(store, marked, **g.loc)

    def bind(self, name: str, value: ast.expr) -> list[ast.stmt]:
        """Assign a variable, with the sources of that decision."""
        g = self.g
        var = g.scope.find(name)
        target: Any = g.target(name)
        if var is not None and self.is_private(var):
            if not self.depth:
                self.bound.add(var.py)
            marked = ast.Assign([g.target(name)], g.call(g.rt("marked"), [g.name(var.py)]), **g.loc)
            moved = self._as_begun(negate=True)
            return [ast.Assign([target], value, **g.loc), ast.If(moved, [marked], [], **g.loc)]
        new = g.tmp()
        old = g.ours(strict.value_before, g.cell(name), g.const(name)) if var is None else g.name(var.py)
        allowed = self._written(name, var, old, new)
        return [
            ast.Assign([ast.Name(new, STORE, **g.loc)], value, **g.loc),
            ast.If(g.rt("ambient"), [ast.Assign([ast.Name(new, STORE, **g.loc)], allowed, **g.loc)], [], **g.loc),
            ast.Assign([target], g.name(new), **g.loc),
        ]

    def named(self, name: str, value: ast.expr) -> ast.expr:
        """``name := value``."""
        g = self.g
        var = g.scope.find(name)
        if var is None:
            return g.ours(strict.assigned, g.cell(name), g.const(name), value, self.since())
        new = g.tmp()
        first = ast.NamedExpr(ast.Name(new, STORE, **g.loc), value, **g.loc)
        if self.is_private(var):
            chosen = g.ifexp(self._as_begun(), g.name(new), g.call(g.rt("marked"), [g.name(new)]))
        else:
            chosen = self._written(name, var, g.name(var.py), new)
        whole = ast.NamedExpr(cast("ast.Name", g.target(name)), chosen, **g.loc)
        return ast.Subscript(g.tuple_of([first, whole]), g.const(1), LOAD, **g.loc)

    def _written(self, name: str, var: LocalVariable | None, old: ast.expr, new: str) -> ast.expr:
        """The value assigned to a shared variable: ``new``, which carries the sources of the position, if the ``old`` one
        does.

        Code that sees a variable of the function here got it from this call of the function, and so depends on the sources
        of the call.
        """
        g = self.g
        allowed = g.call(g.rt("written"), [g.const(name), old, g.name(new), self.since()])
        if var is None or var.fn is not g.fn:
            return allowed
        return g.ifexp(self._as_begun(), g.call(g.rt("marked"), [g.name(new)]), allowed)

    def _as_begun(self, *, negate: bool = False) -> ast.expr:
        """Whether the only reason to reach this code is the call of the function."""
        return self.g.is_(self.g.rt("ambient"), self.g.name(_BEGAN), negate=negate)

    def unbound(self, name: str) -> list[ast.stmt]:
        """``del name``, after it was read."""
        g = self.g
        var = g.scope.find(name)
        if var is None:
            return [ast.Expr(g.ours(strict.unbind, g.cell(name), g.const(name), self.since()), **g.loc)]
        return self.bind(name, g.const_param(UNBOUND, "U"))

    def read(self, var: LocalVariable, value: ast.expr) -> ast.expr:
        """The value of a local variable that may have none."""
        g = self.g
        if var.name not in self.perhaps(var.scope):
            return value
        kind = ast.Compare(
            g.call(g.const_param(type, "type_"), [g.name(var.py)]),
            [ast.IsNot()],
            [g.const_param(Label, "T_Label")],
            **g.loc,
        )
        test = ast.BoolOp(ast.And(), [kind, g.is_(g.name(var.py), g.const_param(UNBOUND, "U"), negate=True)], **g.loc)
        return g.ifexp(test, value, g.ours(strict.bound, g.name(var.py), g.const(var.name)))

    def read_global(self, name: str, value: ast.expr) -> ast.expr:
        """The value of a variable of the environment."""
        if self._certain is None:
            self._certain = certainly_bound(self.g.scopes)
        g = self.g
        return value if name in self._certain or name not in g.scopes.defined else g.ours(strict.there, value)
