"""How many runs of the scenarios met each rule, per vendor: ``python -m tests.vendors.figures [--runs]`` prints a table.

``--runs`` also lists each run that broke a rule or did not end as it was meant, ``--known`` writes these
into ``known.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.vendors import RULES, VENDORS
from tests.vendors.scenarios import SCENARIOS
from tests.vendors.world import named, pairs, run

KNOWN = Path(__file__).with_name("known.py")
AS_MEANT = "the run ends as it was meant"


@dataclass(frozen=True)
class Run:
    """One run: the vendors that were asked, the rules that requests broke (with the vendor and the words), what else was wrong."""

    name: str
    asked: tuple[str, ...]
    broken: tuple[tuple[str, str, str], ...]
    wrong: str


async def runs(only: str = "") -> list[Run]:
    """Play all scenarios over all vendors and pairs."""
    found: list[Run] = []
    for scenario in SCENARIOS:
        for first, second in pairs() if scenario.pair else [(name, name) for name in scenario.vendors]:
            name = named(scenario, first, second)
            if only not in name:
                continue
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
                world, wrong = await run(scenario, first, second, Path(root))
            asked = tuple(dict.fromkeys(each.vendor.name for each in world.vendors.asked)) or (first,)
            broken = tuple(dict.fromkeys((each.vendor, each.rule.name, each.said) for each in world.vendors.refusals))
            found.append(Run(name, asked, broken, wrong))
    return found


def table(found: list[Run]) -> str:
    """Rules by vendors: how many runs met a rule, of how many that asked the vendor."""
    met: Counter[tuple[str, str]] = Counter()
    of: Counter[str] = Counter()
    for each in found:
        for vendor in each.asked:
            of[vendor] += 1
            bad = {rule for name, rule, _ in each.broken if name == vendor} | ({AS_MEANT} if each.wrong else set())
            for rule in (*[rule.name for rule in RULES if vendor in rule.vendors], AS_MEANT):
                met[rule, vendor] += rule not in bad
    head = ["rule", *VENDORS]
    rows = [[rule, *[f"{met[rule, vendor]}/{of[vendor]}" if (rule, vendor) in met else "" for vendor in VENDORS]] for rule in (*[r.name for r in RULES], AS_MEANT)]  # fmt: skip
    good = sum(not each.broken and not each.wrong for each in found)
    lines = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows)]
    return "\n".join([*lines, "", f"{good} of {len(found)} runs met every rule and ended as they were meant.", ""])


def known(found: list[Run]) -> str:
    """The module of runs that are known not to be right, with this list of them."""
    head, _, _ = KNOWN.read_text("utf-8").partition("KNOWN: ")
    rows = [
        (each.name, "; ".join(dict.fromkeys(rule for _, rule, _ in each.broken)) or each.wrong.split(":")[0])
        for each in found
        if each.broken or each.wrong
    ]
    lines = "".join(f"    {json.dumps(name)}: {json.dumps(why)},\n" for name, why in rows)
    return f"{head}KNOWN: dict[str, str] = {{\n{lines}}}\n" if rows else f"{head}KNOWN: dict[str, str] = {{}}\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", action="store_true", help="list the runs that were not right, with the words of the refusals"
    )
    parser.add_argument("--known", action="store_true", help="write them into known.py instead")
    parser.add_argument("--only", default="", help="runs whose name has this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    begun = time.perf_counter()
    found = asyncio.run(runs(options.only))
    if options.known:
        KNOWN.write_text(known(found), "utf-8")
        return
    if options.runs:
        for each in found:
            if each.broken or each.wrong:
                print(each.name)
                for vendor, rule, said in each.broken:
                    print(f"    {vendor}: {rule}: {said[:200]}")
                if each.wrong:
                    print(f"    {each.wrong}")
    print(table(found))
    print(f"{time.perf_counter() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
