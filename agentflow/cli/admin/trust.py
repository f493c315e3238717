"""``agentflow trust``: grants in a directory's settings count once the user has reviewed the file."""

from __future__ import annotations

import shlex
from dataclasses import fields
from json import dumps
from pathlib import Path
from typing import Any, cast

from agentflow.cli.shared.common import Exit, UsageError, write_json, write_out
from agentflow.connect.config import servers_of_table
from agentflow.connect.servers import McpServer, McpStdio
from agentflow.file_rules import bound, grants_of
from agentflow.lib.file_writer import FILE_NAME, trust
from agentflow.lib.text.safe_text import escape
from agentflow.settings import read_file


def trust_file(directory: Path, *, forget: bool, as_json: bool) -> int:
    """Trust (or ``forget``) the settings of ``directory``, and print the permissions that they grant. Returns the exit code.

    Raises UsageError for a directory without settings, ConfigurationError for settings that are invalid with any trust.
    """
    path = directory / FILE_NAME
    if forget:
        trust(path, None)
    file = read_file(directory, trusting=True)
    if file is None:
        if forget:
            return Exit.OK
        raise UsageError(f"there is no {path}", hint="name the directory: agentflow trust DIR")
    digest, files = bound(path, file.values, file.content)
    if not forget:
        trust(path, digest)
    granted = grants_of(path, file.values)
    servers = servers_of_table(cast("dict[str, Any]", granted.pop("mcp", {})))
    if as_json:
        named = {
            each.name: {"command" if isinstance(each, McpStdio) else "url": _what(each), **_options(each)}
            for each in servers
        }
        write_json(
            {
                "ok": True,
                "path": str(path.resolve()),
                "trusted": not forget,
                "grants": granted,
                "servers": named,
                "files": files,
            }
        )
        return Exit.OK
    write_out(f"{path.resolve()} is {'not trusted any more' if forget else 'trusted as it is now'}\n")
    for name, value in granted.items():
        write_out(f"  {name} = {escape(dumps(value, ensure_ascii=False, default=str))}\n")
    for server in servers:
        what = _what(server)
        write_out(f"  {server.name}: {escape(what if isinstance(what, str) else shlex.join(what))}\n")
        for option, value in _options(server).items():
            write_out(f"    {option} = {escape(dumps(value, ensure_ascii=False))}\n")
    for name in files:
        write_out(f"  and {escape(name)}, which it would run, as it is now\n")
    if not granted and not servers:
        write_out("  it grants nothing that needs to be trusted\n")
    return Exit.OK


def _what(server: McpServer) -> str | list[str]:
    return list(server.command) if isinstance(server, McpStdio) else server.url


def _options(server: McpServer) -> dict[str, Any]:
    """The options of a server other than its command or address: everything that trusting it accepts."""
    named = [each for each in fields(server) if each.kw_only]
    defaults = {each.name: each.default_factory() if callable(each.default_factory) else each.default for each in named}
    return {name: value for name, default in defaults.items() if (value := getattr(server, name)) != default}
