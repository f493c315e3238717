"""A run: one workflow (or one public call) with its events, limits, usage and session, from start to end; and its parts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from agentflow.core.call.approval import ApprovalRequest, Approver, Decision
from agentflow.core.call.call import CallContext, EventScope, JournalPort, RunPort, RunServices, contained, is_stray
from agentflow.core.call.host_calls import PartialValues
from agentflow.core.call.run_port import RunShared, UnderWay
from agentflow.core.call.spending import Funds
from agentflow.core.data.errors import ConfigurationError, LimitExceeded, clip
from agentflow.core.data.labels import stripped
from agentflow.core.data.limits import NANO, Limits, added
from agentflow.core.data.messages import Batching, Usage
from agentflow.core.data.session import Session
from agentflow.core.data.source import Lines
from agentflow.core.data.values import plain_result
from agentflow.core.data.walk import in_slices
from agentflow.core.events.events import Event
from agentflow.core.events.questions import Answerer, ExternalCall, Question
from agentflow.lang.charging import BYTES_PER_CHARACTER
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import examination
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.observe.stream import EventRedactor, Fanout, Subscriber
from agentflow.run.reservation import RunFunds
from agentflow.run.strand.budget import Budget, MemoryAccounts, out_of_time
from agentflow.run.strand.crew import together
from agentflow.run.strand.perform import warn_of_failures

if TYPE_CHECKING:  # few runs have a purse, ask, wait at their limits, or are told something
    from agentflow.core.call.inbox import Inbox
    from agentflow.run.at_limits import LimitDoor, Warnings
    from agentflow.run.purses import Purse
    from agentflow.run.questions import Asking, LocalQuestions


class WallClock:
    """Ends its block with LimitExceeded when the wall time of ``budget`` is up; the time starts with the block.

    ``spent_s`` are the seconds already used by earlier slices of a durable run.
    """

    __slots__ = ("_budget", "_timer")

    def __init__(self, budget: Budget, spent_s: float = 0.0) -> None:
        self._budget = budget
        self._timer = asyncio.timeout(budget.start_clock(spent_s))

    async def __aenter__(self) -> WallClock:
        await self._timer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        final = await self.end(kind, error, trace)
        if final is not None and final is not error:
            raise final

    async def end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> BaseException | None:
        """Stop the clock. Returns the error of the block, or LimitExceeded if it ended because the time was up."""
        try:
            await self._timer.__aexit__(kind, error, trace)
            if not (isinstance(error, TimeoutError) and self._timer.expired()):
                return error
        except TimeoutError:
            pass
        assert self._budget.wall_s is not None
        late: LimitExceeded = out_of_time(self._budget.wall_s)
        late.__suppress_context__ = True
        late.partial = getattr(error, "partial", ())
        return late


T = TypeVar("T")

_NO_USAGE = Usage()
_log = logging.getLogger(__name__)

News = Callable[[], list[tuple[str, str]]]
"""Returns the codes and texts of warnings about events between a flow's runs, each once."""
OBSERVER_GRACE_S = 5.0
"""Seconds that async observers may continue to read after the run has ended."""
CANCELLED_GRACE_S = 0.1
"""The same after a cancellation, which must end soon, but not without its Finished events."""


class Run:
    """A run in progress; the :class:`~agentflow.core.call.call.RunPort` of everything inside it.

    ``usage`` (tokens), ``cost_usd`` (US dollars) and ``model_calls`` are totals so far. ``cost_usd`` is None after a call
    with an unknown price. ``payer`` is the purse that pays for it, in addition to its limits. Its questions and approvals
    stay open for ``approval_ttl`` seconds; None: as long as the flow's.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        services: RunServices,
        fanout: Fanout,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        open_questions: Callable[[], LocalQuestions] | None = None,
        run_id: str | None = None,
        redactor: Redactor | None = None,
        journal: JournalPort | None = None,
        beside: MemoryAccounts | None = None,
        purse: Purse | None = None,
        approval_ttl: float | None = None,
        tools: object = None,
        deps: Any = None,
        around_tool: tuple[Any, ...] = (),
        around_model: tuple[Any, ...] = (),
        at_limit: Mapping[str, Any] | None = None,
    ) -> None:
        self.tools = tools
        self.deps = deps
        self.around_tool = around_tool
        self.around_model = around_model
        self.run_id = run_id or new_run_id()
        self.payer = purse
        self._approval_ttl = approval_ttl
        self.limits = limits
        self._wraps_up = False
        self.batches: Batching = False
        self.root: CallContext | None = None
        self.due: float | None = None
        self._door: LimitDoor | None = None
        self._warnings: Warnings | None = None
        if at_limit:
            from agentflow.core.data.at_limit import AtLimit  # few runs have such options
            from agentflow.run.at_limits import doors_of

            options = AtLimit(**at_limit)
            self._wraps_up = options.wrap_up
            self._door, self._warnings = doors_of(self, options)
        self.waits_at_limits = self._door is not None
        self._bounded = limits.tokens is not None or limits.usd is not None
        self.journal: JournalPort | None = journal
        self.slice = 1 if journal is None else journal.slice
        self.watched = fanout.watched
        self.streaming = fanout.streaming
        self.programs: set[tuple[str, Lines | None]] = set()
        self.shared = RunShared()
        self.budget = Budget(limits, beside=beside)
        if journal is not None:
            journal.watch(self.budget.permits)
        self.usage = _NO_USAGE if journal is None else journal.usage
        self.cost_usd: float | None = 0.0 if journal is None else journal.cost
        self.model_calls = self.usage.requests
        self._under_way: set[UnderWay] = set()
        own = self._bounded or purse is not None
        self._own_funds = RunFunds(limits, purse, used=self.usage, cost=self.cost_usd) if own else None
        self.funds: Funds | None = self._own_funds
        self._fanout = fanout
        self._answerers = approver, answerer, open_questions
        self._redactor = redactor
        self._redaction = EventRedactor(redactor) if redactor is not None and fanout.watched else None
        self._seq = itertools.count(1)
        self.next_seq = self._seq.__next__
        self.services = services
        self.task = services.task
        self.run_subtask = services.run_subtask
        self.call_value = services.call_value
        self.take_over = services.take_over
        self.admission = services.admission
        self.limited = services.limited
        self.run_program = services.run_program

    @cached_property
    def _asking(self) -> Asking:
        from agentflow.run.questions import Asking  # few runs ask

        approver, answerer, kept = self._answerers
        return Asking(self.run_id, approver, answerer, None if kept is None else kept(), self._approval_ttl)

    # -- limits that are raised ------------------------------------------------------------------------------------

    @property
    def wraps_up(self) -> bool:
        return self._wraps_up

    def left(self, limit: str) -> float | None:
        from agentflow.run.at_limits import left_of  # few runs ask

        return left_of(self, limit)

    async def beyond(self, error: LimitExceeded, call: CallContext) -> None:
        """A limit of a purse, of a part, or of runs that share their money is not raised."""
        shared = self._own_funds is not None and self._own_funds.lease is not None
        if self._door is None or shared:
            raise self.budget.meet(error)
        await self._door.wait(error, call)

    async def ask_limit(self, question: Question, call: CallContext) -> Any:
        """The new value of a limit; None if it stays."""
        return await self._asking.raises(question, call, self.journal)

    @property
    def steps_used(self) -> int:
        """Steps taken so far."""
        return self.budget.steps_used

    def congested(self) -> bool:
        """Whether delta producers must wait for the caller's own stream, or a recorder."""
        return self._fanout.congested

    def publish(self, event: Event) -> None:
        """Hand an event, redacted, to all observers."""
        if self.watched:
            self._show(event)
            if self._redactor is not None and self._redactor.examined:
                self._redactor.examined = {}

    def _show(self, event: Event) -> None:
        if self._redaction is None:
            self._fanout.publish(event)
        else:
            for shown in self._redaction.show(event, self.next_seq):
                self._fanout.publish(shown)

    async def examine(self, *values: object, lasting: bool = False) -> None:
        for value in values:
            shown = value if self._redactor is None else await in_slices(examination(value, self._redactor))
            if lasting:
                if self._redaction is not None:
                    self._redaction.keep(value, shown)
                continue
            for recorder in self._fanout.pacers:
                await in_slices(recorder.preparation(self.run_id, shown))

    async def room(self) -> None:
        """Wait until the slow readers take deltas again."""
        await self._fanout.room()

    @property
    def reserved(self) -> tuple[int, float]:
        funds = self.funds
        return (funds.held_tokens, funds.held_usd) if isinstance(funds, RunFunds) else (0, 0.0)

    def calls_left(self) -> int | None:
        allowed = self.limits.model_calls
        return None if allowed is None else max(0, allowed - self.model_calls)

    def charge_model_call(self) -> None:
        """Count a model call. Raises LimitExceeded beyond ``model_calls``, or if any other limit was reached."""
        self.budget.check_met()
        if self.waits_at_limits and self.due is not None and time.monotonic() >= self.due:
            raise out_of_time(self.limits.wall_s or 0.0)
        if self._bounded:
            self._check_spent()
        allowed = self.limits.model_calls
        if allowed is not None and self.model_calls >= allowed:
            raise self._reached(
                LimitExceeded(
                    f"the run has made all of its {allowed} model calls",
                    limit="model_calls",
                    allowed=allowed,
                    used=allowed,
                )
            )
        self.model_calls += 1
        if self._warnings is not None:
            self._warnings.look()

    def _reached(self, error: LimitExceeded) -> LimitExceeded:
        """Remember a limit that ends the run; one that is waited at may be raised (:meth:`beyond`)."""
        return error if self.waits_at_limits else self.budget.meet(error)

    def under_way(self, call: UnderWay, begins: bool) -> None:
        """Count a prompt's model calls in :meth:`so_far` before they are charged, or with ``begins`` false no more."""
        if begins:
            self._under_way.add(call)
        else:
            self._under_way.discard(call)

    def approve_by(self, approver: Approver) -> None:
        """Have ``approver`` decide from now on."""
        self._asking.approver = approver

    def so_far(self) -> tuple[Usage, float | None]:
        """Usage and cost with those of the model calls in progress, by estimate."""
        usage, cost = self.usage, self.cost_usd
        for call in self._under_way:
            used, price = call()
            usage, cost = usage + used, added(cost, price)
        return usage, cost

    def charge_usage(self, usage: Usage, cost_usd: float | None, put_by: bool = False) -> None:
        self.usage = usage if self.usage is _NO_USAGE else self.usage + usage
        total = self.cost_usd
        self.cost_usd = (
            None if cost_usd is None or total is None else (round(total * NANO) + round(cost_usd * NANO)) / NANO
        )
        if self._own_funds is not None:
            self._own_funds.spent(usage, cost_usd)
            if self.payer is not None and not put_by:
                self.payer.spent(usage, cost_usd)
        if self._warnings is not None:
            self._warnings.look()
        if self._bounded and not self.waits_at_limits:
            self._check_spent(exceeded=True)

    def charge_text(self, characters: int) -> None:
        """Count text that the run holds from now on. Raises LimitExceeded (``limits/memory``)."""
        try:
            self.budget.memory.add(characters * BYTES_PER_CHARACTER)
        except LimitExceeded as error:
            raise self.budget.meet(error) from None

    def _check_spent(self, *, exceeded: bool = False) -> None:
        tokens, usd = self.limits.tokens, self.limits.usd
        used = self.usage.total_tokens
        if tokens is not None and (used > tokens or (used == tokens and not exceeded)):
            raise self._reached(
                LimitExceeded(
                    f"the run has used {used:,} of {tokens:,} tokens", limit="tokens", allowed=tokens, used=used
                )
            )
        cost = self.cost_usd
        if usd is not None and cost is not None and (cost > usd or (cost >= usd and not exceeded)):
            raise self._reached(
                LimitExceeded(f"the run has cost ${cost:.4f} of ${usd:.4f}", limit="usd", allowed=usd, used=cost)
            )

    async def together(self, work: Sequence[Callable[[], Awaitable[T]]], call: CallContext) -> list[T]:
        """Await all of ``work`` concurrently, as the run's concurrency allows, and return the results in order."""
        return await together(self.budget, work, call)

    async def approve(self, request: ApprovalRequest, call: CallContext) -> Decision:
        """Ask for an approval; see :meth:`Asking.approve`."""
        return await self._asking.approve(request, call)

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        self._asking.cover(path, tools)

    async def ask(
        self,
        question: str,
        schema: Mapping[str, Any] | None,
        call: CallContext,
        external: ExternalCall | None = None,
    ) -> Any:
        """Ask the answerer; without one, wait for an answer from ``flow.send``."""
        return await self._asking.ask(question, schema, call, external)

    async def signal(self, name: str, schema: Mapping[str, Any] | None, call: CallContext) -> Any:
        """Wait for a signal; see :meth:`Asking.signal`."""
        return await self._asking.signal(name, schema, call)


def new_run_id() -> str:
    """A new run id: sorts by start time, unique without coordination."""
    return f"r{int(time.time() * 1000):011x}{os.urandom(6).hex()}"


_RUN_ID = late_pattern(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}")


def check_priority(priority: int) -> None:
    """Raise ConfigurationError unless ``priority`` is a whole number from -1000 to 1000."""
    if type(priority) is not int or not -1_000 <= priority <= 1_000:
        raise ConfigurationError(
            f"priority={clip(repr(priority), 80)}: a priority is a whole number from -1000 to 1000",
            code="config/priority",
            hint="the highest goes first; 0 is usual",
        )


def check_name(run_id: str | None, labels: Mapping[str, str] | None, redactor: Redactor | None) -> None:
    """Raise ConfigurationError for an id invalid as a file name or with a secret in it, and for labels other than text."""
    if run_id is not None and not (isinstance(run_id, str) and _RUN_ID.fullmatch(run_id)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"run_id={clip(repr(run_id), 120)}: a run id is 1 to 200 letters, digits and . _ : @ + -",
            code="config/run-id",
            hint="for example run_id='invoice-42'",
        )
    if run_id is not None and redactor is not None and redactor.finds(run_id):
        raise ConfigurationError(
            "the run id contains a secret, and ids are shown and stored as they are",
            code="config/run-id",
            hint="choose an id without a secret, or use a digest of the secret",
        )
    wrong = labels is not None and not isinstance(labels, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance]
    if wrong or any([not isinstance(text, str) for pair in (labels or {}).items() for text in pair]):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"labels={clip(repr(labels), 120)}: labels map texts to texts",
            code="config/labels",
            hint="for example labels={'user': 'ada'}",
        )


class OpenRun:
    """A run around a block, from :meth:`~agentflow.run.engine.Engine.open`.

    A class, not a generator: small runs are opened very often, and the nested generators of ``asynccontextmanager``
    would cost more than everything else in opening one.
    """

    __slots__ = (
        "_clock",
        "_copy",
        "_dependencies",
        "_fanout",
        "_live",
        "_news",
        "_pump",
        "_redactor",
        "_root",
        "_run",
        "_scope",
        "_session",
    )

    def __init__(
        self,
        run: Run,
        root: CallContext,
        scope: EventScope,
        fanout: Fanout,
        redactor: Redactor | None,
        news: News | None = None,
        session: Session | None = None,
        dependencies: AbstractAsyncContextManager[Any] | None = None,
        live: dict[str, Run] | None = None,
    ) -> None:
        self._live = live
        self._news = news
        self._dependencies = dependencies
        self._session = session
        self._copy: Session | None = None
        self._run = run
        self._root = root
        self._fanout = fanout
        self._redactor = redactor
        self._scope = scope
        self._clock: WallClock | None = None
        self._pump = _pumping(fanout) if fanout.needs_tasks else None

    async def __aenter__(self) -> tuple[Run, CallContext]:
        root, session = self._root, self._session
        if self._live is not None:
            self._live[self._run.run_id] = self._run
        if session is not None:
            root.session = self._copy = session.enter()
        try:
            if session is not None and session.keeper is not None:
                await session.keeper.begin()
            if self._run.watched:
                self._scope.__enter__()
                for code, message in self._news() if self._news is not None else ():
                    root.warn(code, message)
            if self._run.limits.wall_s is not None:
                journal = self._run.journal
                spent_s = 0.0 if journal is None else journal.spent_s
                self._run.due = time.monotonic() + self._run.limits.wall_s - spent_s
                if not self._run.waits_at_limits:
                    self._clock = await WallClock(self._run.budget, spent_s).__aenter__()
            if self._pump is not None:
                await self._pump.__aenter__()
        except BaseException:  # also when cancelled: the run has left the session
            if self._copy is not None:
                self._copy.leave()
            if self._live is not None:
                self._live.pop(self._run.run_id, None)
            raise
        if self._dependencies is not None:
            await self._make_dependencies(self._dependencies)
        return self._run, root

    async def _make_dependencies(self, dependencies: AbstractAsyncContextManager[Any]) -> None:
        """Make the dependencies that the flow makes for each run. Where that fails, the run fails."""
        try:
            self._run.deps = await dependencies.__aenter__()
        except BaseException as error:  # also when cancelled: the run has begun, and ends
            self._dependencies = None
            await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        raised = error
        live = self._live
        if live is not None and live.get(self._run.run_id) is self._run:
            del live[self._run.run_id]
        if self._run.shared.inbox is not None:
            self._report_unread(self._run.shared.inbox)
        try:
            if self._dependencies is not None:
                error = await _released(self._dependencies, error)
                kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
            if error is not None and is_stray(error, cancelled=True):
                final: BaseException | None = contained(
                    error
                )  # any error of a run ends as one that its caller can handle
                final.__cause__ = error
                kind = type(final)
            else:
                final = error
            if self._clock is not None:
                final = await self._clock.end(kind, final, trace)
            shown = await self._shown(final) if isinstance(final, Exception) else final
            if self._run.watched:
                self._finish(final)
            context = shown.__context__ if shown is not None else None
            if isinstance(shown, Exception):
                self._account(shown)
            if self._pump is not None:
                await self._pump.__aexit__(type(shown) if shown is not None else None, shown, trace)
            if shown is not raised and shown is not None:
                _raise_in_context(shown, context)
            return None
        finally:
            self._run.budget.large_lists.end()
            self._fanout.close()
            redactor = self._redactor
            if redactor is not None and (redactor.searched or redactor.examined):
                redactor.forget()
            session = self._session
            if session is not None and self._copy is not None:
                self._copy.leave()
                if session.keeper is not None:
                    await session.keeper.keep()
            if self._run.payer is not None:
                await self._run.payer.settled()

    def _report_unread(self, inbox: Inbox) -> None:
        """Report the texts that nothing in the run has read, which now reads no more."""
        run = self._run
        if inbox.unread and run.watched and (run.journal is None or not run.journal.suspending):
            texts = ", ".join([f"'{clip(each.text, 60)}'" for each in inbox.unread[:3]])
            self._root.warn("say/unread", f"nothing in the run has read what was said to it: {texts}")

    async def _shown(self, error: Exception) -> BaseException:
        """The copy of ``error`` for the host, with large values searched in slices; a cancellation that arrives meanwhile instead."""
        try:
            if isinstance(values := getattr(error, "partial", None), PartialValues):
                bare, _ = await in_slices(stripped(list(values)))
                error.partial = PartialValues(await plain_result(bare))  # type: ignore[attr-defined]
            return error if self._redactor is None else await in_slices(examination(error, self._redactor))
        except asyncio.CancelledError as cancelled:
            return cancelled

    def _account(self, shown: Exception) -> None:
        """Attach the run's account to the error for the host."""
        run = self._run
        for name, value in {"run_id": run.run_id, "usage": run.usage, "cost": run.cost_usd}.items():
            with contextlib.suppress(AttributeError):  # the class of a foreign error may have slots
                setattr(shown, name, value)

    def _finish(self, error: BaseException | None) -> None:
        run = self._run
        budget = run.budget
        warn_of_failures(self._fanout.pacers, self._root)
        self._scope.set(
            usage=run.usage,
            cost_usd=run.cost_usd,
            steps=budget.steps_used,
            effects=budget.effects_used,
            max_concurrency=budget.permits.most,
        )
        self._scope.__exit__(type(error) if error is not None else None, error, None)
        run.watched = run.streaming = False  # events of an abandoned thread come too late


async def _released(
    dependencies: AbstractAsyncContextManager[Any], error: BaseException | None
) -> BaseException | None:
    """The error of a run that releases its dependencies after its work ended with ``error``; that of the release where
    the work succeeded. Dependencies cannot swallow the failure of a run."""
    try:
        await dependencies.__aexit__(
            None if error is None else type(error), error, getattr(error, "__traceback__", None)
        )
    except BaseException as failed:  # noqa: BLE001 - of any kind: the run ends with it
        return error or failed
    return error


def _raise_in_context(error: BaseException, context: BaseException | None) -> NoReturn:
    """Raise ``error`` with this context instead of the error being handled, which may hold secrets its copy omits."""
    try:
        raise error
    except BaseException:  # raises any error again, with another context
        error.__context__ = context
        raise


@contextlib.asynccontextmanager
async def _pumping(fanout: Fanout) -> AsyncGenerator[None, None]:
    """Run async observers concurrently with the block and, for a grace period, after it; the block's error stays unwrapped."""
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        pump = group.create_task(fanout.pump())
        try:
            yield
        except asyncio.CancelledError:
            fanout.close()
            await asyncio.wait([pump], timeout=CANCELLED_GRACE_S)
            raise
        except Exception as error:  # noqa: BLE001 - carried past the task group, which would wrap it
            failure = error
        fanout.close()
        _, late = await asyncio.wait([pump], timeout=OBSERVER_GRACE_S)
        if late:
            fanout.drop_late()
            pump.cancel()
    if failure is not None:
        raise failure


class RunPart(Run):
    """A part of the run ``outer`` with its own services and, if passed, its own limits, approver and reader.

    Events, numbers, usage and steps of the part are also the outer run's. Its limits only narrow the outer ones, so
    that nothing started inside a run can leave that run's budget. ``usage`` and ``cost_usd`` are the part's.
    """

    def __init__(
        self,
        outer: RunPort,
        services: RunServices,
        *,
        limits: Limits | None = None,
        own: Subscriber | None = None,
        approver: Approver | None = None,
        redactor: Redactor | None = None,
        deps: Any = None,
        around_tool: tuple[Any, ...] = (),
        around_model: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(
            limits=outer.limits if limits is None else limits.within(outer.limits),
            services=services,
            fanout=Fanout((), own),
            approver=approver,
            run_id=outer.run_id,
            redactor=redactor,
            tools=outer.tools,
            deps=outer.deps if deps is None else deps,
            around_tool=outer.around_tool + around_tool,
            around_model=outer.around_model + around_model,
        )
        self._outer = outer
        self._own_limits = limits
        self._narrowed = limits is not None
        above = outer.budget
        self.budget = Budget(self.limits, parent=above if isinstance(above, Budget) else None)
        if isinstance(outer.funds, RunFunds):
            self._own_funds = RunFunds(self.limits, outer.funds) if self._narrowed else None
            self.funds = self._own_funds or outer.funds
        self.next_seq = outer.next_seq
        self.slice = outer.slice
        self.journal = outer.journal
        self.programs = outer.programs
        self.shared = outer.shared
        self._read = own is not None
        self.watched = self._read or outer.watched
        self.streaming = self._read or outer.streaming
        self.waits_at_limits = outer.waits_at_limits
        self.batches = outer.batches

    @property
    def wraps_up(self) -> bool:
        return self._outer.wraps_up

    def left(self, limit: str) -> float | None:
        here, above = super().left(limit) if self._narrowed else None, self._outer.left(limit)
        return above if here is None else here if above is None else min(here, above)

    async def beyond(self, error: LimitExceeded, call: CallContext) -> None:
        """Wait until the outer run's limit is raised; the part ends at a lower one of its own."""
        if self._own_limits is not None and getattr(self._own_limits, error.limit, None) == error.allowed:
            raise self.budget.meet(error)
        await self._outer.beyond(error, call)
        outer = self._outer.limits
        self.limits = self.budget.limits = outer if self._own_limits is None else self._own_limits.within(outer)

    def clock(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """A context manager that ends its block with LimitExceeded when the part's own wall time is up."""
        return WallClock(self.budget) if self._narrowed else contextlib.nullcontext()

    def congested(self) -> bool:
        """Whether the part's reader, or the outer run's own stream, is behind."""
        return super().congested() or self._outer.congested()

    def publish(self, event: Event) -> None:
        """Hand an event to the run's observers and to the part's reader."""
        if self._read:
            self._show(event)
        self._outer.publish(event)

    async def examine(self, *values: object, lasting: bool = False) -> None:
        if self._read:
            await super().examine(*values, lasting=lasting)
        await self._outer.examine(*values, lasting=lasting)

    async def room(self) -> None:
        await super().room()
        if self._outer.congested():
            await self._outer.room()

    def calls_left(self) -> int | None:
        """Model calls that can still be made by the part, and by the run."""
        here, above = super().calls_left(), self._outer.calls_left()
        return above if here is None else here if above is None else min(here, above)

    def charge_model_call(self) -> None:
        """Count a model call for the part and the run. Raises LimitExceeded."""
        super().charge_model_call()
        try:
            self._outer.charge_model_call()
        except LimitExceeded:
            self.model_calls -= 1  # it may be made once the limit is raised
            raise

    def under_way(self, call: UnderWay, begins: bool) -> None:
        super().under_way(call, begins)
        self._outer.under_way(call, begins)

    def charge_usage(self, usage: Usage, cost_usd: float | None, put_by: bool = False) -> None:
        try:
            self._outer.charge_usage(usage, cost_usd, put_by)
        finally:
            super().charge_usage(usage, cost_usd, put_by)

    async def approve(self, request: ApprovalRequest, call: CallContext) -> Decision:
        if self._asking.approver is None:
            return await self._outer.approve(request, call)
        return await super().approve(request, call)

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        if self._asking.approver is None:
            self._outer.cover(path, tools)
        else:
            super().cover(path, tools)

    async def ask(
        self,
        question: str,
        schema: Mapping[str, Any] | None,
        call: CallContext,
        external: ExternalCall | None = None,
    ) -> Any:
        """Ask the run's answerer."""
        return await self._outer.ask(question, schema, call, external)

    async def signal(self, name: str, schema: Mapping[str, Any] | None, call: CallContext) -> Any:
        """Wait for a signal to the run."""
        return await self._outer.signal(name, schema, call)
