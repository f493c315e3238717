"""Runs commands for programs and models: a policy decides, a sandbox confines, the whole process tree is ended.

A command is an argument vector. A command text is split with shlex; a shell runs it only if the policy grants one. The
origin of a call decides its rights: the host's own calls may run all that the configuration allows, except for
deny rules; a call with granted authority (a model's, or a program's under ``allow=``) needs an allow rule or an
approval, which is bound to a hash of the command to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import hashlib
import json
import os
import shlex
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from agentflow.core.call.approval import ApprovalRequest, Denied, refusal
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, CommandDenied, ConfigurationError, FileFailure, PathDenied, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.ports.executor_ports import CommandResult, FoundFiles
from agentflow.executors.executed_files import ProgramFile, program_files
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.policy import READING, CommandPolicy, only_reads, split_command
from agentflow.executors.sandbox.backend import PATH, CommandLimits, Sandbox, Spawn
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.lib.own_threads import own_thread
from agentflow.lib.shielded import run_or_undo, run_to_completion
from agentflow.lib.text.safe_text import escape

"""Where programs are searched: never in the working directory, and not along this process's PATH."""

ENVIRONMENT_ALLOWED: tuple[str, ...] = (
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LOGNAME",
    "TZ",
    "USER",
)
"""Variables of this process that a command inherits (shell patterns)."""

TOOL = "system:execute_shell_command"
_MAX_ARGUMENTS = 131_072
_SHORT_TEXT = 2_000
_GIT_LOOKUP_S = 10.0
_LISTING_BYTES = 8_000_000
"""Bytes kept of the head and of the tail of a list of files."""


@frozen
class Resolved:
    """A command with its program located, for the policy to judge and an approval to cover."""

    executable: str
    real: str
    argv: tuple[str, ...]
    cwd: str
    identity: tuple[int, ...]
    shell: bool = False

    def digest(self, sandbox: str, network: bool, executed: tuple[ProgramFile, ...] = ()) -> str:
        """The hash that an approval is bound to.

        It covers the program, its file's identity, the arguments, the directory, the content of the files of the
        workspace that are ``executed``, sandbox and network.
        """
        contents = [(file.path, file.digest) for file in executed]
        fields = [
            self.executable,
            self.real,
            self.argv,
            self.cwd,
            self.identity,
            self.shell,
            contents,
            sandbox,
            network,
        ]
        return hashlib.blake2b(json.dumps(fields).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@frozen
class Approval:
    """The content of an approval: the ``digest`` over all of it, and the files of the workspace that will be ``executed``."""

    digest: str
    executed: tuple[ProgramFile, ...]


_asked: ContextVar[tuple[CallContext | None, bool]] = ContextVar("agentflow_command_asked", default=(None, False))


@contextlib.contextmanager
def asked_for(call: CallContext | None, *, read_only: bool = False) -> Generator[None]:
    """A block that gives commands without a call of their own the authority of ``call``; they may be ``read_only``.

    For an executor of the host that adds to the inherited methods, which the specification gives no call.
    """
    token = _asked.set((call, read_only))
    try:
        yield
    finally:
        _asked.reset(token)


class CommandExecutor:
    """Runs commands; implements :class:`~agentflow.core.ports.executor_ports.CommandPort`.

    Parameters: ``files`` is the file manager with the workspace as its roots (or the roots themselves); ``policy`` decides
    which commands may run; ``sandbox`` is the name of a back-end (``auto``, ``bubblewrap``, ``landlock``, ``none``) or a back-end,
    tested at first use; ``network`` lets commands reach the network, with the variables for proxies
    and certificates; ``env_allow`` are the variables they inherit; ``env`` further ones for them; ``path`` lists where programs are searched, after ``programs``, absolute paths by name;
    ``readable`` further directories they may read and execute from; ``limits`` bounds the resources of one command.

    Raises ConfigurationError for an invalid argument. Use it as an async context manager, or call :meth:`aclose`.
    """

    def __init__(
        self,
        files: FileAccessManager | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        policy: CommandPolicy | None = None,
        sandbox: str | Sandbox = "auto",
        network: bool = False,
        env_allow: Iterable[str] = ENVIRONMENT_ALLOWED,
        env: Mapping[str, str] | None = None,
        path: Sequence[str] = PATH,
        programs: Mapping[str, str] | None = None,
        readable: Sequence[str | os.PathLike[str]] = (),
        limits: CommandLimits | None = None,
    ) -> None:
        extra = [os.fspath(entry) for entry in readable]
        self._programs = dict(programs or {})
        relative = [entry for entry in (*path, *extra, *self._programs.values()) if not os.path.isabs(entry)]
        if relative:
            raise ConfigurationError(
                f"{relative[0]!r} is not an absolute path",
                code="commands/settings",
                hint="path=, programs= and readable= take absolute paths",
            )
        self._owns_files = not isinstance(files, FileAccessManager)
        self._files = files if isinstance(files, FileAccessManager) else FileAccessManager(files)
        self._policy = policy or CommandPolicy()
        self._sandbox = SandboxChoice(sandbox)
        self._network = network
        self._env_allow = tuple(env_allow)
        self._env = dict(env or {})
        self._path = tuple(path)
        self._readable = tuple(os.path.realpath(entry) for entry in extra)
        self._limits = limits or CommandLimits()
        self._gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def sandbox_name(self) -> str:
        """The back-end in use; before the first command, the requested one."""
        return self._sandbox.name

    @property
    def readable(self) -> tuple[str, ...]:
        """The paths that commands may read and execute in addition to the roots and the system's, absolute and without links."""
        return self._readable

    @property
    def sandbox(self) -> SandboxChoice:
        """The choice of a back-end, for other programs behind the same walls."""
        return self._sandbox

    async def aclose(self) -> None:
        """Close the file manager, if this object created it."""
        if self._owns_files:
            await self._files.aclose()

    async def __aenter__(self) -> CommandExecutor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def check(self) -> str:
        """Test the sandbox now and return its name. Raises SandboxUnavailable."""
        return (await self._sandbox.get()).name

    # -- running ------------------------------------------------------------------------------------------------

    async def execute_command_safely(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> CommandResult:
        """Run a command to its end.

        ``command`` is a text (split with shlex) or an argument vector; ``cwd`` a directory within the roots (default:
        the first root); ``timeout`` seconds; ``call`` is the call that gives the command its authority, None for the host's. Refusals,
        failures and time-outs are results with ``reason`` and ``code`` set, not exceptions.
        """
        return await (await self.prepare(command, cwd, timeout, call))()

    async def find_files(self, command: str | Sequence[str], call: CallContext | None = None) -> FoundFiles:
        """Run a command that names files, one per line, and return those that exist within the roots.

        The workspace is read-only to it; unconfined (``sandbox="none"``) only the commands of
        :func:`~agentflow.executors.policy.only_reads` are run. ``call`` is as for :meth:`execute_command_safely`. A
        command that is refused, fails or takes too long returns no paths and the ``error``.
        """
        ended = await (await self.prepare(command, call=call, read_only=True))()
        if not ended.success:
            stderr = f": {cut(ended.stderr.strip(), 500)}" if ended.stderr.strip() else ""
            hint = f" ({ended.hint})" if ended.hint else ""
            return FoundFiles(error=f"{ended.error or 'the command failed'}{hint}{stderr}")
        return FoundFiles(tuple(await own_thread(self.parse_file_paths_from_output, ended.stdout)))

    async def prepare(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
        *,
        read_only: bool = False,
    ) -> Callable[[], Awaitable[CommandResult]]:
        """Decide on a command and ask for the approval it needs. Parameters as for :meth:`execute_command_safely`.

        The returned function runs it once, or returns the refusal. A ``read_only`` command cannot write in the workspace.
        """
        began = time.perf_counter()
        if call is None:
            call, only = _asked.get()
            read_only = read_only or only
        try:
            limit = self._timeout(timeout)
            # shlex works character by character: a long text would hold up the event loop
            long = isinstance(command, str) and len(command) > _SHORT_TEXT
            argv, shell = await own_thread(self._split, command) if long else self._split(command)
            sandbox = await self._sandbox.get()
            resolved = await own_thread(self._resolve, argv, cwd, shell)
            if read_only and not sandbox.confines and not only_reads(argv):
                raise _may_write(argv)
            approval = await self._decide(resolved, call)
        except (AgentflowError, OSError) as error:
            refusal = _failure(error, time.perf_counter() - began)

            async def refuse() -> CommandResult:
                return refusal

            return refuse

        async def run() -> CommandResult:
            began = time.perf_counter()
            gate = self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(int(self._limits.concurrency)))
            try:
                async with gate:
                    return await self._run(resolved, limit, sandbox, approval, read_only)
            except (AgentflowError, OSError) as error:
                return _failure(error, time.perf_counter() - began)

        return run

    def _timeout(self, timeout: float | None) -> float:
        if timeout is None:
            return float(self._limits.timeout_s)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CommandDenied(
                f"timeout={timeout!r} is not a number of seconds above 0", code="commands/timeout-value"
            )
        return min(float(timeout), float(self._limits.max_timeout_s))

    def _split(self, command: str | Sequence[str]) -> tuple[tuple[str, ...], bool]:
        """The argument vector, and whether it runs a shell. Raises CommandDenied."""
        if not isinstance(command, str):
            argv = tuple(command)
            if not argv or not all(isinstance(word, str) for word in argv) or not argv[0]:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise CommandDenied("an argument vector is a list of strings, the program first", code="commands/empty")
            return _checked(argv), False
        if not command.strip():
            raise CommandDenied('the command is empty; write one such as "ls -l"', code="commands/empty")
        if len(command) > _MAX_ARGUMENTS:
            raise _too_long(len(command))
        try:
            words, operator = split_command(command)
        except ValueError as error:
            raise CommandDenied(f"the command cannot be split: {error}", code="commands/quoting") from None
        if operator is None:
            return _checked(tuple(words)), False
        if not self._policy.shell:
            raise CommandDenied(
                f"the command holds the shell operator {operator!r}, and there is no shell here; run one program with its "
                "arguments, and quote literal text that looks like an operator",
                code="commands/shell",
                hint="grant a shell: shell=True (AgentFlow, CommandPolicy), shell = true (agentflow.toml)",
            )
        return _checked(("/bin/sh", "-c", command)), True

    # -- deciding -----------------------------------------------------------------------------------------------

    def _resolve(self, argv: tuple[str, ...], cwd: str | None, shell: bool) -> Resolved:
        """Locate program and directory. Raises CommandDenied, PathDenied and FileFailure. Blocking."""
        directory = self._files.absolute(cwd if cwd is not None else ".")
        os.close(self._files.open_directory(directory))
        name = argv[0]
        candidates = (
            [os.path.normpath(os.path.join(directory, name))]
            if "/" in name
            else [self._programs.get(name, ""), *(f"{prefix}/{name}" for prefix in self._path)]
        )
        for candidate in candidates:
            try:
                status = os.stat(candidate)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
                # no user can set the last of these times back
                times = (status.st_mtime_ns, status.st_ctime_ns)
                identity = (status.st_dev, status.st_ino, status.st_size, *times)
                return Resolved(candidate, os.path.realpath(candidate), argv, directory, identity, shell)
        raise FileFailure(
            f"there is no program {escape(name)!r}" + ("" if "/" in name else f" in {':'.join(self._path)}"),
            code="commands/not-found",
            hint="programs are looked for in fixed directories; CommandExecutor(path=...) sets them",
        )

    async def _decide(self, resolved: Resolved, call: CallContext | None) -> Approval | None:
        """Apply policy and approval; return the approval if there was one. Raises CommandDenied."""
        from agentflow.executors import git_hardening

        verdict, reason = self._policy.judge(resolved.real, resolved.argv)
        text = escape(shlex.join(resolved.argv))
        if verdict == "deny":
            raise CommandDenied(
                f"{text}: {reason}, and no approval changes that",
                code="commands/denied",
                hint="deny rules apply to every caller",
            )
        if git_hardening.is_git(resolved.real) and (word := git_hardening.refused(resolved.argv)):
            raise CommandDenied(
                f"{text}: git may not be called with {word!r}, which can run other programs; leave the option out",
                code="commands/git",
                hint="hooks, filters and external drivers of git are disabled on purpose",
            )
        if verdict == "allow" or call is None or call.host_authority:
            return None
        approval = await own_thread(self._identify, resolved)
        files = "".join(f"\n  runs: {escape(file.path)} ({file.digest})" for file in approval.executed)
        request = ApprovalRequest(
            tool=TOOL,
            text=f"{text}\n  program: {escape(resolved.executable)}\n  in: {escape(resolved.cwd)}\n"
            f"  sandbox: {self._sandbox.name}, network {'on' if self._network else 'off'}{files}",
            digest=approval.digest,
            reason=reason,
            arguments={"argv": list(resolved.argv), "cwd": resolved.cwd},
        )
        decision = await call.run.approve(request, call)
        if isinstance(decision, Denied):
            raise CommandDenied(
                refusal(f"the command {text} ({reason})", decision),
                code="commands/not-approved",
                hint="pass an approver (approve=...), or allow the command: allow_commands=[...] (AgentFlow), "
                f"allow_commands = [...] (agentflow.toml), for example {f'{resolved.argv[0]} *'!r}",
                details={"why": decision.why},
            )
        return approval

    def _identify(self, resolved: Resolved) -> Approval:
        """The approval that covers the command. Blocking."""
        executed = program_files(self._files, resolved.executable, resolved.argv, resolved.cwd)
        return Approval(resolved.digest(self._sandbox.name, self._network, executed), executed)

    def _check_unchanged(self, resolved: Resolved, approval: Approval) -> None:
        """Raise CommandDenied (``commands/changed``) unless the command to run is the approved one. Blocking."""
        again = self._identify(self._resolve(resolved.argv, resolved.cwd, resolved.shell))
        if again.digest != approval.digest:
            text = escape(shlex.join(resolved.argv))
            raise CommandDenied(f"{text}: the program changed after it was approved", code="commands/changed")

    # -- starting -----------------------------------------------------------------------------------------------

    async def _run(
        self, resolved: Resolved, timeout: float, sandbox: Sandbox, approval: Approval | None, read_only: bool
    ) -> CommandResult:
        from agentflow.executors import git_hardening
        from agentflow.executors.process import run_process
        from agentflow.executors.sandbox.installations import certificates, installation

        scratch, cwd_fd = await run_or_undo(own_thread(self._prepare, resolved.cwd), undo=_clear)
        try:
            env = self._environment(scratch, ())
            spawn = Spawn(
                executable=resolved.executable,
                # an interpreter finds its environment by the path it was started with
                argv=(resolved.executable, *resolved.argv[1:]) if resolved.argv[0] in self._programs else resolved.argv,
                env=env,
                cwd=resolved.cwd,
                cwd_fd=cwd_fd,
                workspace=tuple(str(root) for root in self._files.roots),
                scratch=scratch,
                readable=(
                    *self._readable,
                    *installation(resolved.executable),
                    *(certificates(env) if self._network else ()),
                ),
                network=self._network,
                limits=self._limits,
                stdout=-1,
                stderr=-1,
                executed=approval.executed if approval is not None else (),
                read_only=read_only,
            )
            if git_hardening.is_git(resolved.real):
                spawn = await self._harden_git(spawn, sandbox)
            if approval is not None:
                # last of all: the command may have waited for a free slot since it was approved
                await own_thread(self._check_unchanged, resolved, approval)
            return await run_process(spawn, sandbox, timeout, keep=_LISTING_BYTES if read_only else None)
        finally:
            await run_to_completion(own_thread(_clear, (scratch, cwd_fd)))

    def _prepare(self, cwd: str) -> tuple[str, int]:
        """Create a private directory for temporary files and open the working directory. Blocking."""
        cwd_fd = self._files.open_directory(cwd)
        try:
            return os.path.realpath(tempfile.mkdtemp(prefix="agentflow-command-")), cwd_fd
        except BaseException:  # close the descriptor, then raise again
            os.close(cwd_fd)
            raise

    def _environment(self, scratch: str, git_names: Iterable[str]) -> dict[str, str]:
        from agentflow.executors import git_hardening

        variables = {
            name: value
            for name, value in os.environ.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._env_allow)
        }
        if self._network:
            from agentflow.executors.sandbox.installations import network_variables

            variables |= network_variables()
        variables |= {"PATH": ":".join(self._path), "HOME": scratch, "TMPDIR": scratch, "TERM": "dumb"}
        return variables | git_hardening.environment(git_names) | self._env

    async def _harden_git(self, spawn: Spawn, sandbox: Sandbox) -> Spawn:
        """``spawn`` with the drivers of the repository disabled. Reading its configuration runs nothing."""
        from agentflow.executors import git_hardening
        from agentflow.executors.process import run_process

        listing = ("git", *git_hardening.location(spawn.argv), "config", "--includes", "--name-only", "-z", "--list")
        listed = await run_process(replace(spawn, argv=listing), sandbox, _GIT_LOOKUP_S, keep=1_000_000)
        names = [name for name in listed.stdout.split("\0") if name] if listed.exit_code == 0 else []
        return replace(spawn, argv=git_hardening.arguments(spawn.argv), env=self._environment(spawn.scratch, names))

    # -- output -------------------------------------------------------------------------------------------------

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        """Absolute paths of the existing files within the roots that ``output`` names, one per line, without
        duplicates.

        Relative paths start at ``cwd`` (default: the first root). Blocking: call it on a worker thread.
        """
        base = Path(self._files.absolute(cwd if cwd is not None else "."))
        paths: dict[str, None] = {}
        for line in output.split("\n"):
            name = line.strip()
            if not name:
                continue
            try:
                path = self._files.absolute(str(base / name))
                if path not in paths and self._files.is_file_now(path):
                    paths[path] = None
            except (PathDenied, FileFailure):
                continue
        return list(paths)


def _clear(prepared: tuple[str, int]) -> None:
    scratch, cwd_fd = prepared
    os.close(cwd_fd)
    shutil.rmtree(scratch, ignore_errors=True)


def _checked(argv: tuple[str, ...]) -> tuple[str, ...]:
    if any("\0" in word for word in argv):
        raise CommandDenied("an argument cannot hold a NUL character", code="commands/argument")
    try:
        size = sum(len(word.encode("utf-8", "surrogateescape")) for word in argv)
    except UnicodeEncodeError:
        raise CommandDenied("an argument cannot be encoded as UTF-8", code="commands/argument") from None
    if size > _MAX_ARGUMENTS:
        raise _too_long(size)
    return argv


def _may_write(argv: tuple[str, ...]) -> CommandDenied:
    return CommandDenied(
        f"{escape(shlex.join(argv))}: without a sandbox a command that finds files may only read, but this one may write",
        code="commands/may-write",
        hint=f"use one of {', '.join(sorted(READING))}, or sandbox='auto', in which the workspace is read-only to it",
    )


def _too_long(size: int) -> CommandDenied:
    return CommandDenied(
        f"the arguments have {size} bytes, the maximum is {_MAX_ARGUMENTS}; write the data to a file and pass its name",
        code="commands/argument",
    )


def _failure(error: AgentflowError | OSError, duration: float) -> CommandResult:
    if isinstance(error, AgentflowError):
        return CommandResult(
            False,
            None,
            "",
            "",
            error=error.message,
            reason=error.reason,
            duration_s=duration,
            code=error.code,
            hint=error.hint,
        )
    return CommandResult(
        False,
        None,
        "",
        "",
        error=f"the command could not be started: {error.strerror or error}",
        reason="tool_execution_error",
        duration_s=duration,
        code="commands/start",
    )
