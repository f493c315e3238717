"""How near the bounds of programs are to what they do."""

from __future__ import annotations

import pytest

from agentflow.core.data.source import Surface
from tests.lang.bounds_exactness import measured


@pytest.mark.slow
@pytest.mark.parametrize("surface", ["sexp", "python"])
async def test_bounds_of_the_manual_and_the_examples_are_mostly_exact(surface: Surface) -> None:
    """Of programs with effects at least four fifths do as much as their bound says, whatever models answer, and none more."""
    outcomes = await measured(surface)
    inexact = {name: outcome for name, outcome in outcomes.items() if outcome[0] != "exact"}
    assert not [name for name, outcome in inexact.items() if outcome[0] == "below"], inexact
    assert len(outcomes) >= (25 if surface == "sexp" else 15) and len(inexact) <= 0.2 * len(outcomes), inexact
