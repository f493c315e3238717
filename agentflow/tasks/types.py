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

from agentflow.core.data.errors import cut
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import Symbol
from agentflow.lib.schema.declared_schema import parse_type
from agentflow.lib.schema.json_schema import check


def convert(value: object, declared: str) -> Any:
    """``value`` as the declared type. Raises ValueError that describes the mismatch.

    Conversions are lossless: symbols and numbers become text; text of exactly a number, a boolean or JSON becomes
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
    raise ValueError(f"text is wanted, not {_kind(value)}; declare it 'any' to take data, or pass it as JSON text")


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
        raise ValueError(f"{kind} is wanted, and the text {excerpt!r} is not JSON") from None


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
