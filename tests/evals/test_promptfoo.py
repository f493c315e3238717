"""Files of promptfoo: their assertions are the scorers of their cases, and what is not read is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from agentflow import AgentFlow, ConfigurationError
from agentflow.evals import Judge, Sample, read_cases
from agentflow.evals.scoring import name_of
from tests.evals.test_evaluate import Model

CONFIG = """
description: Capitals
prompts: ["Say: {{question}}"]
providers: ["openai:gpt-5-mini"]
defaultTest:
  vars: {language: English}
  assert:
  - {type: latency, threshold: 60000}
tests:
- description: France
  vars: {question: "capital of France?", answer: Paris}
  assert:
  - {type: contains, value: "{{answer}}"}
  - {type: contains, value: Rome, weight: 2}
  - {type: not-icontains, value: I AM AN AI, metric: no_excuse}
  - {type: llm-rubric, value: "Is it polite in {{language}}?", provider: "openai:gpt-5-mini"}
- vars: {question: "the Seine?", answer: Le Havre}
"""


def one(assertion: Any) -> Any:
    """The scorer of a case with this assertion."""
    case = {"vars": {"answer": "Paris", "number": 3}, "description": "France", "assert": [assertion]}
    (read,) = read_cases([case])
    return read.scorers[0]


@pytest.mark.parametrize(
    ("assertion", "passes", "fails"),
    [
        ({"type": "equals", "value": "{{answer}}"}, "Paris", "paris"),
        ({"type": "equals", "value": {"a": 1}}, '{"a": 1}', '{"a": 2}'),
        ({"type": "contains", "value": "Paris"}, "in Paris.", "in paris."),
        ({"type": "icontains", "value": "PARIS"}, "in Paris.", "in Rome."),
        ({"type": "contains-all", "value": ["a", "b"]}, "ab", "a"),
        ({"type": "contains-any", "value": "x, y"}, "only y", "z"),
        ({"type": "icontains-any", "value": ["X"]}, "x", "z"),
        ({"type": "icontains-all", "value": ["X", "Y"]}, "xy", "x"),
        ({"type": "starts-with", "value": "Yes"}, "Yes.", "Oh yes."),
        ({"type": "regex", "value": "\\d{4}"}, "in 1999", "in 99"),
        ({"type": "not-regex", "value": "\\d"}, "none", "1"),
        ({"type": "is-json"}, "[1]", "so: [1]"),
        ({"type": "is-json"}, {"a": 1}, "{"),
        ({"type": "is-json", "value": {"type": "object", "required": ["a"]}}, '{"a": 1}', '{"b": 1}'),
        ({"type": "contains-json"}, "so: [1] {", "so: [1 {"),
        ({"type": "contains-json", "value": {"type": "object", "required": ["a"]}}, 'x {} {"a": {}}', 'x {"b": 1}'),
    ],
)
def test_an_assertion_scores_as_promptfoo_says(assertion: Any, passes: Any, fails: Any) -> None:
    """Each type that is read passes for one value and fails for another."""
    run = {
        name: Sample(case=cast(Any, None), variant="", draw=0, status="done", value=each)
        for name, each in (("yes", passes), ("no", fails))
    }
    scorer = one(assertion)
    assert [scorer(None, run[name]) for name in ("yes", "no")] == [True, False]


def test_thresholds_are_dollars_and_milliseconds() -> None:
    """They do not apply where the amount is unknown."""
    run = Sample(case=cast(Any, None), variant="", draw=0, status="done", cost_usd=0.2, latency_s=1.5)
    assert one({"type": "cost", "threshold": 0.2})(None, run) is True
    assert one({"type": "latency", "threshold": 1000})(None, run) is False
    assert one({"type": "not-latency", "threshold": 1000})(None, run) is True
    blank = Sample(case=cast(Any, None), variant="", draw=0, status="done", cost_usd=None)
    assert (
        one({"type": "cost", "threshold": 1})(None, blank)
        is None
        is one({"type": "latency", "threshold": 1})(None, blank)
    )


async def test_a_config_of_promptfoo_is_evaluated_as_it_is(tmp_path: Path) -> None:
    """With what all tests share, several assertions of a type, and a judge; in YAML and in JSON."""
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG, "utf-8")
    cases = read_cases(tmp_path / "promptfooconfig.yaml")
    assert [[name_of(each) for each in case.scorers] for case in cases] == [
        ["contains", "contains-2", "no_excuse", "llm-rubric", "latency"],
        ["latency"],
    ]
    asked = cases[0].scorers[3]
    assert isinstance(asked, Judge) and (asked.criterion, asked.model) == (
        "Is it polite in English?",
        "openai:gpt-5-mini",
    )
    async with AgentFlow(provider=Model().provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def say(question: str, answer: str, language: str) -> str:
            """{{question}} {{answer}} in {{language}}"""
            raise NotImplementedError

        tests = [{"vars": dict(each.inputs), "assert": [{"type": "contains", "value": "{{answer}}"}]} for each in cases]
        (tmp_path / "tests.json").write_text(json.dumps({"tests": tests}), "utf-8")
        report = await flow.evaluate(say, tmp_path / "tests.json")
        assert report["base"].score("contains").mean == 1.0


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        ({"type": "javascript", "value": "output.length < 3"}, "'javascript' is not supported"),
        ({"type": "not-llm-rubric", "value": "polite"}, "'not-llm-rubric' is not supported"),
        ({"type": "contians", "value": "a"}, "'contians' is not supported"),
        ({"type": "contains"}, "has value=None"),
        ({"type": "contains", "value": "file://a.txt"}, "is in another file"),
        ({"type": "contains", "value": "{{anser}}"}, "is not a variable"),
        ({"type": "contains", "value": "{{answer | upper}}"}, "is more than {{names}}"),
        ({"type": "regex", "value": "("}, "not a regular expression"),
        ({"type": "is-json", "value": "{}"}, "has value='{}'"),
        ({"type": "cost", "value": 1}, "has threshold=None"),
        ({"type": "llm-rubric", "value": "polite", "threshold": 0.5}, "has 'threshold'"),
        ({"type": "llm-rubric", "value": "polite", "provider": {"id": "x"}}, "is not read"),
        ({"type": "contains", "value": "a", "transform": "x"}, "has 'transform'"),
        ("contains", "an assertion is 'contains'"),
    ],
)
def test_what_is_not_read_is_refused_with_the_case_and_the_type(assertion: Any, said: str) -> None:
    """It is never left out: a case would pass that promptfoo fails."""
    with pytest.raises(ConfigurationError) as caught:
        one(assertion)
    assert caught.value.code == "evals/assert" and said in caught.value.message, caught.value.message
    assert "case 'France'" in caught.value.message and caught.value.hint
