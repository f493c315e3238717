"""Files found by what they mean: vectors from a server, kept in the index, made again when texts or models change."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, ContextGenerationInput, LimitExceeded, Limits, Rate
from agentflow.cli.admin.search import index_command, search_command, serve_jsonl
from agentflow.core.data.errors import ProviderError
from agentflow.core.events.events import ModelFinished, WaitFinished, Warning
from agentflow.memory import FileMemory
from agentflow.providers.dialects.retry import RetryPolicy
from agentflow.providers.embeddings import Embeddings
from agentflow.providers.prices import Price, Prices
from agentflow.settings import load_settings
from tests.support.embedding_server import EmbeddingServer
from tests.support.fakes import FakeRun
from tests.support.repository import write

FILES = {
    "river.py": "# a stream\ndef read():\n    return 1\n",
    "beaver.py": "# lodge\n" * 50 + "def dam():\n    '''Holds the brook back.'''\n",
    "moon.py": "# crater\n",
}
ASKED = ContextGenerationInput(query="stream")


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer(meanings=[{"stream", "brook"}]) as server:
        yield server


def embedder(server: EmbeddingServer, model: str = "toy", tries: int = 1) -> Embeddings:
    return Embeddings(
        model, base_url=server.url, api_key="sk-toy-0123456789", retry=RetryPolicy(attempts=tries, base_s=0)
    )


def memory(tmp_path: Path, server: EmbeddingServer, model: str = "toy", tries: int = 1) -> FileMemory:
    config = {"cache_dir": tmp_path / "cache", "refresh_s": 0}
    return FileMemory(config, roots=[tmp_path / "root"], embedder=embedder(server, model, tries))


async def test_a_file_is_found_by_what_it_means(tmp_path: Path, server: EmbeddingServer) -> None:
    """With the lines that mean it and the similarity; the file with the word itself is found by both and comes first."""
    write(tmp_path / "root", FILES)
    async with memory(tmp_path, server) as found:
        matches = (await found.find(ASKED)).matches
    by_name = {Path(match.path).name: match for match in matches}
    assert Path(matches[0].path).name == "river.py" and "beaver.py" in by_name
    beaver = by_name["beaver.py"]
    assert (beaver.start_line, beaver.end_line) == (41, 52) and "brook" in beaver.content
    assert beaver.relevance.startswith("similar meaning (similarity 0.") and beaver.metadata["why"]


async def test_only_what_changed_is_embedded_again(tmp_path: Path, server: EmbeddingServer) -> None:
    """By another process too: vectors lie in the index's file. A removed file is not found any more."""
    write(tmp_path / "root", FILES)
    async with memory(tmp_path, server) as found:
        await found.update_global_index()
    assert len(server.texts) == 4  # one each, and two of the longer file
    server.asked.clear()
    write(tmp_path / "root", {"moon.py": "# a brook on the moon\n"})
    (tmp_path / "root" / "beaver.py").unlink()
    async with memory(tmp_path, server) as found:
        matches = (await found.find(ASKED)).matches
    assert server.texts == ["moon.py\n# a brook on the moon", "stream"]
    assert {Path(match.path).name for match in matches} == {"river.py", "moon.py"}


async def test_another_model_makes_its_own_vectors(tmp_path: Path, server: EmbeddingServer) -> None:
    """Vectors of two models are never compared."""
    write(tmp_path / "root", FILES)
    async with memory(tmp_path, server, "toy") as found:
        await found.update_global_index()
    server.asked.clear()
    server.size = 32
    async with memory(tmp_path, server, "other") as found:
        result = await found.find(ASKED)
    assert len(server.texts) == 5 and len(result.matches) == 2


async def test_a_server_that_gives_another_length_has_all_vectors_made_again(
    tmp_path: Path, server: EmbeddingServer
) -> None:
    """The model behind a name was exchanged: the question is answered all the same."""
    write(tmp_path / "root", FILES)
    async with memory(tmp_path, server) as found:
        await found.update_global_index()
        server.size = 16
        names = {Path(match.path).name for match in (await found.find(ASKED)).matches}
    assert {"river.py", "beaver.py"} <= names


async def test_a_server_that_fails_is_a_warning_and_the_words_answer(tmp_path: Path, server: EmbeddingServer) -> None:
    """Without the key in the message; what was made before the failure is kept, and the next question goes on."""
    write(tmp_path / "root", FILES)
    run = FakeRun()
    server.failures = 1
    async with memory(tmp_path, server) as found:
        matches = (await found.find(ASKED, run.call())).matches
        assert [Path(match.path).name for match in matches] == ["river.py"]
        (warning,) = [event for event in run.events if isinstance(event, Warning)]
        assert warning.code == "memory/source" and "no vectors today" in warning.message
        assert "sk-toy" not in warning.message and server.keys[0] == "bearer sk-toy-0123456789"
        assert len((await found.find(ASKED, run.call())).matches) == 2


async def test_a_failure_that_passes_is_tried_again(tmp_path: Path, server: EmbeddingServer) -> None:
    """As a model's call is."""
    write(tmp_path / "root", FILES)
    server.failures = 2
    async with memory(tmp_path, server, tries=3) as found:
        assert len((await found.find(ASKED)).matches) == 2


async def test_an_answer_that_holds_no_vectors_is_refused() -> None:
    """As many as texts, all of one length."""
    async with EmbeddingServer(size=0) as server:
        with pytest.raises(ProviderError) as caught:
            async with aclosing(embedder(server)) as empty:
                await empty.embed(["a", "b"], None)
    assert caught.value.code == "provider/bad-vectors"


async def test_a_question_embeds_some_files_and_says_that_others_are_left(
    tmp_path: Path, server: EmbeddingServer
) -> None:
    """A first question does not send a whole tree away; indexing does."""
    write(tmp_path / "root", {f"f{n}.py": f"# crater {n}\n" for n in range(205)})
    run = FakeRun()
    async with memory(tmp_path, server) as found:
        await found.find(ASKED, run.call())
        assert len(server.texts) == 201
        assert [event.code for event in run.events if isinstance(event, Warning)] == ["memory/embedding"]
        await found.update_global_index()
        assert len(server.texts) == 206


async def test_a_run_pays_for_vectors(tmp_path: Path, server: EmbeddingServer) -> None:
    """Their tokens and calls are the run's, each call is an event without texts, and its limits hold."""
    write(tmp_path, FILES)
    program = '(get_context (query "stream"))'
    calls: list[ModelFinished] = []
    async with AgentFlow("offline", root=tmp_path, embeddings=embedder(server)) as flow:
        flow.subscribe(lambda event: calls.append(event) if isinstance(event, ModelFinished) else None)
        result = await flow.run(program)
        assert len(result.value) == 2
        assert result.usage.input_tokens == sum(len(text.split()) for text in server.texts)
        assert [call.model for call in calls] == ["toy", "toy"] and result.usage.requests == 2
        with pytest.raises(LimitExceeded):
            await flow.run(program, limits=Limits(model_calls=0))


async def test_money_is_set_aside_before_texts_are_sent(tmp_path: Path, server: EmbeddingServer) -> None:
    """A run with bounded money sends nothing to a model without a price, and nothing that it cannot pay."""
    write(tmp_path, FILES)
    program = '(get_context (query "stream"))'
    for prices, code in (({}, "limits/unpriced"), ({"openai:toy": Price(input=1e6, output=0)}, "limits/usd")):
        toy = Embeddings("toy", base_url=server.url, prices=Prices(prices, lookup=False))
        async with AgentFlow("offline", root=tmp_path, embeddings=toy) as flow:
            with pytest.raises(LimitExceeded) as caught:
                await flow.run(program, limits=Limits(usd=1.0))
            assert caught.value.code == code and server.asked == []
    cheap = Embeddings(
        "toy", base_url=server.url, prices=Prices({"openai:toy": Price(input=1, output=0)}, lookup=False)
    )
    async with AgentFlow("offline", root=tmp_path, embeddings=cheap) as flow:
        result = await flow.run(program, limits=Limits(usd=1.0))
    assert result.cost == pytest.approx(result.usage.input_tokens / 1e6)


async def test_what_a_server_may_have_billed_is_paid_for(tmp_path: Path, server: EmbeddingServer) -> None:
    """An attempt that was sent and not answered counts by estimate, and the next one has to fit beside it."""
    write(tmp_path, {"river.py": "# a stream\n"})
    program = '(get_context (query "stream"))'
    server.failures, server.status = 1, 0
    async with AgentFlow("offline", root=tmp_path, embeddings=embedder(server, tries=2)) as flow:
        result = await flow.run(program)
        lost = result.usage.estimated_tokens
        assert len(server.asked) == 3 and result.usage.requests == 3 and lost > 0
        assert result.usage.total_tokens == lost + sum(len(text.split()) for text in server.texts[1:])
    server.asked.clear()
    server.failures = 1
    write(tmp_path, {"river.py": "# another stream\n"})
    async with AgentFlow("offline", root=tmp_path, embeddings=embedder(server, tries=2)) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(program, max_tokens=lost + 4)
    assert len(server.asked) == 1 and caught.value.usage is not None and caught.value.usage.total_tokens <= lost + 4


async def test_the_flows_rates_hold_for_vectors(
    tmp_path: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question waits until the texts that were sent before it are a minute's share behind, and the run says so."""
    monkeypatch.setenv("AGENTFLOW_EMBEDDINGS_KEY", "sk-toy-0123456789")
    write(tmp_path, {"river.py": "# " + "a " * 620})
    waits: list[str] = []
    rates = {"openai:toy": Rate(tokens_per_min=6_000)}
    options: dict[str, Any] = {"embeddings": "toy", "embeddings_url": server.url, "rates": rates}
    async with AgentFlow("offline", root=tmp_path, **options) as flow:
        flow.subscribe(lambda event: waits.append(event.reason) if isinstance(event, WaitFinished) else None)
        await flow.run('(get_context (query "stream"))')
    assert waits == ["rate"] and len(server.asked) == 2


async def test_the_command_makes_vectors_and_searches_by_them(
    tmp_path: Path, server: EmbeddingServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``index --embeddings`` once, ``search --embeddings`` asks for the question's vector only."""
    write(tmp_path / "root", FILES)
    root, cache = str(tmp_path / "root"), tmp_path / "cache"
    monkeypatch.chdir(tmp_path)
    await index_command(root, cache_dir=cache, embeddings="toy", embeddings_url=server.url)
    server.asked.clear()
    await search_command("stream", root, cache_dir=cache, embeddings="toy", embeddings_url=server.url)
    rows = capsys.readouterr().out.splitlines()
    assert server.texts == ["stream"]
    assert any("beaver.py" in row and "similar meaning" in row for row in rows)


async def test_json_lines_are_answered_in_the_order_of_a_search(tmp_path: Path, server: EmbeddingServer) -> None:
    """``search --serve-jsonl`` ranks as everything else does, vectors included."""
    write(tmp_path / "root", FILES)
    async with memory(tmp_path, server) as found:
        wanted = [match.metadata["relative_path"] for match in await found.search("stream")]
    server.asked.clear()
    requests = [{"op": "index", "root": str(tmp_path / "root")}, {"op": "query", "q": "stream"}]
    answers: list[str] = []
    source = io.BytesIO("".join(json.dumps(request) + "\n" for request in requests).encode())
    await serve_jsonl(source, answers.append, embeddings="toy", embeddings_url=server.url)
    assert len(server.texts) == 5  # indexing makes the vectors, a question its own
    assert json.loads(answers[1])["paths"] == wanted == ["river.py", "beaver.py"]


@pytest.mark.parametrize("line", ['embeddings = "toy"', 'embeddings_url = "http://127.0.0.1:1/v1"'])
def test_a_directory_s_file_cannot_have_files_sent_away(tmp_path: Path, line: str) -> None:
    """Only who starts the command names the model and its server."""
    (tmp_path / "agentflow.toml").write_text(line)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path, {})
    assert caught.value.code == "config/setting" and "--embeddings" in (caught.value.hint or "")
    assert load_settings(tmp_path.parent, {"AGENTFLOW_EMBEDDINGS": "toy"}).embeddings == "toy"
