"""What leaves a server is for its reader: whoever only uses it learns nothing of the host's code, settings and files."""

from __future__ import annotations

import asyncio
import base64
import gzip
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, TaskError, tool
from agentflow.core.data.provider_errors import AuthenticationFailed
from agentflow.events import ToolFinished
from agentflow.flow.host_spans import HostSpans
from agentflow.observe.files import read_events
from agentflow.observe.report.html import report_html
from agentflow.serve import Export
from agentflow.serve.front_end import text_of_result
from tests.support.serve_clients import ROUTES, by, frames_of, keys_of, request_of
from tests.support.served import Served, served

MODULE = '''
import agentflow

DISCOUNT_OF_RIVALS = "constant-of-the-module"


def beside():
    return "function-beside"


async def helper(flow):
    return await flow.call_tool("double", n=2)  # line-of-helper


def make(flow):
    other = "constant-of-make"

    @flow.workflow
    async def audit(message: str) -> str:
        """Audit."""
        return f"{message} {await helper(flow)}"  # line-of-audit

    return audit
'''
HIDDEN = ("constant-of-the-module", "function-beside", "constant-of-make")
OWN = ("line-of-audit", "line-of-helper")


def double(n: int) -> int:
    """Twice as much."""
    return 2 * n


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """A module of a host, in a directory whose name is nobody's business."""
    path = tmp_path / "private-home" / "shop.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("shop", path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["shop"] = loaded
    spec.loader.exec_module(loaded)
    yield loaded
    del sys.modules["shop"]


async def text_of_run(server: Served, name: str | None, export: str = "audit") -> str:
    """All that a run's events say to a key, from the first on; the run is ``ada``'s."""
    body = {"export": export, "bindings": {"message": "Hello"}}
    begun = await server.post("/runs", body, headers={} if name is None else by("ada"))
    assert begun.status_code == 201, begun.text
    path = f"/runs/{begun.json()['run_id']}/events"
    return (await server.get(path, headers={} if name is None else by(name))).text


async def test_records_and_reports_have_the_functions_of_the_run_and_nothing_else(
    tmp_path: Path, module: ModuleType
) -> None:
    """Of the file of a workflow: the lines of the functions that the run called, where they stand; no directory, nothing beside them."""
    async with AgentFlow(tools=[double], record=tmp_path / "records") as flow:
        result = await flow.run(module.make(flow)("Hello"))
        assert result.value == "Hello 4"
    (path,) = [
        each for each in (tmp_path / "records").rglob("*") if each.is_file() and "run_started" in each.read_text()
    ]
    said = path.read_text()
    assert all([own in said for own in OWN]) and "shop.py" in said
    assert not [each for each in (*HIDDEN, "private-home") if each in said]
    events = list(read_events(path.read_bytes().splitlines()))
    loaded = [each for each in events if each["type"] == "program_loaded"]
    whole = MODULE.split("\n")
    lines = loaded[-1]["text"].split("\n")
    assert [at for at, line in enumerate(lines) if line and line != whole[at]] == []
    page = gzip.decompress(base64.b64decode(report_html(events).split('id="data">')[1].split("<")[0])).decode()
    assert all([own in page for own in OWN])
    assert not [each for each in (*HIDDEN, "private-home") if each in page]


async def test_python_of_the_host_is_shown_to_operators_alone(tmp_path: Path, module: ModuleType) -> None:
    """A key reads the events of its runs without the source of the workflow; one for the fleet, and a server that shows it, with it."""
    keys = keys_of(tmp_path, ada="", eve="fleet = true")
    async with AgentFlow(tools=[double], record=tmp_path / "records") as flow:
        exports = [module.make(flow)]
        async with served(flow, exports, keys=keys) as server:
            mine, theirs = await text_of_run(server, "ada"), await text_of_run(server, "eve")
        async with served(flow, exports) as server:
            anyones = await text_of_run(server, None)
        async with served(flow, exports, fleet=True) as server:
            operators = await text_of_run(server, None)
    for said in (mine, theirs, anyones, operators):
        assert '"program_loaded"' in said and '"source":"shop.py"' in said.replace(" ", "")
        assert not [each for each in (*HIDDEN, "private-home") if each in said]
    for said in (theirs, operators):
        assert all([own in said for own in OWN])
    for said in (mine, anyones):
        assert not [own for own in OWN if own in said]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter%2Ftwo22@127.0.0.1:1/runs",
        "postgresql://ada@127.0.0.1:1/runs?password=hunter%2Ftwo22",
        "postgresql://ada@127.0.0.1:1/runs postgresql://ada:hunter%2Ftwo22@127.0.0.1:1/more",
    ],
)
async def test_the_password_of_a_database_is_a_secret(url: str) -> None:
    """Wherever in the address it stands, as it is written there and as it is sent: what a run says does not show it."""
    pytest.importorskip("asyncpg")
    seen: list[Any] = []
    async with AgentFlow(durable=url) as flow:
        flow.subscribe(seen.append)
        await flow.run('(log-message "refused: hunter%2Ftwo22, hunter/two22")')
    assert "refused: [redacted], [redacted]" in str([each.to_dict() for each in seen])


class Unset(ScriptedProvider):
    """A model whose server says what of the host's settings is wrong."""

    async def stream(self, request: Any) -> Any:
        raise AuthenticationFailed("the key in SHOP_KEY was refused by 10.1.2.3", hint="set SHOP_KEY")
        yield


ASK = '(defatom ask (params (q)) (instructions "{{q}}")) (value-of (ask (q message)))'
HOSTS = ("SHOP_KEY", "10.1.2.3", "--allow-host", "--programs", "fleet = true")


async def test_errors_of_the_server_are_told_to_operators(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stranger is told that the server failed, at every door; an operator what to set, and the log, too."""
    keys = keys_of(tmp_path, ada="", eve="fleet = true")
    async with AgentFlow(provider=Unset()) as flow, served(flow, {"ask": ASK}, keys=keys) as server:
        begun = await server.post("/runs", {"export": "ask", "bindings": {"message": "x"}}, headers=by("ada"))
        path = f"/runs/{begun.json()['run_id']}"
        events = {who: (await server.get(f"{path}/events", headers=by(who))).text for who in ("ada", "eve")}
        shown = {who: (await server.get(path, headers=by(who))).text for who in ("ada", "eve")}
        body = {"model": "ask", "messages": [{"role": "user", "content": "x"}]}
        chat = await server.post("/v1/chat/completions", body, headers=by("ada"))
        assert chat.status_code == 502
        for text in (events["ada"], shown["ada"], chat.text):
            assert "provider/authentication" in text and not [each for each in HOSTS if each in text]
        assert all(["SHOP_KEY" in text for text in (events["eve"], shown["eve"])])
    assert "SHOP_KEY" in caplog.text


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "another name": ("GET", "/runs", {"host": "shop.example"}),
    "a page of another site": ("GET", "/runs", {"origin": "http://shop.example"}),
    "a program": ("POST", "/runs", {}),
    "the fleet": ("GET", "/fleet", {}),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_refusals_speak_to_their_reader(what: str, tmp_path: Path) -> None:
    """Nobody but an operator hears of options and settings of the server; what a client may do instead everybody hears."""
    method, path, headers = REFUSED[what]
    keys = keys_of(tmp_path, ada="", eve="fleet = true")
    async with AgentFlow() as flow, served(flow, {"ask": ASK}, keys=keys) as server:
        said: dict[str, str] = {}
        for who in ("ada", "eve"):
            content = {"json": {"program": "(+ 1 2)"}} if method == "POST" else {}
            answer = await server.client.request(method, path, headers={**by(who), **headers}, **content)
            assert answer.status_code >= 400 or (what, who) == ("the fleet", "eve")
            said[who] = answer.text
    assert not [each for each in ("--", "= true") if each in said["ada"]]
    assert "--" in said["eve"] or what == "the fleet"


async def test_what_a_tool_raised_is_shown_without_where(module: ModuleType) -> None:
    """Front ends are sent the message of a tool's error, and not the line of the host's file in which it was called."""
    error = TaskError(
        "no such order",
        span=HostSpans().source(test_what_a_tool_raised_is_shown_without_where.__code__, globals()).span(0, 1),
    )
    event = ToolFinished("r", 1, 2, "0", 1, None, 0.0, started=1, outcome="error", duration_s=0.0, error=error)
    assert text_of_result(event) == "no such order"


AT_WALLS: dict[str, tuple[str, str, str]] = {
    "a path outside of the roots": (
        '(system:read_files (file_paths \'("/etc/shadow")))',
        "files/outside",
        "/etc/shadow",
    ),
    "a shell": ('(system:execute_shell_command (command "ls | wc"))', "commands/shell", "shell=True"),
    "a program that is not there": (
        '(system:execute_shell_command (command "no-such-tool"))',
        "commands/not-found",
        "no-such-tool",
    ),
    "a command that nobody may run": (
        '(system:execute_shell_command (command "su ledgers"))',
        "commands/denied",
        "su ledgers",
    ),
}


@pytest.mark.parametrize("what", AT_WALLS)
async def test_what_a_wall_refuses_is_told_by_reader(what: str, tmp_path: Path) -> None:
    """A client hears that it is not allowed, at every door; an operator hears the path, the command and the setting. The author of a program that was sent hears
    what in it was refused, and not where the roots are."""
    call, code, own = AT_WALLS[what]
    root = tmp_path / "srv-root"
    root.mkdir()
    program = f"(value-of {call})"
    keys = keys_of(tmp_path, ada="programs = true", eve="fleet = true")
    allow = ["system:read_files", "system:execute_shell_command"]
    async with AgentFlow(root=root) as flow:
        exports = {"walled": Export(program=program, allow=allow)}
        async with served(flow, exports, keys=keys, programs=allow) as server:
            begun = await server.post("/runs", {"export": "walled", "bindings": {"message": "x"}}, headers=by("ada"))
            path = f"/runs/{begun.json()['run_id']}"
            said = {
                who: [(await server.get(at, headers=by(who))).text for at in (f"{path}/events", path)]
                for who in ("ada", "eve")
            }
            texts = [(await server.post(*request_of(route, "walled"), headers=by("ada"))).text for route in ROUTES]
            sent = await server.post("/runs", {"program": program}, headers=by("ada"))
            path = f"/runs/{sent.json()['run_id']}"
            await server.get(f"{path}/events", headers=by("ada"))
            author = (await server.get(path, headers=by("ada"))).json()["error"]
    assert own in said["eve"][0] and all([code in each for each in said["eve"]])
    assert author["code"] == code and "srv-root" not in str(author)
    for text in (*said["ada"], *texts):
        assert "srv-root" not in text and "shell=True" not in text
    told = [event["error"]["message"] for event in frames_of(said["ada"][0]) if event.get("error")]
    assert told and all([each.endswith("there is none, or it is not allowed") for each in told])


async def test_warnings_are_told_by_reader(tmp_path: Path) -> None:
    """A client hears that there was a warning, by its code, and what one about the program says; what happened at the host is for operators."""

    async def ask(request: object) -> bool:
        raise OSError("no route to approvals.internal")

    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    keys = keys_of(tmp_path, ada="", eve="fleet = true")
    program = '(defatom f (params) (instructions "a")) (defatom f (params) (instructions "b")) (pay)'
    async with AgentFlow(tools=[pay], approve=ask) as flow:
        exports = {"paying": Export(program=program, allow=["pay", "defatom"])}
        async with served(flow, exports, keys=keys) as server:
            begun = await server.post("/runs", {"export": "paying", "bindings": {"message": "x"}}, headers=by("ada"))
            path = f"/runs/{begun.json()['run_id']}/events"
            said = {who: frames_of((await server.get(path, headers=by(who))).text) for who in ("ada", "eve")}
    warned = {who: {e["code"]: e for e in events if e["type"] == "warning"} for who, events in said.items()}
    assert {*warned["ada"]} == {*warned["eve"]} >= {"tool/approver-failed"}
    assert "approvals.internal" in warned["eve"]["tool/approver-failed"]["message"]
    assert "approvals.internal" not in str(said["ada"])
    assert warned["ada"]["tool/approver-failed"]["message"] == "the operator of the server sees more"
    assert not any([each["details"] for each in warned["ada"].values()])
    assert all(
        [
            code.split("/")[0] == "tool" or each["message"] == warned["eve"][code]["message"]
            for code, each in warned["ada"].items()
        ]
    )


async def test_a_large_value_is_shown_in_parts_and_without_secrets() -> None:
    """Others run while a value of many parts is made into data; a secret in it is not shown, and nothing is remembered of it."""
    from agentflow.serve.run_api import shown_data

    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with AgentFlow() as flow, served(flow, {"n": "(+ 1 1)"}) as server:
        flow.redactor.add("hunter2hunter2")
        other = asyncio.create_task(beside())
        await asyncio.sleep(0)
        turns = 0
        shown = await shown_data(server.server.service, [[n] for n in range(300_000)] + ["x hunter2hunter2 y" * 9_000])
        other.cancel()
        assert shown[7] == [7] and "hunter2" not in shown[-1] and turns > 3
        assert flow.redactor.examined == {} and await shown_data(server.server.service, 1) == 1
