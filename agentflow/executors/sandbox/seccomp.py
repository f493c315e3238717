"""The system-call filter of the sandboxes, as the BPF program that seccomp(2) takes.

Landlock covers files and TCP only. The filter closes the remaining gaps: all kinds of sockets, new namespaces, access
to other processes, kernel interfaces with a record of vulnerabilities, and changes of owner or attributes of files by
path. Changes of mode and times by path are handed to the supervisor. Layout and constants: linux/seccomp.h, linux/filter.h, linux/audit.h; call
numbers: asm/unistd_64.h (x86_64), asm-generic/unistd.h (aarch64).
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Any

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# name: (x86_64, aarch64); None if the architecture has no such call
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchownat": (260, 54),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "request_key": (249, 218),
    "setns": (308, 268),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "vhangup": (153, 58),
}

_METADATA = (
    "chmod",
    "chown",
    "fchmodat",
    "fchmodat2",
    "fchownat",
    "file_setattr",
    "futimesat",
    "lchown",
    "lremovexattr",
    "lsetxattr",
    "removexattr",
    "removexattrat",
    "setxattr",
    "setxattrat",
    "utime",
    "utimes",
)
_CONDITIONAL = ("clone", "clone3", "ioctl", "socket", "utimensat")
_HANDED_OVER = ("chmod", "fchmodat", "fchmodat2", "utimensat")
"""The changes by path that a supervisor makes in the place of the command."""
_SECCOMP = (317, 277)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE = 0x00050000 | errno.EPERM
_ABSENT = 0x00050000 | errno.ENOSYS
_NOTIFY = 0x7FC00000
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
# CLONE_NEWUSER, NEWPID, NEWNET, NEWNS, NEWIPC, NEWUTS, NEWCGROUP
_NAMESPACES = 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000 | 0x08000000 | 0x04000000 | 0x02000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_LOCAL = 1  # AF_UNIX
_INTERNET = (2, 10, 16)  # AF_INET, AF_INET6, and AF_NETLINK, which name resolution uses to list interfaces


def supported() -> bool:
    """Whether there is a filter for this machine's architecture."""
    return platform.machine() in _ARCHITECTURES


def changes(below: tuple[str, ...]) -> dict[str, Any]:
    """The calls of this machine that :func:`build` hands over, in the supervisor's format.

    ``below`` are the directories, absolute and without links, where the supervisor makes the change.
    """
    _, column = _ARCHITECTURES[platform.machine()]
    numbers = {name: _CALLS[name][column] for name in _HANDED_OVER}
    calls = {number: name for name, number in numbers.items() if number is not None}
    return {"seccomp": _SECCOMP[column], "calls": calls, "below": below}


def build(*, sockets: bool, network: bool, metadata: bool) -> bytes:
    """The filter program for this machine.

    Local sockets, which lead to daemons outside by a file of the workspace, are never allowed (socketpair(2) is).
    ``sockets`` allows all other families (something else blocks the network); without it ``network`` allows internet
    sockets. ``metadata`` allows changes of mode, owner, times and attributes by path; without it those of mode and times
    are handed over (:func:`changes`), and the others are refused.
    """
    arch, column = _ARCHITECTURES[platform.machine()]
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR),
    ]
    if column == 0:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    for name, numbers in _CALLS.items():
        number = numbers[column]
        if number is None or name in _CONDITIONAL or (metadata and name in _METADATA):
            continue
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY if name in _HANDED_OVER else _REFUSE)]

    def when(name: str, *body: tuple[int, int, int, int]) -> None:
        number = _CALLS[name][column]
        assert number is not None
        code.append((_EQUAL, 0, len(body), number))
        code.extend(body)

    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)
    # clone3 takes its flags by pointer, which a filter cannot follow; libraries fall back to clone
    when("clone3", (_RETURN, 0, 0, _ABSENT))
    when("clone", (_LOAD, 0, 0, _ARGUMENTS), (_ANY_BIT, 0, 1, _NAMESPACES), refuse, allow)
    # both push input into a terminal
    when("ioctl", (_LOAD, 0, 0, _ARGUMENTS + 8), (_EQUAL, 1, 0, _TIOCSTI), (_EQUAL, 0, 1, _TIOCLINUX), refuse, allow)
    if sockets:
        when("socket", (_LOAD, 0, 0, _ARGUMENTS), (_EQUAL, 0, 1, _LOCAL), refuse, allow)
    elif network:
        tests = [(_EQUAL, len(_INTERNET) - index, 0, family) for index, family in enumerate(_INTERNET)]
        when("socket", (_LOAD, 0, 0, _ARGUMENTS), *tests, refuse, allow)
    else:
        when("socket", refuse)
    if not metadata:
        # without a path the call concerns an open file, which was opened under the rules
        low, high = (_LOAD, 0, 0, _ARGUMENTS + 8), (_LOAD, 0, 0, _ARGUMENTS + 12)
        when("utimensat", low, (_EQUAL, 0, 2, 0), high, (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _NOTIFY), allow)
    code.append(allow)
    return b"".join(struct.pack("<HBBI", operation, yes, no, value) for operation, yes, no, value in code)
