"""Texts in Python made ready to run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError
from agentflow.core.data.known_names import UNKNOWN, Names
from agentflow.core.data.labels import Following
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.abi import LinkableCode
from agentflow.lang.calling import NOTHING
from agentflow.lang.checks import SHORTEST_MISSPELLING
from agentflow.lang.kernel import text_nodes, text_statements, text_values
from agentflow.lang.kernel.linking import ROOM, linkable
from agentflow.lang.kernel.lowered_functions import call_main
from agentflow.lang.kernel.nodes import Const, Env, Node, Prim, Ref, Seq
from agentflow.lang.kernel.text_generator import TextGenerator
from agentflow.lang.python import (
    branches,
    calls,
    comprehensions,
    declarations,
    expressions,
    statements,
    world,
)
from agentflow.lang.python.lowering import Describe, Lowering, TooManyMistakes
from agentflow.lang.python.names import ProgramScopes as Scopes
from agentflow.lang.python.names import parameters
from agentflow.lang.python.reader import read_python
from agentflow.lang.python.support import binding
from agentflow.lib.text.stack import on_fresh_stack
from agentflow.lib.text.suggest import meant

RULES = (
    *(branches, calls, comprehensions, declarations, expressions, statements, world),
    *(text_statements, text_values),
)
"""The modules with rules for the tree of a text and for its nodes; importing them declares these."""
_SHALLOW = 10
_MAYBE_LARGE = 1_800
"""Larger texts are compiled in pieces. This many of the costliest nodes (f-strings, functions, comprehensions: 20 µs each) take Python's compiler 36 ms."""


def findings_of(
    source: Source,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    port: Names | None,
    *,
    closed: bool = False,
) -> tuple[list[AgentflowError], list[AgentflowError]]:
    """All mistakes in a text, and suspicious names: those that the host may bind, and that resemble visible names.

    Both in the order of the text. Raises the errors of an unreadable text.
    """
    g = lowering_of(source, describe, limits, allow, port, closed=closed)
    g.seeks_failures = True
    whole(g)
    return _in_order([*g.errors, *failures_of(g)]), _in_order(doubts_of(g))


def doubts_of(g: Lowering) -> list[AgentflowError]:
    """Caught failures, and names that the host may bind and that resemble visible names."""
    doubts: list[AgentflowError] = [*g.doubts, *(error for error, is_caught in g.failures.values() if is_caught)]
    for name, (node, other) in g.doubtful.items():
        if len(name) >= SHORTEST_MISSPELLING and name.rstrip("s") != other.rstrip("s"):
            message = f"nothing here binds '{name}'"
            doubts.append(SexpEvaluationError(message, code="name/suspicious", span=g.span_at(node), hint=meant(other)))
    return doubts


def failures_of(g: Lowering) -> list[AgentflowError]:
    """Certain failures that nothing around them catches."""
    return [error for error, is_caught in g.failures.values() if not is_caught]


def declared(source: Source, limits: Limits, *, undecorated: bool = False) -> dict[str, Any] | None:
    """The ``params``, ``allow`` and ``description`` of the workflow that a text declares; None if it declares none.

    With ``undecorated`` those of any text with a ``main``: its parameters are the bindings of a run. Raises
    SexpSyntaxError, SexpEvaluationError (the first mistake of the declaration) and LimitExceeded.
    """
    g = lowering_of(source, lambda _: UNKNOWN, limits, None, None)
    fields = declarations.declaration(g, undecorated=undecorated)
    if g.errors:
        raise _in_order(g.errors)[0]
    return fields


def compile_python(
    source: Source,
    filename: str,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    port: Names | None,
    passes: Sequence[Callable[[Source, Lowering], object]] = (),
    *,
    labelled: Following = False,
) -> tuple[LinkableCode, Lowering]:
    """The code of a text, and its reading. ``passes`` receive the reading before it starts. Raises SexpSyntaxError,
    SexpEvaluationError (the first of several) and LimitExceeded."""
    g = lowering_of(source, describe, limits, allow, port, follows=labelled)
    g.seeks_failures = allow is not None
    for each in passes:
        each(source, g)
    root = whole(g)
    wrong = [*g.errors, *failures_of(g)]
    if wrong:
        first, *others = _in_order(wrong)
        first.others = others  # type: ignore[attr-defined]
        raise first
    assert root is not None
    if labelled == "strict":
        from agentflow.lang.kernel.ready import python_code  # few flows have such a policy

        code = python_code(g, root)
    else:
        code = text_code(g, root, filename)
    g.scopes.release()
    return code, g


def checked(
    source: Source, describe: Describe, limits: Limits, allow: frozenset[str] | None, port: Names | None
) -> tuple[Lowering, Node]:
    """A text without mistakes, read: its reading, and its node.

    Raises SexpSyntaxError, SexpEvaluationError (the first of several) and LimitExceeded.
    """
    g = lowering_of(source, describe, limits, allow, port)
    root = whole(g)
    if g.errors or root is None:
        raise _in_order(g.errors)[0]
    return g, root


def lowering_of(
    source: Source,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    port: Names | None,
    *,
    closed: bool = False,
    follows: Following = False,
) -> Lowering:
    """A parsed text that is about to be read, with the names of the tasks that it defines. Raises SexpSyntaxError and LimitExceeded."""
    tree = read_python(source, limits)
    g = Lowering(source, tree, Scopes(tree), describe, allow, port, limits, closed=closed, follows=follows)
    for node, name in g.scopes.wrong:
        hint = f"assign {name} in the function around this one; 'global {name}' means that of the text"
        g.wrong(node, "name/unbound", f"'nonlocal {name}': no function around this one assigns it", hint)
    for each in tree.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_task(each.decorator_list):
            g.own_tasks.add(each.name)
    return g


def _is_task(decorators: Iterable[ast.expr]) -> bool:
    called = (each.func if isinstance(each, ast.Call) else each for each in decorators)
    return any(isinstance(each, ast.Name) and each.id == "task" for each in called)


def _in_order(errors: list[AgentflowError]) -> list[AgentflowError]:
    return sorted(errors, key=lambda each: each.span.start if each.span is not None else 0)


def whole(g: Lowering) -> Node | None:
    """The text, read; None when there are too many mistakes."""
    try:
        return on_fresh_stack(lambda: _whole(g))
    except TooManyMistakes:
        return None


def _whole(g: Lowering) -> Node:
    body = g.tree.body
    items = [g.suite(body[:-1]), *_last(g, body[-1])] if body else [Const(None, None)]
    return Seq(None, [*g.at_start.values(), *items])


def _last(g: Lowering, node: ast.stmt) -> list[Node]:
    """The last statement of a text, with an expression as the text's value; else the value of ``main``, if defined."""
    if isinstance(node, ast.Expr):
        value = g.value(node.value)
        return [*g.flushed(), text_nodes.Leave(g.span_at(node), "return", value)]
    items: list[Node] = [g.suite([node])]
    main = g.scopes.function("main")
    if main is None or isinstance(node, ast.Return):
        return items
    at, args = g.span_at(main), main.args
    needed = {each.arg for each in (*args.posonlyargs, *args.args)[: -len(args.defaults) or None]}
    needed |= {each.arg for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None}
    bound = [
        Prim(at, binding, [Env(None), Const(None, each), Const(None, each in needed)]) for each in parameters(args)
    ]
    g.free.add("main")
    return [*items, text_nodes.Leave(at, "return", Prim(at, call_main, [Ref(at, "main"), *bound], waits=0))]


def text_code(lowering: Lowering, root: Node, filename: str, room: int | None = None) -> LinkableCode:
    """The code of a lowered text in Python. A long one is compiled in pieces of some ``room`` Python nodes (None: as many as compile quickly).

    Raises LimitExceeded.
    """
    g = TextGenerator(lowering)
    link = text_link(g, root)
    if room is None and sum(len(each.nodes) for each in lowering.scopes.scopes.values()) > _MAYBE_LARGE:
        room = ROOM
    try:
        return linkable(g, link, filename, deep=lowering.deepest > _SHALLOW, room=room)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise LimitExceeded(
            f"the text is nested too deep for Python's compiler: {error}",
            limit="blocks",
            allowed=20,
            hint="move inner parts into functions",
        ) from None


def text_link(g: TextGenerator, root: Node) -> ast.FunctionDef:
    """``def link(E, ...)``, which takes the cells and returns ``main``. Its globals are the constants: a namespace of this text alone."""
    g.loc = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
    body = on_fresh_stack(lambda: g.statements(root)) or [ast.Pass(**g.loc)]
    unset = [g.assignment(g.stored(f"{each}_c"), g.const_param(NOTHING, "NOTHING")) for each in sorted(g.called)]
    declared: list[ast.expr] = [g.stored(each) for each in sorted({*g.fn.declared, *g.called})]
    dead = [g.if_(g.const(False), [ast.Assign(declared, g.const(None), **g.loc)])] if declared else []
    return g.link(g.coroutine("main", (), [*dead, *unset, *body]))
