"""Where the C extension of the stemmer has no wheel, the same stems come from Python: an index made by one is read by the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentflow.lib.text.terms import stem_in_python

_DOCS = Path(__file__).parents[2] / "docs"


def test_both_stemmers_give_the_same_stems() -> None:
    """All words of the documentation, and the odd ones that stemmers have rules for."""
    extension = pytest.importorskip("Stemmer").Stemmer("english", 0)
    text = " ".join(path.read_text() for path in _DOCS.rglob("*.md")).lower()
    words = {*re.findall(r"[a-z']+", text), "", "y", "skis", "dying", "generously", "news", "exceeding", "''s"}
    slow = stem_in_python()
    assert len(words) > 3_000
    assert {word: slow(word) for word in words} == {word: extension.stemWord(word) for word in words}
