"""``agentflow index`` and ``agentflow search``: the file index on its own, for people, scripts and measurements."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

from rich.text import Text

from agentflow.cli.shared.common import Exit, UsageError, write_json, write_out
from agentflow.cli.shared.terminal import screen
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.context import MatchItem, MatchKind
from agentflow.core.data.errors import AgentflowError
from agentflow.lib.text.safe_text import clean
from agentflow.lib.text.terms import common_start
from agentflow.memory import FileMemory, UpdateReport
from agentflow.memory.file_memory import default_cache_dir
from agentflow.memory.index import absolute_root
from agentflow.providers.embeddings import Embeddings
from agentflow.settings import load_settings

_MAX_LINE = 16 * 1024 * 1024
_SHOWN_SKIPS = 20
_SHOWN_FILES = 4
_NEVER_S = 1e9


def _memory(root: str, config: dict[str, Any], embeddings: str | None, embeddings_url: str | None) -> FileMemory:
    settings = load_settings(embeddings=embeddings, embeddings_url=embeddings_url)
    embedder = Embeddings(settings.embeddings, base_url=settings.embeddings_url) if settings.embeddings else None
    return FileMemory(config=config, roots=[root], embedder=embedder)


async def index_command(
    root: str = ".",
    *,
    history: bool = True,
    cache_dir: Path | None = None,
    embeddings: str | None = None,
    embeddings_url: str | None = None,
    as_json: bool = False,
) -> int:
    """Index ``root``, or update its index, and print the changes and the skipped files. Returns the exit code.

    ``embeddings`` is a model that computes vectors of the files, on the server at ``embeddings_url``; the environment may
    name both. Raises DataError (``memory/root``, ``memory/database``), and ProviderError from the server.
    """
    config = {"cache_dir": str(cache_dir or default_cache_dir()), "history": history}
    async with _memory(root, config, embeddings, embeddings_url) as memory:
        report = (await memory.update_global_index())[0]
        there = await memory.index.count() if report.busy else 0
    if as_json:
        write_json({"ok": True, **_counts(report)})
        return Exit.OK
    if report.busy:
        write_out(f"another process is indexing {clean(report.root)}: {there:,} files so far\n")
        return Exit.OK
    write_out(
        f"{report.files:,} files indexed below {clean(report.root)} in {report.duration_s:.2f} s: "
        f"{report.added:,} new, {report.updated:,} changed, {report.removed:,} gone, {report.unchanged:,} as they were; "
        f"{report.commits:,} commits read\n"
    )
    if report.note:
        say(f"git was not used: {report.note}")
    for path, reason in report.skipped[:_SHOWN_SKIPS]:
        say(f"skipped {path}: {reason}")
    if report.skipped_count > _SHOWN_SKIPS:
        say(f"... {report.skipped_count - _SHOWN_SKIPS:,} more skipped (--json lists them)")
    return Exit.OK


async def search_command(
    query: str,
    root: str = ".",
    *,
    k: int = 10,
    kinds: Sequence[str] = ("file",),
    cache_dir: Path | None = None,
    embeddings: str | None = None,
    embeddings_url: str | None = None,
    as_json: bool = False,
) -> int:
    """Print the best ``k`` matches below ``root`` for ``query``, one per row: score, location, reason, best matching line.

    Returns the exit code.

    Without any match: exit code 0 and an empty list. Raises UsageError for an empty query, an unknown kind or a ``k``
    below one, DataError (``memory/root``, ``memory/database``).
    """
    if not query.strip():
        raise UsageError("nothing to search for", hint='write agentflow search "what you look for"')
    if k < 1:
        raise UsageError(f"cannot give {k} results", hint="ask for at least one: -k 10")
    kinds_known: tuple[str, ...] = get_args(MatchKind)
    for kind in kinds:
        if kind not in kinds_known:
            raise UsageError(f"there is no kind '{kind}'", hint=f"the kinds are {', '.join(kinds_known)}")
    config = {"cache_dir": str(cache_dir or default_cache_dir())}
    async with _memory(root, config, embeddings, embeddings_url) as memory:
        matches = await memory.search(query, k, kinds=cast(Sequence[MatchKind], kinds))
    if as_json:
        listed = [_match_json(match) for match in matches]
        write_json({"ok": True, "query": query, "matches": listed})
        return Exit.OK
    if not matches:
        say("nothing found")
    console = screen(sys.stdout)
    for match in matches:
        if sys.stdout.isatty():
            console.print(_row(match), no_wrap=True, overflow="ellipsis")
        else:
            console.print(_row(match), soft_wrap=True)
    return Exit.OK


def _row(match: MatchItem) -> Text:
    """A match on one line, even if its name, message or text contains line breaks."""
    starts = [common_start(term) for term in match.metadata.get("terms", [])]
    held = [
        (sum(start in line.lower() for start in starts), -at, line)
        for at, line in enumerate(match.content.splitlines())
    ]
    row = Text(f"{match.score:.3f}  ", style="dim")
    row.append(_one_line(_location(match)), style="not dim bold cyan")
    row.append(f"  {_one_line(match.relevance)}", style="not dim")
    if held and match.kind != "commit":
        excerpt = Text(_one_line(max(held)[2]), style="not dim italic")
        if starts:  # without any it would be an empty pattern, which matches between all letters
            excerpt.highlight_words(starts, style="bold yellow", case_sensitive=False)
        row.append("  ").append_text(excerpt)
    files: list[str] = match.metadata.get("files", [])
    if files:
        more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
        row.append(f"  {_one_line(', '.join(files[:_SHOWN_FILES]))}{more}", style="not dim cyan")
    return row


def _location(match: MatchItem) -> str:
    if match.kind == "commit":
        return str(match.metadata["digest"])[:12]
    return f"{match.metadata.get('relative_path', match.path)}:{match.start_line}-{match.end_line}"


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())


def _match_json(match: MatchItem) -> dict[str, Any]:
    return {
        "path": match.metadata.get("relative_path", match.path),
        "score": match.score,
        "kind": match.kind,
        "start_line": match.start_line,
        "end_line": match.end_line,
        "relevance": match.relevance,
        "signals": match.metadata.get("signals", {}),
        "terms": match.metadata.get("terms", []),
        "commit": match.metadata.get("commit") or match.metadata.get("digest"),
        "date": match.metadata.get("date"),
        "files": match.metadata.get("files", []),
        "beside": match.metadata.get("beside"),
        "why": match.metadata.get("why", []),
        "content": match.content,
    }


def _counts(report: UpdateReport) -> dict[str, Any]:
    counts = asdict(report)
    counts["files"] = report.files
    counts["skipped"] = [{"path": path, "reason": reason} for path, reason in report.skipped]
    return counts


async def serve_jsonl(
    source: BinaryIO | None = None,
    write: Callable[[str], None] = write_out,
    *,
    embeddings: str | None = None,
    embeddings_url: str | None = None,
) -> int:
    """Answer requests, one JSON object per line, until the input ends. Returns the exit code.

    ``{"op":"index","root":DIR,"history":true|false}`` indexes a directory in memory, and its changes when repeated;
    ``{"op":"query","q":TEXT,"k":20}`` answers ``{"paths":[...],"scores":[...]}``, paths relative to the root with
    ``/``;
    ``{"op":"update","paths":[...]}`` indexes single files. A request that fails is answered with
    ``{"error":{"code":...,"message":...}}``, and the next one is served. ``embeddings`` as for :func:`index_command`.
    """
    server = _Server(embeddings, embeddings_url)
    try:
        async for line in _lines(source or sys.stdin.buffer):
            if line.strip():
                write(json.dumps(await server.answer(line), ensure_ascii=False) + "\n")
    finally:
        await server.aclose()
    return Exit.OK


class _Server:
    def __init__(self, embeddings: str | None, embeddings_url: str | None) -> None:
        self._embeddings = (embeddings, embeddings_url)
        self._memory: FileMemory | None = None
        self._root = ""

    async def answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = _request(line)
            match request.get("op"):
                case "index":
                    return await self._do_index(request)
                case "query":
                    return await self._do_query(request)
                case "update":
                    return await self._do_update(request)
                case other:
                    raise UsageError(f"no op {other!r}", hint='the ops are "index", "query" and "update"')
        except AgentflowError as error:
            return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}

    async def _do_index(self, request: dict[str, Any]) -> dict[str, Any]:
        root = absolute_root(_field(request, "root", str))
        history = _field(request, "history", bool, True)
        if root != self._root or self._memory is None:
            await self.aclose()
            # no background updates: changes are indexed on request, so that answers depend on the requests alone
            self._memory, self._root = _memory(root, {"refresh_s": _NEVER_S}, *self._embeddings), root
        return _counts(await self._memory.index_git_repository(root, {"history": history}))

    async def _do_query(self, request: dict[str, Any]) -> dict[str, Any]:
        k = _field(request, "k", int, 20)
        if not 1 <= k <= 10_000:
            raise UsageError(f"k is {k}", hint="ask for 1 to 10000 paths")
        matches = await self._opened().ranked(_field(request, "q", str), k)
        return {"paths": [item.file.path for item in matches], "scores": [round(item.score, 6) for item in matches]}

    async def _do_update(self, request: dict[str, Any]) -> dict[str, Any]:
        paths = cast(list[Any], _field(request, "paths", list))
        if not all(isinstance(path, str) for path in paths):
            raise UsageError("paths has an element that is not a string", hint='write {"op":"update","paths":["a.py"]}')
        return _counts(await self._opened().index.update_paths(self._root, cast(list[str], paths)))

    def _opened(self) -> FileMemory:
        if self._memory is None:
            raise UsageError("nothing is indexed", hint='begin with {"op":"index","root":"."}')
        return self._memory

    async def aclose(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            await memory.aclose()


def _request(line: bytes) -> dict[str, Any]:
    try:
        request: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"a line is not valid JSON: {error}", hint='write {"op":"query","q":"..."}') from None
    if not isinstance(request, dict):
        raise UsageError("a request is not a JSON object", hint='write {"op":"query","q":"..."}')
    return cast(dict[str, Any], request)


def _field(request: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = request.get(name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"'{name}' is {value!r}", hint=f"'{name}' must be a {kind.__name__}")
    return value


async def _lines(source: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the lines of ``source``: read a pipe, socket or terminal on the event loop, a plain file on a thread."""
    try:
        kind = os.fstat(source.fileno()).st_mode
        waits = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or source.isatty()
    except (OSError, ValueError):
        waits = False
    if not waits:
        while line := await asyncio.to_thread(source.readline, _MAX_LINE):
            yield line
        return
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MAX_LINE)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    try:
        while line := await _line(reader):
            yield line
    finally:
        transport.close()


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        raise UsageError(f"a line is longer than {_MAX_LINE:,} bytes", hint="send fewer paths at once") from None
