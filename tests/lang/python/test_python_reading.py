"""Reading Python texts: what is refused before Python's parser sees it, so that it warns of nothing."""

from __future__ import annotations

import ast
import sys
import threading
import warnings
from pathlib import Path

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.python.reader import children, read_python

WARNED = {
    r"'\d'": r"\d",
    r"x = 'a\\\d' + 1": r"\d",
    "'''a\n  \\q'''": r"\q",
    r"f'{1}\ '": "\\ ",
    r"'\477'": r"\477",
    "# it's\n'\\d'": r"\d",
    "[0x1for x in y]": "0x1f",
    "1if x else 2": "1",
    "x = 'a'if 1.5else 2": "1.5",
    "1.get(2)": "1.",
    "2x": "2",
}
QUIET = [
    r"r'\d'",
    r"R'''\d'''",
    r"'\\d \x41 \N{EN DASH} é \'\" \0 \377'",
    "'a\\\nb'",
    "# \\d\n1",
    "x = 1 \\\n + 2",
    "'#' + '\\n' # '\\d'",
    "1 if x else 2",
    "a1if = 2",
    "[0xff, 1e5, 1_000, 0b1, 1.5e-3, .5, 1.]",
    "f'{x!r:>{w}}\\n'",
    "'''it's \"\\n\" '''",
]


@pytest.mark.parametrize("text", WARNED)
def test_what_python_warns_of_is_refused_where_it_stands(text: str) -> None:
    """An escape that is none, and numbers that run into words: at their place, with what to write."""
    with warnings.catch_warnings(record=True) as seen, pytest.raises(AgentflowError) as caught:
        warnings.simplefilter("always")
        read_python(Source("t.py", text, "python"), Limits())
    assert caught.value.code == "syntax/python" and caught.value.hint and not seen
    span = caught.value.span
    assert span is not None and span.text == WARNED[text]


@pytest.mark.parametrize("text", QUIET)
def test_the_rest_is_read_as_python_does(text: str) -> None:
    """Without a warning, which would be an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ast.dump(read_python(Source("t.py", text, "python"), Limits())) == ast.dump(ast.parse(text))


def test_reading_leaves_the_filters_of_warnings_alone() -> None:
    """They are the whole process's: what one thread did to them while it read would be what another one has."""
    before = list(warnings.filters)
    threads = [
        threading.Thread(target=read_python, args=(Source("t.py", f"x = {n}\n" * 200, "python"), Limits()))
        for n in range(4)
    ]
    changed = []
    for thread in threads:
        thread.start()
        changed.append(list(warnings.filters) != before)
    for thread in threads:
        thread.join()
    assert not any(changed) and "catch_warnings" not in vars(sys.modules["agentflow.lang.python.reader"])


def test_no_node_of_a_text_is_passed_over() -> None:
    """The walk that counts nodes comes to each of them: fields that it does not look at hold none."""
    marks = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
    for path in (Path(__file__), Path(ast.__file__), Path(threading.__file__)):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            assert children(node) == [each for each in ast.iter_child_nodes(node) if not isinstance(each, marks)]
