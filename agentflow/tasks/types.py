"""Simple type names (``string``, ``integer``, ``string[]``, ``object`` ...) that declare parameters and outputs.

The same names serve both: arguments are checked against them and, if nothing is lost, converted; an output declared
with them becomes a JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.errors import ConfigurationError, cut
from agentflow.core.results import TaskResult
from agentflow.core.values import Symbol, name_of, pairs_to_dict, plain
from agentflow.lib.json_schema import check
from agentflow.lib.json_types import longest_list, simple_schema

MAX_NAME = 100
"""Maximum length of a type name, which also bounds the nesting of ``[]``."""


def parse_type(name: str) -> dict[str, Any]:
    """The JSON Schema of a simple type name. Raises ValueError that says what is wrong and what to write."""
    if len(name) > MAX_NAME:
        raise ValueError(f"a type name has at most {MAX_NAME} characters")
    try:
        return simple_schema(name)
    except ConfigurationError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None


def schema_of(declared: object) -> dict[str, Any]:
    """The JSON Schema of a declared output: a simple name, a JSON Schema, or a dict of field names to either.

    A list of one is a list of such; with ``"<=8"`` beside it, of at most eight. A dict counts as a JSON Schema if it has ``type``, ``$ref``, ``anyOf``, ``enum`` ... as schemas do; any other dict
    is an object whose fields are required unless their name ends in ``?``. Raises ValueError.
    """
    if isinstance(declared, str):
        return parse_type(declared)
    if isinstance(declared, Symbol):
        return schema_of(declared.name)
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return declared.model_json_schema()
    if isinstance(declared, Mapping):
        fields = {str(key): value for key, value in cast(Mapping[object, object], declared).items()}
        if _is_json_schema(fields):
            return cast(dict[str, Any], plain(fields))
        properties = {name.removesuffix("?"): schema_of(value) for name, value in fields.items()}
        required = [name for name in fields if not name.endswith("?")]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    pairs = pairs_to_dict(cast(object, declared)) if isinstance(declared, list) else None
    if pairs:
        return schema_of(pairs)
    if isinstance(declared, list):
        items = cast(list[object], declared)
        if len(items) == 1:
            return {"type": "array", "items": schema_of(items[0])}
        longest = longest_list(name_of(items[1]) or items[1]) if len(items) == 2 else None
        if longest is not None:
            return {"type": "array", "items": schema_of(items[0]), "maxItems": longest}
    raise ValueError(
        f"{declared!r} is no schema; write a simple name such as 'string[]', a dict of fields, a list of a schema and perhaps "
        "'<=8', or a JSON Schema"
    )


_SCHEMA_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


_WORDS = frozenset(
    [
        "type",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "description",
        "title",
        "default",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "prefixItems",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "examples",
        "not",
        "if",
        "then",
        "else",
        "definitions",
        "contains",
        "propertyNames",
        "nullable",
    ]
)
"""Keywords of schemas beside ``type``."""
_TYPED = frozenset({"type", "title", "description", "default", "format", "pattern"})
"""Keywords whose value may be a text, as that of a field may."""


def _is_json_schema(fields: dict[str, object]) -> bool:
    """Whether a dict is a JSON Schema, and not fields by name. Raises ValueError where it could be both."""
    if any(key.startswith("$") or key in ("anyOf", "oneOf", "allOf", "enum", "const") for key in fields):
        return True
    kind = fields.get("type")
    if isinstance(kind, list):
        return True
    if kind not in _SCHEMA_TYPES:
        return not fields
    # {"type": "string", "name": "string"} declares two fields; in a schema all other keys are schema keywords
    if not fields.keys() <= _WORDS:
        return False
    if len(fields) > 1 and fields.keys() <= _TYPED and all([_names_a_type(each) for each in fields.values()]):
        raise ValueError(
            f"{fields!r} could be the fields {', '.join(fields)}, or a JSON Schema of type '{kind}'; fields are written"
            " {'type': 'object', 'properties': {'type': {'type': 'string'}, ...}} or as a pydantic model, a schema with another"
            " description, such as 'what it is'"
        )
    return True


def _names_a_type(value: object) -> bool:
    if not isinstance(value, str | Symbol):
        return False
    try:
        simple_schema(value if isinstance(value, str) else value.name)
    except ConfigurationError:
        return False
    return True


def convert(value: object, declared: str) -> Any:
    """``value`` as the declared type. Raises ValueError that says what is wrong.

    Conversions are lossless: symbols and numbers become text; text that is exactly a number, a boolean or JSON becomes
    that value; an integral float becomes an integer, a TaskResult its parsed content or content.
    """
    if declared == "any" or (declared == "string" and value.__class__ is str):
        return value  # the common case, without a lookup
    return _convert(value, parse_type(declared))


def _convert(value: object, schema: Mapping[str, Any]) -> Any:
    choices = schema.get("anyOf")
    if choices is not None:
        return _either(value, choices)
    kind = schema.get("type", "any")
    if isinstance(value, TaskResult) and kind != "any":
        value = value.content if kind == "string" else value.value()
    result = _SCALARS[kind](value)
    items = schema.get("items")
    if items is not None:
        longest = schema.get("maxItems")
        if longest is not None and len(result) > longest:
            raise ValueError(f"a list of at most {longest} is wanted, not one of {len(result):,}")
        for index, item in enumerate(result):
            try:
                result[index] = _convert(item, items)
            except ValueError as error:
                raise ValueError(f"item {index}: {error}") from None
    return result


def _either(value: object, choices: list[Mapping[str, Any]]) -> Any:
    for choice in choices:
        if not check(value, choice):
            return value
    problems: list[str] = []
    for choice in choices:
        try:
            return _convert(value, choice)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; or ".join(problems))


def _string(value: object) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if hasattr(value, "__fspath__"):
        return str(value)
    raise ValueError(f"text is wanted, not {_kind(value)}; declare it 'any' to take data, or pass (to-json ...)")


def _integer(value: object) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) < 4_000:
        try:
            return int(value.strip())
        except ValueError:
            pass
    raise ValueError(f"an integer is wanted, not {_kind(value)}")


def _number(value: object) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) < 4_000:
        for read in (int, float):
            try:
                return read(value.strip())
            except ValueError:
                continue
    raise ValueError(f"a number is wanted, not {_kind(value)}")


def _boolean(value: object) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError(f"true or false is wanted, not {_kind(value)}")


def _object(value: object) -> Any:
    if isinstance(value, str):
        value = _json(value, "an object")
    if isinstance(value, Mapping | BaseModel):
        return cast(Any, value)
    raise ValueError(f"an object is wanted, not {_kind(value)}")


def _array(value: object) -> Any:
    if isinstance(value, str):
        value = _json(value, "a list")
    if isinstance(value, list | tuple):
        return list(cast(list[Any], value))
    raise ValueError(f"a list is wanted, not {_kind(value)}")


def _null(value: object) -> Any:
    if value is None or value == []:
        return None
    raise ValueError(f"nothing (null) is wanted, not {_kind(value)}")


def _any(value: object) -> Any:
    return value


_SCALARS = MappingProxyType(
    {
        "any": _any,
        "array": _array,
        "boolean": _boolean,
        "integer": _integer,
        "null": _null,
        "number": _number,
        "object": _object,
        "string": _string,
    }
)


def _json(text: str, kind: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        excerpt = text if len(text) <= 40 else text[:37] + "..."
        raise ValueError(f"{kind} is wanted, and the text {excerpt!r} is no JSON") from None


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:37] + '...'!r}"
    if isinstance(value, int | float):
        return f"the number {cut(str(value), 40)}"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a {type(value).__name__}"
