"""``flow.bounds``: what the tasks and tools of a flow make of a program's effects, in calls and money."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Limits
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.lang.bounds.polynomial import UNBOUNDED
from agentflow.providers.scripted import ScriptedProvider
from agentflow.tasks.workflows import make_workflow

REVIEW = '(defatom review (params (f string)) (instructions "Review {{f}}") (tools))'


async def said(text: str, *, tools: Any = (), limits: Limits | None = None, **options: Any) -> Mapping[str, str]:
    """The bounds of a text in a flow with these tools, as text."""
    async with AgentFlow("offline", tools=tools, limits=limits) as flow:
        found = await flow.bounds(text, **options)
        return {name: str(getattr(found, name)) for name in ("model_calls", "tool_calls", "width", "usd")}


def look(x: str) -> str:
    """Look at something."""
    return x


async def test_a_task_without_tools_is_one_model_call_or_two() -> None:
    """A text is asked for once; JSON is repaired once."""
    assert (await said(f'{REVIEW} (review (f "a"))'))["model_calls"] == "1"
    shaped = REVIEW.replace("(tools)", '(tools) (output_format (type json) (schema "string[]"))')
    assert (await said(f'{shaped} (review (f "a"))'))["model_calls"] == "2"


async def test_a_task_that_names_no_tools_is_loose_and_named() -> None:
    """Offered every tool, a task may take all turns, each with as many tool calls as one answer may have."""
    loose = REVIEW.replace(" (tools)", "")
    assert (await said(f'{loose} (review (f "a"))'))["model_calls"] == "1"
    bounds = await said(f'{loose} (review (f "a"))', tools=[look], limits=Limits(turns=5))
    assert (bounds["model_calls"], bounds["tool_calls"]) == ("5", str(5 * 256).replace("1280", "1,280"))
    async with AgentFlow("offline", tools=[look]) as flow:
        found = await flow.bounds(f'{loose} (review (f "a"))')
        assert "'review' names no tools" in found.loose[0] and "(tools) offers none" in found.loose[0]


async def test_a_registered_task_and_those_its_texts_call_count() -> None:
    """``{{f(x)}}`` in a task's text is a call of another task."""
    async with AgentFlow("offline") as flow:
        await flow.define('(defatom topic (params (x string)) (instructions "Topic of {{x}}"))')
        await flow.define('(defatom sum (params (x string)) (instructions "Sum up {{x}}, about {{topic(x)}}"))')
        assert str((await flow.bounds("(map (lambda (x) (sum (x x))) xs)")).model_calls) == "2*len(xs)"


PLAN = (
    '(defatom plan (params (x string)) (instructions "Plan {{x}}") (tools) (output_format (type json) (schema %s)))'
    '(defatom step (params (s string)) (instructions "Do {{s}}") (tools))'
)


@pytest.mark.parametrize(
    ("schema", "use", "bound"),
    [
        ('"string[<=8]"', "(value-of (plan (x 1)))", "10"),
        ('"string[<=8]?"', "(value-of (plan (x 1)))", "10"),
        ('{"steps" "string[<=8]"}', '(get-field (value-of (plan (x 1))) "steps")', "10"),
        ('{"steps" "string[<=8]"}', '(get (get (plan (x 1)) \'parsedContent) "steps")', "10"),
        ('({"path" "string"} "<=5")', "(value-of (plan (x 1)))", "7"),
        ('{"steps" "string[]"}', '(get-field (value-of (plan (x 1))) "steps")', "2 + len(plan.steps)"),
        ('"string[<=8]"', "(range (length (value-of (plan (x 1)))))", "2 + len(plan)"),
        ('"string[<=4][<=3]"', "(apply append (value-of (plan (x 1))))", "no bound"),
        ('"string[<=4][<=3]"', "(first (value-of (plan (x 1))))", "6"),
    ],
)
async def test_a_length_in_a_schema_is_a_bound(schema: str, use: str, bound: str) -> None:
    """A list that a schema bounds counts as that many; a text in place of it may be longer, so its length has a name."""
    async with AgentFlow("offline") as flow:
        found = await flow.bounds(f"{PLAN % schema} (map (lambda (s) (step (s s))) {use})")
        assert str(found.model_calls) == bound


async def test_a_list_longer_than_its_schema_is_no_answer() -> None:
    """The model is told the length, and an answer past it is FAILED: nothing runs over more than was said."""
    model = ScriptedProvider(lambda request: '["a", "b", "c"]')
    async with AgentFlow(provider=model) as flow:
        defined = PLAN % '"string[<=2]"'
        result = await flow.run(f"{defined} (plan (x 1))")
        assert result.value.status == "FAILED" and "2" in result.value.content
        assert model.requests[0].output_schema == {"type": "array", "items": {"type": "string"}, "maxItems": 2}


async def test_a_task_of_the_name_before_its_definition_counts() -> None:
    """A program may call the registered task first and define one of that name then: the dearer of both counts."""
    async with AgentFlow("offline", tools=[look]) as flow:
        await flow.define('(defatom ask (params (x string)) (instructions "{{x}}") (max-turns 3))')
        assert str((await flow.bounds(f"(ask (x 1)) {TASK}")).model_calls) == "3"


async def test_saved_workflows_are_followed_by_name(tmp_path: Path) -> None:
    """A workflow counts with the sizes of what it is given; one that calls itself, or does not exist yet, has no bound."""
    programs = {
        "each": "(map (lambda (f) (ask (x f))) files)",
        "twice": "(list (call-workflow each (files files)) (call-workflow each (files (append files (list 1)))))",
        "deep": "(map (lambda (s) (ask (x s))) (get-field plan 'steps))",
        "again": "(begin (ask (x 1)) (call-workflow again))",
    }
    async with AgentFlow("offline", workflows=tmp_path) as flow:
        await flow.define(TASK)
        for name, program in programs.items():
            params = {"files": {}} if name in ("each", "twice") else {"plan": {}} if name == "deep" else {}
            await flow.workflows.save(make_workflow({"name": name, "params": params, "program": program}))
        for text, bound in {
            "(call-workflow each (files (list 1 2 3)))": "3",
            "(call-workflow twice (files xs))": "1 + 2*len(xs)",
            '(call-workflow deep (plan {"steps" (list 1 2)}))': "2",
            "(call-workflow deep (plan p))": "len(p.steps)",
            "(map (lambda (x) (call-workflow each (files x))) xs)": "len(xs)*len(xs.*)",
            '(call-workflow deep (plan {"a.b" 1 "steps" (list 1 2)}))': "no bound",
            "(call-workflow again)": "no bound",
            "(call-workflow missing)": "no bound",
        }.items():
            found = await flow.bounds(text)
            assert str(found.model_calls) == bound, text
            assert bound != "no bound" or "workflow" in found.unbounded[0].reason


async def test_a_program_that_is_a_constant_is_followed() -> None:
    """The text or datum of eval-program counts where it is written down, with its bindings and what it is allowed."""
    async with AgentFlow("offline", tools=[look]) as flow:
        await flow.define(TASK)
        for text, bound in {
            '(eval-program \'(map (lambda (f) (ask (x f))) files) (bindings {"files" (list 1 2)}) (allow ask))': "2",
            '(eval-program "(loop 3 (ask (x 1)))" (allow ask))': "3",
            '(define p "(ask (x 1))") (eval-program p (allow ask))': "1",
            f'{TASK.replace("ask", "mine")} (eval-program "(mine (x 1))" (allow mine))': "1",
            '(eval-program "(eval-program (quote (ask (x 1))) (allow ask))" (allow ask))': "1",
            '(try (eval-program "(ask") (catch (e) (ask (x 1))))': "1",
            '(eval-program "(ask (x 1))")': "no bound",
            '(eval-program (string-append "(ask" " (x 1))") (allow ask))': "no bound",
        }.items():
            assert str((await flow.bounds(text)).model_calls) == bound, text


async def test_sizes_are_filled_in_and_bindings_are_counted() -> None:
    """Sizes have the names of bindings; a binding that is there is as long as it is."""
    text = f"{REVIEW} (pmap (lambda (f) (review (f f))) files 8)"
    async with AgentFlow("offline") as flow:
        found = await flow.bounds(text)
        assert found.at({"files": 50}) == {
            "model_calls": 50,
            "tool_calls": 0,
            "width": 8,
            "usd": 0,
            "input_tokens": None,  # the window of a model that was not heard of is not known
            "output_tokens": 50 * 8_192,
        }
        assert found.at({})["model_calls"] is None
        assert str((await flow.bounds(text, bindings={"files": ["a", "b", "c"]})).model_calls) == "3"
        assert found.to_dict({"files": 2})["calls"]["task:review"] == {"bound": "len(files)", "at": 2}


async def test_money_is_that_of_the_longest_call() -> None:
    """A call costs at most the model's window and the longest answer, at the price of each; an unknown price is said."""
    text = f'{REVIEW} (review (f "a"))'
    async with AgentFlow("anthropic:claude-sonnet-4-5") as flow:
        found = await flow.bounds(text)
        usd = found.usd.number
        assert found.input_tokens.number == 200_000 and found.output_tokens.number == 8_192
        assert usd is not None and 0.3 < usd < 1.5
        shorter = REVIEW.replace("(tools)", "(tools) (settings (max_tokens 10))")
        less = (await flow.bounds(f'{shorter} (review (f "a"))')).usd.number
        assert less is not None and less < usd
    async with AgentFlow("openai-chat:mine", base_url="http://127.0.0.1:9/v1") as flow:
        found = await flow.bounds(text)
        assert found.usd == UNBOUNDED and "openai-chat:mine" in found.notes[0]


async def test_what_has_no_bound_says_where() -> None:
    """Solve, programs out of data, workflows and tasks that a model may split are reasons, with spans."""
    for text, word in {
        '(solve "do it")': "yet to write",
        "(eval-program text)": "not known",
        "(call-workflow other)": "workflow 'other'",
        f'{REVIEW} (while (review (f "a")) 1)': "while",
    }.items():
        async with AgentFlow("offline") as flow:
            found = await flow.bounds(text)
            assert found.model_calls == UNBOUNDED
            assert word in found.unbounded[0].reason and found.unbounded[0].span.line == 1


async def test_a_text_that_does_not_compile_raises() -> None:
    """Bounds are of programs that could run: a malformed text is an error with its span, as it is of ``run``."""
    async with AgentFlow("offline") as flow:
        with pytest.raises(SexpEvaluationError) as caught:
            await flow.bounds("(if)")
        assert caught.value.code == "form/arity"


async def test_only_granted_names_count() -> None:
    """With ``allow`` an operator out of data may be a granted name only."""
    async with AgentFlow("offline", tools=[look]) as flow:
        found = await flow.bounds("((first xs) (x 1))", bindings={"xs": ["look"]}, allow=["look"])
        assert str(found.tool_calls) == "1"


TASK = '(defatom ask (params (x string)) (instructions "Ask {{x}}") (tools))'


async def test_a_program_past_what_is_left_is_refused_before_its_first_effect() -> None:
    """eval-program and solve refuse a program whose bound is above the model calls that are left; nothing of it runs."""
    model = ScriptedProvider(["(map (lambda (x) (ask (x x))) (range 9))", "(ask (x 1))", "done"])
    async with AgentFlow(provider=model, limits=Limits(model_calls=4)) as flow:
        await flow.define(TASK)
        with pytest.raises(AgentflowError) as caught:
            await flow.run('(eval-program "(loop 5 (ask (x \\"a\\")))" (allow ask))')
        assert caught.value.code == "bounds/over-budget" and "5 model calls, and 4 are left" in caught.value.message
        assert not model.requests
        result = await flow.run('(solve "ask nine times" (allow ask))')
        assert result.value.content == "done" and result.value.notes["rounds"] == 2
        assert "9 model calls, and 3 are left" in str(model.requests[1])


async def test_tasks_of_the_program_around_count_where_one_is_refused() -> None:
    """A program that calls tasks which the program around it defines is bounded, and refused, as one that calls those of the flow."""
    model = ScriptedProvider([])
    async with AgentFlow(provider=model, limits=Limits(model_calls=4)) as flow:
        for call in (
            '(eval-program \'(loop 5 (ask (x "a"))) (allow ask))',
            '(begin (define (go) (eval-program \'(loop 5 (ask (x "a"))) (allow ask))) (go))',
        ):
            with pytest.raises(AgentflowError, match="5 model calls, and 4 are left"):
                await flow.run(f"{TASK} {call}")
    assert not model.requests


async def test_solve_has_a_bound_of_its_own() -> None:
    """What `max-model-calls` says is the bound of a solve, of writing and running together; nothing else of it is known."""
    async with AgentFlow("offline") as flow:
        found = await flow.bounds(f'{TASK} (loop 3 (solve "x" (allow ask) (max-model-calls 5)))')
        assert str(found.model_calls) == "15" and not found.unbounded and not found.authority.complete
        assert found.authority.tasks == ("ask",) and "unknown before it is written" in found.notes[0]
        assert {found.tool_calls, found.width, found.usd, found.input_tokens, found.output_tokens} == {UNBOUNDED}


async def test_a_solve_past_its_own_bound_fails_alone() -> None:
    """A program over what is left of it is refused, one that nothing bounds is stopped, and the run goes on."""
    replies = [
        "(map (lambda (x) (ask (x x))) (range 9))",
        "(ask (x 1))",
        "done",
        "(while true (ask (x 1)))",
        *["more"] * 4,
    ]
    async with AgentFlow(provider=ScriptedProvider(replies)) as flow:
        await flow.define(TASK)
        text = '(solve "ask nine times" (allow ask) (max-model-calls 4))'
        solved, failed, after = (await flow.run(f'(list {text} {text} (ask (x "after")))')).value
        assert solved.content == "done" and solved.notes["rounds"] == 2
        assert (
            failed.failed
            and failed.notes.error.details["code"] == "solve/model-calls"
            and "all of its 4" in failed.content
        )
        assert after.content == "more"
        with pytest.raises(AgentflowError, match="max-model-calls"):
            await flow.run('(solve "x" (max-model-calls 0))')


async def test_what_is_not_known_is_left_to_the_limits() -> None:
    """A bound that depends on what a model answers refuses nothing, nor does any program where nothing is limited."""
    model = ScriptedProvider(lambda request: '["a"]')
    text = '(eval-program "(map (lambda (s) (ask (x s))) (value-of (ask (x 1))))" (allow ask))'
    async with AgentFlow(provider=model, limits=Limits(model_calls=2)) as flow:
        await flow.define(TASK.replace("(tools)", "(tools) (output_format (type json))"))
        assert len((await flow.run(text)).value) == 1


async def test_money_that_is_left_refuses_as_well() -> None:
    """A program whose worst case is dearer than the rest of the budget is not begun."""
    async with AgentFlow("anthropic:claude-sonnet-4-5") as flow:
        await flow.define(TASK)
        with pytest.raises(AgentflowError, match=r"cost \$4.36"):
            await flow.run('(eval-program "(loop 5 (ask (x \\"a\\")))" (allow ask))', max_cost=2)


async def test_what_a_program_can_reach_is_listed() -> None:
    """Tasks with those that their texts call, tools with those that tasks are offered, models, files: each is named."""
    async with AgentFlow("anthropic:claude-sonnet-4-5", tools=[look]) as flow:
        await flow.define('(defatom topic (params (x string)) (instructions "{{x}}") (tools) (model "openai:gpt-5"))')
        await flow.define('(defatom tell (params (x string)) (instructions "{{topic(x)}}") (tools look))')
        authority = (await flow.bounds("(tell (x 1))", allow=["tell", "topic", "look", "files:docs/**"])).authority
        assert (authority.tasks, [each.name for each in authority.tools]) == (("tell", "topic"), ["look"])
        assert authority.models == ("anthropic:claude-sonnet-4-5", "openai:gpt-5") and authority.files == ("docs/**",)
        assert authority.complete and authority.workflows == ()
        by_data = (await flow.bounds("((first xs) (x 1))", bindings={"xs": "a"}, allow=["look"])).authority
        assert [each.name for each in by_data.tools] == ["look"]
        assert not (await flow.bounds('(solve "x" (allow look))')).authority.complete
