"""A handler that was given no model has one: its config's, else that of the settings, else Anthropic's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow import AgentFlow, BaseHandler, SexpEvaluator, TaskSystem
from agentflow.cli.admin.trust import trust_file
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.events.events import Event, ModelFinished
from agentflow.providers.anthropic import CREDENTIALS
from agentflow.settings import ENVIRONMENT
from agentflow.spec.default_model import DEFAULT_MODEL
from tests.support.children import HANG_S
from tests.support.model_server import ModelServer

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory without settings, and an environment without keys and settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in (*CREDENTIALS, "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", *ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def handler() -> AsyncIterator[BaseHandler]:
    handler = BaseHandler(None, None)
    yield handler
    await handler.aclose()


async def test_without_a_key_the_first_prompt_names_the_variable(handler: BaseHandler) -> None:
    """It is built without a key, and a prompt is a FAILED result that says which variable to set."""
    result = await handler.execute_prompt("hi")
    assert result.failed and result.notes["error"]["details"]["code"] == "config/no-key"
    assert "ANTHROPIC_API_KEY" in result.content
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        handler.model_provider  # noqa: B018 - reading it opens it


async def test_with_a_key_it_is_anthropics(handler: BaseHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key and an address in the environment, also set after the handler was built, are enough for the default model."""
    async with ModelServer(["fine", "again"]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("AGENTFLOW_BASE_URL", server.url)
        assert (await handler.execute_prompt("hi")).content == "fine"
        assert (await handler.execute_prompt("hi")).content == "again"
        sent = {(request.path, request.body["model"]) for request in server.requests}
    assert sent == {("/v1/messages", DEFAULT_MODEL.partition(":")[2])}


@pytest.mark.parametrize("where", ["environment", "agentflow.toml", "config"])
async def test_the_settings_name_another(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AGENTFLOW_MODEL, a directory's agentflow.toml and the handler's own config each name the model, the last before the others."""
    async with ModelServer(["fine"]) as server:
        monkeypatch.setenv("AGENTFLOW_BASE_URL", server.url)
        if where == "agentflow.toml":
            (tmp_path / "agentflow.toml").write_text('model = "openai-chat:local"\n')
        else:
            monkeypatch.setenv("AGENTFLOW_MODEL", "openai-chat:local" if where == "environment" else "anthropic:x")
        handler = BaseHandler(None, None, config={"model": "openai-chat:local"} if where == "config" else None)
        assert (await handler.execute_prompt("hi")).content == "fine"
        assert server.requests[0].body["model"] == "local"
        await handler.aclose()


async def test_programs_and_tasks_ask_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So do the programs and tasks of a house that is wired by hand."""
    async with ModelServer(["honey"]) as server:
        monkeypatch.setenv("AGENTFLOW_BASE_URL", server.url)
        monkeypatch.setenv("AGENTFLOW_MODEL", "openai-chat:local")
        tasks = TaskSystem()
        handler = BaseHandler(tasks, None)
        text = '(defatom look (params (q string)) (instructions "What is in {{q}}?")) (value-of (look (q "a hive")))'
        assert await SexpEvaluator(tasks, handler, None).evaluate_string(text) == "honey"
        await handler.aclose()


async def test_closing_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """aclose() closes the adapter that a prompt opened; a later prompt opens one again."""
    async with ModelServer(["one", "two"]) as server:
        monkeypatch.setenv("AGENTFLOW_BASE_URL", server.url)
        monkeypatch.setenv("AGENTFLOW_MODEL", "openai-chat:local")
        handler = BaseHandler(None, None)
        await handler.execute_prompt("hi")
        first = handler.model_provider
        await handler.aclose()
        assert (await handler.execute_prompt("hi")).content == "two" and handler.model_provider is not first
        await handler.aclose()


async def test_settings_that_cannot_be_read_fail_the_prompt(handler: BaseHandler, tmp_path: Path) -> None:
    """A broken agentflow.toml is said by the first prompt, as a FAILED result."""
    (tmp_path / "agentflow.toml").write_text("model = ")
    result = await handler.execute_prompt("hi")
    assert result.failed and result.notes["error"]["details"]["code"] == "config/file"


async def test_a_flow_without_a_model_has_none() -> None:
    """AgentFlow asks nobody that its author did not name."""
    async with AgentFlow() as flow:
        result = await flow.handler.execute_prompt("hi")
    assert result.failed and result.notes["error"]["details"]["code"] == "config/no-model"


def test_nothing_is_loaded_before_the_first_prompt() -> None:
    """To build a handler imports no SDK and reads no settings."""
    code = (
        "import sys; from agentflow import BaseHandler; BaseHandler(None, None);"
        "loaded = {'anthropic', 'openai', 'httpx2', 'aiohttp', 'agentflow.settings'} & set(sys.modules);"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)


def test_the_default_is_the_one_that_readme_shows() -> None:
    """README and the handler name one model."""
    assert DEFAULT_MODEL in README.read_text("utf-8")


async def test_it_has_the_prices_and_rates_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a directory says that a model costs is what a prompt costs, as in a flow that is built there."""
    (tmp_path / "agentflow.toml").write_text(
        'model = "openai-chat:local"\n[prices."openai-chat:local"]\ninput = 1_000_000\noutput = 1\n'
        '[rates."openai-chat:*"]\nrequests_per_min = 600\n'
    )
    assert trust_file(tmp_path, forget=False, as_json=True) == 0
    async with ModelServer(["fine", "fine"]) as server:
        monkeypatch.setenv("AGENTFLOW_BASE_URL", server.url)
        async with AgentFlow() as flow:
            expected = (await flow.run(flow.ask("hi"))).cost
        events: list[Event] = []
        system = TaskSystem()
        own = BaseHandler(system, None)
        evaluator = SexpEvaluator(system, own, None)
        evaluator.subscribe(events.append)
        await evaluator.evaluate_string('(defatom f (params) (instructions "hi")) (f)')
        await own.aclose()
    costs = [each.cost_usd for each in events if isinstance(each, ModelFinished)]
    assert expected and len(costs) == 1 and costs[0]
