"""What the shell needs to know about the language typed into it."""

from __future__ import annotations

import codeop
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from agentflow.cli.shared.values import print_data, python_notation
from agentflow.core.data.errors import AgentflowError, clip
from agentflow.core.data.names import NameInfo
from agentflow.core.data.source import Source, Surface
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms import FORMS
from agentflow.lang.python.absent import ABSENT
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.forms import FORMS as PYTHON_FORMS
from agentflow.lang.python.methods import ALL_METHODS
from agentflow.lang.reader import Incomplete, read_datum_nodes
from agentflow.lang.reference import describe

MAX_SHOWN = 20_000
"""Maximum number of characters shown of a value."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language of the shell.

    ``is_complete`` tells whether a text can be evaluated; ``comment`` starts a comment; ``names`` are the words of the
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
    return clip(python_notation(value), MAX_SHOWN)


SEXP = Language(
    "sexp",
    ";",
    "forms are evaluated when they are closed",
    _forms_are_closed,
    (*PRIMITIVES, *FORMS),
    describe,
    _form_of,
    lambda value: print_data(value, limit=MAX_SHOWN),
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
