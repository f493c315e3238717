"""Samples: unstored runs of a case. The records of the case answer, and the results of earlier samples.

A sample has no owner and changes nothing: it owns no run, continues none, has no named conversation, and the rows of
its case stay unchanged. Its tasks are answered from the store of results, by the key of task content, inputs, model,
options and draw; new results are kept there for the next sample. So an interrupted evaluation repeats no call
paid for, and two variants share their common beginning.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from agentflow.core.call.call import CallContext, contained
from agentflow.core.call.spending import Reservation
from agentflow.core.data.errors import JournalError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE, TaskResult
from agentflow.core.data.source import Source
from agentflow.core.data.templates import HOST_FUNCTIONS
from agentflow.core.events.journal_rows import EffectRow, EffectState, OwnedRun, RunRow, StoredResult
from agentflow.core.events.questions import Question
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.store_ports import JournalStore
from agentflow.core.ports.toolbox import Toolbox
from agentflow.durable.deriving import stored_run
from agentflow.durable.generations import Overrides, TaskOverrides, differing, still_true
from agentflow.durable.journal import RunJournal
from agentflow.durable.pool import Pool
from agentflow.durable.remote import worker_forms
from agentflow.durable.run_records import Records
from agentflow.durable.stored_input import MODELS, PythonProgram, StoredInput, begin_draw, carry_out, prepared
from agentflow.durable.values.codec import Codec, write_usage
from agentflow.durable.values.record_values import Request
from agentflow.lang.program import Program
from agentflow.lib.redact import Redactor
from agentflow.run.engine import Engine
from agentflow.run.questions import permits_of
from agentflow.run.run_spec import RunSpec
from agentflow.run.strand.budget import without_permit
from agentflow.tasks.template_registry import tasks_below

if TYPE_CHECKING:  # few runs have batches
    from agentflow.core.data.batches import BatchedCall
    from agentflow.durable.batch_desk import BatchDesk

KEPT = "36500d"
"""How old the result of a sample may be to be used again: as old as the database keeps it."""
IN_BATCHES = "batched"
"""Key, in a kept result, that says that its model calls were made in batches, at their price."""

ToolCallMade: TypeAlias = "tuple[str, str, dict[str, Any] | None]"
"""The path of a tool call, the tool, and its arguments; None where only a record of the call is left."""


@frozen
class Anew:
    """The ``names`` of tools and tasks to carry out although records answer; only results from the time ``since`` on, in
    seconds since 1970, answer for them."""

    names: frozenset[str]
    since: float


# A sample owns no run, so it can neither change nor leave one (decision 55)
class SampleRecords(Records):
    """The records of a sample, in memory alone.

    ``draw`` numbers the independent samples of a case under a variant, from 0. ``rows`` are its effects in the order they
    ended.
    """

    is_dry = False
    """Whether no task is carried out."""

    def __init__(
        self,
        store: JournalStore,
        owned: OwnedRun,
        root: asyncio.Task[object],
        draw: int,
        case: Sequence[EffectRow],
        anew: Anew | None = None,
    ) -> None:
        super().__init__(store, owned, root, worker_forms)
        self.draw = draw
        self.anew = anew
        self.rows: list[EffectRow] = []
        self.calls: list[ToolCallMade] = []
        self._case = case
        self._batched: dict[str, bool] = {}

    async def adopt(
        self, path: str, content: bytes, leaf: bytes | None, offsets: list[int] | None, request: Request | None
    ) -> EffectRow | None:
        row = await super().adopt(path, content, leaf, offsets, request)
        if row is not None and row.kind in ("tool", "task"):
            was = next(each.path for each in self._case if each.content == row.content and each.started == row.started)
            calls = [each for each in self._case if each.kind == "tool" and f"{each.path}/".startswith(f"{was}/")]
            self.calls += [(path + each.path[len(was) :], each.name, None) for each in calls]
        return row

    async def commit(
        self, row: EffectRow, drop: Sequence[bytes] = (), *, keeps: bool = False, also: Sequence[EffectRow] = ()
    ) -> None:
        """Keep the row; nothing is stored."""
        self.commit_soon([row])

    async def new_batched(self, reserved: Reservation | None) -> dict[str, Any]:
        """The data of a record; the reservation stays in the memory, as the sample does."""
        return {"id": ""}

    async def in_batch(self, asked: BatchedCall, call: CallContext) -> Any:
        """The answer to a model call in a batch, waited for in the memory: equal calls of the same draw are one."""
        assert self.gathers is not None
        since = 0.0 if self.anew is None else self.anew.since
        text = json.dumps([asked.model, asked.endpoint, asked.body, self.draw, since, call.path])
        name = f"af-{blake2b(text.encode(), digest_size=24).hexdigest()}"
        async with without_permit(permits_of(call)):
            answer = await self.gathers().answer(replace(asked, id=name, run="", key=b""))
        self._batched[call.path] = "fallback" not in answer
        return {"ok": answer}

    async def looked_into(self) -> None:
        """Nothing reaches a sample."""

    def commit_soon(self, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> None:
        self.rows += [row for row in rows if row.state in (EffectState.OK, EffectState.FAILED)]

    def note(self, row: EffectRow) -> asyncio.Future[None]:
        """The order of outcomes is not a row of a sample, and nothing is stored."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stored.set_result(None)
        return stored

    async def begin(self, row: EffectRow, again: object) -> bool:
        """An evaluation has decided before whether something that may not be repeated is carried out."""
        return True

    def oldest(self, gives: Tool | CompiledTask, call: CallContext) -> float:
        """The time, in seconds since 1970, that a result of ``gives`` must not be older than."""
        if self.anew is None:
            return 0.0
        names = {gives.name} if isinstance(gives, Tool) else names_below(gives, *_lookups(call))
        return 0.0 if names.isdisjoint(self.anew.names) else self.anew.since

    def calls_below(self, path: str) -> list[list[Any]]:
        """The tool calls at and below ``path``, to be stored: the rest of the path, the tool and its arguments."""
        return [[at[len(path) :], name, arguments] for at, name, arguments in self.calls if at.startswith(path)]

    def batched_below(self, path: str) -> bool:
        """Whether the model calls of the task at ``path`` were made in batches."""
        answers = [answered for each, answered in self._batched.items() if each.startswith(f"{path}/")]
        return bool(answers) and all(answers)

    def answer(self, path: str, stored: StoredResult) -> None:
        """Add the tool calls, those of :meth:`calls_below`, of a task answered at ``path``."""
        calls: Iterable[Sequence[Any]] = stored.value["calls"]
        self.calls += [(path + rest, name, arguments) for rest, name, arguments in calls]

    def missing(self, path: str, key: bytes) -> BaseException:
        """Raised instead of carrying out the task at ``path``, since no result with this ``key`` exists."""
        raise AssertionError("only a dry sample carries out no task")


@frozen(kw_only=True)
class SampleEnd:
    """How a sample ended.

    ``status`` is done, failed, or blocked: it waits for ``question``, or for a time; open for a dry one that ended where nothing answers. ``usage`` and ``cost`` (US dollars, None
    for an unknown price) are as if nothing had been answered from records, ``paid`` and ``paid_usage`` were spent now.
    ``rows`` are its effects, ``calls`` its tool calls; ``reused`` effects were answered from records.
    """

    status: str
    value: Any = None
    error: BaseException | None = None
    question: Question | None = None
    usage: Usage = NO_USAGE
    cost: float | None = 0.0
    paid_usage: Usage = NO_USAGE
    paid: float | None = 0.0
    steps: int = 0
    reused: int = 0
    duration_s: float = 0.0
    rows: tuple[EffectRow, ...] = ()
    calls: tuple[ToolCallMade, ...] = ()
    run_id: str = ""
    """The id of its run, as its events have it; empty for one that was not carried out."""


class Samples:
    """Carries out samples in one flow. The parameters are those of :class:`~agentflow.durable.runs.DurableRuns`."""

    def __init__(
        self, engine: Engine, store: JournalStore, codec: Codec, stored: StoredInput, redactor: Redactor | None
    ) -> None:
        self._engine = engine
        self._store = store
        self._codec = codec
        self._stored = stored
        self._redactor = redactor
        self.gathers: Callable[[], BatchDesk] | None = None
        """Begins to gather the model calls that wait for batches."""

    async def case(self, run_id: str) -> tuple[RunRow, list[EffectRow]]:
        """A recorded run with its effects. Raises JournalError (``durable/unknown-run``)."""
        row = await stored_run(self._store, run_id)
        return row, await self._store.effects(row.run)

    def inputs(self, row: RunRow) -> dict[str, Any]:
        """The stored bindings of a run; none where it needs unstored ones."""
        try:
            return self._stored.read(row, {})
        except JournalError:
            return {}

    async def program(self, row: RunRow) -> tuple[Program | PythonProgram, dict[str, Any]]:
        """The program of a recorded run, with the run's bindings. Raises JournalError."""
        values = self._stored.read(row, {}, change=True)
        own = Source.of(str(row.input["name"]), row.program)
        return await prepared(self._engine, own, values, row.input["allow"]), values

    def changed(self, overrides: Overrides, text: str | None, *, deps: object) -> TaskOverrides:
        """The tasks of samples with these ``overrides`` and kept answers; ``deps`` are the samples' dependencies.

        ``text`` is the program; None: a name that no task of the flow has is taken for that of a task of a text. Raises
        JournalError (``durable/override``).
        """
        tasks, reads = self._engine.tasks, deps is not None or self._engine.dependencies is not None
        return TaskOverrides(
            overrides,
            find=tasks.find_compiled,
            prepare=tasks.prepare,
            names=tasks.template_names(),
            text=" ".join(overrides) if text is None else text,
            further=lambda compiled: {"reuse": KEPT} if self._may_keep(compiled, deps=reads) else {},
        )

    def _may_keep(self, compiled: CompiledTask, *, deps: bool) -> bool:
        engine = self._engine
        return may_keep(
            compiled,
            engine.tools.find,
            engine.tasks.find_compiled,
            around=(*engine.around_tool, *engine.around_model),
            deps=deps,
        )

    async def carry_out(
        self,
        row: RunRow,
        program: Program | PythonProgram,
        spec: RunSpec,
        *,
        tasks: TaskOverrides,
        rows: Sequence[EffectRow] = (),
        draw: int = 0,
        anew: Anew | None = None,
    ) -> SampleEnd:
        """Carry out one sample of ``program``, with the bindings of ``spec`` and the ``tasks`` of :meth:`changed`.

        ``rows`` are the effects of the recorded run of the case, ``row`` its row (:func:`plain_row` for another case).
        ``anew`` names the effects that they do not answer.
        Raises nothing but cancellation: the sample's error is part of its end.
        """
        bindings = await self._engine.given(spec.bindings or {})
        values = self._stored.as_read(self._stored.write(bindings), bindings)
        answers = [each for each in rows if draw == 0 or each.kind not in MODELS]
        answers = still_true(answers, differing(row, tasks.overrides), () if anew is None else anew.names)
        ends: list[SampleEnd] = []

        async def work() -> None:
            begin_draw(0)
            root = asyncio.current_task()
            assert root is not None
            owned = OwnedRun(run=row, records=[], usage=write_usage(NO_USAGE) or (0,) * 6, cost=0.0)
            records, journal = self._opened(owned, root, draw, answers, anew, program.source.digest)
            records.pool, records.overrides = Pool(answers, inner=True), tasks
            ends.append(await self._end(records, journal, program, values, spec))

        async with asyncio.TaskGroup() as group:
            group.create_task(work(), name=f"sample of {row.run}")
        return ends[0]

    def _opened(
        self,
        owned: OwnedRun,
        root: asyncio.Task[object],
        draw: int,
        answers: Sequence[EffectRow],
        anew: Anew | None,
        program: str,
    ) -> tuple[SampleRecords, RunJournal]:
        """The records of a sample, and its journal."""
        records = SampleRecords(self._store, owned, root, draw, answers, anew)
        records.gathers = self.gathers
        return records, RunJournal(records, self._codec, self._redactor, program=program)

    async def _end(
        self,
        records: SampleRecords,
        journal: RunJournal,
        program: Program | PythonProgram,
        values: dict[str, Any],
        spec: RunSpec,
    ) -> SampleEnd:
        clock = asyncio.get_running_loop().time
        began = clock()
        status, value, error, question = "done", None, None, None
        name, digest = program.source.name, program.source.digest
        try:
            await self._engine.turn()
            opened = self._engine.open(
                name, spec, program=digest, grants=program.allow, journal=journal, quiet=records.is_dry
            )
            async with opened as (run, call):
                records.live = run
                call.definitions = records.overrides
                value = await carry_out(self._engine, program, values, call)
            if isinstance(value, TaskResult) and (error := value.problem()) is not None:
                status = "failed"
        except asyncio.CancelledError:
            if records.fatal is not None:
                status, error = "failed", records.fatal
            elif records.rest is not None:
                status, question = "blocked", next(iter(records.rest.questions), None)
            elif records.is_dry and records.suspending:
                status = "open"
            else:
                raise
        except Exception as failure:  # noqa: BLE001 - any error of the program or a host's function: the sample's error
            status, error = "failed", failure
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 - a sample ends alone, with any error
            status, error = "failed", contained(failure)
        run = records.live
        paid_usage, paid = (NO_USAGE, 0.0) if run is None else run.so_far()
        adopted = records.adopted_cost
        return SampleEnd(
            status=status,
            value=value,
            error=error,
            question=question,
            usage=paid_usage + records.adopted_usage,
            cost=None if paid is None or adopted is None else paid + adopted,
            paid_usage=paid_usage,
            paid=paid,
            steps=0 if run is None else run.steps_used,
            reused=records.replayed,
            duration_s=clock() - began,
            rows=tuple(records.rows),
            calls=tuple(records.calls),
            run_id="" if run is None else run.run_id,
        )


def plain_row(run_id: str, name: str, text: str) -> RunRow:
    """The row of a case without a recorded run."""
    return RunRow(
        run=run_id,
        base=None,
        program=text,
        digest="",
        input={"name": name, "allow": None, "bindings": {}, "limits": None, "labels": None},
        status="running",
        epoch=0,
        seq=0,
        slice=1,
        wake_at=None,
        spent_s=0.0,
        result=None,
        error=None,
        created=0.0,
        updated=0.0,
    )


FindTool: TypeAlias = "Callable[[str], Tool | None]"
FindTask: TypeAlias = "Callable[[str], CompiledTask | None]"


# The dependencies of an answer are in its key, or it is not kept (decision 62)
def may_keep(
    compiled: CompiledTask, tool: FindTool, task: FindTask, *, around: Sequence[Any] = (), deps: bool = False
) -> bool:
    """Whether the answer of a task depends on its key alone, so that later samples may have it.

    ``tool`` and ``task`` find those that it names; ``around`` is the middleware of the flow; ``deps``: the run has dependencies,
    which functions of the host may read.
    """
    from agentflow.handler.tools import holds_values

    functions = [*around]
    for each in tasks_below(compiled, tool, task):
        box = cast(Toolbox, each.toolbox)
        functions += [*_functions(each), *box.around_tool, *box.around_model]
        for used in _tools_of(each, tool):
            if used.calls_models and used.task is None:
                return False  # a workflow: the tasks that it calls are unknown
            own = used.kind == "direct" and used.reuse_key is None
            if own and (used.deps is not None or holds_values(used.function)):
                return False
            functions += used.around
    return not any([deps or (not version_of(each) and holds_values(inspect.unwrap(each))) for each in functions])


def version_of(function: Any) -> str:
    """The attribute ``__version__`` of a function of the host: it stands for all that the function holds."""
    return str(getattr(function, "__version__", "") or getattr(_inner(function), "__version__", ""))


def names_below(compiled: CompiledTask, tool: FindTool, task: FindTask) -> set[str]:
    """The names of the task, and of the tools and tasks that it may call."""
    tasks = tasks_below(compiled, tool, task)
    return {each.name for each in tasks} | {
        name for each in tasks for name in (*each.toolbox, *(each.template.tools or ()))
    }


def _lookups(call: CallContext) -> tuple[FindTool, FindTask]:
    """How code at ``call`` finds tools and tasks."""
    services = cast(Any, call.run.services)
    return lambda name: services.tools.find(name, call), lambda name: services.task(name, call)


def _functions(compiled: CompiledTask) -> list[Any]:
    """The functions of the host that a task has."""
    functions: list[Any] = []
    for name in HOST_FUNCTIONS:
        value = getattr(compiled.template, name)
        if name == "rules" and value is not None:
            functions += [each for each in (value.chooser, value.check) if each is not None]
        elif value is not None:
            functions.append(value)
    return functions


def _tools_of(compiled: CompiledTask, find: FindTool) -> list[Tool]:
    """The tools that a task was given as objects, and those that it names."""
    box = cast(Toolbox, compiled.toolbox)
    named = [find(name) for name in compiled.template.tools or () if name not in box]
    return [*box.values(), *[tool for tool in named if tool is not None]]


def code_of(compiled: CompiledTask, call: CallContext) -> str:
    """A digest of the dependencies of a task beyond its own content, so that an edited tool or check answers anew: the code and the
    versions of the host's functions that it calls, and the tasks that its model may run, as this sample has them.

    It covers these functions, not those that they call.
    """
    (tool, task), run = _lookups(call), call.run
    digest = blake2b(digest_size=16)
    functions = [*run.around_tool, *run.around_model]
    for each in tasks_below(compiled, tool, task):
        box = cast(Toolbox, each.toolbox)
        functions += [*_functions(each), *box.around_tool, *box.around_model]
        for used in _tools_of(each, tool):
            digest.update(used.reference.encode("utf-8", "surrogatepass"))
            functions += [function for function in (used.function, *used.around) if function is not None]
    for each in functions:
        digest.update(version_of(each).encode("utf-8", "surrogatepass"))
        code = getattr(_inner(each), "__code__", None)
        if isinstance(code, CodeType):
            _add(digest, code)
    return digest.hexdigest()


def _inner(function: Any) -> Any:
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "func", None)) is not None:
        function = inner
    return getattr(function, "__func__", function)


def _add(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode("utf-8", "surrogatepass"))
    for each in code.co_consts:
        if isinstance(each, CodeType):
            _add(digest, each)
        else:
            shown = sorted(map(repr, cast("frozenset[object]", each))) if isinstance(each, frozenset) else each
            digest.update(repr(shown).encode("utf-8", "surrogatepass"))
