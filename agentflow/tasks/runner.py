"""Runs one atomic task from request to result: finds the template, checks inputs, gathers context, executes it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import NOTHING_INHERITED, InheritedContext
from agentflow.core.data.errors import AgentflowError, TaskError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.names import narrowed
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.reuse import reuse_unavailable
from agentflow.core.data.walk import LEAVES
from agentflow.core.data.work import LONG_TEXT
from agentflow.core.events.events import TaskStarted
from agentflow.core.events.journal import named_arguments
from agentflow.core.ports.store_ports import ReusePort
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.authority import check_files, settings_within_grants
from agentflow.tasks.content import PARTS, content_of
from agentflow.tasks.context_rules import ContextSettings, resolve_settings
from agentflow.tasks.context_sources import ContextSources, literal_paths, question_of, rendered_source, subset_of
from agentflow.tasks.executor import AtomicTaskExecutor, Execution, ExecutionOverrides
from agentflow.tasks.functions import FunctionCalls
from agentflow.tasks.inputs import resolve_beside, resolve_inputs
from agentflow.tasks.material import NO_CONTEXT, ContextInputs
from agentflow.tasks.options import TaskOptions, offered_tools, select_model, task_mark
from agentflow.tasks.registry import CompiledTemplate, TemplateRegistry
from agentflow.tasks.template import text_of


@frozen
class TaskRunner:
    """Runs compiled templates. Holds no state of a call.

    ``decompose`` applies to templates without their own; ``reuse`` keeps the results of those that are declared with it.
    """

    registry: TemplateRegistry
    executor: AtomicTaskExecutor
    sources: ContextSources
    decompose: int = 0
    reuse: ReusePort | None = None

    def find(self, request: SubtaskRequest, call: CallContext) -> CompiledTemplate | None:
        """The template of a request at ``call``: by ``name`` if it has one, else by ``type:subtype``."""
        if request.name is not None:
            return self.registry.find(request.name, call.definitions)
        if request.subtype is None or request.type != "atomic":
            return None
        return self.registry.find(f"{request.type}:{request.subtype}", call.definitions)

    def not_found(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """The FAILED result for a request without a template."""
        label = request.name or f"{request.type}:{request.subtype or '?'}"
        hint = did_you_mean(label, [*self.registry.names(call.definitions), *self.registry.template_index])
        message = f"there is no task template '{label}'"
        if request.name is None and request.subtype is None and request.type == "atomic":
            message = f"no task template has a description like '{clip(request.description, 200)}'"
            hint = "name the task, or say what is wanted in words of its description"
        elif request.type != "atomic":
            hint = "only atomic tasks are run here; sequences, loops and branches are programs"
        details: dict[str, Any] = {
            "cause": "template_not_found",
            "code": "tasks/template-not-found",
            "identifier": label,
        }
        if hint:
            details["hint"] = hint
        return TaskResult.failure(
            "input_validation_failure", f"{message}; {hint}" if hint else message, details=details
        )

    def run(
        self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext, options: TaskOptions
    ) -> Coroutine[Any, Any, TaskResult]:
        """Run a template for a request (to be awaited), between Task events; the Finished event has usage and cost.

        Within another task (called by its tools, or while its prompt is rendered) the session is a fork: the exchanges
        of nested tasks are not part of the conversation. In a durable run a nested task has a record of its own.
        """
        journal = call.run.journal
        carry_out = self._run if compiled.template.reuse is None else self._reused
        if journal is None:
            return carry_out(compiled, request, call, options)
        step = call.start(call.span, TaskStarted.__name__, {"name": compiled.name, "request": request})
        step.steps = call.steps
        work = partial(carry_out, compiled, request, step, options)
        return journal.step(
            "task",
            compiled.name,
            lambda: {
                **named_arguments(request.inputs),
                "the request": replace(request, inputs={}),
                **dict(zip(PARTS, self.content(compiled, request, step, options), strict=True)),
            },
            step,
            work,
            gives=compiled,
        )

    async def _reused(
        self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext, options: TaskOptions
    ) -> TaskResult:
        """The result of an equal task that is not too old, else of this one. The content of the files it names counts."""
        if self.reuse is None or compiled.template.reuse is None:
            raise reuse_unavailable(f"the task '{compiled.name}'")
        step = call.start(call.span, TaskStarted.__name__, {"name": compiled.name, "request": request})
        step.steps = call.steps
        content = [
            request,
            self.content(compiled, request, step, options, settled=False),
            await self._file_digests(compiled, request),
            None if call.grants is None else sorted(call.grants),
        ]
        work = partial(self._run, compiled, request, step, options)
        return await self.reuse.once(compiled, content, compiled.template.reuse, step, work)

    async def _file_digests(self, compiled: CompiledTemplate, request: SubtaskRequest) -> list[list[str]]:
        files = self.sources.files
        paths = [*(request.file_paths or ())]
        try:
            values, _ = await resolve_beside(compiled.name, compiled.template.params, request.inputs)
            paths += [text.render(values) for text in compiled.file_paths]
            return [] if files is None else [[path, (await files.read(path)).digest] for path in paths]
        except TaskError as error:
            return [[error.message]]  # which the task itself reports

    def content(
        self,
        compiled: CompiledTemplate,
        request: SubtaskRequest,
        call: CallContext,
        options: TaskOptions,
        *,
        settled: bool = True,
    ) -> list[Any]:
        """What identifies a task at ``call`` besides its arguments; see :mod:`agentflow.tasks.content`."""
        template, prompts = compiled.template, options.prompts or self.executor.prompts
        model = template.model
        if options.available_models is not None or (model is None and template.fallbacks):
            model, _ = select_model(template, options.available_models)
        whole_name = getattr(prompts, "model_name", None)  # which a turn loop has; asked once for every recorded task
        name = model or "" if whole_name is None else whole_name(model)
        return content_of(
            compiled,
            request,
            call,
            model=name,
            find=lambda name: self.registry.find(name, call.definitions),
            settled=settled,
        )

    async def _run(
        self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext, options: TaskOptions
    ) -> TaskResult:
        functions = options.functions
        nested = call.material is not None or (functions is not None and bool(functions.stack))
        with call.scope(TaskStarted, name=compiled.name, request=request) as scope:
            inner = scope.call
            inner.steps = None if nested else call.steps
            inner.add_mark(partial(task_mark, compiled.name, request))
            if nested:
                inner.session = call.session.fork()
            if compiled.grants is not None:
                inner.grants = narrowed(call.grants, compiled.grants)
            if compiled.template.priority is not None:
                inner.priority = compiled.template.priority
            execution = await self._execute(compiled, request, inner, options)
            result = execution.result
            rounds = self._rounds(compiled, result) if result.status == "FAILED" else 0
            if rounds:
                taken = await call.run.take_over(
                    compiled.template, request, execution.goal, result, inner, rounds=rounds
                )
                if taken is not None:
                    result = replace(taken, usage=result.usage + taken.usage)
            if result.status == "FAILED" and inner.steps is not None and _accumulates(compiled, request):
                result = inner.steps.failure(compiled.name, result, call.grants)
            if call.run.watched:
                if len(result.content) > LONG_TEXT:
                    await call.run.examine(result)
                scope.set(result=result, usage=result.usage, cost_usd=execution.cost_usd)
                if result.failed:
                    scope.set(error=result.error)
        return result

    def _rounds(self, compiled: CompiledTemplate, result: TaskResult) -> int:
        """Maximum rounds for decomposing this result: 0 for anything but exhaustion."""
        error = result.notes.error
        if error is None or error.type != "RESOURCE_EXHAUSTION" or error.resource not in ("context", "output"):
            return 0
        template = compiled.template
        return template.decompose if "decompose" in template.model_fields_set else self.decompose

    async def _execute(
        self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext, options: TaskOptions
    ) -> Execution:
        template = compiled.template
        notes: dict[str, Any] = {}
        try:
            inputs = request.inputs
            if request.description and "description" in template.params:
                inputs = {"description": request.description, **inputs}
            quick = LEAVES.issuperset(map(type, inputs.values()))  # most: what is awaited costs more than the check
            if quick and not any([len(each) > LONG_TEXT for each in inputs.values() if type(each) is str]):
                values, undeclared = resolve_inputs(compiled.name, template.params, inputs)
            else:
                values, undeclared = await resolve_beside(compiled.name, template.params, inputs)
            if undeclared:
                notes["undeclared_parameters"] = undeclared
            context = compiled.context if request.context_management is None else None
            if context is None:
                context = resolve_settings(template.subtype, template.context_management, request.context_management)
            if call.grants is not None:
                context = settings_within_grants(compiled, request, context, call)
            notes["context_management"] = context
            material = await self._context(compiled, request, values, context, call, options)
        except TaskError as error:
            failed = TaskResult.from_error(
                error, template_used=compiled.name, context_source="none", context_files_count=0, **notes
            )
            return Execution(failed)
        model, fallbacks = template.model, tuple(template.fallbacks)
        if options.available_models is not None or (model is None and fallbacks):
            model, fallbacks = select_model(template, options.available_models)
        if model is not None:
            notes["selected_model"] = model
        settings = ExecutionOverrides(
            model=model,
            fallbacks=fallbacks,
            history=request.history_config,
            tools=offered_tools(compiled, call) if template.tools else () if template.tools is not None else None,
            options=options.prompt,
            prompts=options.prompts,
            notes=notes,
        )
        functions = options.functions
        if functions is None and (compiled.prompt.functions or compiled.system.functions):
            functions = self.functions(call, options)
        return await self.executor.execute(
            compiled, values, call, context_inputs=material, settings=settings, functions=functions
        )

    def functions(self, call: CallContext, options: TaskOptions) -> FunctionCalls:
        """The template functions available at ``call``: registered templates; tasks publish their own events."""

        async def run(compiled: CompiledTemplate, values: Mapping[str, Any], inner: FunctionCalls) -> TaskResult:
            if compiled.template.is_function:
                return (await self.executor.execute(compiled, values, call, functions=inner)).result
            request = SubtaskRequest(name=compiled.name, subtype=compiled.template.subtype, inputs=dict(values))
            return await self.run(compiled, request, call, replace(options, functions=inner))

        def find(name: str) -> CompiledTemplate | None:
            return self.registry.find(name, call.definitions)

        def names() -> list[str]:
            return self.registry.names(call.definitions)

        def fork() -> FunctionCalls:
            return self.functions(call.at(call.next_path("argument")), options)

        return FunctionCalls(find, run, depth=options.depth, names=names, held=call.grants, fork=fork)

    async def _context(
        self,
        compiled: CompiledTemplate,
        request: SubtaskRequest,
        values: Mapping[str, Any],
        settings: ContextSettings,
        call: CallContext,
        options: TaskOptions,
    ) -> ContextInputs:
        """The context that the settings ask for. Files named by request or template are always included."""
        template = compiled.template
        if (
            not (request.file_paths or template.file_paths or template.file_paths_source is not None)
            and (call.material is None or call.material is NOTHING_INHERITED)
            and settings.fresh_context != "enabled"
            and not (options.inherited_context or options.previous_outputs or request.history_context)
            and not (settings.accumulate_data and call.steps is not None)
        ):
            return NO_CONTEXT
        inherited = self._inherited(request, values, settings, call, options)
        previous = ""
        if settings.accumulate_data:
            steps = call.steps
            before = "" if steps is None else steps.previous_outputs(settings.accumulation_format, call.grants)
            if steps is not None and call.reading is not None:
                call.reading.add(steps.sources)
            previous = _joined(options.previous_outputs, before)
        explicit = await self._explicit(compiled, request, values, call, options)
        paths: dict[str, str] = {}
        for path in (*explicit, *inherited.paths):
            paths.setdefault(self._absolute(path), path)
        sources: list[str] = []
        if request.file_paths:
            sources.append("explicit_request")
        if len(explicit) > len(request.file_paths or ()):
            sources.append("template")
        if inherited.paths:
            sources.append("inherited")
        matches, summary = (), ""
        if settings.fresh_context == "enabled" and not request.file_paths:
            answer = await self._fresh(compiled, request, values, inherited.text, previous, call, options)
            if answer is not None:
                matches = tuple(match for match in answer.matches if self._absolute(match.path) not in paths)
                summary = answer.context_summary
                sources.append("fresh_lookup")
        return ContextInputs(
            paths=tuple(paths.values()),
            matches=matches,
            inherited=inherited.text,
            previous_outputs=previous,
            summary=summary,
            source="+".join(sources) or "none",
        )

    def _inherited(
        self,
        request: SubtaskRequest,
        values: Mapping[str, Any],
        settings: ContextSettings,
        call: CallContext,
        options: TaskOptions,
    ) -> InheritedContext:
        history = request.history_context or ""  # the request's own, whatever it inherits
        if settings.inherit_context == "none":
            return InheritedContext(history)
        parent = call.material or NOTHING_INHERITED
        inherited = InheritedContext(_joined(options.inherited_context, parent.text), parent.paths)
        if settings.inherit_context == "subset":
            request_text = " ".join([request.description, *(text_of(value) for value in values.values())])
            inherited = subset_of(inherited, request_text)
        return InheritedContext(_joined(history, inherited.text), inherited.paths)

    async def _explicit(
        self,
        compiled: CompiledTemplate,
        request: SubtaskRequest,
        values: Mapping[str, Any],
        call: CallContext,
        options: TaskOptions,
    ) -> list[str]:
        template = compiled.template
        paths = list(request.file_paths or ())
        self._check_files(compiled, paths, call)  # the caller's choice
        if not template.file_paths and template.file_paths_source is None:
            return paths
        literal = [text.render(values) for text in compiled.file_paths]
        source = rendered_source(compiled, values)
        if call.grants is not None:
            # A fixed path is the choice of the template's author, one with slots is that of whoever fills them.
            chosen = [path for path, text in zip(literal, compiled.file_paths, strict=True) if text.variables]
            if any([text.variables for _, text in compiled.source]):
                chosen += literal_paths(source)
            self._check_files(compiled, chosen, call)
        resolved = await self.sources.resolve(literal, source=source, memory=options.memory, call=call)
        if resolved.error is not None:
            raise TaskError(
                f"the files of task '{compiled.name}' cannot be found: {resolved.error}",
                reason="context_retrieval_failure",
                code="tasks/context-retrieval",
                details={"errors": resolved.errors, "found": resolved.paths},
            )
        if compiled.grants is not None:
            self._check_files(compiled, resolved.paths, call)
        included = {self._absolute(path) for path in paths}
        return paths + [path for path in resolved.paths if path not in included]

    def _check_files(self, compiled: CompiledTemplate, paths: list[str], call: CallContext) -> None:
        if call.grants is not None and paths:
            files = self.sources.files
            roots = files.roots if files is not None else ()
            check_files(compiled, [self._absolute(path) for path in paths], roots, call)

    def _absolute(self, path: str) -> str:
        try:
            return self.sources.absolute(path)
        except AgentflowError:
            return path  # reading it raises the reason

    async def _fresh(
        self,
        compiled: CompiledTemplate,
        request: SubtaskRequest,
        values: Mapping[str, Any],
        inherited: str,
        previous: str,
        call: CallContext,
        options: TaskOptions,
    ) -> Any:
        lookup = (request.context_management, compiled.template.context_management)
        if (options.memory or self.sources.memory) is None and not any(
            layer is not None and layer.fresh_context == "enabled" for layer in lookup
        ):
            return None  # enabled only by the subtype's default, and there is no memory
        question = question_of(compiled, request, values, inherited, previous)
        return await self.sources.ask(question, call, options.memory)


def _accumulates(compiled: CompiledTemplate, request: SubtaskRequest) -> bool:
    """Whether a task is given what the steps before it gave."""
    for layer in (request.context_management, compiled.template.context_management):
        if layer is not None and layer.accumulate_data is not None:
            return layer.accumulate_data
    return False


def _joined(*texts: str) -> str:
    return "\n\n".join([text for text in texts if text])
