"""Asks people on behalf of a run: its approver and its answerer or, without them, whoever sends an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any

from agentflow.core.call.approval import ApprovalRequest, Approved, Decision, Denied, decided, of_wire, to_wire
from agentflow.core.call.call import CallContext
from agentflow.core.call.host_calls import HostCalls
from agentflow.core.call.host_code import containing
from agentflow.core.call.work_clock import untimed
from agentflow.core.data.errors import RunStopped, TaskError, clip
from agentflow.core.data.values import plain
from agentflow.core.events.events import WaitReason, WaitStarted
from agentflow.core.events.questions import Answerer, Question
from agentflow.run.questions import NOBODY, OpenQuestions, asked_form, check_answer, unanswered

Approver = Callable[
    [ApprovalRequest], "bool | str | Approved | Denied | None | Awaitable[bool | str | Approved | Denied | None]"
]
"""Called before a tool call that needs approval; plain or async. ``True`` and :class:`Approved` permit the call.

It gets one request of a run at a time, unless it has a true attribute ``concurrent``: then it is called whenever approval
is needed, which suits an approver that passes requests on.
"""

_YES_OR_NO = {"type": "boolean"}


class _ApproverFailed(Exception):
    """The approver raised; the cause is its exception."""


class Asking:
    """The questions and approvals of one run.

    Without an ``approver`` or ``answerer``, in a run that is not durable, ``open_questions`` keeps a question open for
    ``ttl_s`` seconds (None: for as long as they stay open there); a durable run waits for ``flow.send``.
    """

    def __init__(
        self,
        run_id: str,
        approver: Approver | None,
        answerer: Answerer | None,
        open_questions: OpenQuestions | None,
        ttl_s: float | None,
    ) -> None:
        self.approver = approver
        self._run_id = run_id
        self._answerer = answerer
        self._open = open_questions
        self._ttl_s = ttl_s
        self._turn: asyncio.Lock | None = None
        self._covered: dict[str, Mapping[str, str]] = {}

    async def approve(self, request: ApprovalRequest, call: CallContext) -> Decision:
        """Ask the approver. Without one, a durable run waits for ``flow.send``; any other run says no, at once or when
        the time for open questions is up. An approver that raises says no.

        Calls that an approved program's manifest covers are not asked for again.
        """
        if (
            request.identity
            and call.call_id is None
            and self._covering(call.path).get(request.tool) == request.identity
        ):
            return Approved()
        request = replace(request, run_id=self._run_id, path=call.path, call_id=call.call_id)
        consult = None if self.approver is None else partial(self._decided, self.approver, request, call)
        try:
            with untimed():
                answer = await self._answered(request, call, consult)
        except _ApproverFailed as failed:
            error = failed.__cause__
            call.warn("tool/approver-failed", f"the approver raised {type(error).__name__}: {clip(str(error), 300)}")
            return Denied("whoever decides about it could not be reached")
        if isinstance(answer, Denied) and answer.why == NOBODY:
            call.warn(
                "tool/nobody-approves",
                f"the request for {request.tool} was refused because nobody answered it: give the flow an approver "
                "(approve=...), keep requests open for flow.send (approval_ttl=...), or start the run durably",
            )
        return decided(answer, request, call.warn)

    async def _answered(
        self, request: ApprovalRequest, call: CallContext, consult: Callable[[], Awaitable[Decision]] | None
    ) -> object:
        journal = call.run.journal
        if journal is None and consult is not None:
            return await consult()
        asked = call.at(call.marked_path("approval", request.digest))
        question = Question(
            question=request.text, schema=_YES_OR_NO, reason="approval", run_id=self._run_id, path=asked.path
        )
        if journal is None:
            return of_wire(await self._wait_open(question, asked))

        async def data() -> object:
            return to_wire(await consult()) if consult is not None else False

        return of_wire(
            await journal.answer(question, {"the request": request.digest}, asked, None if consult is None else data)
        )

    async def _decided(self, approver: Approver, request: ApprovalRequest, call: CallContext) -> Decision:
        """What the approver says. Raises _ApproverFailed, and what stops the run or a task."""
        try:
            answer = await self._consult(approver, request, "approval", call)
        except Denied as denied:
            return denied
        except (TaskError, RunStopped):
            raise
        except Exception as error:
            raise _ApproverFailed from error
        return decided(answer, request, call.warn)

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        """Stop asking for approval of ``tools``, by name and identity, that the program at ``path`` calls itself."""
        if tools or self._covered:
            self._covered[path] = tools

    def _covering(self, path: str) -> Mapping[str, str]:
        """What the approval of the innermost program around ``path`` covers."""
        while path and self._covered:
            if path in self._covered:
                return self._covered[path]
            path = path.rpartition("/")[0]
        return {}

    async def ask(self, question: str, schema: Mapping[str, Any] | None, call: CallContext) -> Any:
        """Ask the answerer; without one, wait for an answer from ``flow.send``."""
        declared = plain(schema) if schema is None else asked_form(schema, call)
        asked = Question(question=question, schema=declared, run_id=self._run_id, path=call.path)
        consult = None if self._answerer is None else partial(self._checked, self._answerer, asked, call)
        with untimed():
            if call.run.journal is not None:
                content = {"the question": question, "the schema of its answer": asked.schema}
                return await call.run.journal.answer(asked, content, call, consult)
            return await (self._wait_open(asked, call) if consult is None else consult())

    async def _wait_open(self, question: Question, call: CallContext) -> Any:
        return unanswered(question, call) if self._open is None else await self._open.ask(question, call, self._ttl_s)

    async def _checked(self, answerer: Answerer, question: Question, call: CallContext) -> Any:
        answer = await self._consult(answerer, question, "question", call)
        check_answer(question, answer)
        return answer

    async def _consult(self, host: Callable[[Any], Any], request: object, reason: WaitReason, call: CallContext) -> Any:
        """The answer of ``host`` to ``request``. Publishes a pair of Wait events if it has to wait."""
        if getattr(host, "concurrent", False):
            return await _answer(host, request, reason, call)
        if self._turn is None:
            self._turn = asyncio.Lock()
        if not self._turn.locked():
            async with self._turn:
                return await _answer(host, request, reason, call)
        with call.scope(WaitStarted, call.path, reason=reason):
            async with self._turn:
                with containing() as code:
                    return await _awaited(host(request), code)


async def _answer(host: Callable[[Any], Any], request: object, reason: WaitReason, call: CallContext) -> Any:
    with containing() as code:
        answer = host(request)
        if not isinstance(answer, Awaitable):
            return answer
        with call.scope(WaitStarted, call.path, reason=reason):
            return await _awaited(answer, code)


async def _awaited(answer: Any, code: HostCalls) -> Any:
    return await code.to_end(answer, "whoever is asked") if isawaitable(answer) else answer


__all__ = ["Approver", "Asking"]
