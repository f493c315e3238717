"""An evaluation that is killed again and again pays for no answer twice, and ends with the report of one that was not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.evals.mortal import pay_for_nothing_twice

KILLS = int(os.environ.get("AGENTFLOW_EVAL_KILLS", "10"))


@pytest.mark.slow
def test_killed_evaluations_pay_for_nothing_twice(tmp_path: Path) -> None:
    """Killed in a model call: each kill loses the calls in progress at most, at most one for each case at work."""
    pay_for_nothing_twice(tmp_path, "tests.evals.eval_child", last=12, kills=KILLS)
