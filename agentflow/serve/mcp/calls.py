"""One call of a tool: the run that it begins, the questions that the run asks, and its end.

The run is a task of the server. A call that is cancelled cancels it and waits for its end. A client of the newer revision is
asked by an answer that ends its request; it calls again, with what was answered, and the call goes on.
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

from agentflow.core.errors import DataError
from agentflow.core.events import WaitFinished, WaitStarted
from agentflow.core.own_task import outlast
from agentflow.core.questions import Question
from agentflow.serve.mcp.forms import answer_of, form_of
from agentflow.serve.mcp.progress import Progress
from agentflow.serve.mcp.tools import refusal, result_of, sendable
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import Service
from agentflow.serve.waiting_runs import WaitingRuns

MAX_ASKED = 3
"""How often a question is asked whose answers do not fit."""

Context = ServerRequestContext[Any, Any]


class ToolCall:
    """The call whose run is ``run``; ``waiting`` keeps it while its client is asked."""

    def __init__(self, service: Service, run: ServedRun, waiting: WaitingRuns[ToolCall]) -> None:
        self.run = run
        self._service = service
        self._waiting = waiting
        self._events = run.reader()
        self._progress = Progress()
        self._open: dict[str, Question] = {}
        self._asked: dict[str, int] = {}
        self._declined: str | None = None

    async def follow(self, context: Context) -> CallToolResult | InputRequiredResult:
        """Wait for the run's end, or for a question that ends the request."""
        asking = False
        try:
            if not self._open:
                await self._read(context)
            if self._open:
                asking = True
                return self._questions()
            await self.run.wait()
            if self._declined is not None:
                return refusal(f"question/unanswered: nobody answered: {self._declined}")
            return await result_of(self._service, self.run)
        finally:
            if asking:
                self._waiting.put(self.run, self)
            elif (cancelled := await outlast(asyncio.create_task(self.run.cancel()))) is not None:
                raise cancelled

    async def take_answers(self, replies: Mapping[str, object]) -> None:
        """Answer the open questions with what a client brings; those that it leaves out are asked again."""
        for key, question in list(self._open.items()):
            if key not in replies:
                continue
            if not await self._answer(key, question, replies[key]):
                self._asked[key] = self._asked.get(key, 0) + 1
                if self._asked[key] < MAX_ASKED:
                    continue
                await self._decline(key, question)
            self._open.pop(key, None)

    async def _read(self, context: Context) -> None:
        """Read the run's events to their end, or until questions are open that have to end the request."""
        by_result = context.protocol_version in MODERN_PROTOCOL_VERSIONS and _can_ask(context)
        async with anyio.create_task_group() as group:
            group.start_soon(self._progress.report, context)
            while (event := await self._events.next()) is not None:
                self._progress.take(event)
                if isinstance(event, WaitFinished):
                    self._open = {key: each for key, each in self._open.items() if each.path != event.path}
                elif isinstance(event, WaitStarted) and (question := self.run.waits.get(event.key)) is not None:
                    if not by_result:
                        group.start_soon(self._ask, context, event.key, question)
                        continue
                    self._open[event.key] = question
                    break
            group.cancel_scope.cancel()

    def _questions(self) -> InputRequiredResult:
        asked: dict[str, InputRequest] = {key: ElicitRequest(params=_form(each)) for key, each in self._open.items()}
        return InputRequiredResult(input_requests=asked, request_state=self.run.run_id)

    async def _ask(self, context: Context, key: str, question: Question) -> None:
        """Ask a client of the older revision while its request goes on."""
        form = _form(question)
        for _ in range(MAX_ASKED if _can_ask(context) else 0):
            try:
                reply = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
            except MCPError:
                break
            if await self._answer(key, question, reply):
                return
        await self._decline(key, question)

    async def _answer(self, key: str, question: Question, reply: object) -> bool:
        """Pass an answer on; False where it does not fit, so that the question stays open."""
        try:
            await self._service.flow.send(self.run.run_id, key, answer_of(question, reply))
        except LookupError:
            await self._decline(key, question)
        except DataError as error:
            return error.code == "question/unknown"  # which was answered, or given up, meanwhile
        except ValueError:
            return False
        return True

    async def _decline(self, key: str, question: Question) -> None:
        """Nobody answers: an approval is denied, and a question ends the run."""
        if question.reason == "approval":
            await self._answer(key, question, None)
        else:
            self._declined = question.question
            await self.run.cancel()


def _form(question: Question) -> ElicitRequestFormParams:
    return ElicitRequestFormParams(message=sendable(question.question), requested_schema=form_of(question))


def _can_ask(context: Context) -> bool:
    """Whether the client shows forms."""
    capabilities = context.session.client_capabilities
    asking = None if capabilities is None else capabilities.elicitation
    return asking is not None and (asking.form is not None or asking.url is None)


__all__ = ["ToolCall"]
