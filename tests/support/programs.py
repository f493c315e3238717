"""Made-up programs: well-formed ones for the oracle (hypothesis), and any that the grammar allows for fuzzing."""

from __future__ import annotations

import random
import re

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms import FORMS

NUMERIC = ["+", "-", "*", "min", "max"]


@st.composite
def sequential(draw: DrawFn, depth: int = 4) -> str:
    """A program of the sequential core that ends. ``(note n)`` is an effect of the host that gives back ``n``."""
    forms = [f"(define g{i} {_expression(draw, depth - 1, tuple(f'g{k}' for k in range(i)))})" for i in range(2)]
    return "\n".join([*forms, _expression(draw, depth, ("g0", "g1"))])


def _expression(draw: DrawFn, depth: int, names: tuple[str, ...]) -> str:
    def sub(*more: str) -> str:
        return _expression(draw, depth - 1, (*names, *more))

    if depth <= 0:
        leaves = [str(draw(st.integers(-3, 9))), "true", "false", "'()", '"s"', *names]
        return draw(st.sampled_from(leaves))
    var = f"v{draw(st.integers(0, 3))}"
    other = f"w{draw(st.integers(0, 3))}"
    kinds = ["note", "note", "number", "if", "let", "let", "let*", "lambda", "begin", "and", "or", "cond", "when"]
    kinds += ["try", "named", "loop", "list", "quote", "call", "inner", "pick", "values", "cases", "guard", "wind"] + (
        ["set!", "set!"] if names else []
    )
    match draw(st.sampled_from(kinds)):
        case "note":
            return f"(note {sub()})"
        case "number":
            return f"({draw(st.sampled_from(NUMERIC))} {sub()} {sub()})"
        case "if":
            return f"(if {sub()} {sub()} {sub()})"
        case "let":
            return f"(let (({var} {sub()}) ({other} {sub()})) {sub(var, other)} {sub(var, other)})"
        case "let*":
            return f"(let* (({var} {sub()}) ({other} {sub(var)})) {sub(var, other)})"
        case "lambda":
            return f"((lambda ({var}) {sub(var)} {sub(var)}) {sub()})"
        case "begin":
            return f"(begin {sub()} {sub()})"
        case "and" | "or" as word:
            return f"({word} {sub()} {sub()} {sub()})"
        case "cond":
            return f"(cond ({sub()} {sub()}) ({sub()}) (else {sub()}))"
        case "when":
            return f"({draw(st.sampled_from(['when', 'unless']))} {sub()} {sub()})"
        case "try":
            body = draw(st.sampled_from([f"(raise {sub()})", sub(), "(first '())", "(note)"]))
            return f"(try {sub()} {body} (catch ({var}) {sub()}) (finally {sub()}))"
        case "guard":
            body = draw(st.sampled_from([f"(raise {sub()})", sub(), "(first '())"]))
            rest = draw(st.sampled_from([f"(else {sub(var)})", ""]))
            return f"(guard ({var} ({sub(var)} {sub(var)}) {rest}) {sub()} {body})"
        case "wind":
            return f"(dynamic-wind (lambda () {sub()}) (lambda () {sub()}) (lambda () {sub()}))"
        case "values":
            given = draw(st.sampled_from([f"(list {sub()} {sub()})", sub()]))
            return f"(let-values ((({var} {other}) {given}) ((c) (list {sub()}))) {sub(var, other, 'c')})"
        case "cases":
            cases = f"(case-lambda (({var}) {sub(var)}) ((x y) {sub('x', 'y')}))"
            return f"({cases} {draw(st.sampled_from([sub(), f'{sub()} {sub()}', '1 2 3']))})"
        case "named":
            return f"(let {var} ((i {draw(st.integers(0, 3))}) (acc {sub()})) (if (< i 1) acc ({var} (- i 1) {sub('i', 'acc')})))"
        case "loop":
            return f"(loop {draw(st.integers(0, 3))} {sub()})"
        case "list":
            return f"(list {sub()} (first (list {sub()})))"
        case "quote":
            return draw(st.sampled_from(["'a", "'(1 b)", '"q"', "'{}"]))
        case "call":
            return f"(let ((f (lambda (x y) {sub('x', 'y')}))) (list (f {sub()} {sub()}) (f {sub()} 1)))"
        case "inner":
            fresh = f"u{len(names)}"
            return f"(let () (define {fresh} {sub()}) (define (h n) (list n {sub(fresh, 'n')})) (h {sub(fresh)}))"
        case "pick":
            return f"((if {sub()} + list) {sub()} {sub()})"
        case _:
            return f"(set! {draw(st.sampled_from(names))} {sub()})"


ATOMS = ["x", "y", "f", "0", "1", "-1", "2.5", '"text"', "true", "false", "nil", "none", "'s", "'(1 2)", "{}", "shout",
         "broken", "(text x)", "*loop-config*", "else", "=>", ".", '{"a" 1}', "10000000000", "+inf.0"]  # fmt: skip
PRELUDE = "(define x 1) (define y '(1 2)) (define (f a . b) (list a b))\n"
_HOLE = re.compile(r"\b_\b")
_FORMS = sorted(FORMS)
_PRIMITIVES = sorted(
    set(PRIMITIVES) - {"now", "random", "uuid", "sleep", "ask-human", "wait-for-signal"}
)  # whose values no second run has
_WORDS = [*_FORMS, *_FORMS, *_PRIMITIVES, "f", "m", "shout", "broken", "allow", "bindings", "params", "instructions",
          "max-iterations", "director", "executor", "evaluator", "controller", "initial-director-input"]  # fmt: skip


def any_program(rng: random.Random) -> str:
    """A readable program that may be wrong in any way after reading."""
    depth = rng.choice((2, 3, 3, 4, 5))
    prelude = PRELUDE if rng.random() < 0.9 else ""
    if rng.random() < 0.1:
        prelude += f"(defmacro m (x . y) `(list ,x ,@y {_any(rng, 2)}))"
    return prelude + "\n".join(_any(rng, depth) for _ in range(rng.randint(1, 3)))


def _any(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.15:
        return rng.choice(ATOMS)

    def sub() -> str:
        return _any(rng, depth - 1)

    shape = rng.random()
    if shape < 0.45:
        return _HOLE.sub(lambda hole: sub(), rng.choice(TEMPLATES))
    if shape < 0.9:
        made = PRIMITIVES[rng.choice(_PRIMITIVES)]
        least, most = made.arity
        count = rng.randint(least, min(least + 2, most if most is not None else least + 2))
        return f"({made.name} {' '.join(sub() for _ in range(count))})"
    if shape < 0.93:
        return "{" + f'"k" {sub()} j {sub()}' + "}"
    if shape < 0.95:
        return f"({sub()} {sub()})"
    if shape < 0.97:
        return rng.choice(["'", "`", "'", "`", "'", "`", "#;", ","]) + sub()
    return f"({rng.choice(_WORDS)} {' '.join(sub() for _ in range(rng.randint(0, 4)))})"


TEMPLATES = [
    "(let ((x _) (y _)) _ _)",
    "(let f ((x _)) (if _ _ (f _)))",
    "(define (f x . y) _ _)",
    "(define x _)",
    "(lambda (x y) _)",
    "((lambda x) _)",
    "(set! x _)",
    "(if _ _ _)",
    "(cond (_ _) (_ => _) (else _))",
    "(case _ ((1 2 s) _) (else _))",
    "(do ((x 0 (+ x 1)) (y _)) ((> x 3) _) _)",
    "(while _ _)",
    "(loop 3 _)",
    "(try _ _ (catch (x) _) (finally _))",
    "(raise _)",
    "(guard (x (_ _) (_ => _)) _ _)",
    "(dynamic-wind (lambda () _) (lambda () _) _)",
    "(let-values (((x . y) (list _ _)) ((f) _)) _)",
    "((case-lambda ((x) _) ((x . y) _)) _ _)",
    "(let ((f identity)) (f (shout (text _))))",
    "(defatom t (params (x)) (instructions _) (system _))",
    "(parallel _ _ _)",
    "(pmap (lambda (x) _) (list _ _) 2)",
    "(race _ _)",
    "(timeout 0.2 _)",
    "(retry 1 _)",
    "(map (lambda (x) _) (list _ _ _))",
    "(filter _ (list _ _))",
    "(reduce _ _ (list _ _))",
    "(sort (list _ _ _))",
    "(apply _ (list _ _))",
    "(eval-program '_ (allow shout) (max-steps 500))",
    "(eval-program _ (bindings _))",
    '(defatom t (params (x string)) (instructions "do x"))',
    "(shout (text _))",
    "(f (x _) (y _))",
    "(letrec ((f (lambda (x) _)) (y _)) _)",
    "(begin (define y _) (define (f) _) (f))",
    "(let () (define x _) (define y _) _)",
    "(let loop ((x 0)) (if (< x 100000) (loop (+ x 1)) _))",
    "(let f ((x 0)) (+ 1 (f _)))",
    "`(_ ,_ ,@_ `(,_))",
    "(string-append _ _)",
    '(format "a {} {}" _ _)',
    "(director-evaluator-loop (max-iterations 2) (initial-director-input _) (director (lambda (x y) _))"
    " (executor (lambda (x y) _)) (evaluator (lambda (x y z) _)) (controller (lambda (a b c d) _)))",
]
"""Shapes with holes ``_`` that the grammar fills; they get past the first check of their form."""

ALPHABET = "()[]{}'`,@;#|\"\\ \n.0123456789abexyz+-*/?!λ\x00\ud800"


def mutated(rng: random.Random, text: str) -> str:
    """The text with a few characters deleted, doubled, swapped or replaced."""
    chars = list(text)
    for _ in range(rng.randint(1, 6)):
        if not chars:
            break
        at = rng.randrange(len(chars))
        match rng.randrange(5):
            case 0:
                del chars[at : at + rng.randint(1, 8)]
            case 1:
                chars.insert(at, rng.choice(ALPHABET))
            case 2:
                chars[at] = rng.choice(ALPHABET)
            case 3:
                end = min(len(chars), at + rng.randint(1, 30))
                chars[at:at] = chars[at:end]
            case _:
                other = rng.randrange(len(chars))
                chars[at], chars[other] = chars[other], chars[at]
    return "".join(chars)
