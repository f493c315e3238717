"""Branches: ``parallel``, ``pmap`` and ``race``.

Each branch is a strand of its own with a path, a fork of the session and a pair of Started and Finished events. When the
form returns or raises, all its branches have ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from agentflow.core.call.call import RunPort, view_of
from agentflow.core.call.host_calls import CUTTING, keep_partial
from agentflow.core.data.errors import AgentflowError, RunStopped, SexpEvaluationError, cut
from agentflow.core.data.known_names import branch_prefix
from agentflow.core.data.labels import bare
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.data.source import Span
from agentflow.core.data.values import as_list
from agentflow.core.data.walk import Work
from agentflow.core.events.events import BranchStarted
from agentflow.lang.abi import Code, Fork, Runtime
from agentflow.lang.calling import TAIL, bounce
from agentflow.lang.printer import print_value
from agentflow.lang.support import apply
from agentflow.lang.trace import annotate
from agentflow.run.strand.crew import Crew
from agentflow.run.strand.strand import Overlay, Strand

_UNFINISHED = object()

FIRST_STEPS = 4
"""Steps granted to a branch at its start: most of many branches take a few, and requesting each costs more than taking it."""
SHARED_STEPS = 64
"""Steps that a form requests at once for the start of its branches."""


class _Fork:
    """The branches of one form, at most ``limit`` of them active at once: their state and their values.

    ``roots`` is the code and the data passed to them, see :class:`~agentflow.lang.abi.Fork`. ``fuel`` are granted steps with
    which its next branches begin; the budget takes them back from it as from a strand.
    """

    def __init__(
        self, rt: Strand, form: str, span: Span, count: int, roots: Sequence[Any], limit: int | None = None
    ) -> None:
        rt.budget.charge_branches(count, span)
        self.roots = roots
        self.reachable: frozenset[int] | None = None
        self.reaching: Work[frozenset[int]] | None = None
        self.outer: Fork | None = rt.fork
        self.rt = rt
        self.form = form
        self.span = span
        self.values: list[Any] = [_UNFINISHED] * count
        self.left = count
        self.sessions: dict[int, Session] = {}
        self.overlays: dict[int, Overlay] = {}
        self.budget = rt.budget
        self.fuel = 0
        self.narrow: RunPort | None = None
        if limit is not None and limit < min(count, rt.budget.permits.limit):
            self.budget = rt.budget.narrower(limit)
            self.narrow = view_of(rt.call.run, budget=self.budget)  # a branch that waits lets another one run
        rt.call.span = span
        self.call = rt.start_form(form, span.start)
        self.prefix = branch_prefix(path := self.call.path)
        journal = rt.call.run.journal
        self.verdict = None if journal is None else journal.verdict(path, self.prefix, count, self.budget)

    async def run(self, index: int, code: Code, arguments: tuple[Any, ...]) -> Any:
        """One branch, from start to end."""
        rt = self.rt
        if self.verdict is not None:
            await self.verdict.begins(index)
        count = len(self.values)
        scope = self.call.scope(BranchStarted, f"{self.prefix}{index}", form=self.form, index=index, count=count)
        session = scope.call.session = rt.call.session.fork()
        if self.narrow is not None:
            scope.call.run = self.narrow
        strand = rt.child(scope.call, budget=self.budget, branch=True)
        strand.fork = self
        try:
            if self.fuel < FIRST_STEPS:
                self.fuel += self.budget.grant(SHARED_STEPS, self.span)
            strand.fuel = min(FIRST_STEPS, self.fuel)
            self.fuel -= strand.fuel
            with scope:
                try:
                    d = strand.first_depth
                    value = await code(strand, d, *arguments)
                    if value is TAIL:
                        value = await bounce(strand, d)
                    if scope.watched and isinstance(result := bare(value), TaskResult) and result.failed:
                        scope.set(outcome="failed")
                except Exception as error:  # noqa: BLE001 - a foreign exception becomes the program's, with a span
                    final = annotate(error)
                    strand.steps.explain(final, strand.grants)
                    raise final from error.__cause__
        finally:
            if strand.fuel > 0 and self.fuel < SHARED_STEPS:
                self.fuel += strand.fuel
                strand.fuel = 0
            strand.end()
        self.values[index] = value
        self.left -= 1
        if session.grown:
            self.sessions[index] = session
        if strand.overlay is not None and strand.overlay is not rt.overlay:
            self.overlays[index] = strand.overlay
        return value

    def branch(self, index: int, code: Code, arguments: tuple[Any, ...] = ()) -> Coroutine[Any, Any, Any]:
        """One branch (to be awaited) of a form that the first failure settles. Raises that failure."""
        work = self.run(index, code, arguments)
        return work if self.verdict is None else self._recorded(index, work)

    async def _recorded(self, index: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except Exception as error:
            if await self.settles(index, error):
                raise
        else:
            await self.ends(index)

    async def settles(self, index: int, error: Exception | None = None) -> bool:
        """Whether branch ``index``, which succeeded or failed with ``error``, settles the form; if so, it is recorded."""
        return self.verdict is None or await self.verdict.settles(index, error)

    async def ends(self, index: int) -> None:
        """Note that branch ``index`` has ended without settling the form."""
        if self.verdict is not None:
            await self.verdict.ends(index)

    def join(self, winner: int | None = None) -> None:
        """Merge the exchanges and the task definitions of all branches, in order, or of the ``winner`` alone."""
        sessions = [self.sessions[index] for index in sorted(self.sessions) if winner in (None, index)]
        if sessions:
            self.rt.call.session.join(sessions)
        for index in sorted(self.overlays):
            if winner in (None, index):
                for env, tasks in self.overlays[index].tables.items():
                    for template in tasks.values():
                        self.rt.define(env, template)

    async def all(self, code: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
        """The values of all branches, in order. An error carries the values of the finished branches, for the host."""
        await self.work(self.crew(), code)
        if self.left:
            raise self.lost()
        self.join()
        return self.values

    async def work(self, crew: Crew[int], step: Callable[[int], Awaitable[object]]) -> None:
        """Have ``crew`` call ``step`` with the index of every branch. An error carries the values of those that finished."""
        strands = self.budget.strands
        strands.add(self)
        try:
            await crew.run(step)
        except CUTTING as error:
            keep_partial(error, self.finished())
            raise
        finally:
            strands.discard(self)
            self.budget.give_back(self.fuel)
            self.fuel = 0

    def lost(self) -> SexpEvaluationError:
        """The error for a branch that has ended without a value and without an error."""
        message = f"a branch of the {self.form} ended without a value and without an error"
        return SexpEvaluationError(message, code="internal/error", span=self.span, hint="please report this")

    def finished(self) -> Iterator[Any]:
        """The values of the branches that have one, in order."""
        return (value for value in self.values if value is not _UNFINISHED)

    def crew(self) -> Crew[int]:
        """The workers that run the branches, started in index order."""
        count = len(self.values)
        return Crew(self.budget, range(count), count, self.rt.call)


async def parallel(rt: Strand, d: int, span: Span, thunks: list[Code]) -> list[Any]:
    """All values, in order."""
    fork = _Fork(rt, "parallel", span, len(thunks), thunks)
    return await fork.all(lambda index: fork.branch(index, thunks[index]))


async def pmap(rt: Strand, d: int, span: Span, function: Any, items: Any, limit: Any = None) -> list[Any]:
    """The procedure's values on all elements, in order."""
    elements = as_list(items)
    if elements is None:
        raise SexpEvaluationError(
            f"pmap takes a list, not {print_value(items, limit=80)}", code="type/argument", span=span
        )
    if limit is not None and (type(limit) is not int or limit < 1):
        raise SexpEvaluationError(
            f"the limit of pmap is a positive integer, not {print_value(limit, limit=80)}",
            code="concurrency/limit",
            span=span,
        )

    def code(strand: Runtime, d: int, element: Any) -> Coroutine[Any, Any, Any]:
        return apply(strand, function, (element,), d)

    return await each(rt, span, code, elements, limit)


async def each(rt: Strand, span: Span, code: Code, items: Iterable[Any], limit: int | None = None) -> list[Any]:
    """The values of ``code`` on all items, in order, a branch each, at most ``limit`` at once."""
    elements = list(items)  # a copy: the host may change its list meanwhile
    fork = _Fork(rt, "pmap", span, len(elements), (code, elements), limit)
    return await fork.all(lambda index: fork.branch(index, code, (elements[index],)))


async def race(rt: Strand, d: int, span: Span, thunks: list[Code]) -> Any:
    """The first success. The others are cancelled and have ended."""
    fork = _Fork(rt, "race", span, len(thunks), thunks)
    errors: dict[int, AgentflowError] = {}
    failed: dict[int, Any] = {}
    winner: list[int] = []

    async def run(index: int) -> None:
        try:
            value = await fork.run(index, thunks[index], ())
        except RunStopped:
            raise
        except AgentflowError as error:
            errors[index] = error
            await fork.ends(index)
        else:
            result = bare(value)
            if isinstance(result, TaskResult) and result.failed:
                failed[index] = value
                await fork.ends(index)
            elif not crew.settled and await fork.settles(index) and not crew.settled:
                winner.append(index)
                crew.settle()

    crew = fork.crew()
    await fork.work(crew, run)
    if winner:
        fork.join(winner[0])
        return fork.values[winner[0]]
    # No branch succeeded: report by index, since the order of their failures may differ in the next run.
    if failed:
        return failed[max(failed)]
    if not errors:
        raise fork.lost()
    causes = [errors[index] for index in sorted(errors)]
    raise all_failed(causes, span) from causes[-1]


def all_failed(causes: Sequence[AgentflowError], span: Span) -> SexpEvaluationError:
    """The error of a race without a successful branch; ``causes`` are their errors, in order."""
    error = SexpEvaluationError(
        "every branch of the race failed: "
        + "; ".join(f"{each.code}: {cut(each.message, 200)}" for each in causes[:20]),
        code="race/all-failed",
        span=span,
        details={"causes": [each.to_dict() for each in causes[:20]]},
    )
    error.sources = error.sources.union(*[each.sources for each in causes])
    return error
