"""Texts in Python are explored as S-expressions are: their arms, their faults, the answers that bring them about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentflow import AgentFlow
from agentflow.cli.check.explore import explore_file
from agentflow.cli.shared.common import Exit
from agentflow.cli.shared.options import ExploreOptions
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.providers.scripted import ScriptedProvider
from agentflow.testing import Answer, Exploration, explore, rehearse

TASKS = '''
@task()
def plan(goal: str) -> list[str]:
    """Plan {{goal}}."""

@task()
def yes(step: str) -> bool:
    """Is this done: {{step}}?"""

@task()
def grade(step: str) -> int:
    """Grade {{step}}."""

@task()
def kind(text: str) -> str:
    """The kind of {{text}}."""
'''
FAULTS = {
    "no steps": ("plan(goal='a')[0]", "list/index", "plan gives []"),
    "a rare branch": (
        "steps = {'a': 1}\nif grade(step='x') > 8:\n    steps['b']\n1",
        "dict/missing",
        "grade gives 9",
    ),
    "a word of the text": (
        "def f(word):\n    return word + 1 if word == 'feature' else 0\nf(kind(text='x'))",
        "type/argument",
        'kind gives "feature"',
    ),
    "a handler": (
        "try:\n    yes(step='a')\nexcept TaskError as e:\n    [][0]\n1",
        "list/index",
        "yes fails",
    ),
    "no number": ("int(kind(text='x')) if kind(text='y') else 1", "value/invalid", None),
    "a comprehension": ("[10 // len(step) for step in plan(goal='a')]", "number/division-by-zero", None),
    "a branch": ("parallel(yes(step='a'), plan(goal='b')[1])", "list/index", None),
    "a loop that steps over": (
        "n = grade(step='a')\nif 0 < n < 4:\n    while n != 0:\n        yes(step='b')\n        n -= 2\n1",
        "no-end",
        None,
    ),
    "always no": ("while not yes(step='a'):\n    pass\n1", "no-end", "yes always gives false"),
    "recursion": ("def ask_(s):\n    return 'done' if yes(step=s) else ask_(s)\nask_('a')", "no-end", None),
    "two conditions": (
        "a = grade(step='x')\nb = kind(text='y')\nif a == 3 and b == 'bug':\n    {'k': 1}['z']\n1",
        "dict/missing",
        None,
    ),
}


async def explored(text: str) -> Exploration:
    return await explore(Source.unnamed(TASKS + text, "python"))


@pytest.mark.parametrize("name", FAULTS)
async def test_faults_are_found_with_the_answers_that_cause_them(name: str) -> None:
    """Rare branches, empty lists, loops without end, handlers: each is found, and happens again with its answers."""
    text, code, when = FAULTS[name]
    found = await explored(text)
    hits = [each for each in found.errors if (each.kind == "endless" if code == "no-end" else each.code == code)]
    assert hits, [str(each) for each in found.found]
    assert when is None or hits[0].when == when
    assert hits[0].span is not None and hits[0].span.line > TASKS.count("\n")
    if code != "no-end":
        with pytest.raises(AgentflowError) as caught:
            await rehearse(Source.unnamed(TASKS + text, "python"), hits[0].script)
        assert caught.value.code == code


async def test_every_arm_of_a_text_is_marked_and_reached() -> None:
    """Arms are the parts that need not be reached: of choices, loops, functions, handlers, branches, comprehensions."""
    found = await explored(
        "def f(x):\n    if x > 3:\n        return 1\n    elif yes(step='a') and yes(step='b'):\n        return 2\n"
        "    else:\n        return 3 if x else 4\n"
        "for s in plan(goal='a'):\n    f(grade(step=s))\n"
        "try:\n    yes(step='c')\nexcept Exception:\n    0\nelse:\n    1\n"
        "parallel(yes(step='d'), 1)\nlist(map(lambda x: x, [1]))"
    )
    assert {each.kind for each in found.arms} == {"then", "else", "operand", "body", "handler", "branch"}
    assert not found.missed and not found.errors


async def test_a_prompt_is_no_arm() -> None:
    """What follows the prompt of a task, for type checkers, is not run, and is not missed."""
    found = await explore(Source.unnamed('@task\ndef t() -> str:\n    """T."""\n    ...\n\nt()\n', "python"), runs=5)
    assert not found.arms


async def test_endless_recursion_is_told_at_its_call() -> None:
    """Where recursion goes on for ever, the call that goes on is named, and of a loop the loop."""
    call = await explored("def go(s):\n    if yes(step=s):\n        return 1\n    return go(s)\n\ngo('a')")
    loop = await explored("n = 1\nwhile n:\n    yes(step='a')\n")
    lines = [[each.span.line for each in found.errors if each.span] for found in (call, loop)]
    first = TASKS.count("\n")
    assert lines == [[first + 4], [first + 2]]


async def test_unhandled_failures_are_named_by_the_task() -> None:
    """Who fails is the task's name, whatever is written after it."""
    found = await explored("yes(step='a')")
    assert {each.who for each in found.found} == {"yes"} and not found.errors


async def test_the_command_writes_tests_for_a_file_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``agentflow explore review.py --write`` finds, prints and writes; the written test rehearses the file."""
    path = tmp_path / "review.py"
    path.write_text(TASKS + "def main(goal):\n    return plan(goal=goal)[0]\n", "utf-8")
    options = ExploreOptions(bind=["goal=walk"], write=str(tmp_path / "tests"), as_json=True)
    assert await explore_file(str(path), options) == Exit.DIAGNOSTICS
    report = json.loads(capsys.readouterr().out)
    (found,) = [each for each in report["found"] if each["kind"] == "error"]
    assert found["code"] == "list/index" and found["test"]
    written = (tmp_path / "tests" / "test_review_explored.py").read_text("utf-8")
    assert 'Answer("plan", []' in written and "review.py" in written
    shown = await rehearse(path, [Answer("plan", ["shoes"])], {"goal": "walk"})
    assert shown == "shoes"


async def test_a_written_program_in_python_is_tried_out_before_it_acts() -> None:
    """``solve(explore=True, surface="python")`` sends back what exploration finds, and runs what it finds nothing in."""
    model = ScriptedProvider(["note(text=[][0])", "note(text='a')"])
    done: list[str] = []

    def note(text: str) -> str:
        """Note a text."""
        done.append(text)
        return text

    async with AgentFlow(provider=model, tools=[note]) as flow:
        assert await flow.solve("note a", allow=["note"], surface="python", explore=True) == "a"
    assert done == ["a"] and "list/index" in str(model.requests[1])
