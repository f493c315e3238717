"""``run``: run a program, show its events, print its value."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import agentflow
from agentflow.cli.shared.common import (
    CompileFailed,
    Exit,
    UsageError,
    events_to_file,
    exit_code,
    is_compile_error,
    parse_bindings,
    show_error,
    write_json,
    write_out,
)
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.options import FlowOptions, WatchOptions
from agentflow.cli.shared.printed_values import FailedTexts, problems, result_exit_code, show_value
from agentflow.cli.shared.progress import AnswerText, Progress
from agentflow.cli.shared.references import arguments_for, function_named, is_reference, resolve
from agentflow.cli.shared.run_options import RunCommandOptions
from agentflow.cli.shared.terminal import same_screen
from agentflow.cli.shared.wrapping import columns, say, wrapped
from agentflow.core.data.errors import AgentflowError, UnboundSymbolError, WorkflowError
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.values import plain
from agentflow.core.events.events import Event, Log, WaitFinished, WaitStarted, Warning
from agentflow.lang.answers import answer_spans
from agentflow.lib.text.safe_text import clean
from agentflow.observe.files import event_line
from agentflow.settings import read_file

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.flow.python_functions import Declared
    from agentflow.observe.report.observer import Report
    from agentflow.run.handle import RunResult

FlowOptionsT = TypeVar("FlowOptionsT", bound=FlowOptions)


class Denials:
    """An observer of a flow that denies nothing: ``listed`` are the calls that its policy would have denied, in order."""

    def __init__(self) -> None:
        self.listed: list[Mapping[str, Any]] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Warning) and event.code == "provenance/denied":
            where = "" if event.span is None else f"{event.span.line}:{event.span.column}"
            self.listed.append({**(event.details or {}), "at": where})

    def text(self) -> str:
        """A line for each, or one line if there are none."""
        if not self.listed:
            return "the policy would have denied nothing"
        lines = [f"the policy would have denied {len(self.listed)} effect{'s' * (len(self.listed) != 1)}:"]
        for each in self.listed:
            refused, trail = ", ".join(each.get("refused", ())), " -> ".join(each.get("trail", ()))
            lines.append(f"  '{each.get('argument')}' of {each.get('name')}: {refused} may not reach it ({trail})")
        return "\n".join(lines)


class Said:
    """An observer that writes messages of programs (``print``, ``log-message``) and warnings to ``stream``, a line each.

    ``clean`` is applied to them: they may contain text from a model.
    """

    def __init__(self, stream: TextIO, clean: Callable[[str], str]) -> None:
        self._stream = stream
        self._clean = clean

    def __call__(self, event: Event) -> None:
        match event:
            case Log() if event.level != "debug":
                self._write(event.message)
            case Warning():
                self._write(f"warning[{event.code}]: {event.message}")
            case _:
                pass

    def _write(self, text: str) -> None:
        say(self._clean(text), self._stream)


class AwaitedSignals:
    """An observer of runs that are not durable: it writes which signal a run waits for, and how one would be sent, once it has waited
    for a second. Only code of this process can send one."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._late: dict[tuple[str, int], asyncio.TimerHandle] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, WaitStarted) and event.signal:
            later = asyncio.get_running_loop().call_later(_PATIENCE_S, self._write, _awaits(event.signal))
            self._late[event.run_id, event.seq] = later
        elif (
            isinstance(event, WaitFinished)
            and (late := self._late.pop((event.run_id, event.started), None)) is not None
        ):
            late.cancel()


def _awaits(name: str) -> str:
    command = shlex.join(["agentflow", "runs", "signal", "RUN", name, "VALUE"])
    return (
        f"the run waits for the signal '{name}', which no other process can send to it\n  hint: run it with --durable, then send the"
        f" signal with {command}; a timeout in the program bounds the wait"
    )


_PATIENCE_S = 1.0
_SHOWN_ERRORS = 5


@contextlib.asynccontextmanager
async def watching(
    flow: AgentFlow, options: WatchOptions, answer: AnswerText | None = None
) -> AsyncGenerator[FailedTexts, None]:
    """Subscribe the requested observers: progress lines, or the program's messages, JSON lines on standard output, a file
    of JSON lines.

    ``answer`` is written as it streams. Yields the texts of failed results of the runs.
    """
    failed = FailedTexts()
    flow.subscribe(failed)

    def shown(text: str) -> str:
        return flow.redact(clean(text))

    if (file := read_file(Path())) is not None:
        say(shown(file.told()))
    if options.progress or (options.progress is None and sys.stderr.isatty()):
        live = not (options.events and same_screen(sys.stdout, sys.stderr))
        flow.subscribe(Progress(sys.stderr, clean=shown, answer=answer, live=live))
    elif answer is not None:

        def write(event: Event) -> None:
            if piece := answer.piece(event):
                answer.write(shown(piece))
            if answer.ends(event):
                answer.end_line()

        flow.subscribe(write)
    if options.progress is None and not sys.stderr.isatty():
        flow.subscribe(Said(sys.stderr, shown))
    if not flow.is_durable:
        flow.subscribe(AwaitedSignals(lambda text: say(shown(text))))
    if options.otel:
        from agentflow.observe.otel import OpenTelemetry

        flow.subscribe(OpenTelemetry())
    if options.events:

        def line(event: Event) -> None:
            write_out(event_line(event, flow.redact) + "\n")

        flow.subscribe(line)
    report = None
    if options.report is not None:
        from agentflow.observe.report.observer import Report
        from agentflow.providers.shown import wire_of

        report = Report(wire=wire_of(flow.router))
        flow.subscribe(report)
    denials = Denials()
    if options.explain:
        flow.subscribe(denials)
    async with _written(report, options.report), events_to_file(flow, options.events_file):
        yield failed
    if options.explain:
        say(shown(denials.text()))


@contextlib.asynccontextmanager
async def _written(report: Report | None, path: str | None) -> AsyncGenerator[None, None]:
    """Write the report when the run has ended, with or without an error."""
    if report is None or path is None:
        yield
        return
    try:
        yield
    except BaseException:  # write a report of an interrupted run as well, then raise again
        with contextlib.suppress(AgentflowError, OSError):  # the run's own error is the one to show
            await report.write(path)
        raise
    try:
        await report.write(path)
    except OSError as error:
        raise UsageError(f"the report cannot be written to {path}: {error.strerror or error}") from error


async def execute_function(reference: str, options: RunCommandOptions) -> int:
    """Run a Python workflow and print its value. Returns the exit code. Raises UsageError."""
    if options.allow is not None:
        raise UsageError("--allow limits a program text, and a Python workflow is your own code", hint="leave it out")
    function, options = function_asked(reference, options)
    as_json = options.as_json or options.events
    async with open_flow(options) as flow, watching(flow, options) as failed:
        function = function or function_named(flow, reference, f"--app {options.app}")
        arguments = arguments_for(function, options.bind or (), reference)
        try:
            result = await flow.run(function(**arguments), purse=options.purse)
        except AgentflowError as error:
            show_error(error, as_json=as_json)
            return exit_code(error)
        except Exception as error:  # noqa: BLE001 - of the user's own code, as it would be recorded
            said = f"{function.name} raised {type(error).__name__}: {error}"
            show_error(WorkflowError(said, code="host/raised", hint=raised_at(error)), as_json=as_json)
            return Exit.FAILED
        return show_result(flow, result, options, failed, "python")


def function_asked(reference: str, options: FlowOptionsT) -> tuple[Declared[..., Any] | None, FlowOptionsT]:
    """The function that ``reference`` means, and the options with its flow as ``--app``; None for a name in the flow of
    ``--app``, which is not loaded yet. Raises UsageError."""
    if not is_reference(reference):
        return None, options
    function, app = resolve(reference, options.app)
    return function, replace(options, app=app)


def raised_at(error: BaseException | None) -> str | None:
    """The function and line that raised the exception of a Python workflow's own code; None for one that comes from a record."""
    ours = str(Path(agentflow.__file__).parent)
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    theirs = [each for each in frames if not each.filename.startswith(ours)]
    return f"in {theirs[-1].name}, {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else None


async def execute(name: str, text: str, options: RunCommandOptions) -> int:
    """Compile and run a program text and print its value. Returns the exit code. Raises UsageError."""
    bindings, allow, as_json = parse_bindings(options.bind or []), options.allow, options.as_json or options.events
    spans: frozenset[tuple[int, int]] = frozenset()
    answer = None
    if sys.stdout.isatty() and not as_json:  # otherwise the value is written once, when it is complete
        answer = AnswerText(
            sys.stdout, lambda task: task.span is not None and (task.span.start, task.span.end) in spans
        )
    async with open_flow(options) as flow, watching(flow, options, answer) as failed:
        try:
            program = flow.compile(Source.of(name, text), bindings=bindings, allow=allow)
            if answer is not None:
                spans = answer_spans(program, flow.engine.names())
        except AgentflowError as error:
            raise (CompileFailed(error) if is_compile_error(error) else error) from error
        try:
            result = await flow.run(program, bindings=bindings, allow=allow, purse=options.purse)
        except AgentflowError as error:
            if error.code == "name/unbound" and isinstance(error, UnboundSymbolError) and not error.hint:
                error.hint = f"define it, or bind it: -b {error.name}=VALUE"
            if answer is not None and answer.text:
                say("the answer above was cut off and is not a result")
            show_error(error, as_json=as_json)
            return exit_code(error)
        return show_result(flow, result, options, failed, program.surface, "" if answer is None else answer.last)


def show_result(
    flow: AgentFlow,
    result: RunResult,
    options: WatchOptions,
    texts: FailedTexts,
    surface: Surface = "sexp",
    shown: str = "",
) -> int:
    """Print the value of a run in the notation of ``surface``, except for the text ``shown`` while it was streaming.
    Returns the exit code.

    A value that equals the text of a failed result (``texts``) is a failure, like that result.
    """
    value = result.value
    errors = problems(value) or texts.behind(value)
    code = result_exit_code(errors)
    if options.as_json or options.events:
        body = {
            **({"type": "result"} if options.events else {}),
            "ok": code == Exit.OK,
            "value": plain(value),
            "run_id": result.run_id,
            "usage": plain(result.usage),
            "cost_usd": result.cost,
            **({} if flow.engine.provenance is None else {"sources": sorted(result.sources)}),
        }
        write_json(flow.redact(body))
        return code
    failed = isinstance(value, TaskResult) and value.failed
    text = "" if failed else show_value(value, surface)
    if not failed and not (shown and text.strip() == clean(shown).strip()):
        text = flow.redact(text)
        is_prose = isinstance(value, str | TaskResult) and sys.stdout.isatty()  # elsewhere it is data
        write_out((wrapped(text, columns(sys.stdout)) if is_prose else text) + "\n")
    for error in errors[:_SHOWN_ERRORS]:
        show_error(error)
    if len(errors) > _SHOWN_ERRORS:
        say(f"... and {len(errors) - _SHOWN_ERRORS} more results have failed")
    return code
