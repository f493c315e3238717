"""The process between agentflow and a command: confines the command, and kills everything it started.

It runs as ``python -I -S`` and imports nothing of agentflow and little of the standard library, because its start-up
time is part of every command: hence no ``json``, ``signal`` or ``typing``, which import much more. What it reports are lines
of JSON, which the host reads as data: whoever gets hold of this process sends it nothing that runs. Its code does not come from a file, which a command could have changed in its workspace: the host sends the
code it read at its own start. stdin carries code and job; EOF on it, because the host let go or died, kills the
command. The supervisor is a child subreaper (prctl(2)), the new parent of every process whose own parent ends, so even
a daemon that forks twice and opens its own session becomes its child and is found.

The child applies, in this order: limits, no_new_privs, no capabilities, Landlock (landlock(7)), the seccomp filter.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_SECCOMP_MODE_FILTER = 2
_SIGKILL, _SIGPIPE, _SIGXFSZ = 9, 13, 25  # the same on every Linux this runs on
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: Any, *arguments: Any) -> int:
    status: int = function(*arguments)
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return status


def _prctl(option: int, *values: Any) -> int:
    padded = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    return _call(_libc.prctl, ctypes.c_int(option), *padded, *[ctypes.c_ulong(0)] * (4 - len(padded)))


def _syscall(number: int, *values: Any) -> int:
    return _call(_libc.syscall, ctypes.c_long(number), *values)


def main(job: dict[str, Any]) -> None:
    """Run the job and report how it ended on its status descriptor. Never returns."""
    status: int = job["status"]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        _become(job)
    null = os.open("/dev/null", os.O_RDWR)
    # readers see the end of an output once every copy is closed, so close ours
    os.dup2(null, 1)
    os.dup2(null, 2)
    if job["stdin"] >= 0:
        os.close(job["stdin"])  # the writer has to see when the command closes it
    poll = select.poll()
    poll.register(0, select.POLLIN)
    watch = os.pidfd_open(pid)
    poll.register(watch, select.POLLIN)
    ended = any(fd == watch for fd, _ in poll.poll())
    report = ""
    if ended:
        _, code = os.waitpid(pid, 0)
        report = f'"signal": {os.WTERMSIG(code)}' if os.WIFSIGNALED(code) else f'"exit": {os.WEXITSTATUS(code)}'
    _end_all(job["group"])
    os.write(status, f"{{{report}}}\n".encode())
    os._exit(0)


def _end_all(group: str) -> None:
    """Kill until no child is left: orphans of a killed process become ours and are killed in the next round."""
    first = True
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if group and first:
            _write(f"{group}/pids.max", "0")  # nothing forks faster than it is killed
        for pid in _descendants():
            try:
                if not group:
                    # without a control group: a limit of zero processes, which does not bind the superuser
                    resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
                os.kill(pid, _SIGKILL)
            except OSError:
                continue  # it exited by itself
        if not first:
            time.sleep(0.002)
        first = False


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    result: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        result += below
        todo += below
    return result


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass  # the group is gone or not ours; killing goes on without it


def _become(job: dict[str, Any]) -> None:
    """Turn this forked child into the command. Never returns."""
    status: int = job["status"]
    try:
        _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        os.setsid()
        os.fchdir(job["cwd"])
        os.dup2(job["stdin"] if job["stdin"] >= 0 else os.open("/dev/null", os.O_RDONLY), 0)
        os.set_inheritable(status, False)
        for number, value in job["limits"]:
            _, hard = resource.getrlimit(number)
            allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (allowed, allowed))
        if job["confine"]:
            _prctl(_PR_SET_NO_NEW_PRIVS, 1)
            _drop_capabilities()
        ruleset = _ruleset(job["landlock"]) if job["landlock"] else -1
        for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(3, 1024)):
            fd = int(name)
            if fd > 2 and fd not in (status, ruleset):
                try:
                    os.close(fd)
                except OSError:
                    continue  # the descriptor that lists the directory
        for number in (_SIGPIPE, _SIGXFSZ):
            _libc.signal(number, None)  # Python ignores these signals, and the command would inherit that
        if ruleset >= 0:
            _syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        if job["filter"]:
            _filter(job["filter"])
        os.execve(job["executable"], job["argv"], job["env"])
    except BaseException as error:  # noqa: BLE001 - the outermost frame of this process, which reports to the host
        os.write(status, f'{{"error": {_quoted(f"{type(error).__name__}: {error}")}}}\n'.encode())
    finally:
        os._exit(127)


def _quoted(text: str) -> str:
    """A JSON string, in ASCII."""
    plain = [each if " " <= each <= "~" and each not in '"\\' else f"\\u{min(ord(each), 0xFFFF):04x}" for each in text]
    return '"' + "".join(plain) + '"'


def _drop_capabilities() -> None:
    if os.geteuid() == 0:
        for capability in range(64):
            try:
                _prctl(_PR_CAPBSET_DROP, capability)
            except OSError:
                break  # past the last one this kernel knows
    try:
        _prctl(_PR_CAP_AMBIENT, 4)
    except OSError:
        pass  # this kernel is too old to have any
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _call(_libc.capset, header, (ctypes.c_uint32 * 6)())


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _ruleset(plan: dict[str, Any]) -> int:
    attributes = (ctypes.c_uint64 * 3)(plan["files"], plan["net"], plan["scoped"])
    ruleset = _syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(plan["size"]), ctypes.c_uint32(0))
    for path, access in plan["rules"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # a missing path needs no permission
        try:
            rule = _PathBeneath(access, fd)
            _syscall(
                _ADD_RULE,
                ctypes.c_int(ruleset),
                ctypes.c_int(_RULE_PATH_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
        finally:
            os.close(fd)
    return ruleset


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _filter(code: bytes) -> None:
    program = _Program(len(code) // 8, code)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))
