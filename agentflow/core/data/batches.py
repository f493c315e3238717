"""Model calls in batches, as stores and providers see them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from agentflow.core.data.durations import seconds_of
from agentflow.core.data.errors import ConfigurationError, cut
from agentflow.core.data.frozen import frozen

DAY_S = 86_400.0
"""Seconds after which the vendors end a batch."""


def within_s(batch: object) -> float | None:
    """The seconds within which a batch has to answer, for a value of ``batch=``; None for ordinary calls.

    Raises ValueError for an invalid time, and for one of more than a day.
    """
    if isinstance(batch, bool):
        return DAY_S if batch else None
    seconds = seconds_of(batch) if isinstance(batch, str) else 0.0
    if not 0 < seconds <= DAY_S:
        raise ValueError(f"batch={cut(repr(batch), 40)} is not True, False or a time of at most a day, such as '2h'")
    return seconds


def wrong_batch(where: str, batch: object) -> ConfigurationError | None:
    """The error (``config/option``) for a value that ``batch=`` cannot have at ``where``; None for a valid one."""
    try:
        within_s(batch)
    except ValueError as error:
        return ConfigurationError(
            f"{where}: {error}",
            code="config/option",
            hint="for example batch='2h': a call without an answer by then is made as an ordinary one",
            details={"option": "batch"},
        )
    return None


@frozen(kw_only=True)
class BatchedCall:
    """A model call that waits for a batch. ``id`` names it everywhere: at most 64 letters, digits and hyphens.

    ``run`` and ``key`` are those of the record that gets the answer; the answer of a call without a run is kept in the store.
    ``model`` is the model's full name, ``endpoint`` that of the vendor, ``body`` the JSON text of the request as the vendor takes
    it, of ``size`` characters; it is empty where only the size is needed. ``within_s`` are the seconds from ``at``, a unix time,
    after which it is made as an ordinary call. ``purse`` and ``period`` name the purse that has set its cost aside.
    """

    id: str
    run: str
    key: bytes
    model: str
    endpoint: str
    body: str
    within_s: float
    size: int = 0
    at: float = 0.0
    purse: str = ""
    period: float = 0.0

    @property
    def due(self) -> float:
        """The unix time after which it is made as an ordinary call."""
        return self.at + self.within_s


BatchState: TypeAlias = Literal["new", "unsure", "sent", "cancelling"]
"""``new``: perhaps sent, which its sender knows; ``unsure``: perhaps sent, which the vendor's list cannot tell yet, so nothing is sent."""


@frozen(kw_only=True)
class StoredBatch:
    """A batch as it is stored: ``vendor`` is the vendor's id of it, empty until it is known; ``created`` and ``due`` are unix times."""

    id: str
    model: str
    endpoint: str
    state: BatchState
    vendor: str
    created: float
    due: float


@frozen(kw_only=True)
class BatchWait:
    """Model calls of a run that wait: ``calls`` is their number, ``model`` the full name of their model.

    ``state`` is that of their batch: ``none`` while they are in none, ``new`` while it is being sent, ``sent``, or ``cancelling`` after its
    deadline; ``unsure`` after a kill or a lost connection, while the vendor's list cannot tell whether it has the batch: nothing is sent
    until it can. ``due`` is the unix time after which the first is made as an ordinary call.
    """

    calls: int
    model: str
    state: BatchState | Literal["none"]
    due: float


@frozen(kw_only=True)
class BatchProgress:
    """The state of a batch with its vendor: whether it has ``ended``.

    One that it refused after it had taken it has the reason in ``refused``, the numbers of the ``faulty`` calls in the order of their
    ids, from 0, as far as they are known, and ``later`` if the same batch may be taken later.
    """

    ended: bool
    refused: str = ""
    faulty: frozenset[int] = frozenset()
    later: bool = False


@frozen(kw_only=True)
class BatchAnswer:
    """The vendor's answer to a call of a batch: the ``body`` of an answer, or the ``status`` and ``body`` of an error (0: it has none).

    With ``lapsed`` the call was not carried out: the batch expired or was cancelled before.
    """

    id: str
    body: Any = None
    status: int = 200
    lapsed: str = ""
