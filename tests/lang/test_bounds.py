"""What is said of programs before they run is never less than what they do."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.values import Symbol
from agentflow.lang.bounds.analysis import Analysis
from agentflow.lang.bounds.interpret import AnalysisInputs
from agentflow.lang.bounds.nodes import HIGHER
from agentflow.lang.bounds.polynomial import UNBOUNDED, ZERO, Bound
from agentflow.lang.bounds.primitives import RULES, given
from agentflow.lang.bounds.ready import sexp_readied
from agentflow.lang.bounds.texts import readied
from agentflow.lang.bounds.values import Value, constant
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.diagnosis import analyse
from agentflow.tasks.template_registry import CompiledTemplate, prepare_definition
from tests.benchmarks.bounds_cost import HOSTILE
from tests.lang.bounds_fuzz import check
from tests.support.bounds_programs import LISTS, TOOLS
from tests.support.world import World

_TASKS = ("ask", "grade", "plan")
GIVEN = ("files", "other", "n", "f")


class Described:
    """A world of three tasks and a tool."""

    def describe(self, name: str) -> NameInfo | None:
        kind = "task" if name in _TASKS else "tool" if name == "look" else None
        return None if kind is None else NameInfo(kind, None, open=True)

    def prepare(self, fields: Any) -> CompiledTemplate:
        return prepare_definition(fields)

    def known_names(self) -> list[str]:
        return [*_TASKS, "look"]


def _weights(kind: str, name: str, templates: Any) -> dict[str, float]:
    return {"task": {"calls": 1.0}, "tool": {"tools": 1.0}, "any": {"calls": 1.0, "tools": 1.0}}.get(kind, {})


WEIGHTS = _weights
"""What each kind of effect counts as."""


def said(text: str, **bindings: Any) -> Analysis:
    """The analysis of a text in a world of three tasks and a tool."""
    text_ = readied(text, names=Described(), env_names=GIVEN)
    return text_.follow(AnalysisInputs(WEIGHTS, bindings or {}, GIVEN))


DROP = "(define (drop l n) (if (or (= n 0) (null? l)) l (drop (rest l) (- n 1))))"
DROP_FIRST = "(define (drop n l) (cond ((null? l) '()) ((not (> n 0)) l) (else (drop (- n 1) (cdr l)))))"
SORT = "(define (sorted l) (if (< (length l) 2) (ask (x l)) (let ((h {half})) (grade (x (list (sorted {first}) (sorted {other})))))))"
TAKE = "(define (take l n) (if (or (= n 0) (null? l)) nil (cons (first l) (take (rest l) (- n 1)))))"
TAKE_AND_DROP = f"{TAKE}{DROP}{SORT}".replace("{first}", "(take l h)").replace("{other}", "(drop l h)")
EXACT = [
    ("(ask (x 1))", "1"),
    ("(list (ask (x 1)) (ask (x 2)))", "2"),
    ("(map (lambda (f) (ask (x f))) files)", "len(files)"),
    ("(pmap (lambda (f) (begin (ask (x f)) (grade (x f)))) files 4)", "2*len(files)"),
    ("(map (lambda (f) (map (lambda (g) (ask (x g))) other)) files)", "len(files)*len(other)"),
    ("(if (look (x 1)) (ask (x 1)) (list (ask (x 1)) (ask (x 2))))", "2"),
    ("(cond ((look (x 1)) (ask (x 1))) ((ask (x 2)) 1) (else (grade (x 1))))", "2"),
    ("(retry 3 (ask (x 1)))", "3"),
    ("(loop 4 (ask (x 1)))", "4"),
    ("(try (ask (x 1)) (catch (e) (ask (x 2))) (finally (ask (x 3))))", "3"),
    ("(reduce (lambda (a x) (ask (x x))) 0 files)", "len(files)"),
    ("(filter (lambda (x) (ask (x x))) (append files files (list 1)))", "1 + 2*len(files)"),
    ("(map (lambda (s) (ask (x s))) (get-field (value-of (plan (x 1))) 'steps))", "1 + len(plan.steps)"),
    ("(define (c f g) (lambda (x) (f (g x)))) ((c (lambda (x) (ask (x x))) (lambda (x) (grade (x x)))) 1)", "2"),
    ('((get {"a" (lambda (x) (ask (x x))) "b" (lambda (x) 1)} "a") 1)', "1"),
    (
        "(map (lambda (s) (ask (x s))) (get (value-of (if n (ask (x 1)) (plan (x 1)))) 'steps))",
        "1 + len(ask.steps) + len(plan.steps)",
    ),
    (
        "(define r (if n (ask (x 1)) (plan (x 1)))) (map (lambda (s) (ask (x s))) (get r 'parsedContent))",
        "1 + len(ask) + len(plan)",
    ),
    (
        "(loop (string-length (get (if n (ask (x 1)) (plan (x 1))) 'content)) (ask (x 1)))",
        "1 + len(outcome(ask).content) + len(outcome(plan).content)",
    ),
    ("(define (go xs) (if (null? xs) 0 (begin (ask (x 1)) (go (rest xs))))) (go files)", "len(files)"),
    (
        "(define (go xs) (if (pair? xs) (cons (ask (x 1)) (go (rest xs))) (list))) (map (lambda (r) (ask (x r))) (go '(1 2)))",
        "4",
    ),
    ("(let go ((i 0) (acc (list))) (if (< i 5) (go (+ i 1) (cons i acc)) (map (lambda (r) (ask (x r))) acc)))", "5"),
    ("(let go ((i 0)) (if (= i (length files)) 1 (begin (ask (x i)) (go (+ i 1)))))", "len(files)"),
    ("(define (down n) (if (> n 0) (begin (ask (x n)) (down (- n 2))) 0)) (down 9)", "5"),
    ("(do ((i 0 (+ i 1))) ((>= i 7) 3) (ask (x i)))", "7"),
    ("(let go ((i 0)) (unless (> i (min n 3)) (ask (x i)) (go (+ i 1))))", "4"),
    (
        "(define (a xs) (if (null? xs) 0 (b (rest xs)))) (define (b xs) (begin (ask (x 1)) (a xs))) (a files)",
        "len(files)",
    ),
    ("(apply (lambda (a b) (ask (x a))) (list 1 2))", "1"),
    ("(define f2 (case-lambda ((a) (ask (x a))) ((a b) (ask (x b))))) (f2 1)", "1"),
    (
        "(director-evaluator-loop (max-iterations 3) (initial-director-input 1) (director (lambda (i n) (plan (x i))))"
        " (executor (lambda (p i) (ask (x p)))) (evaluator (lambda (r p i) (grade (x r))))"
        " (controller (lambda (f p r i) (list 'continue 1))))",
        "9",
    ),
    ("(define i 0) (while (< i 4) (ask (x i)) (set! i (+ i 1)))", "4"),
    ("(let ((i 9)) (while (> i 0) (ask (x i)) (set! i (- i 2))))", "5"),
    ("(let ((i 0)) (while (and (< i (length files)) (ask (x i))) (set! i (+ 1 i)) (grade (x i))))", "1 + 2*len(files)"),
    ("(let ((i 0)) (while (not (>= i 2.5)) (let ((r (ask (x i)))) (set! i (+ i 1)))))", "3"),
    ("(let ((i 0)) (while (< i 3) (map (lambda (x) (ask (x x))) (range i)) (set! i (+ i 1))))", "no bound"),
    ("(let go ((i 0)) (if (< i 2.5) (begin (ask (x i)) (go (+ i 1)))))", "3"),
    ("(define (half n) (if (> n 0) (begin (ask (x n)) (half (quotient n 2))))) (half 9)", "4"),
    ("(define (half n) (unless (zero? n) (ask (x n)) (half (quotient n 3)))) (half (length files))", "len(files)"),
    ("(define (half n) (if (>= n 1) (begin (ask (x n)) (half (/ n 2))))) (half 9)", "4"),
    ("(define (half n) (if (>= n 1) (begin (ask (x n)) (half (/ n 2))))) (half (length files))", "len(files)"),
    ("(define (both n) (if (> n 0) (list (ask (x 1)) (both (- n 1)) (both (- n 1))))) (both 5)", "31"),
    (
        "(define (both n) (if (> n 0) (begin (ask (x n)) (both (quotient n 2)) (both (quotient n 2))))) (both (length files))",
        "2*len(files)",
    ),
    (
        f"{TAKE} (define (go l) (unless (null? l) (ask (x 1)) (go (take l (quotient (length l) 2))))) (go files)",
        "len(files)",
    ),
    (
        f"{TAKE} (define (go l) (unless (null? l) (ask (x 1)) (go (take l (quotient (length l) 2))))) (go (range 9))",
        "4",
    ),
    (
        "(define (go l) (if (> (length l) 1) (begin (ask (x 1)) (go (map abs (range (quotient (+ (length l) 1) 2))))))) (go (range 9))",
        "4",
    ),
    ("(define (go l) (if (pair? l) (parallel (ask (x 1)) (go (rest l))))) (go files)", "len(files)"),
    (TAKE_AND_DROP.format(half="(quotient (length l) 2)") + "(sorted files)", "1 + 4*len(files)"),
    (TAKE_AND_DROP.format(half="(quotient (+ 1 (length l)) 2)") + "(sorted files)", "1 + 4*len(files)"),
    (TAKE_AND_DROP.format(half="(quotient (length l) 2)") + "(sorted (range 8))", "15"),
    (
        f"{TAKE}{DROP_FIRST}{SORT}(sorted files)".format(
            half="(quotient (length l) 2)", first="(take l h)", other="(drop h l)"
        ),
        "1 + 4*len(files)",
    ),
    (
        f"{TAKE}{SORT}(sorted files)".format(
            half="(quotient (length l) 2)",
            first="(take l h)",
            other="(let go ((m l) (n h)) (if (<= n 0) m (go (rest m) (- n 1))))",
        ),
        "1 + 4*len(files)",
    ),
    (
        "(define (merge a b) (cond ((null? a) b) ((null? b) a) ((ask (x a)) (cons (first a) (merge (rest a) b)))"
        " (else (cons (first b) (merge a (rest b)))))) (merge files other)",
        "len(files) + len(other)",
    ),
    ("(define (spin n) (spin n)) 1", "0"),
    ("(let spin ((i 0)) (spin (+ i 1)))", "0"),
]


@pytest.mark.parametrize(("text", "bound"), EXACT)
def test_task_shaped_programs_are_bounded_exactly(text: str, bound: str) -> None:
    """Sequences, choices, maps, loops and recursion over lists and counters have the bound that one would write down."""
    assert str(said(text).bound("calls")) == bound


def test_recursion_in_branches_widens() -> None:
    """What calls itself beside something else has as much at once as it has rounds."""
    text = "(define (go l) (if (pair? l) (parallel (ask (x 1)) (go (rest l))) (ask (x 2)))) (go files)"
    assert str(said(text).bound("width")) == "1 + len(files)"
    one_by_one = "(define (go l) (if (pair? l) (begin (parallel (ask (x 1)) (ask (x 2))) (go (rest l))))) (go files)"
    assert str(said(one_by_one).bound("width")) == "2"


UNSEEN = [
    ("(f 1)", "a binding that is a procedure"),
    ("(map f files)", "a binding given to a primitive"),
    ("((first files) 1)", "a procedure in a binding"),
    ("(try (raise f) (catch (e) ((get-field e 'value) 1)))", "the value of a caught error"),
    ('((eval-program "(lambda (x) x)") 1)', "a value of eval-program"),
    ('((get-field (solve "write") \'parsedContent) 1)', "a value of solve"),
    ("((value-of (call-workflow other)) 1)", "a value of a workflow"),
    ("((value-of (look (x 1))) 1)", "a value of a tool"),
    ("(define g (lambda (x) 1)) (set! g f) (g 1)", "a variable that is set"),
    ("(let ((g (lambda (x) 1))) (set! g f) (g 1))", "a local variable that is set"),
    ("(define g (lambda (x) 1)) (if f (define g f)) (g 1)", "a variable that is defined twice"),
    ("(sort files f)", "a callback of sort"),
    ("(reduce f 0 files)", "a callback of reduce"),
    ("(filter f '(1 2))", "a callback of filter"),
    ("(apply f files)", "a callback of apply"),
    ("(pmap f '(1 2) 2)", "a callback of pmap"),
    ("(for-each (first files) '(1))", "a callback out of a list"),
    ('(let ((t (dict "k" f))) ((get t "k") 1))', "a closure stored in a dict"),
    ('((get (put {} "k" f) "k") 1)', "a closure put into a dict"),
    ('((get (merge {"k" 1} f) "k") 1)', "a dict from elsewhere, merged"),
    ("((first (cons f files)) 1)", "a closure stored in a list"),
    ("((nth (append '() (list f)) 0) 1)", "a closure in a list that was joined"),
    ("(define (keep g) (lambda () g)) (((keep f)) 1)", "a closure kept by a closure"),
    ("(let loop ((g f) (n 3)) (if (= n 0) (g 1) (loop g (- n 1))))", "a closure carried by a loop"),
    ('((value-of (solve "x")) 1)', "the content of what solve gives"),
    ("(let ((x (eval-program '(lambda (y) y)))) (map x '(1)))", "a value of a constant program"),
    ('((get-field (try (error "x") (catch (e) e)) \'value) 1)', "an error as a value"),
    (
        "(director-evaluator-loop (max-iterations 2) (initial-director-input 1) (director f) (executor (lambda (p i) 1))"
        " (evaluator (lambda (r p i) 1)) (controller (lambda (f p r i) (list 'continue 1))))",
        "a procedure of a director loop",
    ),
    ("((first (parallel f (list 1))) 1)", "a value of a branch"),
    ("(parallel (f 1) 2)", "a call in a branch"),
    ("(map (lambda (g) ((first g) 1)) (zip files other))", "a procedure within lists of lists"),
    ("(retry 2 (f 1))", "a call that is tried again"),
]


@pytest.mark.parametrize(("text", "way"), UNSEEN)
def test_a_procedure_from_elsewhere_has_no_bound(text: str, way: str) -> None:
    """Whatever way a procedure comes in by that is not of the text: a call of it counts as unbounded, and says where."""
    analysis = said(text)
    assert analysis.bound("calls") == UNBOUNDED, way
    assert analysis.unbounded
    assert all(each.span.end > each.span.start for each in analysis.unbounded)


ENDLESS = [
    "(define (go x) (if (value-of (ask (x 1))) 1 (go x))) (go 1)",
    "(define (go xs) (begin (ask (x 1)) (go (cons 1 xs)))) (go files)",
    "(define (go n) (if (= n 0) 0 (begin (ask (x 1)) (go (- n 1))))) (go 2.5)",
    "(define (go n) (if (= n 0) 0 (begin (ask (x 1)) (go (- n 2))))) (go 9)",
    "(let go ((i 0)) (if (= i (random 9)) 0 (begin (ask (x 1)) (go (+ i 1)))))",
    "(let go ((i 0) (m 9)) (if (< i m) (begin (ask (x 1)) (go (+ i 1) (+ m 1)))))",
    "(define (go xs k) (if (null? xs) 0 (begin (ask (x 1)) (go (k) (lambda () xs))))) (go '(1) (lambda () '(1)))",
    "(while (ask (x 1)) 1)",
    "(define (both n) (if (> n 0) (list (ask (x 1)) (both (- n 1)) (both (- n 1))))) (both (length files))",
    "(define (half n) (if (> n -1) (begin (ask (x n)) (half (/ n 2))))) (half 9)",
    "(define (go l) (if (null? l) 0 (begin (ask (x 1)) (go (map abs (range (quotient (+ (length l) 1) 2))))))) (go files)",
    "(loop (value-of (ask (x 1))) (grade (x 1)))",
    "((lambda (y) (y y)) (lambda (y) (begin (ask (x 1)) (y y))))",
    "(let ((i 0)) (while (< i 4) (ask (x i)) (if (ask (x 1)) (set! i (+ i 1)))))",
    "(let ((i 0)) (while (< i 4) (ask (x i)) (set! i (+ i 1)) (set! i 0)))",
    "(let ((i 0)) (while (not (= i 5)) (ask (x i)) (set! i (+ i 2))))",
    "(let ((i 0) (n 4)) (while (< i n) (ask (x i)) (set! n (+ n 1)) (set! i (+ i 1))))",
    "(let ((i 0)) (while (< i 4) (ask (x i)) (try (begin (raise 1) (set! i (+ i 1))) (catch (e) 1))))",
    "(let* ((i 0) (back (lambda () (set! i 0)))) (while (< i 4) (ask (x i)) (back) (set! i (+ i 1))))",
    "(let ((i 0)) (while (< i 4) (ask (x i)) (set! i (- i 1))))",
    "(define i 0) (define j f) (while (< j 4) (ask (x i)) (set! j (+ j 1)))",
    "(define (half n) (if (> n -1) (begin (ask (x n)) (half (quotient n 2))))) (half 9)",
    "(define (half n) (if (< n 1) (begin (ask (x n)) (half (quotient n 2))))) (half 9)",
    TAKE_AND_DROP.format(half="(/ (length l) 2)") + "(sorted files)",
    TAKE_AND_DROP.format(half="(quotient (length l) 3)") + "(sorted files)",
    TAKE_AND_DROP.format(half="1") + "(sorted files)",
    TAKE_AND_DROP.replace("(drop l h)", "(drop files h)").format(half="(quotient (length l) 2)") + "(sorted files)",
    TAKE_AND_DROP.replace("(= n 0)", "(= n 1)").format(half="(quotient (length l) 2)") + "(sorted files)",
    TAKE_AND_DROP.replace(" (- n 1))))(define (sorted", " (- n 2))))(define (sorted").format(
        half="(quotient (length l) 2)"
    )
    + "(sorted files)",
    TAKE_AND_DROP.replace("(null? l)) l", "(null? (rest l))) l").format(half="(quotient (length l) 2)")
    + "(sorted files)",
    TAKE_AND_DROP.replace("(< (length l) 2)", "(null? l)").format(half="(quotient (length l) 2)") + "(sorted files)",
    TAKE_AND_DROP.replace("(define (sorted", "(set! drop (lambda (l n) l))(define (sorted").format(
        half="(quotient (length l) 2)"
    )
    + "(sorted files)",
    "(define (merge a b) (if (null? a) b (begin (ask (x a)) (if (ask (x 1)) (merge (rest a) b) (merge a (rest b))))))"
    " (merge files (cons 1 other))"
    " (define (turn a b) (begin (ask (x a)) (turn (rest a) (cons 1 b)) (turn (cons 1 a) (rest b)))) (turn files other)",
]


MERGE = (
    "(define (merge a b) (cond ((null? a) b) ((null? b) a) ((value-of (ask (x a))) (cons (first a) (merge (rest a) b)))"
    " (else (cons (first b) (merge a (rest b))))))"
)
MERGE_SORT = (
    f"{TAKE}{DROP}{MERGE}(define (sorted l) (if (< (length l) 2) l"
    " (let ((h (quotient (length l) 2))) (merge (sorted (take l h)) (sorted (drop l h))))))"
)
SORTED = "(for-each (lambda (x) (grade (x x))) (sorted files))"


def test_a_merge_sort_that_asks_at_each_comparison_is_bounded() -> None:
    """Merging has as many rounds as both lists have elements, and gives no more of them; neither does what sorts with it."""
    assert str(said(f"{MERGE}(for-each (lambda (x) (grade (x x))) (merge files other))").bound("task:grade")) == (
        "len(files) + len(other)"
    )
    sorts = said(MERGE_SORT + SORTED)
    assert (str(sorts.bound("task:grade")), str(sorts.bound("task:ask"))) == (
        "len(files)",
        "3*len(files) + 2*len(files)^2",
    )
    assert said(MERGE_SORT + SORTED, files=[1, 2, 3, 4]).bound("task:grade") == Bound.of(4)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(merge (rest a) b)", "(merge a b)"),
        ("(cons (first b) (merge a (rest b)))", "(cons 1 (cons 2 (merge a (rest b))))"),
        ("(cons (first b) (merge a (rest b)))", "(append a (merge a (rest b)))"),
        ("((null? a) b)", "((null? a) (append b b))"),
        ("((null? a) b)", "((null? a) (list 1 2 3))"),
        ("(sorted (drop l h))", "l"),
        ("(sorted (drop l h))", "(cons 1 (sorted (drop l h)))"),
        ("(define (sorted", "(set! merge (lambda (a b) (append a b b)))(define (sorted"),
    ],
)
def test_what_only_looks_like_a_merge_sort_is_not_taken_for_one(before: str, after: str) -> None:
    """Of what gives more elements than it was given, or may, the length is not said to be that of the list."""
    text = MERGE_SORT.replace(before, after)
    assert text != MERGE_SORT
    assert str(said(text + SORTED).bound("task:grade")) != "len(files)"


def test_a_list_that_recursion_makes_longer_has_no_known_length() -> None:
    """A list that doubles with each round has not the length that it began with, though its name is known."""
    text = "(define (go l n) (if (= n 0) (for-each (lambda (x) (ask (x x))) l) (go (append l l) (- n 1)))) (go {} 3)"
    for listed in ("files", "'(1 2)"):
        assert said(text.format(listed)).bound("calls") == UNBOUNDED


REPEATED = [
    ("(define (f) (g)) (define (g) (ask (x 1))) (f) (define (h) (f)) (f) (h)", "3"),
    ("(define (f l) (for-each (lambda (x) (ask (x x))) l)) (f files) (f files) (f other)", "2*len(files) + len(other)"),
    ("(letrec ((f (lambda () (g))) (a (try (f) (catch (e) 1))) (g (lambda () (ask (x 1))))) (f))", "1"),
    ("(define (f g) (g (x 1))) (f 'ask) (f 'grade) (f 'ask)", "3"),
    ("(define (f) (let ((k (lambda () (ask (x 1))))) (k) (k))) (f) (parallel (f) (f))", "6"),
    ("(define i 0) (define (f) (while (< i 3) (ask (x 1)) (set! i (+ i 1)))) (f) (f)", "6"),
    ("(define (f l) (if (pair? l) (begin (g l) (f (rest l))))) (define (g l) (begin (ask (x l)) (k))) (define (k) (ask (x 1)))"
     " (f files) (f files)", "4*len(files)"),
    ("(define (twice n) (if (> n 0) (begin (ask (x 1)) (once n) (once n)))) (define (once n) (twice (- n 1))) (twice 3)", "7"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "bound"), REPEATED)
def test_a_call_that_is_not_followed_again_counts_as_often_as_it_is_made(text: str, bound: str) -> None:
    """Calls with the arguments of an earlier one cost what that did, unless a variable has changed since or they recur."""
    assert str(said(text).bound("calls")) == bound


def test_procedures_that_call_one_another_twice_are_followed_once() -> None:
    """Forty procedures that call the one before twice are counted exactly, in about as many visits as they have nodes."""
    text = "".join(f"(define (f{n} x) (begin (f{n - 1} x) (f{n - 1} x)))" for n in range(1, 40))
    analysis = said(text.replace("(f0 x)", "(ask (x 1))") + "(f39 1)")
    assert analysis.bound("calls") == Bound.of(2**39)
    assert analysis.visits < 1_000


@pytest.mark.parametrize("text", ENDLESS)
def test_what_may_go_on_for_ever_has_no_bound(text: str) -> None:
    """Recursion without a measure, a counter that may step over its end, a bound that runs away: none is bounded."""
    analysis = said(text)
    assert analysis.bound("calls") == UNBOUNDED
    assert analysis.unbounded


def test_a_name_that_data_gives_is_one_call_of_anything() -> None:
    """An operator computed from an answer may name anything granted: that is one call, and its span is told."""
    analysis = said("(let ((g (value-of (ask (x 1))))) (g (x 1)))")
    assert (str(analysis.bound("calls")), str(analysis.bound("tools"))) == ("2", "1")
    assert len(analysis.by_data) == 1


def test_bindings_that_are_there_are_looked_at() -> None:
    """The length of a list among the bindings is a number; what is written in it is known."""
    text = "(map (lambda (f) (ask (x f))) files)"
    assert str(said(text, files=["a", "b"]).bound("calls")) == "2"
    assert said("(map (lambda (g) (g (x 1))) files)", files=["ask", "look"]).reaches == {
        ("task", "ask"),
        ("tool", "look"),
    }


def test_width_is_what_runs_at_once() -> None:
    """Branches side by side add up, one after the other they do not, and a limit of pmap holds."""
    widths = {
        "(list (ask (x 1)) (ask (x 2)))": "1",
        "(parallel (ask (x 1)) (list (ask (x 2)) (ask (x 3))))": "2",
        "(pmap (lambda (f) (parallel (ask (x 1)) (ask (x f)))) files 4)": "8",
        "(pmap (lambda (f) (ask (x f))) files)": "len(files)",
    }
    assert {text: str(said(text).bound("width")) for text in widths} == widths


def test_a_hostile_text_ends_the_analysis() -> None:
    """A text that would be followed for ever is given up, and says so."""
    levels = " ".join(f"(define (g{i} x) (list (g{i + 1} (* 2 x)) (g{i + 1} (+ (* 2 x) 1))))" for i in range(60))
    analysis = said(f"{levels} (define (g60 x) (ask (x x))) (g0 1)")
    assert analysis.bound("calls") == UNBOUNDED
    assert "took too long" in analysis.unbounded[0].reason


def _covers(said: Value, value: Any) -> bool:
    """Whether ``value`` is one of what ``said`` says."""
    if said.never:
        return False
    if isinstance(value, str | Symbol):
        return said.texts is None or str(value) in said.texts
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        above = said.low is None or value >= said.low
        below = said.high is None or said.high.number is None or value <= max(said.high.number, 0)
        return above and below and (not said.whole or isinstance(value, int))
    length = said.length
    if length is not None and length.number is not None and len(value) > length.number:
        return False
    if isinstance(value, dict):
        return all(_covers(said.part(str(key)), each) for key, each in value.items())
    return all(_covers(said.element(), each) for each in value)


def test_every_primitive_says_what_it_gives() -> None:
    """Every primitive declares the form of its value, by a word that has a rule; or that it calls procedures, which are followed."""
    called = {each.canonical for each in PRIMITIVES.values() if each.size == "called"}
    assert called == set(HIGHER)
    assert {each.size for each in PRIMITIVES.values()} == {*RULES, "called"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_given_up(name: str) -> None:
    """Whatever a text makes the analysis do: it ends after so many visits, and what was not seen has no bound."""
    world = World(dict.fromkeys(TOOLS, lambda _: None))
    try:
        analyzer, tree = analyse(HOSTILE[name], names=world, env_names=LISTS)
    except AgentflowError as error:
        assert error.code in ("limits/nodes", "limits/nesting")
        return
    found = sexp_readied(analyzer, tree).follow(AnalysisInputs(WEIGHTS, sources=LISTS, visits=5_000))
    assert found.visits <= 5_001
    assert found.bound("tools") == UNBOUNDED or found.bound("tools") != ZERO


async def test_what_is_said_of_a_primitive_covers_what_it_gives() -> None:
    """For every primitive without procedures: its result is among what is said of it, whatever its arguments."""
    rng, world, seen = random.Random(3), World({}), set[str]()
    values = [
        "0",
        "1",
        "3",
        "-2",
        "2.5",
        "'()",
        "'(1 2 3)",
        "'((1 2) (3 4))",
        '"a"',
        '"b,c"',
        '{"a" 1}',
        '{"b" (list 1)}',
        "'b",
    ]
    pure = [each for each in PRIMITIVES.values() if each.size in RULES and not each.is_async and each.name != "gensym"]
    for _ in range(20 * len(pure)):
        primitive = rng.choice(pure)
        least, most = primitive.arity
        count = rng.randint(least, least + 2 if most is None else most)
        texts = [rng.choice(values) for _ in range(count)]
        try:
            result = await world.run(f"({primitive.name} {' '.join(texts)})")
            given_values = [constant(await world.run(text)) for text in texts]
        except AgentflowError:
            continue
        seen.add(primitive.size)
        assert _covers(given(primitive.size, given_values), result), (primitive.name, texts, result)
    assert len(seen) > 25


def test_polynomials() -> None:
    """Sums and products are exact, a join is above both, sizes are filled in, and text is readable."""
    files, other = Bound.size("len(files)"), Bound.size("len(other)")
    assert str((files + Bound.of(2)) * files) == "2*len(files) + len(files)^2"
    assert (files * Bound.of(3)).join(files + other).terms == {("len(files)",): 3, ("len(other)",): 1}
    assert (files * other + Bound.of(1)).at({"len(files)": 2, "len(other)": 5}) == 11
    assert ZERO * UNBOUNDED == ZERO
    assert (files + UNBOUNDED).at({"len(files)": 1}) is None
    assert str(Bound.of(1200) * files + Bound.of(0.25)) == "0.25 + 1,200*len(files)"


async def test_made_up_programs_never_do_more_than_was_said() -> None:
    """Of random programs with loops, recursion, closures, errors, set! and eval-program none calls more tools than said."""
    outcomes = [await check(number) for number in range(150)]
    assert not [wrong for _, wrong in outcomes if wrong is not None]
    assert sum(outcome == "exact" for outcome, _ in outcomes) > 50


@pytest.mark.slow
async def test_many_made_up_programs_never_do_more_than_was_said() -> None:
    """The same of a thousand others."""
    for number in range(1_000_000, 1_001_000):
        _, wrong = await check(number)
        assert wrong is None
