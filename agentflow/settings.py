"""Typed settings: arguments, then the environment, then ``agentflow.toml``, then defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, PrivateAttr, ValidationError

from agentflow.core.call.provenance import narrowing
from agentflow.core.data.errors import AgentflowError, ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Surface
from agentflow.executors.policy import CommandPolicy
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.lib.file_writer import FILE_NAME
from agentflow.lib.text.suggest import did_you_mean
from agentflow.providers.clocks import clocks_of
from agentflow.providers.dialects.address import check_base_url
from agentflow.providers.dialects.retry import retry_of
from agentflow.providers.dialects.traits import stated_traits
from agentflow.providers.prices import read_prices
from agentflow.providers.rates import read_rates
from agentflow.providers.table import RouterSettings, check_model

_ARGUMENTS = "the arguments"
ENVIRONMENT = {
    "AGENTFLOW_MODEL": "model",
    "AGENTFLOW_BASE_URL": "base_url",
    "AGENTFLOW_ROOT": "root",
    "AGENTFLOW_TASKS": "tasks",
    "AGENTFLOW_WORKFLOWS": "workflows",
    "AGENTFLOW_SANDBOX": "sandbox",
    "AGENTFLOW_EMBEDDINGS": "embeddings",
    "AGENTFLOW_EMBEDDINGS_URL": "embeddings_url",
}
"""The variables, with the settings that they are."""


def read_limits(values: Mapping[str, Any], base: Limits | None = None) -> Limits:
    """Limits from names and numbers, over ``base``. Raises ConfigurationError for an unknown or wrong limit."""
    names = [field.name for field in fields(Limits)]
    for name in values:
        if name not in names:
            raise ConfigurationError(
                f"there is no limit '{name}'",
                code="config/limits",
                hint=did_you_mean(name, names) or f"the limits are {', '.join(names)}",
            )
    return replace(base or Limits(), **values)


def _judged(judge: Callable[[Any], object]) -> AfterValidator:
    """A field that its part must accept: errors of that part's constructor are the field's errors."""

    def check(value: Any) -> Any:
        try:
            if value is not None:
                judge(value)
        except AgentflowError as error:
            raise ValueError(error.message) from error
        return value

    return AfterValidator(check)


def _judge_servers(table: dict[str, Any]) -> None:
    from agentflow.connect.config import servers_of_table

    servers_of_table(table)


def _judge_purses(table: dict[str, Any]) -> None:
    from agentflow.core.data.allowances import read_allowances

    read_allowances(table)


def _judge_rules(rules: list[str]) -> None:
    CommandPolicy(allow=rules)


class Settings(BaseModel):
    """The contents of an ``agentflow.toml``. The key of a model is never in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    model: Annotated[str | None, _judged(check_model)] = None
    """The model, as ``dialect:name``."""
    fallbacks: list[str] = []
    """Models to try after it, in order, when a call fails before anything was delivered."""
    base_url: Annotated[str | None, _judged(check_base_url)] = None
    """The address of the model server. A file may only name one on this machine, since it is sent your key."""
    root: str = "."
    """The directories that file tools and the index may see. In an untrusted file, below its directory."""
    roots: list[str] = []
    """Further roots. In an untrusted file, below its directory."""
    tasks: str | None = None
    """A directory of XML task templates. In an untrusted file, below its directory."""
    workflows: str | None = None
    """A directory of saved workflows. In an untrusted file, below its directory."""
    sandbox: Annotated[str, _judged(SandboxChoice)] = "auto"
    """The sandbox of commands: ``auto``, ``bubblewrap``, ``landlock`` or ``none``, which no file may set."""
    readable: list[str] = []
    """Files and directories that commands and MCP servers may read in the sandbox, in addition to the roots and the
    system's. Read from a file only after ``agentflow trust``."""
    allow_commands: Annotated[list[str], _judged(_judge_rules)] = []
    """Patterns of commands that models may run unasked (``git log *``, ``python *``). Read from a file only after ``agentflow trust``."""
    deny_commands: Annotated[list[str], _judged(_judge_rules)] = []
    """Patterns of commands to deny always."""
    shell: bool = False
    """Grant command texts with shell operators. Read from a file only after ``agentflow trust``."""
    limits: Annotated[dict[str, Any], _judged(read_limits)] = {}
    """A table of limits, by name. An untrusted file can only lower the defaults."""
    rates: Annotated[dict[str, Any], _judged(read_rates)] = {}
    """A table of models (``"anthropic:*"``), each with a table of ``requests_per_min`` and ``tokens_per_min``."""
    purses: Annotated[dict[str, Any], _judged(_judge_purses)] = {}
    """A table of purses by name or pattern (``"user-*"``), each a table of ``usd``, ``tokens``, ``model_calls`` and ``per``, for
    flows without ``purses=``. Read from a file only after ``agentflow trust``."""
    prices: Annotated[dict[str, Any], _judged(read_prices)] = {}
    """A table of models, each with a table of ``input`` and ``output`` dollars per million tokens; cannot lower a price that
    is known. Those of an untrusted file only raise prices."""
    model_settings: dict[str, Any] = {}
    """Native request fields of the model's dialect. An untrusted file may only set those of sampling and thinking."""
    traits: Annotated[dict[str, Any], _judged(stated_traits)] = {}
    """A table of traits of the model server, if it is unknown or differs: ``output = "json_object"``. An untrusted file may
    set how requests are written, but not ``own``, ``slots``, ``omit`` and the like."""
    clocks: Annotated[dict[str, Any], _judged(clocks_of)] = {}
    """A table of how long model calls may take, in seconds: ``connect_s``, ``first_byte_s``, ``plain_first_byte_s``, ``idle_s``,
    ``wall_s``."""
    retry: Annotated[dict[str, Any], _judged(retry_of)] = {}
    """A table of how failed model calls are made again: ``attempts`` in all, ``base_s``, ``cap_s``, ``retry_after_cap_s``."""
    system: str = ""
    """The base system prompt. Read from a file only after ``agentflow trust``."""
    concurrency: int | None = None
    """Model calls at once; in an untrusted file at most 256."""
    rerank: bool = False
    """Let a model re-rank the results of the index."""
    embeddings: str | None = None
    """A model that finds files by their meaning. No file may name one, since it is sent the files."""
    embeddings_url: Annotated[str | None, _judged(check_base_url)] = None
    """The server of that model. No file may name it."""
    mcp: Annotated[dict[str, Any], _judged(_judge_servers)] = {}
    """A table of MCP servers by name, each a table of ``command`` and ``env``, or ``url`` and ``headers``, and the options of
    ``McpStdio`` and ``McpHttp``. Read from a file only after ``agentflow trust``."""
    provenance: Annotated[dict[str, Any], _judged(narrowing)] = {}
    """A provenance policy, as in a policy file: ``default``, ``strict`` and ``[[provenance.sink]]``. It is in force
    together with the flow's own, and so can only narrow it; ``sources`` belongs to the flow's own."""
    surface: Surface = "sexp"
    """The language of the programs that models write for ``solve``: ``sexp`` or ``python``."""
    decompose: int = 0
    """Maximum rounds for a written program to split a task that ran out of context or output (0: never)."""
    prompt_cache: Literal["5m", "1h", False] | None = None
    """The time that providers are asked to cache the beginnings of prompts: ``5m``, ``1h`` or ``false``; by default where it
    pays."""

    _vouched: bool = PrivateAttr(default=True)

    @property
    def prices_name_models(self) -> bool:
        """Whether the ``prices`` count for models of otherwise unknown price: unless they come from an untrusted file."""
        return self._vouched

    def doubt_prices(self) -> None:
        """Let the ``prices`` only raise the built-in ones: they come from an untrusted file."""
        self._vouched = False

    def for_router(self) -> RouterSettings:
        """The settings of the model's server, as keywords of :class:`~agentflow.providers.table.Router`."""
        return {
            "base_url": self.base_url,
            "settings": self.model_settings,
            "traits": self.traits or None,
            "clocks": self.clocks,
            "retry": self.retry,
            "gate": self.concurrency,
        }

    def make_limits(self) -> Limits:
        """The limits table as Limits."""
        return read_limits(self.limits)


def load_settings(
    directory: Path | None = None, environ: Mapping[str, str] | None = None, **arguments: Any
) -> Settings:
    """Settings for ``directory`` (default: the working directory).

    ``arguments`` other than None come first, then ``AGENTFLOW_*`` variables of ``environ``, then the directory's
    ``agentflow.toml``. Raises ConfigurationError naming the file or variable and the field.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    file = read_file(directory or _working_directory())
    if file is not None:
        values.update(file.values)
        origin.update(dict.fromkeys(file.values, str(file.path)))
    for variable, name in ENVIRONMENT.items():
        if environ.get(variable):
            values[name] = environ[variable]
            origin[name] = variable
    for name, value in arguments.items():
        if value is not None:
            values[name] = value
            origin[name] = _ARGUMENTS
    settings = _checked(values, origin)
    if file is not None and "prices" not in file.trusted and origin.get("prices") == str(file.path):
        settings.doubt_prices()
    return settings


@frozen
class SettingsFile:
    """The settings of a directory: the ``path`` of the file, its ``values``, and which of them it gives because it is ``trusted``."""

    path: Path
    content: bytes
    values: Mapping[str, Any]
    trusted: tuple[str, ...]

    def told(self) -> str:
        """A line that lists the settings from the file."""
        names = [f"{name} (trusted)" if name in self.trusted else name for name in self.values]
        return f"from {self.path.name}: {', '.join(names) or 'nothing'}"


def read_file(directory: Path, *, trusting: bool = False) -> SettingsFile | None:
    """The ``agentflow.toml`` of a directory; None if there is none. Blocking.

    ``trusting``: the user's trust is not checked. Raises ConfigurationError: ``config/file``, and ``config/setting`` for
    invalid settings and those the file may not set.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    import tomllib

    try:
        content = path.read_bytes()
        read = tomllib.loads(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}",
            code="config/file",
            hint=None if isinstance(error, OSError) else 'it is TOML: texts stand in quotes, model = "anthropic:NAME"',
        ) from error
    from agentflow.file_rules import check_grants, check_names, grants_of

    check_names(path, read)
    _checked(read, dict.fromkeys(read, str(path)))
    trusted = tuple(grants_of(path, read)) if trusting else check_grants(path, read, content)
    return SettingsFile(path, content, read, trusted)


def _checked(values: Mapping[str, Any], origin: Mapping[str, str]) -> Settings:
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _setting_error(error, origin) from error


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigurationError(
            f"the working directory cannot be used: {error.strerror}",
            code="config/directory",
            hint="start in a directory that exists",
        ) from error


def _setting_error(error: ValidationError, origin: Mapping[str, str]) -> ConfigurationError:
    """The first fault as an error that names file or variable, key (inside of a table too) and value."""
    from agentflow.lib.text.toml_words import fault_words, reworded

    fault = error.errors()[0]
    name = str(fault["loc"][0])
    key = name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"][1:])
    judgement = fault.get("ctx", {}).get("error")
    cause = judgement.__cause__ if isinstance(judgement, ValueError) else None
    if isinstance(cause, AgentflowError):
        return reworded(cause, None if origin[name] == _ARGUMENTS else f"{origin[name]}: {key}: ")
    if fault["type"] == "extra_forbidden":
        names = [each for each in Settings.model_fields if each != "limits"]
        message, hint = "there is no such setting", did_you_mean(name, names) or f"the settings are {', '.join(names)}"
    else:
        message = fault_words(fault["msg"], fault["input"])
        hint = f'write {key} = ["..."]' if fault["type"] == "list_type" else None
    return ConfigurationError(f"{origin[name]}: {key}: {message}", code="config/setting", hint=hint)
