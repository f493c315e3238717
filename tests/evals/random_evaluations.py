"""Random programs with tasks, random variants of them, and a model whose answers and costs are random, too."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Limits, Price, ScriptedProvider
from agentflow.core.data.messages import ModelProfile
from agentflow.evals import Case, EvaluationReport, Forecast, contains, cost, judge

WINDOW, CAP = 400, 60
QUESTIONS = ["a", "b", "c", "d"]


class PricedModel(ScriptedProvider):
    """A model with a window, a longest answer and a price; its answers depend on what it is asked, and on ``seed``."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._reply, name="priced")
        self._seed = seed

    def profile(self, model: str) -> ModelProfile:
        return replace(super().profile(model), context_window=WINDOW, max_output_tokens=CAP)

    def _reply(self, request: Any) -> Any:
        asked = f"{self._seed} {request.model} {request.messages[-1].text}"
        drawn = random.Random(blake2b(asked.encode(), digest_size=8).digest())
        tokens = drawn.randint(1, min(request.max_output_tokens or CAP, CAP))
        usage = {"input_tokens": drawn.randint(1, request.input_tokens or 8), "output_tokens": tokens}
        if "Judge" in request.messages[-1].text:
            return {"text": '{"reason": "so", "score": true}', "usage": usage}
        return {"text": drawn.choice(["yes", "no", "one", "two"]), "usage": usage}


class RandomEvaluation:
    """One random evaluation: a program of S-expressions, its cases, its variants, and what was evaluated before."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.branches = self.drawn.random() < 0.5
        """Whether what a program does may depend on an answer."""
        self.program = self._form(3, ["q"])
        self.model = PricedModel(seed)

    def flow(self, database: Path) -> AgentFlow:
        price = Price(input=self.drawn.choice([1.0, 5.0]), output=self.drawn.choice([2.0, 20.0]))
        return AgentFlow(provider=self.model, durable=f"sqlite:///{database}", prices={"priced:*": price})

    async def define(self, flow: AgentFlow) -> None:
        """The tasks of its programs."""
        for number in range(3):
            cap = self.drawn.choice(["", "(max-output-tokens 20)"])
            await flow.define(
                f'(defatom t{number} (params (x string)) (tools) {cap} (instructions "T{number}: {{{{x}}}}"))'
            )

    def _form(self, depth: int, names: list[str]) -> str:
        """A form that gives a text."""
        kind = self.drawn.random()
        if depth == 0 or kind < 0.1:
            return self.drawn.choice([*names, '"k"'])
        if kind < 0.55:
            return f"(content (t{self.drawn.randrange(3)} (x {self._form(depth - 1, names)})))"
        if kind < 0.7:
            name = f"v{depth}"
            return f"(let (({name} {self._form(depth - 1, names)})) {self._form(depth - 1, [*names, name])})"
        if kind < 0.85 or not self.branches:
            form = self.drawn.choice(["list", "parallel"])
            parts = [self._form(depth - 1, names) for _ in range(self.drawn.randint(1, 3))]
            return f'(format "{"{}" * len(parts)}" {" ".join([f"(nth ps {at})" for at in range(len(parts))])})'.join(
                [f"(let ((ps ({form} {' '.join(parts)}))) ", ")"]
            )
        test = f'(equal? {self._form(depth - 1, names)} "{self.drawn.choice(["yes", "one"])}")'
        return f"(if {test} {self._form(depth - 1, names)} {self._form(depth - 1, names)})"

    def variant(self) -> Any:
        """Other instructions, another cap, another model, the same again, or another program."""
        task = f"t{self.drawn.randrange(3)}"
        kind = self.drawn.randrange(5)
        if kind == 0:
            return {task: {"instructions": f"V{self.drawn.randrange(3)}: {{{{x}}}}"}}
        if kind == 1:
            return {task: {"max_output_tokens": self.drawn.choice([10, 40])}}
        if kind == 2:
            return {self.drawn.choice([task, "*"]): {"model": f"priced:m{self.drawn.randrange(2)}"}}
        return {} if kind == 3 else self._form(3, ["q"])

    def options(self) -> dict[str, Any]:
        """The options of an evaluation."""
        limits = [None, None, Limits(usd=self.drawn.choice([0.001, 0.004, 1.0]))]
        scorers = [[], [contains()], [cost, judge("good?")]]
        return {
            "variants": {f"v{number}": self.variant() for number in range(self.drawn.randint(0, 2))},
            "repeat": self.drawn.choice([1, 1, 2, 3]),
            "limits": self.drawn.choice(limits),
            "scorers": self.drawn.choice(scorers),
            "concurrency": self.drawn.choice([1, 3]),
        }

    async def evaluated(self, flow: AgentFlow) -> tuple[Forecast, EvaluationReport]:
        """Keep some results, forecast an evaluation, and carry it out."""
        drawn, program = self.drawn, self.program
        await self.define(flow)
        questions = [{"q": each} for each in QUESTIONS[: drawn.randint(1, 4)]]
        cases: Any = questions
        if drawn.random() < 0.3:
            for each in questions:
                await (await flow.start(program, each, run_id=each["q"])).result()
            cases, program = [Case(run_id=each["q"]) for each in questions], drawn.choice([None, program])
        for _ in range(drawn.randint(0, 2)):
            some = drawn.sample(cases, drawn.randint(1, len(cases)))
            await flow.evaluate(program, some, **self.options())
        options = self.options()
        return await flow.evaluate(program, cases, **options, forecast=True), await flow.evaluate(
            program, cases, **options
        )


def faults(evaluation: RandomEvaluation, forecast: Forecast, report: EvaluationReport) -> list[str]:
    """What the forecast said and was otherwise."""
    told: list[str] = []
    paid = {
        name: sum([each.paid_usd or 0 for each in report.samples if each.variant == name]) for name in report.variants
    }
    bounds = {name: forecast[name].at_most for name in report.variants}
    paid["all"], bounds["all"] = sum(paid.values()) + (report.judging_usd or 0), forecast.all.at_most
    for name, most in bounds.items():
        if most is not None and paid[name] > most + 1e-9:
            told.append(f"{name} cost {paid[name]}, and at most {most} was told")
    certain = not (forecast.all.may_run or forecast.all.ended or evaluation.branches)
    if certain and not report.partial:
        every = sum([each.usage.requests for each in report.samples])
        run = sum([each.paid_calls for each in report.samples])
        of_samples = [sum([getattr(each, name) for each in forecast.variants]) for name in ("reused", "runs")]
        if (every - run, run) != tuple(of_samples):
            told.append(f"{every - run} were reused and {run} run; {of_samples} was told")
    return told
