"""Requests to the task system: a subtask request, and the call of a function template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from agentflow.core.data.frozen import frozen, slot_setters
from agentflow.core.data.mapping_records import Record
from agentflow.core.data.models import MappingModel, unfit
from agentflow.core.data.templates import ContextManagement, HistoryConfig
from agentflow.core.data.values import pairs_to_dict


def turns_without_tools(checked: bool, rounds: int) -> int:
    """Turns of a prompt without tools, neither offered nor run by the provider: one, and ``rounds`` to repair a ``checked``
    answer."""
    return 1 + rounds if checked else 1


MOST_SUMMARIES = 7
"""Model calls that summarise a conversation before one prompt."""


def _from_pairs(value: object) -> object:
    return value if value is None or isinstance(value, MappingModel) else (pairs_to_dict(value) or value)


@frozen(init=False, eq=False)
class SubtaskRequest(Record):
    """A request to run an atomic task: by ``name``, else by ``type:subtype``, else by hints or description.

    ``inputs`` its arguments; ``file_paths`` its files (they take precedence over any lookup); ``context_management`` and
    ``history_config`` override the template's; ``template_hints`` (or ``templateHints``) names to try; ``max_depth`` the
    maximum nesting of subtasks, ``depth`` its own; ``history_context`` the conversation so far as text, shown to the task
    and its lookup regardless of inheritance. Build one from foreign data with :meth:`of`; the two settings may be mappings
    here too.
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
    history_context: str | None = None

    def __init__(
        self,
        type: str = "atomic",
        subtype: str | None = None,
        name: str | None = None,
        description: str = "",
        inputs: Mapping[str, Any] | None = None,
        template_hints: Sequence[str] | None = None,
        context_management: ContextManagement | Mapping[str, Any] | None = None,
        file_paths: Sequence[str] | None = None,
        history_config: HistoryConfig | Mapping[str, Any] | None = None,
        max_depth: int | None = None,
        depth: int = 0,
        history_context: str | None = None,
        *,
        templateHints: Sequence[str] | None = None,
    ) -> None:
        hints = templateHints if template_hints is None else template_hints
        _set_type(self, type)
        _set_subtype(self, subtype)
        _set_name(self, name)
        _set_description(self, description)
        _set_inputs(self, {} if inputs is None else inputs)
        _set_hints(self, [] if hints is None else hints)
        context = None if context_management is None else ContextManagement.of(context_management)
        _set_context(self, context)
        _set_files(self, file_paths)
        _set_history(self, None if history_config is None else HistoryConfig.of(history_config))
        _set_max_depth(self, max_depth)
        _set_depth(self, depth)
        _set_history_context(self, history_context)

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


(
    _set_type,
    _set_subtype,
    _set_name,
    _set_description,
    _set_inputs,
    _set_hints,
    _set_context,
    _set_files,
    _set_history,
    _set_max_depth,
    _set_depth,
    _set_history_context,
) = slot_setters(SubtaskRequest)


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
