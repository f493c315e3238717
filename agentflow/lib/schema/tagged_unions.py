"""Unions of classes in the type of an answer: each member is requested with a tag, which is removed when it is read.

Without one, half a ``Bug`` may be a whole ``Clean`` that has defaults for all fields, and two classes with the same fields
cannot be distinguished. If all members have a field with a constant of its own, this field is the tag.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import is_typeddict

from agentflow.core.data.frozen import frozen
from agentflow.core.data.models import validation_messages
from agentflow.lib.schema.json_types import DEFINED, reached

Members: TypeAlias = "frozenset[str]"
"""The names of the classes of a union: those of their definitions in a schema."""
_KEY = "kind"
_AROUND = (Annotated, Required, NotRequired)
"""Wrappers around a type that only annotate it."""
_BESIDE = (type(None), str, int, float, bool)
"""Types that may stand in a tagged union next to its classes."""


class UnionMissed(ValueError):
    """An answer outside all members of a union; ``problems`` says where and why."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@frozen
class _Tag:
    """How the members of a union are distinguished: the value of ``key`` for each; an ``added`` key is not a field of any
    class."""

    key: str
    values: Mapping[str, Any]
    added: bool


class TaggedUnions:
    """The unions of classes in a type; ``schema`` is its JSON Schema with their tags. See :func:`tagged_unions`."""

    __slots__ = ("_adapter", "_holding", "_kind", "_tags", "schema")

    def __init__(self, kind: Any, schema: dict[str, Any], tags: Mapping[Members, _Tag], holding: set[type]) -> None:
        self.schema = schema
        self._kind = kind
        self._tags = tags
        self._holding = holding
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def validate_python(self, value: Any, /) -> Any:
        """The value of the type that the JSON data of an answer stands for. Raises UnionMissed and ValidationError."""
        problems: list[str] = []
        taken = self._taken(self._kind, value, "", problems)
        if problems:
            raise UnionMissed(problems)
        return self._adapter.validate_python(taken)

    def dump_python(self, value: Any, /, *, mode: Literal["json"], by_alias: bool, warnings: bool) -> Any:
        """JSON data of a value of the type, with tags, that :meth:`validate_python` turns into an equal one."""
        data = self._adapter.dump_python(value, mode=mode, by_alias=by_alias, warnings=warnings)
        return self._marked(self._kind, value, data)

    def untagged(self, value: Any) -> str:
        """The JSON text of a value of the type, without tags."""
        return self._adapter.dump_json(value, by_alias=True, warnings=False).decode()

    def _taken(self, kind: Any, value: Any, path: str, problems: list[str]) -> Any:
        """``value`` with an instance of the chosen class in place of the data of each union."""
        kind, arguments = _bare(kind)
        if _is_union(kind):
            classes = _classes(arguments)
            tag = self._tags.get(_names(classes))
            if tag is not None:
                return (
                    self._chosen(classes, tag, cast("dict[str, Any]", value), path, problems)
                    if isinstance(value, dict)
                    else value
                )
            others = [each for each in arguments if each is not type(None)]
            return self._taken(others[0], value, path, problems) if len(others) == 1 else value
        if isinstance(value, list) and _is_listing(kind, arguments):
            items = cast("list[Any]", value)
            return [self._taken(arguments[0], each, f"{path}[{at}]", problems) for at, each in enumerate(items)]
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value)
            if _is_mapping(kind, arguments):
                return {
                    key: self._taken(arguments[1], each, f"{path}.{key}", problems) for key, each in entries.items()
                }
            if kind in self._holding:
                return self._member(kind, entries, path, problems)
        return cast("Any", value)

    def _chosen(self, classes: Sequence[type], tag: _Tag, value: dict[str, Any], path: str, problems: list[str]) -> Any:
        named = value.get(tag.key)
        rest = {key: each for key, each in value.items() if key != tag.key} if tag.added else value
        for one in classes:
            if tag.key in value and named == tag.values[_name(one)]:
                return self._member(one, rest, path, problems)
        if (
            tag.added and tag.key not in value and value
        ):  # of a server that asks for no schema: whole, and of one member only
            fits: list[Any] = []
            for one in classes:
                own: list[str] = []
                taken = self._member(one, value, path, own) if value.keys() <= _fields(one).keys() else None
                if taken is not None and not own:
                    fits.append(taken)
            if fits and all([each == fits[0] for each in fits]):  # typed dicts of several are the same dict
                return fits[0]
        wanted = ", ".join([repr(each) for each in tag.values.values()])
        problems.append(f"{path or 'the value'}: '{tag.key}' says which one it is, and must be one of {wanted}")
        return value

    def _member(self, one: type, value: dict[str, Any], path: str, problems: list[str]) -> Any:
        """An instance of a class out of its data."""
        adapter: TypeAdapter[Any] = TypeAdapter(one)
        before = len(problems)
        try:
            if one not in self._holding:
                return adapter.validate_json(to_json(value))  # as JSON, as a whole answer is read
            kinds = _fields(one)
            data = {
                key: self._taken(kinds[key], each, f"{path}.{key}", problems) if key in kinds else each
                for key, each in value.items()
            }
            return adapter.validate_python(data) if len(problems) == before else value
        except ValidationError as error:
            problems.extend([f"{path}.{each}".lstrip(".") for each in validation_messages(error)])
            return value

    def _marked(self, kind: Any, value: Any, data: Any) -> Any:
        """``data``, which was made of ``value``, with the tags."""
        kind, arguments = _bare(kind)
        if _is_union(kind):
            classes = _classes(arguments)
            tag = self._tags.get(_names(classes))
            if tag is None:
                others = [each for each in arguments if each is not type(None)]
                return self._marked(others[0], value, data) if len(others) == 1 else data
            one = next((each for each in classes if type(value) is each), None)
            own = data if one is None else self._marked(one, value, data)
            return own if one is None or not tag.added else {tag.key: tag.values[_name(one)], **own}
        if isinstance(data, list) and isinstance(value, list | tuple) and _is_listing(kind, arguments):
            pairs = zip(cast("Sequence[Any]", value), cast("list[Any]", data), strict=True)
            return [self._marked(arguments[0], one, each) for one, each in pairs]
        if isinstance(data, dict):
            entries = cast("dict[str, Any]", data)
            if isinstance(value, dict) and _is_mapping(kind, arguments):
                pairs = zip(cast("dict[Any, Any]", value).values(), entries.items(), strict=True)
                return {key: self._marked(arguments[1], one, each) for one, (key, each) in pairs}
            if kind in self._holding:
                names, kinds = _attributes(kind), _fields(kind)
                return {
                    key: self._marked(kinds[key], _value_of(value, names[key]), each) if key in kinds else each
                    for key, each in entries.items()
                }
        return cast("Any", data)


def tagged_unions(kind: Any) -> TaggedUnions | None:
    """The unions of classes in a type: pydantic models, dataclasses and TypedDicts, also in lists, dicts and fields. None
    without any.

    A TypedDict's values are plain dicts, which do not name their class: they are written and read without tags.

    Raises the errors of pydantic for a type without a JSON Schema.
    """
    unions: dict[Members, None] = {}
    holding: set[type] = set()
    if not _holds(kind, unions, holding, []):
        return None
    schema, tags = _tagged(TypeAdapter(kind).json_schema(), unions)
    return TaggedUnions(kind, schema, tags, holding) if tags else None


def asked_schema(kind: Any, schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema that a model is asked for: ``schema``, with the tags of the unions in the type ``kind`` (None: no type)."""
    unions = None if kind is None or schema is None else tagged_unions(kind)
    return schema if unions is None else unions.schema


# -- types --------------------------------------------------------------------------------------------------------


def _holds(kind: Any, unions: dict[Members, None], holding: set[type], within: list[Any]) -> bool:
    """Whether a type holds a union of classes; collects these, and the classes with fields that hold one."""
    kind, arguments = _bare(kind)
    if _is_union(kind):
        classes = _classes(arguments)
        inside = [_holds(each, unions, holding, within) for each in arguments]
        rest = [each for each in arguments if each not in classes]
        if len(classes) > 1 and all([each in _BESIDE or get_origin(each) is Literal for each in rest]):
            unions[_names(classes)] = None
            return True
        return any(inside)
    if _is_class(kind):
        if kind in within:
            return kind in holding
        inside = [_holds(each, unions, holding, [*within, kind]) for each in _fields(kind).values()]
        if any(inside):
            holding.add(kind)
        return any(inside)
    return any([_holds(each, unions, holding, within) for each in arguments if each is not Ellipsis])


def _bare(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its annotations: its origin and arguments, or itself and none."""
    while get_origin(kind) in _AROUND:
        kind = get_args(kind)[0]
    origin = get_origin(kind)
    if origin is None or _is_class(kind):
        return kind, ()
    return origin, get_args(kind) if origin is not Literal else ()


def _is_union(kind: Any) -> bool:
    return kind is Union or kind is UnionType


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or is_dataclass(cast("Any", kind)) or is_typeddict(cast("Any", kind))
    )


def _is_listing(kind: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a JSON array has a type with all items of its first argument."""
    items = len(arguments) == 1 or (len(arguments) == 2 and arguments[1] is Ellipsis)
    return items and isinstance(kind, type) and issubclass(kind, Sequence)


def _is_mapping(kind: Any, arguments: tuple[Any, ...]) -> bool:
    return len(arguments) == 2 and isinstance(kind, type) and issubclass(kind, Mapping)


def _classes(arguments: Sequence[Any]) -> list[type]:
    return [each for each in (_bare(one)[0] for one in arguments) if _is_class(each)]


def _fields(one: Any) -> dict[str, Any]:
    """The types of a class's fields, by their names in JSON."""
    if issubclass(one, BaseModel):
        return {info.alias or name: info.annotation for name, info in one.model_fields.items()}
    hints = get_type_hints(one, include_extras=True)
    if is_typeddict(one):
        return hints
    return {field.name: hints[field.name] for field in fields_of(one) if field.init}


def _attributes(one: Any) -> dict[str, str]:
    """The attributes of a class, by their names in JSON."""
    if issubclass(one, BaseModel):
        return {info.alias or name: name for name, info in one.model_fields.items()}
    return {name: name for name in _fields(one)}


def _value_of(value: Any, name: str) -> Any:
    """A field of an instance, which is a dict if its class is a TypedDict."""
    return cast("dict[str, Any]", value)[name] if isinstance(value, dict) else getattr(value, name)


def _name(one: type) -> str:
    """The name of a class's definition in a schema."""
    return re.sub(r"[^a-zA-Z0-9.\-_]", "_", one.__name__)


def _names(classes: Sequence[type]) -> Members:
    return frozenset([_name(each) for each in classes])


# -- schemas ------------------------------------------------------------------------------------------------------


def _tagged(schema: dict[str, Any], unions: Mapping[Members, None]) -> tuple[dict[str, Any], dict[Members, _Tag]]:
    """A schema with tags for the members of these unions, and the tags.

    A union stays unchanged if its members have no definitions of these names.
    """
    root = copy.deepcopy(schema)
    definitions: dict[str, Any] = root.get("$defs", {})
    tags: dict[Members, _Tag] = {}
    taken = {name for each in definitions.values() for name in each.get("properties", {})}
    key = _KEY
    while key in taken or key in root.get("properties", {}):
        key += "_"
    variants: dict[str, tuple[str, _Tag]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, list):
            for each in cast("list[Any]", node):
                visit(each)
        if not isinstance(node, dict):
            return
        rules = cast("dict[str, Any]", node)
        if "anyOf" in rules and "discriminator" not in rules:
            choices: list[Any] = rules["anyOf"]
            references = [each for each in choices if str(each.get("$ref", "")).startswith(DEFINED)]
            names = [str(each["$ref"]).removeprefix(DEFINED) for each in references]
            members = frozenset(names)
            if members in unions and all(["properties" in definitions.get(each, {}) for each in names]):
                tag = tags.setdefault(members, _tag_of({each: definitions[each] for each in names}, key))
                for each, name in zip(references, names, strict=True):
                    variant = f"{name}_{tag.key}"
                    variants[variant] = (name, tag)
                    each["$ref"] = DEFINED + variant
        for each in rules.values():
            visit(each)

    visit(root)
    for variant, (name, tag) in variants.items():
        own = definitions[name]
        constant = {tag.key: {"const": tag.values[name], "type": "string"}} if tag.added else {}
        required = [each for each in own.get("required", []) if each != tag.key]
        definitions[variant] = {
            **own,
            "properties": {**constant, **own["properties"]},
            "required": [tag.key, *required],
        }
    if variants:
        root["$defs"] = reached(root, definitions)
    return root, tags


def _tag_of(members: Mapping[str, Mapping[str, Any]], key: str) -> _Tag:
    """The field of all members that has another constant in each, else ``key``, which is added."""
    first = next(iter(members.values()))
    for name in first["properties"]:
        values = {each: own["properties"].get(name, {}).get("const") for each, own in members.items()}
        if None not in values.values() and len({repr(each) for each in values.values()}) == len(values):
            return _Tag(name, values, False)
    return _Tag(key, {each: each for each in members}, True)
