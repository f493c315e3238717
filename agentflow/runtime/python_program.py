"""Python functions as the programs of durable runs: stored by reference, and looked up among those of the flow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from agentflow.core.call import CallContext
from agentflow.core.errors import JournalError
from agentflow.core.frozen import frozen
from agentflow.core.source import Source
from agentflow.lib.suggest import did_you_mean

_KEYS = {"python", "digest"}


class PythonTarget(Protocol):
    """A function that can be the program of a run.

    ``reference`` is its module and qualified name, ``digest`` that of its file's text."""

    @property
    def name(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def digest(self) -> str: ...
    async def carry_out(self, bindings: Mapping[str, Any], call: CallContext) -> Any:
        """Run it with ``bindings``, its arguments by name as they are stored, at the outermost call of a run."""
        ...

    def store(self, value: Any) -> Any:
        """Its return value as data to be stored. Raises NotData."""
        ...

    def restore(self, value: Any) -> Any:
        """Its return value, from the data that was stored. Raises JournalError."""
        ...


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
