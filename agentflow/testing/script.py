"""Answers the model calls of a flow by task name, and keeps the requests."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelRequest, ModelResponse
from agentflow.core.events.events import Event, ModelStarted, RunFinished, TaskStarted
from agentflow.lib.text.suggest import did_you_mean
from agentflow.providers.scripted import ScriptedProvider

if TYPE_CHECKING:
    from agentflow.app import AgentFlow

Reply: TypeAlias = "str | Mapping[str, Any] | BaseException | ModelResponse | Callable[[ModelRequest], Any]"
"""A model's reply, in any form that :class:`~agentflow.ScriptedProvider` accepts."""

_asking: ContextVar[tuple[str, int]] = ContextVar("agentflow_asking", default=("", 1))
"""The task that asks a model in this context, and the number of its model call, from 1."""


@frozen
class ScriptedCall:
    """A model call: the name of the ``task`` (empty: none), the model call of it (``turn``, from 1), and the ``request``."""

    task: str
    turn: int
    request: ModelRequest

    @property
    def prompt(self) -> str:
        """The text of the last message that has any."""
        return next((text for message in reversed(self.request.messages) if (text := message.text)), "")


class Script:
    """The replies of models in a test, by task.

        script.on("review", "There is a bug in line 3.")
        with script.answers(flow):
            await flow.run(...)
        assert "a.py" in script.prompt("review")

    A reply is anything that :class:`~agentflow.ScriptedProvider` accepts: text, a dict (``{"tool_calls": [...]}``,
    ``{"error": ...}``), an exception, or a function of the request. Attribute ``calls``: every model call, in order.
    """

    def __init__(self) -> None:
        self.calls: list[ScriptedCall] = []
        self._replies: defaultdict[str | None, deque[Reply]] = defaultdict(deque)
        self._always: dict[str | None, Callable[[ModelRequest], Any]] = {}

    def on(self, task: str, *replies: Reply) -> None:
        """Add replies for the calls of ``task``, in order. A single function answers all of them."""
        self._add(task, replies)

    def otherwise(self, *replies: Reply) -> None:
        """Add replies for the calls of all other tasks, in order. A single function answers all of them."""
        self._add(None, replies)

    def requests(self, task: str | None = None) -> list[ModelRequest]:
        """The requests of the model calls of ``task`` (None: of all tasks), in order."""
        return [call.request for call in self.calls if task is None or call.task == task]

    def prompts(self, task: str | None = None) -> list[str]:
        """The prompts of ``task`` (None: of all tasks), in order: the last text of each first model call."""
        return [call.prompt for call in self.calls if call.turn == 1 and (task is None or call.task == task)]

    def prompt(self, task: str | None = None) -> str:
        """The only prompt of ``task``. Raises AssertionError, listing the tasks that asked, unless there is exactly one."""
        prompts = self.prompts(task)
        if len(prompts) == 1:
            return prompts[0]
        asked = Counter(call.task or "(no task)" for call in self.calls if call.turn == 1)
        listed = ", ".join(f"{name} {count} times" for name, count in asked.items()) or "nothing"
        what = "a model" if task is None else f"task {task!r}"
        raise AssertionError(f"{what} was asked {len(prompts)} times, not once; tasks that asked: {listed}")

    @property
    def unused(self) -> dict[str, int]:
        """Number of unused replies by task; those for other tasks under the empty name."""
        return {task or "": len(left) for task, left in self._replies.items() if left}

    @contextmanager
    def answers(self, flow: AgentFlow) -> Generator[AgentFlow]:
        """Within the block, answer every model call of ``flow`` from this script, for all of its models; yields the flow."""
        unsubscribe = flow.subscribe(_TaskNames())
        try:
            with flow.router.replacing(provider=ScriptedProvider(self._answer)):
                yield flow
        finally:
            unsubscribe()

    def _add(self, task: str | None, replies: tuple[Reply, ...]) -> None:
        if len(replies) == 1 and callable(replies[0]) and not isinstance(replies[0], BaseException | type):
            self._always[task] = replies[0]
        else:
            self._replies[task].extend(replies)

    def _answer(self, request: ModelRequest) -> Any:
        task, turn = _asking.get()
        self.calls.append(ScriptedCall(task, turn, request))
        for key in (task, None):
            if self._replies[key]:
                reply = self._replies[key].popleft()
                return reply(request) if callable(reply) and not isinstance(reply, type) else reply
            if key in self._always:
                return self._always[key](request)
        names = [name for name in {**self._replies, **self._always} if name and name != task]
        count = sum(call.task == task for call in self.calls)
        raise ConfigurationError(
            f"the script has no reply for model call {count} of {f'task {task!r}' if task else 'no task'}",
            code="provider/script-ended",
            hint=did_you_mean(task, names) or f'script.on("{task}", "the reply")'
            if task
            else 'script.otherwise("the reply")',
        )


class _TaskNames:
    """An observer that notes, at the start of a model call, the task that makes it."""

    deltas = False

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int], str] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._tasks = {key: task for key, task in self._tasks.items() if key[0] != event.run_id}
            return
        task = event.name if isinstance(event, TaskStarted) else self._tasks.get((event.run_id, event.parent or -1), "")
        if task:
            self._tasks[event.run_id, event.seq] = task
        if isinstance(event, ModelStarted):
            _asking.set((task, event.turn))
