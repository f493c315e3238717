"""After a limit or a cancellation nothing starts a model call: no clean-up form, and no code of the host, by any way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentflow import AgentFlow, CallContext, LimitExceeded, Limits, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.tasks.workflows import make_workflow
from tests.support.values import value_of

ASK = '(ask (q "x"))'
ASKING = f"(lambda (. more) {ASK})"


class Ground:
    """A flow that notes every model call; ``waiting`` is set when a program has begun to wait for ever."""

    def __init__(self, root: Path) -> None:
        self.waiting = asyncio.Event()
        self.attempts: list[str] = []
        self.provider = ScriptedProvider(lambda request: "an answer")
        self.flow = AgentFlow(provider=self.provider, root=root)
        self.flow.task_system.register_template(
            {"name": "ask", "subtype": "ask", "params": "q", "instructions": "{{q}}"}
        )
        self.flow.task_system.register_template(
            {"name": "see", "subtype": "see", "params": "q", "instructions": "{{ask(q)}}"}
        )
        for tool in (self.wait, self.step, self.attempt, self.by_eval, self.by_prompt, self.by_task, self.by_call):
            self.flow.tool(tool)
        for tool in (self.by_callback, self.by_branch, self.by_new_task, self.by_shield, self.by_string):
            self.flow.tool(tool)

    async def wait(self) -> None:
        """Wait for ever."""
        self.waiting.set()
        await asyncio.Event().wait()

    async def step(self) -> None:
        """Do nothing."""

    async def attempt(self, what: str) -> None:
        """Note that an attempt is made."""
        self.attempts.append(what)

    async def by_eval(self) -> str:
        """Run a program that asks."""
        return str((await self.flow.run(ASK)).value)

    async def by_branch(self) -> str:
        """Run a program that asks in a branch."""
        return str((await self.flow.run(f"(parallel (parallel {ASK}) 1)")).value)

    async def by_string(self) -> str:
        """Ask as the specification says."""
        return str(await self.flow.evaluator.evaluate_string(ASK))

    async def by_prompt(self) -> str:
        """Ask a model."""
        return str(await self.flow.handler.execute_prompt("x"))

    async def by_task(self) -> str:
        """Run a task."""
        return str(await self.flow.task_system.execute_task("atomic", "ask", {"q": "x"}))

    async def by_call(self, f: Any) -> str:
        """Call a procedure of the program."""
        return str(await self.flow.call(f, 1))

    async def by_callback(self, f: Any, ctx: CallContext) -> str:
        """Call a procedure through the context."""
        return str(await ctx.call(f, 1))

    async def by_new_task(self) -> str:
        """Ask in a task of its own."""
        return str(await asyncio.create_task(value_of(self.flow.run(ASK))))

    async def by_shield(self) -> str:
        """Ask, shielded."""
        return str(await asyncio.shield(self.flow.handler.execute_prompt("x")))


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    made = Ground(tmp_path)
    async with made.flow:
        await made.flow.workflows.save(make_workflow({"name": "asking", "program": ASK}))
        yield made


FORMS = {
    "task": ASK,
    "template_function": '(see (q "x"))',
    "name_as_data": '((car (list "ask")) (q "x"))',
    "workflow": "(call-workflow asking)",
    "eval_program": f"(eval-program '{ASK} (allow ask))",
    "solve": '(solve "a goal" (allow ask))',
    "branch": f"(parallel {ASK} 1)",
    "pmap": f"(pmap {ASKING} (list 1))",
    "race": f"(race {ASK})",
    "retry": f"(retry 1 {ASK})",
    "timeout": f"(timeout 5 {ASK})",
    "closure": f"({ASKING})",
    "deep": f"(let go ((n 300)) (if (= n 0) {ASK} (car (list (go (- n 1))))))",
    "finally": f"(try (raise 1) (finally {ASK}))",
    "catch": f"(try (raise 1) (catch (e) {ASK}))",
    "host": "(asking)",
    "tool_eval": "(by_eval)",
    "tool_branch": "(by_branch)",
    "tool_prompt": "(by_prompt)",
    "tool_task": "(by_task)",
    "tool_call": f"(by_call (f {ASKING}))",
    "tool_callback": f"(by_callback (f {ASKING}))",
    "tool_new_task": "(by_new_task)",
    "tool_shield": "(by_shield)",
    "tool_string": "(by_string)",
}
"""Ways to start a model call, in a ``finally``."""

ENDS: dict[str, tuple[str, Limits | None]] = {
    "steps": ("(try (loop 100000 1) (finally {}))", Limits(steps=2_000)),
    "effects": ("(try (while true (step)) (finally {}))", Limits(effects=20)),
    "branches": ("(try (while true (parallel 1 2)) (finally {}))", Limits(branches=20)),
    "wall": ("(try (while true 1) (finally {}))", Limits(wall_s=0.1)),
    "time_out": ("(timeout 0.05 (try (wait) (finally {})))", None),
    "race": ("(race (try (wait) (finally {})) 1)", None),
    "cancelled": ("(try (wait) (finally {}))", None),
}


async def ended(ground: Ground, text: str, limits: Limits | None, *, cancel: bool = False, **bindings: Any) -> None:
    """Run a program that ends in one of those ways; the error it ends with is of no matter here."""
    run = asyncio.create_task(ground.flow.run(text, limits=limits, bindings=bindings))
    if cancel:
        await ground.waiting.wait()
        run.cancel()
    with contextlib.suppress(AgentflowError, asyncio.CancelledError):
        await run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("end", ENDS)
async def test_no_cleanup_form_starts_a_model_call(end: str, form: str, ground: Ground) -> None:
    """A ``finally`` that runs because of a limit or a cancellation gets no answer of a model, whatever it tries."""
    program, limits = ENDS[end]

    async def asking() -> str:
        return str((await ground.flow.run(ASK)).value)

    final = f'(begin (attempt (what "form")) {FORMS[form]})'
    await ended(ground, program.format(final), limits, cancel=end == "cancelled", asking=asking)
    assert ground.attempts == ["form"] and ground.provider.requests == []
    assert ((await ground.flow.run(ASK)).value).content == "an answer"


HOST: dict[str, Callable[[Ground, Any, CallContext], Awaitable[object]]] = {
    "eval": lambda ground, f, ctx: ground.by_eval(),
    "branch": lambda ground, f, ctx: ground.by_branch(),
    "prompt": lambda ground, f, ctx: ground.by_prompt(),
    "task": lambda ground, f, ctx: ground.by_task(),
    "call": lambda ground, f, ctx: ground.by_call(f),
    "callback": lambda ground, f, ctx: ground.by_callback(f, ctx),
    "new_task": lambda ground, f, ctx: ground.by_new_task(),
    "shield": lambda ground, f, ctx: ground.by_shield(),
    "string": lambda ground, f, ctx: ground.by_string(),
    "gather": lambda ground, f, ctx: asyncio.gather(ground.by_eval(), ground.by_prompt()),
}
"""Ways in which code of the host asks a model while it is being stopped."""

HOST_ENDS: dict[str, tuple[str, Limits | None]] = {
    "wall": (f"(linger (f {ASKING}))", Limits(wall_s=0.2)),
    "time_out": (f"(timeout 0.1 (linger (f {ASKING})))", None),
    "race": (f"(race (linger (f {ASKING})) (started))", None),
    "cancelled": (f"(linger (f {ASKING}))", None),
}


@pytest.mark.parametrize("way", HOST)
@pytest.mark.parametrize("end", HOST_ENDS)
async def test_no_code_of_the_host_starts_one_when_it_is_stopped(end: str, way: str, ground: Ground) -> None:
    """A tool that is cancelled may clean up, but no model call of its run begins any more, in whichever task."""

    async def linger(f: Any, ctx: CallContext) -> None:
        """Wait for ever, and then ask."""
        try:
            await ground.wait()
        finally:
            ground.attempts.append("host")
            with contextlib.suppress(AgentflowError):
                await HOST[way](ground, f, ctx)

    async def started() -> None:
        """Wait until the other one waits."""
        await ground.waiting.wait()

    for tool in (linger, started):
        ground.flow.tool(tool)
    program, limits = HOST_ENDS[end]
    await ended(ground, program, limits, cancel=end == "cancelled")
    assert ground.attempts == ["host"] and ground.provider.requests == []
    assert ((await ground.flow.run(ASK)).value).content == "an answer"


async def test_what_was_under_way_asks_no_more(ground: Ground) -> None:
    """A program that a tool has started in a task of its own makes no model call once the tool is cancelled."""
    go_on = asyncio.Event()

    async def pause() -> None:
        """Wait for the signal."""
        ground.waiting.set()
        await go_on.wait()

    async def linger() -> None:
        """Have something going on, and wait for it when cancelled."""
        under_way = asyncio.create_task(value_of(ground.flow.run(f"(pause) {ASK}")))
        try:
            await asyncio.Event().wait()
        finally:
            go_on.set()
            with contextlib.suppress(AgentflowError):
                await under_way

    for tool in (pause, linger):
        ground.flow.tool(tool)
    await ended(ground, "(linger)", None, cancel=True)
    assert ground.provider.requests == []


LIMITED = {
    "steps": ("(loop 100000 1)", Limits(steps=2_000)),
    "effects": ("(while true (step))", Limits(effects=20)),
    "branches": ("(while true (parallel 1 2))", Limits(branches=20)),
    "depth": ("(define (f n) (+ 1 (f n))) (f 1)", Limits(depth=500)),
    "collection": ("(length (range 1000))", Limits(collection=100)),
    "string": ('(let go ((s "abc")) (go (string-append s s)))', Limits(string=1_000)),
    "integer_bits": ("(let go ((n 3)) (go (* n n)))", Limits(integer_bits=1_000)),
    "memory": ("(map (lambda (i) (range 100000)) (range 400))", Limits(memory=4 * 2**20)),
}


@pytest.mark.parametrize("end", LIMITED)
async def test_a_run_whose_limit_the_host_caught_is_over(end: str, ground: Ground) -> None:
    """Nothing more of it is done: no effect, no call of a procedure, and it has no value."""
    program, limits = LIMITED[end]
    after: list[str] = []

    async def stubborn(f: Any, ctx: CallContext) -> str:
        """Meet the limit, and try to go on."""
        with pytest.raises(LimitExceeded) as caught:
            await ground.flow.run(program)
        for way in (value_of(ground.flow.run("(attempt (what 1))")), ctx.call(f, 1)):
            with pytest.raises(LimitExceeded):
                after.append(str(await way))
        return caught.value.code

    async def part() -> str:
        """Meet the limit of a part, and go on."""
        with pytest.raises(LimitExceeded) as caught:
            await ground.flow.run(program, limits=limits)
        return caught.value.code

    for tool in (stubborn, part):
        ground.flow.tool(tool)
    for text in (
        "(stubborn (f (lambda (x) (attempt (what x)))))",
        "(parallel (stubborn (f (lambda (x) (attempt (what x))))) 1)",
    ):
        with pytest.raises(LimitExceeded) as caught:
            await ground.flow.run(text, limits=limits)
        assert caught.value.limit == end and after == [] and ground.attempts == []
    assert ((await ground.flow.run("(part)")).value).content == f"limits/{end.replace('_', '-')}"


@pytest.mark.parametrize("way", HOST)
@pytest.mark.parametrize("end", LIMITED)
async def test_no_code_of_the_host_starts_one_after_a_limit(end: str, way: str, ground: Ground) -> None:
    """A tool that catches the limit of its run goes on without a model; a limit of a part is the part's own affair."""
    program, limits = LIMITED[end]

    async def stubborn(f: Any, ctx: CallContext) -> None:
        """Meet the limit, and ask all the same."""
        with pytest.raises(LimitExceeded):
            await ground.flow.run(program)
        ground.attempts.append("host")
        with contextlib.suppress(AgentflowError):
            await HOST[way](ground, f, ctx)

    async def bounded(f: Any, ctx: CallContext) -> None:
        """Meet the limit of a part, and ask."""
        with pytest.raises(LimitExceeded):
            await ground.flow.run(program, limits=limits)
        await HOST[way](ground, f, ctx)

    for tool in (stubborn, bounded):
        ground.flow.tool(tool)
    await ended(ground, f"(stubborn (f {ASKING}))", limits)
    assert ground.attempts == ["host"] and ground.provider.requests == []
    await ground.flow.run(f"(value-of (bounded (f {ASKING})))")
    assert ground.provider.requests


async def _gives_up_with_timeout(slow: Callable[[], Awaitable[object]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await slow()


async def _gives_up_with_wait_for(slow: Callable[[], Awaitable[object]]) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(slow(), 0.01)


async def _gives_up_with_anyio(slow: Callable[[], Awaitable[object]]) -> None:
    with anyio.move_on_after(0.01):
        await slow()


async def _gives_up_with_a_group(slow: Callable[[], Awaitable[object]]) -> None:
    async def fail() -> None:
        raise ValueError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await slow()


GIVING_UP = [_gives_up_with_timeout, _gives_up_with_wait_for, _gives_up_with_anyio, _gives_up_with_a_group]


@pytest.mark.parametrize("give_up", GIVING_UP, ids=[each.__name__[1:] for each in GIVING_UP])
@pytest.mark.parametrize("way", HOST)
async def test_what_the_host_gives_up_itself_is_no_stop(way: str, give_up: Any, ground: Ground) -> None:
    """A tool that ends a wait of its own is not being stopped: it may ask a model afterwards."""

    async def patient(f: Any, ctx: CallContext) -> None:
        """Wait a little, and ask."""
        await give_up(ground.wait)
        await HOST[way](ground, f, ctx)

    ground.flow.tool(patient)
    await ground.flow.run(f"(value-of (patient (f {ASKING})))")
    assert ground.provider.requests
