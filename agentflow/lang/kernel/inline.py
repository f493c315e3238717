"""Functions of lowered programs that generated code writes out (:mod:`agentflow.lang.kernel.generate_values`)."""

from __future__ import annotations

from typing import Any


def owned(rt: Any, value: Any, owner: Any, name: str) -> Any:
    """``value``, if the strand may assign a variable of ``owner``. Raises ``concurrency/shared-set``."""
    if owner is not rt:
        rt.check_owner(owner, name)
    return value


def operator_of(rt: Any, env: Any, name: str, near: tuple[str, ...]) -> Any:
    """The meaning of a name in operator position that was unbound at compile time."""
    return rt.operator(env, name, near)


def as_list(*items: Any) -> list[Any]:
    """A list of these items."""
    return list(items)


def as_dict(keys: tuple[Any, ...], *items: Any) -> dict[Any, Any]:
    """A dict of keys that the text gives."""
    return dict(zip(keys, items, strict=True))
