"""Decides which run a public method belongs to, and which engine opens it.

A method called from inside a tool or host callable joins the executing run; elsewhere it opens a run. The faces of a flow
are passed its engine. Faces wired by hand have a :class:`Joint`: each run gets an engine built of the :class:`Parts` that
its faces hold at that moment, so that assignments and overrides of a host count from the next run on. Faces that hold the
same parts share an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

from agentflow.core.call.call import executing_call
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.ports.executor_ports import CommandPort, FilePort
from agentflow.core.ports.memory_ports import ContextFinder
from agentflow.core.ports.ports import Observer, PromptRunner, TemplatePort, ToolPort
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.lang.card import language_card
from agentflow.run.engine import Engine
from agentflow.tasks.granted import GrantedNames
from agentflow.tasks.service import TaskService
from agentflow.tasks.solve import Solver

_ENGINES = 8
"""Maximum number of engines that a house keeps: those of the parts that were used last."""


@frozen
class Parts:
    """The parts of an engine. ``tasks`` builds the task port, and the service behind it, from the other parts; ``system``
    and ``own`` (the host's methods of it) determine whether they would be built differently."""

    system: object
    tasks: Callable[[Parts], tuple[TemplatePort, TaskService | None]] = field(compare=False)
    prompts: PromptRunner
    tools: ToolPort | None = None
    memory: ContextFinder | None = None
    lookups: ContextFinder | None = None
    files: FilePort | None = None
    commands: CommandPort | None = None
    limits: Limits | None = None
    own: tuple[str, ...] = ()


@frozen
class Built:
    """An engine built of ``parts``, and the service of its tasks as their own methods use it."""

    engine: Engine
    parts: Parts | None
    service: TaskService | None


def _build(parts: Parts) -> Built:
    tasks, service = parts.tasks(parts)
    tools = parts.tools or ToolRegistry()
    solver = None if service is None else Solver(service.executor, language_card, GrantedNames(service, tools))
    engine = Engine(tasks, tools, parts.memory, solver=solver, limits=parts.limits)
    return Built(engine, parts, service)


class House:
    """The engines of faces wired by hand, one for all that hold the same parts, and who watches them."""

    def __init__(self) -> None:
        self._built: list[Built] = []
        self._observers: list[Observer] = []

    def of(self, parts: Parts) -> Built:
        """The engine of these parts."""
        for built in self._built:
            if built.parts == parts:
                return built
        built = _build(parts)
        for observer in self._observers:
            built.engine.subscribe(observer)
        self._built = [*self._built[-_ENGINES + 1 :], built]
        return built

    def executing(self) -> Built | None:
        """The engine of this house with a run now executing host code, if any."""
        call = executing_call()
        services = None if call is None else call.run.services
        return next((built for built in self._built if built.engine is services), None)

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Give every event of every later run to ``observer``. Returns a function that ends that."""
        self._observers.append(observer)
        ends = [built.engine.subscribe(observer) for built in self._built]

        def unsubscribe() -> None:
            self._observers = [other for other in self._observers if other is not observer]
            for end in ends:
                end()
            for built in self._built:
                built.engine.observers = [other for other in built.engine.observers if other is not observer]

        return unsubscribe


# Read when a run begins: a part assigned or overridden by a host is always the one to call (decision 31)
class Joint:
    """The engine of a face: a flow's, or the one of ``house`` for the present ``parts`` of its faces.

    ``engine`` is the flow's; the parts of the face cannot be replaced then, unless it is ``open``.
    """

    def __init__(
        self,
        house: Callable[[], House],
        parts: Callable[[], Parts | Engine],
        engine: Engine | None = None,
        *,
        open: bool = False,
    ) -> None:
        self._house = house
        self._parts = parts
        self.given = engine
        self.closed = engine is not None and not open

    @property
    def engine(self) -> Engine:
        """The engine that opens the next run."""
        return self._now().engine

    def _now(self) -> Built:
        parts = self.given or self._parts()
        return Built(parts, None, None) if isinstance(parts, Engine) else self._house().of(parts)

    def here(self) -> Built:
        """The engine of this house with a run now executing host code, and its parts; elsewhere that of the next run."""
        return self._house().executing() or self._now()

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Give every event of every later run to ``observer``. Returns a function that ends that."""
        return (self.given or self._house()).subscribe(observer)


def over(service: TaskService) -> Callable[[Parts], tuple[TemplatePort, TaskService]]:
    """Makes the tasks of ``service`` run with other parts."""

    def tasks(parts: Parts) -> tuple[TemplatePort, TaskService]:
        mine = service.over(parts.prompts, memory=parts.lookups, files=parts.files, commands=parts.commands)
        return mine, mine

    return tasks


class Face:
    """A class of the specification. The faces of a flow share its parts, so their ``parts`` and methods cannot be replaced:
    assigning one raises ConfigurationError (``config/part``)."""

    parts: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, name: str, value: Any) -> None:
        joint = self.__dict__.get("joint")
        closed = isinstance(joint, Joint) and joint.closed and not name.startswith("_")
        if closed and (name in self.parts or callable(getattr(type(self), name, None))):
            raise ConfigurationError(
                f"'{name}' of a flow's {type(self).__name__} cannot be replaced",
                code="config/part",
                hint="pass it to AgentFlow, or wire the specification's classes by hand",
            )
        super().__setattr__(name, value)
