"""A call that is used in place of what it gives says so, whatever it is used for, and whoever only looks at it is let be."""

from __future__ import annotations

import asyncio
import copy
import gc
import math
import operator
import pickle
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.errors import AgentflowError, UnawaitedAttribute, WorkflowError

Use = Callable[[Any], Any]


def flow_of() -> AgentFlow:
    """A flow whose model repeats what it is asked."""
    return AgentFlow(provider=ScriptedProvider(lambda request: request.messages[-1].text))


def statement(text: str) -> Use:
    """A use of ``call`` that is not an expression."""
    code = compile(text, "<use>", "exec")
    return lambda call: exec(code, {"call": call})


async def each(call: Any) -> None:
    async for _ in call:
        pass


async def within(call: Any) -> None:
    async with call:
        pass


BINARY = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.matmul,
    operator.pow, operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, divmod,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip
UNARY = (
    operator.neg, operator.pos, operator.invert, abs, bool, bytes, complex, float, int, iter, len, list, operator.index,
    reversed, round, str, format, math.ceil, math.floor, math.trunc, sum, set, copy.copy, copy.deepcopy, pickle.dumps,
)  # fmt: skip
USES: dict[str, Use] = {
    **{f"call {each.__name__} 1": lambda call, use=each: use(call, 1) for each in BINARY},
    **{f"1 {each.__name__} call": lambda call, use=each: use(1, call) for each in BINARY},
    **{f"{each.__name__}(call)": each for each in UNARY},
    "'text' + call": lambda call: "text" + call,
    "'%s' % call": lambda call: "%s" % call,  # noqa: UP031 - the use that is tested
    "f'{call}'": lambda call: f"{call}",
    "'{:>9}'.format(call)": lambda call: f"{call:>9}",
    "print(call)": lambda call: print(call, end=""),
    "call == None": lambda call: call == None,  # noqa: E711 - the use that is tested
    "if call": lambda call: 1 if call else 2,
    "not call": lambda call: not call,
    "call and 1": lambda call: call and 1,
    "1 in call": lambda call: 1 in call,
    "call in [1]": lambda call: call in [1],
    "call[0]": lambda call: call[0],
    "range(call)": lambda call: range(call),
    "[1][call]": lambda call: [1][call],
    "[*call]": lambda call: [*call],
    "a, b = call": statement("a, b = call"),
    "call[0] = 1": statement("call[0] = 1"),
    "del call[0]": statement("del call[0]"),
    "x += call": statement("x = 1; x += call"),
    "x += call, of a list": statement("x = []; x += call"),
    "for each in call": statement("for each in call: pass"),
    "match call": statement("match call:\n case 'yes': pass"),
    "with call": statement("with call: pass"),
    "call.text": lambda call: call.text,
    "call.text()": lambda call: call.text(),
}


@pytest.mark.parametrize("use", USES)
async def test_every_use_is_refused_by_name(use: str) -> None:
    """Operators, formatting, truth, iteration, indexing and attributes raise WorkflowError, which names the call and where."""
    flow = flow_of()
    call = flow.ask("Well?")
    with pytest.raises(WorkflowError) as refused:
        USES[use](call)
    assert refused.value.code == "python/not-awaited"
    assert f"ask(...) at {__name__}" in refused.value.message
    assert "await ask(...)" in (refused.value.hint or "")
    call.close()


@pytest.mark.parametrize("use", [each, within])
async def test_asynchronous_uses_are_refused_by_name(use: Callable[[Any], Awaitable[None]]) -> None:
    """``async for`` and ``async with`` of a call are what ``flow.stream`` is for."""
    with pytest.raises(WorkflowError) as refused:
        await use(flow_of().ask("Well?"))
    assert refused.value.code == "python/not-awaited"


async def test_the_hint_is_what_to_write() -> None:
    """Each use has its own."""
    flow = flow_of()
    hints: list[str | None] = []
    for use in ("call add 1", "1 add call", "f'{call}'", "if call", "call.text", "call[0]"):
        call = flow.ask("Well?")
        with pytest.raises(AgentflowError) as refused:
            USES[use](call)
        call.close()
        hints.append(refused.value.hint)
    assert hints == [
        "write (await ask(...)) + ...",
        "write ... + (await ask(...))",
        'write f"{await ask(...)}"',
        "write if await ask(...)",
        "write (await ask(...)).text",
        "write (await ask(...))[...]",
    ]


async def test_all_kinds_of_calls(tmp_path: Any) -> None:
    """Tasks, workflows, programs and every method that gives a call are alike."""
    flow = flow_of()

    @flow.task
    async def task() -> str:
        """Answer."""

    @flow.workflow
    async def workflow() -> str:
        return "x"

    for call in (
        task(), workflow(), flow.program("1")(), flow.map(task, []), flow.parallel(), flow.race(), flow.timeout(1, task()),
        flow.retry(1, task), flow.call_tool("x"), flow.context("x"), flow.solve("x"), flow.step(len, "x"), flow.sleep(1),
        flow.now(), flow.random(), flow.uuid(), flow.ask_human("x", bool),
    ):  # fmt: skip
        with pytest.raises(WorkflowError, match="an await is missing"):
            assert call == "x"


async def test_one_error_for_one_slip() -> None:
    """A call that was refused so does not also complain that it was never awaited; one that is only looked at goes on."""
    flow = flow_of()

    @flow.workflow
    async def work() -> str:
        try:
            return "Answer: " + flow.ask("Well?")  # type: ignore[operator]
        except WorkflowError:
            return await flow.ask("Again?")

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert await work() == "Again?"
        call = flow.ask("Well?")
        assert not hasattr(call, "text") and "not awaited" in repr(call) and call in {call} and not callable(call)
        assert call is not None and asyncio.iscoroutine(call)
        with pytest.raises(UnawaitedAttribute):
            call.text  # noqa: B018 - the use that is tested
        assert await call == "Well?"
        with pytest.raises(WorkflowError):
            assert call == "Well?"
        gc.collect()


async def test_calls_that_are_given_back_unawaited() -> None:
    """A workflow, or a branch, that gives a call itself, or a list of calls, is told so in place of giving them on."""
    flow = flow_of()

    @flow.workflow
    async def one() -> Any:
        return flow.ask("Well?")

    @flow.workflow
    async def several() -> Any:
        return [flow.ask(text) for text in ("a", "b")]

    @flow.workflow
    async def coroutine() -> Any:
        return each([])

    async def branch(text: str) -> Any:
        return flow.ask(text)

    @flow.workflow
    async def branches() -> Any:
        return await flow.map(branch, ["a"])

    for workflow, named in ((one, "ask(...)"), (several, "ask(...)"), (coroutine, "each"), (branches, "ask(...)")):
        with pytest.raises(WorkflowError) as refused:
            await workflow()
        assert refused.value.code == "python/not-awaited" and named in refused.value.message
        assert "returned itself" in refused.value.message
