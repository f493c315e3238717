"""What is assumed of answers, by the names of fields, tasks and tools, and what held for none of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_schema import check

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SEVERAL = ("anyOf", "oneOf")
_NULL = {"type": "null"}
_SHOWN = 12


class Assumptions:
    """Rules of a JSON Schema by name. Notes which names there are, and which rules fit what is asked for."""

    def __init__(self, rules: Mapping[str, Mapping[str, Any]]) -> None:
        self.rules = rules
        self._names: dict[str, None] = {}
        self._held: set[str] = set()
        self._against: dict[str, Mapping[str, Any]] = {}
        self._known: dict[tuple[str, str], Mapping[str, Any]] = {}

    def narrowed(self, name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The ``schema`` of ``name`` with its rule; as it is if there is none, or if no value keeps to both."""
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
    """A schema that only what keeps to both satisfies; None if nothing does."""
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
    return any(key in rule for key in _NUMBERS)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(rule: Mapping[str, Any]) -> bool:
    return all(isinstance(rule[key], int) for key in _NUMBERS if key in rule)


def _tightest(choose: Any, schema: Mapping[str, Any], rule: Mapping[str, Any], key: str) -> float | None:
    limits = [each[key] for each in (schema, rule) if each.get(key) is not None]
    return choose(limits) if limits else None


def _readings(word: Any, schema: Mapping[str, Any]) -> list[Any]:
    """A word of a rule as a value of a schema: text as it stands, or the JSON that it is."""
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
