"""Hints in the syntax of the surface that an error happened in: errors are detected in parts that both surfaces share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.results import TaskResult

SHOWS_SEXP = re.compile(r"(?:^|[\s:'])\((?:['( ]|[\w*-]+[ )])|to-json|number->string|of a form")
"""Matches a hint that is written for S-expressions."""
PYTHON_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "arity/closure": "give it as many arguments as it has parameters",
        "bounds/over-budget": "work on fewer elements, repeat less, or give tasks no tools: @task(tools=[])",
        "branches/cancelled": "cancel the whole run instead, or handle the error in the program: try: ... except TaskError: ...",
        "call/not-callable": "call a function, a task or a tool",
        "call/positional": "write name(parameter=value)",
        "dict/key": "keys are texts, integers of at most 60 bits, floats up to 2**53, True, False, None, and tuples of them",
        "director/decision": 'give ("continue", next) or ("stop", value)',
        "director/phase": "give a function: director=plan",
        "json/unrepresentable": "give json.dumps data, without functions, and numbers that are finite",
        "provenance/denied": 'take it from the user; or endorse(value, "reason"), if this program was granted it',
        "provenance/readers": 'leave it out; or endorse(value, "reason"), if this program was granted it',
        "provenance/write": "change it in any case: x = new if test else x",
        "name/not-value": "call it: name(parameter=value)",
        "task/invalid-output": "look at outcome(name(...)).content for what the model said, or ask for a plainer format",
        "tasks/bad-argument": 'for example name(files=["a.py", "b.py"]) or name(inputs={"name": value})',
        "tasks/missing-parameter": "pass it by name: name(parameter=value)",
    }
)
"""What to write in a text in Python, by code, where the hint shows S-expressions."""


def fit_result(result: TaskResult) -> TaskResult:
    """A FAILED result as a text in Python is given it: the hint in its notes is in Python."""
    error = result.notes.error
    hint = None if error is None else error.details.get("hint")
    if error is None or not isinstance(hint, str) or SHOWS_SEXP.search(hint) is None:
        return result
    details = {name: value for name, value in error.details.items() if name != "hint"}
    fitting = PYTHON_HINTS.get(str(details.get("code")))
    return result.with_notes(error=replace(error, details={**details, "hint": fitting} if fitting else details))


def fit_hint(error: AgentflowError) -> None:
    """Give an error in a Python text a hint in Python."""
    if error.hint is None or error.span is None or error.span.source.surface != "python":
        return
    if SHOWS_SEXP.search(error.hint) is not None:
        error.hint = PYTHON_HINTS.get(error.code)
