"""Values that a JSON Schema allows, in a fixed order: the simplest first, then those near the constants of the program.

A value is a tree of decisions, each identified by its path in the value (``.steps#`` is the length of a list, ``.steps[0]``
its first element), so that a search can change one decision and keep the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from agentflow.exploration.assumptions import Assumptions
from agentflow.exploration.constants import Constants, plain_name
from agentflow.exploration.text_samples import fitting

Choose: TypeAlias = Callable[[str, int], int]
"""Takes a path in a value and a number of options; returns the index of the option to use."""

PLAIN_TEXT = "text"
_LONG = 200
_DEEPEST = 4
_MOST_ELEMENTS = 9
_KEYS = 8
"""Maximum number of the program's keys that are put into data without a schema."""
_ANY: Mapping[str, Any] = {}
_NOTHING: Mapping[str, Mapping[str, Any]] = {}
_JSON_TEXTS = ("{}", "[]", "3", '["text"]')
_NUMBERS = (0, 2, -1, 10, 100)


class Values:
    """Generates values for schemas.

    ``constants`` are those of the program; ``assumed`` has additional schema rules for fields by name.
    """

    def __init__(self, constants: Constants, assumed: Mapping[str, Mapping[str, Any]] = _NOTHING) -> None:
        self.assumed = assumed
        self.assumptions = Assumptions(assumed)
        numbers = [number for number in constants.numbers if number == int(number)]
        near = [int(number) + step for number in numbers for step in (0, -1, 1)]
        self._integers = list(dict.fromkeys([1, *near, *_NUMBERS]))
        fractions = [number + step for number in constants.numbers for step in (0, -0.5, 0.5)]
        self._floats = list(dict.fromkeys([1.0, *map(float, fractions), 0.0, -1.0, 0.5, 100.0]))
        counts = [int(number) + step for number in numbers for step in (0, 1) if 0 <= number < _MOST_ELEMENTS]
        self._lengths = list(dict.fromkeys([1, 0, 2, 3, *counts]))
        longest = max([_LONG, *(2 * int(number) for number in numbers if number < 5_000)])
        json_texts = _JSON_TEXTS if constants.parses else ()
        near_texts = self._integers[1:] if constants.reads_numbers else self._integers[1:6]
        texts = [PLAIN_TEXT, *constants.words, "", *json_texts, *map(str, near_texts)]
        self._texts = list(
            dict.fromkeys([*texts, ("long text " * (longest // 10 + 1)).strip(), "Text, and more.\nA line."])
        )
        self._keys = constants.keys[:_KEYS]
        self._beside = {name: _beside(own) for name, own in constants.beside.items()}
        self._special: dict[tuple[str | None, str | None], list[str]] = {}

    def narrowed(
        self, name: str, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """The schema of a field, task or tool with what is assumed of it."""
        if not self.assumed:
            return schema
        return self.assumptions.narrowed(name, _resolved(schema, schema if root is None else root))

    def value(self, schema: Mapping[str, Any], at: str, choose: Choose, name: str = "") -> Any:
        """A value that satisfies the common keywords of ``schema``; ``at`` is its path in the answer of ``name``."""
        return self._value(schema, at, choose, schema, 0, plain_name(name))

    def _first(self, values: Sequence[Any], name: str, kind: type[Any]) -> Sequence[Any]:
        """The same values, those of a ``kind`` near the constants that ``name`` is compared with first, behind the simplest."""
        beside = self._beside.get(name)
        own = [each for each in beside if isinstance(each, kind)] if beside else []
        return list(dict.fromkeys([values[0], *map(kind, own), *values])) if own else values

    def _value(
        self, schema: Mapping[str, Any], at: str, choose: Choose, root: Mapping[str, Any], depth: int, name: str
    ) -> Any:
        schema = _resolved(schema, root)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return _pick(cast("list[Any]", schema["enum"]), at, choose)
        for several in ("anyOf", "oneOf"):
            if schema.get(several):
                taken = _pick(cast("list[Any]", schema[several]), f"{at}|", choose)
                rest = {key: value for key, value in schema.items() if key != several}
                return self._value({**rest, **taken}, at, choose, root, depth, name)
        if schema.get("examples"):
            return _pick(cast("list[Any]", schema["examples"]), at, choose)
        kind: Any = schema.get("type")
        if isinstance(kind, list):
            kind = _pick(cast("list[Any]", kind), f"{at}|", choose)
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        match kind:
            case "boolean":
                return _pick([True, False], at, choose)
            case "integer":
                return _pick(_within(self._first(self._integers, name, int), schema), at, choose)
            case "number":
                return _pick(_within(self._first(self._floats, name, float), schema), at, choose)
            case "string":
                return _pick(self._fitting(schema, name), at, choose)
            case "null":
                return None
            case "array":
                return self._array(schema, at, choose, root, depth, name)
            case "object":
                return self._object(schema, at, choose, root, depth)
            case _:
                return self._any(at, choose, depth, name)

    def _fitting(self, schema: Mapping[str, Any], name: str) -> Sequence[str]:
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        kind = schema.get("pattern"), schema.get("format")
        if kind != (None, None):
            if kind not in self._special:
                self._special[kind] = fitting(self._texts, *kind)
            long_enough = [text for text in self._special[kind] if least <= len(text) <= (most or len(text))]
            return long_enough or self._special[kind]
        texts = self._first(self._texts, name, str)
        if not least and most is None:
            return texts
        stretched = [text.ljust(least, ".")[:most] for text in texts]
        return list(dict.fromkeys(stretched))

    def _array(
        self, schema: Mapping[str, Any], at: str, choose: Choose, root: Mapping[str, Any], depth: int, name: str
    ) -> Any:
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        lengths = [n for n in self._lengths if n >= least and (most is None or n <= most)] or [least]
        first: Sequence[Any] = schema.get("prefixItems") or ()
        length = max(_pick(lengths, f"{at}#", choose) if depth < _DEEPEST else least, min(len(first), most or 99))
        each = cast("Mapping[str, Any]", schema.get("items") or _ANY)
        schemas = [*first, *[each] * max(0, length - len(first))][:length]
        return [self._value(one, f"{at}[{n}]", choose, root, depth + 1, name) for n, one in enumerate(schemas)]

    def _object(self, schema: Mapping[str, Any], at: str, choose: Choose, root: Mapping[str, Any], depth: int) -> Any:
        properties = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties") or _ANY)
        if not properties:
            more: object = schema.get("additionalProperties")
            each = cast("Mapping[str, Any]", more) if isinstance(more, Mapping) else _ANY
            properties = dict.fromkeys(self._keys if depth < 2 else (), each)
        required = frozenset(cast("list[str]", schema.get("required") or ()))
        value: dict[str, Any] = {}
        for name, declared in properties.items():
            each = self.narrowed(name, declared, root) if self.assumed else declared
            if name in required or choose(f"{at}.{name}?", 2) == 0:
                value[name] = self._value(each, f"{at}.{name}", choose, root, depth + 1, plain_name(name))
        return value

    def _any(self, at: str, choose: Choose, depth: int, name: str) -> Any:
        """Data without a schema: an object with the keys that the program reads, or another type."""
        kinds = ["string", "integer", "array", "null", "boolean"] if depth < 2 else ["string", "integer", "null"]
        if depth < 2:
            kinds = ["object", *kinds] if self._keys and depth == 0 else [*kinds, "object"]
        return self._value({"type": _pick(kinds, f"{at}|", choose)}, at, choose, _ANY, depth + 1, name)


def _beside(constants: Sequence[int | float | str]) -> list[int | float | str]:
    """Constants, and of numbers what is on either side of them."""
    near: list[int | float | str] = []
    for each in constants:
        if isinstance(each, str):
            near.append(each)
        elif isinstance(each, int):
            near += [each, each - 1, each + 1, float(each), each - 0.5, each + 0.5]
        else:
            near += [each, each - 0.5, each + 0.5]
    return near


def _pick(options: Sequence[Any], at: str, choose: Choose) -> Any:
    return options[choose(at, len(options))] if len(options) > 1 else options[0]


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with its reference resolved and its ``allOf`` merged."""
    if type(schema) is dict and "$ref" not in schema and "allOf" not in schema:
        return cast("Mapping[str, Any]", schema)
    mapping = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else _ANY
    for _ in range(20):
        reference: object = mapping.get("$ref")
        if not isinstance(reference, str):
            break
        target: Any = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            target = cast("Mapping[str, Any]", target).get(step, _ANY) if isinstance(target, Mapping) else _ANY
        mapping = cast("Mapping[str, Any]", target)
    for part in cast("list[Any]", mapping.get("allOf") or ()):
        mapping = {**mapping, **_resolved(part, root)}
    return mapping


def _within(numbers: Sequence[Any], schema: Mapping[str, Any]) -> list[Any]:
    """The numbers that a schema allows, and its own limits."""
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below, step = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"), schema.get("multipleOf")
    bounds = [bound for bound in (least, most) if bound is not None]
    allowed = [
        number
        for number in dict.fromkeys([*numbers, *bounds])
        if (least is None or number >= least)
        and (most is None or number <= most)
        and (above is None or number > above)
        and (below is None or number < below)
        and (step is None or number % step == 0)
    ]
    return allowed or [numbers[0]]
