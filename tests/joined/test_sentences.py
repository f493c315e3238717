"""One sentence each of the five documents, on the specification's classes wired by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentflowError,
    BaseHandler,
    Environment,
    FunctionCallNode,
    MemorySystem,
    ScriptedProvider,
    SequentialHistory,
    SexpEnvironment,
    SexpEvaluationError,
    SexpEvaluator,
    TaskResult,
    TaskSystem,
)
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.file_choice import read_choice

ASK = {"name": "ask", "subtype": "ask", "params": "q", "instructions": "Answer {{q}}"}


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SexpEvaluator]:
    (tmp_path / "bees.txt").write_text("The hive holds honey.\n")
    monkeypatch.chdir(tmp_path)
    memory = MemorySystem(roots=[tmp_path])
    tasks = TaskSystem(None, memory)
    tasks.register_template(ASK)
    handler = BaseHandler(tasks, memory, ScriptedProvider(lambda request: request.messages[-1].text))
    yield SexpEvaluator(tasks, handler, memory)
    await handler.aclose()
    await memory.aclose()


async def test_a_house_wired_by_hand_streams_and_is_watched(house: SexpEvaluator) -> None:
    """``stream`` gives the events of one run and its account, ``subscribe`` those of all, also after a part was assigned."""
    seen: list[str] = []
    end = house.subscribe(lambda event: seen.append(event.run_id))
    async with house.stream('(value-of (ask (q "x")))') as run:
        kinds = [event.type async for event in run]
        assert await run.value() == "Answer x" and run.account.usage.requests == 1
    assert kinds[0] == "run_started" and kinds[-1] == "run_finished" and "task_started" in kinds
    house.memory_system = None
    assert await house.evaluate_string("(+ 1 2)") == 3 and len(set(seen)) == 2
    end()
    await house.evaluate_string("(+ 1 2)")
    assert len(set(seen)) == 2


@pytest.mark.parametrize("program", ['(let ((f get_context)) (f (query "honey")))', '("get_context" (query "honey"))'])
async def test_get_context_is_a_value_and_a_string_operator(house: SexpEvaluator, program: str, tmp_path: Path) -> None:
    """Document 1: an operator that evaluates to the name of a primitive calls it."""
    assert await house.evaluate_string(program) == [str(tmp_path / "bees.txt")]


@pytest.mark.parametrize(
    "argument", ["(query 5)", "(history 5)", '(max_results "3")', "(max_results true)", "(target_files (list 5))"]
)
async def test_types_in_get_context_are_checked(house: SexpEvaluator, argument: str) -> None:
    """Document 1: it validates argument structure and types, and the error names the key that the program wrote."""
    with pytest.raises(SexpEvaluationError) as wrong:
        await house.evaluate_string(f'(get_context {argument} (matching_strategy "content"))')
    assert wrong.value.code == "context/value" and argument.split()[0].strip("(") in str(wrong.value)


async def test_the_error_of_a_phase_says_phase_and_round(house: SexpEvaluator) -> None:
    """In ``str()``, where hosts and logs read it."""
    phases = "(executor (lambda (x i) x)) (evaluator (lambda (x p i) x)) (controller (lambda (f p r i) (list 'stop 1)))"
    with pytest.raises(SexpEvaluationError, match="director, iteration 1"):
        await house.evaluate_string(
            f"(director-evaluator-loop (max-iterations 1) (initial-director-input 1) (director (lambda (x i) (car 5))) {phases})"
        )


@pytest.mark.parametrize(
    "form", ['(defatom t (instructions "x"))', '(defatom t (params) (instructions " "))', "(defatom t (params))"]
)
async def test_a_defatom_needs_params_and_instructions(house: SexpEvaluator, form: str) -> None:
    """Document 1: its syntax is ``(defatom name (params ...) (instructions ...) ...)``."""
    with pytest.raises(SexpEvaluationError) as wrong:
        await house.evaluate_string(form)
    assert wrong.value.code in ("defatom/params", "defatom/instructions")


@pytest.mark.parametrize("env", [{"who": "bees"}, SexpEnvironment({"who": "bees"}), Environment({"who": "bees"})])
async def test_a_call_is_evaluated_in_any_environment(house: SexpEvaluator, env: Any) -> None:
    """Document 3: a text argument is a variable first; the variables may be a dict."""
    result = await house.task_system.execute_call({"templateName": "ask", "arguments": ["who"]}, env)
    assert result.content == "Answer bees"
    assert SequentialHistory().previous_outputs("notes_only") == ""


async def test_arguments_and_places_are_evaluated_side_by_side(house: SexpEvaluator) -> None:
    """Document 3's ``Promise.all``: two models that wait for each other both answer, as arguments and as places of one prompt."""
    together = asyncio.Barrier(2)

    async def execute_prompt(prompt: str, **options: Any) -> TaskResult:
        if "alone" in prompt and "," not in prompt and " and " not in prompt:
            await asyncio.wait_for(together.wait(), 30)
        return TaskResult.complete(prompt.removeprefix("Answer "))

    tasks, handler = house.task_system, house.handler
    handler.execute_prompt = execute_prompt
    tasks.register_template({"name": "both", "params": "a, b", "subtype": "both", "instructions": "{{a}} and {{b}}"})
    inner = [FunctionCallNode(template_name="ask", arguments=[f"alone {name}"]) for name in "ab"]
    call = FunctionCallNode(template_name="both", arguments=inner)
    assert (await tasks.execute_call(call)).content == "alone a and alone b"
    text = '{{ask("alone c")}}, {{ask("alone d")}}'
    tasks.register_template({"name": "places", "params": "", "subtype": "places", "instructions": text})
    assert (await tasks.execute_task("atomic", "places", {})).content == "alone c, alone d"


async def test_one_path_is_no_list_of_letters(house: SexpEvaluator, tmp_path: Path) -> None:
    """``file_paths`` of a template that a host gives may be one text, and is nothing else but a list of texts."""
    resolve = house.task_system.resolve_file_paths
    assert await resolve({"file_paths": "bees.txt"}) == ([str(tmp_path / "bees.txt")], None)
    for wrong in ({"file_paths": 5}, {"file_paths": [5]}, {"file_paths_source": "bees.txt"}):
        with pytest.raises(AgentflowError, match="file_paths"):
            await resolve(wrong)


async def test_wrong_types_are_typed_errors(house: SexpEvaluator) -> None:
    """No TypeError and no AttributeError of Python's leaves a public method."""
    tasks, handler, memory = house.task_system, house.handler, house.memory_system
    wrong: list[Any] = [
        lambda: house.evaluate_string(5),  # type: ignore[arg-type]
        lambda: house.evaluate_string("1", [1]),  # type: ignore[arg-type]
        lambda: SexpEnvironment(5),  # type: ignore[arg-type]
        lambda: tasks.find_template(["ask"]),
        lambda: tasks.find_matching_tasks(5),
        lambda: tasks.resolve_file_paths(5),
        lambda: tasks.generate_context_for_memory_system("text", {}),
        lambda: tasks.generate_context_for_memory_system(ContextGenerationInput(query="x"), None),
        lambda: handler.execute_prompt(5),
        lambda: handler.prime_data_context(5),
        lambda: handler.prime_data_context(None, "bees.txt"),
        lambda: memory.get_relevant_context_for("text"),
        lambda: memory.search(5),
        lambda: BaseHandler(None, None, None, 5),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(AgentflowError) as error:
            value = call()
            await value
        assert error.value.code == "data/argument" and error.value.hint


async def test_names_that_no_program_can_call_are_refused(house: SexpEvaluator) -> None:
    """As ``defatom`` does: where they are registered."""
    with pytest.raises(AgentflowError, match="could never be called"):
        house.task_system.register_template({**ASK, "name": "list"})
    assert house.handler.register_tool({"name": "map", "input_schema": {}}, lambda params: 1) is False


def test_a_fenced_choice_of_files_is_read() -> None:
    """A matcher that a host registers may answer with a code block around its JSON."""
    answer = 'These:\n```json\n[{"path": "a", "score": 1}]\n```'
    matches, skipped = read_choice(TaskResult.complete(answer), {"a"})
    assert [match.path for match in matches] == ["a"] and skipped == []
