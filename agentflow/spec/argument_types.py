"""Checks the types of arguments that hosts pass to the methods of the specification's classes."""

from __future__ import annotations

from typing import Any, cast

from agentflow.core.data.errors import DataError


def check_argument(method: str, name: str, value: object, *kinds: type, optional: bool = False) -> None:
    """Raises DataError (``data/argument``) if ``value`` is of none of these types; ``optional`` takes None too."""
    if isinstance(value, kinds) or (optional and value is None):
        return
    wanted = " or ".join([kind.__name__ for kind in kinds] + (["None"] if optional else []))
    raise DataError(
        f"{method}: '{name}' is a {type(value).__name__}",
        code="data/argument",
        hint=f"give a {wanted}",
    )


def check_texts(method: str, name: str, value: object, *, optional: bool = False) -> None:
    """The same for a list of texts, which a text by itself is not."""
    check_argument(method, name, value, list, tuple, optional=optional)
    for item in cast("list[Any]", value or ()):
        check_argument(method, f"{name}[...]", item, str)
