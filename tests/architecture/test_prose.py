"""The English of the pages and of the package: constructions that make a reader stop, counted per 10,000 words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"reference.md", "errors.md", "cli.md", "examples.md", "system-tools.md", "settings.md", "limits.md"}
MARKERS = {
    "free relative": r"\bwhat\b",
    "whoever": r"\b(?:whoever|whatever|whom|whose)\b",
    "go on": r"\b(?:go|goes|gone) on\b",
    "nobody": r"\b(?:nobody|somebody|everybody)\b",
    "is no NOUN": r"\bis no [a-z]",
}
MOST = {
    "docs": {"free relative": 10, "whoever": 4, "go on": 0, "nobody": 1, "is no NOUN": 1},
    "package": {"free relative": 1, "whoever": 1, "go on": 0, "nobody": 0, "is no NOUN": 1},
}
"""Ratchets: lower them when texts are rewritten, never raise them."""


def pages() -> Iterator[str]:
    """The text of the pages that people wrote, without code."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if path.name not in GENERATED:
            yield re.sub(r"`[^`\n]*`", "x", re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S))


def comments() -> Iterator[str]:
    """Docstrings and comments of the package."""
    for path in sorted((ROOT / "agentflow").rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield re.sub(r"`[^`]*`", "x", node.value.value)
        yield from re.findall(r"^ *# .*|  # .*", text, re.M)


def rates(texts: Iterator[str]) -> dict[str, float]:
    """How often each marker stands in 10,000 words."""
    text = "\n".join(texts)
    words = len(re.findall(r"[A-Za-z']+", text))
    assert words > 10_000, "the texts were found"
    return {name: round(len(re.findall(marker, text, re.I)) / words * 10_000, 1) for name, marker in MARKERS.items()}


def test_the_english_gets_no_worse() -> None:
    """No construction is more frequent than it was in the pages or in the package."""
    counted = {"docs": rates(pages()), "package": rates(comments())}
    worse = [
        (where, name) for where, rows in counted.items() for name, rate in rows.items() if rate > MOST[where][name]
    ]
    assert not worse, counted


OF_THE_REPOSITORY = {13, 35, 40, 68}
"""Decisions about files and tests, behind which no line of the package stands."""


def test_the_line_behind_which_a_decision_stands_points_to_it() -> None:
    """A comment there says why, and in which record the rest is; every record has one, and each that is named exists."""
    records = {int(path.name[:3]) for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    files = (path.read_text("utf-8") for path in (ROOT / "agentflow").rglob("*.py"))
    named = {int(number) for text in files for number in re.findall(r"# .*\(decision (\d+)\)$", text, re.M)}
    assert named == records - OF_THE_REPOSITORY
