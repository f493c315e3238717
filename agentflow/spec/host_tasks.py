"""A host's task system from the view of programs, subtasks and template functions.

Look-ups go to ``find_template``, definitions of programs to ``register_template``, and executions to
``execute_atomic_template``, as far as these are the host's own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import field, replace
from functools import partial
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Definitions
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult, warn_of_failure
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.ports.ports import TemplatePort
from agentflow.spec.host import asked, check_part
from agentflow.spec.joining import Parts
from agentflow.tasks.overrides import TaskOptions
from agentflow.tasks.prompt_runners import NO_PROMPTS
from agentflow.tasks.runner import AtomicTaskExecutor, TaskRunner
from agentflow.tasks.service import TaskService
from agentflow.tasks.template_registry import CompiledTemplate, TemplateRegistry, prepare_template

_KEPT = 1_000
"""Maximum number of parsed templates to cache."""
LOOKED_UP = ("find_template", "register_template")
"""The methods of a task system that :class:`HostRegistry` asks."""
RUN = ("execute_atomic_template", "execute_subtask_directly")
"""The methods of a task system that run a template; :class:`HostRunner` calls the first that exists."""


class HostRegistry(TemplateRegistry):
    """Templates that a host's ``system`` finds and registers; ``below`` holds those of agentflow's own."""

    def __init__(self, system: Any, below: TemplateRegistry, builtin: Callable[[str], CompiledTemplate | None]) -> None:
        super().__init__(builtin)
        self._system = system
        self._below = below
        self._seen: dict[int, tuple[object, CompiledTemplate]] = {}

    @property
    def revision(self) -> object:
        """A new token each time: a host's system may find another template whenever it is asked."""
        return object()

    @revision.setter
    def revision(self, token: object) -> None: ...

    @property
    def templates(self) -> dict[str, TaskTemplate]:
        """The templates of agentflow's own registry."""
        return self._below.templates

    @property
    def template_index(self) -> dict[str, str]:
        """The index of agentflow's own registry."""
        return self._below.template_index

    def register(self, source: Mapping[str, Any] | TaskTemplate | CompiledTemplate) -> CompiledTemplate:
        """Have the system register a template."""
        compiled = source if isinstance(source, CompiledTemplate) else prepare_template(source)
        try:
            self._system.register_template(compiled.fields)
        except AgentflowError:
            raise
        except Exception as error:
            raise SexpEvaluationError(
                f"the task '{compiled.name}' could not be registered: {type(error).__name__}: {error}",
                code="defatom/invalid",
            ) from error
        return compiled

    def load(self, templates: Iterable[TaskTemplate | CompiledTemplate]) -> list[str]:
        """Have the system register templates, in order. Returns their names."""
        return [self.register(template).name for template in templates]

    def find_own(self, identifier: str, defined: Definitions | None = None) -> CompiledTemplate | None:
        """The template that a program defined around the call, else the one that the system finds."""
        if defined is not None:
            own = super().find_own(identifier, defined)
            if own is not None:
                return own
        template: object = self._system.find_template(identifier)
        if template is None:
            return None
        kept = self._seen.get(id(template))
        if kept is None or kept[0] is not template:
            own = self._below.find_own(identifier)
            source = cast("TaskTemplate | Mapping[str, Any]", template)
            kept = (template, own if own is not None and own.template is template else prepare_template(source))
            if isinstance(template, TaskTemplate):  # which never changes
                if len(self._seen) >= _KEPT:
                    self._seen.clear()
                self._seen[id(template)] = kept
        return kept[1]

    def names(self, defined: Definitions | None = None) -> list[str]:
        """The known names; the system may find others."""
        return self._below.names(defined)

    def matching(self, text: str, defined: Definitions | None = None) -> list[tuple[CompiledTemplate, float]]:
        """The templates with a similar description, of agentflow's own registry."""
        return self._below.matching(text, defined)


@frozen
class HostRunner(TaskRunner):
    """Has a host's ``system`` run templates."""

    system: Any = field(default=None)

    def run(
        self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext, options: TaskOptions
    ) -> Coroutine[Any, Any, TaskResult]:
        """Call ``execute_atomic_template`` (to be awaited) for the task that was found, by its name; its result is read as
        a TaskResult."""
        return self._asked(replace(request, name=compiled.name), call)

    async def _asked(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        method = getattr(self.system, RUN[0], None) or getattr(self.system, RUN[1])
        token = _asking.set(((request.name, request.subtype), call.grants))
        try:
            return warn_of_failure(TaskResult.of(await asked(call, method, request)), call.warn)
        finally:
            _asking.reset(token)


_asking: ContextVar[tuple[tuple[str | None, ...], frozenset[str] | None]] = ContextVar(
    "agentflow_task_asked", default=((), None)
)


def as_asked(name: str, call: CallContext) -> CallContext:
    """The call for a TaskSystem to run the task ``name``, with no more authority than the caller of a host's override."""
    names, grants = _asking.get()
    return call if grants is None or name not in names else call.at(call.next_path("task", name), grants=grants)


def check_double(system: Any) -> None:
    """Raises ConfigurationError (``config/part``) if an object cannot stand in the place of a TaskSystem."""
    if not is_port(system):
        check_part(system, "task system", *LOOKED_UP, RUN[1] if callable(getattr(system, RUN[1], None)) else RUN[0])


def is_port(system: Any) -> bool:
    """Whether an object serves programs as the service of agentflow's own tasks does."""
    return callable(getattr(system, "run_subtask", None))


def tasks_of(parts: Parts) -> tuple[TemplatePort, TaskService | None]:
    """The tasks of ``parts.system``, a TaskSystem or an object in its place, as programs see them, and as its own methods do."""
    system: Any = parts.system
    service: TaskService | None = getattr(system, "service", None)
    if service is None and is_port(system):
        return system, None
    service = service or TaskService(AtomicTaskExecutor(NO_PROMPTS))
    looks = not frozenset(LOOKED_UP).isdisjoint(parts.own)
    registry = HostRegistry(system, service.registry, service.builtin) if looks else service.registry
    over = partial(
        service.over,
        parts.prompts,
        memory=parts.lookups,
        files=parts.files,
        commands=parts.commands,
        registry=registry,
    )
    plain = over()
    return (plain if frozenset(RUN).isdisjoint(parts.own) else over(runner=partial(HostRunner, system=system))), plain
