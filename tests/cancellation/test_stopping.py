"""What a program may do while it is being stopped, through a whole flow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ScriptedProvider, SexpEvaluationError

ASK = '(defatom ask (params (q string)) (instructions "Answer {{q}}"))'


async def test_no_model_is_asked_while_stopping(tmp_path: Path) -> None:
    """A finally that a limit runs calls tools, but no model: not by a task, and not by a tool that runs one."""
    cleaned: list[str] = []
    provider = ScriptedProvider(["never"] * 3)
    async with AgentFlow(provider=provider, root=tmp_path) as flow:

        async def clean(deep: bool) -> str:
            """Clean up, perhaps with a model's help."""
            cleaned.append("asked" if deep else "plain")
            if deep:
                with pytest.raises(SexpEvaluationError) as caught:
                    await flow.run(f'{ASK} (ask (q "what now?"))')
                assert caught.value.code == "finally/model-call"
                cleaned.append("refused")
            return "clean"

        flow.tool(clean)
        for final in ("(clean (deep false))", "(clean (deep true))", '(ask (q "help"))'):
            with pytest.raises(LimitExceeded) as caught:
                await flow.run(f"{ASK} (try (loop 5000 (+ 1 1)) (finally {final}))", limits=Limits(steps=1_000))
            notes = getattr(caught.value, "__notes__", [])
            assert bool(notes) is final.startswith("(ask"), notes
    assert cleaned == ["plain", "asked", "refused"] and provider.requests == []


async def test_what_goes_on_beside_it_may_ask(tmp_path: Path) -> None:
    """The branch that loses a race is stopped; its neighbour's model call is not refused."""
    stopping = asyncio.Event()
    provider = ScriptedProvider(["an answer"])
    async with AgentFlow(provider=provider, root=tmp_path) as flow:

        async def wait() -> None:
            """Wait for ever."""
            await asyncio.Event().wait()

        async def linger() -> None:
            """Clean up for as long as the other branch asks."""
            stopping.set()
            await asyncio.sleep(0.05)

        async def until_stopping() -> None:
            """Wait for the clean-up to begin."""
            await stopping.wait()

        for function in (wait, linger, until_stopping):
            flow.tool(function)
        value = (
            await flow.run(
                f"""{ASK}
            (parallel
              (race (begin (try (wait) (finally (linger))) 1) 2)
              (begin (until_stopping) (value-of (ask (q "x")))))"""
            )
        ).value
    assert value == [2, "an answer"]
