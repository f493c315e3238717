"""The plain interpreter of the kernel against the compiler: two implementations, and one meaning."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from agentflow import AgentFlow, Provenance, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source, Surface
from agentflow.events import TaskStarted
from agentflow.lang.kernel import nodes
from tests.lang.fuzz import fuzz_kernel
from tests.support.kernel.compared import LIMITS, difference, outcome_of
from tests.support.manual import blocks
from tests.support.python_manual import python_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [(each, "sexp") for each in sorted((ROOT / "tests/spec").glob("*.md"))]
PAGES += [(each, "python") for each in sorted((ROOT / "tests/spec_python").glob("*.md"))]
COUNTS: dict[Surface, int] = {"sexp": 50, "python": 20}
"""Random programs of a part; the texts in Python are long."""


@pytest.mark.parametrize("page, surface", PAGES, ids=lambda each: getattr(each, "stem", each))
async def test_the_manual_means_the_same(page: Path, surface: Surface) -> None:
    """Each program of both manuals gives the same value or error at the same place, the same effects by number, variables and steps."""
    found = blocks(page) if surface == "sexp" else python_blocks(page)
    texts = {each.program for block in found for each in block.expectations}
    wrong = [await difference(text, surface) for text in sorted(texts) if "spin" not in text]
    assert [each for each in wrong if each] == []


SPREAD = sorted(
    {
        each.program.replace(" ", "\n ")
        for page, surface in PAGES
        if surface == "sexp"
        for block in blocks(page)
        for each in block.expectations
        if each.kind == "error:" and not {'"', ";"} & set(each.program)
    }
    | {"(define a 1)\n(defi\n  ne x 1)", "(+ 1\n  (f (x 1)\n (y 2)))"}
)
"""Programs that end in an error, with each word on a line of its own."""


async def test_an_error_of_a_call_over_several_lines_has_the_place_of_the_call() -> None:
    """A call that begins on one line and ends on another is the place of its error as it is on one line.

    Python moves the call of an attribute to its last line, so an unknown operator was reported at the line after it.
    """
    wrong = [await difference(text) for text in SPREAD]
    assert len(SPREAD) > 10 and [each for each in wrong if each] == []


EXAMPLES = {each.stem: each.read_text("utf-8") for each in sorted((ROOT / "examples").rglob("*.sexp"))}


@pytest.mark.parametrize("name", EXAMPLES)
async def test_the_examples_mean_the_same(name: str) -> None:
    """So do the programs among the examples, with a world that answers for their tasks and tools."""
    assert await difference(EXAMPLES[name]) is None


ROUND = "(f (- x 1))"
"""A call that the procedure ends in, 200 times: more than are nested, so that it is left to the caller."""
TAILS = {
    "if": f"(if (= x 0) 'end {ROUND})",
    "cond": f"(cond ((= x 0) 'end) (else {ROUND}))",
    "and": f"(and true (if (= x 0) 'end {ROUND}))",
    "or": f"(or false (if (= x 0) 'end {ROUND}))",
    "begin": f"(begin 1 (if (= x 0) 'end {ROUND}))",
    "let": f"(let ((y x)) (if (= y 0) 'end {ROUND}))",
    "captured": f"(let ((y x)) (define (g) y) (if (= (g) 0) 'end {ROUND}))",
    "named let": f"(let go ((y x)) (if (= x 0) 'end (if (> y (- x 2)) (go (- y 1)) {ROUND})))",
    "do": f"(do ((i 0 (+ i 1))) ((= i 2) (if (= x 0) 'end {ROUND})))",
    "case": f"(case x ((0) 'end) (else {ROUND}))",
    "apply": "(if (= x 0) 'end (apply f (list (- x 1))))",
    "other arity": f"(if (= x 0) 'end (if (> x 1000) (f 1 2) {ROUND}))",
}
DEFINED = {
    "global": "(define (f x) {body}) {use}",
    "local": "(let ((a 1)) (define (f x) {body}) {use})",
    "inner": "(define (outer) (define (f x) {body}) {use}) (outer)",
    "letrec": "(letrec ((f (lambda (x) {body}))) {use})",
    "named": "(define (g) (let f ((x 200)) {body})) (list (let f ((x 200)) (if (> x 900) (list f) {body})) {use_g})",
}
USES = {"operand": "(list {call})", "test": "(if (symbol? {call}) 'yes 'no)", "bound": "(let ((v {call})) (list v))"}


@pytest.mark.parametrize("tail", TAILS)
async def test_a_value_that_is_used_is_never_a_call_left_over(tail: str) -> None:
    """Wherever a procedure ends in a call of itself, its value is the value: many calls deep, and however it is defined and used.

    A call left to a caller that did not expect one used to be the value of the procedure (a `list` of it printed `#<sentinel>`).
    """
    wrong: list[str | None] = []
    for defined in DEFINED.values():
        for use in USES.values():
            names = {"body": TAILS[tail], "use": use.format(call="(f 200)"), "use_g": use.format(call="(g)")}
            wrong.append(await difference(defined.format(**names)))
    assert [each for each in wrong if each] == []


CALLED = '(defatom t (params) (instructions "do x")) '
SYMBOLS = [
    "((lambda (x) (x)) 't)",
    "(dynamic-wind 't (lambda () (error 1)) 't)",
    "(map (lambda (x) (x)) (list 't))",
    "(apply 't '())",
    "(retry 2 (apply 't '()))",
    "(retry 2 ((lambda (x) (x)) 't))",
]


@pytest.mark.parametrize("text", SYMBOLS)
async def test_a_task_that_is_called_by_its_name_has_the_place_of_the_call(text: str) -> None:
    """A symbol in place of a procedure is called where it stands, for a run that a policy has interpreted, too."""
    assert await difference(CALLED + text) is None
    found: list[list[object]] = []
    for policy in (None, Provenance(strict=True)):
        async with AgentFlow(provider=ScriptedProvider(lambda request: "done"), provenance=policy) as flow:
            found.append(spans := [])
            flow.subscribe(lambda event: spans.append(repr(event.span)) if isinstance(event, TaskStarted) else None)
            with suppress(AgentflowError):
                await flow.run(CALLED + text)
    assert found[0] == found[1] and found[0] and "None" not in found[0]


@pytest.mark.parametrize(
    "text", ["((\ud800) )", "(+ 1\n  \ud800 (f))", '(list "\ud83d" \u00e9 x)', "(\U0001f600 (y\ud800))"]
)
async def test_places_count_characters_that_are_not_text_as_one(text: str) -> None:
    """A lone half of a surrogate pair is one character of a place, as everywhere else; it was counted as three."""
    assert await difference(text) is None


@pytest.mark.parametrize("where", ["{}", "def f():\n    {}\n    return xs\nf()"])
async def test_lists_that_grow_take_the_same_steps(where: str) -> None:
    """However a list grows past the 64 elements that one step pays for, and whoever it belongs to.

    The compiler did not charge for what a loop appends to a list of its own function, and the nodes did.
    """
    indent = "\n    " if "def" in where else "\n"
    for grow in (
        "xs.append(i)",
        "xs.append(i)\n    xs.append(0)",
        "xs.extend([i, i])",
        "xs += [i]",
        "xs.insert(0, i)",
        "ys.append(i)",
    ):
        lines = f"xs = []\nys = xs\nfor i in range(150):\n    {grow}".replace("\n", indent)
        assert await difference(where.format(lines), "python") is None


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 7))])
@pytest.mark.parametrize("surface", ["sexp", "python"])
async def test_random_programs_mean_the_same(surface: Surface, part: int) -> None:
    """So do random programs. A hundred thousand: ``python tests/lang/fuzz.py --kernel --count 100000 --jobs 2``."""
    count = COUNTS[surface]
    report = await fuzz_kernel(part * count, count, surface)
    assert report.outcomes["same"] == count and not report.broken, "\n\n".join(report.broken[:3])


@pytest.mark.parametrize("surface, text", [("sexp", "(+ 1 2)"), ("python", "1 + 2")])
async def test_a_node_that_means_something_else_is_found(surface: Surface, text: str) -> None:
    """The comparison can fail: a program with other nodes has another outcome."""
    one = await outcome_of(Source("<text>", text, surface), LIMITS, by_kernel=True)
    other = await outcome_of(Source("<text>", text.replace("2", "3"), surface), LIMITS, by_kernel=False)
    assert one.value == "3" and one != other


def test_there_are_25_kinds_of_node() -> None:
    """A new form or operation is a row, or made of what there is: the kinds of node stay these."""
    kinds = [
        each for each in nodes.Node.__subclasses__() if not each.__name__.startswith("Either") or each is nodes.Either
    ]
    assert len(kinds) == 25
