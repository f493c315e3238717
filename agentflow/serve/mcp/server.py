"""The handlers of the protocol: exports as tools, runs and the language card as resources, a prompt for writing programs."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentflow.core.data.errors import AgentflowError, cut
from agentflow.lang.card import language_card
from agentflow.serve.faults import Reader, RequestError, dict_field, text_field
from agentflow.serve.keys import APPROVAL_TTL, Key
from agentflow.serve.mcp.calls import ToolCall, can_ask
from agentflow.serve.mcp.endpoint import KEY
from agentflow.serve.mcp.tools import RUN_PROGRAM, failed, offers_by_tool, tools_of
from agentflow.serve.service import Inputs, Service
from agentflow.serve.waiting_runs import WaitingRuns

LANGUAGE = "agentflow://language"
RUNS = "agentflow://runs/"
PROMPT = "write_workflow"
PARKED_TTL = 30 * 86_400.0
"""Seconds for which a client may return to a call whose durable run asked it."""
_RESOURCE_NOT_FOUND = -32002  # the code of the older revision

Context = ServerRequestContext[Any, Any]


class FlowMcp:
    """The MCP side of a served flow; ``key`` is the owner of calls that came without an HTTP request."""

    def __init__(self, service: Service, key: Key) -> None:
        self._service = service
        self._key = key
        self._waiting: WaitingRuns[ToolCall] = WaitingRuns()

    def server(self) -> Server[Any]:
        """The SDK's server with our handlers."""
        server: Server[Any] = Server(
            "agentflow",
            version=version("agentflow"),
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
        return self._key if context.request is None else context.request.scope[KEY]

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

    async def _begin(self, key: Key, tool: str, arguments: dict[str, Any], *, attended: bool) -> ToolCall:
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
        return ToolCall(service, run, self._waiting)

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


__all__ = ["FlowMcp"]
