"""A rule, as a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.vendors.view import Asked

Fault = Mapping[str, Any]
"""The fields of an error's text; ``param`` names the field of the request, where the vendor does."""


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule of one or several vendors.

    ``error`` is the text of the refusal, with the fields of a fault in braces; ``errors`` has that of vendors who word it
    otherwise. ``source`` is where the rule or its refusal is documented, ``date`` when that was written, or last read there or in the
    vendor's SDK.
    """

    name: str
    group: str
    vendors: tuple[str, ...]
    check: Callable[[Asked], Iterator[Fault]]
    error: str
    source: str
    date: str
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    status: Mapping[str, int] = field(default_factory=dict[str, int])

    def said(self, vendor: str, fault: Fault) -> str:
        """The text of the refusal."""
        return self.errors.get(vendor, self.error).format(**fault)

    def code(self, vendor: str) -> int:
        """The HTTP status of the refusal."""
        return self.status.get(vendor, 400)
