"""The live page in a browser: runs shown while they run, what they ask answered from it, and nothing of theirs as markup."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentflow import AgentFlow, Limits, ScriptedProvider, tool
from agentflow.serve import Export
from tests.scale.workers import detached, working
from tests.support.report_page import Page, chromium
from tests.support.serve_clients import by, keys_of
from tests.support.served import Served, served

CHROMIUM = shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not CHROMIUM, reason="needs chromium: apt-get install chromium"),
]
MEAN = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    async with chromium(CHROMIUM) as browser:
        yield browser


async def until(page: Page, expression: str) -> None:
    """Wait until an expression is true in the page, whose policy forbids that it looks itself."""
    while not await page.page.evaluate(f"Boolean({expression})"):
        await asyncio.sleep(0.02)


async def shown(browser: Any, server: Served) -> Page:
    page = Page(await browser.new_page(viewport={"width": 1500, "height": 900}))
    await page.page.goto(f"{server.url}/")
    await until(page, "globalThis.live")
    return page


async def opened(browser: Any, server: Served, key: str) -> Page:
    """The page of a server with keys, after one was given."""
    page = await shown(browser, server)
    await page.page.wait_for_selector("input[type=password]:visible")
    await page.page.fill("input[type=password]", key)
    await page.page.click("button:has-text('use this key')")
    await until(page, "globalThis.report")
    return page


async def test_a_run_is_begun_watched_and_approved_from_the_page(browser: Any) -> None:
    """Begun by its form, waiting until Yes is clicked; its answer streams in; the page asks its own server and nobody else."""
    paid: list[str] = []

    @tool(approval=True)
    def pay(note: str) -> str:
        """Pay."""
        paid.append(note)
        return "paid"

    text = '(defatom say (params (what)) (instructions "{{what}}")) (pay (note message)) (content (say (what message)))'
    async with AgentFlow(provider=ScriptedProvider([f"Done: {MEAN}"]), tools=[pay]) as flow:
        async with served(flow, {"pay": Export(program=text, allow=["pay", "say", "defatom"])}) as server:
            page = await shown(browser, server)
            await page.page.wait_for_selector("nav option[value=pay]", state="attached")
            await page.page.fill('input[aria-label="message"]', MEAN)
            await page.page.click("nav button:has-text('run')")
            await page.page.wait_for_selector(".asks .banner")
            asked = await page.text(".asks pre")
            assert "<script>" in asked and "\u202e" not in asked and not paid
            assert "running" in (await page.page.inner_text("nav select")) or "waiting" in await page.text("nav select")
            await page.page.click(".asks button:has-text('yes')")
            await until(page, "report.run.finish")
            [run] = server.runs
            await run.wait()
            await until(page, "report.timeline.list.clientHeight > 300")
            assert paid == [MEAN] and run.status == "done"
            await until(page, "document.querySelector('.badge').textContent === 'ok'")
            assert await page.count(".asks .banner") == 0
            await page.page.evaluate(
                "report.choose([...report.run.nodes.values()].find((n) => n.kind === 'model'), true)"
            )
            assert "Done: <script>" in await page.text("aside")
            events = [event async for event in server.events(run.run_id)]
            started = len([event for event in events if event["type"].endswith("_started")])
            assert await page.page.evaluate("report.run.nodes.size") == started
            assert page.said == [] and all(url.startswith(server.url) for url in page.requested)
            assert [await page.count(name) for name in ("script", "img", "a")] == [0, 0, 0]


async def test_a_run_is_talked_to_and_its_limit_is_raised_from_the_page(browser: Any, tmp_path: Path) -> None:
    """What is said in the page is read by the run's model, a signal that it waits for is sent from its form, and its state is shown. The
    question of a limit is answered from the page of a key for all runs, and refused from that of another; a value that does not fit is
    said, and nothing of it is markup."""
    requests: list[list[str]] = []
    begun, go = asyncio.Event(), asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        begun.set()
        await go.wait()
        return "seen"

    def model(request: Any) -> Any:
        requests.append([each.text for each in request.messages if each.role == "user" and each.text])
        return {"tool_calls": [{"name": "look", "arguments": {}}]} if len(requests) == 1 else "done"

    async with AgentFlow(
        provider=ScriptedProvider(model), limits=Limits(model_calls=2), on_limit="wait", approval_ttl=60
    ) as flow:

        @flow.workflow
        async def work(message: str) -> str:
            await flow.publish("phase", MEAN)
            text = await flow.ask(message, tools=[look])
            paid = await flow.signal("paid", int)
            return f"{text} {paid} {await flow.ask('more')}"

        keys = keys_of(tmp_path, ada="", boss="fleet = true")
        async with served(flow, {"work": work}, keys=keys) as server:
            body = {"export": "work", "message": "Review."}
            run_id = (await server.post("/runs", body, headers=by("ada"))).json()["run_id"]
            page, boss = await opened(browser, server, "secret-ada"), await opened(browser, server, "secret-boss")
            await begun.wait()
            await page.page.wait_for_selector(".published:visible")
            assert "<script>" in await page.text(".published")
            await page.page.fill('input[aria-label="say"]', MEAN)
            await page.page.click("nav button:has-text('say')")
            await until(page, "document.querySelector('[role=status]').textContent.startsWith('said')")
            go.set()
            await page.page.wait_for_selector(".asks b:has-text('waits for')")
            await page.page.fill(".asks input", '"much"')
            await page.page.click(".asks button")
            await until(page, "document.querySelector('[role=status]').textContent.includes('does not fit')")
            await page.page.fill(".asks input", "7")
            await page.page.click(".asks button")
            for each in (page, boss):
                await each.page.wait_for_selector(".asks pre:has-text('model_calls')")
                await each.page.fill(".asks input", "5")
                await each.page.click(".asks button")
                if each is page:
                    await until(
                        page, "document.querySelector('[role=status]').textContent.includes('host of this server')"
                    )
            while (ended := (await server.get(f"/runs/{run_id}", headers=by("ada"))).json())["status"] != "done":
                await asyncio.sleep(0.02)
            assert ended["value"] == "done 7 done"
            await until(page, "document.querySelector('.badge').textContent === 'ok'")
            assert requests[1] == ["Review.", MEAN]
            assert await page.count(".asks .banner") == 0
            assert [await page.count(name) for name in ("script", "img", "a")] == [0, 0, 0]


async def test_a_page_that_is_opened_again_shows_the_run_from_its_beginning(browser: Any) -> None:
    """What ran before is replayed, what comes is added: the same as one that watched all the time."""
    gate = asyncio.Semaphore(0)

    async def step(n: int) -> int:
        """A step."""
        await gate.acquire()
        return n

    text = '(step (n 1)) (step (n 2)) (ask-human "How many?" {"type" "integer"})'
    async with AgentFlow(tools=[step]) as flow:
        async with served(flow, {"steps": Export(program=text, allow=["step", "ask-human"])}) as server:
            run_id = await server.begin("steps", message="x")
            first = await shown(browser, server)
            await until(first, "globalThis.report && report.run.kinds.tool === 1")
            gate.release()
            second = await shown(browser, server)
            await until(second, "globalThis.report && report.run.kinds.tool === 2")
            gate.release()
            await second.page.wait_for_selector(".asks input")
            await second.page.fill(".asks input", "3")
            await second.page.click(".asks button")
            assert (await server.ended(run_id))["value"] == 3
            for page in (first, second):
                await until(page, "document.querySelector('.badge').textContent === 'ok'")
            nodes = "[...report.run.nodes.values()].map((node) => [node.seq, node.kind, node.state])"
            assert await first.page.evaluate(nodes) == await second.page.evaluate(nodes)
            assert first.said == [] and second.said == []


async def test_a_server_with_keys_asks_for_one(browser: Any, tmp_path: Path) -> None:
    """The page shows nothing before; the key stays in memory: neither stored nor in an address."""
    async with AgentFlow() as flow:
        async with served(flow, {"echo": "(string-append message)"}, keys=keys_of(tmp_path, ada="")) as server:
            body = {"export": "echo", "message": "x"}
            await server.post("/runs", body, headers={"authorization": "Bearer secret-ada"})
            page = await shown(browser, server)
            await page.page.wait_for_selector("input[type=password]:visible")
            assert await page.count("nav select[aria-label=run] option") == 0
            await page.page.fill("input[type=password]", "secret-ada")
            await page.page.click("button:has-text('use this key')")
            await until(page, "globalThis.report && report.run.finish")
            kept = "JSON.stringify([Object.keys(localStorage), Object.keys(sessionStorage), document.cookie])"
            assert await page.page.evaluate(kept) == '[[],[],""]'
            assert not [url for url in page.requested if "secret" in url]
            assert all("401" in line for line in page.said), page.said


async def test_the_runs_of_a_fleet_are_watched_from_the_page(browser: Any, postgres_url: str) -> None:
    """One that a worker does in another flow: what waits to be done is counted, it is shown while it runs, answered and ends."""
    async with (
        AgentFlow(model="offline", durable=postgres_url) as flow,
        AgentFlow(model="offline", durable=postgres_url, record=True) as worker,
        served(flow, {"echo": "(string-append message)"}, fleet=True) as server,
    ):
        await detached(flow, "asks", '(+ 1 (ask-human "How many?" {"type" "integer"}))')
        page = await shown(browser, server)
        await until(page, "document.querySelector('[aria-label=workers]').textContent === '1 queued'")
        assert "asks" in await page.page.inner_text("nav select[aria-label=run]")
        async with working(worker):
            await page.page.wait_for_selector(".asks input")
            await page.page.fill(".asks input", "3")
            await page.page.click(".asks button")
            await until(page, "globalThis.report && report.run.finish && report.run.finish.outcome === 'ok'")
        await until(page, "document.querySelector('[aria-label=workers]').textContent === ''")
        assert (await flow.recorded_result("asks")).value == 4 and page.said == []  # type: ignore[union-attr]
