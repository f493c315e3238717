"""Commands and approvals of a flow: what settings and arguments grant, when an approver is asked, what errors say."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ApprovalRequest, tool
from agentflow.cli.admin.trust import trust_file
from agentflow.core.data.results import TaskResult
from agentflow.errors import ConfigurationError
from agentflow.events import ToolStarted, WaitFinished, WaitStarted
from agentflow.settings import load_settings
from tests.hostile.backends import needed

SHELL = "system:execute_shell_command"


async def as_model(flow: AgentFlow, command: str) -> TaskResult:
    """Run a command with granted authority, as a model's call has it."""
    return (await flow.run(f"({SHELL} (command c))", bindings={"c": command}, allow=[SHELL])).value


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "none"])
async def test_python_is_the_running_environments(backend: str, tmp_path: Path) -> None:
    """Granted as ``python *``, it is the interpreter that runs the flow, with what is installed beside it."""
    needed(backend)
    async with AgentFlow(root=tmp_path, sandbox=backend, allow_commands=["python *"]) as flow:
        result = await as_model(flow, "python -c 'import sys, pydantic; print(sys.prefix)'")
        assert result.content.strip() == sys.prefix, result
        assert "allow_commands" in (await as_model(flow, "echo hi")).notes["error"]["details"]["hint"]


@pytest.mark.parametrize("where", ["arguments", "file"])
async def test_a_shell_is_granted_by_its_name(where: str, tmp_path: Path) -> None:
    """``shell=True`` or ``shell = true`` lets texts with operators run; models still need a rule or an approval."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "agentflow.toml").write_text('shell = true\nallow_commands = ["sh -c *"]\n')
    trust_file(tmp_path, forget=False, as_json=True)
    granted: dict[str, Any] = (
        {"shell": True, "allow_commands": ["sh -c *"]}
        if where == "arguments"
        else {"settings": load_settings(tmp_path)}
    )
    async with AgentFlow(root=root, sandbox="none", **granted) as flow:
        assert (await as_model(flow, "echo a | tr a b")).content == "b\n"
    async with AgentFlow(root=root, sandbox="none", shell=True) as flow:
        assert "was not approved" in (await as_model(flow, "echo a | tr a b")).content
        assert (await flow.executors.execute_shell_command({"command": "echo a | tr a b"})).content == "b\n"


async def test_refusals_name_what_grants(tmp_path: Path) -> None:
    """The hint for the developer has the words of the argument and of the settings file; what the model reads has neither."""
    async with AgentFlow(root=tmp_path, sandbox="none") as flow:
        refused = [await as_model(flow, "echo a | tr a b"), await as_model(flow, "echo a")]
        shell, rule = [each.notes["error"]["details"]["hint"] for each in refused]
        assert not any(word in each.content for each in refused for word in ("shell=", "allow_commands", "AgentFlow"))
        assert "run one program" in refused[0].content and "continue without it" in refused[1].content
        assert "shell=True" in shell and "shell = true" in shell
        assert "allow_commands=[" in rule and "allow_commands = [" in rule and "'echo *'" in rule.replace('"', "'")
    with pytest.raises(ConfigurationError, match="must be a list"):
        AgentFlow(root=tmp_path, allow_commands="git log *")


@tool(approval=True)
async def wipe() -> str:
    """Wipe."""
    return "wiped"


@pytest.mark.parametrize("call", ["(wipe)", f'({SHELL} (command "echo hi"))'])
@pytest.mark.parametrize("answer", [True, False])
async def test_an_approval_is_asked_for_before_the_tool_starts(call: str, answer: bool, tmp_path: Path) -> None:
    """Whatever tool it is: the question, its wait, the answer, then the tool's events, all at the tool's path."""
    seen: list[str] = []

    async def approve(request: ApprovalRequest) -> bool:
        seen.append(f"asked {request.path}")
        await asyncio.sleep(0)
        return answer

    def watch(event: Any) -> None:
        if isinstance(event, ToolStarted | WaitStarted | WaitFinished):
            seen.append(f"{type(event).__name__} {event.path}")

    async with AgentFlow(root=tmp_path, sandbox="none", tools=[wipe], approve=approve) as flow:
        flow.subscribe(watch)
        result = (await flow.run(call, allow=["wipe", SHELL])).value
    assert result.failed is not answer
    order = [line.split()[0] for line in seen]
    assert order == ["WaitStarted", "asked", "WaitFinished", "ToolStarted"] or order == [
        "asked",
        "WaitStarted",
        "WaitFinished",
        "ToolStarted",
    ]
    assert len({line.split()[1] for line in seen}) == 1


async def test_an_approver_that_raises_refuses(tmp_path: Path) -> None:
    """It is a no, as for any tool; nothing is run."""

    def approve(request: ApprovalRequest) -> bool:
        raise ZeroDivisionError("no")

    async with AgentFlow(root=tmp_path, sandbox="none", approve=approve) as flow:
        result = await as_model(flow, "touch made")
    assert result.failed and result.notes["error"]["details"]["code"] == "commands/not-approved"
    assert not (tmp_path / "made").exists()
