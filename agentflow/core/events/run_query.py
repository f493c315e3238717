"""The selection of the runs that a store is to list."""

from __future__ import annotations

from agentflow.core.data.frozen import frozen


@frozen(kw_only=True)
class RunQuery:
    """The runs that a store is to list: those changed at ``since`` or later and before ``until`` (unix seconds), stored in
    one of ``statuses`` (empty: any), with all texts of ``holds`` in their stored input, as JSON.

    A store may list others too. ``after`` is the last change and the id of a run: the list continues behind it.
    """

    statuses: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    holds: tuple[str, ...] = ()
    after: tuple[float, str] | None = None
