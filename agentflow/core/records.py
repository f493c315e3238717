"""Two kinds of data that read like mappings: frozen dataclasses for internal data, pydantic models for foreign data.

Declarations by hosts, files and models (a template, its settings, a question to memory) are a :class:`MappingModel`,
which pydantic validates on construction. Data that the package builds in every call (a result, a request) is a
:class:`Record`: its constructor checks almost nothing, and its ``of`` validates foreign data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeGuard, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from agentflow.core.errors import DataError
from agentflow.core.values import pairs_to_dict


class Record(Mapping[str, Any]):
    """A frozen dataclass that is a mapping of its fields in Python and an object with fields in the language."""

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


def is_dict(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether ``value`` is a dict of the language: any mapping but a record."""
    return isinstance(value, Mapping) and not isinstance(value, Record)


class MappingModel(BaseModel):
    """A frozen pydantic model that reads like a mapping: ``template["name"]``, ``match.get("score")``, ``dict(match)``."""

    model_config = ConfigDict(
        populate_by_name=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    @classmethod
    def of(cls, value: object) -> Self:
        """``value`` as this model: an instance, or a mapping or list of (name value) pairs of its fields, validated.

        Raises DataError (``data/fields``) that names every unknown or invalid field.
        """
        if isinstance(value, cls):
            return value
        try:
            return cls.model_validate(pairs_to_dict(value))
        except ValidationError as error:
            raise unfit(cls, cls.model_fields, error) from error

    def __getitem__(self, key: str) -> Any:
        if key in type(self).model_fields:
            return getattr(self, key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in type(self).model_fields

    def get(self, key: str, default: Any = None) -> Any:
        """The field ``key``, or ``default`` if there is no such field."""
        return getattr(self, key) if key in type(self).model_fields else default

    def keys(self) -> Iterator[str]:
        """The field names."""
        return iter(type(self).model_fields)


def unfit(kind: type, names: Iterable[str], error: ValidationError) -> DataError:
    """The error for data that is not a valid ``kind``; ``names`` are its fields."""
    return DataError(
        f"no {kind.__name__}: {'; '.join(validation_messages(error)[:5])}",
        code="data/fields",
        hint=f"its fields are {', '.join(names)}",
    )


def validation_messages(error: ValidationError) -> list[str]:
    """A pydantic error as short lines that say where and what is wrong."""
    lines: list[str] = []
    for problem in cast(list[Mapping[str, Any]], error.errors(include_url=False, include_context=False)):
        field = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{field}: {problem['msg']}" if field else str(problem["msg"]))
    return lines
