"""Small git repositories for tests: real git, no configuration but what is said here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.invalid",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.invalid",
}


def git(place: Path, *arguments: str) -> str:
    """Run git in ``place``."""
    done = subprocess.run(
        ["git", "-C", str(place), *arguments], env=_ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout


def write(place: Path, files: Mapping[str, str]) -> None:
    """Write files, by path relative to ``place``."""
    for path, text in files.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def repository(place: Path, files: Mapping[str, str] | None = None, message: str = "begin") -> Path:
    """A new repository at ``place``, with a first commit when there are files."""
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "-q", "-b", "main")
    if files:
        commit(place, files, message)
    return place


def commit(place: Path, files: Mapping[str, str], message: str) -> str:
    """Write files and commit them; gives the commit."""
    write(place, files)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", message)
    return git(place, "rev-parse", "HEAD").strip()
