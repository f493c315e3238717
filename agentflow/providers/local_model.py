"""A model on this machine without a key: ``local``, or ``local:/path/to/model.gguf``. Needs the extra ``local``.

A file of weights is served by llama.cpp in a child process (``local_child``), which starts on first use, listens on loopback
with a key of its own and ends with the adapter. Calls go to it as to any server that speaks Chat Completions.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Unpack
from weakref import WeakKeyDictionary

from agentflow.core.data.errors import ConfigurationError, ProviderError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelDelta, ModelProfile, ModelRequest, Notice
from agentflow.core.data.provider_errors import ConnectionLost
from agentflow.lib.distribution import install
from agentflow.lib.own_threads import own_thread
from agentflow.providers.dialects.traits import Traits
from agentflow.providers.dialects.wire import estimate_tokens
from agentflow.providers.http_adapter import AdapterOptions
from agentflow.providers.local_weights import MAGIC, MODEL_NAME, WHAT_IT_IS, find_weights
from agentflow.providers.openai import OpenAIChatProvider

ROUTE = "local"
SLOTS = 2
"""Calls at once, each with its own context, unless the traits say otherwise."""
CONTEXT = 8_192
"""Tokens of one slot's context, prompt and answer together: the most that the small model was trained for."""
TEMPERATURE = 0.2
"""Of the small model, as its authors advise, where a request states none; for other models it is llama.cpp's."""
START_S = 600.0
"""Seconds that loading a file of weights may take."""
_PING_S = 10
_GONE_S = 2.0
_LOG_SIZE = 4_000
"""Bytes of the log of llama.cpp, errors alone, that an error contains."""


class LocalServerEnded(ProviderError):
    """The process of a local model did not start, or ended during a call. The next call starts another."""

    default_code = "provider/local-ended"
    default_reason = "connection_error"


@frozen
class LocalEndpoint:
    """A running process and how it is reached: its ``address``, without ``/v1``, and its ``key``."""

    process: subprocess.Popen[bytes]
    address: str
    key: str


def is_gone(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended, or does so in a moment: its connections break first. Blocking."""
    try:
        process.wait(_GONE_S)
    except subprocess.TimeoutExpired:
        return False
    return True


class LocalServer:
    """A child process that serves the weights at ``path`` on loopback; it ends with :meth:`close` and with this process.

    Parameters: ``slots`` calls at once, each with ``context`` tokens; ``start_s`` seconds that loading may take.
    """

    def __init__(self, path: Path, *, slots: int = SLOTS, context: int = CONTEXT, start_s: float = START_S) -> None:
        self.path = path
        self._job = {
            "model": str(path),
            "alias": MODEL_NAME if path.name.startswith(MODEL_NAME) else path.stem,
            "slots": slots,
            "context": context,
            "start_s": start_s,
            "ping_s": _PING_S,
            "temperature": TEMPERATURE if path.name.startswith(MODEL_NAME) else None,
        }
        self._log: Any = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process that writes it
        self._starting = threading.Lock()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: LocalEndpoint | None = None
        self._closed = False

    @property
    def alias(self) -> str:
        """The name of the model in answers."""
        return str(self._job["alias"])

    @property
    def running(self) -> LocalEndpoint | None:
        """The process that answers now; None before the first, and after one that ended."""
        endpoint = self._endpoint
        return endpoint if endpoint is not None and endpoint.process.poll() is None else None

    async def ready(self) -> LocalEndpoint:
        """The running process, started now if need be. Raises LocalServerEnded if it cannot be started."""
        if (endpoint := self.running) is not None:
            return endpoint
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):  # one waiting thread is enough
            return self.running or await own_thread(self._start)

    def _start(self) -> LocalEndpoint:
        with self._starting:
            if (endpoint := self.running) is not None:
                return endpoint
            key = secrets.token_urlsafe(32)
            self._log.seek(0)  # one position for both processes
            self._log.truncate()
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("local_child.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # an interrupt from the terminal is the flow's to handle
            )
            assert process.stdin is not None and process.stdout is not None
            if self._closed:
                process.kill()
            try:
                process.stdin.write(json.dumps({**self._job, "key": key}).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = b""
            said: dict[str, str] = json.loads(line) if line else {}
            if "address" not in said:
                if not is_gone(process):
                    process.kill()
                raise self.ended(said.get("error", "its process ended"), "did not start")
            self._endpoint = LocalEndpoint(process, said["address"], key)
            return self._endpoint

    def ended(self, why: str, what: str = "ended", partial: str = "") -> LocalServerEnded:
        """The error for a vanished process, with its log. Blocking, but not for long."""
        assert self._process is not None
        code = self._process.wait()
        log = os.pread(self._log.fileno(), _LOG_SIZE, 0).decode("utf-8", "replace").strip()
        if code < 0:
            why = f"its process was killed by signal {-code}"
        elif log.startswith("Timeout ("):
            why = f"loading took longer than {self._job['start_s']:g} s"
        elif log:
            why = clip(log.splitlines()[0], 300)
        return LocalServerEnded(
            f"the local model {self.alias} {what}: {why}",
            hint="the next call starts it again; a model that is too large for the memory ends like this"
            if what == "ended"
            else "name a file that llama.cpp reads, of a model that fits into the memory",
            partial=partial,
            details={"exit_code": code, "log": log},
        )

    def close(self) -> None:
        """End the process, also a starting one. Blocking, but not for long."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class LocalChat(OpenAIChatProvider):
    """Chat Completions with the server of a :class:`LocalServer`."""

    batch_api = ""

    route: ClassVar[str] = ROUTE


class LocalProvider:
    """Models on this machine, each served by a child process. Implements ``ProviderAdapter``.

    Model names are paths of files in GGUF form; no name is the small model that ``agentflow local install`` installs.
    Parameters: see :class:`~agentflow.providers.http_adapter.HttpAdapter`; ``traits={"slots": 4}`` sets how many calls a
    process answers at once. Raises ConfigurationError for a ``base_url`` (``config/base-url``).
    """

    def __init__(self, **options: Unpack[AdapterOptions]) -> None:
        if options.get("base_url") is not None:
            raise ConfigurationError(
                "the model local has no base_url: it starts a server of its own",
                code="config/base-url",
                hint="write openai-chat:NAME for the server at that address",
            )
        self._options = options
        self._plan = LocalChat(**{**options, "base_url": "http://127.0.0.1:1/v1"})
        self._servers: dict[str, LocalServer] = {}
        self._adapters: dict[LocalServer, tuple[LocalEndpoint, LocalChat]] = {}

    def profile(self, model: str) -> ModelProfile:
        """The profile of the model at the path ``model``, or of the small one."""
        return replace(self._plan.profile(model), provider=ROUTE, model=model or MODEL_NAME, context_window=CONTEXT)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call, with the process that the first call starts; see
        :class:`agentflow.core.ports.ports.ProviderAdapter`.

        Raises ConfigurationError for missing or invalid weights (``config/local-model``) and without the extra ``local``
        (``config/extra``), LocalServerEnded.
        """
        server = self._servers.get(request.model)
        if server is None:
            path = await own_thread(_weights, request.model)
            slots = self._plan.traits.slots or SLOTS
            server = self._servers.setdefault(request.model, LocalServer(path, slots=slots))
        if server.running is None:
            yield ModelDelta(notice=Notice(f"loading {server.path}" if request.model else WHAT_IT_IS))
        endpoint = await server.ready()
        adapter = await self._adapter(server, endpoint, request.model)
        try:
            async with aclosing(adapter.stream(replace(request, model=server.alias))) as deltas:
                async for delta in deltas:
                    yield delta
        except ConnectionLost as error:
            if not await own_thread(is_gone, endpoint.process):
                raise
            raise await own_thread(server.ended, error.message, partial=error.partial) from error

    async def _adapter(self, server: LocalServer, endpoint: LocalEndpoint, model: str) -> LocalChat:
        """The adapter for a running process; that of one which ended is closed."""
        now = self._adapters.get(server)
        if now is not None and now[0] is endpoint:
            return now[1]
        traits = self._options.get("traits")
        if not isinstance(traits, Traits):
            traits = {**({} if model else {"tools": False}), **(traits or {})}
        slots = self._plan.traits.slots or SLOTS
        adapter = LocalChat(
            **{
                **self._options,
                "base_url": f"{endpoint.address}/v1",
                "api_key": endpoint.key,
                "traits": traits,
                "gate": min(slots, self._options.get("gate") or slots),
                "name": ROUTE,
                # it closes connections that it promised to keep, which a call may notice too late
                "settings": {**(self._options.get("settings") or {}), "extra_headers": {"connection": "close"}},
            }
        )
        self._adapters[server] = endpoint, adapter
        if now is not None:
            await now[1].aclose()
        return adapter

    async def count_tokens(self, request: ModelRequest) -> int:
        return estimate_tokens(request)

    async def aclose(self) -> None:
        """End the processes. The adapter starts others when it is used again."""
        adapters, servers = list(self._adapters.values()), list(self._servers.values())
        self._adapters, self._servers = {}, {}
        for _, adapter in adapters:
            await adapter.aclose()
        for server in servers:
            await own_thread(server.close)


def _weights(model: str) -> Path:
    """The file of weights that ``model`` names, or that of the small model. Blocking. Raises ConfigurationError."""
    path = _checked(Path(model).expanduser().absolute()) if model else find_weights()
    if find_spec("xllamacpp") is None:
        raise ConfigurationError(
            "the model local needs a package that is not installed: xllamacpp",
            code="config/extra",
            hint=install("local") + ("" if path else ", then agentflow local install"),
        )
    if path is None:
        raise _no_model(f"the weights of {MODEL_NAME} are not installed", "run: agentflow local install")
    return path


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as error:
        raise _no_model(f"{path} cannot be read: {error.strerror}", "write local:/path/to/model.gguf") from None
    if begins != MAGIC:
        raise _no_model(f"{path} is not a GGUF file", "name a file of weights in GGUF form: local:/path/to/model.gguf")
    return path


def _no_model(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="config/local-model", hint=hint)
