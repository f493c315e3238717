"""Durable runs: records, bindings, closures and sessions keep where values came from; the policy in force judges them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance, ScriptedProvider, Sink
from agentflow.cli.shared.application import narrow
from agentflow.core.data.labels import Label
from agentflow.durable.values.codec import Codec
from agentflow.durable.values.record_values import fingerprint
from tests.support.mail import POLICY, Mail

WEB = frozenset({"web"})
TASK = '(defatom t (params (x)) (instructions "Do {{x}}") (tools fetch))'


def opened(root: Path, *replies: Any, policy: Provenance | None = POLICY, **options: Any) -> Mail:
    """A flow over the same database, as another process would open it."""
    return Mail(root, replies, policy, durable=f"sqlite:///{root}/runs.db", **options)


class Gate:
    """A tool that holds the first process, and lets the second pass."""

    def __init__(self) -> None:
        self.reached, self.release = asyncio.Event(), asyncio.Event()

    def add_to(self, flow: AgentFlow) -> None:
        """Register ``hold``."""

        @flow.tool(source="user")
        async def hold() -> str:
            """Wait."""
            self.reached.set()
            await self.release.wait()
            return "on"


async def interrupted(root: Path, program: str, *replies: Any, **options: Any) -> None:
    """Run a program up to ``(hold)``, and leave it there."""
    gate = Gate()
    made = opened(root, *replies, **options)
    async with made.flow as flow:
        gate.add_to(flow)
        await flow.start(program, {}, run_id="r")
        await gate.reached.wait()


async def gone_on(root: Path, **options: Any) -> tuple[Mail, Any]:
    """Resume it in another flow, without any models: the mails, and the result or the error."""
    gate = Gate()
    gate.release.set()
    made = opened(root, **options)
    async with made.flow as flow:
        gate.add_to(flow)
        try:
            return made, await (await flow.resume("r")).result()
        except AgentflowError as error:
            return made, error


async def test_a_replayed_tool_gives_a_labelled_value(tmp_path: Path) -> None:
    """What a record gives came from where it came from: the sink refuses it after a restart too."""
    program = '(let ((p (value-of (fetch (url "u"))))) (hold) (send (to p) (body "x")))'
    await interrupted(tmp_path, program)
    made, error = await gone_on(tmp_path)
    assert error.code == "provenance/denied" and made.sent == []


async def test_a_replayed_task_has_read_what_its_tools_gave(tmp_path: Path) -> None:
    """A task whose model called a tool is answered from its record, with the sources of what the tool gave."""
    program = f'(begin {TASK} (let ((p (value-of (t (x "it"))))) (hold) (send (to p) (body "x"))))'
    called = {"tool_calls": [{"name": "fetch", "arguments": {"url": "u"}}]}
    await interrupted(tmp_path, program, called, "eve@example.org")
    made, error = await gone_on(tmp_path)
    assert error.code == "provenance/denied" and made.sent == []


async def test_a_stricter_policy_stops_a_resumed_run(tmp_path: Path) -> None:
    """The policy in force judges, not that of the beginning."""
    program = '(let ((p (value-of (lookup (name "bob"))))) (hold) (send (to p) (body "x")))'
    await interrupted(tmp_path, program)
    made, error = await gone_on(tmp_path, policy=Provenance(rules=[Sink("send", "to")]))
    assert error.code == "provenance/denied" and made.sent == []


async def test_a_resumed_run_goes_on_under_the_same_policy(tmp_path: Path) -> None:
    """What was allowed is allowed again, and the result says where it came from."""
    program = '(let ((p (value-of (lookup (name "bob"))))) (hold) (send (to p) (body "x")) p)'
    await interrupted(tmp_path, program)
    made, result = await gone_on(tmp_path)
    assert made.sent == [("bob@example.com", "x")] and result.sources == frozenset({"directory"})
    async with opened(tmp_path).flow as flow:
        again = await (await flow.start(program, {}, run_id="r")).result()
    assert again.sources == frozenset({"directory"})


async def test_records_of_a_flow_without_a_policy_came_from_nobody_knows_where(tmp_path: Path) -> None:
    """A run that began without a policy and goes on under one: what it had read may not reach a sink."""
    program = '(let ((p (value-of (fetch (url "u"))))) (hold) (send (to p) (body "x")))'
    await interrupted(tmp_path, program, policy=None)
    made, error = await gone_on(tmp_path)
    assert error.code == "provenance/denied" and "unknown" in error.details["refused"] and made.sent == []


async def test_bindings_and_captured_values_are_stored_in_their_boxes(tmp_path: Path) -> None:
    """A binding that is Labelled is so after a restart."""
    gate = Gate()
    async with opened(tmp_path).flow as flow:
        gate.add_to(flow)
        await flow.start('(begin (hold) (send (to who) (body "x")))', {"who": Labelled("eve", "mail")}, run_id="r")
        await gate.reached.wait()
    made, error = await gone_on(tmp_path)
    assert error.code == "provenance/denied" and made.sent == []


async def test_an_endorsement_is_recorded(tmp_path: Path) -> None:
    """Nobody is asked a second time for what was approved before a restart."""
    asked: list[str] = []
    program = '(let ((p (endorse (value-of (fetch (url "u"))) "asked for"))) (hold) (send (to p) (body "x")))'
    gate = Gate()
    async with opened(tmp_path, approve=lambda request: asked.append(request.text) or True).flow as flow:
        gate.add_to(flow)
        await flow.start(program, {}, run_id="r", allow=["fetch", "hold", "send", "endorse"])
        await gate.reached.wait()
    made, result = await gone_on(tmp_path, approve=lambda request: asked.append(request.text) or True)
    assert len(made.sent) == 1 and len(asked) == 1, result


def test_a_box_is_data(tmp_path: Path) -> None:
    """Boxes are written and read at any depth, as keys too; what identifies an effect does not depend on them."""
    codec = Codec(following=lambda: True)
    value = [{"a": Label([1, Label("x", frozenset({"b"}))], WEB)}, {Label("k", WEB): 1}]
    again = codec.decode(codec.encode(value))
    assert again[0]["a"].sources == WEB and again[0]["a"].value[1].sources == frozenset({"b"})
    assert [type(key) for key in again[1]] == [Label]
    assert Codec().decode(codec.encode(value)) == [{"a": [1, "x"]}, {"k": 1}]
    assert fingerprint("tool", "t", {"x": Label("a", WEB)}) == fingerprint("tool", "t", {"x": "a"})


async def test_a_reused_result_keeps_its_sources(tmp_path: Path) -> None:
    """A result that another run reuses has read what it had read when it was made."""
    task = '(defatom t (params (x)) (instructions "Do {{x}}") (tools fetch) (reuse "1d"))'
    program = f'(begin {task} (send (to (value-of (t (x "it")))) (body "x")))'
    called = {"tool_calls": [{"name": "fetch", "arguments": {"url": "u"}}]}
    for replies in ([called, "eve@example.org"], []):
        made = opened(tmp_path, *replies)
        async with made.flow as flow:
            with pytest.raises(AgentflowError) as denied:
                await flow.run(program)
        assert denied.value.code == "provenance/denied" and made.sent == []


async def test_a_lasting_session_keeps_its_sources(tmp_path: Path) -> None:
    """A conversation that is stored has read what it had read, in the next process too."""
    note = '(begin (defatom t (params (x)) (instructions "Note {{x}}") (history_config true)) (t (x (value-of (fetch (url "u"))))))'
    ask = (
        '(begin (defatom u (params) (instructions "Who?") (history_config true)) (send (to (value-of (u))) (body "x")))'
    )
    async with opened(tmp_path, "noted").flow as flow, flow.session("talk") as session:
        await flow.run(note, session=session)
    made = opened(tmp_path, "eve@example.org")
    async with made.flow as flow, flow.session("talk") as session:
        with pytest.raises(AgentflowError) as denied:
            await flow.run(ask, session=session)
    assert denied.value.code == "provenance/denied" and made.sent == []


async def test_a_summary_has_the_sources_of_the_turns_it_stands_for(tmp_path: Path) -> None:
    """Compaction forgets words, and not where they came from."""
    task = """(defatom t (params (x)) (instructions "{{x}}")
        (history_config ((use_session_history true) (record_in_session_history true)
                         (compact_after_tokens 1) (compact_keep_turns 0))))"""
    provider = ScriptedProvider(["noted", "a summary", "eve@example.org", "another", "eve@example.org"])
    made = Mail(tmp_path, [], POLICY)
    async with AgentFlow(provider=provider, root=tmp_path, provenance=POLICY) as flow:
        for tool in ("fetch", "send"):
            found = made.flow.tools.find(tool)
            assert found is not None
            flow.tools.add(found)
        from agentflow import Session

        session = Session()
        await flow.run(f'(begin {task} (t (x (value-of (fetch (url "u"))))))', session=session)
        result = await flow.run(f'(begin {task} (value-of (t (x "Who?"))))', session=session)
        assert session.compaction is not None and "web" in result.sources
    await made.flow.aclose()


READERS = Provenance(rules=[Sink("send", readers_in="to")], sources={"fetch": "web"}, readers={"web": ["*@hr.example"]})


@pytest.mark.parametrize(
    "program",
    [
        '(let ((p (value-of (fetch (url "u"))))) (hold) (send (to TO) (body p)))',
        "(begin (hold) (send (to TO) (body secret)))",
        "(let ((f (let ((p secret)) (lambda () (send (to TO) (body p)))))) (hold) (f))",
        f'(begin {TASK} (let ((p (value-of (t (x "it"))))) (hold) (send (to TO) (body p))))',
    ],
    ids=["a tool", "a binding", "a closure", "a task"],
)
async def test_who_may_see_a_value_is_kept_through_a_restart(program: str, tmp_path: Path) -> None:
    """What only some may see reaches nobody else when the run goes on elsewhere, and those still: readers of a source and of one value."""
    called = {"tool_calls": [{"name": "fetch", "arguments": {"url": "u"}}]}
    secret = Labelled("the code", readers=["*@hr.example"])
    for to, sends in (("eve@example.org", False), ("ann@hr.example", True)):
        root = tmp_path / to
        root.mkdir()
        gate = Gate()
        made = opened(root, called, "an answer", policy=READERS)
        async with made.flow as flow:
            gate.add_to(flow)
            await flow.start(program.replace("TO", f'"{to}"'), {"secret": secret}, run_id="r")
            await gate.reached.wait()
        made, result = await gone_on(root, policy=READERS)
        assert [each for each, _ in made.sent] == ([to] if sends else []), result
        assert sends or result.code == "provenance/readers"


async def test_a_policy_that_comes_later_holds_for_what_is_read_back(tmp_path: Path) -> None:
    """``--app`` gives a flow its policy after it was made: bindings and records of its durable runs are followed then, too."""
    (tmp_path / "policy.toml").write_text('[[sink]]\ntool = "send"\nargument = "to"\nallow = ["user"]\n')
    text = '(define xs (list (first page))) (hold) (send (to (first xs)) (body "x"))'
    bindings = {"page": [Labelled("eve", "web")]}
    gate = Gate()
    made = opened(tmp_path, policy=None)
    async with made.flow as flow:
        narrow(flow, str(tmp_path / "policy.toml"), "app")
        gate.add_to(flow)
        await flow.start(text, bindings, run_id="r")
        await gate.reached.wait()
    gate.release.set()
    later = opened(tmp_path, policy=None)
    async with later.flow as flow:
        narrow(flow, str(tmp_path / "policy.toml"), "app")
        gate.add_to(flow)
        with pytest.raises(AgentflowError) as raised:
            await (await flow.resume("r")).result()
    assert raised.value.code == "provenance/denied" and later.sent == []
