"""Reads files and history of a root from git. The repository is assumed to be hostile.

Everything that a repository's own configuration could make git run (hooks, fsmonitor, pager, external diff, text
conversion, signature checks, ssh, lazy fetches) is switched off on the command line, the configurations of user and system
are not read, no optional lock is taken, and output and time are bounded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agentflow.core.data.frozen import frozen
from agentflow.lib.file_writer import name_text

_HARDENED: tuple[str, ...] = (
    "--no-pager",
    "--no-optional-locks",
    "--no-replace-objects",
    "--literal-pathspecs",
    *(
        word
        for setting in (
            "core.fsmonitor=false",
            "core.hooksPath=/dev/null",
            "core.pager=cat",
            "core.editor=false",
            "core.sshCommand=false",
            "core.gitProxy=",
            "core.askPass=false",
            "core.excludesFile=/dev/null",
            "core.attributesFile=/dev/null",
            "core.untrackedCache=false",
            "core.quotePath=false",
            "core.commitGraph=false",
            "credential.helper=",
            "diff.external=",
            "gpg.program=false",
            "log.showSignature=false",
            "log.mailmap=false",
            "log.follow=false",
            "protocol.allow=never",
            "protocol.ext.allow=never",
            "safe.directory=*",
            "submodule.recurse=false",
            "uploadpack.packObjectsHook=",
        )
        for word in ("-c", setting)
    ),
)
_TIMEOUT_S = 60.0
_MAX_OUTPUT = 256 * 1024 * 1024
_RECORD = b"\x1e"


@frozen
class Commit:
    """One commit: hash, time (unix seconds), subject line, and the files it touched.

    Paths are relative to the root, ``/`` between names; ``renames`` maps new paths to old ones.
    """

    digest: str
    time: int
    subject: str
    paths: Sequence[str]
    renames: Mapping[str, str]


class GitFailed(Exception):
    """git could not answer; the argument is the reason, for users."""


class GitRepository:
    """Read-only access to the repository that contains a root. Blocking: use it on a worker thread.

    Parameters: ``root`` an absolute directory path; ``check`` is called while git runs and may raise to abandon it
    (the process and its children are killed). Use :meth:`find` to get one only where there is a repository.
    """

    def __init__(self, root: str, check: Callable[[], None]) -> None:
        self._root = root
        self._check = check
        git = shutil.which("git")
        if git is None:
            raise GitFailed("git is not installed")
        self._git = git

    @classmethod
    def find(cls, root: str, check: Callable[[], None]) -> GitRepository | None:
        """The repository that contains ``root``, or None. Raises GitFailed if git refuses to use it."""
        marker = _marker(root)
        if marker is None:
            return None
        if marker.is_file() and not _worktree_is_mutual(marker):
            raise GitFailed("its .git file points to a repository that does not belong to this directory")
        repository = cls(root, check)
        top = os.path.realpath(os.fsdecode(repository._run("rev-parse", "--show-toplevel").rstrip(b"\n")))
        if os.path.realpath(marker.parent) != top:
            raise GitFailed("its git configuration moves the work tree elsewhere")
        return repository

    def head(self) -> str:
        """The checked-out commit, ``""`` if there is none yet."""
        try:
            return self._run("rev-parse", "--verify", "--quiet", "HEAD").decode("ascii", "replace").strip()
        except GitFailed:
            return ""

    def files(self) -> list[str]:
        """Tracked files and untracked, not ignored ones, sorted; a nested repository ends with ``/``."""
        listed = self._run("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
        return sorted({_path(name) for name in listed.split(b"\0") if name})

    def submodules(self) -> frozenset[str]:
        """Paths of submodules."""
        staged = self._run("ls-files", "-z", "--stage")
        return frozenset(
            _path(entry.partition(b"\t")[2]) for entry in staged.split(b"\0") if entry.startswith(b"160000 ")
        )

    def descends_from(self, commit: str) -> bool:
        """Whether the checked-out commit has ``commit`` (a hash) among its ancestors, itself included."""
        try:
            self._run("merge-base", "--is-ancestor", commit, "HEAD")
        except GitFailed:
            return False
        return True

    def log(self, max_commits: int, since: str = "") -> list[Commit]:
        """The last ``max_commits`` commits without merges, newest first, with the files they touched below the root.

        With ``since``, a commit's hash, only those outside its ancestors.
        """
        if not self.head():
            return []
        log = self._run(
            "log", f"--max-count={max_commits}", "--no-merges", "--find-renames", "--name-status", "-z", "--relative",
            "--no-ext-diff", "--no-textconv", "--no-show-signature", "--no-color", "--no-notes", "--encoding=UTF-8",
            "--format=format:%x1e%H %ct %s", *([f"^{since}"] if since else []), "HEAD", "--", ".",
        )  # fmt: skip
        return _commits(log)

    def _run(self, *arguments: str) -> bytes:
        command = [self._git, *_HARDENED, "-C", self._root, *arguments]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=_environment(self._git),
                start_new_session=True,
                close_fds=True,
            )
            try:
                code = self._wait(process, output.fileno())
            except BaseException:  # also when interrupted: the process does not outlive the call
                _kill(process)
                raise
            if code != 0:
                raise GitFailed(f"git {arguments[0]} exited with code {code}")
            output.seek(0)
            return output.read()

    def _wait(self, process: subprocess.Popen[bytes], output: int) -> int:
        deadline = time.monotonic() + _TIMEOUT_S
        pause = 0.002
        while True:
            try:
                return process.wait(pause)
            except subprocess.TimeoutExpired:
                self._check()
            if time.monotonic() > deadline:
                raise GitFailed(f"git took longer than {_TIMEOUT_S:.0f} s")
            if os.fstat(output).st_size > _MAX_OUTPUT:
                raise GitFailed(f"git sent more than {_MAX_OUTPUT:,} bytes")
            pause = min(pause * 2, 0.05)


def _environment(git: str) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join(dict.fromkeys((os.path.dirname(git), "/usr/bin", "/bin"))),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_PAGER": "cat",
        "GIT_ALLOW_PROTOCOL": "",
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _marker(root: str) -> Path | None:
    """The ``.git`` of ``root`` or its nearest ancestor that has one."""
    for directory in (Path(root), *Path(root).parents):
        marker = directory / ".git"
        if marker.is_symlink() or marker.exists():
            return marker
    return None


def _worktree_is_mutual(marker: Path) -> bool:
    """Whether the git directory that a ``.git`` file points to points back at that file (or its directory).

    True for linked worktrees and submodules as git creates them; false for a ``.git`` file planted to expose
    another repository's file names and messages.
    """
    try:
        text = marker.read_text("utf-8", "replace")[:4096]
        if marker.is_symlink() or not text.startswith("gitdir:"):
            return False
        target = marker.parent / text.removeprefix("gitdir:").strip()
        back = target / "gitdir"
        if back.is_file():
            return os.path.realpath(back.read_text("utf-8", "replace")[:4096].strip()) == os.path.realpath(marker)
        config = (target / "config").read_text("utf-8", "replace")
    except OSError:
        return False
    moved = [line.partition("=")[2].strip() for line in config.splitlines() if line.strip().startswith("worktree")]
    return any(os.path.realpath(target / pointer) == os.path.realpath(marker.parent) for pointer in moved)


def _commits(log: bytes) -> list[Commit]:
    """The commits of ``git log -z --name-status``: read by position, since a message or a name may hold anything.

    The first status follows the subject after a newline, which a subject cannot hold; all else ends with a NUL.
    """
    commits: list[Commit] = []
    paths: list[str] = []
    renames: dict[str, str] = {}
    words = iter(log.split(b"\0"))
    for word in words:
        if word.startswith(_RECORD):
            line, _, word = word.partition(b"\n")
            digest, time_s, subject = line[1:].decode("utf-8", "replace").split(" ", 2)
            paths, renames = [], {}
            commits.append(Commit(digest, int(time_s), subject.strip(), paths, renames))
        if word:
            path = _path(next(words))
            if word[:1] in b"RC":
                old, path = path, _path(next(words))
                if word[:1] == b"R":
                    renames[path] = old
            paths.append(path)
    return commits


def _path(name: bytes) -> str:
    return name_text(os.fsdecode(name))
