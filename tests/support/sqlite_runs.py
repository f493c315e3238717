"""Changes the stored runs of an SQLite file from outside, as a process leaves them that was killed."""

from __future__ import annotations

import sqlite3
from typing import Any

from agentflow.journal.sqlite import keep_sums


def change_run(db: sqlite3.Connection, run: str, now: float, **columns: Any) -> None:
    """Set columns of a stored run, changed last at ``now``, and its checksum with them."""
    keep_sums(db, "af_run")
    set_ = ", ".join(f"{name} = ?" for name in (*columns, "updated"))
    db.execute(f"update af_run set {set_} where run = ?", (*columns.values(), now, run))
