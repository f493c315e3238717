"""Marking arms: every part that need not be reached, and a program that means what it meant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.ir import Seq
from agentflow.lang.passes.arms import Arm, mark_arms
from agentflow.lang.program import compile_program
from tests.support.manual import blocks, outcome

MANUAL = Path(__file__).parents[1] / "spec"


async def run(text: str) -> tuple[object, list[Arm], Counter[str]]:
    """A program's value, its arms, and how often each was reached, by what it is and its text."""
    reached: list[int] = []
    arms: list[Arm] = []

    def mark(source: Source, tree: Seq) -> None:
        arms.extend(mark_arms(source, tree, reached.append))

    async with AgentFlow("offline") as flow:
        program = compile_program(text, names=flow.engine.names(SexpEnvironment()), limits=flow.limits, passes=[mark])
        value = (await flow.run(program)).value
    return value, arms, Counter(f"{arms[each].kind} {arms[each].span.text}" for each in reached)


async def test_each_kind_of_arm() -> None:
    """Then, else, clause, operand, body, handler and branch are arms; a missing else is one too."""
    text = """(define (f x) (if (> x 1) "then" "else"))
    (list (f 0) (cond ((f 2) "clause") (else 0)) (or false "operand") (try (first '()) (catch (e) "handler"))
          (parallel "branch") (when true 1))"""
    value, arms, reached = await run(text)
    assert value == ["else", "clause", "operand", "handler", ["branch"], 1]
    assert {arm.kind for arm in arms} == {"then", "else", "clause", "operand", "body", "handler", "branch"}
    assert reached['then "then"'] == 1 and reached['else "else"'] == 1
    assert reached['clause ("clause")'] == 0 and reached['operand "operand"'] == 1
    assert len(arms) - len(reached) == 2  # the else of cond, and that of when


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        ("(define (go n) (if (= n 0) 0 (go (- n 1)))) (go 5)", 5),
        ("(let go ((n 4)) (if (= n 0) 0 (go (- n 1))))", 4),
        ("(define n 3) (while (> n 0) (set! n (- n 1)))", 3),
        ("(define n 3) (define (go) (set! n (- n 1)) (if (= n 0) 0 (go))) (go)", 2),
        ("(define (odd n) (if (= n 0) 0 (even n))) (define (even n) (if (= n 0) 1 (odd (- n 1)))) (odd 2)", 4),
        ("(do ((i 0 (+ i 1))) ((= i 6)) i)", 6),
        ("(define (two x) (+ x x)) (define (one x) (two x)) (one (one 1))", 0),
    ],
)
async def test_rounds_are_counted_where_loops_go_on(text: str, rounds: int) -> None:
    """A round is a while going on, and a call by which a procedure comes to itself again, through others too."""
    _, arms, reached = await run(text)
    assert sum(count for arm, count in reached.items() if arm.startswith("round")) == rounds
    assert all(arm.loop is not None for arm in arms if arm.kind == "round")


@pytest.mark.slow
async def test_marked_programs_mean_what_they_meant(tmp_path: Path) -> None:
    """Every block of the manual gives what it gave, with its arms marked."""

    async def shout(text: str) -> str:
        """The text in capitals."""
        return text.upper()

    async def add_up(numbers: list[int]) -> int:
        """The sum of the numbers."""
        return sum(numbers)

    async def broken() -> str:
        """Always fails."""
        raise ValueError("this tool is broken")

    wrong: list[str] = []
    for block in [block for page in sorted(MANUAL.glob("*.md")) for block in blocks(page)]:
        for expected in [each for each in block.expectations if each.kind == "=>"][-1:]:
            model = ScriptedProvider(list(block.replies))
            tools = [shout, add_up, broken]
            async with AgentFlow(provider=model, root=tmp_path, tools=tools, notes="session") as flow:
                value, error = None, None
                try:
                    program = compile_program(
                        expected.program,
                        names=flow.engine.names(SexpEnvironment()),
                        limits=flow.limits,
                        passes=[lambda source, tree: mark_arms(source, tree, lambda _: None)],
                    )
                    value = (await flow.run(program)).value
                except AgentflowError as raised:
                    error = raised
            difference = outcome(expected, value, error)
            if difference is not None:
                wrong.append(f"{block.page}.md:{expected.line}: {difference}")
    assert not wrong, "\n" + "\n".join(wrong)
