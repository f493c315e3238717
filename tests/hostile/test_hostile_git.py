"""Git in a repository that was made to run things: nothing of it runs."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow.executors.command_executor import CommandExecutor
from tests.hostile.arena import Arena
from tests.hostile.backends import CONFINING, needed

PAYLOAD = """#!/bin/sh
echo ran >> {marker}
cat 2>/dev/null
exit 0
"""


def hostile(root: Path) -> Path:
    """A repository below ``root`` whose configuration, attributes and hooks name a program that leaves a mark."""
    marker = root / "MARK"
    payload = root / "payload.sh"

    def git(*arguments: str, at: Path = root) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always")
        subprocess.run(["git", *identity, *arguments], cwd=at, check=True, capture_output=True)

    git("init", "-q", ".")
    (root / "file.txt").write_text("one\n")
    git("add", "file.txt")
    git("commit", "-q", "-m", "one")
    (root / "inner").mkdir()
    git("init", "-q", ".", at=root / "inner")
    (root / "inner" / "x").write_text("x")
    git("add", "x", at=root / "inner")
    git("commit", "-q", "-m", "x", at=root / "inner")
    git("submodule", "add", "-q", "./inner", "module")
    git("commit", "-q", "-m", "module")
    payload.write_text(PAYLOAD.format(marker=marker))
    payload.chmod(0o755)
    for name in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        for hooks in (root / ".git" / "hooks", root / ".git" / "modules" / "module" / "hooks"):
            hooks.mkdir(parents=True, exist_ok=True)
            (hooks / name).write_text(PAYLOAD.format(marker=marker))
            (hooks / name).chmod(0o755)
    settings = {
        "core.fsmonitor": str(payload),
        "core.pager": str(payload),
        "core.editor": str(payload),
        "core.sshCommand": str(payload),
        "core.askPass": str(payload),
        "core.alternateRefsCommand": str(payload),
        "pager.log": str(payload),
        "pager.status": str(payload),
        "diff.external": str(payload),
        "diff.evil.command": str(payload),
        "diff.evil.textconv": str(payload),
        "filter.evil.clean": str(payload),
        "filter.evil.smudge": str(payload),
        "filter.evil.process": str(payload),
        "filter.evil.required": "true",
        "merge.evil.driver": str(payload),
        "gpg.program": str(payload),
        "log.showSignature": "true",
        "credential.helper": str(payload),
        "alias.st": f"!{payload}",
        "sequence.editor": str(payload),
        "submodule.module.ignore": "none",
        "submodule.module.update": f"!{payload}",
        "remote.origin.url": f"ext::{payload}",
        "remote.origin.vcs": "ext",
        "remote.origin.uploadpack": str(payload),
    }
    for name, value in settings.items():
        git("config", name, value)
    git("config", "core.fsmonitor", str(payload), at=root / "module")
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
    (root / "file.txt").write_text("two\n")
    marker.unlink(missing_ok=True)
    return marker


COMMANDS = {
    "status": "git status --short",
    "status_recursing": "git status --short --ignore-submodules=none",
    "diff": "git diff",
    "diff_stat": "git diff --stat HEAD",
    "log": "git log -p --submodule=diff",
    "show": "git show HEAD",
    "add": "git add file.txt",
    "commit": "git commit -q -a -m two",
    "checkout": "git checkout -q -b other",
    "stash": "git stash list",
    "fetch": "git fetch origin",
    "ls_remote": "git ls-remote ext::./payload.sh",
    "submodule": "git submodule update --init",
    "alias": "git st",
    "paginate": "git --paginate log",
    "grep": "git grep two",
    "blame": "git blame file.txt",
    "archive": "git archive --format=tar.gz -o out.tgz HEAD",
    "gc": "git gc --auto",
    "elsewhere": "git -C . status",
}


@pytest.fixture(params=CONFINING)
async def commands(request: pytest.FixtureRequest, arena: Arena) -> AsyncIterator[CommandExecutor]:
    needed(request.param)
    async with CommandExecutor(arena.root, sandbox=request.param) as executor:
        await executor.check()
        yield executor


QUICK = ("status", "diff", "log", "add", "checkout", "fetch", "ls_remote", "submodule", "alias", "elsewhere")
"""Those in which each setting of the repository has its turn."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in COMMANDS]
)
async def test_git_runs_nothing_of_the_repository(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """Hooks, monitors, pagers, filters, converters, drivers, helpers, transports and aliases are all left out."""
    marker = await asyncio.to_thread(hostile, arena.root)
    result = arena.saw(await commands.execute_command_safely(COMMANDS[name], timeout=10))
    assert not marker.exists(), result
    if name in ("status", "elsewhere"):
        assert (result.success and " M file.txt" in result.stdout) or "modified" in result.stdout, result
    if name == "diff":
        assert result.success and "+two" in result.stdout, result


@pytest.mark.parametrize("command", ["status", "diff", "log -p", "commit -q -a -m two", "st"])
def test_the_repository_is_hostile(command: str, tmp_path: Path) -> None:
    """Plain git does run what this repository says: the cases above would be worth nothing otherwise."""
    marker = hostile(tmp_path)
    subprocess.run(["git", *command.split()], cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL)
    assert marker.exists()
