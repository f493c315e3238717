"""One prompt while it runs: model calls and tool calls in turn, until there is an answer."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from hashlib import blake2b

from agentflow.core.call import CallContext, JournalPort
from agentflow.core.errors import ResourceExhausted, clip
from agentflow.core.frozen import frozen
from agentflow.core.message_json import read_message, read_response
from agentflow.core.messages import Message, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolSpec, user
from agentflow.core.ports import Prompt, PromptOutcome, ProviderAdapter, ToolPort
from agentflow.core.results import NO_USAGE
from agentflow.core.values import plain
from agentflow.handler.answer import OutputSchema
from agentflow.handler.answer_check import checked_calls
from agentflow.handler.conversation import answer_message, opening
from agentflow.handler.limits import ContextGuard
from agentflow.handler.model_turn import model_turn
from agentflow.handler.tool_turn import ToolTurn


class PromptRun:
    """The state of a running prompt: its messages, usage and cost. Its messages are kept here until it has ended.

    Parameters: ``call`` has a path of its own and is granted exactly the ``offered`` tools; ``model`` is the adapter's
    name for it; ``system`` is the whole system text; ``shape`` is the form the answer must have.
    """

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
        "_said",
        "_shape",
        "_system",
        "_tools",
        "_turns",
        "_usage",
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
    ) -> None:
        self._prompt = prompt
        self._call = call
        self._adapter = adapter
        self._model = model
        self._model_used = model
        self._system = system
        self._offered = offered
        self._shape = shape
        self._tools = ToolTurn(tools, call)
        profile = adapter.profile(model)
        if shape is not None and profile.object_output:
            self._shape = shape.as_object()
        window = profile.context_window
        self._guard = ContextGuard(adapter, profile, window, call) if window is not None else None
        self._messages, self._at = opening(call.session, prompt.history, Message("user", prompt.parts))
        self._usage = NO_USAGE
        self._cost: float | None = 0.0
        self._turns = 0
        self._said = ""
        self._deadline = time.monotonic() + prompt.timeout_s if prompt.timeout_s is not None else None

    async def run(self) -> PromptOutcome:
        """The outcome. Raises what :meth:`agentflow.core.ports.PromptRunner.run_prompt` raises."""
        run = self._call.run
        allowed = self._prompt.max_turns if self._prompt.max_turns is not None else run.limits.turns
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
            request = self._request()
            if run.journal is None:
                response = await self._ask(request, self._call)
                calls = self._take(request, response)
            else:
                response, calls = await self._ask_once(request, run.journal)
            if calls:
                if self._turns >= allowed:
                    continue  # no turn is left in which the model could read the results, so the tools do not run
                results = await self._tools.run(calls)
                self._messages.append(Message("user", results))
                if run.journal is not None:
                    self._note(plain(results))
            elif response.stop_reason != "pause":
                answer = AS_TEXT if self._shape is None else self._read(response, self._shape)
                if answer.fault is None or repaired or self._turns >= allowed:
                    return self._outcome(response, answer)
                repaired = True
                self._messages.append(user(answer.fault))

    async def _ask(self, request: ModelRequest, call: CallContext) -> ModelResponse:
        if self._guard is not None:
            await self._guard.before(request)
        call.run.charge_model_call()
        self._turns += 1
        return await model_turn(self._adapter, request, call, self._turns, self._shape)

    async def _ask_once(
        self, request: ModelRequest, journal: JournalPort
    ) -> tuple[ModelResponse, tuple[ToolCallPart, ...]]:
        """The answer of a durable run, which was recorded if the prompt went on after it; with its tool calls.

        The first record has the messages that the prompt began with, so that files which changed meanwhile cannot
        contradict the turns that were taken. The last answer is part of what the task gives, and recorded there.
        """
        call = self._call.start(self._call.span, "ModelStarted")
        content = [self._model, self._turns + 1, self._said]
        record = await journal.recall("model", self._model, content, call)
        if record is not None:
            self._turns += 1
            if "opening" in record:
                self._system = record["system"]
                self._messages = [read_message(each) for each in record["opening"]]
                self._at = record["at"]
            self._note(record["response"])
            response = read_response(record["response"])
            return response, self._take(request, response, charged=True)
        opening = list(self._messages)
        response = await self._ask(replace(request, idempotency_key=call.idempotency_key), call)
        if self._goes_on(response):
            record = {"response": plain(response)}
            if self._turns == 1:
                record |= {"system": self._system, "opening": plain(opening), "at": self._at}
            kept = await journal.keep("model", self._model, content, record, call, response.usage, response.cost_usd)
            self._note(kept["response"])
            response = read_response(kept["response"])
        return response, self._take(request, response)

    def _note(self, data: object) -> None:
        """Add to what was said since the opening, of which a record of a later turn keeps a digest."""
        text = self._said + json.dumps(data, sort_keys=True)
        self._said = blake2b(text.encode("ascii"), digest_size=16).hexdigest()

    def _goes_on(self, response: ModelResponse) -> bool:
        """Whether another call follows, as far as the answer says."""
        if response.tool_calls or response.stop_reason == "pause":
            return True
        shape = self._shape
        return response.stop_reason == "end" and shape is not None and any(shape.read(response.text)[1:])

    def _request(self) -> ModelRequest:
        prompt = self._prompt
        return ModelRequest(
            messages=tuple(self._messages),
            system=self._system,
            tools=self._offered,
            model=self._model,
            output_schema=self._shape.requested if self._shape is not None else None,
            tool_choice=prompt.tool_choice if self._turns == 0 or prompt.tool_choice == "none" else "auto",
            max_output_tokens=prompt.max_output_tokens,
            settings=prompt.settings,
            stream=self._call.run.streaming,
            timeout_s=max(0.001, self._deadline - time.monotonic()) if self._deadline is not None else None,
        )

    def _take(
        self, request: ModelRequest, response: ModelResponse, *, charged: bool = False
    ) -> tuple[ToolCallPart, ...]:
        """Charge an answer and append it to the messages; gives its tool calls. Raises for an answer of no use.

        ``charged`` says that it was charged when it was recorded. An answer after a pause extends the last message, since roles must alternate.
        """
        usage, cost = response.usage, response.cost_usd
        self._usage = usage if self._usage is NO_USAGE else self._usage + usage
        self._cost = None if cost is None or self._cost is None else self._cost + cost
        self._model_used = response.model or self._model
        run = self._call.run
        if not charged:
            run.charge_usage(usage, cost)
        run.charge_text(len(response.text))
        calls = checked_calls(response, request, self._adapter, run.limits.string)
        messages = self._messages
        message = answer_message(response)
        if messages[-1].role == "assistant":
            messages[-1] = Message("assistant", (*messages[-1].parts, *message.parts))
        elif response.parts or response.stop_reason != "pause":
            messages.append(message)
        if self._guard is not None:
            self._guard.after(response, messages)
        return calls

    def _read(self, response: ModelResponse, shape: OutputSchema) -> ParsedAnswer:
        value, parse_error, schema_errors = shape.read(response.text)
        if parse_error is not None:
            fault = f"Your answer is not valid JSON: {parse_error}\nAnswer again with the corrected JSON only."
        elif schema_errors:
            listed = "\n".join(f"- {error}" for error in schema_errors)
            fault = f"Your JSON does not meet the schema:\n{listed}\nAnswer again with the corrected JSON only."
        else:
            fault = None
        if fault is not None:
            self._call.warn("handler/bad-output", "the answer is not the JSON asked for", problem=clip(fault, 500))
        text = response.text if parse_error is not None else shape.text_of(response.text)
        return ParsedAnswer(value, parse_error, schema_errors, fault, None if text == response.text else text)

    def _outcome(self, response: ModelResponse, answer: ParsedAnswer) -> PromptOutcome:
        exchange = self._messages[self._at :]
        exchange[0] = Message("user", self._prompt.parts)
        if answer.text is not None:
            others = [part for part in response.parts if not isinstance(part, TextPart)]
            response = replace(response, parts=(*others, TextPart(answer.text)))
        return PromptOutcome(
            response=response,
            turn=tuple(exchange),
            usage=self._usage if self._tools.usage is NO_USAGE else self._usage + self._tools.usage,
            cost_usd=self._cost,
            turns=self._turns,
            value=answer.value,
            parse_error=answer.parse_error,
            schema_errors=answer.schema_errors,
            model=self._model_used,
        )


@frozen
class ParsedAnswer:
    """A parsed answer, what to tell the model if it is not valid, and its ``text`` where that is not the answer's."""

    value: object = None
    parse_error: str | None = None
    schema_errors: tuple[str, ...] = ()
    fault: str | None = None
    text: str | None = None


AS_TEXT = ParsedAnswer()
"""What parsing an answer gives that may be any text."""
