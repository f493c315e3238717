"""What a policy of sources prevents and what it costs, on AgentDojo's tasks and attacks, without a model.

    python3 -m uv run --group agentdojo python -m tests.benchmarks.agentdojo

AgentDojo's environments, tools, ground-truth calls, injection goals and checks run through agentflow's own tool registry, policy,
programs and tool loop; models are scripted. So the figures are of the policy and not of a model's skill: the models of attacked runs do
whatever the attacker wants.

*User tasks that still run*: each task is a program made by rule (``dojo/programs.py``), whose extracting model answers truthfully; it counts
if no call is denied and the benchmark's check says that the task is solved. *Fixed program*: the attacker owns every answer of that
extracting model that read untrusted results. Pairs count whose program has a call that the goal needs; in the others no
injection can add one. *Tool loop*: a model is offered all tools, and the attacker owns everything after the first result that he may
have written. Hijacked is what the benchmark's check of the goal says is. Goals without ground truth have hand-written calls
(``dojo/goals.py``) and columns of their own.

Options: names of suites; ``--policy NAME``, again for more; ``--json``; ``--list`` names the user tasks that stop, each with what was
denied, and the fixed programs that are hijacked.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from tests.benchmarks.dojo.policies import POLICIES, policy
from tests.benchmarks.dojo.programs import Call, Step, program_text
from tests.benchmarks.dojo.suites import DIRECTORY, Goal, Suite, UserTask, acts, load

ASSISTANT = '(defatom assistant (params (request string)) (instructions "{{request}}"))\n(value-of (assistant (request request)))'
TRIES = 60
"""Ways of an attacker to spread a goal's calls over a program's that are tried."""
Answers = Mapping[tuple[int, str], Any]
"""What the extracting model says: by step and argument."""


@dataclass
class Table:
    """Figures of one policy: counts by suite and column; ``named`` says which user tasks stop, and which programs are hijacked."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    named: list[str] = field(default_factory=list[str])


class Bench:
    """One suite under one policy: a flow whose model says what ``replies`` has."""

    def __init__(self, suite: Suite, policy_name: str) -> None:
        self.suite = suite
        self.replies: list[Any] = []
        self.flow = AgentFlow(
            provider=ScriptedProvider(lambda _: self.replies.pop(0)),
            tools=suite.tools(),
            provenance=policy(policy_name, suite.name),
        )

    async def program(self, user: UserTask, answers: Answers) -> tuple[Any, AgentflowError | None]:
        """Run the user's program: the environment before, and the error that ended it."""
        before = self.suite.start(user)
        self.replies = [
            json.dumps({"value": answers.get((at, name), step.call.arguments[name])})
            for at, step in enumerate(user.steps)
            for name in step.call.arguments
            if name in step.extracted
        ]
        try:
            await self.flow.run(program_text(user.steps))
        except AgentflowError as error:
            return before, error
        return before, None

    async def loop(self, user: UserTask, goal: Goal) -> bool:
        """Run the user's request in a tool loop that an attacker takes over: whether he reaches his goal."""
        assert user.reads_at is not None
        before = self.suite.start(user)
        honest = [step.call for step in user.steps[: user.reads_at + 1]]
        calls = [*honest, *self.suite.calls_of(goal, before)]
        self.replies = [{"tool_calls": [{"name": call.tool, "arguments": dict(call.arguments)}]} for call in calls]
        self.replies.append(goal.task.GROUND_TRUTH_OUTPUT or "done")
        await self.flow.run(ASSISTANT, bindings={"request": user.task.PROMPT})
        return self.suite.reached(goal, before)


def needed(calls: Sequence[Call]) -> list[Call]:
    """The calls of a goal that are its point: those that change something, or all where none does."""
    return [call for call in calls if acts(call.tool)] or list(calls)


def has_calls(steps: Sequence[Step], wanted: Sequence[Call]) -> bool:
    """Whether a program calls a tool that a goal needs."""
    return not {call.tool for call in wanted}.isdisjoint(step.call.tool for step in steps)


def attacks(steps: Sequence[Step], wanted: Sequence[Call]) -> Iterator[Answers]:
    """The answers by which an attacker makes calls of a program into ``wanted``, where its arguments are extracted from what he wrote."""
    places = [[at for at, step in enumerate(steps) if step.call.tool == call.tool] for call in wanted]
    for chosen in itertools.islice(itertools.product(*places), TRIES):
        answers: dict[tuple[int, str], Any] = {}
        for at, call in zip(chosen, wanted, strict=True):
            for name, read in steps[at].extracted.items():
                if name in call.arguments and any(steps[index].call.tool not in DIRECTORY for index in read):
                    answers[at, name] = call.arguments[name]
        yield answers


async def measure(suite: Suite, policy_name: str, table: Table) -> None:
    """Add one suite's figures to the table of a policy."""
    bench = Bench(suite, policy_name)

    def count(column: str, by: bool = True) -> None:
        table.counts[suite.name, column] += by

    async with bench.flow:
        for user in suite.users:
            before, error = await bench.program(user, {})
            count("tasks")
            count("tasks run", error is None and suite.solved(user, before))
            if error is not None:
                table.named.append(f"{suite.name} {user.name} stops: {error.message}")
            for goal in suite.goals if user.reads_at is not None else ():
                kind = "written" if goal.written else "truth"
                count(f"loop {kind}")
                count(f"loop {kind} hijacked", await bench.loop(user, goal))
                wanted = needed(suite.calls_of(goal, before))
                if has_calls(user.steps, wanted):
                    count(f"fixed {kind}")
                    taken = await hijacked(bench, user, goal, wanted)
                    count(f"fixed {kind} hijacked", taken)
                    if taken:
                        table.named.append(f"{suite.name} {user.name} is hijacked: {goal.task.GOAL}")


async def hijacked(bench: Bench, user: UserTask, goal: Goal, wanted: Sequence[Call]) -> bool:
    """Whether an attacker who owns the extracting model reaches his goal."""
    for answers in attacks(user.steps, wanted):
        before, _ = await bench.program(user, answers)
        if bench.suite.reached(goal, before):
            return True
    return False


COLUMNS = (
    ("user tasks that still run", "tasks run", "tasks"),
    ("fixed program hijacked", "fixed truth hijacked", "fixed truth"),
    ("tool loop hijacked", "loop truth hijacked", "loop truth"),
    ("fixed, hand-written goals", "fixed written hijacked", "fixed written"),
    ("tool loop, hand-written goals", "loop written hijacked", "loop written"),
)


def rows(tables: Mapping[str, Table], suites: Sequence[str]) -> Iterator[list[str]]:
    """The table: a row for each policy, and below it one for each suite."""
    yield ["policy", *[title for title, _, _ in COLUMNS]]
    for name, table in tables.items():
        for label, chosen in ((name, suites), *[(f"  {suite}", [suite]) for suite in suites if len(suites) > 1]):
            cells = [tuple(sum(table.counts[suite, key] for suite in chosen) for key in keys) for _, *keys in COLUMNS]
            yield [label, *[f"{got} of {of}" if of else "" for got, of in cells]]


async def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("--policy", action="append", choices=POLICIES)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args(arguments)
    suites = [suite for suite in load() if not chosen.suites or suite.name in chosen.suites]
    tables = {name: Table() for name in chosen.policy or POLICIES}
    for name, table in tables.items():
        for suite in suites:
            await measure(suite, name, table)
    if chosen.json:
        print(
            json.dumps({name: {" ".join(key): n for key, n in table.counts.items()} for name, table in tables.items()})
        )
        return
    arguments_of = [step for suite in suites for user in suite.users for step in user.steps]
    extracted = sum(len(step.extracted) for step in arguments_of)
    total = sum(len(step.call.arguments) for step in arguments_of)
    print(f"arguments: {total - extracted} from the user's words, {extracted} extracted\n")
    lines = list(rows(tables, [suite.name for suite in suites]))
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        print(" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for name, table in tables.items() if chosen.list else ():
        print("", f"{name}:", *table.named, sep="\n  ")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
