"""The memory limit: what a run keeps ends it in time, what it drops does not, and others beside it go on."""

from __future__ import annotations

import asyncio
import json
import mmap
import sys
from pathlib import Path

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits
from agentflow.core.data.limits import Limits as CoreLimits
from agentflow.run.strand.budget import LOOK_EVERY, MemoryAccount, MemoryAccounts, resident_bytes
from tests.support.memory_cases import MEMORY_CASES

ROOT = Path(__file__).parents[2]
LIMIT_MB = 128
GROWING = "(length (range 10000)) (grow (megabytes 64)) (length (map (lambda (i) (range 10000)) (range 400)))"


class Host:
    """Makes the process grow by maps of its own, by more than what earlier tests have left may shrink it meanwhile."""

    def __init__(self) -> None:
        self.held: list[mmap.mmap] = []

    def grow(self, megabytes: int) -> None:
        """Take memory and keep it.

        Args:
            megabytes: how much
        """
        held = mmap.mmap(-1, megabytes * 2**20)
        held.write(b"x" * len(held))
        self.held.append(held)


QUICK = ("lists", "dicts", "log", "prompts")
"""One of each kind of growth: values, many small ones, what the host keeps, and what is sent."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MEMORY_CASES]
)
async def test_what_adds_up_ends_in_time(name: str) -> None:
    """However a program comes by its memory, it ends in ``limits/memory`` before the process has grown by a fifth more."""
    command = [sys.executable, "-m", "tests.support.memory_cases", name, str(LIMIT_MB)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    row = json.loads(out)
    assert row["outcome"] == "limits/memory"
    assert row["growth_mb"] <= LIMIT_MB * 1.2


async def test_garbage_is_not_held_against_a_run() -> None:
    """A run that has allocated many times its limit, and dropped it, has not made the process grow."""
    async with AgentFlow(limits=Limits(memory=64 * 2**20)) as flow:
        result = await flow.run("(do ((i 0 (+ i 1))) ((= i 50) 'done) (length (range 100000)))")
        assert str(result.value) == "done"


async def test_the_host_may_grow_beside_a_run() -> None:
    """Memory that a host takes while a run computes is not the run's."""
    held: list[bytes] = []

    def load() -> None:
        """Take 100 MB that the run has not allocated."""
        held.append(b"x" * (100 * 2**20))

    async with AgentFlow(tools=[load], limits=Limits(memory=64 * 2**20)) as flow:
        await flow.run("(length (range 20000)) (load) (length (map (lambda (i) (* i 2)) (range 20000)))")
    assert len(held) == 1


async def test_the_error_says_what_was_allocated_and_can_be_put_off() -> None:
    """It names the limit, the figures and the option; None is not a limit."""
    async with AgentFlow(tools=[Host().grow]) as flow:
        text = GROWING
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(text, limits=Limits(memory=4 * 2**20))
        error = caught.value
        assert (error.limit, error.code, error.allowed) == ("memory", "limits/memory", 4 * 2**20)
        assert error.used is not None and error.used > 4 * 2**20
        assert error.span is not None and error.span.text.startswith("(range")
        assert "Limits(memory=...)" in (error.hint or "")
        assert (await flow.run(text, limits=Limits(memory=None))).value == 400


async def test_a_part_may_have_less() -> None:
    """A program that a tool runs with a lower limit ends at that, and the run it is part of goes on."""
    flow = AgentFlow(tools=[Host().grow])

    async def part() -> str:
        """Run a program with less."""
        try:
            await flow.run(GROWING, limits=Limits(memory=4 * 2**20))
        except LimitExceeded as error:
            return error.code
        return "no limit"

    async with flow:
        flow.tool(part)
        assert (await flow.run("(content (part))")).value == "limits/memory"


def test_the_largest_account_goes_first() -> None:
    """Of two runs past the limit the one that allocated less goes on for a while; not for ever."""
    resident = resident_bytes()
    assert resident is not None
    beside: MemoryAccounts = MemoryAccounts()
    limit = 192 * 2**20  # what else this process holds comes and goes by megabytes
    large, small = MemoryAccount(limit, beside), MemoryAccount(limit, beside)
    large.add(16 * 2**20)
    small.add(16 * 2**20)  # both have looked: growth counts from here
    host = Host()
    host.grow(196)
    large.used, small.used = 2 * limit, limit
    small.add(1)
    with pytest.raises(LimitExceeded):
        large.add(1)
    host.grow(24)
    small.used += LOOK_EVERY
    with pytest.raises(LimitExceeded):
        small.add(1)
    assert CoreLimits().memory == 512 * 2**20


async def test_an_error_of_memory_keeps_nothing_of_what_has_to_go() -> None:
    """What a form had when the memory was used up is let go with it, rather than handed to the host."""
    async with AgentFlow(tools=[Host().grow]) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(GROWING, limits=Limits(memory=4 * 2**20))
        assert caught.value.partial == ()
