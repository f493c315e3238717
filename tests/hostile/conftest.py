"""The arena as a fixture: the common check runs after every case."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.hostile.arena import SECRET, Arena


@pytest.fixture
def planted() -> Iterator[None]:
    """The secret stands in the environment, as keys do."""
    os.environ["AGENTFLOW_TEST_API_KEY"] = SECRET
    yield
    del os.environ["AGENTFLOW_TEST_API_KEY"]


@pytest.fixture
async def arena(tmp_path: Path, planted: None, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Arena]:
    made = Arena(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(scratch)
    yield made
    tempfile.tempdir = before
    made.saw(caplog.text)
    await made.check()
    assert not list(scratch.iterdir()), "a temporary directory is left"
