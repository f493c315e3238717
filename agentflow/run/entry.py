"""How programs and procedures are entered from the host: on a strand of their own, numbered within the run."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import following
from agentflow.core.data.errors import LimitExceeded
from agentflow.lang.allowance import Allowance
from agentflow.lang.closure import Closure
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program, ProgramCache, compile_program, describer
from agentflow.lang.support import apply
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.calls import located_error
from agentflow.run.strand.compiling import beside_the_loop
from agentflow.run.strand.definitions import NamesInForce, view
from agentflow.run.strand.naming import EffectHandler, Publish
from agentflow.run.strand.operations import OPERATIONS
from agentflow.run.strand.strand import Strand


def run_program(
    program: Program,
    env: SexpEnvironment,
    *,
    performer: EffectHandler,
    call: CallContext,
    budget: Budget,
    programs: ProgramCache | None = None,
    publish: Publish | None = None,
    fitted: bool = False,
) -> Coroutine[Any, Any, Any]:
    """Run a program in ``env`` at ``call``; the returned coroutine gives its last value.

    A program whose free names have changed since it was compiled is compiled again for ``env``, unless the caller says that
    it is ``fitted``. ``publish`` is called with each task the program defines. Raises SexpEvaluationError, TaskError and
    LimitExceeded, with their spans and the program calls they went through.
    """
    names = None if fitted else NamesInForce(performer, env, view(env, None, call.definitions))
    unfit = names is not None and not program.fits(describer(names))
    other = program.labelled != (call.reading is not None and call.reading.guard.following)
    if unfit or other or (call.grants is not None and program.allow != call.grants):
        return _run_refitted(program, env, performer, call, budget, programs, publish)
    if call.reading is None:  # as strand_at does: here and above, runs without a policy save a call
        return Strand(call, budget, performer, OPERATIONS, programs=programs, env=env, publish=publish).main(
            program, env
        )
    return strand_at(call, budget, performer, programs=programs, env=env, publish=publish).main(program, env)


def strand_at(
    call: CallContext,
    budget: Budget,
    performer: EffectHandler,
    *,
    programs: ProgramCache | None = None,
    env: SexpEnvironment | None = None,
    publish: Publish | None = None,
) -> Strand:
    """A strand for a program at ``call``, which in a run with a policy follows where values came from."""
    if call.reading is None:
        return Strand(call, budget, performer, OPERATIONS, programs=programs, env=env, publish=publish)
    from agentflow.run.policy.strands import followed_strand

    return followed_strand(call, budget, performer, programs=programs, env=env, publish=publish)


def host_strand_at(call: CallContext, budget: Budget, performer: EffectHandler) -> Strand:
    """A strand for code of the host at ``call``, as :func:`strand_at`."""
    if call.reading is None:
        return Strand(call, budget, performer, OPERATIONS)
    from agentflow.run.policy.strands import followed_host_strand

    return followed_host_strand(call, budget, performer)


async def _run_refitted(
    program: Program,
    env: SexpEnvironment,
    performer: EffectHandler,
    call: CallContext,
    budget: Budget,
    programs: ProgramCache | None,
    publish: Publish | None,
) -> Any:
    """Compile a program again for ``env`` and the call's authority, and run it."""
    names = NamesInForce(performer, env, view(env, None, call.definitions))

    def compiling(allowance: Allowance) -> Program:
        return compile_program(
            program.source,
            names=names,
            limits=program.limits,
            allow=call.grants,
            cache=programs,
            allowance=allowance,
            labelled=following(call.reading),
        )

    fitted = await beside_the_loop(program, compiling, program.limits, budget)
    strand = strand_at(call, budget, performer, programs=programs, env=env, publish=publish)
    return await strand.main(fitted, env)


async def call_closure(
    function: Any,
    arguments: Sequence[Any],
    *,
    performer: EffectHandler,
    call: CallContext,
    budget: Budget,
    programs: ProgramCache | None = None,
) -> Any:
    """Call a procedure value from the host. Its effects are numbered below ``call``, since a host may call several at once."""
    inner = call.for_text(call.next_path("call", function, arguments))
    env = function.env if isinstance(function, Closure) else None
    strand = strand_at(inner, budget, performer, programs=programs, env=env)
    if isinstance(function, Closure):
        call.program_loaded(function.info.source, function.info.source.surface)
    try:
        return await apply(strand, strand.host_procedure(function), arguments, strand.first_depth)
    except Exception as error:  # noqa: BLE001 - the outermost frame of the program: foreign exceptions get a span
        final = located_error(error)
        if isinstance(final, LimitExceeded):
            budget.meet(final)
        raise final from final.__cause__
    finally:
        strand.end()
