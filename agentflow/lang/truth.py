"""Truth and equality of objects of the host, which run no code of their classes: only Python's own.

An object whose class is written in Python counts as true and equals itself alone, whatever its class says. Numbers of other
libraries, dates and their like, which are written in C or come with Python, are asked.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

import sys
from types import WrapperDescriptorType
from typing import Any

from agentflow.core.data.labels import Label
from agentflow.core.data.values import OrderedSet, SharedList, Symbol
from agentflow.core.data.walk import LEAVES

_PLAIN = frozenset((*LEAVES, list, dict, tuple))
_mro = type.__dict__["__mro__"].__get__
_names = type.__dict__["__dict__"].__get__
_MODULES = frozenset(sys.stdlib_module_names) - {"__main__"}


def truth(value: Any) -> bool:
    """Whether a value counts as true: as Python says of its own types, always for objects of the host."""
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
    """What a class has by this name, looked up without any code of it."""
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
