"""A real browser, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.report_page import chromium


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium here")
    async with chromium(path) as browser:
        yield browser
