"""The cases of an evaluation, from files, lists and recorded runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.lib.text.suggest import did_you_mean


class ForeignEvaluator(Protocol):
    """An evaluator of pydantic-evals, or one of its shape."""

    def evaluate(self, ctx: Any, /) -> Any:
        """Judge the output of the context ``ctx``."""
        ...


Scorer: TypeAlias = Callable[..., Any] | ForeignEvaluator
"""Judges a sample: a function of the case and the run, async or plain, or a task. Returns a number, a bool, a dict of them, or
None where it does not apply."""


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()
"""The expectation of a case that expects nothing in particular."""


@frozen(kw_only=True)
class Case:
    """One case: the ``inputs`` of the program by name, or the recorded run ``run_id``, and the ``expected`` value.

    ``name`` names it in reports (default: its number), ``tags`` and ``metadata`` are yours; cases of one ``group`` are not
    independent of each other (the turns of one customer, say), and intervals count them as one. ``scorers`` judge this case, in
    addition to those of the evaluation.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expected: Any = NOTHING
    name: str = ""
    run_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    group: str | None = None
    scorers: tuple[Scorer, ...] = ()

    @property
    def expects(self) -> bool:
        """Whether something is expected of its value."""
        return self.expected is not NOTHING

    @property
    def digest(self) -> str:
        """A digest of its inputs, or of its run: the same for the same case under any name."""
        data = [self.run_id, self.inputs] if self.inputs else self.run_id
        text = json.dumps(data, sort_keys=True, default=repr)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Its form in a file of cases: the fields that are set."""
        data: dict[str, Any] = {}
        if self.run_id is not None:
            data["run"] = self.run_id
        if self.inputs:
            data["inputs"] = dict(self.inputs)
        if self.expects:
            data["expected"] = self.expected
        for name in ("name", "group"):
            if value := getattr(self, name):
                data[name] = value
        if self.tags:
            data["tags"] = list(self.tags)
        if self.metadata:
            data["metadata"] = dict(self.metadata)
        return data


_FIELDS = ("inputs", "expected", "name", "run", "tags", "metadata", "group")
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


def read_cases(source: str | Path | Iterable[Any]) -> list[Case]:
    """Cases from a file (``.jsonl``, ``.json``, ``.csv``, ``.yaml``), or from a list of cases and dicts.

    A dict has the fields of :class:`Case` (``run`` for the run's id), or the inputs by name beside ``expected`` and the other
    fields: ``{"question": "...", "expected": "..."}``. The columns of a CSV file are the same. The files of pydantic-evals
    (``inputs``, ``expected_output``), of OpenAI's evals (``item``, ``ideal``) and of promptfoo (``tests`` with ``vars``) are
    read as they are. YAML needs the extra ``evals``.

    Returns them in their order. Raises ConfigurationError (``evals/cases``) for a file that cannot be read, a case that is
    none, no case at all, and two cases of one name; ``config/extra`` for YAML without the extra.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        items = _items_in(path)
        where = str(path)
    else:
        items, where = list(source), "the list of cases"
    cases = [_case(item, number, where) for number, item in enumerate(items, 1)]
    return named(cases, where)


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
    raise _wrong(f"{path} is no file of cases", "its name ends with .jsonl, .json, .csv or .yaml")


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
            hint="python3 -m pip install 'agentflow[evals]', or write them as JSON lines",
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
    if isinstance(data, list):
        return cast("list[Any]", data)
    raise _wrong(f"{path} is no list of cases", "write a list, or one under 'cases'")


def _case(item: Any, number: int, where: str) -> Case:
    if isinstance(item, Case):
        return item
    if not isinstance(item, Mapping):
        raise _wrong(f"case {number} of {where} is {clip(repr(item), 80)}, and not a case or a dict", _EXAMPLE)
    entries = {_FOREIGN.get(str(key), str(key)): value for key, value in cast("Mapping[Any, Any]", item).items()}
    entries.pop("assert", None)  # promptfoo's, which are scorers: see docs
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
    tags = chosen.get("tags") or ()
    return Case(
        inputs=dict(cast("Mapping[str, Any]", inputs)),
        expected=chosen.get("expected", NOTHING),
        name=str(chosen.get("name") or ""),
        run_id=chosen.get("run"),
        tags=tuple(tags.split(",")) if isinstance(tags, str) else tuple(tags),
        metadata=chosen.get("metadata") or {},
        group=chosen.get("group"),
    )


_EXAMPLE = "write {'question': '...', 'expected': '...'}, or Case(inputs={...}, expected=...)"


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="evals/cases", hint=hint)
