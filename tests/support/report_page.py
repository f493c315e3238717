"""A report opened in a browser, and recorded events written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


@asynccontextmanager
async def chromium(path: str) -> AsyncIterator[Any]:
    """The browser at ``path``, without a window."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


class Page:
    """A report opened in the browser; whatever it logs or requests is kept."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        self.requested: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.requested.append(request.url))

    @classmethod
    async def open(cls, browser: Any, path: Path, html: str, *, width: int = 1500, scheme: str = "light") -> Page:
        await asyncio.to_thread(path.write_text, html, "utf-8")
        shown = cls(await browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
        await shown.page.goto(path.as_uri())
        await shown.page.wait_for_function("globalThis.report")
        return shown

    async def text(self, selector: str) -> str:
        return str(await self.page.inner_text(selector))

    async def count(self, selector: str) -> int:
        return int(await self.page.evaluate("s => document.querySelectorAll(s).length", selector))

    async def close(self) -> None:
        assert self.said == [] and len(self.requested) == 1, (self.said, self.requested)
        assert [await self.count(name) for name in ("script", "img", "a")] == [0, 0, 0]
        await self.page.close()


def event(kind: str, seq: int, at: float, parent: int | None, **fields: Any) -> dict[str, Any]:
    """A recorded event of kind ``kind`` at ``at`` seconds."""
    header = {"run_id": "r", "slice": 1, "path": f"0/{seq}", "span": None}
    return {"type": kind, **header, "seq": seq, "parent": parent, "time": at, **fields}


def ended(kind: str, seq: int, at: float, started: int, **fields: Any) -> dict[str, Any]:
    """The recorded end of the step that began with ``started``."""
    return event(kind, seq, at, started, **{"started": started, "outcome": "ok", "duration_s": 1.0, **fields})
