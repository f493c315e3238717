"""Programs that try to hold the event loop or fill the memory, as data: what a benchmark measures and a test bounds.

Each case is a program text with bindings, run at default limits. Sizes stand for the largest operand the defaults allow;
a case that is refused earlier shows that too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentflow.core.data.source import Source, Surface

LIST = 1_000_000
"""Elements of the largest list."""
TEXT = 8_000_000
"""Characters of the largest string."""

_DAG = "(define (dag n x) (if (= n 0) x (dag (- n 1) (list x x)))) "
_DEEP = "(define (deep n x) (if (= n 0) x (deep (- n 1) (list x)))) "
_BIG = f"(define xs (range {LIST})) "
_TWO = _BIG + f"(define ys (range {LIST})) "
_DICT = "(define d (apply dict xs)) "
_TEXT = '(define (grow s n) (if (= n 0) s (grow (string-append s s) (- n 1)))) (define s (grow "abcdefgh" 19)) '
_WIDE = '(define s (grow "a,b " 20)) '
_HUGE = "(define n (do ((i 0 (+ i 1)) (n 3 (* n n))) ((= i 16) n))) "


@dataclass(frozen=True, slots=True)
class Case:
    """One program: ``name``, ``text``, and what its variables are bound to (made anew for each run).

    ``replies`` are those of a scripted model, ``allow`` the grants of an untrusted program. A ``cold`` case has its language
    loaded while it is measured.
    """

    name: str
    text: str
    bindings: Callable[[], dict[str, Any]] = dict
    replies: Callable[[], list[Any]] = list
    allow: tuple[str, ...] | None = None
    surface: Surface = "sexp"
    cold: bool = False

    @property
    def source(self) -> Source:
        """The text in its language."""
        return Source.unnamed(self.text, self.surface)


def _colliding(count: int) -> dict[str, Any]:
    return {"ks": [n * (2**61 - 1) for n in range(1, count + 1)]}


def _floats(count: int) -> dict[str, Any]:
    return {"ks": [float(2**53) * 2**n for n in range(count % 900)] * (count // 900 + 1)}


def _json_text(size: int) -> str:
    return "[" + ",".join(['{"a": [1, 2, 3]}'] * (size // 17)) + "]"


def _primitives() -> list[Case]:
    """Every primitive on the largest operand it takes."""
    on_list = {
        "append": "(length (append xs xs))",
        "apply": "(apply + xs)",
        "apply-zip": "(length (apply zip (map (lambda (i) (range 1000)) (range 1000))))",
        "assoc": "(assoc -1 (map (lambda (x) (list x x)) (range 200000)))",
        "cons-by-one": "(length (do ((i 0 (+ i 1)) (l nil (cons i l))) ((= i 300000) l)))",
        "rest-by-one": "(do ((l (range 300000) (rest l)) (n 0 (+ n 1))) ((null? l) n))",
        "equal-elements": "(member (list -1) (map list (range 200000)))",
        "filter": "(length (filter (lambda (x) (> x 5)) xs))",
        "first-rest": "(first (rest xs))",
        "for-each": "(for-each (lambda (x) x) xs)",
        "format": '(string-length (format "{}" xs))',
        "get-field": '(get-field (dict "a" xs) \'a)',
        "length": "(length xs)",
        "list": "(length (apply list xs))",
        "log-message": "(string-length (log-message xs))",
        "map": "(length (map (lambda (x) x) xs))",
        "member": "(member -1 xs)",
        "member-often": "(map (lambda (i) (member -1 xs)) (range 300))",
        "min": "(apply min xs)",
        "nth": "(nth xs 999999)",
        "pmap": "(length (pmap (lambda (x) x) (range 100000)))",
        "range": "(length (range 999999))",
        "reduce": "(reduce + 0 xs)",
        "reverse": "(first (reverse xs))",
        "sort": "(first (sort (reverse xs)))",
        "sort-by": "(first (sort (range 100000) >))",
        "string-join": '(string-length (string-join (map number->string (range 200000)) ","))',
        "to-json": "(string-length (to-json xs))",
        "zip": "(length (zip xs xs))",
        "reverse-often": "(map (lambda (i) (first (reverse xs))) (range 200))",
        "append-halves": "(define ys (range 500000)) (length (append ys ys))",
        "append-many": "(length (apply append (map list (range 200000))))",
        "compare-many": "(apply < xs)",
        "divide-many": "(apply / (map (lambda (x) 1) xs))",
        "string-append-many": "(string-length (apply string-append (map number->string (range 200000))))",
        "dict-of-many": "(length (apply dict xs))",
        "dict-put": _DICT + "(length (put d 'a 1))",
        "dict-merge": _DICT + "(length (merge d (dict 'a 1)))",
        "dict-keys": _DICT + "(length (keys d))",
        "dict-values": _DICT + "(length (values d))",
        "dict-equal": _DICT + "(equal? d (put d 'a 1))",
    }
    on_text = {
        "parse-json": '(length (parse-json (string-append "[" (string-join (map (lambda (i) "[1]") (range 500000)) ",") "]")))',
        "string-append": '(string-length (string-append s ""))',
        "string-contains": '(string-contains? s "hgfedcba")',
        "string-replace": '(string-length (string-replace s "a" "b"))',
        "string-replace-grow": '(string-length (string-replace s "a" "bbbbbbbbbbbb"))',
        "string-split": '(length (string-split s "h"))',
        "string-trim": "(string-length (string-trim s))",
        "string-upcase": "(string-length (string-upcase s))",
        "substring": "(string-length (substring s 1 4000000))",
        "string-equal": '(string=? s (string-append s ""))',
        "string-to-number": "(string->number s)",
        "string-to-symbol": "(symbol? (string->symbol s))",
        "format-text": "(string-length (format s))",
        "print-text": '(string-length (format "{}" (list s)))',
    }
    on_number = {
        "multiply": "(> (* n n) 0)",
        "number-to-string": "(string-length (number->string n))",
        "quotient": "(quotient n 7)",
        "modulo": "(modulo n (+ 1 (quotient n 3)))",
        "divide": "(/ n 3)",
        "add-often": "(do ((i 0 (+ i 1)) (t 0 (+ t n))) ((= i 2000) (> t 0)))",
    }
    return [
        *(Case(name, _BIG + text) for name, text in on_list.items()),
        *(Case(name, _TEXT + text) for name, text in on_text.items()),
        *(Case(name, _HUGE + text) for name, text in on_number.items()),
    ]


def _shapes() -> list[Case]:
    """Comparison, printing and copying of wide, deep and shared data."""
    return [
        Case("equal-wide", _TWO + "(equal? xs ys)"),
        Case("equal-shared", _DAG + "(equal? (dag 60 1) (dag 60 1))"),
        Case("print-shared", _DAG + '(format "{}" (dag 60 1))'),
        Case("json-shared", _DAG + "(to-json (dag 60 1))"),
        Case("log-shared", _DAG + "(log-message (dag 60 1))"),
        Case("eval-shared", _DAG + "(eval-program (list 'quote (dag 60 1)))"),
        Case("context-shared", _DAG + '(get_context (query "x") (inputs (dict "a" (dag 60 1))))'),
        Case("tool-shared", _DAG + "(take (value (dag 60 1)))"),
        Case("tool-wide", _BIG + "(take (value xs))"),
        Case("tool-result-wide", "(get-field (give (n 200000)) 'status)"),
        Case("task-shared", _DAG + '(defatom t (params (x any)) (instructions "{{x}}")) (t (x (dag 60 1)))'),
        Case("task-wide", _BIG + '(defatom t (params (x any)) (instructions "{{x}}")) (t (x xs))'),
        Case("solve-shared", _DAG + '(solve "g" (inputs (dict "a" (dag 60 1))) (max-rounds 1))'),
        Case("print-deep", _DEEP + '(format "{}" (deep 900 1))'),
        Case("equal-deep", _DEEP + "(equal? (deep 900 1) (deep 900 1))"),
        Case("json-too-deep", _DEEP + "(to-json (deep 100000 1))"),
        Case("dict-colliding", "(length (reduce (lambda (d k) (put d k 1)) (dict) ks))", lambda: _colliding(3_000)),
        Case("dict-colliding-at-once", "(length (apply dict (apply append (zip ks ks))))", lambda: _colliding(30_000)),
        Case("dict-floats", "(length (apply dict (apply append (zip ks ks))))", lambda: _floats(30_000)),
        Case("dict-often", "(do ((i 0 (+ i 1)) (d (dict) (put d i i))) ((= i 3000) (length d)))"),
        Case("task-typed-wide", _BIG + '(defatom t (params (x "integer[]")) (instructions "{{x}}")) (t (x xs))'),
        Case("tool-typed-wide", _BIG + "(total (values xs))"),
        Case("tool-text", _TEXT + "(take (value s))"),
        Case("context-wide", _BIG + '(get_context (query "x") (inputs (dict "a" xs)))'),
        Case("workflow-wide", _BIG + '(eval-program \'(length xs) (bindings (dict "xs" xs)))'),
        Case("error-of-wide", _BIG + "(try (raise xs) (catch (e) (get-field e 'message)))"),
        Case("error-leaves-wide", _BIG + "(raise xs)"),
        Case("error-leaves-branches", _BIG + "(parallel (parallel (parallel (raise xs))))"),
        Case("partial-wide", _BIG + "(map (lambda (i) (if (= i 3) (raise 1) (range 300000))) (range 9))"),
        Case("partial-of-branches", '(pmap (lambda (i) (if (= i 3) (error "x") (range 300000))) (range 9))'),
        Case("value-of-wide", _BIG + "xs"),
        Case("sort-texts", "(first (sort (map number->string (range 200000))))"),
    ]


def _programs() -> list[Case]:
    """Texts: macros, size, nesting, programs that come from data."""
    wide = "(begin " + " ".join(f"(define v{n} (+ {n} 1))" for n in range(1_000)) + ")"
    dense = "(list " + " ".join("(if (> 1 2) 'a (let ((x 1)) (lambda (y) (+ x y))))" for _ in range(380)) + ")"
    return [
        Case("text-wide-20k", wide),
        Case("text-dense-20k", dense),
        Case("text-nested", "(+ 1 " * 190 + "1" + ")" * 190),
        Case("macro-endless", "(defmacro m (x) (list 'm x)) (m 1)"),
        Case("macro-loop", "(defmacro m () (do ((i 0 (+ i 1))) ((= i 100000000) i))) (m)"),
        Case("macro-wide", "(defmacro m (n) (cons 'list (range n))) (length (m 12000))"),
        Case("macro-growing", "(defmacro m (x) (list 'begin x x)) (m (m (m (m (m (m (m (m (m (m (m (m 1))))))))))))"),
        Case("eval-wide", f"(eval-program {_quoted(dense)})"),
        Case("eval-loop", '(eval-program "(do ((i 0 (+ i 1))) (false i))" (max-steps 300000))'),
        Case("untrusted-loop", "(do ((i 0 (+ i 1))) (false i))", allow=()),
        Case("closures", "(length (map (lambda (i) (lambda (x) (+ x i))) (range 200000)))"),
        Case("recursion", "(define (f n) (if (= n 0) 0 (+ 1 (f (- n 1))))) (f 9000)"),
        Case("tail-calls", "(define (f n) (if (= n 0) 0 (f (- n 1)))) (f 1000000)"),
    ]


def _models() -> list[Case]:
    """What a model answers: large, much, and unclosed."""
    ask = '(defatom t (params) (instructions "x") (output_format "json")) (status (t))'
    plain = '(defatom t (params) (instructions "x")) (status (t))'
    return [
        Case("answer-json-8mb", ask, replies=lambda: [_json_text(TEXT - 100)]),
        Case("answer-text-8mb", plain, replies=lambda: ["word " * (TEXT // 5)]),
        Case(
            "answer-256-tool-calls",
            plain,
            replies=lambda: [
                {"tool_calls": [{"name": "take", "arguments": {"value": "x" * 20_000}} for _ in range(256)]},
                "done",
            ],
        ),
        Case("answer-json-50mb", ask, replies=lambda: [_json_text(50_000_000)]),
        Case("answer-text-50mb", plain, replies=lambda: ["word " * 10_000_000]),
        Case(
            "answer-20000-tool-calls",
            plain,
            replies=lambda: [
                {"tool_calls": [{"name": "take", "arguments": {"value": n}} for n in range(20_000)]},
                "done",
            ],
        ),
        Case(
            "answer-behind-an-open-key",
            plain,
            replies=lambda: ["-----BEGIN RSA PRIVATE KEY-----\n" + "abc " * 100_000],
        ),
        Case(
            "prompt-50mb",
            _TEXT + '(defatom t (params (x any)) (instructions "{{x}}")) (status (t (x (list s s s s s s))))',
        ),
    ]


def _memory() -> list[Case]:
    """What adds up, although each part is within its limit."""
    return [
        Case("sixty-strings", _TEXT + "(length (map (lambda (i) (string-append s (number->string i))) (range 120)))"),
        Case("sixty-lists", "(length (map (lambda (i) (range 1000000)) (range 60)))"),
        Case("split-often", _TEXT + '(length (map (lambda (i) (string-split s "h")) (range 40)))'),
        Case("log-a-gigabyte", _TEXT + "(for-each (lambda (i) (log-message s)) (range 250))"),
        Case(
            "zip-square",
            "(length (map (lambda (i) (apply zip (map (lambda (j) (range 1000)) (range 1000)))) (range 20)))",
        ),
        Case("nested-pmap", "(length (pmap (lambda (i) (pmap (lambda (j) (take (value j))) (range 60))) (range 60)))"),
        Case("pmap-million", "(length (pmap (lambda (x) x) (range 1000000)))"),
        Case("integers", _HUGE + "(length (map (lambda (i) (+ n i)) (range 40000)))"),
    ]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


CASES: dict[str, Case] = {
    case.name: case for case in [*_primitives(), *_shapes(), *_programs(), *_models(), *_memory()]
}
"""All cases by name."""
