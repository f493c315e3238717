"""The durations of ``reuse``, for keeping results, in the usual notation: ``90s``, ``15m``, ``12h``, ``1d``, ``2w``."""

from __future__ import annotations

import re

from agentflow.core.data.errors import ConfigurationError, cut

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_WRITTEN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])")


def seconds_of(text: str) -> float:
    """The seconds of a duration. Raises ValueError for an invalid one."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise ValueError(f"'{cut(text, 40)}' is not a duration: write 90s, 15m, 12h, 1d or 2w")
    return float(match[1]) * _UNITS[match[2]]


def reuse_unavailable(what: str) -> ConfigurationError:
    """The error for a task or tool declared with ``reuse`` where no results are stored."""
    return ConfigurationError(
        f"{what} is declared with reuse, and this flow stores no results",
        code="config/durable",
        hint="AgentFlow(durable='sqlite:///runs.db'), or run --durable; or leave reuse out",
    )
