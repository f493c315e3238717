"""A strict policy and the limits of a run: how much arms have used of them is told to no program and no model, short of a run that ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, Provenance, ScriptedProvider, Sink
from agentflow.core.data.errors import AgentflowError
from tests.provenance.strict_programs import SECRETS, Observer

ASKS = '(defatom t (params) (instructions "x") (tools))'
LOOKS = '(defatom look (params) (instructions "Look, then say it.") (tools post))'
ARM = "(if (> s 1) (t))"


def looking(request: Any) -> Any:
    """A model that posts something in each turn in which it may."""
    if not request.tools:
        return "x"
    if request.tool_choice == "none" or len(request.messages) > 5:
        return "done"
    return {"tool_calls": [{"name": "post", "arguments": {"to": str(len(request.messages))}}]}


async def runs_of(root: Path, text: str, limits: Limits, **options: Any) -> list[tuple[str, list[Any]]]:
    """How a program with each of the secrets ended, and what it sent."""
    runs: list[tuple[str, list[Any]]] = []
    for secret in SECRETS:
        watching = Observer(root, provider=ScriptedProvider(looking), strict=options.get("strict", True))
        async with watching.flow as flow:
            work = flow.run(text, bindings=Observer.bindings(secret), limits=limits)
            runs.append(await watching.watched(work))
    return runs


def told(runs: list[tuple[str, list[Any]]]) -> bool:
    """Whether runs that ended differ."""
    return len({str(seen) for end, seen in runs if end == "ended"}) > 1


FIVE = "(t) (t) (t) (t) (t)"
PROGRAM = f"""{ASKS} {ARM}
(try (eval-program '(begin {FIVE}) (allow t)) (catch (e) (send (to (get-field e 'message)))))
(send (to "end"))"""


@pytest.mark.parametrize("allowed", [4, 5, 6])
async def test_a_program_is_not_told_what_is_left(allowed: int, tmp_path: Path) -> None:
    """Whether the bounds of a program fit the limits, and what the refusal says, follows from the limits alone."""
    runs = await runs_of(tmp_path, PROGRAM, Limits(model_calls=allowed))
    assert not told(runs)
    refused = [f"this program may make 5 model calls, and {allowed} are allowed", "end"]
    assert runs[0] == ("ended", refused if allowed < 5 else ["end"])


async def test_it_is_told_by_an_ordinary_policy(tmp_path: Path) -> None:
    """The same program tells it without ``strict``."""
    runs = await runs_of(tmp_path, PROGRAM, Limits(model_calls=5), strict=False)
    assert told(runs) and "4 are left" in str(runs)


@pytest.mark.parametrize("strict", [True, False])
async def test_a_model_is_not_told_that_calls_run_out(strict: bool) -> None:
    """Its last turn is announced by the turns of its task, and not because arms have made calls; an ordinary policy lets that through."""
    rules = [Sink("post", "*", allow=["user", "tool:post"])]
    runs: list[tuple[str, list[Any]]] = []
    for secret in SECRETS:
        posted: list[str] = []

        async def post(to: str, posted: list[str] = posted) -> str:
            """Post something."""
            posted.append(to)
            return "posted"

        flow = AgentFlow(
            provider=ScriptedProvider(looking), tools=[post], provenance=Provenance(rules=rules, strict=strict)
        )
        async with flow:
            work = flow.run(
                f"{ASKS} {LOOKS} {ARM} (look)",
                bindings=Observer.bindings(secret),
                limits=Limits(model_calls=4),
                wrap_up=True,
            )
            try:
                await work
                runs.append(("ended", posted))
            except AgentflowError:
                runs.append(("failed", posted))
    assert told(runs) is not strict
    assert {end for end, _ in runs} == ({"ended", "failed"} if strict else {"ended"})


async def test_calls_that_wrote_a_program_count_against_it() -> None:
    """Of the three model calls of a ``solve``, one wrote the program: a program that may make three is refused before it starts, and written again."""
    wide, narrow = '(defatom t (params) (instructions "x")) (loop 3 (t))', "(+ 1 1)"
    model = ScriptedProvider([wide, narrow])
    async with AgentFlow(provider=model, provenance=Provenance(strict=True)) as flow:
        result = await flow.run('(value-of (solve "two" (allow defatom) (max-model-calls 3)))')
    assert result.value == 2 and len(model.requests) == 2
