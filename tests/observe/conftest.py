"""A real browser, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium here")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()
