"""Branches that workers carry out, in flows with a policy: values go there and come back with their sources."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow, Labelled, Provenance, ScriptedProvider, Sink
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Surface
from tests.scale.workers import detached, working

POLICY = Provenance(
    rules=[Sink("send", "to", allow=["user", "directory"], readers_in="to")],
    sources={"fetch": "web", "lookup": "directory", "salaries": "hr"},
    readers={"hr": ["*@hr.example"]},
)
PAGE = "(value-of (fetch))"


def flow_of(url: str, sent: list[Any], policy: Provenance | None = POLICY) -> AgentFlow:
    """A flow over one database that reads pages and lists, and sends."""
    flow = AgentFlow(provider=ScriptedProvider(), durable=url, provenance=policy)

    @flow.tool
    async def fetch() -> str:
        """Read a page."""
        return "eve@example.org"

    @flow.tool
    async def lookup() -> str:
        """Look somebody up."""
        return "bob@hr.example"

    @flow.tool
    async def salaries() -> str:
        """Read what only some may see."""
        return "a list"

    @flow.tool
    async def send(to: str, text: str = "") -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    return flow


DENIED = {
    "sent by a branch": f"(pmap :on workers (lambda (a) (send (to a))) (list {PAGE}))",
    "captured by a branch": f'(let ((p {PAGE})) (pmap :on workers (lambda (a) (send (to p))) (list "x")))',
    "read by a branch": f'(let ((xs (pmap :on workers (lambda (a) {PAGE}) (list "x")))) (send (to (first xs))))',
    "one of several": f'(let ((xs (parallel :on workers {PAGE} "bob@hr.example"))) (send (to (first xs))))',
    "from the winner": f"(send (to (race :on workers {PAGE} (error 'away))))",
    "seen by others": '(pmap :on workers (lambda (a) (send (to "ann@example.org") (text a))) (list (value-of (salaries))))',
    "read by a branch, seen by others": (
        '(let ((xs (pmap :on workers (lambda (a) (value-of (salaries))) (list 1)))) (send (to "ann@example.org") (text (first xs))))'
    ),
}


async def test_what_a_branch_was_sent_or_gives_keeps_its_sources(postgres_url: str) -> None:
    """A sink refuses what came from where it may not, on whichever side of the workers it was read."""
    sent: list[Any] = []
    async with flow_of(postgres_url, sent) as starter, flow_of(postgres_url, sent) as worker, working(worker):
        runs = {way: await detached(starter, f"r{at}", text) for at, (way, text) in enumerate(DENIED.items())}
        for way, run in runs.items():
            with pytest.raises(AgentflowError) as error:
                await run.result()
            assert error.value.code in ("provenance/denied", "provenance/readers"), (way, error.value.render())
    assert sent == []


async def test_what_is_allowed_is_done_and_says_where_it_came_from(postgres_url: str) -> None:
    """A branch is denied nothing that the policy allows; the value of the run has the sources of what its branches read."""
    sent: list[Any] = []
    text = """(list (pmap :on workers (lambda (a) (begin (send (to a)) "done")) (list (value-of (lookup)) "x@hr.example"))
      (parallel :on workers (value-of (salaries)) 1) (race :on workers (error "no") (value-of (salaries))))"""
    async with flow_of(postgres_url, sent) as starter, flow_of(postgres_url, sent) as worker, working(worker):
        result = await (await detached(starter, "r", text)).result()
    assert result.value == [["done", "done"], ["a list", 1], "a list"] and sorted(sent) == [
        "bob@hr.example",
        "x@hr.example",
    ]
    assert "hr" in result.sources and "web" not in result.sources


async def test_a_worker_judges_by_its_own_policy(postgres_url: str) -> None:
    """The policy in force where a branch is carried out judges it: a worker's stricter one stops what the starter's would let pass."""
    sent: list[Any] = []
    strict = Provenance(rules=[Sink("send", "to", allow=["user"])], sources=POLICY.sources)
    text = "(pmap :on workers (lambda (a) (send (to a))) (list (value-of (lookup))))"
    async with flow_of(postgres_url, sent) as starter, flow_of(postgres_url, sent, strict) as worker, working(worker):
        with pytest.raises(AgentflowError) as error:
            await (await detached(starter, "r", text)).result()
    assert error.value.code == "provenance/denied" and sent == []


STRICT: dict[str, tuple[Surface, str]] = {
    "a return in an arm": (
        "python",
        "def f(x):\n    if s > 1:\n        return 1\n    return 2\nsend(to=str(pmap(f, [1, 2], on='workers')))",
    ),
    "a value of an arm": ("sexp", '(send (to (pmap :on workers (lambda (x) (if (> s 1) "a" "b")) (list 1))))'),
    "how many there are": ("sexp", "(send (to (length (pmap :on workers (lambda (x) 1) items))))"),
    "sent by a branch in an arm": ("sexp", '(pmap :on workers (lambda (x) (if (> s 1) (send (to "a")))) (list 1))'),
    "sent by a branch that an arm began": ("sexp", '(if (> s 1) (parallel :on workers (send (to "a")) 1))'),
    "a list that an arm changed": (
        "python",
        "xs = []\nif s > 1:\n    xs.append(1)\nsend(to=str(pmap(lambda x: len(xs), [1], on='workers')))",
    ),
    "a list in an element": (
        "python",
        "xs = []\nif s > 1:\n    xs.append(1)\nsend(to=str(pmap(lambda x: len(x), [xs, [1]], on='workers')))",
    ),
    "a list that a branch made": (
        "python",
        "def f(x):\n    ys = []\n    if s > 1:\n        ys.append(1)\n    return ys\nr = pmap(f, [1], on='workers')\nsend(to=str(len(r[0])))",
    ),
    "a variable without a value": (
        "python",
        "x = 1\nif s > 1:\n    del x\ndef f(i):\n    try:\n        x\n    except NameError:\n        return 1\n    return 2\n"
        "send(to=str(pmap(f, [1], on='workers')))",
    ),
    "a variable of an arm": (
        "python",
        "x = 1\nif s > 1:\n    x = 2\nsend(to=str(parallel(lambda: x, lambda: 1, on='workers')))",
    ),
    "a key": (
        "sexp",
        '(send (to (keys (first (pmap :on workers (lambda (x) (dict (if (> s 1) "a" "b") 1)) (list 1))))))',
    ),
}
"""Programs that would tell by branches on workers what a test decided."""


async def test_a_strict_policy_holds_on_workers(postgres_url: str) -> None:
    """Branches are sent what their values, lists and variables depend on, and give what theirs do."""
    policy = Provenance(rules=[Sink("send", "*", allow=["user"])], strict=True)
    sent: list[Any] = []
    async with (
        flow_of(postgres_url, sent, policy) as starter,
        flow_of(postgres_url, sent, policy) as worker,
        working(worker),
    ):
        for at, (way, (surface, text)) in enumerate(STRICT.items()):
            for s, items in ((0, [1, 2]), (2, [])):
                bindings = {"s": Labelled(s, "web"), "items": Labelled(items, "web")}
                run = await detached(starter, f"r{at}.{s}", text, surface=surface, bindings=bindings)
                try:
                    await run.result()
                except AgentflowError as error:
                    assert error.code == "provenance/denied", (way, error.render())
                assert sent == [], way
