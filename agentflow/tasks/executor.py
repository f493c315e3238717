"""AtomicTaskExecutor: a template, its inputs and the context it is *given*, to a TaskResult.

It finds nothing by itself (no templates, no context): that is the task system's, which stands above memory while this
stands below it, so that memory's own ranking may use tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentflow.core.call import CallContext
from agentflow.core.context import NOTHING_INHERITED, InheritedContext
from agentflow.core.errors import ConfigurationError, ProviderError, ResourceExhausted, TaskError
from agentflow.core.messages import TextPart
from agentflow.core.ports import FilePort, Prompt, PromptOutcome, PromptRunner
from agentflow.core.results import TaskResult, complete_result
from agentflow.core.templates import HistoryConfig
from agentflow.tasks.functions import FunctionCalls
from agentflow.tasks.inputs import resolve_inputs
from agentflow.tasks.library import INTERNAL, builtin
from agentflow.tasks.material import NO_CONTEXT, ContextInputs, PromptMaterial, gather_material
from agentflow.tasks.output import format_instructions, result_of
from agentflow.tasks.registry import CompiledTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOverrides:
    """How one execution departs from its template.

    ``model`` and ``fallbacks`` the models chosen (None: the template's); ``history`` the history settings; ``tools`` the
    tool names offered (see Prompt.tools); ``options`` replaces fields of the Prompt (``max_turns``, ``timeout_s``,
    ``settings`` ...); ``prompts`` another turn loop than the executor's; ``notes`` goes into the result's notes.
    """

    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    history: HistoryConfig | None = None
    tools: tuple[str, ...] | None = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompts: PromptRunner | None = None
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Execution:
    """What one execution gave: the ``result``, what it cost (``cost_usd`` None: unknown), the ``goal`` as rendered."""

    result: TaskResult
    cost_usd: float | None = 0.0
    goal: str = ""


class AtomicTaskExecutor:
    """Runs the body of atomic templates.

    Parameters: ``prompts`` the turn loop that talks to models, ``files`` what reads the files a task is given.
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
        given: ContextInputs | None = None,
        settings: ExecutionOverrides | None = None,
        functions: FunctionCalls | None = None,
    ) -> Execution:
        """Render, read, prompt, parse. ``values`` has every declared parameter (see ``resolve_inputs``).

        A ProviderError, ConfigurationError, ResourceExhausted or an error of rendering and reading becomes a FAILED
        result that keeps it; any other TaskError (a tool's), LimitExceeded and cancellation go through.
        """
        settings = settings or ExecutionOverrides()
        functions = functions or self.functions(call)
        execution = Execution(complete_result(""))
        notes = {"template_used": compiled.name, **settings.notes}
        try:
            prepared = await self._prepare(compiled, values, given or NO_CONTEXT, functions, execution, notes)
        except (TaskError, ConfigurationError) as error:
            execution.result = TaskResult.from_error(error, **notes)
            return execution
        if prepared is None:
            return execution
        prompt, material = self._prompt(compiled, prepared, settings, execution.goal)
        if material.skipped:
            call.warn("tasks/skipped-files", "found files were left out of the prompt", files=material.skipped)
        inherited = given.inherited if given else ""
        call.material = (
            InheritedContext(inherited, tuple(material.paths)) if inherited or material.paths else NOTHING_INHERITED
        )
        try:
            outcome = await (settings.prompts or self.prompts).run_prompt(prompt, call)
        except (ProviderError, ConfigurationError, ResourceExhausted) as error:
            execution.result = TaskResult.from_error(error, **notes)
            return execution
        _conclude(execution, outcome, compiled, notes)
        return execution

    async def _prepare(
        self,
        compiled: CompiledTemplate,
        values: Mapping[str, Any],
        given: ContextInputs,
        functions: FunctionCalls,
        execution: Execution,
        notes: dict[str, Any],
    ) -> tuple[str, PromptMaterial] | None:
        """System prompt and material; None when the result is there already, without a model."""
        internal = INTERNAL.get(compiled.name)
        if internal is not None:
            execution.result = internal(values)
            execution.result.notes = {**notes, **execution.result.notes}
            return None
        text = compiled.prompt
        execution.goal = (
            await text.render_with(values, functions.within(compiled)) if text.functions else text.render(values)
        )
        if compiled.template.is_function:
            execution.result = TaskResult(content=execution.goal, notes=notes)
            return None
        if not execution.goal.strip():
            raise TaskError(
                f"task '{compiled.name}' has nothing to ask: its instructions are empty",
                reason="input_validation_failure",
                code="tasks/empty-prompt",
                hint="give the template instructions, or at least a description",
            )
        text = compiled.system
        system = await text.render_with(values, functions.within(compiled)) if text.functions else text.render(values)
        material = await gather_material(self.files, given)
        notes["context_source"] = given.source
        notes["context_files_count"] = len(material.paths)
        if material.paths:
            notes["context_files"] = list(material.paths)
        if material.skipped:
            notes["skipped_files"] = material.skipped
        return system, material

    def _prompt(
        self, compiled: CompiledTemplate, prepared: tuple[str, PromptMaterial], settings: ExecutionOverrides, goal: str
    ) -> tuple[Prompt, PromptMaterial]:
        system, material = prepared
        template, output = compiled.template, compiled.output
        parts = [TextPart(goal), *material.parts]
        asked = format_instructions(output)
        if asked:
            parts.append(TextPart(asked))
        fields: dict[str, Any] = {
            "max_turns": template.max_turns,
            "max_output_tokens": template.max_output_tokens,
            "timeout_s": template.timeout_s,
            "settings": dict(template.settings),
        }
        if settings.options:
            fields.update(settings.options)
            fields["settings"] = {**template.settings, **settings.options.get("settings", {})}
        prompt = Prompt(
            parts=tuple(_separated(parts)),
            system=system,
            model=settings.model or template.model,
            fallbacks=settings.fallbacks or tuple(template.fallbacks),
            tools=settings.tools,
            output_schema=output.schema,
            json_output=output.json,
            output_model=output.model,
            history=settings.history or template.history_config or compiled.history,
            **fields,
        )
        return prompt, material

    def functions(self, call: CallContext, depth: int = 0) -> FunctionCalls:
        """Function calls that know the built-in templates only."""

        async def run(compiled: CompiledTemplate, values: Mapping[str, Any], functions: FunctionCalls) -> TaskResult:
            return (await self.execute(compiled, values, call, functions=functions)).result

        return FunctionCalls(builtin, run, depth=depth)

    async def run_template(self, name: str, inputs: Mapping[str, Any], call: CallContext) -> TaskResult:
        """Run a built-in template by its ``type:subtype``, with no context, no history and no tools.

        What memory's ranker asks the model with. A failure is a FAILED result.
        """
        compiled = builtin(name)
        if compiled is None:
            return TaskResult.failure(
                "input_validation_failure",
                f"there is no built-in template '{name}'",
                details={"cause": "template_not_found"},
            )
        try:
            values, _ = resolve_inputs(compiled.name, compiled.template.params, inputs)
        except TaskError as error:
            return TaskResult.from_error(error)
        return (await self.execute(compiled, values, call)).result


def _separated(parts: list[Any]) -> list[Any]:
    """Text parts with a blank line between them: adapters join the text parts of a message without one."""
    if len(parts) < 2:
        return parts
    made: list[Any] = []
    for index, part in enumerate(parts):
        made.append(TextPart(f"\n\n{part.text}") if index and isinstance(part, TextPart) else part)
    return made


def _conclude(execution: Execution, outcome: PromptOutcome, compiled: CompiledTemplate, notes: dict[str, Any]) -> None:
    if outcome.model:
        notes["model"] = outcome.model
    notes["turns"] = outcome.turns
    execution.result = result_of(outcome, compiled.output, notes)
    execution.cost_usd = outcome.cost_usd
