"""AtomicTaskExecutor: runs a template with inputs and a context, and returns a TaskResult.

It looks up nothing itself, neither templates nor context. That is left to the task service, which depends on memory,
while memory's ranking may use this executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import files_read
from agentflow.core.call.run_port import PAID_TEXT
from agentflow.core.data.context import NOTHING_INHERITED, InheritedContext
from agentflow.core.data.errors import ConfigurationError, ProviderError, ResourceExhausted, TaskError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.media import MEDIA_PARTS
from agentflow.core.data.messages import Part, TextPart
from agentflow.core.data.notes import Notes
from agentflow.core.data.results import TaskResult
from agentflow.core.data.shared_list import HELD
from agentflow.core.data.templates import HistoryConfig
from agentflow.core.ports.executor_ports import FilePort
from agentflow.core.ports.ports import Prompt, PromptOutcome, PromptRunner
from agentflow.core.ports.toolbox import NO_TOOLBOX
from agentflow.tasks.functions import FunctionCalls
from agentflow.tasks.inputs import resolve_beside
from agentflow.tasks.library import INTERNAL, builtin
from agentflow.tasks.material import NO_CONTEXT, ContextInputs, PromptMaterial, attached, gather_material
from agentflow.tasks.output import result_of
from agentflow.tasks.registry import CompiledTemplate
from agentflow.tasks.template import CompiledText

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
    """The outcome of an execution: ``result``, ``cost_usd`` (None: unknown) and the rendered ``goal``."""

    result: TaskResult
    cost_usd: float | None = 0.0
    goal: str = ""


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
            system = "" if not text.pieces else await _called(text, compiled, values, functions)
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
        history=compiled.history if settings.history is None else compiled.history_with(settings.history),
        max_turns=template.max_turns,
        max_output_tokens=template.max_output_tokens,
        settings=dict(template.settings),
        timeout_s=template.timeout_s,
        prompt_cache=template.prompt_cache,
        effort=template.effort,
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
