"""Abstract values: the procedures, lengths, intervals, texts and fields that a value may have in any run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.values import Symbol, as_list
from agentflow.lang.bounds.polynomial import ZERO, Bound
from agentflow.lang.kernel.nodes import Lambda, Variable

Stage: TypeAlias = Literal["result", "value", "data"]
"""``result``: the data is still in a result; ``value``: the output of ``value-of``, a text if the answer was not JSON;
``data``: data known to satisfy the schema."""

_MOST_REFERENCES = 20


@frozen
class Shape:
    """Data that satisfies the schema ``node``; references in it are resolved in ``root``."""

    node: Mapping[str, Any]
    root: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stage: Stage = "result"

    @property
    def longest(self) -> int | None:
        """The maximum length of the list; None if the schema does not limit it."""
        lengths: list[int] = []
        for each in self._choices():
            kind, most = each.get("type"), each.get("maxItems")
            if kind == "array" and type(most) is int and most >= 0:
                lengths.append(most)
            elif kind not in ("null", "boolean", "number", "integer"):
                return None
        return max(lengths, default=None)

    def at(self, stage: Stage) -> Shape:
        """The same shape at another stage."""
        return replace(self, stage=stage)

    def element(self) -> Shape | None:
        """The shape of the elements; None if the schema does not define it."""
        return self._within("array", "items")

    def part(self, key: str) -> Shape | None:
        """The shape of the value of ``key``; None if the schema does not define it."""
        properties = self._within("object", "properties")
        return None if properties is None else self._of(properties.node.get(key))

    def _within(self, kind: str, keyword: str) -> Shape | None:
        choices = [each for each in self._choices() if each.get("type") == kind]
        if self.stage == "result" or len(choices) != 1 or "prefixItems" in choices[0]:
            return None
        return self._of(choices[0].get(keyword))

    def _of(self, node: object) -> Shape | None:
        return Shape(cast("Mapping[str, Any]", node), self.root, "data") if is_dict(node) else None

    def _choices(self) -> list[Mapping[str, Any]]:
        """The alternative schemas; an empty one stands for one that cannot be resolved."""
        pending, choices = [self.node], list[Mapping[str, Any]]()
        for _ in range(_MOST_REFERENCES):
            if not pending:
                return choices
            node = pending.pop()
            reference, options = node.get("$ref"), node.get("anyOf", node.get("oneOf"))
            if isinstance(reference, str):
                pending.append(self._referred(reference))
            elif isinstance(options, list):
                pending += [each if is_dict(each) else {} for each in cast("list[Any]", options)]
            else:
                choices.append(node)
        return [{}]

    def _referred(self, reference: str) -> Mapping[str, Any]:
        node: Any = self.root
        for name in reference.removeprefix("#/").split("/"):
            node = node.get(name) if is_dict(node) else None
        return node if is_dict(node) else {}


Parameter: TypeAlias = tuple[int, int]
"""A parameter of a call on the stack: the number of the call, and the position of the parameter."""

Origins: TypeAlias = Mapping[str, Shape | None]
"""Data from outside that a value may be, by the names of its sizes, with the schema of each."""

_MOST_PROCEDURES = 12
_MOST_TEXTS = 24
_MOST_ORIGINS = 4
_DEEPEST = 8


@frozen
class Mark:
    """How a value derives from a parameter: a list without its first ``drop`` elements, or a number and ``delta`` more; or a
    number divided by ``divisor``, towards 0. A number worked out from a length is at least ``(length + delta) / divisor``, rounded down,
    and no more than that without rounding."""

    drop: int = 0
    delta: int | None = 0
    divisor: int = 1


_NO_ORIGINS: Origins = MappingProxyType({})
_NO_MARKS: Mapping[Parameter, Mark] = MappingProxyType({})


def _no_origins() -> Origins:
    return _NO_ORIGINS


def _no_marks() -> Mapping[Parameter, Mark]:
    return _NO_MARKS


@frozen
class Value:
    """An abstract value.

    ``procedures`` are those of this text that it may be; ``foreign``: it may be or hold procedures from elsewhere. ``texts``
    are the strings and symbols that it may be, None for any. ``size`` is the most elements of a list, None if unknown;
    ``item`` any of its elements; ``fields`` the values of a dict with constant keys. A number lies between ``low`` and
    ``high``, and has no fraction if it is ``whole``; ``exactly`` is a literal integer. ``origins`` are the data from outside that it may be;
    the sizes of its parts have their names. ``marks`` say how it came from parameters, ``length_of`` gives the lists that it may be the length of.
    ``sites`` are the nodes of a text in Python that may have made it, if it is a list, dict or set, which such a text can change
    (None: any node); parts that neither ``item`` nor ``fields`` describe share its sites.
    """

    procedures: frozenset[Any] = frozenset()
    foreign: bool = False
    texts: frozenset[str] | None = frozenset()
    size: Bound | None = None
    item: Value | None = None
    fields: Mapping[str, Value] | None = None
    low: float | None = None
    high: Bound | None = None
    whole: bool = False
    exactly: int | None = None
    origins: Origins = field(default_factory=_no_origins)
    marks: Mapping[Parameter, Mark] = field(default_factory=_no_marks)
    length_of: Mapping[Parameter, Mark] = field(default_factory=_no_marks)
    never: bool = False
    sites: frozenset[Any] | None = None

    @property
    def length(self) -> Bound | None:
        """An upper bound of its length, as a list or a text; a size named after its origins if no number is known."""
        if self.size is not None or not self.origins:
            return self.size
        return _longest(self.origins, _text_too)

    @property
    def elements(self) -> Bound | None:
        """An upper bound of its length as a list."""
        return self.size if self.size is not None or not self.origins else _longest(self.origins, _lists_only)

    @property
    def is_nil(self) -> bool:
        """Whether it is nil, or an empty list or dict, in every run."""
        empty = self.size == ZERO and self.item is None and not self.fields
        return empty and not (self.procedures or self.foreign or self.texts or self.texts is None or self.high)

    @property
    def holds_procedures(self) -> bool:
        """Whether it is a procedure, or may contain one."""
        if self.foreign or self.procedures:
            return True
        parts = [*(self.fields or {}).values(), *([self.item] if self.item else [])]
        return any(part.holds_procedures for part in parts)

    @property
    def all_sites(self) -> frozenset[Any] | None:
        """The sites that may have made it, or any of its parts."""
        sites = self.sites
        for part in [*(self.fields or {}).values(), *([self.item] if self.item else [])]:
            sites = _either(sites, part.all_sites)
        return sites

    def element(self) -> Value:
        """The abstract value of its elements, or of the values of its keys."""
        within = [*(self.fields or {}).values(), *([self.item] if self.item else [])]
        if within:
            return joined(within)
        origins = {f"{name}.*": shape and shape.element() for name, shape in self.origins.items()}
        return Value(foreign=self.foreign, texts=None, origins=origins, sites=self.sites)

    def part(self, key: str) -> Value:
        """The abstract value of ``key``; nil where the key may be missing."""
        if self.fields is not None:
            return self.fields.get(key, NIL)
        if self.item is not None:
            return self.item.join(NIL)
        opens = key in _DATA_OF_RESULT
        origins: dict[str, Shape | None] = {}
        for name, shape in self.origins.items():
            if opens and (value := _value_of(name)) != name:
                origins[value] = shape and shape.at("data")
            else:
                origins[f"{name}.{key}"] = shape and shape.part(key)
        return Value(foreign=self.foreign, texts=None, origins=origins, sites=self.sites)

    def opened(self, stage: Stage) -> Value:
        """The content of a result, without marks."""
        if not self.origins:
            return self.unmarked()
        origins = {_value_of(name): shape and shape.at(stage) for name, shape in self.origins.items()}
        return self.but(origins=origins, marks=_NO_MARKS, length_of=_NO_MARKS)

    def plain(self) -> Value:
        """The procedures and texts in it and in its parts, without its form."""
        whole = self if not (self.fields or self.item) else joined([self.shapeless(), self.element().plain()])
        return whole.shapeless()

    def shapeless(self) -> Value:
        """Its own procedures and texts, without parts and sizes."""
        return Value(procedures=self.procedures, foreign=self.foreign, texts=self.texts, sites=self.sites)

    def made_at(self, sites: frozenset[Any] | None) -> Value:
        """The same value from other sites."""
        return self if self.sites is sites else self.but(sites=sites)

    def may_mention(self, word: str) -> bool:
        """Whether it may be, or contain, this text or symbol."""
        if self.foreign or self.texts is None or word in self.texts or word in (self.fields or ()):
            return True
        return any(
            part.may_mention(word) for part in [*(self.fields or {}).values(), *([self.item] if self.item else [])]
        )

    def unmarked(self) -> Value:
        """The same value without marks."""
        return self.but(marks=_NO_MARKS, length_of=_NO_MARKS) if self.marks or self.length_of else self

    def but(self, **changes: Any) -> Value:
        """The same value with other fields: :func:`dataclasses.replace`, in a fifth of the time."""
        parts = [*_ALL(self)]
        for name, part in changes.items():
            parts[_AT[name]] = part
        return Value(*parts)

    def join(self, other: Value, depth: int = 0) -> Value:
        """The join of both: an abstract value that covers either."""
        if self is other or other.never:
            return self
        if self.never:
            return other
        if other.origins and other.size is None and self.is_nil:
            # Nothing is a list without elements: a statement about any length holds of it.
            return other.unmarked().made_at(_either(self.sites, other.sites))
        if self.origins and self.size is None and other.is_nil:
            return self.unmarked().made_at(_either(other.sites, self.sites))
        procedures = self.procedures | other.procedures if self.procedures or other.procedures else self.procedures
        foreign = self.foreign or other.foreign
        if len(procedures) > _MOST_PROCEDURES or (depth > _DEEPEST and _any_procedures(self, other)):
            procedures, foreign = frozenset[Any](), True
        texts = None if self.texts is None or other.texts is None else self.texts | other.texts
        if texts and len(texts) > _MOST_TEXTS:
            texts = None
        origins = _merged(self.origins, other.origins) if self.origins and other.origins else _NO_ORIGINS
        size: Bound | None = None
        if not (origins and self.size is None and other.size is None):
            left = self.length
            right = None if left is None else other.length
            size = left.join(right) if left is not None and right is not None else None
        item, fields = (None, None) if depth > _DEEPEST else _parts(self, other, depth + 1)
        sites = _either(self.sites, other.sites)
        if item is None and fields is None and sites is not None:
            sites = _either(self.all_sites, other.all_sites)
        return Value(
            procedures=procedures,
            foreign=foreign,
            texts=texts,
            size=size,
            item=item,
            fields=fields,
            low=None if self.low is None or other.low is None else min(self.low, other.low),
            high=self.high.join(other.high) if self.high is not None and other.high is not None else None,
            whole=self.whole and other.whole,
            exactly=self.exactly if self.exactly == other.exactly else None,
            origins=origins,
            marks=_common(self.marks, other.marks) if self.marks and other.marks else _NO_MARKS,
            length_of=_same_lengths(self.length_of, other.length_of)
            if self.length_of and other.length_of
            else _NO_MARKS,
            sites=sites,
        )


_DATA_OF_RESULT = frozenset({"parsedContent", "parsed_content"})
_RESULT = "outcome("


def result_of(name: str) -> str:
    """The source of the result of a call, before it is opened: a part of it, such as the text in its ``content``, differs from
    the part of its value with the same key, and has another length."""
    return f"{_RESULT}{name})"


def _value_of(source: str) -> str:
    """The source of the value of a result; any other source as it is."""
    name = source[len(_RESULT) : -1]
    return name if source == f"{_RESULT}{name})" and "(" not in name else source


def _text_too(name: str, shape: Shape | None) -> int | None:
    return shape.longest if shape is not None and shape.stage == "data" else None


def _lists_only(name: str, shape: Shape | None) -> int | None:
    return shape.longest if shape is not None else None


def _longest(origins: Origins, most: Callable[[str, Shape | None], int | None]) -> Bound:
    """An upper bound of the lengths of all ``origins``: the answer of ``most`` for each, or the size named after it."""
    longest = ZERO
    for name, shape in origins.items():
        number = most(name, shape)
        longest = longest.join(Bound.size(f"len({_value_of(name)})") if number is None else Bound.of(number))
    return longest


def _merged(a: Origins, b: Origins) -> Origins:
    """The origins of a value with those of either; none if they are many, or one is within the other: a walk down a tree
    would find another at each level."""
    if a == b:
        return a
    both = {**a, **b, **{name: None for name in a.keys() & b.keys() if a[name] != b[name]}}
    if len(both) > _MOST_ORIGINS or any(_within(one, other) or _within(other, one) for one in a for other in b):
        return _NO_ORIGINS
    return both


def _within(one: str, other: str) -> bool:
    return one.startswith(f"{other}.")


_ALL = attrgetter(*(each.name for each in fields(Value)))
_AT = {each.name: at for at, each in enumerate(fields(Value))}


def _either(a: frozenset[Any] | None, b: frozenset[Any] | None) -> frozenset[Any] | None:
    return None if a is None or b is None else a | b


def _any_procedures(*values: Value) -> bool:
    return any(each.holds_procedures for each in values)


def _parts(a: Value, b: Value, depth: int) -> tuple[Value | None, Mapping[str, Value] | None]:
    if a.fields is b.fields is a.item is b.item:  # None
        return None, None
    if a.fields is not None and b.fields is not None:
        keys = a.fields.keys() | b.fields.keys()
        return None, {key: a.fields.get(key, NIL).join(b.fields.get(key, NIL), depth) for key in sorted(keys)}
    empty = [each for each in (a, b) if each.size == ZERO]
    if empty:
        other = b if empty[0] is a else a
        return other.item, other.fields
    has_parts = (a.item is not None or a.fields is not None, b.item is not None or b.fields is not None)
    if has_parts == (False, False):
        return None, None
    if all(has_parts) or _any_procedures(a, b):
        return a.element().join(b.element(), depth), None
    return None, None


def _common(a: Mapping[Parameter, Mark], b: Mapping[Parameter, Mark]) -> Mapping[Parameter, Mark]:
    if not a or not b:
        return {}
    return {
        key: Mark(
            min(mark.drop, b[key].drop),
            mark.delta if mark.delta == b[key].delta else None,
            min(mark.divisor, b[key].divisor),
        )
        for key, mark in a.items()
        if key in b
    }


def _same_lengths(a: Mapping[Parameter, Mark], b: Mapping[Parameter, Mark]) -> Mapping[Parameter, Mark]:
    return {key: mark for key, mark in _common(a, b).items() if a[key].divisor == b[key].divisor} if a and b else {}


def joined(values: Iterable[Value]) -> Value:
    """The join of all ``values``; NEVER of none."""
    whole = NEVER
    for each in values:
        whole = whole.join(each)
    return whole


def widened(before: Value, value: Value) -> Value:
    """The join of both without sizes and numbers that may keep growing; ``before`` if it covers ``value``."""
    after = before.join(value)
    if after == before:
        return before
    within = FOREIGN if after.holds_procedures else DATA
    plain = after.plain()
    item = Value(procedures=plain.procedures, foreign=within.foreign, texts=None, item=None, sites=after.all_sites)
    return Value(
        procedures=after.procedures,
        foreign=after.foreign,
        texts=after.texts,
        item=item,
        sites=after.all_sites,
        whole=after.whole,
    )


def constant(value: Any, depth: int = 0) -> Value:
    """The abstract value of a value of a program."""
    if isinstance(value, bool) or value is None:
        return PLAIN
    if isinstance(value, int | float):
        whole = isinstance(value, int)
        if value != value:
            return Value()
        return Value(low=value, high=Bound.of(value), whole=whole, exactly=value if isinstance(value, int) else None)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Symbol):
        return text(value.name)
    if depth > _DEEPEST:
        return FOREIGN
    elements = as_list(value)
    if elements is not None:
        items = joined(constant(each, depth + 1) for each in elements[:_SAMPLE])
        more = len(elements) > _SAMPLE
        return sequence(len(elements), FOREIGN if more else items)
    if is_dict(value) and all(isinstance(key, str) for key in value):
        entries = cast("Mapping[str, Any]", value)
        return Value(
            size=Bound.of(len(entries)), fields={key: constant(each, depth + 1) for key, each in entries.items()}
        )
    return FOREIGN


_SAMPLE = 200
"""The number of elements read of a list among the bindings; the elements of a longer one may be anything."""


def text(*texts: str) -> Value:
    """One of ``texts``."""
    return Value(texts=frozenset(texts))


def sequence(size: float | Bound | None, item: Value) -> Value:
    """A list of at most ``size`` elements."""
    return Value(size=Bound.of(size) if isinstance(size, int | float) else size, item=item)


def number(low: float | None, high: Bound | None, *, whole: bool) -> Value:
    """A number between both, None for no bound."""
    return Value(low=low, high=high, whole=whole)


NEVER = Value(never=True)
"""The abstract value of an expression that never returns."""
PLAIN = Value()
"""A value other than a text, a list or a procedure."""
NIL = Value(size=ZERO)
TEXT = Value(texts=None)
"""Any text."""
DATA = Value(texts=None)
"""Data without procedures, of any form."""
FOREIGN = Value(foreign=True, texts=None)
"""Anything at all, procedures from elsewhere too."""


class AbstractScope:
    """The variables of a part of the program, and their abstract values."""

    __slots__ = ("_initial", "_outer", "_values")

    def __init__(self, outer: AbstractScope | None) -> None:
        self._outer = outer
        self._values: dict[Variable, Value] = {}
        self._initial: dict[Variable, Value] = {}

    def bind(self, variable: Variable, value: Value) -> None:
        """Bind a variable of this scope. An unsteady one may be anything."""
        self._values[variable] = FOREIGN if variable.is_unsteady else value
        if variable.is_unsteady:
            self._initial[variable] = self._initial.get(variable, NEVER).join(value)

    def initial(self, variable: Variable) -> Value:
        """The abstract value that an unsteady variable is bound to before any assignment."""
        at: AbstractScope | None = self
        while at is not None:
            if variable in at._initial:
                return at._initial[variable]
            at = at._outer
        return FOREIGN

    def with_value(self, variable: Variable, value: Value) -> AbstractScope:
        """A nested scope that gives an unsteady variable this value."""
        inner = AbstractScope(self)
        inner._values[variable] = value
        return inner

    def define(self, variable: Variable, value: Value) -> None:
        """Bind a variable to the value of its definition, in the scope that declares it."""
        at: AbstractScope | None = self
        while at is not None and variable not in at._values:
            at = at._outer
        (at or self).bind(variable, value)

    def value(self, variable: Variable) -> Value:
        """The abstract value of a variable; NEVER before it is bound."""
        at: AbstractScope | None = self
        while at is not None:
            if variable in at._values:
                return at._values[variable]
            at = at._outer
        return NEVER

    def has(self, variable: Variable) -> bool:
        """Whether this scope, or one around it, binds a variable."""
        at: AbstractScope | None = self
        while at is not None and variable not in at._values:
            at = at._outer
        return at is not None

    def kept(self) -> dict[Variable, Value]:
        """A copy of its own variables, for :meth:`put_back`."""
        return dict(self._values)

    def put_back(self, values: Mapping[Variable, Value]) -> None:
        """Give its own variables the values of a copy."""
        self._values = dict(values)

    def inside(self, outer: AbstractScope) -> bool:
        """Whether this scope is within ``outer``."""
        at: AbstractScope | None = self
        while at is not None and at is not outer:
            at = at._outer
        return at is outer


class AbstractClosure:
    """A procedure of the program and the scope that created it. Equal to another of the same code and scope."""

    __slots__ = ("code", "scope")

    def __init__(self, code: Lambda, scope: AbstractScope) -> None:
        self.code = code
        self.scope = scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractClosure) and other.code is self.code and other.scope is self.scope

    def __hash__(self) -> int:
        return hash((id(self.code), id(self.scope)))


def position(procedure: Any) -> tuple[int, str]:
    """The sort key of procedures: those of the language by name, then those of the text by span."""
    if isinstance(procedure, AbstractClosure):
        at = procedure.code.at
        return -1 if at is None else at.start, ""
    return -1, procedure.name
