"""Runs executed by a server. A run belongs to a task of the server, not to a request, so a disconnecting reader ends
nothing.

All runs live in one task group, held open by a task of the server, one for each time of serving. A request handler cannot
hold it: the handler may be a task of anyio, and runs must not be inside its cancel scopes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from copy import deepcopy
from typing import Any

from agentflow.app import AgentFlow
from agentflow.core.call.run_state import applied
from agentflow.core.data.errors import AgentflowError, ConfigurationError, JournalError, RunCancelled, cut
from agentflow.core.data.event_log import FIRST, event_id
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.events.events import (
    DeltaBase,
    EffectReplayed,
    Event,
    FinishedBase,
    StateChanged,
    WaitFinished,
    WaitStarted,
)
from agentflow.core.events.questions import ExternalCall, Question
from agentflow.durable.handle import DurableRun, RunInfo
from agentflow.flow.program_methods import StartOptions
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.diagnosis import check_program
from agentflow.lang.program import Program
from agentflow.lib.event_loop import running_loop
from agentflow.observe.stream import Subscriber
from agentflow.run.handle import RunResult
from agentflow.run.run import check_name, new_run_id
from agentflow.run.strand.program_compiler import beside_the_loop
from agentflow.serve.client_calls import UNNAMED, ClientCall, Prepared, exists, is_stored
from agentflow.serve.error_responses import ProgramRefused, RequestError, is_of_host, is_of_server
from agentflow.serve.json_body import json_bytes
from agentflow.serve.keys import AdmittedRun, Key
from agentflow.serve.sent_events import EventLog, Position, bare, frame_of


async def check_sent(
    flow: AgentFlow, text: str, *, allow: frozenset[str], variables: Iterable[str], limits: Limits | None = None
) -> None:
    """Check a program that may call the names in ``allow``, with ``variables`` bound; long ones on a worker thread.

    Raises ProgramRefused with all errors of the program, LimitExceeded if checking it takes too long.
    """
    names, bounds, bound = flow.engine.names(), limits or flow.limits, list(variables)

    def check(allowance: StepAllowance) -> list[AgentflowError]:
        return check_program(text, names=names, limits=bounds, allow=allow, env_names=bound, allowance=allowance)

    wrong = await beside_the_loop(text, check, bounds)
    if wrong:
        raise ProgramRefused(wrong)


_log = logging.getLogger(__name__)

_STOPPED = {"durable/cancelled": "cancelled", "durable/interrupted": "interrupted", "durable/waiting": "interrupted"}
_OTHER_CALL = ("durable/mismatch", "durable/argument", "durable/owned")
"""Codes of errors for a run id that another call has used, or that another server works on."""
_UNFINISHED = ("queued", "running", "waiting")
MAX_STORED = 10_000
"""Maximum number of stored runs searched for runs to resume."""
ATTENDED = "attended"
"""The label of a durable run that belongs to a connected client."""
MAX_ENDED = 200
"""Maximum number of ended runs to show."""
MAX_ENDED_BYTES = 256 * 2**20
"""Maximum number of bytes of events of ended runs."""


def _question_of(event: WaitStarted) -> Question:
    """The question or approval that an event opens."""
    return Question(
        question=event.question,
        schema=event.schema,
        reason=event.reason if event.reason in ("approval", "limit", "signal") else "question",
        signal=event.signal or None,
        path=event.path,
        external=ExternalCall.of(event.external),
        call=ExternalCall.of(event.call),
        own_key=event.key,
    )


class ServedRun:
    """A run of the server: its key, its events and its outcome.

    ``result`` or ``error`` is set once it has ended. ``lasting``: it is durable; ``handle`` is that of the durable run.
    """

    def __init__(
        self,
        run_id: str,
        export: str,
        key: Key,
        redact: Callable[[Any], Any],
        labels: Mapping[str, str],
        call: ClientCall,
    ) -> None:
        self.run_id = run_id
        self.call = call
        self.export = export
        self.key = key
        self.labels = dict(labels)
        self.log = EventLog()
        self.lasting = False
        self.created = time.time()
        self.ended: float | None = None
        self.result: RunResult[Any] | None = None
        self.error: Exception | None = None
        self.handle: DurableRun[Any] | None = None
        self._waits: dict[str, Question] = {}
        self._redact = redact
        self._unsent = Subscriber(lossy=False, limit=None)
        self._readers: list[Subscriber] = []
        self._done = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.state: dict[str, Any] = {}
        """The state that a run which is not durable has published."""

    @property
    def status(self) -> str:
        """``running``, ``waiting`` (for an answer), ``done``, ``failed``, ``cancelled``, or ``interrupted`` (to be resumed)."""
        if self.ended is None:
            return "waiting" if self.waits else "running"
        if self.result is not None:
            return "failed" if self.failure is not None else "done"
        if isinstance(self.error, JournalError) and self.error.code in _STOPPED:
            return _STOPPED[self.error.code]
        return "cancelled" if isinstance(self.error, RunCancelled) else "failed"

    def is_shown_to(self, key: Key) -> bool:
        """Whether the holder of ``key`` may watch, answer and cancel the run."""
        return self.key is key or key.may_see_fleet

    @property
    def attended(self) -> bool:
        """Whether the run belongs to a connected client and ends with the connection unless it asks something."""
        return ATTENDED in self.labels

    @property
    def asks(self) -> bool:
        """Whether the run has an open question."""
        return bool(self.waits)

    @property
    def has_readers(self) -> bool:
        """Whether a request reads the run's events."""
        return bool(self._readers)

    @property
    def waits(self) -> dict[str, Question]:
        """The open questions and approvals by key, without secrets."""
        if self.ended is not None:
            return {}
        if self.handle is not None:
            return {each.key: self._redact(each) for each in self.handle.waiting}
        return self._waits

    @property
    def failure(self) -> BaseException | None:
        """The error of a failed run, or of the FAILED result that it returned."""
        if self.error is not None:
            return self.error
        value = None if self.result is None else self.result.value
        if not isinstance(value, TaskResult):
            return None
        return value.error if value.failed else value.problem()

    def take(self, event: Event) -> None:
        """Process an event of the run."""
        if isinstance(event, StateChanged):
            for change in event.changes:
                self.state = applied(self.state, dict(change))
        if isinstance(event, WaitStarted) and event.key:
            self._waits[event.key] = _question_of(event)
        elif self._waits and (
            isinstance(event, EffectReplayed) or (isinstance(event, WaitFinished) and event.outcome != "suspended")
        ):
            self._waits = {key: each for key, each in self._waits.items() if each.path != event.path}
        self._unsent.put(event)
        for reader in self._readers:
            reader.put(event)

    def reader(self) -> Subscriber:
        """A queue of the events from now on, for the request that the run belongs to."""
        queue = Subscriber(lossy=False, limit=None)
        self._readers.append(queue)
        return queue

    def _text(self, value: object) -> str:
        return self._redact(str(value))

    def leave(self, reader: Subscriber) -> None:
        """Stop filling a queue."""
        self._readers.remove(reader)

    async def keep_events(self) -> None:
        """Encode events for readers as they arrive, until :meth:`end`."""
        while (event := await self._unsent.next()) is not None:
            data, position = await event.to_data(self._text), (event.slice, event.seq)
            shown = bare(data)
            self.log.add(
                position,
                frame_of(position, await json_bytes(data)),
                bare=None if shown is data else frame_of(position, await json_bytes(shown)),
                piece_of=event.parent if isinstance(event, DeltaBase) else None,
                ends=event.started if isinstance(event, FinishedBase) else None,
            )
        self.log.close()

    def end(self) -> None:
        """Mark the run as ended."""
        self.ended = time.time()
        self._unsent.close()
        for reader in self._readers:
            reader.close()
        self._done.set()

    async def wait(self) -> None:
        """Wait until the run has ended."""
        await self._done.wait()

    async def cancel(self) -> None:
        """Cancel the run, and wait until it has cleaned up."""
        if self.handle is not None and not self._done.is_set():
            await self.handle.cancel()
        elif self.task is not None and not self._done.is_set():
            self.task.cancel()
        await self._done.wait()


class ServedRuns:
    """The runs of one server, in a task group that starts with the first run and ends with :meth:`aclose`."""

    def __init__(self, flow: AgentFlow) -> None:
        self._flow = flow
        self._purses = flow.store.purses if flow.is_durable else None
        self._runs: dict[str, ServedRun] = {}
        self._group: asyncio.TaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None
        self._taking_up: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._opened = asyncio.Event()
        self.stopping = False

    def __iter__(self) -> Any:
        return iter(self._runs.values())

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._runs

    @property
    def live(self) -> list[ServedRun]:
        """The unfinished runs."""
        return [run for run in self._runs.values() if run.ended is None]

    def find(self, run_id: str, key: Key) -> ServedRun:
        """The run ``run_id`` of ``key``, or of any key for one that may see the fleet.

        Raises RequestError: 404 ``serve/unknown-run``, 403 ``serve/not-yours``.
        """
        run = self._runs.get(run_id)
        if run is None:
            raise RequestError(
                f"there is no run '{cut(run_id, 100)}' here",
                code="serve/unknown-run",
                status=404,
                hint="GET /runs lists the runs; those that ended long ago are dropped",
            )
        if not run.is_shown_to(key):
            raise RequestError(
                f"the run '{cut(run_id, 100)}' belongs to another key", code="serve/not-yours", status=403
            )
        return run

    def parked(self, run_id: str, key: Key, export: str) -> ServedRun | None:
        """A durable run of ``key`` with an open question and a disconnected client; None if there is none."""
        run = self._runs.get(run_id)
        if run is None or run.key is not key or run.export != export or run.has_readers or not run.waits:
            return None
        return run if run.lasting else None

    async def start(
        self,
        prepare: Callable[[], Awaitable[Prepared]],
        export: str,
        key: Key,
        *,
        limits: Limits | None = None,
        allow: frozenset[str] | None = None,
        call: ClientCall = UNNAMED,
        labels: Mapping[str, str] | None = None,
        lasting: bool = False,
        attended: bool = False,
    ) -> ServedRun:
        """Start a run for ``key``, once it is admitted: ``prepare`` then makes its work from the client's request.

        A program passed as text was sent by a client; ``export`` names the run. ``lasting``: durable if the flow stores
        runs. A durable run ``attended`` by a client is cancelled when the server stops or is killed, unless it has
        an open question. The ``call`` may name the run. The same call made again gives the run that it started.

        Raises RequestError: 429 for a limit of the key, 409 ``serve/run-exists`` for an id that has a record, 503;
        ProgramRefused for an invalid program; and the errors of ``prepare``.
        """
        run_id = call.run_id
        if self.stopping:
            raise RequestError(
                "the server is stopping",
                code="serve/stopping",
                status=503,
                hint="use another server, or try again later",
            )
        try:
            check_name(run_id, labels, self._flow.redactor)
        except ConfigurationError as error:
            raise RequestError(error.message, code=error.code, hint=error.hint, param="run_id") from None
        earlier = self._known(call, key)
        if earlier is not None and earlier.call.digest is not None:
            return earlier
        durable = lasting and self._flow.is_durable
        group = await self._open()
        await key.open(self._purses)
        admission = key.admit()
        try:
            program, bindings, session, state = await prepare()
            if isinstance(program, str):
                granted = frozenset[str]() if allow is None else allow
                await check_sent(self._flow, program, allow=granted, variables=bindings, limits=limits)
            stored = await is_stored(self._flow, call, key, durable=durable)
            earlier = self._known(call, key)
        except BaseException:  # also when cancelled: the key may start another run instead
            admission.free()
            raise
        own = {
            **{name: value for name, value in (labels or {}).items() if name != ATTENDED},
            "export": export,
            "key": key.name,
            **({ATTENDED: "yes"} if durable and attended else {}),
        }
        run = earlier or ServedRun(run_id or new_run_id(), export, key, self._flow.redact, own, call)
        self._runs[run.run_id] = run
        purse, approval_ttl = admission.purse, admission.approval_ttl
        run.lasting = durable
        run.state = deepcopy(dict(state or {}))
        if durable:
            options: StartOptions = {
                "limits": limits,
                "allow": allow,
                "run_id": run.run_id,
                "labels": own,
                "session": session,
                "state": state,
                "purse": purse,
                "approval_ttl": approval_ttl,
            }
            if stored:
                opening = self._flow.start(program, bindings, **options)
                await self._again(group, run, opening, admission, taken_up=earlier is not None)
                run.call = call
                return run
            work = self._last(run, program, bindings, options)
        else:
            work = self._flow.run(
                program,
                bindings=bindings,
                session=session,
                state=state,
                limits=limits,
                allow=allow,
                run_id=run.run_id,
                labels=own,
                purse=purse,
                approval_ttl=approval_ttl,
            )
        self._begin(group, run, work, admission)
        return run

    def _known(self, call: ClientCall, key: Key) -> ServedRun | None:
        """The run that the same call started before; None if there is none. Raises RequestError (409) for a run of another
        call.

        The request behind a run taken over is only in the database.
        """
        run = None if call.run_id is None else self._runs.get(call.run_id)
        if run is not None and (run.key is not key or run.call.digest not in (call.digest, None)):
            raise exists(run.run_id)
        return run

    async def _again(
        self,
        group: asyncio.TaskGroup,
        run: ServedRun,
        opening: Awaitable[DurableRun[Any]],
        admission: AdmittedRun,
        *,
        taken_up: bool,
    ) -> None:
        """Continue the stored run that a call names, or if it was ``taken_up`` check that it belongs to the same call.

        Raises RequestError (409) for another call.
        """
        try:
            if taken_up:
                await opening
                admission.free()
            else:
                await self._enter(group, run, opening, admission)
        except JournalError as error:
            admission.free()
            raise (exists(run.run_id) if error.code in _OTHER_CALL else error) from error

    async def _enter(
        self, group: asyncio.TaskGroup, run: ServedRun, opening: Awaitable[DurableRun[Any]], admission: AdmittedRun
    ) -> None:
        """Continue a run of the database that this server does not know yet. Raises the errors of ``opening``."""
        self._runs[run.run_id] = run
        try:
            run.log.cut = await self._last_event(run.run_id)
            run.handle = await opening
        except BaseException:  # forget the run, which this server does not own, then raise again
            del self._runs[run.run_id]
            admission.free()
            raise
        self._begin(group, run, run.handle.result(), admission)

    def _begin(
        self,
        group: asyncio.TaskGroup,
        run: ServedRun,
        work: Coroutine[Any, Any, RunResult[Any]],
        admission: AdmittedRun,
    ) -> None:
        group.create_task(run.keep_events())
        run.task = group.create_task(self._carry_out(run, work, admission), name=f"served run {run.run_id}")
        run.task.add_done_callback(lambda task: self._ended(run, work, admission))

    async def take_up(self, key_called: Callable[[str], Key | None]) -> None:
        """Resume the durable runs that an earlier server started but did not finish.

        Skipped are runs of deleted keys, runs that another process works on, and runs that wait for a decision.
        """
        if not self._flow.is_durable:
            return
        group = await self._open()
        work = self._take_up(group, key_called)
        self._taking_up = group.create_task(work, name="runs of an earlier server")

    async def _take_up(self, group: asyncio.TaskGroup, key_called: Callable[[str], Key | None]) -> None:
        try:
            stored = await self._flow.runs(limit=MAX_STORED)
        except AgentflowError as error:
            _log.warning("the runs of an earlier server cannot be resumed: %s", error)
            return
        for info in stored:
            key = key_called(info.labels.get("key", ""))
            export = info.labels.get("export")
            if info.status not in _UNFINISHED or key is None or export is None or info.run_id in self._runs:
                continue
            try:
                await key.open(self._purses)
                await self._go_on(group, info, export, key)
            except AgentflowError as error:
                _log.warning("the run %s is not resumed: %s", info.run_id, error)

    async def _go_on(self, group: asyncio.TaskGroup, info: RunInfo, export: str, key: Key) -> None:
        admission = key.readmit()
        run = ServedRun(info.run_id, export, key, self._flow.redact, info.labels, ClientCall(info.run_id))
        run.created, run.lasting = info.created, True
        opening = self._flow.resume(info.run_id, purse=admission.purse, approval_ttl=admission.approval_ttl)
        gone = run.attended and not await self._flow.questions(info.run_id)
        await self._enter(group, run, opening, admission)
        if gone:
            group.create_task(run.cancel(), name=f"cancel {run.run_id}: its client disconnected")

    async def _last_event(self, run_id: str) -> Position | None:
        """The end position of the record of a run; events up to it are read from the record."""
        last: Position | None = None
        if self._flow.records is not None:
            async with aclosing(self._flow.records.batches(run_id, FIRST)) as batches:
                async for batch in batches:
                    last = event_id(batch[-1])
        return last

    async def _last(
        self, run: ServedRun, program: Program | Source | str, bindings: Mapping[str, Any], options: StartOptions
    ) -> RunResult[Any]:
        """Execute a durable run; it need not be in memory while it waits. The server's end interrupts it."""
        run.handle = await self._flow.start(program, bindings, **options)
        return await run.handle.result()

    async def _carry_out(
        self, run: ServedRun, work: Coroutine[Any, Any, RunResult[Any]], admission: AdmittedRun
    ) -> None:
        try:
            run.result = await work
        except Exception as error:  # noqa: BLE001 - the program's or the host's error, reported to readers of the run
            run.error = error

    def _ended(self, run: ServedRun, work: Coroutine[Any, Any, RunResult[Any]], admission: AdmittedRun) -> None:
        work.close()  # in case the run was cancelled before it started
        if run.result is None and run.error is None:
            run.error = (
                RunCancelled(f"the run '{run.run_id}' was cancelled")
                if run.handle is None
                else JournalError(
                    f"the run '{run.run_id}' was interrupted because the server stopped",
                    code="durable/interrupted",
                    hint=f"agentflow resume {run.run_id} resumes it",
                )
            )
        admission.free()
        if run.failure is not None and (is_of_host(run.failure) or is_of_server(run.failure)):
            _log.warning("run %s failed", run.run_id, exc_info=run.failure)  # clients do not see its text
        run.end()
        self._forget()

    def _forget(self) -> None:
        """Drop the runs that ended first, if there are too many."""
        ended = [run for run in self._runs.values() if run.ended is not None]
        size = sum([run.log.size for run in ended])
        for at, run in enumerate(ended):
            if len(ended) - at <= MAX_ENDED and size <= MAX_ENDED_BYTES:
                return
            size -= run.log.size
            del self._runs[run.run_id]

    def _observe(self, event: Event) -> None:
        run = self._runs.get(event.run_id)
        if run is not None:
            run.take(event)

    async def _open(self) -> asyncio.TaskGroup:
        owner = self._owner
        if owner is None or owner.done() or owner.get_loop() is not running_loop():
            # the next run begins after any end of this one, also after its loop went away
            self._stop, self._opened = asyncio.Event(), asyncio.Event()
            self._owner = asyncio.create_task(self._own(), name="served runs")
        await self._opened.wait()
        assert self._group is not None
        return self._group

    async def _own(self) -> None:
        unsubscribe = self._flow.subscribe(self._observe)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._opened.set()
                await self._stop.wait()
                if self._taking_up is not None:
                    self._taking_up.cancel()
                for run in self.live:
                    if run.lasting and run.attended and not run.asks:
                        group.create_task(run.cancel())
                    elif run.task is not None:
                        run.task.cancel()
        finally:
            self._group = None
            unsubscribe()

    async def drain(self, seconds: float) -> None:
        """Start no more runs, and wait up to ``seconds`` for the active ones."""
        self.stopping = True
        waiting = [asyncio.ensure_future(run.wait()) for run in self.live]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)
            for each in waiting:
                each.cancel()

    async def aclose(self) -> None:
        """Cancel the active runs and wait for their clean-up."""
        self.stopping = True
        owner, self._owner = self._owner, None
        if owner is not None and owner.get_loop() is running_loop():
            self._stop.set()
            await asyncio.wait([owner])
