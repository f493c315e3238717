"""Questions of programs: checks answers, and keeps the questions of ordinary runs, not durable ones, open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any

from agentflow.core.call.approval import (
    ApprovalRequest,
    Approved,
    Approver,
    Decision,
    Denied,
    decided,
    of_wire,
    to_wire,
)
from agentflow.core.call.call import CallContext, EventScope, JournalPort, containing
from agentflow.core.call.host_calls import HostCalls
from agentflow.core.call.inbox import Inbox, SentSignal, inbox_of, new_key
from agentflow.core.call.work_clock import untimed
from agentflow.core.data.errors import (
    ConfigurationError,
    DataError,
    RunStopped,
    SexpEvaluationError,
    TaskError,
    clip,
    cut,
)
from agentflow.core.data.known_names import ASK, SIGNAL
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import plain, to_json
from agentflow.core.events.events import WaitReason, WaitStarted
from agentflow.core.events.questions import Answerer, ExternalCall, Question, question_key
from agentflow.lib.schema.declared_schema import schema_of
from agentflow.lib.schema.json_schema import Schema
from agentflow.run.strand.budget import Budget, Permits, without_permit

NOBODY = "no approver was available"
"""Why an approval without an answer is denied."""


def asked_form(declared: Mapping[str, Any], call: CallContext, form: str = ASK) -> dict[str, Any]:
    """The JSON Schema of an answer that a ``form`` waits for, from that or from fields by name. Raises SexpEvaluationError (``question/schema``) for anything else."""
    try:
        schema = schema_of(plain(declared))
        Schema(schema)
    except (ConfigurationError, ValueError) as error:
        raise SexpEvaluationError(
            f"{form}: {getattr(error, 'message', error)}",
            code="question/schema",
            span=call.span,
            hint='the schema is a dict: {"type" "boolean"}, or fields {"name" "string"}',
        ) from error
    return schema


def check_answer(question: Question, answer: Any) -> None:
    """Raise DataError (``question/answer``, for a signal ``signal/value``) if ``answer`` does not fit the schema of the question.

    Every answer to an approval is a decision: anything but a yes is a no. A call of an external tool may fail: that result has no
    schema.
    """
    if question.external is not None and isinstance(answer, TaskResult) and answer.failed:
        return
    problems = [] if question.schema is None or question.reason == "approval" else Schema(question.schema).check(answer)
    if problems:
        what = (
            f"the answer to '{cut(question.question, 200)}'"
            if question.signal is None
            else f"a value of {question.question}"
        )
        raise DataError(
            f"{what} does not fit: {'; '.join(problems)}",
            code="question/answer" if question.signal is None else "signal/value",
            hint=f"the schema is {cut(to_json(question.schema), 500)}",
            details={"key": question.key, "problems": problems},
        )


def waiting(question: Question, call: CallContext) -> EventScope:
    """The pair of events around the wait for an answer."""
    return call.scope(
        WaitStarted,
        call.path,
        reason=question.reason,
        key=question.key,
        question=question.question,
        schema=question.schema,
        external=None if question.external is None else plain(question.external),
        call=None if question.call is None else plain(question.call),
        signal=question.signal or "",
    )


def permits_of(call: CallContext) -> Permits | None:
    """The permits of the run that ``call`` belongs to."""
    budget = call.run.budget
    return budget.permits if isinstance(budget, Budget) else None


def unanswered(question: Question, call: CallContext) -> Denied | None:
    """The meaning of a missing answer: a no for an approval, and for a limit that might be raised. Raises SexpEvaluationError
    (``question/unanswered``) for a question."""
    if question.reason == "approval":
        return Denied(NOBODY)
    if question.reason == "limit":
        return None
    raise SexpEvaluationError(
        f"there was no answer: {cut(question.question, 200)}",
        code="question/unanswered",
        span=call.span,
        hint="give the flow an answerer (answer=...), keep questions open for flow.send (approval_ttl=...), or start the run durably",
    )


class LocalQuestions:
    """The open questions of ordinary runs, not of durable ones. Each stays open for ``ttl_s`` seconds, and is then denied."""

    def __init__(self, ttl_s: float = 0.0) -> None:
        self.ttl_s = ttl_s
        self._open: dict[tuple[str, str], tuple[Question, asyncio.Future[Any], CallContext]] = {}

    async def ask(self, question: Question, call: CallContext, ttl_s: float | None = None) -> Any:
        """Wait for an answer, at most ``ttl_s`` seconds. Without one an approval is denied, and a question raises
        SexpEvaluationError (``question/unanswered``)."""
        ttl_s = self.ttl_s if ttl_s is None else ttl_s
        if ttl_s <= 0:
            return unanswered(question, call)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[question.run_id, question.key] = (question, future, call)
        try:
            with waiting(question, call):
                async with without_permit(permits_of(call)):
                    done, _ = await asyncio.wait([future], timeout=ttl_s)
            return future.result() if done else unanswered(question, call)
        finally:
            del self._open[question.run_id, question.key]

    async def signal(self, awaited: Question, call: CallContext) -> Any:
        """Wait for a signal. Its value fits the schema of ``awaited``; one that does not is passed over, with a Warning."""
        inbox, name = inbox_of(call.run), awaited.signal or ""
        at = (awaited.run_id, awaited.key)
        with ExitStack() as waits:
            while (sent := fitting_signal(inbox, awaited, call)) is None:
                future = inbox.wait_for(name)
                if at not in self._open:
                    waits.enter_context(waiting(awaited, call))
                    waits.callback(self._open.pop, at)
                self._open[at] = (awaited, future, call)
                try:
                    async with without_permit(permits_of(call)):
                        await future
                except BaseException:  # cancelled: another that waits may have the signal that woke this one
                    inbox.wake(name)
                    raise
        return sent.value

    def of(self, run_id: str) -> list[Question]:
        """The open questions of a run, in the order they were asked."""
        return [
            question for (run, _), (question, future, _) in self._open.items() if run == run_id and not future.done()
        ]

    def answer(self, run_id: str, key: str, answer: Any, state: Mapping[str, Any] | None = None) -> bool:
        """Answer an open question, with another ``state`` of its run; False if none has this key. Raises DataError
        (``question/answer``)."""
        entry = self._open.get((run_id, key))
        if entry is None or entry[1].done():
            return False
        check_answer(entry[0], answer)
        if state is not None:
            entry[2].state = state
        if entry[0].signal is None:
            entry[1].set_result(answer)
        else:
            inbox_of(entry[2].run).add(SentSignal(new_key(), entry[0].signal, answer))
        return True


def fitting_signal(inbox: Inbox, awaited: Question, call: CallContext) -> SentSignal | None:
    """The first signal of the name that ``awaited`` waits for and of a fitting value; None if none has come. Others are dropped, each
    with a Warning."""
    name = awaited.signal or ""
    while (sent := inbox.take_signal(name)) is not None:
        try:
            check_answer(awaited, sent.value)
            return sent
        except DataError as error:
            call.warn("signal/dropped", error.message, name=name)
            inbox.drop(sent)
    return None


def no_such_question(run_id: str, key: str, still_open: list[Question]) -> DataError:
    """The error for an answer to a question no longer open; ``still_open`` are the open ones."""
    listed = ", ".join(f"{each.key} ({cut(each.question, 60)})" for each in still_open[:10])
    return DataError(
        f"the run '{run_id}' has no open question with the key '{cut(key, 80)}'",
        code="question/unknown",
        hint=f"open are: {listed}" if still_open else "nothing is open: it may have been answered before",
    )


_YES_OR_NO = {"type": "boolean"}


class _ApproverFailed(Exception):
    """The approver raised; the cause is its exception."""


class Asking:
    """The questions and approvals of one run.

    Without an ``approver`` or ``answerer``, in an ordinary run, ``open_questions`` keeps a question open for
    ``ttl_s`` seconds (None: for as long as they stay open there); a durable run waits for ``flow.send``.
    """

    def __init__(
        self,
        run_id: str,
        approver: Approver | None,
        answerer: Answerer | None,
        open_questions: LocalQuestions | None,
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
            return Denied("the approver could not be reached")
        if isinstance(answer, Denied) and answer.why == NOBODY:
            call.warn(
                "tool/nobody-approves",
                f"the request for {request.tool} was refused because it got no answer: give the flow an approver "
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
        approved = ExternalCall(request.tool, request.arguments, request.call_id) if request.editable else None
        question = Question(
            question=request.text,
            schema=_YES_OR_NO,
            reason="approval",
            call=approved,
            **self._place_of(asked),
        )
        if journal is None:
            return of_wire(await self._wait_open(question, asked))

        async def data() -> object:
            return to_wire(await consult()) if consult is not None else False

        return of_wire(
            await journal.answer(question, {"the request": request.digest}, asked, None if consult is None else data)
        )

    async def _decided(self, approver: Approver, request: ApprovalRequest, call: CallContext) -> Decision:
        """The approver's answer. Raises _ApproverFailed, and errors that stop the run or a task."""
        try:
            answer = await self._consult(approver, request, "approval", call)
        except Denied as denied:
            return denied
        except (TaskError, RunStopped):
            raise
        except Exception as error:
            raise _ApproverFailed from error
        return decided(answer, request, call.warn)

    def _place_of(self, call: CallContext) -> dict[str, Any]:
        """The fields of a question that locate ``call``, and its key if that does not follow from the path."""
        own_key = "" if call.identity == call.path else question_key(call.identity)
        return {"run_id": self._run_id, "path": call.path, "own_key": own_key}

    def cover(self, path: str, tools: Mapping[str, str]) -> None:
        """Stop asking for approval of ``tools``, by name and identity, that the program at ``path`` calls itself."""
        if tools or self._covered:
            self._covered[path] = tools

    def _covering(self, path: str) -> Mapping[str, str]:
        """The tools covered by the approval of the innermost program around ``path``."""
        while path and self._covered:
            if path in self._covered:
                return self._covered[path]
            path = path.rpartition("/")[0]
        return {}

    async def ask(
        self,
        question: str,
        schema: Mapping[str, Any] | None,
        call: CallContext,
        external: ExternalCall | None = None,
    ) -> Any:
        """Ask the answerer; without one, wait for an answer from ``flow.send``."""
        declared = plain(schema) if schema is None else asked_form(schema, call)
        asked = Question(question=question, schema=declared, external=external, **self._place_of(call))
        consult = None if self._answerer is None else partial(self._checked, self._answerer, asked, call)
        with untimed():
            if call.run.journal is not None:
                content = {"the question": question, "the schema of its answer": asked.schema}
                return await call.run.journal.answer(asked, content, call, consult)
            return await (self._wait_open(asked, call) if consult is None else consult())

    async def raises(self, question: Question, call: CallContext, journal: JournalPort | None) -> Any:
        """The new limit of the run, from the answerer, or from ``flow.send``; None if the limit stays."""
        limit = question.limit
        assert limit is not None
        consult = None if self._answerer is None else partial(self._checked, self._answerer, question, call)
        with untimed():
            if journal is not None:
                return await journal.answer(
                    question, {"the limit": limit.name, "its value": limit.allowed}, call, consult
                )
            return await (self._wait_open(question, call) if consult is None else consult())

    async def signal(self, name: str, schema: Mapping[str, Any] | None, call: CallContext) -> Any:
        """Wait for a signal of this name, which may have come before."""
        text = f"the signal '{name}'"
        declared = plain(schema) if schema is None else asked_form(schema, call, SIGNAL)
        awaited = Question(question=text, schema=declared, reason="signal", signal=name, **self._place_of(call))
        with untimed():
            if call.run.journal is not None:
                return await call.run.journal.signal(awaited, {"the signal": name, "its schema": awaited.schema}, call)
            return await (self._open or LocalQuestions()).signal(awaited, call)

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
