"""Values of programs without a Python equivalent, and conversion of values to text and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from agentflow.core.records import is_dict
from agentflow.core.shared_list import SharedList, as_list

MAX_DATA_DEPTH = 1_000
"""Maximum nesting for comparison, printing and JSON; beyond it ``limits/depth``."""


class Symbol:
    """A name as a value. Equal and hash-equal to its own string, so that ``(eq? 'a "a")`` is true.

    Parameters: ``name`` is the symbol's text.
    """

    __slots__ = ("__weakref__", "name")
    name: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Symbol cannot be changed")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Symbol):
            return self.name == other.name
        return isinstance(other, str) and self.name == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Symbol({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[type[Symbol], tuple[str]]:
        return Symbol, (self.name,)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def load(value: object) -> Symbol:
            if isinstance(value, Symbol):
                return value
            if isinstance(value, str):
                return cls(value)
            raise ValueError("a symbol is written as a string")

        return core_schema.no_info_plain_validator_function(
            load, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


def name_of(value: object) -> str | None:
    """The text of a string or symbol; None for anything else."""
    if isinstance(value, str):
        return value
    return value.name if isinstance(value, Symbol) else None


def pairs_to_dict(value: object) -> dict[str, Any] | None:
    """A dict, or a list of two-element lists, as a dict with string keys; None if ``value`` is neither.

    The arguments ``context``, ``inputs`` and ``history_config`` take both forms. None for duplicate names.
    """
    if is_dict(value):
        entries: dict[str, Any] = {}
        for key, item in value.items():
            name = name_of(key)
            if name is None:
                return None
            entries[name] = item
        return entries
    pairs = as_list(value) if not isinstance(value, tuple) else None
    if pairs is None:
        return None
    result: dict[str, Any] = {}
    for entry in pairs:
        pair = as_list(entry)
        if pair is None or len(pair) != 2:
            return None
        key, item = pair
        name = name_of(key)
        if name is None or name in result:
            return None
        result[name] = item
    return result


def plain(value: object, _depth: int = 0) -> Any:
    """``value`` as JSON data: symbols become their names, models and dataclasses dicts, tuples lists.

    Objects without a JSON form become their ``str()``. Raises ValueError past 1,000 levels of nesting.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if _depth > MAX_DATA_DEPTH // 4:
        return _plain_deep(value)
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Mapping):
        mapping = cast(Mapping[Any, Any], value)
        return {_key(key): plain(item, _depth + 1) for key, item in mapping.items()}
    if isinstance(value, list | tuple | set | frozenset | SharedList):
        return [plain(item, _depth + 1) for item in cast(Iterable[Any], value)]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = getattr(type(value), "type", None)  # one of several classes that may stand in its place
        fields = {f.name: plain(getattr(value, f.name), _depth + 1) for f in dataclasses.fields(value) if f.repr}
        return {"type": tag, **fields} if isinstance(tag, str) else fields
    return str(value)


def _key(key: object) -> str:
    return key.name if isinstance(key, Symbol) else str(key)


def _plain_deep(value: object) -> Any:
    """The same conversion with an explicit stack, for data too deep to recurse over."""
    root: list[Any] = []
    pending: list[tuple[object, Callable[[Any], None], int]] = [(value, root.append, MAX_DATA_DEPTH // 4)]
    while pending:
        item, put, depth = pending.pop()
        if depth > MAX_DATA_DEPTH:
            raise ValueError(f"data is nested deeper than {MAX_DATA_DEPTH} levels")
        if isinstance(item, Mapping):
            converted: dict[str, Any] = {}
            put(converted)
            for key, inner in cast(Mapping[Any, Any], item).items():
                name = _key(key)
                converted[name] = None
                pending.append((inner, _put_key(converted, name), depth + 1))
        elif isinstance(item, list | tuple | SharedList):
            items = list(cast(Iterable[Any], item))
            out: list[Any] = [None] * len(items)
            put(out)
            pending.extend((inner, _put_index(out, index), depth + 1) for index, inner in enumerate(items))
        else:
            put(plain(item))
    return root[0]


def _put_key(target: dict[str, Any], name: str) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        target[name] = value

    return put


def _put_index(target: list[Any], index: int) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        target[index] = value

    return put


def to_json(value: object, *, indent: int | None = None) -> str:
    """``value`` as JSON text (see :func:`plain`). Raises ValueError past 1,000 levels of nesting."""
    data = plain(value)
    try:
        return json.dumps(data, ensure_ascii=False, indent=indent)
    except RecursionError:
        raise ValueError(f"data is nested deeper than {MAX_DATA_DEPTH} levels") from None


def as_text(value: object) -> str:
    """``value`` as text inside a prompt: text unchanged, symbols as their names, other data as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Symbol):
        return value.name
    if value is None:
        return ""
    return to_json(value)
