"""Operators change the texts of programs and the fields of tasks; each candidate passes four gates before it costs anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, Limits, ScriptedProvider
from agentflow.core.data.source import Source
from agentflow.evals import cost, exact
from agentflow.evals.improvement.gates import Gates
from agentflow.evals.improvement.operators import OPERATORS
from agentflow.exploration.flow_rehearsal import explored_in_flow

SEXP = """; sorts mail
(defatom read (params (mail string)) (instructions "Read {{mail}}") (tools) (max-turns 1))
(defatom choose (params (gist string)) (instructions "Choose for {{gist}}") (tools))
(define (both mail) (list (value-of (read (mail mail))) (value-of (choose (gist mail)))))
(define gist (first (both mail)))
(value-of (choose (gist (value-of (read (mail gist))))))
"""
PYTHON = '''"""Sorts mail."""
from agentflow.workflow import task


@task(tools=[])
def read(mail: str) -> str:
    """Read {{mail}}"""
    ...


@task(tools=[])
def choose(gist: str) -> str:
    """Choose for {{gist}}"""
    ...


def main(mail: str):
    both = [read(mail), choose(mail)]
    return choose(read(both[0]))
'''
TEXTS = [("sort.sexp", SEXP), ("sort.py", PYTHON)]
IN_TEXTS = ["critic", "vote", "retry", "check", "drop", "merge", "split", "concurrent"]


def flow_of(directory: Path, said: Callable[[str], str], **options: Any) -> AgentFlow:
    """A flow with a model that answers with ``said`` of a prompt, for a cent."""

    def model(request: Any) -> dict[str, Any]:
        text = request.messages[-1].text
        small = "small" in request.model
        return {"text": said(f"small {text}" if small else text), "cost_usd": 0.001 if small else 0.01}

    return AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{directory}/runs.db", **options)


def cases_of(expected: str) -> list[dict[str, str]]:
    """Cases of the sorter."""
    return [{"mail": f"m{number}", "expected": expected} for number in range(12)]


def answers(prompt: str) -> str:
    """A model that is wrong in everything but criticism, and proposes nothing new."""
    if prompt.startswith("Rewrite"):
        return json.dumps(
            {"diagnosis": "none", "instructions": "Choose for {{gist}}" if "'choose'" in prompt else "Read {{mail}}"}
        )
    if prompt.startswith("Is this answer right"):
        return "false"
    return "right" if prompt.startswith("Check this answer") and "Choose for" in prompt else "wrong"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), TEXTS)
async def test_each_operator_makes_programs_that_pass_the_gates(tmp_path: Path, name: str, text: str) -> None:
    """In both surfaces: the planted critic is found, and saved as a program that other runs load."""
    async with flow_of(tmp_path, answers) as flow:
        program, listed = Source.of(name, text), cases_of("right")
        options: dict[str, Any] = {"operators": IN_TEXTS, "width": 40, "generations": 1, "limits": Limits(usd=40)}
        report = await flow.improve(program, listed, [exact(), cost], **options)
        assert not [each.why for each in report.candidates if each.stage in ("refused", "proposed")]
        changes = " | ".join([each.change for each in report.candidates])
        for change in ("a critic after choose", "a vote of three on read", "a retry of read", "a check of read"):
            assert change in changes
        for change in ("without read", "one step for read and choose", "two steps for read", "calls at once (1)"):
            assert change in changes
        assert report.improved and report.best.change == "a critic after choose" and report.program is not None
        assert "Check this answer" in report.diff and report.overrides == {}
        file = tmp_path / f"better{Path(name).suffix}"
        assert report.save(file) == [file]
        again = await flow.evaluate(program, listed, variants={"better": file}, scorers=[exact()])
        assert again["better"].score("exact").mean == 1.0
        started = await flow.start(file, {"mail": "m99"})
        assert (await started.result()).value == "right"
        with pytest.raises(ConfigurationError, match=r"has no file 'better\.toml'"):
            report.save(tmp_path / "better.toml")


async def test_a_step_too_many_a_smaller_model_and_examples_are_found(tmp_path: Path) -> None:
    """The same score for less money is better; examples are good records of the task."""

    def said(prompt: str) -> str:
        if prompt.startswith("Rewrite"):
            return json.dumps({"diagnosis": "none", "instructions": "Reply to {{mail}}"})
        if "Examples of good answers" in prompt:
            return "right"
        if prompt.startswith("Polish"):
            return prompt.split()[-1]
        return "right" if sum(map(ord, prompt.split()[-1])) % 2 else "wrong"

    async with flow_of(tmp_path, said) as flow:

        @flow.task
        async def reply(mail: str) -> str:
            """Reply to {{mail}}"""
            raise NotImplementedError

        options: dict[str, Any] = {"operators": ["few_shot", "model"], "models": ["scripted:small"], "generations": 2}
        report = await flow.improve(reply, cases_of("right"), [exact()], edit=[reply], **options)
        assert report.improved and "Examples of good answers:" in report.overrides["reply"]["instructions"]
        assert "mail: m" in report.diff and "answer: right" in report.diff
        cheaper = [each for each in report.candidates if each.change == "model of reply: scripted:small"]
        assert cheaper and cheaper[0].stage == "searched"

        program = """
            (defatom polish (params (text string)) (instructions "Polish: {{text}}") (tools))
            (value-of (polish (text (value-of (reply (mail mail))))))"""
        report = await flow.improve(program, cases_of("right"), [exact()], operators=["drop"], generations=1)
        assert report.improved and report.best.change == "without polish, its text in its place"
        assert report.best.cost_usd == 0.01 and report.difference is not None and report.difference.mean == 0.0
        again = await flow.evaluate(program, cases_of("right"), variants={"less": report.best}, scorers=[exact()])
        assert again["less"].difference("exact").mean == 0.0 and again["less"].cost_usd == 0.12


# -- gates -------------------------------------------------------------------------------------------------------------


PLAN = """(defatom plan (params (goal string)) (instructions "Plan {{goal}}") (tools) (model "anthropic:claude-sonnet-4-5")
  (max-output-tokens 100) (output_format (type "json") (schema ((steps "string[]")))))
(define steps (get (value-of (plan (goal goal))) "steps"))
(length steps)"""


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (PLAN, PLAN.replace("(length steps)", "(length steps"), "it is invalid"),
        (PLAN, PLAN.replace("(length steps)", "(first steps)"), "it has a new way to fail: error list/empty"),
        (
            PLAN,
            PLAN.replace("(length steps)", "(define (again) (plan (goal goal)) (again)) (again)"),
            "it has no bound",
        ),
        (PLAN, f"{PLAN}\n(pay (euros 1))", "it reaches more than its parent: tools pay"),
        (PLAN, PLAN.replace("sonnet-4-5", "haiku-4-5"), "it reaches more than its parent: models"),
        (PLAN, PLAN.replace("tokens 100", "tokens 9000"), "a case of it may cost"),
        (PLAN, PLAN.replace("anthropic:claude-sonnet-4-5", "openai:unheard-of"), "its cost has no bound"),
        (PLAN, PLAN.replace("(length steps)", "(+ 1 (length steps))"), None),
        (PLAN.replace("(length steps)", "(first steps)"), PLAN.replace("(length steps)", "(first steps)"), None),
    ],
)
async def test_a_gate_refuses_a_text_before_it_costs_anything(before: str, after: str, why: str | None) -> None:
    """Check, bounds within the budget, no new way to fail, and a manifest no wider than the parent's; faults of the parent are
    not its own."""

    async def pay(euros: int) -> str:
        """Pay."""
        raise AssertionError("never")

    async with AgentFlow(tools=[pay]) as flow:

        async def explore(source: Source, inputs: Mapping[str, Any]) -> frozenset[str]:
            explored = await explored_in_flow(flow.engine.tasks, flow.engine.tools, source, inputs)
            return frozenset([f"{each.kind} {each.code}: {each.message}" for each in explored.errors])

        bounds = flow.bounds
        limit = (await flow.bounds(before, bindings={"goal": "g"})).at({})["usd"]
        assert limit is not None
        gates = Gates(flow.engine, bounds, explore, {"goal": "g"}, 1.01 * limit)
        parent = await gates.reach(Source.unnamed(before, "sexp"))
        found = await gates.why_refused(Source.unnamed(after, "sexp"), parent)
        assert found is None if why is None else found is not None and found.startswith(why), found


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"operators": ["critics"]}, "did you mean 'critic'?"),
        ({"operators": "critic"}, "operators=['critic']"),
        ({"operators": ["model"]}, "operators=['model'], models=['openai:gpt-5-mini']"),
        ({"operators": ["critic"], "by": "gepa"}, "by='own'"),
    ],
)
async def test_mistakes_in_operators_say_what_to_write(tmp_path: Path, options: dict[str, Any], hint: str) -> None:
    """An unknown one, one text in place of a list, the models left out, and another optimiser."""
    async with flow_of(tmp_path, answers) as flow:
        with pytest.raises(ConfigurationError) as wrong:
            await flow.improve(SEXP, cases_of("right"), [exact()], **options)
        assert wrong.value.code == "config/option" and hint in (wrong.value.hint or "")
    assert set(IN_TEXTS) < set(OPERATORS)
