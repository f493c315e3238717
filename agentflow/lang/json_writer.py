"""Writes values as JSON, strictly: a value without a JSON form is an error."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.json_text import encoded
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.values import SharedList, Symbol
from agentflow.core.data.walk import CHARACTERS_PER_STEP, LEAVES, TooDeep, TooLong, Work, copied, elements, exact, sizes
from agentflow.lang.charging import BYTES_PER_CHARACTER, Bounded, check_string
from agentflow.lang.printer import opaque, too_deep, write_number

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def as_data(value: Any) -> Any:
    """A model, dataclass or named tuple as a dict of its declared fields; other values unchanged. One level only."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            info.serialization_alias or info.alias or name: getattr(value, name)
            for name, info in fields.items()
            if not info.exclude
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, Mapping):
            return dict(cast("Mapping[Any, Any]", value))
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.repr and f.name[:1] != "_"}
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=str)
    return value


def json_work(value: object, rt: Bounded, *, indent: int | None = None) -> Work[str]:
    """``value`` as JSON; models and dataclasses are objects of their declared fields, symbols strings.

    Raises SexpEvaluationError (``json/unrepresentable``) for infinities and procedures, LimitExceeded (``limits/depth``)
    past 1,000 levels and (``limits/string``) for a text beyond the limit, before it is built.
    """
    try:
        data, _ = yield from copied(value, _opened)
        try:
            text = yield from encoded(data, indent=indent, limit=rt.limits.string, finite=True)
        except TooLong as error:
            check_string(rt, error.size, "to-json")
            raise
        except TooDeep:
            raise
        except ValueError:
            yield from _refused(data)
            raise
    except TooDeep:
        raise too_deep() from None
    if len(text) >= CHARACTERS_PER_STEP:
        rt.allocate(len(text) * BYTES_PER_CHARACTER)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _opened(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is list or kind is tuple:
        return list(value)
    if kind is SharedList:
        return value.plain()
    if kind is Symbol:
        return value.name
    value = exact(as_data(value))
    if is_dict(value):
        return {key if type(key) is str else _key(key): item for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(cast("list[Any]", value))
    if isinstance(value, str | int | float):
        return value
    raise SexpEvaluationError(
        f"JSON has no word for {opaque(value)}", code="json/unrepresentable", hint="give to-json data, not procedures"
    )


def _key(key: Any) -> str:
    if isinstance(key, str):
        return cast("str", exact(key))
    if isinstance(key, Symbol):
        return key.name
    if key is None:
        return "null"
    if isinstance(key, int | float):
        return _number(exact(key))
    raise SexpEvaluationError(
        f"JSON has no word for {'a tuple' if isinstance(key, tuple) else opaque(key)} as a key",
        code="json/unrepresentable",
        hint="keys are texts, numbers, booleans or none",
    )


def _number(value: Any) -> str:
    """A number as text. Raises SexpEvaluationError or LimitExceeded when it has none in JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        raise SexpEvaluationError(
            f"JSON has no word for {write_number(value)}",
            code="json/unrepresentable",
            hint="replace it with a number or none before to-json",
        )
    return write_number(value)


def _refused(data: Any) -> Work[None]:
    """Raise the error for the first number in ``data`` that cannot be written."""
    measured = yield from sizes(data)
    for *_, item in measured.values() or [(data,)]:
        for each in elements(item) if item is not data or measured else (data,):
            if type(each) in LEAVES and not isinstance(each, str) and each is not None:
                _number(each)
