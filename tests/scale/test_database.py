"""The database itself: its versions, what may be wrong with it, and the command over it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Durable
from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.journal.postgres import PostgresJournal
from agentflow.journal.postgres.schema import MIGRATIONS, VERSION
from agentflow.journal.rows import escape, unescape
from tests.cli.test_command import agentflow
from tests.support.postgres import Server

PROGRAM = '(defatom ask (params (q string)) (instructions "{{q}}"))\n(content (ask (q "how big is Rome?")))\n'


async def refused(url: str) -> JournalError:
    """The error with which a store at ``url`` is not used."""
    store = PostgresJournal(url)
    try:
        with pytest.raises(JournalError) as caught:
            await store.list()
        return caught.value
    finally:
        await store.aclose()


async def test_older_tables_are_brought_up_to_date(postgres_server: Server, postgres_url: str) -> None:
    """From every version on, by several processes at once, with what is stored in them; later ones are refused."""
    first = f"{MIGRATIONS[0]} create table af_meta(key text primary key, value text not null);"
    postgres_server.sql(f"{first} insert into af_meta values ('version', '1')", postgres_url)
    postgres_server.sql(
        "insert into af_run(run, program, digest, input) values ('r', '\"(f)\"', 'd', '{}')", postgres_url
    )
    stores = [PostgresJournal(postgres_url) for _ in range(4)]
    assert [[run.run for run in runs] for runs in await asyncio.gather(*[store.list() for store in stores])] == [
        ["r"]
    ] * 4
    for store in stores:
        await store.aclose()
    assert postgres_server.sql("select value from af_meta where key = 'version'", postgres_url) == str(VERSION)
    postgres_server.sql("update af_meta set value = '99' where key = 'version'", postgres_url)
    assert (await refused(postgres_url)).code == "durable/version"


async def test_a_database_that_cannot_be_used_is_named_without_its_password(postgres_url: str) -> None:
    """No server, no such database, a schema that is not there, a role that does not exist: each at once, by its error."""
    wrong = [
        "postgresql://me:hunter2secret@127.0.0.1:1/runs",
        postgres_url.replace("/postgres?", "/other?"),
        postgres_url.replace("search_path=", "search_path=no"),
        postgres_url.replace("agentflow@", "somebody:hunter2secret@"),
    ]
    for url in wrong:
        error = await refused(url)
        assert error.code == "durable/database" and "hunter2secret" not in f"{error} {error.hint}", url
        async with AgentFlow(model="offline", durable=Durable(url, take_over=False)) as flow:
            with pytest.raises(AgentflowError):
                await flow.start("(+ 1 2)", run_id="r")


def test_any_text_is_stored() -> None:
    """NUL and lone surrogates, which PostgreSQL does not take, come back, and no two texts become one."""
    texts = ["plain é", "\x00", "\ud800", "\\u0000", "\\", "\\\\u0000", "a\\ud800\ud800"]
    assert [unescape(escape(text)) for text in texts] == texts
    assert len({escape(text) for text in texts}) == len(texts)
    for text in texts:
        assert "\x00" not in escape(text) and escape(text).encode()


@pytest.mark.slow
async def test_the_command_looks_after_its_runs(postgres_url: str, tmp_path: Path) -> None:
    """A program is run over the database, and its run listed and shown."""
    (tmp_path / "p.sexp").write_text(PROGRAM)

    async def said(*arguments: str) -> Any:
        done = await agentflow(*arguments, "--db", postgres_url, "--json", tmp_path=tmp_path, cwd=tmp_path)
        assert done.code == 0, done.err
        return json.loads(done.out)

    await said("run", "p.sexp", "-m", "offline", "--run-id", "mine")
    (listed,) = await said("runs")
    assert (listed["run_id"], listed["state"], listed["durable"], listed["recorded"]) == ("mine", "done", True, True)
    shown = await said("runs", "show", "mine")
    assert shown["programs"]["p.sexp"] == PROGRAM and shown["tasks"]["task ask"]["calls"] == 1
