"""Programs that are edited between two runs, the second of which is answered from the records of the first, to see that it is told nothing
of the arms of the first.

Each call of ``ticket`` that is carried out gives another number: whoever is shown it sees which record answered. By hand, for as many as
there is time for::

    python -m tests.provenance.edited_programs --count 2000
    python -m tests.provenance.edited_programs --count 2000 --surface python
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, CallContext, Limits, Provenance, ScriptedProvider, Sink
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Surface
from tests.provenance.strict_programs import POLICY, SECRETS, Observer, chosen, differ, text_of

RUN = "r"
BOTH = replace(POLICY, rules=[*POLICY.rules, Sink("show", "*", allow=["user"])], sources={"ticket": "user"})
"""Nothing secret may be sent, nor shown. A ticket depends on what it was drawn for."""


class Clerk:
    """A flow over the database of one secret. ``keys`` are those of all calls that it carried out, ``seen`` is what the world sees of
    those that depend on nothing: their keys, and what is sent."""

    def __init__(self, root: Path, *, first: int = 0, policy: Provenance | None = BOTH, durable: str = "") -> None:
        root.mkdir(exist_ok=True)
        self.seen: list[Any] = []
        self.keys: list[str] = []
        drawn: Counter[tuple[str, ...]] = Counter()

        async def ticket(of: Any, ctx: CallContext) -> str:
            """Draw another number, of those for calls that depend on the same."""
            read = () if ctx.reading is None else tuple(sorted(ctx.reading.sources))
            drawn[read] += 1
            self.keys.append(ctx.idempotency_key)
            if not read:
                self.seen.append(ctx.idempotency_key)
            return f"{'+'.join(read)}{first + drawn[read]}"

        async def send(to: Any, ctx: CallContext) -> str:
            """Send something."""
            self.keys.append(ctx.idempotency_key)
            self.seen += [to, ctx.idempotency_key]
            return "sent"

        async def show(to: Any, ctx: CallContext) -> str:
            """The same for edited programs, which no record answers."""
            return await send(to, ctx)

        self.flow = AgentFlow(
            provider=ScriptedProvider(),
            root=root,
            tools=[ticket, send, show],
            limits=Limits(steps=6_000, effects=400, wall_s=20.0, depth=200),
            provenance=policy,
            durable=durable or f"sqlite:///{root}/runs.db",
        )

    async def watched(self, handle: Any) -> tuple[str, list[Any]]:
        """How a run ended, and what the world has seen of it."""
        try:
            await handle.result()
        except AgentflowError as error:
            assert not error.code.startswith(("durable/", "internal/")), error.render()
            return "failed", self.seen
        return "ended", self.seen


async def edited(
    root: Path, before: str, after: str, surface: Surface, secret: tuple[Any, Any, Any], **options: Any
) -> tuple[str, list[Any]] | None:
    """What the world sees of the program ``after``, which is answered from the records of the program ``before``; None if that one did not
    come to its end, which tells something by itself."""
    bindings = Observer.bindings(secret)
    clerk = Clerk(root, **options)
    async with clerk.flow as flow:
        end, _ = await clerk.watched(await flow.start(before, bindings, run_id=RUN, surface=surface))
    if end != "ended":
        return None
    clerk = Clerk(root, first=1_000, **options)
    async with clerk.flow as flow:
        return await clerk.watched(await flow.resume(RUN, program=after, surface=surface))


async def told(
    root: Path,
    before: str,
    after: str,
    surface: Surface,
    secrets: Sequence[tuple[Any, Any, Any]] = SECRETS,
    **options: Any,
) -> list[tuple[str, list[Any]]] | None:
    """The runs of an edited program, if they show what was secret in the run before it."""
    runs = [
        await edited(root / str(number), before, after, surface, secret, **options)
        for number, secret in enumerate(secrets)
    ]
    ended = [each for each in runs if each is not None]
    return ended if any([differ(ended[0], each) for each in ended[1:]]) else None


def drawing(text: str, surface: Surface) -> str:
    """A program that sends a ticket with each thing it says."""
    if surface == "sexp":
        return text.replace(
            "(define (say x) (send (to x)) x)", "(define (say x) (send (to (value-of (ticket (of x))))) x)"
        )
    return text.replace("def say(x):\n    send(x)", "def say(x):\n    send(ticket(of=x))")


def changed(text: str, surface: Surface, chance: random.Random) -> str:
    """The program with some of its steps left out, repeated, or in another order, and others put in; it shows what it sent before."""
    lines = re.sub(r"\n(?=[^\s]|$)", "\x00", text).split("\x00")
    parts: list[str] = []  # a line with those that belong to it
    for line in lines:
        if parts and re.match(r"(else|elif|except|finally)\b", line):
            parts[-1] += "\n" + line
        else:
            parts.append(line)
    head = next((at for at, each in enumerate(parts) if re.match(r"\((?!define)|(?!def |\w+ = )", each)), len(parts))
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(head, len(parts))
        match chance.randint(0, 3):
            case 0:
                parts.insert(
                    at, f"(say {chance.randint(0, 9)})" if surface == "sexp" else f"say({chance.randint(0, 9)})"
                )
            case 1:
                del parts[at : at + 1]
            case 2:
                parts[at:at] = parts[at : at + 1]
            case _:
                parts[at : at + 2] = reversed(parts[at : at + 2])
    return re.sub(r"\bsend\b", "show", "\n".join(parts))


def programs(seed: int, surface: Surface) -> tuple[str, str]:
    """The program of a seed, and an edited one."""
    text = drawing(text_of(seed, surface), surface)
    return text, changed(text, surface, random.Random(seed))


async def _main(first: int, count: int, surface: Surface, secrets: list[tuple[Any, Any, Any]]) -> int:
    leaked = 0
    for number, seed in enumerate(range(first, first + count), 1):
        before, after = programs(seed, surface)
        with tempfile.TemporaryDirectory() as root:
            runs = await told(Path(root), before, after, surface, secrets)
        if runs is not None:
            leaked += 1
            print(f"--- seed {seed} tells what was secret\n{before}\n--- edited\n{after}", *runs, sep="\n")
        if number % 100 == 0 or number == count:
            print(f"{number} programs, {leaked} leaks", flush=True)
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*chosen(__doc__, 500))))
