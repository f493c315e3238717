"""The tools that a server lists: which are accepted, and how they are described from then on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, TypeVar

from mcp.client.session import ClientSession
from mcp_types import PaginatedRequestParams, PaginatedResult
from mcp_types import Tool as Listing
from pydantic import BaseModel

from agentflow.connect.items import REFUSED
from agentflow.connect.servers import McpServer
from agentflow.connect.size_limits import MAX_DESCRIPTION, MAX_LIST, MAX_PAGES, MAX_SPEC, MAX_TOOLS
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_schema import Schema
from agentflow.lib.text.safe_text import clean

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}")
P = TypeVar("P", bound=PaginatedResult)
T = TypeVar("T", bound=BaseModel)
Refuse = Callable[[str, str], None]
"""Takes the name of an omitted tool, and the reason."""


@frozen(kw_only=True)
class ListedTool:
    """A tool as its server described it. ``digest`` covers the whole description; approvals are bound to it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    read_only: bool
    idempotent: bool | None
    digest: str
    task: str | None = None
    """Whether it may be called as a task of the protocol: ``optional``, ``required`` or not (None)."""


async def list_tools(session: ClientSession, server: McpServer, refuse: Refuse) -> dict[str, ListedTool]:
    """The tools of a server that its ``allow`` admits, by name; ``refuse`` takes those that cannot be offered."""
    tasks = session.server_capabilities.tasks if session.server_capabilities is not None else None
    has_tasks = tasks is not None and tasks.requests is not None and tasks.requests.tools is not None
    listings, whole = await list_all(session)
    if not whole:
        most = f"{MAX_TOOLS:,} tools, {MAX_PAGES} pages or {MAX_LIST:,} characters"
        refuse("*", f"the list is longer than {most}; the rest is left out")
    tools: dict[str, ListedTool] = {}
    for listing in listings:
        await asyncio.sleep(0)  # checking a schema takes time: let others run in between
        if server.allow is not None and not any([fnmatchcase(listing.name, pattern) for pattern in server.allow]):
            continue
        refused = (listing.meta or {}).get(REFUSED)
        fault = None if refused is None else clip(clean(str(refused)), 300)
        if fault is None:
            fault = "it is listed twice" if listing.name in tools else _fault(listing, has_tasks)
        if fault is None:
            tools[listing.name] = _listed(listing, has_tasks)
        else:
            refuse(listing.name, fault)
    return tools


async def list_all(session: ClientSession) -> tuple[list[Listing], bool]:
    """All tools of a server within the limits, and whether the list was complete."""
    return await all_pages(lambda at: session.list_tools(params=at), lambda page: page.tools)


async def all_pages(
    fetch: Callable[[PaginatedRequestParams | None], Awaitable[P]], items: Callable[[P], list[T]]
) -> tuple[list[T], bool]:
    """The items that a server lists page by page, within the limits, and whether the list was complete."""
    listed: list[T] = []
    at: PaginatedRequestParams | None = None
    left = MAX_LIST
    for _ in range(MAX_PAGES):
        page = await fetch(at)
        for each in items(page):
            left -= len(each.model_dump_json())
            if left < 0 or len(listed) == MAX_TOOLS:
                return listed, False
            listed.append(each)
        if not page.next_cursor:
            return listed, True
        at = PaginatedRequestParams(cursor=page.next_cursor)
    return listed, False


def _fault(tool: Listing, has_tasks: bool) -> str | None:
    """The reason why a tool cannot be offered; None if it can."""
    if not _NAME.fullmatch(tool.name):
        return "its name has characters other than letters, digits and _ . / -"
    if not has_tasks and tool.execution is not None and tool.execution.task_support == "required":
        return "it can be called only as a task, and its server has no tasks"
    for what, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        if schema is None:
            continue
        if len(to_json(schema)) > MAX_SPEC:
            return f"its {what} schema has more than {MAX_SPEC:,} characters"
        try:
            Schema(schema)
        except ConfigurationError as error:
            return f"its {what} schema is invalid: {error.message}"
    if tool.input_schema.get("type", "object") != "object":
        return "its input schema does not describe an object"
    return None


def _listed(tool: Listing, has_tasks: bool) -> ListedTool:
    hints = tool.annotations
    read_only = hints is not None and hints.read_only_hint is True
    idempotent = True if read_only else hints.idempotent_hint if hints is not None else None
    description = tool.description or tool.title or ""
    support = tool.execution.task_support if has_tasks and tool.execution is not None else None
    content = to_json(
        [tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema, read_only, idempotent]
    )
    return ListedTool(
        name=tool.name,
        description=clip(clean(description), MAX_DESCRIPTION),
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        read_only=read_only,
        idempotent=idempotent,
        digest=blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest(),
        task=support if support in ("optional", "required") else None,
    )
