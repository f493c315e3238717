"""Rules about JSON Schemas: of tools and of the answer, strict and not."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.vendors.row import Fault, Rule
from tests.support.vendors.table import ALL, CLAUDE, OPENAI, RESPONSES
from tests.support.vendors.view import Asked

Path = tuple[str, ...]
_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = (
    "items",
    "additionalProperties",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedProperties",
)
_LOOKS = re.compile(r"\(\?(=|!|<=|<!)")
_BEYOND = re.compile(r"\(\?(=|!|<=|<!)|\\[bB]|\\[1-9]")
_STRICT = frozenset(
    [
        "type",
        "title",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "$ref",
        "$defs",
        "definitions",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
    ]
)
_FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
_CLAUDE = frozenset(
    [
        "type",
        "title",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
        "$defs",
        "definitions",
        "pattern",
        "format",
        "default",
        "minItems",
    ]
)
_GEMINI = frozenset(
    [
        "type",
        "title",
        "description",
        "properties",
        "required",
        "items",
        "enum",
        "anyOf",
        "format",
        "nullable",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minProperties",
        "maxProperties",
        "pattern",
        "default",
        "example",
        "propertyOrdering",
        "prefixItems",
        "additionalProperties",
    ]
)


def walk(schema: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A schema and all within it, each with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key in _MAPS:
        for name, each in (schema.get(key) or {}).items() if isinstance(schema.get(key), dict) else ():
            yield from walk(each, (*path, key, name))
    for key in _LISTS:
        for n, each in enumerate(schema.get(key) or ()):
            yield from walk(each, (*path, key, str(n)))
    for key in _ONES:
        yield from walk(schema.get(key), (*path, key))


def _kinds(schema: dict[str, Any]) -> tuple[str, ...]:
    kind = schema.get("type")
    return tuple(kind) if isinstance(kind, list) else (kind,) if kind else ()


def _context(path: Path) -> str:
    return f"({', '.join([repr(each) for each in path])}{',' if len(path) == 1 else ''})"


def _schemas(asked: Asked) -> Iterator[tuple[str, str, Any, bool]]:
    """Each schema of a request: how the vendor calls it, its place, itself, and whether it is strict."""
    for place, tool in asked.tools:
        name = tool.get("name", "")
        yield f"function '{name}'", place, asked.schema_of(tool), bool(tool.get("strict"))
    if asked.output is not None:
        yield (
            f"response_format '{asked.output.get('name', 'output')}'",
            "output",
            asked.output.get("schema"),
            bool(asked.output.get("strict")),
        )


def _of_tools(asked: Asked) -> Iterator[tuple[str, str, Any, bool]]:
    return ((what, place, schema, strict) for what, place, schema, strict in _schemas(asked) if place != "output")


def _of_output(asked: Asked) -> Iterator[tuple[str, str, Any, bool]]:
    return ((what, place, schema, strict) for what, place, schema, strict in _schemas(asked) if place == "output")


def _root(asked: Asked) -> Iterator[Fault]:
    for what, place, schema, _ in _schemas(asked):
        if not isinstance(schema, dict) or schema.get("type") != "object":
            kind = schema.get("type") if isinstance(schema, dict) else None
            yield {"what": what, "place": place, "kind": kind, "param": place}


def _top_union(asked: Asked) -> Iterator[Fault]:
    for what, place, schema, _ in _of_tools(asked):
        if {"anyOf", "oneOf", "allOf"} & set(schema or ()) or (
            asked.vendor.name not in (*CLAUDE, "openrouter") and {"enum", "not"} & set(schema or ())
        ):
            yield {"what": what, "place": place, "param": place}


def _items(asked: Asked) -> Iterator[Fault]:
    for what, place, schema, _ in _schemas(asked):
        for path, each in walk(schema):
            if "array" in _kinds(each) and "items" not in each:
                yield {"what": what, "place": place, "context": _context(path), "path": ".".join(path), "param": place}


def _strict_faults(schema: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    if "anyOf" in schema:
        yield (), "schema must have type 'object' and not have 'anyOf' at the top level"
    for path, each in walk(schema):
        if "$ref" in each and len(each) > 1:
            yield path, f"$ref cannot have keywords {set(each) - {'$ref'}}"
        for key in each:
            if key not in _STRICT and key != "$ref":
                yield path, f"'{key}' is not permitted"
        if not {"type", "anyOf", "$ref", "enum", "const"} & set(each) and path[-1:] not in (
            ("properties",),
            ("$defs",),
        ):
            yield path, "schema must have a 'type' key"
        if ({"enum", "const"} & set(each)) and "type" not in each:
            yield path, "schema must have a 'type' key"
        if "object" in _kinds(each):
            if each.get("additionalProperties") is not False:
                yield path, "'additionalProperties' is required to be supplied and to be false"
            if set(each.get("required", ())) != set(each.get("properties", {})):
                yield path, "'required' is required to be supplied and to be an array including every key in properties"
        if each.get("format", "date") not in _FORMATS:
            yield path, f"'{each['format']}' is not a valid format"
        if isinstance(each.get("pattern"), str) and _LOOKS.search(each["pattern"]):
            yield path, "look-around is not supported in patterns"


def _strict(asked: Asked) -> Iterator[Fault]:
    for what, place, schema, strict in _schemas(asked):
        if strict and isinstance(schema, dict):
            for path, why in _strict_faults(schema):
                yield {"what": what, "context": _context(path), "why": why, "param": place}


def _groq_strict(asked: Asked) -> Iterator[Fault]:
    for what, place, schema, strict in _schemas(asked):
        for path, each in walk(schema) if strict else ():
            if "object" in _kinds(each) and (
                each.get("additionalProperties") is not False
                or set(each.get("required", ())) != set(each.get("properties", {}))
            ):
                yield {"what": what, "context": "/" + "/".join(path), "param": place}


def depth(schema: Any) -> int:
    """How many objects and lists a schema has within each other."""
    return max([sum(key in ("properties", "items") for key in path[::1]) for path, _ in walk(schema)], default=0)


def _strict_size(asked: Asked) -> Iterator[Fault]:
    for what, place, schema, strict in _schemas(asked):
        if strict:
            found = [each for _, each in walk(schema)]
            properties = sum(len(each.get("properties") or ()) for each in found)
            values = sum(len(each.get("enum") or ()) for each in found)
            for count, limit, name in (
                (properties, 5_000, "properties"),
                (depth(schema), 10, "levels of nesting"),
                (values, 1_000, "enum values"),
            ):
                if count > limit:
                    yield {"what": what, "count": count, "limit": limit, "name": name, "param": place}


def _claude_strict(asked: Asked) -> Iterator[Fault]:
    for _what, place, schema, strict in _schemas(asked):
        where = "output_config.format.schema" if place == "output" else f"{place}.input_schema"
        for _path, each in walk(schema) if strict else ():
            kind = "/".join(_kinds(each)) or "object"
            if "object" in _kinds(each) and each.get("additionalProperties") is not False:
                yield {
                    "where": where,
                    "why": "For 'object' type, 'additionalProperties' must be explicitly set to false",
                }
            for key in each:
                if key not in _CLAUDE:
                    yield {"where": where, "why": f"For '{kind}' type, property '{key}' is not supported"}
            if each.get("minItems", 0) not in (0, 1):
                yield {"where": where, "why": "For 'array' type, 'minItems' values other than 0 or 1 are not supported"}
            if each.get("format", "uri") not in _FORMATS | {"uri"}:
                yield {"where": where, "why": f"For 'string' type, 'format' value '{each['format']}' is not supported"}
            if isinstance(each.get("pattern"), str) and _BEYOND.search(each["pattern"]):
                yield {"where": where, "why": "For 'string' type, 'pattern' has an unsupported construct"}
            if not each:
                yield {"where": where, "why": "Schema type is required"}
        if strict and _recursive(schema):
            yield {"where": where, "why": "Circular reference detected in schema definitions"}


def _recursive(schema: Any) -> bool:
    """Whether a definition refers to itself, directly or not."""
    definitions = {**(schema or {}).get("$defs", {}), **(schema or {}).get("definitions", {})}
    refers = {
        name: {str(each["$ref"]).rsplit("/", 1)[-1] for _, each in walk(body) if "$ref" in each}
        for name, body in definitions.items()
    }

    def reaches(name: str, target: str, seen: set[str]) -> bool:
        return any(
            each == target or (each not in seen and reaches(each, target, {*seen, each}))
            for each in refers.get(name, ())
        )

    return any(reaches(name, name, set()) for name in refers)


def _admits(asked: Asked) -> Iterator[Fault]:
    """A schema that the answer which is meant does not fit: a model that is held to it can only say something else."""
    from jsonschema import Draft202012Validator

    for what, place, schema, _ in _of_output(asked):
        if asked.meant is not None and isinstance(schema, dict):
            for error in Draft202012Validator(schema).iter_errors(asked.meant):
                yield {"what": what, "path": error.json_path, "why": error.message, "param": place}


def _claude_counts(asked: Asked) -> Iterator[Fault]:
    strict = [schema for _, _, schema, strict in _schemas(asked) if strict]
    optional = sum(
        len(set(each.get("properties") or ()) - set(each.get("required") or ()))
        for schema in strict
        for _, each in walk(schema)
    )
    unions = sum(1 for schema in strict for _, each in walk(schema) if "anyOf" in each or len(_kinds(each)) > 1)
    tools = sum(bool(tool.get("strict")) for _, tool in asked.tools)
    for count, limit, what in (
        (tools, 20, "strict tools"),
        (optional, 24, "optional parameters"),
        (unions, 16, "parameters with union types"),
    ):
        if count > limit:
            yield {"count": count, "limit": limit, "what": what}


def _keys(asked: Asked) -> Iterator[Fault]:
    for _, place, schema, _ in _of_tools(asked):
        for key in (schema or {}).get("properties") or ():
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key):
                yield {"place": place, "key": key, "param": place}


def _gemini(asked: Asked) -> Iterator[Fault]:
    for _, place, schema, _ in _of_tools(asked):
        for path, each in walk(schema):
            where = f"{place}.parameters{''.join(f'.{name}' for name in path)}"
            for key in each:
                if key not in _GEMINI:
                    yield {"where": where, "why": f'Unknown name "{key}"', "what": "Cannot find field.", "param": where}
            if isinstance(each.get("type"), list):
                yield {
                    "where": where,
                    "why": 'Unknown name "type"',
                    "what": "Proto field is not repeating, cannot start list.",
                    "param": where,
                }
            if "enum" in each and not all(isinstance(value, str) for value in each["enum"]):
                yield {
                    "where": where,
                    "why": "Invalid value (enum)",
                    "what": "only allowed for STRING type",
                    "param": where,
                }


def _anchored(asked: Asked) -> Iterator[Fault]:
    for _, place, schema, _ in _schemas(asked):
        for _, each in walk(schema):
            pattern = each.get("pattern")
            if isinstance(pattern, str):
                if not (pattern.startswith("^") and pattern.endswith("$")):
                    yield {"why": "Pattern must start with '^' and end with '$'", "param": place}
                elif _BEYOND.search(pattern):
                    yield {"why": "failed to parse grammar", "param": place}


def _looks(asked: Asked) -> Iterator[Fault]:
    for _, place, schema, _ in _of_output(asked):
        for _, each in walk(schema):
            if isinstance(each.get("pattern"), str) and _LOOKS.search(each["pattern"]):
                yield {"pattern": each["pattern"], "param": place}


@functools.cache
def _invalid(schema: str) -> str:
    """Why a text is not JSON Schema; empty for one that is. The check is the slowest of all, and texts repeat."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        return str(error.message)
    return ""


def _valid(asked: Asked) -> Iterator[Fault]:
    for what, place, schema, _ in _schemas(asked):
        if why := _invalid(json.dumps(schema)):
            yield {"what": what, "place": place, "why": why, "param": place}


RULES = (
    Rule(
        "schemas are JSON Schema", "schemas", ALL, _valid,
        "Invalid schema for {what}: {why}",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use", "2026-11-28",
        {**dict.fromkeys(CLAUDE, "{place}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 (https://json-schema.org/draft/2020-12). Learn more about tool use at https://docs.claude.com/en/docs/tool-use.")},
    ),
    Rule(
        "the root of a schema is an object", "schemas", (*OPENAI, *RESPONSES, *CLAUDE, "openrouter", "gemini", "groq", "deepseek"), _root,
        "Invalid schema for {what}: schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'.",
        "https://github.com/dearlordylord/huly-mcp/issues/66", "2026-05-26",
        {**dict.fromkeys(CLAUDE, "{place}.input_schema.type: Input should be 'object'")},
    ),
    Rule(
        "no union at the top of a tool's schema", "schemas", (*OPENAI, *RESPONSES, *CLAUDE, "openrouter"), _top_union,
        "Invalid schema for {what}: schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
        "https://github.com/dearlordylord/huly-mcp/issues/66", "2026-05-26",
        {**dict.fromkeys((*CLAUDE, "openrouter"), "{place}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")},
    ),
    Rule(
        "lists have items", "schemas", (*OPENAI, *RESPONSES, "gemini"), _items,
        "Invalid schema for {what}: In context={context}, array schema missing items.",
        "https://github.com/spacelift-io/spacectl/issues/402", "2026-03-18",
        {"gemini": "* GenerateContentRequest.{place}.parameters.{path}.items: missing field."},
    ),
    Rule(
        "a strict schema keeps to the subset of strict mode", "schemas", (*OPENAI, *RESPONSES), _strict,
        "Invalid schema for {what}: In context={context}, {why}.",
        "https://github.com/Agent-Field/agentfield/pull/680", "2026-06-22",
    ),
    Rule(
        "a strict schema is closed and requires all",
        "schemas",
        ("groq",),
        _groq_strict,
        "invalid JSON schema for {what}: `additionalProperties:false` and all properties in `required` must be set on every object: {context}",
        "https://console.groq.com/docs/structured-outputs",
        "2026-11-28",
    ),
    Rule(
        "a strict schema has at most 5,000 properties, 10 levels, 1,000 values of enums", "schemas", (*OPENAI, *RESPONSES), _strict_size,
        "Invalid schema for {what}: {count} {name} exceed the limit of {limit}.",
        "https://jsonschemaprofiles.unitvectorylabs.com/schemas/openai", "2026-02-01",
    ),
    Rule(
        "schemas of answers and of strict tools keep to Anthropic's subset", "schemas", CLAUDE, _claude_strict,
        "{where}: {why}",
        "https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations", "2026-11-28",
    ),
    Rule(
        "at most 20 strict tools, 24 optional parameters, 16 unions", "schemas", CLAUDE, _claude_counts,
        "Schemas contains too many {what} ({count}), which would make grammar compilation inefficient. Reduce the number of {what} in your tool schemas (limit: {limit} total across all strict schemas).",
        "https://platform.claude.com/docs/en/build-with-claude/structured-outputs#schema-complexity-limits", "2026-11-28",
    ),
    Rule(
        "the schema of an answer admits what is meant", "schemas", tuple(each for each in ALL if each != "deepseek"), _admits,
        "{what}: {path}: {why}",
        "https://github.com/getzep/graphiti/issues/1751", "2026-08-11",
    ),
    Rule(
        "names of a tool's parameters fit the pattern", "names", (*CLAUDE, "openrouter"), _keys,
        "{place}.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'",
        "https://github.com/anthropics/claude-code/issues/79418", "2026-07-20",
    ),
    Rule(
        "schemas of tools keep to Gemini's fields", "schemas", ("gemini",), _gemini,
        "Invalid JSON payload received. {why} at '{where}': {what}",
        "https://github.com/Kilo-Org/kilocode/issues/5333", "2026-01-23",
    ),
    Rule(
        "patterns are whole and without look-around", "schemas", ("llama.cpp",), _anchored,
        "JSON schema conversion failed:\n{why}",
        "https://github.com/containers/kubernetes-mcp-server/issues/758", "2026-02-10",
    ),
    Rule(
        "patterns of answers have no look-around", "schemas", ("vllm",), _looks,
        "Grammar error: look-around is not supported: {pattern}",
        "https://docs.vllm.ai/en/latest/features/structured_outputs.html", "2026-11-28",
    ),
)  # fmt: skip
