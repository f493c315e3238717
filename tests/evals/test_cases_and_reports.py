"""Cases are read from the files that people have, scorers compare what they say, and a report is saved as what tools read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from agentflow import ConfigurationError, TaskError
from agentflow.core.data.messages import Usage
from agentflow.evals import (
    Case,
    EvaluationReport,
    Sample,
    SampleRun,
    ToolUse,
    calls,
    close,
    contains,
    cost,
    exact,
    json_equal,
    judge,
    latency,
    matches,
    read_cases,
    schema_ok,
    steps,
    tool_called,
)

FILES = {
    "plain.jsonl": '{"question": "q", "expected": "a", "name": "one"}\n\n{"question": "r", "tags": "x,y"}\n',
    "ours.json": '[{"inputs": {"question": "q"}, "expected": "a", "name": "one"}, {"inputs": {"question": "r"}, "tags": ["x", "y"]}]',
    "table.csv": 'question,expected,name,tags\nq,a,one,\nr,,,"x,y"\n',
    "pydantic-evals.yaml": "cases:\n- {name: one, inputs: {question: q}, expected_output: a}\n- {inputs: {question: r}, tags: [x, y]}\n",
    "openai.jsonl": '{"item": {"question": "q"}, "ideal": "a", "id": "one"}\n{"item": {"question": "r"}, "tags": ["x", "y"]}\n',
    "promptfoo.yaml": "tests:\n- {description: one, vars: {question: q}, expected: a}\n- {vars: {question: r}, tags: [x, y]}\n",
}


@pytest.mark.parametrize("name", FILES)
def test_cases_are_read_from_the_files_that_people_have(name: str, tmp_path: Path) -> None:
    """JSON lines, a list, a table, and the files of pydantic-evals, OpenAI's evals and promptfoo give the same cases."""
    (tmp_path / name).write_text(FILES[name], "utf-8")
    one, other = read_cases(tmp_path / name)
    assert (one.inputs, one.expected, one.name) == ({"question": "q"}, "a", "one")
    assert (other.inputs, other.name, other.tags) == ({"question": "r"}, "2", ("x", "y"))
    assert other.expects is (name == "table.csv"), "an empty cell of a table is an empty text"
    assert read_cases([one.to_dict()]) == [one]
    assert one.digest == Case(inputs={"question": "q"}, name="renamed").digest != other.digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one"),
        ('{"question": "q"\n', "one case a line"),
        ("3\n", "Case(inputs"),
        ('{"expected": "a"}\n', "Case(inputs"),
        ('{"inputs": {"q": 1}, "expcted": 2}\n', "expected"),
        ('{"q": 1, "name": "a"}\n{"q": 2, "name": "a"}\n', "its own name"),
    ],
)
def test_what_is_no_case_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """With the line or the number, and what to write."""
    (tmp_path / "cases.jsonl").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        read_cases(tmp_path / "cases.jsonl")
    assert caught.value.code == "evals/cases" and said in str(caught.value.hint), caught.value.hint
    with pytest.raises(ConfigurationError):
        read_cases(tmp_path / "cases.txt")


@dataclass
class City:
    """A value of a typed task."""

    name: str
    people: list[int]


def run(value: Any, **fields: Any) -> SampleRun:
    """A sample that gave ``value``."""
    return cast(SampleRun, Sample(case=Case(), variant="base", draw=0, status="done", value=value, **fields))


SCORED: list[tuple[Any, Any, Any, Any]] = [
    (exact(), {"b": 1, "a": (1, 2)}, {"a": [1, 2], "b": 1}, True),
    (exact(), "Rome ", "Rome", False),
    (exact("value.name"), City("Rome", [1]), {"name": "Rome"}, True),
    (exact("value.people.0"), City("Rome", [1]), 1, True),
    (exact("value.mayor"), City("Rome", [1]), "x", False),
    (exact("value.name"), City("Rome", [1]), {"people": [1]}, None),
    (contains(), "The city of ROME", "rome", True),
    (contains(), "Rome and Paris", ["Rome", "Oslo"], False),
    (contains("par", ignore_case=False), "Paris", 0, False),
    (matches(r"\d{4}"), {"year": 1999}, 0, True),
    (json_equal(), '{"a": 1, "b": [2]}', {"b": [2], "a": 1}, True),
    (json_equal(), "no json", {"a": 1}, False),
    (close(0.1), "3.05", 3, True),
    (close(0.01, relative=True), 103, 100, False),
    (close(), "three", 3, False),
    (schema_ok({"type": "object", "required": ["a"]}), '{"a": 1}', 0, True),
    (schema_ok({"type": "object", "required": ["a"]}), {"b": 1}, 0, False),
]


@pytest.mark.parametrize(("scorer", "value", "expected", "score"), SCORED)
def test_a_scorer_compares_what_it_says(scorer: Any, value: Any, expected: Any, score: Any) -> None:
    """A part that the value does not have fails; nothing expected there does not apply."""
    assert scorer(Case(inputs={"q": 1}, expected=expected), run(value)) is score


def test_scorers_of_the_run_read_its_account() -> None:
    """Without parentheses, since they take nothing; a comparison does not apply where nothing is expected."""
    uses = (ToolUse("1", "search", {"query": "x", "limit": 3}),)
    sample = run("v", usage=Usage(requests=3), cost_usd=0.5, latency_s=None, steps=7, tools=uses)
    case = Case(inputs={"q": 1})
    assert [each(case, sample) for each in (calls, cost, latency, steps)] == [3, 0.5, None, 7]
    assert exact()(case, sample) is None
    assert [tool_called("search", **each)(case, sample) for each in ({}, {"limit": 3}, {"limit": 4})] == [
        True,
        True,
        False,
    ]
    assert tool_called("buy")(case, sample) is False
    for wrong in (lambda: matches("("), lambda: judge(" "), lambda: judge("x", scale=(5, 1))):
        with pytest.raises(ConfigurationError) as caught:
            wrong()
        assert caught.value.code == "evals/scorer"


def report(**options: Any) -> EvaluationReport:
    """Four cases under two variants: one fails, one is blocked by a tool, one loses a score."""
    samples: list[Sample] = []
    for number in range(4):
        case = Case(inputs={"q": number}, name=f"case {number}", expected="<a & b>")
        for variant in ("base", "short"):
            good = variant == "base" or number != 1
            fields: dict[str, Any] = {
                "status": "done",
                "value": f"{variant}\x00 said {number}",
                "usage": Usage(requests=2),
            }
            scores = {"exact": float(good), "length": float(number)}
            if variant == "short" and number == 3:
                fields, scores = {"status": "failed", "error": TaskError("it broke", code="tool/x")}, {"exact": 0.0}
            missing = {} if number else {"judge": "ValueError: none"}
            samples.append(
                Sample(
                    case=case,
                    variant=variant,
                    draw=0,
                    scores=scores,
                    passing=frozenset({"exact"}),
                    missing=missing,
                    **fields,
                )
            )
    order = [f"case {number}" for number in range(4)]
    return EvaluationReport(
        run_id="e", variants=["base", "short"], baseline="base", order=order, samples=samples, **options
    )


def test_a_report_is_saved_as_what_tools_read(tmp_path: Path) -> None:
    """JUnit XML, Markdown, JSON lines and text; another ending is told."""
    made = report()
    for name in ("out.xml", "out.md", "out.jsonl", "out.txt"):
        made.save(tmp_path / name)
    suites = ElementTree.parse(tmp_path / "out.xml").getroot()
    counted = {each.get("name"): (each.get("tests"), each.get("failures"), each.get("errors")) for each in suites}
    assert counted == {"base": ("4", "0", "0"), "short": ("4", "1", "1")}
    (failure,) = suites.iter("failure")
    assert "exact" in failure.get("message", "") and "<a & b>" in (failure.text or "")
    table = [line for line in (tmp_path / "out.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(table) == 4 and len({line.count("|") for line in table}) == 1
    head, *lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert (head["evaluation"], len(lines), lines[0]["scores"]["exact"]) == ("e", 8, True)
    assert lines[-1]["error"] == "tool/x: it broke"
    text = (tmp_path / "out.txt").read_text("utf-8")
    for part in (
        "Failed, tool/x: it broke",
        "case 3 (short)",
        "Worse in exact under short",
        "case 1: -1",
        "2 x judge: ValueError",
    ):
        assert part in text, f"{part} is missing in {text}"
    with pytest.raises(ConfigurationError) as caught:
        made.save(tmp_path / "out.pdf")
    assert caught.value.code == "evals/report" and ".xml" in str(caught.value.hint)


def test_a_report_answers_by_variant_and_score() -> None:
    """Means, differences by pairs, failures and the worst cases; unknown names are told with the ones there are."""
    made = report()
    assert (made["short"].score("exact").mean, made["base"].score("exact").mean) == (0.5, 1.0)
    difference = made["short"].difference("exact")
    assert (difference.mean, difference.count, difference.is_clear) == (-0.5, 4, False)
    assert str(difference).startswith("-0.5 [")
    assert made["short"].difference("length").count == 3, "None is left out on both sides of the pair"
    assert [each.case.name for each in made.failures("short")] == ["case 3"] and made.failures("base") == []
    assert [(change, one.case.name) for change, one, _ in made.worst("short", "exact")] == [
        (-1.0, "case 1"),
        (-1.0, "case 3"),
    ]
    assert made.adjusted("exact") == {"short": pytest.approx(0.5)}
    assert made["base"].score("judge").count == 0 and not made.partial and made.has_few
    for wrong, code in ((lambda: made["shrt"], "evals/variant"), (lambda: made["base"].score("exct"), "evals/score")):
        with pytest.raises(ConfigurationError) as caught:
            wrong()
        assert caught.value.code == code and caught.value.hint


def test_a_score_may_be_called_as_a_column_is() -> None:
    """As the scorer ``calls`` is: the table has both, and rows tell them apart."""
    samples = [
        Sample(
            case=Case(inputs={"q": at}, name=str(at)),
            variant="base",
            draw=0,
            status="done",
            scores={"calls": 7.0, "failed": 1.0},
        )
        for at in range(3)
    ]
    made = EvaluationReport(run_id="e", variants=["base"], baseline="base", order=["0", "1", "2"], samples=samples)
    (row,) = made.rows()
    assert (row["calls"], row["calls score"].mean, row["failed"], row["failed score"].mean) == (0, 7.0, 0, 1.0)
    assert "7 [7, 7]" in str(made)
