"""The words of Python texts with their usage, for editors: forms, functions and decorators."""

from __future__ import annotations

import builtins
import inspect
import math
import re

from agentflow.core.data.values import OrderedSet
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS, ISINSTANCE, SORT
from agentflow.lang.python.declarations import OPTIONS
from agentflow.lang.python.failure import CLASSES, PARENTS
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.rows import Row
from agentflow.lang.reference import Entry, Example

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


def python_entries() -> list[Entry]:
    """All documented names of Python texts, sorted."""
    listed = [Entry(name, usage, doc, "form", "Workflow") for name, usage, doc in _DECORATORS]
    listed += [Entry(name, form.usage, form.about, "form", "Workflow") for name, form in FORMS.items()]
    listed += [
        Entry(name, _usage(each), each.doc or _about(name), "function", "Python") for name, each in BUILTINS.items()
    ]
    listed.append(Entry(ISINSTANCE.name, ISINSTANCE.usage, ISINSTANCE.doc, "function", "Python"))
    listed += [Entry(name, name, f"The number {value}.", "constant", "Python") for name, value in CONSTANTS.items()]
    listed += [Entry(name, name, _about_error(name), "class of errors", "Python") for name in CLASSES]
    return sorted(listed, key=lambda entry: entry.name)


def method_entries() -> list[Entry]:
    """The methods of values: one entry for each type that has one of a name."""
    return [
        Entry(
            name,
            f"x.{_usage(each)}",
            each.doc or _sentence(getattr(_NATIVE.get(kind, kind), name, None)),
            f"method of {title}",
            "Python",
        )
        for kind, title in _TITLES.items()
        for name, each in {**METHODS[kind], **({"sort": SORT} if kind is list else {})}.items()
    ]


def _about_error(name: str) -> str:
    parent = PARENTS.get(name, "Exception")
    within = "All errors that can be caught" if name == "Exception" else f"Errors that `except {parent}` catches, too"
    return f'{within}: `raise {name}("the fault")`, `except {name} as e`.'


def _usage(function: Row) -> str:
    if function.usage:
        return function.usage
    if function.positional < 0:
        shown = ["*values", *(f"{each}=..." for each in function.names)]
    else:
        shown = [each if at < function.least else f"{each}=..." for at, each in enumerate(function.names)]
    return f"{function.name}({', '.join(shown)})"


def _about(name: str) -> str:
    """The first sentence of Python's own documentation."""
    native = getattr(math, name.removeprefix("math."), None) if "." in name else getattr(builtins, name)
    return _sentence(native)


def _sentence(native: object) -> str:
    """The beginning of Python's own documentation, without any signatures in front of it."""
    paragraphs = (inspect.getdoc(native) or "").split("\n\n") if native is not None else [""]
    told = [each for each in paragraphs if "->" not in each.partition("\n")[0]]
    paragraph = told[0] if told else re.sub(r"^.*?->\s*(?:None\.|a )?\s*", "", paragraphs[0], flags=re.DOTALL)
    return re.split(r"(?<=\.)\s", paragraph.replace("\n", " "))[0].strip()


_RULES = """\
A program is a text in a small subset of Python. The value of its last expression is the answer.

- A task or tool is called by name, `name(parameter=value)`. The call gives its data or text; a failed one raises TaskError
  (`e.code`, `e.message`). `outcome(name(...))` gives a result with `.status` and `.content` instead. Call only those you were told of.
- These run their arguments themselves; do not await: `parallel(f(a), g(b))`, `pmap(f, xs, limit=8)`, `race(f(a), g(a))`,
  `timeout(30, f(x))`, `retry(3, f(x))`. Run independent calls so. A branch changes nothing from outside: it returns a value.
- `x.name` reads a key of a dict, as x["name"]. `print` writes to the log.
- There are def, lambda, if, for, while, try, raise, assert, del, comprehensions, f-strings, slices and unpacking.
- There are no imports, classes with methods, with, match, yield, *args, %-formats, nor names that begin with _."""
EXAMPLES = (
    Example(
        "Ask about each of several things, at most 4 at a time; go on when one fails",
        "def answer(topic):\n"
        "    try:\n"
        '        return ask_about(question=f"What is {topic}?")\n'
        "    except TaskError:\n"
        '        return "?"\n'
        'answers = pmap(answer, ["alpha", "beta"], limit=4)\n'
        '"; ".join(answers)',
        '"re: What is alpha?; re: What is beta?"',
    ),
    Example(
        "Count words",
        'counts = {}\nfor word in fetch(path="notes.txt").split():\n    counts[word] = counts.get(word, 0) + 1\ncounts',
        '{"one" 1 "two" 2}',
    ),
)
"""A test runs them with a tool ``fetch`` and a task ``ask_about`` that echoes its question."""


def python_card() -> str:
    """The card as Markdown, for a system prompt."""
    plain = [name for name in BUILTINS if "." not in name]
    dotted = [name for name in BUILTINS if "." in name]
    kinds = {"str": str, "list": list, "dict": dict, "set": OrderedSet}
    tests = [name for name in METHODS[str] if name.startswith("is")]
    methods = "\n".join(
        f"- {kind}: {' '.join(name for name in METHODS[values] if name not in tests or kind != 'str')}"
        for kind, values in kinds.items()
    )
    examples = "\n\n".join(f"{each.about}:\n```python\n{each.program}\n```" for each in EXAMPLES)
    return (
        f"# Workflow programs\n\n{_RULES}\n\n"
        f"Functions: {' '.join([*plain, 'isinstance', 'print'])} {' '.join(dotted)}\n\nMethods:\n{methods}\n\n{examples}\n"
    )
