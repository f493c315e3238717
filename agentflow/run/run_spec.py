"""The options of a run, passed whole from the call that asks for it to the engine that opens it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentflow.core.call.approval import Approver
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits, OnLimit
from agentflow.core.data.session import Session
from agentflow.core.events.journal_rows import OnInflight
from agentflow.core.events.questions import Answerer
from agentflow.lang.environment import SexpEnvironment

if TYPE_CHECKING:
    from agentflow.core.data.at_limit import AtLimit
    from agentflow.run.purses import Purse


@frozen(kw_only=True)
class RunSpec:
    """The options of one run, documented at ``flow.run`` and ``flow.start`` under their names; None: not given.

    ``purse`` is the purse that pays, or its name. The questions of the run stay open for ``approval_ttl`` seconds (None: as
    long as the flow's). ``bindings`` and ``env`` hold the variables of its program, ``allow`` the names it may call. ``queue`` names the workers
    that carry out a durable run, ``tenant`` the tenant to charge, and ``on_inflight`` decides about its interrupted calls. ``deps`` are its dependencies, which are never
    stored. ``around_tool`` and ``around_model`` are its
    middleware, ``state`` is the beginning of ``ctx.state``. ``on_limit``, ``warn_at`` and ``wrap_up`` say what it does at its limits. ``answer`` answers its questions in place of the flow's answerer; unless
    it is ``attended``, the flow's answerer and approver are not asked. A new option is a field here and
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
    on_limit: OnLimit | None = None
    warn_at: float | None = None
    wrap_up: bool | None = None

    def at_limit(self, flow: AtLimit | None) -> AtLimit | None:
        """What the run does at its limits: its own options over those of the ``flow``; None: it ends there."""
        own = self.own_at_limit
        if not own:
            return flow
        from agentflow.core.data.at_limit import AtLimit  # few runs have such options

        return replace(flow or AtLimit(), **own)

    @property
    def own_at_limit(self) -> dict[str, Any]:
        """The run's own options for its limits, without those that are the flow's."""
        own = {"on_limit": self.on_limit, "warn_at": self.warn_at, "wrap_up": self.wrap_up}
        return {name: value for name, value in own.items() if value is not None}


PLAIN = RunSpec()
"""A run without options."""
