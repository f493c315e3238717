"""Random programs that test, count and loop over what is secret, to see that a strict policy keeps it.

A program is run twice, and differs in what is in a box. What an observer sees are the calls of ``send``, which only the user may fill: of runs that
end, all of them are equal; of others, one's are the first of the other's. By hand, for as many as there is time for::

    python -m tests.provenance.strict_programs --count 20000
    python -m tests.provenance.strict_programs --count 20000 --surface python
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Labelled, Limits, Provenance, ScriptedProvider, Sink
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Surface
from agentflow.lang.environment import SexpEnvironment
from tests.provenance.strict_texts import TextWriter

POLICY = Provenance(rules=[Sink("send", "*", allow=["user"])], strict=True)
SECRETS: list[tuple[Any, Any, Any]] = [(0, [1, 2], "a"), (3, [], "bb"), (2, [5, 0, 7], "")]
"""Values of the three secrets: a number, a list, a text."""
KINDS: list[tuple[Any, Any, Any]] = [(0, [1, 2], "ab"), ([1], 1, "abc"), ("a", None, 1)]
"""Secrets that differ in what they are, too: whether they are a key, a pair, a number."""


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = ["g0", "g1", "n"]
        self.mutable = ["g0", "g1"]
        self.lists = ["gl", "items"]
        self.procedures = ["f0", "f1"]
        self.count = 0
        self.quiet = False  # in branches: one is cut short when another fails, and of time nothing is promised

    def program(self) -> str:
        """The text: definitions, steps of which each may be caught, and sends of all variables."""
        head = [
            "(define g0 0)",
            "(define g1 5)",
            "(define gl (list 1 2 3))",
            "(define (say x) (send (to x)) x)",
            f"(define (f0 a) {self._with(['a'], lambda: self.number(2))})",
            f"(define (f1 a) {self._with(['a'], lambda: self.block(2))})",
        ]
        steps = [self.step(self.random.choice([2, 2, 3])) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.7:
            steps = [f"(try {each} (catch (e) {self.random.choice(['0', 'e', '(say 9)'])}))" for each in steps]
        shown = [f"(try (send (to {each})) (catch (e) 0))" for each in ("g0", "g1", "gl", "(f0 1)", "(length gl)")]
        last = ["(try (send (to (type-of g0))) (catch (e) 0))", '(try (send (to "end")) (catch (e) 0))']
        return "\n".join([*head, *steps, *shown, *last])

    def _with(self, names: list[str], build: Callable[[], str], *, mutable: bool = False) -> str:
        self.numbers += names
        if mutable:
            self.mutable += names
        text = build()
        del self.numbers[len(self.numbers) - len(names) :]
        if mutable:
            del self.mutable[len(self.mutable) - len(names) :]
        return text

    def _fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def block(self, depth: int) -> str:
        """Steps, then a value."""
        return f"(begin {self.step(depth)} {self.number(depth)})"

    def branch(self, build: Callable[[], str]) -> str:
        """Something that is done beside others."""
        outer, self.quiet = self.quiet, True
        text = build()
        self.quiet = outer
        return text

    def pick(self, *choices: Callable[[], str]) -> str:
        return self.random.choice(choices)()

    def step(self, depth: int) -> str:
        """Something that is done."""
        r, d = self.random, depth - 1
        if self.quiet:
            return self.number(d)
        if depth <= 0:
            return self.pick(
                lambda: f"(say {r.randint(0, 9)})",
                lambda: f"(set! {r.choice(self.mutable)} {self.number(0)})",
                lambda: f"(set! gl {self.list(0)})",
                lambda: f"(say {self.number(0)})",
                lambda: self.number(0),
            )
        fresh = self._fresh()
        return self.pick(
            lambda: self.step(0),
            lambda: f"(if {self.test(d)} {self.step(d)} {self.step(d)})",
            lambda: f"({r.choice(['when', 'unless'])} {self.test(d)} {self.step(d)})",
            lambda: f"(cond ({self.test(d)} {self.step(d)}) ({self.test(d)} {self.step(d)}) (else {self.step(d)}))",
            lambda: f"(case {self.number(d)} ((0 1) {self.step(d)}) ((2 3) {self.step(d)}) (else {self.step(d)}))",
            lambda: f"({r.choice(['and', 'or'])} {self.test(d)} {self.step(d)} {self.test(d)})",
            lambda: f"(loop {self.count_of(d)} {self.step(d)})",
            lambda: (
                f"(let (({fresh} 0)) (while (and (< {fresh} 4) {self.test(d)}) "
                f"(set! {fresh} (+ {fresh} 1)) {self._with([fresh], lambda: self.step(d), mutable=True)}))"
            ),
            lambda: f"(do (({fresh} 0 (+ {fresh} 1))) ((or (> {fresh} 3) {self.test(d)}) 0) {self.step(d)})",
            lambda: f"(for-each (lambda ({fresh}) {self._with([fresh], lambda: self.step(d))}) {self.list(d)})",
            lambda: f"(try {self.step(d)} {self.step(d)} (catch (e) {self.step(d)}))",
            lambda: f"(try {self.step(d)} (catch (e) {self.step(d)}) (finally {self.step(d - 1)}))",
            lambda: f"(try (try {self.step(d)} (finally {self.step(d - 1)})) (catch (e) {self.step(0)}))",
            lambda: f"(begin {self.step(d)} {self.step(d)})",
            lambda: (
                f"(let (({fresh} {self.number(d)})) {self._with([fresh], lambda: self.step(d), mutable=True)} {fresh})"
            ),
            lambda: (
                f"(let (({fresh} (lambda () {self.step(d)}))) "
                f"(if {self.test(d)} ({fresh}) {self.step(d)}) {self.step(0)})"
            ),
            lambda: f"(if {self.test(d)} (error {self.pick(lambda: self.number(0), lambda: repr(1))}) {self.step(d)})",
            lambda: f"(set! {r.choice(self.mutable)} {self.number(d)})",
            lambda: self.branch(lambda: f"(parallel {self.number(d)} {self.number(d)})"),
            lambda: f"(retry {r.choice(['1', '1', '(if ' + self.test(0) + ' 1 1)'])} {self.step(d)})",
            lambda: f"(guard (e ({self.test(0)} {self.step(d)})) {self.step(d)})",
            lambda: (
                f'(eval-program (quote (begin (define q 1) (if (> n 1) (set! q 2)) (send (to q)) q)) (allow send) (bindings (dict "n" {self.number(0)})))'
            ),
            lambda: f"((lambda ({fresh}) {self._with([fresh], lambda: self.step(d), mutable=True)}) {self.number(d)})",
        )

    def number(self, depth: int) -> str:
        """Something that gives a number."""
        r, d = self.random, depth - 1
        if depth <= 0:
            return r.choice([*self.numbers, str(r.randint(0, 4)), "s", "s"])
        fresh, other = self._fresh(), self._fresh()
        return self.pick(
            lambda: self.number(0),
            lambda: f"({r.choice('+-*')} {self.number(d)} {self.number(d)})",
            lambda: f"(quotient 7 {self.number(d)})",
            lambda: f"(if {self.test(d)} {self.number(d)} {self.number(d)})",
            lambda: f"(length {self.list(d)})",
            lambda: f"(first {self.list(d)})",
            lambda: f"(nth {self.list(d)} {self.number(0)} 0)",
            lambda: f"(reduce + 0 {self.list(d)})",
            lambda: (
                f"(reduce (lambda ({fresh} {other}) {self._with([fresh, other], lambda: self.number(d))}) 0 {self.list(d)})"
            ),
            lambda: (
                f"({r.choice(self.procedures)} {self.number(d)})" if depth < 3 and not self.quiet else self.number(d)
            ),
            lambda: self.number(0) if self.quiet else f"((if {self.test(d)} f0 f1) {self.number(d)})",
            lambda: f"(apply (lambda ({fresh}) {self._with([fresh], lambda: self.number(d))}) (list {self.number(d)}))",
            lambda: f"(let (({fresh} {self.number(d)})) {self._with([fresh], lambda: self.block(d), mutable=True)})",
            lambda: (
                f"(let go (({fresh} 0) ({other} 1)) (if (or (> {fresh} 3) "
                f"{self._with([fresh, other], lambda: self.test(d))}) {other} "
                f"(begin {self.step(0)} (go (+ {fresh} 1) {self._with([fresh, other], lambda: self.number(0))}))))"
            ),
            lambda: f"(try {self.number(d)} (catch (e) {self.number(d)}))",
            lambda: f'(get (dict "a" {self.number(d)} "b" 2) (if {self.test(d)} "a" "b"))',
            lambda: f'(length (keys (if {self.test(d)} (dict "a" 1) (dict))))',
            lambda: f"(length (sources {self.number(d)}))",
            lambda: f"(string-length {self.text(d)})",
            lambda: self.branch(lambda: f"(nth (parallel {self.number(d)} {self.number(d)}) 0)"),
            lambda: (
                f"(director-evaluator-loop (max-iterations {self.count_of(0)}) (initial-director-input 1) "
                f"(director (lambda (a i) (+ a 1))) (executor (lambda (p i) {self.number(0)})) (evaluator (lambda (r p i) r)) "
                f"(controller (lambda (b p r i) (if {self.test(0)} (list 'stop r) (list 'continue 2)))))"
            ),
            lambda: self.block(d),
        )

    def count_of(self, depth: int) -> str:
        """A small number that is not negative, or an error."""
        return self.pick(lambda: "2", lambda: f"(modulo {self.number(depth)} 4)", lambda: "s")

    def text(self, depth: int) -> str:
        """Something that gives a text."""
        r, d = self.random, depth - 1
        if depth <= 0:
            return r.choice(["text", '"abc"', '"a"'])
        return self.pick(
            lambda: self.text(0),
            lambda: f"(string-append {self.text(d)} {self.text(d)})",
            lambda: f"(if {self.test(d)} {self.text(d)} {self.text(d)})",
            lambda: f"(number->string {self.number(d)})",
        )

    def test(self, depth: int) -> str:
        """Something that is tested."""
        r, d = self.random, depth - 1
        if depth <= 0:
            return self.pick(
                lambda: f"(> {self.number(0)} {r.randint(0, 3)})",
                lambda: "(> s 1)",
                lambda: r.choice(["true", "false", "items", "s"]),
            )
        return self.pick(
            lambda: self.test(0),
            lambda: f"({r.choice(['<', '>', '='])} {self.number(d)} {self.number(d)})",
            lambda: f"(not {self.test(d)})",
            lambda: f"({r.choice(['and', 'or'])} {self.test(d)} {self.test(d)})",
            lambda: f"(null? {self.list(d)})",
            lambda: f"(member {self.number(d)} {self.list(d)})",
            lambda: f"(string=? {self.text(d)} {self.text(d)})",
            lambda: f"(begin {self.step(d)} {self.test(d)})",
        )

    def list(self, depth: int) -> str:
        """Something that gives a list of numbers."""
        r, d = self.random, depth - 1
        if depth <= 0:
            return r.choice([*self.lists, "items", "(list 1 2)", "'()"])
        fresh, other = self._fresh(), self._fresh()
        return self.pick(
            lambda: self.list(0),
            lambda: f"(list {self.number(d)} {self.number(d)})",
            lambda: f"(cons {self.number(d)} {self.list(d)})",
            lambda: f"(append {self.list(d)} {self.list(d)})",
            lambda: f"(if {self.test(d)} {self.list(d)} {self.list(d)})",
            lambda: f"(map (lambda ({fresh}) {self._with([fresh], lambda: self.number(d))}) {self.list(d)})",
            lambda: f"(filter (lambda ({fresh}) {self._with([fresh], lambda: self.test(d))}) {self.list(d)})",
            lambda: (
                f"(sort {self.list(d)} (lambda ({fresh} {other}) {self._with([fresh, other], lambda: self.test(d))}))"
            ),
            lambda: f"(sort {self.list(d)})",
            lambda: self.branch(
                lambda: f"(pmap (lambda ({fresh}) {self._with([fresh], lambda: self.number(d))}) {self.list(d)})"
            ),
            lambda: f"(rest {self.list(d)})",
            lambda: f"(reverse {self.list(d)})",
            lambda: f"(range {self.count_of(d)})",
        )


class Observer:
    """Runs programs and notes what can be seen of them."""

    def __init__(self, root: Path, *, strict: bool = True, surface: Surface = "sexp", **options: Any) -> None:
        self.surface: Surface = surface
        self.seen: list[Any] = []
        self.codes: dict[str, int] = {}

        async def send(to: Any) -> str:
            """Send something."""
            self.seen.append(to)
            return "sent"

        async def note(to: Any) -> int:
            """Note something, where nobody looks."""
            return 1

        limits = Limits(steps=4_000, effects=300, wall_s=20.0, depth=200)
        policy = replace(POLICY, strict=strict)
        provider = options.pop("provider", None) or ScriptedProvider()
        self.flow = AgentFlow(
            provider=provider, root=root, tools=[send, note], limits=limits, provenance=policy, **options
        )

    async def run(
        self, text: str, secret: tuple[Any, Any, Any], *, env: SexpEnvironment | None = None, **more: Any
    ) -> tuple[str, list[Any]]:
        """How a program with ``more`` bindings ended, and what it sent."""
        bindings = {**self.bindings(secret), **more}
        return await self.watched(self.flow.run(text, surface=self.surface, bindings=bindings, env=env))

    @staticmethod
    def bindings(secret: tuple[Any, Any, Any]) -> dict[str, Any]:
        """The variables of a program: the secrets, and a number."""
        own = deepcopy(secret)  # of a list that a run changes, later runs of the flow know what it depends on
        return {**{name: Labelled(each, "web") for name, each in zip(("s", "items", "text"), own, strict=True)}, "n": 1}

    async def watched(self, work: Awaitable[Any]) -> tuple[str, list[Any]]:
        """How a run ended, and what it sent."""
        self.seen.clear()
        end = "ended"
        try:
            await work
        except AgentflowError as error:
            end = "failed"
            self.codes[error.code] = self.codes.get(error.code, 0) + 1
        return end, list(self.seen)


def differ(one: tuple[str, list[Any]], other: tuple[str, list[Any]]) -> bool:
    """Whether an observer can tell two runs apart, other than by one of them ending early."""
    (end, seen), (end_, seen_) = one, other
    if end == end_ == "ended":
        return seen != seen_
    few, many = sorted((seen, seen_), key=len)
    shorter_failed = (end if seen is few else end_) == "failed" or few == many
    return many[: len(few)] != few or not shorter_failed


def text_of(seed: int, surface: Surface) -> str:
    """The program of a seed."""
    return TextWriter(seed).program() if surface == "python" else Writer(seed).program()


async def leaks(observer: Observer, seed: int) -> str | None:
    """The text of a program that shows what is in a box, if the one of this seed does."""
    text = text_of(seed, observer.surface)
    for secrets in (SECRETS, KINDS):
        runs = [await observer.run(text, each) for each in secrets]
        if any([differ(runs[0], each) for each in runs[1:]]):
            return text
    return None


async def _main(first: int, count: int, surface: Surface, secrets: list[tuple[Any, Any, Any]]) -> int:
    with tempfile.TemporaryDirectory() as root:
        observer = Observer(Path(root), surface=surface)
        total = sent = ended = leaked = 0
        async with observer.flow:
            for seed in range(first, first + count):
                text = text_of(seed, surface)
                runs = [await observer.run(text, each) for each in secrets]
                total += 1
                sent += sum(len(seen) for _, seen in runs)
                ended += sum(end == "ended" for end, _ in runs)
                if any([differ(runs[0], each) for each in runs[1:]]):
                    leaked += 1
                    print(f"--- seed {seed} tells what is in a box\n{text}")
                    for each in runs:
                        print("   ", each)
                if total % 500 == 0:
                    print(f"{total} programs, {leaked} leaks", flush=True)
        print(
            f"{total} programs, {len(secrets) * total} runs of which {ended} ended, {sent} sends, {leaked} leaks; {observer.codes}"
        )
        return 1 if leaked else 0


def chosen(about: str | None, count: int) -> tuple[int, int, Surface, list[tuple[Any, Any, Any]]]:
    """The first seed, the number of programs, their language and the secrets that the command line chooses."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--surface", choices=["sexp", "python"], default="sexp", help="the language of the programs")
    parser.add_argument("--kinds", action="store_true", help="secrets that differ in their types")
    options = parser.parse_args()
    return options.first, options.count, options.surface, KINDS if options.kinds else SECRETS


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*chosen(__doc__, 2_000))))
