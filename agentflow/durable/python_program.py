"""Python functions as the programs of durable runs: stored by reference, and looked up among those of the flow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import JournalError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Source
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.text.suggest import did_you_mean
from agentflow.run.engine import Engine, PythonTarget, opened

_KEYS = {"python", "digest"}


@frozen
class PythonProgram:
    """A function as the program of a run. ``allow`` is what the run is granted (None: the host's authority)."""

    target: PythonTarget
    allow: frozenset[str] | None = None

    @property
    def source(self) -> Source:
        """What is stored in place of a program's text."""
        target = self.target
        return Source(target.name, json.dumps({"python": target.reference, "digest": target.digest}))


def identity(text: str) -> str:
    """What identifies a program: its text; for a function its reference, since its text may change during a run."""
    return reference_in(text) or text


def reference_in(text: str) -> str | None:
    """The reference in what is stored for a function; None for the text of a program."""
    data = _stored(text)
    return None if data is None else data["python"]


def has_changed(text: str, source: Source) -> bool:
    """Whether ``text`` was stored for a function whose file differs from the one in ``source``."""
    before, now = _stored(text), _stored(source.text)
    return before is not None and now is not None and before["digest"] != now["digest"]


def _stored(text: str) -> dict[str, str] | None:
    if not text.startswith("{"):
        return None
    try:
        data: Any = json.loads(text)
    except ValueError:
        return None
    return data if data.keys() == _KEYS else None


def find_target(targets: Mapping[str, PythonTarget], reference: str) -> PythonTarget:
    """The function with this reference; one of a script matches under any name its module was imported by.

    Raises JournalError (``durable/unknown-function``).
    """
    target = targets.get(reference)
    if target is None:
        module, _, name = reference.partition(":")
        alike = [target for other, target in targets.items() if other.partition(":")[2] == name]
        if len(alike) == 1 and "__main__" in (module, alike[0].reference.partition(":")[0]):
            target = alike[0]
    if target is None:
        raise JournalError(
            f"the program of this run is the Python function {reference}, which this flow does not have",
            code="durable/unknown-function",
            hint=did_you_mean(reference, targets) or "name the module that creates the flow: --app MODULE:FLOW",
        )
    return target


async def prepared(
    engine: Engine, source: Source, bindings: Iterable[str], allow: Sequence[str] | None
) -> Program | PythonProgram:
    """The compiled program of a durable run, from its stored source. Raises JournalError, and what compiling raises."""
    grants = None if allow is None else frozenset(allow)
    reference = reference_in(source.text)
    if reference is not None:
        return PythonProgram(find_target(engine.functions, reference), grants)
    return await asyncio.to_thread(engine.compiler.compile, source, bindings=bindings, grants=grants)


async def carry_out(
    engine: Engine, program: Program | PythonProgram, bindings: Mapping[str, Any], call: CallContext
) -> Any:
    """Run the program of a durable run at its outermost call and return its value; ``bindings`` as the engine gives them, or as stored."""
    if isinstance(program, PythonProgram):
        return await program.target.carry_out(await opened(bindings, call), call)
    return await engine.evaluate(program, SexpEnvironment(bindings), call)
