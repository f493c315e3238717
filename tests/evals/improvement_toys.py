"""Three toy programs with a planted better one, a scripted model that may find it, and GEPA alone over the same model.

Each program is a row of four tasks, and each case a recorded run of it. The model improves by rote: asked for new instructions
of a task, it takes its ideas in turn, of which most are useless, one is learnt by heart from the cases that it is shown, and one is good.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, ScriptedProvider
from agentflow.evals import Case

COUNT = 24
STEPS = ("read", "find", "draft", "reply")
PLAIN = {
    "read": "Read {{text}}",
    "find": "Find what belongs to {{text}}",
    "draft": "Draft from {{text}}",
    "reply": "Reply to {{text}}",
}


@dataclass(frozen=True)
class Toy:
    """A task with a planted solution: ``ideas`` for each of its tasks, and ``score`` of an answer."""

    name: str
    ideas: Mapping[str, tuple[str, ...]]
    score: Callable[[str, str], float | bool]


def shouted(expected: str, value: str) -> bool:
    return expected.upper() in value


def marked(expected: str, value: str) -> float:
    """Half for the unit, and half for the greeting: two instructions are needed."""
    return 0.5 * value.endswith("kg") + 0.5 * ("Dear" in value)


def sorted_out(expected: str, value: str) -> bool:
    return "sorted" in value and expected in value


USELESS = ("Think hard about {{text}}", "Be brief about {{text}}", "Be kind about {{text}}")
TOYS = (
    Toy("shout", {"reply": (*USELESS, "LEARN", "Reply loudly to {{text}}")}, shouted),
    Toy(
        "letter",
        {
            "draft": (*USELESS, "Draft with a unit from {{text}}"),
            "reply": (*USELESS, "Reply with a greeting to {{text}}"),
        },
        marked,
    ),
    Toy("sort", {"draft": (*USELESS, "LEARN"), "reply": (*USELESS, "Sort {{text}}", "LEARN")}, sorted_out),
)


class ToyModel:
    """Answers the tasks of a toy, and proposes its ideas; counts its calls."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.calls = 0
        self._asked: Counter[str] = Counter()
        self.provider = ScriptedProvider(self.reply)

    def reply(self, request: Any) -> dict[str, Any]:
        text = request.messages[-1].text
        return {"text": self.said(text), "cost_usd": 0.01, "usage": {"input_tokens": 5, "output_tokens": 5}}

    def said(self, text: str) -> str:
        """The answer to a prompt."""
        self.calls += 1
        if text.startswith("Rewrite the instructions of the task"):
            task = text.split("'")[1]
            return json.dumps({"diagnosis": "by rote", "instructions": self._idea(task, text)})
        if text.startswith("I provided an assistant"):
            tasks = [
                name
                for name in self.toy.ideas
                if any(idea.split("{")[0] in text[:600] for idea in (PLAIN[name], *self.toy.ideas[name]))
            ]
            return f"```\n{self._idea(tasks[0] if tasks else 'reply', text)}\n```"
        return self._answer(text)

    def _idea(self, task: str, prompt: str) -> str:
        ideas = self.toy.ideas[task]
        idea = ideas[self._asked[task] % len(ideas)]
        self._asked[task] += 1
        if idea != "LEARN":
            return idea
        heart = sorted(set(re.findall(r"case\d+", prompt)))
        return f"Known by heart: {' '.join(heart)}. Now {{{{text}}}}"

    def _answer(self, prompt: str) -> str:
        subject = re.findall(r"case\d+", prompt)[-1]
        kept = " ".join([word for word in ("Dear", "kg") if word in prompt])
        if prompt.startswith("Known by heart") and subject in prompt.split(". Now")[0]:
            return f"sorted {subject} {subject.upper()}"
        if "loudly" in prompt:
            return subject.upper()
        if prompt.startswith("Sort"):
            return f"sorted {subject}"
        if "greeting" in prompt:
            return f"Dear {subject} {kept}".strip()
        return f"{subject} kg" if "unit" in prompt else f"{subject} {kept}".strip()


def scorer(toy: Toy) -> Callable[[Any, Any], float | bool]:
    """The scorer of a toy."""

    def quality(case: Case, run: Any) -> float | bool:
        return toy.score(case.expected, run.value)

    return quality


@asynccontextmanager
async def toy_flow(toy: Toy, directory: Path, model: ToyModel) -> AsyncGenerator[tuple[AgentFlow, Any, list[Any]]]:
    """A flow with the program of a toy: the workflow, and its tasks that have ideas."""
    async with AgentFlow(provider=model.provider, durable=f"sqlite:///{directory}/{toy.name}.db") as flow:

        @flow.task
        async def read(text: str) -> str:
            """Read {{text}}"""
            raise NotImplementedError

        @flow.task
        async def find(text: str) -> str:
            """Find what belongs to {{text}}"""
            raise NotImplementedError

        @flow.task
        async def draft(text: str) -> str:
            """Draft from {{text}}"""
            raise NotImplementedError

        @flow.task
        async def reply(text: str) -> str:
            """Reply to {{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def answer(text: str) -> str:
            return await reply(await draft(await find(await read(text))))

        tasks = {"draft": draft, "reply": reply}
        yield flow, answer, [tasks[name] for name in toy.ideas]


async def recorded_cases(flow: AgentFlow, answer: Any) -> list[Case]:
    """Recorded runs of the program as cases, with their expectations."""
    cases: list[Case] = []
    for number in range(COUNT):
        subject = f"case{number}"
        handle = await flow.start(answer(subject), run_id=subject)
        await handle.result()
        cases.append(Case(run_id=subject, name=subject, expected=subject))
    return cases


class AloneAdapter:
    """GEPA alone over the program of a toy, without records: each evaluation asks the model for all four tasks."""

    propose_new_texts = None

    def __init__(self, toy: Toy, model: ToyModel) -> None:
        self._toy = toy
        self._model = model

    def evaluate(self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        values = [self._run(subject, candidate) for subject in batch]
        scores = [float(self._toy.score(subject, value)) for subject, value in zip(batch, values, strict=True)]
        return EvaluationBatch(outputs=values, scores=scores, trajectories=list(zip(batch, values, strict=True)))

    def _run(self, subject: str, candidate: dict[str, str]) -> str:
        for name in STEPS:
            subject = self._model.said(candidate.get(name, PLAIN[name]).replace("{{text}}", subject))
        return subject

    def make_reflective_dataset(self, candidate: Any, eval_batch: Any, components_to_update: list[str]) -> Any:
        return {
            name: [{"Input": one, "Output": two} for one, two in eval_batch.trajectories]
            for name in components_to_update
        }


class Silent:
    """A logger of GEPA that says nothing."""

    def log(self, message: str) -> None:
        """Nothing."""


def gepa_alone(toy: Toy, rounds: int, train: list[str], held: list[str]) -> tuple[int, float]:
    """The model calls of GEPA alone, and the score of its result on the held-out cases, which it also evaluates."""
    import gepa

    model = ToyModel(toy)
    adapter = AloneAdapter(toy, model)
    result = gepa.optimize(
        seed_candidate={name: PLAIN[name] for name in toy.ideas},
        trainset=train,
        adapter=adapter,
        reflection_lm=model.said,
        stop_callbacks=lambda state: state.i + 1 >= rounds,
        logger=Silent(),
    )
    scores = [adapter.evaluate(held, each).scores for each in (result.candidates[0], result.best_candidate)]
    return model.calls, sum(scores[1]) / len(held)
