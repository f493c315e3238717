"""One tool call: the run that it starts, the run's questions, and its end.

The run is a task of the server. Cancelling a call cancels its run and waits for its end. A client of the newer revision is
asked by a response that ends its request; it repeats the call with the answers, and the call continues. A client without
forms receives the waits of a durable run: the answer comes through another route, and the call is over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentflow.core.data.values import to_json
from agentflow.core.events.events import (
    BranchStarted,
    Event,
    FinishedBase,
    TaskFinished,
    TaskStarted,
    ToolFinished,
    ToolStarted,
)
from agentflow.core.events.questions import Question
from agentflow.lib.event_loop import outlast
from agentflow.serve.front_end import Asked
from agentflow.serve.mcp.offered_tools import refusal, result_of, sendable, waiting_of
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.waiting_runs import WaitingRuns

APPROVE = "approve"
"""The form field for an approval."""
REASON = "reason"
"""The form field for the reason of a refusal, which may stay empty."""
ANSWER = "answer"
"""The form field for a single value."""
_FIELDS: dict[str, frozenset[str]] = {
    "string": frozenset({"enum", "minLength", "maxLength", "format"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
}
_ANY_FIELD = frozenset({"type", "title", "description", "default"})


def form_of(question: Question) -> dict[str, Any]:
    """The schema of the form for ``question``. A value that no form field can hold is asked for as JSON text."""
    if question.reason == "approval":
        form = _object({APPROVE: {"type": "boolean", "title": "Approve?"}})
        form["properties"][REASON] = {"type": "string", "title": "Why not?"}
        return form
    schema = question.schema
    if schema is None:
        return _object({ANSWER: {"type": "string"}})
    if _is_form(schema):
        return {
            "type": "object",
            "properties": dict(schema["properties"]),
            "required": list(schema.get("required", ())),
        }
    if _is_field(schema):
        return _object({ANSWER: dict(schema)})
    return _object({ANSWER: {"type": "string", "description": f"JSON that fits {to_json(dict(schema))}"}})


def answer_of(question: Question, reply: object) -> Any:
    """The answer in a client's ``reply`` to the form, not yet checked against the question's schema.

    For an approval it is the content of an accepted form, still to be judged; an unaccepted form is a no. Raises
    LookupError if the question was declined, ValueError for invalid JSON.
    """
    content = reply.content if isinstance(reply, ElicitResult) and reply.action == "accept" else None
    if question.reason == "approval":
        said, reason = (None, None) if content is None else (content.get(APPROVE), content.get(REASON))
        return reason if said is False and reason else said
    if content is None:
        raise LookupError("declined")
    schema = question.schema
    if schema is not None and _is_form(schema):
        return content
    answer = content.get(ANSWER)
    if schema is None or _is_field(schema):
        return answer
    return json.loads(answer if isinstance(answer, str) else "")


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _is_form(schema: Mapping[str, Any]) -> bool:
    fields: object = schema.get("properties")
    return (
        schema.get("type") == "object"
        and schema.keys() <= {"type", "properties", "required", "title", "description", "additionalProperties"}
        and isinstance(fields, Mapping)
        and fields != {}
        and all([_is_field(each) for each in cast("Mapping[str, Any]", fields).values()])
    )


def _is_field(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    fields = cast("Mapping[str, Any]", schema)
    kind = fields.get("type")
    return isinstance(kind, str) and kind in _FIELDS and fields.keys() <= _ANY_FIELD | _FIELDS[kind]


_PAUSE_S = 0.1
_MAX_TEXT = 200


class McpProgress:
    """The progress of a run: the number of tasks and tools that started and ended, and a text about the last of them."""

    def __init__(self) -> None:
        self._branches: dict[int, str] = {}
        self._open: dict[int, str] = {}
        self._count = 0
        self._words = ""
        self._news = anyio.Event()

    def take(self, event: Event) -> None:
        """Process an event of the run."""
        match event:
            case BranchStarted():
                count = "" if event.count is None else f" of {event.count}"
                self._branches[event.seq] = f" {event.index + 1}{count}"
            case TaskStarted() | ToolStarted():
                kind = "task" if isinstance(event, TaskStarted) else "tool"
                words = f"{kind} {event.name[:_MAX_TEXT]}{self._branches.get(event.parent or 0, '')}"
                self._open[event.seq] = words
                self._say(words)
            case TaskFinished() | ToolFinished():
                words = self._open.pop(event.started, event.name)
                self._say(f"{words} {'ended' if event.outcome == 'ok' else event.outcome}")
            case FinishedBase():
                self._branches.pop(event.started, None)
            case _:
                pass

    def _say(self, words: str) -> None:
        self._count += 1
        self._words = sendable(words)
        self._news.set()

    async def report(self, context: ServerRequestContext[Any, Any]) -> None:
        """Send progress to the client until cancelled, if the client asked for it."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await context.session.report_progress(float(self._count), message=self._words)
            await anyio.sleep(_PAUSE_S)


MAX_ASKED = 3
"""Maximum number of times a question is asked again after invalid answers."""

Context = ServerRequestContext[Any, Any]


class ClientToolCall:
    """A call and its ``run``; ``waiting`` keeps it while its client is asked."""

    def __init__(self, service: ServedFlow, run: ServedRun, waiting: WaitingRuns[ClientToolCall]) -> None:
        self.run = run
        self._service = service
        self._waiting = waiting
        self._events = run.reader()
        self._progress = McpProgress()
        self._asked = Asked(service, run)
        self._count: dict[str, int] = {}

    async def follow(self, context: Context) -> CallToolResult | InputRequiredResult:
        """Wait for the run's end, or for a question that ends the request."""
        asking = parked = False
        try:
            await self._read(context)
            if self._asked.open and can_ask(context):
                asking = True
                return self._questions()
            if self._asked.open:
                parked = True
                return await waiting_of(self._service, self.run, self._asked.open)
            await self.run.wait()
            if self._asked.declined is not None:
                return refusal(f"question/unanswered: there was no answer: {self._asked.declined}")
            return await result_of(self._service, self.run)
        finally:
            if asking:
                self._waiting.put(self.run, self)
            elif parked:
                self.run.leave(self._events)
            elif (cancelled := await outlast(asyncio.create_task(self.run.cancel()))) is not None:
                raise cancelled

    async def take_answers(self, replies: Mapping[str, object]) -> None:
        """Answer the open questions with a client's ``replies``; questions without one are asked again."""
        for key in list(self._asked.open):
            if key in replies and not await self._answer(key, replies[key]):
                self._count[key] = self._count.get(key, 0) + 1
                if self._count[key] >= MAX_ASKED:
                    await self._asked.decline(key)

    async def _read(self, context: Context) -> None:
        """Read the run's events to their end, or until a question has to end the request."""
        shows_forms = can_ask(context)
        by_result = context.protocol_version in MODERN_PROTOCOL_VERSIONS if shows_forms else self.run.lasting
        async with anyio.create_task_group() as group:
            group.start_soon(self._progress.report, context)
            while not (by_result and self._asked.open) and (event := await self._events.next()) is not None:
                self._progress.take(event)
                key = self._asked.take(event)
                if key is not None and not by_result:
                    group.start_soon(self._ask, context, key)
            group.cancel_scope.cancel()

    def _questions(self) -> InputRequiredResult:
        asked: dict[str, InputRequest] = {
            key: ElicitRequest(params=_form(each)) for key, each in self._asked.open.items()
        }
        return InputRequiredResult(input_requests=asked, request_state=self.run.run_id)

    async def _ask(self, context: Context, key: str) -> None:
        """Ask a client of the older revision while its request is pending."""
        form = _form(self._asked.open[key])
        for _ in range(MAX_ASKED if can_ask(context) else 0):
            try:
                reply = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
            except MCPError:
                break
            if key not in self._asked.open or await self._answer(key, reply):
                return
        await self._asked.decline(key)

    async def _answer(self, key: str, reply: object) -> bool:
        """Pass a reply on; False if it is invalid, so that the question stays open."""
        try:
            return await self._asked.answer(key, answer_of(self._asked.open[key], reply))
        except LookupError:
            await self._asked.decline(key)
        except ValueError:
            return False
        return True


def _form(question: Question) -> ElicitRequestFormParams:
    return ElicitRequestFormParams(message=sendable(question.question), requested_schema=form_of(question))


def can_ask(context: Context) -> bool:
    """Whether the client can show forms."""
    capabilities = context.session.client_capabilities
    asking = None if capabilities is None else capabilities.elicitation
    return asking is not None and (asking.form is not None or asking.url is None)
