"""The tree of what runs: readable however much there is, and cheap to draw."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from rich.console import Console, Group

from agentflow import AgentFlow, ScriptedProvider
from agentflow.cli.shared.cost_table import cost_table
from agentflow.cli.shared.progress import RunTree
from agentflow.core.call.call import CallContext
from agentflow.core.data.source import Source
from agentflow.core.events.events import (
    BranchStarted,
    Event,
    FinishedBase,
    LoopProgress,
    ModelStarted,
    RunStarted,
    TaskStarted,
    TextDelta,
    ToolProgress,
    WaitStarted,
)
from agentflow.observe.run_view import Tally
from tests.benchmarks.figures import called
from tests.support.fakes import FakeRun

SPAN = Source("p.sexp", "\n(pmap f (range 1000))").span(1, 22)


class Watched(FakeRun):
    """A run whose events go to a tree."""

    def __init__(self, tree: RunTree) -> None:
        super().__init__()
        self.tree = tree

    def publish(self, event: Event) -> None:
        self.tree(event)


def rows(tree: RunTree, height: int = 20) -> list[str]:
    return [row.plain for row in tree.rows("*", height)]


def branches(tree: RunTree, count: int) -> list[Any]:
    """The scopes of the branches of a pmap, each with a task that asks a model."""
    call: Any = CallContext(Watched(tree), span=SPAN)
    call.scope(RunStarted, "0", name="p").__enter__()
    scopes: list[Any] = []
    for index in range(count):
        branch = call.scope(BranchStarted, f"0/1.{index}", form="pmap", index=index, count=count)
        branch.__enter__()
        task = branch.call.scope(TaskStarted, name="ask")
        task.__enter__()
        model = task.call.scope(ModelStarted, model="gpt-9")
        model.__enter__()
        scopes.append((model, task, branch))
    return scopes


def end(scopes: Any) -> None:
    for scope in scopes:
        scope.__exit__(None, None, None)


def test_a_thousand_branches_are_a_few_lines() -> None:
    """One row for the form with its bar, a few for what runs in it, and counts for the rest and for what has ended."""
    tree = RunTree(lambda: 1.0)
    scopes = branches(tree, 1_000)
    assert rows(tree)[0].startswith("* pmap  line 2") and rows(tree)[0].endswith("0/1,000")
    assert rows(tree)[1:] == ["  * ask  line 2  gpt-9  0.0 s"] * 4 + ["    and 996 more running"]
    for each in scopes[:700]:
        end(each)
    drawn = rows(tree)
    assert drawn[0].endswith("700/1,000") and drawn[-1].strip() == "ended: 700 ask" and "296 more" in drawn[-2]
    for each in scopes[700:]:
        end(each)
    assert rows(tree) == []


def test_what_is_waited_for_and_how_far_a_tool_is() -> None:
    """A task says its model and what it waits for, a tool its progress."""
    tree = RunTree(lambda: 2.0)
    ((_, task, _),) = branches(tree, 1)
    with task.call.scope(WaitStarted, reason="rate"):
        task.call.emit(ToolProgress, progress=3.0, total=10.0, message="third")
        assert "  gpt-9  0.0 s  waits for rate  3/10 third" in rows(tree)[1]
    assert "waits" not in rows(tree)[1]


def test_drawing_a_thousand_branches_costs_as_little_as_ten() -> None:
    """Events and rows are looked at in constant time: the tree of 1,000 branches is not dearer to draw than that of 20."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True)

    def cost(count: int) -> float:
        tree = RunTree()
        branches(tree, count)
        console.print(Group(*tree.rows("*", 20)))
        with called() as clock:
            began = clock()
            console.print(Group(*tree.rows("*", 20)))
            return clock() - began

    assert cost(1_000) < 1.5 * cost(20)


async def test_no_row_is_left_of_what_has_ended() -> None:
    """After each event the tree shows nothing that has ended, and in the end nothing at all, whatever the program did."""
    tree = RunTree()
    open_: dict[int, str] = {}

    def watch(event: Event) -> None:
        tree(event)
        if isinstance(event, TaskStarted):
            open_[event.seq] = event.name
        elif isinstance(event, FinishedBase):
            open_.pop(event.started, None)
        shown = sum(row.plain.strip().startswith("* ask") for row in tree.rows("*", 200))
        assert shown <= len(open_) <= shown + 20

    program = """
    (defatom ask (params (q string)) (instructions "{{q}}"))
    (race (ask (q "a")) (ask (q "b")) (ask (q "c")))
    (parallel (pmap (lambda (n) (ask (q n))) (list "1" "2" "3")) (ask (q "d")) (retry 2 (value-of (ask (q "e")))))
    (timeout 5 (ask (q "f")))
    """
    replies = [json.dumps(random.random()) for _ in range(40)]
    async with AgentFlow(provider=ScriptedProvider(replies)) as flow:
        flow.subscribe(watch)
        await flow.run(program)
    assert tree.rows("*", 20) == [] and not open_


async def test_a_loop_of_known_length_has_a_bar() -> None:
    """Rounds are counted while they run, nested loops within each other; a loop that has ended leaves a count, or nothing."""
    tree, drawn = RunTree(), list[list[str]]()

    def watch(event: Event) -> None:
        tree(event)
        if isinstance(event, ModelStarted | LoopProgress):
            drawn.append(rows(tree))

    program = """
    (defatom ask (params (q)) (instructions "{{q}}"))
    (loop 3
      (begin (ask (q "a"))
             (loop 2 (ask (q "b")))))
    (try (loop 4 (begin (ask (q "c")) (raise "stop"))) (catch (e) (ask (q "d"))))
    (loop 100 (+ 1 2))
    """
    async with AgentFlow(provider=ScriptedProvider(["."] * 20)) as flow:
        unwatch = flow.subscribe(watch)
        await flow.run(program)
        unwatch()
    shown = [" / ".join(line.strip() for line in lines) for lines in drawn]
    assert any("loop  line 3" in each and "1/3" in each and "loop  line 5" in each and "1/2" in each for each in shown)
    inner = next(lines for lines in drawn if any("line 5" in line for line in lines))
    assert inner[0].startswith("* loop  line 3") and inner[1].startswith("  * loop  line 5")
    assert (
        not any("0/100" in each and "99/100" in each for each in shown) and sum("/100" in each for each in shown) <= 2
    )
    assert any("0/4" in each for each in shown) and "loop" not in shown[-1]
    assert rows(tree) == []


async def test_the_rounds_of_a_loop_are_told_to_nobody_who_takes_no_deltas() -> None:
    """Counting costs nothing where nobody streams: the loop is the plain one."""
    told: list[Event] = []

    def quiet(event: Event) -> None:
        told.append(event)

    quiet.deltas = False  # type: ignore[attr-defined]
    async with AgentFlow(provider=ScriptedProvider(["."] * 20)) as flow:
        flow.subscribe(quiet)
        await flow.run('(defatom ask (params (q)) (instructions "{{q}}")) (loop 3 (ask (q "a")))')
    assert told and not any(isinstance(event, LoopProgress) for event in told)


def test_what_one_model_writes_stands_below_and_what_several_write_in_their_rows() -> None:
    """The texts of models side by side never share a line: of several, each row has the end of its own."""
    tree = RunTree(lambda: 1.0)
    one, other = branches(tree, 2)
    one[0].call.emit(TextDelta, text="The first answer is about to be written down, word by word")
    assert tree.streamed() is not None and "word by word" not in "".join(rows(tree))
    other[0].call.emit(TextDelta, text="second\nanswer")
    assert tree.streamed() is None
    drawn = rows(tree)
    assert "  ... " in drawn[1] and drawn[1].endswith("word by word") and len(drawn[1]) < 90
    assert drawn[2].endswith("  second answer") and "second" not in drawn[1]
    assert [len(row.plain) <= 40 for row in tree.rows("*", 20, width=40)] == [True] * 3
    end(other)
    assert str(tree.streamed()).startswith("The first")


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20])
def test_the_table_of_costs_is_no_wider_than_the_terminal(width: int) -> None:
    """Empty columns are left out, then those that matter least; the name and the cost are always there."""
    ask, plan = Tally("ask"), Tally("plan")
    for tally, cost in ((ask, 1.25), (plan, 0.5)):
        tally.calls, tally.seconds, tally.input_tokens, tally.cached_tokens, tally.cost_usd = (
            1_000,
            700.0,
            123_456,
            60_000,
            cost,
        )
    ask.outcomes = {"failed": 12}
    table = cost_table({"task ask-a-model-about-everything-there-is": ask, "task plan": plan}, width)
    head, first, second = table.plain.strip("\n").split("\n")
    assert max(map(len, (head, first, second))) <= width and len({len(head), len(first), len(second)}) == 1
    assert first.startswith("task ask") and first.endswith("$1.2500") and second.endswith("$0.5000")
    assert ("49%" in first) == (width >= 80) and ("failed" in head) == (width >= 60)
