"""Generated pages are current, and the card for models is small and true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow.core.data.results import TaskResult
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.card import EXAMPLES, language_card
from agentflow.lang.forms import FORMS
from agentflow.lang.printer import print_value
from agentflow.lang.reference import Example, describe, entries, reference_page
from tests.support.world import World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def test_the_reference_page_is_current() -> None:
    """``python -m agentflow.lang.reference > docs/reference.md`` was run after the last change."""
    assert PAGE.read_text("utf-8") == reference_page()


def test_everything_is_documented() -> None:
    """Every form and primitive has a usage that shows its name, and a sentence."""
    for entry in entries():
        assert entry.doc.strip(), entry.name
        assert f"({entry.name}" in entry.usage or entry.name in ("catch", "finally"), entry.name
    page = reference_page()
    assert [name for name in [*FORMS, *PRIMITIVES] if f"`{name}`" not in page] == []


def test_describe_suggests() -> None:
    """An unknown name is answered with the nearest one."""
    assert "did you mean 'string-append'" in describe("string-apend")
    assert describe("append").startswith("(append list ...)")


def _fetch(arguments: dict[str, Any]) -> TaskResult:
    if arguments["path"] == "missing":
        return TaskResult.failure("tool_execution_error", "no such file")
    return TaskResult.of("four words are here")


def _ask(arguments: dict[str, Any]) -> TaskResult:
    return TaskResult.of(f"re: {arguments['question']}")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.about)
async def test_the_card_tells_the_truth(example: Example) -> None:
    """Each worked example has the value the card gives."""
    value = await World({"fetch": _fetch, "ask": _ask}).run(example.program)
    assert print_value(value) == example.value


def test_the_card_is_small() -> None:
    """At most 3,000 tokens; program text takes at least three characters a token on the models' tokenisers."""
    assert len(language_card()) / 3 <= 3_000
    assert all(example.program in language_card() for example in EXAMPLES)
