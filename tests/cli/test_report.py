"""Reports and exports from the command line, of the run at hand and of recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import ConfigurationError
from agentflow.providers.shown import wire_of
from tests.cli.test_command import agentflow
from tests.support.model_server import ModelServer

TEXT = '(defatom t (params (x)) (instructions "Say {{x}}")) (value-of (t (x "hello")))'


async def test_a_run_is_reported_as_it_ends(tmp_path: Path) -> None:
    """--report writes the page also when the program failed, and does not change the exit code."""
    good = await agentflow("run", "-e", TEXT, "-m", "offline", "--report", str(tmp_path / "a.html"), tmp_path=tmp_path)
    bad = await agentflow("run", "-e", "(first 5)", "--report", str(tmp_path / "b.html"), tmp_path=tmp_path)
    assert (good.code, bad.code) == (0, 1), good.err
    for name in ("a.html", "b.html"):
        assert "Content-Security-Policy" in (tmp_path / name).read_text()


async def test_recorded_runs_are_reported_and_exported(tmp_path: Path) -> None:
    """The command records what it runs: the last run, or two by their ids, become a page; exports are JSON."""
    for _ in range(2):
        done = await agentflow("run", "-e", TEXT, "-m", "offline", tmp_path=tmp_path)
        assert done.code == 0, done.err
    listed = json.loads((await agentflow("runs", "--json", tmp_path=tmp_path)).out)
    first, second = [run["run_id"] for run in (listed["runs"] if isinstance(listed, dict) else listed)][:2]
    page = tmp_path / "both.html"
    made = await agentflow("runs", "report", first, second, "-o", str(page), tmp_path=tmp_path)
    assert made.code == 0 and made.out.strip() == str(page), made.err
    assert "Content-Security-Policy" in page.read_text()
    chrome = json.loads((await agentflow("runs", "export", first, tmp_path=tmp_path)).out)
    assert {"invoke_agent t"} <= {each["name"] for each in chrome["traceEvents"]}
    otlp = json.loads((await agentflow("runs", "export", first, "--format", "otlp", tmp_path=tmp_path)).out)
    assert "Say hello" not in json.dumps(otlp)
    told = await agentflow("runs", "export", first, "--format", "otlp", "--content", tmp_path=tmp_path)
    assert "Say hello" in told.out
    assert (await agentflow("runs", "export", first, "--format", "xml", tmp_path=tmp_path)).code == 2


async def test_a_result_reports_itself(tmp_path: Path) -> None:
    """A flow that records gives results that write their page; one that does not says how."""
    async with AgentFlow(provider=ScriptedProvider(["hi"]), root=tmp_path, record=tmp_path / "runs") as flow:
        result = await flow.run(TEXT)
        assert "<a " not in result._repr_html_() and "report('run.html')" in result._repr_html_()
        await result.report(tmp_path / "r.html")
    assert "Content-Security-Policy" in (tmp_path / "r.html").read_text()
    assert f'<a href="{tmp_path / "r.html"}">' in result._repr_html_()
    async with AgentFlow(provider=ScriptedProvider(["hi"]), root=tmp_path) as flow:
        with pytest.raises(ConfigurationError, match="was not recorded"):
            await (await flow.run(TEXT)).report(tmp_path / "s.html")


async def test_a_durable_result_reports_itself(tmp_path: Path) -> None:
    """Also the recorded end of a run that another flow had carried out."""
    for name in ("a.html", "b.html"):
        async with AgentFlow(
            provider=ScriptedProvider(["hi"]), root=tmp_path, durable=f"sqlite:///{tmp_path}/runs.db", record=True
        ) as flow:
            handle = await flow.start(TEXT, run_id="r")
            await (await handle.result()).report(tmp_path / name)
        assert "Content-Security-Policy" in (tmp_path / name).read_text()


@pytest.mark.parametrize("model", ["anthropic:claude-x", "openai:gpt-x", "openai-chat:m"])
async def test_a_call_is_shown_as_it_was_sent(model: str, tmp_path: Path) -> None:
    """What a report offers as curl has the address and the body that the server was sent, and no key."""
    async with ModelServer(["hi"]) as server:
        events: list[dict[str, Any]] = []
        async with AgentFlow(model, base_url=server.url, api_key="sk-real-key-1234567890", root=tmp_path) as flow:
            flow.subscribe(lambda event: events.append(event.to_dict()))
            await flow.run(TEXT)
            started = next(event for event in events if event["type"] == "model_started")
            attempt = next(event for event in events if event["type"] == "attempt_started")
            shown = wire_of(flow.router)(json.loads(json.dumps(started["request"])), attempt["provider"])
    assert shown is not None
    assert shown["url"].endswith(server.requests[0].path) and dict(shown["body"]) == server.requests[0].body
    assert "real" not in json.dumps(shown) and any("$" in value for value in shown["headers"].values())
