"""A process that is killed within a loop of tools, and one that goes on: both at the vendor's own host, through a proxy."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

from tests.support.children import HANG_S
from tests.support.vendors import VENDORS, Vendors
from tests.vendors.known import KNOWN
from tests.vendors.world import calls

ROOT = Path(__file__).resolve().parents[2]


async def child(vendors: Vendors, *arguments: str) -> Process:
    """The program, which knows of the proxy by its environment."""
    environment = {**os.environ, "HTTP_PROXY": vendors.url, "http_proxy": vendors.url, "NO_PROXY": "", "no_proxy": ""}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.vendors.child", *arguments, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE
    )


def _cases() -> list[Any]:
    known = {name: f"interrupted: {name}" for name in VENDORS}
    return [
        pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=KNOWN[row])] if row in KNOWN else [])
        for name, row in known.items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", _cases())
async def test_a_killed_run_goes_on_in_another_process(name: str, tmp_path: Path) -> None:
    """What was said before the kill is sent to the vendor as it wants it: signatures, calls with their results, ids."""
    said = [calls("Rome", thinking="first"), calls(("wait", {"place": "Oslo"}), "Bern", thinking="then"), "done"]
    async with Vendors(said) as vendors:
        first = await child(vendors, name, str(tmp_path))
        assert first.stdout is not None and first.stderr is not None
        async with asyncio.timeout(HANG_S):
            line = await first.stdout.readline()
            assert line == b"working\n", (await first.stderr.read()).decode() + str(
                [each.said for each in vendors.refusals]
            )
            first.kill()
            await first.wait()
            second = await child(vendors, name, str(tmp_path), "resume")
            out, error = await second.communicate()
        assert [each.said for each in vendors.refusals] == []
        assert out == b"done\n", error.decode()
        assert {each.vendor.name for each in vendors.asked} == {name}
        assert not [each for each in vendors.heads if {"authorization", "x-api-key", "api-key"} & each.keys()]
