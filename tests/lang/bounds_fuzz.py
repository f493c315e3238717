"""Made-up programs with many effects: what runs is never more than what was said before it ran.

    python tests/lang/bounds_fuzz.py --count 100000
    python tests/lang/bounds_fuzz.py --count 100000 --surface python

Each program is made from its number, so a failure is repeated with ``--first N --count 1``. Programs run over lists of
several lengths; a run that fails or meets its limits counts with the effects it had. A bound is filled in with what its names
stand for in that run: how long the longest answer of a tool was, and the longest text of its results.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import random
import sys
import time
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Surface
from agentflow.core.events.effects import CallTool, Effect
from agentflow.core.ports.ports import NameFacts
from agentflow.lang.bounds.analysis import Analysis
from agentflow.lang.bounds.interpret import AnalysisInputs
from agentflow.lang.bounds.texts import readied
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import ProgramCache
from agentflow.run.bounds.estimate import InnerPrograms
from tests.support.bounds_programs import LISTS, TOOLS, effectful_program
from tests.support.bounds_python import effectful_text
from tests.support.world import Tool, World

LIMITS = Limits(steps=4_000, wall_s=2.0, depth=300, collection=2_000, string=20_000, branches=200, effects=300)
SIZES = ((0, 0), (1, 3), (4, 2))
"""The lengths of the two lists, run by run."""
VISITS = 10_000
"""Nodes that are visited before a program is given up: the few that take more would take most of the time."""
ANSWERS = 3
"""How many numbers a tool answers with at most."""
UNSTEADY = 4
"""Of so many programs one has tools that answer with lists of other lengths, too, and fail."""


def _weights(kind: str, name: str, templates: Any) -> dict[str, float]:
    return {"calls": 1} if kind in ("tool", "any") else {}


def _no_shape(name: str, templates: Any) -> None:
    return None


class _Weights:
    of = staticmethod(_weights)
    shape = staticmethod(_no_shape)

    def within(self, grants: frozenset[str] | None, templates: Any) -> _Weights:
        return self


def _steady(arguments: dict[str, Any]) -> TaskResult:
    return TaskResult.complete("numbers", list(range(ANSWERS)))


def _unsteady(rng: random.Random) -> Tool:
    def answer(arguments: dict[str, Any]) -> TaskResult:
        if rng.random() < 0.1:
            return TaskResult.failure("tool_execution_error", "it broke" * rng.randrange(1, 3))
        return TaskResult.complete("n" * rng.randrange(9), list(range(rng.randrange(ANSWERS + 1))))

    return answer


def bounds(source: Source) -> Analysis:
    """What is said of a program before it runs."""
    world = World(dict.fromkeys(TOOLS, _steady))
    text = readied(source, names=world, limits=LIMITS, env_names=LISTS)
    inner = InnerPrograms(cast(NameFacts, None), world, LIMITS, _Weights(), None, None, text.templates)
    return text.follow(AnalysisInputs(_weights, sources=LISTS, programs=inner, visits=VISITS))


class Counted(World):
    """Counts how many tools are called, and how many at once; ``sizes`` are how long their longest answers were."""

    def __init__(self, answer: Tool, programs: ProgramCache) -> None:
        super().__init__(dict.fromkeys(TOOLS, answer), programs)
        self.calls = self.active = self.widest = 0
        self.sizes: collections.Counter[str] = collections.Counter()

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        if not isinstance(effect, CallTool):
            return await super().perform(effect, call)
        self.calls += 1
        self.active += 1
        self.widest = max(self.widest, self.active)
        try:
            result: TaskResult = await super().perform(effect, call)
        finally:
            self.active -= 1
        self._note(f"len(outcome({effect.name}).content)", len(result.content))
        self._note(f"len({effect.name})", len(result.parsed_content or ()))
        return result

    def _note(self, name: str, size: int) -> None:
        self.sizes[name] = max(self.sizes[name], size)


async def effects(source: Source, lengths: tuple[int, int], answer: Tool, programs: ProgramCache) -> Counted:
    """What a run does, however it ends."""
    world = Counted(answer, programs)
    world.sizes.update({f"len({name})": length for name, length in zip(LISTS, lengths, strict=True)})
    env = SexpEnvironment({name: list(range(length)) for name, length in zip(LISTS, lengths, strict=True)})
    try:
        await world.run(source, env, limits=LIMITS)
    except AgentflowError as error:
        if error.code == "host/raised":  # what answers here is broken, and the run tells nothing
            raise AssertionError(str(error)) from error
    return world


async def check(number: int, surface: Surface = "sexp") -> tuple[str, str | None]:
    """How the bound of a program compares with its runs (``exact``, ``over`` or ``unbounded``), and what is wrong."""
    rng = random.Random(number)
    text = effectful_program(rng) if surface == "sexp" else effectful_text(rng)
    source = Source.unnamed(text, surface)
    try:
        said = bounds(source)
    except AgentflowError:
        return "refused", None
    most, widest = said.bound("calls"), said.bound("width")
    if most.terms is None:
        return ("unbounded", None) if said.unbounded else ("no reason", f"#{number} gives no reason")
    outcome, programs = "exact", ProgramCache()
    answer = _unsteady(rng) if number % UNSTEADY == 0 else _steady
    for lengths in SIZES:
        ran = await effects(source, lengths, answer, programs)
        bound, wide = most.at(ran.sizes), widest.at(ran.sizes)
        assert bound is not None
        problem = None
        if ran.calls > bound:
            problem = f"{ran.calls} calls, and at most {bound} ({most}) were said"
        elif wide is not None and ran.widest > wide:
            problem = f"{ran.widest} calls at once, and at most {wide} ({widest}) were said"
        if problem is not None:
            return "below", f"#{number}: {problem}, sizes {dict(ran.sizes)}\n{text}"
        if ran.calls < bound:
            outcome = "over"
    return outcome, None


async def _main(first: int, count: int, surface: Surface) -> int:
    outcomes: collections.Counter[str] = collections.Counter()
    broken = 0
    began = time.process_time()
    for number in range(first, first + count):
        try:
            outcome, wrong = await asyncio.wait_for(check(number, surface), 120)
        except Exception as error:
            outcome, wrong = "crashed", f"#{number}: {type(error).__name__}: {error}"
        outcomes[outcome] += 1
        if wrong is not None:
            broken += 1
            print(wrong)
            if broken >= 10:
                break
    print(dict(outcomes), f"{broken} broken, {time.process_time() - began:.1f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--surface", choices=("sexp", "python"), default="sexp")
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.first, options.count, options.surface)))
