"""An improvement finds the planted better program, pays for the changes only, and never returns a program that fails more."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import tomllib
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, Limits, ScriptedProvider
from agentflow.errors import AgentflowError, JournalError
from agentflow.evals import Case, calls, contains, cost
from tests.evals.improvement_toys import TOYS, Toy, ToyModel, gepa_alone, recorded_cases, scorer, toy_flow
from tests.evals.mortal import pay_for_nothing_twice

KILLS = int(os.environ.get("AGENTFLOW_EVAL_KILLS", "6"))
HAS_GEPA = importlib.util.find_spec("gepa") is not None
OPTIMISERS = ["own", pytest.param("gepa", marks=pytest.mark.skipif(not HAS_GEPA, reason="needs the extra gepa"))]
SHOUT = TOYS[0]
BUDGET = Limits(usd=4)


async def improved(toy: Toy, directory: Path, **options: Any) -> tuple[Any, ToyModel, list[Case]]:
    """The report of an improvement of a toy, the model, and the cases; its calls are those of the improvement."""
    model = ToyModel(toy)
    async with toy_flow(toy, directory, model) as (flow, answer, edit):
        cases = await recorded_cases(flow, answer)
        model.calls = 0
        options = {"edit": edit, "limits": BUDGET, "generations": 5, **options}
        return await flow.improve(answer, cases, [scorer(toy), cost], **options), model, cases


# -- the twenty lines of a user ----------------------------------------------------------------------------------------


async def test_the_planted_instructions_are_found_and_loaded_by_start_resume_and_evaluate_alike(tmp_path: Path) -> None:
    """The result is a file of overrides, with its evidence as a comment; nothing is applied before you say so."""
    model = ToyModel(SHOUT)
    async with toy_flow(SHOUT, tmp_path, model) as (flow, answer, edit):
        cases = await recorded_cases(flow, answer)
        report = await flow.improve(answer, cases, [scorer(SHOUT), cost], edit=edit, limits=BUDGET, generations=5)
        file = tmp_path / "better.toml"
        assert report.improved and report.save(file) == [file]
        assert "+Reply loudly to {{text}}" in report.diff and "quality: 0 -> 1 on 7 held-out cases" in str(report)
        assert tomllib.loads(file.read_text()) == {"reply": {"instructions": "Reply loudly to {{text}}"}}
        assert file.read_text().startswith("# quality: 0 -> 1")

        assert (await (await flow.start(answer("case99"), run_id="plain")).result()).value == "case99"
        started = await flow.start(answer("case99"), run_id="better", overrides=file)
        resumed = await flow.resume("plain", overrides=file)
        assert [(await each.result()).value for each in (started, resumed)] == ["CASE99"] * 2
        again = await flow.evaluate(answer, cases, variants={"better": file}, scorers=[scorer(SHOUT)])
        assert again["better"].score("quality").mean == 1.0
        with pytest.raises(JournalError, match="the overrides"):
            await flow.start(answer("case99"), run_id="better")


@pytest.mark.slow
@pytest.mark.parametrize("by", OPTIMISERS)
@pytest.mark.parametrize("toy", TOYS, ids=[each.name for each in TOYS])
async def test_the_search_costs_at_most_two_fifths_of_the_calls_without_records(
    tmp_path: Path, toy: Toy, by: str
) -> None:
    """Within its budget, in each toy; the same search without records asks the model wherever records answered."""
    report, model, cases = await improved(toy, tmp_path, by=by)
    held = {each.case.name for each in report.finals.samples}
    assert report.improved and report.finals[report.best.name].score("quality").mean == 1.0
    assert report.paid_calls == model.calls and model.calls * 0.01 <= BUDGET.usd
    assert model.calls <= 0.4 * (report.paid_calls + report.reused_calls)
    if HAS_GEPA:
        alone, score = gepa_alone(toy, 15, [each.name for each in cases if each.name not in held], sorted(held))
        assert score == 1.0 and model.calls <= 0.4 * alone


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20)]])
async def test_no_candidate_is_returned_that_fails_on_held_out_cases_more_than_its_parent(
    tmp_path: Path, seed: int
) -> None:
    """Whatever the model proposes: here each instruction passes at random, so that the search finds luck."""
    chance = random.Random(seed).choice([0.3, 0.5, 0.7])

    def passes(prompt: str) -> bool:
        return blake2b(f"{seed} {prompt}".encode(), digest_size=1).digest()[0] < 256 * chance

    def model(request: Any) -> dict[str, Any]:
        text = request.messages[-1].text
        said = "yes" if passes(text) else "no"
        if text.startswith("Rewrite"):
            mark = blake2b(text.encode(), digest_size=4).hexdigest()
            said = json.dumps({"diagnosis": "luck", "instructions": f"{mark} {{{{question}}}}"})
        return {"text": said, "cost_usd": 0.01}

    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def reply(question: str) -> str:
            """Reply to {{question}}"""
            raise NotImplementedError

        listed = [{"question": f"q{number}", "expected": "yes"} for number in range(16)]
        report = await flow.improve(reply, listed, [contains()], limits=Limits(usd=5))
        assert report.finals is None or len(report.finals.samples) == len(report.finalists) * 5

        def failed(name: str) -> int:
            return sum([each.scores["contains"] == 0.0 for each in report.finals[name].samples])

        if report.improved:
            assert failed(report.best.name) < failed("base")
            assert failed(report.best.name) <= failed(report.best.parent)
        else:
            assert report.overrides == {} and report.diff == "" and report.difference is None
            with pytest.raises(ConfigurationError, match="nothing better to save"):
                report.save(tmp_path / "better.toml")


# -- money and interruptions -------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_limit_ends_the_search_before_the_decision_which_has_its_money_held_back(tmp_path: Path) -> None:
    """The search ends early, the decision is made, and the sum is below the limit. The rest is paid with a higher limit."""
    report, model, _ = await improved(TOYS[1], tmp_path, limits=Limits(usd=1.4), run_id="short")
    assert report.partial and model.calls * 0.01 <= 1.4
    assert report.finals is None or not report.finals.partial
    first = model.calls
    model = ToyModel(TOYS[1])
    async with toy_flow(TOYS[1], tmp_path, model) as (flow, answer, edit):
        cases = [Case(run_id=f"case{number}", name=f"case{number}", expected=f"case{number}") for number in range(24)]
        options: dict[str, Any] = {"edit": edit, "generations": 5, "run_id": "short"}
        whole = await flow.improve(answer, cases, [scorer(TOYS[1]), cost], limits=BUDGET, **options)
        assert whole.improved and not whole.partial and (first + model.calls) * 0.01 <= BUDGET.usd
        model.calls = 0
        again = await flow.improve(answer, cases, [scorer(TOYS[1]), cost], limits=BUDGET, **options)
        assert (model.calls, again.paid_calls, again.diff) == (0, 0, whole.diff)


@pytest.mark.slow
@pytest.mark.parametrize("by", [*OPTIMISERS, "operators"])
def test_killed_improvements_pay_for_nothing_twice(tmp_path: Path, by: str) -> None:
    """Killed in a model call: each kill loses the calls in progress at most, and the report is that of one that was not killed."""
    pay_for_nothing_twice(tmp_path, "tests.evals.improve_child", by, last=30, kills=KILLS)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def raises(case: Any, run: Any) -> bool:
    """A scorer with a mistake in it."""
    raise KeyError("no key")


WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    ({"edit": ["replay"]}, "evals/edit", "no task here is called 'replay'", "did you mean 'reply'?"),
    ({"edit": "reply"}, "config/option", "edit='reply' is one text", "edit=['reply']"),
    ({"edit": []}, "config/option", "names no task", "leave it out"),
    ({"edit": ["spare"]}, "evals/edit", "no case calls the task 'spare'", "draft, reply"),
    ({"edit": ["written"]}, "evals/edit", "its function writes the prompt", "a text as instructions"),
    ({"edit": [{"reply": 3}]}, "evals/edit", "is not a task", "edit=[reply]"),
    ({"scorers": contains()}, "evals/scorer", "one scorer, and a list", "[exact(), cost]"),
    ({"scorers": [raises]}, "evals/score", "the scorer 'raises' gave none for 'q", "def polite(case, run)"),
    ({"scorers": [contains(), raises], "primary": "raises"}, "evals/score", "KeyError: 'no key'", "def polite"),
    ({"operators": ["few_shot", "critic"]}, "config/option", "['critic'] change the text", "Path('answer.py')"),
    ({"scorers": []}, "evals/scorer", "needs a score to raise", "contains()"),
    ({"scorers": [cost, calls]}, "evals/scorer", "needs a score to raise", "contains()"),
    ({"cases": 3}, "evals/holdout", "cannot be split", "at least 4 cases"),
    ({"holdout": 30}, "config/option", "holdout=30", "holdout=0.3"),
    ({"limits": Limits(usd=0.03)}, "evals/budget", "ends before one candidate can be compared", "run_id='"),
    ({"primary": "contain"}, "evals/score", "no sample has a score 'contain'", "contains"),
    ({"by": "dspy"}, "config/option", "is not an optimiser", "by='gepa'"),
    ({"width": 0}, "config/option", "width=0", "width=3"),
    ({"edits": ["reply"]}, "config/option", "has no option 'edits'", "edit"),
]


@pytest.mark.parametrize(("options", "code", "problem", "hint"), WRONG, ids=[str(each[0]) for each in WRONG])
async def test_mistakes_say_what_to_write(
    tmp_path: Path, options: dict[str, Any], code: str, problem: str, hint: str
) -> None:
    """Names that are no tasks of the program, no score, too few cases, and a budget below one evaluation."""
    model = ScriptedProvider(lambda request: {"text": "no", "cost_usd": 0.01})
    async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def draft(question: str) -> str:
            """Draft {{question}}"""
            raise NotImplementedError

        @flow.task
        async def reply(text: str) -> str:
            """Reply to {{text}}"""
            raise NotImplementedError

        @flow.task
        async def spare(text: str) -> str:
            """Spare {{text}}"""
            raise NotImplementedError

        @flow.task
        async def written(text: str) -> str:
            return f"Write {text}"

        @flow.workflow
        async def answer(question: str) -> str:
            return await reply(await draft(question))

        options = dict(options)
        listed = [{"question": f"q{number}", "expected": "yes"} for number in range(options.pop("cases", 12))]
        listed = [Case(inputs={"question": each["question"]}, expected="yes", name=each["question"]) for each in listed]
        scorers = options.pop("scorers", [contains()])
        with pytest.raises(ConfigurationError, match=re.escape(problem)) as caught:
            await flow.improve(answer, listed, scorers, **options)
        assert caught.value.code == code and hint in (caught.value.hint or "")


async def test_a_program_for_cases_is_what_each_case_can_call(tmp_path: Path) -> None:
    """A plain function, a call, and an object that is no program are refused before anything runs, with what to write instead: by an
    improvement and by an evaluation."""
    model = ScriptedProvider(lambda request: {"text": "no", "cost_usd": 0.01})
    async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.workflow
        async def answer(question: str) -> str:
            return question

        async def plain(question: str) -> str:
            return question

        listed = [{"question": f"q{number}", "expected": "yes"} for number in range(8)]
        call = answer("q")
        wrong: list[tuple[Any, str]] = [
            (plain, "@flow.workflow above 'async def plain'"),
            (call, "answer itself"),
            (3, "a Path"),
        ]
        for program, hint in wrong:
            for work in (flow.improve(program, listed, [contains()]), flow.evaluate(program, listed)):
                with pytest.raises(AgentflowError, match="a program for cases is") as caught:
                    await work
                assert caught.value.code == "program/kind" and hint in (caught.value.hint or "")
        assert await call == "q"


def louder(request: Any) -> dict[str, Any]:
    """The reply of a model that repeats its prompt, and proposes to be louder."""
    text = request.messages[-1].text
    said = json.dumps({"diagnosis": "-", "instructions": "Reply loudly to {{question}}"})
    return {"text": said if text.startswith("Rewrite") else text, "cost_usd": 0.01}


async def test_a_scorer_that_raises_sometimes_is_shown_in_the_report(tmp_path: Path) -> None:
    """The decision counts the cases with a score, and the report says of how many others it was missing, and why."""

    def mostly(case: Any, run: Any) -> bool:
        if case.name in ("q2", "q5", "q8"):
            raise KeyError("no key")
        return "loudly" in run.value

    async with AgentFlow(provider=ScriptedProvider(louder), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def reply(question: str) -> str:
            """Reply to {{question}}"""
            raise NotImplementedError

        listed = [Case(inputs={"question": f"q{at}"}, name=f"q{at}") for at in range(10)]
        report = await flow.improve(reply, listed, [mostly], holdout=0.5)
    absent = [each for each in report.finals.samples if each.missing] if report.finals is not None else []
    assert report.improved and absent and f"{len(absent)} x mostly: KeyError: 'no key'" in str(report)


async def test_a_candidate_that_no_scorer_can_judge_has_no_score_and_says_why(tmp_path: Path) -> None:
    """A mean of nothing is no number to sort candidates by: it is not written into JSON, and the candidate is out, with the scorer's error."""

    def quiet(case: Any, run: Any) -> bool:
        if "loudly" in run.value:
            raise KeyError("too loud")
        return False

    async with AgentFlow(provider=ScriptedProvider(louder), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def reply(question: str) -> str:
            """Reply to {{question}}"""
            raise NotImplementedError

        report = await flow.improve(reply, [{"question": f"q{at}"} for at in range(10)], [quiet])
    [_, tried] = report.candidates
    assert (tried.score, tried.why) == (
        None,
        "no score in the worst cases: KeyError: 'too loud'",
    ) and not report.improved
    assert "NaN" not in json.dumps(report.to_dict())


async def test_cases_that_cannot_run_are_named(tmp_path: Path) -> None:
    """With the reason: an improvement needs samples with a score."""
    model = ScriptedProvider(lambda request: {"text": "no", "cost_usd": 0.01})
    async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.tool
        async def pay(question: str) -> str:
            """Pay."""
            raise NotImplementedError

        @flow.workflow
        async def answer(question: str) -> str:
            return await flow.call_tool("pay", question=question)

        listed = [{"question": f"q{number}", "expected": "yes"} for number in range(8)]
        with pytest.raises(ConfigurationError, match="would call the tool 'pay'") as wrong:
            await flow.improve(answer, listed, [contains()])
        assert wrong.value.code == "evals/score"


async def test_invalid_instructions_are_refused_before_they_cost_anything(tmp_path: Path) -> None:
    """A slot for a parameter that the task does not have."""

    def model(request: Any) -> dict[str, Any]:
        text = request.messages[-1].text
        said = json.dumps({"diagnosis": "-", "instructions": "Reply to {{nothing}}"})
        return {"text": said if text.startswith("Rewrite") else "no", "cost_usd": 0.01}

    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def reply(question: str) -> str:
            """Reply to {{question}}"""
            raise NotImplementedError

        told: list[Any] = []
        listed = [{"question": f"q{number}", "expected": "yes"} for number in range(8)]
        report = await flow.improve(reply, listed, [contains()], told=told.append, generations=1)
        assert [each.stage for each in report.candidates] == ["base", "refused"] and "nothing" in told[0].why
        assert report.paid_calls == 6 + 3 and not report.improved
