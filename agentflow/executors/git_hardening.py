"""Runs git without running the programs that a repository configures.

Configuration and attributes of a repository name programs that git runs on its own: hooks, the fsmonitor, pager and
editor, filters, text converters and external diffs under any name, transports, helpers. Settings in the environment
(``GIT_CONFIG_COUNT``, git-config(1)) take precedence over the repository's, so every command gets those with fixed
names that way, and so does a git started by a script. Drivers with other names are looked up first and set to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

SETTINGS: tuple[tuple[str, str], ...] = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", "true"),
    ("core.askPass", "true"),
    ("core.sshCommand", "ssh"),
    ("core.gitProxy", ""),
    ("core.alternateRefsCommand", "true"),
    ("core.attributesFile", "/dev/null"),
    ("core.symlinks", "true"),
    ("credential.helper", ""),
    ("diff.ignoreSubmodules", "all"),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("log.showSignature", "false"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("protocol.https.allow", "always"),
    ("protocol.http.allow", "always"),
    ("protocol.ssh.allow", "always"),
    ("protocol.git.allow", "always"),
    ("protocol.file.allow", "user"),
    ("protocol.ext.allow", "never"),
    ("safe.bareRepository", "explicit"),
    ("sequence.editor", "true"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("tar.tar.gz.command", "gzip -cn"),
    ("uploadpack.packObjectsHook", ""),
)
"""Git settings of every command; they override the repository's."""

ENVIRONMENT: dict[str, str] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_ASKPASS": "true",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
}
"""Environment variables in addition to these settings."""

_SUFFIXES: dict[str, str] = {
    ".clean": "",
    ".smudge": "",
    ".process": "",
    ".required": "false",
    ".textconv": "cat",
    ".command": "",
    ".driver": "false",
    ".cmd": "false",
    ".helper": "",
    ".program": "false",
    ".uploadpack": "git-upload-pack",
    ".receivepack": "git-receive-pack",
    ".vcs": "",
    ".proxy": "",
    ".update": "none",
}
_IGNORE_SUBMODULES = frozenset({"diff", "diff-files", "diff-index", "status"})
_PLAIN_DIFF = frozenset({"diff", "diff-files", "diff-index", "diff-tree", "format-patch", "log", "show", "whatchanged"})
_LOCATIONS = frozenset({"-C", "--git-dir", "--work-tree", "--namespace"})
"""Global options that take a value and select the repository."""
_GLOBAL_FLAGS = frozenset({
    "-P", "-h", "-v", "--bare", "--glob-pathspecs", "--help", "--icase-pathspecs", "--literal-pathspecs",
    "--no-advice", "--no-lazy-fetch", "--no-optional-locks", "--no-pager", "--no-replace-objects", "--noglob-pathspecs",
    "--version",
})  # fmt: skip
"""Global options that take none. Words in neither set are refused: git stops at the first word it does not know."""

_RUNNING_OPTIONS = (
    "--config", "--exec", "--ext-diff", "--extcmd", "--filters", "--open-files-in-pager", "--receive-pack", "--template",
    "--textconv", "--tool", "--upload-archive", "--upload-pack", "--web-browser",
)  # fmt: skip
"""Options of subcommands that name a program, or configuration that does. git takes any unambiguous beginning of them."""
_HARMLESS_WORDS = frozenset({"--filter", "--text", "--to"})
"""Options with a full name that is a prefix of one of those."""
_RUNNING_LETTERS: dict[str, tuple[str, str]] = {
    "clone": ("uc", "job"),
    "grep": ("O", "efABCm"),
    "rebase": ("x", "sXCS"),
    "difftool": ("tx", ""),
}
"""Short options of a subcommand that name a program, and those that take the rest of their word as a value."""
_RUNNING_COMMANDS = frozenset({
    "archimport", "citool", "credential", "cvsexportcommit", "cvsimport", "cvsserver", "daemon", "difftool",
    "filter-branch", "for-each-repo", "gui", "help", "hook", "http-backend", "imap-send", "instaweb", "maintenance",
    "mergetool", "p4", "quiltimport", "remote-ext", "remote-fd", "request-pull", "send-email", "shell", "svn",
    "web--browse",
})  # fmt: skip
"""Subcommands that exist to run something else."""
_RUNNING_WORDS = {"bisect": ("run", "visualize", "view"), "submodule": ("foreach",)}


def is_git(executable: str) -> bool:
    """Whether the resolved program is git or one of its subprograms."""
    name = os.path.basename(executable)
    return name == "git" or name.startswith("git-")


def environment(names: Iterable[str] = ()) -> dict[str, str]:
    """The hardened environment. ``names`` are settings of the repository that run programs; they are set to nothing."""
    settings = list(SETTINGS)
    for name in dict.fromkeys(names):
        suffix = "." + name.rpartition(".")[2].lower()
        if suffix in _SUFFIXES and name.count(".") >= 2:
            settings.append((name, _SUFFIXES[suffix]))
        elif name.lower().startswith(("alias.", "pager.")):
            settings.append((name, "false" if name.lower().startswith("pager.") else name.partition(".")[2]))
    variables = dict(ENVIRONMENT)
    variables["GIT_CONFIG_COUNT"] = str(len(settings))
    for index, (name, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{index}"] = name
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables


def arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """``argv`` with the options that stop its subcommand from running external drivers."""
    index = _subcommand(argv)
    if index is None:
        return tuple(argv)
    added: list[str] = []
    if argv[index] in _PLAIN_DIFF:
        added += ["--no-ext-diff", "--no-textconv"]
    if argv[index] in _IGNORE_SUBMODULES:
        added.append("--ignore-submodules=all")
    return (*argv[: index + 1], *added, *argv[index + 1 :])


def refused(argv: Sequence[str]) -> str | None:
    """The argument that would undo the hardening or is unknown; None if every argument is harmless.

    The words before the subcommand are parsed as git does (``handle_options`` in git.c); those after it are judged wherever
    they stand, since only the subcommand knows which of them are values of options.
    """
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        word = argv[index]
        if word in _LOCATIONS:
            index += 1
        elif word not in _GLOBAL_FLAGS and word.partition("=")[0] + "=" not in (
            "--git-dir=",
            "--work-tree=",
            "--namespace=",
        ):
            return word
        index += 1
    if index >= len(argv):
        return None
    command, rest = argv[index], argv[index + 1 :]
    if command in _RUNNING_COMMANDS:
        return command
    letters, valued = _RUNNING_LETTERS.get(command, ("", ""))
    for word in rest:
        if word in _RUNNING_WORDS.get(command, ()):
            return f"{command} {word}"
        if word.startswith("--"):
            name = word.partition("=")[0]
            if (
                len(name) > 2
                and name not in _HARMLESS_WORDS
                and any(each.startswith(name) for each in _RUNNING_OPTIONS)
            ):
                return word
        elif word.startswith("-") and letters:
            for letter in word[1:]:
                if letter in letters:
                    return word
                if letter in valued:
                    break
    return None


def _subcommand(argv: Sequence[str]) -> int | None:
    """The index of the subcommand in an argument vector that passed the checks."""
    index = 1
    while index < len(argv):
        word = argv[index]
        if not word.startswith("-"):
            return index
        index += 2 if word in _LOCATIONS else 1
    return None


def location(argv: Sequence[str]) -> tuple[str, ...]:
    """The global options of ``argv`` that select the repository."""
    end = _subcommand(argv)
    options: list[str] = []
    index = 1
    while index < (len(argv) if end is None else end):
        word = argv[index]
        if word in _LOCATIONS and index + 1 < len(argv):
            options += [word, argv[index + 1]]
            index += 1
        elif word.startswith(("--git-dir=", "--work-tree=", "--namespace=")) or word == "--bare":
            options.append(word)
        index += 1
    return tuple(options)
