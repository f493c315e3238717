"""Types that people annotate with a value of each, for the doors of durable runs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import math
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import AliasPath, BaseModel, ConfigDict, Field, RootModel, SecretStr, computed_field, model_serializer
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Payment:
    at: dt.datetime
    amount: decimal.Decimal


@dataclasses.dataclass(frozen=True)
class Route:
    stops: tuple[str, ...]
    via: frozenset[int]


@pydantic_dataclass
class Checked:
    day: dt.date


class Pair(NamedTuple):
    left: int
    right: dt.date


class Row(TypedDict):
    at: dt.datetime
    tags: set[str]


class Plain(BaseModel):
    name: str
    amount: decimal.Decimal
    at: dt.datetime | None = None


class Customer(BaseModel):
    customer_id: int = Field(alias="customerId")


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    first_name: str


class Out(BaseModel):
    total_sum: int = Field(serialization_alias="totalSum")


class Deep(BaseModel):
    inner: int = Field(validation_alias=AliasPath("a", 0))


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: dt.datetime
    ids: tuple[uuid.UUID, ...]


class Bag(BaseModel):
    model_config = ConfigDict(extra="allow")
    size: int


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int

    @computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Blob(BaseModel):
    data: bytes
    anything: Any = None


class Names(RootModel[list[str]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    owner: str


class Node(BaseModel):
    value: int
    children: list[Node] = []


NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
BERLIN = dt.datetime(2026, 7, 2, 3, 4, 5, tzinfo=ZoneInfo("Europe/Berlin"))
TYPES: dict[str, tuple[Any, Any]] = {
    "text": (str, "Grüße \U0001f600"),
    "half a character": (str, "a\ud83db"),
    "large integer": (int, 10**40),
    "float": (float, 0.1),
    "infinity": (float, math.inf),
    "not a number": (list[float], [math.nan, -math.inf]),
    "boolean or nothing": (bool | None, None),
    "decimal": (decimal.Decimal, decimal.Decimal("1.10")),
    "decimal that is not a number": (decimal.Decimal, decimal.Decimal("NaN")),
    "datetime": (dt.datetime, NOW),
    "datetime of a zone": (dt.datetime, BERLIN),
    "date": (dt.date, dt.date(2026, 1, 2)),
    "time": (dt.time, dt.time(3, 4, 5)),
    "timedelta": (dt.timedelta, dt.timedelta(days=-1, microseconds=7)),
    "uuid": (uuid.UUID, uuid.UUID(int=7)),
    "bytes": (bytes, b"\xff\x00"),
    "path": (Path, Path("a/b.txt")),
    "address": (ipaddress.IPv4Address, ipaddress.IPv4Address("10.0.0.1")),
    "enum": (Color, Color.RED),
    "integer enum": (Level, Level.LOW),
    "text enum": (Word, Word.YES),
    "literal": (Literal["a", "b"], "b"),
    "set": (set[int], {1, 2}),
    "frozenset of dates": (frozenset[dt.date], frozenset({dt.date(2026, 1, 2)})),
    "tuple": (tuple[int, dt.date], (1, dt.date(2026, 1, 2))),
    "dict with enum keys": (dict[Color, int], {Color.RED: 1}),
    "dict with integer keys": (dict[int, decimal.Decimal], {1: decimal.Decimal("2.50")}),
    "union of a text and a decimal": (decimal.Decimal | str, decimal.Decimal("3.0")),
    "annotated": (Annotated[int, Field(ge=1)], 3),
    "dataclass": (Payment, Payment(NOW, decimal.Decimal("2.50"))),
    "frozen dataclass": (Route, Route(("a", "b"), frozenset({1}))),
    "dataclass of pydantic": (Checked, Checked(dt.date(2026, 1, 2))),
    "named tuple": (Pair, Pair(1, dt.date(2026, 1, 2))),
    "typed dict": (Row, {"at": NOW, "tags": {"a"}}),
    "model": (Plain, Plain(name="a", amount=decimal.Decimal("1.10"), at=NOW)),
    "list of models": (list[Plain], [Plain(name="a", amount=decimal.Decimal("1"))]),
    "model with an alias": (Customer, Customer(customerId=3)),
    "model with made aliases": (Camel, Camel(firstName="Ada")),
    "model written by another name": (Out, Out(total_sum=4)),
    "model read by a path": (Deep, Deep.model_validate({"a": [5]})),
    "strict model": (Strict, Strict(at=NOW, ids=(uuid.UUID(int=1),))),
    "model with more": (Bag, Bag.model_validate({"size": 1, "other": "x"})),
    "model with a computed field": (Square, Square(side=3)),
    "model with bytes": (Blob, Blob(data=b"\xff\x00", anything=decimal.Decimal("1.5"))),
    "root model": (Names, Names(["a"])),
    "tagged union": (Annotated[Cat | Dog, Field(discriminator="kind")], Dog(owner="Eva")),
    "model within itself": (Node, Node(value=1, children=[Node(value=2)])),
}
"""What a type is called, the annotation, and a value of it."""


class Login(BaseModel):
    password: SecretStr


class Hidden(BaseModel):
    a: int
    b: int = Field(default=0, exclude=True)


class Base(BaseModel):
    a: int


class Derived(Base):
    b: int


class Holder(BaseModel):
    base: Base


class Lossy(BaseModel):
    a: int

    @model_serializer
    def shortened(self) -> dict[str, int]:
        return {"a": 0}


class Connection:
    """What no data stands for."""


UNFIT: dict[str, tuple[Any, Any]] = {
    "an excluded field": (Hidden, Hidden(a=1, b=7)),
    "a subclass in a field": (Holder, Holder(base=Derived(a=1, b=2))),
    "a serializer that loses": (Lossy, Lossy(a=1)),
    "an object": (Any, Connection()),
    "an object in a dict": (dict[str, Any], {"a": Connection()}),
    "a dataclass that nothing announces": (Any, Payment(NOW, decimal.Decimal(1))),
    "another type than is said": (int, "seven"),
}
"""Values that reading would not give again, which only the value tells."""
REFUSED: dict[str, tuple[Any, Any]] = {
    "a secret": (Login, Login(password=SecretStr("correct-horse"))),
    "a secret in a list": (list[SecretStr], [SecretStr("correct-horse")]),
    "a class of the host": (Connection, Connection()),
}
"""Types whose values are not stored, which the annotation tells."""


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of one type, where nothing is equal to what is not a number."""
    return type(one) is type(other) and (one == other or repr(one) == repr(other))


__all__ = ["REFUSED", "TYPES", "UNFIT", "is_same"]
