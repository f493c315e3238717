"""Questions of programs: checks answers, and keeps the questions of runs that are not durable open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentflow.core.call.approval import Denied
from agentflow.core.call.call import CallContext
from agentflow.core.call.scope import Scope
from agentflow.core.data.errors import ConfigurationError, DataError, SexpEvaluationError, cut
from agentflow.core.data.values import plain, to_json
from agentflow.core.events.events import WaitStarted
from agentflow.core.events.questions import Question
from agentflow.lib.schema.declared_schema import schema_of
from agentflow.lib.schema.json_schema import Schema
from agentflow.run.strand.budget import Budget
from agentflow.run.strand.permits import Permits, without_permit

NOBODY = "nobody was there to approve it"
"""Why an approval that nobody answers is denied."""


def asked_form(declared: Mapping[str, Any], call: CallContext) -> dict[str, Any]:
    """The JSON Schema of an answer, from that or from fields by name. Raises SexpEvaluationError (``question/schema``) for anything else."""
    try:
        schema = schema_of(plain(declared))
        Schema(schema)
    except (ConfigurationError, ValueError) as error:
        raise SexpEvaluationError(
            f"ask-human: {getattr(error, 'message', error)}",
            code="question/schema",
            span=call.span,
            hint='the schema is a dict: {"type" "boolean"}, or fields {"name" "string"}',
        ) from error
    return schema


def check_answer(question: Question, answer: Any) -> None:
    """Raise DataError (``question/answer``) if ``answer`` does not fit the schema of the question.

    Every answer to an approval is a decision: what is no yes is a no.
    """
    problems = [] if question.schema is None or question.reason == "approval" else Schema(question.schema).check(answer)
    if problems:
        raise DataError(
            f"the answer to '{cut(question.question, 200)}' does not fit: {'; '.join(problems)}",
            code="question/answer",
            hint=f"the schema is {cut(to_json(question.schema), 500)}",
            details={"key": question.key, "problems": problems},
        )


def waiting(question: Question, call: CallContext) -> Scope[CallContext]:
    """The pair of events around the wait for an answer."""
    return call.scope(
        WaitStarted,
        call.path,
        reason=question.reason,
        key=question.key,
        question=question.question,
        schema=question.schema,
    )


def permits_of(call: CallContext) -> Permits | None:
    """The permits of the run that ``call`` belongs to."""
    budget = call.run.budget
    return budget.permits if isinstance(budget, Budget) else None


def unanswered(question: Question, call: CallContext) -> Denied:
    """What the lack of an answer means: a no for an approval. Raises SexpEvaluationError (``question/unanswered``)
    for a question."""
    if question.reason == "approval":
        return Denied(NOBODY)
    raise SexpEvaluationError(
        f"nobody answered: {cut(question.question, 200)}",
        code="question/unanswered",
        span=call.span,
        hint="give the flow an answerer (answer=...), or start the run durably and answer with flow.send",
    )


class OpenQuestions:
    """The open questions of runs that are not durable. Each stays open for ``ttl_s`` seconds, and is then denied."""

    def __init__(self, ttl_s: float = 0.0) -> None:
        self.ttl_s = ttl_s
        self._open: dict[tuple[str, str], tuple[Question, asyncio.Future[Any]]] = {}

    async def ask(self, question: Question, call: CallContext, ttl_s: float | None = None) -> Any:
        """Wait for an answer, at most ``ttl_s`` seconds. Without one an approval is denied, and a question raises
        SexpEvaluationError (``question/unanswered``)."""
        ttl_s = self.ttl_s if ttl_s is None else ttl_s
        if ttl_s <= 0:
            return unanswered(question, call)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[question.run_id, question.key] = (question, future)
        try:
            with waiting(question, call):
                async with without_permit(permits_of(call)):
                    done, _ = await asyncio.wait([future], timeout=ttl_s)
            return future.result() if done else unanswered(question, call)
        finally:
            del self._open[question.run_id, question.key]

    def of(self, run_id: str) -> list[Question]:
        """The open questions of a run, in the order in which they were asked."""
        return [question for (run, _), (question, future) in self._open.items() if run == run_id and not future.done()]

    def answer(self, run_id: str, key: str, answer: Any) -> bool:
        """Answer an open question; False if none has this key. Raises DataError (``question/answer``)."""
        entry = self._open.get((run_id, key))
        if entry is None or entry[1].done():
            return False
        check_answer(entry[0], answer)
        entry[1].set_result(answer)
        return True


def no_such_question(run_id: str, key: str, still_open: list[Question]) -> DataError:
    """The error for an answer to a question that is not open; ``still_open`` are those that are."""
    listed = ", ".join(f"{each.key} ({cut(each.question, 60)})" for each in still_open[:10])
    return DataError(
        f"the run '{run_id}' has no open question with the key '{cut(key, 80)}'",
        code="question/unknown",
        hint=f"open are: {listed}" if still_open else "nothing is open: it may have been answered before",
    )


__all__ = [
    "NOBODY",
    "OpenQuestions",
    "asked_form",
    "check_answer",
    "no_such_question",
    "permits_of",
    "unanswered",
    "waiting",
]
