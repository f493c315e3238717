"""What a server takes and what it refuses, beyond its dialect: a row for each vendor, found by the host of its address.

A dialect says how a request is written. Servers that speak the same one still differ in the fields they accept, in the ids and
schemas they allow and in the roles they know. Encoders ask the traits of the server and never its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

OutputForm: TypeAlias = Literal["json_schema", "json_object", "prompt"]
"""How a server is told the form of its answer: with a schema, as any JSON object, or in the words of the prompt alone."""
LimitField: TypeAlias = Literal["max_tokens", "max_completion_tokens", "max_output_tokens"]
SchemaRules: TypeAlias = Literal["openai", "anthropic", "gemini", "plain"]
"""Whose subset of JSON Schema a server takes."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a server takes.

    Parameters: ``vendor`` names the row; ``sure`` is False where the server is unknown and its traits are a guess from the
    dialect; ``limit_field`` holds the length of an answer; ``output`` says how the form of an answer is asked for;
    ``schemas`` whose rules schemas have to follow, and ``strict`` whether the server enforces one that is marked strict;
    ``usage_in_stream`` says that usage has to be asked for in streams (``stream_options``); ``system_role`` is the role of
    the system text; ``call_id`` is a regular expression that ids of tool calls have to match as a whole.
    """

    vendor: str = ""
    sure: bool = False
    limit_field: LimitField = "max_tokens"
    output: OutputForm = "json_schema"
    schemas: SchemaRules = "plain"
    strict: bool = False
    usage_in_stream: bool = True
    system_role: Literal["system", "developer", "user"] = "system"
    call_id: str = r"[A-Za-z0-9_-]{1,40}"


UNKNOWN = Traits()
"""The traits of a server that nobody knows."""
_OPENAI = Traits("openai", True, "max_completion_tokens", schemas="openai", strict=True)
_RESPONSES = Traits("openai", True, "max_output_tokens", schemas="openai", strict=True, call_id=r"[A-Za-z0-9_-]{1,64}")
_ANTHROPIC = Traits("anthropic", True, schemas="anthropic", strict=True, call_id=r"[A-Za-z0-9_-]{1,64}")
_DEFAULTS: Mapping[str, Traits] = MappingProxyType(
    {
        "anthropic": Traits(schemas="anthropic", call_id=_ANTHROPIC.call_id),
        "openai": Traits(limit_field="max_output_tokens", schemas="openai", call_id=_RESPONSES.call_id),
        "openai-chat": Traits(schemas="openai"),
    }
)
"""The guess for a server that nobody knows, by route."""
_HOSTS: Mapping[tuple[str, str], Traits] = MappingProxyType(
    {
        ("anthropic", "api.anthropic.com"): _ANTHROPIC,
        ("openai", "api.openai.com"): _RESPONSES,
        ("openai-chat", "api.openai.com"): _OPENAI,
    }
)
"""The traits of known servers, by route and by the end of the host's name."""


def traits_of(route: str, address: str) -> Traits:
    """The traits of the server at ``address`` that is spoken to over ``route`` (``openai-chat``, ``openai``, ``anthropic``)."""
    host = (urlsplit(address).hostname or "").lower()
    for (of, end), traits in _HOSTS.items():
        if of == route and (host == end or host.endswith("." + end)):
            return traits
    return _DEFAULTS.get(route, UNKNOWN)


def issuer_of(route: str, address: str, organisation: str = "") -> str:
    """Who issues the ids, signatures and encrypted blocks of an answer: adapter, address and organisation, never a key.

    Blocks go back to their issuer alone. Credentials in ``address`` are no part of it.
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = "" if parts.port is None else f":{parts.port}"
    return " ".join([route, f"{host}{port}{parts.path.rstrip('/')}", *([organisation] if organisation else [])])
