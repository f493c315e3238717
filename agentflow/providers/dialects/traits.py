"""The features that a server takes or refuses, beyond its dialect: the row of a known server, a guess, or the traits that a user states.

A dialect says how a request is written. Servers that speak the same one still differ in the fields they accept, in the ids and
schemas they allow and in the roles they know. Encoders ask the traits of the server and never its name. The rows of known
servers are in :mod:`agentflow.providers.known_servers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from agentflow.core.data.frozen import frozen
from agentflow.lib.option_table import wrong_value

OutputForm: TypeAlias = Literal["json_schema", "json_object", "prompt"]
"""How a server learns the form of its answer: by a schema, as any JSON object, or by the prompt alone."""
LimitField: TypeAlias = Literal["max_tokens", "max_completion_tokens", "max_output_tokens"]
SchemaRules: TypeAlias = Literal["openai", "anthropic", "gemini", "common", "plain"]
"""The subset of JSON Schema that a server accepts: a vendor's, the common part of all, or that of most grammars
(``plain``)."""
_WEAKER: Mapping[str, OutputForm] = MappingProxyType({"json_schema": "json_object", "json_object": "prompt"})
_FORMATS = ("response_format", "text", "output_config", "json_schema")
"""Fields that hold the form of the answer, and the most often refused value."""
_LIMITS: Mapping[str, LimitField] = MappingProxyType(
    {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
)
_DECIDED_HERE = frozenset(["vendor", "sure", "stated", "source"])
"""Fields that no user states."""
_MEANT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_tokens_field"), "limit_field"),
        **dict.fromkeys(("response_format", "json_schema", "json_object", "json_mode", "output_config"), "output"),
        **dict.fromkeys(("stream_options", "usage_in_stream", "prompt_cache_key", "store", "without"), "omit"),
        **dict.fromkeys(("role", "developer", "developer_role"), "system_role"),
        **dict.fromkeys(("local", "private"), "own"),
        **dict.fromkeys(("parallel", "gate", "concurrency", "n_parallel", "num_parallel"), "slots"),
    }
)
"""Names that people write for a trait."""


# Traits, not names of vendors: the same dialect differs from server to server (decision 38)
@frozen
class Traits:
    """The API of a model server. ``Provider(traits={"limit_field": "max_completion_tokens"})`` states parts of it.

    Parameters:
        limit_field: the request field that holds the maximum length of an answer.
        output: how the form of an answer is asked for: ``json_schema``, ``json_object`` (any JSON object; the schema is in the
            prompt) or ``prompt`` (no field at all).
        output_with_tools: whether that field may be sent together with tools.
        output_in_streams: whether it may be sent in a request for a stream.
        schemas: the subset of JSON Schema that the server takes, by vendor.
        strict: whether the server enforces a schema marked strict.
        system_role: the role of the system text in Chat Completions.
        call_id: a regular expression that the ids of tool calls have to match as a whole.
        model_names: whether the name of a model shows its abilities, rather than being the choice of a deployment or a gateway.
        alternates: whether the roles of messages have to alternate, the user's first.
        signed: whether the server refuses its own thinking without a signature or encrypted content.
        echo: where keys that the server added to an answer and to its calls, thinking among them, go back to it: in ``all``
            messages, in those with tool ``calls``, in ``none``.
        call_signature: the ``thought_signature`` of a call that another server wrote.
        blank_thinking: the key of at least an empty text in an answer with tool calls.
        description_limit: the most characters of a tool's description; the rest continues in the system text. 0: any length.
        least_limit: the smallest length of an answer that may be asked for; a smaller one is raised to it.
        tools: whether the model behind the server calls tools; a request that offers some to one that does not is refused here.
        pictures: whether the model behind the server takes pictures; if not, pictures from tools are described in words.
        user_after_results: whether the user may speak directly after the results of tools in Chat Completions.
        omit: request fields that the server refuses, which are left out: ``stream_options``, ``prompt_cache_key``, ``store``.
        own: whether the server is one of your own rather than a vendor: it answers few calls at once and each slowly. Decided by
            the address (this machine or a private network) unless stated.
        slots: the calls that the server answers at once. 0: not known.
        tool_search: whether the server itself finds deferred tools, with models that can.
        vendor: the name of the row; empty for an unknown server.
        sure: False where the traits are a guess from the dialect.
        stated: the names that a user stated. source: where the row's rules are documented, and the month they were read.
    """

    vendor: str = ""
    sure: bool = False
    limit_field: LimitField = "max_tokens"
    output: OutputForm = "json_schema"
    schemas: SchemaRules = "plain"
    strict: bool = False
    system_role: Literal["system", "developer", "user"] = "system"
    call_id: str = r"[A-Za-z0-9_-]{1,40}"
    output_with_tools: bool = True
    output_in_streams: bool = True
    model_names: bool = False
    alternates: bool = False
    signed: bool = False
    echo: Literal["all", "calls", "none"] = "all"
    call_signature: str = ""
    blank_thinking: str = ""
    description_limit: int = 0
    least_limit: int = 1
    tools: bool = True
    pictures: bool = True
    user_after_results: bool = True
    omit: tuple[str, ...] = ()
    own: bool = False
    slots: int = 0
    tool_search: bool = False
    stated: frozenset[str] = frozenset()
    source: str = ""

    @property
    def enforces(self) -> bool:
        """Whether the server is known to hold each answer to its schema, so that the prompt need not repeat the schema."""
        said = self.sure or {"output", "strict"} <= self.stated
        everywhere = self.output_with_tools and self.output_in_streams
        return said and everywhere and self.strict and self.output == "json_schema"

    def output_form(self, *, tools: bool, streaming: bool) -> OutputForm:
        """How the form of one answer is asked for, in a request with or without tools and streaming."""
        alone = (tools and not self.output_with_tools) or (streaming and not self.output_in_streams)
        return "prompt" if alone else self.output

    def without(self, field: str) -> Traits | None:
        """The traits of a server that refused the request ``field``. None if a user stated the trait, or nothing can be changed."""
        if field in _FORMATS:
            name, value = "output", _WEAKER.get(self.output)
            if field == "output_config" and value is not None:
                value = "prompt"
        elif field in _LIMITS:
            name, value = "limit_field", _LIMITS[field] if self.limit_field == field else None
        elif field == "strict":
            name, value = "strict", False if self.strict else None
        else:
            return None if field in self.omit else replace(self, omit=(*self.omit, field))
        if value is None or name in self.stated:
            return None
        stated = (
            self.stated if name == "output" else self.stated | {name}
        )  # once the limit was renamed, it is not renamed back
        return replace(self, stated=stated, **cast(Any, {name: value}))


def hint_for_field(field: str, traits: Traits) -> str:
    """The advice for omitting the request ``field`` that a server refused."""
    if field in _FORMATS:
        weaker = _WEAKER.get(traits.output, "prompt")
        return f"ask for the form of answers in another way: Provider(traits={{'output': '{weaker}'}})"
    if field in _LIMITS:
        return f"name the field that the server takes: Provider(traits={{'limit_field': '{_LIMITS[field]}'}})"
    if field == "strict":
        return "Provider(traits={'strict': False}) sends no strict schemas"
    return f"leave the field out: settings={{'{field}': None}} for one task, Provider(traits={{'omit': ['{field}']}}) for the server"


def stated_traits(traits: Mapping[str, Any] | Traits, base: Traits | None = None) -> Traits:
    """``base`` (default: the guess without a dialect) with the traits that a user states: a mapping of names, or whole Traits.

    Raises ConfigurationError (``config/option``) for an unknown name and for a value that the trait cannot have.
    """
    if isinstance(traits, Traits):
        return replace(traits, sure=True, stated=STATED)
    if not isinstance(traits, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from users
        raise wrong_value(
            "Provider",
            "traits",
            traits,
            "is neither a mapping nor Traits",
            "write Provider(traits={'output': 'json_object'})",
        )
    for name in traits:
        if name not in STATED:
            meant = _MEANT.get(str(name))
            from agentflow.lib.option_hints import unknown_field

            error = unknown_field(str(name), "traits", STATED)
            if meant is not None:
                error.hint = f"the trait is called '{meant}': {_EXAMPLES[meant]}"
            raise error
    from pydantic import TypeAdapter, ValidationError

    try:
        valid = TypeAdapter(Traits).validate_python({**traits})
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0])
        raise wrong_value(
            "traits", name, traits[name], f"is refused: {fault['msg']}", _EXAMPLES.get(name, "see docs/servers.md")
        ) from None
    base = base or UNKNOWN
    said = {name: getattr(valid, name) for name in traits}
    if valid.omit:
        said["omit"] = tuple(dict.fromkeys((*base.omit, *valid.omit)))
    return replace(base, **said, stated=base.stated | frozenset(traits))


_EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "limit_field": "write Provider(traits={'limit_field': 'max_completion_tokens'})",
        "output": "write Provider(traits={'output': 'json_object'}), 'json_schema' or 'prompt'",
        "omit": "write Provider(traits={'omit': ['stream_options']})",
        "system_role": "write Provider(traits={'system_role': 'developer'}), 'system' or 'user'",
        "own": "write Provider(traits={'own': True}) for a server of your own, False for one that passes calls on to a vendor",
        "slots": "write Provider(traits={'slots': 2}), the calls that the server answers at once",
    }
)
STATED: frozenset[str] = frozenset([each.name for each in fields(Traits)]) - _DECIDED_HERE
"""The traits that a user can state."""
UNKNOWN = Traits()
"""The traits of an unknown server."""


def issuer_of(route: str, address: str, organisation: str = "") -> str:
    """Who issues the ids, signatures and encrypted blocks of an answer: adapter, address and organisation, never a key.

    Blocks are only sent back to their issuer. Credentials in ``address`` are not part of it.
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = "" if parts.port is None else f":{parts.port}"
    return " ".join([route, f"{host}{port}{parts.path.rstrip('/')}", *([organisation] if organisation else [])])
