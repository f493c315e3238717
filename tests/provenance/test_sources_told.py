"""Events say what values came from, and what the policy denied, so that a run can be understood when it is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Provenance, ScriptedProvider, Sink

POLICY = Provenance(rules=[Sink("send", "to", allow=["user"])], sources={"fetch": "web"})
PROGRAM = """
(defatom t (params (q any)) (instructions "{{q}}"))
(define page (value-of (fetch)))
(define answer (value-of (t (q page))))
(try (send (to answer)) (catch (e) 1))
(send (to "boss"))
answer
"""


async def fetch() -> str:
    """Read a page."""
    return "a page"


async def send(to: str) -> str:
    """Send a mail."""
    return "sent"


async def events_of(program: str, model: list[Any], policy: Provenance | None) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    async with AgentFlow(provider=ScriptedProvider(model), tools=[fetch, send], provenance=policy) as flow:
        flow.subscribe(lambda event: seen.append(event.to_dict()))
        await flow.run(program)
    return seen


async def test_ends_say_what_values_came_from() -> None:
    """The end of a tool, a task and the run has the sources of what it gave; without a policy nothing has any."""
    seen = await events_of(PROGRAM, ["an answer"], POLICY)
    ends = [each for each in seen if each.get("sources") and not each["type"].endswith("_started")]
    told = [(each["type"], each.get("name"), each["sources"]) for each in ends]
    assert told == [
        ("tool_finished", "fetch", ["web"]),
        ("task_finished", "t", ["web"]),
        ("policy_denied", "send", ["web"]),
        ("tool_finished", "send", ["tool:send"]),
        ("run_finished", None, ["web"]),
    ]
    assert not [each for each in await events_of(PROGRAM, ["an answer"], None) if each.get("sources")]


async def test_what_is_denied_is_an_event() -> None:
    """A denied call has not begun: there is no start of it, but an event with the argument, its sources and how they came there; in a
    program that catches the error and in the turn of a model alike."""
    seen = await events_of(PROGRAM, ["an answer"], POLICY)
    (denied,) = [each for each in seen if each["type"] == "policy_denied"]
    assert (denied["name"], denied["argument"], denied["refused"]) == ("send", "to", ["web"])
    assert denied["message"].startswith("'to' of send depends on web") and denied["span"]["line"] == 5
    assert [each["span"]["line"] for each in seen if each["type"] == "tool_started" and each["name"] == "send"] == [6]
    calls = [
        {"tool_calls": [{"name": name, "arguments": data}]} for name, data in (("fetch", {}), ("send", {"to": "x"}))
    ]
    seen = await events_of('(defatom t (params) (instructions "go")) (t)', [*calls, "done"], POLICY)
    assert [each["name"] for each in seen if each["type"] == "policy_denied"] == ["send"]
    assert [each["name"] for each in seen if each["type"] == "tool_started"] == ["fetch"]


async def test_explaining_warns_instead() -> None:
    """With explain nothing is denied, and no event says that something was: a warning does."""
    policy = Provenance(rules=POLICY.rules, sources=POLICY.sources, explain=True)
    seen = await events_of(PROGRAM, ["an answer"], policy)
    assert not [each for each in seen if each["type"] == "policy_denied"]
    (warned,) = [each for each in seen if each["type"] == "warning"]
    assert warned["code"] == "provenance/denied" and warned["details"]["refused"] == ["web"]


async def test_starts_say_what_went_in_came_from() -> None:
    """The start of a task or tool names the sources of what it was given, also of what a model's turn had read; the user's has none."""
    seen = await events_of(PROGRAM, ["an answer"], POLICY)
    started = [(each["name"], each["sources"]) for each in seen if each["type"] in ("task_started", "tool_started")]
    assert started == [("fetch", []), ("t", ["web"]), ("send", [])]
    calls = [{"tool_calls": [{"name": "fetch", "arguments": {}}]}] * 2
    seen = await events_of('(defatom t (params) (instructions "go")) (t)', [*calls, "done"], POLICY)
    assert [each["sources"] for each in seen if each["type"] == "tool_started"] == [[], ["web"]]


async def test_a_lookup_says_which_files_it_found(tmp_path: Path) -> None:
    """The end of a lookup, and its start, name the sources of the paths and of the question."""
    (tmp_path / "apples.md").write_text("apples and pears")
    seen: list[dict[str, Any]] = []
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, tools=[fetch], provenance=POLICY) as flow:
        flow.subscribe(lambda event: seen.append(event.to_dict()))
        await flow.run('(get_context (query "apples")) (get_context (query (value-of (fetch))))')
    told = [(each["type"], each["sources"]) for each in seen if each["type"].startswith("context")]
    assert told[:2] == [("context_started", []), ("context_finished", ["file:apples.md"])]
    assert told[2][1] == ["web"] and "web" in told[3][1]
