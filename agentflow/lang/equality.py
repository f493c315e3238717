"""``equal?``: structural equality without recursion and without repeated comparisons; truth, and keys of dicts."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import WrapperDescriptorType
from typing import Any

from pydantic import BaseModel

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.labels import Label, bare
from agentflow.core.data.mapping_records import Entries, Record
from agentflow.core.data.values import MAX_DATA_DEPTH, OrderedSet, SharedList, Symbol
from agentflow.core.data.walk import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP, LEAVES, PART, Work, finish, slices
from agentflow.lang.calling import begun

_PLAIN = frozenset((*LEAVES, list, dict, tuple))
_mro = type.__dict__["__mro__"].__get__
_names = type.__dict__["__dict__"].__get__
_MODULES = frozenset(sys.stdlib_module_names) - {"__main__"}


def truth(value: Any) -> bool:
    """Whether a value counts as true: by Python's rules for its own types, always for objects of the host."""
    kind = type(value)
    if kind in _PLAIN:
        return bool(value)
    if kind is Label:
        return truth(value.value)
    if kind is SharedList or kind is OrderedSet:
        return len(value) > 0
    for name in ("__bool__", "__len__"):
        method = _method(kind, name)
        if method is not None:
            return bool(value) if type(method) is WrapperDescriptorType else True
    return True


def same(a: Any, b: Any) -> bool:
    """Whether two values without parts are equal: those that Python itself compares, and an object and itself."""
    if a is b:
        return True
    if not _compared_by_python(a) or not _compared_by_python(b):
        return False
    try:
        return bool(a == b)
    except Exception:  # noqa: BLE001 - dates with and without a zone, for example: they are not equal
        return False


def _compared_by_python(value: Any) -> bool:
    """Whether ``==`` of a value runs no code of the host's: neither of its class, nor of its parts'."""
    kind: Any = type(value)
    if kind in LEAVES or kind is Symbol or kind is bytes:
        return True
    if kind is set or kind is frozenset:
        return LEAVES.issuperset(map(type, value))
    if _method(kind, "__iter__") is not None:
        return False
    return type(_method(kind, "__eq__")) is WrapperDescriptorType or _comes_with_python(kind)


def _method(kind: type[Any], name: str) -> Any:
    """A class attribute of this name, looked up without running code of the class."""
    for each in _mro(kind):
        entries = _names(each)
        if name in entries:
            return entries[name]
    return None


def _comes_with_python(kind: type[Any]) -> bool:
    entries = _names(kind)
    module = entries.get("__module__")
    if type(module) is not str or module.partition(".")[0] not in _MODULES:
        return False
    return vars(sys.modules.get(module, sys)).get(type.__dict__["__name__"].__get__(kind)) is kind


_NUMBERS = frozenset((int, bool, type(None)))
ATOMS = LEAVES | {Symbol}
"""The types of values that Python's ``==`` compares as the language does."""
_MISSING = object()
_LISTS: Any = (list, tuple, SharedList)
_DICTS: Any = (dict, Entries)
_KEYS = frozenset((*LEAVES, tuple, Symbol, Label))


def equal(a: Any, b: Any) -> bool:
    """Whether two values are equal: lists, dicts, records and models by their parts, symbols by name, others by :func:`same`.

    A tuple equals the list of its elements. A pair of shared parts is compared once, so that the cost is bounded by the
    size in memory. Raises LimitExceeded (``limits/depth``) past 1,000 levels.
    """
    return finish(equality(a, b))


def compared(a: Any, b: Any) -> Any:
    """:func:`equal` for a primitive: small values are compared at once, large ones in slices."""
    if type(a) in ATOMS and type(b) in ATOMS and (type(a) is not str or len(a) < CHARACTERS_PER_STEP):
        return a == b
    return begun(equality(a, b))


def equality(a: Any, b: Any) -> Work[bool]:
    """The work of :func:`equal`."""
    seen: set[tuple[int, int]] = set()
    keep: list[Any] = []  # keeps objects alive, so that no id in `seen` is reused
    count = 0
    pending: list[tuple[Any, Any, int]] = [((a,), (b,), -1)]
    while pending:
        left, right, depth = pending.pop()
        for these, those in _pairs(left, right):
            count += len(these) + 1
            if count >= PART:
                yield count // ELEMENTS_PER_STEP
                count = 0
            if _NUMBERS.issuperset(map(type, these)) and _NUMBERS.issuperset(map(type, those)):
                if these != those:
                    return False
                continue
            for x, y in zip(these, those, strict=True):
                if type(x) in LEAVES and type(y) in LEAVES:
                    if type(x) is str and len(x) >= CHARACTERS_PER_STEP and x is not y:
                        yield len(x) // CHARACTERS_PER_STEP
                    if x != y:
                        return False
                    continue
                x, y = bare(x), bare(y)
                pair = _parts(x, y)
                if pair is None:
                    if not same(x, y):
                        return False
                elif x is not y:
                    if len(pair[0]) != len(pair[1]):
                        return False
                    if _new(seen, x, y, depth + 1):
                        keep.append(pair)
                        pending.append((*pair, depth + 1))
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return True


def _pairs(left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """The elements or values to be compared, in slices."""
    if type(left) is dict:
        if not all(_KEYS.issuperset(map(type, keys)) for keys in slices(list(right))):
            yield (True,), (False,)  # a look-up would have an object of the host compare itself
            return
        for keys in slices(list(left)):
            names = [
                key if type(key) in _KEYS else _MISSING for key in keys
            ]  # no code of the host's hashes its objects
            values = [left[key] if name is key else None for key, name in zip(keys, names, strict=True)]
            yield values, [right.get(name, _MISSING) for name in names]
    else:
        yield from zip(slices(left), slices(right), strict=True)


def _parts(x: Any, y: Any) -> tuple[Any, Any] | None:
    """Two lists or two dicts, to be compared by their elements; None for values without parts."""
    if isinstance(x, _LISTS) and isinstance(y, _LISTS):
        return _elements(x), _elements(y)
    if type(x) is dict and type(y) is dict:
        return x, y
    if isinstance(x, _DICTS) and isinstance(y, _DICTS):
        return _entries(x), _entries(y)
    if type(x) is type(y) and isinstance(x, Record):
        return [getattr(x, each) for each in x.__match_args__], [getattr(y, each) for each in x.__match_args__]
    if type(x) is type(y) and isinstance(x, BaseModel):
        return object.__getattribute__(x, "__dict__"), object.__getattribute__(y, "__dict__")
    return None


def _entries(value: Any) -> dict[Any, Any]:
    return dict.copy(value) if isinstance(value, dict) else {name: value[name] for name in value}


def _elements(value: Any) -> Any:
    kind: Any = type(value)
    if kind is list or kind is tuple:
        return value
    if kind is SharedList:
        return value.plain()
    return list.copy(value) if isinstance(value, list) else tuple.__getitem__(value, slice(None))


def _new(seen: set[tuple[int, int]], a: object, b: object, depth: int) -> bool:
    if depth > MAX_DATA_DEPTH:
        raise LimitExceeded(
            f"data is nested deeper than {MAX_DATA_DEPTH} levels, too deep to compare",
            limit="depth",
            allowed=MAX_DATA_DEPTH,
            hint="compare its parts",
        )
    pair = (id(a), id(b))
    if pair in seen:
        return False
    seen.add(pair)
    return True


# -- keys ---------------------------------------------------------------------------------------------------------

_HASHED = frozenset((str, bool, type(None)))
MAX_KEY_PARTS = 1_000


def is_key(value: Any) -> bool:
    """Whether a value may be a key: hashing it is quick, and many keys never share one hash."""
    kind = type(value)
    if kind in _HASHED:
        return True
    if kind is int:
        return -(1 << 60) < value < 1 << 60
    if kind is float:
        return not abs(value) > 2**53 or value in (float("inf"), float("-inf"))
    if kind is not tuple:
        return kind is Label and is_key(value.value)
    count, pending = 0, [value]
    while pending:
        for each in pending.pop():
            count += 1
            if count > MAX_KEY_PARTS:
                return False
            if type(each) is tuple:
                pending.append(each)
            elif not is_key(each):
                return False
    return True
