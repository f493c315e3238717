"""JSON Schema: checks data against schemas of draft 2020-12, without references to other documents.

A schema is compiled once, and its faults are reported then; ``schema_rules.py`` has the rules of its keywords. No
existing checker is used because both schema and data may come from a model: on hostile input, the available ones take
unbounded time or native stack.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import unquote

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.lib.schema import schema_rules as rules
from agentflow.lib.schema.json_types import TYPES
from agentflow.lib.schema.linear_pattern import LinearPattern, LinearPatterns
from agentflow.lib.schema.schema_rules import Check, Full, Rule, SchemaNode, TooMuch, show
from agentflow.lib.text.suggest import did_you_mean

MAX_NESTING = 100
"""Maximum nesting of a schema."""
MAX_NODES = 20_000
"""Maximum number of subschemas in one schema; the target of a reference counts each time."""
_FEW_PARTS = 2_000
_TYPE_NAMES = frozenset(TYPES.values())


def check(value: object, schema: Mapping[str, Any]) -> list[str]:
    """The violations of ``schema`` by ``value``: one line each, with its path, at most 20; empty if there are none.

    A Symbol counts as a string, a tuple as an array, a pydantic model as an opaque object. Raises
    ConfigurationError for an invalid schema.
    """
    return Schema(schema).check(value)


# An own checker: the libraries are not bounded on hostile schemas (decision 14)
class Schema:
    """A compiled JSON Schema, to check many values; see :func:`check`.

    A regular expression that cannot be matched in linear time (with look-behind, back-references, look-ahead within) is not
    checked, which a Python warning says. Raises ConfigurationError (``schema/invalid``) if any part of the schema is invalid.
    """

    __slots__ = ("_root",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        compiler = _Compiler(schema)
        self._root = compiler.compile()
        for text in compiler.unchecked:
            warnings.warn(
                f"the pattern {clip(text, 200)} of a JSON Schema cannot be matched in linear time: text is not checked against it",
                UserWarning,
                stacklevel=2,
            )

    def check(self, value: object) -> list[str]:
        """The violations of the schema by ``value``; empty if there are none."""
        run = Check()
        try:
            run.visit(self._root, value, "", 0)
        except Full:
            pass
        except TooMuch as limit:
            return [*run.problems, f"the value: {limit}"]
        return run.problems

    def without_nulls(self, value: Any) -> Any:
        """``value`` without null properties that are optional and not nullable; itself if there are none."""
        try:
            return _without_nulls(self._root, value, Check(), 0)
        except (Full, TooMuch):
            return value


def _without_nulls(node: SchemaNode, value: Any, run: Check, depth: int) -> Any:
    arguments = node.arguments
    if depth > MAX_NESTING:
        return value
    for each in [*([arguments["$ref"]()] if "$ref" in arguments else []), *arguments.get("allOf", ())]:
        value = _without_nulls(each, value, run, depth + 1)
    for each in [*arguments.get("anyOf", ()), *arguments.get("oneOf", ())]:
        other = _without_nulls(each, value, run, depth + 1)
        if other is not value and run.meets(each, other, "", depth):
            value = other
            break
    if isinstance(value, list) and "items" in arguments:
        items = cast("list[Any]", value)
        kept = [_without_nulls(arguments["items"], each, run, depth + 1) for each in items]
        return items if all(map(operator.is_, kept, items)) else kept
    if not isinstance(value, dict) or "properties" not in arguments:
        return cast("Any", value)
    entries, named = cast("dict[str, Any]", value), cast("dict[str, SchemaNode]", arguments["properties"])
    rest: dict[str, Any] = {}
    for key, each in entries.items():
        own = named.get(key)
        if each is not None or own is None or key in arguments.get("required", ()) or run.meets(own, None, "", depth):
            rest[key] = each if own is None else _without_nulls(own, each, run, depth + 1)
    return entries if len(rest) == len(entries) and all(map(operator.is_, rest.values(), entries.values())) else rest


def is_large(value: object) -> bool:
    """Whether data has so many parts that checking it would hold an event loop."""
    pending, count = [value], 0
    while pending and count <= _FEW_PARTS:
        item = pending.pop()
        if isinstance(item, Mapping | list | tuple):
            parts = cast("Mapping[Any, Any] | list[Any]", item)
            count += len(parts)
            if count <= _FEW_PARTS:
                pending += parts.values() if isinstance(parts, Mapping) else parts
    return count > _FEW_PARTS


class _Compiler:
    """Compiles one schema: its subschemas, anchors and references."""

    def __init__(self, schema: object) -> None:
        self._schema = schema
        self._anchors: dict[str, SchemaNode] = {}
        self._targets: dict[str, SchemaNode] = {}
        self._pending: list[tuple[str, str]] = []
        self._nodes = 0
        self.patterns = LinearPatterns()
        self.unchecked: dict[str, None] = {}

    def compile(self) -> SchemaNode:
        """The root's node. Raises ConfigurationError."""
        self._targets["#"] = root = self.node(self._schema, "", 0)
        while self._pending:
            ref, path = self._pending.pop()
            if ref not in self._targets:
                self._targets[ref] = self._anchors.get(ref[1:]) or self.node(self._find(ref, path), ref, 0)
        return root

    def node(self, schema: object, path: str, depth: int) -> SchemaNode:
        """One schema's node. Raises ConfigurationError."""
        self._nodes += 1
        if depth > MAX_NESTING or self._nodes > MAX_NODES:
            most = f"deeper than {MAX_NESTING} levels" if depth > MAX_NESTING else f"beyond {MAX_NODES:,} subschemas"
            raise _wrong(path[:200], f"is {most}")
        node = SchemaNode()
        if schema is False:
            node.arguments["false"] = True
            node.rules = [(rules.never, None)]
        elif schema is not True:
            if not isinstance(schema, Mapping):
                raise _wrong(path, f"is {show(schema)} in place of a schema")
            self._keywords(node, cast(Mapping[str, Any], schema), path, depth)
        return node

    def _keywords(self, node: SchemaNode, schema: Mapping[str, Any], path: str, depth: int) -> None:
        rows: dict[Rule, tuple[int, str | None]] = {}
        for keyword, argument in schema.items():
            row = _KEYWORDS.get(keyword)
            if row is not None:
                compile_argument, rule, about = row
                node.arguments[keyword] = compile_argument(self, argument, f"{path}/{keyword}", depth + 1)
                if rule is not None:
                    rows[rule] = _RANKS[rule], about
        node.rules = [(rule, rows[rule][1]) for rule in sorted(rows, key=rows.__getitem__)]
        for keyword in ("$anchor", "$dynamicAnchor"):
            if keyword in node.arguments:
                self._anchors[node.arguments[keyword]] = node
        if "type" in node.arguments:
            names = node.arguments["type"]
            node.types = frozenset((*names, "integer") if "number" in names else names)

    def reference(self, ref: object, path: str, depth: int) -> Callable[[], SchemaNode]:
        """A function that returns a reference's node once the whole schema is compiled."""
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise _wrong(path, f"is {show(ref)}, which is not in this schema (#/...)")
        self._pending.append((ref, path))
        return lambda: self._targets[ref]

    def _find(self, ref: str, path: str) -> object:
        try:
            return target(self._schema, ref)
        except LookupError:
            raise _wrong(path, f"is {show(ref)}, which leads nowhere") from None


def target(schema: object, ref: str) -> Any:
    """The part of ``schema`` that a reference (``#/$defs/Name``) leads to. Raises LookupError if it leads nowhere."""
    at: Any = schema
    try:
        name, *parts = unquote(ref.removeprefix("#")).split("/")
        for part in parts:
            key = part.replace("~1", "/").replace("~0", "~")
            at = at[int(key) if isinstance(at, list) else key]
    except (LookupError, TypeError, ValueError):
        name = ref
    if name or not ref.startswith("#"):
        raise LookupError(ref)
    return cast("Any", at)


def _wrong(path: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the JSON Schema is wrong: {path.lstrip('#/') or 'the schema'} {clip(what, 300)}",
        code="schema/invalid",
        hint="see json-schema.org; a schema is an object such as {'type': 'object', 'properties': {...}}",
    )


def _count(compiler: _Compiler, argument: object, path: str, depth: int) -> int:
    if isinstance(argument, float) and argument.is_integer():
        argument = int(argument)
    if not isinstance(argument, int) or isinstance(argument, bool) or argument < 0:
        raise _wrong(path, f"is {show(argument)}, must be a whole number")
    return argument


def _number(compiler: _Compiler, argument: object, path: str, depth: int) -> float:
    if not isinstance(argument, int | float) or isinstance(argument, bool):
        raise _wrong(path, f"is {show(argument)}, must be a number")
    return argument


def _step(compiler: _Compiler, argument: object, path: str, depth: int) -> float:
    number = _number(compiler, argument, path, depth)
    if not 0 < number < float("inf"):
        raise _wrong(path, f"is {show(argument)}, must be more than 0")
    return number


def _flag(compiler: _Compiler, argument: object, path: str, depth: int) -> bool:
    if not isinstance(argument, bool):
        raise _wrong(path, f"is {show(argument)}, must be true or false")
    return argument


def _text(compiler: _Compiler, argument: object, path: str, depth: int) -> str:
    if not isinstance(argument, str):
        raise _wrong(path, f"is {show(argument)}, must be text")
    return argument


def _names(compiler: _Compiler, argument: object, path: str, depth: int) -> list[str]:
    return [_text(compiler, name, path, depth) for name in _list(argument, path)]


def _types(compiler: _Compiler, argument: object, path: str, depth: int) -> list[str]:
    names = [argument] if isinstance(argument, str) else _names(compiler, argument, path, depth)
    for name in names:
        if name not in _TYPE_NAMES:
            near = did_you_mean(name, _TYPE_NAMES) or f"write one of {', '.join(sorted(_TYPE_NAMES))}"
            raise _wrong(path, f"is {show(name)}, which is not a type; {near}")
    return names


def _values(compiler: _Compiler, argument: object, path: str, depth: int) -> dict[object, object]:
    identity = Check().identity
    return {identity(value): value for value in _list(argument, path)}


def _value(compiler: _Compiler, argument: object, path: str, depth: int) -> object:
    return argument


def _pattern(compiler: _Compiler, argument: object, path: str, depth: int) -> LinearPattern:
    text = _text(compiler, argument, path, depth)
    try:
        pattern = compiler.patterns.of(text)
    except ValueError as error:
        raise _wrong(path, f"is {show(text)}, no regular expression: {error}") from error
    if not pattern.is_checked:
        compiler.unchecked[text] = None
    return pattern


def _node(compiler: _Compiler, argument: object, path: str, depth: int) -> SchemaNode:
    return compiler.node(argument, path, depth)


def _nodes(compiler: _Compiler, argument: object, path: str, depth: int) -> list[SchemaNode]:
    schemas = _list(argument, path)
    if not schemas:
        raise _wrong(path, "is empty, must be a list of schemas")
    return [compiler.node(each, f"{path}/{index}", depth) for index, each in enumerate(schemas)]


def _list(argument: object, path: str) -> list[Any]:
    if not isinstance(argument, list | tuple):
        raise _wrong(path, f"is {show(argument)}, must be a list")
    return list(cast(list[Any], argument))


def _mapping(argument: object, path: str) -> Mapping[str, Any]:
    if not isinstance(argument, Mapping):
        raise _wrong(path, f"is {show(argument)}, must be an object")
    return cast(Mapping[str, Any], argument)


def _named(compiler: _Compiler, argument: object, path: str, depth: int) -> dict[str, SchemaNode]:
    return {str(name): compiler.node(each, f"{path}/{name}", depth) for name, each in _mapping(argument, path).items()}


def _patterned(compiler: _Compiler, argument: object, path: str, depth: int) -> list[tuple[LinearPattern, SchemaNode]]:
    nodes = _named(compiler, argument, path, depth)
    return [(_pattern(compiler, name, path, depth), node) for name, node in nodes.items()]


def _needs(compiler: _Compiler, argument: object, path: str, depth: int) -> dict[str, list[str]]:
    return {name: _names(compiler, each, f"{path}/{name}", depth) for name, each in _mapping(argument, path).items()}


_Argument = Callable[[_Compiler, Any, str, int], Any]
_KEYWORDS: Mapping[str, tuple[_Argument, Rule | None, str | None]] = MappingProxyType(
    {
        "$defs": (_named, None, None),
        "definitions": (_named, None, None),
        "$anchor": (_text, None, None),
        "$dynamicAnchor": (_text, None, None),
        "$ref": (_Compiler.reference, rules.reference("$ref"), None),
        "$dynamicRef": (_Compiler.reference, rules.reference("$dynamicRef"), None),
        "type": (_types, None, None),
        "enum": (_values, rules.enum, None),
        "const": (_value, rules.const, None),
        "minLength": (_count, rules.at_least("minLength", "characters"), "string"),
        "maxLength": (_count, rules.at_most("maxLength", "characters"), "string"),
        "pattern": (_pattern, rules.pattern, "string"),
        "minimum": (_number, rules.bound("minimum", "at least", operator.ge), "number"),
        "maximum": (_number, rules.bound("maximum", "at most", operator.le), "number"),
        "exclusiveMinimum": (_number, rules.bound("exclusiveMinimum", "more than", operator.gt), "number"),
        "exclusiveMaximum": (_number, rules.bound("exclusiveMaximum", "less than", operator.lt), "number"),
        "multipleOf": (_step, rules.bound("multipleOf", "a multiple of", rules.is_multiple), "number"),
        "minItems": (_count, rules.at_least("minItems", "items"), "array"),
        "maxItems": (_count, rules.at_most("maxItems", "items"), "array"),
        "prefixItems": (_nodes, rules.items, "array"),
        "items": (_node, rules.items, "array"),
        "contains": (_node, rules.contains, "array"),
        "minContains": (_count, None, None),
        "maxContains": (_count, None, None),
        "uniqueItems": (_flag, rules.unique_items, "array"),
        "required": (_names, rules.required, "object"),
        "minProperties": (_count, rules.at_least("minProperties", "properties"), "object"),
        "maxProperties": (_count, rules.at_most("maxProperties", "properties"), "object"),
        "dependentRequired": (_needs, rules.dependent_required, "object"),
        "propertyNames": (_node, rules.property_names, "object"),
        "properties": (_named, rules.properties, "object"),
        "patternProperties": (_patterned, rules.properties, "object"),
        "additionalProperties": (_node, rules.properties, "object"),
        "dependentSchemas": (_named, rules.dependent_schemas, "object"),
        "allOf": (_nodes, rules.all_of, None),
        "anyOf": (_nodes, rules.any_of, None),
        "oneOf": (_nodes, rules.one_of, None),
        "not": (_node, rules.excluded, None),
        "if": (_node, rules.conditional, None),
        "then": (_node, None, None),
        "else": (_node, None, None),
        "unevaluatedItems": (_node, rules.unevaluated_items, "array"),
        "unevaluatedProperties": (_node, rules.unevaluated_properties, "object"),
    }
)
"""For each keyword: the compiler of its argument, its rule, and the kind of values it applies to (None: all), in the
order of application. Other keywords do not constrain data."""
_RANKS = {rule: rank for rank, (_, rule, _) in enumerate(_KEYWORDS.values()) if rule is not None}
