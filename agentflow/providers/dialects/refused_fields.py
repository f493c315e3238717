"""Requests that were refused because of one of their fields: which field it was, and how to ask without it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentflow.core.data.errors import ProviderError
from agentflow.core.data.messages import Notice
from agentflow.core.data.provider_errors import BadRequest
from agentflow.providers.dialects.traits import Traits, hint_for_field

_NEEDED = frozenset(["model", "messages", "input", "stream", "tools", "tool_choice", "system", "instructions"])
"""Fields without which a request means something else."""
_INSIDE: Mapping[str, tuple[str, ...]] = {
    "json_schema": ("response_format", "text"),
    "strict": ("tools", "response_format", "text", "output_config"),
}
"""Names inside of fields refused on their own."""
_GUESSED = frozenset(["include"])
"""Fields sent on trial also to known servers: whether a deployment's model takes them is in no table."""
_IN_WORDS = (("encrypted content is not supported", "include"),)
"""Refusals that name a field in other words."""
_MOST = 3
"""Fields that one call leaves out in turn."""


def refused_field(error: ProviderError, sent: Collection[str], needed: Collection[str]) -> str | None:
    """The field among those that were ``sent`` (without the ``needed`` ones) that a server names as it refuses a request; or None.

    A plain word as a name counts only where it is quoted, part of a path, or before a colon.
    """
    if type(error) is not BadRequest:
        return None
    names = [name for name in sent if name not in _NEEDED and name not in needed]
    names += [name for name, fields in _INSIDE.items() if any([field in sent for field in fields])]
    param = str(error.details.get("param", "")).partition(".")[0].partition("[")[0]
    if param in names:
        return param
    for name in sorted(names, key=len, reverse=True):
        word = rf"(?<!\w){re.escape(name)}(?!\w)"
        if re.search(word if "_" in name else rf"(?<=['\"`.]){word}|{word}:", error.message):
            return name
    said = error.message.lower()
    return next((name for words, name in _IN_WORDS if name in names and words in said), None)


def fitting(traits: Traits, field: str, settings: Mapping[str, Any], refused: Sequence[str]) -> Traits | None:
    """The traits for a second attempt, after ``field`` was refused, and ``refused`` before it.

    None if the traits are not guessed, or the field is in the user's ``settings``.
    """
    if (traits.sure and field not in _GUESSED) or len(refused) >= _MOST or _by_user(field, settings):
        return None
    return traits.without(field)


def _by_user(field: str, settings: Mapping[str, Any]) -> bool:
    return any([name in settings for name in (field, *_INSIDE.get(field, ()))])


def learned(traits: Traits, refused: Sequence[str]) -> Traits:
    """``traits`` after a call succeeded once the ``refused`` fields were left out."""
    for field in refused:
        traits = traits.without(field) or traits
    return traits


def hint(field: str, traits: Traits, settings: Mapping[str, Any]) -> str:
    """The advice after the server refused ``field``."""
    if _by_user(field, settings):
        return f"'{field}' comes from settings=: leave it out, or give it a value that the server takes"
    return hint_for_field(field, traits)


def notice(error: ProviderError, field: str, model: str) -> Notice:
    """The notice that a call is tried again without ``field``."""
    said = f"the server refused the request field '{field}': {model} is asked again without it, and from then on if that succeeds"
    return Notice(
        said, code="provider/field-refused", details={"field": field, "error": error.message, "hint": error.hint}
    )
