"""Reads the assertions of promptfoo's test cases as scorers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.evals.cases import Case, Scorer
from agentflow.evals.judges import judge
from agentflow.evals.scorers import Score, json_of, text_of
from agentflow.lib.schema.json_schema import check
from agentflow.lib.text.suggest import did_you_mean

Holds: TypeAlias = "Callable[[Any, Any], bool]"
"""Whether a value satisfies an assertion with this ``value`` of its own."""


def _equals(value: Any, wanted: Any) -> bool:
    return text_of(value) == wanted if isinstance(wanted, str) else json_of(value) == wanted


def _holds(value: Any, wanted: Any, *, fold: bool, which: Callable[[Sequence[bool]], bool] = all) -> bool:
    texts = cast("list[Any]", wanted if isinstance(wanted, list) else [wanted])
    shown = text_of(value).casefold() if fold else text_of(value)
    return which([(str(each).casefold() if fold else str(each)) in shown for each in texts])


def _fits(value: Any, schema: Any) -> bool:
    """Whether the value is JSON, and fits the schema, if there is one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return False
    return schema is None or not check(json_of(value), schema)


def _has_json(value: Any, schema: Any) -> bool:
    """Whether some part of the text is a JSON object or list that fits."""
    text, decoder = text_of(value), json.JSONDecoder()
    for match in re.finditer(r"[{\[]", text):
        try:
            inner, _ = decoder.raw_decode(text, match.start())
        except ValueError:
            continue
        if schema is None or not check(inner, schema):
            return True
    return False


# The forms are those of promptfoo's documentation, configuration/expected-outputs, read on 2026-11-30
_TEXTS: Mapping[str, Holds] = {
    "contains": partial(_holds, fold=False),
    "icontains": partial(_holds, fold=True),
    "starts-with": lambda value, wanted: text_of(value).startswith(wanted),
    "regex": lambda value, wanted: re.search(wanted, text_of(value)) is not None,
}
_LISTS: Mapping[str, Holds] = {
    "contains-all": partial(_holds, fold=False),
    "contains-any": partial(_holds, fold=False, which=any),
    "icontains-all": partial(_holds, fold=True),
    "icontains-any": partial(_holds, fold=True, which=any),
}
_SCHEMAS: Mapping[str, Holds] = {"is-json": _fits, "contains-json": _has_json}
_THRESHOLDS: Mapping[str, Callable[[Any], float | None]] = {
    "cost": lambda run: run.cost_usd,
    "latency": lambda run: None if run.latency_s is None else run.latency_s * 1000,
}
_ANY: Mapping[str, Holds] = {"equals": _equals, **_TEXTS, **_LISTS, **_SCHEMAS}
TYPES = (*_ANY, *_THRESHOLDS, "llm-rubric")
"""The supported types of assertions; each but the last may begin with ``not-``."""
_KEYS = ("type", "value", "threshold", "metric", "provider", "weight")
_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def scorers_of(assertions: Any, inputs: Mapping[str, Any], where: str) -> tuple[Scorer, ...]:
    """The scorers of the ``assert`` of a test case with these ``inputs``, which ``where`` names in errors.

    Each gives a score of its own under its ``metric``, else its type, with a number if there are several. Weights
    are left out: no score is a mean of others. Raises ConfigurationError (``evals/assert``) for an unsupported type or form.
    """
    if not isinstance(assertions, list):
        raise _wrong(
            where, f"assert is {clip(repr(assertions), 80)}", "a list: [{'type': 'contains', 'value': 'Paris'}]"
        )
    names: dict[str, int] = {}
    scorers: list[Scorer] = []
    for each in cast("list[Any]", assertions):
        entry = cast("Mapping[str, Any]", each if isinstance(each, Mapping) else {})
        if not isinstance(entry.get("type"), str):
            raise _wrong(
                where, f"an assertion is {clip(repr(cast(object, each)), 80)}", "{'type': 'contains', 'value': 'Paris'}"
            )
        name = str(entry.get("metric") or entry["type"])
        names[name] = count = names.get(name, 0) + 1
        scorers.append(_scorer(entry, name if count == 1 else f"{name}-{count}", inputs, where))
    return tuple(scorers)


def _scorer(entry: Mapping[str, Any], name: str, inputs: Mapping[str, Any], where: str) -> Scorer:
    written = str(entry["type"])
    kind = written.removeprefix("not-")
    if kind not in TYPES or written == "not-llm-rubric":
        hint = (
            did_you_mean(kind, TYPES)
            or f"read are {', '.join(TYPES)}; write another one as a scorer: scorers=[function]"
        )
        raise _wrong(where, f"the assertion '{written}' is not supported", hint)
    unknown = [key for key in entry if key not in _KEYS or (key == "provider" and kind != "llm-rubric")]
    if unknown or ("threshold" in entry and kind not in _THRESHOLDS):
        field = unknown[0] if unknown else "threshold"
        raise _wrong(
            where, f"the assertion '{written}' has '{clip(field, 40)}', which is not supported", "leave it out"
        )
    wanted: Any = _filled(entry.get("value"), inputs, where)
    if kind == "llm-rubric":
        return judge(_checked(str, wanted, written, where), model=_model(entry.get("provider"), where), name=name)
    if kind in _THRESHOLDS:
        most = _checked((int, float), entry.get("threshold"), written, where)
        return _named(name, partial(_below, _THRESHOLDS[kind], most, written != kind))
    if kind in _LISTS and isinstance(wanted, str):
        wanted = cast(Any, [part.strip() for part in wanted.split(",")])
    if kind in _TEXTS or kind in _LISTS:
        wanted = _checked(str if kind in _TEXTS else list, wanted, written, where)
    elif kind in _SCHEMAS and wanted is not None:
        wanted = _checked(dict, wanted, written, where)
    if kind == "regex":
        try:
            re.compile(str(wanted))
        except re.error as error:
            raise _wrong(where, f"{wanted!r} is not a regular expression: {error}", "see the module re") from None
    return _named(name, partial(_met, _ANY[kind], wanted, written != kind))


def _met(holds: Holds, wanted: Any, negated: bool, case: Case, run: Any) -> Score:
    return holds(run.value, wanted) is not negated


def _below(measured: Callable[[Any], float | None], most: float, negated: bool, case: Case, run: Any) -> Score:
    amount = measured(run)
    return None if amount is None else (amount <= most) is not negated


def _named(name: str, scorer: Any) -> Scorer:
    scorer.__name__ = name
    return scorer


def _checked(kind: Any, value: Any, written: str, where: str) -> Any:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    field = "threshold" if written.removeprefix("not-") in _THRESHOLDS else "value"
    raise _wrong(
        where, f"the assertion '{written}' has {field}={clip(repr(value), 80)}", f"give it a {field} of its kind"
    )


def _model(provider: Any, where: str) -> str | None:
    if provider is None or (isinstance(provider, str) and re.fullmatch(r"[\w-]+:[^:]+", provider)):
        return provider
    shown = clip(repr(provider), 80)
    raise _wrong(where, f"the provider {shown} is not read", "name a model: provider: openai:gpt-5-mini")


def _filled(value: Any, inputs: Mapping[str, Any], where: str) -> Any:
    """The value with ``{{name}}`` replaced by the input of that name, in every text of it."""
    if isinstance(value, Mapping):
        return {key: _filled(each, inputs, where) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_filled(each, inputs, where) for each in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if value.startswith("file://"):
        raise _wrong(where, f"the value '{clip(value, 80)}' is in another file", "write the value itself")

    def fill(match: re.Match[str]) -> str:
        if match[1] not in inputs:
            raise _wrong(
                where, f"'{match[0]}' is not a variable of the case", did_you_mean(match[1], inputs) or "add it to vars"
            )
        return text_of(inputs[match[1]])

    filled = _SLOT.sub(fill, value)
    if re.search(r"\{\{|\{%", _SLOT.sub("", value)):
        raise _wrong(where, f"the template '{clip(value, 80)}' is more than {{{{names}}}}", "write the value itself")
    return filled


def _wrong(where: str, message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: {message}", code="evals/assert", hint=hint)
