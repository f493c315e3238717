"""The symbol table: every binding and reference of a text with its span, what it means, and where it is in force."""

from __future__ import annotations

import pytest

from agentflow.core.data.source import Source
from agentflow.lang.survey import Survey, Surveyor
from agentflow.lang.symbols import Located, Occurrence, SymbolTable
from tests.support.fake_run import FakeFlow


def survey(text: str) -> Survey:
    flow = FakeFlow(tasks={"ask": lambda q: q}, tools={"act": lambda x: x})
    return Surveyor(names=flow.performer).survey(Source("<string>", text))


def table(text: str) -> SymbolTable:
    symbols = survey(text).symbols
    assert symbols is not None
    return symbols


def marked(text: str) -> tuple[str, list[int]]:
    """A text without its marks ``^``, each before a name, and their offsets."""
    parts = text.split("^")
    return "".join(parts), [sum(map(len, parts[:index])) for index in range(1, len(parts))]


def starts(names: list[Located[Occurrence]]) -> list[int]:
    return [each.start for each in names]


SAME = [
    "(define (f ^x) (+ ^x 1 (let ((x ^x)) x)))",
    "(define (f x) (+ x 1 (let ((^x x)) ^x)))",
    "(define (^f x) (^f x)) (^f 1) (map ^f '(f))",
    "(let* ((^a 1) (b ^a) (c (+ ^a b))) ^a)",
    "(letrec ((^even (lambda (n) (odd n))) (odd (lambda (n) (^even n)))) (^even 1))",
    "(let ^loop ((i 0)) (if (> i 3) i (^loop (+ i 1))))",
    "(let loop ((^i 0)) (if (> ^i 3) ^i (loop (+ ^i 1))))",
    "(do ((^i 0 (+ ^i 1)) (j 9)) ((> ^i j) ^i) ^i)",
    "(do ((i 0 (+ i 1)) (^j 9)) ((> i ^j) i) i)",
    "(lambda (a . ^rest) (list a ^rest))",
    "(let-values (((^a b) (list 1 2))) (+ ^a b))",
    "(try (raise 1) (catch (^e) (get-field ^e 'e)))",
    "(guard (^e ((string? ^e) ^e)) (raise 1))",
    "(case-lambda ((^a) ^a) ((a b) a))",
    "(lambda () (define ^total 0) (set! ^total (+ ^total 1)) ^total)",
    "(lambda () (define (^inner x) x) (^inner 1))",
    "(define ^total 0) (set! ^total 1) (list ^total `(total ,^total))",
    '(defatom ^review (params) (instructions "x")) (^review) (solve "goal" (allow ^review ask))',
    '(defatom review (params (^path string)) (instructions "See {{^path}} and {{ ^path }}")) (review (^path 1))',
    '(defatom one (params p) (instructions "{{^two(p)}}")) (defatom ^two (params) (instructions "x"))',
    '(defatom one (params ^p) (instructions "{{two(^p)}}")) (defatom two (params p) (instructions "{{p}}"))',
    '(defatom one (params) (instructions "x") (tools ^two)) (defatom ^two (params) (instructions "x"))',
    "(define ^value 1) (ask (q ^value))",
    "(^later 1) (define (^later x) x)",
    "(^car '(1)) (map ^car '((1)))",
    "(pmap (lambda (^x) (ask (q ^x))) '(1 2))",
]


@pytest.mark.parametrize("text", SAME)
def test_occurrences_of_one_thing(text: str) -> None:
    """From each occurrence of a name, all occurrences of the same thing are found, and no other's."""
    plain, offsets = marked(text)
    symbols = table(plain)
    for offset in offsets:
        at = symbols.at(offset)
        assert at is not None and starts(symbols.occurrences_of(at)) == offsets


MEANINGS = [
    ("(^if 1 2)", "call", "form"),
    ("(map ^car '())", "read", "primitive"),
    ("(^ask (q 1))", "call", "task"),
    ("(ask (^q 1))", "argument", "argument"),
    ("(^act (x 1))", "call", "tool"),
    ("(list ^question)", "read", "unknown"),
    ("(^get_context (query 1))", "call", "context"),
    ("(defmacro swap (a b) (list 'list b a)) (^swap 1 2)", "call", "macro"),
    ("'(^ask 1)", "data", "data"),
    ("(lambda (x) (set! ^x 1))", "write", "local"),
    ("(^mystery (one 1))", "call", "unknown"),
]


@pytest.mark.parametrize(("text", "role", "kind"), MEANINGS)
def test_what_a_name_does_and_means(text: str, role: str, kind: str) -> None:
    """Each occurrence says its role and what it means."""
    plain, (offset,) = marked(text)
    at = table(plain).at(offset)
    assert at is not None and (at.what.role, at.what.kind) == (role, kind)


def test_bindings_in_force() -> None:
    """Inside a form its bindings are in force, the innermost first; outside, none of them."""
    text = "(define (f a b) (let ((a 1) (c 2)) (list a c))) (list 1)"
    symbols = table(text)
    inside = symbols.visible(text.index("(list a"))
    assert [each.name for each in inside][:2] in (["a", "c"], ["c", "a"])
    assert sorted(each.name for each in inside) == ["a", "a", "b", "c"]
    assert symbols.visible(text.index("(list 1")) == []
    assert [each.what.name for each in symbols.file_level()] == ["f"]


def test_procedures_and_tasks_say_what_they_take() -> None:
    """A procedure's binding has its parameters, a task's is described as a call of it needs."""
    seen = survey('(define (f a . more) a)\n(defatom t (params (p string) q) (instructions "{{p}}{{q}}"))')
    assert seen.symbols is not None
    f, t = [each.what for each in seen.symbols.file_level()]
    assert (f.kind, f.parameters, f.rest) == ("procedure", ("a",), "more")
    assert (t.kind, t.parameters) == ("task", ("p", "q"))
    assert [list(info.parameters or ()) for info in seen.tasks["t"]] == [["p", "q"]]


def test_what_macros_hide() -> None:
    """Calls and definitions of macros are opaque, and names that only an expansion uses are told apart."""
    text = "(define helper 1)\n(defmacro twice (x) `(list helper ,x ,x))\n(define y 2)\n(twice y)\n"
    symbols = table(text)
    spans = [text[offset + start : offset + end] for offset, part in symbols.parts for start, end in part.opaque]
    assert spans == ["(defmacro twice (x) `(list helper ,x ,x))", "(twice y)"]
    assert "helper" in set().union(*(part.hidden for _, part in symbols.parts))


def test_a_text_that_cannot_be_read_has_no_table() -> None:
    """Then there is its mistake only."""
    seen = survey("(define x 1")
    assert seen.symbols is None and [each.error.code for each in seen.diagnostics] == ["syntax/unclosed"]


def test_mistakes_leave_the_rest_of_the_names() -> None:
    """A malformed form does not take the names around it away."""
    text, offsets = marked("(define (^f x) (if)) (^f 1)")
    at = table(text).at(offsets[1])
    assert at is not None and starts(table(text).occurrences_of(at)) == offsets
