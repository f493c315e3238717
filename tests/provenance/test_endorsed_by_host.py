"""``flow.endorse``: code of a workflow answers for a value, which may then go where the user's may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Provenance, ScriptedProvider, Sink
from agentflow.errors import WorkflowError

POLICY = Provenance(rules=[Sink("send", "to", allow=["user"])], sources={"fetch": "web"})


class Post:
    """A flow with a page, a way to send, and what was sent; ``seen`` are its events."""

    def __init__(self, policy: Provenance | None, **options: Any) -> None:
        self.sent: list[Any] = []
        self.seen: list[dict[str, Any]] = []
        self.stops = False
        self.flow = AgentFlow(provider=ScriptedProvider(), provenance=policy, **options)
        self.flow.subscribe(lambda event: self.seen.append(event.to_dict()))

        @self.flow.tool
        async def fetch() -> Any:
            """Read a page."""
            return {"to": "eve@example.org", "all": ["eve@example.org"]}

        @self.flow.tool
        async def send(to: Any) -> str:
            """Send a mail."""
            self.sent.append(to)
            return "sent"

    async def denied(self, work: Any) -> None:
        """A workflow is denied a call, and nothing is sent."""
        with pytest.raises(AgentflowError) as error:
            await self.flow.workflow(work)()
        assert error.value.code == "provenance/denied" and self.sent == []


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    made = Post(POLICY)
    async with made.flow:
        yield made


async def test_an_endorsed_value_may_go_where_the_users_may(post: Post) -> None:
    """Without it what a workflow has read denies the call; with it the call is done, and an event has the value's sources and the reason."""
    flow = post.flow

    async def unasked() -> None:
        page = await flow.call_tool("fetch")
        await flow.call_tool("send", to=page["to"])

    async def asked() -> str:
        page = await flow.call_tool("fetch")
        to = await flow.endorse(page["to"], "it is ours")
        return await flow.call_tool("send", to=to)

    await post.denied(unasked)
    assert await flow.workflow(asked)() == "sent" and post.sent == ["eve@example.org"]
    (event,) = [each for each in post.seen if each["type"] == "endorsed"]
    assert (event["sources"], event["reason"]) == (["web"], "it is ours")


async def test_only_the_value_itself_is_endorsed(post: Post) -> None:
    """Other values, what is made of an endorsed one, and a list that has grown since are still what was read."""
    flow = post.flow

    async def another() -> None:
        page = await flow.call_tool("fetch")
        await flow.endorse("boss@example.org", "known")
        await flow.call_tool("send", to=page["to"])

    async def made_of_it() -> None:
        page = await flow.call_tool("fetch")
        to = await flow.endorse(page["to"], "ours")
        await flow.call_tool("send", to=f"<{to}>")

    async def grown() -> None:
        page = await flow.call_tool("fetch")
        all_of_them = await flow.endorse(page["all"], "ours")
        all_of_them.append("mallory@example.org")
        await flow.call_tool("send", to=all_of_them)

    for work in (another, made_of_it, grown):
        await post.denied(work)


async def test_branches_take_it_along_and_hand_it_back(post: Post) -> None:
    """A branch knows what was endorsed before it began, and what it endorsed is so afterwards."""
    flow = post.flow

    async def branch(to: str) -> str:
        await flow.call_tool("send", to=to)
        return await flow.endorse("new@example.org", "ours")

    async def whole() -> None:
        page = await flow.call_tool("fetch")
        to = await flow.endorse(page["to"], "ours")
        (new,) = await flow.map(branch, [to])
        await flow.call_tool("send", to=new)

    await flow.workflow(whole)()
    assert post.sent == ["eve@example.org", "new@example.org"]


async def test_code_below_a_text_or_model_needs_an_approval() -> None:
    """A tool that a program with grants calls may endorse if somebody approves: the request says the value and the reason."""
    asked: list[Any] = []

    def approve(request: Any) -> bool:
        asked.append(request)
        return len(asked) > 1

    post = Post(POLICY, approve=approve)
    async with post.flow as flow:

        @flow.tool(sinks={})
        async def forward() -> str:
            """Send it on."""
            page = await flow.call_tool("fetch")
            return await flow.call_tool("send", to=await flow.endorse(page["to"], "it is ours"))

        result = await flow.run("(forward)", allow=["forward"])
        assert result.value.status == "FAILED" and post.sent == []
        (request,) = asked
        assert request.tool == "endorse" and request.arguments == {"value": "eve@example.org", "reason": "it is ours"}
        await flow.run("(forward)", allow=["forward"])
        assert post.sent == ["eve@example.org"]
        with pytest.raises(AgentflowError, match="not granted"):
            await flow.run('(endorse "x" "mine")', allow=["forward"])


def forwarding(post: Post) -> Any:
    """A workflow that sends what it endorsed, and then stops if it is told to."""

    async def forward() -> str:
        page = await post.flow.call_tool("fetch")
        to = await post.flow.endorse(page["to"], "ours")
        await post.flow.call_tool("send", to=to)
        if post.stops:
            raise ValueError("stop here")
        return "done"

    return forward


async def test_a_resumed_workflow_still_has_what_it_endorsed(tmp_path: Path) -> None:
    """The endorsement is recorded as an effect: it is not asked for again, and its value may still go on."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    for attempt in range(2):
        post = Post(POLICY, durable=url)
        post.stops = not attempt
        async with post.flow as flow:
            forward = flow.workflow(forwarding(post))
            if not attempt:
                handle = await flow.start(forward(), run_id="r")
                with pytest.raises(WorkflowError, match="stop here"):
                    await handle.result()
            else:
                handle = await flow.resume("r")
                assert (await handle.result()).value == "done"
                assert post.sent == []  # it was before


async def test_without_a_policy_it_gives_the_value_and_says_so() -> None:
    """A workflow may endorse in any flow: where nothing is followed, it is an event alone."""
    post = Post(None)
    async with post.flow as flow:

        async def asked() -> Any:
            return await flow.endorse({"a": 1}, "ours")

        assert await flow.workflow(asked)() == {"a": 1}
        assert [each["reason"] for each in post.seen if each["type"] == "endorsed"] == ["ours"]
