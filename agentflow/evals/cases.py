"""The cases of an evaluation; :mod:`agentflow.evals.case_files` reads them from files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from agentflow.core.data.frozen import frozen


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

    ``name`` names it in reports (default: its number), ``tags`` and ``metadata`` are yours; cases of one ``group`` depend on
    each other (for example the turns of one customer), and intervals count them as one. ``scorers`` judge this case, in
    addition to those of the evaluation. ``turns`` are the answers of the person in it to the questions of the program, in their order.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expected: Any = NOTHING
    name: str = ""
    run_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    group: str | None = None
    scorers: tuple[Scorer, ...] = ()
    turns: tuple[Any, ...] = ()

    @property
    def expects(self) -> bool:
        """Whether something is expected of its value."""
        return self.expected is not NOTHING

    @property
    def digest(self) -> str:
        """A digest of its inputs, or of its run: it does not depend on the name of the case."""
        data = [self.run_id, self.inputs] if self.inputs else self.run_id
        data = [data, self.turns] if self.turns else data
        text = json.dumps(data, sort_keys=True, default=repr)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Its form in a file of cases: the fields with a value."""
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
        if self.turns:
            data["turns"] = list(self.turns)
        if self.metadata:
            data["metadata"] = dict(self.metadata)
        return data


Cases: TypeAlias = "Sequence[Case] | Iterable[Mapping[str, Any]] | str | Path"
"""The cases of an evaluation: as such, as dicts, or a file of them."""
