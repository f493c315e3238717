"""Operations of programs with values that may stand in boxes: those that look into a value open its box and put its sources
into their result.

The seconds of a time-out, the tries of a retry and the decision of a director loop are opened where they are used.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NoReturn, cast

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import Template
from agentflow.core.data.labels import (
    NO_SOURCES,
    Sources,
    bare,
    blame,
    box,
    boxed_elements,
    joined,
    outer_sources,
    stripped,
)
from agentflow.core.data.source import Span
from agentflow.core.data.values import as_list, pairs_to_dict
from agentflow.lang.environment import SexpEnvironment
from agentflow.run.policy.labelled import LabelledStrand
from agentflow.run.strand import branches, operations, recovery
from agentflow.run.strand.operations import OPERATIONS
from agentflow.run.strand.strand import Operations, Strand


def _labelled(rt: Strand) -> LabelledStrand:
    assert isinstance(rt, LabelledStrand)
    return rt


async def _opened(rt: Strand, value: Any) -> tuple[Any, Sources]:
    return await rt.work(stripped(value))


async def catch(rt: Strand, d: int, span: Span, error: Exception) -> Any:
    """The value that ``catch`` binds, with the sources that the error depends on."""
    value = await recovery.catch(rt, d, span, error)
    return box(value, value.error.sources)


async def raise_value(rt: Strand, d: int, span: Span, value: Any) -> NoReturn:
    """``(raise value)``."""
    opened, sources = await _opened(rt, value)
    await _blamed(recovery.raise_value(rt, d, span, opened), sources)
    raise AssertionError("a raise ends in an error")


async def raise_error(rt: Strand, d: int, span: Span, message: Any, *irritants: Any) -> NoReturn:
    """``(error message irritant ...)``."""
    opened, sources = await _opened(rt, [message, *irritants])
    await _blamed(recovery.raise_error(rt, d, span, *opened), sources)
    raise AssertionError("an error ends in an error")


async def _blamed(work: Any, sources: Sources) -> Any:
    try:
        return await work
    except AgentflowError as error:
        blame(error, sources)
        raise


async def pmap(rt: Strand, d: int, span: Span, function: Any, items: Any, limit: Any = None) -> Any:
    """The procedure's values on all elements, each with the sources of the list."""
    try:
        return await _each(rt, d, span, branches.pmap, function, items, bare(limit))
    except AgentflowError as error:
        blame(error, outer_sources(limit))
        raise


async def _each(rt: Strand, d: int, span: Span, form: Any, function: Any, items: Any, *rest: Any) -> Any:
    sources = outer_sources(items)
    opened = bare(items)
    if as_list(opened) is not None:
        opened = await rt.work(boxed_elements(opened, sources)) if sources else opened
    else:
        opened, sources = await _opened(rt, items)
    return box(await _blamed(form(rt, d, span, function, opened, *rest), sources), sources)


async def define_task(
    rt: Strand,
    d: int,
    span: Span,
    definition: Template | dict[str, Any],
    computed: tuple[tuple[str, Span], ...],
    env: SexpEnvironment,
    *values: Any,
) -> Any:
    """``(defatom ...)``: a task with texts that a program built from data depends on the sources of that data whenever it
    is called."""
    opened, sources = await _opened(rt, list(values))
    sources = joined(sources, _labelled(rt).ambient)
    if sources:
        fields = definition if isinstance(definition, dict) else definition.fields
        definition = {**fields, "sources": sorted(sources)}
    return await _blamed(operations.define_task(rt, d, span, definition, computed, env, *opened), sources)


async def solve(rt: Strand, d: int, span: Span, *operands: Any) -> Any:
    """``(solve goal ...)``: the effects of a program depend on the goal and the inputs it was written for."""
    opened, sources = await _opened(rt, list(operands[3:]))
    work = operations.solve(rt, d, span, *operands[:3], *opened)
    return await (_labelled(rt).under(sources, work) if sources else work)


async def eval_program(
    rt: Strand,
    d: int,
    span: Span,
    allow: tuple[str, ...],
    keys: tuple[str, ...],
    here: SexpEnvironment,
    program: Any,
    *values: Any,
) -> Any:
    """``(eval-program p ...)``: the effects of a program depend on the sources of its text; its variables keep their own
    sources."""
    clauses = dict(zip(keys, values, strict=True))
    (text, options), sources = await _opened(
        rt, [program, {key: each for key, each in clauses.items() if key != "bindings"}]
    )
    held: dict[str, Any] = {}
    shape: Sources = NO_SOURCES
    if "bindings" in clauses:
        options["bindings"], shape = await _opened(rt, clauses["bindings"])
        entries = pairs_to_dict(await _entries(rt, clauses["bindings"]))
        held = entries if entries is not None else {}
    work = operations.run_data(rt, d, span, allow, here, text, options, held=held)
    try:
        return await (_labelled(rt).under(sources, work) if sources else work)
    except AgentflowError as error:
        blame(error, shape if error.code == "program/arguments" else NO_SOURCES)  # that they are not bindings
        raise


async def _entries(rt: Strand, bindings: Any) -> Any:
    """Bindings as a dict or a list of pairs, opened except for their values, which get the sources of the opened boxes."""
    sources, entries = outer_sources(bindings), bare(bindings)
    if type(entries) is dict:
        named = cast("dict[Any, Any]", entries)
        return {bare(key): box(each, joined(sources, outer_sources(key))) for key, each in named.items()}
    pairs: list[Any] = []
    for each in as_list(entries) or []:
        around, pair = joined(sources, outer_sources(each)), as_list(bare(each))
        if pair is None or len(pair) != 2:
            return entries
        pairs.append([bare(pair[0]), box(pair[1], joined(around, outer_sources(pair[0])))])
    return pairs


async def pmap_on(rt: Strand, d: int, span: Span, function: Any, items: Any) -> Any:
    """The procedure's values on all elements, computed by workers, which receive all data with its sources."""
    return await _each(rt, d, span, operations.pmap_on, box(function, _labelled(rt).ambient), items)


async def parallel_on(rt: Strand, d: int, span: Span, *thunks: Any) -> Any:
    """All values, computed by workers, who know why they do it."""
    return await operations.parallel_on(rt, d, span, *[box(each, _labelled(rt).ambient) for each in thunks])


async def race_on(rt: Strand, d: int, span: Span, *thunks: Any) -> Any:
    """The first success of workers, who know why they do it."""
    return await operations.race_on(rt, d, span, *[box(each, _labelled(rt).ambient) for each in thunks])


LABELLED_OPERATIONS: Operations = MappingProxyType(
    {
        **OPERATIONS,
        "catch": catch,
        "define-task": define_task,
        "error": raise_error,
        "eval-program": eval_program,
        "parallel-on": parallel_on,
        "pmap": pmap,
        "pmap-on": pmap_on,
        "race-on": race_on,
        "raise": raise_value,
        "solve": solve,
    }
)
"""All operations by name, for strands of runs with a policy."""
