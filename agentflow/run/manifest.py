"""The single approval of a program written by a model, bound to its text and its reach."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from agentflow.core.call.approval import PROGRAM, ApprovalRequest, Denied, Manifest
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError
from agentflow.core.events.facts import ToolFacts
from agentflow.lang.bounds.polynomial import UNBOUNDED
from agentflow.lib.text.safe_text import escape
from agentflow.run.bounds.estimate import Bounds


async def approved(
    text: str, bounds: Bounds, call: CallContext, is_callable: Callable[[str], bool]
) -> frozenset[str] | None:
    """Ask for approval of a program about to run at ``call``, if it calls tools that need approval.

    An approval covers these tools. ``is_callable`` says whether a name is a task or tool: of these, only the ones in the
    manifest stay granted. Returns the grants of the program after that. Raises AgentflowError (``bounds/not-approved``).
    """
    authority, grants = bounds.authority, call.grants
    covered = [tool for tool in authority.tools if tool.approval and f"tool:{tool.name}" in bounds.calls]
    if grants is None or not authority.complete or not covered:
        return grants
    reached = {*authority.tasks, *authority.workflows, *(tool.name for tool in authority.tools)}
    kept = frozenset(name for name in grants if name in reached or not is_callable(name))
    manifest = manifest_of(text, bounds, covered)
    shown = escape(manifest.text(), lines=True)
    request = ApprovalRequest(
        PROGRAM, shown, _digest(text, kept, covered), "a model wrote this program", manifest=manifest
    )
    decision = await call.run.approve(request, call)
    if isinstance(decision, Denied):
        raise AgentflowError(
            f"this program was not approved: {decision.why}" if decision.why else "this program was not approved",
            code="bounds/not-approved",
            hint=f"write one that does without {', '.join(manifest.covers)}",
            details={"why": decision.why},
        )
    call.run.cover(call.path, {tool.name: tool.identity for tool in covered})
    return kept


def manifest_of(text: str, bounds: Bounds, covered: Sequence[ToolFacts]) -> Manifest:
    """The manifest of a program with these bounds; its approval covers the calls of ``covered``."""
    return Manifest(
        program=text,
        authority=bounds.authority,
        covers=tuple(tool.name for tool in covered),
        model_calls=str(bounds.model_calls),
        tool_calls=str(bounds.tool_calls),
        usd="not known" if bounds.usd == UNBOUNDED else f"at most ${bounds.usd}",
        unbounded=tuple(f"{each.span.line}:{each.span.column} {each.reason}" for each in bounds.unbounded),
    )


def _digest(text: str, grants: frozenset[str], tools: Sequence[ToolFacts]) -> str:
    """A digest of the text, the grants and the identities of the tools."""
    parts = [text, *sorted(grants), *sorted(tool.identity for tool in tools)]
    content = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
