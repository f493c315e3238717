"""Translates one JSON Schema into the part of JSON Schema that a server takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.errors import clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelRequest, Notice, ToolSpec
from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_schema import MAX_NESTING, MAX_NODES, target
from agentflow.lib.schema.json_types import type_name
from agentflow.lib.schema.linear_pattern import LinearPatterns
from agentflow.providers.dialects.traits import OutputForm, SchemaRules
from agentflow.providers.dialects.wire import Wire

Place: TypeAlias = Literal["output", "tool", "strict tool"]
"""The position of a schema in a request."""


@frozen
class Subset:
    """A part of JSON Schema.

    Parameters: ``source`` and ``date`` of the rule. ``keywords`` to keep (None: all). ``formats`` that ``format`` may
    have (None: any); ``patterns`` which regular expressions: ``any``, ``linear`` (no look-around, no back-references),
    ``anchored`` (linear, from ``^`` to ``$``, without ``\\b``) or ``none``. ``strict`` says that the server enforces the schema, ``closed`` that
    objects have listed properties and no others, ``every`` that all of these are required, ``untyped`` that a schema may leave the type open.
    ``references`` and ``recursion`` say whether there may be references and circles of them, ``cut`` that a circle is cut with
    an open object; ``type_lists`` whether ``type`` may be a list;
    ``texts_only`` that values of ``enum`` are strings; ``items`` that each array declares its items; ``empty`` that the properties may be empty; ``fewest`` are the values of ``minItems`` (None: any).
    ``root_unions`` says whether the root may be a union; ``names`` is the pattern of property names. The rest are limits of the
    whole schema, None for no limit: levels of nesting, properties, values of ``enum``, characters of names and values, optional
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
"""A non-strict function: an object without a union at the top, and arrays that declare their items."""
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
"""A non-strict tool: no union at the top, and names of a pattern."""
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
    """The parts that servers of ``rules`` take in ``part``, the most enforced one first."""
    return _ROWS[rules, part]


_LONG_ENUM, _LONGEST_ENUM = 250, 15_000
"""Beyond so many values, the texts of one ``enum`` have a limit of characters of their own (OpenAI, structured outputs)."""
_HERE = "#/$defs/"


def is_finite(schema: Mapping[str, Any]) -> bool:
    """Whether a schema with all properties required has a finite value."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    finite: set[str] = set()
    while True:
        ending = {f"{_HERE}{name}" for name, each in definitions.items() if _ends(each, finite)}
        ending |= {"#"} if _ends(schema, finite) else set()
        if ending <= finite:
            return "#" in finite
        finite |= ending


def _ends(schema: Mapping[str, Any], finite: set[str]) -> bool:
    if "$ref" in schema:
        return schema["$ref"] in finite
    if "anyOf" in schema:
        return any([_ends(each, finite) for each in schema["anyOf"]])
    if "properties" in schema:
        return all([_ends(schema["properties"][name], finite) for name in schema.get("required", ())])
    return not schema.get("minItems") or _ends(schema.get("items", {}), finite)


class _Size:
    """The size of a schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.properties = self.values = self.characters = self.optional = self.unions = 0
        self.long_enum = False
        self._definitions: dict[str, Any] = schema.get("$defs", {})
        self._levels: dict[str, int] = {}
        self.characters += sum(map(len, self._definitions))
        self.levels = self._visit(schema)
        for name in self._definitions:
            self._level(f"{_HERE}{name}")

    def _level(self, ref: str) -> int:
        """The levels of a definition, which is counted once; a circle is followed once."""
        if ref not in self._levels and ref.startswith(_HERE):
            self._levels[ref] = 0
            self._levels[ref] = self._visit(self._definitions[ref.removeprefix(_HERE)])
        return self._levels.get(ref, 0)

    def _visit(self, rules: Mapping[str, Any]) -> int:
        if "$ref" in rules:
            return self._level(rules["$ref"])
        properties: dict[str, Any] = rules.get("properties", {})
        self.properties += len(properties)
        self.characters += sum(map(len, properties))
        self.optional += len(properties) - len(rules.get("required", ()))
        self.unions += "anyOf" in rules or isinstance(rules.get("type"), list)
        values: list[Any] = rules.get("enum", [rules["const"]] if "const" in rules else [])
        texts = sum([len(each) for each in values if isinstance(each, str)])
        self.values += len(values)
        self.characters += texts
        self.long_enum = self.long_enum or (len(values) > _LONG_ENUM and texts > _LONGEST_ENUM)
        inside: Sequence[Any] = [*properties.values(), *([rules["items"]] if "items" in rules else [])]
        deepest = max([self._visit(each) for each in inside], default=0) + bool(inside)
        return max([deepest, *[self._visit(each) for each in cast("list[Any]", rules.get("anyOf", ()))]])


def fits(schema: Mapping[str, Any], subset: Subset) -> bool:
    """Whether a schema keeps the limits of a subset."""
    limits = {
        name: getattr(subset, name) for name in ("levels", "properties", "values", "characters", "optional", "unions")
    }
    if not any([limit is not None for limit in limits.values()]):
        return True
    size = _Size(schema)
    if subset.values is not None and size.long_enum:
        return False
    return all([limit is None or getattr(size, name) <= limit for name, limit in limits.items()])


_MAPS = frozenset(["properties", "patternProperties", "dependentSchemas"])
_LISTS = frozenset(["anyOf", "oneOf", "allOf", "prefixItems"])
_ONE = frozenset(["items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"]) | {
    "unevaluatedItems",
    "unevaluatedProperties",
}
_NOTES = frozenset(["default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"]) | {
    "$schema",
    "$id",
    "$comment",
    "$anchor",
    "$dynamicAnchor",
    "$defs",
    "definitions",
}
"""Keywords that demand nothing."""
_LABELS = frozenset(["title", "description"])
_AT_THE_TOP = frozenset(
    ["oneOf", "anyOf", "allOf", "enum", "const", "not", "if", "then", "else", "dependentSchemas"]
) | {
    "dependentRequired",
}
"""Keywords that no server takes at the top of a tool's schema, and those that would be missed there most."""
_OF_KIND: Mapping[str, frozenset[str]] = {
    "object": _MAPS | {"required", "additionalProperties", "minProperties", "maxProperties", "propertyNames"},
    "array": frozenset(["items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"]),
    "string": frozenset(["minLength", "maxLength", "pattern", "format"]),
    "number": frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
}
_NULL = {"type": "null"}
_SCALARS = ({"type": "string"}, {"type": "number"}, {"type": "boolean"})
_MOST_TOLD = 1_000


class Unsaid(Exception):
    """A schema that a server accepts in no form."""


# Each server gets the subset it accepts; the whole schema is checked here (decision 37)
class Translation:
    """One translation. After :meth:`run`, ``whole``: nothing was left out; ``rest``: the text to add to a ``tool``'s
    description."""

    def __init__(self, schema: Mapping[str, Any], subset: Subset, *, tool: bool) -> None:
        self.whole = True
        self.rest = ""
        self._root = schema
        self._subset = subset
        self._patterns = LinearPatterns()
        self._tool = tool
        self._names: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}
        self._open: set[str] = {"#"}
        self._nodes = 0

    def run(self) -> dict[str, Any]:
        """The schema in the form of the subset. Raises Unsaid."""
        subset = self._subset
        try:
            root = self._at_top(dict(self._root))
            result = self._visit(root, 0)
        except (TypeError, AttributeError, LookupError, ValueError, RecursionError) as error:  # not a schema at all
            raise Unsaid from error
        if self._definitions:
            result["$defs"] = self._definitions
        if subset.every and not is_finite(result):
            raise Unsaid
        if not fits(result, subset):
            raise Unsaid
        return result

    # -- the root ---------------------------------------------------------------------------------------------------

    def _at_top(self, rules: dict[str, Any]) -> dict[str, Any]:
        """The root as an object without a union, if the subset demands one."""
        if self._subset.root_unions:
            return rules
        if "$ref" in rules:
            rules = self._with_target(rules, set())
        if "allOf" in rules:
            rules = self._merged(rules)
        if rules.get("type", "object") != "object" or (not self._tool and "type" not in rules):
            raise Unsaid
        left = {key: rules[key] for key in _AT_THE_TOP if key in rules}
        kept = {key: each for key, each in rules.items() if key not in left}
        for key in ("anyOf", "oneOf"):
            if key in left:
                kept = self._joined(kept, left[key])
        if left:
            self.whole = False
            if not self._tool:
                kept["description"] = _told(kept, {key: _short(each) for key, each in left.items()})
            else:
                whole = "$ref" in to_json(left)
                self.rest = f"The arguments must meet this JSON Schema, too: {to_json(self._root if whole else left)}"
        if self._tool and self._subset.empty:
            kept.setdefault("properties", {})
        return {**kept, "type": "object"}

    def _joined(self, rules: dict[str, Any], variants: Sequence[Any]) -> dict[str, Any]:
        """An object with the properties of all variants of a union."""
        members = [self._with_target(dict(each), set()) if "$ref" in each else each for each in variants]
        properties: dict[str, Any] = {}
        for variant in members:
            for name, each in variant.get("properties", {}).items():
                one: list[Any] = properties.setdefault(name, [])
                if each not in one:
                    one.append(each)
        if not properties:
            return rules
        own: dict[str, Any] = rules.get("properties", {})
        every = {name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in properties.items()}
        shared = set[str].intersection(*[set(variant.get("required", ())) for variant in members])
        needed = [*rules.get("required", ()), *sorted(shared - set(rules.get("required", ())))]
        closed = all([variant.get("additionalProperties") is False for variant in members])
        return {
            **rules,
            "properties": {**every, **own},
            "required": needed,
            **({"additionalProperties": False} if closed else {}),
        }

    # -- references -------------------------------------------------------------------------------------------------

    def _with_target(self, rules: dict[str, Any], seen: set[str]) -> dict[str, Any]:
        """The target of a reference, with the keywords next to the reference; a keyword in both becomes text."""
        ref: str = rules["$ref"]
        if ref in seen:
            raise Unsaid
        aim: dict[str, Any] = dict(target(self._root, ref))
        beside = {key: each for key, each in rules.items() if key != "$ref" and key not in _NOTES}
        twice = {key: each for key, each in beside.items() if key not in _LABELS and aim.get(key, each) != each}
        merged = {**aim, **{key: each for key, each in beside.items() if key not in twice}}
        if twice:
            self.whole = False
            merged["description"] = _told(merged, twice)
        return self._with_target(merged, {*seen, ref}) if "$ref" in merged else merged

    def _reference(self, rules: dict[str, Any], depth: int) -> dict[str, Any]:
        ref: str = rules["$ref"]
        circle = ref in self._open
        if circle and not self._subset.recursion:
            if not self._subset.cut:
                raise Unsaid
            self.whole = False
            return {"type": "object", "description": _told(rules, {"as": ref.rpartition("/")[2] or "the whole"})}
        beside = rules.keys() - {"$ref"} - _NOTES
        if not self._subset.references or (beside and not circle):
            self._open.add(ref)
            try:
                return self._visit(self._with_target(rules, set()), depth)
            finally:
                if not circle:
                    self._open.discard(ref)
        if beside - _LABELS:
            self.whole = False
        return {"$ref": self._named(ref)}

    def _named(self, ref: str) -> str:
        """The reference to the translated definition of a target."""
        if ref == "#":
            return ref
        name = self._names.get(ref)
        if name is None:
            name = base = re.sub(r"[^A-Za-z0-9_.-]", "_", ref.rpartition("/")[2]) or "it"
            number = 2
            while name in self._definitions:
                name, number = f"{base}_{number}", number + 1
            self._names[ref] = name
            self._definitions[name] = {}  # keeps its place while it is translated
            inside = ref in self._open
            self._open.add(ref)
            self._definitions[name] = self._visit(target(self._root, ref), 0)
            if not inside:
                self._open.discard(ref)
        return f"#/$defs/{name}"

    # -- one schema -------------------------------------------------------------------------------------------------

    def _visit(self, schema: Any, depth: int) -> dict[str, Any]:
        self._nodes += 1
        if depth > MAX_NESTING or self._nodes > MAX_NODES or schema is False:
            raise Unsaid
        rules: dict[str, Any] = {} if schema is True else dict(schema)
        if "$ref" in rules:
            return self._reference(rules, depth)
        if self._subset.keywords is None:
            return self._lenient(rules, depth)
        if "allOf" in rules and "allOf" not in self._subset.keywords:
            rules = self._merged(rules)
            if "$ref" in rules:
                return self._reference(rules, depth)
        told: dict[str, Any] = {}
        rules = self._typed(self._plain_union(rules, told))
        kind = rules.get("type")
        if isinstance(kind, list) and not self._subset.type_lists:
            if told:
                self.whole = False
                rules = {**rules, "description": _told(rules, told)}
            return self._visit(_by_type(rules, cast("list[str]", kind)), depth)
        rules = self._plain_values(rules, told)
        if kind is None and not rules.keys() & {"anyOf", "oneOf", "allOf", "enum", "const"}:
            kind = _implied(rules)
            if kind is None:
                return self._anything(rules)
            rules = {"type": kind, **rules}
        kinds = _kinds(rules)
        if "array" in kinds:
            rules = self._listed(rules, told)
        if "object" in kinds:
            rules = self._object(rules, told)
        return self._kept(rules, told, depth)

    def _lenient(self, rules: dict[str, Any], depth: int) -> dict[str, Any]:
        """A schema with allowed keywords only, adapted to the subset's rules for lists, patterns and names."""
        told: dict[str, Any] = {}
        if self._subset.items and "array" in _kinds(rules) and "items" not in rules:
            first: list[Any] = rules.get("prefixItems", [])
            rules = {**rules, "items": _either(first) if first else {}}
        elif rules.get("items") is False:  # closed by a number, since few servers know a ``false`` schema
            rules = {**rules, "items": _either(rules.get("prefixItems", [])), "maxItems": len(rules["prefixItems"])}
        rules = self._nameable(rules, told)
        return self._kept(
            {key: each for key, each in rules.items() if key not in ("$defs", "definitions")}, told, depth
        )

    def _kept(self, rules: dict[str, Any], told: dict[str, Any], depth: int) -> dict[str, Any]:
        """The keywords of the subset, with their schemas translated; the others become text in the description."""
        subset, kept = self._subset, dict[str, Any]()
        for key, each in rules.items():
            if subset.keywords is not None and key not in subset.keywords:
                if key not in _NOTES:
                    told[key] = each
            elif key in _MAPS:
                kept[key] = {name: self._visit(one, depth + 1) for name, one in each.items()}
            elif key in _LISTS:
                kept[key] = [self._visit(one, depth + 1) for one in each]
            elif key in _ONE:
                kept[key] = each if isinstance(each, bool) else self._visit(each, depth + 1)
            elif key == "pattern" and not self._knows_pattern(each):
                self.whole = False
                if self._patterns.of(each).is_plain:  # look-around helps a model little
                    told[key] = each
            elif (key == "format" and not self._knows_format(each)) or (
                key == "minItems" and subset.fewest is not None and each not in subset.fewest
            ):
                told[key] = each
            else:
                kept[key] = each
        if told:
            self.whole = False
            kept["description"] = _told(kept, told)
        return kept

    def _knows_format(self, name: Any) -> bool:
        return self._subset.formats is None or name in self._subset.formats

    def _knows_pattern(self, text: Any) -> bool:
        wanted = self._subset.patterns
        if wanted == "any" or (wanted == "none" and self._subset.keywords is None):
            return True
        anchored = text.startswith("^") and text.endswith("$") and not re.search(r"\\[bB]|\\\$$", text)
        return wanted != "none" and (wanted != "anchored" or anchored) and self._patterns.of(text).is_plain

    def _anything(self, rules: dict[str, Any]) -> dict[str, Any]:
        """A schema of any type."""
        if self._subset.untyped:
            return {key: each for key, each in rules.items() if key in _LABELS}
        if self._subset.closed:
            raise Unsaid
        self.whole = False
        plain: list[Any] = [*_SCALARS, {"type": "object"}]
        anything = {"anyOf": [*plain, {"type": "array", "items": {"anyOf": plain}}, _NULL]}
        return {**{key: each for key, each in rules.items() if key in _LABELS}, **anything}

    def _merged(self, rules: dict[str, Any]) -> dict[str, Any]:
        """A schema merged with its ``allOf``; a keyword that occurs twice becomes text."""
        merged = {key: each for key, each in rules.items() if key != "allOf"}
        branches: list[Any] = rules["allOf"]
        if len(branches) == 1 and merged.keys() <= _LABELS | _NOTES:
            return {**branches[0], **merged}
        told: dict[str, Any] = {}
        for branch in branches:
            one: dict[str, Any] = dict(branch)
            if "$ref" in one:
                if one["$ref"] in self._open:
                    told["allOf"] = branches
                    continue
                one = self._with_target(one, set())
            if "allOf" in one:
                one = self._merged(one)
            for key, each in one.items():
                if key == "properties":
                    merged[key] = {**each, **merged.get(key, {})}
                elif key == "required":
                    merged[key] = list(dict.fromkeys([*merged.get(key, ()), *each]))
                elif merged.setdefault(key, each) != each and key not in _LABELS | _NOTES:
                    told[key] = each
        if told:
            self.whole = False
            merged["description"] = _told(merged, told)
        return merged

    def _plain_union(self, rules: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        """A schema with ``anyOf`` as its only union, without constraining keywords next to it."""
        keep = "oneOf" in (self._subset.keywords or ())
        if "oneOf" in rules and "anyOf" not in rules and not keep:
            rules = {("anyOf" if key == "oneOf" else key): each for key, each in rules.items()}
        union = next((key for key in ("anyOf", "oneOf") if key in rules), None)
        if union is None or keep:
            return rules
        beside = rules.keys() - {union} - _LABELS - _NOTES
        if beside & {"properties", "items", "prefixItems", "enum", "const", "additionalProperties"}:
            told[union] = rules[union]
            return {key: each for key, each in rules.items() if key != union}
        if not beside:
            return rules
        shared = {key: rules[key] for key in beside}
        variants: list[Any] = [{**shared, **each} if "$ref" not in each else each for each in rules[union]]
        return {**{key: each for key, each in rules.items() if key not in beside}, union: variants}

    def _typed(self, rules: dict[str, Any]) -> dict[str, Any]:
        """``enum`` and ``const`` with the types of their values, where types have to be said."""
        if self._subset.untyped or not rules.keys() & {"enum", "const"} or isinstance(rules.get("type"), str):
            return rules
        values: list[Any] = [rules["const"]] if "const" in rules else rules["enum"]
        kinds = list(dict.fromkeys([type_name(each) for each in values]))
        return {**rules, "type": kinds[0] if len(kinds) == 1 else kinds}

    def _plain_values(self, rules: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        """``enum`` and ``const`` in the form that the subset knows."""
        if not rules.keys() & {"enum", "const"}:
            return rules
        values: list[Any] = [rules["const"]] if "const" in rules else rules["enum"]
        if self._subset.closed and any([isinstance(each, dict | list) for each in values]):
            raise Unsaid
        if not self._subset.texts_only:
            return rules
        rules = {key: each for key, each in rules.items() if key not in ("const", "enum")}
        if rules["type"] == "string":
            return {**rules, "enum": values}
        if rules["type"] != "null":
            told["enum"] = values
        return rules

    def _listed(self, rules: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        """An array that declares its items; a tuple has items of any of its types, and their number."""
        first: list[Any] = rules.get("prefixItems", [])
        if first and "prefixItems" not in (self._subset.keywords or ()):
            rest = rules.get("items", True)
            told["prefixItems"] = first
            rules = {key: each for key, each in rules.items() if key not in ("prefixItems", "items")}
            rules["items"] = _either([*first, *([rest] if isinstance(rest, Mapping) else [])])
            if rest is False:
                rules["maxItems"] = min(len(first), rules.get("maxItems", len(first)))
        items = rules.get("items", True)
        if isinstance(items, bool) and not first:
            rules = {**rules, "items": {}}
        return rules

    def _object(self, rules: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        """An object with listed properties, required where the subset demands it."""
        subset = self._subset
        more = rules.get("additionalProperties")
        named: dict[str, Any] = rules.get("properties", {})
        if subset.closed:
            if more not in (None, False) or "patternProperties" in rules or (more is None and not named):
                raise Unsaid
            rules = {**rules, "properties": named, "additionalProperties": False}
        elif more is not None and "patternProperties" in rules and "patternProperties" not in (subset.keywords or ()):
            told["additionalProperties"] = more
            rules = {key: each for key, each in rules.items() if key != "additionalProperties"}
        elif more is False and "additionalProperties" not in (subset.keywords or ()):
            rules = {key: each for key, each in rules.items() if key != "additionalProperties"}
        elif not (named or subset.empty) and "properties" in rules:
            rules = {key: each for key, each in rules.items() if key not in ("properties", "required")}
        needed: list[str] = [each for each in rules.get("required", ()) if each in rules.get("properties", {})]
        if subset.every:
            left_out = {name for name, each in named.items() if name not in needed and not _has_default(each)}
            self.whole = self.whole and not left_out
            rules["properties"] = {name: _or_null(each) if name in left_out else each for name, each in named.items()}
            needed = list(named)
        if "required" in rules or subset.every:
            rules = {**rules, "required": needed}
        return self._nameable(rules, told)

    def _nameable(self, rules: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        """An object without the properties with names outside the subset; these go to ``told``."""
        names = self._subset.names
        properties: Any = rules.get("properties")
        if names is None or not isinstance(properties, Mapping):
            return rules
        own = cast("Mapping[str, Any]", properties)
        other = {name: each for name, each in own.items() if not names.fullmatch(name)}
        if not other:
            return rules
        if self._subset.closed:
            raise Unsaid
        told["properties"] = other
        kept = {name: each for name, each in own.items() if name not in other}
        rest = {
            key: each for key, each in rules.items() if key not in ("additionalProperties", "properties", "required")
        }
        needed = [name for name in rules.get("required", ()) if name not in other]
        return {**rest, "properties": kept, "required": needed} if kept or self._subset.empty else rest


def _told(rules: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """The description of a schema, with the constraints that became text."""
    said = f"({', '.join([f'{key}: {_short(each)}' for key, each in told.items()])})"
    return " ".join([str(each) for each in (rules.get("description"), said) if each])


def _short(value: Any) -> str:
    return clip(value if isinstance(value, str) else to_json(value), _MOST_TOLD)


def _kinds(rules: Mapping[str, Any]) -> list[Any]:
    kind: Any = rules.get("type")
    return cast("list[Any]", kind) if isinstance(kind, list) else [kind]


def _implied(rules: Mapping[str, Any]) -> str | None:
    """The type that the keywords of a schema without one are about."""
    return next((kind for kind in ("object", "array") if rules.keys() & _OF_KIND[kind]), None) or next(
        (kind for kind in ("string", "number") if rules.keys() & _OF_KIND[kind]), None
    )


def _either(schemas: Sequence[Any]) -> dict[str, Any]:
    different = [each for at, each in enumerate(schemas) if each not in schemas[:at]]
    return dict(different[0]) if len(different) == 1 else {"anyOf": different} if different else {}


def _by_type(rules: Mapping[str, Any], kinds: list[str]) -> dict[str, Any]:
    """A schema of several types as a union of one each."""
    shared = {key: each for key, each in rules.items() if key in _LABELS | _NOTES}
    others = {key: each for key, each in rules.items() if key not in shared and key != "type"}
    variants: list[dict[str, Any]] = []
    for kind in kinds:
        own = _OF_KIND.get("number" if kind == "integer" else kind, frozenset())
        foreign = frozenset[str]().union(*_OF_KIND.values()) - own
        one = {"type": kind, **{key: each for key, each in others.items() if key not in foreign}}
        if "enum" in one:
            one["enum"] = [
                each
                for each in one["enum"]
                if type_name(each) == kind or (kind, type_name(each)) == ("number", "integer")
            ]
            if not one["enum"]:
                continue
        variants.append(one)
    return {**shared, "anyOf": variants}


def _has_default(schema: Any) -> bool:
    return isinstance(schema, Mapping) and cast("Mapping[str, Any]", schema).get("default") is not None


def _or_null(schema: Any) -> Any:
    """A schema, or null for an omitted property."""
    rules: dict[str, Any] = dict(schema)
    if "null" in _kinds(rules) or any([each.get("type") == "null" for each in rules.get("anyOf", ())]):
        return rules
    about = {key: rules.pop(key) for key in ("title", "description") if key in rules}
    return {**about, "anyOf": [rules, _NULL]}


_MOST_KEPT = 1_000


@frozen
class SchemaForm:
    """A schema in the form for a server.

    ``schema`` is None if it accepts no form; ``strict``: it enforces the form; ``whole``: the form expresses the complete
    schema. ``rest`` is the text to add to a tool's description.
    """

    schema: dict[str, Any] | None
    strict: bool = False
    whole: bool = False
    rest: str = ""


_NO_FORM = SchemaForm(None)
_GOES_ON = "(... goes on in the system text)"
"""The end of a description too long for a server."""


def _form(schema: Mapping[str, Any], wire: Wire, part: Place) -> SchemaForm:
    """The form of ``schema`` that the server of ``wire`` takes in ``part``, made once for each schema.

    Forms are kept by the identity of their schema, which is kept with them so that no other gets its identity.
    """
    forms, rules = wire.forms, wire.traits.schemas
    key = (id(schema), rules, part)
    kept = forms.get(key)
    if kept is not None:
        return kept[1]
    form = translated(schema, rules, part)
    if len(forms) >= _MOST_KEPT:
        forms.clear()
    forms[key] = (schema, form)
    return form


def translated(schema: Mapping[str, Any], rules: SchemaRules, part: Place) -> SchemaForm:
    """The form of ``schema`` that servers of ``rules`` take in ``part``. Raises nothing."""
    for subset in subsets_of(rules, part):
        work = Translation(schema, subset, tool=part != "output")
        try:
            result = work.run()
        except Unsaid:
            continue
        return SchemaForm(result, subset.strict, work.whole, work.rest)
    if part == "output":
        return _NO_FORM
    return SchemaForm({"type": "object", "properties": {}}, rest=_to_meet(schema))


def output_form(request: ModelRequest, wire: Wire, streaming: bool) -> tuple[OutputForm, SchemaForm | None]:
    """How the form of an answer is requested, and the form of its schema if it is sent.

    A schema that the server accepts in no form is described in the prompt, with a notice.
    """
    if request.output_schema is None:
        return "prompt", None
    how = wire.traits.output_form(tools=bool(request.tools or request.provider_tools), streaming=streaming)
    if how != "json_schema":
        return how, None
    form = _form(request.output_schema, wire, "output")
    if form.schema is not None:
        return how, form
    told = (
        "the schema of the answer stands in the prompt, because the server takes no form of it; the answer is checked"
    )
    wire.notices.append(Notice(told, code="provider/schema-in-prompt", details={"model": request.model}))
    return "prompt", None


def system_text(request: ModelRequest, wire: Wire, form: SchemaForm | None) -> str:
    """The system text of a request, with the schema of the answer if it is sent nowhere else, and with the ends of tool
    descriptions that exceed the limit."""
    said = [request.system] if request.system else []
    if form is None and request.output_schema is not None and not wire.in_prompt:
        said.append(
            "Answer with one JSON value that meets this JSON Schema, and nothing else: no prose, no code fence.\n"
            f"<schema>{to_json(request.output_schema)}</schema>"
        )
    if wire.traits.description_limit:
        for tool in request.tools:
            _, _, rest = _described(tool, wire)
            said += [f"More on the tool {wire.to_wire(tool.name)}: {rest}"] if rest else []
    return "\n\n".join(said)


def tool_form(tool: ToolSpec, wire: Wire) -> tuple[str, SchemaForm]:
    """The sent description of a tool, and the form of its schema."""
    description, form, _ = _described(tool, wire)
    return description, form


def _described(tool: ToolSpec, wire: Wire) -> tuple[str, SchemaForm, str]:
    """The description of a tool, with the constraints its schema cannot express; the schema's form; and the rest of a
    description that exceeds the server's limit."""
    form = _form(tool.input_schema, wire, "strict tool" if tool.strict else "tool")
    whole = f"{tool.description}\n\n{form.rest}".lstrip() if form.rest else tool.description
    limit = wire.traits.description_limit
    if not limit or len(whole) <= limit:
        return whole, form, ""
    room = limit - len(_GOES_ON)
    at = whole.rfind(" ", 0, room) + 1 or room
    return whole[:at] + _GOES_ON, form, whole[at:]


def _to_meet(schema: Mapping[str, Any]) -> str:
    return f"The arguments must meet this JSON Schema: {to_json(schema)}"
