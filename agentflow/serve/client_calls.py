"""Calls of clients that name their run: an id that has a record belongs to the call that it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentflow.app import AgentFlow
from agentflow.core.data.errors import cut
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source
from agentflow.lang.program import Program
from agentflow.serve.error_responses import RequestError
from agentflow.serve.keys import Key


class Prepared(NamedTuple):
    """A ``program`` to run, its ``bindings``, the conversation that it continues, and the state that it shares."""

    program: Program | Source | str
    bindings: Mapping[str, Any]
    session: Session | None = None
    state: Mapping[str, Any] | None = None


class ClientCall(NamedTuple):
    """The client's name for a run (None: none), and the ``digest`` of its whole request."""

    run_id: str | None = None
    digest: bytes | None = None


UNNAMED = ClientCall()
"""The call of a client that leaves the run's id to the server."""


async def is_stored(flow: AgentFlow, call: ClientCall, key: Key, *, durable: bool) -> bool:
    """Whether the flow's database has the run that a call names, begun with the same key.

    Raises RequestError (409, ``serve/run-exists``) for a run of another key, and for an id with recorded events but
    without a stored run: a new run of this id would show them.
    """
    if call.run_id is None:
        return False
    info = await flow.find_run(call.run_id) if durable else None
    if info is not None:
        if info.labels.get("key") != key.name:
            raise exists(call.run_id)
        return True
    if flow.records is not None and await flow.records.has(call.run_id):
        raise exists(call.run_id)
    return False


def exists(run_id: str) -> RequestError:
    """The refusal of a run's id that another call has used."""
    return RequestError(
        f"there is a run '{cut(run_id, 100)}' already, of another call",
        code="serve/run-exists",
        status=409,
        param="run_id",
        hint="send the same call again, or leave run_id out",
    )
