"""The parts of this machine that a confined program needs: its own installation, and the variables for reaching the network.

Programs of the system lie where every sandbox reads. Others come from version managers, tool installers and virtual
environments: a link or a script that leads to an interpreter elsewhere, which has a prefix of its own.

Behind a company's proxy, or among servers with certificates that a company signs, a program with a granted network reaches
nothing without the variables for them: npx and uvx do not even download the packages to run.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from agentflow.executors.sandbox.backend import PATH, SYSTEM_PATHS

_MAX_FILES = 32
_PROGRAM_DIRECTORIES = frozenset({"bin", "sbin", "shims"})
_SHARED = (".local", ".cargo")
"""Prefixes in a home that hold more than programs: only the directory of the programs is read there."""
_BESIDE = {".cargo": ".rustup"}
"""The directory, in the same home, with files that the programs in such a prefix need."""
_LONG_SHEBANG = re.compile(rb"""^'''exec' "?(/[^"\n]*?)"? "\$0\"""", re.MULTILINE)

_CERTIFICATES = (
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""Variables that name the certificates to trust."""
_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""Variables that name proxies; in small letters too."""


def installation(executable: str) -> tuple[str, ...]:
    """The paths that must be readable to run an ``executable`` outside the system's directories. Blocking.

    These are the program itself, and for ``<prefix>/bin/<program>`` the prefix, unless a home or more than programs would be
    included; the same for every link on the way to it, for the interpreter in its first line, and for the original of
    its virtual environment.
    """
    paths: dict[str, None] = {}
    pending, seen = [os.path.normpath(executable)], set[str]()
    while pending and len(seen) < _MAX_FILES:
        path = pending.pop(0)
        if path in seen or not os.access(path, os.X_OK):
            continue
        seen.add(path)
        if not path.startswith(tuple(f"{system}/" for system in SYSTEM_PATHS)):
            paths |= dict.fromkeys(_around(path))
        if os.path.islink(path):
            pending.append(os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path))))
        pending += [os.path.realpath(path), *_interpreters(path), *_base_of_environment(path)]
    return tuple(paths)


def _around(path: str) -> Iterable[str]:
    """The readable paths of the installation of the program ``path``."""
    home = os.path.expanduser("~")
    directory = os.path.dirname(path)
    prefix, name = os.path.split(directory)
    if name not in _PROGRAM_DIRECTORIES:
        return [path]
    if os.path.basename(prefix) in _SHARED:
        beside = _BESIDE.get(os.path.basename(prefix))
        return [directory] if beside is None else [directory, os.path.join(os.path.dirname(prefix), beside)]
    return [directory if prefix in ("/", home) or home.startswith(f"{prefix}/") else prefix]


def _interpreters(path: str) -> Iterable[str]:
    """The program that runs a script, by its first line; of installers also by its second, where the first is too long."""
    try:
        with open(path, "rb") as file:
            head = file.read(4_096)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    if (long := _LONG_SHEBANG.search(head)) is not None:
        return [os.fsdecode(long[1])]
    words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
    if words and os.path.basename(words[0]) == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        program = shutil.which(names[0], path=os.pathsep.join((os.path.dirname(path), *PATH))) if names else None
        return [] if program is None else [program]
    return words[:1]


def _base_of_environment(path: str) -> Iterable[str]:
    """The interpreter that the virtual environment of a program was made from."""
    try:
        with open(os.path.join(os.path.dirname(os.path.dirname(path)), "pyvenv.cfg"), encoding="utf-8") as file:
            lines = [line.partition("=") for line in file.read(65_536).splitlines()]
    except (OSError, ValueError):
        return []
    homes = [value.strip() for name, _, value in lines if name.strip() == "home"]
    return [os.path.join(home, name) for home in homes for name in ("python3", "python") if os.path.isabs(home)]


# A granted network needs its proxies and certificates to be of use (decision 45)
def network_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of ``environ`` (default: this process's) that name trusted certificates and the proxies to use.

    They hold no secret: a proxy with a password is left out, and has to be given by name.
    """
    environ = os.environ if environ is None else environ
    names = (*_CERTIFICATES, *_PROXIES, *[name.lower() for name in _PROXIES])
    return {
        name: environ[name]
        for name in names
        if environ.get(name) and not (name.upper() in _PROXIES and _has_password(environ[name]))
    }


def certificates(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The files of certificates that ``variables`` name. Blocking."""
    named = [variables[name] for name in _CERTIFICATES if name in variables]
    return tuple(dict.fromkeys([path for path in named if os.path.isabs(path) and os.path.isfile(path)]))


def _has_password(proxy: str) -> bool:
    """Whether the address of a proxy contains credentials, or cannot be read."""
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError:
        return True
    return "@" in parts.netloc or "@" in parts.path
