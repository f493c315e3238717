"""TaskSystem: specification document 2, based on the task service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.data.errors import DataError, clip
from agentflow.core.data.models import MappingModel
from agentflow.core.data.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.data.templates import HistoryConfig, TaskTemplate
from agentflow.core.ports.executor_ports import CommandPort, FilePort, HostCommandPort
from agentflow.core.ports.memory_ports import MemoryPort
from agentflow.core.ports.ports import EvaluatorPort, PromptRunner
from agentflow.flow.python import in_run
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.words import WORDS
from agentflow.run.engine import Engine
from agentflow.spec.argument_types import check_argument
from agentflow.spec.host import commands_of, finder_of, finding_of, hosts
from agentflow.spec.host_files import files_of
from agentflow.spec.host_tasks import LOOKED_UP, RUN, as_asked
from agentflow.spec.joining import Face, House, Joint, Parts
from agentflow.spec.wiring import parts_of
from agentflow.tasks.prompt_runners import NO_PROMPTS
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService
from agentflow.tasks.template_environment import Environment


class TaskSystem(Face):
    """Manages and runs atomic task templates.

    Parameters: ``evaluator`` evaluates FunctionCallNodes if it has ``evaluate_function_call`` (or ``evaluateFunctionCall``); ``memory_system``
    answers context lookups; ``prompts`` runs bodies (without it they fail with a configuration error, until a
    BaseHandler is built on this system); ``files`` and ``commands`` serve context sources; ``decompose`` how many
    rounds a model may take to write a program for a task that ran out of context or output. ``service`` and ``engine``
    are the flow's.

    The async methods join the run of the tool they are called from; outside of a run they open one. A subclass may override
    ``find_template``, ``register_template``, ``execute_atomic_template`` and ``execute_subtask_directly``: programs, subtasks
    and template functions ask them. ``memory_system`` and ``evaluator`` may be assigned later.
    """

    parts = frozenset({"memory_system"})

    def __init__(
        self,
        evaluator: EvaluatorPort | None = None,
        memory_system: MemoryPort | None = None,
        *,
        prompts: PromptRunner | None = None,
        files: FilePort | None = None,
        commands: CommandPort | HostCommandPort | None = None,
        decompose: int = 0,
        service: TaskService | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.evaluator = evaluator
        self.memory_system = memory_system
        self._prompts, self._files, self._commands = prompts, files, commands
        self._handler: Any = None
        self.service = service or TaskService(
            AtomicTaskExecutor(prompts or NO_PROMPTS, None if files is None else files_of(files)),
            finder_of(memory_system),
            commands=commands_of(commands),
            decompose=decompose,
            words=WORDS,
        )
        self.house = House()
        self.joint = Joint(lambda: self.house, lambda: self.parts_with(self._handler, self.memory_system), engine)
        if engine is None:
            self.parts_with(None, memory_system)  # an unfit part is refused now

    def adopt(self, handler: Any) -> None:
        """Let the first handler built on this system run its tasks; another one runs those of its own evaluator."""
        self._handler = self._handler or handler

    def parts_with(self, handler: Any, memory: MemoryPort | None) -> Parts:
        """The parts of runs with the tools and the model of ``handler`` (None: none), with ``memory`` for their programs.

        The system's own parts take precedence over the handler's. Raises ConfigurationError (``config/part``).
        """
        return parts_of(
            self,
            handler,
            memory,
            own=hosts(self, TaskSystem, *LOOKED_UP, *RUN),
            lookups=self.memory_system,
            prompts=self._prompts,
            files=self._files,
            commands=self._commands,
        )

    @property
    def templates(self) -> dict[str, TaskTemplate]:
        """The registered templates by name, in order of registration (a copy)."""
        return self.service.templates

    @property
    def template_index(self) -> dict[str, str]:
        """``type:subtype`` to template name (a copy)."""
        return self.service.template_index

    def set_test_mode(self, enabled: bool) -> None:
        """Switch test mode on or off.

        In test mode a deterministic script answers prompts instead of a model, and the templates ``greeting`` and
        ``format_date`` exist.
        """
        self.service.set_test_mode(enabled)

    def register_template(self, template: Mapping[str, Any] | TaskTemplate) -> None:
        """Register a template, a dict in the specification's shape or a TaskTemplate; replaces one of the same name.

        Raises DataError for a missing or wrong field, and leaves the registry unchanged.
        """
        fields = _fields(template)
        name, text = _text(fields, "name"), any([fields.get(key) for key in _FUNCTION])
        if name in WORDS and not text:  # texts call a template function of any name
            raise DataError(
                f"a task called '{clip(name, 100)}' could never be called: in programs this name is the language's own",
                code="tasks/name",
                hint="give the task another name",
            )
        self.service.register_template(template)

    def find_template(self, identifier: str) -> TaskTemplate | None:
        """The atomic template of that name, else the last one registered for that ``type:subtype``, else None."""
        check_argument("find_template", "identifier", identifier, str)
        return self.service.find_template(identifier)

    def template_names(self) -> Sequence[str]:
        """Names of the registered atomic templates, sorted."""
        return self.service.template_names()

    def find_matching_tasks(self, input_text: str, memory_system: object = None) -> list[dict[str, Any]]:
        """Templates with a description similar to ``input_text`` (Jaccard index of words above 0.1), best first.

        Each entry has ``task`` (the template), ``score``, ``taskType`` and ``subtype``. ``memory_system`` is unused;
        the specification has it.
        """
        check_argument("find_matching_tasks", "input_text", input_text, str)
        return self.service.find_matching_tasks(input_text)

    async def load_directory(self, path: str | Path) -> list[str]:
        """Register every template of the ``*.xml`` files in a directory, all or none. Returns their names.

        Raises TemplateFileError with file and line.
        """
        check_argument("load_directory", "path", path, str, PathLike)
        return await self.service.load_directory(path)

    async def execute_subtask_directly(
        self, request: SubtaskRequest | Mapping[str, Any], env: Environment | None = None
    ) -> TaskResult:
        """Run the atomic template a SubtaskRequest names, from Python.

        ``env`` is unused; the specification has it. A template sees only its declared parameters, from
        ``request.inputs``. Where the request or its template has a ``history_config``, it takes part in the handler's
        conversation (outside of a run; in one, in that run's). Returns a TaskResult; a TaskError raised by a tool passes
        unwrapped, and SessionBusy is raised while another run has the conversation.
        """
        fields = _fields(request)
        identifier = _text(fields, "name") or f"{_text(fields, 'type') or 'atomic'}:{_text(fields, 'subtype')}"
        session = self._conversation(identifier, fields.get("history_config"))
        name = f"task {clip(_text(fields, 'name', 'subtype'), 100)}".strip()
        here = self.joint.here()
        async with in_run(here.engine, name, session) as call:
            return await (here.service or self.service).run_directly(
                request, as_asked(_text(fields, "name", "subtype"), call)
            )

    async def execute_atomic_template(
        self, request: SubtaskRequest | Mapping[str, Any], env: Environment | None = None
    ) -> TaskResult:
        """:meth:`execute_subtask_directly` under its name in programs."""
        return await self.execute_subtask_directly(request, env)

    async def execute_call(
        self,
        call: FunctionCallNode | Mapping[str, Any],
        env: Environment | SexpEnvironment | Mapping[str, Any] | None = None,
    ) -> TaskResult:
        """Evaluate a template function call: arguments in ``env``, the body in a new environment of its parameters.

        Several calls among the arguments run side by side. ``env`` may be a dict of variables, or a SexpEnvironment, as it is now.

        A template with a ``history_config`` takes part in the handler's conversation. Every failure but a limit, and a
        conversation in use, is a FAILED result.
        """
        check_argument("execute_call", "env", env, Environment, SexpEnvironment, Mapping, optional=True)
        identifier = _text(_fields(call), "template_name", "templateName", "name")
        name = f"call {clip(identifier, 100)}".strip()
        here = self.joint.here()
        async with in_run(here.engine, name, self._conversation(identifier, None)) as context:
            return await (here.service or self.service).evaluate_call(call, _environment(env), context, self.evaluator)

    async def execute_task(
        self,
        task_type: str,
        task_subtype: str,
        inputs: Mapping[str, Any],
        memory_system: MemoryPort | None = None,
        available_models: Sequence[str] | None = None,
        call_depth: int = 0,
        handler: object | None = None,
        **kwargs: Any,
    ) -> TaskResult:
        """Run the task ``task_type:task_subtype`` with ``inputs``.

        ``memory_system`` and ``handler`` replace the system's own for this call; ``available_models`` restricts the
        choice of model; ``call_depth`` is the nesting depth of the caller. Keywords: ``inherited_context`` (text),
        ``previous_outputs`` (text, results or a SequentialHistory), ``handler_config`` (``max_turns``,
        ``max_output_tokens``, ``timeout_s``, ``tool_choice``, ``settings``, ``prompt_cache``,
        ``effort``), ``file_paths``, ``context_management``,
        ``history_config``, ``description``. With a ``history_config``, here or in its template, the task takes part in
        the handler's conversation. Every failure but a limit, and a conversation in use, is a FAILED result.
        """
        session = self._conversation(f"{task_type}:{task_subtype}", kwargs.get("history_config"), handler)
        here = self.joint.here()
        async with in_run(here.engine, f"task {task_type}:{task_subtype}", session) as call:
            return await (here.service or self.service).run_task(
                task_type,
                task_subtype,
                inputs,
                call,
                memory=finder_of(memory_system),
                available_models=available_models,
                depth=call_depth,
                handler=handler,
                keywords=kwargs,
            )

    def _conversation(self, identifier: str, history: object, handler: object = None) -> Session | None:
        """The handler's conversation, if the history settings of a call, or else of its template, ask for one."""
        template = self.service.find_compiled(identifier)
        try:
            call = None if history is None else HistoryConfig.of(history)
        except DataError:
            return None  # the task fails with this error
        if template is None or (call is None and template.template.history_config is None):
            return None
        if template.history_with(call).alone:
            return None
        session = (
            (self._handler and self._handler.own_session) if handler is None else getattr(handler, "session", None)
        )
        return session if isinstance(session, Session) else None

    async def resolve_file_paths(
        self,
        template: Mapping[str, Any] | TaskTemplate,
        memory_system: MemoryPort | None = None,
        handler: object = None,
    ) -> tuple[list[str], str | None]:
        """The files selected by a resolved template's context strategy: absolute paths, and an error text or None.

        Sources, in order: ``file_paths``; memory's answer to ``_context_input``; ``file_paths_source`` of type
        ``description`` or ``command`` (run by ``handler``, else by the task system's commands). The error of one source is
        returned together with the paths of the others.
        """
        check_argument("resolve_file_paths", "template", template, Mapping)
        commands = None if handler is None else finding_of(handler)
        here = self.joint.here()
        async with in_run(here.engine, "file paths") as call:
            return await (here.service or self.service).resolve_file_paths(
                template, call, memory=finder_of(memory_system), commands=commands
            )

    async def generate_context_for_memory_system(
        self, context_input: ContextGenerationInput, global_index: Mapping[str, str]
    ) -> AssociativeMatchResult:
        """The files relevant to ``context_input``, out of ``global_index`` (path to metadata).

        A registered ``atomic:associative_matching`` template chooses them, if there is one (its parameters: see
        :meth:`~agentflow.tasks.service.TaskService.generate_context`); else the memory system answers; without one, and
        when a host's memory asks this itself, a model chooses. The memory system's ``handler`` runs the template, if it
        has one. A failure is a result with ``error`` and no matches.
        """
        check_argument("generate_context_for_memory_system", "context_input", context_input, ContextGenerationInput)
        check_argument("generate_context_for_memory_system", "global_index", global_index, Mapping)
        handler = getattr(self.memory_system, "handler", None)
        here = self.joint.here()
        async with in_run(here.engine, "context") as call:
            return await (here.service or self.service).generate_context(
                context_input, global_index, call, handler=handler
            )


_FUNCTION = ("is_function", "isFunctionTemplate", "is_function_template")


def _environment(env: Environment | SexpEnvironment | Mapping[str, Any] | None) -> Environment | None:
    """The variables of a host as function calls look them up."""
    if env is None or isinstance(env, Environment):
        return env
    return Environment(env.bindings() if isinstance(env, SexpEnvironment) else env)


def _fields(data: object) -> Mapping[str, object]:
    """The request of a host as a mapping; empty for any other type."""
    if isinstance(data, MappingModel):
        return dict(data)
    return cast("Mapping[str, object]", data) if isinstance(data, Mapping) else {}


def _text(fields: Mapping[str, object], *keys: str) -> str:
    """The first text among these fields, or the empty text."""
    return next((value for key in keys if isinstance(value := fields.get(key), str)), "")
