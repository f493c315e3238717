"""Typed settings: arguments, then the environment, then ``agentflow.toml``, then defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from agentflow.core.errors import ConfigurationError, clip
from agentflow.core.limits import Limits
from agentflow.lib.suggest import did_you_mean

FILE_NAME = "agentflow.toml"
_ENVIRONMENT = {
    "AGENTFLOW_MODEL": "model",
    "AGENTFLOW_BASE_URL": "base_url",
    "AGENTFLOW_ROOT": "root",
    "AGENTFLOW_TASKS": "tasks",
    "AGENTFLOW_WORKFLOWS": "workflows",
    "AGENTFLOW_SANDBOX": "sandbox",
}


class Settings(BaseModel):
    """What an ``agentflow.toml`` may say.

    ``model`` as ``dialect:name``; ``fallbacks`` models to try after it; ``base_url`` of the server; ``root`` or
    ``roots`` what file tools and the index may see; ``tasks`` a directory of XML templates; ``workflows`` a directory
    of saved workflows; ``sandbox`` the command back-end (bubblewrap, landlock, auto, none); ``allow_commands`` and
    ``deny_commands`` patterns of commands (``git log *``); ``limits`` a table of :class:`~agentflow.core.limits.Limits`; ``model_settings``
    native request fields; ``system`` the base system prompt; ``concurrency`` model calls at once; ``rerank`` lets a
    model re-rank what the index finds; ``decompose`` rounds in which a task that ran out of context or output is split
    up by a written program (0: never). The key never stands in the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = None
    fallbacks: list[str] = []
    base_url: str | None = None
    root: str = "."
    roots: list[str] = []
    tasks: str | None = None
    workflows: str | None = None
    sandbox: str = "auto"
    allow_commands: list[str] = []
    deny_commands: list[str] = []
    limits: dict[str, float | int | None] = {}
    model_settings: dict[str, Any] = {}
    system: str = ""
    concurrency: int | None = None
    rerank: bool = False
    decompose: int = 0

    def make_limits(self) -> Limits:
        """The limits table as Limits. Raises ConfigurationError for an unknown or wrong limit."""
        known = set(Limits.__dataclass_fields__)
        for name in self.limits:
            if name not in known:
                raise ConfigurationError(
                    f"there is no limit '{name}'", code="config/limits", hint=did_you_mean(name, known)
                )
        return Limits(**cast(dict[str, Any], self.limits))


def load_settings(
    directory: Path | None = None, environ: Mapping[str, str] | None = None, **arguments: Any
) -> Settings:
    """Settings for ``directory`` (default: the working directory).

    ``arguments`` that are not None come first, then ``AGENTFLOW_*`` variables of ``environ``, then the directory's
    ``agentflow.toml``. Raises ConfigurationError that names the file or variable and the field.
    """
    directory = directory or Path.cwd()
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    path = directory / FILE_NAME
    if path.is_file():
        try:
            read = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}", code="config/file") from error
        if read.get("sandbox") == "none":
            raise ConfigurationError(
                f"{path} may not switch the sandbox off",
                code="config/setting",
                hint="a file that comes with the files it would protect is not asked: pass sandbox='none' or --sandbox none",
            )
        base_url = read.get("base_url")
        if base_url is not None and not is_loopback(str(base_url)):
            raise ConfigurationError(
                f"{path} may name a model server on this machine only, not {clip(str(base_url), 200)}",
                code="config/setting",
                hint="it would be sent your key: pass base_url= or --base-url, or set AGENTFLOW_BASE_URL",
            )
        values.update(read)
        origin.update(dict.fromkeys(read, str(path)))
    for variable, name in _ENVIRONMENT.items():
        if environ.get(variable):
            values[name] = environ[variable]
            origin[name] = variable
    for name, value in arguments.items():
        if value is not None:
            values[name] = value
            origin[name] = "the arguments"
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        known = Settings.model_fields
        hint = did_you_mean(name, known) if name not in known else None
        raise ConfigurationError(
            f"{origin.get(name, 'the settings')}: {name}: {first['msg']}", code="config/setting", hint=hint
        ) from error


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine's loopback, by its address. ``localhost`` is the only name that counts.

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
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
