"""Durable runs of Python texts: interrupted and gone on with, edited, and edited into the other surface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow.core.data.source import Source
from tests.durable.test_generations import edited
from tests.durable.world import Flow, World, interrupted

TEXT = '''@task(history=False)
def ask(q: str) -> str:
    """{{q}}"""
def main():
    x = "one"
    return [ask(x), look("a"), pmap(ask, ["x", "y", "z"]), [look(at) for at in ("l1", "l2")]]
'''
SEXP = """(defatom ask (params (q string)) (instructions "{{q}}") (history_config '((use_session_history false) (record_in_session_history false))))
(list (content (ask (q "one"))) (content (look (at "a")))
      (pmap (lambda (i) (content (ask (q i)))) '("x" "y" "z")) (map (lambda (i) (content (look (at i)))) '("l1" "l2")))"""


def python(text: str) -> Source:
    """A text in Python that is in no file."""
    return Source.unnamed(text, "python")


async def test_an_interrupted_text_goes_on(world: World, flow: Flow, tmp_path: Path) -> None:
    """What was stored is not carried out again; the run knows the surface of its text when nobody says it."""
    file = tmp_path / "w.py"
    file.write_text(TEXT)
    await interrupted(world, flow, file, "l1")  # type: ignore[arg-type]
    async with flow() as opened:
        value = (await (await opened.resume("r")).result()).value
    assert value[1] == "<a>" and value[3] == ["<l1>", "<l2>"] and set(world.done.values()) == {1}
    async with flow() as opened:
        assert (await (await opened.start(TEXT, run_id="r", surface="python")).result()).value == value


@pytest.mark.parametrize(
    ("change", "carried_out"),
    [
        (lambda text: text.replace("def main", "# moved\n\n\ndef main"), set[str]()),
        (lambda text: text.replace('"one"', '"first"'), {"first"}),
        (lambda text: text.replace("return [", 'return [ask("new"), '), {"new"}),
        (lambda text: text.replace('["x", "y", "z"]', '["z", "v", "x"]'), {"v"}),
        (lambda text: text.replace('look("a")', 'look("b")'), {"b"}),
        (lambda text: text.replace('("l1", "l2")', '["l2", "l3"]'), {"l3"}),
    ],
    ids=["moved", "first prompt", "inserted", "map", "a tool's argument", "comprehension"],
)
async def test_only_what_depends_on_the_change_runs_again(
    world: World, flow: Flow, change: Any, carried_out: set[str]
) -> None:
    """Equal effects are answered from their records, wherever the edited text has them."""
    async with flow() as opened:
        await (await opened.start(python(TEXT), run_id="r")).result()
    _, seen = await edited(world, flow, change(TEXT), surface="python")
    assert set(seen) == carried_out and set(seen.values()) <= {1}


@pytest.mark.parametrize(("first", "then"), [("sexp", "python"), ("python", "sexp")])
async def test_a_text_is_gone_on_with_in_the_other_surface(world: World, flow: Flow, first: Any, then: Any) -> None:
    """Both number their effects alike: rewritten in the other surface, a run carries nothing out."""
    texts = {"sexp": SEXP, "python": TEXT}
    async with flow() as opened:
        value = (await (await opened.start(texts[first], run_id="r", surface=first)).result()).value
    again, seen = await edited(world, flow, texts[then], surface=then)
    assert again == value and not seen
