"""The tools of one task or prompt: objects by name, laid over those of the flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from agentflow.core.data.known_names import EVERY
from agentflow.core.ports.ports import Tool

T = TypeVar("T")
RUN_PROGRAM = "run_program"
"""The name of the tool by which models run programs that call other tools."""


# Objects, not names: two closures of one name are two tools (decision 3)
class Toolbox(Mapping[str, Tool]):
    """The tool objects of one task or prompt, by name, and the middleware around the calls of its model; it never changes.

    The model of that task calls these even if the flow has others of the same names. Parameters: ``entries``, each a tool
    and the compiled schema for its arguments (None: it checks them itself); no two tools have one
    name. ``around_tool`` and ``around_model`` are the task's own middleware, ``mark`` identifies its state, where results are
    reused.
    """

    __slots__ = ("_entries", "around_model", "around_tool", "mark")

    def __init__(
        self,
        entries: Iterable[tuple[Tool, Any]] = (),
        around_tool: tuple[Any, ...] = (),
        around_model: tuple[Any, ...] = (),
        mark: str = "",
    ) -> None:
        self._entries: Mapping[str, tuple[Tool, Any]] = {entry[0].name: entry for entry in entries}
        self.around_tool = around_tool
        self.around_model = around_model
        self.mark = mark

    def __eq__(self, other: object) -> bool:
        return self is other  # tools hold functions: two boxes are the same only if they are one

    def __hash__(self) -> int:
        return id(self)

    def __getitem__(self, name: str) -> Tool:
        return self._entries[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries or self.around_tool or self.around_model or self.mark)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def entry(self, name: str) -> tuple[Tool, Any] | None:
        """The tool called ``name`` with the schema that its arguments are checked against; None if it has no such tool."""
        return self._entries.get(name)

    def only(self, names: Iterable[str] | None) -> Toolbox:
        """The toolbox with those of its tools among ``names`` (None: all of them)."""
        kept = self._entries.keys() if names is None else self._entries.keys() & {*names}
        if len(kept) == len(self):
            return self
        return self._with([self._entries[name] for name in self if name in kept])

    def with_all(self, tools: Mapping[str, Tool]) -> Toolbox:
        """The toolbox with ``tools`` too, which check their own arguments."""
        return self._with([*self._entries.values(), *[(tool, None) for tool in tools.values()]])

    def _with(self, entries: Iterable[tuple[Tool, Any]]) -> Toolbox:
        """The toolbox with these tools in place of its own, and the same middleware."""
        return Toolbox(entries, self.around_tool, self.around_model, self.mark)

    def with_around(self, around_tool: tuple[Any, ...], around_model: tuple[Any, ...], mark: str = "") -> Toolbox:
        """The toolbox with this middleware."""
        return Toolbox(self._entries.values(), around_tool, around_model, mark)

    def with_others(self, other: Mapping[str, Tool]) -> Toolbox:
        """The toolbox with the tools of another one."""
        entries = [other.entry(name) for name in other] if isinstance(other, Toolbox) else []
        return self._with([*self._entries.values(), *[entry for entry in entries if entry is not None]])


NO_TOOLBOX = Toolbox()
"""The toolbox of a task that holds no objects."""


def offered(
    names: Sequence[str] | None,
    own: Mapping[str, T],
    ordinary: Callable[[], Iterable[str]],
    grants: frozenset[str] | None,
    find: Callable[[str], T],
) -> dict[str, T]:
    """The tools that the model of a task is offered, by name.

    ``names`` is the task's list, where ``docs:*`` stands for all tools of a server; None for all ``ordinary`` tools of
    the flow. ``own`` are the task's own objects, ``find`` returns the flow's by name, or raises. Of the flow's tools, only
    those in ``grants`` are offered (None: all).
    """
    if names is None:
        chosen: Iterable[str] = sorted({*ordinary(), *own})
    else:
        chosen = dict.fromkeys([each for name in names for each in _meant(name, ordinary)])
    tools = {name: own[name] if name in own else find(name) for name in chosen}
    if grants is None:
        return tools
    return {name: tool for name, tool in tools.items() if name in own or name in grants}


def _meant(name: str, ordinary: Callable[[], Iterable[str]]) -> Iterable[str]:
    if not name.endswith(EVERY):
        return (name,)
    server = name[: 1 - len(EVERY)]
    return [each for each in ordinary() if each.startswith(server)]
