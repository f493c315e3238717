"""Programs that models write: checked before anything runs, sent back with their errors, bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import LimitExceeded, ResourceExhausted, SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.provider_errors import RateLimited
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.events.effects import Solve
from agentflow.core.events.events import SubtaskFinished, SubtaskStarted, Warning
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.lib.text.fences import program_of
from agentflow.tasks.granted import GrantedNames
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService
from agentflow.tasks.solve import Solver
from agentflow.tasks.workflows import WorkflowLibrary, make_workflow
from tests.support.fake_tasks import DirectoryFiles, FakeChecker, FakePrompts, text_of
from tests.support.fakes import FakeRun

CARD = "THE LANGUAGE CARD"


def house(programs: dict[str, Any], *replies: Any, needs: Any = None) -> tuple[Solver, FakePrompts, FakeChecker]:
    prompts = FakePrompts(*replies)
    executor = AtomicTaskExecutor(prompts)
    tasks = TaskService(executor)
    tasks.register_template({"name": "summarise", "params": {"text": "string"}, "description": "Summarise a text"})
    return Solver(executor, lambda surface: CARD, GrantedNames(tasks)), prompts, FakeChecker(programs, needs)


def goal(text: str = "the goal", allow: tuple[str, ...] = ("summarise",), rounds: int = 3, **inputs: Any) -> Solve:
    return Solve(text, allow, rounds, inputs)


async def test_a_program_is_written_checked_and_run() -> None:
    """The model gets the goal, the card, the granted names and the variables; its program's value is the result."""
    solver, prompts, checker = house({"(p)": {"n": 42}}, "Sure:\n```lisp\n(p)\n```\nThere.")
    run = FakeRun(checker=checker)
    result = await solver.solve(goal(files=["a", "b"]), run.call())
    assert result.status == "COMPLETE" and result.parsed_content == {"n": 42}
    assert result.notes["program"] == "(p)" and result.notes["rounds"] == 1 and result.usage.requests == 1
    prompt = prompts.prompts[0]
    assert CARD in prompt.system and prompt.tools == ()
    assert "the goal" in prompts.text and "(summarise (text string)) task: Summarise a text" in prompts.text
    assert 'files: ["a", "b"]' in prompts.text
    assert checker.ran == [("(p)", frozenset({"summarise"}), {"files": ["a", "b"]})]
    assert run.of(SubtaskStarted)[0].request.description == "the goal" and run.unbalanced() == []


async def test_errors_go_back_to_the_model() -> None:
    """What checking or running finds wrong goes back with the program, its hint and the rounds left; then it may work."""
    solver, prompts, checker = house(
        {"(runs)": SexpEvaluationError("division by zero", code="eval/zero", hint="test it first"), "(good)": "done"},
        "(typo)",
        "```\n(runs)\n```",
        "(good)",
    )
    result = await solver.solve(goal(), FakeRun(checker=checker).call())
    assert result.content == "done" and result.notes["rounds"] == 3 and result.usage.requests == 3
    second, third = text_of(prompts.prompts[1]), text_of(prompts.prompts[2])
    assert "(typo)" in second and "name/unbound" in second and "write a known one" in second and "checking" in second
    assert "attempts left: 2" in second and "(typo)" not in third
    assert "division by zero" in third and "test it first" in third and "running" in third
    assert [ran[0] for ran in checker.ran] == ["(runs)", "(good)"]


async def test_nothing_runs_that_is_not_granted() -> None:
    """A program that names what was not granted is refused before it runs; grants never widen those of the caller."""
    solver, _, checker = house({"(p)": 1}, "(p)", needs={"(p)": ["shell"]})
    result = await solver.solve(goal(allow=("summarise",), rounds=1), FakeRun(checker=checker).call())
    assert result.failed and checker.ran == [] and "'shell' is not granted" in result.content
    solver, prompts, checker = house({"(p)": 1}, "(p)", needs={"(p)": ["shell"]})
    call = FakeRun(checker=checker).call(grants=frozenset({"summarise", "solve"}))
    assert (await solver.solve(goal(allow=("summarise", "shell"), rounds=1), call)).failed
    assert "shell" not in text_of(prompts.prompts[0]) and checker.ran == []


async def test_what_is_granted_is_described() -> None:
    """Tasks, tools, workflows and granted effects of the language are described; a name that is nothing is warned of."""
    solver, prompts, checker = house({"(p)": 1}, "(p)")
    tools = ToolRegistry()

    async def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    tools.add(shout)
    flow = make_workflow({"name": "flow", "params": "a", "program": "(p)", "description": "A plan"})
    workflows = WorkflowLibrary(checker)
    await workflows.save(flow)
    solver = replace(solver, names=GrantedNames(solver.names.templates, tools, workflows))
    run = FakeRun(checker=checker)
    await solver.solve(goal(allow=("summarise", "shout", "flow", "get_context", "nothing")), run.call())
    text = text_of(prompts.prompts[0])
    assert "(shout (text string)) -> str tool: Say it loudly." in text and "(get_context (query" in text
    assert "(call-workflow flow (a any)) workflow: A plan" in text
    assert [(event.code, event.details) for event in run.of(Warning)] == [("solve/unknown-name", {"name": "nothing"})]


async def test_rounds_are_bounded_and_nothing_is_lost() -> None:
    """When the rounds are used up the result is subtask_failure with every attempt and what was wrong with it."""
    solver, prompts, checker = house({}, "(one)", "no program here", "(three)")
    result = await solver.solve(goal(rounds=3), FakeRun(checker=checker).call())
    error = result.notes["error"]
    assert error["reason"] == "subtask_failure" and error["details"]["code"] == "solve/rounds"
    assert [attempt["program"] for attempt in result.notes["attempts"]] == ["(one)", "", "(three)"]
    assert result.notes["attempts"][1]["errors"] == ["the answer holds no program"]
    assert result.notes["program"] == "(three)" and len(prompts.prompts) == 3 and result.usage.requests == 3


async def test_a_failed_result_as_value_is_a_failed_round() -> None:
    """A program whose value is FAILED has not reached its goal."""
    solver, _, checker = house({"(a)": TaskResult.failure("llm_error", "no answer"), "(b)": "ok"}, "(a)", "(b)")
    result = await solver.solve(goal(), FakeRun(checker=checker).call())
    assert result.content == "ok" and result.notes["rounds"] == 2


async def test_a_program_too_long_is_no_program() -> None:
    """What is longer than the bound is not even checked."""
    solver, _, checker = house({}, "(" + "x " * 60_000 + ")")
    result = await solver.solve(goal(rounds=1), FakeRun(checker=checker).call())
    assert result.failed and "100,000 characters" in result.content and checker.ran == []


async def test_limits_pass_and_a_failed_model_call_ends_it() -> None:
    """A limit met by the program is the run's; a model that cannot be asked is that failure."""
    solver, _, checker = house({"(p)": LimitExceeded("spent", limit="steps", allowed=1)}, "(p)")
    run = FakeRun(checker=checker)
    with pytest.raises(LimitExceeded):
        await solver.solve(goal(), run.call())
    assert run.unbalanced() == []
    error = RateLimited("busy")
    solver, _, checker = house({}, error)
    result = await solver.solve(goal(), FakeRun(checker=checker).call())
    assert result.error is error and result.notes["rounds"] == 1


async def test_solving_within_itself_is_bounded() -> None:
    """The same goal within itself is a cycle; other goals nest as deep as subtasks may."""
    solver, _, _ = house({}, "(p)")

    async def again(inputs: Any, call: CallContext) -> Any:
        return await solver.solve(goal(rounds=1), call)

    run = FakeRun(checker=FakeChecker({"(p)": again}))
    result = await solver.solve(goal(rounds=1), run.call())
    assert result.failed and "the very goal" in result.content
    counter = iter(range(100))

    async def other(inputs: Any, call: CallContext) -> Any:
        return await solver.solve(goal(f"goal {next(counter)}", rounds=1), call)

    run = FakeRun(limits=Limits(subtask_depth=3), checker=FakeChecker({"(p)": other}))
    result = await solver.solve(goal(rounds=1), run.call())
    assert result.failed and "nested 4 deep" in result.content
    assert [event.depth for event in run.of(SubtaskStarted)] == [1, 2, 3, 4] and run.unbalanced() == []


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("(+ 1 2)", "(+ 1 2)"),
        ("Here: (+ 1 2)", "(+ 1 2)"),
        ("```scheme\n(a)\n```", "(a)"),
        ("```\n(define x 1)\n```\nthen\n```lisp\n(f x)\n```", "(define x 1)\n\n(f x)"),
        ("```python\nx = 1\n```\n(b)", "(b)"),
        ("```lisp\n(unclosed", "(unclosed"),
        ("nothing", ""),
        ("", ""),
    ],
)
def test_finding_the_program(answer: str, program: str) -> None:
    """Code blocks with forms, joined; else the text from its first parenthesis."""
    assert program_of(answer) == program


class Exhausting:
    """A task that can read one file at a time, and a model that knows to split the work."""

    def __init__(
        self, tmp_path: Path, programs: dict[str, Any], rounds: int | None, *replies: Any, default: int = 0
    ) -> None:
        for name in ("a", "b"):
            (tmp_path / name).write_text(name.upper())
        self.error = ResourceExhausted("too much", resource="context", used=2, limit=1)
        self.prompts = FakePrompts(self.error, *replies)
        executor = AtomicTaskExecutor(self.prompts, DirectoryFiles(tmp_path))
        self.checker = FakeChecker(programs)
        self.tasks = TaskService(executor, decompose=default)
        self.tasks.register_template(
            {
                "name": "read",
                "params": "x",
                "instructions": "Read for {{x}}",
                "tools": ["search"],
                **({"decompose": rounds} if rounds is not None else {}),
            }
        )
        self.run = FakeRun(
            checker=self.checker, solver=Solver(executor, lambda surface: CARD, GrantedNames(self.tasks))
        )

    async def ask(self) -> TaskResult:
        request = SubtaskRequest(name="read", inputs={"x": "it"}, file_paths=["a", "b"])
        return await self.tasks.run_request(request, self.run.call())


async def test_an_exhausted_task_is_decomposed(tmp_path: Path) -> None:
    """With decompose set, a task that runs out of context is split by a program that calls it on parts."""

    async def split(inputs: Any, call: CallContext) -> Any:
        parts = [
            await house.tasks.run_request(SubtaskRequest(name="read", inputs={"x": "it"}, file_paths=[f]), call)
            for f in inputs["files"]
        ]
        return "+".join(part.content for part in parts)

    house = Exhausting(tmp_path, {"(split)": split}, 2, "(split)", "A read", "B read")
    result = await house.ask()
    assert result.status == "COMPLETE" and result.content == "A read+B read"
    assert result.notes["program"] == "(split)" and result.notes["decomposed"] is True
    assert result.notes["template_used"] == "read" and "error" not in result.notes
    (ran,) = house.checker.ran
    assert ran[1] == frozenset({"read", "search", "files:a", "files:b"}) and ran[2] == {"x": "it", "files": ["a", "b"]}
    assert "Read for it" in text_of(house.prompts.prompts[1]) and house.run.unbalanced() == []


async def test_a_failed_decomposition_is_the_original_failure(tmp_path: Path) -> None:
    """When no program works the task's own failure stands, with the attempts in its notes."""
    house = Exhausting(tmp_path, {}, 1, "(bad)")
    result = await house.ask()
    assert result.error is house.error and result.notes["error"]["resource"] == "context"
    assert result.notes["decomposition"]["attempts"][0]["program"] == "(bad)"


async def test_nothing_is_decomposed_unasked(tmp_path: Path) -> None:
    """Without decompose, or for any other failure, the result is the failure."""
    for rounds, default in ((None, 0), (0, 3)):
        house = Exhausting(tmp_path, {"(p)": 1}, rounds, "(p)", default=default)
        assert (await house.ask()).error is house.error
    house = Exhausting(tmp_path, {"(p)": 1}, None, "(p)", default=1)
    assert (await house.ask()).parsed_content == 1
    house = Exhausting(tmp_path, {"(p)": 1}, 2, "(p)")
    house.prompts.replies = [RateLimited("busy")]
    assert (await house.ask()).failed and house.checker.ran == []
    assert [event.outcome for event in house.run.of(SubtaskFinished)] == []
