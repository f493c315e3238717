"""The options of a run for its limits, and the values that raise them."""

from __future__ import annotations

from typing import Any, cast

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import OnLimit


@frozen(kw_only=True)
class AtLimit:
    """What a run does at its limits: ``on_limit`` says whether it ends or waits, ``warn_at`` is the share of a limit that is
    announced (None: none), and with ``wrap_up`` the last turn of an agent is kept for its answer.

    Raises ConfigurationError (``config/option``) for other values.
    """

    on_limit: OnLimit = "end"
    warn_at: float | None = None
    wrap_up: bool = False

    def __post_init__(self) -> None:
        share: Any = self.warn_at
        number = isinstance(share, int | float) and not isinstance(share, bool) and 0 < share < 1
        for name, valid, instead in (
            ("on_limit", self.on_limit in ("end", "wait"), "write on_limit='end' or on_limit='wait'"),
            ("warn_at", share is None or number, "write a share between 0 and 1: warn_at=0.8"),
            ("wrap_up", self.wrap_up in (True, False), "write wrap_up=True"),
        ):
            if not valid:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} does not say what a run does at its limits",
                    code="config/option",
                    hint=instead,
                    details={"option": name},
                )


_UNLIMITED = 10**15
"""In place of no limit at all, in an answer."""


def raised_value(value: float | None) -> float:
    """The answer that raises a limit to ``value``, or to none."""
    return _UNLIMITED if value is None else value


def fits_in(name: str, allowed: float, value: object) -> bool:
    """Whether ``value`` is a higher limit than ``allowed``."""
    whole = isinstance(value, int) or (isinstance(value, float) and name in ("usd", "wall_s"))
    return whole and not isinstance(value, bool) and cast(float, value) > allowed
