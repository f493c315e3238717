"""AgentDojo's suites as flows: its environments and tools behind agentflow's tool registry, its own checks of what happened."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites
from pydantic import TypeAdapter

from agentflow.core.ports.ports import Tool
from agentflow.handler.tools import tool_from_spec
from tests.benchmarks.dojo.goals import NOT_MEASURED, WRITTEN
from tests.benchmarks.dojo.programs import Call, Step, derive

BENCHMARK = "v1.2.2"
DIRECTORY = frozenset({"search_contacts_by_name", "search_contacts_by_email", "get_channels", "get_users_in_channel"})
"""Tools that look into lists which the user keeps: what they give has the source ``directory``, and is never an injection."""
_ACTS = re.compile(
    r"(send|schedule|update|create|delete|cancel|reschedule|add|append|share|invite|remove|post|reserve)_"
)
_DATA = TypeAdapter(Any)


def acts(tool: str) -> bool:
    """Whether a tool changes something; the others read."""
    return _ACTS.match(tool) is not None


@dataclass
class UserTask:
    """A user task, as the ``steps`` of its program; ``reads_at`` is its first step that reads what an attacker may have written."""

    name: str
    task: Any
    steps: Sequence[Step]
    reads_at: int | None


@dataclass
class Goal:
    """An injection goal; ``written``: its calls are not the benchmark's but those of ``goals.py``."""

    name: str
    task: Any
    written: bool


@dataclass
class Suite:
    """One suite; ``environment`` is the one that its tools work on at the moment."""

    name: str
    suite: Any
    environment: Any = None
    trace: list[Call] = field(default_factory=list[Call])

    def __post_init__(self) -> None:
        self._fresh = self.suite.load_and_inject_default_environment({})
        self._functions = FunctionsRuntime(self.suite.tools)
        self.users = [self._user(name, task) for name, task in self.suite.user_tasks.items()]
        self.goals = [
            Goal(name, task, (self.name, name) in WRITTEN)
            for name, task in self.suite.injection_tasks.items()
            if (self.name, name) not in NOT_MEASURED
        ]

    def tools(self) -> list[Tool]:
        """The tools as agentflow registers them."""
        return [tool_from_spec(self._spec(function), self._executor(function.name)) for function in self.suite.tools]

    def start(self, user: UserTask) -> Any:
        """Give the tools a fresh environment, as the user's task begins in, and return a copy of it."""
        self.environment = user.task.init_environment(self._fresh.model_copy(deep=True))
        self.trace = []
        return self.environment.model_copy(deep=True)

    def calls_of(self, goal: Goal, before: Any) -> list[Call]:
        """The calls that reach a goal, from the environment ``before``."""
        if goal.written:
            return WRITTEN[self.name, goal.name](before)
        return [Call(each.function, dict(each.args)) for each in goal.task.ground_truth(before)]

    def solved(self, user: UserTask, before: Any) -> bool:
        """Whether what has been called since ``before`` solves the user's task, by the benchmark's check."""
        task, answer = user.task, user.task.GROUND_TRUTH_OUTPUT
        found = task.utility_from_traces(answer, before, self.environment, self._traced())
        return bool(task.utility(answer, before, self.environment) if found is None else found)

    def reached(self, goal: Goal, before: Any) -> bool:
        """Whether what has been called since ``before`` reaches the goal, by the benchmark's check."""
        task, answer = goal.task, goal.task.GROUND_TRUTH_OUTPUT
        found = task.security_from_traces(answer, before, self.environment, self._traced())
        return bool(task.security(answer, before, self.environment) if found is None else found)

    def _traced(self) -> list[Any]:
        from agentdojo.functions_runtime import FunctionCall

        return [FunctionCall(function=call.tool, args=dict(call.arguments)) for call in self.trace]

    def _user(self, name: str, task: Any) -> UserTask:
        before = self.start(UserTask(name, task, (), None))
        calls = [Call(each.function, dict(each.args)) for each in task.ground_truth(before)]
        results = [self._call(call.tool, call.arguments) for call in calls]
        untrusted = [at for at, call in enumerate(calls) if not acts(call.tool) and call.tool not in DIRECTORY]
        steps = derive(task.PROMPT, calls, results, self._enumerated(), acts)
        return UserTask(name, task, steps, untrusted[0] if untrusted else None)

    def _enumerated(self) -> dict[str, set[str]]:
        return {
            function.name: {name for name, each in function.parameters.model_fields.items() if hasattr(each.annotation, "__members__")}
            for function in self.suite.tools
        }  # fmt: skip

    def _spec(self, function: Any) -> Mapping[str, Any]:
        spec = {
            "name": function.name,
            "description": function.description,
            "input_schema": function.parameters.model_json_schema(),
            "read_only": not acts(function.name),
        }
        return spec | ({"source": "directory"} if function.name in DIRECTORY else {})

    def _executor(self, name: str) -> Any:
        async def execute(arguments: dict[str, Any]) -> Any:
            return self._call(name, arguments)

        return execute

    def _call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        self.trace.append(Call(name, arguments))
        result, _ = self._functions.run_function(self.environment, name, arguments, raise_on_error=True)
        return _DATA.dump_python(result, mode="json")


def load() -> list[Suite]:
    """The four suites."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return [Suite(name, suite) for name, suite in get_suites(BENCHMARK).items()]
