"""An object that no code may look into."""

from __future__ import annotations

from typing import Any


class Sealed:
    """An object that fails as soon as anybody looks into it."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__dict__"):
            return object.__getattribute__(self, name)
        raise AssertionError(f"{name} was looked at")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it was compared")

    def __bool__(self) -> bool:
        raise AssertionError("it was tested")

    __hash__ = object.__hash__
