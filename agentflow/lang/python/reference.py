"""The words of Python texts with their usage, for editors: forms, functions and decorators."""

from __future__ import annotations

import builtins
import inspect
import math

from agentflow.lang.python.builtins import BUILTINS, CONSTANTS
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.table import Entry as Function
from agentflow.lang.reference import Entry

_DECORATORS = (
    (
        "task",
        "@task(model=..., tools=[...])",
        "A task: the function's body is its prompt, its result the type of the answer.",
    ),
    ("workflow", '@workflow(allow=["review"])', "Declares main as a workflow: its parameters, and what it may call."),
)
_OF_JSON = {"json.loads": "The value of a JSON text.", "json.dumps": "The JSON text of a value."}


def python_entries() -> list[Entry]:
    """All documented names of Python texts, sorted."""
    listed = [Entry(name, usage, doc, "form", "Workflow") for name, usage, doc in _DECORATORS]
    listed += [Entry(name, form.usage, form.about, "form", "Workflow") for name, form in FORMS.items()]
    listed += [Entry(name, _usage(each), _about(name), "function", "Python") for name, each in BUILTINS.items()]
    kinds = "isinstance(value, (int, str))", "Whether a value is of a type: int float str bool list dict tuple set."
    listed.append(Entry("isinstance", *kinds, "function", "Python"))
    listed += [Entry(name, name, f"The number {value}.", "constant", "Python") for name, value in CONSTANTS.items()]
    return sorted(listed, key=lambda entry: entry.name)


def _usage(function: Function) -> str:
    if function.positional < 0:
        shown = ["*values", *(f"{each}=..." for each in function.names)]
    else:
        shown = [each if at < function.least else f"{each}=..." for at, each in enumerate(function.names)]
    return f"{function.name}({', '.join(shown)})"


def _about(name: str) -> str:
    """The first sentence of Python's own documentation."""
    if name in _OF_JSON:
        return _OF_JSON[name]
    native = getattr(math, name.removeprefix("math."), None) if "." in name else getattr(builtins, name)
    return (inspect.getdoc(native) or "").split("\n\n")[0].replace("\n", " ")
