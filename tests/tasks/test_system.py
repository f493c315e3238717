"""TaskSystem: document 2's methods, notes, failures and the boundary between results and exceptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow.core.call.call import current_call
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.data.errors import ConfigurationError, LimitExceeded, ResourceExhausted, TaskError
from agentflow.core.data.provider_errors import (
    AuthenticationFailed,
    ContextWindowExceeded,
    IncompleteStream,
    RateLimited,
)
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.data.templates import HistoryConfig
from agentflow.core.events.events import TaskFinished, TaskStarted
from agentflow.spec.task_system import TaskSystem
from agentflow.tasks.runner import AtomicTaskExecutor
from tests.support.fake_memory import FakeMemory
from tests.support.fake_tasks import FakePrompts
from tests.support.fakes import FakeRun


def system(*replies: Any, **fields: Any) -> tuple[TaskSystem, FakePrompts]:
    prompts = FakePrompts(*replies)
    made = TaskSystem(prompts=prompts)
    made.register_template(
        {"name": "t", "type": "atomic", "subtype": "s", "params": "x", "instructions": "Do {{x}}", **fields}
    )
    return made, prompts


async def test_a_result_with_its_notes() -> None:
    """A task's answer comes with what the specification wants in the notes, its usage and its events."""
    tasks, prompts = system("hello", model="m1", system="Be {{x}}.")
    run = FakeRun()
    result = await tasks.service.run_request(SubtaskRequest(name="t", inputs={"x": 1, "extra": 2}), run.call())
    assert (result.status, result.content, result.parsed_content) == ("COMPLETE", "hello", None)
    notes = result.notes
    assert notes["template_used"] == "t" and notes["context_source"] == "none" and notes["context_files_count"] == 0
    assert notes["selected_model"] == "m1" and notes["undeclared_parameters"] == ["extra"]
    assert notes["context_management"]["inherit_context"] == "full"
    assert result.usage.total_tokens == 15
    prompt = prompts.prompts[0]
    assert (prompt.system, prompt.model, prompt.tools) == ("Be 1.", "m1", None)
    (started,), (finished,) = run.of(TaskStarted), run.of(TaskFinished)
    assert started.name == "t" and started.request.inputs == {"x": 1, "extra": 2}
    assert finished.result is result and finished.usage == result.usage and finished.cost_usd == 0.5


async def test_template_not_found() -> None:
    """An unknown template is input_validation_failure with the cause and the nearest name; no model is called."""
    tasks, prompts = system()
    for result in (
        await tasks.execute_task("atomic", "nope", {}),
        await tasks.execute_subtask_directly(SubtaskRequest(type="atomic", subtype="nope")),
        await tasks.execute_atomic_template(SubtaskRequest(name="tt")),
        await tasks.execute_task("sequential", "s", {}),
    ):
        error = result.notes["error"]
        assert (result.status, error["type"]) == ("FAILED", "TASK_FAILURE")
        assert error["reason"] == "input_validation_failure" and error["details"]["cause"] == "template_not_found"
    assert prompts.prompts == []
    near = await tasks.execute_task("atomic", "S", {})
    assert "did you mean 'atomic:s'" in near.content


async def test_missing_parameters_call_no_model() -> None:
    """Missing declared parameters fail by name before anything is asked."""
    tasks, prompts = system()
    result = await tasks.execute_task("atomic", "s", {"y": 1})
    assert result.notes["error"]["reason"] == "input_validation_failure"
    assert "'x'" in result.content and result.notes["error"]["details"]["missing"] == ["x"]
    assert prompts.prompts == []


@pytest.mark.parametrize(
    ("error", "reason", "kind"),
    [
        (RateLimited("slow down", status=429), "llm_error", "TASK_FAILURE"),
        (IncompleteStream("cut", partial="half"), "connection_error", "TASK_FAILURE"),
        (AuthenticationFailed("no key", status=401), "configuration_error", "TASK_FAILURE"),
        (ConfigurationError("no model"), "configuration_error", "TASK_FAILURE"),
        (ContextWindowExceeded("too long"), "execution_halted", "RESOURCE_EXHAUSTION"),
        (ResourceExhausted("full", resource="output", used=9, limit=8), "execution_halted", "RESOURCE_EXHAUSTION"),
    ],
)
async def test_model_failures_become_failed_results(error: Exception, reason: str, kind: str) -> None:
    """A failed model call is a FAILED result with the error's reason, everything it knows, and the error itself."""
    tasks, _ = system(error)
    run = FakeRun()
    for result in (
        await tasks.service.run_request(SubtaskRequest(name="t", inputs={"x": 1}), run.call()),
        await tasks.execute_task("atomic", "s", {"x": 1}),
        await tasks.execute_subtask_directly(SubtaskRequest(name="t", inputs={"x": 1})),
    ):
        assert result.status == "FAILED" and result.error is error
        assert (result.notes["error"]["reason"], result.notes["error"]["type"]) == (reason, kind)
        assert result.notes["template_used"] == "t"
    assert run.of(TaskFinished)[0].outcome == "failed" and run.of(TaskFinished)[0].error is error


async def test_resource_exhaustion_carries_its_metrics() -> None:
    """RESOURCE_EXHAUSTION says which resource, how much was used and how much was there."""
    tasks, _ = system(ResourceExhausted("full", resource="context", used=11, limit=10))
    result = await tasks.execute_task("atomic", "s", {"x": 1})
    error = result.notes["error"]
    assert error["resource"] == "context" and error["metrics"] == {"used": 11, "limit": 10}


async def test_a_tools_task_error_passes_unwrapped() -> None:
    """A TaskError that a tool raised goes through program calls as the same object; Python callers get it as FAILED."""
    error = TaskError("the tool gave up", reason="subtask_failure")
    tasks, _ = system(error)
    request = SubtaskRequest(name="t", inputs={"x": 1})
    run = FakeRun()
    with pytest.raises(TaskError) as caught:
        await tasks.service.run_request(request, run.call())
    assert caught.value is error and run.of(TaskFinished)[0].outcome == "error" and run.unbalanced() == []
    with pytest.raises(TaskError) as caught:
        await tasks.execute_subtask_directly(request)
    assert caught.value is error
    result = await tasks.execute_task("atomic", "s", {"x": 1})
    assert result.failed and result.error is error and result.notes["error"]["reason"] == "subtask_failure"


async def test_the_unforeseen_is_a_failed_result_with_its_cause() -> None:
    """Any other exception below Python's entries is FAILED with unexpected_error, the exception kept."""
    error = RuntimeError("boom")
    tasks, _ = system(error)
    for result in (
        await tasks.execute_task("atomic", "s", {"x": 1}),
        await tasks.execute_subtask_directly({"name": "t", "inputs": {"x": 1}}),
    ):
        assert result.notes["error"]["reason"] == "unexpected_error" and result.error is error
        assert "boom" in result.content


@pytest.mark.parametrize(
    "error", [LimitExceeded("spent", limit="usd", allowed=1), asyncio.CancelledError()], ids=["limit", "cancelled"]
)
async def test_limits_and_cancellation_always_pass(error: BaseException) -> None:
    """No entry turns a limit of the run or a cancellation into a result; events balance."""
    tasks, _ = system(error)
    run = FakeRun()
    request = SubtaskRequest(name="t", inputs={"x": 1})
    for attempt in (
        tasks.service.run_request(request, run.call()),
        tasks.execute_task("atomic", "s", {"x": 1}),
        tasks.execute_subtask_directly(request),
    ):
        with pytest.raises(type(error)):
            await attempt
    assert run.unbalanced() == []


async def test_values_are_checked_converted_and_rendered() -> None:
    """Typed parameters convert what fits and refuse what does not, naming the parameter."""
    tasks, prompts = system(params={"x": {"type": "integer"}, "y": {"type": "string", "default": "d"}})
    await tasks.execute_task("atomic", "s", {"x": "4"})
    assert prompts.text == "Do 4"
    result = await tasks.execute_task("atomic", "s", {"x": "four"})
    assert "parameter 'x': an integer is wanted" in result.content


async def test_the_description_is_the_prompt_without_instructions() -> None:
    """A template without instructions asks its description; one with neither has nothing to ask."""
    tasks, prompts = system(instructions="", description="Describe {{x}}")
    await tasks.execute_task("atomic", "s", {"x": "it"})
    assert prompts.text == "Describe it"
    tasks, prompts = system(instructions="", description="")
    result = await tasks.execute_task("atomic", "s", {"x": "it"})
    assert result.notes["error"]["reason"] == "input_validation_failure" and prompts.prompts == []


@pytest.mark.parametrize(
    ("preferred", "fallbacks", "available", "chosen"),
    [
        (None, [], None, None),
        ("m1", [], None, "m1"),
        ("m1", [], ["m2", "m1"], "m1"),
        ("m1", ["m2"], ["m3", "m2"], "m2"),
        ("m1", [], ["m3"], "m3"),
        (None, [], ["m3"], "m3"),
        ("claude", [], ["openai:x", "anthropic:claude"], "anthropic:claude"),
        ("anthropic:claude", [], ["openai:claude", "claude"], "claude"),
    ],
)
async def test_model_selection(preferred: Any, fallbacks: list[str], available: Any, chosen: Any) -> None:
    """The first preference that is available, else the first available, else the flow's own model."""
    tasks, prompts = system(model=preferred, fallbacks=fallbacks)
    result = await tasks.execute_task("atomic", "s", {"x": 1}, available_models=available)
    assert prompts.prompts[0].model == chosen and result.notes.get("selected_model") == chosen


@pytest.mark.parametrize(
    ("declared", "grants", "offered"),
    [
        (None, None, None),
        (None, {"t", "read"}, None),
        ([], None, ()),
        (["read", "write"], None, ("read", "write")),
        (["read", "write"], {"t", "read"}, ("read",)),
    ],
)
async def test_tools_are_attenuated(declared: Any, grants: Any, offered: Any) -> None:
    """A template's tools are offered as far as its caller holds them, never more."""
    tasks, prompts = system(tools=declared)
    call = FakeRun().call(grants=None if grants is None else frozenset(grants))
    await tasks.service.run_request(SubtaskRequest(name="t", inputs={"x": 1}), call)
    assert prompts.prompts[0].tools == offered
    assert prompts.calls[0].grants == call.grants


async def test_history_settings() -> None:
    """A call's history settings adjust the template's one by one, and those the defaults."""
    tasks, prompts = system(history_config={"record_in_session_history": False})
    await tasks.execute_task("atomic", "s", {"x": 1})
    await tasks.execute_task("atomic", "s", {"x": 1}, history_config={"history_turns_to_include": 2})
    assert prompts.prompts[0].history == HistoryConfig(record_in_session_history=False)
    assert prompts.prompts[1].history == HistoryConfig(history_turns_to_include=2, record_in_session_history=False)


async def test_handler_config_and_keywords() -> None:
    """handler_config bounds the prompt; unknown keywords and keys are refused with the nearest known one."""
    tasks, prompts = system(settings={"top_k": 1}, max_turns=9)
    await tasks.execute_task(
        "atomic", "s", {"x": 1}, handler_config={"max_turns": 2, "settings": {"seed": 7}}, inherited_context="known"
    )
    prompt = prompts.prompts[0]
    assert prompt.max_turns == 2 and prompt.settings == {"top_k": 1, "seed": 7}
    assert "<inherited_context>\nknown" in prompts.text
    for keywords in ({"inherited_contxt": ""}, {"handler_config": {"max_turn": 1}}, {"file_paths": 5}):
        result = await tasks.execute_task("atomic", "s", {"x": 1}, **keywords)
        assert result.notes["error"]["reason"] == "input_validation_failure"


async def test_a_handler_and_a_memory_of_the_callers_own() -> None:
    """execute_task uses the handler and memory it is given, with run_prompt or with execute_prompt."""

    class Handler:
        async def execute_prompt(self, prompt: str, system: str = "") -> dict[str, Any]:
            return {"status": "COMPLETE", "content": f"{system}: {prompt}", "notes": {}}

    tasks, prompts = system(system="S")
    memory = FakeMemory([])
    result = await tasks.execute_task(
        "atomic", "s", {"x": 1}, memory, None, 0, Handler(), context_management={"fresh_context": "enabled"}
    )
    assert result.content == "S: Do 1" and prompts.prompts == [] and len(memory.asked) == 1
    other = FakePrompts("from the other")
    assert (await tasks.execute_task("atomic", "s", {"x": 1}, handler=other)).content == "from the other"
    result = await tasks.execute_task("atomic", "s", {"x": 1}, handler=object())
    assert result.notes["error"]["reason"] == "configuration_error"


async def test_without_a_handler_the_task_says_what_to_pass() -> None:
    """A task system built alone fails its prompts with configuration_error and a hint."""
    tasks = TaskSystem()
    tasks.register_template({"name": "t", "params": "", "instructions": "x"})
    result = await tasks.execute_task("atomic", "standard", {})
    assert result.notes["error"]["reason"] == "configuration_error" and result.notes["error"]["details"]["hint"]


class Answer(BaseModel):
    words: list[str]
    score: float = 0.0


@pytest.mark.parametrize(
    "given",
    [
        {"output_format": "string[]"},
        {"output_format": {"type": "string[]"}},
        {"output_format": {"type": "json", "schema": "string[]"}},
    ],
)
async def test_json_output_is_parsed(given: dict[str, Any]) -> None:
    """Where a template asks for JSON the value is in parsedContent, and the model is told the schema."""
    tasks, prompts = system(["a", "b"], **given)
    result = await tasks.execute_task("atomic", "s", {"x": 1})
    assert result.parsed_content == ["a", "b"] and result["parsedContent"] == ["a", "b"]
    assert prompts.prompts[0].output_schema == {"type": "array", "items": {"type": "string"}}
    assert '"items"' in prompts.prompts[0].schema_text


@pytest.mark.parametrize("given", [{"output_model": Answer}, {"output_format": {"type": "json", "schema": Answer}}])
async def test_a_pydantic_model_as_output(given: dict[str, Any]) -> None:
    """With a pydantic model parsedContent is an instance of it."""
    tasks, _ = system({"words": ["a"], "score": 1}, **given)
    result = await tasks.execute_task("atomic", "s", {"x": 1})
    assert result.parsed_content == Answer(words=["a"], score=1.0)
    assert result.model_dump()["content"] == '{"words": ["a"], "score": 1}'


async def test_bad_json_is_complete_with_a_parse_error() -> None:
    """Text that is not JSON is COMPLETE with notes.parseError and no parsedContent; its value raises INVALID_OUTPUT."""
    tasks, _ = system("no json at all", output_format="json")
    result = await tasks.execute_task("atomic", "s", {"x": 1})
    assert result.status == "COMPLETE" and result.content == "no json at all" and result.parsed_content is None
    assert result.notes["parseError"]
    with pytest.raises(TaskError) as caught:
        result.value()
    assert caught.value.kind == "INVALID_OUTPUT"


async def test_json_of_the_wrong_schema_fails_and_loses_nothing() -> None:
    """Valid JSON that misses the schema is output_format_failure with the answer and every violation in the details."""
    tasks, _ = system([1], output_format="string[]")
    result = await tasks.execute_task("atomic", "s", {"x": 1})
    error = result.notes["error"]
    assert result.status == "FAILED" and error["reason"] == "output_format_failure"
    assert error["details"]["value"] == [1] and error["details"]["content"] == "[1]"
    assert error["details"]["schema_errors"] and result.usage.total_tokens == 15


async def test_test_mode_is_scripted_and_has_its_templates() -> None:
    """In test mode no model is asked, answers are the same every time, and greeting and format_date exist."""
    tasks, prompts = system(output_format={"type": "json", "schema": {"a": "integer", "b": "string[]"}})
    assert tasks.find_template("greeting") is None
    tasks.set_test_mode(True)
    first = await tasks.execute_task("atomic", "s", {"x": 1})
    assert first.parsed_content == {"a": 0, "b": []}
    assert first.content == (await tasks.execute_task("atomic", "s", {"x": 1})).content
    assert prompts.prompts == []
    greeting = await tasks.execute_call({"template_name": "greeting", "arguments": ["Ada"]})
    assert greeting.content == "Hello, Ada!"
    date = await tasks.execute_call({"template_name": "format_date", "arguments": ["2026-01-31", "%d.%m.%Y"]})
    assert date.content == "31.01.2026"
    bad = await tasks.execute_call({"template_name": "format_date", "arguments": ["yesterday"]})
    assert bad.notes["error"]["reason"] == "input_validation_failure"
    tasks.set_test_mode(False)
    assert tasks.find_template("greeting") is None
    await tasks.execute_task("atomic", "s", {"x": 1})
    assert len(prompts.prompts) == 1


async def test_format_json_needs_no_model() -> None:
    """atomic:format_json formats a value or a JSON text; what is not JSON is output_format_failure."""
    tasks, prompts = system()
    result = await tasks.execute_task("atomic", "format_json", {"value": '{"a":[1]}', "indent": "1"})
    assert result.parsed_content == {"a": [1]} and result.content == '{\n "a": [\n  1\n ]\n}'
    result = await tasks.execute_task("atomic", "format_json", {"value": "{"})
    assert result.notes["error"]["reason"] == "output_format_failure" and prompts.prompts == []


async def test_context_generation_asks_memory() -> None:
    """With a memory system its one entry point answers; its failure is a result with an error."""
    memory = FakeMemory(["a.py"])
    tasks = TaskSystem(None, memory, prompts=FakePrompts())
    asked = ContextGenerationInput(query="q")
    found = await tasks.generate_context_for_memory_system(asked, {"a.py": "meta"})
    assert found.file_paths == ["a.py"] and memory.asked == [asked]
    tasks = TaskSystem(None, FakeMemory(error="gone"), prompts=FakePrompts())
    found = await tasks.generate_context_for_memory_system(asked, {})
    assert found.matches == [] and "gone" in (found.error or "")


@pytest.mark.parametrize("strategy", ["content", "metadata"])
async def test_context_generation_asks_the_model_without_memory(strategy: Any) -> None:
    """Without memory the matching templates are asked; made-up paths are dropped and reported, scores clipped."""
    reply = [
        {"path": "b.py", "score": 0.2, "relevance": "little"},
        {"path": "a.py", "score": 3, "relevance": "much"},
        {"path": "/etc/passwd", "score": 1, "relevance": "made up"},
    ]
    prompts = FakePrompts(reply)
    tasks = TaskSystem(prompts=prompts)
    asked = ContextGenerationInput(query="find it", matching_strategy=strategy)
    found = await tasks.generate_context_for_memory_system(asked, {"a.py": "alpha", "b.py": "beta"})
    assert [(match.path, match.score) for match in found.matches] == [("a.py", 1.0), ("b.py", 0.2)]
    assert found.skipped[0]["path"] == "/etc/passwd" and "a.py: much" in found.context_summary
    assert "find it" in prompts.text and "alpha" in prompts.text
    assert prompts.prompts[0].history == HistoryConfig(use_session_history=False, record_in_session_history=False)


CHOOSER = {
    "name": "chooser",
    "subtype": "associative_matching",
    "params": "query, global_index",
    "instructions": "Choose for {{query}} out of {{global_index}}",
}


@pytest.mark.parametrize("memory", [None, FakeMemory(["from memory"])])
@pytest.mark.parametrize("strategy", ["content", "metadata"])
async def test_a_registered_template_chooses_the_context(memory: Any, strategy: Any) -> None:
    """A host's ``atomic:associative_matching`` runs instead of memory's own way and of the built-in templates."""
    prompts = FakePrompts('["b.py"]')
    tasks = TaskSystem(None, memory, prompts=prompts)
    tasks.register_template(CHOOSER)
    asked = ContextGenerationInput(query="bees", matching_strategy=strategy)
    found = await tasks.generate_context_for_memory_system(asked, {"a.py": "alpha", "b.py": "beta"})
    assert found.error is None and found.file_paths == ["b.py"]
    assert "Choose for bees" in prompts.text and "beta" in prompts.text


async def test_a_memory_may_have_the_task_system_choose() -> None:
    """A memory that answers through ``generate_context_for_memory_system`` is not asked again by it: a model is."""

    class Delegating(FakeMemory):
        async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
            self.asked.append(input)
            return await tasks.generate_context_for_memory_system(input, {"a.py": "alpha"})

    memory = Delegating()
    tasks = TaskSystem(None, memory, prompts=FakePrompts([{"path": "a.py", "score": 1, "relevance": ""}]))
    found = await tasks.generate_context_for_memory_system(ContextGenerationInput(query="q"), {})
    assert found.file_paths == ["a.py"] and len(memory.asked) == 1


async def test_the_executor_runs_built_in_templates_alone() -> None:
    """What memory's ranker is given: a built-in template by name; failures are results."""
    executor = AtomicTaskExecutor(FakePrompts([{"path": "a", "score": 1, "relevance": "r"}]))
    inputs = {"query": "q", "metadata": "[]"}
    call = FakeRun().call()
    result = await executor.run_template("atomic:associative_matching:content", inputs, call)
    assert result.parsed_content[0]["path"] == "a"
    for name, given in (("atomic:nope", inputs), ("atomic:associative_matching:metadata", {})):
        result = await executor.run_template(name, given, call)
        assert result.notes["error"]["reason"] == "input_validation_failure"


@pytest.mark.parametrize("reply", ["no json", {"nothing": 1}, RateLimited("no")])
async def test_context_generation_reports_what_it_cannot_read(reply: Any) -> None:
    """A failed task or an answer that is not a list is an empty result with the error."""
    found = await TaskSystem(prompts=FakePrompts(reply)).generate_context_for_memory_system(
        ContextGenerationInput(query="q"), {"a.py": ""}
    )
    assert found.matches == [] and found.error


async def test_a_task_called_from_a_tool_joins_that_tools_run() -> None:
    """Inside a tool, execute_task belongs to the tool's run, in a fork of its session."""
    tasks, prompts = system()
    run = FakeRun()
    session = Session()
    outer = run.call(session)

    async def tool(prompt: Any, call: Any) -> str:
        token = current_call.set(call)
        try:
            return (await tasks.execute_task("atomic", "inner", {})).content
        finally:
            current_call.reset(token)

    tasks.register_template({"name": "i", "subtype": "inner", "params": "", "instructions": "in"})
    prompts.replies = [tool, "inner answer"]
    result = await tasks.service.run_request(SubtaskRequest(name="t", inputs={"x": 1}), outer)
    assert result.content == "inner answer"
    names = [(event.name, event.parent) for event in run.of(TaskStarted)]
    assert names == [("t", None), ("i", run.of(TaskStarted)[0].seq)]
    assert prompts.calls[0].session is session and prompts.calls[1].session is not session
    assert run.unbalanced() == []


async def test_many_tasks_at_once_do_not_mix() -> None:
    """A hundred tasks on one system, each with its own answer."""
    tasks, _ = system(lambda prompt, call: "re: " + prompt.parts[0].text)
    results = await asyncio.gather(*(tasks.execute_task("atomic", "s", {"x": n}) for n in range(100)))
    assert [result.content for result in results] == [f"re: Do {n}" for n in range(100)]


async def test_bad_requests_are_failed_results() -> None:
    """A dict that is not a request or call fails with input_validation_failure, naming what is wrong."""
    tasks, _ = system()
    for result in (
        await tasks.execute_subtask_directly({"nme": "t"}),
        await tasks.execute_call({"arguments": []}),
        await tasks.execute_task("atomic", "s", 5),  # type: ignore[arg-type]
    ):
        assert result.notes["error"]["reason"] == "input_validation_failure"


def test_results_of_a_task_read_as_attributes_and_mapping() -> None:
    """The specification's dict shape and Python's attributes are the same."""
    result = TaskResult.complete("c", [1], a=1)
    assert result["status"] == result.status and result.model_dump()["parsedContent"] == [1]
