"""A program for every error of the language, and how each is rendered.

``python -m tests.errors.programs > tests/errors/renderings.txt`` writes the golden file; read the difference before
committing it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.lang.environment import SexpEnvironment
from tests.support.spending import at_most
from tests.support.world import World

LIMITS = Limits(
    steps=150_000, depth=200, collection=1_000, string=10_000, integer_bits=2_000, effects=5, branches=5, source_bytes=2_000,
    nesting=50, nodes=500, wall_s=20,
)  # fmt: skip


def _fails(*arguments: Any) -> Any:
    raise ValueError("out of order")


BINDINGS = {"host-fails": _fails}
UNTRUSTED = "; allow: shout\n"
"""Programs that begin so are compiled with only ``shout`` granted."""

LOOP = (
    "(director-evaluator-loop\n  (max-iterations {n}) (initial-director-input 0)\n  (director (lambda (input i) input))\n"
    "  (executor {executor})\n  (evaluator (lambda (result plan i) result))\n"
    "  (controller (lambda (feedback plan result i) 'perhaps)))"
)

PROGRAMS: dict[str, str] = {
    "syntax/empty": "; nothing but this",
    "syntax/unclosed": "(define (f x)\n  (* x 2)",
    "syntax/unexpected-close": "(f x))",
    "syntax/mismatched": "(let [(x 1)) x)",
    "syntax/unclosed-string": '(f "never closed)',
    "syntax/unclosed-comment": "(f) #| never closed",
    "syntax/number": "(+ 1 2x)",
    "syntax/escape": '"a \\q b"',
    "syntax/unexpected": "(f #nonsense)",
    "syntax/character": "(define a\ufeffb 1)",
    "syntax/duplicate-key": '{"name" 1 name 2}',
    "syntax/dict": '{"a" 1 "b"}',
    "form/arity": "(if)",
    "form/bindings": "(let ((x)) x)",
    "form/clause": "(cond ((> 1 2) 'a) 5)",
    "form/define": "(define 5 6)",
    "form/do": "(do x y)",
    "form/duplicate": "(let ((x 1) (x 2)) x)",
    "form/on": "(pmap :on moon (lambda (x) x) (list 1))",
    "form/parameters": "(lambda (x 5) x)",
    "form/set": "(set! 5 1)",
    "form/splice": "`,@(list 1)",
    "form/try": "(try 1)",
    "form/unquote": "(list ,x)",
    "form/value": "(map if '(1 2))",
    "name/unbound": "(define total 1)\n(+ totel 1)",
    "name/unknown-operator": '(string-apend "a" "b")',
    "name/not-value": "(list shout)",
    "name/not-granted": UNTRUSTED + '(broken (text "x"))',
    "binding/uninitialised": "(let ()\n  (define a b)\n  (define b 1)\n  a)",
    "arity/closure": "(define (area w h) (* w h))\n(define (square w) (area w))\n(list (square 2))",
    "arity/primitive": "(first)",
    "call/not-callable": "(1 2 3)",
    "call/positional": '(shout "hello")',
    "call/duplicate": '(shout (text "a") (text "b"))',
    "type/argument": '(+ 1 "2")',
    "type/element": '(string-join \'("a" 1) ", ")',
    "type/result": '(value-of {"status" "DONE"})',
    "number/division-by-zero": "(/ 1 0)",
    "number/overflow": "(round +inf.0)",
    "string/index": '(substring "abc" 2 9)',
    "string/empty": '(string-split "abc" "")',
    "list/empty": "(first nil)",
    "list/index": "(nth '(a b) 2)",
    "list/values": "(let-values (((quotient rest) '(1 2 3))) rest)",
    "list/range": "(range 1 5 0)",
    "dict/key": "(dict 2305843009213693952 'x)",
    "dict/odd": '(dict "a")',
    "format/place": '(format "{x.y}" {"x" 1})',
    "format/values": '(format "{} and {}" 1)',
    "json/invalid": '(parse-json "{\\"a\\": }")',
    "json/unrepresentable": "(to-json first)",
    "loop/count": "(loop -1 1)",
    "defatom/name": '(defatom 5 (instructions "x"))',
    "defatom/option": '(defatom t (instructions "x") (modle "gpt"))',
    "defatom/params": '(defatom t (params (a b c)) (instructions "x"))',
    "defatom/function": '(defatom t (params (topic)) (instructions "About {{summary(topic)}}"))',
    "defatom/place": '(defatom t (params (topic)) (instructions "About {{topc}}"))',
    "defatom/instructions": "(defatom t (params (a)))",
    "director/decision": LOOP.format(n=1, executor="(lambda (plan i) plan)"),
    "director/max-iterations": LOOP.format(n=-1, executor="(lambda (plan i) plan)"),
    "director/phase": LOOP.format(n=1, executor="5"),
    "macro/arity": "(defmacro two (a b) `(list ,a ,b))\n(two 1)",
    "macro/name": "(defmacro 5 (a) a)",
    "macro/place": "(let () (defmacro m (a) a) 1)",
    "macro/result": "(defmacro m (a) first)\n(m 1)",
    "macro/effect": "(defmacro m (a) (raise a))\n(m 1)",
    "concurrency/shared-set": "(let ((total 0))\n  (parallel (set! total 1) total))",
    "concurrency/limit": "(pmap first '((1)) 0)",
    "race/all-failed": '(race (error "one") (error "two"))',
    "retry/tries": "(retry 0 1)",
    "timeout/elapsed": '(timeout 0 (shout (text "x")))',
    "timeout/seconds": "(timeout -1 1)",
    "program/error": '(define (check x) (if (> x 1) x (error "too small:" x \'is-it)))\n(+ 1 (check 0))',
    "program/raised": '(raise {"code" 42})',
    "program/arguments": "(eval-program '1 (bindings 5))",
    "host/raised": "(host-fails 1)",
    "limits/steps": "(let loop ((i 0)) (loop (+ i 1)))",
    "limits/depth": "(define (down n) (+ 1 (down (+ n 1))))\n(down 0)",
    "limits/collection": "(range 1000000000000)",
    "limits/string": '(define (double s) (double (string-append s s)))\n(double "0123456789")',
    "limits/integer-bits": "(define (square n) (square (* n n)))\n(square 10)",
    "limits/integer-digits": '(string->number (string-join (map (lambda (x) "9999999999") (range 500)) ""))',
    "limits/effects": '(loop 6 (shout (text "x")))',
    "limits/branches": "(pmap identity '(1 2 3 4 5 6))",
    "limits/nesting": "(" * 51 + ")" * 51,
    "limits/source-bytes": "(list " + "1 " * 1_500 + ")",
    "limits/nodes": "(list " + "1 " * 500 + ")",
    "limits/macro-steps": "(defmacro m () (let loop ((i 0)) (loop (+ i 1))))\n(m)",
}
"""A program per code. What it takes to raise it is all that is in it."""

NOT_FROM_A_PROGRAM = {
    "syntax/format": "the formatter's own",
    "syntax/invalid": "a family's general code",
    "eval/error": "a family's general code",
    "limits/exceeded": "a family's general code",
    "limits/wall": "depends on the clock",
    "limits/memory": "depends on the memory of the process",
    "limits/cut-off": "needs models that cost",
    "limits/purse": "needs several runs",
    "limits/tokens": "needs models that cost",
    "limits/unpriced": "needs models that cost",
    "limits/subtask-depth": "needs models that call tools which ask models",
    "limits/waiting": "a Warning",
    "host/panic": "needs code of the host that raises what is not an Exception",
    "host/stray-exit": "needs code of the host that calls sys.exit",
    "limits/usd": "needs models that cost",
    "limits/model-calls": "needs models",
    "name/from-model": "a warning of check",
    "name/suspicious": "a warning of check",
    "call/argument": "found by check, or under allow with a tool of a known schema",
    "call/missing-parameter": "found by check, or under allow with a tool of a known schema",
    "call/unknown-key": "found by check, or under allow with a tool of a known schema",
    "call/unknown-parameter": "found by check, or under allow with a tool of a known schema",
    "finally/model-call": "needs a limit that strikes inside try",
    "form/body": "form/arity comes first",
    "macro/failed": "needs an error that is none of ours",
    "defatom/invalid": "depends on the validator's words",
    "macro/call": "reached through values only",
    "limits/macro-depth": "deeper than the limits here",
}
"""Codes of the language's families without a rendering here, and why."""


async def raised_by(program: str) -> AgentflowError | None:
    """The error a program raises."""
    allow = ["shout"] if program.startswith(UNTRUSTED) else None
    try:
        await World().run(program, SexpEnvironment(BINDINGS), limits=LIMITS, allow=allow, name="program.sexp")
    except AgentflowError as error:
        return error
    return None


async def renderings() -> dict[str, str]:
    """How the error of each program is rendered, by code."""
    made: dict[str, str] = {}
    for code, program in PROGRAMS.items():
        with at_most(5, code):
            error = await raised_by(program)
        assert error is not None, f"{code}: the program has a value"
        made[code] = error.render()
    return made


def page(made: dict[str, str]) -> str:
    """The golden file."""
    return "\n".join(f"=== {code}\n{text}\n" for code, text in made.items())


if __name__ == "__main__":
    sys.stdout.write(page(asyncio.run(renderings())))
