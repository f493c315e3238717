"""Typed settings: arguments, then the environment, then ``agentflow.toml``, then defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from agentflow.connect.config import servers_of_table
from agentflow.core.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.limits import Limits
from agentflow.core.provenance import narrowing
from agentflow.core.source import Surface
from agentflow.executors.policy import CommandPolicy
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.lib.suggest import did_you_mean
from agentflow.lib.trust import FILE_NAME, is_trusted
from agentflow.providers.address import check_base_url
from agentflow.providers.prices import read_prices
from agentflow.providers.rates import read_rates
from agentflow.providers.table import check_model
from agentflow.providers.traits import stated_traits

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


@dataclass(frozen=True, slots=True)
class FileRule:
    """What a directory's file may not do with a setting: ``why``, and what to do ``instead``. ``trusting``: unless the user
    trusts the file as it is.

    ``permits`` judges the values that it may have there; without it the file may not name the setting at all.
    """

    why: str
    instead: str
    permits: Callable[[str], bool] | None = None
    trusting: bool = False


def _is_sandbox(name: str) -> bool:
    return name != "none"


_SENT_FILES = "it would have the files sent away"
_KEPT_ELSEWHERE = "it would decide where what a run says is kept"

_FREE = (
    "model fallbacks root roots tasks workflows allow_commands deny_commands shell limits rates prices model_settings traits"
    " system concurrency rerank surface decompose prompt_cache provenance"
)

FILE_RULES: Mapping[str, FileRule | None] = MappingProxyType(
    {
        **dict.fromkeys(_FREE.split()),
        "sandbox": FileRule(
            "a file that comes with the files it would protect is not asked",
            "pass sandbox='none' or --sandbox none",
            permits=_is_sandbox,
        ),
        "base_url": FileRule(
            "a server elsewhere would be sent your key",
            "pass base_url= or --base-url, or set AGENTFLOW_BASE_URL",
            permits=lambda url: is_loopback(url),
        ),
        "api_key": FileRule("a key in a file is read by whoever reads the file", "set the provider's variable"),
        "embeddings": FileRule(_SENT_FILES, "pass embeddings= or --embeddings, or set AGENTFLOW_EMBEDDINGS"),
        "embeddings_url": FileRule(
            _SENT_FILES, "pass embeddings_url= or --embeddings-url, or set AGENTFLOW_EMBEDDINGS_URL"
        ),
        "otel": FileRule("it would have what runs say sent away", "pass --otel, or subscribe an OpenTelemetry"),
        "mcp": FileRule(
            "it would start programs and send them data",
            "look at it, then run agentflow mcp trust; or name servers with mcp= or --mcp",
            trusting=True,
        ),
        "durable": FileRule(_KEPT_ELSEWHERE, "pass durable= or --durable"),
        "record": FileRule(_KEPT_ELSEWHERE, "pass record=, --no-record or --events-file"),
        "notes": FileRule(_KEPT_ELSEWHERE, "pass notes= or --notes"),
        "index_cache": FileRule("it would decide where the files' texts are kept", "pass index_cache="),
    }
)
"""What a directory's file may set, which may come with somebody else's project: without a rule, whatever the setting takes.

Its ``prices`` name those that are not known and raise known ones, but lower none: :class:`~agentflow.providers.prices.Prices`.
"""


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
    """A field that must be accepted by the part it is for: what that part's constructor raises is the field's error."""

    def check(value: Any) -> Any:
        try:
            if value is not None:
                judge(value)
        except AgentflowError as error:
            raise ValueError(error.message) from error
        return value

    return AfterValidator(check)


def _judge_rules(rules: list[str]) -> None:
    CommandPolicy(allow=rules)


class Settings(BaseModel):
    """What an ``agentflow.toml`` may say. The key of a model never stands in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str | None, _judged(check_model)] = None
    """The model, as ``dialect:name``."""
    fallbacks: list[str] = []
    """Models to try after it, in order, when a call fails before anything was delivered."""
    base_url: Annotated[str | None, _judged(check_base_url)] = None
    """The address of the model server. A file may only name one on this machine, since it is sent your key."""
    root: str = "."
    """What file tools and the index may see."""
    roots: list[str] = []
    """Further roots."""
    tasks: str | None = None
    """A directory of XML task templates."""
    workflows: str | None = None
    """A directory of saved workflows."""
    sandbox: Annotated[str, _judged(SandboxChoice)] = "auto"
    """What confines commands: ``auto``, ``bubblewrap``, ``landlock`` or ``none``, which no file may say."""
    allow_commands: Annotated[list[str], _judged(_judge_rules)] = []
    """Patterns of commands that models may run unasked (``git log *``, ``python *``)."""
    deny_commands: Annotated[list[str], _judged(_judge_rules)] = []
    """Patterns of commands that nobody may run."""
    shell: bool = False
    """Grant command texts with shell operators."""
    limits: Annotated[dict[str, Any], _judged(read_limits)] = {}
    """A table of limits, by name."""
    rates: Annotated[dict[str, Any], _judged(read_rates)] = {}
    """A table of models (``"anthropic:*"``), each with a table of ``requests_per_min`` and ``tokens_per_min``."""
    prices: Annotated[dict[str, Any], _judged(read_prices)] = {}
    """A table of models, each with a table of ``input`` and ``output`` dollars per million tokens; cannot lower a price that
    is known."""
    model_settings: dict[str, Any] = {}
    """Native request fields of the model's dialect."""
    traits: Annotated[dict[str, Any], _judged(stated_traits)] = {}
    """A table of what the model server takes, where it is not known or differs: ``output = "json_object"``."""
    system: str = ""
    """The base system prompt."""
    concurrency: int | None = None
    """Model calls at once."""
    rerank: bool = False
    """Let a model re-rank what the index finds."""
    embeddings: str | None = None
    """A model that finds files by what they mean. No file may name one, since it is sent the files."""
    embeddings_url: Annotated[str | None, _judged(check_base_url)] = None
    """The server of that model. No file may name it."""
    mcp: Annotated[dict[str, Any], _judged(servers_of_table)] = {}
    """A table of MCP servers by name, each a table of ``command`` and ``env``, or ``url`` and ``headers``, and the options of
    ``McpStdio`` and ``McpHttp``. Read from a file only after ``agentflow mcp trust``."""
    provenance: Annotated[dict[str, Any], _judged(narrowing)] = {}
    """A policy of where values may go, as in a policy file: ``default``, ``strict`` and ``[[provenance.sink]]``. It is in force beside the flow's own, and so can
    only narrow it; ``sources`` is for that one."""
    surface: Surface = "sexp"
    """The language in which models write programs for ``solve``: ``sexp`` or ``python``."""
    decompose: int = 0
    """Rounds in which a task that ran out of context or output is split up by a written program (0: never)."""
    prompt_cache: Literal["5m", "1h", False] | None = None
    """How long providers are asked to keep what prompts begin with: ``5m``, ``1h`` or ``false``; else where it pays."""

    def make_limits(self) -> Limits:
        """The limits table as Limits."""
        return read_limits(self.limits)


def load_settings(
    directory: Path | None = None, environ: Mapping[str, str] | None = None, **arguments: Any
) -> Settings:
    """Settings for ``directory`` (default: the working directory).

    ``arguments`` that are not None come first, then ``AGENTFLOW_*`` variables of ``environ``, then the directory's
    ``agentflow.toml``. Raises ConfigurationError that names the file or variable and the field.
    """
    directory = directory or _working_directory()
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    path = directory / FILE_NAME
    if path.is_file():
        try:
            content = path.read_bytes()
            read = tomllib.loads(content.decode("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(
                f"{path} cannot be read: {error}",
                code="config/file",
                hint=None
                if isinstance(error, OSError)
                else 'it is TOML: texts stand in quotes, model = "anthropic:NAME"',
            ) from error
        _check_file(path, read, content)
        values.update(read)
        origin.update(dict.fromkeys(read, str(path)))
    for variable, name in ENVIRONMENT.items():
        if environ.get(variable):
            values[name] = environ[variable]
            origin[name] = variable
    for name, value in arguments.items():
        if value is not None:
            values[name] = value
            origin[name] = _ARGUMENTS
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


def _check_file(path: Path, read: Mapping[str, Any], content: bytes) -> None:
    """Raise ConfigurationError (``config/setting``) for what a directory's file may not set."""
    for name, rule in FILE_RULES.items():
        if rule is None or name not in read or (rule.permits is not None and rule.permits(str(read[name]))):
            continue
        if rule.trusting and is_trusted(path, content):
            continue
        value = "" if rule.permits is None else f" to {clip(str(read[name]), 200)!r}"
        raise ConfigurationError(
            f"{path} may not set {name}{value}", code="config/setting", hint=f"{rule.why}: {rule.instead}"
        )


def _setting_error(error: ValidationError, origin: Mapping[str, str]) -> ConfigurationError:
    """The first fault as an error that names file or variable, key (inside of a table too) and value."""
    fault = error.errors()[0]
    name = str(fault["loc"][0])
    key = name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"][1:])
    judgement = fault.get("ctx", {}).get("error")
    cause = judgement.__cause__ if isinstance(judgement, ValueError) else None
    if isinstance(cause, AgentflowError):
        where = "" if origin[name] == _ARGUMENTS else f"{origin[name]}: {key}: "
        return ConfigurationError(where + cause.message, code=cause.code, hint=cause.hint)
    if fault["type"] == "extra_forbidden":
        names = [each for each in Settings.model_fields if each != "limits"]
        message, hint = "there is no such setting", did_you_mean(name, names) or f"the settings are {', '.join(names)}"
    else:
        message = f"{fault['msg']}, not {clip(repr(fault['input']), 80)}"
        hint = f'write {key} = ["..."]' if fault["type"] == "list_type" else None
    return ConfigurationError(f"{origin[name]}: {key}: {message}", code="config/setting", hint=hint)


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
