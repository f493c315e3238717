"""A rule of a policy that never applies guards nothing: it is refused, or told where what it is for may come later."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, Provenance, ScriptedProvider, Sink
from agentflow.core.data.source import Surface
from agentflow.core.events.events import Event, Warning


@pytest.fixture
async def flow(tmp_path: Path) -> AsyncIterator[AgentFlow]:
    """A flow with tools that read and send, a task, and a workflow."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:

        @flow.tool(source="salaries")
        def fetch(url: str) -> str:
            """Fetch a page."""
            return url

        @flow.tool
        def send(to: str, body: str = "") -> str:
            """Send a mail."""
            return to

        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": True}
        flow.handler.register_tool({"name": "open", "input_schema": schema}, lambda _: "ok")  # pyright: ignore
        await flow.define('(defatom summary (params (page)) (instructions "{{page}}"))')
        yield flow


WRONG: dict[str, tuple[Provenance, str]] = {
    "an argument of a tool": (Provenance(rules=[Sink("send", "too")]), "did you mean 'to'?"),
    "an argument of a task": (Provenance(rules=[Sink("summary", "text")]), "it has 'context'"),
    "an argument of a message": (Provenance(rules=[Sink("log-message", "message")]), "it has 'text'"),
    "the argument that names the readers": (Provenance(rules=[Sink("send", readers_in="recipient")]), "'body', 'to'"),
    "a rule that narrows": (Provenance().narrowed(Provenance(rules=[Sink("send", "tto")])), "did you mean 'to'?"),
    "a name that is nearly a tool's": (Provenance(rules=[Sink("sned", "to")]), "write 'send'"),
    "a part of a name that the text says": (Provenance(rules=[Sink("sen", "to")]), "write 'send'"),
    "a name in sources": (Provenance(sources={"fetsh": "web"}), "write 'fetch'"),
    "a source of which readers are said": (Provenance(readers={"salaris": ["hr"]}), "write 'salaries'"),
    "a tool of which readers are said": (Provenance(readers={"tool:sendd": ["hr"]}), "write 'tool:send'"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_rule_that_would_never_apply_is_refused(name: str, flow: AgentFlow) -> None:
    """Before anything is done, with words that say what to write."""
    policy, hint = WRONG[name]
    flow.engine.follow(policy)
    with pytest.raises(ConfigurationError) as refused:
        await flow.run('(send (to "a"))')
    assert refused.value.code == "provenance/policy"
    assert refused.value.hint is not None and hint in refused.value.hint


LATER = {
    "a tool of a server": Sink("mail:send", "to"),
    "a pattern": Sink("pay_*", "to"),
    "a name like one that has rules itself": Sink("sendd", "to"),
}


@pytest.mark.parametrize("name", LATER)
async def test_what_may_come_later_is_told_once(name: str, flow: AgentFlow, caplog: Any) -> None:
    """A name of nothing is a warning of the run, or where nobody watches it a line of the log; the program runs."""
    told: list[Warning] = []

    def observe(event: Event) -> None:
        if isinstance(event, Warning) and event.code == "provenance/unmet":
            told.append(event)

    flow.engine.follow(Provenance(rules=[Sink("send", "to"), LATER[name]]))
    with caplog.at_level(logging.WARNING):
        await flow.run("(list 1)")
        assert caplog.text.count(LATER[name].tool) == 1
        flow.subscribe(observe)
        await flow.run("(list 1)")
    assert [each.details for each in told] == [{"name": LATER[name].tool}]
    assert caplog.text.count(LATER[name].tool) == 1


def ring(bell: str, *more: str) -> str:
    """Ring a bell."""
    return bell


MET: dict[str, tuple[Sink, Surface, str]] = {
    "a pattern": (Sink("s*d", "to"), "sexp", "1"),
    "a tool that may have any argument": (Sink("open", "what"), "sexp", "1"),
    "a task that the program defines": (
        Sink("sent", "x"),
        "sexp",
        '(begin (defatom sent (params (x)) (instructions "{{x}}")) 1)',
    ),
    "a task of a program that it runs": (Sink("sent", "x"), "sexp", "(begin '(sent (x 1)) 1)"),
    "a function of the host": (Sink("ring", "bell"), "sexp", "1"),
    "what a function takes besides": (Sink("ring", "more"), "python", "1"),
    "a name in Python": (Sink("sent", "x"), "python", "def f():\n    return eval_program('(sent (x 1))')\n1"),
}


@pytest.mark.parametrize("name", MET)
async def test_what_is_there_or_said_is_not_told(name: str, flow: AgentFlow, caplog: Any) -> None:
    """Tools, tasks, functions that variables hold, and whatever a text says itself, are there."""
    sink, surface, text = MET[name]
    flow.engine.follow(Provenance(rules=[sink]))
    with caplog.at_level(logging.WARNING):
        await flow.run(text, surface=surface, bindings={"bells": [ring]})
    assert "provenance" not in caplog.text and sink.tool not in caplog.text


async def test_rules_know_functions_by_their_own_names(flow: AgentFlow) -> None:
    """A rule by the name of a variable that holds a function, or for no parameter of it, would never apply."""
    for sink in (Sink("bell", "bell"), Sink("ring", "bel")):
        flow.engine.follow(Provenance(rules=[sink]))
        with pytest.raises(ConfigurationError) as refused:
            await flow.run('(bell "a")', bindings={"bell": ring})
        assert refused.value.code == "provenance/policy" and "never apply" in refused.value.message


async def test_bounds_tell_of_such_rules_before_anything_runs(flow: AgentFlow) -> None:
    """What would be a warning of the run is a note, and what would be refused is refused."""
    flow.engine.follow(Provenance(rules=[Sink("send", "to"), Sink("mail:send", "to")]))
    bounds = await flow.bounds('(send (to "a"))')
    (note,) = [each for each in bounds.notes if "mail:send" in each]
    assert "is nothing here" in note
    flow.engine.follow(Provenance(rules=[Sink("send", "too")]))
    with pytest.raises(ConfigurationError, match="would never apply"):
        await flow.bounds('(send (to "a"))')
