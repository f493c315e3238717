"""``agentflow doctor``: reports the working and the missing parts of this machine's set-up."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from agentflow.cli.shared.common import Exit, labelled, write_json
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import AgentflowError, clip
from agentflow.core.ports.service_port import ServiceCommand
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.executors.services import Service, Services
from agentflow.lib.distribution import tested_versions, with_extras
from agentflow.lib.own_threads import own_thread
from agentflow.lib.text.safe_text import escape

if TYPE_CHECKING:
    from agentflow.providers.dialects.traits import Traits


PROGRAMS = {
    "node": ("-e", "console.log(process.version)"),
    "npx": ("--version",),
    "uvx": ("--version",),
    "git": ("--version",),
}
"""The programs to try, each with arguments that do little."""
_TIMEOUT_S = 20.0


async def starts(choice: SandboxChoice) -> dict[str, str]:
    """The outcome of each of :data:`PROGRAMS` in a tested sandbox, without network and in an empty directory, in words."""
    with tempfile.TemporaryDirectory(prefix="agentflow-doctor-") as root:
        files = FileAccessManager([root])
        try:
            services = Services(files, choice)
            said = await asyncio.gather(*[_start(services, name) for name in PROGRAMS])
        finally:
            await files.aclose()
    return dict(zip(PROGRAMS, said, strict=True))


async def _start(services: Services, name: str) -> str:
    if await own_thread(shutil.which, name) is None:
        return "not installed"
    try:
        service = await services.start(ServiceCommand(argv=(name, *PROGRAMS[name]), env={}))
    except (AgentflowError, OSError) as error:
        return f"does not start: {error}"
    ending, out = "", b""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while piece := await service.read():
                out += piece
    except TimeoutError:
        pass  # its outcome is reported below
    finally:
        ending = await service.stop(1.0)
    return _words(service, ending, out)


def _words(service: Service, ending: str, out: bytes) -> str:
    """The outcome of a program, with its version or its last words."""
    if ending == "it exited with code 0":
        return f"starts: {escape(clip(out.decode(errors='replace').strip(), 60))}"
    said = service.said().strip().splitlines()
    last = f": {escape(clip(said[-1].strip(), 200))}" if said else ""
    refused = service.refused()
    way = (
        ""
        if refused is None
        else f"; its sandbox keeps {escape(refused)!r} from it, which readable=[...] or --readable gives"
    )
    return f"does not start: {ending}{last}{way}"


_USES = MappingProxyType(
    {
        "embeddings": "embeddings",
        "serve": "serve",
        "language server": "lsp",
        "mcp": "mcp",
        "postgres": "postgres",
        "mcp server": "mcp_server",
    }
)
"""The label of each use of the package in the report, and its key there."""
_PACKAGES = ("anthropic", "openai", "pydantic", "anyio", "aiohttp", "genai-prices", "numpy", "boto3", "google-auth")
_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def python_note(running: tuple[int, int], tested: Sequence[str]) -> str | None:
    """A note about a Python version that the tests do not cover; None for a covered one. ``tested`` is sorted."""
    if "{}.{}".format(*running) in tested:
        return None
    newest = tuple(map(int, tested[-1].split(".")))
    age = "newer than any version" if running > newest else "not among the versions"
    return f"untested: {age} the tests run on ({tested[0]} to {tested[-1]}); it may work"


def _fts5() -> bool:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("create virtual table t using fts5(x)")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def _missing(extra: str) -> str:
    return f"not usable: install {with_extras(extra)}"


def _embeddings() -> str:
    """Whether files can be found by meaning, and the model for it."""
    model, url = os.environ.get("AGENTFLOW_EMBEDDINGS"), os.environ.get("AGENTFLOW_EMBEDDINGS_URL")
    if _package("numpy") is None:
        return _missing("embeddings")
    return f"{model} at {url or 'api.openai.com'}" if model else "usable: name a model, --embeddings MODEL"


def _serving() -> str:
    """Whether flows can be served."""
    missing = [name for name in ("starlette", "uvicorn") if _package(name) is None]
    if missing:
        return _missing("serve")
    keys = os.environ.get("AGENTFLOW_SERVE_KEYS")
    if keys is None:
        return "usable: on this machine alone, without AGENTFLOW_SERVE_KEYS"
    from agentflow.serve.keys import read_keys

    try:
        return f"usable: {len(list(read_keys(keys)))} keys"
    except AgentflowError as error:
        return f"not usable: {error.message}"


def _language_server() -> str:
    """Whether editors can start ``agentflow lsp``."""
    return "usable: agentflow lsp" if _package("pygls") is not None else _missing("lsp")


def _mcp_server() -> str:
    """Whether MCP clients can start ``agentflow mcp serve`` and use ``/mcp``."""
    missing = [name for name in ("mcp", "starlette") if _package(name) is None]
    return _missing("mcp") if missing else "usable: agentflow mcp serve, and /mcp of agentflow serve"


def _clouds() -> dict[str, str]:
    """For each cloud, whether Claude can be called there, judging by packages and variables; else the first missing part."""
    from agentflow.providers.clouds import check_bedrock, check_foundry, check_vertex

    states: dict[str, str] = {}
    for name, check in (("bedrock", check_bedrock), ("vertex", check_vertex), ("foundry", check_foundry)):
        try:
            check(None, None)
            states[name] = "usable, if its credentials are"
        except AgentflowError as error:
            states[name] = f"not usable: {error.hint}"
    return states


def _postgres() -> str:
    """Whether durable runs can be stored in PostgreSQL."""
    number, queue = _package("asyncpg"), _package("pgqueuer")
    if number is None:
        return f"{_missing('postgres')}, or {with_extras('scale')} for workers too"
    return f"usable: asyncpg {number}, " + (
        f"no workers: install {with_extras('scale')}" if queue is None else f"workers by pgqueuer {queue}"
    )


def _settings_file() -> str:
    """The settings from the ``agentflow.toml`` of this directory."""
    from agentflow.settings import read_file

    try:
        file = read_file(Path())
    except AgentflowError as error:
        return f"not usable: {error.message}; {error.hint}"
    return "no agentflow.toml in this directory" if file is None else file.told()


def _mcp() -> str:
    """Whether tools of MCP servers can be used, and the number of servers in the settings."""
    number = _package("mcp")
    if number is None:
        return _missing("mcp")
    from agentflow.settings import load_settings

    try:
        named = len(load_settings().mcp)
    except AgentflowError as error:
        return f"usable, but the settings are invalid: {error.message}"
    return f"usable: SDK {number}, {named} servers in the settings"


async def _sandbox(name: str) -> tuple[str, dict[str, str]]:
    """Whether a back-end can be used, and the outcome of programs in it."""
    from agentflow.executors.sandbox.selection import SandboxChoice

    choice = SandboxChoice(name)
    try:
        await choice.get()
    except AgentflowError as error:
        return f"not usable: {error.message}", {}
    return "usable", await starts(choice)


async def _model() -> dict[str, Any]:
    """The model of the settings, and the facts about its server; ``problem`` is the reason why it cannot be called.

    Your own server is asked about itself, and one that lists models also for one short answer, which shows whether it
    enforces a schema.
    """
    from agentflow.providers import server_report
    from agentflow.providers.table import Router
    from agentflow.settings import load_settings

    try:
        settings = load_settings()
        if settings.model is None:
            return {"name": None}
        router = Router(settings.model, **settings.for_router())
        adapter, model = router.resolve(None)
    except AgentflowError as error:
        return {"name": None, "problem": error.message}
    traits: Traits | None = getattr(adapter, "traits", None)
    if traits is None:
        return {"name": router.model}
    named = traits.vendor if traits.sure else "a server that is not known: a field that it refuses is left out"
    shown = {"limit_field": traits.limit_field, "output": traits.output, "stated": sorted(traits.stated)}
    server = str(getattr(adapter, "issuer", "")).partition(" ")[2]
    said = {"name": router.model, "server": server, "known_as": named, "traits": shown}
    if not traits.own:
        return said
    own: dict[str, Any] = {"reachable": False}
    try:
        own = await server_report.described(cast(Any, adapter).look)
        if "models" in own:
            own["schema"] = await server_report.enforces_schema(adapter, model)
    except AgentflowError as error:
        return {**said, "own": own, "problem": error.message}
    finally:
        await router.aclose()
    return {**said, "own": own}


async def doctor(as_json: bool) -> int:
    """Print the report. Returns exit code 0 if everything that the core needs is present."""
    sandboxes = {name: await _sandbox(name) for name in ("bubblewrap", "landlock")}
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "python_note": python_note(sys.version_info[:2], tested_versions()),
        "platform": platform.platform(),
        "packages": {name: _package(name) for name in _PACKAGES},
        "keys": {name: bool(os.environ.get(name)) for name in _KEYS},
        "model": await _model(),
        "settings": _settings_file(),
        "fts5": _fts5(),
        "embeddings": _embeddings(),
        "serve": _serving(),
        "lsp": _language_server(),
        "mcp": _mcp(),
        "postgres": _postgres(),
        "mcp_server": _mcp_server(),
        "clouds": _clouds(),
        "sandbox": {name: state for name, (state, _) in sandboxes.items()},
        "starts": {name: seen for name, (_, seen) in sandboxes.items()},
    }
    problems: list[str] = []
    if not report["fts5"]:
        problems.append("this Python's SQLite has no FTS5: the index cannot work")
    report["problems"] = problems
    if as_json:
        write_json(report)
    else:
        say(labelled(_rows(report), 20).removesuffix("\n"), sys.stdout)
    return Exit.FAILED if problems else Exit.OK


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The report as lines, each with its label."""
    yield "python", f"{report['python']} on {report['platform']}"
    if report["python_note"]:
        yield "", report["python_note"]
    for name, number in report["packages"].items():
        yield name, number or "not installed (optional)"
    for name, there in report["keys"].items():
        yield name, "set" if there else "not set"
    model = report["model"]
    yield "model", model.get("problem") or model["name"] or "none is set"
    if "traits" in model:
        traits = ", ".join([f"{name} {value}" for name, value in model["traits"].items() if value])
        yield "server", f"{model['server']} ({model['known_as']}); {traits}"
    yield "settings", report["settings"]
    if "own" in model:
        own = {**model["own"], "models": ", ".join(model["own"].get("models", ())) or "not said"}
        yield "", f"a server of your own: {'; '.join([f'{name} {value}' for name, value in own.items()])}"
    yield "fts5", "yes" if report["fts5"] else "no"
    for label, name in _USES.items():
        yield label, report[name]
    for name, state in report["clouds"].items():
        yield f"cloud {name}", state
    for name, state in report["sandbox"].items():
        yield f"sandbox {name}", state
        for program, seen in report["starts"].get(name, {}).items():
            yield "", f"{program} {seen}"
    for problem in report["problems"]:
        yield "problem", problem
