"""Diagnostics of Python texts are in Python, also those of parts that both surfaces share."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentflow
from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.known_names import GUARDED
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.diagnosis import diagnose
from agentflow.lang.forms import FORMS as SEXP_FORMS
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.methods import ALL_METHODS
from agentflow.lang.trace import PYTHON_HINTS, SHOWS_SEXP
from tests.support.python_texts import run_text
from tests.support.world import World

SHARED_ROOMS = ("run", "durable", "flow", "tasks", "handler", "core")
"""The rooms whose errors happen in programs of both surfaces."""


def hints() -> Iterator[tuple[str, str, str]]:
    """File, code and hint (its constant parts) of every error that is written in the shared rooms."""
    root = Path(agentflow.__file__).parent
    for room in SHARED_ROOMS:
        for file in (root / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                named = {each.arg: each.value for each in node.keywords} if isinstance(node, ast.Call) else {}
                code, hint = named.get("code"), named.get("hint")
                own = isinstance(code, ast.Constant) and str(code.value).startswith("python/")  # of Python functions
                if isinstance(code, ast.Constant) and hint is not None and not own:
                    text = "".join([str(each.value) for each in ast.walk(hint) if isinstance(each, ast.Constant)])
                    yield file.name, str(code.value), text


def test_every_hint_in_s_expressions_has_one_in_python() -> None:
    """Whoever writes a hint that shows a form says what it is in Python."""
    shown = {code: (file, hint) for file, code, hint in hints() if SHOWS_SEXP.search(hint) is not None}
    assert len(shown) > 4
    assert {code: at for code, at in shown.items() if code not in PYTHON_HINTS} == {}
    assert not [hint for hint in PYTHON_HINTS.values() if SHOWS_SEXP.search(hint)]


WRONG: dict[str, tuple[str, str]] = {
    "f = shout\nf = 3\nf()": ("call/not-callable", "call a function"),
    "director_evaluator_loop(1, 0, lambda x, i: x, lambda x, i: x, lambda x, p, i: x, lambda f, p, r, i: 3)": (
        "director/decision",
        'give ("continue", next)',
    ),
    "director_evaluator_loop(1, 0, 5, lambda x, i: x, lambda x, p, i: x, lambda f, p, r, i: 3)": (
        "director/phase",
        "give director a function",
    ),
    "shout(**{'file': 1})": ("", "text"),
    "ask_about(question='x', files=3)": ("tasks/bad-argument", "files=["),
}


@pytest.mark.parametrize("text", WRONG)
async def test_hints_are_in_the_surface_of_the_text(text: str) -> None:
    """The code and the message are those of S-expressions, the hint shows Python."""
    code, words = WRONG[text]
    async with AgentFlow(provider=ScriptedProvider(lambda request: "?")) as flow:

        @flow.tool
        def shout(text: str) -> str:
            """Say it loud."""
            return text.upper()

        await flow.define('(defatom ask-about (params (question)) (instructions "Q {{question}}"))')
        with pytest.raises(AgentflowError) as caught:
            await flow.run(text, surface="python")
    assert caught.value.code == (code or caught.value.code)
    assert words in (caught.value.hint or ""), caught.value.render()


SAME: dict[str, str] = {
    **{
        name: name.replace("-", "_")
        for name in (*GUARDED, "now", "random", "sleep", "sources", "uuid", "recall", "remember")
    },
    **{name: name.replace("-", "_") for name in ("parallel", "pmap", "race", "retry", "timeout", "solve", "map")},
    **{name: name.replace("-", "_") for name in ("call-workflow", "director-evaluator-loop", "eval-program")},
    **{name: name for name in ("abs", "filter", "get", "keys", "max", "min", "range", "round", "values", "zip")},
    **dict.fromkeys(("log-message",), "print"),
    **dict.fromkeys(("content", "status", "value-of", "failed?"), "outcome"),
    **dict.fromkeys(("length", "string-length"), "len"),
    **dict.fromkeys(("number->string", "symbol->string", "string->symbol"), "str"),
    **dict.fromkeys(("list", "rest", "cdr", "cddr", "nth"), "list"),
    "dict": "dict",
    "merge": "update",
    "put": "update",
    "modulo": "divmod",
    "remainder": "math.trunc",
    "quotient": "math.trunc",
    "parse-json": "json.loads",
    "to-json": "json.dumps",
    "sort": "sorted",
    "reverse": "reversed",
    "append": "extend",
    "member": "index",
    "memq": "index",
    "memv": "index",
    "string->number": "float",
    "string-append": "join",
    "string-join": "join",
    "string-split": "split",
    "string-replace": "replace",
    "string-trim": "strip",
    "string-upcase": "upper",
    "string-downcase": "lower",
    "reduce": "sum",
    "for-each": "map",
    "type-of": "isinstance",
}
"""Forms and primitives that are called by name in Python too."""
SYNTAX: dict[str, str] = {
    **dict.fromkeys(
        ["and", "or", "not", "if", "when", "unless", "cond", "case", "while", "loop", "do"],
        "if a and b: ...; while; for",
    ),
    **dict.fromkeys(
        ["begin", "progn", "let", "let*", "letrec", "let-values", "define", "set!", "bind"], "a = 1; b, c = pair"
    ),
    **dict.fromkeys(["lambda", "case-lambda", "apply", "identity"], "lambda x, y=2: x"),
    **dict.fromkeys(
        ["try", "catch", "finally", "guard", "error", "raise", "dynamic-wind"], "try, except, finally, raise"
    ),
    **dict.fromkeys(
        ["quote", "quasiquote", "unquote", "unquote-splicing", "gensym", "symbol?", "defmacro"], "no code as data"
    ),
    **dict.fromkeys(
        ["+", "-", "*", "/", "<", "<=", "=", ">", ">=", "even?", "odd?", "zero?", "negative?", "positive?"],
        "x % 2 == 0",
    ),
    **dict.fromkeys(["eq?", "equal?", "string=?", "string<?", "string>?", "null?", "nil?"], "a == b, a is None"),
    **dict.fromkeys(["number?", "boolean?", "string?", "list?", "pair?", "dict?", "procedure?"], "isinstance(x, str)"),
    **dict.fromkeys(
        ["first", "car", "cadr", "caddr", "cons", "assoc", "assq", "assv", "get-field", "substring"],
        "x[0], x['k'], x.name",
    ),
    **dict.fromkeys(["format", "string-contains?"], "f'{x}', 'a' in text"),
    "defatom": "@task",
}
"""Those that are syntax there."""


def test_every_form_and_primitive_has_its_like_in_python() -> None:
    """What a text in S-expressions can do a text in Python can do: by a function, form or method, or by syntax."""
    every = {*SEXP_FORMS, *PRIMITIVES}
    assert every - SAME.keys() - SYNTAX.keys() == set()
    assert (SAME.keys() | SYNTAX.keys()) - every == set()
    there: set[Any] = {*FORMS, *BUILTINS, *CONSTANTS, *ALL_METHODS, "isinstance"}
    assert {each for each in SAME.values() if each not in there} == set()


@pytest.mark.parametrize("code", [*PYTHON_HINTS, "other/code"])
async def test_results_have_hints_in_python(code: str) -> None:
    """What ``outcome`` gives of a failed tool has no hint in S-expressions; a hint that is none is left as it is."""

    def failing(arguments: dict[str, Any]) -> TaskResult:
        return TaskResult.from_error(SexpEvaluationError("no", code=code, hint=arguments["hint"]))

    world = World({"failing": failing})
    shown, kept = await run_text(
        "[outcome(failing(hint=h)).notes.error.details for h in ['write (list 1)', 'name it']]", world=world
    )
    assert shown.get("hint") == PYTHON_HINTS.get(code)
    assert kept["hint"] == "name it"


NEAR = """
def reviewer(xs):
    return sorted(xs)
def main(paths):
    results = reveiwer(paths)
    many = sortd(results)
    other = from_the_host(path)
    many = sortd(other)
    return resluts
"""


def test_a_name_that_is_nearly_one_in_sight_is_suspicious() -> None:
    """What the host may bind is not an error; a warning says which name it nearly is: once each, and of no plural."""
    listed = diagnose(Source("t.py", NEAR, "python"))
    assert [(each.severity, each.error.code, each.error.hint) for each in listed] == [
        ("warning", "name/suspicious", f"did you mean '{name}'?") for name in ("reviewer", "sorted", "results")
    ]
    assert [each.error.span and each.error.span.text for each in listed] == ["reveiwer", "sortd", "resluts"]
    bound = diagnose(Source("t.py", NEAR, "python"), env_names=["reveiwer", "sortd", "resluts"])
    assert bound == []
