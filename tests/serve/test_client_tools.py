"""Tools that the front end carries out, with the clients of AG-UI and of the AI SDK in Node: what it offers, calls, and their results."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, external, tool
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.events.events import Warning as WarningEvent
from tests.serve.test_agui import kinds
from tests.serve.test_agui import thread as agui_thread
from tests.serve.test_ui_stream import chat as ui_chat
from tests.serve.test_ui_stream import parts
from tests.support.node import NodeClients
from tests.support.serve_clients import AGUI, USER, frames_of, talk
from tests.support.served import Served, served

BACKGROUND = {
    "name": "change_background",
    "description": "Change the background of the page.",
    "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}
"""What a page offers, as the example applications of AG-UI do."""


def told(request: Any) -> list[str]:
    """The texts of the tool results in the last message of a request."""
    return [part.text for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]


def calling(*names: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls tools, all with the same arguments."""
    return {"tool_calls": [{"id": f"{name}-1", "name": name, "arguments": arguments} for name in names]}


def helper(*replies: Any, tools: Any = (), durable: Path | None = None) -> tuple[AgentFlow, ScriptedProvider]:
    """A flow with the agent ``helper``, which has these tools of its own."""
    model = ScriptedProvider([*replies])
    flow = AgentFlow(provider=model, durable=None if durable is None else f"sqlite:///{durable}/runs.db")

    @flow.task(name="helper", tools=list(tools))
    async def answer(message: str) -> str:
        """{{message}}"""

    return flow, model


def asked(name: str, **arguments: Any) -> tuple[dict[str, Any], Any]:
    return calling(name, **arguments), lambda request: f"The page says: {', '.join(told(request))}."


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True])
async def test_a_page_carries_out_the_tools_that_it_offers(
    node_clients: NodeClients, tmp_path: Path, durable: bool
) -> None:
    """AG-UI: the run ends with the call and without its result, the next request has it, and the conversation goes on."""
    flow, model = helper(*asked("change_background", colour="red"), durable=tmp_path if durable else None)
    async with flow, served(flow, ["helper"]) as server:
        turns = ["red, please", {"change_background": "it is red"}]
        [seen] = await talk(node_clients, "agui.mjs", [agui_thread(server, "helper", *turns, tools=[BACKGROUND])])
        assert not server.runs.live
    first, second = seen["turns"]
    assert first["error"] is None and second["error"] is None, seen
    assert [each.name for each in model.requests[0].tools] == ["change_background"]
    assert [each for each in kinds(first) if each.startswith(("TOOL", "RUN"))] == [
        "RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED",
    ]  # fmt: skip
    assert first["events"][-1]["outcome"] == {"type": "success"} and "result" not in first["events"][-1]
    assert not [each for each in kinds(second) if each.startswith("TOOL")], "the page has the call and its result"
    assert second["events"][-1]["result"] == "The page says: it is red."
    roles = [each["role"] for each in seen["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"], seen["messages"]
    assert seen["messages"][1]["toolCalls"][0]["function"] == {
        "name": "change_background",
        "arguments": '{"colour": "red"}',
    }


@pytest.mark.slow
async def test_calls_of_one_answer_are_asked_together(node_clients: NodeClients) -> None:
    """Two tools of the page, and one of the server that takes longer: the run ends once, with all that is known; a tool that
    failed in the page is read as such."""
    others = {**BACKGROUND, "name": "play_sound"}

    @tool
    async def look(colour: str) -> str:
        """Look."""
        await asyncio.sleep(0.2)
        return "seen"

    flow, model = helper(
        calling("look", "change_background", "play_sound", colour="red"),
        lambda request: "; ".join(told(request)),
        tools=[look],
    )
    async with flow, served(flow, ["helper"]) as server:
        results = {"change_background": "done", "play_sound": {"error": "there is no loudspeaker"}}
        tools = [BACKGROUND, others]
        [seen] = await talk(node_clients, "agui.mjs", [agui_thread(server, "helper", "go", results, tools=tools)])
    first, second = seen["turns"]
    assert [first["error"], second["error"]] == [None, None] and len(model.requests) == 2
    started = [each["toolCallName"] for each in first["events"] if each["type"] == "TOOL_CALL_START"]
    assert started == ["look", "change_background", "play_sound"]
    assert [each["content"] for each in first["events"] if each["type"] == "TOOL_CALL_RESULT"] == ["seen"]
    result = second["events"][-1]["result"]
    assert result == "seen; done; error (tool_execution_error): there is no loudspeaker"
    assert model.requests[1].messages[-1].parts[2].is_error  # type: ignore[union-attr]


@pytest.mark.slow
async def test_what_the_page_says_of_itself_reaches_the_model(node_clients: NodeClients) -> None:
    """The ``context`` of a request stands before the conversation, as what the client says and no instruction of the host."""
    flow, model = helper("Ada")
    async with flow, served(flow, ["helper"]) as server:
        context = [{"description": "name of the user", "value": "Ada"}]
        await talk(node_clients, "agui.mjs", [agui_thread(server, "helper", "Who am I?", context=context)])
    assert "name of the user: Ada" in str(model.requests[0].messages) and "Ada" not in model.requests[0].system


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True])
async def test_use_chat_carries_out_tools_without_an_execute(
    node_clients: NodeClients, tmp_path: Path, durable: bool
) -> None:
    """The AI SDK: ``external(...)`` is a tool of the page, which gets a typed part, calls ``onToolCall`` and sends the output by itself."""
    where = external("get_location", {}, description="Where the user is.", returns={"type": "object"})
    flow, model = helper(
        calling("get_location"),
        lambda request: f"You are in {told(request)[0]}.",
        tools=[where],
        durable=tmp_path if durable else None,
    )
    async with flow, served(flow, ["helper"]) as server:
        results = {"get_location": {"city": "Oslo"}}
        [seen] = await talk(node_clients, "ui.mjs", [ui_chat(server, "helper", "Where am I?", results=results)])
        assert not server.runs.live
    assert seen["error"] is None and len(seen["called"]) == 1, seen
    [part] = parts(seen, "tool-get_location")
    assert (part["state"], part["output"]) == ("output-available", {"city": "Oslo"})
    assert [each["text"] for each in parts(seen, "text")] == ['You are in {"city": "Oslo"}.']
    assert "tool-input-start" in seen["types"] and not parts(seen, "dynamic-tool")
    assert len(seen["messages"]) == 2 and len(model.requests) == 2


@pytest.mark.slow
async def test_use_chat_may_bring_tools_and_fail_them(node_clients: NodeClients) -> None:
    """``tools`` by name in the body, as front ends of the AI SDK send them; an output that is an error is read by the model."""
    flow, _ = helper(*asked("alert", text="hi"))
    offers = {"alert": {"description": "Show a text.", "parameters": {"properties": {"text": {"type": "string"}}}}}
    async with flow, served(flow, ["helper"]) as server:
        chats = [ui_chat(server, "helper", "x", body={"tools": offers}, results={"alert": {"error": "closed"}})]
        [seen] = await talk(node_clients, "ui.mjs", chats)
    assert seen["error"] is None
    assert [each["text"] for each in parts(seen, "text")] == ["The page says: error (tool_execution_error): closed."]


@pytest.mark.slow
async def test_a_result_that_does_not_fit_is_read_by_the_model(node_clients: NodeClients) -> None:
    """The page is not called again, which would give the same for ever; a text of AG-UI is read as JSON where the tool returns data."""
    count = external("count", {}, returns={"type": "integer"})
    flow, _ = helper(*asked("count"), *asked("count"), *asked("count"), tools=[count])
    async with flow, served(flow, ["helper"]) as server:
        [chat] = await talk(node_clients, "ui.mjs", [ui_chat(server, "helper", "x", results={"count": "many"})])
        threads = [agui_thread(server, "helper", "x", {"count": each}) for each in ("many", "3")]
        wrong, right = await talk(node_clients, "agui.mjs", threads)
    assert len(chat["called"]) == 1 and "does not fit" in parts(chat, "text")[0]["text"]
    assert "does not fit" in wrong["turns"][1]["events"][-1]["result"]
    assert right["turns"][1]["events"][-1]["result"] == "The page says: 3."


@pytest.mark.slow
async def test_whoever_goes_on_without_a_result_leaves_no_run(node_clients: NodeClients) -> None:
    """A new message in place of the result: the run that waited is cancelled, and the conversation goes on."""
    flow, _ = helper(
        calling("change_background", colour="red"), "Fine.", calling("change_background", colour="red"), "Good."
    )
    async with flow, served(flow, ["helper"]) as server:
        [seen] = await talk(
            node_clients, "agui.mjs", [agui_thread(server, "helper", "red", "no, wait", tools=[BACKGROUND])]
        )
        [other] = await talk(
            node_clients, "ui.mjs", [ui_chat(server, "helper", "red", body={"tools": [BACKGROUND]}, then="no, wait")]
        )
        assert sorted(run.status for run in server.runs) == ["cancelled", "cancelled", "done", "done"]
    assert seen["turns"][1]["events"][-1]["result"] == "Fine."
    assert parts(other, "text")[0]["text"] == "Good."


async def body_of(server: Served, **fields: Any) -> dict[str, Any]:
    return {**AGUI, "messages": [{**USER, "id": "m"}], **fields}


async def test_a_result_after_a_restart_of_the_server(tmp_path: Path) -> None:
    """A durable run: the next server takes the result, and tells no call again that the client has."""
    replies = asked("change_background", colour="red")
    flow, _ = helper(replies[0], durable=tmp_path)
    async with flow, served(flow, ["helper"]) as server:
        answer = await server.post("/agui/helper", await body_of(server, tools=[BACKGROUND]))
        [call_id] = [line for line in answer.text.split('"') if line.startswith(answer.headers["x-request-id"] + ".")][
            :1
        ]
    flow, model = helper(replies[1], durable=tmp_path)
    async with flow, served(flow, ["helper"]) as server:
        while not [run for run in server.runs if run.waits]:
            await asyncio.sleep(0.005)
        messages = [
            {**USER, "id": "m"},
            {"id": "a", "role": "assistant", "toolCalls": [{"id": call_id, "type": "function", "function": {}}]},
            {"id": "t", "role": "tool", "toolCallId": call_id, "content": "it is red"},
        ]
        told_ = (await server.post("/agui/helper", await body_of(server, messages=messages))).text
        assert "The page says: it is red." in told_ and "TOOL_CALL" not in told_
        again = await server.post("/agui/helper", await body_of(server, messages=messages))
        assert again.status_code == 404 and again.json()["error"]["code"] == "serve/unknown-run"
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("payload", "paid"),
    [
        ({"approved": True}, [7]),
        ({"approved": True, "editedArgs": {"amount": 5}}, [5]),
        (True, [7]),
        ({"approved": False}, []),
        ({"approved": "yes"}, []),
        ({"approved": True, "editedArgs": {"amount": 5}, "really": True}, []),
        ({"approved": True, "editedArgs": "none"}, []),
    ],
)
async def test_a_decision_in_the_form_of_ag_ui(payload: Any, paid: list[int]) -> None:
    """The interrupt is bound to the call, which was told before; its answer in exactly the protocol's form counts, and anything near
    it is a no."""
    done: list[int] = []

    @tool(approval=True)
    async def pay(amount: int) -> dict[str, int]:
        """Pay."""
        done.append(amount)
        return {"paid": amount}

    flow, _ = helper(calling("pay", amount=7), "done", tools=[pay])
    async with flow, served(flow, ["helper"]) as server:
        first = frames_of((await server.post("/agui/helper", await body_of(server))).text)
        [start] = [each for each in first if each["type"] == "TOOL_CALL_START"]
        [asks] = first[-1]["outcome"]["interrupts"]
        assert (asks["reason"], asks["toolCallId"]) == ("tool_call", start["toolCallId"])
        assert asks["responseSchema"]["required"] == ["approved"]
        resume = [{"interruptId": asks["id"], "status": "resolved", "payload": payload}]
        second = frames_of((await server.post("/agui/helper", await body_of(server, resume=resume))).text)
        told_again = [each["type"] for each in second if each["type"].startswith("TOOL_CALL")]
        assert told_again == ["TOOL_CALL_RESULT"] and second[-1]["outcome"] == {"type": "success"}
    assert done == paid


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ([{**BACKGROUND, "name": "change background"}], "letters, digits"),
        ([BACKGROUND, BACKGROUND], "taken"),
        ([{**BACKGROUND, "parameters": ["colour"]}], "JSON Schema"),
        ([{**BACKGROUND, "parameters": {"type": "string"}}], "JSON Schema of an object"),
        (["change_background"], "its name"),
    ],
)
async def test_tools_that_are_none_are_refused(tools: list[Any], says: str) -> None:
    """A name that no model can call, two of one name, parameters that are not a schema of an object: 400, with the place and what to write."""
    flow, model = helper("x")
    async with flow, served(flow, ["helper"]) as server:
        for path in ("/agui/helper", "/ui/helper"):
            body = await body_of(server, tools=tools)
            if path.startswith("/ui"):
                body["messages"] = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]}]
            answer = await server.post(path, body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "serve/tools") and says in error["message"]
            assert error["param"].startswith("tools.")
        assert not model.requests


async def test_a_page_cannot_take_the_place_of_a_tool_of_the_host() -> None:
    """Its tool of the same name is left out: the host's is called, and a warning says so."""
    seen: list[str] = []

    @tool
    async def change_background(colour: str) -> str:
        """Change the background of the server."""
        return f"the host made it {colour}"

    flow, model = helper(*asked("change_background", colour="red"), tools=[change_background])
    flow.subscribe(lambda event: seen.append(event.code) if isinstance(event, WarningEvent) else None)
    async with flow, served(flow, ["helper"]) as server:
        answer = await server.post("/agui/helper", await body_of(server, tools=[BACKGROUND]))
    assert "the host made it red" in answer.text and "tool/shadowed" in seen
    assert [each.description for each in model.requests[0].tools] == ["Change the background of the server."]


async def test_a_task_outside_of_the_conversation_is_offered_none() -> None:
    """Tools of the page belong to the tasks that speak with its user: a task without history does not call them."""
    model = ScriptedProvider(["noted", "hello"])
    async with AgentFlow(provider=model) as flow:

        @flow.task(name="note")
        async def note(text: str) -> str:
            """{{text}}"""

        @flow.task(name="reply", history=True)
        async def reply(text: str) -> str:
            """{{text}}"""

        @flow.workflow
        async def both(message: str) -> str:
            await note(message)
            return await reply(message)

        async with served(flow, ["both"]) as server:
            await server.post("/agui/both", await body_of(server, tools=[BACKGROUND]))
    assert [[each.name for each in request.tools] for request in model.requests] == [[], ["change_background"]]
