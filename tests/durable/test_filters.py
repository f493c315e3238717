"""Runs are listed by a filter: in full rows of the database, in whichever page they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, ScriptedProvider
from agentflow.core.events.journal_rows import NewRun
from agentflow.durable.catalogue import RunCatalogue
from agentflow.durable.run_filter import RUN_FIELDS, run_filter
from agentflow.journal.sqlite import SqliteJournal
from agentflow.journal.urls import open_events


def model(request: Any) -> Any:
    """Fails where it is asked to, and costs a cent for each letter."""
    text = request.messages[-1].text
    return {"text": text, "cost_usd": 0.01 * len(text)}


async def stored(flow: AgentFlow) -> None:
    """Six runs: two products, one that fails, one that waits."""
    for number in range(4):
        labels = {"product": "support" if number % 2 else "shop", "user": f"u{number}"}
        program = (
            f'(begin (defatom ask (params (q string)) (instructions "{{{{q}}}}")) (ask (q "{"x" * (number + 1)}")))'
        )
        await (await flow.start(program, run_id=f"r{number}", labels=labels)).result()
    failing = await flow.start('(raise "no stock")', run_id="failing", labels={"product": "support"})
    with pytest.raises(Exception, match="no stock"):
        await failing.result()
    waiting = await flow.start('(ask-human "go?")', run_id="waiting", labels={"product": "shop"})
    await waiting.wait()


@pytest.mark.parametrize("url", ["sqlite", "postgres"])
async def test_runs_and_cases_are_those_that_fit(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Status, labels, names, costs, errors and times; cases have ended."""
    database = f"sqlite:///{tmp_path}/runs.db" if url == "sqlite" else request.getfixturevalue("postgres_url")
    async with AgentFlow(provider=ScriptedProvider(model), durable=database) as flow:
        await stored(flow)

        async def listed(where: str, limit: int = 100) -> set[str]:
            return {each.run_id for each in await flow.runs(limit, where=where)}

        assert await listed("") == {"r0", "r1", "r2", "r3", "failing", "waiting"}
        assert await listed("label.product=support") == {"r1", "r3", "failing"}
        assert await listed("label.product=support status=done") == {"r1", "r3"}
        assert await listed("label.product=s*p label.user!=u0") == {"r2", "waiting"}
        assert await listed("status=waiting") == {"waiting"} and await listed("status=done status=failed") == set()
        assert await listed("error='*no stock*'") == {"failing"}
        assert await listed("error=*stock*") == {"failing"}
        assert await listed("cost>0.025") == {"r2", "r3"} and await listed("cost<=0.01") == {"r0", "failing"}
        assert await listed("id=r?") == {"r0", "r1", "r2", "r3"} and await listed("id=r0") == {"r0"}
        assert await listed("since=1h duration<1h") == await listed("") and await listed("until=1h") == set()
        assert len(await flow.runs(2, where="status=done")) == 2
        cases = await flow.cases("cost<0.035", product="support")
        assert [case.run_id for case in cases] == ["failing", "r1"]
        assert [case.run_id for case in await flow.cases(since="1h", limit=2)] == ["failing", "r3"]


async def test_the_fitting_run_may_be_on_the_last_page(tmp_path: Path) -> None:
    """A term that the database does not know, here the cost, is looked up in all runs, a page after the other."""
    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        await stored(flow)
        store = SqliteJournal(tmp_path / "runs.db")
        for number in range(450):
            await store.create(f"later{number}", NewRun(program="(f)", digest="d", input={"name": "f", "labels": None}))
        await store.aclose()
        assert [each.run_id for each in await flow.runs(1, where="cost>0.035")] == ["r3"]
        assert len(await flow.runs(1000, where="status!=done")) == 452


async def test_a_name_in_a_filter_is_that_of_the_program(tmp_path: Path) -> None:
    """The name of a workflow, as the list shows it; wildcards in it."""
    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.workflow
        async def answer_mail(text: str) -> str:
            return text

        await (await flow.start(answer_mail("x"), run_id="one")).result()
        await (await flow.start("(+ 1 2)", run_id="two")).result()
        (name,) = {each.name for each in await flow.runs(where="id=one")}
        assert [each.run_id for each in await flow.runs(where=f"name={name}")] == ["one"]
        assert [each.run_id for each in await flow.runs(where="name=*answer*")] == ["one"]


async def test_a_wrong_filter_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """A number of runs as first argument, and a misspelt status."""
    async with AgentFlow(provider=ScriptedProvider([]), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        with pytest.raises(ConfigurationError, match="a filter is a text"):
            await flow.cases(100)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ConfigurationError) as caught:
            await flow.runs(where="status=faild")
        assert caught.value.code == "config/filter" and "did you mean 'failed'?" in str(caught.value.hint)


async def test_recorded_and_durable_runs_are_joined_before_they_are_chosen(tmp_path: Path) -> None:
    """A run that is durable and recorded has one state, that of the database; a filter never shows its log beside it."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(provider=ScriptedProvider(model), durable=url, record=True) as flow:
        await stored(flow)
        await flow.run("(+ 1 2)", run_id="plain", labels={"product": "shop"})
    catalogue = RunCatalogue([open_events(url)], SqliteJournal(tmp_path / "runs.db"))
    try:

        async def listed(where: str) -> set[str]:
            return {each.run_id for each in await catalogue.list(where=run_filter(where))}

        assert await listed("status=ok") == {"plain"}
        assert await listed("status=done") == {"r0", "r1", "r2", "r3"}
        assert await listed("label.product=shop") == {"r0", "r2", "waiting", "plain"}
        assert await listed("cost>0.025") == {"r2", "r3"}
    finally:
        await catalogue.aclose()


def test_each_field_of_runs_is_documented() -> None:
    """The table of the fields in docs/evals.md has those of the language."""
    page = (Path(__file__).parents[2] / "docs" / "evals.md").read_text()
    for name, field in RUN_FIELDS.items():
        assert f"`{name}.NAME`" in page if field.keys else f"`{name}`" in page
