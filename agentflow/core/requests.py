"""Requests to the task system: a subtask request, and the call of a function template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from agentflow.core.models import MappingModel, unfit
from agentflow.core.records import Record
from agentflow.core.templates import ContextManagement, HistoryConfig
from agentflow.core.values import pairs_to_dict


def _from_pairs(value: object) -> object:
    return value if value is None or isinstance(value, MappingModel) else (pairs_to_dict(value) or value)


@dataclass(frozen=True, slots=True, eq=False)
class SubtaskRequest(Record):
    """A request to run an atomic task: by ``name``, else by ``type:subtype``, else by hints or description.

    ``inputs`` its arguments; ``file_paths`` its files (they take precedence over any lookup); ``context_management``
    and ``history_config`` override the template's; ``template_hints`` names to try; ``max_depth`` the maximum nesting
    of subtasks, ``depth`` its own. Build one from foreign data with :meth:`of`; the two settings may be mappings here
    too.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    type: str = "atomic"
    subtype: str | None = None
    name: str | None = None
    description: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    template_hints: Annotated[
        Sequence[str], Field(validation_alias=AliasChoices("template_hints", "templateHints"))
    ] = field(default_factory=list[str])
    context_management: Annotated[ContextManagement | None, BeforeValidator(_from_pairs)] = None
    file_paths: Sequence[str] | None = None
    history_config: Annotated[HistoryConfig | None, BeforeValidator(_from_pairs)] = None
    max_depth: int | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("context_management", ContextManagement), ("history_config", HistoryConfig)):
            settings = getattr(self, name)
            if settings is not None and not isinstance(settings, kind):
                object.__setattr__(self, name, kind.of(settings))

    @classmethod
    def of(cls, value: object) -> SubtaskRequest:
        """``value`` as a request: a request, or a mapping of its fields, validated; accepts ``templateHints`` too.

        Raises DataError (``data/fields``) that names every unknown or invalid field.
        """
        if isinstance(value, cls):
            return value
        try:
            return _door().validate_python(value if isinstance(value, dict) else pairs_to_dict(value))
        except ValidationError as error:
            raise unfit(cls, cls.__match_args__, error) from error


@cache
def _door() -> TypeAdapter[SubtaskRequest]:
    return TypeAdapter(SubtaskRequest)


class FunctionCallNode(MappingModel):
    """A call of a function template: ``template_name`` and its ``arguments``.

    Arguments may be nested FunctionCallNodes, text (a variable of the environment first, else literal) or data.
    """

    template_name: str = Field(validation_alias=AliasChoices("template_name", "templateName", "name"))
    arguments: list[Any] = Field(default_factory=list)
    named_arguments: dict[str, Any] = Field(default_factory=dict)
