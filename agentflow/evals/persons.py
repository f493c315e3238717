"""Who answers the questions of a sample: the turns of its case, then the function or task that the evaluation names."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from agentflow.core.events.questions import Answerer, Question
from agentflow.evals.cases import Case
from agentflow.evals.scoring import SampleBlocked, is_function

Play: TypeAlias = "Callable[[Any, Mapping[str, Any]], Awaitable[Any]]"
"""Returns the value of a task that takes its parameters from these values, by name."""


class Person:
    """The person in one sample of a ``case``: an :data:`~agentflow.core.events.questions.Answerer`.

    It answers by the turns of the case, in their order, then by ``then``, a function or a task of the flow; ``play`` carries a
    task out.
    """

    def __init__(self, case: Case, then: Any, play: Play) -> None:
        self._case = case
        self._turns = deque(case.turns)
        self._then = then
        self._play = play
        self._conversation: list[dict[str, Any]] = []

    async def __call__(self, question: Question) -> Any:
        answer = self._turns.popleft() if self._turns else await self._answer(question)
        self._conversation.append({"question": question.question, "answer": answer})
        return answer

    async def _answer(self, question: Question) -> Any:
        if self._then is None:
            raise SampleBlocked(
                f"it waits for an answer to: {question.question}",
                hint=f"the case has {len(self._case.turns)} turns; give it more, or the evaluation answer=",
            )
        if not is_function(self._then):
            answer = self._then(question)
            return await answer if inspect.isawaitable(answer) else answer
        values = {
            **self._case.inputs,
            "case": self._case.to_dict(),
            "expected": self._case.expected if self._case.expects else None,
            "asked": question.question,
            "conversation": list(self._conversation),
        }
        return await self._play(self._then, values)


def person_of(case: Case, answer: Any, play: Play) -> Answerer | None:
    """Who answers the questions of a sample of ``case``: None if there is none, and the function itself where that suffices."""
    return Person(case, answer, play) if case.turns or is_function(answer) else answer
