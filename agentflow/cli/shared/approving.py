"""Asks for approvals on the terminal: the callbacks of ``--approve``, and of questions of programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from agentflow.cli.shared.common import UsageError
from agentflow.cli.shared.wrapping import say

if TYPE_CHECKING:
    from agentflow.core.call.approval import ApprovalRequest


async def ask_on_terminal(request: ApprovalRequest) -> bool | str:
    """Show the request on the terminal and ask for approval, until the answer is yes or no; ``n`` may be followed by a reason."""
    from agentflow.cli.shared.asking import prompt_session, yes_or_no

    shown, hidden = abridged(request.text)
    say(f"\napproval needed: {request.tool}\n  {shown}")
    if request.reason:
        say(f"  because: {request.reason}")
    session = prompt_session()
    while True:
        more = f", v shows the {hidden:,} characters left out" if hidden else ""
        answer = (await session.prompt_async(f"run it? [y/N{more}] ")).strip()
        word, _, why = answer.partition(" ")
        said = yes_or_no(word.rstrip(":,")) if answer else False
        if said is False:
            return why.strip() or False
        if said and not why:
            return True
        if hidden and answer.lower() == "v":
            say(f"  {request.text}")
            hidden = 0
        else:
            say("  y runs it, n does not; with n and a reason the model reads why")


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
    from agentflow.cli.shared.asking import answer_on_terminal

    return answer_on_terminal
