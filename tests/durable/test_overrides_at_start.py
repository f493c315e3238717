"""Overrides of a run from its start: in force whenever it is resumed, on workers and in their branches, and part of its identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.errors import JournalError
from tests.scale.workers import working

TEXT = """
(define (loud name) (value-of (say (name name))))
(list (loud "a") (pmap :on workers loud '("b" "c")))"""
BETTER = {"say": {"instructions": "Shout {{name}}"}}


def flow_of(where: str, **options: Any) -> AgentFlow:
    """A flow with one task, of which the model repeats the prompt."""
    model = ScriptedProvider(lambda request: request.messages[-1].text)
    flow = AgentFlow(provider=model, durable=where, **options)

    @flow.task
    async def say(name: str) -> str:
        """Say {{name}}"""
        raise NotImplementedError

    return flow


async def test_a_run_keeps_its_overrides_when_it_is_resumed(tmp_path: Path) -> None:
    """By another process too, which is given none; the same id with others, or without, is another run."""
    where = f"sqlite:///{tmp_path}/runs.db"
    text = '(list (value-of (say (name "a"))) (ask-human "and?") (value-of (say (name "b"))))'
    file = tmp_path / "better.toml"
    file.write_text('[say]\ninstructions = "Shout {{name}}"\n')
    async with flow_of(where) as flow:
        handle = await flow.start(text, run_id="run", overrides=file)
        assert await handle.wait() == "waiting"
    async with flow_of(where) as flow:
        with pytest.raises(JournalError, match="the overrides") as wrong:
            await flow.start(text, run_id="run")
        assert wrong.value.code == "durable/mismatch"
        [question] = await flow.questions("run")
        await flow.send("run", question.key, "yes")
        assert (await (await flow.resume("run")).result()).value == ["Shout a", "yes", "Shout b"]
        again = await flow.start(text, run_id="run", overrides=BETTER)
        assert (await again.result()).value == ["Shout a", "yes", "Shout b"]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"sya": {"model": "m"}}, "no task here is called 'sya'"),
        ({"say": {"params": "x"}}, "the field 'params' of the task 'say' cannot be overridden"),
        ({"say": {"instructions": "{{other}}"}}, "other"),
        ("better.toml", "a dict of the fields of each task, or the Path of a file"),
        (Path("missing.toml"), "missing.toml cannot be read"),
    ],
)
async def test_overrides_that_fit_nothing_are_refused_before_anything_is_stored(
    tmp_path: Path, overrides: Any, problem: str
) -> None:
    """With the name or the file, and the form to write."""
    async with flow_of(f"sqlite:///{tmp_path}/runs.db") as flow:
        with pytest.raises(JournalError, match=problem) as wrong:
            await flow.start('(value-of (say (name "a")))', run_id="run", overrides=overrides)
        assert wrong.value.code == "durable/override"
        assert await flow.find_run("run") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[say", "is not valid TOML"), ('say = "x"', "has the entry 'say' outside of the table of a task")],
)
async def test_a_file_of_overrides_has_a_table_for_each_task(tmp_path: Path, text: str, problem: str) -> None:
    """Anything else is an error that names the file."""
    file = tmp_path / "better.toml"
    file.write_text(text)
    async with flow_of(f"sqlite:///{tmp_path}/runs.db") as flow:
        with pytest.raises(JournalError, match=problem):
            await flow.start('(value-of (say (name "a")))', overrides=file)


async def test_workers_and_their_branches_have_the_overrides_of_a_run(postgres_url: str) -> None:
    """Those from its start, and those of a generation that it was resumed as."""
    async with flow_of(postgres_url) as flow:
        async with working(flow):
            started = await flow.start(TEXT, run_id="run", where="workers", overrides=BETTER)
            assert (await started.result()).value == ["Shout a", ["Shout b", "Shout c"]]
            plain = await flow.start(TEXT, run_id="plain", where="workers")
            assert (await plain.result()).value == ["Say a", ["Say b", "Say c"]]
            resumed = await flow.resume("plain", overrides=BETTER)
            assert (await resumed.result()).value == ["Shout a", ["Shout b", "Shout c"]]
