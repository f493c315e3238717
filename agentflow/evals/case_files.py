"""Reads the cases of an evaluation from files and lists."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.evals.cases import NOTHING, Case, Scorer
from agentflow.evals.promptfoo import scorers_of
from agentflow.lib.distribution import install
from agentflow.lib.text.filters import FilterField, parse_filter
from agentflow.lib.text.suggest import did_you_mean

_FIELDS = ("inputs", "expected", "name", "run", "tags", "metadata", "group", "turns")
_FOREIGN: Mapping[str, str] = {
    "expected_output": "expected",  # pydantic-evals
    "ideal": "expected",  # OpenAI's evals
    "target": "expected",  # Inspect
    "id": "name",
    "description": "name",  # promptfoo
    "run_id": "run",
    "vars": "inputs",  # promptfoo
    "item": "inputs",  # OpenAI's evals
}
"""Fields of the case files of other tools, with ours."""


def read_cases(source: str | Path | Iterable[Any], *, where: str = "") -> list[Case]:
    """Cases from a file (``.jsonl``, ``.json``, ``.csv``, ``.yaml``), or from a list of cases and dicts.

    A dict has the fields of :class:`Case` (``run`` for the run's id), or the inputs by name together with ``expected`` and the other
    fields: ``{"question": "...", "expected": "..."}``. The columns of a CSV file are the same. The files of pydantic-evals
    (``inputs``, ``expected_output``), of OpenAI's evals (``item``, ``ideal``) and of promptfoo (``tests`` with ``vars``, and
    ``assert`` as the case's own scorers) are read unchanged. YAML needs the extra ``evals``. ``where`` is a filter of the cases, such as
    ``tag=hard group!=42 input.question=Why*``: of ``name``, ``tag``, ``group``, ``run``, ``input.NAME`` and ``metadata.NAME``.

    Returns them in their order. Raises ConfigurationError (``evals/cases``) for an unreadable file, an invalid case, no case
    at all, and two cases of one name; ``evals/assert`` for an unsupported assertion of promptfoo;
    ``config/extra`` for YAML without the extra; ``config/filter``.
    """
    chosen = parse_filter(where, _FILTERED, "tag=hard name=refund*")
    if isinstance(source, str | Path):
        path = Path(source)
        items = _items_in(path)
        origin = str(path)
    else:
        items, origin = list(source), "the list of cases"
    every = named([_case(item, number, origin) for number, item in enumerate(items, 1)], origin)
    fitting = [case for case in every if chosen.fits(partial(_part, case))]
    if not fitting:
        raise _wrong(
            f"none of the {len(every):,} cases in {origin} fits the filter '{clip(where, 80)}'", "relax a term"
        )
    return fitting


_FILTERED: Mapping[str, FilterField] = {
    "name": FilterField(),
    "tag": FilterField(),
    "group": FilterField(),
    "run": FilterField(),
    "input": FilterField(kind="any", keys=True),
    "metadata": FilterField(kind="any", keys=True),
}
"""The fields that a filter of cases may name."""


def _part(case: Case, name: str, key: str) -> Any:
    """The part of a case that a filter names."""
    match name:
        case "tag":
            return case.tags
        case "run":
            return case.run_id
        case "input":
            return case.inputs.get(key)
        case "metadata":
            return case.metadata.get(key)
        case _:
            return getattr(case, name)


def named(cases: Sequence[Case], where: str = "the list of cases") -> list[Case]:
    """The cases with a name each: its own, or its number. Raises ConfigurationError (``evals/cases``)."""
    if not cases:
        raise _wrong(f"there is no case in {where}", "give at least one: [{'question': '...', 'expected': '...'}]")
    width = len(str(len(cases)))
    every = [each if each.name else replace(each, name=f"{at:0{width}}") for at, each in enumerate(cases, 1)]
    seen: set[str] = set()
    for each in every:
        if each.name in seen:
            raise _wrong(f"two cases in {where} are called '{clip(each.name, 80)}'", "give each its own name")
        seen.add(each.name)
    return every


def _items_in(path: Path) -> list[Any]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(
            f"the cases in {path} cannot be read: {error}", "name a .jsonl, .json, .csv or .yaml file"
        ) from None
    kind = path.suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        return _lines(path, text)
    if kind == ".csv":
        return list(csv.DictReader(io.StringIO(text)))
    if kind in (".yaml", ".yml"):
        return _listed(_yaml(path, text), path)
    if kind == ".json":
        try:
            return _listed(json.loads(text), path)
        except ValueError as error:
            raise _wrong(f"{path} is not JSON: {error}", "write a list of cases") from None
    raise _wrong(f"{path} is not a file of cases", "its name ends with .jsonl, .json, .csv or .yaml")


def _lines(path: Path, text: str) -> list[Any]:
    items: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                items.append(json.loads(line))
            except ValueError as error:
                raise _wrong(f"{path}, line {number}: not JSON: {error}", "write one case a line") from None
    return items


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(
            f"cases in YAML, as in {path}, need the extra 'evals'",
            code="config/extra",
            hint=f"{install('evals')}, or write them as JSON lines",
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _wrong(f"{path} is not YAML: {error}", "write a list of cases") from None


def _listed(data: Any, path: Path) -> list[Any]:
    """The cases of a document: a list, or the one under ``cases`` (pydantic-evals) or ``tests`` (promptfoo)."""
    if isinstance(data, dict):
        entries = cast("dict[str, Any]", data)
        data = entries.get("cases", entries.get("tests"))
        if isinstance(data, list) and (common := entries.get("defaultTest")):
            return [_with_common(each, common, path) for each in cast("list[Any]", data)]
    if isinstance(data, list):
        return cast("list[Any]", data)
    raise _wrong(f"{path} is not a list of cases", "write a list, or one under 'cases'")


def _with_common(case: Any, common: Any, path: Path) -> Any:
    """A test of promptfoo with the variables and assertions that all tests of its file have."""
    if not isinstance(common, Mapping) or not {*cast("Mapping[str, Any]", common)} <= {"vars", "assert"}:
        raise _wrong(f"defaultTest of {path} is {clip(repr(cast(object, common)), 80)}", "it may have vars and assert")
    if not isinstance(case, Mapping):
        return case
    shared, own = cast("dict[str, Any]", common), cast("dict[str, Any]", case)
    variables: dict[str, Any] = {**(shared.get("vars") or {}), **(own.get("vars") or {})}
    assertions: list[Any] = [*(own.get("assert") or []), *(shared.get("assert") or [])]
    return {**own, "vars": variables, "assert": assertions}


def _case(item: Any, number: int, where: str) -> Case:
    if isinstance(item, Case):
        return item
    if not isinstance(item, Mapping):
        raise _wrong(f"case {number} of {where} is {clip(repr(item), 80)}, and not a case or a dict", _EXAMPLE)
    entries = {_FOREIGN.get(str(key), str(key)): value for key, value in cast("Mapping[Any, Any]", item).items()}
    assertions = entries.pop("assert", None)
    chosen = {name: entries.pop(name) for name in _FIELDS if name in entries}
    if "inputs" in chosen or "run" in chosen:
        if entries:
            unknown = next(iter(entries))
            hint = did_you_mean(unknown, _FIELDS) or "put it into inputs, or into metadata"
            raise _wrong(f"case {number} of {where} has the unknown field '{clip(unknown, 80)}'", hint)
        inputs = chosen.get("inputs", {})
    else:
        inputs = entries
    if not isinstance(inputs, Mapping):
        inputs = {"input": inputs}
    if not inputs and "run" not in chosen:
        raise _wrong(f"case {number} of {where} has no inputs", _EXAMPLE)
    turns = chosen.get("turns") or ()
    if not isinstance(turns, list | tuple):
        raise _wrong(
            f"case {number} of {where} has the turns {clip(repr(turns), 80)}", "a list: ['Yes.', 'On Monday.']"
        )
    tags = chosen.get("tags") or ()
    return Case(
        inputs=dict(cast("Mapping[str, Any]", inputs)),
        expected=chosen.get("expected", NOTHING),
        name=str(chosen.get("name") or ""),
        run_id=chosen.get("run"),
        tags=tuple(tags.split(",")) if isinstance(tags, str) else tuple(tags),
        metadata=chosen.get("metadata") or {},
        group=chosen.get("group"),
        turns=tuple(cast("list[Any]", turns)),
        scorers=() if assertions is None else _asserted(assertions, inputs, chosen.get("name") or number, where),
    )


def _asserted(assertions: Any, inputs: Any, name: object, where: str) -> tuple[Scorer, ...]:
    return scorers_of(assertions, cast("Mapping[str, Any]", inputs), f"case '{clip(str(name), 80)}' of {where}")


_EXAMPLE = "write {'question': '...', 'expected': '...'}, or Case(inputs={...}, expected=...)"


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="evals/cases", hint=hint)
