"""Endorsements: somebody answers for a value, wherever it came from."""

from __future__ import annotations

import hashlib
from typing import Any

from agentflow.core.call.approval import ApprovalRequest, Denied
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import SexpEvaluationError, clip
from agentflow.core.data.names import ENDORSE
from agentflow.core.data.values import as_text
from agentflow.core.events.effects import Endorse
from agentflow.core.events.events import Endorsed
from agentflow.lang.builtins.registry import wrong_type
from agentflow.lib.text.terminal import escape

_SHOWN = 2_000


async def endorsed(effect: Endorse, call: CallContext) -> list[Any]:
    """Have an endorsement approved, unless the program has the host's own authority, and publish it.

    Raises SexpEvaluationError (``provenance/not-endorsed``) if it is not approved.
    """
    value, reason = effect.arguments
    if not isinstance(reason, str) or not reason.strip():
        wrong_type("endorse", 2, "a reason, as a text,", reason)
    decision = None if call.host_authority else await call.run.approve(_request(effect, value, reason), call)
    if isinstance(decision, Denied):
        why = f" ({decision.why})" if decision.why else ""
        raise SexpEvaluationError(
            f"it was not approved{why} that this value is used as if the user had said it: {clip(reason, 200)}",
            code="provenance/not-endorsed",
            span=call.span,
            hint="do it without what came from elsewhere",
            details={"sources": list(effect.sources), "reason": reason, "why": decision.why},
        )
    call.emit(Endorsed, sources=effect.sources, reason=reason)
    return []


def _request(effect: Endorse, value: Any, reason: str) -> ApprovalRequest:
    text = as_text(value)
    digest = hashlib.blake2b(
        f"{ENDORSE}\n{reason}\n{text}".encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()
    came = ", ".join(effect.sources) or "the user"
    shown = "\n  ".join([escape(f"{ENDORSE} (from {came}): {reason}"), escape(clip(text, _SHOWN))])
    return ApprovalRequest(
        ENDORSE, shown, digest, "the program answers for this value", {"value": value, "reason": reason}
    )
