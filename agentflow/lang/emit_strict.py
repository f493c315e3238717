"""Code of programs under a ``strict`` policy: it reports the sources of each condition to the strand, which then mark
everything that depends on it.

``rt.ambient`` are the sources of the conditions on the way to the current position. A condition raises it; at the end of
its branches it is restored, and their values have been put in a box that carries it (:meth:`StrictCode.scoped`). Functions
leave it raised, and their caller restores it, so that tail calls need no extra code. Variables that branches may change are
marked before the choice, so that they carry the same sources in either case; the strand refuses other changes of variables
that do not carry them yet.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias, cast

from agentflow.core.data.labels import NO_SOURCES
from agentflow.lang import ir
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.environment import UNBOUND
from agentflow.lang.generated import STORE, Dest, PyFn
from agentflow.lang.ir import IR, Var

Target: TypeAlias = "Var | str"
"""A changing variable: a lexical one, or the name of one of the environment."""


def targets(node: Any) -> tuple[Target, ...]:
    """The variables that code within ``node`` sets, or defines in the environment, including its procedures and branches;
    not its own variables."""
    written: dict[int | str, Target] = {}
    inner: set[int] = set()
    pending: list[Any] = [node]
    while pending:
        at = pending.pop()
        if isinstance(at, ir.SetLocal):
            written[id(at.var)] = at.var
        elif isinstance(at, ir.SetGlobal | ir.DefineGlobal):
            written[at.name] = at.name
        for each in _variables(at):
            inner.add(id(each))
        pending.extend(_parts(at))
    return tuple([target for key, target in written.items() if key not in inner])


def _variables(node: Any) -> Iterable[Var]:
    """The variables that a node binds for its parts."""
    match node:
        case ir.Let():
            return node.vars
        case ir.NamedLoop():
            return node.params
        case ir.Lambda():
            return [*node.params, *([node.rest] if node.rest else [])]
        case ir.Clause():
            return [node.bind] if node.bind else []
        case ir.Try():
            return [node.var] if node.var else []
        case ir.Pair():
            return [node.var]
        case _:
            return []


def _parts(node: Any) -> list[Any]:
    if type(node) in (list, tuple):
        return list(cast("list[Any]", node))
    if not is_dataclass(node) or isinstance(node, Primitive):
        return []
    values = [getattr(node, each.name) for each in fields(node)]
    return [each for each in values if type(each) in (list, tuple) or is_dataclass(each)]


Generator: TypeAlias = Any
"""A :class:`~agentflow.lang.codegen.Generator`; its module imports this one."""

CHOOSING: frozenset[type[Any]] = frozenset((ir.If, ir.Cond, ir.Logic, ir.NamedLoop, ir.Repeat, ir.While, ir.Try))
"""Kinds of nodes with a condition on which their value depends."""


class StrictCode:
    """The additions of a generator to the code of such programs.

    ``loops`` are the surrounding named lets with rounds that a condition in them decides. ``direct`` are the definitions that
    are steps of a body or of the program, outside any branch.
    """

    def __init__(self, g: Generator) -> None:
        self.g = g
        self.loops: list[ir.NamedLoop] = []
        self.direct: set[int] = set()
        self.caught: tuple[PyFn, str] | None = None
        self._targets: dict[int, tuple[IR, tuple[Target, ...]]] = {}

    def enter(self, body: Any) -> None:
        """Note the definitions among the steps of a body."""
        items = body.items if isinstance(body, ir.Seq) else [body]
        self.direct.update([id(each) for each in items if isinstance(each, ir.Define | ir.DefineGlobal)])

    def enter_function(self) -> list[ir.NamedLoop]:
        """Begin a function, which does not repeat any surrounding loop; returns those loops."""
        loops, self.loops = self.loops, []
        return loops

    # -- tests ----------------------------------------------------------------------------------------------------

    def test(self, value: ast.expr, node: IR | None) -> ast.expr:
        """Whether a value counts as true, reported to the strand."""
        g = self.g
        named = value if isinstance(value, ast.Name) else ast.NamedExpr(ast.Name("r_", STORE, **g.loc), value, **g.loc)
        again = g.name(value.id if isinstance(value, ast.Name) else "r_")
        other = g.call(g.rt("chosen"), [again])
        rest = ast.BoolOp(ast.And(), [g.is_(again, g.const(False), negate=True), other], **g.loc)
        code: ast.expr = ast.BoolOp(ast.Or(), [g.is_(named, g.const(True)), rest], **g.loc)
        written = self._written(node)
        if written:
            name = g.tmp()
            g.owner[name] = g.fn
            before = ast.NamedExpr(ast.Name(name, STORE, **g.loc), g.rt("ambient"), **g.loc)
            since = self._tested_since(g.name(name))
            items = [before, code, *[self._upgraded(each, since) for each in written]]
            code = ast.Subscript(ast.Tuple(items, ast.Load(), **g.loc), g.const(1), ast.Load(), **g.loc)
        code._h = getattr(value, "_h", 0) + 3  # type: ignore[attr-defined]
        return code

    def looked_at(self, value: ast.expr, node: IR) -> ast.expr:
        """A value that decides the number of rounds of ``node``."""
        g = self.g
        value = g.atom(value)
        before = g.spill(g.rt("ambient"))
        value = g.spill(g.call(g.rt("opened"), [value]))
        self._upgrade(self._written(node), self._tested_since(before))
        return value

    def rounds_over(self, values: list[ast.expr], node: ir.PrimCall, before: ast.expr) -> list[ast.expr]:
        """The operands of a primitive that calls a procedure written in its place: once for each element of lists."""
        g = self.g
        written = self._written(node)
        if written:
            for each, operand in zip(values, node.args, strict=True):
                if not isinstance(operand, ir.Lambda):
                    g.body.append(ast.Expr(g.call(g.rt("opened"), [each]), **g.loc))
            self._upgrade(written, self._tested_since(before))
        return values

    def _written(self, node: IR | None) -> list[Target]:
        written: dict[int | str, Target] = {}
        for at in (*self.loops, *([node] if node is not None else [])):
            if id(at) not in self._targets:
                self._targets[id(at)] = (at, targets(at))
            for each in self._targets[id(at)][1]:
                written[each if isinstance(each, str) else id(each)] = each
        return [each for each in written.values() if isinstance(each, str) or self._in_reach(each)]

    def _in_reach(self, var: Var) -> bool:
        """Whether a variable has been assigned, or declared, in the Python code so far."""
        return var.py in self.g.owner

    def _tested_since(self, before: ast.expr) -> ast.expr:
        """The sources that a shared variable must carry, to be marked after a condition before which the ambient sources
        were ``before``.

        A failing condition marks nothing. If its error is caught in this function, the marks are made when that ends. If it
        is caught outside, the sources up to the decision must be carried already, which holds whether the condition failed
        or not; otherwise a change in a branch is refused.
        """
        g = self.g
        if self.caught is not None and self.caught[0] is g.fn:
            return g.name(self.caught[1])
        return g.ifexp(g.rt("trying"), g.rt("ambient"), before)

    def _upgraded(self, target: Target, since: ast.expr) -> ast.expr:
        """Mark a variable, if its mark already includes ``since``; else it is not marked, and a change is refused."""
        g = self.g
        if isinstance(target, str):
            return g.call(g.rt("upgrade"), [g.cell(target), since])
        owner = g.owner.setdefault(target.py, g.fn)
        if owner is not g.fn:
            g.fn.nonlocals.add(target.py)
            owner.declared.add(target.py)
        since = g.const_param(NO_SOURCES, "NO_SOURCES") if self._is_private(target) else since
        marked = g.call(g.rt("upgraded"), [g.name(target.py), since])
        return ast.NamedExpr(ast.Name(target.py, STORE, **g.loc), marked, **g.loc)

    def _upgrade(self, written: Sequence[Target], since: ast.expr) -> None:
        self.g.body.extend([ast.Expr(self._upgraded(each, since), **self.g.loc) for each in written])

    def _is_private(self, var: Var) -> bool:
        """Whether a variable is private to the function here: any jump over a change of it ends the function, or marks the
        variable."""
        return self.g.owner.get(var.py) is self.g.fn and not (var.captured or var.shared)

    # -- where arms end -------------------------------------------------------------------------------------------

    def left(self, value: ast.expr, before: ast.expr | None = None) -> ast.expr:
        """A value as it leaves code that may have raised the ambient sources since they were ``before`` (None: since it is
        evaluated)."""
        g = self.g
        return g.call(g.rt("left"), [g.rt("ambient") if before is None else before, value])

    def scoped(self, build: Callable[[], ast.expr]) -> ast.expr:
        """The value of an expression that tests something, as it leaves that."""
        g = self.g
        emitted, value = g.capture(build)
        value = cast(ast.expr, value)
        if not emitted:
            return self.left(value)
        before = g.spill(g.rt("ambient"))
        g.body.extend(emitted)
        return g.spill(self.left(value, before))

    def scope(self, dest: Dest, build: Callable[[Dest], None]) -> None:
        """The same for a statement that delivers its value to ``dest`` and lets the code continue."""
        g = self.g
        before = g.spill(g.rt("ambient"))
        if dest.kind == "drop":
            build(dest)
            g.body.append(ast.Expr(self.left(g.const(None), before), **g.loc))
            return
        name = g.tmp()
        g.owner[name] = g.fn
        build(type(dest)("assign", name))
        g.deliver(self.left(g.temp(name), before), dest)

    def catching(self, node: ir.Try, build: Callable[[], None]) -> None:
        """The code that ``build`` emits, with errors caught: the sources it reads decide whether it runs to its
        end."""
        g = self.g
        before = g.spill(g.rt("ambient"))
        outer = self.caught
        if outer is None or outer[0] is not g.fn:
            self.caught = (g.fn, cast(ast.Name, before).id)
        body, _ = g.capture(build)
        self.caught = outer
        after, _ = g.capture(lambda: self._upgrade(self._written(node), self._since(before)))
        g.body.append(self._trying(ast.Add()))
        g.body.append(ast.Try(body, [], [], [self._trying(ast.Sub()), *after], **g.loc))

    def _trying(self, operator: ast.operator) -> ast.stmt:
        g = self.g
        changed = ast.BinOp(g.rt("trying"), operator, g.const(1), **g.loc)
        return ast.Assign([ast.Attribute(g.name("rt"), "trying", STORE, **g.loc)], changed, **g.loc)

    # -- variables ------------------------------------------------------------------------------------------------

    def marked(self, value: ast.expr) -> ast.expr:
        """A value with the sources of the decision to be here."""
        return self.g.call(self.g.rt("marked"), [value])

    def set_local(self, node: ir.SetLocal, value: ast.expr) -> ast.expr:
        """The value that a lexical variable gets."""
        g, var = self.g, node.var
        if self._is_private(var) and not node.foreign:
            return self.marked(value)
        return g.call(g.rt("written"), [g.const(var.name), g.name(var.py), value, self._since(g.rt("ambient"))])

    def set_cell(self, name: str, value: ast.expr) -> ast.expr:
        """The value that a variable of the environment gets."""
        g = self.g
        return g.call(g.rt("written"), [g.const(name), g.attr(g.cell(name), "v"), value, self._since(g.rt("ambient"))])

    def define_cell(self, node: ir.DefineGlobal, value: ast.expr) -> ast.expr:
        """The value that a variable of the environment is defined with."""
        if id(node) not in self.direct:
            return self.set_cell(node.name, value)
        g = self.g
        return g.call(g.rt("defined"), [g.const(node.name), g.attr(g.cell(node.name), "v"), value])

    def defined(self, node: ir.Define, value: ast.expr) -> ast.expr:
        """The value that a lexical variable is defined with."""
        g, var = self.g, node.var
        if id(node) not in self.direct:
            return self.new_in_arm(var.name, value)
        if not var.mutated:
            return value
        return g.call(g.rt("defined"), [g.const(var.name), g.name(var.py), value])

    def new_in_arm(self, name: str, value: ast.expr) -> ast.expr:
        """The value of a variable that only one arm defines."""
        g = self.g
        return g.call(g.rt("written"), [g.const(name), g.const_param(UNBOUND, "U"), value, g.rt("ambient")])

    def _since(self, before: ast.expr) -> ast.expr:
        """The sources that a variable must already carry for a change to be allowed here, where the ambient sources are
        ``before``.

        Within a form that catches errors, which marks its variables at its end, those at its start.
        """
        return self.g.name(self.caught[1]) if self.caught is not None and self.caught[0] is self.g.fn else before
