"""Which surface models write better programs in: 60 goals with checkable outcomes, each solved in both.

    python -m tests.benchmarks.surface_trial anthropic:claude-sonnet-5-5 openai:gpt-5 [--goals 10] [--rounds 3] [--skill SKILL.md]

For each model and surface: goals reached in the first round and in all rounds, rounds that were needed, and tokens; then what was
wrong with the programs that had to be written again, the most frequent first: what a surface refuses most often is what it should
learn next. The same goals, tools and inputs in both; a goal is reached when the program's value is the expected one. Needs the key of
the model.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from agentflow import AgentFlow, AgentflowError, Event, Limits
from agentflow.core.data.source import Surface
from agentflow.core.events.effects import Solve
from agentflow.core.events.events import ModelStarted
from agentflow.core.ports.ports import ProviderAdapter

FILES = {
    "a.txt": "red green blue\ngreen blue\nblue",
    "b.txt": "10\n20\n30\n40",
    "c.csv": "name,age\nAda,36\nBob,17\nCyd,52",
    "d.json": '{"items": [{"id": 1, "price": 2.5}, {"id": 2, "price": 4.0}], "open": true}',
}
STOCK = {"apple": 3, "pear": 0, "plum": 12, "fig": 7}
NUMBERS = [4, 8, 15, 16, 23, 42]
WORDS = ["delta", "alpha", "charlie", "bravo", "alpha"]
ROWS: list[dict[str, Any]] = [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 17}, {"name": "Cyd", "age": 52}]


@dataclass(frozen=True)
class Goal:
    """What a program is to reach: the goal in words, its variables, and its value."""

    text: str
    value: Any
    inputs: dict[str, Any]


def _goals() -> list[Goal]:
    """The goals: data, text, control flow, tools, failures, and calls at the same time."""
    n: dict[str, Any] = {"numbers": NUMBERS}
    w: dict[str, Any] = {"words": WORDS}
    r: dict[str, Any] = {"rows": ROWS}
    none: dict[str, Any] = {}
    data: list[tuple[str, Any, dict[str, Any]]] = [
        ("The sum of numbers", sum(NUMBERS), n),
        ("The largest of numbers", 42, n),
        ("The mean of numbers, as a float", sum(NUMBERS) / 6, n),
        ("The even ones of numbers, in order", [4, 8, 16, 42], n),
        ("The squares of numbers, as a list", [x * x for x in NUMBERS], n),
        ("numbers in reverse order", NUMBERS[::-1], n),
        ("How many of numbers are greater than 15", 3, n),
        ("The running totals of numbers, as a list", [4, 12, 27, 43, 66, 108], n),
        ("The differences of neighbours in numbers, later minus earlier", [4, 7, 1, 7, 19], n),
        ("The product of the first three of numbers", 480, n),
        ("numbers in pairs: a list of lists of two neighbours that do not overlap", [[4, 8], [15, 16], [23, 42]], n),
        ("The index of 23 in numbers, counted from 0", 4, n),
        ("The sum of numbers at even indices, counted from 0", 42, n),
        ("The first of numbers that is divisible by 3", 15, n),
        ("Whether all of numbers are positive, as a boolean", True, n),
        ("The words in alphabetical order", sorted(WORDS), w),
        ("The distinct words, in the order in which they first appear", ["delta", "alpha", "charlie", "bravo"], w),
        ("A dict from each word to how often it is in words", {"delta": 1, "alpha": 2, "charlie": 1, "bravo": 1}, w),
        ("The longest word", "charlie", w),
        ("The words in upper case, joined by a hyphen", "DELTA-ALPHA-CHARLIE-BRAVO-ALPHA", w),
        ("The first letters of words, as one text", "dacba", w),
        ("The number of characters of all words together", 27, w),
        ("A dict from each length to the words of that length, in order; the keys are texts",
         {"5": ["delta", "alpha", "bravo", "alpha"], "7": ["charlie"]}, w),
        ("The words that contain the letter l, in order", ["delta", "alpha", "charlie", "alpha"], w),
        ("Each word reversed, as a list", ["atled", "ahpla", "eilrahc", "ovarb", "ahpla"], w),
        ("The word before the last in words", "bravo", w),
        ("The names of rows whose age is at least 18, in order", ["Ada", "Cyd"], r),
        ("The sum of the ages of rows", 105, r),
        ("The name of the oldest row", "Cyd", r),
        ("The names of rows, youngest first", ["Bob", "Ada", "Cyd"], r),
        ("A dict from name to age of rows", {"Ada": 36, "Bob": 17, "Cyd": 52}, r),
        ("rows with a further key adult, a boolean that says whether the age is at least 18",
         [{**row, "adult": row["age"] >= 18} for row in ROWS], r),
        ("One text: for each of rows its name, a colon, a space and its age; joined by '; '",
         "Ada: 36; Bob: 17; Cyd: 52", r),
        ("The 10th Fibonacci number, where the first two are 1 and 1", 55, none),
        ("The prime numbers below 30, as a list", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29], none),
        ("The factorial of 12", 479001600, none),
        ("The greatest common divisor of 462 and 1071", 21, none),
        ("The number of steps of the Collatz sequence from 27 to 1", 111, none),
        ("The digits of 2 to the power 50, added up", sum(map(int, str(2**50))), none),
        ("The 3 by 3 multiplication table, as a list of lists", [[1, 2, 3], [2, 4, 6], [3, 6, 9]], none),
        ("The list for 1 to 15 in which multiples of 3 are 'Fizz', of 5 'Buzz', of both 'FizzBuzz', others numbers",
         [1, 2, "Fizz", 4, "Buzz", "Fizz", 7, 8, "Fizz", "Buzz", 11, "Fizz", 13, 14, "FizzBuzz"], none),
        ("The list [[1, [2]], [3, [4, [5]]]] flattened to its numbers", [1, 2, 3, 4, 5], none),
        ("The text 'abcde' shifted by three letters, as in Caesar's cipher", "defgh", none),
        ("The number 1994 in Roman numerals", "MCMXCIV", none),
    ]  # fmt: skip
    tools: list[tuple[str, Any, dict[str, Any]]] = [
        ("The number of lines of the file a.txt", 3, none),
        ("A dict that counts the words of the file a.txt", {"red": 1, "green": 2, "blue": 3}, none),
        ("The sum of the numbers in the file b.txt, one a line", 100, none),
        ("The ages in the file c.csv, as integers, in order; its first line is a header", [36, 17, 52], none),
        ("The names in the file c.csv whose age is under 40, in order", ["Ada", "Bob"], none),
        ("The total price of the items in the file d.json", 6.5, none),
        ("The stock of plum", 12, none),
        ("The stock of apple, pear and fig, asked at the same time, as a list", [3, 0, 7], none),
        ("The names of those of apple, pear, plum and fig that are in stock, in this order", ["apple", "plum", "fig"], none),
        ("The total stock of apple, pear, plum and fig", 22, none),
        ("The stock of kiwi, or 'unknown' if asking for it fails", "unknown", none),
        ("The stock of apple, kiwi and fig as a list, in which what fails is -1", [3, -1, 7], none),
        ("The texts of the files a.txt and nope.txt as a list of their lengths, 0 for one that cannot be read",
         [len(FILES["a.txt"]), 0], none),
        ("The longest line of the file a.txt", "red green blue", none),
        ("The stock of each name in names, two at a time, as a dict from name to stock",
         {"apple": 3, "fig": 7, "plum": 12}, {"names": ["apple", "fig", "plum"]}),
        ("The fruit with the largest stock of apple, pear, plum and fig", "plum", none),
    ]  # fmt: skip
    return [Goal(*each) for each in (*data, *tools)]


GOALS = _goals()
_ERROR = re.compile(r"^error\[([a-z/-]+)\]: (.*)$", re.MULTILINE)
_OWN = re.compile(r"'[^']*'|\b\d[\d,]*\b")


@dataclass
class Score:
    """What came of the goals in one surface."""

    goals: int = 0
    first: int = 0
    reached: int = 0
    rounds: int = 0
    tokens: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])

    def observe(self, event: Event) -> None:
        """Count the errors that a model is told of, by code and by what was wrong; names and numbers in it are left out."""
        if isinstance(event, ModelStarted) and event.request is not None:
            for code, what in _ERROR.findall(event.request.messages[-1].text):
                self.refused[f"{code}: {_OWN.sub('...', what)}"] += 1

    def line(self, model: str, surface: str) -> str:
        """The score as a row of a table."""
        rounds = self.rounds / self.goals if self.goals else 0.0
        return f"{model:36} {surface:8} {self.first:4} {self.reached:4} {self.goals:4} {rounds:8.2f} {self.tokens:10,}"


def flow_of(model: str | None, provider: ProviderAdapter | None = None, *, system: str | None = None) -> AgentFlow:
    """A flow with the tools of the goals; ``system`` is a text that models read before each goal, such as a skill."""
    flow = AgentFlow(model, provider=provider, system=system, limits=Limits(wall_s=600))

    @flow.tool
    def fetch(path: str) -> str:
        """The text of a file. Fails if there is none."""
        return FILES[path]

    @flow.tool
    def stock(name: str) -> int:
        """How many there are of a fruit. Fails for a fruit that nobody knows."""
        return STOCK[name]

    return flow


async def attempt(flow: AgentFlow, goal: Goal, surface: Surface, rounds: int, score: Score) -> None:
    """Solve one goal and count what came of it."""
    effect = Solve(goal.text, ("fetch", "stock"), rounds, dict(goal.inputs), surface=surface)
    unsubscribe = flow.subscribe(score.observe)
    async with flow.engine.open("trial") as (run, call):
        try:
            result = await flow.solver.solve(effect, call)
        except AgentflowError as error:
            print(f"  {goal.text}: {error}", file=sys.stderr)
            result = None
        score.tokens += run.usage.input_tokens + run.usage.output_tokens
    unsubscribe()
    score.goals += 1
    used = int(result.notes.get("rounds", rounds)) if result is not None else rounds
    score.rounds += used
    value = None if result is None or result.failed else result.parsed_content
    value = result.content if value is None and result is not None and not result.failed else value
    reached = value == goal.value and isinstance(value, bool) == isinstance(goal.value, bool)
    score.reached += reached
    score.first += reached and used == 1


async def trial(flow: AgentFlow, goals: Iterable[Goal], rounds: int = 3) -> dict[str, Score]:
    """The scores of both surfaces, goal by goal in turn."""
    scores: dict[str, Score] = {surface: Score() for surface in get_args(Surface)}
    for goal in goals:
        for surface, score in scores.items():
            await attempt(flow, goal, surface, rounds, score)  # type: ignore[arg-type]
    return scores


async def main(arguments: Sequence[str] | None = None) -> None:
    """The trial from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--goals", type=int, default=len(GOALS), help="the first so many alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--skill", type=Path, help="a text that models read before each goal: what agentflow skill writes"
    )
    options = parser.parse_args(arguments)
    skill = None if options.skill is None else options.skill.read_text("utf-8")
    print(f"{'model':36} {'surface':8} {'1st':>4} {'all':>4} {'of':>4} {'rounds':>8} {'tokens':>10}")
    for model in options.models:
        async with flow_of(model, system=skill) as flow:
            for surface, score in (await trial(flow, GOALS[: options.goals], options.rounds)).items():
                print(score.line(model, surface), flush=True)
                for what, count in score.refused.most_common(10):
                    print(f"{'':36} {count:8} times {what}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
