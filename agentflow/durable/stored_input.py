"""The stored input of a durable run: its program text and its bindings, without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from agentflow.core.data.errors import JournalError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.core.data.walk import LEAVES
from agentflow.core.data.work import in_slices
from agentflow.core.events.journal import RunRow
from agentflow.durable.values.codec import Codec, NotData
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import holds_secret, redacted, redaction

_NAMES = {
    "name": "the program's name",
    "allow": "what is allowed",
    "overrides": "an override of a task",
    "session": "the scope of the session",
}
"""Fields of the input that are stored unchanged, with their names in errors."""


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
        """Check the stored input of a run: all ``fields`` besides its text, with ``bindings`` encoded by :meth:`write`.

        Labels are redacted. Raises JournalError (``durable/secret``) if what the run depends on contains a secret.
        """
        texts = {
            **{called: fields.get(field) for field, called in _NAMES.items()},
            "a binding's name": [*fields["bindings"]],
        }
        for called, value in texts.items():
            self.refuse_secret(called, value)
        return {**fields, "labels": self.clean(fields["labels"])}

    def write(self, bindings: Mapping[str, Any]) -> dict[str, Any]:
        """Each binding as ``{"v": data}``; None for one that is secret or not data."""
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
        """``bindings``, of which :meth:`write` made ``stored``, as a run that goes on reads them: a model is the dict of its fields
        from the beginning, and not from the first restart on."""
        return {
            name: value if type(value) in LEAVES or stored[name] is None else self._codec.decode(stored[name]["v"])
            for name, value in bindings.items()
        }

    def differing(self, row: RunRow, bindings: Mapping[str, Any]) -> list[str]:
        """The names of the bindings that are stored with a run and differ from ``bindings``."""
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
                hint="give exactly what is not stored: bindings={" + ", ".join(f"{n!r}: ..." for n in missing) + "}",
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
    """Limits as JSON data, from which ``Limits(**data)`` restores them."""
    return None if limits is None else {field.name: getattr(limits, field.name) for field in fields(limits)}
