"""The tasks defined by programs that a call of a run can see.

They are looked up in this order: what the branch and the branches around it defined since they forked, the environment
the code was written in, the definitions in force around the program, and last the flow's own tasks and tools.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from agentflow.core.call.reading import ASKED
from agentflow.core.data.frozen import frozen
from agentflow.core.data.labels import NO_SOURCES, Sources, joined
from agentflow.core.data.names import CompiledTask, Definitions, NameInfo, Template
from agentflow.core.events.effects import AskHuman, Effect, GetContext, HostCall, LogMessage, NamedCall, Solve, Step
from agentflow.core.ports.ports import TemplatePort, ToolPort
from agentflow.lang.environment import SexpEnvironment


def name_of_effect(effect: Effect) -> str:
    """The name by which a policy knows an effect; "" for one that nobody has to know."""
    if isinstance(effect, NamedCall | HostCall | Step):
        return effect.name
    if isinstance(effect, GetContext):
        return "get_context"
    if isinstance(effect, LogMessage):
        return "log-message"
    if isinstance(effect, AskHuman):
        return "ask-human"
    return "solve" if isinstance(effect, Solve) else ""


def by_names(effect: Effect, labels: Mapping[str, Sources]) -> Mapping[str, Sources]:
    """The sources of an effect's arguments by the names that a rule has for them: of a function of the host those of its parameters."""
    if isinstance(effect, HostCall | Step):
        names, rest = parameters_of(effect.function)
        named: dict[str, Sources] = {}
        for at, (number, sources) in enumerate(labels.items()):
            name = names[at] if at < len(names) else rest or number
            named[name] = joined(named.get(name, NO_SOURCES), sources)
        return named
    more = ASKED.get(name_of_effect(effect))
    return labels if more is None else {**dict.fromkeys(more, NO_SOURCES), **labels}


def values_by_name(effect: Effect) -> Mapping[str, Any]:
    """The values of an effect's arguments by name, where they have names."""
    if isinstance(effect, HostCall | Step):
        return dict(zip(parameters_of(effect.function)[0], effect.arguments, strict=False))
    data: Any = None if effect.data is None else getattr(effect, effect.data)
    return cast("dict[str, Any]", data) if type(data) is dict else {}


def name_of_function(function: Callable[..., Any]) -> str:
    """The name of a function of the host."""
    return str(getattr(function, "__name__", type(function).__name__))


def parameters_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], str | None]:
    """The names of the parameters that a function of the host has by position, and of the one that takes all others.

    What says nothing of its parameters, such as many functions written in C, has none: a rule knows them by number, from 1.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return (), None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = next((each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
    return tuple([each.name for each in parameters if each.kind in by_position]), rest


class Overlay:
    """The tasks that a branch has defined, by environment; its siblings see them only after the join."""

    __slots__ = ("parent", "tables")

    def __init__(self, parent: Overlay | None) -> None:
        self.parent = parent
        self.tables: dict[SexpEnvironment, dict[str, Template]] = {}

    def define(self, env: SexpEnvironment, template: Template) -> None:
        """Bind a task in ``env`` for this branch."""
        table = self.tables.setdefault(env, {})
        table.pop(template.name, None)
        table[template.name] = template


@frozen
class View:
    """What code written in ``env`` sees where ``overlay`` is in force and ``outer`` lies around the program."""

    env: SexpEnvironment
    overlay: Overlay | None
    outer: Definitions | None

    def task(self, name: str) -> Template | None:
        """The task called ``name``; None if no visible program defined one."""
        at: Definitions | None = self
        while isinstance(at, View):  # programs start programs: as many views as they are nested deep
            for table in at._tables():
                template = table.get(name)
                if template is not None:
                    return template
            at = at.outer
        return at.task(name) if at is not None else None

    def tasks(self) -> dict[str, Template]:
        """All visible tasks by name, outermost first; of one name the nearest."""
        tables: list[Mapping[str, Template]] = []
        at: Definitions | None = self
        while isinstance(at, View):
            tables.extend(at._tables())
            at = at.outer
        names = dict(at.tasks()) if at is not None else {}
        for table in reversed(tables):
            for name, template in table.items():
                names.pop(name, None)
                names[name] = template
        return names

    def _tables(self) -> Iterator[Mapping[str, Template]]:
        at: SexpEnvironment | None = self.env
        while at is not None:
            overlay = self.overlay
            while overlay is not None:
                table = overlay.tables.get(at)
                if table is not None:
                    yield table
                overlay = overlay.parent
            yield at.own_tasks
            at = at.parent


def view(env: SexpEnvironment, overlay: Overlay | None, outer: Definitions | None) -> Definitions:
    """The definitions that code written in ``env`` sees now; ``env`` itself if there are none elsewhere."""
    if overlay is None:
        if outer is None or outer is env:
            return env
        if not env.tasks():
            return outer
    return View(env, overlay, outer)


@frozen
class FlowNames:
    """The names of a flow: its tasks, and its tools, which a task of the same name hides."""

    tasks: TemplatePort
    tools: ToolPort

    def describe(self, name: str) -> NameInfo | None:
        template = self.tasks.find_compiled(name)
        return template.info if template is not None else self.tools.describe(name)

    def prepare(self, fields: Mapping[str, Any]) -> CompiledTask:
        return self.tasks.prepare(fields)

    def known_names(self) -> Iterable[str]:
        return [*self.tasks.template_names(), *self.tools.names()]
