"""The answer as data: read, checked, and while it is still coming shown as the part that is there."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Union, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from agentflow.core.errors import ConfigurationError, clip
from agentflow.core.json_schema import check
from agentflow.core.partial_json import PartialJson, parse_answer, prune
from agentflow.core.ports import Prompt


class Shape:
    """What an answer must look like: a JSON Schema, a pydantic model (or any annotated type), or just JSON."""

    __slots__ = ("_adapter", "_partial", "model", "schema")

    def __init__(self, schema: dict[str, Any] | None, model: Any) -> None:
        self.model = model
        self._adapter: TypeAdapter[Any] | None = None
        self._partial: TypeAdapter[Any] | None = None
        if model is not None:
            try:
                self._adapter = TypeAdapter(model)
                schema = schema if schema is not None else self._adapter.json_schema()
            except PydanticUserError as error:
                raise ConfigurationError(
                    f"the output model {model!r} has no JSON Schema: {clip(str(error), 300)}",
                    code="handler/output-model",
                    hint="give a pydantic model, a dataclass, or a type such as list[str]",
                ) from error
        self.schema = schema

    def read(self, text: str) -> tuple[Any, str | None, tuple[str, ...]]:
        """``(value, parse error, schema violations)`` of a whole answer; the value is the model's when there is one."""
        try:
            value = parse_answer(text)
        except ValueError as error:
            return None, clip(str(error), 500), ()
        if self._adapter is not None:
            try:
                return self._adapter.validate_python(value), None, ()
            except ValidationError as error:
                return value, None, tuple(_problem(problem) for problem in error.errors(include_url=False)[:20])
        if self.schema is not None:
            return value, None, tuple(check(value, self.schema))
        return value, None, ()

    def partial(self, value: Any) -> Any | None:
        """The part of an unfinished ``value`` that fits: of the model's partial type when there is a model."""
        if self.schema:
            value = prune(value, self.schema)
        if value is None or self.model is None:
            return value
        if self._partial is None:
            self._partial = TypeAdapter(partial_type(self.model))
        return _validated(self._partial, value)


def _problem(problem: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in problem["loc"]) or "the value"
    return f"{place}: {problem['msg']}"


def _validated(adapter: TypeAdapter[Any], value: Any) -> Any | None:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if not isinstance(value, dict):
            return None
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
    kept = {key: item for key, item in cast(dict[str, Any], value).items() if key not in wrong}
    try:
        return adapter.validate_python(kept)
    except ValidationError:
        return None


def partial_type(kind: Any, _made: dict[Any, Any] | None = None) -> Any:
    """``kind`` with every field of every model in it optional: missing fields are None and not in ``model_fields_set``.

    Lists, dicts and unions are followed; other types stay as they are. A model within itself becomes a plain dict.
    """
    made = _made if _made is not None else {}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind in made:
            return made[kind]
        made[kind] = dict[str, Any]
        fields: dict[str, Any] = {
            name: (
                partial_type(info.annotation, made) | None,
                Field(default=None, alias=info.alias, validation_alias=info.validation_alias),
            )
            for name, info in kind.model_fields.items()
        }
        made[kind] = create_model(f"Partial{kind.__name__}", __config__={"populate_by_name": True}, **fields)
        return made[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return Union[tuple(partial_type(item, made) for item in inner)]  # noqa: UP007 - built from a tuple
    if origin is list and inner:
        return list[partial_type(inner[0], made)]
    if origin is dict and len(inner) == 2:
        return dict[inner[0], partial_type(inner[1], made)]
    return cast(Any, kind)


class Shapes:
    """Shapes by output model, kept while the model lives: a type adapter costs a millisecond to build."""

    def __init__(self) -> None:
        self._by_model: WeakKeyDictionary[Any, Shape] = WeakKeyDictionary()

    def of(self, prompt: Prompt) -> Shape | None:
        """The shape a prompt asks for; None when it asks for text. Raises ConfigurationError."""
        model = prompt.output_model
        if model is None:
            wanted = prompt.json_output or prompt.output_schema is not None
            return Shape(prompt.output_schema, None) if wanted else None
        if prompt.output_schema is not None:
            return Shape(prompt.output_schema, model)
        try:
            known = self._by_model.get(model)
            if known is None:
                known = self._by_model[model] = Shape(None, model)
            return known
        except TypeError:  # not every annotation can be kept weakly
            return Shape(None, model)


class PartialAnswer:
    """The answer as it comes: fed with text, gives what there is to show."""

    __slots__ = ("_last", "_shape", "_text")

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._text = PartialJson()
        self._last: Any = None

    def feed(self, text: str) -> Any | None:
        """Add ``text``; the partial value when it has changed, else None."""
        value = self._text.feed(text)
        if not value or isinstance(value, str | int | float):
            return None
        shown = self._shape.partial(value)
        if shown is None or shown == self._last:
            return None
        self._last = shown
        return shown
