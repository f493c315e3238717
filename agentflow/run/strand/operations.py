"""Operations: requests of programs to the runtime other than calls and effects. The table, and operations on tasks and
programs."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Protocol, cast

from agentflow.core.call.reading import following
from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError
from agentflow.core.data.known_names import DEFINE, Template, narrowed
from agentflow.core.data.labels import bare
from agentflow.core.data.source import Source, Span
from agentflow.core.data.values import Symbol, name_of, pairs_to_dict, plain_lists, text_size
from agentflow.core.data.walk import Work
from agentflow.core.events.effects import Solve
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.calling import MAX_STACK_CALLS
from agentflow.lang.closure import Closure
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.printer import print_value, print_work
from agentflow.lang.program import Program, as_source, compile_program
from agentflow.run.strand import branches, director, recovery
from agentflow.run.strand.authority import not_granted
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.program_compiler import beside_the_loop
from agentflow.run.strand.strand import Operations, Strand, view

_CALLS_OF_A_PROGRAM = 10
"""As many calls of procedures take the Python stack that a program within a program takes, its compiler's at the end included."""


async def define_task(
    rt: Strand,
    d: int,
    span: Span,
    definition: Template | dict[str, Any],
    computed: tuple[tuple[str, Span], ...],
    env: SexpEnvironment,
    *values: Any,
) -> Symbol:
    """``(defatom ...)``: bind the template, prepared when the program was compiled or now, and return its name.

    ``computed`` are the fields, with their spans; the program has just evaluated their ``values``.
    """
    if isinstance(definition, dict):
        definition = _prepare(rt, span, definition, computed, values)
    if rt.grants is not None and DEFINE not in rt.grants:
        raise not_granted(DEFINE, rt.grants, span)
    definition = definition.granted(rt.grants)
    journal = rt.call.run.journal
    rt.define(env, definition if journal is None else journal.template(definition))
    return Symbol(definition.name)


def _prepare(
    rt: Strand, span: Span, fields: dict[str, Any], computed: tuple[tuple[str, Span], ...], values: tuple[Any, ...]
) -> Template:
    fields = dict(fields)
    for (key, at), value in zip(computed, plain_lists(values), strict=True):
        if key == "file_paths":
            fields[key] = [
                *fields.get(key, ()),
                *_texts(key, at, cast("list[Any]", value) if isinstance(value, list) else [value]),
            ]
        else:
            (fields[key],) = _texts(key, at, [value])
    try:
        return rt.performer.names.prepare(fields)
    except AgentflowError as error:
        field = error.details.get("field", ("",))[0]
        at = next((at for key, at in computed if key == field), span)
        raise SexpEvaluationError(
            f"defatom: {error.message}", code="defatom/invalid", span=at, hint=error.hint
        ) from error


def _texts(key: str, span: Span, values: list[Any]) -> list[str]:
    texts = [name_of(each) for each in values]
    if None in texts:
        shown = print_value(values[texts.index(None)], limit=80)
        raise SexpEvaluationError(f"'{key}' of a task is text, not {shown}", code="defatom/option", span=span)
    return cast("list[str]", texts)


async def solve(
    rt: Strand,
    d: int,
    span: Span,
    allow: tuple[str, ...],
    keys: tuple[str, ...],
    env: SexpEnvironment,
    goal: Any,
    *values: Any,
) -> Any:
    """``(solve goal ...)``: let the solver write and run programs. ``keys`` name the options in ``values``."""
    options = dict(zip(keys, values, strict=True))
    rounds = options.get("max-rounds", 3)
    inputs = pairs_to_dict(options.get("inputs", {}))
    calls = options.get("max-model-calls")
    explore = options.get("explore", False)
    text = name_of(goal)
    counts = [each for each in (rounds, calls) if each is not None]
    wrong = any([type(each) is not int or each < 1 for each in counts])
    if text is None or wrong or inputs is None or not isinstance(explore, bool):
        raise SexpEvaluationError(
            "solve takes a goal as text, max-rounds and max-model-calls as positive integers, inputs as a dict and explore as "
            "true or false",
            code="solve/arguments",
            span=span,
        )
    return await rt.perform(Solve(text, allow, rounds, inputs, env, explore, max_model_calls=calls), span)


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
    """``(eval-program p ...)``: run a program, as data or text, in a fresh environment with the grants ``allow``."""
    options = dict(zip(keys, values, strict=True))
    return await run_data(rt, d, span, allow, here, program, options, held=None)


async def run_data(
    rt: Strand,
    d: int,
    span: Span,
    allow: tuple[str, ...],
    here: SexpEnvironment,
    program: Any,
    options: dict[str, Any],
    *,
    held: dict[str, Any] | None,
) -> Any:
    """The value of a program given as data. ``held`` are the values of its variables, where those of ``options`` were taken out of boxes."""
    bindings = pairs_to_dict(options.get("bindings", {}))
    steps = options.get("max-steps")
    if bindings is None or not (steps is None or (type(steps) is int and steps >= 0)):
        raise SexpEvaluationError(
            "eval-program takes bindings as a dict and max-steps as an integer that is not negative",
            code="program/arguments",
            span=span,
        )
    if isinstance(program, str | Source):
        source = as_source(program)
    else:
        source = as_source(await rt.work(_written(program, rt.limits.source_bytes, span)))
    text = source.text
    call = rt.start_form("eval-program", text, bindings, grants=narrowed(rt.grants, frozenset(allow)))
    call.span = span
    if call.run.journal is not None:
        call.run = call.run.journal.within(call)
    env = SexpEnvironment(bindings if held is None else held)
    # tasks of this program, too: the judge of the other one asks the call
    outer = call.definitions = rt.definitions(here)
    budget = Budget(rt.limits, parent=rt.budget, steps=steps) if steps is not None else rt.budget
    names = NamesInForce(rt.performer.names, env, view(env, None, outer))

    def compiling(allowance: StepAllowance) -> Program:
        return compile_program(
            source,
            names=names,
            limits=rt.limits,
            allow=call.grants,
            cache=rt.programs,
            allowance=allowance,
            labelled=following(call.reading),
        )

    compiled = await beside_the_loop(source, compiling, rt.limits, budget)
    past = await call.run.admission.past_budget(source, call.grants, bindings, call)
    if past is not None:
        raise past
    call.grants = await call.run.admission.granted(source, bindings, call)
    strand = rt.child(call, budget=budget, env=env)
    strand.outer, strand.overlay = outer, None

    async def nested(rt: Any, d: int) -> Any:
        return await strand.main(compiled, env, rt.depth, d)

    inside = d + _CALLS_OF_A_PROGRAM
    return await (nested if inside < MAX_STACK_CALLS else rt.on_fresh_stack(nested))(rt, inside)


def _written(program: Any, allowed: int, span: Span) -> Work[str]:
    """The text of a program given as data. Raises LimitExceeded (``limits/source-bytes``) before writing too long a text."""
    if (yield from text_size(program)) // 2 > allowed:
        raise LimitExceeded(
            f"the program would have more than {allowed:,} characters as text",
            limit="source_bytes",
            allowed=allowed,
            span=span,
        )
    return (yield from print_work(program))


class Forms(Protocol):
    """The forms at one place in a run that have separate runs as branches."""

    async def pmap(self, function: Any, items: Any) -> list[Any]:
        """The procedure's values on all elements, in order."""
        ...

    async def parallel(self, thunks: Sequence[Closure]) -> list[Any]:
        """All values, in order."""
        ...

    async def race(self, thunks: Sequence[Closure]) -> Any:
        """The first success."""
        ...


def elsewhere(rt: Strand, span: Span) -> Forms | None:
    """The forms with branches elsewhere; None for here. Raises SexpEvaluationError (``branches/no-workers``)."""
    journal = rt.call.run.journal
    return None if journal is None else journal.elsewhere(rt, span)


async def pmap_on(rt: Strand, d: int, span: Span, function: Any, items: Any) -> list[Any]:
    """The procedure's values on all elements, in order, computed by workers if there are any."""
    forms = elsewhere(rt, span)
    return await (branches.pmap(rt, d, span, function, items) if forms is None else forms.pmap(function, items))


async def parallel_on(rt: Strand, d: int, span: Span, *thunks: Closure) -> list[Any]:
    """All values, in order, computed by workers if there are any."""
    forms = elsewhere(rt, span)
    if forms is None:
        return await branches.parallel(rt, d, span, [bare(thunk).code for thunk in thunks])
    return await forms.parallel(thunks)


async def race_on(rt: Strand, d: int, span: Span, *thunks: Closure) -> Any:
    """The first success, of workers if there are any. The other branches are cancelled and have ended."""
    forms = elsewhere(rt, span)
    if forms is None:
        return await branches.race(rt, d, span, [bare(thunk).code for thunk in thunks])
    return await forms.race(thunks)


OPERATIONS: Operations = MappingProxyType(
    {
        "catch": recovery.catch,
        "define-task": define_task,
        "director-loop": director.director_loop,
        "error": recovery.raise_error,
        "eval-program": eval_program,
        "finally": recovery.finish,
        "loop-config": director.loop_config,
        "parallel": branches.parallel,
        "parallel-on": parallel_on,
        "pmap": branches.pmap,
        "pmap-on": pmap_on,
        "race": branches.race,
        "race-on": race_on,
        "raise": recovery.raise_value,
        "retry": recovery.retry,
        "solve": solve,
        "timeout": recovery.timeout,
    }
)
"""All operations (:data:`agentflow.lang.abi.Operation`) by name."""
