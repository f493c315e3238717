"""The stored input of a durable run: its program text and its bindings, without secrets, and its draw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ConfigurationError, JournalError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.core.data.walk import LEAVES, in_slices
from agentflow.core.events.journal_rows import RunRow
from agentflow.durable.values.codec import Codec, NotData
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import holds_secret, redacted, redaction
from agentflow.lib.text.suggest import did_you_mean
from agentflow.run.engine import Engine, PythonTarget, opened

_KEYS = {"python", "digest"}


@frozen
class PythonProgram:
    """A function as the program of a run. ``allow`` are the grants of the run (None: the host's authority)."""

    target: PythonTarget
    allow: frozenset[str] | None = None

    @property
    def source(self) -> Source:
        """The stored form of a program's text."""
        target = self.target
        return Source(target.name, json.dumps({"python": target.reference, "digest": target.digest}))


def identity(text: str) -> str:
    """The identity of a program: its text; for a function its reference, since its text may change during a run."""
    return reference_in(text) or text


def reference_in(text: str) -> str | None:
    """The reference stored for a function; None for the text of a program."""
    data = _stored(text)
    return None if data is None else data["python"]


def has_changed(text: str, source: Source) -> bool:
    """Whether ``text`` was stored for a function in another file than the one in ``source``."""
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
            hint=did_you_mean(reference, targets)
            or "give it to the flow, AgentFlow(tasks=[...]), if it was declared without one; or name the module that creates "
            "the flow: --app MODULE:FLOW",
        )
    return target


async def prepared(
    engine: Engine, source: Source, bindings: Iterable[str], allow: Sequence[str] | None
) -> Program | PythonProgram:
    """The compiled program of a durable run, from its stored source. Raises JournalError, and the errors of compiling."""
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


@runtime_checkable
class Tracer(Protocol):
    """An observer that knows the current trace: :class:`agentflow.observe.otel.OpenTelemetry`."""

    def carrier(self) -> dict[str, str]:
        """The current trace as headers; empty where there is none."""
        ...

    def go_on(self, carrier: Mapping[str, str]) -> None:
        """Attach the work of the current task to a trace, unless it has one already."""
        ...


def trace_of(observers: Iterable[object]) -> dict[str, str] | None:
    """The current trace; None without a tracer."""
    for each in observers:
        if isinstance(each, Tracer) and (carrier := each.carrier()):
            return carrier
    return None


def go_on_with(observers: Iterable[object], stored: Any) -> None:
    """Attach the work of the current task to the trace that :func:`trace_of` returned."""
    if stored:
        for each in observers:
            if isinstance(each, Tracer):
                each.go_on(stored)


_NAMES = {
    "name": "the program's name",
    "allow": "what is allowed",
    "overrides": "an override of a task",
    "session": "the scope of the session",
}
"""Fields of the input stored unchanged, with their names in errors."""


# The stored program runs: a run never depends on a secret that its record lacks (decision 21)
class StoredInput:
    """Encodes and decodes stored input. ``redactor`` knows the secrets."""

    def __init__(self, codec: Codec, redactor: Redactor | None) -> None:
        self._codec = codec
        self.redactor = redactor

    def text(self, source: Source) -> str:
        """The text to store of a program. Raises JournalError (``durable/secret``) if it contains a secret."""
        self.refuse_secret("the program", source.text)
        return source.text

    def refuse_secret(self, called: str, value: object) -> None:
        """Raise JournalError (``durable/secret``) if ``value`` contains a secret; errors name it ``called``."""
        if self.redactor is not None and holds_secret(value, self.redactor):
            raise JournalError(
                f"{called} contains a secret, and it is stored with the run",
                code="durable/secret",
                hint="bind the secret: bindings={'key': Secret(...)}, or let a tool read it",
            )

    def checked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Check the stored input of a run: all ``fields`` except its text, with ``bindings`` encoded by :meth:`write`.

        Labels are redacted. Raises JournalError (``durable/secret``) if the stored parts of the run contain a secret.
        """
        texts = {
            **{called: fields.get(field) for field, called in _NAMES.items()},
            "a binding's name": [*fields["bindings"]],
        }
        for called, value in texts.items():
            self.refuse_secret(called, value)
        return {**fields, "labels": self.clean(fields["labels"])}

    def write(self, bindings: Mapping[str, Any]) -> dict[str, Any]:
        """Each binding as ``{"v": data}``; None for a secret one or one other than data."""
        stored: dict[str, Any] = {}
        for name, value in bindings.items():
            try:
                data = self._codec.encode(value)
            except NotData:
                stored[name] = None
                continue
            secret = self.redactor is not None and holds_secret(data, self.redactor)
            stored[name] = None if secret else {"v": data}
        return stored

    def as_read(self, stored: Mapping[str, Any], bindings: Mapping[str, Any]) -> dict[str, Any]:
        """``bindings``, which :meth:`write` encoded as ``stored``, as a resumed run reads them: a model is a dict of its
        fields from the beginning, not only after the first restart."""
        return {
            name: value if type(value) in LEAVES or stored[name] is None else self._codec.decode(stored[name]["v"])
            for name, value in bindings.items()
        }

    def differing(self, row: RunRow, bindings: Mapping[str, Any]) -> list[str]:
        """The names of the stored bindings of a run that differ from ``bindings``."""
        stored: Mapping[str, Any] = row.input["bindings"]
        other = json.loads(json.dumps(self.write(bindings)))
        names = sorted({*stored, *other})
        return [name for name in names if name not in stored or name not in other or stored[name] != other[name]]

    def read(self, row: RunRow, bindings: Mapping[str, Any], *, change: bool = False) -> dict[str, Any]:
        """The bindings of a run: the stored ones, and ``bindings`` for the rest; with ``change`` these may replace or add some.

        Raises JournalError (``durable/bindings``).
        """
        stored: Mapping[str, Any] = row.input["bindings"]
        missing = [name for name, data in stored.items() if data is None and name not in bindings]
        unknown = [name for name in bindings if name not in stored or stored[name] is not None]
        if missing or (unknown and not change):
            wrong = f"needs {', '.join(missing)}" if missing else f"has {', '.join(unknown)} already, or never had"
            raise JournalError(
                f"the run '{row.run}' {wrong}: bindings that are secret or not data are not stored, all others are",
                code="durable/bindings",
                hint="give exactly the bindings that are not stored: bindings={"
                + ", ".join(f"{n!r}: ..." for n in missing)
                + "}",
            )
        kept = {name: self._codec.decode(data["v"]) for name, data in stored.items() if name not in bindings}
        return {**{name: bindings[name] if name in bindings else kept[name] for name in stored}, **bindings}

    def clean(self, data: Any) -> Any:
        """``data`` without secrets."""
        return data if self.redactor is None else redacted(data, self.redactor)

    async def cleaned(self, data: Any) -> Any:
        """Like :meth:`clean`, in slices, for large data."""
        return data if self.redactor is None else await in_slices(redaction(data, self.redactor))


def limits_data(limits: Limits | None) -> dict[str, Any] | None:
    """Limits as JSON data, restored by ``Limits(**data)``."""
    return None if limits is None else {field.name: getattr(limits, field.name) for field in fields(limits)}


_DRAW: ContextVar[int] = ContextVar("agentflow.draw", default=0)
MODELS = frozenset({"task", "solve"})
"""Kinds of effects that answer anew for another draw; everything else answers from records for all draws."""


@contextmanager
def drawing(number: int) -> Generator[None]:
    """A block with calls for the draw ``number``. Raises ConfigurationError (``config/draw``) for an invalid one."""
    if type(number) is not int or number < 0:
        raise ConfigurationError(
            f"flow.draw({clip(repr(number), 80)}): a draw is a whole number from 0 on",
            code="config/draw",
            hint="with flow.draw(1): await flow.run(...)",
        )
    before = _DRAW.set(number)
    try:
        yield
    finally:
        _DRAW.reset(before)


def draw_here() -> int:
    """The draw that calls here mean; 0 unless they say so."""
    return _DRAW.get()


def begin_draw(number: int) -> None:
    """Have the rest of this asyncio task mean the draw ``number``: that of the run that it carries out."""
    _DRAW.set(number)


def draw_of(stored: Mapping[str, Any]) -> int:
    """The draw of a stored run, by its input."""
    return stored.get("draw", 0)
