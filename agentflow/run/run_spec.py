"""The options of a run, passed whole from the call that asks for it to the engine that opens it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from agentflow.core.call.approval import Approver
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Batching
from agentflow.core.data.session import Session
from agentflow.core.events.journal_rows import OnInflight
from agentflow.core.events.questions import Answerer
from agentflow.lang.environment import SexpEnvironment

if TYPE_CHECKING:
    from agentflow.run.purses import Purse


@frozen(kw_only=True)
class RunSpec:
    """The options of one run, documented at ``flow.run`` and ``flow.start`` under their names; None: not given.

    ``purse`` is the purse that pays, or its name. The questions of the run stay open for ``approval_ttl`` seconds (None: as
    long as the flow's). ``bindings`` and ``env`` hold the variables of its program, ``allow`` the names it may call. ``queue`` names the workers
    that carry out a durable run, ``tenant`` the tenant to charge, and ``on_inflight`` decides about its interrupted calls. ``deps`` are its dependencies, which are never
    stored. ``around_tool`` and ``around_model`` are its
    middleware, ``state`` is the beginning of ``ctx.state``, ``overrides`` are fields of tasks of a durable run. ``at_limit`` are its options of :class:`~agentflow.core.data.at_limit.AtLimit`. ``answer`` answers its questions in place of the flow's answerer; unless
    it is ``attended``, the flow's answerer and approver are not asked. With ``batch`` its model calls are made in batches. A new option is a field here and
    a key of :class:`~agentflow.flow.program_methods.RunOptions`; nothing between restates it.
    """

    bindings: Mapping[str, Any] | None = None
    env: SexpEnvironment | None = None
    session: Session | None = None
    limits: Limits | None = None
    allow: Collection[str] | None = None
    approve: Approver | None = None
    run_id: str | None = None
    labels: Mapping[str, str] | None = None
    priority: int = 0
    purse: Purse | str | None = None
    approval_ttl: float | None = None
    tenant: str | None = None
    queue: str | None = None
    on_inflight: OnInflight | None = None
    deps: Any = None
    around_tool: tuple[Any, ...] = ()
    around_model: tuple[Any, ...] = ()
    state: Mapping[str, Any] | None = None
    answer: Answerer | None = None
    attended: bool = True
    at_limit: Mapping[str, Any] | None = None
    overrides: Mapping[str, Mapping[str, Any]] | None = None
    batch: Batching = False


PLAIN = RunSpec()
"""A run without options."""
