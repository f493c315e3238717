"""Failures are told as such: dicts that look like one, declared types that do not, and codes that stay on every path."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

import agentflow.errors
from agentflow import AgentFlow, ScriptedProvider, TaskResult, tool
from agentflow.core.data.errors import AgentflowError, DataError, LimitExceeded, PurseEmpty, ResourceExhausted
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.data.result_notes import ErrorInfo
from agentflow.core.data.values import plain
from agentflow.core.events.events import Event, Warning
from agentflow.providers.dialects.retry import RetryPolicy
from agentflow.providers.table import open_provider
from tests.support.model_server import ModelServer


class Job(TypedDict):
    status: str
    message: str


class JobModel(BaseModel):
    status: str
    message: str


@dataclass
class JobData:
    status: str
    message: str


LOOKS_FAILED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"status": "FAILED", "content": "disk full", "error": "ENOSPC"}, "ENOSPC", {}),
    ({"status": "FAILED", "message": "disk full"}, "disk full", {}),
    ({"status": "FAILED", "error": "disk full"}, "disk full", {}),
    ({"status": "FAILED", "message": "disk full", "error": "ENOSPC"}, "disk full", {"error": "ENOSPC"}),
    ({"status": "FAILED", "content": "disk full", "path": "a", "free": 0}, "disk full", {"path": "a", "free": 0}),
    ({"status": "FAILED", "error": {"message": "disk full", "errno": 28}}, "disk full", {"errno": 28}),
    ({"status": "FAILED", "content": "disk full", "notes": {"error": {"message": "full"}}, "path": "a"}, "full", {"path": "a"}),
    ({"status": "FAILED", "content": "disk full"}, "disk full", {}),

    ({"status": "FAILED", "message": {"errno": 28}}, '{"errno": 28}', {}),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message", "details"), LOOKS_FAILED)
def test_a_dict_that_looks_failed_is(data: dict[str, Any], message: str, details: dict[str, Any]) -> None:
    """One key more, ``message`` or ``error`` in place of ``content``: all are failures, and nothing that was said is lost."""
    result = TaskResult.of(data)
    assert result.failed and result.notes["error"]["message"] == message and result.content
    assert details.items() <= dict(result.notes["error"]["details"]).items()
    assert TaskResult.of(plain(result)) == result


@pytest.mark.parametrize(
    "data", [{"status": "FAILED", "error": 5}, {"status": "FAILED", "message": "x", "notes": 5}, {"status": "FAILED", "notes": {"error": 5}}]
)  # fmt: skip
def test_what_looks_failed_and_is_malformed_is_refused(data: dict[str, Any]) -> None:
    """It is never a success."""
    with pytest.raises(DataError) as caught:
        TaskResult.of(data)
    assert caught.value.code == "data/fields"


@pytest.mark.parametrize(
    ("data", "warned"),
    [
        ({"status": "failed", "message": "disk full"}, True),
        ({"status": "Failed", "content": "disk full"}, True),
        ({"status": "error", "error": "disk full"}, True),
        ({"status": "FAILED", "job": 7}, False),
        ({"status": "failed", "job": 7}, False),
        ({"status": "done", "message": "ok"}, False),
    ],
)
async def test_other_spellings_are_data_and_told(data: dict[str, Any], warned: bool) -> None:
    """A dict of the host's own is data; one that reads like a failure is a warning, too."""
    events: list[Event] = []

    def work() -> dict[str, Any]:
        """Work."""
        return data

    async with AgentFlow(tools=[work]) as flow:
        flow.subscribe(events.append)
        result = (await flow.run("(work)")).value
    assert not result.failed and result.parsed_content == data
    codes = [each.code for each in events if isinstance(each, Warning)]
    assert codes == (["task/reads-like-failure"] if warned else [])


@pytest.mark.parametrize("kind", [Job, JobModel, JobData, Job | None])
async def test_a_declared_type_is_never_guessed(kind: Any) -> None:
    """A tool that declares the class of its answer gives data of it, whatever the fields are called."""

    def work() -> Any:
        """Work."""
        made = kind if inspect.isclass(kind) else Job
        return made(status="FAILED", message="the job failed")

    work.__annotations__["return"] = kind
    async with AgentFlow(tools=[work]) as flow:
        result = (await flow.run("(work)")).value
    assert not result.failed and "the job failed" in result.content


async def test_a_model_is_told_of_it() -> None:
    """What the tool returned as a failure reaches the model as an error."""
    asked: list[ToolResultPart] = []

    @tool
    def save() -> dict[str, Any]:
        """Save."""
        return {"status": "FAILED", "content": "disk full", "error": "ENOSPC"}

    def model(request: Any) -> Any:
        last = request.messages[-1].parts[0]
        if isinstance(last, ToolResultPart):
            asked.append(last)
            return "done"
        return {"tool_calls": [{"name": "save", "arguments": {}}]}

    async with AgentFlow(provider=ScriptedProvider(model), tools=[save]) as flow:
        await flow.run('(defatom t (params) (instructions "go")) (t)')
    assert asked[0].is_error and "disk full" in asked[0].text


# -- codes ----------------------------------------------------------------------------------------------------------------


def made(kind: type[AgentflowError]) -> AgentflowError:
    """An error of this class, with a code of a server's among its details where it takes any."""
    if issubclass(kind, PurseEmpty):
        return kind("no", purse="a", ends_at=None, limit="usd", allowed=1)
    if issubclass(kind, LimitExceeded):
        return kind("no", limit="usd", allowed=1)
    if issubclass(kind, ResourceExhausted):
        return kind("no", resource="context", used=2, limit=1)
    try:
        return kind("no", details={"code": 429, "provider_code": 429})
    except TypeError:
        return kind("no")


CLASSES = [
    each
    for each in (getattr(agentflow.errors, name) for name in agentflow.errors.__all__)
    if inspect.isclass(each) and issubclass(each, AgentflowError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_keeps_its_code(kind: type[AgentflowError]) -> None:
    """In the notes, in the error, in a copy, a pickle, and what comes back from JSON: the documented code."""
    error = made(kind)
    result = TaskResult.from_error(error)
    travelled = [
        result,
        copy.deepcopy(result),
        pickle.loads(pickle.dumps(result)),
        TaskResult.of(plain(result)),
        TaskResult.from_error(ErrorInfo.of_exception(error).exception()),
    ]
    for each in travelled:
        told: Any = each.error
        assert each.notes["error"]["details"]["code"] == told.code == error.code
        again = ErrorInfo.of_exception(told)
        assert again.details["code"] == error.code


def broken() -> str:
    """Raise."""
    raise ValueError("no")


@tool(approval=True)
def guarded() -> str:
    """Ask."""
    return "done"


@tool(timeout_s=0.01)
async def slow() -> None:
    """Wait."""
    await asyncio.sleep(5)


TYPED = """(defatom t (params) (instructions "go") (output_format {"type" "json" "schema" {"type" "object" "required" (list "a")}})) (t)"""
PATHS: list[tuple[str, str, list[str] | None]] = [
    ("host/raised", "(broken)", None),
    ("tool/not-approved", "(guarded)", ["guarded"]),
    ("tool/timeout", "(slow)", None),
    ("commands/not-approved", '(system:execute_shell_command (command "touch x"))', ["system:execute_shell_command"]),
    ("tasks/schema-missed", TYPED, None),
]


async def test_every_path_keeps_its_code() -> None:
    """Tools that raise, are refused, take too long or are called wrongly; tasks that are not there; and copies of all."""
    results: list[tuple[str, TaskResult]] = []
    async with AgentFlow(tools=[broken, guarded, slow], provider=ScriptedProvider(["{}"] * 9)) as flow:
        for code, program, allow in PATHS:
            results.append((code, (await flow.run(program, allow=allow)).value))
        results.append(("tasks/template-not-found", await flow.task_system.execute_task("atomic", "nobody", {})))
    for code, result in results:
        assert result.failed, code
        for each in (result, copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
            assert each.notes["error"]["details"]["code"] == code, result
        told: Any = pickle.loads(pickle.dumps(result)).error
        assert told.code == code


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "provider/bad-request"), (401, "provider/authentication"), (429, "provider/rate-limited")],
)
async def test_a_servers_own_code_stands_beside_ours(status: int, code: str) -> None:
    """What the vendor calls it is ``provider_code``, in the result of a task and in its copies."""
    answer = {"status": status, "error": {"type": "odd", "code": f"theirs-{status}", "message": "no"}}
    async with ModelServer([answer], repeat=True) as server:
        provider = open_provider("openai", base_url=server.url, api_key="k", retry=RetryPolicy(attempts=1))
        async with AgentFlow(provider=provider) as flow:
            result = (await flow.run('(defatom t (params) (instructions "go")) (t)')).value
        await provider.aclose()
    for each in (result, pickle.loads(pickle.dumps(result))):
        details = each.notes["error"]["details"]
        assert (details["code"], details["provider_code"], each.error.code) == (code, f"theirs-{status}", code)
