"""Model servers that nobody here wrote, as processes: llama.cpp, LiteLLM's proxy, aimock and transformers serve.

    python -m tests.support.real_servers install DIRECTORY [NAME ...]      # downloads and builds; llama.cpp takes a while
    AGENTFLOW_REAL_SERVERS=DIRECTORY python -m pytest -m slow tests/providers/test_real_servers.py

A server that is not there is not started: :func:`missing` says what is missing. Models are tiny and random.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.tiny_model import write_checkpoint, write_gguf

KEY = "sk-a-key-for-tests-only"
_START_S = 90
_FIXTURES = {
    "fixtures": [
        {"match": {"toolCallId": "call_add"}, "response": {"content": "The sum is 3."}},
        {"match": {"userMessage": "add"}, "response": {"toolCalls": [{"id": "call_add", "name": "add", "arguments": {"a": 1, "b": 2}}]}},
        {"match": {"userMessage": "busy"}, "response": {"error": {"message": "come back later", "type": "rate_limit_error"}, "status": 429}},
        {"match": {"userMessage": "hi"}, "response": {"content": "Hello from a mock."}},
    ]
}  # fmt: skip


@dataclass(frozen=True)
class RealServer:
    """A server that can be started.

    ``program`` is the file below the servers' directory that runs it; ``command`` gives its arguments for a working
    directory and a port; ``dialects`` it speaks; ``model`` to ask for; ``healthy`` a path that answers 200 when it is up;
    ``behind`` a server it needs behind it.
    """

    program: str
    command: Callable[[Path, int, str], list[str]]
    dialects: tuple[str, ...]
    model: str = "m"
    healthy: str = "/health"
    behind: str | None = None


def _llama(directory: Path, port: int, behind: str) -> list[str]:
    write_gguf(directory / "tiny.gguf")
    return ["-m", str(directory / "tiny.gguf"), "--port", str(port), "-c", "512", "-np", "2", "-t", "1", "--jinja"]


def _litellm(directory: Path, port: int, behind: str) -> list[str]:
    model = {"model": "openai/m", "api_base": f"{behind}/v1", "api_key": "none"}
    config = {"model_list": [{"model_name": "m", "litellm_params": model}], "litellm_settings": {"num_retries": 0}}
    (directory / "config.yaml").write_text(json.dumps(config))  # JSON is YAML.
    return ["--config", str(directory / "config.yaml"), "--port", str(port), "--host", "127.0.0.1"]


def _aimock(directory: Path, port: int, behind: str) -> list[str]:
    (directory / "fixtures.json").write_text(json.dumps(_FIXTURES))
    return ["--port", str(port), "--fixtures", str(directory / "fixtures.json"), "--strict", "--log-level", "warn"]


def _transformers(directory: Path, port: int, behind: str) -> list[str]:
    write_checkpoint(directory / "tiny")
    return ["serve", str(directory / "tiny"), "--port", str(port), "--host", "127.0.0.1", "--device", "cpu"]


SERVERS: dict[str, RealServer] = {
    "llama.cpp": RealServer("llama.cpp/bin/llama-server", _llama, ("openai-chat", "openai", "anthropic")),
    "litellm": RealServer("litellm/bin/litellm", _litellm, ("openai-chat", "openai", "anthropic"), healthy="/health/liveliness", behind="llama.cpp"),
    "aimock": RealServer("aimock/node_modules/.bin/llmock", _aimock, ("openai-chat", "openai", "anthropic")),
    "transformers": RealServer("transformers/bin/transformers", _transformers, ("openai-chat", "openai")),
}  # fmt: skip


def program(name: str) -> Path:
    """The file that runs a server."""
    return Path(os.environ.get("AGENTFLOW_REAL_SERVERS", "")) / SERVERS[name].program


def missing(name: str) -> str:
    """Why a server cannot be started; empty when it can."""
    if "AGENTFLOW_REAL_SERVERS" not in os.environ:
        return "AGENTFLOW_REAL_SERVERS names no directory with servers; see docs/servers.md"
    behind = SERVERS[name].behind
    if not program(name).exists():
        return f"{name} is not installed: {program(name)} does not exist"
    return missing(behind) if behind else ""


@contextlib.asynccontextmanager
async def running(name: str, directory: Path) -> AsyncIterator[str]:
    """A server on a port of its own; gives its address. ``directory`` is for its files."""
    server = SERVERS[name]
    async with contextlib.AsyncExitStack() as stack:
        behind = await stack.enter_async_context(running(server.behind, directory)) if server.behind else ""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        deep = directory / name / "a" / "b"  # LiteLLM imports from two directories above its own.
        deep.mkdir(parents=True)
        log = (directory / f"{name}.log").open("wb")
        stack.callback(log.close)
        environment = {
            **os.environ,
            "HOME": str(deep),
            "LITELLM_MASTER_KEY": KEY,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        process = await asyncio.create_subprocess_exec(
            program(name), *server.command(deep, port, behind), cwd=deep, env=environment, stdout=log, stderr=log
        )
        stack.push_async_callback(_stop, process)
        url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(_START_S):
            while not await asyncio.to_thread(_answers, port, server.healthy):
                assert process.returncode is None, (directory / f"{name}.log").read_text("utf-8", "replace")[-3_000:]
                await asyncio.sleep(0.2)
        yield url


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _answers(port: int, path: str) -> bool:
    """Whether a server answers ``path`` with 200."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            return b" 200 " in connection.recv(64)
    except OSError:
        return False


# --- Installing ------------------------------------------------------------------------------------------------------


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    print("+", *command, flush=True)
    subprocess.run(["nice", "-n", "19", *map(str, command)], check=True, cwd=cwd)


def _venv(directory: Path, *packages: str) -> None:
    _run(sys.executable, "-m", "venv", directory)
    if packages:
        _run(directory / "bin" / "python", "-m", "pip", "install", "-q", *packages)


def _install_llama(directory: Path) -> None:
    """llama.cpp's own server, from the sources in the sdist of llama-cpp-python."""
    _venv(directory / "venv")
    sdist = ["download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "llama-cpp-python", "-d", str(directory)]
    _run(directory / "venv" / "bin" / "python", "-m", "pip", *sdist)
    archive = next(directory.glob("llama_cpp_python-*.tar.gz"))
    with tarfile.open(archive) as sources:
        sources.extractall(directory, filter="data")
    sources = next(directory.glob("llama_cpp_python-*/vendor/llama.cpp"))
    off = ("GGML_NATIVE", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL", "BUILD_SHARED_LIBS")  # fmt: skip
    flags = [*(f"-D{name}=OFF" for name in off), "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"]
    _run("cmake", "-S", sources, "-B", directory / "build", *flags)
    _run("cmake", "--build", directory / "build", "--target", "llama-server", "-j1")
    (directory / "bin").symlink_to(directory / "build" / "bin")


def _install_aimock(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    _run("npm", "install", "--prefix", directory, "@copilotkit/aimock", cwd=directory)


INSTALL: dict[str, Callable[[Path], None]] = {
    "llama.cpp": _install_llama,
    "litellm": lambda directory: _venv(directory, "litellm[proxy]"),
    "aimock": _install_aimock,
    "transformers": lambda directory: _venv(directory, "torch", "transformers[serving]"),
}


def main() -> None:
    """``install DIRECTORY [NAME ...]``."""
    if len(sys.argv) < 3 or sys.argv[1] != "install":
        sys.exit(__doc__)
    directory = Path(sys.argv[2]).resolve()
    for name in sys.argv[3:] or [name for name in INSTALL if name != "transformers"]:
        INSTALL[name](directory / name)


if __name__ == "__main__":
    main()
