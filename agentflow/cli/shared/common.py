"""Shared by the commands: exit codes, showing errors, reading programs, running the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentflow.cli.shared.python_files import command_for_module
from agentflow.cli.shared.wrapping import columns, say, wrapped
from agentflow.core.call.daemon_threads import DaemonThreads
from agentflow.core.data.errors import (
    AgentflowError,
    ConfigurationError,
    DataError,
    LimitExceeded,
    ProviderError,
    SexpEvaluationError,
    SexpSyntaxError,
)
from agentflow.core.data.source import is_file_name
from agentflow.lib.distribution import install
from agentflow.lib.text.safe_text import clean

if TYPE_CHECKING:
    from agentflow.app import AgentFlow

T = TypeVar("T")


class Exit(IntEnum):
    """Exit codes of the command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DIAGNOSTICS = 3
    PROVIDER = 4
    LIMIT = 5
    WAITING = 75
    TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


_THREADS = 32
PROVIDER_REASONS = {"llm_error", "connection_error", "protocol_error", "configuration_error"}
_DIRECTORY_CODES = {"memory/root", "tasks/unreadable-file"}
_MODEL_CODES = {"config/no-key", "config/no-model", "config/unknown-provider"}


class UsageError(AgentflowError):
    """The command line is invalid: a file does not exist, a binding has no value."""

    default_code = "cli/usage"


class CompileFailed(Exception):
    """A program did not compile, so nothing ran."""

    def __init__(self, error: AgentflowError) -> None:
        super().__init__(str(error))
        self.error = error


def exit_code(error: BaseException) -> Exit:
    """The exit code for an error."""
    if isinstance(error, CompileFailed | SexpSyntaxError):
        return Exit.DIAGNOSTICS
    if isinstance(error, UsageError) or (isinstance(error, DataError) and error.code in _DIRECTORY_CODES):
        return Exit.USAGE
    if isinstance(error, LimitExceeded):
        return Exit.TIMEOUT if error.limit == "wall_s" else Exit.LIMIT
    if isinstance(error, ProviderError):
        return Exit.PROVIDER
    if isinstance(error, ConfigurationError):
        return Exit.PROVIDER if error.code in _MODEL_CODES or error.code.startswith("provider/") else Exit.USAGE
    if isinstance(error, AgentflowError) and error.reason in PROVIDER_REASONS:
        return Exit.PROVIDER
    return Exit.FAILED


def show_error(error: BaseException, *, as_json: bool = False, colours: bool = True) -> None:
    """Write an error to standard error, and with ``as_json`` also as JSON to standard output.

    Without ``colours`` no package of the extra is needed.
    """
    inner = error.error if isinstance(error, CompileFailed) else error
    if as_json:
        from agentflow.core.data.values import plain

        body = (
            inner.to_dict()
            if isinstance(inner, AgentflowError)
            else {"code": "internal/error", "message": f"{type(inner).__name__}: {inner}"}
        )
        write_json({"ok": False, "error": plain(body)})
    text = inner.render() if isinstance(inner, AgentflowError) else f"error: {type(inner).__name__}: {inner}"
    if isinstance(inner, ProviderError) and inner.partial:
        text += f"\n  received before the failure, not a result: {inner.partial[-300:]!r}"
    text = wrapped(clean(text), columns(sys.stderr))
    if not colours:
        print(text, file=sys.stderr)
        return
    from agentflow.cli.shared.terminal import error_text, print_text, screen

    print_text(screen(sys.stderr), error_text(text))


def check_packages(*packages: str, extra: str) -> None:
    """Raise UsageError (``cli/extra``) if a package of the extra ``extra`` is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the command needs packages that are not installed: {', '.join(missing)}",
            code="cli/extra",
            hint=install("cli", extra),
        )


def write_out(text: str) -> None:
    """Write to standard output at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_json(data: object) -> None:
    """Write ``data`` to standard output as one line of JSON."""
    write_out(json.dumps(data, ensure_ascii=False) + "\n")


def print_rows(rows: Sequence[T], line: Callable[[T], str], nothing: str, *, as_json: bool) -> Exit:
    """Print a ``line`` for each of ``rows``, or all of them as JSON; ``nothing`` is the line if there are none."""
    if as_json:
        from agentflow.core.data.values import plain

        write_json(plain(rows))
    else:
        write_out("".join([" ".join(clean(line(row)).rstrip().splitlines()) + "\n" for row in rows]) or f"{nothing}\n")
    return Exit.OK


def moment(at: float) -> str:
    """A time in unix seconds, as date and time of day here."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def labelled(rows: Iterable[tuple[str, str]], width: int) -> str:
    """Lines of text, each behind its label in a column of ``width``."""
    return "".join([f"{label:<{width}}{text}\n" for label, text in rows])


def parse_bindings(bindings: list[str]) -> dict[str, Any]:
    """Parse ``name=value`` options; a value that is valid JSON is parsed, any other is text.

    Raises UsageError for an option without a name or a value.
    """
    result: dict[str, Any] = {}
    for binding in bindings:
        name, sep, text = binding.partition("=")
        if not sep or not name:
            raise UsageError(
                f"'{binding}' is not a binding", hint='write -b name=value, for example -b question="why?"'
            )
        text = _as_text(text, f"the value of {name}")
        try:
            result[name] = json.loads(text)
        except (ValueError, RecursionError):
            result[name] = text
    return result


def read_program(path: str) -> tuple[str, str]:
    """Name and text of a program file; ``-`` is standard input. Raises UsageError if it cannot be read, or is a Python module."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror or error}",
            code="cli/unreadable",
            hint=f"to run this text: agentflow run -e {shlex.quote(path)}"
            if "(" in path
            else "give a .sexp or .py file, - for standard input, or a Python workflow: launch:flow.audit",
        ) from error
    try:
        name, text = ("<stdin>" if path == "-" else path), data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}",
            code="cli/unreadable",
            hint="save the program as UTF-8",
        ) from error
    command = command_for_module(name, text) if name.endswith(".py") else None
    if command is not None:
        raise UsageError(
            f"{name} is a Python module of your own: it makes an AgentFlow. A workflow text imports from agentflow.workflow "
            "alone",
            code="cli/host-module",
            hint=f"to run it: {command}",
        )
    return name, text


def guarded(command: Callable[[], int], *, as_json: bool = False) -> int:
    """Call ``command`` and return its exit code; an error of agentflow is shown and mapped to its code."""
    try:
        return command()
    except (AgentflowError, CompileFailed) as error:
        show_error(error, as_json=as_json)
        return exit_code(error)
    except BaseExceptionGroup as group:
        show_error(group.exceptions[0], as_json=as_json)
        return exit_code(group.exceptions[0])
    except OSError as error:
        shown = _of_the_system(error)
        show_error(shown, as_json=as_json)
        return exit_code(shown)


def _of_the_system(error: OSError) -> AgentflowError:
    """The refusal of the operating system, in a sentence: a full disk, a directory that may not be written to."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return UsageError(
            "the working directory was removed", code="config/directory", hint="start in a directory that exists"
        )
    what = error.strerror or str(error) or type(error).__name__
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return AgentflowError(f"the system refused: {': '.join([*names, what])}", code="cli/system")


def read_either(file: str | None, expression: str | None) -> tuple[str, str]:
    """The name and text of a program: of the file, or of the text after ``-e``. Raises UsageError unless one of them is given."""
    if expression is not None and file is None:
        return read_expression(expression)
    if file is not None and expression is None:
        return read_program(file)
    told = "there is no program" if file is None else f"there are two programs: {file}, and the text after -e"
    raise UsageError(told, hint="agentflow run FILE, or agentflow run -e '(+ 1 2)'")


def read_expression(expression: str) -> tuple[str, str]:
    """The name and text of a program from ``-e TEXT``; ``-`` is standard input. Raises UsageError for the name of a file."""
    if is_file_name(expression):
        raise UsageError(
            f"{expression} is the name of a file", hint=f"to run it: agentflow run {shlex.quote(expression)}"
        )
    return read_program("-") if expression == "-" else ("<eval>", _as_text(expression, "the program"))


def _as_text(argument: str, what: str) -> str:
    """An argument of the command line, as UTF-8 if the locale could not read it. Raises UsageError (``cli/unreadable``)."""
    if argument.isascii() or not any("\udc80" <= char <= "\udcff" for char in argument):
        return argument
    try:
        return os.fsencode(argument).decode()
    except UnicodeError as error:
        raise UsageError(f"{what} is not UTF-8: {error}", code="cli/unreadable", hint="set a UTF-8 locale") from error


def run_async(main: Callable[[], Coroutine[Any, Any, int]], *, as_json: bool = False, durable: bool = False) -> int:
    """Run ``main`` on an event loop and return its exit code; see :func:`guarded`.

    The first Ctrl-C (or SIGTERM) cancels and waits for an orderly end; the second Ctrl-C aborts. ``durable``: an
    interrupted run is kept, and prints itself how to resume it.
    """
    terminated = False

    async def body() -> int:
        nonlocal terminated
        task = asyncio.current_task()
        assert task is not None

        def on_term() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        loop = asyncio.get_running_loop()
        loop.set_default_executor(DaemonThreads(_THREADS, "agentflow command"))  # a thread that hangs holds no command
        if sys.platform != "win32":
            loop.add_signal_handler(signal.SIGTERM, on_term)
        return await main()

    try:
        return guarded(lambda: asyncio.run(body()), as_json=as_json)
    except KeyboardInterrupt:
        again = "" if durable else ": everything was cancelled; run the same command to start again"
        say(f"interrupted{again}")
        return Exit.INTERRUPTED
    except asyncio.CancelledError:
        if not terminated:
            raise
        say("terminated" if durable else "terminated: everything was cancelled")
        return Exit.TERMINATED


@contextlib.asynccontextmanager
async def events_to_file(flow: AgentFlow, path: str | Path | None) -> AsyncGenerator[None, None]:
    """A block that records its runs in the file ``path``; None records nothing.

    Raises UsageError (``cli/unwritable``) for a file that cannot be opened; when the block ends, AgentflowError
    (``cli/incomplete-events``) for one that could not be written to its end.
    """
    if path is None:
        yield
        return
    from agentflow.observe.files import EventFile
    from agentflow.observe.recorder import Recorder

    file = EventFile(Path(path))
    try:
        await asyncio.to_thread(file.open)
    except OSError as error:
        raise UsageError(
            f"the events cannot be written to {path}: {error.strerror or error}",
            code="cli/unwritable",
            hint="choose a writable file: --events-file FILE",
        ) from error
    recorder = Recorder(file, text=lambda value: flow.redact(str(value)))
    unsubscribe = flow.subscribe(recorder)
    async with contextlib.aclosing(recorder):
        yield
    unsubscribe()
    if recorder.error is not None:
        why = recorder.error.strerror if isinstance(recorder.error, OSError) else None
        raise AgentflowError(
            f"the events in {path} are incomplete: {why or recorder.error}", code="cli/incomplete-events"
        ) from recorder.error


def is_compile_error(error: BaseException) -> bool:
    """Whether ``error`` means that a text is not a valid program."""
    return isinstance(error, SexpSyntaxError | SexpEvaluationError)
