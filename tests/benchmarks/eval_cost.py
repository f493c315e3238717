"""What an evaluation costs here, in pydantic-evals and in Inspect: model calls for each change, and time for each case.

Run it in an environment of its own, outside of the checkout:

    uv venv peers && uv pip install --python peers . pydantic-evals pydantic-ai-slim inspect_ai
    peers/bin/python tests/benchmarks/eval_cost.py --cases 40 --rounds 5

The program is the same everywhere: a task whose model calls a tool once, and a task that polishes its answer, so three model
calls and one tool call for each case, by one scripted model in the process. Each library is used as its documentation shows;
Inspect both as it is and with ``cache=True``. Calls are exact. Times are medians of rounds, taken in turn, of the first
evaluation, in which everything is carried out: read them as ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect as source
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

DRAFT, POLISH = "Answer with the tool: {question}", "Polish: {text}"
OTHER_DRAFT, OTHER_POLISH = "Answer briefly with the tool: {question}", "Shorten: {text}"
STEPS = ("first", "last prompt", "first prompt", "scorer", "one more case", "again")
Evaluate = Callable[[str, str, list[str], str], Awaitable[float]]
"""Evaluates the program with a draft's and a polisher's prompt on questions, by a scorer, and gives the mean score."""


class World:
    """The scripted model and the tool, which count their calls."""

    def __init__(self) -> None:
        self.calls = self.tools = 0

    def wants_tool(self, messages: int, has_tools: bool) -> bool:
        """Count a model call; whether the model answers it by a call of the tool."""
        self.calls += 1
        return has_tools and messages == 1

    def search(self, question: str) -> str:
        """Look the question up."""
        self.tools += 1
        return f"facts of {question}"

    def since(self) -> tuple[int, int]:
        """The calls of the model and of the tool since it was asked last."""
        counted, self.calls, self.tools = (self.calls, self.tools), 0, 0
        return counted


def agentflow_evaluation(world: World, directory: Path) -> Evaluate:
    """agentflow: overrides of tasks are variants; answers are kept in SQLite."""
    from agentflow import AgentFlow, ScriptedProvider, tool
    from agentflow.evals import contains, matches

    @tool(read_only=True, reuse_key="world")
    async def search(question: str) -> str:
        """Look the question up."""
        return world.search(question)

    def reply(request: Any) -> Any:
        last = request.messages[-1]
        if world.wants_tool(len(request.messages), bool(request.tools)):
            return {"tool_calls": [{"name": "search", "arguments": {"question": last.text.split()[-1]}}]}
        return f"<{request.messages[0].text}>"

    async def evaluate(draft_prompt: str, polish_prompt: str, questions: list[str], scorer: str) -> float:
        async with AgentFlow(provider=ScriptedProvider(reply), durable=f"sqlite:///{directory}/evals.db") as flow:

            @flow.task(tools=[search])
            async def draft(question: str) -> str:
                """Answer with the tool: {{question}}"""
                raise NotImplementedError

            @flow.task
            async def polish(text: str) -> str:
                """Polish: {{text}}"""
                raise NotImplementedError

            @flow.workflow
            async def answer(question: str) -> str:
                return await polish(await draft(question))

            changed = {
                "draft": {"instructions": draft_prompt.replace("{question}", "{{question}}")},
                "polish": {"instructions": polish_prompt.replace("{text}", "{{text}}")},
            }
            cases = [{"question": each, "expected": each} for each in questions]
            scorers = [contains() if scorer == "contains" else matches("q")]
            variants = {} if (draft_prompt, polish_prompt) == (DRAFT, POLISH) else {"changed": changed}
            report = await flow.evaluate(answer, cases, variants=variants, scorers=scorers)
            name = "changed" if variants else "base"
            return report[name].score("contains" if scorer == "contains" else "matches").mean

    return evaluate


def pydantic_evaluation(world: World, directory: Path) -> Evaluate:
    """pydantic-evals over agents of pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_evals import Case, Dataset
    from pydantic_evals.evaluators import Contains, Evaluator

    class Matches(Evaluator[Any, Any, Any]):
        def evaluate(self, ctx: Any) -> bool:
            return "q" in ctx.output

    def reply(messages: Any, info: Any) -> Any:
        text = messages[0].parts[-1].content
        if world.wants_tool(len(messages), bool(info.function_tools)):
            return ModelResponse(parts=[ToolCallPart("search", {"question": text.split()[-1]})])
        return ModelResponse(parts=[TextPart(f"<{text}>")])

    def search(question: str) -> str:
        """Look the question up."""
        return world.search(question)

    drafter: Any = Agent(FunctionModel(reply), tools=[search])
    polisher: Any = Agent(FunctionModel(reply))

    async def evaluate(draft_prompt: str, polish_prompt: str, questions: list[str], scorer: str) -> float:
        async def answer(question: str) -> str:
            text = (await drafter.run(draft_prompt.format(question=question))).output
            return (await polisher.run(polish_prompt.format(text=text))).output

        dataset: Any = Dataset(
            name="questions",
            cases=[
                Case(name=each, inputs=each, evaluators=(Contains(each) if scorer == "contains" else Matches(),))
                for each in questions
            ],
        )
        report = await dataset.evaluate(answer, progress=False)
        return float(statistics.fmean([next(iter(each.assertions.values())).value for each in report.cases]))

    return evaluate


def inspect_evaluation(world: World, directory: Path, *, cache: bool) -> Evaluate:
    """Inspect: a solver of two generations; a changed scorer scores its log again."""
    from inspect_ai import Task, eval_async, score_async
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser, ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes, match
    from inspect_ai.solver import Generate, TaskState, solver
    from inspect_ai.tool import tool
    from inspect_ai.util._display import init_display_type

    os.environ["INSPECT_CACHE_DIR"] = str(directory / "cache")
    init_display_type("none")  # eval_async has no parameter for it
    logs: dict[Any, Any] = {}

    @tool
    def search() -> Any:
        async def execute(question: str) -> str:
            """Look the question up.

            Args:
                question: The question.
            """
            return world.search(question)

        return execute

    def reply(messages: Any, tools: Any, choice: Any, config: Any) -> Any:
        text = messages[0].text
        if world.wants_tool(len(messages), bool(tools)):
            output = ModelOutput.for_tool_call("mockllm/model", "search", {"question": text.split()[-1]})
        else:
            output = ModelOutput.from_content("mockllm/model", f"<{text}>")
        output.usage = ModelUsage(input_tokens=5, output_tokens=5)  # else it is counted with a table from the network
        return output

    @solver
    def answer(draft_prompt: str, polish_prompt: str) -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.tools = [search()]
            state.messages = [ChatMessageUser(content=draft_prompt.format(question=state.input_text))]
            state = await generate(state, cache=cache)
            state.tools = []
            state.messages = [ChatMessageUser(content=polish_prompt.format(text=state.output.completion))]
            return await generate(state, cache=cache)

        return solve

    async def evaluate(draft_prompt: str, polish_prompt: str, questions: list[str], scorer: str) -> float:
        model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
        key = (draft_prompt, polish_prompt, len(questions))
        judge = includes() if scorer == "contains" else match(location="any")
        if scorer != "contains" and key in logs:
            log = await score_async(logs[key], judge, action="overwrite", display="none")
        else:
            task = Task(
                dataset=[Sample(input=each, target=each) for each in questions],
                solver=answer(draft_prompt, polish_prompt),
                scorer=judge,
            )
            (log,) = await eval_async(task, model=model, log_dir=str(directory / "logs"))
            logs[key] = log
        results: Any = log.results
        return float(results.scores[0].metrics["accuracy"].value)

    return evaluate


LIBRARIES: dict[str, Callable[[World, Path], Evaluate]] = {
    "agentflow": agentflow_evaluation,
    "pydantic-evals": pydantic_evaluation,
    "Inspect": lambda world, directory: inspect_evaluation(world, directory, cache=False),
    "Inspect, cache": lambda world, directory: inspect_evaluation(world, directory, cache=True),
}
WRITTEN = {
    "agentflow": agentflow_evaluation,
    "pydantic-evals": pydantic_evaluation,
    "Inspect": inspect_evaluation,
    "Inspect, cache": inspect_evaluation,
}


async def calls_of(name: str, questions: list[str]) -> dict[str, tuple[int, int]]:
    """The model and tool calls of each step."""
    world, counted = World(), {}
    with tempfile.TemporaryDirectory() as folder:
        evaluate = LIBRARIES[name](world, Path(folder))
        more = [*questions, f"q{len(questions)}"]
        plan = {
            "first": (DRAFT, POLISH, questions, "contains"),
            "last prompt": (DRAFT, OTHER_POLISH, questions, "contains"),
            "first prompt": (OTHER_DRAFT, POLISH, questions, "contains"),
            "scorer": (DRAFT, POLISH, questions, "matches"),
            "one more case": (DRAFT, POLISH, more, "contains"),
            "again": (DRAFT, POLISH, questions, "contains"),
        }
        for step, arguments in plan.items():
            mean = await evaluate(*arguments)
            assert mean == 1.0, (name, step, mean)
            counted[step] = world.since()
    return counted


async def times_of(name: str, questions: list[str]) -> tuple[float, float]:
    """Wall and processor milliseconds for each case of a first evaluation; one before it warms the process up."""
    with tempfile.TemporaryDirectory() as folder:
        await LIBRARIES[name](World(), Path(folder))(DRAFT, POLISH, questions[:2], "contains")
    with tempfile.TemporaryDirectory() as folder:
        evaluate = LIBRARIES[name](World(), Path(folder))
        wall, processor = time.perf_counter(), time.process_time()
        await evaluate(DRAFT, POLISH, questions, "contains")
        took = time.perf_counter() - wall, time.process_time() - processor
    return took[0] / len(questions) * 1e3, took[1] / len(questions) * 1e3


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    questions = [f"q{number}" for number in range(options.cases)]
    calls = {name: await calls_of(name, questions) for name in LIBRARIES}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in LIBRARIES}
    for _ in range(options.rounds):
        for name, taken in times.items():
            taken.append(await times_of(name, questions))
    figures = {
        name: {
            "calls": calls[name],
            "wall_ms": statistics.median([each[0] for each in times[name]]),
            "cpu_ms": statistics.median([each[1] for each in times[name]]),
            "lines": len([line for line in source.getsource(WRITTEN[name]).splitlines() if line.strip()]),
        }
        for name in LIBRARIES
    }
    if options.json:
        print(json.dumps(figures))
        return
    print(", ".join([f"{name} {version(name)}" for name in ("pydantic-evals", "pydantic-ai-slim", "inspect-ai")]))
    print(f"{'':16}" + "".join([f"{step:>16}" for step in STEPS]) + "     wall ms   CPU ms  lines")
    for name, figure in figures.items():
        counted = "".join([f"{f'{models} + {tools}':>16}" for models, tools in calls[name].values()])
        print(f"{name:16}{counted}{figure['wall_ms']:12.2f}{figure['cpu_ms']:9.2f}{figure['lines']:7}")


if __name__ == "__main__":
    asyncio.run(main())
