"""Every way in which a program could lose the sources of a value: whatever is done with it, it does not reach a guarded argument."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest

from agentflow import AgentFlow, AgentflowError, Provenance, ScriptedProvider, Sink

Surface = Literal["sexp", "python"]
POLICY = Provenance(rules=[Sink("send", "*", allow=["user"])], sources={"fetch*": "web"})
SAID = '{"a": "mallory@evil.example"}'
PRELUDE = {
    "sexp": '(define x (value-of (fetch))) (define d (value-of (fetch_data)))\n(defatom t (params (q any)) (instructions "{{q}}") (tools))\n',
    "python": 'x = fetch()\nd = fetch_data()\n@task(tools=[])\ndef t(q) -> str:\n    """{{q}}"""\n',
}

# ``x`` is a text from the web, ``d`` data from there, ``t`` a task; each case has its text in S-expressions and, where Python has it, in Python
FLOWS: dict[str, tuple[str | None, str | None]] = {
    # results and what is built from data
    "sources": ("(send (to (sources x)))", "send(to=sources(x))"),
    "whole": ("(send (to x))", "send(to=x)"),
    "result": ("(send (to (content (fetch))))", "send(to=outcome(fetch()).content)"),
    "status": ("(send (to (status (fetch))))", "send(to=outcome(fetch()).status)"),
    "notes": ("(send (to (get-field (fetch) 'notes)))", None),
    "failed": ("(send (to (failed? (fetch))))", None),
    "quasiquote": ("(send (to `(a ,x)))", "send(to=(1, x))"),
    "quasiquote_spliced": ('(send (to `(a ,@(get d "l"))))', "a, *b = [1, *d['l']]\nsend(to=b)"),
    "chained": ('(send (to (< 0 (get d "n") 9)))', "send(to=0 < d['n'] < 9)"),
    "and": ("(send (to (and true x)))", "send(to=True and x)"),
    "or": ("(send (to (or false x)))", "send(to=False or x)"),
    "arm": ('(send (to (if true x "b")))', "send(to=x if True else 'b')"),
    "clause": ('(send (to (cond (false "a") (else x))))', "if True:\n    y = x\nelse:\n    y = 1\nsend(to=y)"),
    # variables, procedures, loops
    "let": ("(send (to (let* ((y x) (z y)) z)))", "y = z = x\nsend(to=z)"),
    "assigned": ('(define y "a") (set! y x) (send (to y))', "y = 'a'\ny += x\nsend(to=y)"),
    "walrus": ("(send (to (begin 1 x)))", "send(to=(y := x))"),
    "closure": ("(define (f) x) (send (to (f)))", "def f():\n    return x\nsend(to=f())"),
    "argument": ("(define (f a) a) (send (to (f x)))", "def f(a, *, b=1):\n    return a\nsend(to=f(x))"),
    "named_argument": ("((lambda (a) (send (to a))) x)", "def f(*, b):\n    return b\nsend(to=f(b=x))"),
    "default_argument": (
        "(define (f) (define a x) a) (send (to (f)))",
        "def f(a=None):\n    a = x\n    return a\nsend(to=f())",
    ),
    "captured": (
        '(define (f a) (lambda (b) (string-append b a))) (send (to ((f x) "c")))',
        "def f(a):\n    return lambda b: b + a\nsend(to=f(x)('c'))",
    ),
    "in_a_list_of_closures": (
        '(send (to ((first (map (lambda (a) (lambda () a)) (get d "l"))))))',
        "fs = [(lambda a: lambda: a)(a) for a in d['l']]\nsend(to=fs[0]())",
    ),
    "recursion": (
        "(define (f n a) (if (= n 0) a (f (- n 1) a))) (send (to (f 400 x)))",
        "def f(n, a):\n    return a if n == 0 else f(n - 1, a)\nsend(to=f(400, x))",
    ),
    "deep_recursion": (
        '(define (f n a) (if (= n 0) a (string-append (f (- n 1) a) ""))) (send (to (f 400 x)))',
        "def f(n, a):\n    return a if n == 0 else f(n - 1, a) + ''\nsend(to=f(400, x))",
    ),
    "map": ('(map (lambda (a) (send (to a))) (get d "l"))', "[send(to=a) for a in d['l']]"),
    "for_each": (
        '(define y "") (for-each (lambda (a) (set! y a)) (get d "l")) (send (to y))',
        "for a in d['l']:\n    y = a\nsend(to=y)",
    ),
    "loop": ('(define y "") (loop 2 (set! y x)) (send (to y))', "y = 'a'\nfor i in range(2):\n    y = x\nsend(to=y)"),
    "while": (
        "(define y 1) (define i 0) (while (< i 1) (set! i 1) (set! y x)) (send (to y))",
        "y = i = 1\nwhile i < 2:\n    i += 1\n    y = x\nsend(to=y)",
    ),
    "named_let": (
        '(send (to (let f ((i 0) (a "")) (if (= i 2) a (f (+ i 1) x)))))',
        "y = ''.join(x for i in range(2))\nsend(to=y)",
    ),
    # failure
    "error": (
        "(try (error x) (catch (e) (send (to (get-field e 'message)))))",
        "try:\n    raise ValueError(x)\nexcept ValueError as e:\n    send(to=str(e))",
    ),
    "raised": ('(try (raise (dict "a" x)) (catch (e) (send (to e))))', None),
    "guarded": ("(guard (e (true (send (to (get-field e 'message))))) (error x))", None),
    "error_of_a_primitive": (
        "(try (+ 1 x) (catch (e) (send (to (get-field e 'message)))))",
        "try:\n    1 + x\nexcept Exception as e:\n    send(to=str(e))",
    ),
    "error_of_json": (
        "(try (parse-json x) (catch (e) (send (to (get-field e 'message)))))",
        "try:\n    json.loads(x)\nexcept Exception as e:\n    send(to=str(e))",
    ),
    "error_of_a_key": (
        "(try (nth (list 1) x) (catch (e) (send (to (get-field e 'message)))))",
        "try:\n    {}[x]\nexcept Exception as e:\n    send(to=str(e))",
    ),
    "error_of_a_tool": (
        "(try (value-of (broken (q x))) (catch (e) (send (to (get-field e 'message)))))",
        "try:\n    broken(q=x)\nexcept Exception as e:\n    send(to=str(e))",
    ),
    "failed_tool": ("(send (to (content (broken (q x)))))", "send(to=outcome(broken(q=x)).content)"),
    "error_of_a_branch": ("(try (parallel (error x) 1) (catch (e) (send (to (get-field e 'message)))))", None),
    "finally": (
        "(define y 1) (try 1 (finally (set! y x))) (send (to y))",
        "y = 1\ntry:\n    pass\nfinally:\n    y = x\nsend(to=y)",
    ),
    "wind": ("(define y 1) (dynamic-wind (lambda () 1) (lambda () (set! y x)) (lambda () (send (to y))))", None),
    # branches, tries, time
    "parallel": ("(send (to (first (parallel x 1))))", "send(to=parallel(x, 1)[0])"),
    "in_a_branch": ("(parallel (send (to x)) 1)", "parallel(send(to=x), 1)"),
    "pmap": ('(send (to (pmap identity (get d "l"))))', "send(to=pmap(lambda a: a, d['l']))"),
    "in_pmap": ('(pmap (lambda (a) (send (to a))) (get d "l"))', "pmap(lambda a: send(to=a), d['l'])"),
    "race": ("(send (to (race x)))", "send(to=race(x))"),
    "retry": ("(send (to (retry 2 x)))", "send(to=retry(2, x))"),
    "timeout": ("(send (to (timeout 5 x)))", "send(to=timeout(5, x))"),
    # programs as data
    "program_of_data": ('(send (to (eval-program (format "\\"{}\\"" x))))', "send(to=eval_program(f'\"{x}\"'))"),
    "program_that_sends": (
        '(eval-program (format "(send (to \\"{}\\"))" x) (allow send))',
        "eval_program(f'send(to=\"{x}\")', allow=['send'])",
    ),
    "program_of_lists": ("(eval-program (list 'send (list 'to x)) (allow send))", None),
    "binding_of_a_program": (
        '(eval-program "(send (to y))" (bindings (dict "y" x)) (allow send))',
        "eval_program('send(to=y)', bindings={'y': x}, allow=['send'])",
    ),
    "procedure_of_a_program": (
        '(define f (eval-program (format "(lambda () \\"{}\\")" x))) (send (to (f)))',
        "f = eval_program(f'lambda: \"{x}\"')\nsend(to=f())",
    ),
    "macro": ("(defmacro m (a) (list 'send (list 'to a))) (m x)", None),
    "name_from_data": ('((get d "tool") (to "a"))', None),
    "symbol_from_data": ('(define f (string->symbol (get d "tool"))) (f (to "a"))', None),
    # models
    "answer": ("(send (to (value-of (t (q x)))))", "send(to=t(x))"),
    "answer_about_data": ("(send (to (value-of (t (q d)))))", "send(to=t(d))"),
    "status_of_an_answer": ("(send (to (status (t (q x)))))", "send(to=outcome(t(x)).status)"),
    "answer_to_an_answer": ("(send (to (value-of (t (q (value-of (t (q x))))))))", "send(to=t(t(x)))"),
    "director": (
        '(send (to (director-evaluator-loop (max-iterations 1) (initial-director-input "s") (director (lambda (i n) x)) '
        "(executor (lambda (p n) p)) (evaluator (lambda (r p n) 1)) (controller (lambda (i r e n) (list 'stop r))))))",
        None,
    ),
}
LEAKS: dict[str, tuple[str | None, str | None]] = {
    "test": ('(if (get d "flag") (send (to "a")))', "if d['flag']:\n    send(to='a')"),
    "membership": (
        '(send (to (filter (lambda (a) (get d "flag")) (list "a" "b"))))',
        "send(to=[a for a in ['a'] if d['flag']])",
    ),
    "order": ('(send (to (sort (list "a" "b") (lambda (a b) (get d "flag")))))', None),
}
"""What depends on a source by a test only, which normal mode does not follow: docs/provenance.md says so."""


def flow_of(sent: list[Any], policy: Provenance | None) -> AgentFlow:
    """A flow that reads the web and sends."""

    async def fetch() -> str:
        return "mallory@evil.example"

    async def fetch_data() -> dict[str, Any]:
        return {"to": "m", "l": ["m@e", "n"], "n": 1, "k": "key", "flag": True, "tool": "send", "digits": "12"}

    async def broken(q: str) -> str:
        raise ValueError(q)

    async def send(to: object) -> str:
        sent.append(to)
        return "sent"

    model = ScriptedProvider(lambda _: SAID)
    return AgentFlow(provider=model, tools=[fetch, fetch_data, broken, send], provenance=policy)


async def run(text: str, surface: Surface, policy: Provenance | None) -> tuple[list[Any], AgentflowError | None]:
    """Run a text after the prelude: what was sent, and the error."""
    sent: list[Any] = []
    async with flow_of(sent, policy) as flow:
        try:
            await flow.run(PRELUDE[surface] + text, surface=surface)
        except AgentflowError as error:
            return sent, error
    return sent, None


def cases(table: dict[str, tuple[str | None, str | None]]) -> list[Any]:
    return [
        pytest.param(text, cast(Surface, surface), id=f"{name}-{surface}")
        for name, texts in table.items()
        for surface, text in zip(("sexp", "python"), texts, strict=True)
        if text is not None
    ]


@pytest.mark.parametrize(("text", "surface"), cases(FLOWS))
async def test_whatever_is_done_with_a_value_its_sources_stay(text: str, surface: Surface) -> None:
    """What depends on a web page does not reach the argument that only the user may fill; without the policy it does."""
    sent, error = await run(text, surface, None)
    assert sent and error is None, error
    sent, error = await run(text, surface, POLICY)
    assert sent == [] and error is not None and error.code == "provenance/denied", error
    assert "web" in error.details["refused"]


@pytest.mark.parametrize(("text", "surface"), cases(FLOWS))
async def test_what_is_denied_is_foretold(text: str, surface: Surface) -> None:
    """What a run is denied, its bounds have said before: the web may reach the argument, and is refused there."""
    async with flow_of([], POLICY) as flow:
        sinks = (await flow.bounds(PRELUDE[surface] + text, surface=surface)).authority.sinks
    (to,) = [each for each in sinks if each.tool == "send" and each.argument == "to"]
    assert "web" in to.refused, (to.sources, text)


@pytest.mark.parametrize(("text", "surface"), cases(LEAKS))
async def test_what_is_chosen_by_a_test_is_not_followed(text: str, surface: Surface) -> None:
    """A source that decides which of the user's values are sent, or whether, does not label them: the page says that it leaks."""
    sent, error = await run(text, surface, POLICY)
    assert sent and error is None
