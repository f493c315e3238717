"""What the names of sizes stand for, and that half a size, rounded either way, bounds what is done as often."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Surface
from agentflow.lang.program import ProgramCache
from tests.lang.bounds_fuzz import Counted, bounds, effects
from tests.support.world import Tool

CONTENT = "len(outcome(ta).content)"
VALUE, KEY = "len(ta)", "len(ta.content)"
NAMED: dict[str, tuple[Surface, str, str]] = {
    "the text of a result": ("sexp", '(loop (length (get (ta (x 1)) "content")) (tb (x 1)))', CONTENT),
    "the value of a result": ("sexp", "(for-each (lambda (e) (tb (x e))) (value-of (ta (x 1))))", VALUE),
    "its data": ("sexp", '(for-each (lambda (e) (tb (x e))) (get (ta (x 1)) "parsedContent"))', VALUE),
    "the content of its value": ("sexp", '(loop (length (get (value-of (ta (x 1))) "content")) (tb (x 1)))', KEY),
    "one of two results": ("sexp", "(loop (length (value-of (if 1 (ta (x 1)) (tb (x 1))))) (tb (x 1)))", VALUE),
    "the text of an outcome": ("python", "for e in outcome(ta(x=1)).content:\n    tb(x=1)\n1", CONTENT),
    "a value": ("python", "for e in ta(x=1):\n    tb(x=1)\n1", VALUE),
    "the data of an outcome": ("python", "for e in outcome(ta(x=1)).parsed_content:\n    tb(x=1)\n1", VALUE),
    "the content of a value": ("python", "for e in ta(x=1)['content']:\n    tb(x=1)\n1", KEY),
}
"""Programs that do something as often as a name says, and that name."""
HALVES: dict[Surface, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "python": (
        "n = len(outcome(ta(x=0)).content)\n",
        ("n // 2", "n / 2", "(n + 1) // 2", "-(-n // 2)", "round(n / 2)", "n - n // 2", "n // 3 * 2", "n / 0.7"),
        (
            "i = 0\nwhile i < {}:\n    i += 1\n    tb(x=1)\n1",
            "i = {}\nwhile i > 0:\n    i -= 2\n    tb(x=1)\n1",
            "for i in range(0, {}, 2):\n    tb(x=1)\n1",
            "def f(k):\n    if k <= 0:\n        return 0\n    tb(x=1)\n    return f(k - 1)\nf({})",
            "def f(k, m):\n    if k >= m:\n        return 0\n    tb(x=1)\n    return f(k + 1, m)\nf(0, {})",
        ),
    ),
    "sexp": (
        '(define n (length (get (ta (x 0)) "content"))) ',
        ("(quotient n 2)", "(/ n 2)", "(quotient (+ n 1) 2)", "(- n (quotient n 2))", "(round (/ n 2))", "(/ n 0.7)"),
        (
            "(loop {} (tb (x 1)))",
            "(let ((i 0)) (while (<= i {}) (set! i (+ i 2)) (tb (x 1))))",
            "(do ((i 0 (+ i 1))) ((>= i {}) 0) (tb (x 1)))",
            "(define (f k) (if (<= k 0) 0 (begin (tb (x 1)) (f (- k 1))))) (f {})",
            "(for-each (lambda (k) (tb (x 1))) (range {}))",
        ),
    ),
}
"""For each surface: a number, halves of it, and what is done as often as they say."""


def _answering(size: int) -> Tool:
    def answer(arguments: dict[str, Any]) -> TaskResult:
        return TaskResult.complete("n" * size, list(range(3)))

    return answer


@pytest.mark.parametrize("name", NAMED)
def test_a_size_has_the_name_of_what_is_long(name: str) -> None:
    """The text of a result is another than its value, and no part of one has the name of a part of the other."""
    surface, text, size = NAMED[name]
    calls = bounds(Source.unnamed(text, surface)).bound("calls")
    assert size in calls.sizes and not {CONTENT, VALUE, KEY} - {size} & calls.sizes


@pytest.mark.parametrize("surface", HALVES)
async def test_half_a_size_bounds_what_is_done_as_often(surface: Surface) -> None:
    """Rounded down, up or not at all; however long the text of a result is."""
    number, halves, loops = HALVES[surface]
    bounded = 0
    for half in halves:
        for loop in loops:
            source, programs = Source.unnamed(number + loop.format(half), surface), ProgramCache()
            said = bounds(source).bound("calls")
            if said.terms is None:
                continue
            bounded += 1
            for size in (0, 1, 2, 3, 7):
                ran = await effects(source, (0, 0), _answering(size), programs)
                most = said.at(ran.sizes)
                assert most is not None and ran.calls <= most, (source.text, size, ran.calls, said)
    assert bounded > 0.5 * len(halves) * len(loops)


@pytest.mark.parametrize("surface", HALVES)
async def test_a_name_stands_for_the_longest_of_all_answers(surface: Surface) -> None:
    """Of a tool whose answers differ, and fail at times: the bound holds for the longest that there was."""
    text = {
        "sexp": "(for-each (lambda (k) (for-each (lambda (e) (tb (x e))) (try (value-of (ta (x k))) (catch (e) nil)))) xs)",
        "python": "for k in xs:\n    try:\n        for e in ta(x=k):\n            tb(x=e)\n    except Exception as e:\n        tb(x=0)\n1",
    }[surface]
    rng = random.Random(7)

    def answer(arguments: dict[str, Any]) -> TaskResult:
        if rng.random() < 0.3:
            return TaskResult.failure("tool_execution_error", "it broke")
        return TaskResult.complete("numbers", list(range(rng.randrange(4))))

    source = Source.unnamed(text, surface)
    said = bounds(source).bound("calls")
    ran: Counted = await effects(source, (9, 0), answer, ProgramCache())
    most = said.at(ran.sizes)
    assert ran.sizes["len(ta)"] <= 3 and most is not None and 9 < ran.calls <= most
