"""The report of a run, in a real browser: what it shows is what the events say, and nothing of a run becomes markup."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelRequest
from agentflow.observe.report.html import MAX_TEXT, report_html
from agentflow.observe.report.observer import Report
from tests.support.report_page import Page, ended, event

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = '<script>document.title="owned"</script><img src=x onerror=alert(1)>\u202egnp.exe'
PROGRAM = """; a report
(defatom review (params (path string)) (instructions "Review {{path}}") (tools (look)))
(define (both x) (list (review (path x)) (look (at x))))
(pmap (lambda (n) (both (format "f{}.py" n))) (range 30) 8)
(parallel (value-of (review (path "ünïcode 🐝"))) (status (broken)))
(broken)"""


async def look(at: str) -> str:
    """Look."""
    return f"seen {at} {HOSTILE}"


async def broken() -> str:
    """Break."""
    raise ValueError(HOSTILE)


def answer(request: ModelRequest) -> Any:
    text = request.messages[-1].text
    if "f3.py" in text:
        return {"tool_calls": [{"name": "look", "arguments": {"at": HOSTILE}}]}
    return f"# Title\n\n**bold** `code` [link](javascript:alert(1))\n\n- one\n\n```\n(x)\n```\n{HOSTILE}"


async def record(program: str, reply: Any = answer, **bindings: Any) -> list[dict[str, Any]]:
    """The events of a run as they are recorded."""
    events: list[dict[str, Any]] = []
    async with AgentFlow(provider=ScriptedProvider(reply), tools=[look, broken]) as flow:
        flow.subscribe(Report())
        flow.subscribe(lambda event: events.append(event.to_dict()))
        await flow.run(program, labels={"user": "ada"}, bindings=bindings)
    return json.loads(json.dumps(events, default=str))


@pytest.fixture
async def events() -> list[dict[str, Any]]:
    return await record(PROGRAM)


@pytest.mark.browser
async def test_the_head_says_what_the_events_say(browser: Any, events: list[dict[str, Any]], tmp_path: Path) -> None:
    """Outcome, tokens, calls, tasks and the first failure are those of the events, beside the most that the text allows."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(events))
    head = await shown.text("header")
    calls = sum(event["type"] == "model_started" for event in events)
    tasks = sum(event["type"] == "task_started" for event in events)
    usage = next(event["usage"] for event in events if event["type"] == "run_finished")
    most = next(event["most"] for event in events if event["type"] == "program_bounds")
    for expected in (
        "ok\n",
        f"model calls\n{calls} of at most {most['model_calls']}",
        f" of at most {most['width']}",
        f"tasks\n{tasks}",
        f"tokens in\n{usage['input_tokens']:,}",
        "user=ada",
    ):
        assert expected in head
    assert "ValueError: <script>" in await shown.text(".first-error") and "\\u202e" in await shown.text(".first-error")
    assert (await shown.page.title()) != "owned"
    await shown.close()


@pytest.mark.browser
async def test_the_program_is_coloured_by_what_its_forms_did(
    browser: Any, events: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The text is whole, each call is a site in its worst state, and a click shows its occurrences alone."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(events))
    assert await shown.text("pre.program") == PROGRAM
    states = await shown.page.eval_on_selector_all(
        ".site", "all => all.map(each => [each.textContent, each.className])"
    )
    assert ["(broken)", "site failed"] in states and ["(look (at x))", "site ok"] in states
    assert ['(review (path "ünïcode 🐝"))', "site ok"] in states
    await shown.page.click(".site:text-is('(look (at x))')")
    assert re.fullmatch(r"of 30, pmap \[\d+\]: ok", await shown.text(".occurrence .soft"))
    await shown.page.click("button[title='the time before']")
    assert await shown.page.input_value("[aria-label=occurrence]") == "1"
    await shown.page.fill("[aria-label=occurrence]", "7")
    await shown.page.keyboard.press("Enter")
    await shown.page.click("button[title='the next time']")
    assert await shown.page.input_value("[aria-label=occurrence]") == "8"
    branch = await shown.page.evaluate("report.chosen.parent.label")
    assert branch in await shown.text(".occurrence .soft")
    for colour in ("time", "cost"):
        await shown.page.select_option("select[aria-label='colour by']", colour)
        assert await shown.count(".program.heat .site") == len(states)
    await shown.close()


@pytest.mark.browser
async def test_the_timeline_folds_filters_and_zooms(browser: Any, events: list[dict[str, Any]], tmp_path: Path) -> None:
    """Wide forms are one row with their counts; chips and words filter, with what is around; keys move and open."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(events))
    rows = await shown.text(".rows")
    assert "pmap 30/30" in rows and "parallel [0]" in rows and "attempt" not in rows
    before = await shown.page.evaluate("report.timeline.rows.length")
    await shown.page.click("[data-chip=failed]")
    labels = await shown.page.eval_on_selector_all(".row .label", "all => all.map(each => each.textContent)")
    assert any("broken" in label for label in labels) and not any("look" in label for label in labels)
    await shown.page.click("[data-chip=failed]")
    assert await shown.page.evaluate("report.timeline.rows.length") == before
    await shown.page.fill("input[aria-label=filter]", "f29.py")
    assert "pmap [29]" in await shown.text(".rows") and "pmap [28]" not in await shown.text(".rows")
    await shown.page.fill("input[aria-label=filter]", "")
    await shown.page.focus(".rows")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown", "Enter"):
        await shown.page.keyboard.press(key)
    assert await shown.page.is_visible("aside") and "pmap [0]" in await shown.text("aside h2")
    await shown.page.keyboard.press("Escape")
    assert not await shown.page.is_visible("aside")
    await shown.page.click("button[title^='zoom in']")
    assert await shown.page.evaluate("report.timeline.zoom") == 2
    await shown.close()


@pytest.mark.browser
async def test_a_model_call_is_shown_whole_and_inert(
    browser: Any, events: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Messages are Markdown built as elements, links lead nowhere, markup is text; the JSON and a test are at hand."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(events))
    await shown.page.evaluate(
        "report.choose([...report.run.nodes.values()].filter(n => n.kind === 'model' && n.end.stop_reason === 'end')[0], true)"
    )
    aside = await shown.text("aside")
    assert "object HTML" not in aside and "stop reason" in aside
    assert "Review f" in aside and "<script>document.title" in aside and "Title" in aside
    assert (
        await shown.count("aside .link") == 1
        and await shown.count("aside strong") >= 2
        and await shown.count("aside li") >= 1
    )
    await shown.page.click("[data-view=JSON]")
    assert '"max_output_tokens"' in await shown.text("aside .json")
    assert "ScriptedProvider([" in await shown.page.evaluate(
        "asTest(report.chosen.start.request, report.chosen.end.response)"
    )
    await shown.close()


@pytest.mark.browser
async def test_two_runs_are_joined_by_path_and_place(browser: Any, tmp_path: Path) -> None:
    """Equal steps, changed inputs, changed outputs and steps of one run only are told apart, with a word difference."""
    task = '(defatom t (params (x)) (instructions "{{x}}") (history_config (use_session_history false)))'
    text = task + ' (list (t (x "same")) (t (x word)) (t (x "out")) EXTRA)'
    before = await record(text.replace("EXTRA", ""), ["a", "b", "one answer"], word="old word")
    after = await record(text.replace("EXTRA", '(t (x "more"))'), ["a", "b", "another answer", "d"], word="new word")
    shown = await Page.open(browser, tmp_path / "r.html", report_html(after, before))
    await shown.page.click("#compare")
    kinds = await shown.page.eval_on_selector_all("aside details", "all => all.map(each => each.dataset.change)")
    assert sorted(kinds) == ["input"] * 2 + ["output"] * 2 + ["second"] * 2
    await shown.page.click("aside details[data-change='input'] summary")
    await shown.page.wait_for_selector("aside ins")
    assert "new" in await shown.text("aside ins") and "old" in await shown.text("aside del")
    await shown.close()


@pytest.mark.browser
async def test_many_events_are_few_elements(browser: Any, events: list[dict[str, Any]], tmp_path: Path) -> None:
    """50,000 events stay below 1,000 elements, wherever one scrolls."""
    many = [dict(event) for event in events[:-1]]
    tail = events[-1]
    seq = events[-1]["seq"]
    root = events[0]["seq"]
    time = events[-1]["time"]
    for at in range(24_600):
        begun = {
            "type": "tool_started",
            "slice": 1,
            "seq": seq,
            "path": f"0/9.{at}",
            "parent": root,
            "span": None,
            "time": time,
            "name": f"t{at}",
            "arguments": {"at": at},
        }
        many += [
            begun,
            {
                **begun,
                "type": "tool_finished",
                "seq": seq + 1,
                "parent": seq,
                "started": seq,
                "outcome": "ok",
                "duration_s": 0.0,
            },
        ]
        seq += 2
    many.append({**tail, "seq": seq})
    html = report_html(many)
    assert len(many) > 49_000 and len(html) < 2_000_000
    shown = await Page.open(browser, tmp_path / "r.html", html)
    assert await shown.page.evaluate("report.timeline.rows.length") > 24_000
    for share in (0, 0.3, 0.7, 1):
        await shown.page.evaluate(
            "s => { report.timeline.list.scrollTop = s * report.timeline.list.scrollHeight }", share
        )
        await shown.page.wait_for_timeout(50)
        assert await shown.count("*") < 1_000
    assert "t24599" in await shown.text(".rows")
    await shown.close()


async def test_a_report_requests_nothing_and_runs_only_its_own_script(events: list[dict[str, Any]]) -> None:
    """One file: no address in it but those of the run's data, a policy that names script and style by hash."""
    html = report_html(events)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None and "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    assert HOSTILE not in html and "http://" not in html and "https://" not in html and " src=" not in html


async def test_long_texts_are_stored_once_and_cut(tmp_path: Path) -> None:
    """A text of megabytes that every turn sends is in the file once, up to a limit, with the length that was cut."""
    huge = "x" * (10 * MAX_TEXT)
    events = await record(
        '(defatom t (params (x)) (instructions "{{x}}")) (loop 3 (t (x text)))', ["a", "b", "c"], text=huge
    )
    html = report_html(events)
    data = re.search(r'id="data">([^<]+)<', html)
    assert data is not None
    texts = json.loads(gzip.decompress(b64decode(data[1])))["texts"]
    long = [text for text in texts if len(text) > MAX_TEXT]
    assert len(long) <= 2 and all("more characters are left out]" in text for text in long)


async def test_a_report_is_written_of_a_run_that_was_seen(tmp_path: Path) -> None:
    """The observer keeps every run apart; one that it did not see is named, and the file is its owner's."""
    report = Report()
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        flow.subscribe(report)
        await flow.run("(+ 1 2)", run_id="one")
        await flow.run("(+ 3 4)", run_id="two")
    path = tmp_path / "out" / "r.html"
    await report.write(path, "one")
    assert path.stat().st_mode & 0o777 == 0o600 and "<title>" in path.read_text()
    with pytest.raises(ConfigurationError, match="no run 'three' was seen"):
        await report.write(path, "three")


def data_of(html: str) -> dict[str, Any]:
    """The data in a report, packed as it is."""
    found = re.search(r'id="data">([^<]+)<', html)
    assert found is not None
    return json.loads(gzip.decompress(b64decode(found[1])))


async def test_a_crowd_of_steps_is_counted(events: list[dict[str, Any]]) -> None:
    """Past the limit steps that went well and hold nothing are left out and counted at what holds them; failures stay."""
    whole = data_of(report_html(events))["runs"][0]
    few = data_of(report_html(events, max_steps=10))["runs"][0]
    looks = [event for event in whole if event["type"] == "tool_started" and event["name"] == "look"]
    left = [event for event in few if event["type"] == "tool_started"]
    assert len(looks) >= 30 and {event["name"] for event in left} == {"broken"}
    assert sum(event.get("folded", 0) for event in few) >= len(looks)
    assert sum(event["type"] == "branch_started" for event in few) == sum(
        event["type"] == "branch_started" for event in whole
    )


@pytest.mark.browser
async def test_the_path_that_the_end_waited_for_is_marked(browser: Any, tmp_path: Path) -> None:
    """Of branches side by side the one that ended last is critical, with what it did; the others are not."""

    told = [
        event("run_started", 1, 0.0, None, name="p"),
        event("branch_started", 2, 0.0, 1, form="parallel", index=0),
        event("branch_started", 3, 0.0, 1, form="parallel", index=1),
        event("tool_started", 4, 0.1, 3, name="slow"),
        ended("branch_finished", 5, 1.0, 2),
        ended("tool_finished", 6, 2.0, 4),
        ended("branch_finished", 7, 2.0, 3),
        event("tool_started", 8, 2.0, 1, name="last"),
        ended("tool_finished", 9, 3.0, 8),
        ended("run_finished", 10, 3.0, 1),
    ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    critical = await shown.page.evaluate("[...report.run.nodes.values()].filter(n => n.critical).map(n => n.label)")
    assert sorted(critical) == ["last", "p", "parallel [1]", "slow"]
    await shown.close()
