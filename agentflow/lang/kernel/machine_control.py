"""Choices, loops, comprehensions and errors of lowered texts."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.labels import (
    Label,
    Sources,
    bare,
    blame,
    box,
    outer_sources,
)
from agentflow.core.data.values import OrderedSet
from agentflow.lang.builtins.opening import sources_of_keys
from agentflow.lang.calling import TAIL, Sliced
from agentflow.lang.charging import check_collection
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.door import iterated
from agentflow.lang.kernel.machine import (
    Code,
    Left,
    Machine,
    NextRound,
    Run,
    RuntimeFrame,
    placed,
    rule,
    then_do,
    within,
)
from agentflow.lang.kernel.machine_calls import thunk
from agentflow.lang.kernel.nodes import (
    CAUGHT,
    DEPTH,
    PARENT,
    Node,
)
from agentflow.lang.kernel.reach import exits, is_left_early
from agentflow.lang.kernel.shapes import fresh, shape
from agentflow.lang.python import failure
from agentflow.lang.python.boxed.repeated import Repeated


@rule(nodes.If)
def choice(m: Machine, node: nodes.If) -> Code:
    tests, arms = [each for each, _ in node.clauses], [each for _, each in node.clauses]
    # A test decides on its own arm, and on the later tests and arms.
    after = [[each] for each in tests[1:]] + [[node.other]]
    upgrades = m.upgrades([[arm, *more] for arm, more in zip(arms, after, strict=True)])
    decisions = [m.deciding(test, upgrade) for test, upgrade in zip(tests, upgrades, strict=True)]
    clauses = list(zip(decisions, [m.code(each) for each in arms], strict=True))
    other, stays = m.code(node.other), is_left_early([*arms, node.other])

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        before, arm = rt.ambient, other
        for decide, chosen in clauses:
            if (await decide(rt, fr))[1]:
                arm = chosen
                break
        if arm.now is None:
            value = await arm.run(rt, fr)
        else:
            value = arm.now(rt, fr)
            if type(value) is Sliced:
                value = await rt.work(value.work)
        if value is TAIL or rt.ambient is before:
            return value
        return box(value, rt.ambient) if stays else rt.left(before, value)

    return Code(None, run)


@rule(nodes.Logic)
def logic(m: Machine, node: nodes.Logic) -> Code:
    *first, last = node.items
    upgrades = m.upgrades([[each] for each in node.items[1:]])
    tests = [m.deciding(each, upgrade) for each, upgrade in zip(first, upgrades, strict=True)]
    every, otherwise = node.every, m.code(last).run

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        start = rt.ambient
        for each in tests:
            value, chosen = await each(rt, fr)
            if chosen is not every:
                break
        else:
            value = await otherwise(rt, fr)
        return value if value is TAIL else rt.left(start, value)

    return Code(None, run)


@rule(nodes.Seq)
def seq(m: Machine, node: nodes.Seq) -> Code:
    frame = node.frame
    with m.at_place(frame=frame or m.place.frame):
        codes = [m.code(each) for each in node.items]
    if len(codes) == 1 and frame is None:
        return codes[0]

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        if frame is not None:
            fr = within(frame, fr)
        value = None
        for each in codes:
            if each.now is None:
                value = await each.run(rt, fr)
            else:
                value = each.now(rt, fr)
                if type(value) is Sliced:
                    value = await rt.work(value.work)
        return value

    return Code(None, run)


def _ending(node: Node) -> Callable[[Any, Sources], None]:
    """The end of a loop: the code is where it was before, unless the loop may be left early."""
    stays = is_left_early([node])

    def ended(rt: Any, before: Sources) -> None:
        if not stays and not rt.trying:
            rt.ambient = before

    return ended


@rule(nodes.While)
def while_node(m: Machine, node: nodes.While) -> Code:
    with m.in_loop(node):
        decide, body = m.deciding(node.test, m.upgrade([node])), m.code(node.body).run
    other, ended, sense, first = (
        m.code(node.other).run if node.other else None,
        _ending(node),
        node.sense,
        node.steps_first,
    )

    async def run(rt: Any, fr: RuntimeFrame) -> None:
        before = rt.ambient
        while True:
            if first:
                rt.fuel -= 1
                if rt.fuel < 0:
                    await rt.tick()
            if (await decide(rt, fr))[1] is not sense:
                if other is not None:
                    await other(rt, fr)
                break
            if not first:
                rt.fuel -= 1
                if rt.fuel < 0:
                    await rt.tick()
            if not await _round(body, rt, fr):
                break
        ended(rt, before)

    return Code(None, run)


@rule(nodes.For)
def for_each(m: Machine, node: nodes.For) -> Code:
    over = iterated(m, node.over)
    with m.in_loop(node):
        upgrade, body = m.upgrade([node]), m.code(node.body)
    store = m.storing(node.item) if node.item is not None else None
    other, ended, counts, at = (
        m.code(node.other).run if node.other else None,
        _ending(node),
        node.counts,
        node.at,
    )
    now, jumps, collects = body.now, True in exits(node.body), m.place.out is not None

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        before, last = rt.ambient, [] if counts else None
        try:
            items, sources = await over(rt, fr)
        except AgentflowError as error:
            if rt.trying:
                rt.raise_to(error.sources)
                if upgrade is not None:
                    await upgrade(rt, fr, before)
            raise placed(error, at) from error.__cause__
        rt.raise_to(sources)
        if upgrade is not None:
            await upgrade(rt, fr, before)
        live = type(items) is list  # its rounds follow the list, which may change meanwhile
        for item in rt.rounds(items, at) if counts else items:
            if store is not None:
                store(rt, fr, box(item, sources) if sources else item)
            rt.fuel -= 1
            if rt.fuel < 0:
                await rt.tick()
                if collects:
                    check_collection(rt, len(fr[-1][0]), "a comprehension")
            if now is not None:
                last = now(rt, fr)
                if type(last) is Sliced:
                    last = await rt.work(last.work)
            elif not jumps:
                last = await body.run(rt, fr)
            elif not await _round(body.run, rt, fr):
                break
            if live and not (label := shape(rt, items)) <= rt.ambient:
                earlier = rt.ambient
                rt.raise_to(label)
                if upgrade is not None:
                    await upgrade(rt, fr, earlier)
        else:
            if other is not None:
                await other(rt, fr)
        value = last if not counts or rt.ambient is before else box(last, rt.ambient)
        ended(rt, before)
        return value if counts else None

    return Code(None, run)


@rule(text_nodes.Leave)
def leave(m: Machine, node: text_nodes.Leave) -> Code:
    how = node.how
    value_of = None if node.value is None else m.code(node.value).run

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        raise Left(how, None if value_of is None else await value_of(rt, fr))

    return Code(None, run)


@rule(nodes.NamedLet)
def named(m: Machine, node: nodes.NamedLet) -> Code:
    several, frame = m.several(node.inits), node.frame
    with m.at_place(frame=frame or m.place.frame), m.in_loop(node):
        stores, body = [m.storing(each) for each in node.params], m.code(node.body).run

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        before, args = rt.ambient, await several(rt, fr)
        while True:
            rt.fuel -= 1
            if rt.fuel < 0:
                await rt.tick()
            at = fr if frame is None else within(frame, fr)
            for store, value in zip(stores, args, strict=True):
                store(rt, at, value)
            try:
                value = await body(rt, at)
            except NextRound as again:
                if again.loop is not node:
                    raise
                args = again.values
                continue
            return value if value is TAIL else rt.left(before, value)

    return Code(None, run)


@rule(nodes.Again)
def again(m: Machine, node: nodes.Again) -> Code:
    several, loop = m.several(node.args), node.loop

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        raise NextRound(loop, await several(rt, fr))

    return Code(None, run)


@rule(text_nodes.Collect)
def collect(m: Machine, node: text_nodes.Collect) -> Code:
    kind, frame = node.kind, node.frame
    with m.at_place(frame=frame, loops=(), body=node, out=(kind, node)):
        body = m.code(node.body).run
    keyed, decides = kind in ("dict", "set"), kind in ("any", "all")

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        before, again = rt.ambient, Repeated()
        out: Any = {} if keyed else []
        new = within(frame, fr)
        new[DEPTH] += 1
        new.append((out, again))
        try:
            await body(rt, new)
        except Left as left:
            if left.how != "decided":
                raise
            return rt.left(before, left.value)
        if decides:
            return rt.left(before, kind == "all")
        if keyed:
            out = await rt.work(again.said(out))
            sources = await rt.work(sources_of_keys(out))
            out = box(OrderedSet.of(out) if kind == "set" else out, sources)
        return rt.left(before, fresh(rt, out))

    return m.later(node, run)


@rule(text_nodes.Yield)
def element(m: Machine, node: text_nodes.Yield) -> Code:
    assert m.place.out is not None
    kind, whole = m.place.out
    if kind in ("any", "all"):
        assert node.value is not None
        decide, settles = m.deciding(node.value, m.upgrade([whole])), kind == "any"

        async def settle(rt: Any, fr: RuntimeFrame) -> None:
            if (await decide(rt, fr))[1] is settles:
                raise Left("decided", settles)

        return Code(None, settle)
    key = None if node.key is None else m.code(node.key)
    value = None if node.value is None else m.code(node.value)
    if kind == "list":
        assert value is not None
        now = value.now
        if now is not None:
            return Code(lambda rt, fr: then_do(now(rt, fr), fr[-1][0].append))

        async def append(rt: Any, fr: RuntimeFrame) -> None:
            fr[-1][0].append(await value.run(rt, fr))

        return Code(None, append)
    assert key is not None

    async def put(rt: Any, fr: RuntimeFrame) -> None:
        name = await key.run(rt, fr)
        out, again = fr[-1]
        again.put(out, name, await value.run(rt, fr) if value is not None else None)

    return Code(None, put)


@rule(nodes.Try)
def recovery(m: Machine, node: nodes.Try) -> Code:
    final = None if node.final is None else thunk(m, node.final).now
    run = _handled(m, node) if node.handlers else m.code(node.body).run
    if final is None:
        return Code(None, run)
    make, at = final, node.at

    async def ended(rt: Any, fr: RuntimeFrame) -> Any:
        clean = make(rt, fr)
        try:
            value = await run(rt, fr)
        except (Left, NextRound):
            await _cleaned(rt, fr, clean)
            raise
        except BaseException as error:
            await rt.operation("finally", fr[DEPTH], at, error, clean)
            raise
        await _cleaned(rt, fr, clean)
        return value

    return Code(None, ended)


async def _cleaned(rt: Any, fr: RuntimeFrame, clean: Any) -> None:
    """Do a ``finally`` after which the code continues as before."""
    before = rt.ambient
    rt.left(before, await clean(rt, fr[DEPTH] + 1))


def _handled(m: Machine, node: nodes.Try) -> Run:
    """A body with its handlers: nothing is restored in it, and at its end all that it may change is marked."""
    upgrade, stays, at = m.upgrade([node]), is_left_early([node]), node.at
    with m.at_place(trying=True):
        body, other = m.code(node.body).run, m.code(node.other).run if node.other else None
        handlers = [
            (names, None if variable is None else m.storing(variable), m.code(each).run)
            for names, variable, each in node.handlers
        ]
    count = m.hops(m.function_of(m.place.frame))

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        home = fr
        for _ in range(count):
            home = home[PARENT]
        before, outer = rt.ambient, home[CAUGHT]
        home[CAUGHT] = before
        rt.trying += 1
        value: Any = None
        try:
            try:
                value = await body(rt, fr)
            except Exception as error:
                caught = await rt.operation("catch", fr[DEPTH], at, error)
                if m.python:
                    caught = box(failure.caught(error, bare(caught)), outer_sources(caught))
                for names, store, handler in handlers:
                    if names is None or failure.matches(bare(caught), names):
                        if store is not None:
                            store(rt, fr, caught)
                        value = await handler(rt, fr)
                        break
                else:
                    raise
            else:
                if other is not None:
                    value = await other(rt, fr)
        finally:
            home[CAUGHT] = outer
            rt.trying -= 1
            if upgrade is not None:
                await upgrade(rt, fr, before)
        return box(value, rt.ambient) if stays else rt.left(before, value)

    return run


@rule(text_nodes.Raise)
def raise_node(m: Machine, node: text_nodes.Raise) -> Code:
    value_of = None if node.value is None else m.code(node.value).run

    async def run(rt: Any, fr: RuntimeFrame) -> Any:
        if value_of is None:
            raise
        value = await value_of(rt, fr)
        if type(value) is Label:
            blame(value.value, value.sources)
        raise bare(value)

    return m.later(node, run)


async def _round(body: Run, rt: Any, fr: RuntimeFrame) -> bool:
    """One round of a loop; false after a ``break``."""
    try:
        await body(rt, fr)
    except Left as left:
        if left.how not in ("break", "continue"):
            raise
        return left.how == "continue"
    return True
