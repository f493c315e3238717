"""Runs one prompt: model calls and tool calls in turn until there is an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

from agentflow.core.call.call import CallContext, JournalPort
from agentflow.core.call.endings import HandedOver, Handoff, Retry, called_by_host
from agentflow.core.call.reading import files_read
from agentflow.core.call.run_port import PAID_TEXT
from agentflow.core.call.work_clock import WorkClock
from agentflow.core.data.errors import LimitExceeded, ResourceExhausted, clip
from agentflow.core.data.limits import added
from agentflow.core.data.message_json import read_message, read_response
from agentflow.core.data.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    OtherPart,
    Part,
    PromptCache,
    TextPart,
    ToolCallPart,
    ToolSpec,
    Usage,
    user,
)
from agentflow.core.data.requests import turns_without_tools
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.values import is_long, plain
from agentflow.core.events.events import TextRead
from agentflow.core.ports.ports import AnswerCheck, Pricing, Prompt, PromptOutcome, ProviderAdapter, ToolPort
from agentflow.core.ports.toolbox import Toolbox
from agentflow.handler.model_turn import (
    ContextGuard,
    OutputSchema,
    TurnProgress,
    answered,
    checked_calls,
    model_turn,
    without_calls,
)
from agentflow.handler.prompt_answers import (
    AS_TEXT,
    ParsedAnswer,
    answer_of_host,
    read_answer,
)
from agentflow.handler.prompt_bill import PromptBill
from agentflow.handler.prompt_opening import (
    CacheWatch,
    PromptCaching,
    conversation_key,
    following,
    opening,
    opening_of_handoff,
    opening_sources,
)
from agentflow.handler.token_estimate import Calibration
from agentflow.handler.tool_lists import Offer, found_in, in_order
from agentflow.handler.tool_registry import ToolTurn

if TYPE_CHECKING:  # few runs have an inbox, few prompts clear anything
    from agentflow.core.call.inbox import SaidText
    from agentflow.handler.batched_model import BatchRoute
    from agentflow.handler.clearing import Clearing
    from agentflow.handler.wrapping_up import WrapUp


NO_ANSWER = "(no answer in words)"
"""Stored in history for an answer without text: providers refuse an empty message."""


def answer_message(response: ModelResponse) -> Message:
    """The answer as stored in history: verbatim, but with a stand-in where a strict server would refuse empty text."""
    if len(response.parts) == 1 and type(only := response.parts[0]) is TextPart and only.text.strip():
        return Message("assistant", response.parts)  # the case of nearly every last answer
    parts: list[Part] = []
    says = False
    for part in response.parts:
        if isinstance(part, TextPart) and not part.text.strip():
            continue
        parts.append(part)
        says = says or isinstance(part, TextPart | ToolCallPart | OtherPart)
    if not says:
        parts.append(TextPart(NO_ANSWER))
    return Message("assistant", tuple(parts))


class PromptRun:
    """The state of a running prompt. Its messages are kept here until it has ended.

    Parameters: ``call`` has a path of its own and is granted exactly the ``offered`` tools; ``model`` is the adapter's
    name for it; ``system`` is the whole system text; ``shape`` is the form the answer must have;
    ``offer`` chooses the tools of each later turn (None: they stay);
    ``calibration`` and ``caching`` are shared by the prompts of a turn loop; ``pricing`` knows the cost of calls;
    ``rated`` says that adapters need the length of requests; ``batch`` says where its calls are batched, if they are. ``clock`` is the prompt's time, if limited.
    """

    __slots__ = (
        "_adapter",
        "_allowed",
        "_around",
        "_at",
        "_batch",
        "_bill",
        "_cache_key",
        "_call",
        "_calls_tools",
        "_clearing",
        "_guard",
        "_heard",
        "_may_call",
        "_messages",
        "_model",
        "_model_used",
        "_offer",
        "_offered",
        "_prompt",
        "_prompt_cache",
        "_said",
        "_said_first",
        "_said_late",
        "_shape",
        "_system",
        "_tools",
        "_turns",
        "_turns_left",
        "_watch",
        "_wrap_up",
        "clock",
        "shown",
    )

    def __init__(
        self,
        prompt: Prompt,
        call: CallContext,
        adapter: ProviderAdapter,
        model: str,
        *,
        system: str,
        offered: tuple[ToolSpec, ...],
        tools: ToolPort,
        shape: OutputSchema | None,
        offer: Offer | None = None,
        calibration: Calibration,
        caching: PromptCaching,
        pricing: Pricing | None = None,
        rated: bool = False,
        batch: BatchRoute | None = None,
    ) -> None:
        self._batch = batch
        self._prompt = prompt
        self._call = call
        own = cast("Toolbox | None", prompt.toolbox)
        self._around = call.run.around_model if own is None else (*call.run.around_model, *own.around_model)
        self._adapter = adapter
        self._model = model
        self._model_used = model
        self._system = system
        self._offered = offered
        self._shape = shape
        self._tools = ToolTurn(tools, call)
        self._calls_tools = bool(offered or prompt.provider_tools or offer)
        self._offer = offer
        profile = adapter.profile(model)
        if shape is not None and profile.object_output:
            self._shape = shape.as_object()
        window = profile.context_window
        self.clock = WorkClock(prompt.timeout_s) if prompt.timeout_s is not None else None
        self.shown: list[str] | None = (
            [] if call.session.keep_partial and prompt.history.record_in_session_history else None
        )
        self._bill = bill = PromptBill(
            call,
            adapter,
            model,
            profile,
            calibration=calibration,
            pricing=pricing,
            rated=rated,
            clock=self.clock,
            shown=self.shown,
        )
        self._guard: ContextGuard | None = None
        if window is not None and bill.estimator is not None:
            self._guard = ContextGuard(adapter, profile, window, bill.estimator, call)
        parts = prompt.parts
        has_field = profile.native_json_schema and shape is not None and shape.schema is not None
        if prompt.schema_text and not has_field:
            parts = (*parts, TextPart(prompt.schema_text))
        if prompt.handed is None:
            begun = opening(call.session, prompt.history, Message("user", parts))
        else:
            begun = opening_of_handoff(prompt.handed.messages, parts)
        self._messages, self._at = begun.messages, begun.at
        if call.reading is not None:
            call.reading.add(opening_sources(call.session, prompt.history))
            if call.session.data_context is not None:
                files_read(call.reading, [item.path for item in call.session.data_context.items])
            call.reading.add(frozenset([f"tool:{tool.get('type')}" for tool in prompt.provider_tools or ()]))
        if bill.estimator is not None:
            bill.estimator.before = (begun.at, begun.size)
        self._clearing: Clearing | None = None
        if prompt.rules.clear is not None:
            from agentflow.handler.clearing import Clearing  # which few prompts do

            self._clearing = Clearing(
                prompt.rules.clear, lambda name: tools.find(name, call), calibration, bill.estimator
            )
        self._prompt_cache: PromptCache | None
        self._prompt_cache, self._cache_key = caching.plan(
            prompt.prompt_cache, call.session, model, system, self._messages, tools=self._calls_tools
        )
        self._watch: CacheWatch | None = None
        if self._prompt_cache is not False:
            history, conversation = prompt.history, ""
            if call.run.watched and history.use_session_history and history.record_in_session_history:
                conversation = f"{prompt.agent} {conversation_key(call.session, model)}"
            if conversation or self._calls_tools:
                self._watch = CacheWatch(caching, conversation, repeats=self._calls_tools)
        if prompt.effort is not None and not profile.takes_effort:
            ignored = f"the model {model} is not known to take an effort: it is asked without '{prompt.effort}'"
            call.warn("handler/effort", ignored, model=model)
        self._wrap_up: WrapUp | None = None
        self._may_call = self._calls_tools
        """Whether the model may call tools in this turn."""
        self._turns_left = 0
        self._turns = 0
        self._said = ""
        self._allowed = 0
        self._heard: list[SaidText] = []
        self._said_first: tuple[TextPart, ...] = ()
        self._said_late: Sequence[str] = ()

    async def run(self) -> PromptOutcome:
        """Run the prompt and return its outcome. Raises the errors of
        :meth:`agentflow.core.ports.ports.PromptRunner.run_prompt`."""
        run, rules = self._call.run, self._prompt.rules
        allowed = self._prompt.max_turns if self._prompt.max_turns is not None else run.limits.turns
        before = 0
        if self._prompt.handed is not None:  # the tasks of a conversation share the run's turns, so that handoffs end
            before = self._prompt.handed.turns
            allowed = min(allowed, run.limits.turns - before)
        most = allowed
        if not self._calls_tools:
            checked = self._shape is not None or rules.check is not None
            allowed = min(allowed, turns_without_tools(checked, rules.rounds))
        self._allowed = most
        repairs = 0
        if self._calls_tools and run.wraps_up and allowed > 1:
            from agentflow.handler.wrapping_up import WrapUp  # few runs keep a turn

            self._wrap_up = WrapUp(self._call)
        try:
            while True:
                if self._turns >= allowed:
                    raise ResourceExhausted(
                        f"the model has used all of its {allowed + before} turns without an answer",
                        resource="turns",
                        used=self._turns + before,
                        limit=allowed + before,
                        hint="raise max_turns or Limits(turns=...), or split the task",
                    )
                if self._offer is not None:
                    loaded = found_in(self._messages)
                    if self._turns or loaded:
                        self._offered = in_order(self._offered, await self._offer(loaded))
                if run.shared.inbox is not None and run.journal is None:
                    await self._hear([each.text for each in self._unread()])
                self._turns_left = allowed - self._turns
                request = self._request()
                if run.journal is None and self._wrap_up is not None:
                    request = self._last_request(request, self._wrap_up)
                if run.journal is None and not self._around:
                    response = await self._ask(request, self._call)
                    calls = self._take(request, response)
                elif run.journal is None:
                    response = await self._wrapped(request, self._call.start(self._call.span, "ModelStarted"))
                    calls = self._take(request, response, charged=True)
                else:
                    response, calls = await self._ask_once(request, run.journal)
                self._heard.clear()
                if calls:
                    if self._turns >= allowed and not self._tools.may_end(calls):
                        continue  # no turn is left for the model to read the results, so the tools do not run
                    results = await self._tools.run(calls)
                    self._messages.append(Message("user", results))
                    if run.journal is not None:
                        await self._note(plain(results))
                    if self._tools.ending is not None:
                        handoff = self._tools.ending.handoff
                        if handoff is not None:
                            return await self._handed_over(response, handoff)
                        return self._finished(response, self._tools.ending.data["finish"])
                elif response.stop_reason != "pause":
                    answer = AS_TEXT if self._shape is None else await read_answer(response, self._shape, self._call)
                    if rules.check is not None and answer.fault is None and response.stop_reason == "end":
                        answer = await self._judged(response, answer, rules.check)
                    if answer.fault is None and run.shared.inbox is not None and run.journal is None:
                        self._said_late = self._unread_after(response)
                    if self._said_late:
                        allowed = min(most, allowed + 1)
                    elif answer.fault is None or repairs >= rules.rounds or self._turns >= allowed:
                        return self._outcome(response, answer)
                    if answer.fault is not None:
                        repairs += 1
                        self._messages.append(user(answer.fault))
                    await self._hear(self._said_late)
                    self._said_late = ()
        finally:
            if self._heard and self.shown is None:
                self._put_back()
            bill = self._bill
            if bill.asked is not None or bill.reserving is not None:
                bill.close()

    def stopped(self, error: BaseException) -> tuple[Message, ...] | None:
        """The exchange of the prompt at the moment that ``error`` stops it; None for a failure before the model has said anything."""
        from agentflow.handler.stopped_turn import ended_early  # few turns are stopped

        text = "".join(self.shown or ())
        said = bool(text.strip()) or len(self._messages) > self._at + 1
        if self._call.run.journal is not None or (isinstance(error, Exception) and not said):
            self._put_back()
        if isinstance(error, Exception) and not said:
            return None
        exchange = ended_early(self._exchange(), text, self._tools.finished)
        return (*exchange[:-1], self._signed(exchange[-1]))

    def _put_back(self) -> None:
        """Make the texts that no answered model call has read unread again, unless they are kept with the turn."""
        if self._heard and self._call.run.shared.inbox is not None:
            self._call.run.shared.inbox.put_back(self._heard)

    def conversation(self) -> Sequence[Message]:
        """The messages of the prompt so far, whole."""
        return self._messages

    def _unread(self) -> list[SaidText]:
        """The messages to the run that are for the next model call of this prompt."""
        inbox, call = self._call.run.shared.inbox, self._call
        if call.reading is not None and call.reading.guard.in_arm:
            return []
        assert inbox is not None
        texts = inbox.texts_for(self._prompt.agent, tool_loop=self._calls_tools and call.level == 1)
        if texts:
            self._heard += texts
            call.emit(TextRead, keys=tuple([each.key for each in texts]), turn=self._turns + 1)
        return texts

    def _unread_after(self, response: ModelResponse) -> list[str]:
        """The texts that came before an answer that would be the last, if another turn is left."""
        if self._turns >= self._allowed or response.stop_reason != "end":
            return []
        return [each.text for each in self._unread()]

    async def _hear(self, texts: Sequence[str]) -> None:
        """Add texts said to the run to the conversation, as the user's."""
        if not texts:
            return
        messages, parts = self._messages, tuple([TextPart(each) for each in texts])
        if messages[-1].role != "user":
            messages.append(Message("user", parts[:1]))
            parts = parts[1:]
        elif len(messages) - 1 == self._at:
            self._said_first += parts
        messages[-1] = replace(messages[-1], parts=_with_texts(messages[-1].parts, parts))
        if self._call.run.journal is not None:
            await self._note(list(texts))

    def _prompt_parts(self) -> tuple[Part, ...]:
        """The parts of the prompt as the conversation keeps them, with the texts said before its first model call."""
        return _with_texts(self._prompt.parts, self._said_first)

    async def _wrapped(self, request: ModelRequest, call: CallContext) -> ModelResponse:
        """The answer of the middleware around a turn's model call. Its cost is charged."""
        from agentflow.handler.around_model import WrappedModel  # which few flows have

        turn = self._turns
        response = await WrappedModel(self._around, request, call, turn + 1, self._shape, self).answer()
        self._turns = turn + 1
        return response

    async def paid(
        self, request: ModelRequest, call: CallContext, progress: TurnProgress
    ) -> tuple[ModelResponse, Usage, float | None]:
        """Make a model call for middleware, and charge it. Returns the answer, its usage and its cost, with those of attempts that gave none."""
        bill = self._bill
        lost = len(bill.lost)
        try:
            response = await self._ask(request, call, progress)
            usage, cost = response.usage, bill.cost_of(response)
            bill.charge(response, usage, cost)
        finally:
            bill.due = False
            bill.free()
        for tokens, price in bill.lost[lost:]:
            usage, cost = usage + tokens, added(cost, price)
        return response, usage, cost

    def cost_of(self, response: ModelResponse) -> float | None:
        """The cost of an answer in US dollars, for middleware."""
        return self._bill.cost_of(response)

    async def _ask(
        self, request: ModelRequest, call: CallContext, progress: TurnProgress | None = None
    ) -> ModelResponse:
        tokens, bill = 0, self._bill
        if bill.estimator is not None:
            tokens = bill.estimator.input_tokens(request)
            if self._guard is not None:
                await self._guard.before(request, tokens)
        run, waits, asked = call.run, call.run.waits_at_limits, request
        adapter = self._adapter
        if self._batch is not None and run.journal is not None:
            from agentflow.handler.batched_model import BatchedModel  # few tasks ask for it

            content = {"the model": self._model, "the turn": self._turns + 1, "the conversation": self._said}
            adapter = BatchedModel(adapter, self._batch, call, run.journal, content, bill)
            if bill.reserving is not None:
                bill.reserving.in_batch = True
        while True:
            try:
                if bill.reserving is not None:
                    request = await bill.reserving.reserve(asked, tokens, call, exact=waits, put_by=bill.put_by)
                elif bill.rated:
                    request = replace(asked, input_tokens=tokens)
                run.charge_model_call()
                break
            except LimitExceeded as error:  # at a limit that may be raised the call waits; it is sent whole then
                if not waits:
                    raise
                bill.free()
                await run.beyond(error, call)
        self._turns += 1
        cleared = self._clearing is not None and self._clearing.announce(call)
        watch = self._watch
        if watch is not None:
            watch.before(request, call, first=self._turns == 1, cleared=cleared)
        if run.watched:
            bill.sends(request)
        if progress is None:
            response = await model_turn(adapter, request, call, self._turns, self._shape, bill)
        else:
            response = await answered(adapter, request, progress, bill)
        if watch is not None:
            watch.after(request, response, call, fallbacks=bool(self._prompt.fallbacks))
        if self._may_call or ToolCallPart not in map(type, response.parts):
            return response
        return without_calls(response, call, checked=self._shape is not None)

    async def _ask_once(
        self, request: ModelRequest, journal: JournalPort
    ) -> tuple[ModelResponse, tuple[ToolCallPart, ...]]:
        """The next answer in a durable run with its tool calls, from its record if there is one.

        The first record has the messages that the prompt began with, so that files changed meanwhile cannot contradict
        the recorded turns. The last answer has no record here: it is recorded with the result of the task.
        """
        call = self._call.start(self._call.span, "ModelStarted")
        content = {"the model": self._model, "the turn": self._turns + 1, "the conversation": self._said}
        record = await journal.recall("model", self._model, content, call)
        if record is not None:
            self._turns += 1
            if "opening" in record:
                self._system = record["system"]
                self._messages = [read_message(each) for each in record["opening"]]
                if self._bill.estimator is not None:
                    self._bill.estimator.before = (0, 0)
                self._at = record["at"]
                if call.reading is not None:
                    call.reading.add(frozenset(record.get("sources", ())))
            await self._hear(record.get("said", ()))
            if self._wrap_up is not None and "wrap_up" in record:
                self._wrap_up.notice = record["wrap_up"]
                self._notice(record["wrap_up"])
            for tokens, cost in record.get("lost", ()):
                self._bill.count(Usage(**tokens), cost)
            self._said_late = record.get("said_late", ())
            await self._note(record["response"])
            response = read_response(record["response"])
            return response, self._take(request, response, charged=True)
        opening = list(self._messages)
        said = await self._said_before()
        if said:
            request = self._request()
        bill = self._bill
        bill.lost.clear()
        before = request
        if self._wrap_up is not None:
            request = self._last_request(request, self._wrap_up)
        if self._around:
            response = await self._wrapped(request, call)
        else:
            response = await self._ask(replace(request, idempotency_key=call.idempotency_key), call)
        goes_on = await self._goes_on(response)
        if not goes_on or (self._prompt.rules.check is not None and not response.tool_calls):
            self._said_late = await self._said_meanwhile(response)
        if goes_on or said or self._said_late:
            record = {"response": plain(response)}
            if request is not before and self._wrap_up is not None:
                record["wrap_up"] = self._wrap_up.notice
            if said:
                record["said"] = said
            if self._said_late:
                record["said_late"] = self._said_late
            usage, cost = response.usage, bill.cost_of(response)
            for lost, lost_cost in bill.lost:
                usage, cost = usage + lost, added(cost, lost_cost)
            if self._around:
                usage, cost = NO_USAGE, 0.0  # its model calls have records of their own
            if bill.lost:
                record["lost"] = [[plain(each), price] for each, price in bill.lost]
            if self._turns == 1:
                record |= {"system": self._system, "opening": plain(opening), "at": self._at}
                if call.reading is not None:
                    record["sources"] = sorted(call.reading.sources)
            read = tuple(self._heard)
            self._heard.clear()  # read from now on, or unread again by the journal
            kept = await journal.keep("model", self._model, content, record, call, usage, cost, read)
            await self._note(kept["response"])
            response = read_response(kept["response"])
        return response, self._take(request, response, charged=bool(self._around))

    async def _said_before(self) -> list[str]:
        """The texts for the next model call of a durable run, added to the conversation."""
        if not await self._looked():
            return []
        texts = [each.text for each in self._unread()]
        await self._hear(texts)
        return texts

    async def _looked(self) -> bool:
        """Whether a durable run has an inbox, in which a loop with tools has looked for messages of other processes."""
        call = self._call
        if not self._calls_tools or call.level != 1 or call.run.journal is None:
            return call.run.shared.inbox is not None
        return await call.run.journal.inbox() is not None

    async def _said_meanwhile(self, response: ModelResponse) -> list[str]:
        """The texts that came before the last answer of a prompt in a durable run, to which one more turn replies."""
        return self._unread_after(response) if await self._looked() else []

    async def _note(self, data: object) -> None:
        """Add to the digest, kept by records of later turns, of everything said since the opening."""
        said = self._said
        self._said = await asyncio.to_thread(_digest, said, data) if is_long(data) else _digest(said, data)

    async def _goes_on(self, response: ModelResponse) -> bool:
        """Whether another model call follows this answer."""
        if response.tool_calls or response.stop_reason == "pause" or self._prompt.rules.check is not None:
            return True  # with a check each answer is recorded before it is judged
        shape = self._shape
        return response.stop_reason == "end" and shape is not None and any((await shape.read_aside(response.text))[1:])

    def _last_request(self, request: ModelRequest, wrap_up: WrapUp) -> ModelRequest:
        """The request of a turn, or in its place that of the last turn that the limits allow."""
        if not wrap_up.begins(self._turns_left):
            return request
        self._notice(wrap_up.notice or "")
        return self._request()

    def _notice(self, notice: str) -> None:
        from agentflow.handler.wrapping_up import noticed  # few runs keep a turn

        noticed(self._messages, notice)
        self._may_call = False

    def _request(self) -> ModelRequest:
        prompt = self._prompt
        choice = prompt.tool_choice
        if self._calls_tools and not self._may_call:
            choice = "none"  # the tools stay declared, which vendors require after calls of them
        elif self._turns and not prompt.rules.choice_lasts and choice != "none":
            choice = "auto"
        return ModelRequest(
            messages=tuple(self._messages)
            if self._clearing is None
            else self._clearing.sent(self._messages, self._system, self._offered),
            system=self._system,
            tools=self._offered,
            model=self._model,
            output_schema=self._shape.requested if self._shape is not None else None,
            tool_choice=choice,
            max_output_tokens=prompt.max_output_tokens,
            settings=prompt.settings,
            stream=self._call.run.streaming,
            timeout_s=None if self.clock is None else self.clock.left,
            priority=self._call.priority,
            prompt_cache=self._prompt_cache,
            cache_key=self._cache_key,
            effort=prompt.effort,
            provider_tools=prompt.provider_tools,
        )

    def _take(
        self, request: ModelRequest, response: ModelResponse, *, charged: bool = False
    ) -> tuple[ToolCallPart, ...]:
        """Charge an answer and append it to the messages. Returns its tool calls; raises if the answer is unusable.

        ``charged``: it was charged when it was recorded. An answer after a pause extends the last message, since roles must
        alternate.
        """
        bill = self._bill
        usage, cost = response.usage, bill.cost_of(response)
        bill.due = False
        if self.shown is not None:
            self.shown.clear()
        bill.count(usage, cost)
        if self._wrap_up is not None:
            self._wrap_up.took(usage, cost)
        self._model_used = response.model or self._model
        run = self._call.run
        if not charged:
            if bill.reserving is None:  # most runs: there is nothing to give back
                run.charge_usage(usage, cost, bill.put_by)
            else:
                bill.charge(response, usage, cost)
        if len(text := response.text) > PAID_TEXT:
            run.charge_text(len(text))
        calls = checked_calls(response, request, self._adapter, run.limits.string)
        messages = self._messages
        message = answer_message(response)
        if messages[-1].role == "assistant":
            messages[-1] = Message("assistant", (*messages[-1].parts, *message.parts))
        elif response.parts or response.stop_reason != "pause":
            messages.append(message)
        if bill.estimator is not None:
            bill.estimator.learn(response, messages)
            if self._guard is not None:
                self._guard.after(response)
        return calls

    async def _judged(self, response: ModelResponse, answer: ParsedAnswer, check: AnswerCheck) -> ParsedAnswer:
        """An answer of the right form as the prompt's check has it: accepted, changed, or refused."""
        text = response.text if answer.text is None else answer.text
        try:
            changed = await check(text, answer.value, self._call.at(self._call.marked_path("check", text)))
        except Retry as retry:
            self._call.warn(
                "handler/answer-refused", "the check did not accept the answer", problem=clip(retry.why, 500)
            )
            return replace(answer, fault=retry.why, refused=retry.why)
        return answer if changed is None else answer_of_host(changed[0], "the check of the prompt gave", self._shape)

    async def _handed_over(self, response: ModelResponse, handoff: Handoff) -> PromptOutcome:
        """The outcome of a prompt after its model, or a tool of it, has handed the conversation over."""
        before, keep = self._prompt.handed, handoff.keep
        kept: Any = tuple(self._messages) if keep == "all" else ()
        if callable(keep):
            inner = self._call.at(self._call.marked_path("keep"))
            kept = tuple(await called_by_host(keep, (tuple(self._messages),), inner, "the keep function of a handoff"))
        exchange = tuple(self._exchange())
        turns = self._turns + (0 if before is None else before.turns)
        handed = HandedOver(handoff, kept, exchange, turns)
        return replace(self._outcome(response, AS_TEXT), handed=handed, turn=exchange)

    def _exchange(self) -> list[Message]:
        """The messages of the exchange so far, those of the tasks that handed it over included."""
        own = self._messages[self._at :]
        own[0] = Message("user", self._prompt_parts())
        handed = self._prompt.handed
        if handed is None:
            return own
        first = Message("user", following(handed.exchange[-1].parts, self._prompt_parts()))
        return [*handed.exchange[:-1], first, *own[1:]]

    def _finished(self, response: ModelResponse, value: object) -> PromptOutcome:
        """The outcome of a prompt that a tool ended with ``value``: the model has said so in the exchange."""
        answer = answer_of_host(value, "a tool ended the task with", self._shape)
        self._messages.append(Message("assistant", (TextPart(answer.text or NO_ANSWER),)))
        return self._outcome(replace(response, parts=(TextPart(answer.text or ""),), stop_reason="end"), answer)

    def _outcome(self, response: ModelResponse, answer: ParsedAnswer) -> PromptOutcome:
        prompt, reading = self._prompt, self._call.reading
        if prompt.handed is None:  # nearly always, without another call
            exchange = self._messages[self._at :]
            exchange[0] = Message("user", self._prompt_parts() if self._said_first else prompt.parts)
        else:
            exchange = self._exchange()
        if (prompt.agent and prompt.history.record_in_session_history) or (reading is not None and reading.sources):
            exchange[-1] = self._signed(exchange[-1])
        if answer.text is not None:
            others = [part for part in response.parts if not isinstance(part, TextPart)]
            response = replace(response, parts=(*others, TextPart(answer.text)))
        return PromptOutcome(
            response=response,
            turn=tuple(exchange),
            usage=self._bill.usage if self._tools.usage is NO_USAGE else self._bill.usage + self._tools.usage,
            cost_usd=self._bill.cost,
            turns=self._turns,
            value=answer.value,
            parse_error=answer.parse_error,
            schema_errors=answer.schema_errors,
            refused=answer.refused,
            model=self._model_used,
        )

    def _signed(self, last: Message) -> Message:
        """The last message of the exchange, with the task that gave it and the sources of all that was read for it."""
        reading = self._call.reading
        sources = frozenset[str]() if reading is None else reading.sources
        return replace(last, sources=sources, agent=self._prompt.agent)


def _with_texts(parts: tuple[Part, ...], texts: tuple[TextPart, ...]) -> tuple[Part, ...]:
    for text in texts:
        parts = following(parts, (text,))
    return parts


def _digest(said: str, data: object) -> str:
    text = said + json.dumps(data, sort_keys=True)
    return blake2b(text.encode("ascii"), digest_size=16).hexdigest()
