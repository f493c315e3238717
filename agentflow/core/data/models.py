"""Frozen pydantic models that read like mappings, for declarations by hosts, files and models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from agentflow.core.data.errors import DataError
from agentflow.core.data.values import pairs_to_dict


class MappingModel(BaseModel):
    """A frozen pydantic model that reads like a mapping: ``template["name"]``, ``match.get("score")``, ``dict(m)``."""

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
            return cls.model_validate(pairs_to_dict(value) if type(value) is not bool else value)
        except ValidationError as error:
            raise unfit(cls, cls.model_fields, error) from error

    def __getitem__(self, key: str) -> Any:
        if key in type(self).model_fields:
            return getattr(self, key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in type(self).model_fields

    def get(self, key: str, default: Any = None) -> Any:
        """The field ``key``, or ``default`` without such a field."""
        return getattr(self, key) if key in type(self).model_fields else default

    def keys(self) -> Iterator[str]:
        """The field names."""
        return iter(type(self).model_fields)


def unfit(kind: type, names: Iterable[str], error: ValidationError) -> DataError:
    """The error for data other than a valid ``kind``; ``names`` are its fields."""
    return DataError(
        f"no {kind.__name__}: {'; '.join(validation_messages(error)[:5])}",
        code="data/fields",
        hint=f"its fields are {', '.join(names)}",
    )


def validation_messages(error: ValidationError) -> list[str]:
    """A pydantic error as short lines, each with a location and a problem."""
    lines: list[str] = []
    for problem in cast(list[Mapping[str, Any]], error.errors(include_url=False, include_context=False)):
        field = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{field}: {problem['msg']}" if field else str(problem["msg"]))
    return lines
