"""The words of Python texts with their usage, for editors: forms, functions and decorators."""

from __future__ import annotations

import builtins
import inspect
import math
import re

from agentflow.core.data.ordered_set import OrderedSet
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS, SORT
from agentflow.lang.python.declarations import OPTIONS
from agentflow.lang.python.failure import CLASSES, PARENTS
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.table import Entry as Function
from agentflow.lang.reference import Entry

_DECORATORS = (
    (
        "task",
        f"@task({', '.join(f'{each}=...' for each in OPTIONS)})",
        "A task: the function's body is its prompt, its result the type of the answer.",
    ),
    ("workflow", '@workflow(allow=["review"])', "Declares main as a workflow: its parameters, and what it may call."),
)
_NATIVE: dict[type[object], type[object]] = {OrderedSet: set}
_TITLES: dict[type[object], str] = {str: "str", list: "list", dict: "dict", tuple: "tuple", OrderedSet: "set"}
_OWN = {
    "json.loads": "The value of a JSON text.",
    "json.dumps": "The JSON text of a value.",
    "zip": "A list of tuples: of the first elements, of the second ones, and so on.",
    "map": "A list of what a function gives for each element.",
    "filter": "A list of the elements for which a function gives what counts as true.",
    "range": "A list of the integers from a start, or 0, up to a stop, without it.",
    "enumerate": "A list of pairs: a number, and the element.",
    "reversed": "A list of the elements in reverse.",
    "dict": "A dict of pairs, or a copy of a dict.",
    "set": "A set of the elements, in the order in which they first stand.",
    "pow": "Equivalent to base ** exp.",
    "math.log": "Return the logarithm of x to the given base, or the natural one.",
}
_OWN_METHODS = {
    "keys": "A list of the keys.",
    "values": "A list of the values.",
    "items": "A list of pairs: a key and its value.",
    "update": "Take over what another one has.",
    "copy": "A copy, with the same elements in it.",
}
_USAGES = {
    "map": "map(function, iterable, ...)",
    "zip": "zip(iterable, ..., strict=...)",
    "range": "range(stop), range(start, stop, step)",
}


def python_entries() -> list[Entry]:
    """All documented names of Python texts, sorted."""
    listed = [Entry(name, usage, doc, "form", "Workflow") for name, usage, doc in _DECORATORS]
    listed += [Entry(name, form.usage, form.about, "form", "Workflow") for name, form in FORMS.items()]
    listed += [Entry(name, _usage(each), _about(name), "function", "Python") for name, each in BUILTINS.items()]
    kinds = "isinstance(value, (int, str))", "Whether a value is of a type: int float str bool list dict tuple set."
    listed.append(Entry("isinstance", *kinds, "function", "Python"))
    listed += [Entry(name, name, f"The number {value}.", "constant", "Python") for name, value in CONSTANTS.items()]
    listed += [Entry(name, name, _about_error(name), "class of errors", "Python") for name in CLASSES]
    return sorted(listed, key=lambda entry: entry.name)


def method_entries() -> list[Entry]:
    """The methods of values: one entry for each type that has one of a name."""
    return [
        Entry(
            name,
            f"x.{_usage(each)}",
            _OWN_METHODS.get(name) or _sentence(getattr(_NATIVE.get(kind, kind), name, None)),
            f"method of {title}",
            "Python",
        )
        for kind, title in _TITLES.items()
        for name, each in {**METHODS[kind], **({"sort": SORT} if kind is list else {})}.items()
    ]


def _about_error(name: str) -> str:
    parent = PARENTS.get(name, "Exception")
    within = "All errors that can be caught" if name == "Exception" else f"Errors that `except {parent}` catches, too"
    return f'{within}: `raise {name}("what is wrong")`, `except {name} as e`.'


def _usage(function: Function) -> str:
    if function.name in _USAGES:
        return _USAGES[function.name]
    if function.positional < 0:
        shown = ["*values", *(f"{each}=..." for each in function.names)]
    else:
        shown = [each if at < function.least else f"{each}=..." for at, each in enumerate(function.names)]
    return f"{function.name}({', '.join(shown)})"


def _about(name: str) -> str:
    """The first sentence of Python's own documentation."""
    if name in _OWN:
        return _OWN[name]
    native = getattr(math, name.removeprefix("math."), None) if "." in name else getattr(builtins, name)
    return _sentence(native)


def _sentence(native: object) -> str:
    """The beginning of Python's own documentation, without the signatures with which it may begin."""
    paragraphs = (inspect.getdoc(native) or "").split("\n\n") if native is not None else [""]
    told = [each for each in paragraphs if "->" not in each.partition("\n")[0]]
    paragraph = told[0] if told else re.sub(r"^.*?->\s*(?:None\.|a )?\s*", "", paragraphs[0], flags=re.DOTALL)
    return re.split(r"(?<=\.)\s", paragraph.replace("\n", " "))[0].strip()
