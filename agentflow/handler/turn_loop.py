"""The turn loop: chooses the tools that a prompt offers and the authority of its model's calls, and runs it until there is an answer.

A prompt's messages are kept in one list while it runs. The session gets the whole exchange at the end or nothing, so that
history stays valid for a strict server after any interruption of the prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.work_clock import WorkClock, timed
from agentflow.core.data.errors import UNRECORDED, ConfigurationError, LimitExceeded, clip
from agentflow.core.data.known_names import file_grants
from agentflow.core.data.limits import added
from agentflow.core.data.messages import Message, PromptCache, TextPart, ToolSpec
from agentflow.core.data.provider_errors import CallTimeout
from agentflow.core.data.results import Usage
from agentflow.core.data.session import Session
from agentflow.core.data.templates import STATELESS
from agentflow.core.ports.ports import ModelRouter, Pricing, Prompt, PromptOutcome, ProviderAdapter, ToolPort
from agentflow.core.ports.toolbox import NO_TOOLBOX, RUN_PROGRAM, Toolbox
from agentflow.handler.model_turn import OutputSchemas
from agentflow.handler.prompt_opening import PromptCaching
from agentflow.handler.prompt_run import PromptRun
from agentflow.handler.token_estimate import Calibration
from agentflow.handler.tool_lists import Offer, named_tools, searched, with_chosen
from agentflow.handler.tool_registry import NO_TOOLS
from agentflow.handler.tools import SEARCH_TOOLS

if TYPE_CHECKING:  # few prompts clear anything, or are batched
    from agentflow.handler.batched_model import BatchRoute
    from agentflow.handler.clearing import KeptResults


class OneModel:
    """A ModelRouter for a handler built alone: resolves every name to one adapter.

    Parameters: ``adapter``, ``model`` the name for prompts without one.
    """

    def __init__(self, adapter: ProviderAdapter, model: str | None = None) -> None:
        self.adapter = adapter
        self._model = model

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        name = model or self._model or ""
        return self.adapter, name.partition(":")[2] or name

    def full_name(self, model: str | None) -> str:
        """The name as written."""
        return model or self._model or ""


Fallback = Callable[[Sequence[tuple[ProviderAdapter, str]]], ProviderAdapter]
"""Combines several routes ``(adapter, model name)``, to be tried in order, into one adapter."""


def offered_to(
    prompt: Prompt,
    call: CallContext,
    tools: ToolPort,
    loaded: frozenset[str] = frozenset(),
    model: tuple[ProviderAdapter, str] | None = None,
) -> tuple[tuple[ToolSpec, ...], Toolbox | None]:
    """The specs of the tools that ``prompt`` offers at ``call``, and those of its tools missing from the table ``tools``.

    Deferred tools are left out until they are among ``loaded``, and a tool to search them is offered; they are
    marked instead if the provider of ``model`` searches them itself. A name may be that of a tool or of a task. Raises
    ConfigurationError (``tool/unknown``) for any other name.
    """
    toolbox = cast("Toolbox | None", prompt.toolbox)
    if prompt.tools is None:
        if call.grants is None and (toolbox is None or toolbox is NO_TOOLBOX) and not tools.defers:
            return tools.ordinary(call), toolbox  # nearly all prompts of texts: nothing is looked up
    elif not prompt.tools:
        return (), toolbox
    objects, tasks = named_tools(prompt.tools, toolbox or NO_TOOLBOX, call, tools)
    natively = False
    programs = objects.get(RUN_PROGRAM)
    hidden = programs is not None and programs.code is not None and programs.code.hidden
    if hidden or any([tool.defer_loading for tool in objects.values()]):
        natively = model is not None and model[0].profile(model[1]).searches_tools
        if hidden or not natively:
            objects, toolbox = searched(objects, toolbox or NO_TOOLBOX, loaded, natively)
    specs = tuple([tool.spec_in(call.run) for tool in objects.values()])
    if natively:
        specs = tuple([replace(spec, deferred=objects[spec.name].defer_loading) for spec in specs])
    return specs, (toolbox or NO_TOOLBOX).with_all(tasks) if tasks else toolbox


def called_by_model(
    prompt: Prompt,
    call: CallContext,
    specs: tuple[ToolSpec, ...],
    toolbox: Toolbox | None,
    tools: ToolPort,
    inner: CallContext | None = None,
) -> CallContext:
    """The call that numbers the calls of a prompt's model, with the authority of the offered tools: a new one, or ``inner``, if
    its tools have changed.

    Files may be handed on to subtasks as far as the caller itself may give them.
    """
    if inner is None:
        inner = call.at(call.next_path("Prompt", prompt.model, prompt.system, prompt.parts))
    inner.grants = file_grants(call.grants).union([spec.name for spec in specs]) if specs else NO_TOOLS
    inner.held, inner.asked_by_model, inner.level = inner.grants, True, call.level + 1
    inner.toolbox = toolbox
    if prompt.toolbox is not None:  # of these, texts may call those of the flow
        find = tools.find
        local = [name for name, tool in cast(Toolbox, prompt.toolbox).items() if find(name) is not tool]
        inner.held = inner.grants.difference(local)
    return inner


class TurnLoop:
    """The :class:`~agentflow.core.ports.ports.PromptRunner`.

    Parameters: ``router`` resolves model names, ``tools`` is the registry of tools a model may call, ``base_system``
    precedes every prompt's system text, ``fallback`` combines a prompt's model and its fallbacks, ``pricing`` knows the
    cost of calls, ``rated`` says that calls are limited to a rate of tokens, ``prompt_cache`` is how long providers are asked
    to cache the beginning of prompts that do not say (None: where it pays). Holds no state of a prompt: many may run at
    once.
    """

    def __init__(
        self,
        router: ModelRouter,
        tools: ToolPort,
        *,
        base_system: str = "",
        fallback: Fallback | None = None,
        pricing: Pricing | None = None,
        rated: bool = False,
        prompt_cache: PromptCache | None = None,
    ) -> None:
        self.base_system = base_system
        self._router = router
        self._tools = tools
        self._fallback = fallback
        self._shapes = OutputSchemas()
        self._pricing = pricing
        self._rated = rated
        self._calibration = Calibration()
        self._caching = PromptCaching(prompt_cache)

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Run a prompt in ``call.session``: model calls and tool calls until the model has answered.

        ``prompt.timeout_s`` bounds all of it. An answer other than the required JSON is sent back once, with its mistakes;
        the outcome names the remaining ones. Raises ProviderError (also Refused, CallTimeout, ...), ConfigurationError,
        ResourceExhausted (``context``, ``output``, ``turns``), LimitExceeded, and TaskErrors of tools. The session gets the
        whole exchange or nothing.
        """
        for part in prompt.parts:
            if not isinstance(part, TextPart) or part.text.strip():
                break
        else:
            raise ConfigurationError("the prompt is empty", code="handler/empty-prompt", hint="write a prompt")
        batch = call.run.batches if prompt.batch is None else prompt.batch
        route: BatchRoute | None = None
        if batch:
            from agentflow.handler.batched_model import batch_route

            route = batch_route(self._router, prompt.model, batch, call.run)
        adapter, model = self._route(prompt) if prompt.fallbacks else self._router.resolve(prompt.model)
        rules = prompt.rules
        own = prompt.toolbox
        programs = own is not None and RUN_PROGRAM in own
        chosen = prompt
        if programs or rules.chooser is not None or call.session.tools:
            chosen = await self._chosen(prompt, call)
        specs, toolbox = offered_to(chosen, call, self._tools, model=(adapter, model))
        kept: KeptResults | None = None
        if rules.clear is not None and specs:
            from agentflow.handler.clearing import KeptResults  # which few prompts do

            kept = KeptResults()
            specs, toolbox = kept.offered(specs, toolbox, self._tools.find)
        if prompt.tool_choice not in ("auto", "none"):
            _check_choice(prompt.tool_choice, specs)
        spent: tuple[Usage, float | None] | None = None
        if prompt.history.compact_after_tokens is not None and prompt.history.use_session_history:
            from agentflow.handler.compaction import compact  # which few prompts ask for

            ask = partial(self._shorten, adapter, model, prompt.timeout_s)
            spent = await compact(call.session, prompt.history, ask, model, call)
        if call.level > call.run.limits.subtask_depth:
            raise _too_deep(call)
        inner = called_by_model(chosen, call, specs, toolbox, self._tools)
        offer: Offer | None = None
        if rules.chooser is not None or (toolbox and SEARCH_TOOLS in toolbox):
            offer = partial(self._offer, prompt, call, inner, (adapter, model), kept)
        # the handler's own text, then the prompt's, then those of its tools
        base, own = self.base_system if prompt.base_system else "", prompt.system
        if prompt.toolbox:
            own = "\n\n".join([each for each in (own, *[tool.prompted for tool in prompt.toolbox.values()]) if each])
        system = f"{base}\n\n{own}" if base and own else own or base
        work = self._work(prompt, inner, adapter, model, system, specs, offer, route)
        if kept is not None:
            kept.messages = work.conversation
        try:
            outcome = await (work.run() if prompt.timeout_s is None else _within(prompt.timeout_s, prompt.model, work))
        except BaseException as error:
            if work.shown is not None:
                _keep(work.stopped(error), error, call)
            raise
        if prompt.history.record_in_session_history and outcome.handed is None:
            call.session.commit(outcome.turn)
        return outcome if spent is None else _with(outcome, *spent)

    async def _chosen(self, prompt: Prompt, call: CallContext) -> Prompt:
        """A prompt with the tools that are chosen when it is run, and its tool for programs completed."""
        chosen = await with_chosen(prompt, call, self._tools)
        if chosen.toolbox is None or RUN_PROGRAM not in chosen.toolbox:
            return chosen
        from agentflow.handler.code_mode import with_programs  # which few models write

        return await with_programs(chosen, call, self._tools)

    async def _offer(
        self,
        prompt: Prompt,
        call: CallContext,
        inner: CallContext,
        model: tuple[ProviderAdapter, str],
        kept: KeptResults | None,
        loaded: frozenset[str],
    ) -> tuple[ToolSpec, ...]:
        """The tools of the next turn of a prompt with changing tools; ``inner`` has their authority from now on; ``loaded`` are
        the deferred ones that the model has found."""
        chosen = await self._chosen(prompt, call)
        specs, toolbox = offered_to(chosen, call, self._tools, loaded, model)
        if kept is not None:
            specs, toolbox = kept.offered(specs, toolbox, self._tools.find)
        called_by_model(chosen, call, specs, toolbox, self._tools, inner)
        return specs

    async def _shorten(
        self, adapter: ProviderAdapter, model: str, timeout_s: float | None, system: str, text: str, call: CallContext
    ) -> PromptOutcome:
        """Run a prompt without history or tools, with the model that continues the conversation."""
        prompt = Prompt(parts=(TextPart(text),), history=STATELESS, max_turns=1, timeout_s=timeout_s)
        inner = call.at(call.next_path("Prompt", model, system, prompt.parts))
        inner.grants = NO_TOOLS
        inner.session = Session()
        work = self._work(prompt, inner, adapter, model, system, ())
        return await (work.run() if timeout_s is None else _within(timeout_s, prompt.model, work))

    def _work(
        self,
        prompt: Prompt,
        call: CallContext,
        adapter: ProviderAdapter,
        model: str,
        system: str,
        offered: tuple[ToolSpec, ...],
        offer: Offer | None = None,
        batch: BatchRoute | None = None,
    ) -> PromptRun:
        """The run of a prompt; ``call`` has a path of its own and the authority of the offered tools."""
        return PromptRun(
            prompt,
            call,
            adapter,
            model,
            system=system,
            offered=offered,
            tools=self._tools,
            shape=self._shapes.of(prompt),
            offer=offer,
            calibration=self._calibration,
            caching=self._caching,
            pricing=self._pricing,
            rated=self._rated,
            batch=batch,
        )

    def _route(self, prompt: Prompt) -> tuple[ProviderAdapter, str]:
        first = self._router.resolve(prompt.model)
        if self._fallback is None:
            raise ConfigurationError(
                "the prompt has fallback models, but this turn loop was built without a way to fall back",
                code="handler/no-fallback",
                hint="build it with TurnLoop(..., fallback=FallbackProvider), as AgentFlow does",
            )
        return self._fallback([first, *(self._router.resolve(name) for name in prompt.fallbacks)]), first[1]

    def model_name(self, model: str | None) -> str:
        """``model`` as ``dialect:name``; None for the flow's model. Needs no key."""
        return self._router.full_name(model)

    @property
    def router(self) -> ModelRouter:
        """The model router."""
        return self._router


def _too_deep(call: CallContext) -> LimitExceeded:
    allowed = call.run.limits.subtask_depth
    return LimitExceeded(
        f"a tool asks a model with a tool that asks a model, and so on: {call.level} deep, and {allowed} is allowed",
        limit="subtask_depth",
        code="limits/subtask-depth",
        allowed=allowed,
        used=call.level,
        hint="do not offer a tool to the model that it asks itself, or raise Limits(subtask_depth=...)",
    )


def _with(outcome: PromptOutcome, usage: Usage, cost: float | None) -> PromptOutcome:
    """The outcome of a prompt that cost this much more."""
    return replace(outcome, usage=outcome.usage + usage, cost_usd=added(outcome.cost_usd, cost))


def _keep(exchange: tuple[Message, ...] | None, error: BaseException, call: CallContext) -> None:
    """Keep the exchange of a turn that ``error`` has stopped in the session of its call."""
    if exchange is not None:
        recorded = call.run.journal is None or (isinstance(error, Exception) and not isinstance(error, UNRECORDED))
        call.session.commit_stopped(exchange, recorded=recorded)


async def _within(seconds: float, model: str | None, work: PromptRun) -> PromptOutcome:
    """The outcome of ``work``. Raises CallTimeout when it takes longer than ``seconds``."""
    timer = asyncio.timeout(seconds)
    clock = work.clock or WorkClock(seconds)
    clock.timer = timer
    try:
        with timed(clock):
            async with timer:
                return await work.run()
    except TimeoutError:
        if not timer.expired():
            raise
        raise CallTimeout(
            f"the prompt took longer than its {seconds:g} s",
            model=model,
            code="handler/timeout",
            hint="raise timeout_s, or ask for less",
        ) from None


def _check_choice(choice: str, offered: Sequence[ToolSpec]) -> None:
    if choice == "required" and offered:
        return
    names = [spec.name for spec in offered]
    if choice not in names:
        raise ConfigurationError(
            f"tool_choice is '{clip(choice, 120)}', but {'no tool is' if not names else 'only these tools are'} offered"
            f"{': ' + ', '.join(names) if names else ''}",
            code="handler/tool-choice",
            hint="write auto, none, required or the name of an offered tool",
        )
