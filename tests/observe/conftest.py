"""A real browser, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.report_page import chromium


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """One for all tests of a file: starting it takes longer than most of them."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium here")
    async with chromium(path) as browser:
        yield browser
