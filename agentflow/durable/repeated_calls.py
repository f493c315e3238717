"""Calls that name an existing durable run: each option applies or raises an error; none is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from agentflow.core.data.errors import JournalError, LimitExceeded, ResourceExhausted
from agentflow.core.data.limits import Limits
from agentflow.core.events.journal_rows import RunRow
from agentflow.run.engine import Engine
from agentflow.run.run_spec import RunSpec

if TYPE_CHECKING:
    from agentflow.run.purses import Purse


def check_same(
    row: RunRow, *, labels: Mapping[str, str] | None, priority: int, tenant: str | None, queue: str | None
) -> None:
    """Raise JournalError (``durable/argument``) if an option of a call that starts a run again differs from the stored one.

    Options that it leaves out keep their stored values.
    """
    stored = row.input
    said = {
        "labels": (None if labels is None else dict(labels), stored["labels"]),
        "priority": (priority or None, stored.get("priority", 0)),
        "tenant": (None if row.queue is None else tenant or None, row.tenant),  # who waits for workers
        "queue": (queue, row.queue),
    }
    for name, (now, was) in said.items():
        if now is not None and now != was:
            raise unusable(row.run, f"{name}={now!r}", f"it was started with {was!r}", "leave it out")


def check_purse(row: RunRow, purse: object) -> None:
    """Raise JournalError (``durable/argument``) if a call that starts a run again names another purse than the stored one."""
    was = row.input.get("purse")
    if isinstance(purse, str) and purse != was:
        why = "it was started without a purse" if was is None else f"it was started with {was!r}"
        raise unusable(
            row.run, f"purse={purse!r}", why, "leave it out, or resume it with another one: flow.resume(purse=)"
        )


def check_at_limit(row: RunRow, at_limit: Mapping[str, Any]) -> None:
    """Raise JournalError (``durable/argument``) if a call that starts a run again says otherwise what it does at its limits."""
    was = row.input.get("at_limit", {})
    for name, value in at_limit.items():
        if was.get(name) != value:
            why = f"it was started with {name}={was[name]!r}" if name in was else f"it was started without {name}="
            raise unusable(row.run, f"{name}={value!r}", why, "leave it out")


def check_payer_of(run: str, mine: Purse | str | None, purse: Purse | str | None) -> None:
    """Raise JournalError (``durable/argument``) if ``purse`` is another one than pays for a live run."""
    if purse is not None and _called(purse) != (None if mine is None else _called(mine)):
        hint = "await its end, or cancel it, and resume it with another purse then"
        raise unusable(run, f"purse={_called(purse)!r}", "it is at work with another purse, or with none", hint)


def _called(purse: Purse | str) -> str:
    return purse if isinstance(purse, str) else purse.name


def usable_limits(run: str, limits: Limits | None, before: Limits, *, at_work: bool = False) -> None:
    """Raise JournalError (``durable/argument``) for limits that can do nothing: lower ones for an ended run, and other
    ones than its own for a run ``at_work``."""
    if limits is None or limits == before:
        return
    if at_work:
        hint = "await its end: to continue a run that ended at a limit, start it with a higher one"
        raise unusable(run, "limits=", "it is at work with other limits", hint)
    lowered = [each.name for each in fields(Limits) if _below(getattr(limits, each.name), getattr(before, each.name))]
    if lowered:
        what = f"limits={limits_shown(limits, lowered)}"
        raise unusable(run, what, "it has ended, under higher limits", "leave them out, or start another run")


def given(spec: RunSpec, engine: Engine) -> list[str]:
    """The names of the parts of a run never stored, and required for resuming it."""
    guards = [name for name in _GUARDS if getattr(engine, name) or getattr(spec, name)]
    return guards if spec.deps is None else ["deps", *guards]


def check_given(row: RunRow, spec: RunSpec, engine: Engine) -> None:
    """Raise JournalError for a run resumed without the parts it was started with: ``durable/deps`` without dependencies,
    ``durable/guards`` without the middleware around its calls, or the function that approved them."""
    stored = row.input.get("given", ())
    for name in _GUARDS:
        if name in stored and not (getattr(engine, name) or getattr(spec, name)):
            again = f"flow.resume('{row.run}', approve=...), or " if name == "approve" else ""
            raise JournalError(
                f"the run '{row.run}' was started with {name}=, and is resumed without: its calls would be unguarded",
                code="durable/guards",
                hint=f"{again}resume it by a flow with the same: AgentFlow({name}=...)",
            )
    if "deps" not in stored or spec.deps is not None or engine.dependencies is not None:
        return
    raise JournalError(
        f"the run '{row.run}' was started with deps=, and is resumed without: they are never stored",
        code="durable/deps",
        hint=f"flow.resume('{row.run}', deps=...), or have the flow make them for each run: AgentFlow(deps=function)",
    )


_GUARDS = ("around_tool", "around_model", "approve")
"""The guards of the calls of a run, by attributes of the engine for that of the flow, and of a spec for its own."""


def raises_limit(error: BaseException | None, limits: Limits) -> bool:
    """Whether a run ended at a limit, and ``limits`` allow more."""
    if isinstance(error, LimitExceeded):
        name, met = error.limit, error.allowed
    elif isinstance(error, ResourceExhausted) and error.resource == "turns":
        name, met = "turns", error.limit
    else:
        return False
    return name in _NAMES and _below(met, getattr(limits, name))


def unusable(run: str, what: str, why: str, hint: str) -> JournalError:
    """The error for an argument that a call about an existing run cannot use."""
    return JournalError(f"the run '{run}' cannot use {what}: {why}", code="durable/argument", hint=hint)


def limits_shown(limits: Limits, names: list[str]) -> str:
    """These of the limits, as Python writes them."""
    return f"Limits({', '.join([f'{name}={getattr(limits, name)!r}' for name in names])})"


_NAMES = frozenset(each.name for each in fields(Limits))


def _below(one: Any, other: Any) -> bool:
    return one is not None and (other is None or one < other)
