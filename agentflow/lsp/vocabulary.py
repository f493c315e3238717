"""What words mean in the language and around a program, as an editor shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentflow.core.names import NameInfo, Names
from agentflow.lang.reference import Entry, entries


class Vocabulary:
    """Words of the language, and the tasks and tools around a program.

    ``names`` describes tasks and tools (None: there are none), ``descriptions`` says what those are for; those called
    ``foreign`` are described by somebody else, whose text is shown as it stands, and never as Markdown.
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
        """What a call of a task or tool takes, or None if there is none of that name."""
        info = self.names.describe(name) if self.names is not None else None
        return info if info is not None and info.kind in ("task", "tool") else None

    def around(self) -> Iterable[str]:
        """The names of all tasks and tools."""
        return sorted(self.names.known_names()) if self.names is not None else ()


def usage_of(name: str, info: NameInfo) -> str:
    """How a task or tool is called: ``(name (parameter type) ...)``, what may be left out in brackets."""
    return " ".join([f"({name}", *parameter_labels(info)]) + ")"


def parameter_labels(info: NameInfo) -> list[str]:
    """Each parameter of a call as it is written, what may be left out in brackets."""
    labels: list[str] = []
    for name, parameter in (info.parameters or {}).items():
        label = f"({name} {type_of(parameter.schema)})"
        labels.append(label if parameter.required else f"[{label}]")
    return labels


def type_of(schema: Mapping[str, Any]) -> str:
    """The type that a JSON Schema asks for, in a word."""
    if "enum" in schema:
        return "|".join(str(each) for each in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, str):
        items = schema.get("items")
        if kind == "array" and isinstance(items, Mapping):
            return f"list of {type_of(items)}"  # pyright: ignore[reportUnknownArgumentType]
        return {"array": "list", "object": "dict"}.get(kind, kind)
    return "value"
