"""Where values came from, in a report and in ``agentflow runs show``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow.cli.runs.run_show import run_data, show_run
from agentflow.durable.catalogue import RunSummary
from agentflow.observe.report.html import report_html
from agentflow.observe.run_view import RunView
from tests.support.report_page import Page, ended, event

TEXT = "(fetch)\n(ask)\n(send)"
DENIED = "'to' of send depends on web, which may not reach it"


def call(line: int, until: int) -> dict[str, Any]:
    return {"source": "p.sexp", "line": line, "column": 1, "end_line": line, "end_column": until}


def run_with_sources() -> list[dict[str, Any]]:
    """A run that reads a page, asks a model about it and a file, and is denied to send what came of it."""
    return [
        event("run_started", 1, 100.0, None, name="p.sexp"),
        event("program_loaded", 2, 100.0, 1, name="p.sexp", text=TEXT, digest="d", language="sexp"),
        event("tool_started", 3, 100.0, 1, name="fetch", arguments={}, span=call(1, 8)),
        ended("tool_finished", 4, 101.0, 3, name="fetch", sources=["web"]),
        event("task_started", 5, 101.0, 1, name="ask", span=call(2, 6)),
        ended("task_finished", 6, 102.0, 5, name="ask", sources=["file:a.md", "web"]),
        event("tool_started", 7, 102.0, 1, name="send", arguments={}, span=call(3, 7)),
        event(
            "policy_denied", 8, 102.0, 7, name="send", argument="to", sources=["web"], refused=["web"], message=DENIED
        ),
        ended("tool_finished", 9, 102.0, 7, name="send", outcome="failed", sources=[]),
        ended("run_finished", 10, 103.0, 1, sources=["web"]),
    ]


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_values_are_coloured_by_their_sources(browser: Any, tmp_path: Path) -> None:
    """Each source has one colour, in the program, on the rows and in the legend; a step names its sources, the head the value's, and what
    the policy denied is on top of the page."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(run_with_sources()))
    await shown.page.select_option("select[aria-label='colour by']", "source")
    striped = await shown.page.eval_on_selector_all(
        ".site", "all => all.map(each => [each.textContent, getComputedStyle(each).backgroundImage])"
    )
    web, both, none = [style for _, style in striped]
    assert [text for text, _ in striped] == ["(fetch)", "(ask)", "(send)"]
    assert none == "none" and web != "none" and len({web, both, none}) == 3
    legend = await shown.page.eval_on_selector_all(
        ".legend .source",
        "all => all.map(each => [each.parentNode.textContent, getComputedStyle(each).backgroundColor])",
    )
    assert [name for name, _ in legend] == ["web", "file:a.md"] and len({colour for _, colour in legend}) == 2
    assert all(colour in web for name, colour in legend if name == "web") and all(
        colour in both for _, colour in legend
    )
    marks = await shown.page.eval_on_selector_all(
        ".source-mark:not([hidden])", "all => all.filter(each => each.offsetParent).map(each => each.title)"
    )
    assert marks == ["comes from web", "comes from web", "comes from file:a.md, web"]
    assert "value comes from" in await shown.text("header") and DENIED in await shown.text(".banner.denied")
    await shown.page.click(".banner.denied button")
    assert "send" in await shown.text("aside h2")
    await shown.page.evaluate("report.choose(report.run.nodes.get(5), true)")
    assert "file:a.md, web" in await shown.text("aside .facts")
    await shown.page.fill("input[aria-label=filter]", "file:a.md")
    assert await shown.count(".row:not([hidden])") == 2
    await shown.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_a_run_without_sources_has_no_word_of_them(browser: Any, tmp_path: Path) -> None:
    """Nothing can be coloured by sources where no value has one: pages of flows without a policy are as they were."""
    told = [each | {"sources": []} for each in run_with_sources() if each["type"] != "policy_denied"]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    assert await shown.count(".legend .source") == 0 and "comes from" not in await shown.text("header")
    assert await shown.page.evaluate(
        "[...document.querySelectorAll('option')].find(each => each.value === 'source').hidden"
    )
    await shown.close()


def test_a_fold_names_the_sources_of_each_expression() -> None:
    """By expression and by task, over all its calls; the run's are those of its value."""
    view = RunView(run_with_sources())
    assert {tally.name: sorted(tally.sources) for tally in view.sites.values()} == {
        "fetch": ["web"],
        "ask": ["file:a.md", "web"],
        "send": [],
    }
    assert view.sources == ("web",) and view.tasks["task ask"].to_dict()["sources"] == ["file:a.md", "web"]


def test_runs_show_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    """``runs show`` says below each line what its calls' values came from, and in the head what the run's value depends on."""
    told = run_with_sources()
    summary = RunSummary(run_id="r", state="ok", name="p.sexp", started=1.0, updated=2.0, recorded=True)
    show_run(summary, told, as_json=False)
    printed = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert "sources its value depends on web" in lines
    assert "fetch comes from web" in lines and "ask comes from file:a.md, web" in lines
    assert not any(line.startswith("send comes") for line in lines) and f"denied {DENIED}" in lines
    assert run_data(summary, RunView(told))["sources"] == ["web"]
