"""How a report looks: what stands where, what each state of a run says, and that it is the same code for a live page."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from base64 import b64encode
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentflow.observe.report.html import report_html
from tests.support.report_page import Page, chromium, ended, event

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "(parallel\n  (fast)\n  (slow))"
SITE = {"source": "p.sexp", "line": 1, "column": 1, "end_line": 3, "end_column": 10}


def call(line: int) -> dict[str, Any]:
    return {"source": "p.sexp", "line": line, "column": 3, "end_line": line, "end_column": 9}


def two_branches() -> list[dict[str, Any]]:
    """A run of 10 s: one branch for 4 s in a tool, one for 8 s, of which 2 s waiting for the rate limit, then a failure."""
    return [
        event("run_started", 1, 100.0, None, name="p.sexp"),
        event("program_loaded", 2, 100.0, 1, name="p.sexp", text=TEXT, digest="d", language="sexp"),
        event("branch_started", 3, 100.0, 1, form="parallel", index=0, count=2, span=SITE),
        event("branch_started", 4, 100.0, 1, form="parallel", index=1, count=2, span=SITE),
        event("tool_started", 5, 100.0, 3, name="fast", arguments={}, span=call(2)),
        event("wait_started", 6, 100.0, 4, reason="rate", span=call(3)),
        ended("wait_finished", 7, 102.0, 6),
        event("tool_started", 8, 102.0, 4, name="slow", arguments={}, span=call(3)),
        ended("tool_finished", 9, 104.0, 5),
        ended("branch_finished", 10, 104.0, 3),
        ended("tool_finished", 11, 108.0, 8, outcome="error", error={"code": "tool/broken", "message": "no more"}),
        ended("branch_finished", 12, 108.0, 4, outcome="error"),
        ended("run_finished", 13, 110.0, 1, outcome="error", cost_usd=0.0, usage={"input_tokens": 0}),
    ]


async def bars(shown: Page) -> dict[str, dict[str, float]]:
    """The bars of the timeline by the text of their rows, in percent of the track."""
    return await shown.page.evaluate("""() => Object.fromEntries([...document.querySelectorAll('.row:not([hidden])')].map((row) => {
      const track = row.querySelector('.track').getBoundingClientRect(), bar = row.querySelector('.track > .span').getBoundingClientRect();
      return [row.querySelector('.name').textContent, { left: 100 * (bar.left - track.left) / track.width,
        width: 100 * bar.width / track.width, top: row.getBoundingClientRect().top, height: row.getBoundingClientRect().height }];
    }))""")


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 420])
async def test_bars_stand_where_their_times_are(browser: Any, tmp_path: Path, width: int) -> None:
    """Left and width of each bar are its begin and length on the scale of the run; rows follow one another without gaps."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(two_branches()), width=width)
    drawn = await bars(shown)
    expected = {
        "p.sexp": (0, 100),
        "parallel [0]": (0, 40),
        "fast": (0, 40),
        "parallel [1]": (0, 80),
        "waits for the rate limit": (0, 20),
        "slow": (20, 60),
    }
    assert list(drawn) == list(expected)
    for name, (left, length) in expected.items():
        assert drawn[name]["left"] == pytest.approx(left, abs=1.5) and drawn[name]["width"] == pytest.approx(
            length, abs=1.5
        )
    tops = [each["top"] for each in drawn.values()]
    assert [b - a for a, b in pairwise(tops)] == [22] * 5
    await shown.page.evaluate("report.timeline.scale(2, 0)")
    drawn = await bars(shown)
    assert drawn["fast"]["width"] == pytest.approx(80, abs=1.5) and drawn["slow"]["left"] == pytest.approx(40, abs=1.5)
    assert await shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await shown.close()


@pytest.mark.browser
async def test_waits_and_states_are_told_apart(browser: Any, tmp_path: Path) -> None:
    """A wait is drawn by its reason, unlike work, and the legend names it; the failure is first on the page and red."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(two_branches()))
    assert await shown.count(".row .span.wait.rate") == 1 and "waits for the rate limit" in await shown.text(".legend")
    colours = await shown.page.evaluate("""() => ['.row .span.wait', '.row .span.tool:not(.failed)', '.row .span.tool.failed', '.row .span.branch']
      .map((name) => { const style = getComputedStyle(document.querySelector(name)); return style.backgroundImage + style.backgroundColor; })""")
    assert len(set(colours)) == 4
    assert "tool/broken no more" in await shown.text(".banner.first-error")
    await shown.page.click(".banner.first-error button")
    assert "slow" in await shown.text("aside h2") and "tool/broken" in await shown.text(".failure")
    sites = await shown.page.eval_on_selector_all(".site", "all => all.map(each => [each.textContent, each.className])")
    assert ["(fast)", "site ok"] in sites and ["(slow)", "site failed shown"] in sites
    await shown.page.select_option("select[aria-label='colour by']", "time")
    heat = await shown.page.eval_on_selector_all(
        ".site", "all => all.map(each => Number(each.style.getPropertyValue('--heat')))"
    )
    assert heat == pytest.approx([0.8, 0.4, 0.8])  # branches at the same time count once
    await shown.page.focus(".site >> text='(fast)'")
    await shown.page.keyboard.press("Enter")
    assert "fast" in await shown.text("aside h2") and "1 time" in await shown.text(".tip")
    await shown.close()


@pytest.mark.browser
async def test_a_live_page_folds_the_same_events_one_at_a_time(browser: Any, tmp_path: Path) -> None:
    """A page that gets the events one by one, shown after each, ends as the page that had them all."""
    told = two_branches()
    whole = await Page.open(browser, tmp_path / "a.html", report_html(told))
    live = await Page.open(browser, tmp_path / "b.html", report_html(told[:1]))
    state = "() => [document.querySelector('header').innerText, document.querySelector('.program').innerHTML, document.querySelector('.rows').innerText]"
    assert "not ended" in await live.text("header")
    for each in told[1:]:
        await live.page.evaluate("event => { report.run.apply(event); report.update(); }", each)
    assert await live.page.evaluate(state) == await whole.page.evaluate(state)
    await live.close()
    await whole.close()


@pytest.mark.browser
async def test_who_loses_a_race_is_well(browser: Any, tmp_path: Path) -> None:
    """A race that has a winner is coloured by it, and its end waited for the winner, though the loser ended last; one in which all were
    cancelled was stopped.
    """
    told = [
        event("run_started", 1, 0.0, None, name="p"),
        event("program_loaded", 2, 0.0, 1, name="p.sexp", text=TEXT, digest="d", language="sexp"),
        event("branch_started", 3, 0.0, 1, form="race", index=0, count=2, span=SITE),
        event("branch_started", 4, 0.0, 1, form="race", index=1, count=2, span=SITE),
        ended("branch_finished", 5, 4.0, 3),
        ended("branch_finished", 6, 4.1, 4, outcome="cancelled"),
        ended("run_finished", 7, 4.1, 1),
    ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    assert await shown.page.get_attribute(".site", "class") == "site ok"
    critical = await shown.page.evaluate("[...report.run.nodes.values()].filter(n => n.critical).map(n => n.label)")
    assert critical == ["p", "race [0]"]
    await shown.close()
    told[4]["outcome"] = "cancelled"
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    assert await shown.page.get_attribute(".site", "class") == "site stopped"
    await shown.close()


@pytest.mark.browser
async def test_of_a_long_conversation_the_end_is_shown(browser: Any, tmp_path: Path) -> None:
    """The last messages and the answer of a call stand open, those before them are folded until somebody wants them."""
    messages = [{"role": "user", "parts": [{"type": "text", "text": f"message {at}"}]} for at in range(500)]
    told = [
        event("run_started", 1, 0.0, None, name="p"),
        event("model_started", 2, 0.0, 1, model="m", request={"messages": messages}),
        ended("model_finished", 3, 1.0, 2, response={"parts": [{"type": "text", "text": "the answer"}]}),
    ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    await shown.page.evaluate("report.choose(report.run.nodes.get(2), true)")
    assert await shown.count("aside .message") == 7 and "the answer" in await shown.text("aside")
    await shown.page.click("aside summary")
    await shown.page.wait_for_selector("aside details .message")
    assert "message 493" in await shown.text("aside details") and await shown.count("*") < 1_000
    await shown.close()


@pytest.mark.browser
async def test_what_a_model_is_writing_is_shown_as_it_comes(browser: Any, tmp_path: Path) -> None:
    """Pieces of an answer that is not whole yet stand in the step's conversation."""
    told = [
        event("run_started", 1, 0.0, None, name="p"),
        event("model_started", 2, 0.0, 1, model="m", request={"messages": []}),
    ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    for at, text in enumerate(("Half an ", "answer")):
        await shown.page.evaluate("event => report.run.apply(event)", event("text_delta", 3 + at, 1.0, 2, text=text))
    await shown.page.evaluate("report.update(); report.choose(report.run.nodes.get(2), true)")
    assert "answer so far" in await shown.text("aside") and "Half an answer" in await shown.text("aside")
    await shown.close()


@pytest.mark.browser
async def test_a_run_that_waits_says_what_for(browser: Any, tmp_path: Path) -> None:
    """The question and the command that answers it are first on the page; the time away is not on the scale of time."""
    key = "ab12"
    told = [
        event("run_started", 1, 0.0, None, name="p"),
        event("wait_started", 2, 1.0, 1, reason="question", key="old1", question="Ready?"),
        ended("wait_finished", 3, 2.0, 2, outcome="suspended"),
        ended("run_finished", 4, 2.0, 1, outcome="suspended"),
        event("run_started", 1, 90_000.0, None, name="p", slice=2),
        event("wait_started", 2, 90_001.0, 1, reason="approval", key=key, question="Deploy \u202eit?", slice=2),
        ended("wait_finished", 3, 90_002.0, 2, outcome="suspended", slice=2),
        ended("run_finished", 4, 90_002.0, 1, outcome="suspended", slice=2),
    ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    head = await shown.text("header")
    assert head.startswith("waiting") and "Deploy \\u202eit?" in head and f"agentflow runs send r {key} VALUE" in head
    assert "Ready?" not in head and "4.00 s" in head
    assert await shown.count(".row:not([hidden]) .span.approval") == 1
    await shown.close()


@pytest.mark.browser
async def test_empty_pages_say_so(browser: Any, tmp_path: Path) -> None:
    """A run without text, one that has only begun and a filter that nothing fits are not blank."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html([event("run_started", 1, 0.0, None, name="p")]))
    assert "not in the recording" in await shown.text(".program") and "not ended" in await shown.text("header")
    await shown.page.fill("input[aria-label=filter]", "nothing is called so")
    assert "No step fits" in await shown.text(".chart .empty")
    await shown.page.click(".chart .empty button")
    assert await shown.count(".row:not([hidden])") == 1
    assert "null" not in await shown.text("body")
    await shown.close()


@pytest.mark.browser
async def test_any_text_is_coloured_by_its_spans(browser: Any, tmp_path: Path) -> None:
    """The text of a Python workflow is shown as that of a program: its calls are sites, with what they did."""
    text = "async def audit(paths):\n    # each file\n    return await review('ü🐝', paths)\n"
    site = {"source": "flow.py", "line": 3, "column": 18, "end_line": 3, "end_column": 37}
    told = [
        event("run_started", 1, 0.0, None, name="audit"),
        event("program_loaded", 2, 0.0, 1, name="flow.py", text=text, digest="d", language="python"),
        event("task_started", 3, 0.0, 1, name="review", span=site),
        ended("task_finished", 4, 2.0, 3, name="review", outcome="failed"),
        ended("run_finished", 5, 2.0, 1),
    ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    assert await shown.page.eval_on_selector_all(
        ".site", "all => all.map(each => [each.textContent, each.className])"
    ) == [["review('ü🐝', paths)", "site failed"]]
    assert await shown.page.evaluate("CSS.highlights.get('comment').size") == 1
    assert await shown.page.evaluate("CSS.highlights.get('word').size") >= 4
    await shown.page.hover(".site")
    assert "1 time, 1 failed" in await shown.text(".tip")
    await shown.close()


def long_text() -> tuple[str, list[dict[str, Any]]]:
    """A text of 250 KB, and a run of it in which every second line was a call; the last one failed."""
    lines = [f'(list (call "number {at}") {at}) ; {"it is one of many lines " * 7}' for at in range(1_200)]
    told = [
        event("run_started", 1, 0.0, None, name="p"),
        event("program_loaded", 2, 0.0, 1, name="p.sexp", text="\n".join(lines), digest="d", language="sexp"),
    ]
    for at in range(0, len(lines), 2):
        line, until = at + 1, len(f'(list (call "number {at}")') + 1
        site = {"source": "p.sexp", "line": line, "column": 7, "end_line": line, "end_column": until}
        told.append(event("tool_started", 3 + at, at / 1000, 1, name="call", arguments={}, span=site))
        outcome = "ok" if at + 2 < len(lines) else "failed"
        told.append(ended("tool_finished", 4 + at, (at + 1) / 1000, 3 + at, outcome=outcome))
    return "\n".join(lines), [*told, ended("run_finished", 9_000, 9.0, 1)]


@pytest.mark.browser
async def test_of_a_long_text_the_lines_in_view_are_elements(browser: Any, tmp_path: Path) -> None:
    """A text of 250 KB keeps the page below 1,000 elements wherever one reads, with each line at its number; a step's place, the search
    and the keyboard reach every line, and on paper the text is whole.
    """
    text, told = long_text()
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    for share in (0, 0.4, 1):
        await shown.page.evaluate(
            "s => { const pane = report.program.scroll; pane.scrollTop = s * pane.scrollHeight }", share
        )
        await shown.page.evaluate("new Promise(requestAnimationFrame)")
        seen = await shown.page.evaluate(
            "() => { const pane = report.program.scroll.getBoundingClientRect();"
            " const box = [...document.querySelectorAll('.site')].find((each) => each.getBoundingClientRect().top > pane.top + 40);"
            " return [box.textContent, Math.round((box.getBoundingClientRect().top - pane.top + report.program.scroll.scrollTop - 12) / 20)] }"
        )
        assert seen[0] == f'(call "number {seen[1]}")' and await shown.count("*") < 1_000
    assert await shown.count(".site.failed") == 1 and "number 1198" in await shown.text(".program")
    await shown.page.fill("[aria-label='find in the program']", "NUMBER 60")
    await shown.page.keyboard.press("Enter")
    assert await shown.text(".find [role=status]") == "2 of 11" and 'number 600"' in await shown.text(".program")
    assert await shown.page.evaluate("report.program.gutter.textContent.split('\\n').includes('601')")
    await shown.page.evaluate("report.choose(report.run.nodes.get(3 + 400), true)")
    await shown.page.click("aside button:text-is('show in the program')")
    assert await shown.text(".site.shown") == '(call "number 400")'
    await shown.page.focus(".site.shown")
    last = int(
        await shown.page.evaluate("[...document.querySelectorAll('.site')].at(-1).textContent.match(/[0-9]+/)[0]")
    )
    await shown.page.evaluate("[...document.querySelectorAll('.site')].at(-1).focus()")
    await shown.page.evaluate("new Promise(requestAnimationFrame)")
    await shown.page.keyboard.press("Tab")
    assert await shown.page.evaluate("document.activeElement.textContent") == f'(call "number {last + 2}")'
    await shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert await shown.text(".program") == text
    await shown.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert await shown.count("*") < 1_000
    await shown.close()


@pytest.mark.browser
async def test_the_text_that_did_the_work_is_shown_first(browser: Any, tmp_path: Path) -> None:
    """Of several texts the first in which more than one call ran is shown, unless the reader picks another; a step brings its own."""
    python = "async def audit():\n    one()\n    two()\n"
    calls = [{"source": "audit.py", "line": line, "column": 5, "end_line": line, "end_column": 10} for line in (2, 3)]
    whole = {"source": "main", "line": 1, "column": 1, "end_line": 1, "end_column": 8}
    told = [
        event("run_started", 1, 0.0, None, name="main"),
        event("program_loaded", 2, 0.0, 1, name="main", text="(audit)", digest="a", language="sexp"),
        event("tool_started", 3, 0.0, 1, name="audit", arguments={}, span=whole),
        event("program_loaded", 4, 0.0, 3, name="audit.py", text=python, digest="b", language="python"),
        event("tool_started", 5, 0.0, 3, name="one", arguments={}, span=calls[0]),
        ended("tool_finished", 6, 1.0, 5),
        event("tool_started", 7, 1.0, 3, name="two", arguments={}, span=calls[1]),
        ended("tool_finished", 8, 2.0, 7),
        ended("tool_finished", 9, 2.0, 3),
        ended("run_finished", 10, 2.0, 1),
    ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told))
    assert (await shown.text(".program")).startswith("async def")
    await shown.page.select_option("select[aria-label=program]", "main")
    await shown.page.evaluate("report.update()")
    assert await shown.text(".program") == "(audit)"
    await shown.page.evaluate("report.choose(report.run.nodes.get(7), true)")
    assert await shown.text(".site.shown") == "two()"
    await shown.close()


@pytest.mark.browser
async def test_hostile_content_stays_text(browser: Any, tmp_path: Path) -> None:
    """Markup, text of megabytes, and characters that reorder or hide text, in every name and text of a run, are shown as they are."""
    bad = "<img src=x onerror=alert(1)></script><script>document.title='owned'</script>\u202e\u2066\u200b\x00"
    huge = bad + "x" * 10_000_000
    message = {"role": "user", "parts": [{"type": "text", "text": huge}, {"type": bad}]}
    answer = {"parts": [{"type": "text", "text": bad}, {"type": "tool_call", "name": bad, "arguments": {bad: bad}}]}
    told = [
        event("run_started", 1, 0.0, None, name=bad, labels={bad: bad}),
        event("program_loaded", 2, 0.0, 1, name=bad, text=f"; {bad}\n(f)", digest="d"),
        event("warning", 3, 0.0, 1, code=bad, message=bad),
        event("task_started", 4, 0.0, 1, name=bad, request={"name": bad}),
        event(
            "model_started",
            5,
            0.0,
            4,
            model=bad,
            request={"system": bad, "messages": [message], "tools": [{"name": bad}]},
        ),
        ended("model_finished", 6, 1.0, 5, response=answer, stop_reason=bad),
        ended("task_finished", 7, 1.0, 4, outcome="failed", error={"code": bad, "message": huge, "hint": bad}),
        ended("run_finished", 8, 2.0, 1, outcome="error", error={"code": bad, "message": bad}),
    ]
    html = report_html(told, told)
    assert len(html) < 300_000 and "onerror" not in html.partition("<body>")[2].replace("onerror=alert", "")
    shown = await Page.open(browser, tmp_path / "r.html", html)
    for seq in (1, 4, 5):
        await shown.page.evaluate("seq => report.choose(report.run.nodes.get(seq), true)", seq)
        for view in await shown.page.query_selector_all("[data-view]"):
            await view.click()
    await shown.page.click("#compare")
    text = await shown.text("body")
    assert "owned" not in (await shown.page.title()).replace("document.title='owned'", "")
    assert not set("\u202e\u2066\u200b") & set(text) and "<img src=x" in text
    assert await shown.count("*") < 1_000
    await shown.close()


@pytest.mark.browser
async def test_dark_light_and_paper(browser: Any, tmp_path: Path) -> None:
    """The page is dark where the reader's screen is, until the button says otherwise; on paper it is light, whole and without
    buttons.
    """
    told = two_branches()
    for at in range(60):  # more rows than a screen has
        told[-1:-1] = [
            event("tool_started", 20 + at, 108.5, 1, name=f"t{at}"),
            ended("tool_finished", 120 + at, 109.0, 20 + at),
        ]
    shown = await Page.open(browser, tmp_path / "r.html", report_html(told), scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = await shown.page.evaluate(ground)
    await shown.page.click("button[aria-label='light or dark']")
    light = await shown.page.evaluate(ground)
    assert light != dark
    await shown.page.click("button[aria-label='light or dark']")
    assert await shown.page.evaluate(ground) == dark
    assert "t59" not in await shown.text(".rows")
    await shown.page.emulate_media(media="print", color_scheme="dark")
    await shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert await shown.count(".row:not([hidden])") == 66 and "t59" in await shown.text(".rows")
    assert not await shown.page.is_visible(".bar") and await shown.page.is_visible("pre.program")
    await shown.page.emulate_media(media="screen")
    await shown.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert "t59" not in await shown.text(".rows")
    await shown.close()


KEPT = Path(__file__).parent / "report_page.json"
MASK = "*, *::before { color: transparent !important; text-decoration-color: transparent !important; caret-color: transparent !important }"


@pytest.mark.slow
@pytest.mark.browser
async def test_the_page_looks_as_it_did(browser: Any, tmp_path: Path) -> None:
    """One screenshot with its text masked, reduced to a grid of 64 by 40 colours, is as the one kept here: a page of which a part is
    missing, moved or without its colours differs in many cells. ``python -m tests.observe.test_report_views`` writes it anew.
    """
    kept = json.loads(KEPT.read_text())
    seen = await looks(browser, tmp_path)
    apart = [
        at
        for at, (a, b) in enumerate(zip(kept, seen, strict=True))
        if max(abs(x - y) for x, y in zip(a, b, strict=True)) > 24
    ]
    assert len(apart) <= len(kept) * 0.01, f"{len(apart)} of {len(kept)} cells differ: {apart}"


async def looks(browser: Any, directory: Path) -> list[list[int]]:
    """The mean colours of the cells of a report with its text masked."""
    shown = await Page.open(browser, directory / "r.html", report_html(two_branches()), width=1280)
    await shown.page.evaluate("report.choose(report.run.nodes.get(8), true)")
    await shown.page.evaluate(
        "css => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css); document.adoptedStyleSheets = [sheet]; }",
        MASK,
    )
    picture = await shown.page.screenshot()
    await shown.close()
    blank = await browser.new_page()
    cells = await blank.evaluate(
        """async (data) => {
          const image = new Image();
          image.src = data;
          await image.decode();
          const canvas = Object.assign(document.createElement('canvas'), { width: 64, height: 40 }), brush = canvas.getContext('2d');
          brush.imageSmoothingQuality = 'high';
          brush.drawImage(image, 0, 0, 64, 40);
          const bytes = brush.getImageData(0, 0, 64, 40).data;
          return Array.from({ length: 2560 }, (_, at) => [...bytes.slice(at * 4, at * 4 + 3)]);
        }""",
        f"data:image/png;base64,{b64encode(picture).decode()}",
    )
    await blank.close()
    return cells


async def main() -> None:
    """Keep how the page looks now."""
    path = shutil.which("chromium")
    assert path is not None
    with tempfile.TemporaryDirectory() as directory:
        async with chromium(path) as browser:
            cells = await looks(browser, Path(directory))
    KEPT.write_text(json.dumps(cells, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    asyncio.run(main())


def approved_late(outcome: str = "ok") -> list[dict[str, Any]]:
    """A run of three days: 4 s of a task whose tool fails once, three days for an approval, 6 s of a tool."""
    days = 3 * 86_400.0
    broken = {"code": "tool/broken", "message": "no such file"}
    return [
        event("run_started", 1, 100.0, None, name="p.sexp"),
        event("task_started", 2, 100.0, 1, name="plan"),
        event("tool_started", 3, 101.0, 2, name="read", arguments={}),
        ended("tool_finished", 4, 102.0, 3, outcome="error", error=broken),
        ended("task_finished", 5, 104.0, 2, outcome=outcome, **({} if outcome == "ok" else {"error": broken})),
        event("wait_started", 6, 104.0, 1, reason="approval", key="k", question="Send it?"),
        ended("wait_finished", 7, 104.0 + days, 6),
        event("tool_started", 8, 104.0 + days, 1, name="send", arguments={}),
        ended("tool_finished", 9, 110.0 + days, 8),
        ended("run_finished", 10, 110.0 + days, 1, outcome=outcome, cost_usd=0.0, usage={"input_tokens": 0}),
    ]


@pytest.mark.browser
async def test_a_long_wait_for_people_is_drawn_short(browser: Any, tmp_path: Path) -> None:
    """Three days in which nothing but an approval was waited for take a few columns: the work keeps its proportions, the
    row keeps its length in words, and the head says how much of the time it was."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(approved_late()))
    drawn = await bars(shown)
    assert drawn["waits for approval"]["width"] < 8
    assert drawn["plan"]["width"] == pytest.approx(38, abs=3) and drawn["send"]["width"] == pytest.approx(57, abs=4)
    assert drawn["send"]["left"] + drawn["send"]["width"] == pytest.approx(100, abs=1.5)
    assert "3 d 0 h" in await shown.text(".rows") and "⋯ 3 d 0 h" in await shown.text(".grid .pause")
    about = await shown.page.get_attribute(".figures div", "title")
    assert about == "of which 3 d 0 h for people"
    axis = "report.timeline.axis"
    for time in (100.0, 103.0, 104.0 + 86_400, 108.0 + 3 * 86_400):
        assert await shown.page.evaluate(f"{axis}.real({axis}.drawn({time}))") == pytest.approx(time - 100, abs=1e-3)
    await shown.close()


@pytest.mark.browser
async def test_an_error_that_the_model_recovered_from_is_no_banner(browser: Any, tmp_path: Path) -> None:
    """A tool that failed in a task which succeeded is counted, and no banner; one whose task failed is the first failure."""
    shown = await Page.open(browser, tmp_path / "r.html", report_html(approved_late()))
    assert await shown.count(".banner") == 0 and "recovered errors\n1" in await shown.text("header")
    await shown.close()
    shown = await Page.open(browser, tmp_path / "f.html", report_html(approved_late("error")))
    assert "tool/broken no such file" in await shown.text(".banner.first-error.failed")
    assert "failed steps\n3" in await shown.text("header") and "recovered" not in await shown.text("header")
    await shown.close()
