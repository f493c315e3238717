"""Paths of effects: the same in every run of a program, whatever order concurrent work gets to run in."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider, TaskError
from agentflow.core.call.call import executing_call
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.events import Event, RunStarted
from agentflow.tasks.workflows import Workflow

Effects = frozenset[tuple[str, str, str]]
"""What a run did: the path, kind and name of every effect and branch."""

ASK = '(defatom ask (params (q string)) (instructions "{{q}}") (tools t))'
ANSWERS: dict[str, list[str]] = {
    "two tools": [],
    "write it": ["```(parallel (t (x 1)) (begin (t (x 2)) (t (x 3))))```"],
    "write it twice": ["```(begin (t (x 1)) (car 5))```", "```(begin (t (x 1)) (t (x 2)))```"],
}


def answer(request: Any) -> Any:
    """A model whose answer depends on nothing but what it is asked."""
    text = "\n".join(part.text for message in request.messages for part in message.parts if hasattr(part, "text"))
    turns = [message for message in request.messages if message.role == "assistant"]
    if "two tools" in text:
        calls = [{"name": "t", "arguments": {"x": x}} for x in (1, 2)]
        return "done" if turns else {"tool_calls": calls}
    if "write it" in text:
        script = ANSWERS["write it twice" if "write it twice" in text else "write it"]
        return script[1 if "(car 5)" in text and len(script) > 1 else 0]
    return f"answer to {text[-20:]}"


class House:
    """A flow whose tools take a random time, and what each of its runs did.

    ``seen`` holds per run the Started events and what host code says of itself, by which unwatched runs are compared.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.flow = AgentFlow(
            provider=ScriptedProvider(answer),
            root=root,
            memory=self,
            tools=[self.t, self.boom, self.flaky, self.callback, self.gathered, self.ordered, self.twice],
        )
        self.seen: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
        self.told: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
        self.tries: dict[str, int] = defaultdict(int)

    def note(self, event: Event) -> None:
        if event.type.endswith("_started") and not isinstance(event, RunStarted):
            name = getattr(event, "name", "") or getattr(event, "form", "")
            said = getattr(event, "arguments", None) or getattr(getattr(event, "request", None), "inputs", None)
            self.seen[event.run_id].add((event.path, event.type, f"{name} {said or ''}"))

    def tell(self, ctx: CallContext, name: str) -> None:
        self.told[ctx.run_id].add((ctx.path, "host", name))

    async def wait(self) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, self.rng.random() * 0.003)))

    # -- tools ------------------------------------------------------------------------------------------------------

    async def t(self, x: Any, ctx: CallContext) -> Any:
        """Give x back after a while."""
        self.tell(ctx, f"t {x}")
        await self.wait()
        return x

    async def boom(self, x: int) -> None:
        """Fail after a while."""
        await self.wait()
        raise TaskError(f"boom {x}", reason="tool_execution_error", code="test/boom")

    async def flaky(self, key: str, ctx: CallContext) -> str:
        """Fail the first time."""
        await self.wait()
        self.tries[ctx.run_id + key] += 1
        if self.tries[ctx.run_id + key] == 1:
            raise TaskError("once", reason="tool_execution_error", code="test/flaky")
        return "ok"

    async def callback(self, ctx: CallContext) -> list[Any]:
        """Call a procedure of the program four times at once."""

        async def one(x: int) -> Any:
            await self.wait()
            return await ctx.call(self.procedures[ctx.run_id], x)

        return await asyncio.gather(*(one(x) for x in range(4)))

    async def gathered(self) -> None:
        """Use the flow's public methods from four tasks at once."""

        async def one(x: int) -> None:
            await self.wait()
            await self.flow.run("(begin (t (x x)) (t (x 9)))", bindings={"x": x})
            await self.wait()
            await self.flow.task_system.execute_task("atomic", "ask_free", {"q": f"free {x % 2}"})
            await self.flow.handler.execute_prompt(f"prompt {x}")

        await asyncio.gather(*(one(x) for x in range(4)))

    async def ordered(self, ctx: CallContext) -> None:
        """Four tasks at once, each in an order of its own."""

        async def one(x: int) -> None:
            await self.wait()
            with ctx.ordered(f"task {x}") as call:
                await self.flow.evaluator.evaluate_string(f"(t (x {x}))")
                await self.wait()
                await self.flow.tools.execute("t", {"x": -x}, call)

        await asyncio.gather(*(one(x) for x in range(4)))

    async def twice(self) -> None:
        """The same effect four times at once: equal effects are counted."""

        async def one() -> None:
            await self.wait()
            await self.flow.run("(t (x 1))")

        await asyncio.gather(*(one() for _ in range(4)))

    # -- the memory -------------------------------------------------------------------------------------------------

    async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
        """Rank with three model calls at once, as a ranker does."""

        async def one(x: int) -> None:
            await self.wait()
            await self.flow.task_system.execute_task("atomic", "ask_free", {"q": f"shard {x}"})

        await asyncio.gather(*(one(x) for x in range(3)))
        return AssociativeMatchResult(context_summary="", matches=[])

    # -- runs -------------------------------------------------------------------------------------------------------

    async def keep(self, procedure: Any) -> str:
        """A host callable: remember a procedure for the tool that calls it back."""
        call = executing_call()
        assert call is not None
        self.procedures[call.run_id] = procedure
        self.tell(call, "keep")
        await self.wait()
        return "kept"

    async def each(self, procedure: Any, items: Sequence[Any]) -> list[Any]:
        """A host callable that calls a procedure of the program on all items at once."""

        async def one(item: Any) -> Any:
            await self.wait()
            return await self.flow.call(procedure, item)

        return await asyncio.gather(*(one(item) for item in items))

    async def runs(self, program: str, count: int, *, watched: bool) -> list[Effects]:
        """What each of ``count`` runs did, all at once."""
        self.seen, self.told, self.procedures = defaultdict(set), defaultdict(set), {}
        end = self.flow.subscribe(self.note) if watched else lambda: None
        bindings = {"keep": self.keep, "each": self.each}
        results = await asyncio.gather(*(self.flow.run(program, bindings=bindings) for _ in range(count)))
        end()
        kept = self.seen if watched else self.told
        return [frozenset(kept[result.run_id]) for result in results]


@dataclass(frozen=True)
class Case:
    """A program. What happens below the paths in ``cut`` may be cut short at any moment, and is only never renumbered."""

    text: str
    cut: tuple[str, ...] = ()


CASES = {
    "parallel": Case("(parallel (begin (t (x 1)) (t (x 2))) (t (x 3)) 4) (t (x 5))"),
    "pmap": Case("(pmap (lambda (i) (t (x i)) (t (x (- i)))) (list 1 2 3 4 5) 2) (t (x 6))"),
    "nested": Case("(parallel (pmap (lambda (i) (parallel (t (x i)) (t (x 0)))) (list 1 2)) (t (x 3)))"),
    "race": Case("(race (begin (t (x 1)) (t (x 2))) (begin (t (x 3)) (t (x 4)))) (t (x 5))", ("0/0.",)),
    "race that all fail": Case("(try (race (boom (x 1)) (boom (x 2)) (boom (x 3))) (catch (e) (each t-of (list (get-field e 'message)))))"),
    "first failure": Case("(try (parallel (begin (t (x 1)) (t (x 2))) (boom (x 3))) (catch (e) (t (x 4)))) (t (x 5))", ("0/0.",)),
    "time-out at its edge": Case("(try (timeout 0.002 (begin (t (x 1)) (t (x 2)) (t (x 3)))) (catch (e) 'late)) (t (x 4))", ("0/0.0/",)),
    "finally of a time-out": Case("(try (timeout 0.001 (try (t (x 1)) (t (x 2)) (finally (t (x 3)) (t (x 4))))) (catch (e) 0)) (t (x 5))", ("0/0.0/",)),
    "finally of a cancelled branch": Case("(try (parallel (try (t (x 1)) (t (x 2)) (finally (t (x 3)))) (boom (x 4))) (catch (e) 0)) (t (x 5))", ("0/0.",)),
    "finally after an error": Case("(try (try (t (x 1)) (boom (x 2)) (finally (t (x 3)))) (catch (e) (t (x 4))))"),
    "retry": Case('(retry 2 (begin (t (x 1)) (flaky (key "a")))) (t (x 2))'),
    "tool turns": Case(f'{ASK} (parallel (ask (q "two tools")) (begin (ask (q "two tools")) (t (x 3))))'),
    "solve": Case('(solve "write it" (allow t)) (t (x 4))'),
    "solve in two rounds": Case('(solve "write it twice" (allow t)) (t (x 4))'),
    "eval-program": Case("(eval-program '(begin (t (x 1)) (eval-program '(t (x 2)) (allow t))) (allow t)) (t (x 3))"),
    "workflows": Case("(parallel (call-workflow saved (x 1)) (begin (call-workflow saved (x 2)) (call-workflow lost)))"),
    "callbacks of a tool": Case("(keep (lambda (i) (t (x i)) (t (x (+ i 10))))) (callback) (t (x 5))"),
    "callbacks of a host callable": Case("(each (lambda (i) (t (x i)) (parallel (t (x 7)) (t (x 8)))) (list 1 2 3 4)) (t (x 5))"),
    "gathered tasks": Case("(gathered) (t (x 5))"),
    "ordered tasks": Case("(parallel (ordered) (ordered)) (t (x 5))"),
    "equal effects": Case("(twice) (t (x 5))"),
    "context": Case('(parallel (get_context (query "a")) (begin (get_context (query "b")) (t (x 1))))'),
}  # fmt: skip


def settled(effects: Effects, case: Case) -> Effects:
    """The effects that must be there in every run."""
    return frozenset(each for each in effects if not each[0].startswith(case.cut or ("none",)))


@pytest.fixture(params=CASES)
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = House(tmp_path, seed=sorted(CASES).index(request.param))
    made.flow.task_system.register_template(
        {"name": "ask_free", "subtype": "ask_free", "params": {"q": "string"}, "instructions": "{{q}}"}
    )
    await made.flow.workflows.save(
        Workflow.model_validate(
            {"name": "saved", "params": {"x": {}}, "program": "(t (x x)) (t (x 0))", "allow": ["t"]}
        )
    )
    made.case = CASES[request.param]
    async with made.flow:
        yield made


async def same_every_time(house: House, count: int) -> None:
    case: Case = house.case
    text = f"(define (t-of v) (t (x v))) {case.text}"
    for watched in (True, False):
        runs = await house.runs(text, count, watched=watched)
        assert len({settled(each, case) for each in runs}) == 1, sorted(runs[0] ^ runs[-1])
        assert settled(runs[0], case), "something must have happened"
        meaning: dict[tuple[str, str], set[str]] = defaultdict(set)
        for path, kind, name in frozenset[tuple[str, str, str]]().union(*runs):
            meaning[path, kind].add(name)
        assert all(len(names) == 1 for names in meaning.values()), meaning


async def test_paths_are_the_same_in_every_run(house: House) -> None:
    """The same effects have the same paths fifty times under random delays, watched or not; none is ever renumbered."""
    await same_every_time(house, 50)


@pytest.mark.slow
async def test_paths_are_the_same_in_many_runs(house: House) -> None:
    """The same, as often as ``AGENTFLOW_NUMBERING_RUNS`` says: 300 times, a thousand before something here is changed."""
    for _ in range(int(os.environ.get("AGENTFLOW_NUMBERING_RUNS", "300")) // 50):
        await same_every_time(house, 50)
