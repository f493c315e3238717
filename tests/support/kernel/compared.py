"""A program compiled and interpreted: what happened each time, and the first difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.values import OrderedSet
from agentflow.core.events.effects import Effect
from agentflow.lang.closure import Closure
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.printer import print_value
from agentflow.lang.program import compile_program
from agentflow.run.engine import run_program
from agentflow.run.strand.budget import Budget
from tests.support.fakes import FakeRun
from tests.support.kernel.program import in_pieces, interpreted
from tests.support.world import World

LIMITS = Limits(
    steps=3_000, wall_s=20.0, depth=400, collection=20_000, string=50_000, integer_bits=20_000, branches=50, effects=200
)


TIMED = ("race", "timeout", "wait_for")
"""Forms whose value depends on the time: with them both must end, and no more is said."""
CONCURRENT = ("parallel", "pmap", "gather")
"""Forms whose branches stop each other when one fails: how far the others came depends on the time."""
CATCHING = ("catch", "guard", "except", "retry", "finally", "dynamic-wind")


class NotedWorld(World):
    """A world that notes each effect with its number."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        span = call.span
        place = None if span is None else (span.start, span.end)
        self.noted.append(f"{call.path} {place} {type(effect).__name__} {shown(vars_of(effect))}")
        return await super().perform(effect, call)


def vars_of(effect: Effect) -> dict[str, Any]:
    """The fields of an effect, without the environment."""
    names = getattr(effect, "__dataclass_fields__", {})
    return {name: getattr(effect, name) for name in names if name != "env"}


@dataclass(frozen=True)
class Outcome:
    """What happened: a value or an error, the effects by their numbers, the variables left, and the steps taken."""

    value: str
    effects: tuple[str, ...]
    variables: str
    steps: int
    has_failed: bool


_MOST_SHOWN = 5_000
"""Parts of a value that are compared: one that holds the same list again and again can have any number."""


def shown(value: Any) -> str:
    """A value as text; procedures by their place."""
    texts: list[str] = []
    pending: list[Any] = [value]
    while pending and len(texts) < _MOST_SHOWN:
        at = pending.pop()
        if isinstance(at, Closure):
            texts.append(f"#{at.info.name} {at.info.start}")
        elif type(at) in (list, tuple, OrderedSet):
            texts.append(f"{type(at).__name__} of {len(at)}")
            pending += list(at)[:_MOST_SHOWN]
        elif type(at) is dict:
            texts.append(f"dict of {len(at)}")
            pending += [each for entry in list(at.items())[:_MOST_SHOWN] for each in entry]
        elif at is None or type(at) in (bool, int, float, str):
            texts.append(f"{at!r}"[:2_000])
        else:
            texts.append(f"{type(at).__name__} {print_value(at, limit=200)}")
    return " ".join(texts)


async def outcome_of(source: Source, limits: Limits, *, by_kernel: bool = False, room: int | None = None) -> Outcome:
    """What happens when a text is run, by the interpreter or in pieces of some ``room`` Python nodes. Raises what its compiler raises."""
    world, env = NotedWorld(), SexpEnvironment()
    names = NamesInForce(world, env, env)
    program = compile_program(source, names=names, limits=limits)
    if room is not None:
        program = in_pieces(program, names, room)
    program = interpreted(program, names) if by_kernel else program
    call, budget = FakeRun(limits=limits, watched=False).call(), Budget(limits)
    has_failed = False
    try:
        value = shown(await run_program(program, env, performer=world, call=call, budget=budget))
    except AgentflowError as error:
        has_failed = True
        span = None if error.span is None else (error.span.source.name, error.span.start, error.span.end)
        value = f"{error.code} {error.message} {span} {error.hint}"
        if isinstance(error, LimitExceeded):
            value = f"{error.code} {error.limit}"  # where steps run out shows in no order of checks
    variables = shown({name: env.lookup(name) for name in sorted(env.names())})
    steps = -1 if budget.steps_left is None else (limits.steps or 0) - budget.steps_left
    return Outcome(value, tuple(sorted(world.noted)), variables, steps, has_failed)


async def difference(text: str, surface: Surface = "sexp", limits: Limits = LIMITS) -> str | None:
    """What the interpreter does that the compiled program does not; None if both do the same, or the text is refused."""
    source = Source("<text>", text, surface)
    try:
        compiled = await outcome_of(source, limits, by_kernel=False)
    except AgentflowError:
        return None
    plain = await outcome_of(source, limits, by_kernel=True)
    if plain == compiled or any(word in text for word in TIMED):
        return None
    failed = compiled.has_failed or plain.has_failed or any(word in text for word in CATCHING)
    if failed and any(word in text for word in CONCURRENT):
        return None
    if compiled.value.startswith("limits/") and plain.value == compiled.value:
        return None  # what happens before a limit ends it depends on the size of the slices
    fields = [
        each for each in ("value", "effects", "variables", "steps") if getattr(compiled, each) != getattr(plain, each)
    ]
    lines = [f"{each}:\n  compiled {getattr(compiled, each)}\n  plain    {getattr(plain, each)}" for each in fields]
    return "\n".join([text, *lines])
