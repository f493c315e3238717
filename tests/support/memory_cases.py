"""Programs that would fill the memory, as data: each must end in a LimitExceeded before the process has grown too far.

``python -m tests.support.memory_cases NAME LIMIT`` runs one with so many MB and prints, as JSON, the outcome and by how
much the process grew at its peak.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from dataclasses import dataclass
from typing import Any

from agentflow import AgentFlow, Event, LimitExceeded, Limits, ScriptedProvider
from agentflow.run.strand.budget import resident_bytes
from tests.support.peak import peak_bytes

_TEXT = '(define (grow s n) (if (= n 0) s (grow (string-append s s) (- n 1)))) (define s (grow "abcd,efg" 22)) '


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """One program: ``text``; ``read`` runs it with a reader of its events, who never reads."""

    text: str
    read: bool = False


MEMORY_CASES = {
    "strings": MemoryCase(_TEXT + "(map (lambda (i) (string-append s (number->string i))) (range 60))"),
    "wide-characters": MemoryCase(
        '(define (grow s n) (if (= n 0) s (grow (string-append s s) (- n 1)))) (define s (grow "\\ud83d\\ude00" 22))'
        "(map (lambda (i) (string-append s (number->string i))) (range 60))"
    ),
    "lists": MemoryCase("(map (lambda (i) (range 1000000)) (range 60))"),
    "zip": MemoryCase("(map (lambda (i) (apply zip (map (lambda (j) (range 1000)) (range 1000)))) (range 60))"),
    "split": MemoryCase(_TEXT + '(map (lambda (i) (string-split (substring s 0 7000000) ",")) (range 20))'),
    "short-lists": MemoryCase("(map (lambda (i) (range 60)) (range 1000000))"),
    "closures": MemoryCase("(map (lambda (i) (let ((x (* i 1000))) (lambda () x))) (range 1000000))"),
    "dicts": MemoryCase('(map (lambda (i) (dict "a" i "b" (list i) "c" (* i 1000))) (range 1000000))'),
    "integers": MemoryCase(
        "(define n (do ((i 0 (+ i 1)) (n 3 (* n n))) ((= i 16) n))) (map (lambda (i) (+ n i)) (range 60000))"
    ),
    "json": MemoryCase(
        '(define text (string-append "[" (string-join (map (lambda (i) "{\\"a\\": [1, 2]}") (range 200000)) ",") "]"))'
        "(map (lambda (i) (parse-json text)) (range 60))"
    ),
    "branches": MemoryCase("(pmap (lambda (i) (range 500000)) (range 120))"),
    "log": MemoryCase(
        _TEXT + "(for-each (lambda (i) (log-message (string-append s (number->string i)))) (range 60))", True
    ),
    "tool-results": MemoryCase("(map (lambda (i) (content (much))) (range 2000))"),
    "prompts": MemoryCase(
        _TEXT + '(defatom t (params (x string)) (instructions "{{x}}")) (map (lambda (i) (t (x s))) (range 60))'
    ),
    "answers": MemoryCase('(defatom t (params) (instructions "x")) (map (lambda (i) (content (t))) (range 60))'),
}
"""All cases by name."""


async def run_case(name: str, limit_mb: int) -> dict[str, Any]:
    """The error code (or ``value``) of a case, and the growth of the process in MB."""
    case = MEMORY_CASES[name]

    async def much() -> str:
        """Give a text of a megabyte."""
        return chr(0x20AC) + "x" * 2**20

    answers = ("answer " * 4_000_000 + str(number) for number in range(1_000))
    limits = Limits(memory=limit_mb * 2**20, string=64_000_000, steps=None, output_chars=10_000_000)
    provider = ScriptedProvider(lambda request: next(answers))
    async with AgentFlow(provider=provider, tools=[much], limits=limits) as flow:
        await flow.run("(+ 1 2)")
        unread: list[Event] = []
        if case.read:
            flow.subscribe(unread.append)
        gc.collect()
        before = resident_bytes() or 0
        outcome = "value"
        try:
            await flow.run(case.text)
        except LimitExceeded as error:
            outcome = error.code
    return {"outcome": outcome, "growth_mb": (peak_bytes() - before) / 2**20}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run_case(sys.argv[1], int(sys.argv[2])))))
