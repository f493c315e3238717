"""Constants and variables of lowered texts."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from agentflow.core.data.labels import (
    Label,
    bare,
    box,
    joined,
    outer_sources,
)
from agentflow.lang.calling import begun
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.door import of_builtin, through
from agentflow.lang.kernel.facts import facts_of, facts_of_method
from agentflow.lang.kernel.lowered_functions import call_method, call_with_names
from agentflow.lang.kernel.machine import Code, Machine, Now, RuntimeFrame, placed, rule, then_do
from agentflow.lang.kernel.nodes import (
    PARENT,
    LoweredInfo,
    Variable,
)
from agentflow.lang.python import support
from agentflow.lang.python.function_values import builtin, method_of
from agentflow.lang.python.rows import Row
from agentflow.lang.trace import too_early


@rule(nodes.Const)
def const(m: Machine, node: nodes.Const) -> Code:
    value = node.value if node.row is None else function_value(m, node.row)
    return Code(lambda rt, fr: value)


def function_value(m: Machine, row: Any) -> Closure:
    """A function or method of the language as a value: its calls take values out of their boxes where all do."""
    if isinstance(row, Row):
        node = nodes.Prim(None, partial(call_with_names, row.function, ()), [], row=row, takes_rt=True)

        async def waiting(rt: Any, d: int, *arguments: Any) -> Any:
            return await of_builtin(m, rt, d, row, list(arguments), {}, rt.ambient)

        def function(rt: Any, *arguments: Any) -> Any:
            return begun(through(m, rt, node, facts_of(node), list(arguments), rt.ambient))

        entry = replace(row, function=waiting if row.is_async else function)
        return builtin(entry, follows="strict", described=LoweredInfo)
    kind, name, title = row
    called = nodes.Prim(None, partial(call_method, name, ()), [], takes_rt=True)

    def method(rt: Any, name: str, value: Any, more: Any) -> Any:
        return begun(through(m, rt, called, facts_of_method(kind, name, ()), [value, *more], rt.ambient))

    return method_of(kind, name, title, method, follows="strict", described=LoweredInfo)


@rule(nodes.Env)
def environment(m: Machine, node: nodes.Env) -> Code:
    return Code(lambda rt, fr: m.env)


@rule(nodes.Ref)
def ref(m: Machine, node: nodes.Ref) -> Code:
    name = node.variable
    if isinstance(name, str):
        return m.at(node, cell_reader(m, name, node))
    count, slot, unsure = m.hops(name.frame), name.slot, name.unsure

    def read(rt: Any, fr: RuntimeFrame) -> Any:
        for _ in range(count):
            fr = fr[PARENT]
        value = fr[slot]
        if value is not UNBOUND and type(value) is not Label:
            return value
        if bare(value) is UNBOUND:
            if type(value) is Label:
                rt.raise_to(value.sources)
            raise placed(too_early(name.name), node.at)
        if unsure and rt.trying:
            rt.raise_to(value.sources)
        return value

    return Code(read)


def cell_reader(m: Machine, name: str, node: nodes.Ref) -> Now:
    cell, hint, near = m.cells[name], node.hint, node.near

    def read(rt: Any, fr: RuntimeFrame) -> Any:
        value = cell.v
        if rt.trying or value is UNBOUND:
            rt.raise_to(m.env.presence(name))
        if value is UNBOUND:
            return support.unbound_name(rt, m.env, name, hint) if m.python else rt.unbound(m.env, name, near)
        return value

    return read


@rule(nodes.Set)
def assign(m: Machine, node: nodes.Set) -> Code:
    store = m.storing(node.variable, node.how, direct=node.direct)
    value = m.code(node.value)
    if isinstance(node.variable, Variable) and not node.variable.name:
        m.kept[node.variable] = node.value
    if value.now is not None:
        now = value.now

        def stored(rt: Any, fr: RuntimeFrame, value: Any) -> Any:
            store(rt, fr, value)
            return value

        return m.at(node, lambda rt, fr: then_do(now(rt, fr), lambda value: stored(rt, fr, value)))

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        result = await value.run(rt, fr)
        store(rt, fr, result)
        return result

    return m.later(node, run)


@rule(text_nodes.Del)
def unset(m: Machine, node: text_nodes.Del) -> Code:
    read = ref(m, nodes.Ref(node.at, node.variable)).now
    assert read is not None
    target, since = node.variable, m.since()
    if not isinstance(target, str):
        store = m.storing(target)

        def unset(rt: Any, fr: RuntimeFrame) -> None:
            read(rt, fr)
            store(rt, fr, UNBOUND)

        return m.at(node, unset)
    cell = m.cells[target]

    def unbind(rt: Any, fr: RuntimeFrame) -> None:
        read(rt, fr)
        rt.written(target, box(None, m.env.presence(target)), None, since(rt, fr))
        m.env.note_presence(target, joined(outer_sources(cell.v), rt.ambient))
        cell.v = UNBOUND

    return m.at(node, unbind)
