"""Made-up and mutated programs against the compiler and the runtime: no crash, no hang, no foreign exception.

    python tests/lang/fuzz.py --count 1000000 --jobs 2
    python tests/lang/fuzz.py --count 1000000 --jobs 2 --authority
    python tests/lang/fuzz.py --count 100000 --jobs 2 --kernel
    python tests/lang/fuzz.py --count 10000 --jobs 2 --policy

With ``--policy`` each runs without a policy and under two, and has to do the same. With ``--kernel`` each program is compiled and interpreted, and both have to do the same (``--surface python`` for texts in Python, with both).
With ``--authority`` programs of several authors pass procedures to each other, and an oracle that knows all authors
looks at every effect. Each program is made from its number, so a failure is repeated with ``--first N --count 1``
(with ``--authority``: ``--count 64``, the batch of that number).
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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Surface
from agentflow.lang.environment import SexpEnvironment
from tests.support.authority_programs import SHARED, Author, Witness, carried, grants
from tests.support.kernel.compared import difference
from tests.support.manual import blocks
from tests.support.programs import any_program, mutated
from tests.support.python_kinds import KindsAuthor
from tests.support.python_texts import Author as TextAuthor
from tests.support.python_variables import VariablesAuthor
from tests.support.under_policy import policy_difference
from tests.support.world import World

LIMITS = Limits(
    steps=3_000, wall_s=2.0, depth=400, collection=5_000, string=50_000, integer_bits=5_000, branches=50, effects=200
)
CROSSING = replace(LIMITS, steps=800, depth=260)
"""Limits when procedures cross grants: those that call each other without end find nothing more in more steps."""
SLOW_S = 1.0
HANG_S = 30
TEXTS = 8
"""How many texts share an environment when procedures cross grants."""
ROUNDS = 8
"""In how many environments the same texts run."""
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
    """Let ``count`` programs of several authors pass procedures to each other, in environments of a few programs each.

    A few texts are written at a time and run in several environments, in another order in each, so that most of the
    time goes into running them.
    """
    report = Report()
    for number in range(first, first + count, TEXTS * ROUNDS):
        rng = random.Random(number)
        witness = Witness()
        identity = await witness.run("(lambda (k . m) k)")
        authors = [Author(rng, grants(rng)) for _ in range(TEXTS)]
        programs = [(author.program(), author.granted) for author in authors]
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        left = first + count - number
        for _ in range(ROUNDS):
            env = SexpEnvironment(dict.fromkeys(SHARED, identity))
            order = rng.sample(programs, TEXTS)[:left]
            left -= len(order)
            await _one_round(report, number, witness, rng, env, order)
        report.checked.update(effects=witness.findings.ran)
        report.checked.update(refusals=witness.findings.refused, crossing=witness.findings.crossed)
        report.checked.update(texts=TEXTS)
        if len(report.broken) > 20:
            break
    faulthandler.cancel_dump_traceback_later()
    return report


async def _one_round(
    report: Report,
    number: int,
    witness: Witness,
    rng: random.Random,
    env: SexpEnvironment,
    programs: Sequence[tuple[str, frozenset[str] | None]],
) -> None:
    """Run programs in one environment, and after each call a procedure that is shared there, as somebody with other grants."""
    for at, (text, granted) in enumerate(programs):
        try:
            await witness.run(text, env, limits=CROSSING, allow=granted)
            name = rng.choice(SHARED)
            if rng.random() < 0.1:
                env.define(name, carried(env.lookup(name)))
            await witness.called(env.lookup(name), grants(rng), CROSSING)
            report.outcomes["value"] += 1
        except AgentflowError as error:
            report.outcomes[error.code] += 1
        except BaseException:
            report.broken.append(f"program {number}:\n{_shown(programs[: at + 1])}\n{traceback.format_exc(limit=-6)}")
    if witness.findings.faults:
        report.broken.append(f"program {number}: {witness.findings.faults[:3]}\n{_shown(programs)}")
        witness.findings.faults.clear()


def _shown(programs: Sequence[tuple[str, frozenset[str] | None]]) -> str:
    """Programs with what each was granted."""
    return "\n".join(f"; {granted and sorted(granted)}\n{text}" for text, granted in programs)


WRITERS = (TextAuthor, KindsAuthor, VariablesAuthor)


def text_of(number: int, surface: Surface) -> str:
    """The program of that number for the comparison with the interpreter: by a grammar, or a mutated one."""
    if surface == "python":
        return WRITERS[number % len(WRITERS)](number).text()
    rng = random.Random(number)
    text = any_program(rng)
    return mutated(rng, text) if number % 3 == 2 else text


async def fuzz_kernel(first: int, count: int, surface: Surface) -> Report:
    """Compile and interpret the programs ``first`` to ``first + count``."""
    return await _compared(first, count, surface, difference)


async def fuzz_policies(first: int, count: int, surface: Surface) -> Report:
    """Run them without a policy and under policies."""
    return await _compared(first, count, surface, policy_difference)


async def _compared(
    first: int, count: int, surface: Surface, compare: Callable[[str, Surface], Awaitable[str | None]]
) -> Report:
    report = Report()
    for number in range(first, first + count):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        wrong = await compare(text_of(number, surface), surface)
        report.outcomes["same" if wrong is None else "different"] += 1
        if wrong is not None:
            report.broken.append(f"program {number}:\n{wrong}")
            if len(report.broken) > 20:
                break
    faulthandler.cancel_dump_traceback_later()
    return report


def run(first: int, count: int, *, mode: str = "", surface: Surface = "sexp") -> Report:
    """:func:`fuzz` or one of the others on a loop of its own."""
    if mode in ("kernel", "policy"):
        compare = fuzz_kernel if mode == "kernel" else fuzz_policies
        return asyncio.run(compare(first, count, surface))
    return asyncio.run(fuzz_authority(first, count) if mode == "authority" else fuzz(first, count))


def main() -> int:
    """The command. Exit code 1 when a program broke a rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--authority", action="store_true", help="procedures that cross grants, under an oracle")
    parser.add_argument("--kernel", action="store_true", help="compiled programs against interpreted ones")
    parser.add_argument("--policy", action="store_true", help="runs without a policy against runs under one")
    parser.add_argument("--surface", choices=("sexp", "python"), default="sexp", help="the language, with these two")
    options = parser.parse_args()
    mode = next((each for each in ("authority", "kernel", "policy") if getattr(options, each)), "")
    began = time.perf_counter()
    step = 400 if mode in ("kernel", "policy") else 6_400
    ranges = [
        (at, min(step, options.first + options.count - at))
        for at in range(options.first, options.first + options.count, step)
    ]
    total = Report()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for report in pool.map(partial(run, mode=mode, surface=options.surface), *zip(*ranges, strict=True)):
            total.outcomes.update(report.outcomes)
            total.checked.update(report.checked)
            total.broken += report.broken
            total.slowest = max(total.slowest, report.slowest)
            for each in report.broken:
                print(each, file=sys.stderr)
            print(f"{total.outcomes.total()} programs, {len(total.broken)} broken, {dict(total.checked)}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s, slowest program {total.slowest:.2f} s")
    for what, times in total.checked.items():
        print(f"{times:9} {what} checked")
    for code, times in total.outcomes.most_common():
        print(f"{times:9} {code}")
    return 1 if total.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
