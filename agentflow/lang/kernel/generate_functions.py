"""Generates the functions of procedures and of the parts that the runtime runs."""

from __future__ import annotations

import ast

from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.closure import Closure
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.generator import RETURN, CodeFn, Generator, expression
from agentflow.lang.kernel.nodes import Lambda, Node


def code_of(g: Generator, node: Lambda) -> str:
    """Emit the function of a procedure; returns its Python name."""
    name = code_name(g, node)
    owner = g.owner.setdefault(name, g.fn)
    if owner is not g.fn:
        g.fn.nonlocals.add(name)
        owner.declared.add(name)
    params = [each.python_name for each in node.params]
    outer, g.loops = g.loops, {}
    g.in_procedures += 1

    def build() -> None:
        for each in (*node.params, *([node.rest] if node.rest else [])):
            g.own(each)
        g.stmt(node.body, RETURN)

    rest = None if node.rest is None else node.rest.python_name
    code = g.function(name, params, CodeFn(tail_ok=True), build, rest=rest, steps=True)
    g.in_procedures -= 1
    g.loops = outer
    g.body.append(code)
    return name


def code_name(g: Generator, node: Lambda) -> str:
    """The Python name of a procedure's function."""
    name = g.code_names.get(node)
    if name is None:
        called = node.info.name or "lambda"
        g.counter += 1
        stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in called)[:40]
        name = g.code_names[node] = f"f{g.counter}_{stem}"
        g.names[name] = called
        g.lambdas[name] = node.info
    return name


def closure_of(g: Generator, node: Lambda, name: str) -> ast.expr:
    """The procedure value around a function."""
    count = -1 if node.rest else len(node.params)
    info = g.packed_constant(id(node.info), lambda: node.info)
    return g.call(g.const_param(Closure, "CL"), [g.name(name), g.const(count), info, g.environment(), g.rt("grants")])


def takes(node: Lambda, count: int) -> bool:
    """Whether its code can be called directly with this number of operands."""
    return node.rest is None and len(node.params) == count


def may_tail(g: Generator, node: Lambda) -> bool:
    """Whether calling this procedure can return a tail call for the caller to make."""
    tail = g.tails.get(node)
    if tail is None:
        g.tails[node] = True
        tail = g.tails[node] = _has_tail_call(node)
    return tail


def _has_tail_call(node: Lambda) -> bool:
    """Walks the tail positions only: each call there may be left to the caller, other than the next round of a loop."""
    pending: list[Node] = [node.body]
    while pending:
        at = pending.pop()
        if isinstance(at, nodes.Call | nodes.Either):
            return True
        if isinstance(at, nodes.Prim):
            if isinstance(at.row, Primitive) and at.row.tails:
                return True
        elif isinstance(at, nodes.If):
            pending += [*[arm for _, arm in at.clauses], at.other]
        elif isinstance(at, nodes.Seq | nodes.Logic):
            pending.append(at.items[-1])
        elif isinstance(at, nodes.NamedLet):
            pending.append(at.body)
    return False


@expression(nodes.Thunk)
def thunk(g: Generator, node: nodes.Thunk) -> ast.expr:
    g.counter += 1
    name = f"{'branch' if node.steps else 'thunk'}_{g.counter}"
    outer, g.loops = g.loops, {}
    fn = CodeFn(is_main=g.fn.is_main and not g.fn.loops)
    code = g.function(name, [], fn, lambda: g.stmt(node.body, RETURN), steps=node.steps)
    g.loops = outer
    g.body.append(code)
    return g.stable_name(name)
