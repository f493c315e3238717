"""A program run without a policy, and under one although no value of it is from elsewhere: what happened each time, and the first difference."""

from __future__ import annotations

from typing import Any

from agentflow import AgentFlow, AgentflowError, LimitExceeded, Provenance, ScriptedProvider, Sink
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Surface
from tests.support.kernel.compared import CATCHING, CONCURRENT, LIMITS, TIMED, shown

RULES = [Sink("shout", "text", allow=["user"])]
POLICIES = {"strict": Provenance(rules=RULES, strict=True), "data": Provenance(rules=RULES)}


async def outcome_of(source: Source, policy: Provenance | None, limits: Limits) -> tuple[Any, list[str], bool] | None:
    """The value or the error of a text, the calls of its tool, and whether it failed; None for a text that is refused."""
    calls: list[str] = []

    def shout(text: str) -> str:
        calls.append(repr(text))
        return str(text).upper()

    async with AgentFlow(provider=ScriptedProvider([]), tools=[shout], provenance=policy, limits=limits) as flow:
        try:
            program = flow.compile(source)
        except AgentflowError:
            return None
        try:
            return shown((await flow.run(program)).value), sorted(calls), False
        except LimitExceeded as error:
            return (error.code, error.limit), sorted(calls), True
        except AgentflowError as error:
            place = None if error.span is None else (error.span.start, error.span.end)
            return (error.code, error.message, place, error.hint), sorted(calls), True


async def policy_difference(text: str, surface: Surface = "python", limits: Limits = LIMITS) -> str | None:
    """What a policy changes for a text that has no values from elsewhere; None if it changes nothing, or the text is refused."""
    source = Source("<text>", text, surface)
    plain = await outcome_of(source, None, limits)
    if plain is None or any(word in text for word in TIMED):
        return None
    for name, policy in POLICIES.items():
        other = await outcome_of(source, policy, limits)
        failed = plain[2] or other is None or other[2] or any(word in text for word in CATCHING)
        if other == plain or (failed and any(word in text for word in CONCURRENT)):
            continue
        if other is not None and other[0] == plain[0] and str(plain[0]).startswith("('limits/"):
            continue  # how far a program comes before a limit ends it depends on the size of the slices
        return f"{text}\nplain: {plain}\n{name}: {other}"
    return None
