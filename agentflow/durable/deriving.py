"""Creates the generations of durable runs: finds the run that one is based on, and stores the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from agentflow.core.data.errors import JournalError
from agentflow.core.data.source import Source
from agentflow.core.events.journal_rows import NewRun, RunRow
from agentflow.core.ports.ports import TemplatePort
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.generations import Change, TaskOverrides
from agentflow.durable.stored_input import PythonProgram, StoredInput, limits_data, prepared
from agentflow.durable.values.record_values import fingerprint
from agentflow.lang.program import Program
from agentflow.run.engine import Engine
from agentflow.run.run import check_name
from agentflow.run.run_spec import RunSpec


class Generations:
    """Creates generations of runs in one store. ``stored`` encodes and decodes programs and bindings. In the block of
    ``taken_from`` a run may be taken from this process."""

    def __init__(
        self,
        engine: Engine,
        store: JournalStore,
        stored: StoredInput,
        taken_from: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        self._taken_from = taken_from
        self._engine = engine
        self._store = store
        self._stored = stored

    async def begin(
        self,
        run_id: str,
        change: Change,
        *,
        source: Source | None,
        as_run: str | None,
        spec: RunSpec,
    ) -> tuple[RunRow, Program | PythonProgram, dict[str, Any]]:
        """The generation of a run with ``change`` and ``source``, created unless it exists, with its program and bindings.

        Raises as :meth:`agentflow.durable.runs.DurableRuns.derive`.
        """
        if as_run is not None:
            check_name(as_run, None, self._stored.redactor)
        base, program, values = await self.changed(run_id, change, source, spec.bindings or {})
        source, allow = program.source, base.input["allow"]
        stored = self._stored.write(values)
        fields = {**base.input, "name": source.name, "bindings": stored}
        if spec.limits is not None:
            fields["limits"] = limits_data(spec.limits)
        if isinstance(spec.purse, str):
            self._engine.payer(spec.purse)  # raises for a missing purse, before anything is stored
            self._stored.refuse_secret("the purse's name", spec.purse)
            fields["purse"] = spec.purse
        text = self._stored.text(source)
        digest = fingerprint("run", text, values, allow, change.overrides, change.cut, base.run, *change.drawn).hex()
        new = change.new_run(base, text, digest, fields)
        new = replace(new, input=self._stored.checked(new.input))
        async with self._taken_from(base.run):
            base = await stored_run(self._store, base.run)
            row = await self._create(as_run or change.run_id(base, text), base, change, new)
        if row.digest != digest:
            raise another_run(row, None)
        return row, program, self._stored.as_read(stored, values)

    async def changed(
        self, run_id: str, change: Change, source: Source | None, bindings: Mapping[str, Any]
    ) -> tuple[RunRow, Program | PythonProgram, dict[str, Any]]:
        """The run to change, and the program and the bindings of its generation. Raises as :meth:`begin`."""
        base, source = await self._base(run_id, change, source)
        values = self._stored.read(base, bindings, change=True)
        change.check(base.run, await self._store.effects(base.run))
        overrides_of(change, self._engine.tasks, source)
        program = await prepared(self._engine, source, values, base.input["allow"])
        return base, program, values

    async def _base(self, run_id: str, change: Change, source: Source | None) -> tuple[RunRow, Source]:
        """The run to change: the latest generation, unless an earlier one has this change already."""
        base = await stored_run(self._store, run_id)
        source = source or Source.of(str(base.input["name"]), base.program)
        while change.cut is None and (later := successor_of(base)) is not None:
            if await self._store.find(change.run_id(base, source.text)) is not None:
                break
            base = await stored_run(self._store, later)
        return base, source

    async def _create(self, run_id: str, base: RunRow, change: Change, new: NewRun) -> RunRow:
        """Store the generation. A successor takes over the base's session, a fork gets it as it was before the base."""
        session: Mapping[str, Any] | None = base.input.get("session")
        if change.cut is not None or base.status in ("done", "cancelled"):
            if session is not None:
                new = replace(new, input={**new.input, "session": {**session, "name": None}})
            return (await self._store.create(run_id, new))[0]
        owned = await self._store.own(base.run)
        new = replace(new, takes_over=owned.run.epoch, session=session["name"] if session else None)
        try:
            return (await self._store.create(run_id, new))[0]
        except BaseException:  # also when cancelled: the base run has no owner again
            await self._store.finish(base.run, owned.run.epoch, "queued")
            raise


def overrides_of(change: Change, tasks: TemplatePort, source: Source, is_branch: bool = False) -> TaskOverrides | None:
    """The tasks that ``change`` overrides in the program ``source``, which may define some; if it ``is_branch`` of one, that
    may. Raises JournalError (``durable/override``)."""
    if not change.overrides:
        return None
    return TaskOverrides(
        change.overrides,
        find=tasks.find_compiled,
        prepare=tasks.prepare,
        names=tasks.template_names(),
        text=" ".join(change.overrides) if is_branch else source.text,
    )


async def stored_run(store: JournalStore, run_id: str) -> RunRow:
    """The stored run. Raises JournalError (``durable/unknown-run``)."""
    row = await store.find(run_id)
    if row is None:
        raise JournalError(
            f"there is no durable run '{run_id}'",
            code="durable/unknown-run",
            hint="agentflow runs --durable lists them, with --db those of another database",
        )
    return row


def successor_of(row: RunRow) -> str | None:
    """The id of the generation that continues a run; None without one."""
    return row.result.get("successor") if row.status == "cancelled" and row.result else None


def another_run(row: RunRow, edited: str | None, differs: Sequence[str] = ()) -> JournalError:
    """The error for an id that another run has; ``edited`` is the file's name if only the program's text differs,
    ``differs`` names the difference."""
    hint = "resume it with the program and the bindings it began with, or choose another run id"
    details: dict[str, Any] = {"differs": list(differs)} if differs else {}
    what = "with another program, other bindings, another allow or session"
    if differs:
        what = f"otherwise: {', '.join(differs)} {'differs' if len(differs) == 1 else 'differ'}"
    if edited is not None:
        at = successor_of(row) or row.run
        hint = (
            f"agentflow resume {at} --program {edited} adopts the edited program; effects that have not changed"
            f" are not paid for again; from Python flow.resume('{at}', program=...)"
        )
        details = {**details, "adopt": at}
        what = "with another text of the program"
    return JournalError(
        f"the durable run '{row.run}' was started {what}", code="durable/mismatch", hint=hint, details=details
    )
