"""Runs that wait at a limit, in place of ending there, until host or fleet raises it, and warnings before that."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Protocol, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.work_clock import untimed
from agentflow.core.data.at_limit import AtLimit, fits_in
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Usage
from agentflow.core.events.events import LimitNear
from agentflow.core.events.questions import LimitReached, Question
from agentflow.run.questions import permits_of
from agentflow.run.reservation import RunFunds
from agentflow.run.strand.budget import Budget, without_permit


class LimitedRun(Protocol):
    """The parts of a :class:`~agentflow.run.run.Run` that are needed here; ``due`` is the monotonic time when its wall time is up."""

    run_id: str
    limits: Limits
    budget: Budget
    usage: Usage
    cost_usd: float | None
    model_calls: int
    due: float | None
    root: CallContext | None

    @property
    def funds(self) -> object: ...
    async def ask_limit(self, question: Question, call: CallContext) -> Any: ...


_RAISED = frozenset(["limits/usd", "limits/tokens", "limits/model-calls", "limits/wall"])
"""The codes of limits that a run may wait at."""
PREFIX = "@limit/"
"""Start of the paths of these questions. No effect has such a path."""


def limit_path(name: str, allowed: float) -> str:
    """The path of the question whether a limit is raised above ``allowed``: one for the whole run."""
    return f"{PREFIX}{name}/{allowed!r}"


class LimitDoor:
    """The limits of ``run`` that may be raised while it waits. The calls that a limit stops share one question."""

    def __init__(self, run: LimitedRun) -> None:
        self._run = run
        self._open: dict[str, asyncio.Event] = {}

    async def wait(self, error: LimitExceeded, call: CallContext) -> None:
        """Wait at ``call`` until the limit in ``error`` is raised. Raises ``error`` if it stays."""
        name, run = error.limit, self._run
        if type(error) is not LimitExceeded or error.code not in _RAISED:
            raise run.budget.meet(error)
        while not _is_above(getattr(run.limits, name), error.allowed):
            asking = self._open.get(name)
            if asking is not None:
                with untimed():
                    async with without_permit(permits_of(call)):
                        await asking.wait()
                run.budget.check_over()
                continue
            asking = self._open[name] = asyncio.Event()
            try:
                value = await self._ask(name, error, call)
            finally:
                del self._open[name]
                asking.set()
            if value is None:
                raise run.budget.meet(error)
            raise_limit(run, name, value)

    async def _ask(self, name: str, error: LimitExceeded, call: CallContext) -> float | None:
        run, allowed = self._run, error.allowed
        used = error.used or 0.0
        asked = call.at(limit_path(name, allowed))
        question = Question(
            question=f"{error.message[:1].upper()}{error.message[1:]}. Raise {name} to how much?",
            schema={
                "anyOf": [
                    {"type": "number" if name in ("usd", "wall_s") else "integer", "exclusiveMinimum": allowed},
                    {"type": "null"},
                ],
                "description": "the new limit; null ends the run",
            },
            reason="limit",
            run_id=run.run_id,
            path=asked.path,
            limit=LimitReached(name, used, allowed),
        )
        answer = await run.ask_limit(question, asked)
        return cast(float, answer) if fits_in(name, allowed, answer) else None


def raise_limit(run: LimitedRun, name: str, value: float) -> None:
    """Raise a limit of the run."""
    if name == "wall_s" and run.due is not None:
        run.due = max(run.due, time.monotonic()) + value - (run.limits.wall_s or 0.0)
    run.limits = run.budget.limits = replace(run.limits, **{name: value})
    if isinstance(run.funds, RunFunds) and name in ("usd", "tokens"):
        setattr(run.funds, name, value)
        run.funds.root.serve()


def doors_of(run: LimitedRun, at_limit: AtLimit) -> tuple[LimitDoor | None, Warnings | None]:
    """The door and the warnings of a run with these options."""
    door = LimitDoor(run) if at_limit.on_limit == "wait" else None
    return door, None if at_limit.warn_at is None else Warnings(run, at_limit.warn_at)


class Warnings:
    """The shares of limits that a run has used: each limit is announced once, when ``share`` of it is reached."""

    __slots__ = ("_run", "_share", "_told")

    def __init__(self, run: LimitedRun, share: float) -> None:
        self._run = run
        self._share = share
        self._told: set[tuple[str, float]] = set()

    def look(self) -> None:
        """Announce limits that come near."""
        run, limits = self._run, self._run.limits
        used = {
            "usd": run.cost_usd,
            "tokens": run.usage.total_tokens,
            "model_calls": run.model_calls,
            "wall_s": worked_s(run),
        }
        for name, amount in used.items():
            allowed = getattr(limits, name)
            if allowed and amount is not None and amount >= self._share * allowed and (name, allowed) not in self._told:
                self._told.add((name, allowed))
                if run.root is not None:
                    run.root.emit(LimitNear, limit=name, used=amount, allowed=allowed, share=self._share)


def worked_s(run: LimitedRun) -> float:
    """Seconds of the run's wall time so far, in all slices; 0 without a limit of them."""
    allowed = run.limits.wall_s
    return 0.0 if allowed is None or run.due is None else allowed - (run.due - time.monotonic())


def left_of(run: LimitedRun, limit: str) -> float | None:
    """The rest of the run's ``usd``, ``tokens`` or ``wall_s``; None if there is no limit of it."""
    allowed = getattr(run.limits, limit)
    used = {"usd": run.cost_usd or 0.0, "tokens": run.usage.total_tokens, "wall_s": worked_s(run)}[limit]
    return None if allowed is None else max(0.0, allowed - used)


def _is_above(limit: float | None, allowed: float) -> bool:
    return limit is None or limit > allowed
