"""Asks for approvals on the terminal: the callbacks of ``--approve``, and who answers questions of programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from agentflow.cli.common import UsageError

if TYPE_CHECKING:
    from agentflow.core.approval import ApprovalRequest


async def ask_on_terminal(request: ApprovalRequest) -> bool:
    """Show the request on the terminal and ask for approval."""
    from prompt_toolkit import PromptSession

    shown, hidden = abridged(request.text)
    print(f"\napproval needed: {request.tool}\n  {shown}", file=sys.stderr)
    if request.reason:
        print(f"  because: {request.reason}", file=sys.stderr)
    session: PromptSession[str] = PromptSession()
    while True:
        more = f", v shows the {hidden:,} characters left out" if hidden else ""
        answer = (await session.prompt_async(f"run it? [y/N{more}] ")).strip().lower()
        if not hidden or answer != "v":
            return answer in ("y", "yes")
        print(f"  {request.text}", file=sys.stderr)
        hidden = 0


def abridged(text: str, limit: int = 2_000) -> tuple[str, int]:
    """The first view of ``text`` for an approver, and the number of characters it leaves out in the middle."""
    hidden = len(text) - limit
    if hidden <= 0:
        return text, 0
    half = limit // 2
    return f"{text[:half]}\n  [... {hidden:,} characters are not shown here ...]\n  {text[-half:]}", hidden


def always(request: ApprovalRequest) -> bool:
    """Approve every request."""
    return True


def never(request: ApprovalRequest) -> bool:
    """Refuse every request."""
    return False


def approver(mode: str) -> Any:
    """The approval callback of a ``--approve`` mode. Raises UsageError for another word."""
    match mode:
        case "always":
            return always
        case "never":
            return never
        case "ask":
            return ask_on_terminal if sys.stdin.isatty() and sys.stderr.isatty() else None
        case _:
            raise UsageError(f"--approve {mode}: write ask, never or always")


def answerer() -> Any:
    """The function that answers questions of programs on the terminal; None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from agentflow.cli.asking import answer_on_terminal

    return answer_on_terminal
