"""The words of the language and the names around a program, as an editor shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentflow.core.names import NameInfo, Names
from agentflow.lang.reference import Entry, entries


class Vocabulary:
    """Words of the language, and the tasks and tools that a program may call.

    ``names`` describes tasks and tools (None: there are none), ``descriptions`` their purposes. Those in ``foreign`` were
    described by somebody else: their text is shown as plain text, never as Markdown.
    """

    def __init__(
        self,
        names: Names | None = None,
        descriptions: Mapping[str, str] | None = None,
        foreign: frozenset[str] = frozenset(),
    ) -> None:
        self.names = names
        self.descriptions = descriptions or {}
        self.foreign = foreign
        self.words: Mapping[str, Entry] = {entry.name: entry for entry in entries()}

    def info(self, name: str) -> NameInfo | None:
        """The signature of a task or tool; None if no task or tool has that name."""
        info = self.names.describe(name) if self.names is not None else None
        return info if info is not None and info.kind in ("task", "tool") else None

    def around(self) -> Iterable[str]:
        """The names of all tasks and tools."""
        return sorted(self.names.known_names()) if self.names is not None else ()


def usage_of(name: str, info: NameInfo) -> str:
    """The call syntax of a task or tool: ``(name (parameter type) ...)``, optional parameters in brackets."""
    return " ".join([f"({name}", *parameter_labels(info)]) + ")"


def parameter_labels(info: NameInfo) -> list[str]:
    """Each parameter as it is written in a call, optional ones in brackets."""
    labels: list[str] = []
    for name, parameter in (info.parameters or {}).items():
        label = f"({name} {type_of(parameter.schema)})"
        labels.append(label if parameter.required else f"[{label}]")
    return labels


def type_of(schema: Mapping[str, Any]) -> str:
    """The type that a JSON Schema asks for, in one or a few words."""
    if "enum" in schema:
        return "|".join(str(each) for each in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, str):
        items = schema.get("items")
        if kind == "array" and isinstance(items, Mapping):
            return f"list of {type_of(items)}"  # pyright: ignore[reportUnknownArgumentType]
        return {"array": "list", "object": "dict"}.get(kind, kind)
    return "value"
