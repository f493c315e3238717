"""Branches that workers carry out: each is a run of its own, and its end is a record of the run that it is a branch of."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Usage
from agentflow.core.data.session import Session
from agentflow.core.events.journal_rows import (
    BranchEnd,
    EffectRow,
    EffectState,
    Leased,
    NewRun,
    RunRow,
    RunStatus,
    SessionChanges,
    effect_key,
)
from agentflow.core.ports.store_ports import JobQueue
from agentflow.durable.conversations import Conversations
from agentflow.durable.stored_input import StoredInput, limits_data
from agentflow.durable.values.codec import Codec, write_usage
from agentflow.durable.values.record_values import counted
from agentflow.run.reservation import Lender, RunFunds

KIND = "branch"
"""The kind of the record of a branch; that of its form is :data:`FORM`."""
FORM = "branches"
RACE = "race"
"""The name of the form that one success settles, and a failure does not."""
_LONGEST_ID = 120
"""Maximum length, in characters, of the part of a run's id that goes into the ids of its branches."""


@frozen
class BranchPart:
    """One branch for a worker: its ``index`` in the form, its identity, and its ``bindings``, encoded like the bindings of
    a run."""

    index: int
    content: bytes
    bindings: Mapping[str, Any]


@frozen
class BranchForm:
    """A form with branches on workers: ``name`` is ``pmap``, ``parallel`` or ``race``, ``row`` its record, ``prefix``
    the beginning of the paths of its branches, ``text`` the program of each branch and ``shown`` the name of the branch
    runs in listings."""

    name: str
    row: EffectRow
    prefix: str
    text: str
    shown: str


@frozen
class Ended:
    """The outcome of a branch's run: ``value``, encoded like a binding, or ``error`` as JSON data, with its cost and its
    conversation.

    ``changes`` holds the changes to its conversation. A cancelled branch has neither value nor error. ``failed`` says that
    its value is a FAILED result, ``stopped`` that it ended with an error that also ends the surrounding run.
    """

    value: Mapping[str, Any] | None = None
    error: Any = None
    usage: Usage | None = None
    cost: float | None = 0.0
    changes: SessionChanges | None = None
    failed: bool = False
    stopped: bool = False


class BranchRuns:
    """Starts the runs of branches in the queue ``jobs``, and writes the records of their ends. ``trace`` is the current trace."""

    def __init__(
        self,
        jobs: JobQueue,
        codec: Codec,
        sessions: Conversations,
        stored: StoredInput,
        trace: Callable[[], dict[str, str] | None],
    ) -> None:
        self._trace = trace
        self._jobs = jobs
        self._codec = codec
        self._sessions = sessions
        self._stored = stored

    async def fork(
        self,
        run: RunRow,
        form: BranchForm,
        parts: Sequence[BranchPart],
        *,
        session: Session,
        grants: frozenset[str] | None,
        limits: Limits,
        priority: int,
        funds: RunFunds | None,
    ) -> None:
        """Store the open record of a form, with a run and a job for each of its ``parts``, in one transaction.

        Each run begins with the conversation ``session`` and has ``grants`` and ``limits``; from now on the run and its
        branches take money and tokens from one ``funds``. Raises JournalError (``durable/secret``, ``durable/owned``, and
        the codes of the store).
        """
        opening, exchanges = self._sessions.opening(session)
        allow = None if grants is None else sorted(grants)
        limited, trace = limits_data(limits), self._trace()
        runs: list[tuple[str, NewRun]] = []
        attempt = secrets.token_hex(6)
        for part in parts:
            self._stored.refuse_secret("the inputs of a branch on workers", part.bindings)
            fields = {
                "name": f"{form.shown} {form.name} [{part.index}]",
                "bindings": dict(part.bindings),
                "allow": allow,
                "limits": limited,
                "labels": run.input.get("labels"),
                "session": opening,
                "priority": priority,
                "branch": {
                    "of": run.run,
                    "path": value_path(form.prefix, part.index),
                    "form": form.name,
                    "content": part.content.hex(),
                },
                **({} if trace is None else {"trace": trace}),
                **{name: run.input[name] for name in ("purse", "draw", "overrides") if name in run.input},
            }
            new = NewRun(
                program=form.text,
                digest=part.content.hex(),
                input=self._stored.checked(fields),
                queue=run.queue,
                tenant=run.tenant,
                priority=priority,
            )
            runs.append((branch_id(run, attempt, part.index), new))
        deposit = None
        if funds is not None and funds.lease is None:
            deposit = funds.deposit()
            funds.share(self.lender(run))
        await self._jobs.fork(run.run, run.epoch, form.row, runs, exchanges, deposit)

    def lender(self, run: RunRow) -> Lender:
        """The account from which a run takes the money and tokens that it shares with other runs."""
        return _Lender(self._jobs, run.run)

    def give_up(self, run: RunRow, path: str) -> asyncio.Future[None]:
        """Forget the open record of the form at ``path`` and cancel the runs of its branches; done once stored."""
        return self._jobs.give_up(run.run, run.epoch, effect_key(path))

    def end(self, run: RunRow, status: RunStatus, end: Ended) -> BranchEnd | None:
        """The outcome of ``run`` for the run it is a branch of; None if it is not a branch."""
        branch: Mapping[str, str] | None = run.input.get("branch")
        if branch is None or status not in ("done", "failed", "cancelled"):
            return None
        if status == "cancelled":
            outcome = {"error": self._codec.encode_error(_cancelled(run.run))}
        elif end.error is not None:
            outcome = {"error": end.error}
        else:
            assert end.value is not None  # a run with a value other than data has failed
            outcome = {"ok": end.value["v"]}
        races = branch["form"] == RACE
        done = "ok" in outcome and not (races and end.failed)
        turns = None if end.changes is None or not end.changes.turns else counted({"turns": end.changes.turns})
        usage = None if end.usage is None else write_usage(end.usage)
        record = EffectRow(
            path=branch["path"],
            kind=KIND,
            name=branch["form"],
            content=bytes.fromhex(branch["content"]),
            state=EffectState.OK if done else EffectState.FAILED,
            value=outcome,
            turns=turns if done else None,
            usage=usage,
            cost=end.cost,
            started=run.created,
            ended=time.time(),
        )
        return BranchEnd(record=record, settles=(done or end.stopped) if races else not done)


class _Lender:
    """Takes from the budget of the tree that ``run`` belongs to."""

    def __init__(self, jobs: JobQueue, run: str) -> None:
        self._jobs = jobs
        self._run = run

    def lease(self, usd: float, tokens: int) -> asyncio.Future[Leased]:
        return self._jobs.lease(self._run, usd, tokens)

    def give_back(self, usd: float, tokens: int) -> None:
        """End every branch that was set aside. If that fails, they end with the run, or when the run is resumed in another
        process."""
        self._jobs.give_back(self._run, usd, tokens).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )


def value_path(prefix: str, index: int) -> str:
    """The path of the record of a branch: that of a first effect in it."""
    return f"{prefix}{index}/0.0"


def branch_id(run: RunRow, attempt: str, index: int) -> str:
    """The id of the run of a branch: of its own for each ``attempt`` at a form. It says nothing of the form's place, nor of how often the
    run has waited: tools are shown it."""
    parent = run.run
    return f"{parent if len(parent) <= _LONGEST_ID else _digest(parent)}:{attempt}.{index}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _cancelled(run: str) -> AgentflowError:
    return AgentflowError(
        f"the run '{run}', which did the branch, was cancelled",
        code="branches/cancelled",
        hint="cancel the whole run instead, or let the program handle the error with try and catch",
    )
