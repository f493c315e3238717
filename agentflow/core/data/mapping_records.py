"""Frozen dataclasses that read like mappings: data that the package builds in every call, validated where it enters.

A :class:`Record` (a result, a request) is an object with fields in the language; :class:`Entries` (notes, an error's
description) are a dict there too. Declarations by hosts, files and models are instead models of ``core/data/models.py``,
which pydantic validates on construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeGuard


class Record(Mapping[str, Any]):
    """A frozen dataclass that acts as a mapping of its fields in Python and an object with fields in the language."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]

    def __getitem__(self, key: str) -> Any:
        if key in self.__match_args__:
            return getattr(self, key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__match_args__)

    def __len__(self) -> int:
        return len(self.__match_args__)


class Entries(Mapping[str, Any]):
    """A frozen dataclass that acts as a mapping of its set fields, and a dict in the language too.

    ``FIELDS`` maps keys to fields; a None field is not an entry.
    """

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, str]]

    def __getitem__(self, key: str) -> Any:
        name = self.FIELDS.get(key)
        value = None if name is None else getattr(self, name)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return (key for key, name in self.FIELDS.items() if getattr(self, name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


def is_dict(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether ``value`` is a dict of the language: any mapping but a record."""
    return isinstance(value, Mapping) and not isinstance(value, Record)
