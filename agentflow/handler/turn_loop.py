"""The turn loop: runs a prompt by alternating model calls and tool calls until there is an answer.

A prompt's messages are kept in one list while it runs. The session gets the whole exchange at the end or nothing, so
that history stays valid for a strict server whatever interrupts the prompt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from agentflow.core.call import CallContext
from agentflow.core.errors import CallTimeout, ConfigurationError, ProtocolError, Refused, ResourceExhausted, clip
from agentflow.core.messages import Message, ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolSpec, user
from agentflow.core.ports import ModelRouter, Prompt, PromptOutcome, ProviderAdapter, ToolPort
from agentflow.core.results import NO_USAGE
from agentflow.handler.answer import OutputSchema, OutputSchemas, PartialAnswer
from agentflow.handler.conversation import answer_message, opening
from agentflow.handler.limits import ContextGuard
from agentflow.handler.model_turn import model_turn
from agentflow.handler.tool_turn import ToolTurn, check_calls
from agentflow.lib.suggest import did_you_mean

Fallback = Callable[[Sequence[tuple[ProviderAdapter, str]]], ProviderAdapter]
"""Combines several routes ``(adapter, model name)``, to be tried in order, into one adapter."""


class TurnLoop:
    """The :class:`~agentflow.core.ports.PromptRunner`.

    Parameters: ``router`` resolves model names, ``tools`` is the registry of what a model may call, ``base_system``
    precedes every prompt's system text, ``fallback`` combines a prompt's model and its fallbacks. Holds no state of a
    prompt: many may run at once.
    """

    def __init__(
        self, router: ModelRouter, tools: ToolPort, *, base_system: str = "", fallback: Fallback | None = None
    ) -> None:
        self.base_system = base_system
        self._router = router
        self._tools = tools
        self._fallback = fallback
        self._shapes = OutputSchemas()

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Run a prompt in ``call.session``: model calls and tool calls until the model has answered.

        ``prompt.timeout_s`` bounds all of it. An answer that is not the required JSON is sent back once, with what is
        wrong; the outcome says what is still wrong after that. Raises ProviderError (also Refused, CallTimeout, ...),
        ConfigurationError, ResourceExhausted (``context``, ``output``, ``turns``), LimitExceeded, and TaskErrors of
        tools. The session gets the whole exchange or nothing.
        """
        if prompt.timeout_s is None:
            return await self._run(prompt, call)
        timer = asyncio.timeout(prompt.timeout_s)
        try:
            async with timer:
                return await self._run(prompt, call)
        except TimeoutError:
            if not timer.expired():
                raise
            raise CallTimeout(
                f"the prompt took longer than its {prompt.timeout_s:g} s",
                model=prompt.model,
                code="handler/timeout",
                hint="raise timeout_s, or ask for less",
            ) from None

    async def _run(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        if not any([not isinstance(part, TextPart) or part.text.strip() for part in prompt.parts]):
            raise ConfigurationError("the prompt is empty", code="handler/empty-prompt", hint="say what is wanted")
        adapter, model = self._route(prompt)
        offered = self._offered(prompt, call)
        # All calls of this prompt are numbered below its own path, and have the authority of the offered tools.
        path = call.next_path("Prompt", prompt.model, prompt.system, prompt.parts)
        inner = call.at(path, grants=frozenset([spec.name for spec in offered]))
        prompt_run = _PromptRun(self, prompt, inner, adapter, model, offered, self._shapes.of(prompt))
        outcome = await prompt_run.run()
        if prompt.history.record_in_session_history:
            call.session.commit(outcome.turn)
        return outcome

    def _route(self, prompt: Prompt) -> tuple[ProviderAdapter, str]:
        first = self._router.resolve(prompt.model)
        if not prompt.fallbacks:
            return first
        if self._fallback is None:
            raise ConfigurationError(
                "the prompt has fallback models, but this turn loop was built without a way to fall back",
                code="handler/no-fallback",
                hint="build it with TurnLoop(..., fallback=FallbackProvider), as AgentFlow does",
            )
        return self._fallback([first, *(self._router.resolve(name) for name in prompt.fallbacks)]), first[1]

    def _offered(self, prompt: Prompt, call: CallContext) -> tuple[ToolSpec, ...]:
        grants = call.grants
        names = self._tools.names() if prompt.tools is None else prompt.tools
        specs: list[ToolSpec] = []
        for name in names:
            tool = self._tools.find(name)
            if tool is None:
                hint = did_you_mean(name, self._tools.names())
                raise ConfigurationError(
                    f"the prompt offers a tool '{clip(name, 120)}' that is not registered",
                    code="tool/unknown",
                    hint=hint or "register it, or leave it out of the task's tools",
                )
            if tool.builtin and prompt.tools is None:
                continue
            if grants is None or name in grants:
                specs.append(tool.spec)
        _check_choice(prompt.tool_choice, specs)
        return tuple(specs)

    def system(self, prompt: Prompt) -> str:
        """The system prompt: the handler's own, then the prompt's."""
        if self.base_system and prompt.system:
            return f"{self.base_system}\n\n{prompt.system}"
        return prompt.system or self.base_system

    @property
    def router(self) -> ModelRouter:
        """The model router."""
        return self._router

    @property
    def tools(self) -> ToolPort:
        """The tool registry."""
        return self._tools


def _check_choice(choice: str, offered: Sequence[ToolSpec]) -> None:
    if choice in ("auto", "none") or (choice == "required" and offered):
        return
    names = [spec.name for spec in offered]
    if choice not in names:
        raise ConfigurationError(
            f"tool_choice is '{clip(choice, 120)}', but {'no tool is' if not names else 'only these tools are'} offered"
            f"{': ' + ', '.join(names) if names else ''}",
            code="handler/tool-choice",
            hint="write auto, none, required or the name of an offered tool",
        )


class _PromptRun:
    """The state of one running prompt: its messages, usage and cost."""

    __slots__ = (
        "_adapter",
        "_at",
        "_call",
        "_cost",
        "_deadline",
        "_guard",
        "_messages",
        "_model",
        "_model_used",
        "_offered",
        "_prompt",
        "_shape",
        "_system",
        "_tools",
        "_turns",
        "_usage",
    )

    def __init__(
        self,
        loop: TurnLoop,
        prompt: Prompt,
        call: CallContext,
        adapter: ProviderAdapter,
        model: str,
        offered: tuple[ToolSpec, ...],
        shape: OutputSchema | None,
    ) -> None:
        self._prompt = prompt
        self._call = call
        self._adapter = adapter
        self._model = model
        self._model_used = model
        self._offered = offered
        self._shape = shape
        self._system = loop.system(prompt)
        self._tools = ToolTurn(loop.tools, offered, call)
        self._guard = ContextGuard(adapter, adapter.profile(model), call)
        self._messages, self._at = opening(call.session, prompt.history, Message("user", prompt.parts))
        self._usage = NO_USAGE
        self._cost: float | None = 0.0
        self._turns = 0
        self._deadline = time.monotonic() + prompt.timeout_s if prompt.timeout_s is not None else None

    async def run(self) -> PromptOutcome:
        allowed = self._prompt.max_turns if self._prompt.max_turns is not None else self._call.run.limits.turns
        repaired = False
        while True:
            if self._turns >= allowed:
                raise ResourceExhausted(
                    f"the model has had all of its {allowed} turns and has not answered",
                    resource="turns",
                    used=self._turns,
                    limit=allowed,
                    hint="raise max_turns or Limits(turns=...), or split the task",
                )
            response = await self._ask()
            calls = response.tool_calls
            if calls:
                if self._turns >= allowed:
                    continue  # no turn is left in which the model could read the results, so the tools do not run
                results = await self._tools.run(calls)
                self._messages.append(Message("user", results))
            elif response.stop_reason != "pause":
                wrong = self._read(response)
                if wrong.fault is None or repaired or self._turns >= allowed:
                    return self._outcome(response, wrong)
                repaired = True
                self._messages.append(user(wrong.fault))

    async def _ask(self) -> ModelResponse:
        """Make one model call; check and charge the answer and append it to the messages."""
        call, prompt = self._call, self._prompt
        request = ModelRequest(
            messages=tuple(self._messages),
            system=self._system,
            tools=self._offered,
            model=self._model,
            output_schema=self._shape.schema if self._shape is not None else None,
            tool_choice=prompt.tool_choice if self._turns == 0 or prompt.tool_choice == "none" else "auto",
            max_output_tokens=prompt.max_output_tokens,
            settings=prompt.settings,
            stream=call.run.streaming,
            timeout_s=max(0.001, self._deadline - time.monotonic()) if self._deadline is not None else None,
        )
        await self._guard.before(request)
        call.run.charge_model_call()
        self._turns += 1
        partial = PartialAnswer(self._shape) if self._shape is not None and call.run.streaming else None
        response = await model_turn(self._adapter, request, call, self._turns, partial)
        self._usage = response.usage if self._usage is NO_USAGE else self._usage + response.usage
        cost = response.cost_usd
        self._cost = None if cost is None or self._cost is None else self._cost + cost
        self._model_used = response.model or self._model
        call.run.charge_usage(response.usage, cost)
        self._check(response)
        self._take(response)
        self._guard.after(response, self._messages)
        return response

    def _take(self, response: ModelResponse) -> None:
        """Append the answer to the messages; after a pause, extend the last message, since roles must alternate."""
        message = answer_message(response)
        if self._messages[-1].role == "assistant":
            message = Message("assistant", (*self._messages.pop().parts, *message.parts))
        elif response.stop_reason == "pause" and not response.parts:
            return
        self._messages.append(message)

    def _check(self, response: ModelResponse) -> None:
        """Refuse an unusable answer: cut off, refused, or asking for tools without naming them."""
        stop = response.stop_reason
        if stop == "max_tokens":
            used = response.usage.output_tokens
            error = ResourceExhausted(
                "the answer was cut off: the model reached its output limit",
                resource="output",
                used=used,
                limit=self._prompt.max_output_tokens or used,
                hint="raise max_output_tokens, or ask for a shorter answer",
            )
            error.details["partial"] = clip(response.text)
            error.details["request_id"] = response.request_id
            raise error
        if stop == "context_window":
            window = self._adapter.profile(self._model).context_window
            raise ResourceExhausted(
                "the answer was cut off: the model's context window is full",
                resource="context",
                used=response.usage.total_tokens,
                limit=window or response.usage.total_tokens,
                hint="give it less: fewer files, fewer history turns, or split the task",
            )
        if stop == "refusal":
            raise Refused(
                f"the model refused to answer{': ' + clip(response.text, 500) if response.text else ''}",
                request_id=response.request_id,
                partial=response.text,
                provider=response.provider,
                model=response.model,
            )
        if stop == "tool_calls" and not response.tool_calls:
            raise ProtocolError(
                "the model stopped to call tools, but its answer has no tool call",
                request_id=response.request_id,
                partial=response.text,
                provider=response.provider,
                model=response.model,
            )
        check_calls(response)
        self._check_length(response)

    def _check_length(self, response: ModelResponse) -> None:
        limit = self._call.run.limits.string
        size = 0
        for part in response.parts:
            if isinstance(part, TextPart | ThinkingPart):
                size += len(part.text)
        if size > limit:
            raise ResourceExhausted(
                f"the answer has {size:,} characters, at most {limit:,} fit into a string",
                resource="output",
                used=size,
                limit=limit,
                hint="ask for a shorter answer, or raise limits.string",
            )

    def _read(self, response: ModelResponse) -> _ParsedAnswer:
        if self._shape is None:
            return _ParsedAnswer()
        value, parse_error, schema_errors = self._shape.read(response.text)
        if parse_error is not None:
            fault = f"Your answer is not valid JSON: {parse_error}\nAnswer again with the corrected JSON only."
        elif schema_errors:
            listed = "\n".join(f"- {error}" for error in schema_errors)
            fault = f"Your JSON does not meet the schema:\n{listed}\nAnswer again with the corrected JSON only."
        else:
            fault = None
        if fault is not None:
            self._call.warn("handler/bad-output", "the answer is not the JSON asked for", problem=clip(fault, 500))
        return _ParsedAnswer(value, parse_error, schema_errors, fault)

    def _outcome(self, response: ModelResponse, reading: _ParsedAnswer) -> PromptOutcome:
        exchange = self._messages[self._at :]
        exchange[0] = Message("user", self._prompt.parts)
        return PromptOutcome(
            response=response,
            turn=tuple(exchange),
            usage=self._usage if self._tools.usage is NO_USAGE else self._usage + self._tools.usage,
            cost_usd=self._cost,
            turns=self._turns,
            value=reading.value,
            parse_error=reading.parse_error,
            schema_errors=reading.schema_errors,
            model=self._model_used,
        )


class _ParsedAnswer:
    """A parsed answer, and what to tell the model if it is not valid."""

    __slots__ = ("fault", "parse_error", "schema_errors", "value")

    def __init__(
        self,
        value: object = None,
        parse_error: str | None = None,
        schema_errors: tuple[str, ...] = (),
        fault: str | None = None,
    ) -> None:
        self.value = value
        self.parse_error = parse_error
        self.schema_errors = schema_errors
        self.fault = fault
