"""``agentflow repl``: reads forms or Python, prints values, streams answers; Ctrl-C ends the form, not the shell."""

from __future__ import annotations

import asyncio
import codeop
import contextlib
import re
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, get_args

from agentflow.cli.shared.common import UsageError
from agentflow.cli.shared.printed_values import PYTHON as PYTHON_MARKS
from agentflow.cli.shared.printed_values import in_lines, print_data, python_notation
from agentflow.cli.shared.wrapping import StreamedWords, columns, wrapped
from agentflow.core.data.errors import AgentflowError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Surface
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.forms import FORMS
from agentflow.lang.printer import print_value
from agentflow.lang.python.absent import ABSENT
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.forms import FORMS as PYTHON_FORMS
from agentflow.lang.python.methods import ALL_METHODS
from agentflow.lang.reader import Incomplete, read_datum_nodes
from agentflow.lang.reference import describe
from agentflow.lib.file_writer import make_private_directory, make_private_file, state_path
from agentflow.lib.text.safe_text import clean

if TYPE_CHECKING:
    from agentflow.app import AgentFlow

MAX_SHOWN = 20_000
"""Maximum number of characters shown of a value."""


@frozen
class Language:
    """A language of the shell.

    ``is_complete`` returns whether a text can be evaluated; ``comment`` starts a comment; ``names`` are the words of the
    language; ``describe`` documents one, ``call`` shows the call syntax of a task or tool, and ``show`` formats a value (None:
    nothing is shown).
    """

    surface: Surface
    comment: str
    unit: str
    is_complete: Callable[[str], bool]
    names: Iterable[str]
    describe: Callable[[str], str]
    call: Callable[[str, NameInfo], str]
    show: Callable[[Any], str | None]


def _forms_are_closed(text: str) -> bool:
    try:
        read_datum_nodes(Source("<repl>", text))
    except Incomplete:
        return False
    except AgentflowError:
        pass
    return True


def _form_of(name: str, info: NameInfo) -> str:
    parameters = " ".join(f"({each} ...)" for each in info.parameters or ())
    return f"({name}{' ' if parameters else ''}{parameters})\n  {info.kind}"


def _statements_are_closed(text: str) -> bool:
    """Whether a text is complete Python: an indented block is complete after an empty line."""
    try:
        if codeop.compile_command(text, "<repl>", "exec") is None:
            return False
    except (SyntaxError, ValueError, OverflowError):
        return True
    last = text.rsplit("\n", 1)[-1]
    return not last or not last[0].isspace()


def _call_of(name: str, info: NameInfo) -> str:
    return f"{name.replace(':', '.').replace('-', '_')}({', '.join(info.parameters or ())})\n  {info.kind}"


def _describe_python(name: str) -> str:
    form = PYTHON_FORMS.get(name)
    if form is not None:
        return f"{form.usage}\n  {form.about.replace('``', '`')}"
    entry = BUILTINS.get(name)
    if entry is not None:
        return f"{name}({', '.join(entry.names)})\n  a function, as in Python"
    if name in ALL_METHODS:
        return f"x.{name}(...)\n  a method, as in Python"
    return f"'{name}' is not there: {ABSENT[name]}" if name in ABSENT else f"nothing is called '{name}'"


def _show_python(value: Any) -> str | None:
    if value is None:
        return None
    return clip(in_lines(value, python_notation, PYTHON_MARKS), MAX_SHOWN)


SEXP = Language(
    "sexp",
    ";",
    "forms are evaluated when they are closed",
    _forms_are_closed,
    (*PRIMITIVES, *FORMS),
    describe,
    _form_of,
    lambda value: in_lines(value, lambda part: print_data(part, limit=MAX_SHOWN)),
)
PYTHON = Language(
    "python",
    "#",
    "statements are evaluated at the end of their line, blocks after an empty one",
    _statements_are_closed,
    (*(name for name in BUILTINS if "." not in name), *(name for name in PYTHON_FORMS if "." not in name)),
    _describe_python,
    _call_of,
    _show_python,
)
LANGUAGES: dict[Surface, Language] = {"sexp": SEXP, "python": PYTHON}


_WORD = re.compile(r"([^\s()\[\]{}\"'`,;]+)")

HELP = """\
Here {unit}; the last value is bound to _.
  ,doc NAME    usage and documentation       ,names       what is defined here
  ,time FORM   evaluate and say how long     ,help        this text
  ,quit        leave (or Ctrl-D)             Ctrl-C       end the form that runs, or drop the line
"""


class LineEditor(Protocol):
    """The source of the shell's input."""

    async def read(self, prompt: str) -> str:
        """Read one complete form. Raises EOFError at the end, KeyboardInterrupt if the input is abandoned."""
        ...


def is_complete(text: str, language: Language = SEXP) -> bool:
    """Whether ``text`` can be evaluated: a command, or forms without an open bracket. Invalid text counts, too."""
    return text.lstrip().startswith(",") or language.is_complete(text)


def names_in_sight(flow: AgentFlow, env: SexpEnvironment, language: Language = SEXP) -> list[str]:
    """All names for completion: variables, tasks and tools, and the words of the language."""
    return sorted({*env.names(), *env.records(), *flow.engine.effects.names.known_names(), *language.names})


class PromptEditor:
    """The line editor on prompt_toolkit: history, completion, and lines until the parentheses are closed.

    Parameters: ``names`` returns the names to complete, called at each completion; ``history`` a file (None: no
    history); ``session`` further arguments of ``PromptSession`` (its ``input`` and ``output``).
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        *,
        history: Path | None = None,
        language: Language = SEXP,
        **session: Any,
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()

        @keys.add("enter")
        def accept_or_continue(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]
            buffer = event.current_buffer
            if is_complete(buffer.text, language):
                buffer.validate_and_handle()
            else:
                buffer.insert_text("\n")

        if history is not None:
            make_private_file(history)
        self.completer = WordCompleter(lambda: list(names()), WORD=False, pattern=_WORD, sentence=False)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)) if history is not None else InMemoryHistory(),
            completer=self.completer,
            complete_while_typing=False,
            key_bindings=keys,
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: "." * max(0, width - 1) + " ",
            **session,
        )

    async def read(self, prompt: str) -> str:
        return await self._session.prompt_async(prompt)


class Shell:
    """The state of one session: environment, last value, output."""

    def __init__(
        self, flow: AgentFlow, env: SexpEnvironment, write: Callable[[str], Any], language: Language = SEXP
    ) -> None:
        self.flow = flow
        self.language = language
        self.env = env
        self._write = write
        self._streaming = False
        self._words = StreamedWords(columns(sys.stdout))

    def watch(self, event: Any) -> None:
        """The observer: writes streamed model text and log lines."""
        if event.type == "text_delta" and event.text:
            self._write(self._words.feed(clean(event.text)))
            self._streaming = True
        elif event.type == "log":
            self.say(f"{self.language.comment} {event.message}")

    def say(self, text: str) -> None:
        """Write prose on lines of its own, wrapped."""
        self.end_line()
        self._write(wrapped(clean(text), columns(sys.stdout)) + "\n")

    def end_line(self) -> None:
        """End a line of streamed text."""
        if self._streaming:
            self._write(self._words.rest() + "\n")
            self._words = StreamedWords(columns(sys.stdout))
            self._streaming = False

    async def obey(self, line: str) -> bool:
        """Execute one input. Returns False to end the session."""
        text = line.strip()
        if not text or (text.startswith(self.language.comment) and "\n" not in text):
            return True
        if not text.startswith(","):
            await self.evaluate(text)
            return True
        command, _, rest = text[1:].partition(" ")
        match command:
            case "quit" | "q" | "exit":
                return False
            case "help" | "h":
                self.say(HELP.format(unit=self.language.unit).removesuffix("\n"))
            case "doc":
                self.say(self.documentation(rest.strip()))
            case "names":
                self.say("\n".join(sorted({*self.env.names(), *self.env.records()})) or "nothing is defined yet")
            case "time":
                began = time.perf_counter()
                await self.evaluate(rest)
                self.say(f"{self.language.comment} {time.perf_counter() - began:.3f} s")
            case _:
                self.say(f"there is no command ,{command}; ,help lists the commands")
        return True

    def documentation(self, name: str) -> str:
        """Documentation of a name: a variable's value first, then a task or tool, then the language."""
        if not name:
            return "write ,doc NAME"
        if name in self.env:
            return f"{name} is {print_value(self.env.lookup(name), limit=2_000)}"
        info = self.flow.engine.names(self.env).describe(name)
        if info is not None and info.record is not None:
            return info.record.text
        if info is not None:
            return self.language.call(name, info)
        return self.language.describe(name)

    async def evaluate(self, text: str) -> None:
        """Evaluate a program and show its value or error. Ctrl-C cancels it and nothing else."""

        async def run() -> None:
            try:
                value = await self.flow.evaluator.evaluate(Source.unnamed(text, self.language.surface), self.env)
            except AgentflowError as error:
                self.say(error.render())
            except Exception as error:  # noqa: BLE001 - the shell survives any exception of a host's tool
                self.say(f"error: {type(error).__name__}: {error}")
            else:
                self.env.define("_", value)
                shown = show(value, self.language)
                if shown is not None:
                    self.end_line()
                    self._write(clean(shown) + "\n")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(run())
            with on_interrupt(task.cancel):
                await asyncio.wait([task])
        if task.cancelled():
            self.say(f"{self.language.comment} interrupted")


def show(value: object, language: Language = SEXP) -> str | None:
    """The text the shell shows for a value: program text, or status and content of a result; None for nothing."""
    try:
        if isinstance(value, TaskResult):
            error = value.error
            detail = str(error) if error is not None else print_value(value.content, limit=MAX_SHOWN)
            return f"#<result {value.status}> {detail}"
        return language.show(value)
    except AgentflowError as error:
        return f"{language.comment} this value cannot be shown: {error}"


@contextlib.contextmanager
def on_interrupt(cancel: Callable[[], Any]) -> Generator[None]:
    """Call ``cancel`` on Ctrl-C within the block; restore the previous handler afterwards."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, cancel)
    except (NotImplementedError, RuntimeError, ValueError):  # no signals on this platform, or not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


def default_history() -> Path | None:
    """``agentflow/history`` in the user's state directory (XDG base directories); None if it cannot be created."""
    try:
        return make_private_directory(state_path()) / "history"
    except OSError:
        return None


def surface_of(name: str) -> Surface:
    """The language called ``name``. Raises UsageError."""
    if name not in get_args(Surface):
        raise UsageError(f"--surface {name}: there is no such language", hint="write sexp, or python")
    return cast(Surface, name)


async def repl(
    flow: AgentFlow,
    *,
    bindings: Mapping[str, Any] | None = None,
    editor: LineEditor | None = None,
    history: Path | None = None,
    write: Callable[[str], Any] | None = None,
    banner: bool = True,
    surface: Surface = "sexp",
) -> int:
    """Evaluate forms, or statements of ``surface``, in one environment and show their values until the input ends.

    ``flow`` is an AgentFlow; ``bindings`` are the initial variables; ``editor`` and ``write`` replace the terminal;
    ``history`` is the history file (default: :func:`default_history`); ``banner`` false omits the greeting. Returns exit code
    0.
    """
    env, language = SexpEnvironment(bindings), LANGUAGES[surface]
    output = write or _to_terminal
    shell = Shell(flow, env, output, language)
    lines = editor or PromptEditor(
        lambda: names_in_sight(flow, env, language), history=history or default_history(), language=language
    )
    unsubscribe = flow.subscribe(shell.watch)
    try:
        if banner:
            shell.say(f"agentflow: {language.unit}; ,help for help")
        while True:
            try:
                line = await lines.read("> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return 0
            if not await shell.obey(line):
                return 0
    finally:
        unsubscribe()


def _to_terminal(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
