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
from agentflow.lang.calling import NOTHING
from agentflow.lang.checks import SHORTEST_MISSPELLING
from agentflow.lang.code_writer import STORE
from agentflow.lang.cutting import Part
from agentflow.lang.linking import part_of
from agentflow.lang.outlining import outline
from agentflow.lang.pieces import ROOM
from agentflow.lang.python import (
    branches,
    calls,
    comprehensions,
    declarations,
    expressions,
    operators,
    statements,
    world,
)
from agentflow.lang.python.emitter import Describe, Emitter, TooManyMistakes
from agentflow.lang.python.names import ProgramScopes as Scopes
from agentflow.lang.python.reader import read_python
from agentflow.lang.python.support import binding
from agentflow.lang.stack import on_fresh_stack
from agentflow.lib.text.suggest import meant

RULES = (branches, calls, comprehensions, declarations, expressions, operators, statements, world)
"""The modules with functions that write code; importing them declares these functions."""
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
    g = emitter_of(source, describe, limits, allow, port, closed=closed)
    g.seeks_failures = True
    written(g, read_tree(g))
    return _in_order([*g.errors, *failures_of(g)]), _in_order(doubts_of(g))


def doubts_of(g: Emitter) -> list[AgentflowError]:
    """Caught failures, and names that the host may bind and that resemble visible names."""
    doubts: list[AgentflowError] = [*g.doubts, *(error for error, is_caught in g.failures.values() if is_caught)]
    for name, (node, other) in g.doubtful.items():
        if len(name) >= SHORTEST_MISSPELLING and name.rstrip("s") != other.rstrip("s"):
            message = f"nothing here binds '{name}'"
            doubts.append(SexpEvaluationError(message, code="name/suspicious", span=g.span_at(node), hint=meant(other)))
    return doubts


def failures_of(g: Emitter) -> list[AgentflowError]:
    """Certain failures that nothing around them catches."""
    return [error for error, is_caught in g.failures.values() if not is_caught]


def declared(source: Source, limits: Limits, *, undecorated: bool = False) -> dict[str, Any] | None:
    """The ``params``, ``allow`` and ``description`` of the workflow that a text declares; None if it declares none.

    With ``undecorated`` those of any text with a ``main``: its parameters are the bindings of a run. Raises
    SexpSyntaxError, SexpEvaluationError (the first mistake of the declaration) and LimitExceeded.
    """
    g = emitter_of(source, lambda _: UNKNOWN, limits, None, None)
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
    passes: Sequence[Callable[[Source, Emitter], object]] = (),
    *,
    labelled: Following = False,
) -> tuple[Part, Emitter]:
    """The code of a text, and its writer. ``passes`` receive the writer before it starts. Raises SexpSyntaxError,
    SexpEvaluationError (the first of several) and LimitExceeded."""
    g = emitter_of(source, describe, limits, allow, port)
    g.seeks_failures = allow is not None
    g.labelled = labelled is True
    tree = read_tree(g)
    for each in passes:
        each(source, g)
    link = written(g, tree)
    wrong = [*g.errors, *failures_of(g)]
    if wrong:
        first, *others = _in_order(wrong)
        first.others = others  # type: ignore[attr-defined]
        raise first
    assert link is not None
    if labelled == "strict":
        from agentflow.lang.kernel.ready import python_part  # few flows have such a policy

        part = python_part(g)
    else:
        part = assembled(g, link, filename)
    g.scopes.release()
    return part, g


def checked(
    source: Source, describe: Describe, limits: Limits, allow: frozenset[str] | None, port: Names | None
) -> Emitter:
    """The writer of the code of a text without mistakes, with the meanings of its names.

    Raises SexpSyntaxError, SexpEvaluationError (the first of several) and LimitExceeded.
    """
    g = emitter_of(source, describe, limits, allow, port)
    written(g, read_tree(g))
    if g.errors:
        raise _in_order(g.errors)[0]
    return g


def emitter_of(
    source: Source,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    port: Names | None,
    *,
    closed: bool = False,
) -> Emitter:
    """The writer of the code of a parsed text. Raises SexpSyntaxError and LimitExceeded."""
    tree = read_python(source, limits)
    g = Emitter(source, tree, Scopes(tree), describe, allow, port, limits, closed=closed)
    for node, name in g.scopes.wrong:
        hint = f"assign {name} in the function around this one; 'global {name}' means that of the text"
        g.wrong(node, "name/unbound", f"'nonlocal {name}': no function around this one assigns it", hint)
    return g


def read_tree(g: Emitter) -> ast.Module:
    """The text's tree, with the names of the tasks that it defines noted."""
    for each in g.tree.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_task(each.decorator_list):
            g.own_tasks.add(each.name)
    return g.tree


def _is_task(decorators: Iterable[ast.expr]) -> bool:
    called = (each.func if isinstance(each, ast.Call) else each for each in decorators)
    return any(isinstance(each, ast.Name) and each.id == "task" for each in called)


def _in_order(errors: list[AgentflowError]) -> list[AgentflowError]:
    return sorted(errors, key=lambda each: each.span.start if each.span is not None else 0)


def written(g: Emitter, tree: ast.Module) -> ast.FunctionDef | None:
    """``def link(E, ...)``, which takes the cells and returns ``main``; None when there are too many mistakes.

    Its globals are the constants: a namespace of this text alone.
    """
    location = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
    g.loc = location
    try:
        return on_fresh_stack(lambda: _link(g, tree))
    except TooManyMistakes:
        return None


def _link(g: Emitter, tree: ast.Module) -> ast.FunctionDef:
    body = [*g.suite(tree.body[:-1]), *_last(g, tree.body[-1])] if tree.body else [ast.Pass(**g.loc)]
    unset: list[ast.stmt] = [
        ast.Assign([ast.Name(f"{each}_c", STORE, **g.loc)], g.const_param(NOTHING, "NOTHING"), **g.loc)
        for each in sorted(g.global_functions)
    ]
    declared: list[ast.expr] = [
        ast.Name(each, STORE, **g.loc) for each in sorted({*g.fn.declared, *g.global_functions})
    ]
    dead: list[ast.stmt] = []
    if declared:
        dead = [ast.If(g.const(False), [ast.Assign(declared, g.const(None), **g.loc)], [], **g.loc)]
    return g.link(g.coroutine("main", (), [*dead, *unset, *g.at_start.values(), *body]))


def _last(g: Emitter, node: ast.stmt) -> list[ast.stmt]:
    """The last statement of a text, with an expression as the text's value; else the value of ``main``, if defined."""
    if isinstance(node, ast.Expr):
        with g.at(node):
            value = g.value(node.value)
            return [*g.flushed(), ast.Return(value, **g.loc)]
    written = g.suite([node])
    main = g.scopes.function("main")
    if main is None or isinstance(node, ast.Return):
        return written
    with g.at(main):
        args = main.args
        needed = {each.arg for each in (*args.posonlyargs, *args.args)[: -len(args.defaults) or None]}
        needed |= {each.arg for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None}
        every = [each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
        values = [g.ours(binding, g.env(), g.const(each), g.const(each in needed)) for each in every]
        py = g.known_code[main]
        return [*written, ast.Return(g.await_(g.call(g.name(py), [g.name("rt"), g.deeper(), *values])), **g.loc)]


def assembled(g: Emitter, link: ast.FunctionDef, filename: str, room: int | None = None) -> Part:
    """The code of ``link``. For a long text it is compiled in pieces of some ``room`` Python nodes (None: as many as compile quickly).

    Raises LimitExceeded.
    """
    if room is None and sum(len(each.nodes) for each in g.scopes.scopes.values()) > _MAYBE_LARGE:
        room = ROOM

    try:
        if room is not None:
            outline(link, room // 4)
        return part_of(g, link, filename, deep=g.deepest > _SHALLOW, room=room)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise LimitExceeded(
            f"the text is nested too deep for Python's compiler: {error}",
            limit="blocks",
            allowed=20,
            hint="move inner parts into functions",
        ) from None
