"""What the language knows of its functions, methods, forms and primitives is said once, and a change of it is read."""

from __future__ import annotations

from tests.support import language_rows


def test_rows_are_those_that_were_read_over() -> None:
    """Each row is as in ``rows.json``; ``python -m tests.support.language_rows --write`` writes it again, to be reviewed."""
    assert language_rows.text() == language_rows.FILE.read_text("utf-8")
