"""Dicts, and the declared fields of models. Keys are strings, numbers or booleans; a symbol counts as its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.fields import stored_field
from agentflow.core.data.mapping_records import Record, is_dict
from agentflow.core.data.values import Symbol
from agentflow.core.data.walk import ELEMENTS_PER_STEP, PART, Work, slices
from agentflow.lang.builtins.registry import primitive, wrong_type
from agentflow.lang.calling import MANY_OPERANDS, Sliced, begun
from agentflow.lang.charging import Bounded, charge_collection, touch_elements
from agentflow.lib.text.late_pattern import late_pattern

_KEY_RANGE = (2**60 - 1, 2.0**53)
"""The largest integer and the largest float that may be keys: several larger ones share a hash."""
_AT_ONCE = 8_192
"""Entries and operands that one part of work puts into a dict."""
_HUMP = late_pattern(r"(?<=[a-z0-9])(?=[A-Z])")


def mapping(who: str, position: int, value: Any) -> Mapping[Any, Any]:
    """``value`` as a dict to read from. Raises ``type/argument`` if it is not a dict."""
    if is_dict(value):
        return value
    hint = None
    if isinstance(value, list):
        hint = "(nth list index) reads a list, (assoc key pairs) a list of pairs"
    elif isinstance(value, BaseModel | Record):
        hint = "(get-field value 'name) reads a field"
    wrong_type(who, position, "a dict", value, hint=hint)


def dict_key(who: str, position: int, value: object) -> Any:
    """``value`` as a dict key: a symbol becomes its name. Raises ``type/argument`` for lists and dicts."""
    if isinstance(value, Symbol):
        return value.name
    if value is None or isinstance(value, str | int | float):
        return value
    wrong_type(who, position, "a key (a string, symbol or number)", value)


def _new_key(who: str, position: int, value: object) -> Any:
    """``value`` as the key of an entry that a program makes.

    Numbers are hashed by a rule that anybody can work out; those that can share a hash are refused (``dict/key``), since
    a dict of many such keys takes time by the square of their number.
    """
    key = dict_key(who, position, value)
    if isinstance(key, int | float) and not -_KEY_RANGE[type(key) is float] <= key <= _KEY_RANGE[type(key) is float]:
        raise SexpEvaluationError(
            f"{who}: the number given as argument {position} is too large for a key",
            code="dict/key",
            hint="keys are integers of at most 60 bits, floats up to 2^53, and strings: (number->string n) makes one",
        )
    return key


def _entries(who: str, start: int, items: tuple[Any, ...]) -> dict[Any, Any]:
    if len(items) % 2:
        raise SexpEvaluationError(
            f"{who}: the last key has no value",
            code="dict/odd",
            hint=f'keys and values alternate: ({who} ... "name" value)',
        )
    return {_new_key(who, start + at, items[at]): items[at + 1] for at in range(0, len(items), 2)}


def _merged(dicts: Iterable[Mapping[Any, Any]]) -> Work[dict[Any, Any]]:
    """A new dict with the entries of all ``dicts``, the last of each key. The caller has charged for them."""
    merged: dict[Any, Any] = {}
    count = 0
    for each in dicts:
        entries = iter(each.items())
        while part := dict(islice(entries, PART)):
            count += len(part)
            if count > PART:
                yield 0
                count = 0
            merged.update(part)
    return merged


@primitive("dict", usage="(dict key value ...)", arity=(0, None), needs_rt=True, size="dict", flow="(rk)")
def make_dict(rt: Bounded, *entries: Any) -> dict[Any, Any]:
    """A new dict of alternating keys and values, like ``{"key" value}``. The last of duplicate keys wins."""
    touch_elements(rt, len(entries))
    if len(entries) < MANY_OPERANDS:
        return _entries("dict", 1, entries)
    return cast("dict[Any, Any]", Sliced(_merged(_in_parts("dict", 1, entries))))


def _in_parts(who: str, start: int, items: tuple[Any, ...]) -> Iterator[dict[Any, Any]]:
    return (_entries(who, start + at, items[at : at + PART]) for at in range(0, len(items), PART))


@primitive("get", usage="(get dict key [default])", arity=(2, 3), size="entry", flow="ork", takes="dk.")
def get(record: Any, key: Any, *default: Any) -> Any:
    """The value of a key; if it is missing, the default, or nil. A model's declared fields are read like keys."""
    if isinstance(record, BaseModel | Record):
        return _field(record, key, "get", default[0] if default else [])
    entries = mapping("get", 1, record)
    name = dict_key("get", 2, key)
    if name in entries:
        return entries[name]
    return default[0] if default else []


@primitive("put", usage="(put dict key value ...)", arity=(1, None), sliced=True, size="put", flow="o(rk)", takes="d.")
def put(rt: Bounded, record: Any, *entries: Any) -> Any:
    """A copy of the dict with these keys set."""
    original = mapping("put", 1, record)
    if len(original) + len(entries) > _AT_ONCE:
        charge_collection(rt, len(original) + len(entries) // 2, "put")
        return begun(_merged(chain((original,), _in_parts("put", 2, entries))))
    added = _entries("put", 2, entries)
    charge_collection(rt, len(original) + len(added), "put")
    return {**original, **added}


@primitive("keys", usage="(keys dict)", arity=(1, 1), needs_rt=True, size="keys", flow="o", takes="d")
def keys(rt: Bounded, record: Any) -> list[Any]:
    """A list of the keys, in insertion order."""
    entries = mapping("keys", 1, record)
    touch_elements(rt, len(entries))
    return list(entries)


@primitive("values", usage="(values dict)", arity=(1, 1), needs_rt=True, size="values", flow="o", takes="d")
def values(rt: Bounded, record: Any) -> list[Any]:
    """A list of the values, in the order of the keys."""
    entries = mapping("values", 1, record)
    touch_elements(rt, len(entries))
    return list(entries.values())


@primitive("merge", usage="(merge dict ...)", arity=(0, None), sliced=True, size="merge", flow="o", takes="d")
def merge(rt: Bounded, *records: Any) -> Any:
    """A new dict with the entries of all dicts; for duplicate keys, the last dict wins."""
    if len(records) < MANY_OPERANDS:
        dicts = [mapping("merge", position, each) for position, each in enumerate(records, 1)]
        size = sum(map(len, dicts))
        if size <= _AT_ONCE:
            charge_collection(rt, size, "merge")
            return {key: value for each in dicts for key, value in each.items()}
    return begun(_merged_all(rt, records))


def _merged_all(rt: Bounded, records: tuple[Any, ...]) -> Work[dict[Any, Any]]:
    dicts: list[Mapping[Any, Any]] = []
    for some in slices(records):
        if len(some) >= ELEMENTS_PER_STEP:
            yield len(some) // ELEMENTS_PER_STEP
        dicts += [mapping("merge", position, each) for position, each in enumerate(some, len(dicts) + 1)]
    charge_collection(rt, sum(map(len, dicts)), "merge")
    return (yield from _merged(dicts))


@primitive("dict?", usage="(dict? value)", arity=(1, 1), size="plain", flow="o")
def dict_predicate(value: Any) -> bool:
    """Whether the value is a dict."""
    return is_dict(value)


@primitive("get-field", usage="(get-field value field)", arity=(2, 2), size="entry", flow="or", takes="df")
def get_field(value: Any, field: Any) -> Any:
    """The value of a key of a dict, or of a declared field of a model, dataclass or named tuple; nil if missing.

    The field is a string or symbol. ``parsedContent`` and ``parsed_content`` are the same field. Methods, properties
    and names that begin with ``_`` cannot be reached.
    """
    return _field(value, field, "get-field", [])


def _field(value: Any, field: Any, who: str, missing: Any) -> Any:
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        key = dict_key(who, 2, field)
        if who == "get-field" and not isinstance(key, str):
            hint = "(get dict key) looks up any key, (nth list index) an element"
            wrong_type(who, 2, "a field name (a string or symbol)", field, hint=hint)
        if isinstance(value, Record) and isinstance(key, str) and key not in entries:
            key = _snake(key)
        return entries.get(key, missing)
    name = field.name if isinstance(field, Symbol) else field
    if not isinstance(name, str):
        wrong_type(who, 2, "a field name (a string or symbol)", field)
    declared = _declared(value)
    if declared is None:
        hint = "(nth list index) reads a list" if isinstance(value, list) else None
        wrong_type(who, 1, "a dict, or a model with declared fields,", cast("Any", value), hint=hint)
    real = declared.get(name) or declared.get(_snake(name))
    return missing if real is None else stored_field(value, real, missing)


def field_of(value: Any, name: str, missing: Any) -> Any:
    """The declared field ``name`` of a record, model, dataclass or named tuple; ``missing`` without one.

    Raises ``type/argument`` for a value that declares no fields. Nothing else of the value is ever read.
    """
    if isinstance(value, Mapping) and not isinstance(value, Record):
        return missing
    return _field(value, name, f".{name}", missing)


def _snake(name: str) -> str:
    return _HUMP.sub("_", name).lower()


def _declared(value: Any) -> dict[str, str] | None:
    """The declared fields of a value, by each name they go by; None if its class declares none."""
    kind = cast("Any", type(value))
    if isinstance(value, BaseModel):
        named: dict[str, str] = {}
        for name, info in cast("dict[str, Any]", kind.model_fields).items():
            for each in (info.serialization_alias, info.alias):
                if each:
                    named[each] = name
            named[name] = named[_snake(name)] = name
    elif isinstance(value, type) or getattr(kind, "is_procedure", False):
        return None
    elif dataclasses.is_dataclass(value):
        named = {f.name: f.name for f in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(kind, "_fields"):
        named = {str(name): str(name) for name in cast("tuple[Any, ...]", kind._fields)}
    else:
        return None
    return {name: real for name, real in named.items() if not name.startswith("_") and not real.startswith("_")}
