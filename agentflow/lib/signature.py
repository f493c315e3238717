"""Derives a schema from the parameters of a typed function, and the function's arguments from data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import inf
from typing import Any, Literal, TypeAlias, cast, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from agentflow.core.call import CallContext
from agentflow.core.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.media import is_media
from agentflow.core.values import Symbol
from agentflow.core.walk import LEAVES, copied
from agentflow.core.work import in_slices
from agentflow.lib.docstring import describe
from agentflow.lib.suggest import did_you_mean

FunctionKind: TypeAlias = Literal["tool", "task", "workflow"]
"""What a function is to be."""


class ToolInputError(AgentflowError):
    """Invalid arguments of a tool, task or workflow; the message names each one and its fault."""

    default_code = "tool/invalid-arguments"
    default_reason = "input_validation_failure"


class Signature:
    """The parameters of a typed function, as a schema for models and as arguments for Python.

    Parameters: ``function`` any function without positional-only parameters and ``*args``; ``kind`` what it is to be, in
    messages: of a tool alone may parameters have no annotation. Attributes: ``name``,
    ``description``, ``schema`` the JSON Schema of the arguments object, ``returns`` the annotation of what it returns. A parameter annotated ``CallContext`` is hidden
    from models and filled in. Raises ConfigurationError if no JSON object can represent the arguments.
    """

    __slots__ = ("_context", "_fields", "_label", "_open", "_validate", "description", "returns", "schema")

    def __init__(
        self, function: Callable[..., Any], name: str, description: str | None, kind: FunctionKind = "tool"
    ) -> None:
        about, documented = describe(function)
        self.description = description if description is not None else about
        self._label = f"{kind} '{name}'"
        self._context: list[str] = []
        self._open = False
        hints = _hints(function, self._label)
        self.returns = hints.get("return", inspect.Signature.empty)
        fields: dict[str, Any] = {}
        self._fields: list[tuple[str, str]] = []
        for index, parameter in enumerate(inspect.signature(function).parameters.values()):
            if kind != "tool" and parameter.name not in hints:
                raise ConfigurationError(
                    f"{self._label}: its parameter '{parameter.name}' has no annotation",
                    code="python/annotation",
                    hint=f"say what it is: {parameter.name}: str",
                )
            hint = hints.get(parameter.name, Any)
            if hint is CallContext or CallContext in get_args(hint):
                self._context.append(parameter.name)
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise ConfigurationError(
                    f"{self._label}: its parameter '{parameter.name}' is positional, arguments are given by name",
                    code="tool/signature",
                    hint="give every parameter a name that may be used as a keyword",
                )
            else:
                default = ... if parameter.default is parameter.empty else parameter.default
                field: Any = Field(default=default, description=documented.get(parameter.name), alias=parameter.name)
                fields[f"p{index}"] = (hint, field)
                self._fields.append((f"p{index}", parameter.name))
        model = _argument_model(name, fields, self._open)
        self.schema = _schema(model, self._label)
        self._validate: Callable[[object], BaseModel] = TypeAdapter(model).validator.validate_python

    def bind(self, arguments: dict[str, Any], call: CallContext) -> dict[str, Any]:
        """The validated keyword arguments of the function, of plain ``arguments``. Raises ToolInputError."""
        try:
            checked = self._validate(arguments)
        except ValidationError as error:
            raise self._refused(error, arguments) from None
        present = checked.model_fields_set
        bound = {name: getattr(checked, field) for field, name in self._fields if field in present}
        if self._open and checked.model_extra:
            bound.update(checked.model_extra)
        for name in self._context:
            bound[name] = call
        return bound

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters that callers give, in order."""
        return [name for _, name in self._fields]

    def data(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The validated arguments of a call from Python as JSON data, by name; models and dataclasses as dicts.

        Images, documents and sound stay what they are.
        Raises TypeError for a call that the function does not allow, ToolInputError for values of wrong types.
        """
        if arguments:
            named = {**self._by_name(arguments, named), **named}
        try:
            checked = self._validate(named)
        except ValidationError as error:
            raise self._refused(error, named) from None
        values = {name: getattr(checked, field) for field, name in self._fields if field in checked.model_fields_set}
        if LEAVES.issuperset(map(type, values.values())):
            return values
        media = {name: value for name, value in values.items() if is_media(value)}
        include = {field for field, name in self._fields if field in checked.model_fields_set and name not in media}
        return {**checked.model_dump(mode="json", by_alias=True, include=include), **media}

    def _by_name(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        names = self.parameters
        if len(arguments) > len(names):
            raise TypeError(f"{self._label} takes {len(names)} arguments, and was given {len(arguments)}")
        by_name = dict(zip(names, arguments, strict=False))
        for name in named.keys() & by_name.keys():
            raise TypeError(f"{self._label} was given '{name}' twice")
        return by_name

    def _refused(self, error: ValidationError, arguments: dict[str, Any]) -> ToolInputError:
        parameters = [name for _, name in self._fields]
        problems: list[str] = []
        wrong: list[str] = []
        for problem in error.errors(include_url=False, include_context=False)[:20]:
            location = ".".join(str(part) for part in problem["loc"])
            wrong += [str(part) for part in problem["loc"][:1]]
            if problem["type"] == "missing":
                problems.append(f"'{location}' is missing")
            elif problem["type"] == "extra_forbidden":
                near = did_you_mean(location, parameters)
                problems.append(f"there is no parameter '{clip(location, 80)}'" + (f" ({near})" if near else ""))
            else:
                problems.append(f"{location}: {problem['msg']}, got {clip(repr(problem['input']), 120)}")
        return ToolInputError(
            f"{self._label} cannot take these arguments: {'; '.join(problems)}",
            hint=f"its parameters are {', '.join(parameters)}" if parameters else "it takes no arguments",
            details={
                "problems": problems,
                "parameters": parameters,
                "given": sorted(str(name) for name in arguments),
                "arguments": wrong,
            },
        )


def annotated(function: Callable[..., Any]) -> dict[str, Any]:
    """The types that a function is annotated with, by parameter, and that of ``return``. Raises NameError."""
    target: Any = function
    while hasattr(target, "func"):
        target = target.func
    if not (inspect.isfunction(target) or inspect.ismethod(target)):
        target = type(target).__call__
    return get_type_hints(target, include_extras=True)


def _hints(function: Callable[..., Any], label: str) -> dict[str, Any]:
    try:
        return annotated(function)
    except NameError as error:
        raise ConfigurationError(
            f"{label}: its annotations name something that is not defined: {error}",
            code="tool/signature",
            hint="annotations are evaluated in the function's module; move imports out of TYPE_CHECKING",
        ) from error


def _argument_model(name: str, fields: dict[str, Any], open: bool) -> type[BaseModel]:
    config = ConfigDict(extra="allow" if open else "forbid", arbitrary_types_allowed=True, title=name)
    return create_model("Arguments", __config__=config, **fields)


def _schema(model: type[BaseModel], label: str) -> dict[str, Any]:
    try:
        schema = model.model_json_schema()
    except PydanticUserError as error:
        raise ConfigurationError(
            f"{label}: a parameter's type has no JSON Schema: {clip(str(error), 300)}",
            code="tool/signature",
            hint="use types JSON can carry (str, int, float, bool, list, dict, pydantic models), or annotate Any",
        ) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    for field in cast(dict[str, dict[str, Any]], schema["properties"]).values():
        field.pop("title", None)
    return schema


def is_plain(arguments: dict[str, Any]) -> bool:
    """Whether there are only texts, numbers and the like among ``arguments``."""
    return LEAVES.issuperset(map(type, arguments.values()))


async def plain_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """``arguments``, as a copy with names in place of symbols if there are lists or dicts, which a tool may change."""
    return arguments if is_plain(arguments) else (await in_slices(copied(arguments, _without_symbols, deepest=inf)))[0]


def _without_symbols(value: Any) -> Any:
    """One step of copying data: a list or dict of the parts of one, a symbol's name, anything else as it is."""
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, dict):
        fields = cast(dict[Any, Any], value)
        return {key.name if isinstance(key, Symbol) else key: item for key, item in fields.items()}
    return list(cast(list[Any], value)) if isinstance(value, list) else value
