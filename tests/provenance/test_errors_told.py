"""What ``catch`` and ``except`` bind came from all that was looked at to raise it, whatever failed: its message may show that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance, ScriptedProvider

SECRETS: tuple[tuple[Any, Any, Any], ...] = ((5, [1], "q"), (1, [1, 2], "a"), (0, [], ""))
PYTHON = (
    "a, b = items",
    "sorted([1, 'a'][:s])",
    "xs.append([1][s])",
    "range(5)[s]",
    "''.join([1, 'a'][s:s+1])",
    "[1, 'a'][s > 1] + 1",
    "for i in [items, 1, 1, 1][s]:\n        0",
    "g(s)",
    "(lambda: [1][s])()",
    "list(map(lambda x: [1][x], [s]))",
    "[[1][x] for x in [s]]",
    "parallel([1][s], 2)",
    "retry(1, [1][s])",
    "eval_program('[1][k]', bindings={'k': s})",
    "xs.append(s, s)",
    "xs[0:s:0]",
    "xs.pop(s, 1)",
    "max([], key=text)",
    "xs.sort(key=lambda x: text + 1)",
    "ys.sort()",
    "json.dumps({(s,): 1})",
    "(a, b), c = [items, 1]",
    "for q in s:\n        0",
    "f'{s:%}'",
    "f'{s:{text}}'",
    "raise ValueError(text)",
    "assert not text, text",
    "print(1, sep=s)",
    "sleep(text)",
    "retry(text, 1)",
    "pmap(lambda x: x, s)",
    "timeout(text, 1)",
    "map(1, s)",
    "filter(1, items)",
    "random(text)",
)
"""Statements that fail for some of ``s``, ``items`` and ``text``, which are labelled."""
SEXP = (
    "(loop text 1)",
    "(retry text 1)",
    "(timeout text 1)",
    "(pmap (lambda (x) x) text)",
    "(pmap (lambda (x) x) (list 1) text)",
    "(director-evaluator-loop (max-iterations text) (initial-director-input 1) (director (lambda (a i) a)) (executor (lambda (p i) p)) (evaluator (lambda (r p i) r)) (controller (lambda (b p r i) (list 'stop r))))",
    "(director-evaluator-loop (max-iterations 1) (initial-director-input 1) (director (lambda (a i) a)) (executor (lambda (p i) p)) (evaluator (lambda (r p i) r)) (controller (lambda (b p r i) (list text r))))",
    "(director-evaluator-loop (max-iterations 1) (initial-director-input 1) (director text) (executor (lambda (p i) p)) (evaluator (lambda (r p i) r)) (controller (lambda (b p r i) (list text r))))",
    "(director-evaluator-loop (max-iterations 1) (initial-director-input 1) (director s) (executor (lambda (p i) p)) (evaluator (lambda (r p i) r)) (controller (lambda (b p r i) (list text r))))",
    "(eval-program text (allow))",
    '(eval-program "x" (bindings text) (allow))',
    '(eval-program "x" (bindings (list text)) (allow))',
    '(eval-program "1" (max-steps text) (allow))',
    "(solve s (allow))",
    '(solve "a" (allow) (inputs text))',
    '(solve "a" (allow) (max-rounds text))',
    "(text 1)",
    "(s 1)",
    "(apply text (list 1))",
    "(apply + text)",
    "(map text (list 1))",
    "(map + text)",
    "(filter text (list 1))",
    "(for-each + s)",
    "(sort (list 1 2) text)",
    "(raise text)",
    "(error text)",
    '(error "a" text)',
    "(call-workflow text)",
    "(defatom t (params) (instructions s))",
    '(defatom t (params (x)) (instructions "{{x}}") (model s))',
    "(ask-human s)",
    '(ask-human "q" text)',
    "(random text)",
    "(sleep text)",
    "(get_context (query s))",
    "(case (/ 1 (- s s)) (else 1))",
    "(fetch (url text))",
    "(fetch (urll text))",
    "(race (error text))",
    "(parallel (error text) 1)",
    "(guard (e (false 1)) (error text))",
    "(endorse text s)",
    "(let-values (((a b) text)) a)",
    "(cond ((nth (list) s) 1))",
    "(do ((i 0 (+ i text))) ((> i 3) 1))",
    "`(1 ,@text)",
)
"""The same in S-expressions."""
_HEAD = "xs = [1]\nys = [1, text]\nd = {0: 1}\nss = {0}\ndef f(a, b):\n    return 1\ndef g(k):\n    return [1][k]\n"


@pytest.fixture
async def flow() -> AsyncIterator[AgentFlow]:
    """A flow with a policy, and a tool."""

    async def fetch(url: int) -> str:
        return "x"

    async with AgentFlow(provider=ScriptedProvider(), provenance=Provenance(), tools=[fetch]) as opened:
        yield opened


async def failed(flow: AgentFlow, text: str, surface: Any) -> list[Any]:
    """What a program says of its errors, one for each secret that makes it fail."""
    told: list[Any] = []
    for secret in SECRETS:
        bindings = {name: Labelled(each, "web") for name, each in zip(("s", "items", "text"), secret, strict=True)}
        try:
            value = (await flow.run(text, surface=surface, bindings=bindings)).value
        except AgentflowError as error:
            assert error.code.startswith(("limits/", "provenance/")), error.render()
        else:
            told += [value] if value != "none" else []
    return told


@pytest.mark.parametrize("statement", PYTHON)
async def test_an_error_of_a_text_says_what_it_came_from(statement: str, flow: AgentFlow) -> None:
    """Of statements, functions and methods in texts in Python."""
    text = f"{_HEAD}try:\n    {statement}\n    r = 'none'\nexcept Exception as e:\n    r = [sources(e), e.code, e.message]\nr"
    for sources, code, message in await failed(flow, text, "python"):
        assert "web" in sources, (code, message)


@pytest.mark.parametrize("form", SEXP)
async def test_an_error_of_a_form_says_what_it_came_from(form: str, flow: AgentFlow) -> None:
    """Of forms and primitives."""
    text = f"(try (begin {form} \"none\") (catch (e) (list (sources e) (get-field e 'code) (get-field e 'message))))"
    for sources, code, message in await failed(flow, text, "sexp"):
        assert "web" in sources, (code, message)


PARTLY = {
    "of a branch": '(parallel (begin (p (x s)) (u) (error "x")) 1)',
    "of each element": '(pmap (lambda (x) (begin (p (x x)) (u) (error "x"))) (list s))',
    "of a program": '(eval-program (quote (begin (p (x k)) (u) (error "x"))) (allow p u) (bindings (dict "k" s)))',
    "of a time-out": '(timeout 5 (parallel (begin (p (x s)) (u) (error "x")) 1))',
}
"""Sequences that end in an error which says the results of the steps before it."""


@pytest.mark.parametrize("way", PARTLY)
async def test_an_error_with_the_results_of_steps_says_what_they_came_from(way: str) -> None:
    """Of a sequence whose results were handed on: the error has them among its details."""
    tasks = """(defatom p (params (x)) (instructions "Do {{x}}"))
        (defatom u (params) (instructions "Go on") (context (accumulate_data true) (accumulation_format full_output)))"""
    text = f"{tasks} (try {PARTLY[way]} (catch (e) (list (sources e) (get-field e 'details))))"
    model = ScriptedProvider(["a result"] * 2)
    async with AgentFlow(provider=model, provenance=Provenance()) as flow:
        sources, details = (await flow.run(text, bindings={"s": Labelled(5, "web")})).value
    assert details["partial_results"][0]["content"] == "a result" and sources == ["web"]
