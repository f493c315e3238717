"""Lists, dicts and sets of texts in Python, and the values in them."""

from __future__ import annotations

from collections.abc import Hashable

from agentflow.core.data.frozen import frozen
from agentflow.lang.bounds.gathering import left_of
from agentflow.lang.bounds.heap import NOWHERE, scalar
from agentflow.lang.bounds.interpret import Interpreter
from agentflow.lang.bounds.primitives import RULES as SIZES
from agentflow.lang.bounds.primitives import like
from agentflow.lang.bounds.values import DATA, NEVER, TEXT, Value, sequence
from agentflow.lang.bounds.values import text as one_of
from agentflow.lang.kernel.nodes import Node

SHORT = 12
"""The most elements of a list display to analyse one by one."""


@frozen
class PairSite:
    """The site of lists of the same length and order: displays, and the pairs of ``enumerate``."""

    node: Node


@frozen
class Keyed:
    """The site of a node that may make a dict."""

    node: Node


def is_number(value: Value) -> bool:
    """Whether a value is certainly a number."""
    bounded = value.low is not None or value.high is not None or value.exactly is not None
    return bounded and value.sites == NOWHERE and value.texts == frozenset() and value.size is None


def element_of(value: Value) -> Value:
    """The items of an iteration over a value: elements, the keys of a dict, the characters of a text."""
    if value.never:
        return NEVER
    if value.fields is not None and is_keyed(value):
        return scalar(one_of(*value.fields)) if value.fields else NEVER
    if _is_empty(value):
        return NEVER
    element = value.element()
    return element if value.origins or not _may_be_dict(value) else element.join(DATA)


def is_positional(value: Value) -> bool:
    """Whether ``fields`` holds the elements of a list, by index."""
    return value.sites is not None and all(isinstance(each, PairSite) for each in value.sites)


def _is_empty(value: Value) -> bool:
    """Whether a value is certainly a container without elements."""
    return value.is_nil and not value.origins and value.sites is not None


def is_keyed(value: Value) -> bool:
    """Whether ``fields`` holds the values of a dict, by key."""
    return value.sites is not None and not any(map(_makes_lists, value.sites))


def _may_be_dict(value: Value) -> bool:
    return value.sites is None or not all(map(_makes_lists, value.sites))


def _makes_lists(site: Hashable) -> bool:
    """Whether a site never makes a dict."""
    return isinstance(site, PairSite | Node)


def _may_be_text(value: Value) -> bool:
    return value.texts is None or bool(value.texts)


def at_key(value: Value, key: Value) -> Value:
    """``value[key]``."""
    if value.never or key.never or _is_empty(value):
        return NEVER
    if key.texts is not None and len(key.texts) == 1 and key.sites == NOWHERE and not is_number(key):
        return value.part(next(iter(key.texts)))
    if key.exactly is not None and value.fields is not None and is_positional(value):
        if key.exactly >= 0:
            return value.fields.get(f"{key.exactly}", NEVER)
        if len(value.sites or ()) == 1:  # every list from this site has the same length, so the last index is fixed
            return value.fields.get(f"{len(value.fields) + key.exactly}", NEVER)
    element = value.element()
    return element if value.origins or not _may_be_text(value) else element.join(scalar(TEXT))


def part_of(i: Interpreter, value: Value, lower: Value | None, upper: Value | None, *, stepped: bool) -> Value:
    """``value[lower:upper]``: a new list, or a text."""
    whole = value if value.fields is None else sequence(value.size, value.element())
    drop = _dropped_by(lower, upper) if not stepped else 0
    rest = SIZES["rest"]([whole]) if drop else whole.but(length_of={}, marks=like(whole, None, NEVER).marks)
    for _ in range(min(drop, SHORT) - 1):
        rest = SIZES["rest"]([rest])
    rest = rest.but(texts=None if _may_be_text(value) else frozenset())
    left = None if lower is None or upper is not None or stepped or not i.heap.keeps(value) else left_of(whole, lower)
    if left is not None:
        return rest.unmarked().but(size=left, origins={}, item=whole.element())
    most = upper.high if upper is not None and upper.low is not None and upper.low >= 0 else None
    if stepped or most is None:
        return rest
    size = rest.length
    if size is None or size.number is None or (most.number is not None and most.number < size.number):
        size = most
    listed = rest.but(size=size, origins={}, item=whole.element())
    return listed if drop else listed.unmarked()


def _dropped_by(lower: Value | None, upper: Value | None) -> int:
    """The least number of elements that a slice leaves out."""
    first = lower.exactly if lower is not None and lower.exactly is not None else 0
    last = upper.exactly if upper is not None and upper.exactly is not None else 0
    return max(0, first) + max(0, -last)
