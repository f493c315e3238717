"""The tool registry: all tools by name, and the one way to run them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import WeakSet

from agentflow.core.call.call import CallContext, EventScope, HostCode
from agentflow.core.call.endings import EndOfTask, Finish, Handoff, Retry, handing_over, with_ending
from agentflow.core.call.host_threads import left_at_work
from agentflow.core.call.provenance import Labelled, unlabelled
from agentflow.core.call.run_port import PAID_TEXT
from agentflow.core.call.work_clock import WorkClock, timed
from agentflow.core.data.durations import reuse_unavailable
from agentflow.core.data.errors import AgentflowError, RunStopped, TaskError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import EVERY, FILES, NameInfo, info_of_schema, out_of_reach
from agentflow.core.data.labels import NO_SOURCES
from agentflow.core.data.message_json import read_part
from agentflow.core.data.messages import TextPart, ToolCallPart, ToolResultPart, ToolSpec, Usage
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.result_notes import Notes
from agentflow.core.data.results import NO_USAGE, TaskResult, warn_of_failure
from agentflow.core.data.values import plain, to_json
from agentflow.core.data.walk import LONG_TEXT, in_slices
from agentflow.core.events.events import ToolStarted
from agentflow.core.events.journal_rows import named_arguments
from agentflow.core.ports.ports import Tool, ToolPort
from agentflow.core.ports.store_ports import ReusePort
from agentflow.core.ports.toolbox import Toolbox
from agentflow.handler.admitting import admitted, fitted
from agentflow.handler.tool_lists import duplicate
from agentflow.handler.tools import SEARCH_TOOLS, tool_from_function, tool_from_spec
from agentflow.lib.read_only import ReadOnlyDict
from agentflow.lib.schema.json_schema import Schema
from agentflow.lib.signature import ToolInputError
from agentflow.lib.text.safe_text import escape
from agentflow.lib.text.suggest import did_you_mean

NO_TOOLS = frozenset[str]()
Entry: TypeAlias = "tuple[Tool, Schema | None]"
"""A tool, and the schema its arguments are checked against."""


class Edition:
    """The tools between two changes, held by the runs that began in between.

    ``kept`` has the tools of this edition that have changed since, by name; None where there was none.
    """

    __slots__ = ("__weakref__", "kept")

    def __init__(self) -> None:
        self.kept: dict[str, Entry | None] = {}


class Editions:
    """The edition that runs begin with, and the earlier ones that runs still hold."""

    def __init__(self) -> None:
        self.current = Edition()
        self._held = WeakSet([self.current])

    def end(self, before: Mapping[str, Entry | None]) -> None:
        """Begin the next edition; ``before`` has the present tool of each name that changes, None for no tool."""
        for edition in self._held:
            edition.kept = {**before, **edition.kept}
        self.current = Edition()
        self._held.add(self.current)


@frozen
class ToolAnswer:
    """The result of one tool call: the ``part`` that the model reads, the ``usage`` of its own model calls, and the
    ``ending`` of the task if it asked for that."""

    part: ToolResultPart
    usage: Usage = NO_USAGE
    ending: EndOfTask | None = None


class ToolTurn:
    """Runs the tool calls of a model's answers, with no more authority than the offered tools.

    Parameters: ``tools`` is the registry, ``call`` a call with the offered tools as grants, and the files to pass on.
    ``usage`` is the total of the tools' own model calls, ``finished`` the results so far of the last answer's calls by their ids.
    """

    __slots__ = ("_call", "_read", "_tools", "ending", "finished", "usage")

    def __init__(self, tools: ToolPort, call: CallContext) -> None:
        self._tools = tools
        self._call = call
        self._read = NO_SOURCES
        """The sources the prompt had read when the model requested the tools of this turn."""
        self.usage = NO_USAGE
        self.finished = dict[str, ToolResultPart]()
        self.ending: EndOfTask | None = None
        """The end of the task that a call of the last answer asked for; the first in their order."""

    def may_end(self, parts: Sequence[ToolCallPart]) -> bool:
        """Whether a call among these is of a tool that ends the task."""
        return any(
            [tool is not None and tool.ends for tool in [self._tools.find(each.name, self._call) for each in parts]]
        )

    async def run(self, parts: Sequence[ToolCallPart]) -> tuple[ToolResultPart, ...]:
        """The results of ``parts``, in their order.

        Consecutive calls run concurrently, as the run's ``Limits.concurrency`` allows; a ``sequential`` tool runs alone,
        in its position. The first error other than a result (TaskError, RunStopped) cancels the others and is raised after
        they have ended.
        """
        call = self._call
        self.finished.clear()
        if call.reading is not None:
            self._read = call.reading.sources
        # Each call gets its path before any of them runs, so that paths below it do not depend on how the calls
        # overlap.
        numbered = [(part, call.at(call.next_path())) for part in parts]
        results: list[ToolAnswer] = []
        if len(numbered) == 1:
            results.append(await self._one(*numbered[0]))
            numbered = []
        together: list[tuple[ToolCallPart, CallContext]] = []
        for part, child in numbered:
            tool = self._tools.find(part.name, call)
            if tool is not None and tool.sequential:
                results += await self._together(together)
                together = []
                results.append(await self._one(part, child))
            else:
                together.append((part, child))
        results += await self._together(together)
        self.ending = next((each.ending for each in results if each.ending is not None), None)
        if self.ending is not None:
            return tuple([_in_time(each, self.ending) for each in results])
        return tuple([each.part for each in results])

    async def _together(self, numbered: list[tuple[ToolCallPart, CallContext]]) -> list[ToolAnswer]:
        if len(numbered) < 2:
            return [await self._one(part, child) for part, child in numbered]
        return await self._call.run.together([partial(self._one, *each) for each in numbered], self._call)

    async def _one(self, part: ToolCallPart, call: CallContext) -> ToolAnswer:
        name = part.name
        if part.invalid:
            return self._refused(
                part, call, f"the arguments are not a JSON object ({part.invalid}); the tool did not run"
            )
        grants = self._call.grants or NO_TOOLS
        if name not in grants or name.startswith(FILES):
            offered = sorted([each for each in grants if not each.startswith(FILES)])
            deferred = self._tools.find(name, call) if SEARCH_TOOLS in grants else None
            if deferred is not None and deferred.defer_loading:
                return self._refused(
                    part, call, f"the tool '{name}' is not loaded yet: find it with {SEARCH_TOOLS} first"
                )
            hint = did_you_mean(name, offered) or f"there are: {', '.join(offered) or 'none'}"
            return self._refused(part, call, f"there is no tool '{clip(name, 120)}'; {hint}")
        reading = call.reading
        if reading is not None:
            labels = dict.fromkeys(part.arguments, NO_SOURCES)
            error = reading.guard.judge(name, labels, self._read, call.span, call, tool=True, arguments=part.arguments)
            if error is not None:
                return self._denied(part, error)
            call.reading = reading.fork(self._read, reading.guard.source_of(name, call))
        answer = await self._recorded(part, call)
        if reading is not None and call.reading is not None:
            sources = call.reading.given()
            reading.add(sources)
            reading.guard.note(name, {}, self._read, sources, call.span)
        if answer.usage is not NO_USAGE:
            self.usage += answer.usage
        self.finished[part.id] = answer.part
        return answer

    async def _recorded(self, part: ToolCallPart, call: CallContext) -> ToolAnswer:
        """The result of a tool, from its record if there is one."""
        journal, reading = call.run.journal, call.reading
        if journal is None:
            return await self._execute(part, call)

        def write(answer: ToolAnswer) -> Any:
            data = {"part": plain(answer.part), "usage": plain(answer.usage)}
            if answer.ending is not None:
                data["ending"] = answer.ending.data
            return data if reading is None else {**data, "sources": sorted(reading.given())}

        def read(data: Any) -> ToolAnswer:
            if reading is not None:
                reading.say(frozenset(data.get("sources", ())), alone=True)
            usage = Usage(**data["usage"])
            ending = EndOfTask(data["ending"]) if "ending" in data else None
            part = cast(ToolResultPart, read_part(data["part"]))
            return ToolAnswer(part, NO_USAGE if usage == NO_USAGE else usage, ending)

        work = partial(self._execute, part, call)
        content = {"the id of the call": part.id, **named_arguments(part.arguments)}
        return await journal.step("tool", part.name, content, call, work, write=write, read=read)

    async def _execute(self, part: ToolCallPart, call: CallContext) -> ToolAnswer:
        result = await self._tools.execute(part.name, part.arguments, call, call_id=part.id)
        parts, text = result.notes.parts or (), _text(result)
        if parts and result.failed:
            parts = (TextPart(text), *[part for part in parts if not isinstance(part, TextPart)])
        edited = result.notes.others.get("approved_arguments")
        if edited is not None:
            told = f"the approver changed the arguments of this call to {to_json(edited)}"
            text, parts = f"{told}\n{text}", (TextPart(told), *parts) if parts else ()
        answer = ToolResultPart(part.id, part.name, text, result.failed, parts)
        return ToolAnswer(answer, result.usage, None if result.failed else result.notes.ending)

    def _denied(self, part: ToolCallPart, error: AgentflowError) -> ToolAnswer:
        hint = "do it without the data from there, or describe the action and the reason"
        return ToolAnswer(ToolResultPart(part.id, part.name, f"error ({error.code}): {error.message}; {hint}", True))

    def _refused(self, part: ToolCallPart, call: CallContext, why: str) -> ToolAnswer:
        call.warn("tool/call-refused", why, tool=clip(part.name, 120), call_id=part.id)
        return ToolAnswer(ToolResultPart(part.id, part.name, f"error: {why}", True))


def _in_time(answer: ToolAnswer, first: EndOfTask) -> ToolResultPart:
    """The result of a call of an answer that ended the task: a second ending says that it came too late."""
    if answer.ending is None or answer.ending is first:
        return answer.part
    return replace(
        answer.part, text="an earlier call of the same answer had ended the task: this one changed nothing", parts=()
    )


def _text(result: TaskResult) -> str:
    if result.failed:
        error = result.notes.error
        if _asks_again(result):
            return result.content
        return f"error ({error.reason}): {result.content}" if error is not None else f"error: {result.content}"
    text = result.content
    if not text and result.parsed_content is not None:
        text = to_json(result.parsed_content)
    failed = [f"error ({each.error.reason}): {each.part}: {each.error.message}" for each in result.failed_parts]
    return "\n".join([text, *failed]) if failed else text


_log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.1
"""Maximum wait before the first retry of a tool; doubles each time up to :data:`RETRY_MOST_S`, with jitter."""
RETRY_MOST_S = 5.0


_REGISTER = "call register_tool(spec, executor), or add_tool(function)"

_DATA: frozenset[type[Any]] = frozenset({list, dict})


class ToolRegistry:
    """All tools by name; the :class:`~agentflow.core.ports.ports.ToolPort` of runtime and turn loop.

    ``specs`` maps names to the specification's dicts, ``executors`` the names of tools registered with an executor of one
    dict to that executor; both are read-only. ``revision`` is another object after each change.

    Parameters: ``absent`` says how to switch on optional tools, by their names; ``reuse`` keeps the results of tools
    declared with it; ``words`` are names that programs cannot call a tool by: using one as a tool's name logs a warning.
    """

    def __init__(
        self,
        absent: Mapping[str, str] | None = None,
        reuse: ReusePort | None = None,
        words: Container[str] = (),
    ) -> None:
        self.words = words
        self._absent = absent or {}
        self._reuse = reuse
        self.specs: ReadOnlyDict[str, dict[str, Any]] = ReadOnlyDict("the specs of tools", _REGISTER)
        self.executors: ReadOnlyDict[str, Callable[..., Any]] = ReadOnlyDict("the executors of tools", _REGISTER)
        self._tools: dict[str, Tool] = {}
        self.revision = object()
        self.defers = False
        self._ordinary: tuple[ToolSpec, ...] | None = None
        self._schemas: dict[str, Schema | None] = {}
        self._infos: dict[str, NameInfo] = {}
        self._editions = Editions()
        self.servers: Collection[str] = ()
        """The names of the MCP servers that offer tools to the flow, connected or not."""

    def add(self, tool: Tool | Callable[..., Any], *, replace: bool = False) -> Tool:
        """Register a Tool or a typed function (see :func:`agentflow.tool`). An already registered tool is left
        unchanged.

        Raises ConfigurationError for a function that cannot be a tool, and for another tool of the same name
        (``tool/duplicate``) unless it is to ``replace`` that.
        """
        registered = tool if isinstance(tool, Tool) else tool_from_function(tool)
        before = None if replace else self._tools.get(registered.name)
        if before is not None:
            if before is registered or (not isinstance(tool, Tool) and before.function == tool):
                return before
            raise duplicate(f"the flow has a tool called '{clip(registered.name, 120)}' already", before, registered)
        if registered.reuse is not None and self._reuse is None:
            raise reuse_unavailable(f"the tool '{registered.name}'")
        self._put(registered)
        self.executors.drop(registered.name)
        return registered

    def register(self, spec: Mapping[str, Any], executor: Callable[..., Any]) -> None:
        """Register the specification's ``{"name", "description", "input_schema"}`` with its executor of one dict.

        Replaces one of the same name, which is logged as a warning. Raises ConfigurationError for an invalid spec.
        """
        tool = tool_from_spec(spec, executor)
        if tool.name in self._tools and self.executors.get(tool.name) is not executor:
            _log.warning("the tool %s is registered again, and replaces the one that was there", escape(tool.name))
        self._put(tool, dict(spec))
        self.executors.put(tool.name, executor)

    def set_executor(self, name: str, executor: Callable[..., Any]) -> None:
        """Replace the executor of the tool called ``name`` by a function of one dict; the tool's spec stays.

        A new name becomes a tool that takes any arguments, offered to a model only if a task names it. Raises ConfigurationError.
        """
        tool, spec = self._tools.get(name), self.specs.get(name)
        if tool is None or spec is None:
            spec = {"name": name, "description": inspect.getdoc(executor) or "", "input_schema": {"type": "object"}}
            tool = replace(tool_from_spec(spec, executor), builtin=True)
        else:
            call = tool_from_spec(spec, executor).call
            tool = replace(tool, call=call, kind="direct", validates=False, function=executor, task=None)
        self._put(tool, spec)
        self.executors.put(name, executor)

    def _put(self, tool: Tool, spec: dict[str, Any] | None = None) -> None:
        shown = tool.spec
        if tool.name in self.words:
            _log.warning(out_of_reach("tool", tool.name))
        self._tools[tool.name] = tool
        self.defers = self.defers or tool.defer_loading
        self._infos.pop(tool.name, None)
        self._changed()
        self._schemas[tool.name] = None if tool.validates else Schema(shown.input_schema)
        described = {"name": shown.name, "description": shown.description, "input_schema": shown.input_schema}
        self.specs.put(tool.name, spec or described)

    def _changed(self) -> None:
        self.revision = object()
        self._ordinary = None

    def remove(self, name: str) -> bool:
        """Remove a tool. Returns whether there was one."""
        self._changed()
        self._infos.pop(name, None)
        self.specs.drop(name)
        self.executors.drop(name)
        return self._tools.pop(name, None) is not None

    def exchange(self, gone: Iterable[str], new: Iterable[Tool]) -> None:
        """Remove the tools called ``gone`` and register the ``new`` ones; runs that have begun keep the tools they had."""
        gone, new = tuple(gone), tuple(new)
        before = {name: self._entry(name) for name in (*gone, *[tool.name for tool in new])}
        for name in gone:
            self.remove(name)
        for tool in new:
            self.add(tool, replace=True)
        self._editions.end(before)

    @property
    def edition(self) -> Edition:
        return self._editions.current

    def _entry(self, name: str) -> Entry | None:
        tool = self._tools.get(name)
        return None if tool is None else (tool, self._schemas[name])

    def _kept(self, call: CallContext | None) -> Mapping[str, Entry | None]:
        """The tools, by name, that the run of ``call`` keeps although they have changed since it began."""
        edition = None if call is None else call.run.tools
        return edition.kept if isinstance(edition, Edition) else {}

    def find(self, name: str, call: CallContext | None = None) -> Tool | None:
        """The tool called ``name`` in the run of ``call`` (None: in one that begins now), or None.

        Where the model of a task calls, the objects that the task was given come first.
        """
        if call is not None and call.toolbox is not None and name in call.toolbox:
            return call.toolbox[name]
        kept = self._kept(call)
        if name in kept:
            entry = kept[name]
            return None if entry is None else entry[0]
        return self._tools.get(name)

    def offers(self, name: str) -> bool:
        return name.removesuffix(EVERY) in self.servers

    def hint_for(self, name: str) -> str | None:
        return self._absent.get(name) or did_you_mean(name, self._tools)

    def describe(self, name: str) -> NameInfo | None:
        info = self._infos.get(name)
        if info is None and name in self._tools:
            info = self._infos[name] = info_of_schema("tool", self._tools[name].spec.input_schema)
        return info

    def names(self) -> list[str]:
        return sorted(self._tools)

    def ordinary(self, call: CallContext | None = None) -> tuple[ToolSpec, ...]:
        kept = self._kept(call)
        if kept:
            tools = {**self._tools, **{name: entry[0] for name, entry in kept.items() if entry is not None}}
            return _ordinary([tools[name] for name in sorted(tools) if kept.get(name, ()) is not None])
        if self._ordinary is None:
            self._ordinary = _ordinary([self._tools[name] for name in self.names()])
        return self._ordinary

    async def execute(
        self,
        name: str,
        arguments: dict[str, Any],
        call: CallContext,
        *,
        call_id: str | None = None,
        within: EventScope | None = None,
    ) -> TaskResult:
        """Check grants, arguments and approval, then run the tool with its time-out and retries, between Tool events.

        Middleware around the call comes first: the flow's, the run's, the task's and the tool's own. The order after it is
        that of :mod:`agentflow.handler.admitting`. If the approver changed the arguments, the result has the note
        ``approved_arguments``.
        """
        scope = within or call.scope(ToolStarted, name=name, arguments=arguments, call_id=call_id)
        inner = scope.call
        if call_id is not None:
            inner.call_id = call_id
        tool, schema = self._usable(name, inner)
        if within is None and isinstance(tool, Tool):
            if tool.deps is not None:
                inner.require_deps(tool.deps, f"the tool '{tool.name}'")
            if tool.external:
                scope.change(external=True)
            middleware = inner.run.around_tool
            if inner.toolbox is not None:
                middleware += cast(Toolbox, inner.toolbox).around_tool
            if tool.around:
                middleware = (*middleware, *tool.around)
            if middleware:
                from agentflow.handler.around_tools import WrappedCall  # which few flows have

                return await WrappedCall(tool, middleware, scope, self).result(arguments, call_id)
        inner.toolbox = None  # which is the model's: the work of the tool finds the tools of the flow
        edited = False
        if isinstance(tool, Tool) and (tool.approval or tool.prepare is not None):
            tool, arguments, edited = await admitted(tool, schema, arguments, inner)
            if edited:
                scope.change(arguments=arguments)
        elif isinstance(tool, Tool) and (schema is not None or type(arguments) is not dict):
            tool, arguments = await fitted(tool, schema, arguments)
        may_repeat = not isinstance(tool, Tool) or tool.idempotent is not False or tool.resumes
        if not may_repeat and inner.run.journal is not None:
            tool = tool if await inner.run.journal.begin(inner) else _started_before(name)
        if isinstance(tool, Tool) and tool.reuse is not None and self._reuse is not None:
            grants = None if call.grants is None else sorted(call.grants)
            content = [arguments, tool.spec.input_schema, grants, tool.reference]
            work = partial(self._run, tool, scope, arguments)
            result = await self._reuse.once(tool, content, tool.reuse, inner, work)
        else:
            result = await self._run(tool, scope, arguments)
        if edited:
            result = result.with_notes(approved_arguments=arguments)
        if result.status != "CONTINUATION":
            return result
        return await _continued(name, result, call, tool.task if isinstance(tool, Tool) else None)

    async def _run(self, tool: Tool | TaskResult, scope: EventScope, arguments: dict[str, Any]) -> TaskResult:
        """Run a tool that may run, between its events."""
        inner = scope.call
        with scope:
            if isinstance(tool, Tool):
                result = await (_with_retries if tool.retries else _once)(tool, arguments, inner)
                longest, size = inner.run.limits.output_chars, len(result.content)
                if size > PAID_TEXT:
                    inner.run.charge_text(size)
                if size > longest:
                    result = _capped(result, longest)
                if size > LONG_TEXT and scope.watched:
                    await inner.run.examine(result)
            else:
                result = tool
            if scope.watched:
                scope.set(result=result)
        return result

    def _usable(self, name: str, call: CallContext) -> tuple[Tool | TaskResult, Schema | None]:
        """The tool called ``name`` and the schema of its arguments; the FAILED result if there is none, or it may not be called here."""
        own = None if call.toolbox is None else cast(Toolbox, call.toolbox).entry(name)
        if own is not None:
            return own
        kept = self._kept(call)
        entry = kept[name] if name in kept else self._entry(name)
        if entry is None:
            hint = self._absent.get(name) or did_you_mean(name, self._visible(call))
            failure = TaskResult.failure(
                "input_validation_failure",
                f"there is no tool '{clip(name, 120)}'" + (f"; {hint}" if hint else ""),
                details={"cause": "tool_not_found", "code": "tool/unknown", "hint": hint},
            )
            return failure, None
        if call.grants is not None and name not in call.grants:
            failure = TaskResult.failure(
                "input_validation_failure",
                f"the tool '{name}' is not granted here; granted are {', '.join(sorted(call.grants)) or 'none'}",
                details={"cause": "not_granted", "code": "tool/not-granted"},
            )
            return failure, None
        return entry

    def _visible(self, call: CallContext) -> list[str]:
        return [name for name in self.names() if call.grants is None or name in call.grants]


def _ordinary(tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    return tuple([tool.spec for tool in tools if not tool.builtin])


def _started_before(name: str) -> TaskResult:
    return TaskResult.failure(
        "tool_execution_error",
        f"the run was interrupted while the tool '{name}' worked, and its progress is unknown",
        details={
            "cause": "in_flight",
            "code": "durable/in-flight",
            "hint": "check its effects before it is repeated",
        },
    )


async def _with_retries(tool: Tool, arguments: dict[str, Any], call: CallContext) -> TaskResult:
    attempt, others = 0, left_at_work(call)
    while True:
        result = await _once(tool, arguments, call)
        last = attempt >= tool.retries or not left_at_work(call) <= others
        if last or not result.failed or _is_input_fault(result):
            return result.with_notes(tool_attempts=attempt + 1) if attempt else result
        wait = min(RETRY_MOST_S, RETRY_FIRST_S * 2**attempt) * random.uniform(0.5, 1.0)
        attempt += 1
        call.warn("tool/retried", f"tool '{tool.name}' failed and is tried again", attempt=attempt, wait_s=wait)
        await asyncio.sleep(wait)


def _is_input_fault(result: TaskResult) -> bool:
    error = result.notes.error
    return _asks_again(result) or (error is not None and error.reason == "input_validation_failure")


def _asks_again(result: TaskResult) -> bool:
    """Whether a tool, or middleware around it, has raised Retry, now or in its record."""
    error = result.notes.error
    return error is not None and error.details.get("code") == Retry.default_code


async def _once(tool: Tool, arguments: dict[str, Any], call: CallContext) -> TaskResult:
    timer: asyncio.Timeout | None = None
    value: Any
    try:
        with HostCode(call) as code:
            if tool.timeout_s is None:
                value = await code.to_end(tool.call(arguments, call), f"the tool '{tool.name}'")
            else:
                timer = asyncio.timeout(tool.timeout_s)
                with timed(WorkClock(tool.timeout_s, timer)):
                    async with timer:
                        value = await code.to_end(tool.call(arguments, call), f"the tool '{tool.name}'")
            if type(value) is Labelled:
                value = unlabelled(value, call.reading)
            if type(value) in _DATA and tool.kind != "subtask":
                value = await in_slices(TaskResult.of_data(value, guess=not tool.declares_data))
            if type(value) is Handoff:
                return handing_over(tool.name, value, call)
            return (
                with_ending(tool.name, _result(tool, value, call), value) if tool.ends else _result(tool, value, call)
            )
    except (TaskError, RunStopped):
        raise
    except Finish as finish:
        return with_ending(tool.name, TaskResult.of(finish.value), finish.value)
    except ToolInputError as error:
        return TaskResult.from_error(error)
    except ExceptionGroup as group:
        # A tool's own task group wraps errors that must pass through; any others in it are one failure of the tool.
        passing = next(_leaves(group, (RunStopped,)), None) or next(_leaves(group, (TaskError,)), None)
        if passing is not None:
            raise passing from None
        return TaskResult.from_error(group, reason="tool_execution_error")
    except Exception as error:  # noqa: BLE001 - foreign code: any exception of a tool becomes its FAILED result
        if timer is not None and isinstance(error, TimeoutError) and timer.expired():
            return _timed_out(tool, call)
        _log.debug("tool %s raised %s", tool.name, type(error).__name__)
        return TaskResult.from_error(error, reason="tool_execution_error")


def _timed_out(tool: Tool, call: CallContext) -> TaskResult:
    said = f"the tool '{tool.name}' took longer than its {tool.timeout_s:g} s"
    details: dict[str, Any] = {"code": "tool/timeout", "timeout_s": tool.timeout_s}
    if left_at_work(call):
        said += "; its thread still works and may yet take effect, so it is not tried again"
        details |= {
            "still_at_work": True,
            "hint": "give the client that it uses a time-out, or make it an async function",
        }
    return TaskResult.failure("execution_timeout", said, details=details)


def _leaves(group: BaseExceptionGroup[Any], kinds: tuple[type[Exception], ...]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast(BaseExceptionGroup[Any], error), kinds)
        elif isinstance(error, kinds):
            yield error


def _result(tool: Tool, value: object, call: CallContext) -> TaskResult:
    if SubtaskRequest in type(value).__mro__:  # to ask isinstance of a mapping's class takes ten times as long
        return TaskResult("CONTINUATION", notes=Notes(subtask_request=cast(SubtaskRequest, value)))
    if tool.kind == "subtask" and isinstance(value, dict):
        return TaskResult("CONTINUATION", notes=Notes(subtask_request=SubtaskRequest.of(cast(object, value))))
    result = TaskResult.of(value)
    if result.status == "FAILED" or (type(result.parsed_content) is dict and not tool.declares_data):
        warn_of_failure(result, call.warn)
    return result


async def _continued(name: str, result: TaskResult, call: CallContext, task: Any) -> TaskResult:
    request = result.notes.subtask_request
    if request is None:
        return TaskResult.failure(
            "subtask_failure",
            f"the tool '{name}' gave a CONTINUATION without notes['subtask_request']",
            details={"code": "tool/no-subtask-request"},
        )
    return await call.run.run_subtask(request, call, task)


def _capped(result: TaskResult, limit: int) -> TaskResult:
    content = result.content
    half = max(1, limit // 2)
    cut = len(content) - 2 * half
    excerpt = f"{content[:half]}\n... ({cut:,} characters left out) ...\n{content[-half:]}"
    notes: dict[str, Any] = {"truncated": {"characters": len(content), "limit": limit}}
    if result.notes.parts:
        media = [part for part in result.notes.parts if not isinstance(part, TextPart)]
        notes["parts"] = (TextPart(excerpt), *media)
    return replace(result, content=excerpt).with_notes(**notes)
