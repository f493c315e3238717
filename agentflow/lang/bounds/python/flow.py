"""The effects of functions that nodes of texts in Python call, for the flows of the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from agentflow.core.data.known_names import ASK, ENDORSE, PUBLISH, SIGNAL
from agentflow.lang.bounds.flow import ANY_ARGUMENT, ANY_RESULT, Done, Effectful, Point
from agentflow.lang.bounds.tables import bare_function, keywords_of
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.lowered_functions import call_method, endorsed
from agentflow.lang.kernel.nodes import Const, Prim
from agentflow.lang.python import changes, methods, world
from agentflow.lang.python.methods import METHOD_ROWS
from agentflow.lang.python.requests import asked, published, signal
from agentflow.lang.python.rows import Row
from agentflow.lang.python.support import task_procedure

_PUTTING = frozenset(row.name for row in METHOD_ROWS if row.puts)
"""Methods that put their arguments into the receiver."""
_CODED = {
    changes.add_to: Effectful(puts=(0, 1)),
    changes.bitwise_to: Effectful(puts=(1, 2)),
    changes.store: Effectful(puts=(1, 0, 2)),
    changes.subtract_from: Effectful(puts=(0, 1)),
    endorsed: Effectful(asks=ENDORSE),
    methods.append: Effectful(puts=(0, 1)),
}
_REQUESTED = {asked: ASK, published: PUBLISH, signal: SIGNAL}


def about(kind: Callable[[str], str], node: Prim | nodes.Perform) -> Effectful | Done | None:
    """The effects of a function that a node calls; ``kind`` gives the kind of a free name."""
    if isinstance(node, nodes.Perform):
        return _effect(node)
    function: Any = node.function
    if function is task_procedure:  # a task or tool as a value may be called with anything
        name = str(cast(Const, node.args[1]).value)
        shown = "task" if kind(name) == "task" else "tool"
        return Done(shown, name, [("*", ANY_ARGUMENT)], ANY_RESULT)
    if isinstance(node.row, Row):
        return _called(node, node.row)
    if bare_function(function) is call_method:
        return Effectful(puts=tuple(range(len(node.args)))) if function.args[0] in _PUTTING else None
    return _CODED.get(bare_function(function))


def _called(node: Prim, row: Row) -> Effectful | None:
    """A function that may call its first argument, and the one called ``key``."""
    names = keywords_of(node)
    count = len(node.args) - len(names)
    called = [count + at for at, name in enumerate(names) if name == "key"]
    return Effectful(calls=(*([0] if row.calls and node.args else []), *called))


def _effect(node: nodes.Perform) -> Effectful | Done | None:
    make: Any = node.make
    function = bare_function(make)
    if function is world.question_effect:
        return _done("context", "get_context", make.args[0], node)
    if function in (world.tool_effect, world.workflow_effect):
        return _done("tool" if function is world.tool_effect else "workflow", make.args[0], make.args[1], node)
    if function is world.message_effect:
        return Effectful(asks="log-message")
    request = node.args[0] if node.args else None
    name = _REQUESTED.get(request.function) if isinstance(request, Prim) else None
    return None if name is None else Effectful(asks=name)


def _done(kind: str, name: str, names: tuple[str, ...], node: nodes.Perform) -> Done:
    arguments: list[tuple[str, Point]] = [*zip(names, node.args, strict=True)]
    return Done(kind, name, arguments, node)
