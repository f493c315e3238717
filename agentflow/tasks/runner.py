"""Runs one atomic task from request to result: finds the template, checks inputs, gathers context, executes it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import HandedOver
from agentflow.core.call.reading import files_read
from agentflow.core.call.run_port import PAID_TEXT
from agentflow.core.data.context import NOTHING_INHERITED, InheritedContext
from agentflow.core.data.durations import reuse_unavailable
from agentflow.core.data.errors import (
    AgentflowError,
    ConfigurationError,
    ProviderError,
    ResourceExhausted,
    TaskError,
    clip,
)
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import narrowed
from agentflow.core.data.media import MEDIA_PARTS
from agentflow.core.data.messages import Part, TextPart
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.result_notes import Notes
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import QUESTION, HistoryConfig
from agentflow.core.data.values import HELD
from agentflow.core.data.walk import LEAVES, LONG_TEXT
from agentflow.core.events.events import TaskStarted
from agentflow.core.events.journal_rows import named_arguments
from agentflow.core.ports.executor_ports import FilePort
from agentflow.core.ports.ports import USUAL_RULES, Prompt, PromptOutcome, PromptRunner
from agentflow.core.ports.store_ports import ReusePort
from agentflow.core.ports.toolbox import NO_TOOLBOX
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.context_rules import ContextSettings, resolve_settings
from agentflow.tasks.context_sources import ContextSources, literal_paths, question_of, rendered_source, subset_of
from agentflow.tasks.library import INTERNAL, builtin
from agentflow.tasks.material import NO_CONTEXT, ContextInputs, PromptMaterial, attached, gather_material
from agentflow.tasks.overrides import TaskOptions, offered_tools, select_model, task_mark
from agentflow.tasks.template import CompiledText, resolve_beside, resolve_inputs, result_of, text_of
from agentflow.tasks.template_functions import FunctionCalls, check_files, settings_within_grants
from agentflow.tasks.template_registry import PARTS, CompiledTemplate, TemplateRegistry, content_of

_MEDIA = frozenset({*MEDIA_PARTS, list, tuple})
"""Types of arguments among which may be images, documents and sound."""


@frozen(kw_only=True)
class ExecutionOverrides:
    """Overrides of a template for one execution.

    ``model`` and ``fallbacks`` the selected models (None: the template's); ``history`` the history settings that the call names; ``tools``
    the offered tools (see Prompt.tools); ``options`` replaces fields of the Prompt (``max_turns``, ``timeout_s``,
    ``settings`` ...); ``prompts`` replaces the executor's turn loop; ``notes`` is added to the result's notes.
    """

    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    history: HistoryConfig | None = None
    tools: tuple[str, ...] | None = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompts: PromptRunner | None = None
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


AS_DECLARED = ExecutionOverrides()
"""The default overrides."""


@frozen
class Execution:
    """The outcome of an execution: ``result``, ``cost_usd`` (None: unknown), the rendered ``goal``, and the conversation if it is
    ``handed`` over to another task."""

    result: TaskResult
    cost_usd: float | None = 0.0
    goal: str = ""
    handed: HandedOver | None = None


class AtomicTaskExecutor:
    """Runs the body of atomic templates.

    Parameters: ``prompts`` the turn loop, ``files`` reads the files of a task.
    """

    def __init__(self, prompts: PromptRunner, files: FilePort | None = None) -> None:
        self.prompts = prompts
        self.files = files

    async def execute(
        self,
        compiled: CompiledTemplate,
        values: Mapping[str, Any],
        call: CallContext,
        *,
        context_inputs: ContextInputs | None = None,
        settings: ExecutionOverrides | None = None,
        functions: FunctionCalls | None = None,
    ) -> Execution:
        """Render the prompt, read the files, run the prompt, parse the answer.

        ``values`` holds every declared parameter (see ``resolve_inputs``). A ProviderError, ConfigurationError,
        ResourceExhausted, or an error in rendering or reading, becomes a FAILED result that keeps the error; any other
        TaskError (a tool's), RunStopped and cancellation pass through.
        """
        settings = settings or AS_DECLARED
        context = context_inputs or NO_CONTEXT
        goal = ""
        try:
            internal = INTERNAL.get(compiled.name)
            if internal is not None:
                result = internal(values)
                return Execution(replace(result, notes=_notes(compiled, settings).merged(result.notes)))
            if functions is None and (compiled.prompt.functions or compiled.system.functions):
                functions = self.functions(call)
            said = compiled.template.prompt_function
            goal = "" if said is None else await said(values, call)
            media: list[Part] = []
            if not _MEDIA.isdisjoint(map(type, values.values())):
                values, media = attached(values)
            text = compiled.prompt
            simple = not text.functions and HELD.isdisjoint(map(type, values.values()))
            if not goal:
                goal = text.render(values) if simple else await _called(text, compiled, values, functions)
            if len(goal) > PAID_TEXT:
                call.run.charge_text(len(goal))
            if compiled.template.is_function:
                return Execution(TaskResult("COMPLETE", goal, notes=_notes(compiled, settings)), goal=goal)
            if not goal.strip():
                raise _nothing_to_ask(compiled)
            text = compiled.system
            told = compiled.template.system_function
            system = await told(call) if told is not None else ""
            if text.pieces:
                system = await _called(text, compiled, values, functions)
            material = await gather_material(self.files, context) if context is not NO_CONTEXT else PromptMaterial()
            if call.reading is not None:
                files_read(call.reading, material.paths)
        except (TaskError, ConfigurationError) as error:
            return Execution(TaskResult.from_error(error, **_notes(compiled, settings)), goal=goal)
        others = _handed_on(context, material, settings, call)
        if media:
            material.parts.extend(media)
        prompt = _prompt(compiled, settings, goal, system, material)
        try:
            outcome = await (settings.prompts or self.prompts).run_prompt(prompt, call)
        except (ProviderError, ConfigurationError, ResourceExhausted) as error:
            sources = {"context_source": context.source, "context_files_count": len(material.paths)}
            notes = _notes(compiled, settings).merged({**others, **sources})
            return Execution(TaskResult.from_error(error, **notes), goal=goal)
        notes = _notes_of(outcome, compiled, context, material, others)
        if outcome.handed is not None:
            handing = TaskResult("COMPLETE", notes=notes, usage=outcome.usage)
            return Execution(handing, outcome.cost_usd, goal, outcome.handed)
        return Execution(result_of(outcome, compiled.output, notes), outcome.cost_usd, goal)

    def functions(self, call: CallContext, depth: int = 0) -> FunctionCalls:
        """Function calls restricted to the built-in templates."""

        async def run(compiled: CompiledTemplate, values: Mapping[str, Any], functions: FunctionCalls) -> TaskResult:
            return (await self.execute(compiled, values, call, functions=functions)).result

        return FunctionCalls(builtin, run, depth=depth)

    async def run_template(self, name: str, inputs: Mapping[str, Any], call: CallContext) -> TaskResult:
        """Run a built-in template by its ``type:subtype``, without context, history or tools.

        Memory's ranker calls its model this way. A failure is a FAILED result.
        """
        compiled = builtin(name)
        if compiled is None:
            return TaskResult.failure(
                "input_validation_failure",
                f"there is no built-in template '{name}'",
                details={"cause": "template_not_found", "code": "tasks/template-not-found"},
            )
        try:
            values, _ = await resolve_beside(compiled.name, compiled.template.params, inputs)
        except TaskError as error:
            return TaskResult.from_error(error)
        return (await self.execute(compiled, values, call)).result


def _handed_on(
    context: ContextInputs, material: PromptMaterial, settings: ExecutionOverrides, call: CallContext
) -> Mapping[str, Any]:
    """Let tasks that start within ``call`` inherit the material of its prompt. Returns the notes that describe it."""
    paths, notes = tuple(material.paths), settings.notes
    call.material = InheritedContext(context.inherited, paths) if context.inherited or paths else NOTHING_INHERITED
    if paths:
        notes = {**notes, "context_files": list(paths)}
    if material.skipped:
        call.warn("tasks/skipped-files", "found files were left out of the prompt", files=material.skipped)
        notes = {**notes, "skipped_files": material.skipped}
    return notes


def _notes(compiled: CompiledTemplate, settings: ExecutionOverrides) -> Notes:
    """The notes of an execution, without its material."""
    return Notes(template_used=compiled.name, context_source="none", context_files_count=0, others=settings.notes)


def _notes_of(
    outcome: PromptOutcome,
    compiled: CompiledTemplate,
    context: ContextInputs,
    material: PromptMaterial,
    others: Mapping[str, Any],
) -> Notes:
    """The notes of an execution that has an answer."""
    return Notes(
        template_used=compiled.name,
        context_source=context.source,
        context_files_count=len(material.paths),
        model=outcome.model or None,
        turns=outcome.turns,
        others=others,
    )


async def _called(
    text: CompiledText, compiled: CompiledTemplate, values: Mapping[str, Any], functions: FunctionCalls | None
) -> str:
    """The text with its slots filled and its functions called."""
    return await text.render_with(values, None if functions is None else functions.within(compiled))


def _nothing_to_ask(compiled: CompiledTemplate) -> TaskError:
    return TaskError(
        f"task '{compiled.name}' has nothing to ask: its instructions are empty",
        reason="input_validation_failure",
        code="tasks/empty-prompt",
        hint="give the template instructions, or at least a description",
    )


def _prompt(
    compiled: CompiledTemplate, settings: ExecutionOverrides, goal: str, system: str, material: PromptMaterial
) -> Prompt:
    template, output = compiled.template, compiled.output
    parts = [TextPart(goal), *material.parts]
    prompt = Prompt(
        parts=tuple(parts if len(parts) < 2 else _separated(parts)),
        system=system,
        model=settings.model or template.model,
        fallbacks=settings.fallbacks or tuple(template.fallbacks),
        tools=settings.tools,
        toolbox=None if compiled.toolbox is NO_TOOLBOX else compiled.toolbox,
        output_schema=output.schema,
        json_output=output.json,
        output_model=output.model,
        schema_text=compiled.format_instructions,
        tool_choice=template.tool_choice,
        rules=template.rules or USUAL_RULES,
        agent="" if compiled.name == QUESTION else compiled.name,
        history=compiled.history if settings.history is None else compiled.history_with(settings.history),
        max_turns=template.max_turns,
        max_output_tokens=template.max_output_tokens,
        settings=dict(template.settings),
        timeout_s=template.timeout_s,
        prompt_cache=template.prompt_cache,
        effort=template.effort,
        batch=template.batch,
        provider_tools=tuple(template.provider_tools),
    )
    options = settings.options
    if not options:
        return prompt
    return replace(prompt, **{**options, "settings": {**template.settings, **options.get("settings", {})}})


def _separated(parts: list[Any]) -> list[Any]:
    """Put a blank line between text parts, because adapters join them without one."""
    separated: list[Any] = []
    for index, part in enumerate(parts):
        separated.append(TextPart(f"\n\n{part.text}") if index and isinstance(part, TextPart) else part)
    return separated


@frozen
class TaskRunner:
    """Runs compiled templates. Holds no state of a call.

    ``decompose`` applies to templates without their own; ``reuse`` keeps the results of those declared with it.
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
            hint = "name the task, or write a prompt in words of its description"
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
                **dict(zip(PARTS, self.content(compiled, request, step, options), strict=False)),
            },
            step,
            work,
            gives=compiled,
        )

    async def _reused(
        self, compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext, options: TaskOptions
    ) -> TaskResult:
        """The result of an equal task if recent enough, else of this one. The content of the files it names counts."""
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
        """The identity of a task at ``call``, except its arguments; see :mod:`agentflow.tasks.template_registry`."""
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
            if execution.handed is not None:
                execution = await self._handed_over(compiled, request, execution, inner, options)
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

    async def _handed_over(
        self,
        first: CompiledTemplate,
        request: SubtaskRequest,
        execution: Execution,
        call: CallContext,
        options: TaskOptions,
    ) -> Execution:
        """The execution of the last of the tasks that hand a conversation over, with the cost of all. Each takes part in the
        conversation as the ``first`` does for its ``request``."""
        from agentflow.tasks.handoffs import handed_over, receiver, with_cost  # few tasks hand over

        history = {"history": first.history_with(request.history_config), **options.prompt}
        options = replace(options, prompt=history)
        giver = first
        while execution.handed is not None:
            handed = execution.handed
            named = self.registry.find(handed.handoff.name, call.definitions)
            try:
                giver = receiver(giver, handed.handoff, call, named)
                following = await handed_over(first, giver, handed, call, options, self._execute)
            except (TaskError, ConfigurationError) as error:
                following = Execution(TaskResult.from_error(error, template_used=handed.handoff.name))
            execution = with_cost(following, execution)
        return execution

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
            quick = LEAVES.issuperset(map(type, inputs.values()))  # most: awaiting costs more than the check
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
        history = request.history_context or ""  # the request's own, also where it inherits one
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
            # A fixed path is the choice of the template's author, one with slots is that of the caller who fills them.
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
            return None  # enabled only by the subtype's default, without a memory
        question = question_of(compiled, request, values, inherited, previous)
        return await self.sources.ask(question, call, options.memory)


def _accumulates(compiled: CompiledTemplate, request: SubtaskRequest) -> bool:
    """Whether a task is passed the results of the steps before it."""
    for layer in (request.context_management, compiled.template.context_management):
        if layer is not None and layer.accumulate_data is not None:
            return layer.accumulate_data
    return False


def _joined(*texts: str) -> str:
    return "\n\n".join([text for text in texts if text])
