"""What an atomic task costs beside its model call: ``python tests/benchmarks/task_cost.py``.

CPU per task with a turn loop that answers at once, beside awaiting that turn loop bare, interleaved, medians.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.core.call.call import CallContext
from agentflow.core.data.messages import ModelResponse, TextPart, Usage
from agentflow.core.ports.ports import Prompt, PromptOutcome
from agentflow.spec.task_system import TaskSystem
from agentflow.tasks.template import request_from_arguments
from tests.benchmarks.timing import medians
from tests.support.fakes import FakeRun

ROUNDS, TASKS = 9, 500


class Answering:
    """A turn loop that answers at once."""

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        response = ModelResponse((TextPart("x"),), "end", Usage(1, 1, requests=1), "m")
        return PromptOutcome(response=response, turn=(), usage=response.usage, cost_usd=0.0, turns=1)


async def main() -> None:
    prompts = Answering()
    system = TaskSystem(prompts=prompts)
    system.register_template({"name": "t", "params": {"x": "string"}, "instructions": "Say {{x}}"})
    template = system.find_template("t")
    assert template is not None
    call = FakeRun(watched=False).call()
    prompt = Prompt(parts=(TextPart("Say hi"),))
    taken = await medians(
        {
            "task": lambda: system.service.run_request(request_from_arguments(template, {"x": "hi"}), call),
            "bare": lambda: prompts.run_prompt(prompt, call),
        },
        ROUNDS,
        TASKS,
    )
    task, bare = taken["task"], taken["bare"]
    print(f"task {task * 1e6:.0f} us, its turn loop bare {bare * 1e6:.0f} us")
    print(f"a task adds {(task - bare) * 1e6:.0f} us of CPU: {(task - bare) / 500e-6:.2f} of a 0.5 ms model call")


if __name__ == "__main__":
    asyncio.run(main())
