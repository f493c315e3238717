"""Whether a tree costs more than another: ``python tests/benchmarks/compare.py BEFORE AFTER``.

BEFORE and AFTER are work trees. Each round runs each in a fresh process of this interpreter, with that tree's own
``agentflow`` and the same hash seed, in turn, and takes the processor time of the figures (``figures.py``). Printed per
figure: the ratio of the medians, AFTER / BEFORE, with its 95 % interval (a bootstrap over the rounds, which are pairs).
A figure is worse when its whole interval lies above 1, or above ``--bound``; then the exit code is 1. Of figures that
have not changed one in forty is called worse by chance: measure it again by itself (``--figures chunk,control``). With ``--by
calls`` the calls of Python functions are counted instead, which are the same on a loaded machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.figures import CLOCKS, CONTROL, FIGURES, STREAM
from tests.support.model_server import model_server_process

SAMPLES = 10_000
"""Resamplings of a bootstrap."""


@dataclass(frozen=True)
class Ratio:
    """AFTER over BEFORE: the ratio of the medians and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, before: Sequence[float], after: Sequence[float]) -> Ratio:
        """From the seconds of each round; ``before[i]`` and ``after[i]`` are of the same round."""
        chance = random.Random(0)
        rounds = range(len(before))
        ratios: list[float] = []
        for _ in range(SAMPLES):
            picked = chance.choices(rounds, k=len(rounds))
            ratios.append(statistics.median(after[i] for i in picked) / statistics.median(before[i] for i in picked))
        ratios.sort()
        edge = round(SAMPLES * 0.025)
        return cls(statistics.median(after) / statistics.median(before), ratios[edge], ratios[-edge - 1])

    def verdict(self, bound: float = 1.0) -> str:
        """``worse`` beyond ``bound``, ``better`` than before, or nothing."""
        return "worse" if self.low > bound else "better" if self.high < 1 else ""


async def measure(
    tree: Path, figures: Sequence[str], url: str, seed: int, effort: float, by: str = "seconds"
) -> dict[str, float]:
    """Seconds, or calls, per unit of each figure, in a fresh process on ``tree``. Raises RuntimeError when the tree fails."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AGENTFLOW_")}
    with tempfile.TemporaryDirectory() as directory:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(Path(__file__).with_name("figures.py")), "--url", url, "--effort", str(effort)),
            *("--by", by),
            *figures,
            cwd=directory,
            env={**kept, "PYTHONPATH": str(tree), "PYTHONHASHSEED": str(seed)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{tree} failed:\n{err.decode(errors='replace')}")
    answer = json.loads(out)
    if Path(answer["package"]) != tree / "agentflow":
        raise RuntimeError(f"{tree} has no package agentflow; {answer['package']} was measured")
    return answer["taken"]


async def compare(
    before: Path, after: Path, figures: Sequence[str], *, rounds: int = 15, effort: float = 1.0, by: str = "seconds"
) -> dict[str, tuple[float, Ratio]]:
    """Each figure's seconds, or calls, before, and its ratio. Paths are absolute. The tree that goes first alternates; a round ahead warms the disk."""
    trees = (before, after)
    taken: list[dict[str, list[float]]] = [{name: [] for name in figures} for _ in trees]
    async with model_server_process([STREAM]) as url:
        for tree in trees:
            await measure(tree, figures, url, 0, effort, by)
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                units = await measure(trees[side], figures, url, number, effort, by)
                for name in figures:
                    taken[side][name].append(units[name])
            print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {name: (statistics.median(taken[0][name]), Ratio.of(taken[0][name], taken[1][name])) for name in figures}


def table(results: dict[str, tuple[float, Ratio]], bound: float, by: str = "seconds") -> str:
    """The results as lines of text."""
    lines = [f"{'figure':12} {'before':>12}   {'ratio':>6}   95 % interval"]
    for name, (taken, ratio) in results.items():
        before = f"{taken * 1e6:9.2f} us" if by == "seconds" else f"{taken:12.2f}"
        unit = FIGURES[name].unit
        verdict = ratio.verdict(bound)
        if name == CONTROL and verdict:
            verdict = "not a tree's doing: the machine was not steady, measure again"
        lines.append(
            f"{name:12} {before}   {ratio.value:6.3f}   {ratio.low:.3f} .. {ratio.high:.3f}   {verdict:6} (per {unit})"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and give the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--figures", default=",".join(FIGURES), help="names, with commas; all by default")
    parser.add_argument("--bound", type=float, default=1.0, help="the ratio beyond which a figure is worse")
    parser.add_argument("--effort", type=float, default=1.0, help="times the usual repeats within a process")
    parser.add_argument("--by", choices=list(CLOCKS), default="seconds", help="what is compared")
    options = parser.parse_args(arguments)
    names = options.figures.split(",")
    if unknown := set(names) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    results = asyncio.run(
        compare(options.before, options.after, names, rounds=options.rounds, effort=options.effort, by=options.by)
    )
    print(table(results, options.bound, options.by))
    return int(any(ratio.verdict(options.bound) == "worse" for name, (_, ratio) in results.items() if name != CONTROL))


if __name__ == "__main__":
    sys.exit(main())
