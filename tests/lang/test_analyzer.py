"""Mistakes that can be seen without running are errors before anything runs, several per program, each at its place."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError, SexpSyntaxError
from agentflow.core.data.known_names import NameKind
from agentflow.lang.diagnosis import check_program
from agentflow.lang.forms import FORMS
from agentflow.lang.program import ProgramCache, compile_program
from agentflow.lang.reader import Incomplete, read
from tests.support.fake_run import FakeFlow, KindsOf, evaluate

MALFORMED = [
    ("(if)", "form/arity", "(if)"),
    ("(if 1 2 3 4)", "form/arity", "(if 1 2 3 4)"),
    ("(let x)", "form/arity", "(let x)"),
    ("(let (x) 1)", "form/bindings", "x"),
    ("(let ((x 1 2)) 1)", "form/bindings", "(x 1 2)"),
    ("(let ((1 2)) 1)", "form/bindings", "1"),
    ("(let ((x 1) (x 2)) x)", "form/duplicate", "x"),
    ("(lambda (x x) 1)", "form/duplicate", "x"),
    ("(lambda x 1)", "form/parameters", "x"),
    ("(lambda (x . y z) 1)", "form/parameters", "."),
    ("(lambda (x))", "form/arity", "(lambda (x))"),
    ("(define)", "form/arity", "(define)"),
    ("(define 1 2)", "form/define", "1"),
    ("(define x 1 2)", "form/arity", "(define x 1 2)"),
    ("(set! 1 2)", "form/set", "1"),
    ("(loop 1)", "form/arity", "(loop 1)"),
    ("(cond 1)", "form/clause", "1"),
    ("(cond (else 1) (2 3))", "form/clause", "(else 1)"),
    ("(case 1 (1 2))", "form/clause", "1"),
    ("(try 1)", "form/try", "(try 1)"),
    ("(try 1 (catch e 1))", "form/try", "(catch e 1)"),
    ("(try (catch (e) 1) 2)", "form/try", "(catch (e) 1)"),
    ("(catch (e) 1)", "form/try", "(catch (e) 1)"),
    ("(quote)", "form/arity", "(quote)"),
    (",x", "form/unquote", ",x"),
    ("`,@x", "form/splice", ",@x"),
    ("(do ((i 0)) 1)", "form/do", None),
    ("(define (if a) a)", "form/define", "if"),
    ("(define when (lambda (x) x))", "form/define", "when"),
    ("(defmacro twice (x) x) (define (twice x) x)", "form/define", "twice"),
    ('(get_context ("query" "x"))', "call/positional", '"query"'),
    ('(call-workflow w ("p" 1))', "call/positional", '"p"'),
    ("(defatom t (params (p)))", "defatom/instructions", None),
    ('(defatom t (params) (instructions "{{q}}"))', "defatom/place", "{{q}}"),
    ('(defatom t (params (p) (p)) (instructions "x"))', "form/duplicate", "(p)"),
    ('(defatom t (params) (instructions "x") (colour "red"))', "defatom/option", '(colour "red")'),
    ('(defatom "t" (params) (instructions "x"))', "defatom/name", '"t"'),
    ("(director-evaluator-loop (max-iterations 1))", "form/clause", None),
    ("(task 1)", "call/positional", "1"),
    ("(task (a 1) (a 2))", "call/duplicate", "(a 2)"),
    ("(get_context 1)", "call/positional", "1"),
    ("if", "form/value", "if"),
    ("(parallel (set! y 1))", "concurrency/shared-set", "(set! y 1)"),
    ("(let ((x 1)) (pmap (lambda (i) (parallel (set! x i))) '()))", None, None),
    ("(eval-program 1 (permit a))", "form/clause", "(permit a)"),
    ("(lambda () (defmacro m (x) x))", "macro/place", None),
]


@pytest.mark.parametrize(("text", "code", "place"), MALFORMED)
def test_malformed_forms_are_errors_at_compile_time(text: str, code: str | None, place: str | None) -> None:
    """With a code, at the place that is wrong, and saying what to write where that can be said."""
    kinds: dict[str, NameKind] = {"task": "task", "y": "variable"}
    found = check_program(text, names=KindsOf(kinds))
    if code is None:
        assert not found
        return
    assert [error.code for error in found] == [code]
    assert isinstance(found[0], SexpEvaluationError)
    assert found[0].span is not None
    if place is not None:
        assert found[0].span.text == place


def test_several_mistakes_are_reported_together_in_order() -> None:
    """One mistake does not hide the next, in the same body or in another form."""
    text = "(if)\n(define (f x)\n  (let (y) y)\n  (set! 1 2)\n  x)\n(loop 1)"
    found = check_program(text)
    assert [(error.code, error.span.line if error.span else 0) for error in found] == [
        ("form/arity", 1),
        ("form/bindings", 3),
        ("form/set", 4),
        ("form/arity", 6),
    ]
    with pytest.raises(SexpEvaluationError) as caught:
        compile_program(text)
    assert caught.value.code == "form/arity"


async def test_nothing_runs_when_something_is_malformed() -> None:
    """A mistake in the last form is found before the first form's effect."""
    flow = FakeFlow(tools={"act": lambda: 1})
    with pytest.raises(SexpEvaluationError):
        await flow("(act) (act) (if)")
    assert flow.performer.effects == []


@pytest.mark.parametrize(
    "text",
    [
        "(other (x 1))",
        "(lambda () (other (x 1)))",
        "(if 0 (other) 1)",
        "(get_context (query 1))",
        '(defatom t (params) (instructions "x"))',
        "(solve 1)",
        "(call-workflow w)",
        "(missing 1)",
    ],
)
async def test_a_name_that_is_not_granted_is_refused_before_anything_runs(text: str) -> None:
    """With a grant list, other tasks and tools, and names nobody knows, are errors at compile time."""
    flow = FakeFlow(tools={"act": lambda: 1, "other": lambda x: x})
    with pytest.raises(SexpEvaluationError) as caught:
        await flow(f"(act) {text}", allow=["act"])
    assert caught.value.code == "name/not-granted"
    assert flow.performer.effects == []


@pytest.mark.parametrize(
    "text", ["((car '(other)) (x 1))", '("other" (x 1))', "(let ((f 'other)) (f (x 1)))", "(map 'other '(1))"]
)
async def test_a_computed_name_is_refused_when_reached(text: str) -> None:
    """A string or symbol that names a tool does not get round the grants."""
    flow = FakeFlow(tools={"other": lambda x: x})
    with pytest.raises(SexpEvaluationError) as caught:
        await flow(text, allow=["act"])
    assert caught.value.code == "name/not-granted"
    assert flow.performer.effects == []


async def test_grants_are_never_widened() -> None:
    """eval-program inside a limited program may name only what both lists name."""
    flow = FakeFlow(tools={"a": lambda: 1, "b": lambda: 2})
    assert (await flow("(eval-program '(a) (allow a b))", allow=["a"])).parsed_content == 1
    with pytest.raises(SexpEvaluationError) as caught:
        await flow("(eval-program '(b) (allow a b))", allow=["a"])
    assert caught.value.code == "name/not-granted"
    with pytest.raises(SexpEvaluationError):
        await flow("(eval-program '(a))")


def test_programs_are_cached_by_content_and_kinds() -> None:
    """The same text gives the same Program while its free names mean the same, and another when they do not."""
    cache = ProgramCache()
    kinds: dict[str, NameKind] = {}

    def get() -> object:
        return compile_program("(f (x 1))", names=KindsOf(kinds), cache=cache)

    first = get()
    assert get() is first
    kinds["f"] = "tool"
    second = get()
    assert second is not first
    assert get() is second
    kinds.clear()
    assert get() is first


async def test_a_program_fits_itself_to_the_environment() -> None:
    """Compiled where a name was a primitive, it runs where the host has bound that name."""
    flow = FakeFlow()
    program = flow.compile("(+ 1 2)")
    assert await flow(program) == 3
    flow.env.define("+", lambda a, b: a * 10 + b)
    assert await flow(program) == 12


def test_incomplete_text_is_told_from_wrong_text() -> None:
    """A prompt can go on asking for more lines while the text is only unfinished."""
    for text in ["(+ 1", '"abc', "#| x", "'", "", '(f "x', "{1 2"]:
        with pytest.raises(Incomplete):
            read(text)
    for text in [")", "(]", "(+ 1))", '"\\q"', "1a"]:
        with pytest.raises(SexpSyntaxError) as caught:
            read(text)
        assert not isinstance(caught.value, Incomplete)


def test_every_form_is_documented() -> None:
    """Usage and documentation stand beside each form."""
    for form in FORMS.values():
        assert form.doc
        assert form.usage.startswith("(")


async def test_errors_carry_the_chain_of_program_calls() -> None:
    """The place is the failing form; each call on the way is there once, outermost last."""
    text = "(define (a x) (+ 1 (b x)))\n(define (b x) (* 2 (c x)))\n(define (c x) (car x))\n(+ 0 (a '()))"
    with pytest.raises(AgentflowError) as caught:
        await evaluate(text)
    error = caught.value
    assert error.span is not None
    assert error.span.text == "(car x)"
    assert [(frame.name, frame.span.line if frame.span else 0) for frame in error.frames] == [
        ("c", 2),
        ("b", 1),
        ("a", 4),
    ]


async def test_python_tracebacks_show_program_lines() -> None:
    """An ordinary traceback names the program and shows its line, while the program lives."""
    import traceback

    from agentflow.core.data.source import Source

    flow = FakeFlow()
    program = compile_program(Source("review.sexp", "(+ 1\n   (car '()))"))
    with pytest.raises(AgentflowError) as caught:
        await flow(program)
    shown = "".join(traceback.format_exception(caught.value))
    assert "review.sexp" in shown
    assert "(car '())" in shown
