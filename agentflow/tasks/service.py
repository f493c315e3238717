"""Atomic tasks as a service: finds templates and context, and executes them within the calls of runs."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.call.host_threads import as_async
from agentflow.core.data.context import MEMORY_ASKED, AssociativeMatchResult, ContextGenerationInput
from agentflow.core.data.errors import AgentflowError, DataError, RunStopped, SessionBusy, TaskError
from agentflow.core.data.known_names import Definitions
from agentflow.core.data.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.data.results import TaskResult, warn_of_failure
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.data.values import to_json
from agentflow.core.ports.executor_ports import CommandPort, FilePort
from agentflow.core.ports.memory_ports import ContextFinder
from agentflow.core.ports.ports import PromptRunner
from agentflow.core.ports.store_ports import ReusePort
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.context_sources import ContextSources, literal_of, source_of
from agentflow.tasks.library import FILES, TEST_FILES, read
from agentflow.tasks.material import match_result
from agentflow.tasks.overrides import ORDINARY, TaskOptions
from agentflow.tasks.prompt_runners import TestModePrompts, prompts_of
from agentflow.tasks.runner import AtomicTaskExecutor, TaskRunner
from agentflow.tasks.step_history import previous_outputs_text
from agentflow.tasks.subtasks import Subtasks
from agentflow.tasks.template_environment import Environment
from agentflow.tasks.template_functions import check_depth
from agentflow.tasks.template_registry import CompiledTemplate, TemplateRegistry, prepare_definition

_log = logging.getLogger(__name__)

_HANDLER_CONFIG = ("max_turns", "max_output_tokens", "timeout_s", "tool_choice", "settings", "prompt_cache", "effort")
_KWARGS = (
    "inherited_context", "previous_outputs", "handler_config", "file_paths", "context_management", "history_config",
    "description",
)  # fmt: skip


_EVALUATES = ("evaluate_function_call", "evaluateFunctionCall")
"""The names of the method of an evaluator that evaluates template function calls itself."""


class _Mode:
    """Whether test mode is on; shared by the services over the same templates."""

    def __init__(self) -> None:
        self.set(False)

    def set(self, test: bool) -> None:
        """Switch the mode."""
        self.test = test
        self._files = {**FILES, **TEST_FILES} if test else FILES

    def builtin(self, identifier: str) -> CompiledTemplate | None:
        """The template that comes with agentflow, in this mode."""
        file = self._files.get(identifier)
        return None if file is None else read(file)


class TaskService:
    """Atomic tasks: their templates, and all operations on them within a call of a run.

    Parameters: ``executor`` runs bodies; ``memory`` answers context lookups; ``files`` and ``commands`` serve context
    sources; ``decompose`` how many rounds a model may take to write a program for a task that ran out of context or output,
    for templates without their own value; ``reuse`` keeps the results of tasks declared with it; ``words`` are
    names that programs cannot use for tasks. It opens no run: every async method takes a call.
    """

    def __init__(
        self,
        executor: AtomicTaskExecutor,
        memory: ContextFinder | None = None,
        *,
        files: FilePort | None = None,
        commands: CommandPort | None = None,
        decompose: int = 0,
        reuse: ReusePort | None = None,
        words: Container[str] = (),
    ) -> None:
        self.executor = executor
        self._reuse = reuse
        self._mode = _Mode()
        self._registry = TemplateRegistry(self._mode.builtin, words)
        self._decompose = decompose
        self._sources = ContextSources(memory, files or executor.files, commands)
        self._connect(TaskRunner)

    def _connect(self, runner: Callable[..., TaskRunner]) -> None:
        self._runner = runner(self._registry, self.executor, self._sources, self._decompose, self._reuse)
        self._subtasks = Subtasks(self._registry, self._runner)

    def over(
        self,
        prompts: PromptRunner,
        *,
        memory: ContextFinder | None = None,
        files: FilePort | None = None,
        commands: CommandPort | None = None,
        registry: TemplateRegistry | None = None,
        runner: Callable[..., TaskRunner] = TaskRunner,
    ) -> TaskService:
        """The same tasks, and the same test mode, run with other parts; ``registry`` and ``runner`` find and run templates
        in another way.
        """
        twin = copy.copy(self)
        twin.executor = AtomicTaskExecutor(prompts, files)
        twin._registry = registry or self._registry
        twin._sources = ContextSources(memory, files, commands)
        twin._connect(runner)
        return twin

    @property
    def registry(self) -> TemplateRegistry:
        """The registered templates."""
        return self._registry

    def builtin(self, identifier: str) -> CompiledTemplate | None:
        """The template that comes with agentflow, or None."""
        return self._mode.builtin(identifier)

    @property
    def revision(self) -> object:
        return self._registry.revision

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
        self._mode.set(bool(enabled))
        self._registry.changed()

    def register_template(self, template: Mapping[str, Any] | TaskTemplate) -> None:
        """Register a template, a dict in the specification's shape or a TaskTemplate; replaces one of the same name.

        Raises DataError for a missing or wrong field, and leaves the registry unchanged.
        """
        self._registry.register(template)

    def prepare(self, fields: Mapping[str, Any]) -> CompiledTemplate:
        return prepare_definition(fields)

    def publish(self, templates: Iterable[CompiledTemplate]) -> list[str]:
        """Register templates that programs defined, all or none, replacing those of the same name. Returns their names."""
        return self._registry.load(templates)

    def find_compiled(self, identifier: str, defined: Definitions | None = None) -> CompiledTemplate | None:
        return self._registry.find(identifier, defined)

    def find_template(self, identifier: str) -> TaskTemplate | None:
        """The atomic template of that name, else the last one registered for that ``type:subtype``, else None."""
        compiled = self._registry.find(identifier)
        return None if compiled is None else compiled.template

    def template_names(self) -> Sequence[str]:
        """Names of the registered atomic templates, sorted."""
        return self._registry.names()

    def find_matching_tasks(self, input_text: str) -> list[dict[str, Any]]:
        """Templates with a description similar to ``input_text`` (Jaccard index of words above 0.1), best first.

        Each entry has ``task`` (the template), ``score``, ``taskType`` and ``subtype``.
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
        """Register every template of the ``*.xml`` files in a directory, all or none. Returns their names.

        Raises TemplateFileError with file and line.
        """
        from agentflow.tasks.xml import load_directory

        return self._registry.load(await load_directory(path))

    def run(
        self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext
    ) -> Coroutine[Any, Any, TaskResult]:
        """Run a template within ``call`` (to be awaited); otherwise like :meth:`run_request`."""
        return self._runner.run(compiled, request, call, self._options() if self._mode.test else ORDINARY)

    def content(self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext) -> list[Any]:
        """The identity of a task at ``call``, except its arguments; see :mod:`agentflow.tasks.template_registry`."""
        return self._runner.content(compiled, request, call, self._options() if self._mode.test else ORDINARY)

    async def run_request(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run an atomic task within ``call``, found by the request's name or else its ``type:subtype``.

        Publishes Task events. A failure is a FAILED result; a TaskError of a tool, RunStopped and cancellation pass
        through.
        """
        compiled = self._runner.find(request, call)
        if compiled is None:
            return self._runner.not_found(request, call)
        return await self.run(compiled, request, call)

    async def run_subtask(
        self, request: SubtaskRequest, call: CallContext, task: CompiledTemplate | None = None
    ) -> TaskResult:
        """Run the subtask of a CONTINUATION within ``call``; see :class:`~agentflow.tasks.subtasks.Subtasks`."""
        return await self._subtasks.run(request, call, self._options(), task)

    async def run_directly(self, request: SubtaskRequest | Mapping[str, Any], call: CallContext) -> TaskResult:
        """Like :meth:`run_request`, for hosts: an invalid request and any unexpected exception are FAILED results."""
        try:
            read = SubtaskRequest.of(request)
        except DataError as error:
            return _invalid(f"the request is {error.message}")
        try:
            return await self.run_request(read, call)
        except (TaskError, RunStopped, SessionBusy):
            raise
        except Exception as error:  # noqa: BLE001 - the specification's boundary: any other exception is a FAILED result
            return _unexpected(error)

    async def evaluate_call(
        self,
        node: FunctionCallNode | Mapping[str, Any],
        env: Environment | None,
        call: CallContext,
        evaluator: object = None,
    ) -> TaskResult:
        """Evaluate a template function call: arguments in ``env``, the body in a new environment of its parameters.

        ``evaluator`` does it instead if it has ``evaluate_function_call`` or ``evaluateFunctionCall``. Every failure except a limit is a FAILED
        result.
        """
        env = env if env is not None else Environment()
        try:
            node = FunctionCallNode.of(node)
        except DataError as error:
            return _invalid(f"the call is {error.message}")
        try:
            evaluate = next((each for name in _EVALUATES if (each := getattr(evaluator, name, None)) is not None), None)
            if evaluate is not None:
                with HostCode(call) as code:
                    return warn_of_failure(TaskResult.of(await code.to_end(as_async(evaluate)(node, env))), call.warn)
            return await self._runner.functions(call, self._options()).evaluate(node, env)
        except (RunStopped, SessionBusy):
            raise
        except Exception as error:  # noqa: BLE001 - as in run_directly
            return _unexpected(error)

    async def run_task(
        self,
        task_type: str,
        task_subtype: str,
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        memory: ContextFinder | None = None,
        available_models: Sequence[str] | None = None,
        depth: int = 0,
        handler: object | None = None,
        keywords: Mapping[str, Any] | None = None,
    ) -> TaskResult:
        """Run the task ``task_type:task_subtype`` with ``inputs``.

        ``memory`` and ``handler`` replace the service's own for this task; ``available_models`` restricts the choice of
        model; ``depth`` is the nesting depth of the caller; ``keywords`` are those of the specification's
        ``execute_task``. Every failure except a limit is a FAILED result.
        """
        try:
            request, options = self._task_call(task_type, task_subtype, inputs, keywords or {})
            compiled = self._runner.find(request, call)
            if compiled is None:
                return self._runner.not_found(request, call)
            check_depth(compiled.name, depth)
            options = self._options(
                memory=memory,
                available_models=available_models,
                depth=depth,
                prompts=prompts_of(handler) if handler is not None else None,
                **options,
            )
            return await self._runner.run(compiled, request, call, options)
        except (RunStopped, SessionBusy):
            raise
        except Exception as error:  # noqa: BLE001 - as in run_directly
            return _unexpected(error)

    def _options(self, **changes: Any) -> TaskOptions:
        if self._mode.test and changes.get("prompts") is None:
            changes["prompts"] = TestModePrompts()
        return TaskOptions(**changes) if changes else ORDINARY

    def _task_call(
        self, task_type: str, task_subtype: str, inputs: Mapping[str, Any], kwargs: Mapping[str, Any]
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
        call: CallContext,
        *,
        memory: ContextFinder | None = None,
        commands: CommandPort | None = None,
    ) -> tuple[list[str], str | None]:
        """The files selected by a resolved template's context strategy: absolute paths, and an error text or None.

        Sources, in order: ``file_paths``; memory's answer to ``_context_input``; ``file_paths_source`` of type
        ``description`` or ``command`` (run by ``commands``, else by the service's own). The error of one source is returned
        together with the paths of the others.
        """
        resolved = await self._sources.resolve(
            literal_of(template.get("file_paths") or template.get("filePaths")),
            template.get("_context_input"),
            source_of(template.get("file_paths_source") or template.get("filePathsSource")),
            memory=memory,
            commands=commands,
            call=call,
        )
        return resolved.paths, resolved.error

    async def generate_context(
        self,
        question: ContextGenerationInput,
        global_index: Mapping[str, str],
        call: CallContext,
        *,
        handler: object | None = None,
    ) -> AssociativeMatchResult:
        """The files relevant to ``question``, chosen over ``global_index`` (path to metadata).

        A registered ``atomic:associative_matching`` template chooses, if there is one; else the memory system answers,
        unless it is asking itself; else a model chooses with the built-in template. The template's parameters may be
        ``query``, ``metadata`` (a JSON list of ``{path, text}``), ``inputs``, ``inherited_context``,
        ``previous_outputs``, ``max_results``, ``context_input`` and ``global_index``. ``handler`` runs it in place of
        the service's own. A failure is a result with ``error`` and no matches.
        """
        subtype = f"associative_matching:{question.matching_strategy}"
        names = (f"atomic:{subtype}", f"atomic:{subtype.replace(':', '_')}", "atomic:associative_matching")
        own = (self._registry.find_own(name, call.definitions) for name in names)
        compiled = next((template for template in own if template is not None), None)
        if compiled is None and self._sources.memory is not None and MEMORY_ASKED not in call.subtask_chain:
            try:
                return await self._sources.ask(question, call)
            except TaskError as error:
                return AssociativeMatchResult(error=error.message)
        inputs: dict[str, Any] = {
            "query": question.text,
            "metadata": to_json([{"path": path, "text": text} for path, text in global_index.items()]),
            "inputs": dict(question.inputs),
            "inherited_context": question.inherited_context,
            "previous_outputs": question.previous_outputs,
            "max_results": question.max_results,
            "context_input": dict(question),
            "global_index": dict(global_index),
        }
        compiled = compiled or self._registry.find(names[0])
        assert compiled is not None, "the template is built in"
        request = SubtaskRequest(
            subtype=compiled.template.subtype,
            name=compiled.name,
            inputs={key: value for key, value in inputs.items() if key in compiled.template.params},
        )
        try:
            options = self._options(prompts=prompts_of(handler) if handler is not None else None)
            result = await self._runner.run(compiled, request, call, options)
        except (RunStopped, SessionBusy):
            raise
        except Exception as error:  # noqa: BLE001 - as in run_directly
            result = _unexpected(error)
        return match_result(result, global_index, question.max_results)


def _bad_keyword(message: str, key: str, keywords: Sequence[str]) -> DataError:
    return DataError(message, code="tasks/bad-argument", hint=did_you_mean(key, keywords))


def _invalid(message: str) -> TaskResult:
    return TaskResult.failure("input_validation_failure", message, details={"code": "tasks/bad-argument"})


def _unexpected(error: Exception) -> TaskResult:
    if not isinstance(error, AgentflowError):
        _log.warning("a task failed with an unforeseen %s", type(error).__name__, exc_info=error)
    return TaskResult.from_error(error)
