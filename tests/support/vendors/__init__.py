"""Strict fakes of vendors: each checks every request by the rules that its vendor documents, and answers as the vendor does.

In a test::

    async with Vendors([{"tool_calls": [{"name": "look", "arguments": {}}]}, "done"]) as vendors:
        adapter = vendors.adapter("anthropic")

``vendors.adapter(name)`` keeps the vendor's own address: its requests go through a proxy on the loopback address, behind which
the fakes are (:mod:`tests.support.vendors.server`). Rules are rows with their source and its date
(:mod:`tests.support.vendors.rules`). A fake remembers the ids, signatures and encrypted blocks that it has issued, and refuses
others. A scripted answer is what the model says, whichever vendor is asked: each dresses it in its own form.
"""

from tests.support.vendors.rules import RULES, Rule, broken
from tests.support.vendors.server import Refusal, Vendors
from tests.support.vendors.table import VENDORS, Vendor
from tests.support.vendors.view import Asked, Memory

__all__ = ["RULES", "VENDORS", "Asked", "Memory", "Refusal", "Rule", "Vendor", "Vendors", "broken"]
