"""The process between agentflow and a command: confines the command, and kills everything it started.

It runs as ``python -I -S`` and imports nothing of agentflow and little of the standard library, because its start-up
time is part of every command: hence no ``json``, ``signal`` or ``typing``, which import much more. Its reports are lines
of JSON, which the host reads as data: an attacker in control of this process cannot send it code. Its own code does not come from a file, which a command could have changed in its workspace: the host sends the
code it read at its own start. stdin carries code and job; EOF on it, because the host let go or died, kills the
command. The supervisor is a child subreaper (prctl(2)), the new parent of every process with a parent that ended, so even
a daemon that forks twice and opens its own session becomes its child and is found.

The child applies, in this order: limits, no_new_privs, no capabilities, Landlock (landlock(7)), the seccomp filter.

Landlock cannot confine changes of a file's mode and times by path, which package managers and git make. The filter
hands these calls over (seccomp_unotify(2)), and the supervisor carries them out itself, on a descriptor of the path's
target, if that lies in a directory the command may write in. A call never continues in the kernel with the command's own
arguments: another thread could have changed them.
"""

from __future__ import annotations

import _socket
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
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_NOTIF_RECV, _NOTIF_SEND, _NOTIF_ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = -100, 0x100, 0x1000
_PATH_MAX = 4096
_EPERM, _ENOENT, _EINTR, _EBUSY, _ENAMETOOLONG = 1, 2, 4, 16, 36

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
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM) if job["changes"] else (None, None)
    pid = os.fork()
    if pid == 0:
        _become(job, theirs)
    if theirs is not None:
        theirs.close()
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
    ended = _watch(poll, watch, job["changes"], ours)
    report = ""
    if ended:
        _, code = os.waitpid(pid, 0)
        report = f'"signal": {os.WTERMSIG(code)}' if os.WIFSIGNALED(code) else f'"exit": {os.WEXITSTATUS(code)}'
    _end_all(job["group"])
    os.write(status, f"{{{report}}}\n".encode())
    os._exit(0)


def _watch(poll: select.poll, watch: int, plan: dict[str, Any] | None, sent: _socket.socket | None) -> bool:
    """Wait until the command or the host ends, and make the changes that the command asks for. True: the command ended."""
    listener = -1
    if sent is not None:
        poll.register(sent.fileno(), select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if 0 in ready or watch in ready:
            return watch in ready
        if sent is not None and sent.fileno() in ready:
            _, extra, _, _ = sent.recvmsg(1, _socket.CMSG_SPACE(4))
            poll.unregister(sent.fileno())
            sent.close()
            sent = None
            if extra:
                listener = int.from_bytes(extra[0][2], "little")
                poll.register(listener, select.POLLIN)
        if listener in ready and not _change(listener, plan or {}):
            poll.unregister(listener)


class _Request(ctypes.Structure):
    """``struct seccomp_notif``."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("number", ctypes.c_int32),
        ("arch", ctypes.c_uint32),
        ("pointer", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


class _Response(ctypes.Structure):
    """``struct seccomp_notif_resp``."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("value", ctypes.c_int64),
        ("error", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


# The supervisor makes changes by path: seccomp cannot read a path (decision 43)
def _change(listener: int, plan: dict[str, Any]) -> bool:
    """Answer one call from the filter. False if no process is left that could make one."""
    request = _Request()
    try:
        _call(_libc.ioctl, ctypes.c_int(listener), ctypes.c_ulong(_NOTIF_RECV), ctypes.byref(request))
    except OSError as error:
        # the caller was killed meanwhile (ENOENT); any other error would come again at once
        return error.errno in (_ENOENT, _EINTR)
    try:
        _change_of(listener, request, plan)
        number = 0
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or _EPERM
    response = _Response(request.id, 0, -number, 0)
    try:
        _call(_libc.ioctl, ctypes.c_int(listener), ctypes.c_ulong(_NOTIF_SEND), ctypes.byref(response))
    except OSError:
        pass  # the caller was killed meanwhile
    return True


def _change_of(listener: int, request: Any, plan: dict[str, Any]) -> None:
    """Make the change. Raises OSError and ValueError for a refused or failed one."""
    kind = plan["calls"][request.number]
    first, second, third, fourth = [int(value) for value in request.arguments[:4]]
    directory, path, value, flags = (_AT_FDCWD, first, second, 0) if kind == "chmod" else (first, second, third, fourth)
    if kind == "fchmodat":
        flags = 0  # this call has none
    with open(f"/proc/{request.pid}/mem", "rb", 0) as memory:
        name = _text(memory, path)
        times = _read(memory, value, 32) if kind == "utimensat" and value else None
    identity = ctypes.c_uint64(request.id)
    # still the process that asked, and not another that got its number
    _call(_libc.ioctl, ctypes.c_int(listener), ctypes.c_ulong(_NOTIF_ID_VALID), ctypes.byref(identity))
    fd = _opened(request.pid, ctypes.c_int32(directory & 0xFFFFFFFF).value, name, flags)
    try:
        lies = os.readlink(f"/proc/self/fd/{fd}")
        if not any(lies == root or lies.startswith(f"{root}/") for root in plan["below"]):
            raise PermissionError(_EPERM, "outside the directories that the command may write")
        # the command has no capabilities, and the supervisor of a superuser has all of them
        if os.fstat(fd).st_uid != os.geteuid() or (kind != "utimensat" and value & 0o6000):
            raise PermissionError(_EPERM, "not its owner's change")
        itself = f"/proc/self/fd/{fd}".encode()
        if kind == "utimensat":
            _call(_libc.utimensat, ctypes.c_int(_AT_FDCWD), itself, times, ctypes.c_int(0))
        else:
            os.chmod(itself, value & 0o1777)
    finally:
        os.close(fd)


def _opened(pid: int, directory: int, name: bytes, flags: int) -> int:
    """A descriptor of the target of a path of the process ``pid``, without the right to read or write it."""
    if flags & ~(_AT_SYMLINK_NOFOLLOW | _AT_EMPTY_PATH):
        raise ValueError("unknown flags")
    own = f"/proc/{pid}/".encode()
    if name.startswith(b"/proc/self/"):
        name = own + name[len(b"/proc/self/") :]
    base = own + (b"cwd" if directory == _AT_FDCWD else b"fd/%d" % directory)
    if not name and flags & _AT_EMPTY_PATH:
        return os.open(base, os.O_PATH | os.O_CLOEXEC)
    at = os.open(b"/" if name.startswith(b"/") else base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        kept = os.O_NOFOLLOW if flags & _AT_SYMLINK_NOFOLLOW else 0
        return os.open(name, os.O_PATH | os.O_CLOEXEC | kept, dir_fd=at)
    finally:
        os.close(at)


def _text(memory: Any, address: int) -> bytes:
    """The path at an address of another process, which ends at its first zero."""
    result = b""
    while len(result) < _PATH_MAX:
        # never across a page that may not be there
        result += _read(memory, address + len(result), 256 - (address + len(result)) % 256)
        text, end, _ = result.partition(b"\0")
        if end:
            return text
    raise OSError(_ENAMETOOLONG, "the path is too long")


def _read(memory: Any, address: int, size: int) -> bytes:
    if address >= 1 << 63:
        raise ValueError("no address")
    memory.seek(address)
    data: bytes = memory.read(size)
    if len(data) != size:
        raise ValueError("no memory there")
    return data


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
        pass  # the group is gone or not ours; continue killing without it


def _become(job: dict[str, Any], sender: _socket.socket | None) -> None:
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
            if fd > 2 and fd not in (status, ruleset, -1 if sender is None else sender.fileno()):
                try:
                    os.close(fd)
                except OSError:
                    continue  # the descriptor that lists the directory
        for number in (_SIGPIPE, _SIGXFSZ):
            _libc.signal(number, None)  # Python ignores these signals, and the command would inherit that
        if ruleset >= 0:
            _syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        if job["filter"]:
            _filter(job["filter"], job["changes"], sender)
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


def _filter(code: bytes, plan: dict[str, Any] | None, sender: _socket.socket | None) -> None:
    program = _Program(len(code) // 8, code)
    if plan is None or sender is None:
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))
        return
    number, mode, flags = plan["seccomp"], ctypes.c_uint(_SET_MODE_FILTER), _NEW_LISTENER | _WAIT_KILLABLE
    try:
        listener = _syscall(number, mode, ctypes.c_uint(flags), ctypes.byref(program))
    except OSError as error:
        if error.errno != _EBUSY:
            raise
        # a process around us, such as a container's manager, may listen already: the calls then fail
        _syscall(number, mode, ctypes.c_uint(0), ctypes.byref(program))
        return
    descriptor = listener.to_bytes(4, "little")
    sender.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor)])
    os.close(listener)
