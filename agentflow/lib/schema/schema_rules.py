"""The rules of JSON Schema: each checks a value against a keyword that ``json_schema.py`` has compiled.

A check is bounded for any schema and value: in steps, in depth, in the number of violations; patterns match in linear
time. Source of the rules: JSON Schema draft 2020-12, validation and applicator vocabularies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.data.errors import clip
from agentflow.core.data.values import Symbol, to_json
from agentflow.lib.schema.json_types import TYPES, type_name
from agentflow.lib.schema.linear_pattern import LinearPattern
from agentflow.lib.text.suggest import did_you_mean

MAX_PROBLEMS = 20
"""Maximum number of reported violations; a model repairs the first ones anyway."""
MAX_DEPTH = 100
"""Maximum nesting of data, alternatives and references to follow."""
MAX_STEPS = 1_000_000
"""Maximum number of steps in one check (applying one subschema to one value), which take about a second."""
_APART, _IDENTITY = 10, 4
"""The cost in steps of collecting violations separately, and of comparing one part of a value."""

KINDS = {"string": "string", "integer": "number", "number": "number", "array": "array", "object": "object"}
"""The kind of values that rules apply to, by type name."""


class SchemaNode:
    """A compiled schema: allowed types (None: all), arguments of its keywords, rules with the kinds they apply to."""

    __slots__ = ("arguments", "rules", "types")

    def __init__(self) -> None:
        self.types: frozenset[str] | None = None
        self.arguments: dict[str, Any] = {}
        self.rules: Sequence[tuple[Rule, str | None]] = ()


Rule = Callable[["Check", Any, SchemaNode, str, int], None]
"""``rule(check, value, node, path, depth)`` reports the violations of its keyword in ``node`` by ``value``."""


class Full(Exception):
    """The maximum number of violations has been reached."""


class TooMuch(Exception):
    """The check exceeds the allowed depth or steps: the data counts as invalid."""


class Check:
    """One check of one value: the violations so far; ``spent`` counts the steps, including those of nested checks."""

    __slots__ = ("_spent", "problems")

    def __init__(self, spent: list[int] | None = None) -> None:
        self.problems: list[str] = []
        self._spent = spent or [0]

    def visit(self, node: SchemaNode, value: Any, path: str, depth: int) -> None:
        """Check a value against a schema. Raises Full and TooMuch."""
        self._spend(1, depth)
        name = TYPES.get(value.__class__)
        if name is None:
            name = type_name(value)
            value = str(value) if name == "string" else value
        if node.types is not None and name not in node.types and not _whole(value, node.types):
            self.say(path, f"is {show(value)} ({name}), must be {' or '.join(node.arguments['type'])}")
            return
        kind = None if isinstance(value, BaseModel) else KINDS.get(name)
        for rule, about in node.rules:
            if about is None or about == kind:
                rule(self, value, node, path, depth)

    def _spend(self, steps: int, depth: int) -> None:
        self._spent[0] += steps
        if depth > MAX_DEPTH:
            raise TooMuch(f"nested deeper than {MAX_DEPTH} levels")
        if self._spent[0] > MAX_STEPS:
            raise TooMuch(f"takes more than {MAX_STEPS:,} steps to check")

    def violations(self, node: SchemaNode, value: Any, path: str, depth: int) -> list[str]:
        """The violations found by :meth:`visit`, collected separately."""
        self._spend(_APART, depth)
        apart = Check(self._spent)
        try:
            apart.visit(node, value, path, depth + 1)
        except Full:
            pass
        return apart.problems

    def meets(self, node: SchemaNode, value: Any, path: str, depth: int) -> bool:
        """Whether a value is valid under a schema."""
        return not self.violations(node, value, path, depth)

    def identity(self, value: Any, depth: int = 0) -> object:
        """A hashable stand-in, equal for values equal in JSON: ``1`` and ``1.0`` are, ``1`` and true are not.

        Raises TooMuch.
        """
        if value is None or isinstance(value, str | Symbol):
            return value
        if isinstance(value, bool):
            return (bool, value)
        if isinstance(value, int | float):
            return value
        self._spend(_IDENTITY, depth)
        if isinstance(value, Mapping):
            items = cast(Mapping[Any, Any], value).items()
            return (dict, frozenset((str(key), self.identity(item, depth + 1)) for key, item in items))
        if isinstance(value, list | tuple):
            return (list, *(self.identity(item, depth + 1) for item in cast(Sequence[Any], value)))
        return str(value)

    def say(self, path: str, what: str) -> None:
        """Report a violation at a path. Raises Full."""
        self.note(f"{where(path)}: {what}")

    def note(self, problem: str) -> None:
        """Report a violation as a complete sentence. Raises Full."""
        self.problems.append(problem)
        if len(self.problems) >= MAX_PROBLEMS:
            raise Full


def where(path: str) -> str:
    """A path for messages."""
    return path.removeprefix(".") or "the value"


def show(value: object) -> str:
    """A value for messages, in at most 120 characters."""
    try:
        return clip(to_json(value), 120)
    except ValueError:
        return "data nested too deeply"


def _whole(value: object, types: frozenset[str]) -> bool:
    """Whether a float is valid as an integer because it has no fraction."""
    return "integer" in types and isinstance(value, float) and value.is_integer()


def never(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``false``: no value is valid."""
    check.say(path, "nothing is allowed here")


def enum(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``enum``: the value is one of several, compared as JSON."""
    values: dict[object, object] = node.arguments["enum"]
    if check.identity(value) not in values:
        check.say(path, f"is {show(value)}, must be one of {show(list(values.values()))}")


def const(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``const``: the value is one, compared as JSON."""
    if check.identity(value) != check.identity(node.arguments["const"]):
        check.say(path, f"is {show(value)}, must be {show(node.arguments['const'])}")


def at_least(keyword: str, what: str) -> Rule:
    """The rule of a keyword that sets a minimum length; ``what`` names the parts in messages."""

    def rule(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
        if len(value) < node.arguments[keyword]:
            check.say(path, f"has {len(value)} {what}, at least {node.arguments[keyword]} are needed")

    return rule


def at_most(keyword: str, what: str) -> Rule:
    """The rule of a keyword that sets a maximum length; ``what`` names the parts in messages."""

    def rule(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
        if len(value) > node.arguments[keyword]:
            check.say(path, f"has {len(value)} {what}, at most {node.arguments[keyword]} are allowed")

    return rule


def bound(keyword: str, words: str, holds: Callable[[Any, Any], bool]) -> Rule:
    """The rule of a keyword that bounds numbers: ``holds(value, limit)``; ``words`` go before the limit in messages."""

    def rule(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
        if not holds(value, node.arguments[keyword]):
            check.say(path, f"is {value}, must be {words} {node.arguments[keyword]}")

    return rule


def is_multiple(value: float, step: float) -> bool:
    """Whether ``value`` is a multiple of ``step``, in exact decimal arithmetic; infinities and NaN are not."""
    return math.isfinite(value) and _exact(value) % _exact(step) == 0


def _exact(number: float) -> Fraction:
    """The number in decimal notation, which binary floats only approximate."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def pattern(check: Check, value: str, node: SchemaNode, path: str, depth: int) -> None:
    """``pattern``: the string contains a match."""
    wanted: LinearPattern = node.arguments["pattern"]
    if not wanted.matches(value):
        check.say(path, f"is {show(value)}, must match the pattern {wanted.text}")


def unique_items(check: Check, value: Sequence[Any], node: SchemaNode, path: str, depth: int) -> None:
    """``uniqueItems``: no two items are equal, compared as JSON."""
    if node.arguments["uniqueItems"] and len({check.identity(item) for item in value}) != len(value):
        check.say(path, "has an item twice, all must differ")


def items(check: Check, value: Sequence[Any], node: SchemaNode, path: str, depth: int) -> None:
    """``prefixItems`` for the first items, ``items`` for the rest."""
    first: list[SchemaNode] = node.arguments.get("prefixItems", [])
    for index, (item, schema) in enumerate(zip(value, first, strict=False)):
        check.visit(schema, item, f"{path}[{index}]", depth + 1)
    rest: SchemaNode | None = node.arguments.get("items")
    if rest is not None:
        for index in range(len(first), len(value)):
            check.visit(rest, value[index], f"{path}[{index}]", depth + 1)


def contains(check: Check, value: Sequence[Any], node: SchemaNode, path: str, depth: int) -> None:
    """``contains``, ``minContains`` and ``maxContains``: how many items are valid under a subschema."""
    wanted: SchemaNode = node.arguments["contains"]
    count = sum(check.meets(wanted, item, f"{path}[{index}]", depth) for index, item in enumerate(value))
    least, most = node.arguments.get("minContains", 1), node.arguments.get("maxContains", math.inf)
    if count < least:
        check.say(path, f"has {count} items that 'contains' describes, at least {least} are needed")
    if count > most:
        check.say(path, f"has {count} items that 'contains' describes, at most {most} are allowed")


def required(check: Check, value: Mapping[Any, Any], node: SchemaNode, path: str, depth: int) -> None:
    """``required``: the object has these names."""
    for name in node.arguments["required"]:
        if name not in value:
            check.say(path, f"'{name}' is missing")


def dependent_required(check: Check, value: Mapping[Any, Any], node: SchemaNode, path: str, depth: int) -> None:
    """``dependentRequired``: a present name requires others."""
    for name, others in node.arguments["dependentRequired"].items():
        for other in others if name in value else ():
            if other not in value:
                check.say(path, f"'{other}' is missing, which '{name}' needs")


def properties(check: Check, value: Mapping[Any, Any], node: SchemaNode, path: str, depth: int) -> None:
    """``properties``, ``patternProperties``, and ``additionalProperties`` for the names that neither covers."""
    named: dict[str, SchemaNode] = node.arguments.get("properties", {})
    patterns: list[tuple[LinearPattern, SchemaNode]] = node.arguments.get("patternProperties", [])
    other: SchemaNode | None = node.arguments.get("additionalProperties")
    for key, item in value.items():
        name = str(key)
        schema = named.get(name)
        if schema is not None:
            check.visit(schema, item, f"{path}.{name}", depth + 1)
        alike = [each for expression, each in patterns if expression.matches(name)] if patterns else []
        for each in alike:
            check.visit(each, item, f"{path}.{name}", depth + 1)
        if other is not None and schema is None and not alike:
            _additional(check, other, named, name, item, path, depth)


def _additional(
    check: Check, other: SchemaNode, named: Mapping[str, SchemaNode], name: str, item: Any, path: str, depth: int
) -> None:
    """Check a name missing from those ``named`` against ``other``, and suggest a similar name if none is allowed."""
    if other.arguments.get("false"):
        near = did_you_mean(name, named)
        check.say(path, f"'{clip(name, 80)}' is not allowed" + (f" ({near})" if near else ""))
    else:
        check.visit(other, item, f"{path}.{name}", depth + 1)


def property_names(check: Check, value: Mapping[Any, Any], node: SchemaNode, path: str, depth: int) -> None:
    """``propertyNames``: every name is valid under a subschema."""
    for key in value:
        if problems := check.violations(node.arguments["propertyNames"], str(key), "", depth):
            check.say(path, f"the name '{clip(str(key), 80)}' is not allowed: {problems[0].partition(': ')[2]}")


def dependent_schemas(check: Check, value: Mapping[Any, Any], node: SchemaNode, path: str, depth: int) -> None:
    """``dependentSchemas``: a present name requires a subschema of the whole object."""
    for name, schema in node.arguments["dependentSchemas"].items():
        if name in value:
            check.visit(schema, value, path, depth + 1)


def reference(keyword: str) -> Rule:
    """The rule of ``$ref`` or ``$dynamicRef``: the value is valid under the schema referred to."""

    def rule(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
        check.visit(node.arguments[keyword](), value, path, depth + 1)

    return rule


def all_of(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``allOf``: the value is valid under every subschema."""
    for schema in node.arguments["allOf"]:
        check.visit(schema, value, path, depth + 1)


def any_of(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``anyOf``: the value is valid under a subschema; otherwise the violations of the nearest one are reported."""
    alternatives: list[list[str]] = []
    for schema in node.arguments["anyOf"]:
        alternatives.append(check.violations(schema, value, path, depth))
        if not alternatives[-1]:
            return
    _say_nearest(check, alternatives)


def one_of(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``oneOf``: the value is valid under exactly one subschema."""
    alternatives = [check.violations(schema, value, path, depth) for schema in node.arguments["oneOf"]]
    met = sum(not problems for problems in alternatives)
    if met == 0:
        _say_nearest(check, alternatives)
    elif met > 1:
        check.say(path, f"meets {met} of the alternatives, must meet exactly one")


def _say_nearest(check: Check, alternatives: list[list[str]]) -> None:
    """Report the violations of the alternative that has the fewest."""
    for problem in min(alternatives, key=len):
        check.note(f"{problem} (or another of {len(alternatives)} alternatives)")


def excluded(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``not``: the value is not valid under the subschema."""
    if check.meets(node.arguments["not"], value, path, depth):
        check.say(path, "is excluded by the schema")


def conditional(check: Check, value: Any, node: SchemaNode, path: str, depth: int) -> None:
    """``if``, ``then`` and ``else``: which of the latter two applies depends on the first."""
    met = check.meets(node.arguments["if"], value, path, depth)
    branch: SchemaNode | None = node.arguments.get("then" if met else "else")
    if branch is not None:
        check.visit(branch, value, path, depth + 1)


def unevaluated_properties(check: Check, value: Mapping[Any, Any], node: SchemaNode, path: str, depth: int) -> None:
    """``unevaluatedProperties``: the subschema of names that no other keyword has evaluated."""
    rest: SchemaNode = node.arguments["unevaluatedProperties"]
    seen = _evaluated(check, node, value, path, depth)
    for key, item in value.items():
        if str(key) not in seen:
            _additional(check, rest, node.arguments.get("properties", {}), str(key), item, path, depth)


def unevaluated_items(check: Check, value: Sequence[Any], node: SchemaNode, path: str, depth: int) -> None:
    """``unevaluatedItems``: the subschema of items that no other keyword has evaluated."""
    rest: SchemaNode = node.arguments["unevaluatedItems"]
    seen = _evaluated(check, node, value, path, depth)
    for index, item in enumerate(value):
        if index not in seen:
            check.visit(rest, item, f"{path}[{index}]", depth + 1)


def _evaluated(check: Check, node: SchemaNode, value: Any, path: str, depth: int) -> set[Any]:
    """The names or indexes of ``value`` that ``node``, or a subschema applied in place, has evaluated."""
    if isinstance(value, Mapping):
        seen, applied = _evaluated_names(node.arguments, cast(Mapping[Any, Any], value))
        rest = "unevaluatedProperties"
    else:
        seen, applied = _evaluated_indexes(check, node.arguments, value, path, depth)
        rest = "unevaluatedItems"
    arguments = node.arguments
    applied += [arguments[keyword]() for keyword in ("$ref", "$dynamicRef") if keyword in arguments]
    applied += [*arguments.get("allOf", ()), *arguments.get("anyOf", ()), *arguments.get("oneOf", ())]
    if "if" in arguments:
        met = check.meets(arguments["if"], value, path, depth)
        applied += [each for each in (arguments["if"], arguments.get("then" if met else "else")) if each is not None]
    for schema in applied:
        if check.meets(schema, value, path, depth):
            everything = rest in schema.arguments
            seen |= set(_parts(value)) if everything else _evaluated(check, schema, value, path, depth + 1)
    return seen


def _parts(value: Any) -> Iterable[Any]:
    return map(str, cast(Mapping[Any, Any], value)) if isinstance(value, Mapping) else range(len(value))


def _evaluated_names(arguments: Mapping[str, Any], value: Mapping[Any, Any]) -> tuple[set[Any], list[SchemaNode]]:
    names = set(_parts(value))
    if "additionalProperties" in arguments:
        return names, []
    patterns = [expression for expression, _ in arguments.get("patternProperties", ())]
    seen = names & arguments.get("properties", {}).keys()
    seen |= {name for name in names if any(expression.matches(name) for expression in patterns)}
    return seen, [node for name, node in arguments.get("dependentSchemas", {}).items() if name in names]


def _evaluated_indexes(
    check: Check, arguments: Mapping[str, Any], value: Sequence[Any], path: str, depth: int
) -> tuple[set[Any], list[SchemaNode]]:
    if "items" in arguments:
        return set(_parts(value)), []
    seen: set[Any] = set(range(min(len(value), len(arguments.get("prefixItems", ())))))
    wanted: SchemaNode | None = arguments.get("contains")
    if wanted is not None:
        seen |= {n for n, item in enumerate(value) if check.meets(wanted, item, f"{path}[{n}]", depth)}
    return seen, []
