"""``agentflow explore``: what it prints, writes and exits with."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from agentflow.cli.check.explore import explore_file, parse_assumptions
from agentflow.cli.shared.common import Exit, UsageError
from agentflow.cli.shared.options import ExploreOptions
from agentflow.core.data.errors import ConfigurationError

PAGE = Path(__file__).parents[2] / "docs" / "explore.md"
PLAN = """(defatom plan (params (goal string)) (instructions "Plan {{goal}}.")
  (output_format (type "json") (schema ((steps "string[]")))))
(first (get (value-of (plan (goal goal))) "steps"))
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "review.sexp"
    path.write_text(PLAN, "utf-8")
    return str(path)


async def test_what_is_printed(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs and arms, each finding with the answers that bring it about, and exit code 3."""
    assert await explore_file(program, ExploreOptions(bind=["goal=a walk"], runs=20)) == Exit.DIAGNOSTICS
    assert capsys.readouterr().out.splitlines()[1:] == [
        'error[list/empty] at 3:1 first of the empty list  when plan gives {"steps": []}',
        "plan fails and the program does not handle it (at 3:23)",
    ]


async def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program of docs/explore.md gives what stands there."""
    text = PAGE.read_text("utf-8")
    program = text.split('```lisp title="review.sexp"\n')[1].split("```")[0]
    printed = text.split("--write tests/\n", 1)[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "review.sexp").write_text(program, "utf-8")
    await explore_file("review.sexp", ExploreOptions(bind=["goal=a walk"], write="tests/"))
    assert capsys.readouterr().out == printed


async def test_json(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One object, as other commands print."""
    await explore_file(program, ExploreOptions(bind=["goal=x"], runs=20, as_json=True))
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False and report["file"] == program and report["missed"] == []
    assert [each["kind"] for each in report["found"]] == ["error", "unhandled"]
    assert report["found"][0]["answers"][0] == {"name": "plan", "branch": "", "kind": "value", "value": {"steps": []}}


async def test_a_failed_task_is_an_error_with_strict_only(tmp_path: Path) -> None:
    """A task that fails and is not handled is told, and makes the exit code 3 when it is to."""
    path = tmp_path / "p.sexp"
    path.write_text('(defatom t (params) (instructions "t")) (value-of (t))', "utf-8")
    assert await explore_file(str(path), ExploreOptions()) == Exit.OK
    assert await explore_file(str(path), ExploreOptions(strict=True)) == Exit.DIAGNOSTICS


async def test_tests_are_written(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error becomes a test, beside which its name is printed."""
    directory = Path(program).parent / "tests"
    await explore_file(program, ExploreOptions(bind=["goal=x"], runs=20, write=str(directory)))
    path = directory / "test_review_explored.py"
    assert f"  test written: {path}::test_plan_gives_steps_none\n" in capsys.readouterr().out
    text = path.read_text("utf-8")
    assert text.count("def test_") == 1 and 'Answer("plan", {"steps": []}, always=True)' in text


async def test_tests_of_two_programs_stand_beside_one_another(tmp_path: Path) -> None:
    """Those of a text in Python, and of a program of the same name elsewhere, take nothing from those written before."""
    texts = {
        "p.sexp": "(first nil)",
        "p.py": "[][0]",
        "other/p.py": "{}['k']",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        for _ in range(2):
            await explore_file(str(path), ExploreOptions(runs=5, write=str(tmp_path / "tests")))
    assert {
        each.name: each.read_text("utf-8").split(" = HERE / ")[1].split("\n")[0]
        for each in (tmp_path / "tests").iterdir()
    } == {
        "test_p_explored.py": '"../p.sexp"',
        "test_p_py_explored.py": '"../p.py"',
        "test_other_p_py_explored.py": '"../other/p.py"',
    }


async def test_tools_tasks_and_flows(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools come from files, tasks from a directory, both from a flow of the user's; none of it is called."""
    here = Path(program).parent
    (here / "lent_tools.py").write_text("async def spare(n: int) -> list[str]:\n    raise AssertionError\n", "utf-8")
    (here / "tasks").mkdir()
    (here / "tasks" / "t.xml").write_text(
        '<task name="count"><parameters/><instructions>Count.</instructions>'
        '<output_format type="json" schema="integer"/></task>',
        "utf-8",
    )
    (here / "review.sexp").write_text("(nth (value-of (spare (n 1))) (value-of (count)))", "utf-8")
    lent = ExploreOptions(tools=[f"spare={here / 'lent_tools.py'}"], tasks=str(here / "tasks"), runs=60)
    assert await explore_file(program, lent) == Exit.DIAGNOSTICS
    (here / "lent_flow.py").write_text(
        "from agentflow import AgentFlow\nfrom lent_tools import spare\nflow = AgentFlow('offline', tools=[spare], tasks='tasks')\n",
        "utf-8",
    )
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [str(here), *sys.path])
    assert await explore_file(program, ExploreOptions(app="lent_flow", runs=60)) == Exit.DIAGNOSTICS


async def test_assumptions(tmp_path: Path) -> None:
    """What is assumed is not tried otherwise."""
    assert parse_assumptions(["grade in 0..10", "share in 0.5..1", "kind in bug, feature"]) == {
        "grade": {"minimum": 0, "maximum": 10},
        "share": {"minimum": 0.5, "maximum": 1},
        "kind": {"enum": ["bug", "feature"]},
    }
    path = tmp_path / "p.sexp"
    path.write_text(
        '(defatom g (params) (instructions "g") (output_format (type "json") (schema integer))) (range 0 9 (value-of (g)))',
        "utf-8",
    )
    assert await explore_file(str(path), ExploreOptions(runs=30)) == Exit.DIAGNOSTICS
    assert await explore_file(str(path), ExploreOptions(runs=30, assume=["g in 1..5"])) == Exit.OK


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ExploreOptions(assume=["grade"]), "not an assumption"),
        (ExploreOptions(tools=["spare"]), "does not name a tool"),
        (ExploreOptions(bind=["goal"]), "not a binding"),
        (ExploreOptions(app="m:f", tasks="t"), "--tasks and --app"),
    ],
)
async def test_wrong_use(program: str, options: ExploreOptions, message: str) -> None:
    """What cannot be understood is an error of usage."""
    with pytest.raises(UsageError, match=message):
        await explore_file(program, options)


async def test_files_of_tools(program: str) -> None:
    """A file without the function, one that does not load and one that is missing are told apart."""
    here = Path(program).parent
    (here / "broken.py").write_text("1 / 0", "utf-8")
    for text, message in (
        ("broken.py", "ZeroDivisionError"),
        ("none.py", "not a Python file"),
        ("review.sexp", "not a Python file"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            await explore_file(program, ExploreOptions(tools=[f"spare={os.path.join(here, text)}"]))
    (here / "other.py").write_text("x = 1", "utf-8")
    with pytest.raises(ConfigurationError, match="no function 'spare'"):
        await explore_file(program, ExploreOptions(tools=[f"spare={here / 'other.py'}"]))


@pytest.mark.parametrize(
    ("rule", "warning"),
    [
        ("step in 0..10", "'step' is of no use: nothing that was asked for has that name; there are 'plan', 'steps'"),
        ("plan in 0..10", "'plan' fits no value: its schema is "),
        ("steps in 1,2", """'steps' fits no value: its schema is {"type": "array","""),
    ],
)
async def test_an_assumption_that_holds_for_nothing_is_told(
    program: str, rule: str, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that was misspelt, and a rule that no value of the schema keeps to, in text and in JSON."""
    for as_json in (False, True):
        await explore_file(program, ExploreOptions(bind=["goal=x"], runs=20, assume=[rule], as_json=as_json))
        out = capsys.readouterr().out
        told = json.loads(out)["warnings"] if as_json else [line for line in out.splitlines() if "warning:" in line]
        assert len(told) == 1 and f"the assumption about {warning}" in told[0], out


async def test_an_assumption_that_holds_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Words are read as the type of the field; of what may be null, null stays possible."""
    path = tmp_path / "p.sexp"
    path.write_text(
        '(defatom plan (params) (instructions "Plan.") (output_format (type "json") (schema ((grade "integer?")))))\n'
        '(let ((g (get (value-of (plan)) "grade"))) (if (null? g) (first nil) (if (< g 3) 1 (car nil))))',
        "utf-8",
    )
    await explore_file(str(path), ExploreOptions(assume=["grade in 1,2"]))
    out = capsys.readouterr().out
    assert "warning" not in out and out.count("error[list/empty]") == 1, out


def test_an_assumption_about_no_number_is_refused() -> None:
    """Ends of a range that stand the wrong way round."""
    with pytest.raises(UsageError, match=r"no number is in 10\.\.0"):
        parse_assumptions(["grade in 10..0"])
