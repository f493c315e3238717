"""Every example runs as a new user would run it, and docs/examples.md shows what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples_page import EXAMPLES, INTRO, LISTED, PAGE, Example, section, transcript


@pytest.mark.parametrize("example", LISTED, ids=lambda example: example.file)
def test_an_example_prints_what_the_page_shows(example: Example, tmp_path: Path) -> None:
    """Without key and network; ``python -m tests.docs.examples_page`` writes the page anew."""
    assert section(example, transcript(example, tmp_path)) in PAGE.read_text("utf-8")


def test_the_page_has_every_example_and_nothing_else() -> None:
    """An example is one file of less than 120 lines, and each has its section."""
    page = PAGE.read_text("utf-8")
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert files == {example.file for example in LISTED}
    assert page.startswith(INTRO) and page.count("\n## ") == len(LISTED)
    assert not [name for name in files if len((EXAMPLES / name).read_text("utf-8").splitlines()) >= 120]
