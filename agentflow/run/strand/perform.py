"""Carries out the effects of programs: checks limits, then calls the port for the effect."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agentflow.core.call.approval import ApprovalRequest, Denied
from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.call.host_threads import on_thread
from agentflow.core.call.provenance import unlabelled
from agentflow.core.call.reading import found_in
from agentflow.core.data.context import CONTEXT_KEYS, ContextGenerationInput
from agentflow.core.data.errors import AgentflowError, SexpEvaluationError, clip
from agentflow.core.data.known_names import ENDORSE, Template, permitted
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.data.values import as_text, name_of, pairs_to_dict
from agentflow.core.events.effects import (
    AskHuman,
    AwaitSignal,
    CallTool,
    CallWorkflow,
    Draw,
    Effect,
    Endorse,
    GetContext,
    HostCall,
    LogMessage,
    Publish,
    Solve,
    Step,
    TaskCall,
    Timer,
)
from agentflow.core.events.events import ContextStarted, Endorsed
from agentflow.core.ports.memory_ports import ContextFinder
from agentflow.core.ports.ports import SolverPort, TemplatePort, ToolPort, WorkflowPort
from agentflow.core.ports.store_ports import Pacer
from agentflow.lang.builtins.registry import wrong_type
from agentflow.lang.trace import span_of_name
from agentflow.lib.redact import Redactor
from agentflow.lib.text.safe_text import escape
from agentflow.lib.text.suggest import did_you_mean
from agentflow.run.strand.procedure_calls import calling_span
from agentflow.run.strand.strand import EffectHandler, FlowNames

_SHOWN = 2_000


async def endorsed(effect: Endorse, call: CallContext) -> list[Any]:
    """Have an endorsement approved, unless the program has the host's own authority, and publish it.

    Raises SexpEvaluationError (``provenance/not-endorsed``) if it is not approved.
    """
    value, reason = effect.arguments
    if not isinstance(reason, str) or not reason.strip():
        wrong_type("endorse", 2, "a reason, as a text,", reason)
    decision = None if call.host_authority else await call.run.approve(_request(effect, value, reason), call)
    if isinstance(decision, Denied):
        why = f" ({decision.why})" if decision.why else ""
        raise SexpEvaluationError(
            f"it was not approved{why} that this value is used as if the user had said it: {clip(reason, 200)}",
            code="provenance/not-endorsed",
            span=call.span,
            hint="do it without values from other sources",
            details={"sources": list(effect.sources), "reason": reason, "why": decision.why},
        )
    call.emit(Endorsed, sources=effect.sources, reason=reason)
    return []


def _request(effect: Endorse, value: Any, reason: str) -> ApprovalRequest:
    text = as_text(value)
    digest = hashlib.blake2b(
        f"{ENDORSE}\n{reason}\n{text}".encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()
    came = ", ".join(effect.sources) or "the user"
    shown = "\n  ".join([escape(f"{ENDORSE} (from {came}): {reason}"), escape(clip(text, _SHOWN))])
    return ApprovalRequest(
        ENDORSE, shown, digest, "the program answers for this value", {"value": value, "reason": reason}
    )


class Paced:
    """An :class:`~agentflow.run.strand.strand.EffectHandler` that waits for ``pacers``, then passes on to ``inner``.

    It is used only if something records, so that other runs need not check.
    """

    __slots__ = ("_inner", "_pacers", "names")

    def __init__(self, inner: EffectHandler, pacers: tuple[Pacer, ...]) -> None:
        self._inner = inner
        self._pacers = pacers
        self.names = inner.names

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out an effect once there is room for its events."""
        for pacer in self._pacers:
            if pacer.congested:
                await pacer.room()
        warn_of_failures(self._pacers, call)
        return await self._inner.perform(effect, call)


def warn_of_failures(pacers: tuple[Pacer, ...], call: CallContext) -> None:
    """Publish a Warning (``record/failed``) for each recorder that has stopped recording the run."""
    for pacer in pacers:
        error = pacer.failure(call.run_id)
        if error is not None:
            call.warn("record/failed", f"the events of this run are no longer recorded: {error}")


_log = logging.getLogger(__name__)
_program_log = logging.getLogger("agentflow.program")


@dataclass(frozen=True)
class EffectRunner:
    """Turns effects into calls of the ports. The state of a run is on the strand and its call, not here.

    ``request_from_arguments`` turns a task call's named arguments into a request; it belongs to the task system.
    ``redactor`` removes secrets from the logs of programs.
    """

    tasks: TemplatePort
    tools: ToolPort
    memory: ContextFinder | None
    request_from_arguments: Callable[[TaskTemplate, dict[str, Any]], SubtaskRequest]
    solver: SolverPort | None = None
    workflows: WorkflowPort | None = None
    redactor: Redactor | None = None
    names: FlowNames = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", FlowNames(self.tasks, self.tools))

    def publish(self, templates: Sequence[Template], call: CallContext) -> list[str]:
        """Register tasks that a program defined with the flow, all or none. Warns of each that replaces a different one."""
        names = [template.name for template in templates]
        before = [self.tasks.find_compiled(name) for name in names]
        self.tasks.publish(templates)
        for old, new in zip(before, templates, strict=True):
            if old is not None and old.fields != new.fields:
                call.warn("task/redefined", f"task '{new.name}' is defined again", name=new.name)
        return names

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out one effect at ``call`` and return its value. Raises the port's error, with the effect's span if the
        error has none.

        The most frequent effects are matched first, and a result is copied only if it has an error to locate.
        """
        span = call.span
        try:
            match effect:
                case TaskCall():
                    result = await self._task(effect, call)
                case CallTool():
                    arguments = effect.arguments
                    if not _SETTINGS.isdisjoint(arguments):
                        arguments = self._with_settings(effect)
                    result = await self.tools.execute(effect.name, arguments, call)
                case HostCall() | Step():
                    return await self._host(effect, call, span)
                case LogMessage():
                    self._say(effect.text, call)
                    return effect.text
                case GetContext():
                    return await self._context(effect, call, span)
                case Timer():
                    await asyncio.sleep(random.uniform(0, effect.seconds) if effect.jitter else effect.seconds)
                    return []
                case AskHuman():
                    call.span = call.span or calling_span(1)
                    return await call.run.ask(effect.question, effect.schema, call)
                case AwaitSignal():
                    return await call.run.signal(effect.name, effect.schema, call)
                case Publish():
                    from agentflow.core.call.run_state import publish  # few runs have a state

                    publish(call, *effect.change)
                    return []
                case Endorse():
                    return await endorsed(effect, call)
                case Draw():
                    return _drawn(effect)
                case Solve():
                    return await self._solve(effect, call, span)
                case CallWorkflow():
                    return await self._workflow(effect, call, span)
            notes = result.notes
            if notes.error is not None or notes.parse_error is not None or notes.failed_parts is not None:
                result = _blamed(result, span)
            if call.steps is not None:
                call.steps.append((effect.name, result, call.grants))
            return result
        except AgentflowError as error:
            error.at(span)
            raise

    def _say(self, text: str, call: CallContext) -> None:
        """Publish a line of a program's log as an event, and to the logger ``agentflow.program``.

        Line breaks are escaped for the logger, so that a program cannot forge log lines.
        """
        call.log(text)
        if _program_log.isEnabledFor(logging.INFO):
            shown = text if self.redactor is None else self.redactor.redact(text)
            _program_log.info("%s", escape(shown), extra={"run_id": call.run_id})

    async def _task(self, effect: TaskCall, call: CallContext) -> TaskResult:
        template = self.tasks.find_compiled(effect.name, call.definitions)
        if template is None or (call.grants is not None and not permitted(template, call.grants)):
            if self.tools.find(effect.name, call) is not None:
                return await self.tools.execute(effect.name, self._with_settings(effect), call)
            return self._no_task(effect.name, call)
        request = self.request_from_arguments(template.template, effect.arguments)
        try:
            return await self.tasks.run(template, request, call)
        except AgentflowError:
            raise
        except Exception as error:  # noqa: BLE001 - the specification's boundary: an unforeseen error is a FAILED result
            _log.warning("task %s failed unexpectedly", effect.name, exc_info=True)
            return TaskResult.from_error(error)

    def _with_settings(self, effect: CallTool | TaskCall) -> dict[str, Any]:
        """The arguments of a tool: a list of pairs becomes a dict, unless the tool declares the parameter as a list."""
        arguments = effect.arguments
        info = self.tools.describe(effect.name)
        converted = dict(arguments)
        for name in _SETTINGS.intersection(arguments):
            parameter = info.parameter(name) if info is not None else None
            if parameter is None or not _takes_array(parameter.schema):
                entries = pairs_to_dict(arguments[name])
                converted[name] = arguments[name] if entries is None else entries
        return converted

    def _no_task(self, name: str, call: CallContext) -> TaskResult:
        defined = call.definitions.tasks() if call.definitions is not None else ()
        return TaskResult.failure(
            "input_validation_failure",
            f"there is no task '{name}'",
            details={
                "cause": "template_not_found",
                "code": "tasks/template-not-found",
                "hint": did_you_mean(name, [*defined, *self.names.known_names()]),
            },
        )

    async def _host(self, effect: HostCall | Step, call: CallContext, span: Span | None) -> Any:
        try:
            with HostCode(call.at(call.path)) as code:
                work = (
                    on_thread(effect.function, *effect.arguments)
                    if type(effect) is HostCall
                    else effect.function(*effect.arguments)
                )
                return unlabelled(await code.to_end(work, effect.name or "code of the host"), call.reading)
        except AgentflowError:
            raise
        except Exception as error:
            name = effect.name or getattr(effect.function, "__name__", "the host function")
            raise SexpEvaluationError(
                f"{name} raised {type(error).__name__}: {error}",
                code="host/raised",
                span=span,
                details={"exception": type(error).__name__},
            ) from error

    async def _context(self, effect: GetContext, call: CallContext, span: Span | None) -> Any:
        request = context_input(effect.arguments, span)
        if self.memory is None:
            raise SexpEvaluationError("this evaluator has no memory system", code="context/no-memory", span=span)
        if call.run.watched:
            await call.run.examine(request.inputs)  # a copy: no event shows values that the strand could have searched
        with call.scope(ContextStarted, input=request) as scope:
            answer = await self.memory.find(request, scope.call)
            scope.set(paths=tuple(answer.file_paths), **found_in(call.reading, answer.file_paths))
            if answer.error is not None:
                raise SexpEvaluationError(f"context lookup failed: {answer.error}", code="context/failed", span=span)
        return list(answer.matches) if effect.items else answer.file_paths

    async def _solve(self, effect: Solve, call: CallContext, span: Span | None) -> TaskResult:
        if self.solver is None:
            raise SexpEvaluationError("this evaluator cannot solve: it has no solver", code="solve/none", span=span)
        return await self.solver.solve(effect, call)

    async def _workflow(self, effect: CallWorkflow, call: CallContext, span: Span | None) -> Any:
        if self.workflows is None:
            raise SexpEvaluationError(
                f"this flow has no saved workflows, so there is no '{effect.name}'",
                code="workflow/none",
                span=span,
                hint="name their directory: AgentFlow(workflows='DIR')",
            )
        return await self.workflows.call_workflow(effect, call)


def _drawn(effect: Draw) -> float | int | str:
    match effect.source:
        case "now":
            return time.time()
        case "uuid":
            return str(uuid.uuid4())
        case "random":
            return random.random() if effect.below is None else random.randrange(effect.below)


def _blamed(result: TaskResult, span: Span | None) -> TaskResult:
    """``result`` with a span in its error: that of the wrong argument, or that of the call."""
    error = result.problem()
    if span is None or not isinstance(error, AgentflowError) or error.span is not None:
        return result
    names: object = error.details.get("arguments")
    error.at(span_of_name(span, cast("list[str]", names)) if isinstance(names, list) else span)
    return replace(result, exception=error) if result.exception is None and not result.notes.failed_parts else result


_SETTINGS = frozenset({"context", "history_config", "inputs"})


def _takes_array(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    choices: list[Mapping[str, Any]] = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return kinds == "array" or (isinstance(kinds, list) and "array" in kinds) or any(map(_takes_array, choices))


def context_input(arguments: dict[str, Any], span: Span | None) -> ContextGenerationInput:
    """The ``(get_context (key value) ...)`` arguments as a question to memory.

    Raises SexpEvaluationError for an unknown key or a value of the wrong kind.
    """
    fields: dict[str, Any] = {}
    for key, argument in arguments.items():
        name = CONTEXT_KEYS.get(key)
        if name is None:
            raise SexpEvaluationError(
                f"get_context knows no key '{key}'",
                code="context/key",
                span=span,
                hint=did_you_mean(key, CONTEXT_KEYS) or f"its keys are {', '.join(sorted(CONTEXT_KEYS))}",
            )
        value = argument
        if name == "inputs":
            value = pairs_to_dict(argument)
            if value is None:
                raise SexpEvaluationError(
                    "get_context: inputs is a dict or a list of (name value) pairs", code="context/value", span=span
                )
        elif name in ("target_files", "kinds") and isinstance(argument, list):
            value = [name_of(item) or item for item in cast(list[Any], argument)]
        elif name_of(argument) is not None:
            value = name_of(argument)
        elif isinstance(argument, TaskResult):
            value = argument.content
        elif name == "previous_outputs" and isinstance(argument, list):
            value = as_text(cast("list[Any]", argument))
        fields[name] = value
    try:
        return ContextGenerationInput.model_validate(fields, strict=True)
    except ValueError as error:
        problems = cast(list[dict[str, Any]], error.errors()) if hasattr(error, "errors") else []  # pyright: ignore
        keys = {CONTEXT_KEYS[key]: key for key in arguments}
        said = "; ".join(f"{'.'.join([keys.get(str(at), str(at)) for at in p['loc']])}: {p['msg']}" for p in problems)
        said = said or str(error)
        raise SexpEvaluationError(f"get_context: {said}", code="context/value", span=span) from error
