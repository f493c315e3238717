"""Attacks by commands, in every sandbox: out of the workspace, onto the network, into other processes, out of time."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agentflow.cli.shared.approving import abridged
from agentflow.core.call.approval import ApprovalRequest
from agentflow.core.ports.executor_ports import CommandResult
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.policy import CommandPolicy
from agentflow.executors.sandbox.backend import CommandLimits
from agentflow.executors.sandbox.pids import PidGroup
from tests.hostile.arena import SECRET, Arena, until
from tests.hostile.backends import CONFINING, granted, needed

INTERPRETER = Path(sys.executable).resolve()
LIMITS = CommandLimits(
    timeout_s=20, memory_bytes=300_000_000, processes=60, file_bytes=1_000_000, cpu_s=2, output_bytes=4_096
)


@pytest.fixture(params=CONFINING)
async def commands(request: pytest.FixtureRequest, arena: Arena) -> AsyncIterator[CommandExecutor]:
    needed(request.param)
    policy = CommandPolicy(shell=True)
    async with CommandExecutor(arena.root, policy=policy, sandbox=request.param, limits=LIMITS) as executor:
        await executor.check()
        yield executor


async def sh(arena: Arena, commands: CommandExecutor, script: str, timeout: float | None = None) -> CommandResult:
    script = script.replace("OUTSIDE", str(arena.outside)).replace("ROOT", str(arena.root))
    result = await commands.execute_command_safely(["/bin/sh", "-c", script], timeout=timeout)
    arena.saw(result)
    return result


async def py(arena: Arena, commands: CommandExecutor, script: str, timeout: float | None = None) -> CommandResult:
    return await sh(arena, commands, f"/usr/bin/python3 -c {shlex.quote(script)}", timeout)


OUTSIDE_WRITES = {
    "write": "echo x > OUTSIDE/new",
    "append": "echo x >> OUTSIDE/secret.txt",
    "through_link": "ln -s OUTSIDE l; echo x > l/new",
    "through_link_to_file": "ln -s OUTSIDE/secret.txt l; echo x > l",
    "remove": "rm OUTSIDE/secret.txt",
    "remove_tree": "rm -r OUTSIDE/dir",
    "rename": "mv OUTSIDE/secret.txt OUTSIDE/other",
    "rename_into_workspace": "mv OUTSIDE/secret.txt here",
    "hard_link": "ln OUTSIDE/dir/kept.txt here && echo x > here",
    "mkdir": "mkdir OUTSIDE/new",
    "mode": "chmod 777 OUTSIDE/secret.txt",
    "times": "touch -d 2001-01-01 OUTSIDE/secret.txt",
    "mode_through_link": "ln -s OUTSIDE/secret.txt l; chmod 777 l",
    "mode_through_directory": "ln -s OUTSIDE l; chmod 777 l/secret.txt",
    "mode_through_proc": "chmod 777 /proc/self/root/OUTSIDE/secret.txt",
    "mode_by_dots": "chmod 777 ROOT/../outside/secret.txt",
    "mode_of_directory": "chmod 777 ROOT/../outside",
    "times_through_link": "ln -s OUTSIDE/secret.txt l; touch -d 2001-01-01 l",
    "truncate": "truncate -s 0 OUTSIDE/secret.txt",
    "device": "mknod ROOT/disk b 8 0 && head -c 10 ROOT/disk",
    "dots": "echo x > ROOT/../outside/new",
    "proc_root": "echo x > /proc/self/root/OUTSIDE/new",
}


@pytest.mark.parametrize("name", OUTSIDE_WRITES)
async def test_nothing_outside_changes(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """A command cannot change a file outside of the workspace, nor its names, mode or times."""
    result = await sh(arena, commands, OUTSIDE_WRITES[name] + "; echo status $?")
    assert "status" in result.stdout and "status 0" not in result.stdout


BY_DESCRIPTOR = {
    "directory": "os.chmod('secret.txt', 0o777, dir_fd=os.open('OUTSIDE', os.O_PATH))",
    "file": "os.chmod('/proc/self/fd/%d' % os.open('OUTSIDE/secret.txt', os.O_PATH), 0o777)",
    "empty path": "chmod(os.open('OUTSIDE/secret.txt', os.O_PATH), b'', 0o777, 0x1000)",
    "no descriptor": "chmod(77, b'secret.txt', 0o777, 0)",
    "no memory": "chmod(-100, 8, 0o777, 0)",
    "unknown flag": "chmod(-100, b'inside', 0o777, 0x40)",
    "too long": "chmod(-100, b'x' * 10_000, 0o777, 0)",
    "set-user-ID": "os.chmod('inside', 0o4755)",
}


@pytest.mark.parametrize("name", BY_DESCRIPTOR)
async def test_modes_do_not_change_by_descriptor_either(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """A descriptor that gives no right to write gives none to change the mode, and nonsense is an error of the call."""
    (arena.root / "inside").touch()
    mode = (arena.root / "inside").stat().st_mode
    script = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def chmod(directory, path, mode, flags):
    if libc.syscall(452, directory, path, mode, flags):
        raise OSError(ctypes.get_errno(), "refused")
try:
    {BY_DESCRIPTOR[name]}
    print("changed")
except OSError as error:
    print("refused", error.errno)
"""
    result = await py(arena, commands, script)
    if name != "set-user-ID" or commands.sandbox_name == "landlock":
        assert result.stdout.startswith("refused") and (arena.root / "inside").stat().st_mode == mode


async def test_a_link_that_changes_meanwhile_leads_nowhere_else(arena: Arena, commands: CommandExecutor) -> None:
    """What a path leads to is looked at once: no thread can exchange it between the check and the change."""
    script = """
import os, threading
open("inside", "w").close()
done = threading.Event()
def exchange():
    while not done.is_set():
        for target in ("inside", "OUTSIDE/secret.txt"):
            os.symlink(target, "next")
            os.rename("next", "link")
thread = threading.Thread(target=exchange)
os.symlink("inside", "link")
thread.start()
changed = 0
for _ in range(2000):
    try:
        os.chmod("link", 0o777)
        os.utime("link", (1, 1))
        changed += 1
    except OSError:
        pass
done.set()
thread.join()
print(changed > 0)
"""
    result = await py(arena, commands, script, timeout=50)
    assert result.stdout == "True\n"


async def test_modes_and_times_change_in_the_workspace(arena: Arena, commands: CommandExecutor) -> None:
    """By path, as package managers and git do it: of files, directories and links, of one's own alone, and of those of children."""
    script = "touch f && chmod 640 f && touch -d 2001-01-01 f && mkdir d && chmod 700 d && ln -s f l && touch -h l"
    more = "; (cd d && sh -c 'touch g; chmod 600 ../d/g') && git init -q repository && chmod 600 gone; echo $?"
    result = await sh(arena, commands, script + more)
    assert result.stdout == "1\n" and "gone" in result.stderr
    modes = {name: (arena.root / name).stat().st_mode & 0o777 for name in ("f", "d", "d/g")}
    assert modes == {"f": 0o640, "d": 0o700, "d/g": 0o600}
    assert int((arena.root / "f").stat().st_mtime) in range(978_220_000, 978_400_000)
    assert (arena.root / "repository" / ".git" / "config").is_file()


SECRET_READS = {
    "file": "cat OUTSIDE/secret.txt",
    "through_link": "ln -s OUTSIDE/secret.txt l; cat l",
    "copy": "cp OUTSIDE/secret.txt here; cat here",
    "environment": "env",
    "own_environ": "cat /proc/self/environ",
    "first_process": "cat /proc/1/environ",
    "parent": "cat /proc/$PPID/environ",
    "every_process": "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline",
    "host": "cat /proc/HOST/environ /proc/HOST/maps; ls -l /proc/HOST/fd /proc/HOST/cwd/",
    "home": "cat ~root/.bash_history /root/.ssh/* /home/*/.ssh/* /etc/shadow",
}


@pytest.mark.parametrize("name", SECRET_READS)
async def test_secrets_stay_unread(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """What lies outside, in this process's environment or in another process reaches no command."""
    result = await sh(arena, commands, SECRET_READS[name].replace("HOST", str(os.getpid())))
    assert SECRET not in result.stdout + result.stderr


NETWORK = {
    "tcp": "socket.create_connection(('127.0.0.1', PORT), 2)",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "udp6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', PORT))",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(b'x', ('127.0.0.1', 0))",
    "unix": "socket.socket(socket.AF_UNIX).connect('OUTSIDE/daemon')",
    "abstract": "socket.socket(socket.AF_UNIX).connect(chr(0) + 'agentflow-hostile')",
}


@pytest.mark.parametrize("name", NETWORK)
async def test_the_network_is_off(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """No connection, no datagram, no local socket of a daemon outside."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        abstract.bind("\0agentflow-hostile")
        abstract.listen()
        for server in (tcp, udp, abstract):
            server.setblocking(False)
        await py(arena, commands, f"import socket; {NETWORK[name].replace('PORT', str(port))}")
        with pytest.raises(BlockingIOError):
            tcp.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(1)
        with pytest.raises(BlockingIOError):
            abstract.accept()


ESCAPES = {
    "new_namespace": "unshare -Ur true",
    "mount": "mount -t tmpfs none ROOT/dir",
    "ptrace": "/usr/bin/python3 -c 'import ctypes,os;l=ctypes.CDLL(None,use_errno=True);exit(l.ptrace(16,os.getppid(),0,0)!=0)'",
    "io_uring": "/usr/bin/python3 -c 'import ctypes;exit(ctypes.CDLL(None).syscall(425,1,0)<0)'",
    "keyring": "/usr/bin/python3 -c 'import ctypes;exit(ctypes.CDLL(None).syscall(250,0,-3,0)<0)'",
    "set_user_id": "/usr/bin/python3 -c 'import os;os.setuid(12345)'",
    "chroot": "/usr/bin/python3 -c 'import os;os.chroot(\".\")'",
    "more_memory": "ulimit -d unlimited",
}


@pytest.mark.parametrize("name", ESCAPES)
async def test_the_kernel_gives_nothing_away(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """Namespaces, mounts, tracing, rings, keyrings, other users and higher limits are refused."""
    result = await sh(arena, commands, f"( {ESCAPES[name]} ) ; echo status $?")
    assert "status" in result.stdout and "status 0" not in result.stdout


@pytest.mark.parametrize("number", [9, 15, 19])
async def test_other_processes_get_no_signal(number: int, arena: Arena, commands: CommandExecutor) -> None:
    """A command cannot signal a process outside, nor its own supervisor."""
    victim = await asyncio.create_subprocess_exec("sleep", "30")
    try:
        result = await sh(
            arena,
            commands,
            f"kill -{number} {victim.pid}; kill -{number} -1; kill -{number} $PPID; sleep 0.05; echo on",
        )
        assert result.stdout in ("on\n", "")
        assert victim.returncode is None
        os.kill(victim.pid, 0)
        assert psutil.Process(victim.pid).status() == psutil.STATUS_SLEEPING
    finally:
        victim.kill()
        await victim.wait()


DAEMONS = {
    "background": "sleep 300 & sleep 300",
    "setsid": "setsid sleep 300 & sleep 300",
    "double_fork": "setsid sh -c 'sh -c \"sleep 300 & sleep 300 &\"' & sleep 300",
    "ignores_signals": "trap '' TERM INT HUP; setsid sh -c \"trap '' TERM HUP; sleep 300\" & sleep 300",
    "stopped": "sh -c 'kill -STOP $$' & sleep 300",
    "closes_outputs": "setsid sleep 300 >/dev/null 2>&1 </dev/null & exec sleep 300 >/dev/null 2>&1",
    "busy": "while true; do :; done & while true; do :; done",
    "respawning": "r() { setsid sh -c 'sleep 0.01' & sleep 0.005; }; while true; do r; done",
}


@pytest.mark.parametrize("how", ["timeout", "cancel", "exit"])
@pytest.mark.parametrize("name", DAEMONS)
async def test_the_whole_tree_ends(name: str, how: str, arena: Arena, commands: CommandExecutor) -> None:
    """Time-out, cancellation and the command's own end leave no process of it, and wait for none."""
    script = DAEMONS[name]
    if how == "exit":
        script = (
            script.rpartition("&" if "&" in script else ";")[0] + "& exit 0"
            if name != "respawning"
            else f"({script}) & exit 0"
        )
    async with asyncio.timeout(30):  # a process that held the call up would do so for five minutes
        if how == "cancel":
            work = asyncio.ensure_future(sh(arena, commands, script))
            await asyncio.sleep(0.2)
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
        else:
            result = await sh(arena, commands, script, timeout=0.3 if how == "timeout" else None)
            assert result.timed_out == (how == "timeout")


async def test_a_survivor_that_holds_the_pipe_keeps_nobody_waiting(arena: Arena) -> None:
    """The call returns although a process that was handed the output pipe lives on elsewhere."""
    async with CommandExecutor(arena.root, sandbox="none") as commands:
        # unconfined, a command can kill its own supervisor and so escape being ended: the call returns all the same
        here, elsewhere = arena.root / "here", arena.root / "elsewhere"
        script = (
            f"setsid sh -c 'echo $$ > {elsewhere}; exec sleep 60' & echo $$ > {here}; "
            f"while ! test -s {elsewhere}; do sleep 0.01; done; kill -9 $PPID; exec sleep 60"
        )
        async with asyncio.timeout(30):
            result = await sh(arena, commands, script)
        assert not result.success
    os.kill(int(elsewhere.read_text()), signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(int(here.read_text()), signal.SIGKILL)


async def test_cancelled_during_the_self_test(arena: Arena) -> None:
    """The examination of a back-end, cancelled, leaves nothing and is made again."""
    for backend in CONFINING:
        needed(backend)
        async with CommandExecutor(arena.root, sandbox=backend) as commands:
            for turn in range(8):
                work = asyncio.ensure_future(sh(arena, commands, "true"))
                await asyncio.sleep(0.002 + turn * 0.008)
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
            assert (await sh(arena, commands, "true")).success


@pytest.mark.parametrize("delay", [0, 0.001, 0.003, 0.01, 0.02, 0.05])
async def test_cancelled_at_any_moment_of_the_start(delay: float, arena: Arena, commands: CommandExecutor) -> None:
    """A call cancelled while it starts, once or again and again, leaves no process, pipe or directory."""
    for turn in range(4):
        work = asyncio.ensure_future(sh(arena, commands, "sleep 30"))
        await asyncio.sleep(delay + turn * 0.0007)
        for _ in range(turn + 1):
            work.cancel()
            await asyncio.sleep(0.0005)
        with suppress(asyncio.CancelledError):
            await work


FLOODS = {
    "stdout": "yes",
    "stderr": "yes >&2",
    "both": "yes & yes >&2",
    "binary": "cat /dev/urandom",
    "one_long_line": "cat /dev/zero",
    "slow_drops": "while true; do echo x; done",
}


@pytest.mark.parametrize("name", FLOODS)
async def test_output_is_drained_and_bounded(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """Endless output costs head and tail, is counted whole, and holds up nobody."""
    result = await sh(arena, commands, FLOODS[name], timeout=0.5)
    assert result.timed_out and result.stdout_bytes + result.stderr_bytes > 1_000
    for kept in (result.stdout, result.stderr):
        assert len(kept) < 2 * LIMITS.output_bytes + 100


HOGS = {
    "memory": ("/usr/bin/python3 -c 'b=bytearray(600_000_000)'", "MemoryError"),
    "file": ("head -c 5000000 /dev/zero > big; stat -c %s big", "1000000"),
    "descriptors": ("/usr/bin/python3 -c 'f=[open(\"/dev/null\") for i in range(5000)]'", "Too many open files"),
}


@pytest.mark.parametrize("name", HOGS)
async def test_resources_are_bounded(name: str, arena: Arena, commands: CommandExecutor) -> None:
    """Memory, file size and descriptors end at their limits."""
    script, sign = HOGS[name]
    result = await sh(arena, commands, script)
    assert sign in result.stdout + result.stderr


async def test_cpu_is_bounded(arena: Arena, commands: CommandExecutor) -> None:
    """A command that computes for ever is killed at its CPU limit, before its time is out."""
    result = await sh(arena, commands, "exec sh -c 'while true; do :; done'", timeout=18)
    assert result.code == "commands/killed", result


async def test_processes_are_bounded(arena: Arena, commands: CommandExecutor) -> None:
    """A program that forks without end meets its limit and is ended with all its children."""
    group = PidGroup.make(1)
    counted = bool(group.path)
    group.remove()
    if os.geteuid() == 0 and not counted:
        pytest.skip("the superuser has no RLIMIT_NPROC, and no pids control group can be made here")
    script = (
        "import os, time\nn = 0\n"
        "try:\n while n < 500:\n  if os.fork() == 0: time.sleep(60); os._exit(0)\n  n += 1\n"
        "except OSError: pass\nprint(n)"
    )
    result = await py(arena, commands, script)
    assert 0 < int(result.stdout) <= LIMITS.processes


async def test_only_three_descriptors(arena: Arena, commands: CommandExecutor) -> None:
    """A command inherits descriptors 0 to 2, and standard input is at its end."""
    with (arena.outside / "secret.txt").open() as file:
        os.set_inheritable(file.fileno(), True)
        look = "import os\nfor fd in range(256):\n  try: os.fstat(fd); print(fd)\n  except OSError: pass\nprint(os.read(0, 1))"
        result = await py(arena, commands, look)
    assert result.stdout.split() == ["0", "1", "2", "b''"]


async def test_programs_come_from_fixed_places(arena: Arena, commands: CommandExecutor) -> None:
    """A program in the working directory is not found by its bare name, whatever PATH this process has."""
    (arena.root / "ls").write_text(f"#!/bin/sh\necho hijacked > {arena.root}/hijacked\n")
    (arena.root / "ls").chmod(0o755)
    (arena.root / "evil").write_text("#!/bin/sh\n")
    (arena.root / "evil").chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{arena.root}:{before}"
    try:
        assert (await commands.execute_command_safely("ls")).success
        assert (await commands.execute_command_safely("evil")).code == "commands/not-found"
    finally:
        os.environ["PATH"] = before
    assert not (arena.root / "hijacked").exists()


REFUSED_TEXTS = {
    "pipe": ("ls | sh", "commands/shell"),
    "redirection": ("echo x > a.txt", "commands/shell"),
    "background": ("sleep 1 &", "commands/shell"),
    "sequence": ("true; rm a.txt", "commands/shell"),
    "no_blank": ("true;rm a.txt", "commands/shell"),
    "substitution": ('echo "$(id)"', "commands/shell"),
    "backquotes": ("echo `id`", "commands/shell"),
    "line_end": ("true\nrm a.txt", "commands/shell"),
    "subshell": ("(rm a.txt)", "commands/shell"),
    "quote": ("echo 'x", "commands/quoting"),
    "empty": ("  ", "commands/empty"),
    "nul": ("echo a\0b", "commands/argument"),
    "surrogate": ("echo \ud800", "commands/argument"),
    "huge": ("echo " + "x" * 200_000, "commands/argument"),
    "deny_list": ("sudo true", None),
    "removes_all": ("rm -rf /", "commands/denied"),
    "removes_all_disguised": ("rm -r --no-preserve-root /./", "commands/denied"),
    "git_command_line_setting": ("git -c core.fsmonitor=./x status", "commands/git"),
    "git_ext_diff": ("git diff --ext-diff", "commands/git"),
    "missing_program": ("no-such-program", "commands/not-found"),
    "script_without_permission": ("./a.txt", "commands/not-found"),
}


@pytest.mark.parametrize("name", REFUSED_TEXTS)
async def test_command_texts_are_refused(name: str, arena: Arena) -> None:
    """What is not plain command of one program is refused before anything starts, and says why."""
    text, code = REFUSED_TEXTS[name]
    async with CommandExecutor(arena.root) as commands:
        result = arena.saw(await commands.execute_command_safely(text))
    assert not result.success and result.exit_code is None and result.error
    assert result.code == code or (code is None and result.code in ("commands/denied", "commands/not-found"))
    assert (arena.root / "a.txt").read_text() == "inside\n"


@pytest.mark.parametrize("cwd", ["..", "OUTSIDE", "l", "a.txt", "\0", "nowhere"])
async def test_working_directories_are_refused(cwd: str, arena: Arena) -> None:
    """A command runs in a directory of the workspace or not at all."""
    os.symlink(arena.outside, arena.root / "l")
    async with CommandExecutor(arena.root) as commands:
        result = arena.saw(await commands.execute_command_safely("pwd", cwd=cwd.replace("OUTSIDE", str(arena.outside))))
    assert not result.success and (result.code or "").startswith("files/")


async def test_granted_authority_needs_an_approval(arena: Arena) -> None:
    """Without an approver an unknown command is refused; an allow rule lets one through; deny beats both."""
    policy = CommandPolicy(allow=["echo *", "rm *"], deny=["rm *"])
    async with CommandExecutor(arena.root, policy=policy) as commands:
        assert (await commands.execute_command_safely("ls", call=granted())).code == "commands/not-approved"
        assert (await commands.execute_command_safely("echo hi", call=granted())).stdout == "hi\n"
        assert (
            await commands.execute_command_safely("rm a.txt", call=granted(lambda _: True))
        ).code == "commands/denied"
        assert (await commands.execute_command_safely("rm a.txt")).code == "commands/denied"
        assert (await commands.execute_command_safely("ls", call=granted(lambda _: True))).success
        assert (
            await commands.execute_command_safely("ls", call=granted(lambda _: False))
        ).code == "commands/not-approved"


async def test_an_approval_shows_and_binds_what_runs(arena: Arena) -> None:
    """The approver reads escaped text; when the program is changed after the question, it is not run."""
    script = arena.root / "tool"
    script.write_text("#!/bin/sh\necho good\n")
    script.chmod(0o755)
    shown: list[str] = []

    def swap(request: object) -> bool:
        shown.append(request.text)  # type: ignore[attr-defined]
        script.write_text("#!/bin/sh\necho evil evil\n")
        return True

    async with CommandExecutor(arena.root) as commands:
        result = await commands.execute_command_safely(["./tool", "\x1b[2K\rls", "\u202egnp"], call=granted(swap))
    assert result.code == "commands/changed"
    assert "\x1b" not in shown[0] and "\\x1b[2K" in shown[0] and "\\u202e" in shown[0]


EXECUTED = {
    "program": (["./tool"], "tool"),
    "script of an interpreter": (["python3", "tool.py"], "tool.py"),
    "script without an ending": (["/bin/sh", "tool"], "tool"),
    "script below a directory": (["python3", "./deep/../deep/tool.py"], "deep/tool.py"),
    "value of an option": (["awk", "--file=tool.awk"], "tool.awk"),
    "word of a shell text": (["/bin/sh", "-c", "true && ./tool a"], "tool"),
    "makefile nobody names": (["make"], "Makefile"),
    "package nobody names": (["npm", "test"], "package.json"),
}


@pytest.mark.parametrize("name", EXECUTED)
async def test_an_approval_binds_the_files_that_run(name: str, arena: Arena) -> None:
    """A file that the command would execute is changed after the question, its size and times put back: not run."""
    argv, file = EXECUTED[name]
    if "/" not in argv[0] and shutil.which(argv[0], path="/usr/local/bin:/usr/bin:/bin") is None:
        (arena.root / "bin").mkdir()
        (arena.root / "bin" / argv[0]).write_text("#!/bin/sh\ntouch ran\n")
        (arena.root / "bin" / argv[0]).chmod(0o755)
    script = arena.root / file
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("#!/bin/sh\n: good\n")
    script.chmod(0o755)

    def swap(request: ApprovalRequest) -> bool:
        assert str(script) in request.text
        before = script.stat()
        script.write_text("#!/bin/sh\n: evil\n")
        os.utime(script, ns=(before.st_atime_ns, before.st_mtime_ns))
        return True

    path = ("/usr/local/bin", "/usr/bin", "/bin", str(arena.root / "bin"))
    async with CommandExecutor(arena.root, path=path) as commands:
        result = arena.saw(await commands.execute_command_safely(argv, call=granted(swap)))
    assert result.code == "commands/changed", result


async def test_an_approved_script_runs_as_approved(arena: Arena, commands: CommandExecutor) -> None:
    """While it waits and runs, what the command sees of the script is what was approved (bubblewrap)."""
    if commands.sandbox_name != "bubblewrap":
        pytest.skip("landlock cannot show a command another content than the file's; the files are hashed right before")
    script = arena.root / "slow.sh"
    script.write_text("sleep 0.4\ncat slow.sh\necho evil >> slow.sh\n")
    run = asyncio.ensure_future(commands.execute_command_safely(["/bin/sh", "slow.sh"], call=granted(lambda _: True)))
    await asyncio.sleep(0.2)
    script.write_text("echo evil\n")
    result = arena.saw(await run)
    assert "sleep 0.4" in result.stdout and result.stdout.count("evil") == 1 and not result.success


async def test_an_approved_link_shows_nothing_from_outside(arena: Arena, commands: CommandExecutor) -> None:
    """A name that leads out of the workspace, or to a protected file, is not brought into the sandbox by an approval."""
    os.symlink(arena.outside / "secret.txt", arena.root / "leak.sh")
    (arena.root / ".env").write_text("#!/bin/sh\nKEY=confidential-marmalade\n")
    for name in ("leak.sh", ".env"):
        result = arena.saw(await commands.execute_command_safely(["/bin/cat", name], call=granted(lambda _: True)))
        if commands.sandbox_name == "bubblewrap" or name == "leak.sh":
            assert "marmalade" not in result.stdout and result.code != "commands/changed"


async def test_the_text_of_a_request_is_whole(arena: Arena) -> None:
    """What stands in the middle of a long command is in the text, and the terminal says how much it does not show."""
    word = "# safe " * 2_000 + "\nEVIL()\n" + "# safe " * 2_000
    shown: list[str] = []

    def look(request: ApprovalRequest) -> bool:
        shown.append(request.text)
        return False

    async with CommandExecutor(arena.root) as commands:
        await commands.execute_command_safely(["python3", "-c", word], call=granted(look))
    assert "EVIL()" in shown[0]
    first, hidden = abridged(shown[0])
    assert hidden > 20_000 and f"{hidden:,} characters are not shown" in first


async def test_two_hundred_commands_at_once(arena: Arena, commands: CommandExecutor) -> None:
    """Many calls at once take turns; each gets its own answer."""
    got = await asyncio.gather(*(sh(arena, commands, f"echo {number}") for number in range(40)))
    assert [result.stdout for result in got] == [f"{number}\n" for number in range(40)]


async def test_the_interpreter_is_never_taken_from_the_workspace(arena: Arena) -> None:
    """Landlock's supervisor does not run a program that a command could have replaced."""
    needed("landlock")
    async with CommandExecutor([arena.root, INTERPRETER.parent.parent], sandbox="landlock") as commands:
        assert (await commands.execute_command_safely("true")).code == "sandbox/interpreter"


@pytest.mark.parametrize("backend", CONFINING)
async def test_the_hosts_death_ends_its_commands(backend: str, arena: Arena) -> None:
    """A host that is killed takes its commands with it, daemons included."""
    needed(backend)
    mark = f"86{os.getpid()}"
    host = (
        "import asyncio, sys\nfrom agentflow.executors.command_executor import CommandExecutor\n"
        "script = f'setsid sleep {sys.argv[3]} & sleep {sys.argv[3]}'\n"
        "run = CommandExecutor(sys.argv[1], sandbox=sys.argv[2]).execute_command_safely\n"
        "asyncio.run(run(['/bin/sh', '-c', script]))\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", host, str(arena.root), backend, mark)

    def sleeping() -> int:
        found = 0
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                found += one.cmdline()[-2:] == ["sleep", mark] or one.cmdline()[-1:] == [mark]
        return found

    await until(lambda: sleeping() >= 3, "it never started", 15)  # the host itself, and two sleepers
    process.kill()
    await process.wait()
    await until(lambda: not sleeping(), "a command outlived its host", 3)
    for left in arena.base.joinpath("scratch").iterdir():
        left.rmdir()  # a killed host cannot tidy up


@pytest.mark.parametrize("backend", CONFINING)
async def test_a_granted_network_is_the_internets_only(backend: str, arena: Arena) -> None:
    """With the network granted a connection is made; a daemon's socket file outside stays out of reach."""
    needed(backend)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        async with CommandExecutor(arena.root, sandbox=backend, network=True) as commands:
            result = await py(arena, commands, f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)")
            assert result.success, result
            connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket')"
            assert not (await py(arena, commands, connect)).success


async def test_bubblewrap_hides_what_is_protected(arena: Arena) -> None:
    """Secrets at the top of the workspace are empty, what runs by itself is read-only, the own environment too."""
    needed("bubblewrap")
    for name in (".git/hooks", ".ssh"):
        (arena.root / name).mkdir(parents=True)
    for name, text in (
        (".git/config", "[core]\n"),
        (".ssh/id", SECRET),
        ("agentflow.toml", "# own\n"),
        (".bashrc", ""),
    ):
        (arena.root / name).write_text(text)
    async with CommandExecutor(arena.root, sandbox="bubblewrap") as commands:
        result = await sh(arena, commands, "cat .env .ssh/id agentflow.toml; ls -A .ssh")
        assert result.stdout == "# own\n"
        for path in (
            ".env",
            ".git/config",
            ".git/hooks/x",
            "agentflow.toml",
            ".bashrc",
            ".ssh/x",
            "/etc/x",
            "/x",
            "/usr/x",
        ):
            assert not (await sh(arena, commands, f"echo x > {path}")).success, path
        assert (await sh(arena, commands, "echo x > .git/index && echo x > /tmp/x && echo x > /dev/shm/x")).success


RENAMES = {
    "git moved and copied": "mv .git g2 && cp -r g2 .git; cp -r .git g3 && mv g3 .git",
    "git removed": "rm -rf .git; mkdir -p .git/hooks && echo evil > .git/hooks/post-checkout",
    "hooks moved": "mv .git/hooks .git/h2; mkdir .git/hooks; echo evil > .git/hooks/post-checkout",
    "hooks replaced by a link": "rmdir .git/hooks; ln -s ../evil .git/hooks",
    "config replaced": "echo evil > .git/c2; mv -f .git/c2 .git/config",
    "second configuration": "echo evil > .git/config.worktree; echo evil > .git/x; mv -f .git/x .git/config.worktree",
    "common directory": "mkdir -p evil/hooks; echo ../evil > .git/commondir",
    "submodule's configuration": "echo evil > .git/modules/sub/config",
    "workflows moved": "mv .github g2; mkdir -p .github/workflows; echo evil > .github/workflows/ci.yml",
    "editor's tasks moved": "mv .vscode v2; mkdir .vscode; echo evil > .vscode/tasks.json; echo evil > .vscode/settings.json",
    "deep secret moved": "mv .docker d2; cat d2/config.json; cat .docker/config.json",
}


@pytest.mark.parametrize("name", RENAMES)
async def test_what_is_protected_stays_so_when_its_parent_is_moved(name: str, arena: Arena) -> None:
    """Renaming, removing or redirecting a directory above a protected file changes nothing that other programs obey."""
    needed("bubblewrap")
    top = arena.root
    files = (
        ".git/config",
        ".git/modules/sub/config",
        ".github/workflows/ci.yml",
        ".vscode/tasks.json",
        ".vscode/settings.json",
    )
    for file in files:
        (top / file).parent.mkdir(parents=True, exist_ok=True)
        (top / file).write_text("good\n")
    (top / ".docker").mkdir()
    (top / ".docker" / "config.json").write_text(SECRET)
    async with CommandExecutor(top, policy=CommandPolicy(shell=True), sandbox="bubblewrap", limits=LIMITS) as commands:
        result = await sh(arena, commands, RENAMES[name])
    assert SECRET not in result.stdout
    for file in files:
        assert (top / file).read_text() == "good\n", file
    assert not any((top / ".git" / "hooks").iterdir()) and not (top / ".git" / "hooks").is_symlink()
    assert (top / ".git" / "config.worktree").read_text() == ""
    assert not (top / ".git" / "commondir").exists()


async def test_git_still_works_on_what_it_may_write(arena: Arena) -> None:
    """Adding, committing and switching branches need no file that is read-only."""
    needed("bubblewrap")
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", "-b", "main", str(arena.root)], check=True)
    who = "git -c user.name=a -c user.email=a@b"
    async with CommandExecutor(
        arena.root, policy=CommandPolicy(shell=True), sandbox="bubblewrap", limits=LIMITS
    ) as commands:
        script = (
            f"git add a.txt && {who} commit -qm one && git checkout -qb next && git status --short && git log --oneline"
        )
        result = await sh(arena, commands, script)
    assert result.success, result


async def test_sockets_in_the_workspace_lead_nowhere(arena: Arena, commands: CommandExecutor) -> None:
    """A daemon that listens on a file of the workspace is not reached, while pairs of sockets work."""
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(arena.root / "s"))
        daemon.listen()
        daemon.setblocking(False)
        result = await py(
            arena,
            commands,
            "import socket; socket.socketpair(); print('pair'); socket.socket(socket.AF_UNIX).connect('s')",
        )
        assert result.stdout == "pair\n" and not result.success
        with pytest.raises(BlockingIOError):
            daemon.accept()
    (arena.root / "s").unlink()
