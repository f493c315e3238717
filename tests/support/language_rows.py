"""What is known of each function, method, form and primitive of both surfaces, a line for each: ``tests/lang/rows.json``.

``python -m tests.support.language_rows --write`` writes the file again, so that a change of a row is read as a diff.
"""

from __future__ import annotations

import importlib
import inspect
import json
import operator
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# pyright: reportPrivateUsage=false
from agentflow.exploration import constants, python_constants
from agentflow.lang import charging, model_names
from agentflow.lang.bounds import nodes
from agentflow.lang.bounds.heap import scalar
from agentflow.lang.bounds.python import flow as python_flow
from agentflow.lang.bounds.python import functions as sizes
from agentflow.lang.bounds.values import number
from agentflow.lang.builtins import PRIMITIVES, strict
from agentflow.lang.forms import FORMS
from agentflow.lang.python import reference, rows
from agentflow.lang.python.boxed import labelled as python_labelled
from agentflow.lang.python.builtins import BUILTINS, ISINSTANCE, SORT
from agentflow.lang.python.forms import FORMS as PYTHON_FORMS
from agentflow.lang.python.methods import METHODS

FILE = Path(__file__).resolve().parents[1] / "lang" / "rows.json"
MODULES = (
    *("builtins", "changes", "compare", "declarations", "displays", "failure", "boxed.labelled", "methods", "requests"),
    *("support", "texts", "values"),
)
"""The modules of functions that code of Python texts calls."""
Row = dict[str, Any]


def code_row(function: Callable[..., Any]) -> Row:
    """What code that calls a function, and its twins, know of it."""
    traits = rows.traits_of(function)
    own = python_labelled._OWN.get(function)
    return {
        "flow": traits.flow,
        "tested": traits.tested,
        "keys": traits.keys,
        "within": traits.within,
        "twin": None if own is None else getattr(own, "__wrapped__", own).__name__,
        "out": traits.out if traits.out != "box" else None,
        "long": rows.takes_long(function),
        "long_in_boxes": rows.takes_long(function, labelled=True),
    }


def code_rows() -> Iterator[tuple[str, Row]]:
    """Functions of the package that code of Python texts calls, of which anything is known."""
    for module in MODULES:
        there = vars(importlib.import_module(f"agentflow.lang.python.{module}"))
        for name, each in there.items():
            if inspect.isfunction(each) and each.__module__ == there["__name__"] and not name.startswith("_"):
                row = code_row(each)
                if any(row.values() if row["flow"] != "r" else [each for key, each in row.items() if key != "flow"]):
                    yield f"code {module.rpartition('.')[2]}.{name}", row
    yield "code is_", code_row(operator.is_)
    yield "code check_collection", code_row(charging.check_collection)


_ALWAYS = {
    "truth": sizes._PLAIN,
    "text": sizes._TEXT,
    "number": scalar(number(None, None, whole=False)),
    "whole": scalar(number(None, None, whole=True)),
}


def size_rule(rule: Callable[..., Any]) -> str:
    """The rule by which the bounds follow a function: its name, or what it gives if that is always the same."""
    cells = [each.cell_contents for each in rule.__closure__ or ()]
    words = [next((word for word, value in _ALWAYS.items() if value == each), str(each)) for each in cells]
    return " ".join([rule.__qualname__.partition(".")[0].strip("_"), *words])


def signature_row(entry: rows.Row) -> Row:
    """What calls of a function are checked against."""
    return {
        "names": " ".join(entry.names),
        "least": entry.least,
        "positional": entry.positional,
        "is_async": entry.is_async,
    }


def function_rows() -> Iterator[tuple[str, Row]]:
    """Functions that Python texts call by name."""
    documented = {each.name: each for each in reference.python_entries()}
    for name, entry in {**BUILTINS, "isinstance": ISINSTANCE}.items():
        yield (
            f"function {name}",
            {
                **({} if entry is ISINSTANCE else signature_row(entry) | code_row(entry.function)),
                "takes": entry.takes,
                "alone": entry.alone,
                "hint": entry.hint,
                "usage": documented[name].usage,
                "doc": entry.doc if entry is not ISINSTANCE else None,
                "gives": None if entry.gives is None else entry.gives.__name__,
                "size": size_rule(sizes.FUNCTIONS[name]),
                "calls": entry.calls,
            },
        )


def method_rows() -> Iterator[tuple[str, Row]]:
    """Methods of each type."""
    documented = {(each.kind, each.name): each for each in reference.method_entries()}
    for kind, methods in METHODS.items():
        title = reference._TITLES[kind]
        for name, entry in {**methods, **({"sort": SORT} if kind is list else {})}.items():
            yield (
                f"method {title}.{name}",
                {
                    **signature_row(entry),
                    "takes": entry.takes,
                    "hint": entry.hint,
                    "usage": documented[f"method of {title}", name].usage,
                    "doc": entry.doc,
                    "within": entry.within,
                    "keeps": entry.flow,
                    "of_keys": entry.keys,
                    "changes": entry.changes,
                    "puts": name in python_flow._PUTTING,
                    "size": size_rule(sizes.METHODS[name]),
                    "looks_up": name in python_constants._LOOKUPS,
                    "compares": name in python_constants._COMPARES,
                },
            )


def primitive_rows() -> Iterator[tuple[str, Row]]:
    """Primitives of S-expressions."""
    for name, each in PRIMITIVES.items():
        main = each.canonical
        yield (
            f"primitive {name}",
            {
                **{
                    key: getattr(each, key)
                    for key in ("arity", "needs_rt", "is_async", "sliced", "canonical", "tails", "size", "flow")
                },
                "takes": each.takes,
                "asked": each.asks,
                "calls": each.calls == 0,
                "called": None if each.tails else each.calls,
                "looked_at": main in strict._LOOKED_AT,
                "elementwise": name in model_names._ELEMENTWISE,
                "higher": main in nodes.HIGHER,
                "compares": main in constants._COMPARES,
                "orders": main in constants._ORDERS,
                "reads": main in constants._READS,
                "parses": main in constants._PARSES,
                "reads_numbers": main in constants._READS_NUMBERS,
            },
        )


def form_rows() -> Iterator[tuple[str, Row]]:
    """Forms of Python texts, and those of S-expressions with operations of the runtime."""
    importlib.import_module("agentflow.lang.python.compiling")  # declares the forms
    for name, form in PYTHON_FORMS.items():
        yield (
            f"form {name}",
            {
                "usage": form.usage,
                "takes": form.takes,
                "gives": None if form.gives is None else form.gives.__name__,
                "runs": form.runs,
                "asked": form.asks,
                "calls": form.calls,
            },
        )
    for name, form in FORMS.items():
        if form.takes is not None:
            yield f"sexp form {name}", {"takes": form.takes, "runs": (0, 1) if form.runs else None}


def _is_said(key: str, value: object) -> bool:
    return value is not None and value is not False and (value != "" or key == "changes")


def text() -> str:
    """The content of the file: a line for each row, with what differs from nothing."""
    rows = [*code_rows(), *function_rows(), *method_rows(), *primitive_rows(), *form_rows()]
    lines = [
        f"{json.dumps(title)}: {json.dumps({key: each for key, each in row.items() if _is_said(key, each)})}"
        for title, row in rows
    ]
    return "{\n" + ",\n".join(sorted(lines)) + "\n}\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(text(), "utf-8")
    else:
        sys.stdout.write(text())
