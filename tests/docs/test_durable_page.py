"""The page of durable runs describes the tables of a database as they are."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from agentflow import AgentFlow

PAGE = (Path(__file__).resolve().parents[2] / "docs/durable-reference.md").read_text("utf-8")
ROW = re.compile(r"^\| `(af_\w+)` \| [^|]* \| ([^|]*) \|$", re.M)


async def test_the_tables_are_those_of_the_page(tmp_path: Path) -> None:
    """Every table with all of its columns, and the queries that the page shows give rows."""
    async with AgentFlow("offline", durable=f"sqlite:///{tmp_path}/runs.db", record=True) as flow:
        handle = await flow.start("(now)", run_id="invoice-42")
        await handle.result()
    database = sqlite3.connect(tmp_path / "runs.db")
    tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
    kept = {
        table: {column[1] for column in database.execute(f"pragma table_info({table})")}
        for table in tables
        if table.startswith("af_") and not table.startswith("af_note")
    }
    shown = {
        table: set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)|; .*|: its .*", "", columns)))
        for table, columns in ROW.findall(PAGE)
    }
    assert shown == kept
    queries = re.findall(r"^select .*;$", PAGE, re.M)
    assert len(queries) >= 2
    for query in queries:
        assert database.execute(query).fetchall(), query
    database.close()
