"""Old results of tools are cleared from the requests of a long tool loop, rarely and together."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Clear, ConfigurationError, ModelRequest, ScriptedProvider, Session, tool
from agentflow.core.data.messages import ImagePart, ToolCallPart, ToolResultPart
from agentflow.events import Event, ToolResultsCleared

LONG = "x" * 4_000
"""A result of about 1,000 tokens."""


@tool(read_only=True)
async def look(at: int) -> str:
    """Look at something."""
    return f"{at} {LONG}"


def calls(*numbers: int, name: str = "look") -> dict[str, Any]:
    """A reply that calls a tool once for each number."""
    return {"tool_calls": [{"id": f"c{n}", "name": name, "arguments": {"at": n}} for n in numbers]}


def turns(count: int, name: str = "look") -> list[Any]:
    """Replies that call a tool ``count`` times, one after the other, and then end."""
    return [*[calls(n, name=name) for n in range(count)], "done"]


def results(request: ModelRequest) -> dict[str, str]:
    """The texts of the results that a request sends, by the id of their call."""
    parts = [part for message in request.messages for part in message.parts if isinstance(part, ToolResultPart)]
    return {part.call_id: part.text for part in parts}


def gone(request: ModelRequest) -> list[str]:
    """The ids of the calls whose results are cleared in a request."""
    return [call for call, text in results(request).items() if "was cleared" in text]


def cleared(seen: list[Event]) -> list[ToolResultsCleared]:
    """The events of clearings."""
    return [event for event in seen if isinstance(event, ToolResultsCleared)]


async def test_old_results_become_a_line_and_the_newest_stay() -> None:
    """Past the bound all but the newest are cleared at once; the event names them, with the tokens before and after."""
    model, seen = ScriptedProvider(turns(5)), list[Event]()
    async with AgentFlow(provider=model) as flow:
        flow.subscribe(seen.append)
        assert await flow.ask("Go.", tools=[look], clear_tool_results=Clear(after_tokens=4_500, keep=2)) == "done"
    assert [gone(request) for request in model.requests] == [[], [], [], [], [], ["c0", "c1", "c2"]]
    assert results(model.requests[-1])["c0"] == (
        "[This result of 4,002 characters was cleared to make room. To read it again, call look again with the same arguments.]"
    )
    (event,) = cleared(seen)
    assert event.results == ("look",) * 3 and event.call_ids == ("c0", "c1", "c2")
    assert event.tokens_before > 5_000 and event.tokens_after < 2_500


async def test_clearing_is_rare_and_the_beginning_stays_the_same() -> None:
    """Between two clearings every request begins with the whole one before it, so that the provider's cache holds."""
    model = ScriptedProvider(turns(40))
    async with AgentFlow(provider=model) as flow:
        await flow.ask("Go.", tools=[look], max_turns=50, clear_tool_results=Clear(after_tokens=10_000))
    pairs = list(pairwise(model.requests))
    broken = [at for at, (one, two) in enumerate(pairs, 1) if two.messages[: len(one.messages)] != one.messages]
    assert len(broken) <= 6
    assert all(set(gone(one)) <= set(gone(two)) for one, two in pairs), "what was cleared stays cleared"


async def test_nothing_is_cleared_where_little_would_be_saved() -> None:
    """A request whose fixed part alone passes the bound clears together, not one result a turn."""
    model = ScriptedProvider(turns(20))
    async with AgentFlow(provider=model) as flow:
        clear = Clear(after_tokens=8_000, keep=1)
        await flow.ask("Go. " + "y" * 40_000, tools=[look], max_turns=30, clear_tool_results=clear)
    counts = [len(gone(request)) for request in model.requests]
    steps = [two - one for one, two in pairwise(counts) if two != one]
    assert steps and min(steps) >= 2


async def test_a_result_that_the_model_has_not_read_stays() -> None:
    """Results of the last answer are sent whole, however many and whatever ``keep`` is."""
    model = ScriptedProvider([calls(1), calls(*range(2, 12)), "done"])
    async with AgentFlow(provider=model) as flow:
        await flow.ask("Go.", tools=[look], clear_tool_results=Clear(after_tokens=1, keep=0))
    assert gone(model.requests[1]) == [] and gone(model.requests[2]) == ["c1"]


async def test_each_call_keeps_its_result() -> None:
    """Calls and results stay pairs, in their order: a strict server refuses anything else."""
    model = ScriptedProvider([calls(1, 2, 3), calls(4, 5), calls(6), "done"])
    async with AgentFlow(provider=model) as flow:
        await flow.ask("Go.", tools=[look], clear_tool_results=Clear(after_tokens=2_000, keep=1))
    for request in model.requests:
        parts = [part for message in request.messages for part in message.parts]
        asked = [part.id for part in parts if isinstance(part, ToolCallPart)]
        assert asked == [part.call_id for part in parts if isinstance(part, ToolResultPart)]
    assert gone(model.requests[-1])


async def test_a_result_of_a_tool_with_effects_is_read_again_without_a_second_call() -> None:
    """The line asks for a second call of a tool that only reads, or may be repeated; for others ``read_result`` is offered from the first turn
    on, which shows the result whole, as often as it is asked for."""
    paid: list[int] = []

    async def pay(at: int) -> str:
        """Pay something."""
        paid.append(at)
        return f"{at} {LONG}"

    again = [{"tool_calls": [{"id": f"r{n}", "name": "read_result", "arguments": {"number": n}}]} for n in (1, 9)]
    model = ScriptedProvider([*turns(4, "pay")[:-1], *again, "done"])
    async with AgentFlow(provider=model) as flow:
        await flow.ask("Go.", tools=[pay, look], clear_tool_results=Clear(after_tokens=2_000, keep=1))
    assert {tuple([tool.name for tool in request.tools]) for request in model.requests} == {
        ("pay", "look", "read_result")
    }
    line = results(model.requests[4])["c0"]
    assert line.endswith("The call was carried out. To read its result again, call read_result with number 1.]")
    assert results(model.requests[5])["r1"] == f"0 {LONG}"
    assert "numbers 1 to 5" in results(model.requests[6])["r9"] and paid == [0, 1, 2, 3]


async def test_where_a_second_call_does_no_harm_nothing_more_is_offered() -> None:
    """Tools that only read need no other tool; a tool of the host's own called ``read_result`` is refused where ours is offered."""

    async def read_result(number: int) -> str:
        """Read."""
        raise NotImplementedError

    model = ScriptedProvider(turns(2))
    async with AgentFlow(provider=model) as flow:
        await flow.ask("Go.", tools=[look], clear_tool_results=Clear(after_tokens=2_000, keep=1))
        assert [tool.name for tool in model.requests[0].tools] == ["look"]
        with pytest.raises(ConfigurationError) as caught:
            await flow.ask("Go.", tools=[read_result], clear_tool_results=Clear())
        assert caught.value.code == "tool/duplicate"


async def test_images_of_a_cleared_result_are_shown_again() -> None:
    """``read_result`` gives the parts that the model saw; in the next prompt of a conversation too, with the same number."""

    async def photo(at: int) -> list[Any]:
        """Take a photo."""
        return [ImagePart(data="aGk="), ImagePart(data="aGk=")]

    again = {"tool_calls": [{"id": "r", "name": "read_result", "arguments": {"number": 1}}]}
    model, session = ScriptedProvider([*turns(4, "photo"), again, "seen"]), Session()
    async with AgentFlow(provider=model) as flow:

        @flow.task(tools=[photo], history=True, clear_tool_results=Clear(after_tokens=4_000, keep=1))
        async def agent(question: str) -> str:
            """{{question}}"""
            raise NotImplementedError

        await flow.run(agent("Go."), session=session)
        await flow.run(agent("Again?"), session=session)
    part = next(part for part in model.requests[-1].messages[-1].parts if isinstance(part, ToolResultPart))
    assert [type(each) for each in part.parts] == [ImagePart, ImagePart]


async def test_images_of_a_result_go_too() -> None:
    """A result of several parts becomes text alone."""

    @tool(read_only=True)
    async def look(at: int) -> list[Any]:
        """Look at something."""
        return [ImagePart(data="aGk="), ImagePart(data="aGk=")]

    model = ScriptedProvider(turns(4))
    async with AgentFlow(provider=model) as flow:
        await flow.ask("Go.", tools=[look], clear_tool_results=Clear(after_tokens=4_000, keep=1))
    sent = [part for message in model.requests[-1].messages for part in message.parts]
    first = next(part for part in sent if isinstance(part, ToolResultPart))
    assert first.parts == () and "was cleared" in first.text


async def test_the_conversation_keeps_the_results_and_the_next_prompt_sends_them_cleared() -> None:
    """The session has them whole; the next prompt begins as the last request did, so that the cache of it serves."""
    model, session, seen = ScriptedProvider([*turns(5), "again"]), Session(), list[Event]()
    async with AgentFlow(provider=model) as flow:
        flow.subscribe(seen.append)

        @flow.task(tools=[look], history=True, clear_tool_results=Clear(after_tokens=4_500, keep=2))
        async def agent(question: str) -> str:
            """{{question}}"""
            raise NotImplementedError

        await flow.run(agent("Go."), session=session)
        await flow.run(agent("And?"), session=session)
    whole = [part for message in session.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert len(whole) == 5 and all(LONG in part.text for part in whole)
    last, following = model.requests[-2:]
    assert following.messages[: len(last.messages)] == last.messages and gone(following) == ["c0", "c1", "c2"]
    assert len(cleared(seen)) == 1, "the next prompt clears nothing anew"


async def test_a_resumed_run_sends_what_it_would_have_sent(tmp_path: Path) -> None:
    """The request after an interruption is the one of a run that was not interrupted, and the clearings are not told again."""

    async def requests(stop_at: int | None, name: str) -> tuple[list[ModelRequest], list[Event]]:
        """The answered requests of a run whose model does not answer number ``stop_at`` at first, and the events."""
        replies, seen, asked = turns(7), list[Event](), list[ModelRequest]()
        stopped = asyncio.Event()

        async def model(request: ModelRequest) -> Any:
            if len(asked) == stop_at and not stopped.is_set():
                stopped.set()
                await asyncio.Event().wait()
            asked.append(request)
            return replies[len(asked) - 1]

        async def once(resumed: bool) -> None:
            async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/{name}.db") as flow:
                flow.subscribe(seen.append)

                @flow.task(tools=[look], clear_tool_results=Clear(after_tokens=4_500, keep=2))
                async def agent() -> str:
                    """Go."""
                    raise NotImplementedError

                run = await (flow.resume("r") if resumed else flow.start(agent(), run_id="r"))
                if stop_at is None or resumed:
                    await run.result()
                else:
                    await stopped.wait()

        await once(resumed=False)
        if stop_at is not None:
            await once(resumed=True)
        return asked, seen

    whole, _ = await requests(None, "whole")
    assert any(gone(request) for request in whole)
    for stop in (5, 6):
        again, seen = await requests(stop, f"stopped{stop}")
        assert [request.messages for request in again] == [request.messages for request in whole]
        assert len(cleared(seen)) == (2 if stop == 5 else 1), "request 5 was sent twice"


@pytest.mark.parametrize("value", [True, 100_000, {"after_tokens": 5}, "Clear"])
async def test_the_option_is_a_clear(value: Any) -> None:
    """Anything else is refused when the task is declared, with the form to write."""
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        with pytest.raises(ConfigurationError, match="clear_tool_results") as caught:
            await flow.ask("Go.", tools=[look], clear_tool_results=value)
        assert caught.value.code == "config/option" and "Clear(after_tokens=" in str(caught.value.hint)


@pytest.mark.parametrize("values", [{"after_tokens": 0}, {"after_tokens": "100k"}, {"keep": -1}, {"keep": True}])
def test_its_numbers_are_in_range(values: dict[str, Any]) -> None:
    """A bound of at least one token, and a number of results from 0 on."""
    with pytest.raises(ConfigurationError, match=next(iter(values))):
        Clear(**values)


async def test_other_frameworks_names_are_understood() -> None:
    """The names that peers give the option are answered with ours."""
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.ask("Go.", clear_tool_uses={})  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert "clear_tool_results=Clear(" in str(caught.value.hint)
