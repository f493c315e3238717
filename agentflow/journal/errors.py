"""The errors that every store of durable runs raises."""

from __future__ import annotations

from agentflow.core.errors import JournalError


def unknown_run(run: str) -> JournalError:
    """The error for a run that is not stored."""
    return JournalError(
        f"there is no durable run '{run}'",
        code="durable/unknown-run",
        hint="agentflow runs --durable lists those there are",
    )


def owned_run(run: str) -> JournalError:
    """The error for a run that another process works on."""
    return JournalError(
        f"the run '{run}' belongs to another process that works on it",
        code="durable/owned",
        hint="wait for it, or end that process; the run can be gone on with then",
    )


def later_version(where: str, stored: str, known: int) -> JournalError:
    """The error for tables of a later version; ``where`` is the database."""
    return JournalError(
        f"{where} is of version {stored}, and this agentflow reads version {known}",
        code="durable/version",
        hint="use the agentflow that wrote it, or a later one; nothing was run",
    )
