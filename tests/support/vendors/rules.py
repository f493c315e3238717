"""The rules by which vendors check requests, as rows: whose they are, what they look for, how they refuse, where that is said.

A rule finds faults in a request (:class:`~tests.support.vendors.view.Asked`) as the fields of its ``error``. A fake answers with the
first fault of all its rules; tables of the documentation and of the scenario suite are made of the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.vendors import conversation, limits, replay, schemas
from tests.support.vendors.row import Rule
from tests.support.vendors.view import Asked

RULES: tuple[Rule, ...] = (*limits.RULES, *conversation.RULES, *replay.RULES, *schemas.RULES)
"""All rules; no two have the same name."""


def rules_of(vendor: str) -> list[Rule]:
    """The rules of one vendor."""
    return [rule for rule in RULES if vendor in rule.vendors]


def broken(asked: Asked, rules: Iterable[Rule] | None = None) -> list[tuple[Rule, str]]:
    """The rules that a request breaks, each with the vendor's words for its first fault."""
    found: list[tuple[Rule, str]] = []
    for rule in rules_of(asked.vendor.name) if rules is None else rules:
        for fault in rule.check(asked):
            found.append((rule, rule.said(asked.vendor.name, fault)))
            break
    return found


__all__ = ["RULES", "Rule", "broken", "rules_of"]
