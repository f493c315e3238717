"""JSON Schema: checking data, and schemas from simple names such as ``string[]``.

The keywords that schemas for models are written in are checked by plain code here (it runs on every tool call);
a schema that uses a rarer one goes to the ``jsonschema`` package, imported then. Source of the rules: JSON Schema
draft 2020-12, validation and applicator vocabularies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.errors import ConfigurationError, clip
from agentflow.core.values import Symbol, plain, to_json
from agentflow.lib.suggest import did_you_mean

MAX_PROBLEMS = 20
"""Violations reported at most; a model mends the first ones anyway."""
MAX_DEPTH = 200
"""Deepest nesting of data or references that is followed; beyond it the data does not meet the schema."""

_RARE = frozenset(
    [
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedItems",
        "unevaluatedProperties",
        "minProperties",
        "maxProperties",
        "dependencies",
        "additionalItems",
        "$dynamicRef",
        "$recursiveRef",
        "$id",
    ]
)
_COMBINING = frozenset(("allOf", "anyOf", "oneOf", "not"))
_TYPES: Mapping[type, str] = MappingProxyType(
    {
        type(None): "null",
        bool: "boolean",
        str: "string",
        int: "integer",
        float: "number",
        list: "array",
        dict: "object",
    }
)
_SIMPLE: dict[str, dict[str, Any]] = {
    "any": {},
    "string": {"type": "string"},
    "str": {"type": "string"},
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "float": {"type": "number"},
    "boolean": {"type": "boolean"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
    "dict": {"type": "object"},
    "array": {"type": "array"},
    "list": {"type": "array"},
    "null": {"type": "null"},
}


def simple_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a simple type name.

    ``string integer number boolean object array null any`` (and Python's names for them), with ``[]`` for a list of
    them (``string[]``, ``integer[][]``), ``?`` for "or null", and ``a|b`` for either. Raises ConfigurationError for an
    unknown name.
    """
    text = name.strip()
    if "|" in text:
        return {"anyOf": [simple_schema(part) for part in text.split("|")]}
    if text.endswith("?"):
        return {"anyOf": [simple_schema(text[:-1]), {"type": "null"}]}
    if text.endswith("[]"):
        return {"type": "array", "items": simple_schema(text[:-2])}
    known = _SIMPLE.get(text.lower())
    if known is None:
        raise ConfigurationError(
            f"'{clip(name, 100)}' is no type name",
            code="schema/unknown-type",
            hint=did_you_mean(text.lower(), _SIMPLE)
            or "write string, integer, number, boolean, object, array, null or any, with [] for a list of them",
        )
    return dict(known)


def check(value: object, schema: Mapping[str, Any]) -> list[str]:
    """Where ``value`` misses ``schema``: one line per violation with its place, at most 20; empty when it meets it.

    A Symbol counts as a string, a tuple as an array, a pydantic model as an object that is not looked into.
    Raises ConfigurationError for a schema that is itself wrong.
    """
    return Schema(schema).check(value)


class Schema:
    """A JSON Schema made ready to check many values; see :func:`check`."""

    __slots__ = ("_rare", "_schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._rare = _uses_rare(schema)

    def check(self, value: object) -> list[str]:
        """Where ``value`` misses the schema; empty when it meets it. Raises ConfigurationError for a wrong schema."""
        if self._rare:
            return _check_with_library(value, self._schema)
        problems: list[str] = []
        _Checker(self._schema, problems).check(value, self._schema, "", 0)
        return problems


def _uses_rare(schema: object) -> bool:
    pending: list[Any] = [schema]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            mapping = cast(Mapping[str, Any], item)
            if not _RARE.isdisjoint(mapping):
                return True
            for key, inner in mapping.items():
                if key in ("properties", "$defs", "definitions"):
                    if isinstance(inner, Mapping):
                        pending.extend(cast(Mapping[str, Any], inner).values())
                elif key not in ("enum", "const", "default", "examples"):
                    pending.append(inner)
        elif isinstance(item, list):
            pending.extend(cast(list[Any], item))
    return False


def _check_with_library(value: object, schema: Mapping[str, Any]) -> list[str]:
    import jsonschema

    validator: Any = jsonschema.Draft202012Validator(cast(Any, schema))
    problems: list[str] = []
    try:
        found: Iterable[Any] = validator.iter_errors(plain(value))
        for problem in found:
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.absolute_path)
            problems.append(f"{_where(path)}: {clip(str(problem.message), 300)}")
            if len(problems) >= MAX_PROBLEMS:
                break
    except (jsonschema.SchemaError, RecursionError, ValueError, TypeError, LookupError) as error:
        raise _bad_schema(f"{type(error).__name__}: {error}") from error
    return problems


def _bad_schema(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the JSON Schema is wrong: {clip(what, 300)}",
        code="schema/invalid",
        hint="see json-schema.org; a schema is an object such as {'type': 'object', 'properties': {...}}",
    )


def _where(path: str) -> str:
    return path.removeprefix(".") or "the value"


def type_name(value: object) -> str:
    """What JSON calls the type of ``value``; the Python type's name where JSON has no word for it."""
    known = _TYPES.get(type(value))
    if known is not None:
        return known
    if isinstance(value, str | Symbol):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, list | tuple):
        return "array"
    if isinstance(value, Mapping | BaseModel):
        return "object"
    return type(value).__name__


def _is(value: object, wanted: str) -> bool:
    name = type_name(value)
    if name == wanted or (wanted == "number" and name == "integer"):
        return True
    return wanted == "integer" and isinstance(value, float) and value.is_integer()


def _plain_equal(a: object, b: object) -> bool:
    if isinstance(a, bool) is not isinstance(b, bool):
        return False
    return a == b


class _Checker:
    """One check of one value: the root schema for references, and the violations so far."""

    __slots__ = ("_problems", "_root")

    def __init__(self, root: Mapping[str, Any], problems: list[str]) -> None:
        self._root = root
        self._problems = problems

    def check(self, value: Any, schema: object, path: str, depth: int) -> None:
        if schema is True or len(self._problems) >= MAX_PROBLEMS:
            return
        if schema is False:
            self._say(path, "nothing is allowed here")
            return
        if not isinstance(schema, Mapping):
            raise _bad_schema(f"at {_where(path)} there is {type_name(schema)} in place of a schema")
        if depth > MAX_DEPTH:
            self._say(path[:200], f"nested deeper than {MAX_DEPTH} levels")
            return
        rules = cast(Mapping[str, Any], schema)
        ref = rules.get("$ref")
        if ref is not None:
            self.check(value, self._resolve(ref), path, depth + 1)
        wanted = rules.get("type")
        if wanted is not None and type_name(value) != wanted and not self._type(value, wanted, path):
            return
        if "enum" in rules and not any(_plain_equal(value, item) for item in rules["enum"]):
            self._say(path, f"is {_show(value)}, must be one of {_show(list(rules['enum']))}")
        if "const" in rules and not _plain_equal(value, rules["const"]):
            self._say(path, f"is {_show(value)}, must be {_show(rules['const'])}")
        if len(rules) > 1 or wanted is None:
            self._by_type(value, rules, path, depth)

    def _by_type(self, value: Any, rules: Mapping[str, Any], path: str, depth: int) -> None:
        if isinstance(value, str | Symbol):
            self._string(str(value), rules, path)
        elif isinstance(value, dict):
            self._object(cast(dict[Any, Any], value), rules, path, depth)
        elif isinstance(value, int | float):
            if not isinstance(value, bool):
                self._number(value, rules, path)
        elif isinstance(value, list | tuple):
            self._array(cast(Sequence[Any], value), rules, path, depth)
        elif isinstance(value, Mapping):
            self._object(cast(Mapping[Any, Any], value), rules, path, depth)
        if not _COMBINING.isdisjoint(rules):
            self._combined(value, rules, path, depth)

    def _say(self, path: str, what: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(f"{_where(path)}: {what}")

    def _resolve(self, ref: object) -> object:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise _bad_schema(f"the reference {ref!r} is not local (#/...)")
        at: Any = self._root
        for part in ref[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(at, Mapping) or key not in at:
                raise _bad_schema(f"the reference {ref!r} leads nowhere")
            at = cast(Mapping[str, Any], at)[key]
        return at

    def _type(self, value: object, wanted: object, path: str) -> bool:
        names = [wanted] if isinstance(wanted, str) else cast(list[str], wanted)
        if not isinstance(names, list):  # pyright: ignore[reportUnnecessaryIsInstance] - schemas come from outside
            raise _bad_schema(f"'type' is {wanted!r}")
        if any(_is(value, name) for name in names):
            return True
        self._say(path, f"is {_show(value)} ({type_name(value)}), must be {' or '.join(names)}")
        return False

    def _string(self, value: str, rules: Mapping[str, Any], path: str) -> None:
        if len(value) < rules.get("minLength", 0):
            self._say(path, f"has {len(value)} characters, at least {rules['minLength']} are needed")
        if len(value) > rules.get("maxLength", math.inf):
            self._say(path, f"has {len(value)} characters, at most {rules['maxLength']} are allowed")
        pattern = rules.get("pattern")
        if pattern is not None:
            try:
                matched = re.search(pattern, value)
            except re.error as error:
                raise _bad_schema(f"pattern {pattern!r}: {error}") from error
            if matched is None:
                self._say(path, f"is {_show(value)}, must match the pattern {pattern}")

    def _number(self, value: float, rules: Mapping[str, Any], path: str) -> None:
        bounds: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
            ("minimum", lambda v, b: v >= b, "at least"),
            ("maximum", lambda v, b: v <= b, "at most"),
            ("exclusiveMinimum", lambda v, b: v > b, "more than"),
            ("exclusiveMaximum", lambda v, b: v < b, "less than"),
            ("multipleOf", lambda v, b: b != 0 and math.isclose(v / b, round(v / b), abs_tol=1e-9), "a multiple of"),
        )
        for key, holds, words in bounds:
            bound = rules.get(key)
            if isinstance(bound, int | float) and not isinstance(bound, bool) and not holds(value, bound):
                self._say(path, f"is {value}, must be {words} {bound}")

    def _object(self, value: Mapping[Any, Any], rules: Mapping[str, Any], path: str, depth: int) -> None:
        properties = cast(Mapping[str, Any], rules.get("properties") or {})
        for name in rules.get("required", ()):
            if name not in value:
                self._say(path, f"'{name}' is missing")
        extra = rules.get("additionalProperties", True)
        for key, item in value.items():
            name = str(key)
            if name in properties:
                self.check(item, properties[name], f"{path}.{name}", depth + 1)
            elif extra is False:
                near = did_you_mean(name, properties)
                self._say(path, f"'{clip(name, 80)}' is not allowed" + (f" ({near})" if near else ""))
            elif extra is not True:
                self.check(item, extra, f"{path}.{name}", depth + 1)

    def _array(self, value: Sequence[Any], rules: Mapping[str, Any], path: str, depth: int) -> None:
        if len(value) < rules.get("minItems", 0):
            self._say(path, f"has {len(value)} items, at least {rules['minItems']} are needed")
        if len(value) > rules.get("maxItems", math.inf):
            self._say(path, f"has {len(value)} items, at most {rules['maxItems']} are allowed")
        first = cast(Sequence[Any], rules.get("prefixItems") or ())
        for index, (item, schema) in enumerate(zip(value, first, strict=False)):
            self.check(item, schema, f"{path}[{index}]", depth + 1)
        items = rules.get("items")
        if items is not None and items is not True:
            for index in range(len(first), len(value)):
                self.check(value[index], items, f"{path}[{index}]", depth + 1)
                if len(self._problems) >= MAX_PROBLEMS:
                    return
        if rules.get("uniqueItems") and len({to_json(item) for item in value}) != len(value):
            self._say(path, "has an item twice, all must differ")

    def _combined(self, value: Any, rules: Mapping[str, Any], path: str, depth: int) -> None:
        for schema in rules.get("allOf", ()):
            self.check(value, schema, path, depth + 1)
        any_of = rules.get("anyOf")
        if any_of is not None:
            self._any(value, cast(Sequence[Any], any_of), path, depth)
        one_of = rules.get("oneOf")
        if one_of is not None:
            schemas = cast(Sequence[Any], one_of)
            meets = sum(1 for schema in schemas if not self._violations(value, schema, path, depth))
            if meets == 0:
                self._any(value, schemas, path, depth)
            elif meets > 1:
                self._say(path, f"meets {meets} of the alternatives, must meet exactly one")
        if "not" in rules and not self._violations(value, rules["not"], path, depth):
            self._say(path, "is what the schema excludes")

    def _violations(self, value: Any, schema: object, path: str, depth: int) -> list[str]:
        found: list[str] = []
        _Checker(self._root, found).check(value, schema, path, depth + 1)
        return found

    def _any(self, value: Any, schemas: Sequence[Any], path: str, depth: int) -> None:
        nearest: list[str] | None = None
        for schema in schemas:
            found = self._violations(value, schema, path, depth)
            if not found:
                return
            if nearest is None or len(found) < len(nearest):
                nearest = found
        for problem in nearest or [f"{_where(path)}: meets none of the alternatives"]:
            if len(self._problems) < MAX_PROBLEMS:
                self._problems.append(f"{problem} (or another of {len(schemas)} alternatives)")


def _show(value: object) -> str:
    try:
        return clip(to_json(value), 120)
    except ValueError:
        return "data nested too deeply"
