"""What a report costs: ``python tests/benchmarks/report_cost.py [--events 50000]``.

Writes the report of a run of so many events and of a program of 250 KB, opens it in chromium and scrolls through both: seconds of processor time to make it, bytes,
seconds until it is ready in the browser, elements, and the longest task of the browser while it scrolls: by the clock, as a person would
notice it, and its processor time by the browser's own trace, which says what it would be on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.observe.report.html import report_html

LINES = 4_000
PROGRAM = """(defatom t (params (x)) (instructions "Describe {{x}} in one line, please.") (history_config (use_session_history false)))
(pmap (lambda (n) (value-of (t (x (format "item {}" n))))) (range n) 50)"""
SCROLL = """async () => {
  const long = [];
  new PerformanceObserver((list) => long.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask" });
  for (const list of [report.timeline.list, report.program.scroll])
    for (let at = 0; at <= 200; at += 1) {
      list.scrollTop = (list.scrollHeight * at) / 200;
      await new Promise(requestAnimationFrame);
    }
  await new Promise((resolve) => setTimeout(resolve, 100));
  return Math.max(0, ...long);
}"""


async def events_of(count: int) -> list[dict[str, Any]]:
    """The records of a run of at least ``count`` events."""
    events: list[dict[str, Any]] = []
    calls = "\n".join(f'(t (x "number {line}")) ; one of many lines of a long program' for line in range(LINES // 8))
    rest = "\n".join(f"(define (double-{line} x) (* {line} (+ x x))) ; it is not called" for line in range(LINES))
    program = f"{PROGRAM}\n{calls}\n{rest}"
    async with AgentFlow(provider=ScriptedProvider(lambda request: f"It is {request.messages[-1].text}")) as flow:
        flow.subscribe(lambda event: events.append(event.to_dict()))
        await flow.run(program, bindings={"n": count // 17 + 1}, limits=Limits(nodes=20 * LINES))
    return events


def busiest_task(trace: dict[str, Any]) -> float:
    """The most processor time, in milliseconds, that a task of the page's main thread took."""
    events = trace["traceEvents"]
    mains = {
        (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"
    }
    tasks = [e for e in events if e.get("ph") == "X" and (e["pid"], e["tid"]) in mains and "RunTask" in e["name"]]
    return max((e.get("tdur", 0) / 1_000 for e in tasks), default=0.0)


async def measure(count: int) -> None:
    """Print the figures."""
    events = await events_of(count)
    began = time.process_time()
    html = report_html(events)
    made = time.process_time() - began
    print(f"{len(events):,} events: made in {made:.2f} s of CPU (3), {len(html) / 1e6:.2f} MB (2)")
    path = shutil.which("chromium")
    if path is None:
        print("no chromium here: not opened")
        return
    from playwright.async_api import async_playwright

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "run.html"
        await asyncio.to_thread(file.write_text, html, "utf-8")
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": 1500, "height": 900})
            await page.goto(file.as_uri())
            await page.wait_for_function("globalThis.report")
            ready = await page.evaluate("performance.now()") / 1000
            # every branch opened, so that there is something to scroll through
            await page.evaluate("report.timeline.closed.clear(); report.timeline.refresh()")
            longest = await page.evaluate(SCROLL)
            await browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
            await page.evaluate(SCROLL)
            busiest = busiest_task(json.loads(await browser.stop_tracing()))
            nodes = await page.evaluate("document.querySelectorAll('*').length")
            rows = await page.evaluate("report.timeline.rows.length")
            await browser.close()
    print(
        f"ready after {ready:.2f} s (1.5); {nodes} elements for {rows:,} rows (1,000); longest task while scrolling {longest:.0f} ms (50), "
        f"{busiest:.0f} ms of CPU"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    asyncio.run(measure(parser.parse_args().events))
