"""Finished durable runs are scored beside the flow, and their scores stand where runs are listed."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentflow import AgentFlow, Allowance, ConfigurationError, OpenTelemetry, Purses, ScriptedProvider
from agentflow.evals import LiveScore, contains, cost, exact, judge
from tests.support.commands import said_by

YES = json.dumps({"reason": "it is", "score": True})


def model(request: Any) -> Any:
    """Says yes as a judge, and repeats what it is asked otherwise; each answer costs a cent."""
    text = request.messages[-1].text
    usage = {"input_tokens": 5, "output_tokens": 5}
    return {"text": YES if text.startswith("Judge") else f"<{text}>", "cost_usd": 0.01, "usage": usage}


def length(case: Any, run: Any) -> int:
    """The number of characters of the value."""
    return len(run.value)


def broken(case: Any, run: Any) -> bool:
    """A scorer that raises."""
    raise ValueError("no idea")


def opened(tmp_path: Path, **options: Any) -> AgentFlow:
    """A flow with a database."""
    return AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db", **options)


async def answered(flow: AgentFlow, run_id: str, text: str, **options: Any) -> Any:
    """The value of a durable run that asks the model."""
    program = '(value-of (begin (defatom ask (params (q string)) (instructions "{{q}}")) (ask (q text))))'
    return (await (await flow.start(program, {"text": text}, run_id=run_id, **options)).result()).value


async def scores(flow: AgentFlow, where: str = "") -> dict[str, dict[str, float]]:
    """The scores of the runs that fit, by run."""
    return {each.run_id: dict(each.scores) for each in await flow.runs(where=where, scores=True)}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_runs_are_scored_and_listed_by_their_scores(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Functions, a judge and the account; the inputs are those of the run; flow.runs has the scores, and filters by them."""
    url = f"sqlite:///{tmp_path}/runs.db" if database == "sqlite" else request.getfixturevalue("postgres_url")

    def asked(case: Any, run: Any) -> bool:
        times.append(run.latency_s)
        return case.inputs["text"] == "hello"

    times: list[float] = []

    async with AgentFlow(provider=ScriptedProvider(model), durable=url) as flow:
        online = flow.score(length, asked, judge("Is it polite?"), cost, contains("<h"))
        assert await answered(flow, "one", "hello") == "<hello>"
        await answered(flow, "two", "good day to you")
    assert (online.scored, online.failed, online.dropped) == (2, 0, 0)
    async with AgentFlow(provider=ScriptedProvider(model), durable=url) as flow:
        one = {"length": 7.0, "asked": 1.0, "judge": 1.0, "cost": 0.01, "contains": 1.0}
        two = {"length": 17.0, "asked": 0.0, "judge": 1.0, "cost": 0.01, "contains": 0.0}
        assert await scores(flow) == {"one": one, "two": two}
        assert sorted(times) == sorted([each.duration_s for each in await flow.runs()]), "the working time of the run"
        assert await scores(flow, "score.length>10") == {"two": two}
        assert await scores(flow, "score.asked=true status=done") == {"one": one}
        assert await scores(flow, "score.other!=1") == {}
        assert [case.run_id for case in await flow.cases("score.length<10")] == ["one"]
        assert (await flow.runs())[0].scores == {}, "they are read where they are asked for"


async def test_the_command_shows_and_chooses_runs_by_their_scores(tmp_path: Path) -> None:
    """``runs show`` prints the scores of a run, ``runs --where`` and ``cases --where`` choose by them."""
    async with opened(tmp_path) as flow:
        flow.score(length)
        await answered(flow, "one", "hello")
        await answered(flow, "two", "good day to you")
    db = ("--db", f"sqlite:///{tmp_path}/runs.db")
    said = partial(asyncio.to_thread, partial(said_by, cwd=tmp_path))
    assert "length 7" in (await said("runs", "show", "one", *db)).stdout
    listed = json.loads((await said("runs", "--where", "score.length<10", "--json", *db)).stdout)
    assert [(each["run_id"], each["scores"]) for each in listed] == [("one", {"length": 7.0})]
    cases = (await said("cases", "--where", "score.length>10", *db)).stdout
    assert [json.loads(line)["run"] for line in cases.splitlines()] == ["two"]


async def test_a_run_neither_waits_for_its_scorers_nor_fails_with_them(tmp_path: Path) -> None:
    """A run ends while its scorer is at work; a scorer that raises is counted, and its score is missing."""
    go = asyncio.Event()

    async def patient(case: Any, run: Any) -> bool:
        await go.wait()
        return True

    async with opened(tmp_path) as flow:
        online = flow.score(patient, broken)
        assert await answered(flow, "one", "x") == "<x>"
        assert online.scored == 0
        go.set()
    assert (online.scored, online.failed) == (1, 1)
    async with opened(tmp_path) as flow:
        assert await scores(flow) == {"one": {"patient": 1.0}}


async def test_a_purse_bounds_what_judging_costs(tmp_path: Path) -> None:
    """Judges are paid by the purse that is named; where it is empty their scores are missing, and runs go on."""
    async with opened(tmp_path, purses=Purses({"scoring": Allowance(model_calls=2)})) as flow:
        online = flow.score(judge("Is it polite?"), purse="scoring")
        for number in range(4):
            await answered(flow, f"r{number}", f"text {number}")
    assert (online.scored, online.failed) == (4, 2)


async def test_the_sample_is_the_same_for_each_process(tmp_path: Path) -> None:
    """The id of a run and the name of the scorer decide: about half of them, and the same half again; a filter chooses before."""
    ids = [f"r{number}" for number in range(40)]
    taken: list[set[str]] = []
    for home in ("a", "b"):
        (tmp_path / home).mkdir()
        async with opened(tmp_path / home) as flow:
            flow.score(length, sample=0.5, where="status=done id!=r1")
            await asyncio.gather(*[answered(flow, run, "x") for run in ids])
        async with opened(tmp_path / home) as flow:
            taken.append(set(await scores(flow, "score.length>0")))
    assert taken[0] == taken[1] and 8 < len(taken[0]) < 32 and "r1" not in taken[0]


async def test_failed_runs_have_the_scores_of_their_account(tmp_path: Path) -> None:
    """A function of the value has nothing to say of a run that failed; its cost has."""
    async with opened(tmp_path) as flow:
        flow.score(length, cost)
        with pytest.raises(Exception, match="no stock"):
            await (await flow.start('(raise "no stock")', run_id="failing")).result()
    async with opened(tmp_path) as flow:
        assert "length" not in (await scores(flow))["failing"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"scorers": [exact()]}, "compares with an expected value"),
        ({"scorers": [contains()]}, "compares with an expected value"),
        ({"scorers": [length], "sample": 5}, "sample"),
        ({"scorers": [length], "sample": 0}, "sample"),
        ({"scorers": [lambda case, run: 1]}, "has no name"),
        ({"scorers": [length, length]}, "two scorers of live runs are called 'length'"),
        ({"scorers": [judge("Polite?", pairwise=True)]}, "compares two answers"),
        ({"scorers": [length], "where": "statsu=done"}, "no field 'statsu'"),
        ({"scorers": [judge("Polite?")], "purse": "none"}, "none"),
        ({"scorers": [exact]}, "does not take a case and a run"),
    ],
)
async def test_what_cannot_score_live_runs_is_refused(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    """Nothing is scored by a line that is wrong in one part."""
    async with opened(tmp_path) as flow:
        with pytest.raises(ConfigurationError, match=problem):
            flow.score(*options.pop("scorers"), **options)
        assert await answered(flow, "one", "x") == "<x>"
    async with opened(tmp_path) as flow:
        assert await scores(flow) == {"one": {}}


async def test_scoring_needs_a_database() -> None:
    """A flow that stores no runs has nowhere to put scores."""
    async with AgentFlow(provider=ScriptedProvider(model)) as flow:
        with pytest.raises(ConfigurationError, match="stores no runs"):
            flow.score(length)


async def test_scores_are_events_of_the_trace_of_their_run(tmp_path: Path) -> None:
    """OpenTelemetry's own SDK has one event for each score, with the names of the conventions, in the span of the run."""
    spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
    async with opened(tmp_path) as flow:
        flow.subscribe(OpenTelemetry(tracer_provider=tracers, logger_provider=loggers))
        flow.score(length, broken, judge("Is it polite?", name="polite"))
        await answered(flow, "r1", "hi")
    (run,) = [
        each for each in spans.get_finished_spans() if dict(each.attributes or {}).get("agentflow.run.id") == "r1"
    ]
    records = [each.log_record for each in events.get_finished_logs()]
    assert {each.event_name for each in records} == {"gen_ai.evaluation.result"}
    assert {each.trace_id for each in records} == {run.context.trace_id}
    by_name = {each.attributes["gen_ai.evaluation.name"]: dict(each.attributes) for each in records}
    assert by_name["length"]["gen_ai.evaluation.score.value"] == 4.0
    assert by_name["polite"]["gen_ai.evaluation.score.label"] == "pass"
    assert (
        by_name["broken"]["error.type"] == "scorer" and "no idea" in by_name["broken"]["gen_ai.evaluation.explanation"]
    )
    assert {each.span_id for each in records} == {run.context.span_id}


async def test_scores_of_an_evaluation_are_events_too(tmp_path: Path) -> None:
    """Each score of a sample is an event in the span of its run, with the evaluation, the case and the variant."""
    spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
    async with opened(tmp_path) as flow:

        @flow.task
        async def ask(question: str) -> str:
            """{{question}}"""

        flow.subscribe(OpenTelemetry(tracer_provider=tracers, logger_provider=loggers))
        cases = [{"question": "hi", "expected": "no"}, {"question": "hello"}]
        report = await flow.evaluate(ask, cases, scorers=[exact(), length, broken])
    records = [each.log_record for each in events.get_finished_logs()]
    told = {
        (each.attributes["agentflow.evaluation.case"], each.attributes["gen_ai.evaluation.name"]) for each in records
    }
    assert told == {(each.case.name, name) for each in report.samples for name in [*each.scores, *each.missing]}
    assert len(told) >= 5 and len(records) == len(told)
    assert {each.attributes["agentflow.evaluation.id"] for each in records} == {report.run_id}
    runs = {each.context.span_id for each in spans.get_finished_spans() if each.name.startswith("invoke_workflow")}
    assert {each.span_id for each in records} <= runs
    [label] = {each.attributes.get("gen_ai.evaluation.score.label") for each in records} - {None}
    assert label == "fail"


async def test_an_observer_is_told_the_scores_it_asks_for(tmp_path: Path) -> None:
    """An observer with a method ``scored`` has each score once it is stored, the error of one that is missing too."""

    class Board:
        def __init__(self) -> None:
            self.scores: list[LiveScore] = []

        def __call__(self, event: object) -> None:
            """Events are of no interest here."""

        def scored(self, score: LiveScore) -> None:
            self.scores.append(score)

    board = Board()
    async with opened(tmp_path) as flow:
        flow.subscribe(board)
        flow.score(length, broken)
        await answered(flow, "r1", "hi")
    assert [(each.run_id, each.name, each.value) for each in board.scores] == [
        ("r1", "length", 4.0),
        ("r1", "broken", None),
    ]
    assert "no idea" in (board.scores[1].error or "")


class Deaf:
    """An observer that cannot take scores."""

    def __call__(self, event: object) -> None:
        """Events are of no interest here."""

    async def scored(self, score: LiveScore) -> None:
        """Fail, a turn of the loop later."""
        await asyncio.sleep(0)
        raise RuntimeError("the board is full")


async def test_an_observer_that_fails_takes_no_score_from_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged; the scores are stored and counted, and the next observer is told them."""
    taken: list[LiveScore] = []

    class Board(Deaf):
        async def scored(self, score: LiveScore) -> None:
            taken.append(score)

    async with opened(tmp_path) as flow:
        flow.subscribe(Deaf())
        flow.subscribe(Board())
        online = flow.score(length)
        await answered(flow, "r1", "hi")
    assert (online.scored, online.failed) == (1, 0)
    assert [each.name for each in taken] == ["length"] and "the board is full" in caplog.text
