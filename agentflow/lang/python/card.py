"""The card of the Python surface: instructions with which a model can write programs, in at most 900 tokens.

Generated from the tables of functions, methods and forms, with worked examples that a test runs.
"""

from __future__ import annotations

from agentflow.core.data.values import OrderedSet
from agentflow.lang.example import Example
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.methods import METHODS

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
