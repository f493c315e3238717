"""Places within a run that the handler makes itself."""

from __future__ import annotations

from agentflow.core.call import CallContext, RunPort


def place_at(
    call: CallContext, path: str, *, run: RunPort | None = None, grants: frozenset[str] | None = None
) -> CallContext:
    """A place of its own numbering at ``path``, otherwise as ``call``; with ``grants`` in place of its authority."""
    return CallContext(
        run if run is not None else call.run,
        path=path,
        parent=call.parent,
        session=call.session,
        span=call.span,
        grants=grants if grants is not None else call.grants,
        subtask_chain=call.subtask_chain,
        material=call.material,
    )
