"""New generations of durable runs: an edited program, changed tasks or another draw, answered from an earlier run's records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, cast

from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask, Template
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.events.journal_rows import EffectRow, EffectState, NewRun, RunRow
from agentflow.durable.pool import Pool
from agentflow.durable.stored_input import MODELS, draw_here, draw_of
from agentflow.durable.values.record_values import fingerprint
from agentflow.lib.text.suggest import did_you_mean

_FIXED = frozenset({"name", "type", "subtype", "params", "is_function", "output_model"})
"""Fields of a task that cannot be overridden, since other code relies on them."""
Overrides = Mapping[str, Mapping[str, Any]]
"""Fields of tasks, by the task's name, with their values in one run. ``*`` stands for all tasks."""
EVERY = "*"
"""The name in overrides that stands for all tasks."""


@frozen(kw_only=True)
class Change:
    """How a generation differs from the run it is based on.

    ``overrides`` changes tasks. From the path ``cut`` on, a run of the same program carries out everything again; before
    it, each effect is answered only from the record at its own path. Another ``draw`` than the base has (0: the same; the default is that of the code that asks) answers
    no task from records; with ``cut`` it holds from there on.
    """

    overrides: Overrides
    cut: str | None = None
    draw: int = field(default_factory=draw_here)

    @classmethod
    def of(cls, row: RunRow) -> Change:
        """The change stored with a run."""
        draw = draw_of(row.input) if row.input.get("redrawn") else 0
        return cls(overrides=row.input.get("overrides") or {}, cut=row.input.get("cut"), draw=draw)

    def run_id(self, base: RunRow, text: str) -> str:
        """The id of the generation of ``base`` that runs ``text``: always the same for the same change."""
        root = str(base.input.get("root") or base.run)
        mark = fingerprint("generation", base.run, text, self.overrides, self.cut, *self.drawn).hex()[:8]
        return f"{root[:190]}.{mark}"

    @property
    def drawn(self) -> tuple[int, ...]:
        """The draw as a part of identities, which it is unless it is that of the base."""
        return (self.draw,) if self.draw else ()

    def new_run(self, base: RunRow, text: str, digest: str, run_input: Mapping[str, Any]) -> NewRun:
        """The new run to be stored for the generation; ``run_input`` is its stored input."""
        root = str(base.input.get("root") or base.run)
        stored = {**run_input, "root": root, "overrides": {name: dict(each) for name, each in self.overrides.items()}}
        if self.cut is not None:
            stored["cut"] = self.cut
        stored.pop("redrawn", None)
        if self.draw and self.draw != draw_of(base.input):
            stored = {**stored, "draw": self.draw, "redrawn": True}
        return NewRun(program=text, digest=digest, input=stored, base=base.run)

    def check(self, run_id: str, rows: Iterable[EffectRow]) -> None:
        """Raise JournalError (``durable/path``) if the path where a fork is to begin has no record."""
        cut = self.cut
        if cut is not None and not any([row.path == cut or row.path.startswith(f"{cut}/") for row in rows]):
            raise JournalError(
                f"the run '{run_id}' has no record at '{cut}'",
                code="durable/path",
                hint=f"agentflow resume {run_id} --plan --json lists the paths of its effects",
            )

    def pool(self, base: RunRow | None, rows: Iterable[EffectRow], used: Iterable[EffectRow] = ()) -> Pool:
        """The records of ``base`` that may answer, from its ``rows``: none if it was removed. ``used`` are those of the generation itself."""
        if self.draw and self.cut is None:
            rows = [each for each in rows if each.kind not in MODELS]
        if base is not None:
            rows = still_true(rows, differing(base, self.overrides))
        return Pool(rows, exact=self.cut is not None, cut=self.cut, used=used)


_CALLED = frozenset({"task", "tool"})


def differing(base: RunRow, overrides: Overrides) -> frozenset[str]:
    """The names of the tasks that ``overrides`` changes otherwise than the run ``base`` did; ``*`` for all."""
    before: Overrides = base.input.get("overrides") or {}
    return frozenset(
        name for name in {*before, *overrides} if dict(before.get(name, {})) != dict(overrides.get(name, {}))
    )


def still_true(rows: Iterable[EffectRow], changed: frozenset[str], anew: Collection[str] = ()) -> list[EffectRow]:
    """The records that may still answer: not those of tasks and tools in ``anew``, nor the effects within which one of these,
    or a task in ``changed`` (``*``: any task), was called. Effects still in progress stay."""
    rows = list(rows)
    if not changed and not anew:
        return rows
    stale = {each.path for each in rows if each.kind in _CALLED and each.name in anew}
    other = {each.path for each in rows if each.kind == "task" and (each.name in changed or EVERY in changed)}
    gone = stale | {above for path in stale | other for above in _above(path)}
    return [
        each
        for each in rows
        if each.state == EffectState.OPEN
        or (each.path not in gone and (each.kind == "tool" or stale.isdisjoint(_above(each.path))))
    ]


def _above(path: str) -> list[str]:
    """The paths of the effects around that at ``path``."""
    return [path[:at] for at, char in enumerate(path) if char in "/!"]


class TaskOverrides:
    """The tasks of one run with overridden fields; the :class:`~agentflow.core.data.known_names.Definitions` of the registered ones.

    Parameters: ``find`` and ``prepare`` are those of the task system. The overrides of ``*`` are for all tasks, beneath those
    of a task's own; ``further`` gives more fields of a task. Raises JournalError (``durable/override``) for a task
    or field that cannot be overridden; ``text`` is the program, which may define tasks too.
    """

    def __init__(
        self,
        overrides: Overrides,
        *,
        find: Callable[[str], CompiledTask | None],
        prepare: Callable[[Mapping[str, Any]], CompiledTask],
        names: Iterable[str],
        text: str,
        further: Callable[[CompiledTask], Mapping[str, Any]] | None = None,
    ) -> None:
        self.overrides = overrides
        self._prepare = prepare
        self._further = further
        self._every = overrides.get(EVERY, {})
        self._registered: dict[str, Template] = {}
        self._changed: dict[int, tuple[Template, Template]] = {}
        """Templates with their changed forms, by identity: one is changed once, for any number of calls."""
        for name, fields in overrides.items():
            for each in fields:
                _check_field(name, each)
        asked = [name for name in overrides if name != EVERY]
        others = names if self._every or further is not None else ()
        for name in dict.fromkeys([*asked, *others]):
            template = find(name)
            if template is not None:
                self._registered[name] = self.of(template)
            elif name in asked and name not in text:
                raise JournalError(
                    f"no task here is called '{name}'",
                    code="durable/override",
                    hint=did_you_mean(name, names) or "name a task of the flow or of the program: task.model=...",
                )

    def of(self, template: Template) -> Template:
        """``template`` with its overrides. Raises JournalError if a value is not valid."""
        before = self._changed.get(id(template))
        if before is not None:
            return before[1]
        changed = self._of(template)
        if len(self._changed) < _MOST_CHANGED:
            self._changed[id(template)] = (template, changed)
            self._changed[id(changed)] = (changed, changed)
        return changed

    def _of(self, template: Template) -> Template:
        fields = dict(self.overrides.get(template.name, {}))
        if cast(CompiledTask, template).template.is_function:  # which no model answers
            return self._with(template, fields)
        fields = {**self._every, **fields}
        changed = self._with(template, fields)
        more = None if self._further is None else self._further(cast(CompiledTask, changed))
        return self._with(template, {**more, **fields}) if more else changed

    def _with(self, template: Template, fields: Mapping[str, Any]) -> Template:
        if not fields:
            return template
        try:
            changed = self._prepare({**template.fields, **_hosts_own(cast(CompiledTask, template), fields), **fields})
            own = cast(CompiledTask, template).toolbox
            return (changed.with_tools(own) if own else changed).granted(template.grants)
        except AgentflowError as error:
            raise JournalError(
                f"the override does not fit: {error.message}", code="durable/override", hint=error.hint
            ) from error

    def task(self, name: str) -> Template | None:
        """The registered task of this name, if it is overridden."""
        return self._registered.get(name)

    def tasks(self) -> Mapping[str, Template]:
        """The registered tasks with overrides."""
        return self._registered


_IN_PLACE_OF = {"prompt_function": "instructions", "system_function": "system"}
"""Functions of the host that an override of a text replaces."""


def _hosts_own(template: CompiledTask, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a template other than data, the class of its answer and the host's functions, unless a text replaces
    them."""
    own: dict[str, Any] = {}
    for name, info in TaskTemplate.model_fields.items():
        value = getattr(template.template, name) if info.exclude else None
        if value is not None and _IN_PLACE_OF.get(name) not in overrides:
            own[name] = value
    return own


_MOST_CHANGED = 1_000
"""Number of templates with cached changed forms: a program may define new ones without end."""


def _check_field(name: str, field: str) -> None:
    overridable = [each for each in TaskTemplate.model_fields if each not in _FIXED]
    if field not in overridable:
        raise JournalError(
            f"the field '{field}' of the task '{name}' cannot be overridden",
            code="durable/override",
            hint=did_you_mean(field, overridable) or f"these can: {', '.join(overridable)}",
        )
