"""The methods of :class:`agentflow.AgentFlow` that code of a workflow does its work with: branches, recovery, single effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from agentflow.core.data.source import Surface
from agentflow.core.events.effects import AskHuman, Draw, Effect, Endorse, GetContext, Solve, Step, Timer, ToolCall
from agentflow.flow.line import Line
from agentflow.flow.program_files import check_surface
from agentflow.flow.python import EffectCall, FlowCall, WorkCall, check_arguments
from agentflow.flow_python import PythonMethods
from agentflow.handler.tools import as_async
from agentflow.lang.builtins.results import value_of
from agentflow.run.strand import branches
from agentflow.tasks.from_function import adapter_of

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")


class OperationMethods(PythonMethods):
    """What Python code does as programs do. A base of :class:`agentflow.AgentFlow`.

    Each method gives a call, to be awaited: in a workflow, where it is numbered; in a tool; or elsewhere, as a run.
    """

    # -- branches ---------------------------------------------------------------------------------------------------

    def map(
        self, function: Callable[[A], Awaitable[B]], items: Iterable[A], *, limit: int | None = None
    ) -> FlowCall[list[B]]:
        """What ``function`` gives for each item, in order: a branch each, at most ``limit`` at once.

        ``function`` is a task, a workflow or any async function. The first failure cancels the other branches, and is
        raised when all have ended.
        """
        span = self.spans.here()
        return WorkCall(self, "flow.map", span, lambda line: line.map(function, items, limit, span))

    @overload
    def parallel(self, a: Awaitable[A], b: Awaitable[B], /) -> FlowCall[tuple[A, B]]: ...
    @overload
    def parallel(self, a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> FlowCall[tuple[A, B, C]]: ...
    @overload
    def parallel(
        self, a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
    ) -> FlowCall[tuple[A, B, C, D]]: ...
    @overload
    def parallel(self, *parts: Awaitable[T]) -> FlowCall[tuple[T, ...]]: ...
    def parallel(self, *parts: Awaitable[Any]) -> FlowCall[tuple[Any, ...]]:
        """What each of ``parts``, calls or coroutines that have not begun, gives: a branch each.

        The first failure cancels the other branches, and is raised when all have ended.
        """
        span = self.spans.here()

        async def work(line: Line) -> tuple[Any, ...]:
            return tuple(await line.fork(branches.parallel, parts, span))

        return WorkCall(self, "flow.parallel", span, work, parts=parts)

    def race(self, *parts: Awaitable[T]) -> FlowCall[T]:
        """What the first of ``parts`` that succeeds gives; the others are cancelled and have ended.

        Raises SexpEvaluationError (``race/all-failed``) when none does.
        """
        span = self.spans.here()
        return WorkCall(self, "flow.race", span, lambda line: line.fork(branches.race, parts, span), parts=parts)

    # -- recovery ---------------------------------------------------------------------------------------------------

    def timeout(self, seconds: float, part: Awaitable[T]) -> FlowCall[T]:
        """What ``part`` gives within so many seconds. Raises TaskError (``timeout/elapsed``) when they are over."""
        span = self.spans.here()
        return WorkCall(self, "flow.timeout", span, lambda line: line.timeout(seconds, part, span), parts=(part,))

    def retry(self, times: int, function: Callable[[], Awaitable[T]]) -> FlowCall[T]:
        """What ``function()`` gives, called again, after a pause that grows, when a task or tool fails in it.

        ``times`` is the number of calls in all; the error of the last one is raised. Errors of your own end it at once.
        """
        span = self.spans.here()
        return WorkCall(self, "flow.retry", span, lambda line: line.retry(times, function, span))

    # -- single effects ---------------------------------------------------------------------------------------------

    def call_tool(self, name: str, /, **arguments: Any) -> FlowCall[Any]:
        """What the tool of this name gives. Raises the error of a FAILED result."""
        if arguments:
            check_arguments(name, (), arguments)
        return EffectCall(self, name, self.spans.here(), ToolCall(name, arguments), value_of)

    def context(self, query: str, **options: Any) -> FlowCall[list[str]]:
        """The paths of the files that ``query`` is about, best first. The options are those of ``get_context``."""
        return self._effect("flow.context", GetContext({"query": query, **options}), list[str])

    def solve(
        self,
        goal: str,
        *,
        allow: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
        max_rounds: int = 3,
        explore: bool = False,
        surface: Surface | None = None,
        max_model_calls: int | None = None,
    ) -> FlowCall[Any]:
        """What a program gives that a model writes for ``goal``; it may call the tasks and tools in ``allow`` alone.

        ``inputs`` are its variables; ``max_rounds`` how often the model may try. With ``explore`` a program is tried out before it
        may act, without calling anything, and the errors it may come to go back to the model. ``surface`` is the language it writes in,
        ``"sexp"`` or ``"python"`` (None: the flow's); ``max_model_calls`` bounds the model calls of writing and running programs
        together. Raises the error of a FAILED result.
        """
        effect = Solve(
            goal,
            tuple(allow),
            max_rounds,
            dict(inputs or {}),
            explore=explore,
            surface=check_surface(surface),
            max_model_calls=max_model_calls,
        )
        return self._effect("flow.solve", effect, value_of)

    @overload
    def step(self, function: Callable[P, Awaitable[T]], /, *arguments: P.args, **named: P.kwargs) -> FlowCall[T]: ...
    @overload
    def step(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> FlowCall[T]: ...
    def step(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> FlowCall[Any]:
        """What a function of your own gives, recorded: a durable run that is resumed does not call it again.

        The function is async or plain, which runs in a thread. What it gives must be data, or be annotated with a type that
        pydantic writes and reads; else a durable run raises ConfigurationError before it is called, or DataError after
        (``durable/no-value``). Raises SexpEvaluationError (``host/raised``) for its exception, which is the cause. One that was at
        work when the process was killed is called again.
        """
        name = getattr(function, "__qualname__", type(function).__name__)
        check_arguments(name, arguments, named)
        run, span = as_async(function), self.spans.here()

        async def with_names(*values: Any) -> Any:
            return await run(*values[:-1], **values[-1])

        effect = (
            Step(with_names, (*arguments, named), name, function) if named else Step(run, arguments, name, function)
        )
        return WorkCall(self, name, span, lambda line: line.perform(effect, span))

    @overload
    def ask_human(self, question: str) -> FlowCall[Any]: ...
    @overload
    def ask_human(self, question: str, output: type[T]) -> FlowCall[T]: ...
    @overload
    def ask_human(self, question: str, output: Any) -> FlowCall[Any]: ...
    def ask_human(self, question: str, output: Any = None) -> FlowCall[Any]:
        """What somebody answers, which is of the type ``output``, or any data: ``await flow.ask_human("Pay 20 EUR?", bool)``.

        A durable run that has nothing else to do leaves the memory until somebody answers, see ``flow.send``; any other one
        asks the flow's ``answer=``. Raises SexpEvaluationError (``question/unanswered``), ConfigurationError
        (``python/returns``) for a type without a JSON Schema.
        """
        if output is None:
            return self._effect("flow.ask_human", AskHuman(question), lambda answer: answer)
        adapter, schema = adapter_of(output, "flow.ask_human")
        return self._effect("flow.ask_human", AskHuman(question, schema), adapter.validate_python)

    def endorse(self, value: T, reason: str) -> FlowCall[T]:
        """``value``, for which you answer from now on: ``to = await flow.endorse(address, "looked up by hand")``.

        In a flow with a policy it may then be passed, as a whole, to any argument of a call in this workflow or tool as if the user had
        said it; what code makes of it may not, nor may other values that it has read. It is recorded, and published as the event
        ``Endorsed``; code with fewer rights than the host's needs the grant ``endorse`` and an approval
        (``provenance/not-endorsed``).
        """
        check_arguments("flow.endorse", (value,), {})
        span = self.spans.here()

        async def work(line: Line) -> T:
            await line.perform(Endorse((value, reason)), span)
            return value

        return WorkCall(self, "flow.endorse", span, work)

    def sleep(self, seconds: float) -> FlowCall[None]:
        """Wait. A durable run that is interrupted meanwhile waits for what is left."""
        return self._effect("flow.sleep", Timer(seconds), lambda _: None)

    def now(self) -> FlowCall[float]:
        """The time, in unix seconds; a durable run that is resumed is given the same again."""
        return self._effect("flow.now", Draw("now"), float)

    @overload
    def random(self) -> FlowCall[float]: ...
    @overload
    def random(self, below: int) -> FlowCall[int]: ...
    def random(self, below: int | None = None) -> FlowCall[Any]:
        """A random number from 0 to 1, or an integer from 0 that is less than ``below``; recorded as :meth:`now`."""
        return self._effect("flow.random", Draw("random", below), lambda drawn: drawn)

    def uuid(self) -> FlowCall[str]:
        """A random UUID as text; recorded as :meth:`now`."""
        return self._effect("flow.uuid", Draw("uuid"), str)

    def _effect(self, name: str, effect: Effect, read: Callable[[Any], T]) -> FlowCall[T]:
        return EffectCall(self, name, self.spans.here(2), effect, read)
