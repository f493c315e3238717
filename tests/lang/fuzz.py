"""Made-up and mutated programs against the compiler and the runtime: no crash, no hang, no foreign exception.

    python tests/lang/fuzz.py --count 1000000 --jobs 2
    python tests/lang/fuzz.py --count 1000000 --jobs 2 --authority

With ``--authority`` programs of several authors pass procedures to each other, and an oracle that knows all authors
looks at every effect. Each program is made from its number, so a failure is repeated with ``--first N --count 1``.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import concurrent.futures
import faulthandler
import random
import sys
import time
import traceback
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.core.errors import AgentflowError
from agentflow.core.limits import Limits
from agentflow.lang.environment import SexpEnvironment
from tests.support.authority_programs import SHARED, Author, Witness, carried, grants
from tests.support.manual import blocks
from tests.support.programs import any_program, mutated
from tests.support.world import World

LIMITS = Limits(
    steps=3_000, wall_s=2.0, depth=400, collection=5_000, string=50_000, integer_bits=5_000, branches=50, effects=200
)
SLOW_S = 1.0
HANG_S = 30
PROGRAMS = 8
"""How many programs share an environment when procedures cross grants."""
PAGES = sorted((Path(__file__).resolve().parents[1] / "spec").glob("*.md"))


@dataclass
class Report:
    """What came of a range of programs: outcomes by error code, the programs that broke a rule, what an oracle checked."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter[str])
    broken: list[str] = field(default_factory=list[str])
    slowest: float = 0.0
    checked: collections.Counter[str] = field(default_factory=collections.Counter[str])


def corpus() -> list[str]:
    """Texts to mutate: the blocks of the manual, without those whose point is to wait."""
    return [block.text for page in PAGES for block in blocks(page) if "spin" not in block.text]


def make(number: int, texts: list[str]) -> str:
    """The program of that number: made by the grammar, or a mutated one."""
    rng = random.Random(number)
    kind = number % 4
    if kind < 2:
        return any_program(rng)
    if kind == 2:
        return mutated(rng, any_program(rng))
    return mutated(rng, rng.choice(texts))


async def fuzz(first: int, count: int) -> Report:
    """Run the programs ``first`` to ``first + count``."""
    report = Report()
    texts = corpus()
    for number in range(first, first + count):
        text = make(number, texts)
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        began = time.process_time()  # a machine that is busy with other things is no hang
        try:
            await World().run(text, limits=LIMITS)
        except AgentflowError as error:
            report.outcomes[error.code] += 1
            if len(error.render()) > 20_000:
                report.broken.append(f"program {number}: a message of {len(error.render())} characters\n{text}")
        except BaseException:
            report.broken.append(f"program {number}:\n{text}\n{traceback.format_exc(limit=-6)}")
            if len(report.broken) > 20:
                break
        else:
            report.outcomes["value"] += 1
        took = time.process_time() - began
        report.slowest = max(report.slowest, took)
        if took > SLOW_S + (LIMITS.wall_s or 0):
            report.broken.append(f"program {number}: took {took:.1f} s\n{text}")
    faulthandler.cancel_dump_traceback_later()
    leaked = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if leaked:
        report.broken.append(f"{len(leaked)} tasks are left over: {leaked[:3]}")
    return report


async def fuzz_authority(first: int, count: int) -> Report:
    """Let ``count`` programs of several authors, a few at a time in one environment, pass procedures to each other."""
    report = Report()
    for number in range(first, first + count, PROGRAMS):
        rng = random.Random(number)
        witness = Witness()
        identity = await witness.run("(lambda (k . m) k)")
        env = SexpEnvironment(dict.fromkeys(SHARED, identity))
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        texts: list[str] = []
        for _ in range(min(PROGRAMS, first + count - number)):
            granted = grants(rng)
            texts.append(f"; {granted and sorted(granted)}\n{Author(rng, granted).program()}")
            try:
                await witness.run(texts[-1], env, limits=LIMITS, allow=granted)
                name = rng.choice(SHARED)
                if rng.random() < 0.3:
                    env.define(name, carried(env.lookup(name)))
                await witness.called(env.lookup(name), grants(rng), LIMITS)
                report.outcomes["value"] += 1
            except AgentflowError as error:
                report.outcomes[error.code] += 1
            except BaseException:
                report.broken.append(f"program {number}:\n" + "\n".join(texts) + f"\n{traceback.format_exc(limit=-6)}")
        seen = witness.findings
        report.checked.update(effects=seen.ran, refusals=seen.refused, crossing=seen.crossed)
        if seen.faults:
            report.broken.append(f"program {number}: {seen.faults[:3]}\n" + "\n".join(texts))
        if len(report.broken) > 20:
            break
    faulthandler.cancel_dump_traceback_later()
    return report


def run(first: int, count: int, *, authority: bool = False) -> Report:
    """:func:`fuzz` or :func:`fuzz_authority` on a loop of its own."""
    return asyncio.run(fuzz_authority(first, count) if authority else fuzz(first, count))


def main() -> int:
    """The command. Exit code 1 when a program broke a rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--authority", action="store_true", help="procedures that cross grants, under an oracle")
    options = parser.parse_args()
    began = time.perf_counter()
    step = 5_000
    ranges = [
        (at, min(step, options.first + options.count - at))
        for at in range(options.first, options.first + options.count, step)
    ]
    total = Report()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for report in pool.map(partial(run, authority=options.authority), *zip(*ranges, strict=True)):
            total.outcomes.update(report.outcomes)
            total.checked.update(report.checked)
            total.broken += report.broken
            total.slowest = max(total.slowest, report.slowest)
            for each in report.broken:
                print(each, file=sys.stderr)
            print(f"{total.outcomes.total()} programs, {len(total.broken)} broken", flush=True)
    print(f"{time.perf_counter() - began:.0f} s, slowest program {total.slowest:.2f} s")
    for what, times in total.checked.items():
        print(f"{times:9} {what} checked")
    for code, times in total.outcomes.most_common():
        print(f"{times:9} {code}")
    return 1 if total.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
