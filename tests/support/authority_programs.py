"""Made-up programs of several authors that pass procedures to each other, and an oracle that knows all of them.

Authorship is data. Every procedure takes a *chain*: a text that names what each author was granted whose code is being
run, ``[t0 t2][t2 t3]``; the host adds nothing. A procedure adds to its caller's chain the one in force where it was
created, which is a variable there. Every effect carries the chain at its call; the oracle parses it, and an effect whose
name is not in all of its brackets ran with more authority than it may have. What a program reports as refused must not
be in all of them either. Nothing of this asks the runtime what is granted.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.events.effects import CallTool, Effect, LogMessage
from agentflow.lang.closure import Closure
from agentflow.lang.portable import dump_closure, load_closure
from agentflow.lang.program import ProgramCache
from agentflow.run.engine import call_closure
from agentflow.run.strand.budget import Budget
from tests.support.fakes import FakeRun
from tests.support.world import World

PLAIN = ("t0", "t1", "t2", "t3")
TOOLS = (*PLAIN, "back", "hand")
"""``back`` calls the procedure it is given, ``hand`` gives it back; the others do nothing."""
SHARED = tuple(f"g{number}" for number in range(3))
"""Variables that all programs share: procedures."""
MAX_BACKS = 20
"""How often ``back`` calls in one scenario: each call has steps of its own."""
_BRACKET = re.compile(r"\[([^\]]*)\]")


def permitted(chain: str) -> set[str]:
    """The tools that all authors of a chain may call."""
    names = set(TOOLS)
    for granted in _BRACKET.findall(chain):
        names &= set(granted.split())
    return names


def bracket(granted: Iterable[str] | None) -> str:
    """What an author with these grants adds to a chain."""
    return "" if granted is None else f"[{' '.join(sorted(granted))}]"


_JOINED = "(if (string-contains? k c) k (string-append k c))"
"""The chain of a procedure: its caller's with the one it was created in, once."""


class Author:
    """Writes programs with the grants ``granted`` (None: the host's). ``c`` is the chain wherever it writes."""

    def __init__(self, rng: random.Random, granted: frozenset[str] | None) -> None:
        self.rng = rng
        self.granted = granted

    def program(self) -> str:
        """A program that defines shared procedures anew and does something."""
        chain = f'"{bracket(self.granted)}"'
        depth = self.rng.choice([2, 2, 3])
        forms: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            verb, name = self.rng.choice(["define", "set!"]), self.rng.choice(SHARED)
            forms.append(f"({verb} {name} (let ((c {chain})) {self.procedure(depth)}))")
        forms.append(f"(let ((c {chain})) {self.action(depth + 1)})")
        return "\n".join(forms)

    def procedure(self, depth: int) -> str:
        """An expression whose value is a procedure of a chain."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.25:
            return rng.choice(SHARED)
        match rng.randrange(11):
            case 0 | 1 | 2 | 3:
                shape = rng.choice(["(k)", "(k . m)", "(k . m)"])
                return f"(lambda {shape} (let ((c {_JOINED})) {self.action(depth - 1)}))"
            case 4:
                return f"(car (list {self.procedure(depth - 1)} {self.procedure(depth - 1)}))"
            case 5:
                return f"(if (null? (list c)) {self.procedure(depth - 1)} {self.procedure(depth - 1)})"
            case 6:
                allow = frozenset(rng.sample(TOOLS, rng.randint(0, len(TOOLS))))
                granted = allow if self.granted is None else allow & self.granted
                text = Author(rng, granted).evaluated(depth - 1, allow)
                names = " ".join(sorted(allow))
                pairs = " ".join(f'"{name}" {name}' for name in SHARED)
                return f'(eval-program {json.dumps(text)} (allow {names}) (bindings (dict "o" c {pairs})))'
            case 7:
                inner = self.procedure(depth - 1)
                return (
                    f'(let ((n "hand")) (try (get-field (n (c c) (f {inner})) \'f) (catch (e) {rng.choice(SHARED)})))'
                )
            case 8:
                return f"(try (raise {self.procedure(depth - 1)}) (catch (e) (get-field e 'value)))"
            case 9:
                return f"(let ((p {self.procedure(depth - 1)})) (define (q k) (p k)) (lambda (k . m) (q {_JOINED})))"
            case _:
                return f"(car (pmap (lambda (x) {self.procedure(depth - 1)}) (list 1)))"

    def evaluated(self, depth: int, allow: frozenset[str]) -> str:
        """The text of a program whose value is a procedure, run with ``allow`` by code whose chain is ``o``."""
        return f'(let ((c (string-append o "{bracket(allow)}"))) {self.procedure(depth)})'

    def action(self, depth: int) -> str:
        """An expression that has effects and calls procedures."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            return self.effect()
        f = self.procedure(depth - 1)

        def sub() -> str:
            return self.action(depth - 1)

        match rng.randrange(24):
            case 0 | 1:
                return f"(begin ({f} c) {self.effect()})"
            case 2:
                return f"({f} c)"
            case 3:
                return f"(apply {f} (list c))"
            case 4:
                return f"(begin ({rng.choice(['map', 'for-each', 'filter'])} {f} (list c c)) {self.effect()})"
            case 5:
                return f"(reduce (lambda (a k) ({f} k)) c (list c))"
            case 6:
                return f"(begin (sort (list c c) {f}) {self.effect()})"
            case 7:
                return f"(begin (pmap {f} (list c c) 2) {self.effect()})"
            case 8:
                return f"(begin (parallel ({f} c) {sub()}) {self.effect()})"
            case 9:
                return f"(begin (race ({f} c) {sub()}) {self.effect()})"
            case 10:
                return f"(retry 2 ({f} c))"
            case 11:
                return f"(timeout 9 ({f} c))"
            case 12:
                return f"(begin (try ({f} c) (raise 1) (catch (e) {sub()}) (finally {self.effect()})) {self.effect()})"
            case 13:
                return f"(cond (c => {f}))"
            case 14:
                return f"(let go ((n {rng.choice([1, 3, 200])})) (if (= n 0) ({f} c) (car (list (go (- n 1))))))"
            case 15:
                return f"(let go ((n 3)) (if (= n 0) ({f} c) (go (- n 1))))"
            case 16:
                return f"(begin (set! {rng.choice(SHARED)} {f}) {self.effect()})"
            case 17:
                return f'(let ((n "back")) (begin (try (n (c c) (f {f})) (catch (e) 0)) {self.effect()}))'
            case 18:
                return f"(begin (while ({f} c) (raise 1)) {self.effect()})"
            case 19:
                phases = " ".join(
                    f"({name} {f if name == chosen else '(lambda (a . b) c)'})"
                    for chosen in [rng.choice(["director", "executor", "evaluator"])]
                    for name in ("director", "executor", "evaluator")
                )
                loop = f"(director-evaluator-loop (max-iterations 1) (initial-director-input c) {phases}"
                return f"{loop} (controller (lambda (a b r i) (begin ({f} c) (list 'stop 1)))))"
            case 20:
                return f"(begin ((lambda (p) (p c)) {f}) {self.effect()})"
            case 21:
                return f"(letrec ((p (lambda (k) (q k))) (q {f})) (p c))"
            case 22:
                return f"(begin (try ({f} c) (catch (e) ({self.procedure(depth - 1)} c))) {self.effect()})"
            case _:
                return f"(begin {sub()} {sub()})"

    def effect(self) -> str:
        """A form that tries a tool, and says so when it is refused."""
        name = self.rng.choice(PLAIN)
        report = f'(log-message (string-append "refused {name} " (get-field e \'code) " " c))'
        call = f'(let ((n "{name}")) (n (c c)))'
        if (self.granted is None or name in self.granted) and self.rng.random() < 0.5:
            call = f"(value-of ({name} (c c)))"
        return f"(try {call} (catch (e) {report}))"


@dataclass
class Findings:
    """What the oracle saw: effects that ran, refusals that were reported, those with several authors, and the faults."""

    ran: int = 0
    refused: int = 0
    crossed: int = 0
    faults: list[str] = field(default_factory=list[str])


class Witness(World):
    """A world whose tools do next to nothing, and whose performer compares each effect with its chain of authors."""

    def __init__(self) -> None:
        super().__init__({name: lambda arguments: arguments.get("c") for name in TOOLS}, ProgramCache())
        self.findings = Findings()
        self.backs = 0

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        match effect:
            case CallTool():
                chain = str(effect.arguments.get("c", ""))
                self.findings.ran += 1
                self._count(chain)
                if effect.name not in permitted(chain):
                    self.findings.faults.append(f"{effect.name} ran for {chain}")
                return await self._tool(effect, chain, call)
            case LogMessage():
                _, name, code, chain = f"{effect.text} ".split(" ", 3)
                if code == "name/not-granted":
                    self.findings.refused += 1
                    self._count(chain)
                    if name in permitted(chain):
                        self.findings.faults.append(f"{name} was refused for {chain}")
                return effect.text
            case _:
                return await super().perform(effect, call)

    def _count(self, chain: str) -> None:
        self.findings.crossed += len(set(_BRACKET.findall(chain))) > 1

    async def _tool(self, effect: CallTool, chain: str, call: CallContext) -> Any:
        await asyncio.sleep(0)
        function = effect.arguments.get("f")
        if effect.name == "back" and self.backs < MAX_BACKS:
            self.backs += 1
            return await call_closure(
                function, (chain,), performer=self, call=call, budget=Budget(call.run.limits, steps=500)
            )
        return {"f": function} if effect.name == "hand" else TaskResult.of("done")

    async def called(self, function: Any, granted: frozenset[str] | None, limits: Limits) -> Any:
        """Call a procedure as code with ``granted`` would."""
        call = FakeRun(limits=limits, watched=False).call(grants=granted)
        return await call_closure(function, (bracket(granted),), performer=self, call=call, budget=Budget(limits))


def grants(rng: random.Random) -> frozenset[str] | None:
    """The grants of an author."""
    return None if rng.random() < 0.15 else frozenset(rng.sample(TOOLS, rng.randint(0, len(TOOLS))))


def carried(value: Any) -> Any:
    """A procedure after a trip through JSON; itself where it is not data."""
    try:
        return load_closure(json.loads(json.dumps(dump_closure(value)))) if isinstance(value, Closure) else value
    except SexpEvaluationError:
        return value
