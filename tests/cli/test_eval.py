"""``agentflow eval`` compares variants of a program on cases, and its exit code says whether thresholds are met."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.test_prompts import Typist
from tests.cli.test_terminal import terminal_environment
from tests.support.commands import said_by
from tests.support.terminal import in_terminal

FLOW = '''
flow = AgentFlow(provider=ScriptedProvider(model), durable="sqlite:///runs.db")


@flow.task
async def reply(question: str) -> str:
    """Say {{question}}"""


@flow.workflow
async def answer(question: str) -> str:
    return await reply(question)


def shouts(case, run):
    return run.value.isupper()
'''
"""The flow of an application that defines ``model`` before."""
MODEL = """
import json
from agentflow import AgentFlow, ScriptedProvider


def model(request):
    with open("calls.log", "a") as log:
        log.write(request.messages[-1].text + "\\n")
    text = request.messages[-1].text
    return {"text": text.upper() if "loudly" in text else text, "cost_usd": 0.01, "usage": {"input_tokens": 5, "output_tokens": 5}}
"""
APP = f"{MODEL}\n{FLOW}"
CASES = "".join([json.dumps({"question": f"q{number}", "expected": f"Say q{number}"}) + "\n" for number in range(4)])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with an application, its cases, and a variant of a task."""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "cases.jsonl").write_text(CASES)
    (tmp_path / "loud.toml").write_text('[reply]\ninstructions = "Say loudly {{question}}"\n')
    return tmp_path


def evaluated(project: Path, *arguments: str) -> Any:
    """What the command says for the application's workflow."""
    return said_by("eval", "answer", "cases.jsonl", "--app", "shop", *arguments, cwd=project)


def asked(project: Path) -> int:
    """The number of model calls so far."""
    log = project / "calls.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_variants_are_compared_and_paid_for_once(project: Path) -> None:
    """The report on standard output and in files; the second time nothing is paid for."""
    done = evaluated(project, "--variant", "loud.toml", "--save", "out.xml", "--save", "out.html")
    assert done.returncode == 0, done.stderr
    assert "loud" in done.stdout and "Worse in exact under loud" in done.stdout and asked(project) == 8
    assert len([*ElementTree.parse(project / "out.xml").getroot().iter("failure")]) == 4
    assert (project / "out.html").read_text().startswith("<!doctype html>")
    again = evaluated(
        project, "--variant", "better=loud.toml", "--scorer", "exact", "--scorer", "shop:shouts", "--json"
    )
    told = json.loads(again.stdout)
    assert asked(project) == 8 and [row["variant"] for row in told["variants"]] == ["base", "better"]
    assert (told["variants"][1]["shouts"]["mean"], told["ok"]) == (1.0, True)


def test_thresholds_and_limits_are_exit_codes(project: Path) -> None:
    """1 where a score is too low or may have dropped, 5 where a limit ended it; with more money the rest is paid for."""
    assert evaluated(project, "--fail-below", "exact=0.9").returncode == 0
    low = evaluated(project, "--variant", "loud.toml", "--fail-below", "exact=0.9")
    assert low.returncode == 1 and "exact of loud is 0, below 0.9" in low.stdout
    drop = evaluated(
        project, "--set", 'reply.instructions="Say loudly {{question}}"', "--fail-drop", "exact=0.1", "--json"
    )
    assert drop.returncode == 1 and "may have dropped" in json.loads(drop.stdout)["thresholds"][0]
    short = evaluated(project, "--repeat", "3", "--limit", "tokens=40", "--json")
    assert short.returncode == 5 and json.loads(short.stdout)["partial"]
    paid = asked(project)
    rest = evaluated(project, "--repeat", "3", "--run-id", json.loads(short.stdout)["run_id"], "--json")
    assert rest.returncode == 0 and 8 < paid < asked(project) == 16


def test_a_saved_report_is_the_baseline(project: Path) -> None:
    """Of the program as it is now: ``--fail-drop`` holds it to what was saved, as in a pull request."""
    assert evaluated(project, "--save", "main.jsonl").returncode == 0
    arguments = ("--baseline", "main.jsonl", "--fail-drop", "exact=0.9", "--save", "next.xml")
    same = evaluated(project, *arguments)
    assert same.returncode == 0 and "before" in same.stdout, same.stdout
    (project / "shop.py").write_text(APP.replace("Say {{question}}", "Say loudly {{question}}"))
    worse = evaluated(project, *arguments)
    assert worse.returncode == 1 and "exact of base may have dropped by more than 0.9: -1 [" in worse.stdout, (
        worse.stdout
    )
    assert len(ElementTree.parse(project / "next.xml").getroot()) == 1
    lost = evaluated(project, "--baseline", "lost.jsonl")
    assert lost.returncode == 2 and "lost.jsonl" in lost.stderr


def test_an_evaluation_stops_when_it_knows_enough(project: Path) -> None:
    """With ``--until``, about the primary score, which a report in JSON and in text says."""
    lines = [json.dumps({"question": f"q{number}", "expected": f"Say q{number}"}) + "\n" for number in range(100)]
    (project / "cases.jsonl").write_text("".join(lines))
    arguments = ("--scorer", "shop:shouts", "--scorer", "exact", "--primary", "exact")
    done = evaluated(project, *arguments, "--until", "0.2")
    assert done.returncode == 0 and "until=0.2 was met by" in done.stdout and 30 <= asked(project) < 100, done.stdout
    again = json.loads(evaluated(project, *arguments, "--until", "0.2", "--json").stdout)
    assert again["enough"] and again["variants"][0]["exact"]["method"] == "betting sequence"
    assert evaluated(project, *arguments, "--until", "-1").returncode == 2


def test_recorded_runs_are_cases(project: Path) -> None:
    """``agentflow cases`` prints them, with their labels; evaluated without a program, they are answered from their records."""
    program = '(value-of (reply (question "x")))'
    for _ in range(2):
        assert said_by("run", "-e", program, "--app", "shop", "--durable", cwd=project).returncode == 0
    listed = said_by("cases", "--db", "sqlite:///runs.db", cwd=project)
    lines = [json.loads(line) for line in listed.stdout.splitlines()]
    assert len(lines) == 2 and all([line["run"] for line in lines])
    (project / "recorded.jsonl").write_text(listed.stdout)
    before = asked(project)
    arguments = [
        "eval",
        "recorded.jsonl",
        "--app",
        "shop",
        "--variant",
        "loud.toml",
        "--scorer",
        "shop:shouts",
        "--json",
    ]
    told = json.loads(said_by(*arguments, cwd=project).stdout)
    assert [row["shouts"]["mean"] for row in told["variants"]] == [0.0, 1.0] and asked(project) == before + 1
    assert said_by("cases", "--db", "sqlite:///runs.db", "--label", "user=ada", cwd=project).stdout == ""


def test_a_filter_chooses_the_same_runs_and_cases_in_each_command(project: Path) -> None:
    """--where of eval, cases and runs; a repeated one adds terms, --status is one of them; a wrong one is an error of usage."""
    cases = [{"inputs": {"question": f"q{n}"}, "expected": f"Say q{n}", "tags": ["hard"] * (n == 2)} for n in range(3)]
    (project / "cases.jsonl").write_text("".join([json.dumps(each) + "\n" for each in cases]))
    assert evaluated(project, "--where", "tag=hard").returncode == 0 and asked(project) == 1
    assert "none of the 3 cases" in evaluated(project, "--where", "tag=soft").stderr
    for text in ("x", "yy"):
        program = f'(value-of (reply (question "{text}")))'
        assert (
            said_by("run", "-e", program, "--app", "shop", "--durable", "--run-id", text, cwd=project).returncode == 0
        )
    db = ["--db", "sqlite:///runs.db"]
    where = ["--where", "cost>0.005", "--where", "id=y*"]
    assert [json.loads(line)["run"] for line in said_by("cases", *db, *where, cwd=project).stdout.splitlines()] == [
        "yy"
    ]
    for more in ([], ["--durable"]):
        for command in (["runs"], ["runs", "list"]):
            listed = said_by(*command, *db, *where, "--status", "done", "--json", *more, cwd=project)
            assert [each["run_id"] for each in json.loads(listed.stdout)] == ["yy"], listed.stderr
    assert "no run fits" in said_by("runs", *db, "--where", "status=failed", cwd=project).stdout
    wrong = said_by("runs", *db, "--where", "status=done statsu=x", cwd=project)
    assert wrong.returncode == 2 and "at character 13" in wrong.stderr and "did you mean 'status'?" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eval", "anser", "cases.jsonl", "--app", "shop"], "answer"),
        (["eval", "answer", "none.jsonl", "--app", "shop"], "none.jsonl"),
        (["eval", "a", "b", "c"], "agentflow eval answer.sexp cases.jsonl"),
        (["eval", "answer", "cases.jsonl", "--app", "shop", "--variant", "none.toml"], "NAME=FILE"),
        (["eval", "answer", "cases.jsonl", "--app", "shop", "--scorer", "exat"], "exact"),
        (["eval", "answer", "cases.jsonl", "--app", "shop", "--scorer", "shop:none"], "MODULE:NAME"),
        (["eval", "answer", "cases.jsonl", "--app", "shop", "--scorer", "close=near"], "not a number"),
        (["eval", "answer", "cases.jsonl", "--app", "shop", "--fail-below", "exact"], "NAME=VALUE"),
        (["eval", "answer", "cases.jsonl", "--app", "shop", "--fail-below", "exact=high"], "exact=0.8"),
        (["run"], "agentflow run FILE"),
        (["run", "x.sexp", "-e", "1"], "two programs"),
    ],
)
def test_what_cannot_be_evaluated_is_told(project: Path, arguments: list[str], said: str) -> None:
    """With what to write, and exit code 2."""
    done = said_by(*arguments, cwd=project)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_plan_prints_the_forecast_and_runs_nothing(project: Path) -> None:
    """As text and as JSON; without a terminal nothing is asked."""
    done = evaluated(project, "--variant", "loud.toml", "--plan", "--json")
    forecast = json.loads(done.stdout)
    assert (done.returncode, forecast["runs"], forecast["ended"], asked(project)) == (0, 8, 8, 0), done.stderr
    assert evaluated(project).returncode == 0 and asked(project) == 4
    done = evaluated(project, "--variant", "loud.toml", "--plan")
    assert done.returncode == 0 and asked(project) == 4, done.stderr
    rows = {line.split()[0]: line.split()[1:6] for line in done.stdout.splitlines() if line.strip()}
    assert (rows["base"], rows["loud"]) == (["4", "4", "0", "0", "$0.0000"], ["4", "0", "4", "0", "$0.0400"])


async def test_on_a_terminal_the_forecast_is_shown_and_asked_about(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No runs nothing, yes runs it, and what costs nothing is not asked about; ``--yes`` asks nothing."""
    monkeypatch.chdir(project)
    environment = terminal_environment(project)
    command = ("eval", "answer", "cases.jsonl", "--app", "shop", "--scorer", "contains")
    seen: list[tuple[int, int, bool]] = []
    for typed, more in (("n", ()), ("y", ()), ("n", ()), ("n", ("--variant", "loud.toml", "--yes"))):
        code, terminal = await in_terminal(*command, *more, environment=environment, react=Typist("[y/n]", typed))
        seen.append((code, asked(project), terminal.ever_showed("Run it?")))
    assert seen == [(130, 0, True), (0, 4, True), (0, 4, False), (0, 8, False)]
