"""TaskSystem: finds templates and context, and has the executor run them. Specification document 2, whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from agentflow.core.call import CallContext
from agentflow.core.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.errors import AgentflowError, DataError, LimitExceeded, SessionBusy, TaskError
from agentflow.core.local_run import LocalOpener
from agentflow.core.ports import CommandPort, EvaluatorPort, FilePort, MemoryPort, PromptRunner, RunOpener
from agentflow.core.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.templates import TaskTemplate
from agentflow.core.values import to_json
from agentflow.lib.suggest import did_you_mean
from agentflow.tasks.context_sources import ContextSources, PathCommandRunner
from agentflow.tasks.environment import Environment
from agentflow.tasks.executor import AtomicTaskExecutor
from agentflow.tasks.functions import FunctionCalls
from agentflow.tasks.history import previous_outputs_text
from agentflow.tasks.library import builtin, scripted_builtin
from agentflow.tasks.matching import match_result
from agentflow.tasks.options import ORDINARY, TaskOptions
from agentflow.tasks.prompt_runners import NoPrompts, TestModePrompts, prompts_of
from agentflow.tasks.registry import CompiledTemplate, TemplateRegistry
from agentflow.tasks.runner import Decomposer, TaskRunner
from agentflow.tasks.subtasks import Subtasks

_log = logging.getLogger(__name__)

_HANDLER_CONFIG = ("max_turns", "max_output_tokens", "timeout_s", "tool_choice", "settings")
_KWARGS = (
    "inherited_context", "previous_outputs", "handler_config", "file_paths", "context_management", "history_config",
    "description",
)  # fmt: skip


@runtime_checkable
class FunctionEvaluator(Protocol):
    """An evaluator that wants to evaluate template function calls itself."""

    async def evaluate_function_call(self, call: FunctionCallNode, env: Environment) -> Any: ...


class TaskSystem:
    """Manages and runs atomic task templates.

    Parameters: ``evaluator`` evaluates FunctionCallNodes when it offers ``evaluate_function_call``; ``memory_system``
    answers context lookups; ``executor`` runs bodies (without one, prompts fail with a configuration error);
    ``files`` and ``commands`` serve context sources; ``run_opener`` opens a run for methods called outside of one;
    ``decomposer`` gives what takes over when a task whose template allows it runs out of context or output (a function,
    since what runs programs stands above this); ``decompose`` how many rounds it has for templates that do not say.

    The async methods join the run of the tool they are called from; outside they open a run of their own.
    """

    def __init__(
        self,
        evaluator: EvaluatorPort | None = None,
        memory_system: MemoryPort | None = None,
        *,
        executor: AtomicTaskExecutor | None = None,
        prompts: PromptRunner | None = None,
        files: FilePort | None = None,
        commands: CommandPort | None = None,
        run_opener: RunOpener | None = None,
        decomposer: Callable[[], Decomposer] | None = None,
        decompose: int = 0,
    ) -> None:
        self.evaluator = evaluator
        self.memory_system = memory_system
        self.executor = executor or AtomicTaskExecutor(prompts or NoPrompts(), files)
        self._test_mode = False
        self._registry = TemplateRegistry(self._builtin)
        self._sources = ContextSources(memory_system, files or self.executor.files, commands)
        self._runner = TaskRunner(self._registry, self.executor, self._sources, decomposer, decompose)
        self._subtasks = Subtasks(self._registry, self._runner)
        self._opener: RunOpener = run_opener or LocalOpener(subtasks=self.run_subtask)

    def _builtin(self, identifier: str) -> CompiledTemplate | None:
        return scripted_builtin(identifier) if self._test_mode else builtin(identifier)

    @property
    def templates(self) -> dict[str, TaskTemplate]:
        """The registered templates by name, in order of registration (a copy)."""
        return self._registry.templates

    @property
    def template_index(self) -> dict[str, str]:
        """``type:subtype`` to template name (a copy)."""
        return self._registry.template_index

    def set_test_mode(self, enabled: bool) -> None:
        """Switch test mode: prompts are answered by a deterministic script instead of a model, and the templates
        ``greeting`` and ``format_date`` exist."""
        self._test_mode = bool(enabled)

    def register_template(self, template: Mapping[str, Any] | TaskTemplate) -> None:
        """Register a template; a dict in the specification's shape or a TaskTemplate. A name registered before is
        replaced. Raises DataError naming what is missing or wrong; then nothing has changed."""
        self._registry.register(template)

    def find_template(self, identifier: str) -> TaskTemplate | None:
        """The atomic template of that name, else the last one registered for that ``type:subtype``; None without one."""
        compiled = self._registry.find(identifier)
        return None if compiled is None else compiled.template

    def template_names(self) -> Sequence[str]:
        """Names of the registered atomic templates, sorted."""
        return self._registry.names()

    def find_matching_tasks(self, input_text: str, memory_system: object = None) -> list[dict[str, Any]]:
        """Templates whose description is like ``input_text`` (Jaccard on words above 0.1), best first.

        Each entry has ``task`` (the template), ``score``, ``taskType`` and ``subtype``. ``memory_system`` is accepted
        for the specification's sake.
        """
        return [
            {
                "task": compiled.template,
                "score": score,
                "taskType": compiled.template.type,
                "subtype": compiled.template.subtype,
            }
            for compiled, score in self._registry.matching(input_text)
        ]

    async def load_directory(self, path: str | Path) -> list[str]:
        """Register every template of the ``*.xml`` files in a directory, all or none; their names.

        Raises TemplateFileError with file and line.
        """
        from agentflow.tasks.xml import load_directory

        return self._registry.load(await load_directory(path))

    async def run_request(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run an atomic task within ``call``, found by the request's name, else by its ``type:subtype``.

        Publishes Task events. A failure is a FAILED result; a TaskError of a tool, LimitExceeded and cancellation pass.
        """
        compiled = self._runner.find(request)
        if compiled is None:
            return self._runner.not_found(request)
        return await self._runner.run(compiled, request, call, self._options())

    async def run_subtask(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run what a CONTINUATION asks for, nested under ``call``: see :class:`~agentflow.tasks.subtasks.Subtasks`."""
        return await self._subtasks.run(request, call, self._options())

    async def execute_subtask_directly(
        self, request: SubtaskRequest | Mapping[str, Any], env: Environment | None = None
    ) -> TaskResult:
        """Run the atomic template a SubtaskRequest names, from Python.

        ``env`` is accepted for the specification's sake: a template sees its declared parameters, from
        ``request.inputs``, and nothing else. Gives a TaskResult; a TaskError raised by a tool passes unwrapped.
        """
        try:
            read = SubtaskRequest.of(request)
        except DataError as error:
            return _invalid(f"the request is {error.message}")
        try:
            async with self._opener.open_call(f"task {read.name or read.subtype or read.type}") as call:
                return await self.run_request(read, call)
        except (TaskError, LimitExceeded, SessionBusy):
            raise
        except Exception as error:  # noqa: BLE001 - the specification's boundary: the unforeseen is a FAILED result
            return _unexpected(error)

    execute_atomic_template = execute_subtask_directly

    async def execute_call(
        self, call: FunctionCallNode | Mapping[str, Any], env: Environment | None = None
    ) -> TaskResult:
        """Evaluate a template function call: arguments in ``env``, the body in a fresh environment of its parameters.

        Every failure but a limit is a FAILED result.
        """
        env = env if env is not None else Environment()
        try:
            node = FunctionCallNode.of(call)
        except DataError as error:
            return _invalid(f"the call is {error.message}")
        try:
            async with self._opener.open_call(f"call {node.template_name}") as context:
                if isinstance(self.evaluator, FunctionEvaluator):
                    return TaskResult.of(await self.evaluator.evaluate_function_call(node, env))
                return await self._functions(context).evaluate(node, env)
        except (LimitExceeded, SessionBusy):
            raise
        except Exception as error:  # noqa: BLE001 - as in execute_subtask_directly
            return _unexpected(error)

    def _functions(self, call: CallContext) -> FunctionCalls:
        return self._runner.functions(call, self._options())

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

        ``memory_system`` and ``handler`` replace the system's own for this call; ``available_models`` limits the choice
        of model; ``call_depth`` is how deep the caller is nested. Keywords: ``inherited_context`` (text),
        ``previous_outputs`` (text, results or a SequentialHistory), ``handler_config`` (``max_turns``,
        ``max_output_tokens``, ``timeout_s``, ``tool_choice``, ``settings``), ``file_paths``, ``context_management``,
        ``history_config``, ``description``. Every failure but a limit is a FAILED result.
        """
        try:
            request, options = self._task_call(task_type, task_subtype, inputs, kwargs)
            compiled = self._runner.find(request)
            if compiled is None:
                return self._runner.not_found(request)
            options = self._options(
                memory=memory_system,
                available_models=available_models,
                depth=call_depth,
                prompts=prompts_of(handler) if handler is not None else None,
                **options,
            )
            async with self._opener.open_call(f"task {task_type}:{task_subtype}") as call:
                return await self._runner.run(compiled, request, call, options)
        except (LimitExceeded, SessionBusy):
            raise
        except Exception as error:  # noqa: BLE001 - as in execute_subtask_directly
            return _unexpected(error)

    def _options(self, **changes: Any) -> TaskOptions:
        if self._test_mode and changes.get("prompts") is None:
            changes["prompts"] = TestModePrompts()
        return TaskOptions(**changes) if changes else ORDINARY

    def _task_call(
        self, task_type: str, task_subtype: str, inputs: Mapping[str, Any], kwargs: dict[str, Any]
    ) -> tuple[SubtaskRequest, dict[str, Any]]:
        for key in kwargs:
            if key not in _KWARGS:
                raise _bad_keyword(f"execute_task has no keyword '{key}'", key, _KWARGS)
        config = cast(Mapping[str, Any], kwargs.get("handler_config") or {})
        for key in config:
            if key not in _HANDLER_CONFIG:
                raise _bad_keyword(f"handler_config has no key '{key}'", key, _HANDLER_CONFIG)
        try:
            request = SubtaskRequest.of(
                {
                    "type": task_type,
                    "subtype": task_subtype,
                    "inputs": dict(inputs or {}),
                    **{key: kwargs[key] for key in _KWARGS[3:] if kwargs.get(key) is not None},
                }
            )
        except (DataError, TypeError, ValueError) as error:
            raise _bad_keyword(f"execute_task: {error}", "", ()) from error
        return request, {
            "inherited_context": str(kwargs.get("inherited_context") or ""),
            "previous_outputs": previous_outputs_text(kwargs.get("previous_outputs")),
            "prompt": dict(config),
        }

    async def resolve_file_paths(
        self,
        template: Mapping[str, Any] | TaskTemplate,
        memory_system: MemoryPort | None = None,
        handler: object = None,
    ) -> tuple[list[str], str | None]:
        """The files a resolved template's context strategy gives: absolute paths, each once, and an error text or None.

        Sources, in order: ``file_paths``; memory's answer to ``_context_input``; ``file_paths_source`` of type
        ``description`` or ``command`` (run by the task system's commands, else by ``handler``). The error of one source
        stands beside the paths of the others.
        """
        found = await self._sources.resolve(
            cast(Sequence[str], template.get("file_paths") or ()),
            template.get("_context_input"),
            cast("Mapping[str, Any] | None", template.get("file_paths_source")),
            memory=memory_system,
            runner=handler if isinstance(handler, PathCommandRunner) else None,
        )
        return found.paths, found.error

    async def generate_context_for_memory_system(
        self, context_input: ContextGenerationInput, global_index: Mapping[str, str]
    ) -> AssociativeMatchResult:
        """What is relevant to ``context_input``: memory's one entry point is asked.

        Without a memory system the model is, with the ``atomic:associative_matching`` templates over ``global_index``
        (path to metadata). A failure is a result with ``error`` and no matches.
        """
        if self.memory_system is not None:
            try:
                return await self._sources.ask(context_input, None)
            except TaskError as error:
                return AssociativeMatchResult(error=error.message)
        strategy = context_input.matching_strategy
        shown = [{"path": path, "text": text} for path, text in global_index.items()]
        result = await self.execute_task(
            "atomic",
            f"associative_matching:{strategy}",
            {
                "query": context_input.text,
                "metadata": to_json(shown),
                "inputs": dict(context_input.inputs),
                "inherited_context": context_input.inherited_context,
                "previous_outputs": context_input.previous_outputs,
                "max_results": context_input.max_results,
            },
        )
        return match_result(result, global_index, context_input.max_results)


def _bad_keyword(message: str, key: str, known: Sequence[str]) -> DataError:
    return DataError(message, code="tasks/bad-argument", hint=did_you_mean(key, known))


def _invalid(message: str) -> TaskResult:
    return TaskResult.failure("input_validation_failure", message, details={"code": "tasks/bad-argument"})


def _unexpected(error: Exception) -> TaskResult:
    if not isinstance(error, AgentflowError):
        _log.warning("a task failed with an unforeseen %s", type(error).__name__, exc_info=error)
    return TaskResult.from_error(error)
