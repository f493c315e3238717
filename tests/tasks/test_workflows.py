"""Saved workflows: files, parameters, grants, nesting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import DataError, SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.events.effects import CallWorkflow
from agentflow.core.events.events import TaskFinished, TaskStarted
from agentflow.tasks.workflows import MAGIC, Workflow, WorkflowLibrary, make_workflow, parse_workflow
from tests.support.fake_tasks import FakeChecker
from tests.support.fakes import FakeRun


def workflow(**fields: Any) -> Workflow:
    return make_workflow(
        {"name": "greet", "params": {"who": "string"}, "program": "(hello who)", "allow": ["hello"], **fields}
    )


def library(programs: dict[str, Any], directory: Path | None = None, **options: Any) -> WorkflowLibrary:
    return WorkflowLibrary(FakeChecker(programs, **options), directory)


async def test_saved_loaded_and_called(tmp_path: Path) -> None:
    """A workflow survives its file whole; loaded anew it is called with arguments bound and its grants."""
    checker = FakeChecker({"(hello who)": lambda inputs, call: f"hi {inputs['who']}"})
    made = WorkflowLibrary(checker, tmp_path)
    path = await made.save(
        workflow(description="Say\nhello ;;; twice", params={"who": {"type": "string", "default": "you"}})
    )
    assert path == tmp_path / "greet.sexp" and path.read_text().startswith(MAGIC)
    other = WorkflowLibrary(checker, tmp_path)
    assert await other.load() == ["greet"]
    assert other.find("greet") == made.find("greet") and other.find("greet").program == "(hello who)"  # type: ignore[union-attr]
    run = FakeRun(checker=checker)
    result = await other.call_workflow(CallWorkflow("greet", {"who": "Ada", "extra": 1}), run.call())
    assert result.content == "hi Ada" and result.notes == {"workflow": "greet", "undeclared_parameters": ["extra"]}
    assert checker.ran[0][1] == frozenset({"hello"})
    assert run.of(TaskStarted)[0].name == "greet" and run.of(TaskFinished)[0].result is result
    assert (await other.call_workflow(CallWorkflow("greet", {}), run.call())).content == "hi you"


async def test_files_are_loaded_when_first_needed(tmp_path: Path) -> None:
    """Calling a workflow of a directory that was not loaded yet loads it; other programs there are passed over."""
    await library({"(p)": 1}, tmp_path).save(workflow(program="(p)", allow=None, params={}))
    (tmp_path / "plain.sexp").write_text("(+ 1 2)")
    result = await library({}, tmp_path).call_workflow(
        CallWorkflow("greet", {}), FakeRun(checker=FakeChecker({"(p)": 7})).call()
    )
    assert result.parsed_content == 7


async def test_a_plan_that_worked_can_be_saved() -> None:
    """The program in a solve result's notes becomes a workflow; a result without one cannot."""
    made = Workflow.from_result(TaskResult.complete("x", program="(p)"), "plan", params="a, b", allow=["t"])
    assert made.program == "(p)" and list(made.params) == ["a", "b"] and made.allow == ["t"]
    for result in (TaskResult.complete("x"), TaskResult.failure("llm_error", "no", program="(p)")):
        with pytest.raises(DataError) as caught:
            Workflow.from_result(result, "plan")
        assert caught.value.code == "workflow/no-program"


async def test_a_faulty_program_is_not_saved(tmp_path: Path) -> None:
    """Saving checks the program against its grants and lists what is wrong; nothing is written."""
    made = library({"(p)": 1}, tmp_path, needs={"(p)": ["shell"]})
    with pytest.raises(DataError, match="'shell' is not granted") as caught:
        await made.save(workflow(program="(p)"))
    assert caught.value.details["faults"] and os.listdir(tmp_path) == [] and made.names() == []
    with pytest.raises(DataError, match="unknown program"):
        await made.save(workflow(program="(q)"))


async def test_grants_are_those_of_workflow_and_caller() -> None:
    """A workflow may call what it names and its caller holds; without a list, what its caller holds."""
    checker = FakeChecker({"(p)": 1})
    made = WorkflowLibrary(checker)
    await made.save(workflow(program="(p)", allow=["a", "b"], params={}))
    await made.save(workflow(name="open", program="(p)", allow=None, params={}))
    call = FakeRun(checker=checker).call(grants=frozenset({"b", "c"}))
    for name in ("greet", "open"):
        await made.call_workflow(CallWorkflow(name, {}), call)
    assert [ran[1] for ran in checker.ran] == [frozenset({"b"}), None]


async def test_unknown_names_and_missing_parameters_are_failed_results() -> None:
    """As with tasks: FAILED with input_validation_failure, the name or parameter, and the nearest known one."""
    made = library({"(hello who)": "x"})
    await made.save(workflow())
    unknown = await made.call_workflow(CallWorkflow("gret", {}), FakeRun(checker=made.checker).call())
    assert unknown.notes["error"]["details"]["hint"] == "did you mean 'greet'?"
    missing = await made.call_workflow(CallWorkflow("greet", {}), FakeRun(checker=made.checker).call())
    assert missing.notes["error"]["reason"] == "input_validation_failure" and "'who'" in missing.content


async def test_workflows_nest_within_bounds() -> None:
    """A workflow may call workflows; one that calls itself for ever is stopped with execution_halted."""

    async def again(inputs: Any, call: CallContext) -> Any:
        return await made.call_workflow(CallWorkflow("greet", {"who": "x"}), call)

    made = library({"(hello who)": again})
    await made.save(workflow())
    run = FakeRun(limits=Limits(depth=20), checker=made.checker)
    result = await made.call_workflow(CallWorkflow("greet", {"who": "x"}), run.call())
    assert result.notes["error"]["reason"] == "execution_halted" and "nested 21 deep" in result.content
    assert len(run.of(TaskStarted)) == 21 and run.unbalanced() == []


async def test_what_the_program_raises_passes() -> None:
    """A program's error is the caller's, as it is; a TaskResult it gives stays one."""
    error = SexpEvaluationError("no", code="x/y")
    made = library({"(hello who)": error, "(r)": TaskResult.failure("llm_error", "inner")})
    await made.save(workflow())
    await made.save(workflow(name="r", program="(r)", params={}))
    run = FakeRun(checker=made.checker)
    with pytest.raises(SexpEvaluationError) as caught:
        await made.call_workflow(CallWorkflow("greet", {"who": "x"}), run.call())
    assert caught.value is error and run.unbalanced() == []
    result = await made.call_workflow(CallWorkflow("r", {}), run.call())
    assert result.failed and result.notes["workflow"] == "r" and result.notes["error"]["reason"] == "llm_error"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(p)", "not a workflow file"),
        (f"{MAGIC}\n;;; {{\n(p)", "not JSON"),
        (f"{MAGIC}\n;;; []\n(p)", "not a JSON object"),
        (f'{MAGIC}\n;;; {{"name": "a"}}\n', "has no program"),
        (f'{MAGIC}\n;;; {{"name": "../a"}}\n(p)', "not a workflow name"),
        (f'{MAGIC}\n;;; {{"name": "a", "alow": []}}\n(p)', "alow"),
        (f'{MAGIC}\n;;; {{"name": "a", "params": 5}}\n(p)', "params"),
        (f"{MAGIC}\n;;; " + "[" * 100_000 + "\n(p)", "not JSON"),
    ],
)  # fmt: skip
def test_bad_files_say_what_is_wrong(text: str, says: str) -> None:
    """A file that is not a workflow is a DataError naming the file and the fault."""
    with pytest.raises(DataError, match=r"f\.sexp") as caught:
        parse_workflow(text, "f.sexp")
    assert says in caught.value.message and caught.value.code == "workflow/invalid"


async def test_unusable_directories(tmp_path: Path) -> None:
    """A directory that is none, a file that cannot be decoded, two files of one name, a place that cannot be written."""
    with pytest.raises(DataError, match="not a directory"):
        await library({}, tmp_path / "gone").load()
    (tmp_path / "a.sexp").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"a\.sexp cannot be read"):
        await library({}, tmp_path).load()
    (tmp_path / "a.sexp").write_text(workflow().render())
    (tmp_path / "b.sexp").write_text(workflow().render())
    with pytest.raises(DataError, match="another file"):
        await library({}, tmp_path).load()
    with pytest.raises(DataError, match="cannot be written"):
        await library({"(hello who)": 1}, tmp_path / "a.sexp" / "sub").save(workflow())
