"""The parts of JSON Schema that servers take, as data: one row for each vendor and place, with its source and date.

If a vendor's page and its server disagree, the row follows the server. Keywords missing in a row are put into descriptions
for the model, and answers and arguments are always checked against the whole schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.providers.dialects.traits import SchemaRules

Place: TypeAlias = Literal["output", "tool", "strict tool"]
"""Where a schema stands in a request."""


@frozen
class Subset:
    """A part of JSON Schema.

    Parameters: ``source`` and ``date`` of the rule. ``keywords`` that are kept (None: all). ``formats`` that ``format`` may
    have (None: any); ``patterns`` which regular expressions: ``any``, ``linear`` (no look-around, no back-references),
    ``anchored`` (linear, from ``^`` to ``$``, without ``\\b``) or ``none``. ``strict`` says that the server enforces the schema, ``closed`` that
    objects have listed properties and no others, ``every`` that all of these are required, ``untyped`` that a schema may leave the type open.
    ``references`` and ``recursion`` say whether there may be references and circles of them, ``cut`` that a circle is cut with
    an open object; ``type_lists`` whether ``type`` may be a list;
    ``texts_only`` that values of ``enum`` are strings; ``items`` that each array says what its items are; ``empty`` that there may be no properties at all; ``fewest`` are the values of ``minItems`` (None: any).
    ``root_unions`` says whether the root may be a union; ``names`` is the pattern of property names. The rest are limits of the
    whole schema, None where there is none: levels of nesting, properties, values of ``enum``, characters of names and values, optional
    properties, and unions.
    """

    source: str
    date: str
    keywords: frozenset[str] | None = None
    formats: frozenset[str] | None = None
    patterns: Literal["any", "linear", "anchored", "none"] = "linear"
    strict: bool = False
    closed: bool = False
    every: bool = False
    untyped: bool = True
    references: bool = True
    recursion: bool = True
    cut: bool = False
    type_lists: bool = True
    texts_only: bool = False
    items: bool = True
    empty: bool = True
    fewest: frozenset[int] | None = None
    root_unions: bool = False
    names: re.Pattern[str] | None = None
    levels: int | None = None
    properties: int | None = None
    values: int | None = None
    characters: int | None = None
    optional: int | None = None
    unions: int | None = None


_SHAPE = frozenset(["type", "title", "description", "enum", "properties", "required", "items", "anyOf"])
_SHARED = frozenset(["$ref", "$defs", "const", "additionalProperties", "format"])
_NUMBERS = frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
_LENGTHS = frozenset(["minLength", "maxLength", "minItems", "maxItems"])
_NAMES = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_OPENAI_STRICT = Subset(
    "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas",
    "2026-02",
    _SHAPE | _SHARED | _NUMBERS | {"pattern", "minItems", "maxItems"},
    formats=frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]),
    strict=True,
    closed=True,
    every=True,
    untyped=False,
    levels=10,
    properties=5_000,
    values=1_000,
    characters=120_000,
)
_OPENAI_TOOL = Subset("https://github.com/nspady/google-calendar-mcp/issues/39", "2025-06")
"""A function that is not strict: an object without a union at the top, and arrays that declare their items."""
_ANTHROPIC_STRICT = Subset(
    "https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations",
    "2026-05",
    _SHAPE | _SHARED | {"minItems"},
    formats=frozenset(["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"]),
    patterns="none",
    strict=True,
    closed=True,
    untyped=False,
    recursion=False,
    type_lists=False,
    fewest=frozenset([0, 1]),
    optional=24,
    unions=16,
)
_ANTHROPIC_TOOL = Subset(
    "https://platform.claude.com/docs/en/managed-agents/self-hosted-sandboxes", "2026-09", items=False, names=_NAMES
)
"""A tool that is not strict: no union at the top, and names of a pattern."""
_GEMINI = Subset(
    "https://ai.google.dev/api/caching#Schema",
    "2026-02",
    _SHAPE | _LENGTHS | {"format", "pattern", "minimum", "maximum", "minProperties", "maxProperties"},
    formats=frozenset(["date-time", "enum"]),
    references=False,
    recursion=False,
    cut=True,
    untyped=False,
    type_lists=False,
    texts_only=True,
    empty=False,
    names=_NAMES,
)
_PLAIN = Subset(
    "https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md#json-schemas--gbnf",
    "2026-05",
    _SHAPE | _SHARED | _NUMBERS - {"multipleOf"} | _LENGTHS | {"oneOf", "allOf", "prefixItems", "pattern", "default"},
    patterns="anchored",
    root_unions=True,
)
"""The part that the grammars of llama.cpp and vLLM (xgrammar) share."""
_PLAIN_TOOL = replace(_OPENAI_TOOL, source=_PLAIN.source, patterns="anchored")
_COMMON = replace(_OPENAI_STRICT, patterns="anchored")
_COMMON_TOOL = replace(_ANTHROPIC_TOOL, patterns="anchored", items=True)
"""For gateways in front of many vendors, and unknown servers: the subset that all of them accept."""
_ROWS: Mapping[tuple[SchemaRules, Place], tuple[Subset, ...]] = MappingProxyType(
    {
        ("openai", "output"): (_OPENAI_STRICT, _OPENAI_TOOL),
        ("openai", "tool"): (_OPENAI_TOOL,),
        ("openai", "strict tool"): (_OPENAI_STRICT, _OPENAI_TOOL),
        ("anthropic", "output"): (_ANTHROPIC_STRICT, replace(_ANTHROPIC_STRICT, every=True)),
        ("anthropic", "tool"): (_ANTHROPIC_TOOL,),
        ("anthropic", "strict tool"): (replace(_ANTHROPIC_STRICT, names=_NAMES), _ANTHROPIC_TOOL),
        ("gemini", "output"): (_GEMINI,),
        ("gemini", "tool"): (_GEMINI,),
        ("gemini", "strict tool"): (_GEMINI,),
        ("common", "output"): (_COMMON, _COMMON_TOOL),
        ("common", "tool"): (_COMMON_TOOL,),
        ("common", "strict tool"): (replace(_COMMON, names=_NAMES), _COMMON_TOOL),
        ("plain", "output"): (_PLAIN,),
        ("plain", "tool"): (_PLAIN_TOOL,),
        ("plain", "strict tool"): (_PLAIN_TOOL,),
    }
)


def subsets_of(rules: SchemaRules, part: Place) -> tuple[Subset, ...]:
    """The parts that servers of ``rules`` take in ``part``, the one that is enforced most first."""
    return _ROWS[rules, part]
