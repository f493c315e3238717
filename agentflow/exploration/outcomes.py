"""Values that a JSON Schema allows, in a fixed order: the simplest first, then those near the constants of the program.

A value is a tree of decisions, each identified by its path in the value (``.steps#`` is the length of a list, ``.steps[0]``
its first element), so that a search can change one decision and keep the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.values import to_json
from agentflow.exploration.constants import Constants, plain_name
from agentflow.lib.schema.json_schema import check
from agentflow.lib.schema.linear_pattern import LinearPattern

_RANGE_KEYS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SEVERAL = ("anyOf", "oneOf")
_NULL = {"type": "null"}
_SHOWN = 12


class Assumptions:
    """Rules of a JSON Schema by name. Notes the existing names, and the rules that fit a requested answer."""

    def __init__(self, rules: Mapping[str, Mapping[str, Any]]) -> None:
        self.rules = rules
        self._names: dict[str, None] = {}
        self._held: set[str] = set()
        self._against: dict[str, Mapping[str, Any]] = {}
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}

    def narrowed(self, name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The ``schema`` of ``name`` with its rule; unchanged without a rule, or if no value satisfies both."""
        rule = self.rules.get(name)
        self._names[name] = None
        if rule is None:
            return schema
        key = name, to_json(schema)
        both = self._known.get(key)
        if both is None:
            both = self._known[key] = _both(schema, rule) or schema
            if both is schema:
                self._against[name] = schema
            else:
                self._held.add(name)
        return both

    @property
    def warnings(self) -> tuple[str, ...]:
        """A text for each rule that held for no answer."""
        unused = [name for name in self.rules if name not in self._held]
        names = [f"'{each}'" for each in sorted(self._names)]
        shown = ", ".join([*names[:_SHOWN], *([f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])])
        return tuple(
            f"the assumption about '{name}' fits no value: its schema is {clip(to_json(self._against[name]), 120)}"
            if name in self._against
            else f"the assumption about '{name}' is of no use: nothing that was asked for has that name; there are {shown or 'none'}"
            for name in unused
        )


def _both(schema: Mapping[str, Any], rule: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A schema that only values satisfying both satisfy; None if there are none."""
    for several in _SEVERAL:
        if schema.get(several):
            options = cast("Sequence[Mapping[str, Any]]", schema[several])
            left = [both for each in options if each != _NULL and (both := _both(each, rule)) is not None]
            return {**schema, several: [*left, *(each for each in options if each == _NULL)]} if left else None
    if "enum" in rule:
        words = [fitting for each in cast("Sequence[Any]", rule["enum"]) for fitting in _readings(each, schema)]
        return {**schema, "enum": words} if words else None
    for written in ("enum", "const"):
        if written in schema:
            own: Any = schema[written]
            values = [each for each in (own if written == "enum" else [own]) if _fits(each, rule)]
            kept = [each for each in values if not (_is_limit(rule) and not _is_number(each))]
            return {**schema, "enum": kept} if kept else None
    kinds: Any = schema.get("type")
    of = [kinds] if isinstance(kinds, str) else kinds
    if _is_limit(rule):
        if of in ("integer", "number"):
            pass
        elif isinstance(of, list):
            kept_kinds = [each for each in cast("list[str]", of) if each in ("integer", "number", "null")]
            if not {"integer", "number"} & set(kept_kinds):
                return None
            schema = {**schema, "type": kept_kinds}
        elif of is not None or "properties" in schema or "items" in schema or "$ref" in schema:
            return None
        else:
            schema = {**schema, "type": "integer" if _whole(rule) else "number"}
    least = _tightest(max, schema, rule, "minimum")
    most = _tightest(min, schema, rule, "maximum")
    if least is not None and most is not None and least > most:
        return None
    limits = {key: each for key, each in (("minimum", least), ("maximum", most)) if each is not None}
    return {**schema, **rule, **limits}


def _is_limit(rule: Mapping[str, Any]) -> bool:
    return any(key in rule for key in _RANGE_KEYS)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(rule: Mapping[str, Any]) -> bool:
    return all(isinstance(rule[key], int) for key in _RANGE_KEYS if key in rule)


def _tightest(choose: Any, schema: Mapping[str, Any], rule: Mapping[str, Any], key: str) -> float | None:
    limits = [each[key] for each in (schema, rule) if each.get(key) is not None]
    return choose(limits) if limits else None


def _readings(word: Any, schema: Mapping[str, Any]) -> list[Any]:
    """A word of a rule as a value of a schema: the text itself, or its JSON value."""
    values = [word]
    if isinstance(word, str):
        try:
            values.append(json.loads(word))
        except ValueError:
            pass
    return [each for each in values if _fits(each, schema)][:1]


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    try:
        return not check(value, schema)
    except ConfigurationError:  # it refers to a part of the whole schema
        return True


FORMATS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "date": ("2024-02-29", "1999-12-31"),
        "date-time": ("2024-02-29T12:00:00Z", "1999-12-31T23:59:59.5+14:00"),
        "duration": ("P1D", "PT0S"),
        "email": ("ada@example.org", "a.b+c@sub.example.org"),
        "hostname": ("example.org", "localhost"),
        "ipv4": ("192.0.2.1", "0.0.0.0"),
        "ipv6": ("2001:db8::1", "::"),
        "time": ("12:00:00Z", "23:59:59.5+14:00"),
        "uri": ("https://example.org/", "mailto:ada@example.org"),
        "uuid": ("00000000-0000-4000-8000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"),
    }
)
"""Examples of the common formats."""
_VARIANTS = 6
_LONGEST = 2_000
_MOST_NESTED = 40
_MORE = 3
_ESCAPED: Mapping[str, str] = MappingProxyType(
    {
        "d": "0917",
        "w": "aZ_0",
        "s": " ",
        "D": "a-",
        "W": "- ",
        "S": "a1",
        "n": "\n",
        "t": "\t",
        "r": "\r",
        "b": "",
        "B": "",
    }
)
_OUTSIDE = "a1 -_A~\x7f"


def samples(pattern: str) -> list[str]:
    """Texts that match a pattern, shortest first; none if the pattern is invalid or uses unsupported syntax."""
    try:
        compiled = LinearPattern(pattern)
    except ValueError:
        return []
    texts: dict[str, None] = {}
    for variant in range(_VARIANTS):
        try:
            text = _Sampler(pattern, variant).text()
        except (ValueError, IndexError):
            continue
        if len(text) <= _LONGEST and compiled.matches(text):
            texts[text] = None
    return list(texts)


class _Sampler:
    """Parses a pattern and generates one matching text; ``variant`` selects alternatives, characters and repetitions."""

    def __init__(self, pattern: str, variant: int) -> None:
        self._pattern = pattern
        self._variant = variant
        self._at = 0
        self._depth = 0

    def text(self) -> str:
        """The text. Raises ValueError for an unsupported pattern, IndexError for one that ends too soon."""
        text = self._alternatives()
        if self._at < len(self._pattern):
            raise ValueError(self._pattern)
        return text

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1]

    def _alternatives(self) -> str:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise ValueError(self._pattern)
        texts = [self._sequence()]
        while self._next() == "|":
            self._take()
            texts.append(self._sequence())
        self._depth -= 1
        return texts[self._variant % len(texts)]

    def _sequence(self) -> str:
        pieces: list[str] = []
        while self._next() not in ("", "|", ")"):
            piece = self._atom()
            pieces.append(piece * self._repeated() if self._next() in ("*", "+", "?", "{") else piece)
        return "".join(pieces)

    def _repeated(self) -> int:
        sign = self._take()
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (1, 1))
        if sign == "{":
            inside = self._pattern[self._at : self._pattern.index("}", self._at)]
            self._at += len(inside) + 1
            first, comma, last = inside.partition(",")
            least = int(first)
            most = least if not comma else int(last) if last else None
        if self._next() == "?":
            self._take()
        return self._times(least, most)

    def _times(self, least: int, most: int | None) -> int:
        more = (0, 1, _MORE, 1, 2, _MORE)[self._variant]
        return least + more if most is None else min(least + more, most) if self._variant != 2 else min(most, _LONGEST)

    def _atom(self) -> str:
        sign = self._take()
        match sign:
            case "(":
                if self._next() == "?":
                    self._take()
                    if self._next() != ":":
                        self._at = self._pattern.index(">", self._at)
                    self._take()
                text = self._alternatives()
                self._take()
                return text
            case "[":
                return self._one_of()
            case "\\":
                return self._picked(self._escaped())
            case "^" | "$":
                return ""
            case ".":
                return self._picked("a1 .")
            case _:
                return sign

    def _escaped(self) -> str:
        sign = self._take()
        if sign in "pP" and self._next() == "{":
            kind = self._pattern[self._at + 1 : self._pattern.index("}", self._at)]
            self._at += len(kind) + 2
            return "A" if kind == "Lu" else {"N": "01", "L": "aZ", "P": ".-"}.get(kind[:1], "A")
        return _ESCAPED.get(sign, sign)

    def _one_of(self) -> str:
        negated = self._next() == "^"
        if negated:
            self._take()
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._next() != "]":
            first = False
            sign = self._take()
            options = self._escaped() if sign == "\\" else sign
            if len(options) == 1 and self._next() == "-" and self._pattern[self._at + 1] != "]":
                self._take()
                end = self._take()
                ranges.append((options, self._escaped() if end == "\\" else end))
            else:
                ranges += [(each, each) for each in options]
        self._take()
        if negated:
            return self._picked("".join(each for each in _OUTSIDE if not any(a <= each <= b for a, b in ranges)))
        ends = [start for start, _ in ranges] + [end for _, end in ranges]
        return self._picked("".join(dict.fromkeys(ends)))

    def _picked(self, options: str) -> str:
        return options[self._variant % len(options)] if options else ""


def fitting(texts: Sequence[str], pattern: str | None, form: str | None) -> list[str]:
    """Texts that satisfy a pattern and a format: matching examples of the format, matching ``texts``, and samples."""
    if pattern is None:
        return list(FORMATS.get(form or "", texts))
    examples = [*FORMATS.get(form or "", ()), *texts]
    try:
        matches = LinearPattern(pattern).matches
    except ValueError:
        return examples
    return list(dict.fromkeys([*filter(matches, examples), *samples(pattern)])) or list(texts)


Choose: TypeAlias = Callable[[str, int], int]
"""Takes a path in a value and a number of options; returns the index of the option to use."""

PLAIN_TEXT = "text"
_LONG = 200
_DEEPEST = 4
_MOST_ELEMENTS = 9
_KEYS = 8
"""Maximum number of the program's keys to put into data without a schema."""
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
        """The schema of a field, task or tool with its assumptions."""
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
    """Constants, and the neighbours of numbers on either side."""
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
