"""Declarations of data by hosts and programs: simple type names, fields by name, or a JSON Schema, all read by one rule.

A dict may be fields or a JSON Schema. This module decides which, and refuses an ambiguous one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.values import Symbol, name_of, pairs_to_dict, plain
from agentflow.lib.schema.json_types import longest_list, simple_schema

MAX_NAME = 100
"""Maximum length of a type name, which also bounds the nesting of ``[]``."""


def parse_type(name: str) -> dict[str, Any]:
    """The JSON Schema of a simple type name. Raises ValueError with the problem and the correct form."""
    if len(name) > MAX_NAME:
        raise ValueError(f"a type name has at most {MAX_NAME} characters")
    try:
        return simple_schema(name)
    except ConfigurationError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None


def schema_of(declared: object) -> dict[str, Any]:
    """The JSON Schema of a declared output: a simple name, a JSON Schema, or a dict of field names to either.

    A list of one declaration is a list of such elements; with a second element ``"<=8"``, of at most eight. A dict counts
    as a JSON Schema if it has ``type``, ``$ref``, ``anyOf``, ``enum`` ... as schemas do; any other dict is an object, with
    required fields unless their name ends in ``?``. Raises ValueError.
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
        f"{declared!r} is not a schema; write a simple name such as 'string[]', a dict of fields, a list of a schema and perhaps "
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
        "enumNames",
        "readOnly",
        "writeOnly",
        "deprecated",
        "contentEncoding",
        "contentMediaType",
        "minContains",
        "maxContains",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
"""Keywords of schemas other than ``type``."""
_TYPED = frozenset({"type", "title", "description", "default", "format", "pattern"})
"""Keywords with a value that may be a text, like that of a field."""


def _is_json_schema(fields: dict[str, object]) -> bool:
    """Whether a dict is a JSON Schema, and not fields by name. Raises ValueError where it could be both."""
    if any(key.startswith("$") or key in ("anyOf", "oneOf", "allOf", "enum", "const") for key in fields):
        return True
    kind = fields.get("type")
    if isinstance(kind, list):
        return True
    fields = {key: value for key, value in fields.items() if not key.startswith("x-")}
    if kind not in _SCHEMA_TYPES:
        return not fields or (fields.keys() <= _WORDS and any([_says_more(each) for each in fields.values()]))
    # {"type": "string", "name": "string"} declares two fields; in a schema all other keys are schema keywords
    if not fields.keys() <= _WORDS:
        return False
    if len(fields) > 1 and fields.keys() <= _TYPED and all([_names_a_type(each) for each in fields.values()]):
        raise ValueError(
            f"{fields!r} could be the fields {', '.join(fields)}, or a JSON Schema of type '{kind}'; fields are written"
            " {'type': 'object', 'properties': {'type': {'type': 'string'}, ...}} or as a pydantic model, a schema with another"
            " description, such as 'the kind'"
        )
    return True


def _says_more(value: object) -> bool:
    """Whether a value is not the type of a field: a number, or a text that does not name a type."""
    return isinstance(value, int | float) or (isinstance(value, str) and not _names_a_type(value))


def _names_a_type(value: object) -> bool:
    if not isinstance(value, str | Symbol):
        return False
    try:
        simple_schema(value if isinstance(value, str) else value.name)
    except ConfigurationError:
        return False
    return True
