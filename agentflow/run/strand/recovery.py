"""Errors as values, and the forms that deal with failure: ``raise``, ``finally``, ``timeout``, ``retry``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import field
from typing import Any, NoReturn, cast

import anyio

from agentflow.core.call.call import CallContext, JournalPort, RunPort, view_of
from agentflow.core.call.host_threads import left_at_work
from agentflow.core.data.errors import AgentflowError, RunStopped, SexpEvaluationError, TaskError, copied_error
from agentflow.core.data.frozen import frozen
from agentflow.core.data.labels import bare, because_of
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.data.values import HELD, is_long, unshared
from agentflow.core.data.walk import exact
from agentflow.core.events.effects import Timer
from agentflow.lang.abi import Code
from agentflow.lang.calling import TAIL, bounce
from agentflow.lang.printer import print_value
from agentflow.lang.trace import annotate
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.strand import Strand

CLEANUP_STEPS = 1_000
"""Steps allowed to a ``finally`` that runs because of a limit or a cancellation."""
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 30.0


@frozen
class ErrorValue:
    """The value that ``catch`` binds: the error as data, with declared fields for ``get-field``.

    ``code`` is stable (``family/name``), ``reason`` the task-failure reason, ``span`` a dict of line and column or nil,
    ``cause`` the message of the underlying error, ``value`` the argument of ``raise``, ``irritants`` those of ``error``,
    ``details`` further data of the error.
    """

    code: str
    message: str
    reason: str
    span: dict[str, Any] | None
    cause: str | None
    value: Any
    irritants: list[Any]
    details: dict[str, Any]
    _error: AgentflowError = field(repr=False, compare=False)

    @classmethod
    def of(cls, error: AgentflowError) -> ErrorValue:
        """The value of an error."""
        value = error.value if isinstance(error, SexpEvaluationError) else None
        return cls(
            code=error.code,
            message=error.message,
            reason=error.reason,
            span=error.span.to_dict() if error.span is not None else None,
            cause=error.cause_text,
            value=value,
            irritants=list(getattr(error, "irritants", [])),
            details=dict(error.details),
            _error=error,
        )

    @property
    def error(self) -> AgentflowError:
        """The exception itself."""
        return self._error


def error_of(value: Any, span: Span) -> AgentflowError:
    """The error that ``(raise value)`` raises, with Python lists in it; of a caught error a copy."""
    if isinstance(value, ErrorValue):
        return copied_error(value.error)
    if isinstance(value, TaskResult) and value.failed and isinstance(value.error, AgentflowError):
        return copied_error(value.error)
    error = SexpEvaluationError(f"the program raised {print_value(value, limit=500)}", code="program/raised", span=span)
    error.value = value
    return error


def user_error(message: Any, irritants: list[Any], span: Span) -> SexpEvaluationError:
    """The error of ``(error "message" irritant ...)``, with Python lists for lists in its irritants."""
    text = exact(message) if isinstance(message, str) else print_value(message, limit=500)
    shown = " ".join(print_value(each, limit=200) for each in irritants)
    error = SexpEvaluationError(f"{text}: {shown}" if shown else text, code="program/error", span=span)
    error.value = message
    error.irritants = irritants  # type: ignore[attr-defined]
    return error


async def catch(rt: Strand, d: int, span: Span, error: Exception) -> ErrorValue:
    """The value that ``catch`` binds. An error that programs may not catch is raised again."""
    if isinstance(error, RunStopped):
        raise error
    return ErrorValue.of(annotate(error))


async def raise_value(rt: Strand, d: int, span: Span, value: Any) -> NoReturn:
    """``(raise value)``: raise the error of ``value``."""
    raise error_of(await _plain(rt, value), span)


async def raise_error(rt: Strand, d: int, span: Span, message: Any, *irritants: Any) -> NoReturn:
    """``(error "message" irritant ...)``: raise :func:`user_error`."""
    raise user_error(message, [await _plain(rt, each) for each in irritants], span)


async def _plain(rt: Strand, value: Any) -> Any:
    """``value`` with Python lists instead of shared ones, converted and searched for secrets in slices."""
    if type(value) in HELD:
        value, _ = await rt.work(unshared(value))
        run = rt.call.run
        if run.watched and is_long(value):
            await run.examine(value, lasting=True)
    return value


async def finish(rt: Strand, d: int, span: Span, error: BaseException, final: Code) -> None:
    """Run the ``final`` form of a ``finally`` because of ``error``, which the caller raises again afterwards.

    After a program error it runs like any code, and an error of its own replaces ``error``. After a limit or a cancellation
    it has little time (:class:`~agentflow.run.strand.budget.CleanupTime`) and few steps, may start no model call, and an
    error of its own becomes a note on ``error``.
    """
    journal = rt.call.run.journal
    if isinstance(error, GeneratorExit) or (journal is not None and journal.suspending):
        return
    if isinstance(error, Exception) and not isinstance(error, RunStopped):
        annotate(error)
        await _to_end(rt, final, d)
        return
    allowed = rt.budget.cleanup
    with cleaning(rt, limited=isinstance(error, RunStopped)):
        try:
            with anyio.CancelScope(shield=True), allowed.form(trusted=rt.grants is None) as seconds:
                rt.budget.start_part_clock(seconds)
                async with asyncio.timeout(seconds):
                    await _to_end(rt, final, d)
        except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 - the first error continues; this is a note on it
            shown = failure.message if isinstance(failure, AgentflowError) else type(failure).__name__
            error.add_note(f"its finally form failed: {shown}")


@contextmanager
def cleaning(rt: Strand, *, limited: bool) -> Generator[None]:
    """A block for the clean-up of a strand being stopped: with steps of its own and without a model.

    Clean-up after a limit (``limited``) is not recorded: with a higher one the run continues as if it had not been met.
    """
    budget, fuel, call = rt.budget, rt.fuel, rt.call
    rt.call = rt.cleanup_call()
    # Programs that its tools run are part of the clean-up, not of the ended work.
    rt.call.run, rt.budget = _stopping(call.run, budget, limited=limited)
    rt.budget.strands.add(rt)
    rt.fuel = 0
    try:
        yield
    finally:
        rt.budget, rt.fuel, rt.call = budget, fuel, call


def run_of_tool(call: CallContext) -> RunPort:
    """The run of ``call`` for the work that host code starts in it: no model call begins there once that code is cancelled,
    and once it was stopped by a limit it has steps of its own.
    """
    host = call.host
    if host is None:
        return call.run
    run = host.run = host.run or _without_models(call.run, host.cancelled, call.run.budget, call.run.journal)
    budget = cast(Budget, run.budget)
    if host.stopped and host.cancelled() and (budget.met is not None or budget.out_of_time()):
        run = host.run = _stopping(run, budget, limited=True)[0]
    return run


def _stopping(run: RunPort, budget: Budget, *, limited: bool) -> tuple[RunPort, Budget]:
    own = Budget(budget.limits, steps=CLEANUP_STEPS, cleanup=budget.cleanup)
    return _without_models(run, lambda: True, own, None if limited else run.journal), own


def _without_models(run: RunPort, stopping: Callable[[], bool], budget: object, journal: JournalPort | None) -> RunPort:
    """``run`` as code sees it that may be stopped: once ``stopping()``, no model call begins, for any caller."""

    def charge_model_call() -> None:
        if stopping():
            raise SexpEvaluationError(
                "code that is being stopped, by a limit or a cancellation, may start no model call",
                code="finally/model-call",
                hint="clean up with tools",
            )
        run.charge_model_call()

    return view_of(run, charge_model_call=charge_model_call, budget=budget, journal=journal)


async def _to_end(rt: Strand, thunk: Code, d: int) -> Any:
    result = await thunk(rt, d + 1)
    return await bounce(rt, d) if result is TAIL else result


async def timeout(rt: Strand, d: int, span: Span, seconds: Any, thunk: Code) -> Any:
    """``(timeout seconds form)``. Raises TaskError (``timeout/elapsed``, reason execution_timeout)."""
    asked, seconds = seconds, exact(bare(seconds))
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        error = SexpEvaluationError(
            f"the seconds of timeout are a non-negative number, not {print_value(seconds, limit=80)}",
            code="timeout/seconds",
            span=span,
        )
        raise because_of(error, asked)
    # The form has one number, whether or not it is in time; its body is numbered below it.
    outer, rt.call = rt.call, rt.start_form("timeout", span.start)
    journal = outer.run.journal
    scope = asyncio.timeout(seconds) if journal is None else journal.clock(rt.call.path, seconds)
    try:
        async with scope:
            try:
                return await _to_end(rt, thunk, d)
            except TimeoutError as error:
                raise annotate(error) from error.__cause__  # not of this form's time
    except TimeoutError:
        raise TaskError(
            f"this form took longer than {seconds:g} s",
            code="timeout/elapsed",
            reason="execution_timeout",
            span=span,
            hint="give it more time, or catch the error",
            details={"seconds": seconds},
        ) from None
    finally:
        rt.call = outer


async def retry(
    rt: Strand,
    d: int,
    span: Span,
    tries: Any,
    thunk: Code,
    worth: Callable[[BaseException | None], bool] | None = None,
    *,
    steps: bool = False,
) -> Any:
    """``(retry tries form)``: evaluate ``form`` again after a TaskError or a FAILED result, at most ``tries``
    times in all, and return its value. ``worth`` says which of these failures are tried again (None: all), ``steps`` that a function of the
    host which raised is one too. Nothing is tried again while a call of a plain function still works on its thread."""
    asked, tries = tries, bare(tries)
    if type(tries) is not int or tries < 1:
        error = SexpEvaluationError(
            f"the number of tries of retry is a positive integer, not {print_value(tries, limit=80)}",
            code="retry/tries",
            span=span,
        )
        raise because_of(error, asked)
    others, session = left_at_work(rt.call), rt.call.session
    begun = session.mark()

    def again(error: BaseException | None) -> bool:
        return attempt < tries and (worth is None or worth(error)) and left_at_work(rt.call) <= others

    for attempt in range(1, tries + 1):
        try:
            value = await _to_end(rt, thunk, d)
            result = bare(value)
            if not (isinstance(result, TaskResult) and result.failed and again(result.error)):
                return value
        except TaskError as error:
            if not again(error):
                raise
        except SexpEvaluationError as error:
            if not (steps and error.code == "host/raised" and again(error)):
                raise
        if session.keep_partial:
            session.take_back_stopped(begun)
        await rt.perform(Timer(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (attempt - 1)), jitter=True), span)
    raise AssertionError("a retry ends in its last try")
