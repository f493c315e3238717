"""A report shows what changed: both samples of a case beside each other, from the first value that differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentflow import AgentFlow, ScriptedProvider, TaskError
from agentflow.evals import Case, EvaluationReport, Sample, contains, cost
from agentflow.evals.apart import LONGEST, MOST_PAIRS, ValuePair, beside
from tests.support.report_page import Page, chromium

CHROMIUM = shutil.which("chromium") or ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """One for all tests of a file."""
    if not CHROMIUM:
        pytest.skip("there is no chromium here")
    async with chromium(CHROMIUM) as browser:
        yield browser


def model(request: Any) -> Any:
    """Answers in capitals where it is asked loudly; fails where it is asked for trouble."""
    text = request.messages[-1].text
    said = text.upper() if "loudly" in text else text
    return {"text": said, "cost_usd": 0.01}


async def evaluated(tmp_path: Path) -> EvaluationReport:
    """Three tasks in a row, of which the variant changes the second: the third is asked otherwise, too."""
    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def search(question: str) -> str:
            """Search {{question}}"""
            raise NotImplementedError

        @flow.task
        async def draft(facts: str) -> str:
            """Draft: {{facts}}"""
            raise NotImplementedError

        @flow.task
        async def sign(text: str) -> str:
            """Sign: {{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def answer(question: str) -> str:
            return await sign(await draft(await search(question)))

        loud = {"draft": {"instructions": "Draft loudly: {{facts}}"}}
        return await flow.evaluate(
            answer,
            [{"question": "why?", "expected": "Search"}],
            variants={"loud": loud},
            scorers=[contains(ignore_case=False), cost],
        )


async def test_samples_stand_beside_each_other_from_the_first_value_that_differs(tmp_path: Path) -> None:
    """What both did alike before is left out; text, Markdown and JSON lines have the first value of both, the price is no
    change for the worse.
    """
    report = await evaluated(tmp_path)
    ((change, sample, base),) = report.worst("loud", "contains")
    assert [(each.name, each.change) for each in sample.apart] == [("draft", "input"), ("sign", "input")]
    assert (sample.apart[0].base, sample.apart[0].here) == ("Draft: Search why?", "DRAFT LOUDLY: SEARCH WHY?")
    assert (change, base.apart) == (-1.0, ())
    for told in (str(report), report.to_markdown()):
        assert (
            f"first apart: task draft at {sample.apart[0].path}, 'Draft: Search why?' and 'DRAFT LOUDLY: SEARCH WHY?'"
            in told
        )
        assert "Worse in contains under loud" in told and "in cost under" not in told
    saved = [json.loads(line) for line in report.to_jsonl().splitlines()]
    assert saved[2]["apart"][0]["here"] == "DRAFT LOUDLY: SEARCH WHY?" and "apart" not in saved[1]


def test_long_texts_are_cut_at_their_difference() -> None:
    """Not at their beginnings, where they are the same; short ones, and a missing one, are whole."""
    one, other = beside("x" * 10_000 + "rain", "x" * 10_000 + "sun" + "y" * LONGEST, LONGEST)
    assert one == "…" + "x" * 40 + "rain" and other is not None and other.startswith("…" + "x" * 40 + "sun")
    assert (
        len(other) == LONGEST + 2
        and beside("a", "b" * 5, 6) == ("a", "bbbbb")
        and beside(None, "abc", 2) == (None, "ab…")
    )


BAD = "<img src=x onerror=alert(1)></script><script>document.title='owned'</script>\u202e\u2066\u200b\x00\ud800"


def hostile() -> EvaluationReport:
    """Every name and text of an evaluation is markup, and reorders or hides text; some are of megabytes."""
    pair = ValuePair("output", "tool", BAD, BAD, BAD, BAD + "y")
    case = Case(inputs={"q": BAD}, name=BAD, expected=BAD * 3)
    shared: dict[str, Any] = {"case": case, "draw": 0, "passing": frozenset({BAD})}
    good = Sample(**shared, variant="base", status="done", value=BAD + "x" * 5_000_000, scores={BAD: 1.0})
    bad = Sample(
        **shared,
        variant=BAD,
        status="failed",
        error=TaskError(BAD, code="tool/x"),
        scores={BAD: 0.0},
        apart=(pair,) * 3,
        missing={"m": BAD},
    )
    return EvaluationReport(run_id="e", variants=["base", BAD], baseline="base", order=[BAD], samples=[good, bad])


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_hostile_values_stay_text_on_the_page(browser: Any, tmp_path: Path) -> None:
    """Markup is shown and not carried out, hidden characters are shown as their codes, texts of megabytes are cut."""
    hostile().save(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text("utf-8")
    assert len(html) < 100_000 and "onerror" not in html.partition("<body>")[2]
    shown = await Page.open(browser, tmp_path / "again.html", html)
    await shown.page.click("details > summary")
    await shown.page.wait_for_selector(".sides")
    text = await shown.text("body")
    assert "owned" not in (await shown.page.title()).replace("document.title='owned'", "")
    assert not set("\u202e\u2066\u200b") & set(text) and text.count("<img src=x") > 10
    assert await shown.count("*") < 500
    await shown.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_has_the_table_and_both_values_beside_each_other(browser: Any, tmp_path: Path) -> None:
    """A row for each variant, the notice of few cases, and in an opened case a pane for each side, from the first value that
    differs to the value; on a narrow screen nothing is wider than it, and the page asks nobody for anything.
    """
    report = await evaluated(tmp_path)
    for width in (1400, 420):
        shown = await Page.open(browser, tmp_path / "page.html", report.to_html(), width=width)
        assert [(await row.inner_text()).split()[0] for row in await shown.page.query_selector_all("tbody tr")] == [
            "base",
            "loud",
        ]
        assert "Few cases" in await shown.text("header") and "5 model calls" in await shown.text("header")
        await shown.page.click("[data-case] > summary")
        await shown.page.wait_for_selector(".sides")
        panes = await shown.page.query_selector_all("[data-case] .panes")
        texts = [
            [(await side.inner_text()).strip() for side in await each.query_selector_all(":scope > *")]
            for each in panes
        ]
        assert texts[:2] == [["base", "loud"], ["Draft: Search why?", "DRAFT LOUDLY: SEARCH WHY?"]]
        assert len(texts) == 4 and "expected" in await shown.text(".sides")
        assert await shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await shown.count(".panes del") and await shown.count(".panes ins")
        await shown.close()


def test_of_samples_that_differ_everywhere_the_first_effects_are_kept() -> None:
    """A report of a thousand cases does not hold a thousand runs."""
    from agentflow.core.events.journal_rows import EffectRow, EffectState
    from agentflow.evals.apart import value_pairs

    def rows(said: str) -> list[EffectRow]:
        shared: dict[str, Any] = {"kind": "tool", "name": "f", "content": b"", "state": EffectState.OK}
        return [EffectRow(path=f"0/{at}", value={"ok": f"{said if at else ''}{at}"}, **shared) for at in range(100)]

    pairs = value_pairs(rows("a"), rows("b"))
    assert len(pairs) == MOST_PAIRS and (pairs[0].base, pairs[0].here, pairs[0].change) == ("a1", "b1", "output")
    assert value_pairs(rows("a"), rows("a")) == () and value_pairs([], rows("a")[:1])[0].change == "second"
    failed = EffectRow(
        path="0/0",
        kind="tool",
        name="f",
        content=b"",
        state=EffectState.FAILED,
        value={"error": ["x", {"message": "no"}]},
    )
    assert value_pairs(rows("a")[:1], [failed])[0].here == "failed: no"
