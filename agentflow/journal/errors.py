"""The errors that every store of durable runs raises."""

from __future__ import annotations

from agentflow.core.data.errors import JournalError


def unknown_run(run: str) -> JournalError:
    """The error for a run missing from the store."""
    return JournalError(
        f"there is no durable run '{run}'",
        code="durable/unknown-run",
        hint="agentflow runs --durable lists them, with --db those of another database",
    )


def owned_run(run: str) -> JournalError:
    """The error for a run that another process, or another flow of this one, works on."""
    return JournalError(
        f"the run '{run}' belongs to another flow, which works on it: one of another process, or a second one of this process",
        code="durable/owned",
        hint="wait for it, or close that flow; the run can be resumed then",
    )


def other_version(where: str, stored: object, readable: int) -> JournalError:
    """The error for tables of an unsupported version, later or too early, or that say none (None); ``where`` names the database."""
    number = int(stored) if isinstance(stored, str | int) and str(stored).isdecimal() else None
    use = "or a later one" if number is not None and number > readable else "and another database for new runs"
    said = "does not say its version" if number is None else f"is of version {number}"
    return JournalError(
        f"{where} {said}, and this agentflow reads version {readable}",
        code="durable/version",
        hint=f"use the agentflow that wrote it, {use}; nothing was run",
    )


def corrupt(what: str) -> JournalError:
    """The error for a damaged database."""
    return JournalError(
        f"the database of durable runs is damaged: {what}",
        code="durable/corrupt",
        hint="restore it from a backup, or name another; nothing was run",
    )
