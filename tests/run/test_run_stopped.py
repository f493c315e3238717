"""Errors that stop a run: whatever in a program goes on after others goes on after none of these."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.cli.shared.common import Exit, exit_code
from agentflow.core.data.source import Surface
from agentflow.errors import ChangeRefused, LimitExceeded, RunStopped, SexpEvaluationError, TaskError

STOPPING: dict[str, RunStopped] = {
    "a limit": LimitExceeded("a limit was met", limit="effects", allowed=1),
    "a change that was refused": ChangeRefused("a list would be changed", hint="make a new one"),
}
FORMS: dict[str, tuple[Surface, str]] = {
    "catch": ("sexp", "(try (stop) (catch (e) (seen)))"),
    "guard": ("sexp", "(guard (e (#t (seen))) (stop))"),
    "race": ("sexp", "(begin (race (stop) (slow)) (seen))"),
    "retry": ("sexp", "(begin (retry 2 (begin (begun) (stop))) (seen))"),
    "parallel, caught": ("sexp", "(try (parallel (stop) 1) (catch (e) (seen)))"),
    "pmap, caught": ("sexp", "(try (pmap (lambda (x) (stop)) (list 1 2)) (catch (e) (seen)))"),
    "a program that is data": ("sexp", "(try (eval-program '(stop) (allow stop)) (catch (e) (seen)))"),
    "except": ("python", "try:\n    stop()\nexcept Exception:\n    seen()"),
    "retry, in Python": ("python", "def f():\n    begun()\n    stop()\nretry(2, f())\nseen()"),
    "race, in Python": ("python", "race(stop(), slow())\nseen()"),
}


async def _done(
    form: tuple[Surface, str], error: AgentflowError, root: Path
) -> tuple[list[str], AgentflowError | None]:
    """What was done by a form in which ``stop`` raises an error, and with which one it ended."""
    done: list[str] = []

    async def stop() -> str:
        raise error

    async def slow() -> str:
        await asyncio.sleep(0.1)
        return ""

    async def seen() -> str:
        done.append("seen")
        return ""

    async def begun() -> str:
        done.append("begun")
        return ""

    surface, text = form
    async with AgentFlow(provider=ScriptedProvider([]), root=root, tools=[stop, slow, seen, begun]) as flow:
        try:
            await flow.run(text, surface=surface)
        except AgentflowError as raised:
            return done, raised
    return done, None


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kind", STOPPING)
async def test_nothing_goes_on_after_it(name: str, kind: str, tmp_path: Path) -> None:
    """The error of the run is the one that stopped it, and neither a handler nor another try was begun."""
    done, raised = await _done(FORMS[name], STOPPING[kind], tmp_path)
    assert type(raised) is type(STOPPING[kind]) and "seen" not in done and done.count("begun") <= 1


@pytest.mark.parametrize("name", FORMS)
async def test_another_error_is_gone_on_after(name: str, tmp_path: Path) -> None:
    """The same forms go on after an error of a task."""
    done, _ = await _done(FORMS[name], TaskError("no"), tmp_path)
    assert "seen" in done or done.count("begun") == 2


def test_exit_codes_tell_limits_from_the_rest() -> None:
    """Only a limit has the exit code of limits, and wall time that of time-outs; what a policy refuses is a failed workflow."""
    assert exit_code(STOPPING["a limit"]) == Exit.LIMIT
    assert exit_code(LimitExceeded("late", limit="wall_s", allowed=1)) == Exit.TIMEOUT
    assert exit_code(STOPPING["a change that was refused"]) == exit_code(SexpEvaluationError("no")) == Exit.FAILED
