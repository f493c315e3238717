"""Types and JSON Schemas as programs declare them, each with values that are meant: as JSON, and as what they are in Python."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import pathlib
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    RootModel,
    SecretStr,
    StringConstraints,
)
from typing_extensions import TypedDict

T = TypeVar("T")


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Opened(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Person(BaseModel):
    """A person."""

    name: Annotated[str, Field(description="the full name", min_length=1)]
    age: int = 3
    tags: list[str] = []
    nick: str | None = None


class Tree(BaseModel):
    name: str
    below: list[Tree] = []


class Chain(Closed):
    value: int
    next: Chain | None = None


class Mother(BaseModel):
    name: str
    children: list[Child] = []


class Child(BaseModel):
    name: str
    mother: Mother | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    breed: str


class Pets(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


class Bug(BaseModel):
    path: str
    line: int


class Clean(BaseModel):
    reason: str = "nothing"


class Found(BaseModel):
    found: list[Bug | Clean]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: str = Field(alias="type")
    items: list[int] = Field(alias="properties")


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int


class Words(RootModel[list[str]]):
    pass


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Job:
    name: str
    cost: decimal.Decimal
    due: datetime.date | None = None


class Described(BaseModel):
    first: Person = Field(description="who came first")
    last: Annotated[Person | None, Field(description="who came last")] = None


class Money(Closed):
    amount: decimal.Decimal
    unit: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "EUR"


class Bounds(Closed):
    model_config = ConfigDict(extra="forbid", regex_engine="python-re")
    code: Annotated[str, Field(pattern=r"^(?=.*\d)\w+$", max_length=20)]
    share: Annotated[float, Field(gt=0, lt=1)]
    steps: Annotated[list[int], Field(min_length=2, max_length=4)]
    even: Annotated[int, Field(multiple_of=2)]


class Hidden(BaseModel):
    word: SecretStr


class Many(BaseModel):
    a: int = 1
    b: str = "b"
    c: float = 0.5
    d: bool = True
    e: list[int] = Field(default_factory=list)


Wide: Any = type("Wide", (BaseModel,), {"__annotations__": {f"f{n}": int for n in range(30)}, **{f"f{n}": n for n in range(30)}})  # fmt: skip
"""More properties that may be left out than one vendor counts."""
_TEXT = "word"
TYPES: dict[str, tuple[Any, Any]] = {
    "str": (str, _TEXT),
    "int": (int, 3),
    "bool": (bool, True),
    "None or str": (str | None, None),
    "Any": (Any, {"a": [1, None]}),
    "list": (list, [1, "a"]),
    "list[Any]": (list[Any], [1, {"a": 2}]),
    "dict": (dict, {"a": {"b": 1}}),
    "dict[str, int]": (dict[str, int], {"a": 1, "b": 2}),
    "dict of lists of a class": (dict[str, list[Person]], {"x": [{"name": "Ann", "age": 1, "tags": [], "nick": None}]}),
    "list of a class": (list[Person], [{"name": "Ann", "age": 1, "tags": ["a"], "nick": "A"}]),
    "a class": (Person, {"name": "Ann", "age": 4, "tags": [], "nick": None}),
    "a class with extras": (Opened, {"name": "Ann", "more": 5}),
    "a recursive class": (Tree, {"name": "a", "below": [{"name": "b", "below": []}]}),
    "a chain": (Chain, {"value": 1, "next": {"value": 2, "next": None}}),
    "two classes in a circle": (Mother, {"name": "m", "children": [{"name": "c", "mother": None}]}),
    "a discriminated union": (Pets, {"pets": [{"kind": "dog", "breed": "x"}, {"kind": "cat", "lives": 7}]}),
    "a union of classes": (
        Found,
        {"found": [{"kind": "Clean", "reason": "r"}, {"kind": "Bug", "path": "p", "line": 1}]},
    ),
    "a union of scalars": (int | str, "x"),
    "a union with a list": (int | list[str], ["x"]),
    "Literal": (Literal["a", "b"], "b"),
    "Literal of kinds": (Literal[1, "a", None], None),
    "Enum": (Colour, "blue"),
    "IntEnum": (Level, 2),
    "Decimal": (decimal.Decimal, "12.50"),
    "datetime": (datetime.datetime, "2026-01-02T03:04:05Z"),
    "timedelta": (datetime.timedelta, "PT5M"),
    "UUID": (uuid.UUID, "00000000-0000-0000-0000-000000000005"),
    "address": (ipaddress.IPv4Address, "127.0.0.1"),
    "URL": (AnyUrl, "https://example.test/"),
    "path": (pathlib.Path, "/a/b"),
    "bytes": (bytes, "abc"),
    "tuple": (tuple[int, str], [1, "a"]),
    "tuple of any length": (tuple[int, ...], [1, 2]),
    "NamedTuple": (Point, [1, 2]),
    "set": (set[str], ["a", "b"]),
    "deque": (deque[int], [1, 2]),
    "positive": (PositiveInt, 4),
    "bounds": (Bounds, {"code": "a1", "share": 0.5, "steps": [1, 2], "even": 4}),
    "aliases": (Aliased, {"type": "leaf", "properties": [1]}),
    "nested generics": (Page[Page[int]], {"items": [{"items": [1], "total": 1}], "total": 1}),
    "RootModel": (Words, ["a"]),
    "TypedDict": (Movie, {"title": "t"}),
    "a dataclass": (Job, {"name": "n", "cost": "1.10", "due": "2026-01-02"}),
    "described references": (Described, {"first": {"name": "A", "age": 1, "tags": [], "nick": None}, "last": None}),
    "Decimal in a closed class": (Money, {"amount": "1.50", "unit": "EUR"}),
    "a secret": (Hidden, {"word": "x"}),
    "all with defaults": (Many, {"a": 2, "b": "x", "c": 1.5, "d": False, "e": [1]}),
    "thirty with defaults": (Wide, {f"f{n}": n + 1 for n in range(30)}),
}
"""Types by name: the type, and JSON data that a model means with it (with the tags that unions of classes are asked for with)."""

_OBJECT = {"type": "object"}


def _deep(levels: int) -> tuple[dict[str, Any], Any]:
    schema, value = {"type": "integer"}, 1
    for _ in range(levels):
        schema, value = {**_OBJECT, "properties": {"a": schema}, "required": ["a"]}, {"a": value}
    return schema, value


SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    "an open object": ({**_OBJECT, "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}, {"a": 1, "b": "x"}),
    "any object": (_OBJECT, {"a": 1}),
    "an object without a type": ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"a": 1}),
    "left out": ({**_OBJECT, "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}, {"a": 1}),
    "a list": ({"type": "array", "items": {"type": "string"}}, ["a"]),
    "a list of anything": ({"type": "array"}, [1, "a"]),
    "a tuple": ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [1, "a"]),
    "a closed tuple of objects": ({**_OBJECT, "properties": {"p": {"type": "array", "prefixItems": [_OBJECT], "minItems": 1}}, "required": ["p"]}, {"p": [{"a": 1}]}),
    "types": ({**_OBJECT, "properties": {"a": {"type": ["string", "integer", "null"], "minLength": 1}}, "required": ["a"]}, {"a": None}),
    "enum": ({"enum": ["yes", "no"]}, "no"),
    "enum of kinds": ({**_OBJECT, "properties": {"a": {"enum": [1, "a", None, True]}}, "required": ["a"]}, {"a": True}),
    "const": ({**_OBJECT, "properties": {"a": {"const": 5}}, "required": ["a"], "additionalProperties": False}, {"a": 5}),
    "const of an object": ({**_OBJECT, "properties": {"a": {"const": {"b": 1}}}, "required": ["a"]}, {"a": {"b": 1}}),
    "oneOf": ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, 5),
    "oneOf of objects": ({**_OBJECT, "oneOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, {"b": "x"}),
    "a required one of two": ({**_OBJECT, "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": "x"}),
    "allOf": ({"allOf": [{**_OBJECT, "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, {"a": 1, "b": "x"}),
    "allOf of a reference": ({**_OBJECT, "properties": {"a": {"allOf": [{"$ref": "#/definitions/n"}], "description": "a number"}}, "definitions": {"n": {"type": "integer"}}, "required": ["a"]}, {"a": 1}),
    "not": ({**_OBJECT, "properties": {"a": {"type": "integer", "not": {"const": 0}}}, "required": ["a"], "additionalProperties": False}, {"a": 1}),
    "a condition": ({**_OBJECT, "properties": {"a": {"type": "boolean"}, "b": {"type": "string"}}, "if": {"properties": {"a": {"const": True}}}, "then": {"required": ["b"]}}, {"a": True, "b": "x"}),
    "dependent": ({**_OBJECT, "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}),
    "patterns of names": ({**_OBJECT, "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False}, {"x-a": 1}),
    "names": ({**_OBJECT, "propertyNames": {"maxLength": 3}, "additionalProperties": {"type": "integer"}}, {"abc": 1}),
    "unique": ({**_OBJECT, "properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 2}}, "required": ["a"]}, {"a": [1, 2]}),
    "contains": ({**_OBJECT, "properties": {"a": {"type": "array", "items": {"type": "integer"}, "contains": {"const": 3}}}, "required": ["a"]}, {"a": [1, 3]}),
    "a format of one's own": ({**_OBJECT, "properties": {"a": {"type": "string", "format": "uri-template"}}, "required": ["a"]}, {"a": "x"}),
    "look-behind": ({**_OBJECT, "properties": {"a": {"type": "string", "pattern": "(?<!x)y"}}, "required": ["a"]}, {"a": "zy"}),
    "itself": ({**_OBJECT, "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}}, "required": ["name"]}, {"name": "a", "next": {"name": "b"}}),
    "a reference into properties": ({**_OBJECT, "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}, "required": ["a", "b"]}, {"a": "x", "b": "y"}),
    "what stands beside a reference": ({**_OBJECT, "properties": {"a": {"$ref": "#/$defs/t", "minLength": 2, "description": "d"}}, "$defs": {"t": {"type": "string"}}, "required": ["a"]}, {"a": "xy"}),
    "true": ({**_OBJECT, "properties": {"a": True}, "required": ["a"]}, {"a": [1]}),
    "odd names": ({**_OBJECT, "properties": {"größe": {"type": "integer"}, "a b": {"type": "string"}, "x" * 70: {"type": "integer"}}, "required": ["größe"]}, {"größe": 5, "a b": "x"}),
    "deep": _deep(12),
    "a long enum": ({**_OBJECT, "properties": {"a": {"enum": [f"value number {n} of a long list" for n in range(1_200)]}}, "required": ["a"]}, {"a": "value number 7 of a long list"}),
}  # fmt: skip
"""JSON Schemas by name, each with a value that is meant."""
