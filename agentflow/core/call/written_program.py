"""Programs that models write: each is checked as a whole before its first effect, bounded, and run with narrowed authority."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, LimitExceeded, RunStopped
from agentflow.core.data.frozen import slotted
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Surface

MAX_PROGRAM = 100_000
"""Maximum length of a model's program in characters."""
Explore = Callable[[Source], Awaitable[Sequence[str]]]
"""Tries a program out without effects. Returns its errors."""


@slotted
class WrittenProgram:
    """A program that a model wrote, its errors, and whether they came from checking, exploring or running it."""

    text: str = ""
    surface: Surface = "sexp"
    errors: list[str] = field(default_factory=list[str])
    stage: Literal["checking", "exploring", "running"] = "checking"

    @property
    def shown(self) -> str:
        """Its text, as far as a model is shown it."""
        return self.text[:MAX_PROGRAM]

    async def run(
        self,
        allow: frozenset[str],
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        steps: int,
        explore: Explore | None = None,
        taken: int = 0,
    ) -> Any:
        """Check and run it, and return its value; its errors are in :attr:`errors`, for the model to repair.

        It may call the tasks and tools in ``allow``, and finds ``inputs`` as its variables; ``steps`` bounds it, so that an endless loop
        costs an attempt and not the run, and ``taken`` is the least number of model calls that writing it took. Raises RunStopped, and LimitExceeded for a limit of the run.
        """
        if not self.text:
            self.errors.append("the answer holds no program")
            return None
        if len(self.text) > MAX_PROGRAM:
            self.errors.append(f"the program has more than {MAX_PROGRAM:,} characters")
            return None
        program = Source.unnamed(self.text, self.surface)
        faults = await call.run.admission.errors(program, allow, frozenset(inputs), call)
        if faults:
            self.errors.extend(fault.render() for fault in list(faults)[:20])
            return None
        past = await call.run.admission.past_budget(program, allow, inputs, call, taken)
        if past is not None:
            self.errors.append(past.render())
            return None
        if explore is not None:
            self.stage = "exploring"
            self.errors.extend((await explore(program))[:5])
            if self.errors:
                return None
        self.stage = "running"
        try:
            value = await call.run.run_program(program, allow, inputs, call, steps=steps, written=True)
        except LimitExceeded as error:
            if error.limit != "steps" or error.allowed != steps:
                raise  # a limit of the run
            self.errors.append(error.render())
            return None
        except RunStopped:
            raise
        except AgentflowError as error:
            self.errors.append(error.render())
            return None
        if isinstance(value, TaskResult) and value.failed:
            self.errors.append(f"the program's value is a FAILED result: {value.content}")
        return value
