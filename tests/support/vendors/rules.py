"""The rules by which vendors check requests, as rows: whose they are, what they look for, how they refuse, where that is said.

A rule finds faults in a request (:class:`~tests.support.vendors.view.Asked`) as the fields of its ``error``. A fake answers with the
first fault of all its rules; tables of the documentation and of the scenario suite are made of the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.vendors import conversation, limits, replay, schemas
from tests.support.vendors.row import Rule
from tests.support.vendors.table import VENDORS, Vendor
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


REPEATED = "no two calls have one id"
"""The rule that a scripted server breaks itself: its ids begin anew with each reply."""


def general(dialect: str) -> tuple[Vendor, list[Rule]]:
    """A vendor of a dialect, and those of its rules that any server of the dialect may hold a request to.

    They are about what is in the request, not about what the vendor has issued before, and, for Chat Completions, none of the
    rules about fields: a server that nobody knows is guessed to take those of local ones.
    """
    vendor = VENDORS[{"anthropic": "anthropic", "responses": "openai", "chat": "openai-chat"}[dialect]]
    return vendor, [
        rule
        for rule in rules_of(vendor.name)
        if rule not in replay.RULES and rule.name != REPEATED and (dialect != "chat" or rule.group != "fields")
    ]


__all__ = ["RULES", "Rule", "broken", "general", "rules_of"]
