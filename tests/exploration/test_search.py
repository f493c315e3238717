"""The search: seeded faults, clean programs, and what it says of what it finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentflow import AgentFlow, ConfigurationError, tool
from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError, SexpSyntaxError
from agentflow.core.data.source import Source
from agentflow.lib.signature import ToolInputError
from agentflow.testing import Answer, Exploration, explore, rehearse
from tests.testing.faults.figures import Case, cases
from tests.testing.faults.tools import TOOLS

REVIEW = """
(defatom plan (params (goal string)) (instructions "Plan {{goal}}.")
  (output_format (type "json") (schema ((steps "string[]")))))
(defatom yes (params (step string)) (instructions "Is {{step}} done?") (output_format (type "json") (schema boolean)))
(define step (first (get (value-of (plan (goal goal))) "steps")))
(define (ask) (if (value-of (yes (step step))) "done" (ask)))
(ask)
"""


@pytest.mark.parametrize("case", [*cases("development")], ids=lambda case: case.name)
async def test_faults_for_development(case: Case) -> None:
    """Each seeded fault is found, where it is."""
    explored = await case.explore(runs=40)
    assert any(map(case.hits, explored.found)), str(explored)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["held_out", "held_out_python"])
async def test_faults_held_out(name: str) -> None:
    """At least 90 % of the faults are found that were written before there was a search, in texts of either surface."""
    every = [*cases(name)]
    hits = [any(map(case.hits, (await case.explore(runs=120)).found)) for case in every]
    assert len(every) == 40 and sum(hits) >= 36


@pytest.mark.slow
async def test_faults_of_the_third_set() -> None:
    """At least 90 % of the faults are found that were written from the pages of the language alone."""
    every = [*cases("third")]
    hits = [any(map(case.hits, (await case.explore(runs=60)).found)) for case in every]
    assert len(every) == 40 and sum(hits) >= 36


@pytest.mark.slow
@pytest.mark.parametrize("case", [*cases("third")], ids=lambda case: case.name)
async def test_faults_of_the_third_set_are_faults(case: Case) -> None:
    """Each fault of the set happens with the answers that the set gives, and is what it says."""
    with pytest.raises(AgentflowError) as raised:
        await rehearse(Source("fault.sexp", case.text), case.when, case.bindings, tools=TOOLS)
    if case.code == "no-end":
        assert isinstance(raised.value, LimitExceeded)
    else:
        assert raised.value.code == case.code
        assert raised.value.span is not None and raised.value.span.line == case.lines[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*cases("clean"), *cases("clean_python")], ids=lambda case: case.source.name)
async def test_clean_programs(case: Case) -> None:
    """A program without a fault gives no error, and every arm of it is reached."""
    explored = await case.explore(runs=120)
    assert not explored.errors and not explored.missed, str(explored)


@pytest.mark.slow
async def test_arms_of_examples_are_reached() -> None:
    """Of the examples that are texts, of either surface, at least 95 % of the arms are reached, and none comes to an error."""
    every = [(case, await case.explore(runs=120)) for case in cases("examples")]
    assert {case.surface for case, _ in every} == {"sexp", "python"}
    assert not [str(explored) for _, explored in every if explored.errors]
    arms, missed = sum(len(each.arms) for _, each in every), sum(len(each.missed) for _, each in every)
    assert missed <= 0.05 * arms, [str(each) for _, each in every]


async def test_what_is_said() -> None:
    """An error with its answer, a loop with who keeps it going, a failure with whose it is; and the same every time."""
    explored = await explore(REVIEW, {"goal": "a walk"}, runs=60)
    error, loop, *failures = explored.found
    assert str(error) == 'error[list/empty] at 5:14 first of the empty list  when plan gives {"steps": []}'
    assert str(loop) == "no end at 6:55: 60 calls, and it would continue  when yes always gives false"
    assert [str(each) for each in failures] == [
        "plan fails and the program does not handle it (at 5:36)",
        "yes fails and the program does not handle it (at 6:29)",
    ]
    assert explored.errors == (error, loop) and not explored.missed and explored.runs <= 70
    assert str(await explore(REVIEW, {"goal": "a walk"}, runs=60)) == str(explored)
    assert explored.to_dict()["found"][0]["when"] == 'plan gives {"steps": []}'


async def test_a_finding_happens_again_with_its_answers() -> None:
    """A program given the answers of a finding comes to the same."""
    explored = await explore(REVIEW, {"goal": "a walk"}, runs=60)
    error, loop, *_ = explored.found
    with pytest.raises(SexpEvaluationError, match="first of the empty list"):
        await rehearse(REVIEW, error.script, {"goal": "a walk"})
    with pytest.raises(LimitExceeded):
        await rehearse(REVIEW, loop.script, {"goal": "a walk"})
    assert await rehearse(REVIEW, [Answer("yes", True)], {"goal": "a walk"}) == "done"


async def test_answers_go_to_branches() -> None:
    """An answer is that of its branch, whatever branch asks first."""
    text = """(defatom t (params (x)) (instructions "t {{x}}"))
    (pmap (lambda (x) (string-append (value-of (t (x x))) (value-of (t (x x))))) '(1 2 3))"""
    answers = [Answer("t", "c", branch="2"), Answer("t", "a", branch="0"), Answer("t", "d", branch="2", always=True)]
    assert await rehearse(text, answers) == ["atext", "texttext", "cd"]


async def test_no_tool_is_called_and_no_time_goes_by(tmp_path: Path) -> None:
    """Tools are not called, commands not run, files not written; an hour takes no time; and arguments are checked."""
    called: list[str] = []

    @tool(timeout_s=1, retries=3)
    async def fire(at: str) -> int:
        """Fire."""
        called.append(at)
        return 1

    text = f"""(sleep 3600)
    (retry 3 (timeout 60 (fire (at "will"))))
    (system:write_file (file_path "{tmp_path}/x") (content "x"))
    (system:execute_shell_command (command "touch {tmp_path}/y"))
    (list (value-of (fire (at "will"))) (value-of (system:read_files (file_paths (list "{tmp_path}/x")))))"""
    explored = await explore(text, tools=[fire], runs=40)
    assert not called and not os.listdir(tmp_path) and not explored.errors
    with pytest.raises(ToolInputError, match="'at' is missing"):
        await rehearse('(value-of (fire (to "will")))', tools=[fire])
    assert await rehearse("(fire 1)", bindings={"fire": called.append}) == "text"
    assert not called


async def test_a_flow_lends_its_tasks_and_tools() -> None:
    """What a flow has registered is there, and what a program may not call is refused."""

    async def population(city: str) -> int:
        """Inhabitants."""
        raise AssertionError("called")

    async with AgentFlow("offline", tools=[population]) as flow:
        await flow.define('(defatom city (params (of string)) (instructions "The capital of {{of}}"))')
        text = '(/ 1 (value-of (population (city (value-of (city (of "Italy")))))))'
        explored = await explore(text, flow=flow)
        assert [each.code for each in explored.errors] == ["number/division-by-zero"]
        with pytest.raises(SexpEvaluationError, match="population"):
            await explore(text, flow=flow, allow=["city"])


async def test_code_of_tasks_is_not_called() -> None:
    """The prompt of a Python task, which its body gives, is not asked for; its type is what it answers."""
    called: list[str] = []
    flow = AgentFlow("offline")

    @flow.task
    async def count(of: str) -> int:
        """Count."""
        called.append(of)
        return f"Count {of}"  # pyright: ignore[reportReturnType] - the prompt

    @flow.workflow
    async def audit(n: int) -> int:
        """Audit."""
        called.append("audit")
        return n

    async with flow:
        explored = await explore('(/ 1 (value-of (audit (n (value-of (count (of "birds")))))))', flow=flow)
    assert "number/division-by-zero" in [each.code for each in explored.errors] and not called


async def test_an_answer_that_misses_its_schema_is_a_failed_task() -> None:
    """What a schema says that is not known where values are made cannot become an error; its examples are answers."""
    text = """(defatom t (params) (instructions "t") (output_format (type "json") (schema
      {"type" "object" "required" ("day") "properties" {"day" {"type" "string" "pattern" "^(?i:[0-9]{4})$" EXAMPLES}}})))
    (define day (get (value-of (t)) "day"))
    (if (= (string-length day) 4) (/ 10 (string->number day)) (first '()))"""
    assert not (await explore(text.replace("EXAMPLES", ""))).errors
    explored = await explore(text.replace("EXAMPLES", '"examples" ("2024" "0000")'))
    assert [each.code for each in explored.errors] == ["number/division-by-zero"]


async def test_a_model_may_call_tools_for_all_of_its_turns() -> None:
    """A task that is offered tools may fail by never answering, and one without may not."""
    text = """(defatom t (params) (instructions "t") TOOLS)
    (try (value-of (t))
      (catch (e) (if (equal? (get-field e 'code) "task/exhausted") (first '()) "fine")))"""

    async def look(at: str) -> str:
        """Look."""
        raise AssertionError("called")

    explored = await explore(text.replace("TOOLS", ""), tools=[look], runs=40)
    assert [(each.code, each.when) for each in explored.errors] == [
        ("list/empty", "t calls tools for all of its turns")
    ]
    with pytest.raises(SexpEvaluationError, match="first of the empty list"):
        await rehearse(text.replace("TOOLS", "(tools look)"), explored.errors[0].script, tools=[look])
    assert not (await explore(text.replace("TOOLS", "(tools)"), tools=[look], runs=40)).errors


async def test_what_a_model_writes_with_a_tool_is_there() -> None:
    """A tool that acts on files is carried out when the model calls it, on files that are none."""
    text = """(defatom t (params) (instructions "t") (tools system:write_file))
    (value-of (t))
    (value-of (system:read_files (file_paths (list "a.md"))))"""
    call = {"tool": "system:write_file", "arguments": {"file_path": "a.md", "content": "written"}}
    answers = [Answer("t", call, kind="calls"), Answer("t", "done")]
    assert "written" in str(await rehearse(text, answers))


async def test_the_type_of_a_python_workflow_is_what_it_gives() -> None:
    """A workflow in Python answers with values of the type that it says it returns."""
    flow = AgentFlow("offline")

    @flow.workflow
    async def audit() -> list[int]:
        """Audit."""
        raise AssertionError("called")

    async with flow:
        explored = await explore("(+ 1 (first (value-of (audit))))", flow=flow, runs=40)
    assert [(each.code, each.when) for each in explored.errors] == [("list/empty", "audit gives []")]


async def test_assumptions() -> None:
    """What is assumed of a field is not tried otherwise."""
    text = """(defatom g (params) (instructions "g") (output_format (type "json") (schema ((grade integer)))))
    (define grade (get (value-of (g)) "grade"))
    (if (> grade 10) (first '()) (range grade))"""
    assert (await explore(text)).errors
    assert not (await explore(text, assume={"grade": {"minimum": 0, "maximum": 10}})).errors


async def test_long_work_over_data_has_an_end() -> None:
    """What takes more steps or calls than a run is given at first is not a loop without end."""
    text = """(defatom t (params (x)) (instructions "t {{x}}"))
    (define (count n) (if (= n 0) 0 (count (- n 1))))
    (count 30000)
    (do ((i 0 (+ i 1))) ((= i 100)) (t (x i)))
    (length (map (lambda (x) (t (x x))) (range 100)))"""
    explored = await explore(text, runs=3)
    assert not explored.errors


@pytest.mark.parametrize(("text", "error"), [("(first", SexpSyntaxError), ("(let)", SexpEvaluationError)])
async def test_what_is_no_program(text: str, error: type[Exception]) -> None:
    """The errors of a text are raised."""
    with pytest.raises(error):
        await explore(text)


async def test_what_is_no_tool() -> None:
    """A tool is a function with a name."""
    with pytest.raises(ConfigurationError):
        await explore("1", tools=[lambda: 1])


def test_an_exploration_as_text() -> None:
    """Arms that no run reached are listed."""
    assert str(Exploration((), (), (), 3)) == "3 runs, 0 of 0 arms"
