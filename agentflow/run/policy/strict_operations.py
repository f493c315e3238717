"""Operations under a ``strict`` policy: those that decide by a value, or continue after an error, put its sources into
their result."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.labels import Sources, bare, blame, box, joined, outer_sources, sources_of, stripped
from agentflow.core.data.source import Span
from agentflow.core.data.values import as_list, name_of
from agentflow.lang.abi import Code, StrictRuntime
from agentflow.lang.builtins.registry import type_name
from agentflow.lang.builtins.strict import Called, look_outside
from agentflow.lang.calling import whole
from agentflow.lang.environment import SexpEnvironment
from agentflow.run.policy import labelled_operations
from agentflow.run.policy.labelled import HostStrand, LabelledStrand
from agentflow.run.policy.labelled_operations import LABELLED_OPERATIONS
from agentflow.run.policy.strict import StrictStrand
from agentflow.run.strand import branches, director, recovery
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.operations import OPERATIONS, elsewhere
from agentflow.run.strand.strand import EffectHandler, Operations, Strand


def _strict(rt: Strand) -> StrictStrand:
    assert isinstance(rt, StrictStrand)
    return rt


def _whole(code: Code, *, looked_at: bool = False) -> Code:
    """The code of a branch or of a part done in place; ``looked_at``: something depends on whether its value is a failure."""
    done = whole(code, look_outside if looked_at else None)

    async def watched(rt: Any, d: int, *arguments: Any) -> Any:
        try:
            return await done(rt, d, *arguments)
        except AgentflowError as error:
            rt.saw(error.sources)
            raise

    return watched


@contextmanager
def _trying(strict: StrictStrand) -> Generator[None]:
    """While an error may be caught."""
    strict.trying += 1
    try:
        yield
    finally:
        strict.trying -= 1


@contextmanager
def _blaming(strict: StrictStrand) -> Generator[None]:
    """An error that ends the work depends on everything read until then."""
    try:
        yield
    except AgentflowError as error:
        blame(error, strict.ambient)
        raise


async def catch(rt: Strand, d: int, span: Span, error: Exception) -> Any:
    """The value that ``catch`` binds. Handling an error depends on everything looked at before it."""
    strict, value = _strict(rt), await recovery.catch(rt, d, span, error)
    strict.raise_to(value.error.sources)
    return box(value, strict.ambient)


async def finish(rt: Strand, d: int, span: Span, error: BaseException, final: Code) -> None:
    """Run the ``final`` form of a ``finally`` because of ``error``, depending on everything looked at to raise it."""
    if isinstance(error, AgentflowError):
        _strict(rt).raise_to(error.sources)
    await recovery.finish(rt, d, span, error, final)


async def parallel(rt: Strand, d: int, span: Span, thunks: list[Code]) -> Any:
    """All values, in order, each with the sources of its branch's conditions."""
    return await branches.parallel(rt, d, span, [_whole(each) for each in thunks])


async def pmap(rt: Strand, d: int, span: Span, function: Any, items: Any, limit: Any = None) -> Any:
    """The procedure's values on all elements, as many as the list says."""
    strict = _strict(rt)
    before = strict.ambient
    strict.raise_to(joined(outer_sources(items), outer_sources(limit)))
    value = await labelled_operations.pmap(rt, d, span, Called(function), items, bare(limit))
    return strict.left(before, value)


async def race(rt: Strand, d: int, span: Span, thunks: list[Code]) -> Any:
    """The first success. Which one it is may depend on anything the branches looked at; timing is not tracked."""
    strict = _strict(rt)
    before = strict.ambient
    with _trying(strict), _blaming(strict):
        value = await branches.race(rt, d, span, [_whole(each, looked_at=True) for each in thunks])
    return strict.left(before, value)


async def retry(rt: Strand, d: int, span: Span, tries: Any, thunk: Code) -> Any:
    """``(retry tries form)``: repeating the form depends on everything looked at in it."""
    strict = _strict(rt)
    before = strict.ambient
    tries = strict.opened(tries)
    with _trying(strict):
        value = await recovery.retry(rt, d, span, tries, _whole(thunk, looked_at=True))
    return strict.left(before, value)


async def timeout(rt: Strand, d: int, span: Span, seconds: Any, thunk: Code) -> Any:
    """``(timeout seconds form)``: whether there is time for it depends on the seconds."""
    strict = _strict(rt)
    before = strict.ambient
    seconds = strict.opened(seconds)
    with _blaming(strict):
        value = await recovery.timeout(rt, d, span, seconds, _whole(thunk))
    return strict.left(before, value)


async def director_loop(rt: Strand, d: int, span: Span, names: tuple[str, ...], *values: Any) -> Any:
    """The loop; its controller decides whether there is another round."""
    strict = _strict(rt)
    before = strict.ambient
    clauses = dict(zip(names, values, strict=True))
    clauses["max-iterations"] = strict.opened(clauses["max-iterations"])
    for phase in ("director", "executor", "evaluator", "controller"):
        function = clauses[phase]
        if type_name(bare(function)) == "procedure" or name_of(bare(function)) is not None:
            clauses[phase] = Called(function, _look_at_decision if phase == "controller" else None)
    with _blaming(strict):
        value = await director.director_loop(rt, d, span, names, *[clauses[each] for each in names])
    return strict.left(before, value)


def _look_at_decision(rt: StrictRuntime, decision: Any) -> None:
    look_outside(rt, decision)
    pair = as_list(bare(decision)) or []
    word = name_of(bare(pair[0])) if len(pair) == 2 else None
    if word in ("stop", "continue"):
        look_outside(rt, pair[0])
    else:
        rt.raise_to(sources_of(decision))  # the error shows it


async def define_task(rt: Strand, d: int, span: Span, *operands: Any) -> Any:
    """``(defatom ...)``, which exists regardless of conditions: in a branch it is refused."""
    environment: SexpEnvironment = operands[2]
    strict, owner = _strict(rt), environment.owner
    began = owner.began if isinstance(owner, StrictStrand) else strict.floor
    if not strict.ambient <= began:
        shown = sorted(strict.ambient - began)
        strict.forbid(
            SexpEvaluationError(
                f"a task would be defined in a branch that depends on {', '.join(shown)}, so its absence would leak the test",
                code="provenance/write",
                span=span,
                hint="define it before the test, and call it in the arm",
                details={"sources": shown},
            )
        )
    return await labelled_operations.define_task(rt, d, span, *operands)


async def eval_program(rt: Strand, d: int, span: Span, *operands: Any) -> Any:
    """``(eval-program p ...)``: invalid bindings are an error, and their names decide the meaning of the whole program."""
    strict, (_, keys, _, _, *values) = _strict(rt), operands
    if strict.trying:
        strict.saw((await rt.work(stripped(values)))[1])
    names = _sources_of_names(dict(zip(keys, values, strict=True)).get("bindings"))
    work = labelled_operations.eval_program(rt, d, span, *operands)
    return await (strict.under(names, work) if names else work)


def _sources_of_names(bindings: Any) -> Sources:
    """The sources of the names in bindings, a dict or a list of pairs, and of how many there are."""
    sources, entries = outer_sources(bindings), bare(bindings)
    if type(entries) is dict:
        return sources.union(*map(outer_sources, cast("dict[Any, Any]", entries)))
    for each in as_list(entries) or ():
        sources = joined(sources, joined(outer_sources(each), sources_of((as_list(bare(each)) or [None])[0])))
    return sources


async def pmap_on(rt: Strand, d: int, span: Span, function: Any, items: Any) -> Any:
    """The procedure's values on all elements, computed by workers."""
    strict = _strict(rt)
    before = strict.ambient
    _not_caught(strict, span)
    if elsewhere(rt, span) is None:
        return await pmap(rt, d, span, function, items)
    strict.raise_to(outer_sources(items))
    return strict.left(before, await labelled_operations.pmap_on(rt, d, span, function, items))


async def parallel_on(rt: Strand, d: int, span: Span, *thunks: Any) -> Any:
    """All values, computed by workers."""
    _not_caught(_strict(rt), span)
    if elsewhere(rt, span) is None:
        return await parallel(rt, d, span, [bare(each).code for each in thunks])
    return await labelled_operations.parallel_on(rt, d, span, *thunks)


async def race_on(rt: Strand, d: int, span: Span, *thunks: Any) -> Any:
    """The first success of workers, which is chosen after the errors of others."""
    _no_errors_of_workers(_strict(rt), span)
    return await labelled_operations.race_on(rt, d, span, *thunks)


def _not_caught(rt: StrictStrand, span: Span) -> None:
    if rt.trying:
        _no_errors_of_workers(rt, span)


def _no_errors_of_workers(rt: StrictStrand, span: Span) -> None:
    """Refuse to continue after an error of workers, unless the policy only explains."""
    rt.forbid(
        SexpEvaluationError(
            "workers do not report the values that they tested, so under a strict policy nothing may catch their errors",
            code="provenance/workers",
            span=span,
            hint="move the try, race or retry into the code of the workers",
        )
    )


STRICT_OPERATIONS: Operations = MappingProxyType(
    {
        **LABELLED_OPERATIONS,
        "catch": catch,
        "define-task": define_task,
        "director-loop": director_loop,
        "eval-program": eval_program,
        "finally": finish,
        "parallel": parallel,
        "parallel-on": parallel_on,
        "pmap": pmap,
        "pmap-on": pmap_on,
        "race": race,
        "race-on": race_on,
        "retry": retry,
        "timeout": timeout,
    }
)
"""All operations by name, for strands of runs with a strict policy."""


def followed_strand(call: CallContext, budget: Budget, performer: EffectHandler, **parts: Any) -> Strand:
    """A strand for a program at ``call``; ``parts`` are the other parameters of :class:`~agentflow.run.strand.strand.Strand`."""
    if call.reading is not None and call.reading.guard.following == "strict":
        return StrictStrand(call, budget, performer, STRICT_OPERATIONS, **parts)
    return LabelledStrand(call, budget, performer, LABELLED_OPERATIONS, **parts)


def followed_host_strand(call: CallContext, budget: Budget, performer: EffectHandler) -> Strand:
    """A strand for code of the host at ``call``."""
    return HostStrand(call, budget, performer, OPERATIONS)
