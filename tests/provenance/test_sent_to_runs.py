"""Under a strict policy, the texts and signals that a run has not read do not show what its arms did.

A run takes each signal once, and each text that is said to it. If an arm could take one, the next wait, or the next prompt, would show it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Labelled, Provenance, ScriptedProvider, Sink, tool
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.source import Surface
from agentflow.events import Warning

RULES = [Sink("send", "*", allow=["user"])]
SECRETS: list[tuple[Any, list[int]]] = [(0, [1, 2]), (3, []), (2, [5, 0, 7])]
OPENING: dict[Surface, str] = {"sexp": "(opening)", "python": "opening()"}
ARMS: dict[str, tuple[Surface, str]] = {
    "an if": ("sexp", '(if (> s 1) (wait-for-signal "x") 0) (send (to (wait-for-signal "x")))'),
    "each of a list": ("sexp", '(map (lambda (q) (wait-for-signal "x")) items) (send (to (wait-for-signal "x")))'),
    "branches": ("sexp", '(pmap (lambda (q) (wait-for-signal "x")) items) (send (to (wait-for-signal "x")))'),
    "a time": (
        "sexp",
        '(timeout (if (> s 1) 8 9) (wait-for-signal "x")) (if (> s 1) (wait-for-signal "x") 0) (send (to (wait-for-signal "x")))',
    ),
    "a name": ("sexp", '(wait-for-signal (if (> s 1) "x" "y")) (send (to (wait-for-signal "x")))'),
    "a schema": (
        "sexp",
        '(wait-for-signal "x" (dict "type" (if (> s 1) "string" "integer"))) (send (to (wait-for-signal "x")))',
    ),
    "a procedure": (
        "sexp",
        '(define (f) (wait-for-signal "x")) (if (> s 1) (f) 0) (send (to (wait-for-signal "x")))',
    ),
    "a program": (
        "sexp",
        '(if (> s 1) (eval-program \'(wait-for-signal "x") (allow wait-for-signal)) 0) (send (to (wait-for-signal "x")))',
    ),
    "a function of the host": ("sexp", '(if (> s 1) (awaited "x") 0) (send (to (wait-for-signal "x")))'),
    "a text's if": ("python", 'if s > 1:\n    wait_for_signal("x")\nsend(wait_for_signal("x"))'),
    "a comprehension": ("python", '[wait_for_signal("x") for q in items]\nsend(wait_for_signal("x"))'),
    "a try": (
        "python",
        'try:\n    items[0]\n    wait_for_signal("x")\nexcept Exception:\n    0\nsend(wait_for_signal("x"))',
    ),
}


async def sent(root: Path, name: str, secret: tuple[Any, Any], **policy: Any) -> tuple[str, list[Any], list[str]]:
    """How the run of a text ends to which six signals of each name were sent, what it sends, and its warnings."""
    surface, text = ARMS[name]
    seen: list[Any] = []
    warned: list[str] = []

    async def send(to: Any) -> str:
        """Send something."""
        seen.append(to)
        return "sent"

    async def opening() -> str:
        """Six signals of each name come."""
        for at in range(6):
            for signal in ("x", "y"):
                await flow.send_signal("r", signal, f"{signal}{at}")
        return "open"

    async def awaited(name: str) -> Any:
        return await flow.signal(name)

    flow = AgentFlow(
        provider=ScriptedProvider(), root=root, tools=[send, opening], provenance=Provenance(rules=RULES, **policy)
    )
    flow.subscribe(lambda event: warned.append(event.code) if isinstance(event, Warning) else None)
    bindings = {"s": Labelled(secret[0], "web"), "items": Labelled(list(secret[1]), "web"), "awaited": awaited}
    async with flow:
        try:
            await flow.run(f"{OPENING[surface]}\n{text}", surface=surface, bindings=bindings, run_id="r")
        except AgentflowError as error:
            return error.code, seen, warned
    return "ended", seen, warned


@pytest.mark.parametrize("name", ARMS)
async def test_no_arm_takes_a_signal(name: str, tmp_path: Path) -> None:
    """Waiting in an arm, or for a name or a schema that depends on a secret, is refused; no run sends another signal than the others."""
    runs = [await sent(tmp_path, name, each, strict=True) for each in SECRETS]
    assert {each for each, _, _ in runs} <= {"ended", "provenance/write"}
    assert "provenance/write" in {each for each, _, _ in runs} or name == "a try"
    assert all(first == second for _, seen, _ in runs for first, second in zip(seen, ["x0"], strict=False)), runs


@pytest.mark.parametrize("name", ["an if", "a function of the host", "a comprehension"])
async def test_an_ordinary_policy_lets_it(name: str, tmp_path: Path) -> None:
    """Without ``strict`` choices leak: another signal is left. A strict policy that only explains says what it would refuse."""
    runs = [await sent(tmp_path, name, each) for each in SECRETS]
    assert [end for end, _, _ in runs] == ["ended"] * 3 and len({str(seen) for _, seen, _ in runs}) > 1
    explained = [await sent(tmp_path, name, each, strict=True, explain=True) for each in SECRETS]
    assert [seen for _, seen, _ in explained] == [seen for _, seen, _ in runs]
    assert any("provenance/write" in warned for _, _, warned in explained)


async def test_a_prompt_in_an_arm_reads_no_text(tmp_path: Path) -> None:
    """A text said to the run is left for the first prompt outside of the arms, whether there was one in an arm or not."""
    asked: list[list[str]] = []

    def answer(request: ModelRequest) -> Any:
        asked.append([each.text for each in request.messages if each.role == "user"])
        return "done"

    @tool
    async def look() -> str:
        """Look."""
        raise NotImplementedError

    @tool
    async def opening() -> str:
        """A text comes."""
        await flow.say("r", "hurry")
        return "open"

    flow = AgentFlow(
        provider=ScriptedProvider(answer), root=tmp_path, tools=[look, opening], provenance=Provenance(strict=True)
    )

    @flow.task(tools=[look])
    async def agent(about: str) -> str:
        """{{about}}"""
        raise NotImplementedError

    @flow.task(tools=[look])
    async def helper(about: str) -> str:
        """Help: {{about}}"""
        raise NotImplementedError

    async def both(about: str) -> str:
        return await helper(about) + await agent(about)

    async with flow:
        for text in (
            'opening()\nif s > 1:\n    agent(about="a")\nagent(about="b")',
            'opening()\nif s > 1:\n    both("a")\nagent(about="b")',
        ):
            for s in (0, 3):
                asked.clear()
                bindings = {"s": Labelled(s, "web"), "both": both}
                await flow.run(text, surface="python", bindings=bindings, run_id="r")
                assert asked[-1] == ["b\n\nhurry"], asked
                assert all("hurry" not in each[0] for each in asked[:-1]) and (len(asked) > 1) == (s == 3)
