"""A strict policy decides the same however often Python collects, and whatever else refers to the containers of a program.

A debugger and a profiler keep references to everything that they see, and the collector ends them late. Neither may make a change refused, or
allow one that would tell a secret.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.provenance import alias_texts, strict_programs
from tests.provenance.strict_programs import KINDS, SECRETS, Observer

FILLED = "filled = [[q_] for q_ in range(1100)]\n[w_.append(s) for w_ in filled]\n"
"""A beginning of a text that gives so many containers labels that the table of labels is swept."""


@contextmanager
def eager() -> Iterator[None]:
    """The collector runs at nearly every container that is made."""
    before = gc.get_threshold()
    gc.set_threshold(2, 2, 2)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def never() -> Iterator[None]:
    """The collector does not run."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def watched(watch: Callable[[Any], None]) -> Iterator[None]:
    """Something refers to all values of all variables of each function of the language that is called, and of each that ends."""
    kept: deque[Any] = deque(maxlen=20_000)

    def look(frame: FrameType, event: str, found: Any) -> Any:
        if "/agentflow/lang/" not in frame.f_code.co_filename:
            return None
        kept.append((gc.get_referents(frame), found))
        return look

    watch(look)
    try:
        yield
    finally:
        watch(None)


DISTURBED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "an eager collector": eager,
    "no collector": never,
    "a profiler": lambda: watched(sys.setprofile),
    "a debugger": lambda: watched(sys.settrace),
}


def texts(first: int, count: int) -> dict[str, str]:
    """Texts of every kind that the suite has, by a name."""
    found = {f"alias {seed}": alias_texts.text_of(seed) for seed in range(first, first + count)}
    found |= {f"swept {seed}": FILLED + alias_texts.text_of(seed) for seed in range(first, first + count // 5)}
    return found | {f"random {seed}": strict_programs.text_of(seed, "python") for seed in range(first, first + count)}


async def outcomes(root: Path, first: int, count: int) -> dict[str, Any]:
    """How each text ends with each secret, what it sends, and all errors."""
    observer = Observer(root, surface="python")
    found: dict[str, Any] = {}
    async with observer.flow:
        for name, text in texts(first, count).items():
            for at, secrets in enumerate((*SECRETS, *KINDS)):
                found[f"{name}, secrets {at}"] = await observer.run(text, secrets)
        found["errors"] = observer.codes
    return found


async def _compare(root: Path, disturbance: str, first: int, count: int) -> None:
    expected = await outcomes(root, first, count)
    with DISTURBED[disturbance]():
        got = await outcomes(root, first, count)
    assert {"ended", "failed"} <= {each[0] for each in expected.values() if isinstance(each, tuple)}
    assert {name: (got[name], each) for name, each in expected.items() if got[name] != each} == {}


@pytest.mark.parametrize("disturbance", DISTURBED)
async def test_a_strict_policy_decides_the_same(disturbance: str, tmp_path: Path) -> None:
    """Each text ends in the same way, sends the same and is refused the same."""
    await _compare(tmp_path, disturbance, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("disturbance", DISTURBED)
async def test_it_does_for_many_texts(disturbance: str, tmp_path: Path) -> None:
    """So it is for many more, also where the table of labels is swept."""
    await _compare(tmp_path, disturbance, 1_000, 10)
