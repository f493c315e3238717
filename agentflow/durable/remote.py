"""``(pmap :on workers f xs)``, and ``parallel`` and ``race`` likewise: branches as separate runs.

In a run of workers, a branch is stored as a run, with the procedure and its argument as data, and the run itself leaves
memory. The outcome of a branch is delivered as a record of the run, like an answer; the last one wakes it, so that any
number of branches costs one replay. In any other run the forms behave as without ``:on workers``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, JournalError, SexpEvaluationError
from agentflow.core.data.known_names import branch_prefix
from agentflow.core.data.labels import bare
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Span
from agentflow.core.data.values import as_list, is_long
from agentflow.core.events.events import WaitStarted
from agentflow.core.events.journal_rows import EffectRow, EffectState
from agentflow.durable.branch_runs import FORM, KIND, RACE, BranchForm, BranchPart, BranchRuns, value_path
from agentflow.durable.decisions import mismatch
from agentflow.durable.journal import RunJournal, beside
from agentflow.durable.run_records import CLEANUP, wait_for_end
from agentflow.durable.values.codec import NotData, lasting
from agentflow.durable.values.record_values import fingerprint
from agentflow.lang.closure import Closure
from agentflow.lang.printer import print_value
from agentflow.run.questions import permits_of
from agentflow.run.strand import branches
from agentflow.run.strand.strand import Strand

_MANY = 100
"""Minimum number of branches for encoding their data off the loop."""


class WorkerForms:
    """The forms of one run at ``rt`` with branches on workers, through the run's ``journal``; implements
    :class:`~agentflow.run.strand.operations.Forms`. A plan has no ``runs`` of branches: it begins nothing."""

    def __init__(self, rt: Strand, span: Span, journal: RunJournal, runs: BranchRuns | None) -> None:
        self.rt = rt
        self.span = span
        self.journal = journal
        self.runs = runs

    async def pmap(self, function: Any, items: Any) -> list[Any]:
        """The procedure's values on all elements, in order, each computed by a worker."""
        elements = as_list(items)
        if elements is None:
            raise SexpEvaluationError(
                f"pmap takes a list, not {print_value(items, limit=80)}", code="type/argument", span=self.span
            )
        inputs = list(elements)

        def encode() -> list[dict[str, Any]]:
            procedure = self._data(function, "the procedure")
            return [
                {"branch": procedure, "item": self._data(each, f"element {index}")} for index, each in enumerate(inputs)
            ]

        data = await beside(len(inputs) > _MANY or is_long(inputs), encode)
        return await _Form(self, "pmap", "(branch item)", data).values()

    async def parallel(self, thunks: Sequence[Closure]) -> list[Any]:
        """All values, in order, each computed by a worker."""
        return await _Form(self, "parallel", "(branch)", self._thunks(thunks)).values()

    async def race(self, thunks: Sequence[Closure]) -> Any:
        """The first success of a worker. The others are cancelled and have ended."""
        return await _Race(self, RACE, "(branch)", self._thunks(thunks)).first()

    def _thunks(self, thunks: Sequence[Closure]) -> list[dict[str, Any]]:
        return [{"branch": self._data(thunk, f"form {index}")} for index, thunk in enumerate(thunks)]

    def _data(self, value: Any, what: str) -> dict[str, Any]:
        """A value as a binding of a stored run. Raises SexpEvaluationError (``closure/not-data``, ``closure/macro``)."""
        try:
            return {"v": self.journal.codec.encode(value)}
        except NotData as error:
            if isinstance(error.__cause__, AgentflowError):
                raise error.__cause__ from None
            raise SexpEvaluationError(
                f"{what} cannot be sent to a worker: it holds {error}",
                code="closure/not-data",
                span=value.span if isinstance(value := bare(value), Closure) else self.span,
                hint="let branches use, and be given, text, numbers, lists, dicts and procedures of them only",
            ) from error


def worker_forms(journal: RunJournal, rt: Strand, span: Span) -> WorkerForms | None:
    """The forms with branches on workers; None where branches run here.

    They run here in a run that this process keeps to itself, within a recorded effect, and in clean-up after a
    cancellation, which has no time to wait for others. Raises SexpEvaluationError (``branches/no-workers``).
    """
    if journal.records.store.jobs is None:
        raise SexpEvaluationError(
            "the store of this run has no workers, so its branches cannot run on workers",
            code="branches/no-workers",
            span=span,
            hint="store runs in PostgreSQL, durable='postgresql://user@host/database', or leave ':on workers' out",
        )
    if journal.records.run.queue is None or journal.at is not None or CLEANUP in rt.call.path:
        return None
    return WorkerForms(rt, span, journal, journal.records.branches)


class _Form:
    """One form: its branches as ``data``, the bindings of their runs, and the ``text`` that each of these runs."""

    def __init__(self, forms: WorkerForms, name: str, text: str, data: Sequence[Mapping[str, Any]]) -> None:
        rt, span = forms.rt, forms.span
        rt.budget.charge_branches(len(data), span)
        self._rt = rt
        self._span = span
        self._journal = forms.journal
        self._runs = forms.runs
        rt.call.span = span
        self._call = rt.start_form(name, span.start)
        self._prefix = branch_prefix(self._call.path)
        self._name = name
        self._text = text
        self._parts = [
            BranchPart(at, fingerprint(KIND, text, lasting(dict(each))), each) for at, each in enumerate(data)
        ]
        self._content = fingerprint(FORM, [part.content.hex() for part in self._parts])

    async def values(self) -> list[Any]:
        """The values of all branches, once they have ended. Raises the error of the one that failed first."""
        if not self._parts:
            return []
        row = await self._ended()
        return [await self._value(part, row) for part in self._parts]

    async def _ended(self) -> EffectRow:
        """The record of the form, once its branches have ended. Raises the error that settled it."""
        records, path = self._journal.records, self._call.path
        try:
            row = await self._journal.find(FORM, self._name, self._content, self._call)
            if row is None:
                row = await self._begun()
        except asyncio.CancelledError:
            if not records.suspending and self._runs is not None:
                records.expect(self._runs.give_up(records.run, path))
            raise
        if row.state == EffectState.FAILED:
            self._journal.replayed(row, self._call)  # raises the error, if one settled it
        return row

    async def _begun(self) -> EffectRow:
        """Begin the branches unless that was done before, and wait for their ends; gives the record if all had ended."""
        records, path = self._journal.records, self._call.path
        before = records.find(path)
        if before is None:
            done = [part for part in self._parts if await self._is_done(part)]
            settled = self._settled_by(done)
            row = EffectRow(
                path=path,
                kind=FORM,
                name=self._name,
                content=self._content,
                state=EffectState.OPEN if settled is None else EffectState.OK,
                value=settled,
                started=time.time(),
                ended=None if settled is None else time.time(),
            )
            if settled is not None:
                await records.commit(row)
                return row
            await self._fork(row, [part for part in self._parts if part not in done])
        elif before.content != self._content:
            await records.stop(mismatch(before, f"{FORM} {self._name}"))
        with self._call.scope(WaitStarted, path, reason="branches"):
            await records.parking.wait(self._call, permits_of(self._call))
            await wait_for_end()

    def _settled_by(self, done: Sequence[BranchPart]) -> dict[str, Any] | None:
        """The value of the form's record if the branches that have a value are all that it needs; else None."""
        return {"ok": None} if len(done) == len(self._parts) else None

    async def _fork(self, row: EffectRow, missing: Sequence[BranchPart]) -> None:
        rt, records, span = self._rt, self._journal.records, self._span
        assert self._runs is not None
        form = BranchForm(self._name, row, self._prefix, self._text, f"{span.source.name}:{span.line}")
        try:
            await self._runs.fork(
                records.run,
                form,
                missing,
                session=rt.call.session,
                grants=rt.grants,
                limits=_limits(rt, len(missing)),
                priority=rt.call.priority,
                funds=records.funds,
            )
        except JournalError as error:
            if error.code == "durable/secret":
                raise error.at(span) from None
            await records.stop(error)

    async def _is_done(self, part: BranchPart) -> bool:
        """Whether there is a record of the value of a branch, from an attempt before or another run."""
        row = await self._journal.find(KIND, self._name, part.content, self._at(part))
        return row is not None and row.state == EffectState.OK

    async def _value(self, part: BranchPart, form: EffectRow) -> Any:
        call = self._at(part)
        row = await self._journal.find(KIND, self._name, part.content, call)
        if row is None:
            await self._journal.records.stop(mismatch(form, f"{FORM} {self._name}, one of which has no record"))
        return self._journal.replayed(row, call)

    def _at(self, part: BranchPart) -> CallContext:
        return self._call.at(value_path(self._prefix, part.index))


class _Race(_Form):
    """A form that one success settles. Its record says which branch that was, or how all of them failed."""

    async def first(self) -> Any:
        """The value of the branch that succeeded first, or the last FAILED result. Raises SexpEvaluationError (``race/all-failed``)."""
        row = await self._ended()
        paths = {value_path(self._prefix, part.index): part for part in self._parts}
        if row.state == EffectState.OK:
            return await self._value(paths[row.value["ok"]], row)
        results: list[Any] = []
        causes: list[AgentflowError] = []
        for path in paths:
            try:
                results.append(self._journal.outcome(row.value["failures"][path], self._call))
            except AgentflowError as error:
                causes.append(error)
        if results:
            return results[-1]
        raise branches.all_failed(causes, self._span) from causes[-1]

    def _settled_by(self, done: Sequence[BranchPart]) -> dict[str, Any] | None:
        return {"ok": value_path(self._prefix, done[0].index)} if done else None


def _limits(rt: Strand, count: int) -> Limits:
    """The limits of each of ``count`` branches: those of the run, with a share of the remaining model calls."""
    left = rt.call.run.calls_left()
    return rt.limits if left is None else replace(rt.limits, model_calls=left // count)
