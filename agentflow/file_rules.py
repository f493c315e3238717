"""The settings allowed in a directory's ``agentflow.toml``, which may come from someone else's project.

An untrusted file only narrows: its roots are below its directory, its limits at most the defaults. Settings that widen
count once the user has reviewed the file (``agentflow trust``), and the programs it would run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlsplit

from agentflow.connect.config import servers_of_table
from agentflow.connect.servers import McpStdio
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.executors.command_executor import PATH
from agentflow.executors.executed_files import ProgramFile, program_files
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.policy import CommandRule
from agentflow.lib.file_writer import is_trusted
from agentflow.lib.loopback import is_loopback
from agentflow.lib.text.toml_words import to_toml
from agentflow.providers.dialects.retry import RetryPolicy
from agentflow.providers.http_adapter import DEFAULT_GATE


@frozen
class FileRule:
    """A restriction on a setting in a directory's file: ``why``, and the alternative ``instead``. ``trusting``: lifted if
    the user trusts the file in its present state; ``counts``: until then the setting counts as far as it narrows, without
    an error.

    ``permits`` judges a value for the setting from the file in a directory; without it the file may not name the setting at
    all.
    """

    why: str
    instead: str
    permits: Callable[[Path, Any], bool] | None = None
    trusting: bool = False
    counts: bool = False


def _lies_below(directory: Path, value: Any) -> bool:
    """Whether paths lead to the directory or below it, after following links."""
    paths = cast("list[Any]", value) if isinstance(value, list) else [value]
    top = directory.resolve()
    return all([(directory / each).resolve().is_relative_to(top) for each in paths if isinstance(each, str)])


def _narrows(directory: Path, value: Any) -> bool:
    """Whether no limit is higher than its default."""
    defaults = Limits()
    for name, each in cast("dict[str, Any]", value).items() if isinstance(value, dict) else ():
        most: float | None = getattr(defaults, name, None)
        if most is not None and isinstance(each, int | float) and not each <= most:
            return False
    return True


def _is_plain_setting(directory: Path, value: Any) -> bool:
    return not isinstance(value, dict) or cast("dict[str, Any]", value).keys() <= _SAMPLING


def _tries_no_more(directory: Path, value: Any) -> bool:
    attempts = cast("dict[str, Any]", value).get("attempts") if isinstance(value, dict) else None
    return not isinstance(attempts, int) or attempts <= RetryPolicy().attempts


def _says_the_form(directory: Path, value: Any) -> bool:
    return not isinstance(value, dict) or cast("dict[str, Any]", value).keys() <= _FORMS


_SAMPLING = frozenset(
    [
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop",
        "stop_sequences",
        "frequency_penalty",
        "presence_penalty",
        "thinking",
        "reasoning",
        "reasoning_effort",
        "verbosity",
    ]
)
"""Request fields that change the answer of a model, but nothing else its server does or charges."""
_FORMS = frozenset(
    [
        "limit_field",
        "output",
        "output_with_tools",
        "output_in_streams",
        "schemas",
        "strict",
        "system_role",
        "model_names",
        "alternates",
        "description_limit",
        "pictures",
        "user_after_results",
    ]
)
"""Traits that describe how a request is written, but not omitted fields, numbers or patterns run over texts."""
_SENT_FILES = "it would have the files sent away"
_KEPT_ELSEWHERE = "it would decide where the data of runs is stored"
_LOOK = "look at it, then run agentflow trust"
_BELOW = FileRule(
    "paths outside its directory do not belong to the project", f"{_LOOK}; or pass it as an option", _lies_below, True
)
_FREE = "model fallbacks deny_commands rates clocks rerank surface decompose prompt_cache provenance"

FILE_RULES: Mapping[str, FileRule | None] = MappingProxyType(
    {
        **dict.fromkeys(_FREE.split()),
        **dict.fromkeys(("root", "roots", "tasks", "workflows"), _BELOW),
        "allow_commands": FileRule(
            "models would run these unasked",
            f"{_LOOK}; or pass allow_commands=",
            permits=lambda directory, rules: rules == [],
            trusting=True,
        ),
        "readable": FileRule(
            "commands and servers would read files outside of the roots",
            f"{_LOOK}; or pass readable= or --readable",
            permits=lambda directory, paths: paths == [],
            trusting=True,
        ),
        "shell": FileRule(
            "it would grant command texts",
            f"{_LOOK}; or pass shell=True",
            permits=lambda directory, granted: granted is not True,
            trusting=True,
        ),
        "limits": FileRule(
            "without being trusted it may only lower limits",
            f"{_LOOK}; or pass limits= or --limit",
            permits=_narrows,
            trusting=True,
        ),
        "purses": FileRule(
            "it would decide how much may be spent",
            f"{_LOOK}; or pass purses=",
            permits=lambda directory, purses: purses == {},
            trusting=True,
        ),
        "prices": FileRule(
            "without being trusted it may only raise prices that are known",
            f"{_LOOK}; or pass prices=",
            permits=lambda directory, prices: prices == {},
            trusting=True,
            counts=True,
        ),
        "system": FileRule(
            "it would instruct every model",
            f"{_LOOK}; or pass system=",
            permits=lambda directory, text: text == "",
            trusting=True,
        ),
        "traits": FileRule(
            "such traits may send more, or remove a bound",
            f"{_LOOK}; or pass provider=Provider(traits=...)",
            permits=_says_the_form,
            trusting=True,
        ),
        "concurrency": FileRule(
            f"without being trusted it may ask for {DEFAULT_GATE} calls at once at most",
            _LOOK,
            permits=lambda directory, count: not isinstance(count, int) or count <= DEFAULT_GATE,
            trusting=True,
        ),
        "retry": FileRule(
            f"without being trusted it may have a call made {RetryPolicy().attempts} times at most",
            f"{_LOOK}; or pass provider=Provider(retry=...)",
            permits=_tries_no_more,
            trusting=True,
        ),
        "model_settings": FileRule(
            "such fields may have a model's server do, keep or charge more",
            f"{_LOOK}; or pass settings= of a task",
            permits=_is_plain_setting,
            trusting=True,
        ),
        "sandbox": FileRule(
            "a file that comes with the files it would protect is not asked",
            "pass sandbox='none' or --sandbox none",
            permits=lambda directory, name: name != "none",
        ),
        "base_url": FileRule(
            "a server elsewhere would be sent your key",
            "pass base_url= or --base-url, or set AGENTFLOW_BASE_URL",
            permits=lambda directory, url: leads_to_loopback(str(url)),
        ),
        "api_key": FileRule("every reader of the file would get the key", "set the provider's variable"),
        "embeddings": FileRule(_SENT_FILES, "pass embeddings= or --embeddings, or set AGENTFLOW_EMBEDDINGS"),
        "embeddings_url": FileRule(
            _SENT_FILES, "pass embeddings_url= or --embeddings-url, or set AGENTFLOW_EMBEDDINGS_URL"
        ),
        "otel": FileRule("it would send the data of runs away", "pass --otel, or subscribe an OpenTelemetry"),
        "mcp": FileRule(
            "it would start programs and send them data",
            f"{_LOOK}; or name servers with mcp= or --mcp",
            permits=lambda directory, servers: servers == {},
            trusting=True,
        ),
        "durable": FileRule(_KEPT_ELSEWHERE, "pass durable= or --durable"),
        "record": FileRule(_KEPT_ELSEWHERE, "pass record=, --no-record or --events-file"),
        "notes": FileRule(_KEPT_ELSEWHERE, "pass notes= or --notes"),
        "index_cache": FileRule("it would decide where the files' texts are kept", "pass index_cache="),
    }
)
"""The settings a directory's file may set: without a rule, any value of the setting.

Its ``prices`` may raise known prices but not lower them; for models of unknown price they count once the file is trusted:
:class:`~agentflow.providers.prices.Prices`. Its ``provenance`` and its ``rates`` only narrow.
"""


def check_names(path: Path, read: Mapping[str, Any]) -> None:
    """Raise ConfigurationError (``config/setting``) for settings that no file may contain, trusted or not."""
    for name in read:
        rule = FILE_RULES.get(name)
        if rule is not None and not rule.trusting and not _permitted(rule, path, read[name]):
            raise _refusal(path, name, rule, read[name])


def check_grants(path: Path, read: Mapping[str, Any], content: bytes) -> tuple[str, ...]:
    """The names of a file's settings that count because the user trusts it. Blocking.

    Raises ConfigurationError (``config/setting``) for grants in a file not trusted in its present state.
    """
    granted = grants_of(path, read)
    if not granted or is_trusted(path, bound(path, read, content)[0]):
        return tuple(granted)
    for name in granted:
        rule = FILE_RULES[name]
        assert rule is not None
        if not rule.counts:
            raise _refusal(path, name, rule, read[name])
    return ()


def grants_of(path: Path, read: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file that count only if the user trusts it, by name. Blocking."""
    named = {name: FILE_RULES.get(name) for name in read}
    return {
        name: read[name]
        for name, rule in named.items()
        if rule is not None and rule.trusting and not _permitted(rule, path, read[name])
    }


def _permitted(rule: FileRule, path: Path, value: Any) -> bool:
    return rule.permits is not None and rule.permits(path.parent, value)


def _refusal(path: Path, name: str, rule: FileRule, value: Any) -> ConfigurationError:
    shown = "" if rule.permits is None or isinstance(value, dict) else f" to {clip(to_toml(value), 200)}"
    return ConfigurationError(
        f"{path} may not set {name}{shown}", code="config/setting", hint=f"{rule.why}: {rule.instead}"
    )


def bound(path: Path, read: Mapping[str, Any], content: bytes) -> tuple[str, list[str]]:
    """The digest of all that trusting a file accepts, and the programs and files of its directory in it. Blocking.

    It covers the text of the file, where its directories lead, which programs its commands are, and the contents of the
    files below its directory that these would run: programs, scripts, makefiles.
    """
    digest = sha256(content)
    directory = path.parent.resolve()
    places = [each for name in ("root", "roots", "tasks", "workflows", "readable") for each in _texts(read.get(name))]
    for where in places:
        digest.update(b"\0" + os.fsencode((directory / os.path.expanduser(where)).resolve()))
    files: dict[str, ProgramFile] = {}
    start = directory / next(iter(_texts(read.get("root"))), ".")
    with FileAccessManager(directory) as manager:
        for command, path_variable in _commands(read):
            program = shutil.which(command[0], path=path_variable) or os.path.normpath(start / command[0])
            digest.update(b"\0" + os.fsencode(os.path.realpath(program)))
            files |= {each.path: each for each in program_files(manager, program, tuple(command), str(start))}
    for name in sorted(files):
        digest.update(b"\0" + os.fsencode(name) + b"\0" + files[name].digest.encode())
    return digest.hexdigest(), [os.path.relpath(name, directory) for name in sorted(files)]


def _texts(value: Any) -> list[str]:
    every = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [each for each in every if isinstance(each, str)]


def _commands(read: Mapping[str, Any]) -> Iterable[tuple[Sequence[str], str]]:
    """The commands that a file names, those of its MCP servers and the words of its rules, each with where programs are found."""
    fixed = os.pathsep.join(PATH)
    inherited = [each for each in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(each)]
    servers = read.get("mcp")
    if isinstance(servers, dict):
        for server in servers_of_table(cast("dict[str, Any]", servers)):
            if isinstance(server, McpStdio):
                yield server.command, os.pathsep.join([*inherited, fixed])
    for rule in _texts(read.get("allow_commands")):
        yield CommandRule(rule).words, fixed


def leads_to_loopback(url: str) -> bool:
    """Whether a URL's host is this machine's loopback.

    A URL that two parsers may read differently (user info, backslashes, blanks) counts as elsewhere.
    """
    if "\\" in url or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        written = f"[{host}]" if ":" in host else host
        if parts.scheme not in ("http", "https") or parts.netloc.lower() not in (written, f"{written}:{parts.port}"):
            return False
        return is_loopback(host)
    except ValueError:
        return False
