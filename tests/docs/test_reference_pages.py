"""The reference pages say what the code says."""

from __future__ import annotations

import pytest

from tests.docs.reference_pages import DOCS, TABLES, between


@pytest.mark.parametrize(("page", "name"), TABLES, ids=lambda value: str(value))
def test_a_table_is_current(page: str, name: str) -> None:
    """Limits, settings, system tools and commands: ``python -m tests.docs.reference_pages`` writes what is not."""
    text = (DOCS / page).read_text("utf-8")
    start, end = between(text, name)
    assert text[start:end] == TABLES[page, name](), "python -m tests.docs.reference_pages writes it anew"
