"""Decides which commands may run (deny, allow, ask) by the resolved program and the full argument vector."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal, TypeAlias

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen

Verdict: TypeAlias = Literal["deny", "ask", "allow"]

DENIED: tuple[str, ...] = (
    # change of user
    "doas *",
    "pkexec *",
    "su *",
    "sudo *",
    "sudoedit *",
    # power and services
    "halt *",
    "init *",
    "poweroff *",
    "reboot *",
    "shutdown *",
    "systemctl *",
    "telinit *",
    # disks, mounts, kernel
    "blkdiscard *",
    "cfdisk *",
    "fdisk *",
    "insmod *",
    "kexec *",
    "losetup *",
    "mkfs *",
    "mkfs.* *",
    "mkswap *",
    "modprobe *",
    "mount *",
    "parted *",
    "pivot_root *",
    "rmmod *",
    "sfdisk *",
    "swapoff *",
    "swapon *",
    "umount *",
    "wipefs *",
    # other namespaces
    "chroot *",
    "nsenter *",
    "unshare *",
)
"""Commands that no call may run, not even the host's, unless the host passes another list."""

READING: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cat": (),
        "echo": (),
        "find": ("-delete", "-exec*", "-fls", "-fprint*", "-ok*"),
        "git ls-files": (),
        "grep": (),
        "head": (),
        "ls": (),
        "rg": ("--hostname-bin*", "--pre*"),
        "tail": (),
    }
)
"""Prefixes of commands that only read, and the arguments that would make them write."""

_ROOTS = ("/", "/*", "/.", "/..", "~", "~/", "$HOME")


@frozen
class CommandRule:
    """A pattern over an argument vector, written like a command: ``git log *``.

    The first word matches the program: without ``/`` its name (as called and as resolved), with ``/`` its resolved
    path. Each further word is a shell pattern for one argument; a final ``*`` matches any remaining arguments, or none.
    Without it the number of arguments must be equal. Raises ConfigurationError (``commands/policy``).
    """

    text: str
    words: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        try:
            words = tuple(shlex.split(self.text))
        except ValueError as error:
            raise ConfigurationError(f"the command rule {self.text!r}: {error}", code="commands/policy") from None
        if not words:
            raise ConfigurationError(
                "a command rule is empty", code="commands/policy", hint='write a command, for example "git log *"'
            )
        object.__setattr__(self, "words", words)

    def matches(self, executable: str, argv: Sequence[str]) -> bool:
        """Whether the rule covers the resolved program ``executable`` called with ``argv``."""
        program, *rest = self.words
        if "/" in program:
            if not fnmatchcase(executable, program):
                return False
        elif not any(fnmatchcase(os.path.basename(name), program) for name in (executable, argv[0])):
            return False
        arguments = argv[1:]
        if rest and rest[-1] == "*":
            rest = rest[:-1]
            arguments = arguments[: len(rest)]
        return len(arguments) == len(rest) and all(fnmatchcase(a, b) for a, b in zip(arguments, rest, strict=True))


class CommandPolicy:
    """Deny first, then allow, else ask.

    Parameters: ``deny`` and ``allow`` are patterns of :class:`CommandRule`; ``shell`` allows command texts with shell
    operators, which then run as ``sh -c``. Deny rules apply to every caller; ``allow`` and asking apply only to models and
    to programs with granted authority. A deny list guards against accidents; the sandbox keeps a command from doing
    harm.
    """

    __slots__ = ("_allow", "_deny", "shell")

    def __init__(self, *, allow: Iterable[str] = (), deny: Iterable[str] = DENIED, shell: bool = False) -> None:
        self._allow = tuple(CommandRule(text) for text in allow)
        self._deny = tuple(CommandRule(text) for text in deny)
        self.shell = shell

    def judge(self, executable: str, argv: Sequence[str]) -> tuple[Verdict, str]:
        """The verdict on a command, and the reason for it."""
        if _removes_everything(executable, argv):
            return "deny", "it removes a whole root or home directory"
        for rule in self._deny:
            if rule.matches(executable, argv):
                return "deny", f"the rule {rule.text!r} forbids it"
        for rule in self._allow:
            if rule.matches(executable, argv):
                return "allow", f"the rule {rule.text!r} allows it"
        return "ask", "no rule covers this command"


def _removes_everything(executable: str, argv: Sequence[str]) -> bool:
    if os.path.basename(executable) != "rm" and os.path.basename(argv[0]) != "rm":
        return False
    recursive = any(
        word in ("--recursive", "--no-preserve-root")
        or (word[:1] == "-" and word[:2] != "--" and set(word) & set("rR"))
        for word in argv[1:]
    )
    return recursive and any(word in _ROOTS or os.path.normpath(word) in ("/", "//") for word in argv[1:])


def only_reads(argv: Sequence[str]) -> bool:
    """Whether a command cannot write, for any content of files: one of :data:`READING`, found in the search path."""
    for text, refused in READING.items():
        words = text.split()
        if list(argv[: len(words)]) == words:
            return not any(fnmatchcase(word, pattern) for word in argv for pattern in refused)
    return False


_OPERATORS = frozenset("|&;<>()")


def split_command(text: str) -> tuple[list[str], str | None]:
    """The argument vector of a command text, and the first shell operator in it (None when there is none).

    Quoting follows POSIX, as in shlex. Operators count outside of quotes; ``$(`` and backquotes also within double
    quotes. Raises ValueError for an unclosed quote.
    """
    argv = shlex.split(text)
    quote = ""
    index = 0
    while index < len(text):
        char = text[index]
        if quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            index += 1
        elif char == '"':
            quote = "" if quote else '"'
        elif char == "'" and not quote:
            quote = "'"
        elif char == "`" or text.startswith("$(", index):
            return argv, "`" if char == "`" else "$("
        elif not quote and (char in _OPERATORS or (char == "\n" and text[index:].strip() and text[:index].strip())):
            return argv, "a line end" if char == "\n" else char
        index += 1
    return argv, None
