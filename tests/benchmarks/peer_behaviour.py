"""What other frameworks do where ours retries, hands over, has a call edited and searches tools: one script, one server, one table.

Run it in the environment of ``peers.py``, without network:

    peers/bin/python tests/benchmarks/peer_behaviour.py

Every library gets the same replies from one loopback server with the rules of Chat Completions. A row is what its model read last, the
tools that it was offered, and the answer or the error. What a library has no way to say is ``none``.
"""

import asyncio
import itertools
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import openai

from tests.support.model_server import ModelServer, Request

MODEL = "bench-model"
SYSTEM = "You help."
QUESTION = "Go on."


_ids = itertools.count(1)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"id": f"call_{next(_ids)}", "name": name, "arguments": arguments}]}


def handoff(request: Request) -> dict[str, Any]:
    """A reply that calls the one tool there is, whatever the library calls a handoff."""
    return call(request.body["tools"][0]["function"]["name"])


def search(request: Request) -> dict[str, Any]:
    """A reply that searches tools, with the argument that the library's own search takes."""
    tools = {each["function"]["name"]: each["function"] for each in request.body["tools"]}
    (name,) = tools["search_tools"]["parameters"]["properties"]
    return call("search_tools", **{name: "mail an invoice" if name == "query" else ["mail an invoice"]})


CASES: dict[str, list[Any]] = {
    "a tool asks for another try": [call("book", seat="0"), call("book", seat="12"), "done"],
    "a tool asks for another try for ever": [call("book", seat="0") for _ in range(12)],
    "a check refuses the answer": ["too long", "short"],
    "a check refuses for ever": ["too long"] * 12,
    "a handoff": [handoff, "I am billing."],
    "a call is edited by a person": [call("send", to="eve"), "done"],
    "a call is refused by a person": [call("send", to="eve"), "done"],
    "an unknown tool": [call("nothing"), "done"],
    "wrong arguments": [call("book"), "done"],
    "tools are searched": [search, call("send_invoice"), "done"],
    "a tool that was not searched": [call("send_invoice"), "done"],
}


class Ours:
    """agentflow."""

    name = f"agentflow {version('agentflow')}"

    async def run(self, url: str, what: str) -> Any:
        """The answer in a case."""
        from agentflow import AgentFlow, Approved, CallContext, Denied, Retry, tool

        @tool(approval=what.startswith("a call"))
        async def send(to: str) -> str:
            """Send a mail."""
            return f"sent to {to}"

        async def book(seat: str) -> str:
            """Book a seat."""
            if seat == "0":
                raise Retry("seats begin at 1")
            return f"booked {seat}"

        @tool(defer_loading=True)
        async def send_invoice() -> str:
            """Send an invoice by mail."""
            return "invoice sent"

        @tool(defer_loading=True)
        async def weather() -> str:
            """The weather of a city."""
            return "rain"

        def short(text: str, ctx: CallContext) -> str:
            if len(text) > 5:
                raise Retry("at most five letters")
            return text

        def approve(request: Any) -> Any:
            return Approved(arguments={"to": "ada"}) if "edited" in what else Denied("not eve")

        async with AgentFlow(f"openai-chat:{MODEL}", base_url=url, api_key="k", approve=approve) as flow:

            @flow.task(system="You are billing.")
            async def billing() -> str:
                """The customer is yours."""

            options: dict[str, Any] = {
                "a check refuses the answer": {"check": short},
                "a check refuses for ever": {"check": short},
                "a handoff": {"handoffs": [billing]},
                "a call is edited by a person": {"tools": [send]},
                "a call is refused by a person": {"tools": [send]},
                "tools are searched": {"tools": [send_invoice, weather]},
                "a tool that was not searched": {"tools": [send_invoice, weather]},
            }.get(what, {"tools": [book]})
            return await flow.ask(QUESTION, system=SYSTEM, max_turns=10, **options)


class PydanticAi:
    """pydantic-ai."""

    name = f"pydantic-ai {version('pydantic-ai-slim')}"

    async def run(self, url: str, what: str) -> Any:
        """The answer in a case."""
        from pydantic_ai import (
            Agent,
            DeferredToolRequests,
            DeferredToolResults,
            ModelRetry,
            RunContext,
            Tool,
            ToolApproved,
            ToolDenied,
        )
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
            model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))

            async def send(to: str) -> str:
                """Send a mail."""
                return f"sent to {to}"

            async def book(seat: str) -> str:
                """Book a seat."""
                if seat == "0":
                    raise ModelRetry("seats begin at 1")
                return f"booked {seat}"

            async def send_invoice() -> str:
                """Send an invoice by mail."""
                return "invoice sent"

            async def weather() -> str:
                """The weather of a city."""
                return "rain"

            if what == "a handoff":
                other = Agent(model, instructions="You are billing.")

                async def transfer_to_billing(ctx: RunContext[None]) -> str:
                    """Hand over to billing."""
                    return (await other.run("The customer is yours.", message_history=ctx.messages[:-1])).output

                agent: Any = Agent(model, instructions=SYSTEM, output_type=[transfer_to_billing])
                return (await agent.run(QUESTION)).output
            if "person" in what:
                asks = Agent(
                    model,
                    instructions=SYSTEM,
                    tools=[Tool(send, requires_approval=True)],
                    output_type=[str, DeferredToolRequests],
                )
                first = await asks.run(QUESTION)
                decided = ToolApproved(override_args={"to": "ada"}) if "edited" in what else ToolDenied("not eve")
                results = DeferredToolResults(approvals={each.tool_call_id: decided for each in first.output.approvals})
                return (await asks.run(message_history=first.all_messages(), deferred_tool_results=results)).output
            tools: list[Any] = [book]
            if "searched" in what:
                tools = [Tool(send_invoice, defer_loading=True), Tool(weather, defer_loading=True)]
            agent = Agent(model, instructions=SYSTEM, tools=[] if "check" in what else tools)
            if "check" in what:

                @agent.output_validator
                def short(text: str) -> str:
                    if len(text) > 5:
                        raise ModelRetry("at most five letters")
                    return text

            return (await agent.run(QUESTION)).output


class OpenAiAgents:
    """openai-agents."""

    name = f"openai-agents {version('openai-agents')}"

    async def run(self, url: str, what: str) -> Any:
        """The answer in a case."""
        from agents import (
            Agent,
            OpenAIChatCompletionsModel,
            Runner,
            ToolSearchTool,
            function_tool,
            set_tracing_disabled,
        )

        set_tracing_disabled(True)
        if "check" in what or "edited" in what:
            return None  # an output guardrail halts, and an approval takes no other arguments
        async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
            model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)

            async def send(to: str) -> str:
                """Send a mail."""
                return f"sent to {to}"

            async def book(seat: str) -> str:
                """Book a seat."""
                if seat == "0":
                    raise ValueError("seats begin at 1")
                return f"booked {seat}"

            async def send_invoice() -> str:
                """Send an invoice by mail."""
                return "invoice sent"

            if what == "a handoff":
                billing = Agent(name="billing", instructions="You are billing.", model=model)
                triage = Agent(name="triage", instructions=SYSTEM, model=model, handoffs=[billing])
                return (await Runner.run(triage, QUESTION)).final_output
            if "person" in what:
                asks = Agent(
                    name="asks", instructions=SYSTEM, model=model, tools=[function_tool(send, needs_approval=True)]
                )
                first = await Runner.run(asks, QUESTION)
                state = first.to_state()
                for each in first.interruptions:
                    state.reject(each, rejection_message="not eve")
                return (await Runner.run(asks, state)).final_output
            tools: list[Any] = [function_tool(book)]
            if "searched" in what:
                tools = [function_tool(send_invoice, defer_loading=True), ToolSearchTool()]
            agent = Agent(name="one", instructions=SYSTEM, model=model, tools=tools)
            return (await Runner.run(agent, QUESTION)).final_output


class LangChain:
    """langchain and langgraph."""

    name = f"langchain {version('langchain')}"

    async def run(self, url: str, what: str) -> Any:
        """The answer in a case."""
        from langchain.agents import create_agent
        from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolErrorMiddleware
        from langchain.tools import ToolRuntime, tool
        from langchain_core.messages import ToolMessage
        from langchain_openai import ChatOpenAI
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.types import Command

        if "check" in what or "searched" in what:
            return None  # a check is a node of one's own; the search is the provider's alone
        model = ChatOpenAI(model=MODEL, base_url=url, api_key="k", max_retries=0)
        asked = {"messages": [{"role": "user", "content": QUESTION}]}

        @tool
        async def send(to: str) -> str:
            """Send a mail."""
            return f"sent to {to}"

        @tool
        async def book(seat: str) -> str:
            """Book a seat."""
            if seat == "0":
                raise ValueError("seats begin at 1")
            return f"booked {seat}"

        if what == "a handoff":

            @tool
            def transfer_to_billing(runtime: ToolRuntime) -> Command:
                """Hand over to billing."""
                told = ToolMessage("handed over", tool_call_id=runtime.tool_call_id)
                messages = [*runtime.state["messages"], told]
                return Command(goto="billing", update={"messages": messages}, graph=Command.PARENT)

            graph = StateGraph(MessagesState)
            graph.add_node("triage", create_agent(model, [transfer_to_billing], system_prompt=SYSTEM))
            graph.add_node("billing", create_agent(model, [], system_prompt="You are billing."))
            graph.add_edge(START, "triage")
            return (await graph.compile().ainvoke(asked))["messages"][-1].content
        if "person" in what:
            asks = create_agent(
                model,
                [send],
                system_prompt=SYSTEM,
                middleware=[HumanInTheLoopMiddleware({"send": True})],
                checkpointer=InMemorySaver(),
            )
            config: Any = {"configurable": {"thread_id": "1"}}
            await asks.ainvoke(asked, config)
            edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "ada"}}}
            decision = edit if "edited" in what else {"type": "reject", "message": "not eve"}
            return (await asks.ainvoke(Command(resume={"decisions": [decision]}), config))["messages"][-1].content
        agent = create_agent(
            model,
            [book],
            system_prompt=SYSTEM,
            middleware=[ToolErrorMiddleware(on_error=lambda error, request: str(error))],
        )
        return (await agent.ainvoke(asked))["messages"][-1].content


def said(message: dict[str, Any]) -> str:
    """A message as its role and what it says."""
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content) if content else ""
    calls = [f"{each['function']['name']}{each['function']['arguments']}" for each in message.get("tool_calls") or []]
    return f"{message['role']}: {' '.join([text, *calls]).strip()}"


def shown(server: ModelServer) -> list[str]:
    """What each call of the model after the first was sent: its messages from the last answer on, and its tools."""
    lines: list[str] = []
    for number, request in enumerate(server.requests[:6], 1):
        messages = request.body["messages"]
        start = max([n for n, each in enumerate(messages) if each["role"] == "assistant"], default=0)
        tools = ", ".join([each["function"]["name"] for each in request.body.get("tools") or []])
        system = " / ".join([said(each) for each in messages if each["role"] in ("system", "developer")])
        lines.append(f"{number}. [{tools}] {system} | " + " | ".join([said(each) for each in messages[start:]]))
    if len(server.requests) > 6:
        lines.append(f"... {len(server.requests)} calls")
    return lines


async def main() -> None:
    """Print each case, library by library; an argument chooses cases by a word of their names."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    for what, replies in CASES.items():
        if word not in what:
            continue
        print(f"\n## {what}")
        for kind in (Ours, PydanticAi, OpenAiAgents, LangChain):

            def reply(request: Request, left: list[Any] = [*replies]) -> Any:  # noqa: B006
                each = left.pop(0) if left else "the script has ended"
                return each(request) if callable(each) else each

            async with ModelServer(reply) as server:
                try:
                    answer = repr(await asyncio.wait_for(kind().run(server.url, what), 60))
                except Exception as error:
                    answer = f"{type(error).__name__}: {str(error)[:300]}"
            print(f"\n{kind.name}: {'none' if answer == 'None' else answer}")
            print("\n".join([f"    {line[:700]}" for line in shown(server)]))


if __name__ == "__main__":
    os.environ.update(LANGSMITH_TRACING="false", OPENAI_AGENTS_DISABLE_TRACING="1")
    asyncio.run(main())
