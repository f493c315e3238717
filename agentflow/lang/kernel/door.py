"""The functions of the language, called with values in boxes: the one place where these are taken out, and containers are changed."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import (
    NO_SOURCES,
    UNBOXED,
    Sources,
    bare,
    blame,
    box,
    joined,
    outer_sources,
    sources_of,
)
from agentflow.core.data.walk import Work
from agentflow.lang.builtins.opening import KEYED, sources_of_keys
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.builtins.strict import Called, look_outside
from agentflow.lang.builtins.strict import strict_twin_of as strict_primitive_of
from agentflow.lang.calling import TAIL, Sliced, begun, bounce
from agentflow.lang.kernel import lowered_functions, nodes
from agentflow.lang.kernel.container_labels import CONTAINERS
from agentflow.lang.kernel.facts import (
    CallFacts,
    changed,
    changes_of,
    facts_of,
    facts_of_method,
    gives_back,
    is_new,
    makes_container,
    method_in,
    reads,
)
from agentflow.lang.kernel.machine import Code, Machine, Run, RuntimeFrame, gathered, placed, rule
from agentflow.lang.kernel.machine_calls import applied
from agentflow.lang.kernel.nodes import (
    DEPTH,
    Node,
    Variable,
)
from agentflow.lang.kernel.reach import owned
from agentflow.lang.kernel.shapes import all_exported, exported, fresh, give_out, hold, outside, permit, shape
from agentflow.lang.python import builtins, changes, support, values
from agentflow.lang.python.boxed import labelled
from agentflow.lang.python.boxed.sharing import allowed
from agentflow.lang.python.rows import Row


@rule(nodes.Prim)
def prim(m: Machine, node: nodes.Prim) -> Code:
    if node.waits is not None:
        return m.later(node, waiting(m, node))
    call = door(m, node)
    codes = [m.code(each) for each in node.args]
    quick = [each.now for each in codes if each.now is not None]
    if len(quick) == len(codes):
        return m.at(node, lambda rt, fr: gathered(rt, fr, quick, [], lambda args: call(rt, fr, args)))
    several = m.several(node.args)

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        value = call(rt, fr, await several(rt, fr))
        return await rt.work(value.work) if type(value) is Sliced else value

    return m.later(node, run)


def door(m: Machine, node: nodes.Prim) -> Callable[[Any, RuntimeFrame, list[Any]], Any]:
    """A function of the language, called: the one place where values are taken out of their boxes, and containers are changed."""
    method = method_in(node)
    facts = None if method is not None else facts_of(node)
    change, operand = changes_of(node), changed(node)
    since = m.since(None if operand is None else node.args[operand])
    own = False
    if operand is not None:
        changes_at = node.args[operand]
        target = changes_at.variable if isinstance(changes_at, nodes.Ref) else None
        function, home = m.place.function, m.function_of(m.place.frame)
        if isinstance(target, Variable) and function is not None and m.function_of(target.frame) is home:
            own = owned(target, function, is_new=is_new, reads=reads, gives_back=gives_back)
    plain, takes_rt = node.function, node.takes_rt
    as_values = change is None and method is None and facts is not None and facts.gives not in ("new", "same")

    def call(rt: Any, fr: RuntimeFrame, args: list[Any]) -> Any:
        if as_values and UNBOXED.issuperset(map(type, args)):
            return plain(rt, *args) if takes_rt else plain(*args)
        facts_now = facts if method is None else facts_of_method(type(bare(args[0])), *method)
        assert facts_now is not None
        return begun(
            through(m, rt, node, facts_now, args, NO_SOURCES if own else since(rt, fr) if change else NO_SOURCES)
        )

    return call


def through(m: Machine, rt: Any, node: nodes.Prim, facts: CallFacts, args: list[Any], since: Sources) -> Work[Any]:
    changes_it = facts.changes is not None and type(bare(args[facts.holder])) in CONTAINERS
    try:
        if changes_it:
            permit(rt, args[facts.holder], (yield from depends(rt, node, facts, args)), since)
        shown: list[Any] = []
        for at, each in enumerate(args):
            letter = "k" if type(each) in UNBOXED else facts.letter(at)
            shown.append(
                each if letter == "k" else (yield from exported(rt, each)) if letter in "rc" else outside(rt, each)
            )
        if rt.trying:
            for at, each in enumerate(args):
                look = facts.look(at)
                if look != "k" and type(each) not in UNBOXED:
                    whole = look in "rc"
                    rt.raise_to(
                        sources_of((yield from exported(rt, each))) if whole else outer_sources(outside(rt, each))
                    )
        value = facts.twin(rt, *shown)
        if type(value) is Sliced:
            value = yield from value.work
    except AgentflowError as error:
        blame(error, sources_of((yield from all_exported(rt, args))))
        if rt.trying:
            rt.raise_to(error.sources)
        raise
    inner = bare(value)
    if type(inner) not in CONTAINERS:
        return value
    if facts.gives == "same" and changes_it and inner is bare(args[facts.holder]):
        return args[facts.holder]
    if facts.gives in ("new", "same"):
        if type(inner) in KEYED:
            value = box(value, (yield from sources_of_keys(inner)))
        return fresh(rt, value) if m.python else value  # no S-expression changes one
    if len(args) > 2 and inner is bare(args[2]) and method_in(node) is not None:  # put there by setdefault
        yield from hold(rt, value, NO_SOURCES, joined(shape(rt, bare(args[0])), outer_sources(args[0])))
    return value


def waiting(m: Machine, node: nodes.Prim) -> Run:
    """A function that calls procedures, or does an effect."""
    several, count, names, row = m.several(node.args), len(node.args) - len(node.names), node.names, node.row
    since = m.since(node.args[0] if node.function is builtins.sort else None)

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        args, before = await several(rt, fr), rt.ambient
        named = dict(zip(names, args[count:], strict=True))
        if isinstance(row, Primitive):
            return await of_primitive(m, rt, fr, node, args, before)
        if isinstance(row, Row):
            if node.function is builtins.sort:
                return await sort_in_place(m, rt, fr, args, named, since(rt, fr))
            return await of_builtin(m, rt, fr[DEPTH], row, args[:count], named, before)
        if node.function is lowered_functions.call_main:
            return rt.left(before, await node.function(rt, fr[DEPTH], *args))
        if node.function is lowered_functions.log_text:
            items = await give_out(rt, bare(args[1]))
            return await labelled.twin_of(support.log_text)(rt, args[0], tuple(items))
        return await node.function(rt, fr[DEPTH], *await give_out(rt, args))

    return run


async def of_primitive(
    m: Machine, rt: Any, fr: RuntimeFrame, node: nodes.Prim, args: list[Any], before: Sources
) -> Any:
    d = fr[DEPTH]
    value = await strict_primitive_of(node.row).function(rt, d + 1, *await give_out(rt, args))
    if value is TAIL:
        if node.is_tail:
            return TAIL
        value = await bounce(rt, d)
    return rt.left(before, value)


async def of_builtin(
    m: Machine, rt: Any, d: int, row: Row, args: list[Any], named: dict[str, Any], before: Sources
) -> Any:
    key = named.get("key")
    if row.function in (builtins.map_, builtins.filter_):
        args = [*args, *[named[name] for name in row.names if name in named]]
    shown = [outside(rt, each) for each in args]
    for each in shown:
        rt.raise_to(outer_sources(each))
        if type(bare(each)) in KEYED:
            rt.raise_to(await rt.work(sources_of_keys(bare(each))))
    if rt.trying:
        rt.raise_to(sources_of(await give_out(rt, [*args, *named.values()])))
    look_outside(rt, key)
    if row.function in (builtins.map_, builtins.filter_):
        return await mapped(m, rt, d, row, shown, before)
    if bare(key) is not None:
        named = {**named, "key": Called(key)}
    else:
        shown = await give_out(rt, shown)
    value = await labelled.twin_of(row.function)(rt, d, *shown, **named)
    if rt.trying:
        look_outside(rt, value)
    value = rt.left(before, value)
    return fresh(rt, value) if makes_container(row) else value


async def mapped(m: Machine, rt: Any, d: int, row: Row, args: list[Any], before: Sources) -> Any:
    function, *lists = args
    items: list[Any] = []
    for each in lists:
        sources = outer_sources(each)
        elements = values.elements(rt, bare(each), row.name)
        items.append([box(one, sources) for one in elements] if sources else elements)
    if row.function is builtins.map_:
        return fresh(rt, rt.left(before, await builtins.map_(rt, d, Called(function), *items)))
    kept: list[Any] = []
    for each in list(items[0]):
        answer = each if bare(function) is None else await applied(m, rt, d, function, [each], ())
        if m.decided(rt, answer):
            kept.append(each)
    return fresh(rt, rt.left(before, kept))


async def sort_in_place(
    m: Machine, rt: Any, fr: RuntimeFrame, args: list[Any], named: dict[str, Any], since: Sources
) -> None:
    """``value.sort(...)``: the order depends on all that is compared, and that it failed shows in it, too."""
    value, d, before, key = args[0], fr[DEPTH], rt.ambient, named.get("key")
    inner = bare(value)
    permit(rt, value, NO_SOURCES, since)
    if type(inner) is not list:
        await builtins.sort(rt, d, inner, **named)
        return
    rt.raise_to(joined(outer_sources(value), shape(rt, inner)))
    await rt.work(allowed(rt, inner))
    look_outside(rt, key)
    if bare(key) is not None:
        named = {**named, "key": Called(key)}
    try:
        [shown] = [value] if bare(key) is not None else await give_out(rt, [value])
        ordered = await labelled.twin_of(builtins.sorted_)(rt, d, shown, **named)
    except Exception as error:
        looked = joined(rt.ambient, error.sources if isinstance(error, AgentflowError) else NO_SOURCES)
        rt.containers.note(inner, looked)
        if rt.trying:
            rt.raise_to(looked)
        raise
    sources = outer_sources(ordered)
    inner[:] = [box(each, sources) for each in bare(ordered)] if sources else bare(ordered)
    rt.containers.note(inner, joined(rt.ambient, sources))
    if rt.trying:
        rt.raise_to(sources)  # its success depends on every compared value
    else:
        rt.ambient = before


def iterated(m: Machine, node: Node) -> Callable[[Any, RuntimeFrame], Awaitable[tuple[Any, Sources]]]:
    """The elements of a loop, and the sources of the number of its rounds."""
    assert isinstance(node, nodes.Prim)
    several, counts, span = m.several(node.args), node.function is not values.iterated, node.at

    async def run(rt: Any, fr: RuntimeFrame) -> tuple[Any, Sources]:
        args = await several(rt, fr)
        args = await give_out(rt, args) if counts else [outside(rt, each) for each in args]
        sources = sources_of(args) if counts else outer_sources(args[0])
        inner = [bare(each) for each in args]
        try:
            if counts:
                return node.function(*inner), sources
            if type(inner[0]) in KEYED:
                sources = joined(sources, await rt.work(sources_of_keys(inner[0])))
            return values.iterated(rt, inner[0]), sources
        except AgentflowError as error:
            blame(error, sources)
            raise placed(error, span) from error.__cause__

    return run


def depends(rt: Any, node: nodes.Prim, facts: CallFacts, args: list[Any]) -> Work[Sources]:
    """The sources of a change, other than the place of the code."""
    if not facts.changes:
        return NO_SOURCES
    stores = node.function is changes.store
    others = yield from all_exported(
        rt, [each for at, each in enumerate(args) if at != facts.holder and not (stores and at == 0)]
    )
    if facts.changes == "i":
        if not others:
            return NO_SOURCES
        method = method_in(node)
        if node.function is changes.add_to or (method is not None and method[0] == "extend"):
            inner = bare(others[0])
            sources = outer_sources(outside(rt, others[0]))
            return joined(sources, (yield from sources_of_keys(inner))) if type(inner) in KEYED else sources
        return NO_SOURCES if type(others[0]) in UNBOXED else sources_of(others[0])
    sources = sources_of(others)
    if facts.changes != "a":
        return sources
    return joined(sources, sources_of((yield from exported(rt, args[facts.holder]))))
