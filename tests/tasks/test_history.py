"""SequentialHistory: what the next step is given, how it is bounded, what a failure carries."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow.core.data.errors import LimitExceeded, ResourceExhausted
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import ContextManagement
from agentflow.spec.task_system import TaskSystem
from agentflow.tasks.step_history import SequentialHistory, previous_outputs_text
from tests.support.fake_tasks import FakePrompts
from tests.support.fakes import FakeRun


def filled(count: int, size: int = 20, **options: Any) -> SequentialHistory:
    history = SequentialHistory(**options)
    for number in range(count):
        history.add(f"s{number}", TaskResult(content=f"out{number} " + "x" * size, notes={"key": number}))
    return history


def test_notes_only_and_full_output() -> None:
    """notes_only gives each step's notes and nothing of its output; full_output the whole content; both in order."""
    history = SequentialHistory()
    history.add("a", TaskResult(content="first line\nsecond line", notes={"k": 1}))
    history.add("b", TaskResult(content="other", notes={"stdout": "other", "said": "othe", "exit_code": 0}))
    text = history.previous_outputs()
    assert text.index('Step 1, a (COMPLETE): {"k": 1}') < text.index("Step 2, b")
    assert text.endswith('{"exit_code": 0}') and "line" not in text and "othe" not in text
    history.format = "full_output"
    assert "first line\nsecond line" in history.previous_outputs()


@pytest.mark.parametrize("format", ["notes_only", "full_output"])
def test_what_is_handed_on_is_bounded(format: Any) -> None:
    """However many and long the steps, the text stays within max_chars and says what it leaves out; results stay whole."""
    history = filled(500, 5_000, format=format, max_chars=20_000)
    text = history.previous_outputs()
    assert len(text) <= 20_000 and "earlier step" in text and "s499" in text
    assert len(history.steps[0].result.content) > 5_000


def test_older_outputs_shrink_before_they_go() -> None:
    """Newest outputs are given in full; older ones as notes; the oldest are left out."""
    text = filled(6, 3_000, format="full_output", max_chars=8_000).previous_outputs()
    assert text.count("x" * 3_000) == 2 and 'Step 1, s0 (COMPLETE): {"key": 0}' in text
    one = filled(1, 9_000, format="full_output", max_step_chars=100).previous_outputs()
    assert "characters more" in one and len(one) < 300


def test_previous_outputs_as_callers_write_them() -> None:
    """Text, a history, one result or a list of results and values all become text."""
    assert previous_outputs_text(None) == "" and previous_outputs_text("x") == "x"
    assert "out0" in previous_outputs_text(filled(1, format="full_output"))
    text = previous_outputs_text([TaskResult(content="a"), {"b": 1}])
    assert "a" in text and '{"b": 1}' in text


def requests(*names: str) -> list[SubtaskRequest]:
    accumulate = ContextManagement(accumulate_data=True)
    return [SubtaskRequest(name=name, context_management=accumulate) for name in names]


def house(*replies: Any) -> tuple[TaskSystem, FakePrompts]:
    prompts = FakePrompts(*replies)
    system = TaskSystem(prompts=prompts)
    for name in ("one", "two", "three"):
        system.register_template({"name": name, "subtype": name, "params": "", "instructions": f"Do {name}"})
    return system, prompts


async def test_each_step_is_given_the_earlier_ones() -> None:
    """A sequence hands each step what came before, in the format asked for, through the task system."""
    system, prompts = house("alpha", "beta", "gamma")
    history = SequentialHistory(format="full_output")

    async def execute(request: SubtaskRequest, previous: str) -> TaskResult:
        return await system.execute_task(
            "atomic", request.name or "", {}, previous_outputs=previous, context_management=request.context_management
        )

    result = await history.run(requests("one", "two", "three"), execute)
    assert result.content == "gamma" and [step.name for step in history.steps] == ["one", "two", "three"]
    assert "alpha" not in str(prompts.prompts[0].parts) and "alpha" in str(prompts.prompts[1].parts)
    assert "alpha" in prompts.text and "beta" in prompts.text and "<previous_outputs>" in prompts.text


async def test_a_failure_carries_the_partial_results() -> None:
    """The first failed step ends the sequence; its error keeps its kind and carries everything done so far."""
    error = ResourceExhausted("full", resource="context", used=2, limit=1)
    system, prompts = house("alpha", error, "never")
    run = FakeRun()
    history = SequentialHistory()
    result = await history.run(
        requests("one", "two", "three"), lambda request, previous: system.service.run_request(request, run.call())
    )
    body = result.notes["error"]
    assert result.failed and result.error is error and len(prompts.prompts) == 2
    assert body["type"] == "RESOURCE_EXHAUSTION" and body["resource"] == "context" and body["metrics"]["used"] == 2
    assert body["details"]["failed_step"] == "two"
    assert body["details"]["partial_results"] == [{"step": 1, "name": "one", "status": "COMPLETE", "content": "alpha"}]


async def test_limits_end_a_sequence_as_limits() -> None:
    """LimitExceeded is not a failure of a step."""

    async def execute(request: SubtaskRequest, previous: str) -> TaskResult:
        raise LimitExceeded("spent", limit="tokens", allowed=1)

    with pytest.raises(LimitExceeded):
        await SequentialHistory().run(requests("one"), execute)


def test_a_bounded_history_keeps_what_it_can_say() -> None:
    """However long the sequence, it holds about ``max_chars`` of outputs, says as much as one that keeps all, and goes on counting."""
    bounded, whole = (
        filled(3_000, 2_000, format="full_output", max_chars=50_000, bounded=each) for each in (True, False)
    )
    assert sum(len(step.result.content) for step in bounded.steps) <= 50_000 + 400 * 200
    assert len(bounded) == len(whole) == 3_000
    assert bounded.previous_outputs().split("\n\n")[-20:] == whole.previous_outputs().split("\n\n")[-20:]
    assert bounded.previous_outputs().startswith("(2") and "earlier steps left out" in bounded.previous_outputs()
    assert bounded.partial_results()[-1]["step"] == 3_000
    long = SequentialHistory(bounded=True, max_step_chars=100)
    long.add("a", TaskResult(content="x" * 1_000, parsed_content=["data"]))
    assert len(long.steps[0].result.content) == 100 and long.steps[0].result.parsed_content is None
    long.add("b", TaskResult(content="large", parsed_content=1 << 1_000_000))
    long.add("c", TaskResult(content="7", parsed_content=7))
    assert [step.result.parsed_content for step in long.steps[1:]] == [None, 7]


def test_a_copy_goes_on_by_itself() -> None:
    """What either is given later, the other does not know."""
    history = filled(2)
    other = history.copy()
    other.add("more", TaskResult(content="x"))
    history.add("else", TaskResult(content="y"))
    assert [step.name for step in history.steps] == ["s0", "s1", "else"]
    assert [step.name for step in other.steps] == ["s0", "s1", "more"]


def test_a_step_is_told_of_those_with_no_more_authority() -> None:
    """The host is told of all; code with grants of nothing that was done with others."""
    history = SequentialHistory(format="full_output")
    history.add("host", TaskResult(content="secret"))
    history.add("ours", TaskResult(content="open"), frozenset({"a"}))
    history.add("more", TaskResult(content="wide"), frozenset({"a", "b"}))
    assert "secret" in history.previous_outputs()
    told = history.previous_outputs(grants=frozenset({"a"}))
    assert "open" in told and "secret" not in told and "wide" not in told
    assert [each["name"] for each in history.partial_results(frozenset({"a"}))] == ["ours"]
