"""Code of changes in place under a ``strict`` policy: the variable that a container is changed by is marked before it.

What may be changed because of what is said in :mod:`agentflow.lang.changeable`; whether it may is asked when it is (:func:`agentflow.lang.python.strict.permit`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from agentflow.core.data.labels import NO_SOURCES, Label
from agentflow.lang.generated import LOAD, STORE
from agentflow.lang.python import strict
from agentflow.lang.python.names import LocalVariable
from agentflow.lang.python.writes import captured, finally_names

Emitter: TypeAlias = Any
"""An :class:`~agentflow.lang.python.emitter.Emitter`, whose module imports this one."""


class StrictChanges:
    """What an emitter adds to code that changes lists, dicts and sets; ``caught`` is the name of the ambient sources with which the innermost ``try`` began."""

    def __init__(self, g: Emitter) -> None:
        self.g = g
        self.caught: str | None = None
        self._finals: dict[int, set[str]] = {}

    # -- variables ------------------------------------------------------------------------------------------------

    def is_private(self, var: LocalVariable) -> bool:
        """Whether nothing but the function that is written assigns a variable."""
        finals = self._finals.get(id(var.scope))
        if finals is None:
            finals = self._finals[id(var.scope)] = finally_names(var.scope)
        return var.fn is self.g.fn and not var.shared and var not in captured(self.g.scopes) and var.name not in finals

    def since(self) -> ast.expr:
        """The ambient sources that a variable has to say for a change now: within a ``try``, those when it began."""
        return self.g.rt("ambient") if self.caught is None else self.g.name(self.caught)

    def local(self, var: LocalVariable) -> tuple[ast.expr, ast.Name, ast.expr]:
        """The variable to be read and to be written, and whether only the function that is written sees it."""
        g = self.g
        if var.fn is not g.fn and var.fn is not None:
            g.fn.nonlocals.add(var.py)
            var.fn.declared.add(var.py)
        return g.name(var.py), ast.Name(var.py, STORE, **g.loc), g.const(self.is_private(var))

    # -- changes --------------------------------------------------------------------------------------------------

    def holder(self, node: ast.expr) -> str | None:
        """The variable that a container is changed by."""
        g = self.g
        if not isinstance(node, ast.Name) or node.id.startswith("_"):
            return None
        var = g.scope.find(node.id)
        is_there = g.kind(node.id) == "variable" if var is None else var.scope.is_function
        return node.id if is_there else None

    def is_steady(self, name: str, others: Sequence[ast.AST]) -> bool:
        """Whether nothing that ``others`` do can assign a variable meanwhile."""
        g = self.g
        inner = [each for other in others for each in ast.walk(other)]
        if not any(isinstance(each, ast.Call | ast.NamedExpr) for each in inner):
            return True
        var = g.scope.find(name)
        if var.shared if var is not None else any(name in each.globals for each in g.scopes.scopes.values()):
            return False
        return not any(isinstance(each, ast.NamedExpr) and each.target.id == name for each in inner)

    def readied(self, name: str, how: str, arguments: Sequence[ast.expr]) -> ast.expr:
        """Mark the variable ``name`` before what it holds is changed in place, if that depends on anything."""
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
        """A change of what ``node`` is, as an expression: its arguments, whose nodes are ``others``, then the mark, then the change.

        Where the arguments may assign the variable themselves, it is marked before them, because of where the code is only.
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
        """A change of something that is part of what a variable holds, which is marked before."""
        g = self.g
        while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
        name = self.holder(node)
        if name is None:
            return change
        code = g.tuple_of([self.readied(name, how, []), change])
        return ast.Subscript(code, g.const(-1), LOAD, **g.loc)

    def fresh(self, container: ast.expr) -> ast.expr:
        """A list, dict or set as it is written, which is noted where it is written because of something."""
        g = self.g
        named, again = g.walrus(container)
        first = ast.BoolOp(ast.Or(), [g.is_(named, g.const(None)), g.rt("ambient")], **g.loc)
        noted = ast.BoolOp(ast.And(), [first, g.ours(strict.fresh, again)], **g.loc)
        return ast.BoolOp(ast.Or(), [noted, again], **g.loc)
