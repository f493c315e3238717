"""The rules of the command port, on every sandbox back-end."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow.core.data.errors import ConfigurationError, SandboxUnavailable
from agentflow.core.ports.executor_ports import CommandPort
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.policy import CommandPolicy
from agentflow.executors.sandbox.backend import CommandLimits, Running, Spawn
from agentflow.executors.sandbox.landlock import Landlock
from agentflow.executors.sandbox.unconfined import Unconfined
from tests.hostile.backends import needed


@pytest.fixture(params=["bubblewrap", "landlock", "none"])
async def commands(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CommandExecutor]:
    needed(request.param)
    (tmp_path / "sub").mkdir()
    policy = CommandPolicy(shell=True)
    async with CommandExecutor(tmp_path, sandbox=request.param, policy=policy, env={"EXTRA": "given"}) as executor:
        await executor.check()
        yield executor


async def test_success_has_the_output(commands: CommandExecutor) -> None:
    """A command that ends with 0 succeeds; both outputs and their sizes are told."""
    port: CommandPort = commands
    result = await port.execute_command_safely("printf 'a b'")
    assert result.success and result.exit_code == 0 and result.stdout == "a b" and result.stdout_bytes == 3
    assert result.error is None and result.reason is None and result.duration_s > 0


async def test_an_exit_code_is_a_failure_with_its_outputs(commands: CommandExecutor) -> None:
    """Another exit code is tool_execution_error; what was printed is kept."""
    result = await commands.execute_command_safely(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (result.success, result.exit_code, result.code) == (False, 7, "commands/exit")
    assert (result.stdout, result.stderr, result.reason) == ("out\n", "err\n", "tool_execution_error")


async def test_a_signal_is_named(commands: CommandExecutor) -> None:
    """A killed command has no exit code; the error names the signal."""
    result = await commands.execute_command_safely(["sh", "-c", "kill -SEGV $$"])
    assert result.exit_code is None and result.code == "commands/killed" and "SIGSEGV" in (result.error or "")


async def test_a_time_out_is_a_result(commands: CommandExecutor) -> None:
    """Past its seconds a command is ended; what it had printed is kept."""
    result = await commands.execute_command_safely(["sh", "-c", "echo early; sleep 30"], timeout=0.4)
    assert result.timed_out and result.reason == "execution_timeout" and result.stdout == "early\n"


async def test_arguments_arrive_as_they_are(commands: CommandExecutor) -> None:
    """Blanks, quotes, dollars, globs and line ends in an argument are the program's to see."""
    words = ["a b", "$HOME", "*", "'", '"', "x\ny", "", "-n", "ünï"]
    code = "import sys; sys.stdout.write(repr(sys.argv[1:]))"
    result = await commands.execute_command_safely(["/usr/bin/python3", "-c", code, *words])
    assert result.stdout == repr(words)


async def test_a_shell_is_used_where_it_is_granted(commands: CommandExecutor) -> None:
    """With the grant a text with operators is a shell's; without operators it is not."""
    assert (await commands.execute_command_safely("echo a b | wc -w")).stdout.strip() == "2"
    assert (await commands.execute_command_safely("echo $HOME")).stdout == "$HOME\n"


async def test_the_working_directory(commands: CommandExecutor, tmp_path: Path) -> None:
    """cwd is relative to the root or absolute within it; by default it is the root."""
    for cwd, expected in ((None, ""), ("sub", "/sub"), (str(tmp_path / "sub"), "/sub")):
        result = await commands.execute_command_safely("pwd", cwd=cwd)
        assert result.stdout.strip() == str(tmp_path) + expected


async def test_the_workspace_is_writable(commands: CommandExecutor, tmp_path: Path) -> None:
    """What a command writes in the workspace is there, with ordinary ownership and mode."""
    assert (
        await commands.execute_command_safely(["sh", "-c", "mkdir -p x/y && echo 1 > x/y/z && ln -s z x/y/l"])
    ).success
    made = tmp_path / "x" / "y" / "z"
    assert made.read_text() == "1\n" and made.stat().st_uid == os.getuid()


async def test_the_environment_is_an_allow_list(commands: CommandExecutor) -> None:
    """Allowed names and the ones given pass; PATH is fixed; temporary files have a place that goes away."""
    os.environ["NOT_ALLOWED"] = "x"
    try:
        script = 'echo "$PATH|$EXTRA|$NOT_ALLOWED|$HOME|$TMPDIR"; echo t > "$TMPDIR/t"'
        result = await commands.execute_command_safely(["sh", "-c", script])
    finally:
        del os.environ["NOT_ALLOWED"]
    path, extra, hidden, home, scratch = result.stdout.strip().split("|")
    assert path.startswith("/usr/local/sbin:") and extra == "given" and hidden == "" and home == scratch
    assert result.success and gone(scratch)


WRITES: dict[str, str | list[str]] = {
    "remove": "rm -f a.py",
    "truncate": "truncate -s 0 sub/f",
    "create": "touch new",
    "append": ["sh", "-c", "echo x >> a.py"],
    "append as a text": "echo x >> a.py",
    "move": "mv a.py b.py",
    "directory": "mkdir d",
    "mode": "chmod 777 a.py",
    "time": "touch -d 2001-01-01 a.py",
    "link": "ln a.py b.py",
    "link out": ["sh", "-c", "ln a.py $TMPDIR/x && echo x > $TMPDIR/x"],
    "symbolic link": ["sh", "-c", "ln -s $PWD/a.py $TMPDIR/x; echo x > $TMPDIR/x"],
    "executed": ["sh", "-c", "echo x > .github/workflows/ci.yml; echo x > .github/new"],
    "git": ["sh", "-c", "git add a.py; git config a.b c; touch .git/x .git/hooks/x"],
    "find -delete": "find . -name a.py -delete",
    "find -exec": r"find . -name a.py -exec rm {} \;",
    "find -fprint": "find . -fprint out",
    "python": ["/usr/bin/python3", "-c", "open('a.py', 'w')"],
}


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time and content of all there is below ``root``."""
    listed = {str(path.relative_to(root)): path for path in sorted(root.rglob("*"))}
    return {
        name: (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for name, path in listed.items()
    }


@pytest.mark.parametrize("name", WRITES)
async def test_a_command_that_finds_files_cannot_write(name: str, commands: CommandExecutor, tmp_path: Path) -> None:
    """Whatever it tries, the workspace is afterwards as it was before; unconfined it is not run at all."""
    (tmp_path / "a.py").write_text("print(1)\n")
    (tmp_path / "sub" / "f").write_text("f")
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    (tmp_path / ".github" / "workflows" / "ci.yml").touch()
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
    before = snapshot(tmp_path)
    port: CommandPort = commands
    await port.find_files(WRITES[name])
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("ls", ["a.py"]),
        ("find . -name '*.py'", ["a.py", "sub/b.py"]),
        ("grep -rl print", ["a.py"]),
        ("grep -rl nothing-like-it", None),
        ("no-such-program", None),
        (["ls", "-d", "sub", "gone.py", "/etc/passwd"], None),
    ],
)
async def test_files_are_found(
    command: str | list[str], names: list[str] | None, commands: CommandExecutor, tmp_path: Path
) -> None:
    """A command that reads gives the files it names, no directories; one that fails says why it gives none."""
    (tmp_path / "a.py").write_text("print(1)\n")
    (tmp_path / "sub" / "b.py").touch()
    found = await commands.find_files(command)
    assert sorted(found.paths) == [str(tmp_path / name) for name in names or []] and bool(found.error) == (
        names is None
    )


async def test_a_long_list_of_files_is_whole(commands: CommandExecutor, tmp_path: Path) -> None:
    """The middle of the output counts here, as it does not where a model reads it."""
    for index in range(1_500):
        (tmp_path / "sub" / f"{index:04}-{'x' * 90}.py").touch()
    assert len((await commands.find_files("find sub -name '*.py'")).paths) == 1_500


async def test_without_a_sandbox_only_reading_commands_run(tmp_path: Path) -> None:
    """A program of the workspace that is called like one of them is none of them, and the refusal names them."""
    program = tmp_path / "ls"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    async with CommandExecutor(tmp_path, sandbox="none") as executor:
        for command in ("./ls", str(program), "sort -o out a", "git -C . ls-files", "git add ."):
            found = await executor.find_files(command)
            assert "find" in (found.error or "") and "sandbox='auto'" in (found.error or "")
    assert not (tmp_path / "ran").exists()


async def test_paths_in_output(commands: CommandExecutor, tmp_path: Path) -> None:
    """Existing files within the roots, absolute, each once; anything else is left out."""
    (tmp_path / "sub" / "f").touch()
    output = f"sub/f\n./sub/f\nnope\n/etc/passwd\n../x\n\n  {tmp_path}/sub  \n\0\n"
    found = await asyncio.to_thread(commands.parse_file_paths_from_output, output)
    assert found == [str(tmp_path / "sub/f")]
    assert commands.parse_file_paths_from_output("f", cwd="sub") == [str(tmp_path / "sub/f")]


@pytest.mark.parametrize("timeout", [0, -1, True, float("nan"), "5"])
async def test_time_outs_are_numbers_above_zero(commands: CommandExecutor, timeout: object) -> None:
    """Anything else is refused before anything runs."""
    result = await commands.execute_command_safely("true", timeout=timeout)  # type: ignore[arg-type]
    assert result.code == "commands/timeout-value" and result.reason == "input_validation_failure"


async def test_one_executor_serves_several_loops(tmp_path: Path) -> None:
    """An executor may be used from one event loop after the other."""
    commands = CommandExecutor(tmp_path, sandbox="none")

    def once() -> bool:
        return asyncio.run(commands.execute_command_safely("true")).success

    assert await asyncio.to_thread(once) and await asyncio.to_thread(once)
    await commands.aclose()


def gone(path: str) -> bool:
    return not Path(path).exists()


class Leaky(Unconfined):
    """A back-end that says it confines and does not."""

    name = "leaky"
    confines = True


class Absent(Landlock):
    """A back-end this machine has not."""

    name = "absent"

    def missing(self) -> str | None:
        return "it is not here"


class Broken(Unconfined):
    """A back-end that cannot start anything."""

    name = "broken"
    confines = True

    async def spawn(self, spawn: Spawn) -> Running:
        raise SandboxUnavailable("no", code="sandbox/unavailable")


@pytest.mark.parametrize(
    ("backend", "code"),
    [(Leaky(), "sandbox/self-test"), (Absent(), "sandbox/unavailable"), (Broken(), "sandbox/unavailable")],
)
async def test_a_back_end_that_fails_runs_nothing(backend: Unconfined, code: str, tmp_path: Path) -> None:
    """Missing or failing its self-test, a back-end refuses, every time; no other takes its place."""
    async with CommandExecutor(tmp_path, sandbox=backend) as commands:
        for _ in range(2):
            result = await commands.execute_command_safely("touch made")
            assert (result.code, result.reason) == (code, "dependency_error")
    assert not (tmp_path / "made").exists()


async def test_the_self_test_names_what_is_broken(tmp_path: Path) -> None:
    """The error lists each promise that was not kept."""
    async with CommandExecutor(tmp_path, sandbox=Leaky()) as commands:
        with pytest.raises(SandboxUnavailable) as caught:
            await commands.check()
    for words in ("wrote a file outside", "through a link", "datagram", "connection", "environment"):
        assert words in caught.value.message


@pytest.mark.parametrize(
    "options",
    [{"sandbox": "docker"}, {"path": ["bin"]}, {"readable": ["relative"]}],
    ids=["sandbox", "path", "readable"],
)
def test_settings_are_checked(options: dict[str, object], tmp_path: Path) -> None:
    """A wrong setting is a ConfigurationError when the executor is made."""
    with pytest.raises(ConfigurationError):
        CommandExecutor(tmp_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, True, "x", None])
def test_limits_are_checked(value: object) -> None:
    """A limit is a number above zero."""
    with pytest.raises(ConfigurationError):
        CommandLimits(cpu_s=value)  # type: ignore[arg-type]


async def test_auto_never_means_none(tmp_path: Path) -> None:
    """auto chooses a back-end that confines."""
    async with CommandExecutor(tmp_path) as commands:
        try:
            assert await commands.check() in ("bubblewrap", "landlock")
        except SandboxUnavailable as error:
            assert "none" in (error.hint or "")
