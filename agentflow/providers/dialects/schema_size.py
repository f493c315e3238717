"""Whether a translated schema has values at all, and keeps the limits of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentflow.providers.dialects.schema_subsets import Subset

_LONG_ENUM, _LONGEST_ENUM = 250, 15_000
"""Beyond so many values, the texts of one ``enum`` have a limit of characters of their own (OpenAI, structured outputs)."""
_HERE = "#/$defs/"


def is_finite(schema: Mapping[str, Any]) -> bool:
    """Whether a schema in which all properties are required has a value that ends."""
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
