"""Regular expressions compiled when they are first used."""

from __future__ import annotations

import re
from typing import cast

_METHODS = "match", "fullmatch", "search", "sub", "split", "findall", "finditer"


class _LatePattern:
    """Compiles at its first method, and from then on has the methods of the pattern as attributes: as fast as the pattern itself."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> object:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self._text, self._flags)
        self.__dict__.update({each: getattr(compiled, each) for each in _METHODS})
        return getattr(compiled, name)


# Compiling patterns was a tenth of importing the flow, and most are of no use in most processes (decision 51)
def late_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern with these methods: match, fullmatch, search, sub, split, findall and finditer. It raises re.error at the first of them."""
    return cast("re.Pattern[str]", _LatePattern(text, flags))
