"""The purse of an evaluation with a limit: kept while the evaluation may be continued, and then removed."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from agentflow import Limits
from tests.evals.test_evaluate import CASES, Model, shop


def purses_in(path: Path, statement: str, *values: Any) -> list[Any]:
    """The rows of a statement about the purses of a database."""
    with sqlite3.connect(path) as database:
        return database.execute(statement, values).fetchall()


async def test_the_purse_of_an_evaluation_is_removed_long_after_it_ended(tmp_path: Path) -> None:
    """By the next evaluation that opens one; before, a continued evaluation pays from the same."""
    database = tmp_path / "runs.db"
    async with shop(tmp_path, Model()) as (flow, answer):
        await flow.evaluate(answer, CASES[:1], limits=Limits(tokens=1_000), run_id="old")
        ((name, ends, tokens),) = purses_in(database, "select name, ends, tokens from af_purse")
        assert (name, tokens) == ("evaluation old", 20) and ends > time.time() + 20 * 86_400
        await flow.evaluate(answer, CASES[:2], limits=Limits(tokens=1_000), run_id="old")
        assert purses_in(database, "select ends, tokens from af_purse") == [(ends, 40)]
        purses_in(database, "update af_purse set ends = ?", time.time() - 50 * 86_400)
    async with shop(tmp_path, Model()) as (flow, answer):
        await flow.evaluate(answer, CASES[2:3], limits=Limits(tokens=1_000), run_id="new")
        assert purses_in(database, "select name from af_purse") == [("evaluation new",)]
        assert purses_in(database, "select distinct name from af_purse_lease") == [("evaluation new",)]
