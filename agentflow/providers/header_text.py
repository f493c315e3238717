"""Keys and headers that can be sent: visible ASCII, without a line end. Errors never show what is in them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentflow.core.data.errors import ConfigurationError, clip

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_KEYS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers that hold the key."""


def check_headers(headers: Mapping[str, object], provider: str) -> None:
    """Raise ConfigurationError (``config/header``) for a header whose name or value cannot be sent."""
    for name, value in headers.items():
        if value is None or isinstance(value, int | float | bytes):
            raise _refused(f"the header {name} for {provider}", f"is {type(value).__name__}, not text")
        if not isinstance(value, str):
            continue  # the SDK's mark for a header that is left out
        if not _NAME(name):
            raise _refused(
                f"a header's name for {provider}, {clip(repr(name), 80)},",
                "is not a name of letters, digits and hyphens",
            )
        if problem := _problem(value):
            what = "API key" if name.lower() in _KEYS else f"header {name}"
            raise _refused(f"the {what} for {provider}", problem)


def _problem(text: str) -> str:
    if text != text.strip():
        return "begins or ends with a blank or a line end"
    if not text.isascii():
        return "contains characters that are not ASCII"
    return "contains a line end or another control character" if not text.isprintable() else ""


def _refused(what: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} {problem}",
        code="config/header",
        hint="strip it where it is read: open(path).read().strip(); copy it again if it has typographic characters",
    )


__all__ = ["check_headers"]
