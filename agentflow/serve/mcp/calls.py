"""One tool call: the run that it starts, the run's questions, and its end.

The run is a task of the server. Cancelling a call cancels its run and waits for its end. A client of the newer revision is
asked by a response that ends its request; it repeats the call with the answers, and the call continues. A client without
forms is told what a durable run waits for: the answer comes through another route, and the call is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequest, ElicitRequestFormParams, InputRequest, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentflow.core.call.own_task import outlast
from agentflow.core.events.questions import Question
from agentflow.serve.asked import Asked
from agentflow.serve.mcp.forms import answer_of, form_of
from agentflow.serve.mcp.progress import Progress
from agentflow.serve.mcp.tools import refusal, result_of, sendable, waiting_of
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import Service
from agentflow.serve.waiting_runs import WaitingRuns

MAX_ASKED = 3
"""Maximum number of times a question is asked again after invalid answers."""

Context = ServerRequestContext[Any, Any]


class ToolCall:
    """A call and its ``run``; ``waiting`` keeps it while its client is asked."""

    def __init__(self, service: Service, run: ServedRun, waiting: WaitingRuns[ToolCall]) -> None:
        self.run = run
        self._service = service
        self._waiting = waiting
        self._events = run.reader()
        self._progress = Progress()
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
                return refusal(f"question/unanswered: nobody answered: {self._asked.declined}")
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


__all__ = ["ToolCall", "can_ask"]
