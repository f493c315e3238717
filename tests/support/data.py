"""Hypothesis strategies for the data of the language."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agentflow.core.data.values import Symbol

ATOMS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(
        ["quote", "unquote", "nil", "true", "+", "-1", "1+", "a b", "", "#t", "+inf.0", "x|y", ".", "..."]
    ).map(Symbol),
    st.text(max_size=8).map(Symbol),
)
KEYS = st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.none())
DATA: st.SearchStrategy[Any] = st.recursive(
    ATOMS,
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=40,
)
"""Anything a quoted form can stand for, and symbols that no program text can spell."""


def same(a: Any, b: Any) -> bool:
    """Equal with equal types throughout, a symbol standing for the string it is equal to; a reference, so recursive."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    texts = (str, Symbol)
    return a == b and (type(a) is type(b) or (isinstance(a, texts) and isinstance(b, texts)))
