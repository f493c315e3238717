"""Constants and variables of lowered texts."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from functools import partial
from typing import Any

from agentflow.core.data.labels import (
    Label,
    bare,
    box,
    joined,
    outer_sources,
)
from agentflow.core.data.source import Source
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, SexpEnvironment
from agentflow.lang.kernel import lowered_functions, nodes
from agentflow.lang.kernel.door import of_builtin, through
from agentflow.lang.kernel.facts import facts_of, facts_of_method
from agentflow.lang.kernel.machine import Code, Machine, Now, RuntimeFrame, placed, rule, then_do
from agentflow.lang.kernel.nodes import (
    PARENT,
    LoweredInfo,
    Variable,
)
from agentflow.lang.python import support
from agentflow.lang.python.expressions import PYTHON_TEXT, check_self
from agentflow.lang.python.rows import Row
from agentflow.lang.trace import too_early


@rule(nodes.Const)
def const(m: Machine, node: nodes.Const) -> Code:
    value = node.value if node.row is None else function_value(m, node.row)
    return Code(lambda rt, fr: value)


def function_value(m: Machine, row: Any) -> Closure:
    """A function or method of the language as a value: its calls take values out of their boxes where all do."""
    if isinstance(row, Row):
        title, called = (
            row.name,
            nodes.Prim(None, partial(lowered_functions.call_with_names, row.function, ()), [], row=row, takes_rt=True),
        )
    else:
        title, called = row[2], nodes.Prim(None, partial(lowered_functions.call_method, row[1], ()), [], takes_rt=True)

    async def code(rt: Any, d: int, *arguments: Any) -> Any:
        rt.fuel -= 1
        if rt.fuel < 0:
            await rt.tick()
        if isinstance(row, Row):
            if (problem := row.problem(len(arguments), ())) is not None:
                raise problem
            if row.is_async:
                return await of_builtin(m, rt, d, row, list(arguments), {}, rt.ambient)
            facts = facts_of(called)
        else:
            check_self(row[0], title, arguments)
            facts = facts_of_method(row[0], row[1], ())
        value = begun(through(m, rt, called, facts, list(arguments), rt.ambient))
        return await rt.work(value.work) if type(value) is Sliced else value

    end = len(title)
    source = Source(PYTHON_TEXT, title, "python")
    info = LoweredInfo(title, (), None, source, 0, end, (0, end), True, follows="strict")
    return Closure(code, -1, info, SexpEnvironment())


@rule(nodes.Env)
def environment(m: Machine, node: nodes.Env) -> Code:
    return Code(lambda rt, fr: m.env)


@rule(nodes.Ref)
def ref(m: Machine, node: nodes.Ref) -> Code:
    name = node.variable
    if isinstance(name, str):
        return m.at(node, cell_reader(m, name, node.hint))
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


def cell_reader(m: Machine, name: str, hint: str | None) -> Now:
    cell = m.cells[name]

    def read(rt: Any, fr: RuntimeFrame) -> Any:
        value = cell.v
        if rt.trying or value is UNBOUND:
            rt.raise_to(m.env.presence(name))
        if value is UNBOUND:
            return support.unbound_name(rt, m.env, name, hint) if m.python else rt.unbound(m.env, name)
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


@rule(nodes.Del)
def unset(m: Machine, node: nodes.Del) -> Code:
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
