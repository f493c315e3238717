"""Resources and prompts of a server, as tools that are offered only where a task names them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from mcp.client.session import ClientSession
from mcp_types import (
    GetPromptResult,
    InputRequiredResult,
    InputResponses,
    ReadResourceResult,
    Resource,
)

from agentflow.connect.connection import Connection
from agentflow.connect.content import parts_of, resource_part
from agentflow.connect.in_flight import InFlight
from agentflow.connect.listing import all_pages
from agentflow.connect.live import Live
from agentflow.connect.requests import Ask, requested
from agentflow.core.call.call import CallContext
from agentflow.core.data.messages import TextPart, ToolSpec, text_of_parts
from agentflow.core.data.results import TaskResult
from agentflow.core.ports.ports import Tool

R = TypeVar("R")
_Method = Callable[[dict[str, Any], CallContext], Awaitable[TaskResult]]
_TEXT = {"type": "string", "minLength": 1}
_ANY_TEXT = {"type": "string"}
_RESOURCES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "uri": _ANY_TEXT,
            "name": _ANY_TEXT,
            "title": _ANY_TEXT,
            "description": _ANY_TEXT,
            "mime_type": _ANY_TEXT,
            "size": {"type": "integer"},
        },
        "required": ["uri", "name"],
        "additionalProperties": False,
    },
}
_MESSAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"role": {"enum": ["user", "assistant"]}, "text": _ANY_TEXT},
        "required": ["role", "text"],
        "additionalProperties": False,
    },
}
"""What the tools give."""


def material_tools(connection: Connection, live: Live) -> list[Tool]:
    """The tools for the resources and prompts that the server announced."""
    server, has = connection.server, live.client.server_capabilities
    tools: list[Tool] = []

    def add(
        name: str,
        description: str,
        properties: dict[str, Any],
        required: Sequence[str],
        run: _Method,
        returns: Mapping[str, Any],
    ) -> None:
        schema = {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}
        tools.append(
            Tool(
                spec=ToolSpec(f"{server.name}:{name}", description, schema),
                call=run,
                read_only=True,
                idempotent=True,
                builtin=True,
                approval=server.approve == "all",
                calls_models=server.sampling,
                returns=returns,
            )
        )

    material = _Material(connection)
    if has.resources is not None:
        add(
            "list_resources",
            f"The resources of the server '{server.name}'.",
            {},
            (),
            material.list_resources,
            _RESOURCES,
        )
        add(
            "read_resource",
            f"A resource of the server '{server.name}', by its address.",
            {"uri": _TEXT},
            ("uri",),
            material.read_resource,
            _ANY_TEXT,
        )
    if has.prompts is not None:
        texts = {"type": "object", "additionalProperties": {"type": "string"}}
        add(
            "get_prompt",
            f"A prompt of the server '{server.name}', by its name.",
            {"name": _TEXT, "arguments": texts},
            ("name",),
            material.get_prompt,
            _MESSAGES,
        )
    return tools


class _Material:
    """The functions of these tools. Each method takes the arguments and the call."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _requested(self, ask: Ask[R], call: CallContext) -> R | TaskResult:
        def make(request: InFlight) -> Ask[R]:
            return ask

        return await requested(self._connection, call, make, repeatable=True)

    async def list_resources(self, arguments: dict[str, Any], call: CallContext) -> TaskResult:
        async def ask(session: ClientSession, answers: InputResponses | None, state: str | None) -> list[Resource]:
            return (await all_pages(lambda at: session.list_resources(params=at), lambda page: page.resources))[0]

        answer = await self._requested(ask, call)
        if isinstance(answer, TaskResult):
            return answer
        kept = {"uri", "name", "title", "description", "mime_type", "size"}
        return TaskResult.of([each.model_dump(mode="json", include=kept, exclude_none=True) for each in answer])

    async def read_resource(self, arguments: dict[str, Any], call: CallContext) -> TaskResult:
        async def ask(
            session: ClientSession, answers: InputResponses | None, state: str | None
        ) -> ReadResourceResult | InputRequiredResult:
            return await session.read_resource(
                arguments["uri"], input_responses=answers, request_state=state, allow_input_required=True
            )

        answer = await self._requested(ask, call)
        if isinstance(answer, TaskResult):
            return answer
        parts = tuple([await resource_part(each) for each in answer.contents])
        result = TaskResult.complete(text_of_parts(parts))
        return result if all([isinstance(part, TextPart) for part in parts]) else result.with_notes(parts=parts)

    async def get_prompt(self, arguments: dict[str, Any], call: CallContext) -> TaskResult:
        async def ask(
            session: ClientSession, answers: InputResponses | None, state: str | None
        ) -> GetPromptResult | InputRequiredResult:
            return await session.get_prompt(
                arguments["name"],
                arguments.get("arguments"),
                input_responses=answers,
                request_state=state,
                allow_input_required=True,
            )

        answer = await self._requested(ask, call)
        if isinstance(answer, TaskResult):
            return answer
        messages = [
            {"role": each.role, "text": text_of_parts(await parts_of([each.content]))} for each in answer.messages
        ]
        return TaskResult.complete("\n\n".join([each["text"] for each in messages]), messages)


__all__ = ["material_tools"]
