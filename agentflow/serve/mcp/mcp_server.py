"""The handlers of the protocol: exports as tools, runs and the language card as resources, a prompt for writing programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentflow.connect.stdio import stdio_streams
from agentflow.core.data.errors import AgentflowError, cut
from agentflow.lang.card import language_card
from agentflow.lib.distribution import own_version
from agentflow.serve.error_responses import Reader, RequestError, dict_field, text_field
from agentflow.serve.keys import APPROVAL_TTL, KEY_IN_SCOPE, Key
from agentflow.serve.mcp.offered_tools import RUN_PROGRAM, failed, offers_by_tool, tools_of
from agentflow.serve.mcp.tool_calls import ClientToolCall, can_ask
from agentflow.serve.served_flow import Inputs, ServedFlow
from agentflow.serve.waiting_runs import WaitingRuns

LANGUAGE = "agentflow://language"
RUNS = "agentflow://runs/"
PROMPT = "write_workflow"
PARKED_TTL = 30 * 86_400.0
"""Seconds that a client has to return to a call after its durable run asked a question."""
_RESOURCE_NOT_FOUND = -32002  # the code of the older revision

Context = ServerRequestContext[Any, Any]


class FlowMcp:
    """The MCP side of a served flow; ``key`` is the owner of calls that came without an HTTP request."""

    def __init__(self, service: ServedFlow, key: Key) -> None:
        self._service = service
        self._key = key
        self._waiting: WaitingRuns[ClientToolCall] = WaitingRuns()

    def server(self) -> Server[Any]:
        """The SDK's server with our handlers."""
        server: Server[Any] = Server(
            "agentflow",
            version=own_version(),
            instructions="Tools are workflows; each call is a run, whose events are the resource agentflow://runs/ID.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        ttl = APPROVAL_TTL if self._key.approval_ttl is None else self._key.approval_ttl
        seconds = PARKED_TTL if self._service.flow.is_durable else max(1.0, ttl)
        security = RequestStateSecurity.ephemeral(ttl=seconds)
        server.middleware.append(RequestStateBoundary(security, default_audience="agentflow"))
        return server

    def _key_of(self, context: Context) -> Key:
        return self._key if context.request is None else context.request.scope[KEY_IN_SCOPE]

    async def _list_tools(self, context: Context, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools_of(self._service, self._key_of(context)))

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        key = self._key_of(context)
        try:
            if params.request_state is not None:
                call = self._waiting.take(params.request_state, key)
                await call.take_answers(params.input_responses or {})
            else:
                call = await self._begin(key, params.name, params.arguments or {}, attended=can_ask(context))
        except AgentflowError as error:
            return failed(self._service, error, self._service.refusal(error, Reader(operator=key.may_see_host)))
        return await call.follow(context)

    async def _begin(self, key: Key, tool: str, arguments: dict[str, Any], *, attended: bool) -> ClientToolCall:
        """Start the run of a call. Raises MCPError for an unknown tool, AgentflowError for invalid arguments."""
        service = self._service
        offer = offers_by_tool(service, key).get(tool)
        if offer is not None:

            async def inputs() -> Inputs:
                return Inputs(arguments)

            run = await service.start(offer, inputs, key, lasting=True, attended=attended)
        elif tool == RUN_PROGRAM and service.takes_programs(key):
            program = text_field(arguments, "program")
            if program is None or not arguments.keys() <= {"program", "bindings"}:
                raise RequestError(f"{RUN_PROGRAM} takes 'program', and 'bindings'", code="serve/bindings")
            run = await service.start_program(
                program, dict_field(arguments, "bindings"), key, lasting=True, attended=attended
            )
        else:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {cut(tool, 100)}")
        return ClientToolCall(service, run, self._waiting)

    async def _list_resources(self, context: Context, params: Any) -> types.ListResourcesResult:
        """The language alone: runs are named by those who began them, and read by the template."""
        language = types.Resource(
            uri=LANGUAGE, name="language", description="How a workflow is written.", mime_type="text/markdown"
        )
        return types.ListResourcesResult(resources=[language])

    async def _list_templates(self, context: Context, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=f"{RUNS}{{id}}",
            name="run",
            description="The events of a run so far, a JSON object a line, the last part of many.",
            mime_type="application/x-ndjson",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = params.uri
        if uri == LANGUAGE:
            text, kind = language_card(), "text/markdown"
        elif uri.startswith(RUNS):
            try:
                key = self._key_of(context)
                run = self._service.runs.find(uri.removeprefix(RUNS), key)
            except RequestError:
                raise _no_resource(context, uri) from None
            text, kind = run.log.lines(everything=key.may_see_host), "application/x-ndjson"
        else:
            raise _no_resource(context, uri)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])

    async def _list_prompts(self, context: Context, params: Any) -> types.ListPromptsResult:
        prompt = types.Prompt(
            name=PROMPT,
            description="Write a workflow for a goal.",
            arguments=[types.PromptArgument(name="goal", description="The goal of the workflow.", required=True)],
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        goal = (params.arguments or {}).get("goal")
        if params.name != PROMPT or not goal:
            raise MCPError(types.INVALID_PARAMS, f"there is one prompt, {PROMPT}, and it takes a goal")
        tools = [
            f"- {offer.name} {json.dumps(offer.input_schema['properties'])}: {offer.description}"
            for offer in self._service.offers.values()
            if offer.callee is not None and self._key_of(context).may_call(offer.name)
        ]
        callable_names = "\n".join(tools) or "None."
        text = f"{language_card()}\n\nTasks and tools:\n{callable_names}\n\nWrite a program for this goal, and nothing else:\n{goal}"
        return types.GetPromptResult(
            description="Write a workflow for a goal.",
            messages=[types.PromptMessage(role="user", content=types.TextContent(text=text))],
        )


def _no_resource(context: Context, uri: str) -> MCPError:
    modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    code = types.INVALID_PARAMS if modern else _RESOURCE_NOT_FOUND
    return MCPError(code, "Resource not found", {"uri": uri[:500]})


_AT_ONCE = 65_536


async def serve_stdio(service: ServedFlow) -> None:
    """Serve until the client closes our standard input, then cancel its runs."""
    server = FlowMcp(service, Key("anyone", approval_ttl=APPROVAL_TTL)).server()
    try:
        with own_files() as (source, target):
            async with (
                _pipes(source, target) as pipes,
                stdio_streams(pipes, lambda reason: None) as (incoming, outgoing),
            ):
                await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await service.runs.aclose()


@contextlib.contextmanager
def own_files() -> Generator[tuple[int, int], None, None]:
    """Descriptors of standard input and output reserved for the protocol.

    Meanwhile other output goes to standard error, and commands started by tools read empty input.
    """
    sys.stdout.flush()
    source, target, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield source, target
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(source)
        os.close(target)


class _Pipes:
    """The two ends as the transport of JSON lines expects them."""

    def __init__(
        self, read: Callable[[], Coroutine[Any, Any, bytes]], write: Callable[[bytes], Coroutine[Any, Any, None]]
    ) -> None:
        self._read = read
        self._write = write

    async def read(self) -> bytes:
        return await self._read()

    async def write(self, data: bytes) -> None:
        await self._write(data)


@contextlib.asynccontextmanager
async def _pipes(source: int, target: int) -> AsyncGenerator[_Pipes, None]:
    """Both ends: pipes and sockets wait on the loop, files on a worker thread."""
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        if _waits(source):
            reader = asyncio.StreamReader()
            incoming, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(source), "rb", 0)
            )
            stack.callback(incoming.close)

            async def read() -> bytes:
                return await reader.read(_AT_ONCE)
        else:

            async def read() -> bytes:
                return await asyncio.to_thread(os.read, source, _AT_ONCE)

        if _waits(target):
            outgoing, protocol = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, os.fdopen(os.dup(target), "wb", 0)
            )
            writer = asyncio.StreamWriter(outgoing, protocol, None, loop)
            stack.callback(outgoing.abort)

            async def write(data: bytes) -> None:
                writer.write(data)
                await writer.drain()
        else:

            async def write(data: bytes) -> None:
                while data:
                    data = data[await asyncio.to_thread(os.write, target, data) :]

        yield _Pipes(read, write)


def _waits(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
