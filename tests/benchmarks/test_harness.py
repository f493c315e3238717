"""The harness that judges what a change costs: it sees what differs, and nothing where nothing does."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from tests.benchmarks.compare import Ratio, main, measure, table
from tests.benchmarks.figures import CONTROL, FIGURES
from tests.benchmarks.package_calls import TARGET, package_calls
from tests.benchmarks.without_journal import without_journal

ROOT = Path(__file__).resolve().parents[2]


def seconds(cost: float, noise: float, seed: int) -> list[float]:
    """What fifteen rounds of some cost might measure."""
    chance = random.Random(seed)
    return [cost * chance.gauss(1, noise) for _ in range(15)]


def test_the_interval_holds_the_ratio_and_grows_with_the_noise() -> None:
    """A ratio lies in its interval; noisier rounds give a wider one."""
    quiet, noisy = (Ratio.of(seconds(1, noise, 1), seconds(1.05, noise, 2)) for noise in (0.005, 0.05))
    for ratio in (quiet, noisy):
        assert ratio.low <= ratio.value <= ratio.high
    assert noisy.high - noisy.low > 3 * (quiet.high - quiet.low)


def test_a_cost_beyond_its_interval_is_worse() -> None:
    """Five percent more through half a percent of noise is worse, as less is better; equal costs are neither."""
    more = Ratio.of(seconds(1, 0.005, 1), seconds(1.05, 0.005, 2))
    assert more.verdict() == "worse"
    assert more.verdict(bound=1.1) == ""
    assert Ratio.of(seconds(1.05, 0.005, 2), seconds(1, 0.005, 1)).verdict() == "better"
    same = seconds(1, 0.05, 3)
    assert Ratio.of(same, same).verdict() == ""


def test_what_a_round_did_to_both_trees_is_no_noise() -> None:
    """Rounds are pairs: a machine whose speed changes from round to round widens no interval."""
    before = [1.0 + n for n in range(15)]
    ratio = Ratio.of(before, [1.1 * each for each in before])
    assert (ratio.low, ratio.high) == (pytest.approx(1.1), pytest.approx(1.1))


def test_the_table_says_when_the_machine_was_not_steady() -> None:
    """A difference in the figure that no tree has a part in is the machine's, and told as such."""
    worse = Ratio(1.1, 1.05, 1.2)
    text = table({"fib": (0.01, worse), CONTROL: (1e-5, worse)}, bound=1.0)
    assert "worse" in text.splitlines()[1] and "(per run)" in text.splitlines()[1]
    assert "not steady" in text.splitlines()[2] and "worse" not in text.splitlines()[2]


async def test_a_directory_without_the_package_is_not_measured(tmp_path: Path) -> None:
    """What is measured is the tree's own package, never the one that happens to be installed."""
    with pytest.raises(RuntimeError, match="has no package agentflow"):
        await measure(tmp_path, ["fan-out"], "http://unused", 0, 0.01)


@pytest.mark.slow
def test_a_tree_that_does_everything_four_times_is_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two real trees, one of which runs each program four times: every figure is about 4, and worse; the control is what it was.

    In calls, not in seconds: a machine that does other things meanwhile changes neither.
    """
    shutil.copytree(ROOT / "agentflow", tmp_path / "agentflow", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "agentflow" / "app.py").open("a", encoding="utf-8") as file:
        file.write(
            "\n_once = AgentFlow.run\n"
            "async def _often(self, program, **options):\n"
            "    for _ in range(3):\n"
            "        await _once(self, program, **options)\n"
            "    return await _once(self, program, **options)\n"
            "AgentFlow.run = _often\n"
        )
    figures = ["--rounds", "2", "--effort", "0.05", "--by", "calls", "--figures", f"chain,fib,{CONTROL}"]
    code = main([str(ROOT), str(tmp_path), *figures])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert code == 1
    for name in ("chain", "fib"):
        assert "worse" in lines[name] and float(lines[name].split()[2]) == pytest.approx(4, abs=0.1), lines[name]
    assert float(lines[CONTROL].split()[2]) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_every_figure_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Each figure's work gives the value it ought to, and a tree does not make more calls than itself; of times there is a row each."""
    assert main([str(ROOT), str(ROOT), "--rounds", "1", "--effort", "0.02", "--by", "calls", "--bound", "1.5"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(FIGURES)
    main([str(ROOT), str(ROOT), "--rounds", "1", "--effort", "0.02", "--figures", f"call,{CONTROL}"])
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()[1:]] == ["us", "us"]


async def test_package_calls_are_counted_without_noise() -> None:
    """The count of one run is the same each time; watching a run costs calls."""
    unwatched = await package_calls()
    assert unwatched == await package_calls()
    assert any(name.startswith("tasks/") for name in unwatched) and any(name.startswith("run/") for name in unwatched)
    assert (await package_calls(watched=True)).total() > unwatched.total()


async def test_a_task_makes_no_more_calls_than_it_may() -> None:
    """One run of one task over a scripted model keeps within its bound. ``package_calls.py --by-function`` says which
    functions are called: what is computed anew for each run, or twice, is what to look for."""
    counts = await package_calls()
    assert counts.total() <= TARGET, counts.most_common(20)


@pytest.mark.slow
def test_a_tree_without_a_journal_asks_for_none(tmp_path: Path) -> None:
    """In the copy that knows of no durable runs nothing asks whether a run is one, and its code is code."""
    assert without_journal(tmp_path) > 10
    for file in (tmp_path / "without").rglob("*.py"):
        text = file.read_text()
        assert re.search(r"\bjournal is ", text) is None, file
        compile(text, str(file), "exec")
