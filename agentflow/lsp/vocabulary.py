"""The words of the language and the names around a program, as an editor shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentflow.core.data.known_names import NameInfo, Names
from agentflow.lang.python.reference import method_entries, python_entries
from agentflow.lang.reference import Entry, entries


class Vocabulary:
    """Words of the language, and the tasks and tools that a program may call.

    ``names`` describes tasks and tools (None: there are none), ``descriptions`` their purposes. Those in ``foreign`` were
    described by a third party: their text is shown as plain text, never as Markdown.
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
        self.methods: Mapping[str, list[Entry]] = {}

    def info(self, name: str) -> NameInfo | None:
        """The signature of a task or tool; None if no task or tool has that name."""
        info = self.names.describe(name) if self.names is not None else None
        return info if info is not None and info.kind in ("task", "tool") else None

    def description(self, name: str) -> str | None:
        """The purpose of a task or tool."""
        return self.descriptions.get(name)

    def is_foreign(self, name: str) -> bool:
        """Whether a third party described it."""
        return name in self.foreign

    def around(self) -> Iterable[str]:
        """The names of all tasks and tools."""
        return sorted(self.names.known_names()) if self.names is not None else ()


class PythonVocabulary(Vocabulary):
    """The same words around a program in Python, which writes ``system:read_files`` as ``system.read_files`` and ``look-up`` as ``look_up``."""

    def __init__(
        self,
        names: Names | None = None,
        descriptions: Mapping[str, str] | None = None,
        foreign: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(names, descriptions, foreign)
        self.words = {entry.name: entry for entry in python_entries()}
        methods: dict[str, list[Entry]] = {}
        for each in method_entries():
            methods.setdefault(each.name, []).append(each)
        self.methods = methods
        around = super().around()
        self._meant = {each.replace(":", ".").replace("-", "_"): each for each in around}

    def info(self, name: str) -> NameInfo | None:
        """The parameters of a task or tool, or None if there is none of that name."""
        return super().info(self._meant.get(name, name))

    def description(self, name: str) -> str | None:
        return super().description(self._meant.get(name, name))

    def is_foreign(self, name: str) -> bool:
        return super().is_foreign(self._meant.get(name, name))

    def around(self) -> Iterable[str]:
        """The names of all tasks and tools, as texts in Python write them."""
        return sorted(each for each in self._meant if each.replace(".", "_").isidentifier())
