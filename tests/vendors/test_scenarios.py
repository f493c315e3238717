"""Every scenario over every vendor: each request meets its vendor's rules, and the run ends as it was meant.

Where two vendors share a conversation, neighbours in the table of vendors are a pair in every run of the suite, in both
directions, and all pairs in the slow one. ``python -m tests.vendors.figures`` prints how many runs meet each rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.vendors import VENDORS
from tests.vendors.known import KNOWN
from tests.vendors.scenarios import PAIRED, SINGLE
from tests.vendors.world import Scenario, named, pairs, run


def _cases() -> Iterator[Any]:
    names = list(VENDORS)
    near = {(one, two) for one, two in zip(names, [*names[1:], names[0]], strict=True)}
    for scenario in SINGLE:
        for name in scenario.vendors:
            yield _case(scenario, name, name)
    for scenario in PAIRED:
        for first, second in pairs():
            fast = (first, second) in near or (second, first) in near
            yield _case(scenario, first, second, *([] if fast else [pytest.mark.slow]))


def _case(scenario: Scenario, first: str, second: str, *marks: Any) -> Any:
    name = named(scenario, first, second)
    known = [pytest.mark.xfail(strict=True, reason=KNOWN[name])] if name in KNOWN else []
    return pytest.param(scenario, first, second, id=name, marks=[*marks, *known])


@pytest.mark.parametrize(("scenario", "first", "second"), list(_cases()))
async def test_a_scenario_meets_the_rules_of_its_vendors(
    scenario: Scenario, first: str, second: str, tmp_path: Path
) -> None:
    """No request is one that its vendor refuses, and what was asked for comes about."""
    world, wrong = await run(scenario, first, second, tmp_path)
    assert [(each.vendor, each.rule.name, each.said) for each in world.vendors.refusals] == []
    assert wrong == ""
    assert world.vendors.asked
