"""Where the processor time of a one-task run goes, layer by layer: ``python tests/benchmarks/task_layers.py``.

Each row is the work of the one above it with one more layer around it, through the real parts of a flow over a scripted
model: the difference is what the layer costs. Medians of interleaved rounds in one process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow, Limits, ModelRequest, ScriptedProvider, Session, SexpEnvironment
from agentflow.core.data.messages import TextPart, user
from agentflow.core.data.results import TaskResult
from agentflow.core.ports.ports import Prompt, PromptOutcome
from agentflow.tasks.template import request_from_arguments
from tests.benchmarks.figures import ONE_TASK, TEMPLATE
from tests.benchmarks.timing import Work, medians

ROUNDS, TIMES = 25, 200


async def main() -> None:
    model = ScriptedProvider(lambda request: model.requests.clear() or "ok")
    request = ModelRequest(messages=(user("Say go on"),), stream=False)

    async def answer() -> None:
        async for _ in model.stream(request):
            pass

    async with AgentFlow(provider=model, limits=Limits(effects=None)) as flow:
        flow.task_system.register_template(TEMPLATE)
        service, prompts = flow.task_system.service, flow.handler.prompts
        template = flow.task_system.find_template("ask")
        assert template is not None
        compiled = flow.compile(ONE_TASK)
        async with flow.engine.open("layers") as (_, call):

            def prompt() -> Awaitable[PromptOutcome]:
                call.session = Session()
                return prompts.run_prompt(Prompt(parts=(TextPart("Say go on"),), tools=()), call)

            def task() -> Awaitable[TaskResult]:
                call.session = Session()
                return service.run_request(request_from_arguments(template, {"question": "go on"}), call)

            def program() -> Awaitable[object]:
                call.session = Session()
                return flow.engine.evaluate(compiled, SexpEnvironment(), call, fitted=True)

            layers: dict[str, Work] = {
                "one iteration of the event loop": lambda: asyncio.sleep(0),
                "a scripted model's answer": answer,
                "a prompt: request, turn loop, session": prompt,
                "a task: template, inputs, context, result": task,
                "a program: strand, effect, limits, numbers": program,
                "a run: opened, program looked up, closed": lambda: flow.run(ONE_TASK),
            }
            taken = await medians(layers, ROUNDS, TIMES)
    before = 0.0
    for name, seconds in taken.items():
        print(f"{name:<44} {seconds * 1e6:6.1f} us   {(seconds - before) * 1e6:+6.1f}")
        before = seconds


if __name__ == "__main__":
    asyncio.run(main())
