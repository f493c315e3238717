"""Checks the items of a server's answer: an invalid one is left out, instead of its whole list.

The SDK accepts a list only as a whole. So each item is checked first, by the SDK's own types and with the schemas of tools,
and replaced by one that names the mistake, or left out if it cannot be reported.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, cast

from mcp_types import methods
from pydantic import TypeAdapter, ValidationError

from agentflow.core.data.errors import clip
from agentflow.core.data.values import to_json
from agentflow.lib.text.safe_text import escape

_log = logging.getLogger(__name__)
MAX_DEPTH = 190
"""Levels of an item. The SDK's parser takes 200 of a message."""
REFUSED = "agentflow/refused"
"""The entry of a tool's ``_meta`` that says why the tool is left out."""
_OBJECT = {"type": "object"}
_LISTS = {
    "prompts/get": "messages",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/read": "contents",
    "resources/templates/list": "resourceTemplates",
    "tools/call": "content",
    "tools/list": "tools",
}
"""The list of items in the answer to each method."""
EXTENSION = "io.modelcontextprotocol/tasks"
"""The name of the extension in the newer revision for calls that are carried out later."""
CALL = "tools/call"
"""The method whose answers are those of tools."""
TASK = "agentflow/task"
"""The entry of an answer's ``_meta`` with the task that the server has begun in its place."""
LISTS = frozenset(_LISTS.values())
"""The names of such lists."""


def check_items(method: str, version: str, result: dict[str, Any]) -> None:
    """Check the items of a ``result`` of ``method`` in the protocol's ``version``, and replace wrong ones in place."""
    key = _LISTS.get(method)
    if method == "tools/call":
        _check_task(result)
        _check_data(version, result)
    if key is None or not isinstance(items := result.get(key), list):
        return
    if method == "tools/list":
        for item in cast("list[Any]", items):
            schema: Any = cast("dict[str, Any]", item).get("inputSchema") if isinstance(item, dict) else None
            if isinstance(schema, dict):
                cast("dict[str, Any]", schema).setdefault("type", "object")  # the only one, which many leave out
    adapters = _adapters(method, version, key)
    if _fault(adapters, items, whole=True) is None:
        return
    checked: list[Any] = []
    for item in cast("list[Any]", items):
        if (fault := _fault(adapters, item)) is not None:
            item = _without_hints(adapters, item) or _stand_in(key, item, fault)
        if item is not None:
            checked.append(item)
    result[key] = checked


def _check_task(result: dict[str, Any]) -> None:
    """Put a task that a server answers with, of either revision, where the SDK leaves it: in the ``_meta`` of an empty result."""
    task: Any = dict(result) if result.get("resultType") == "task" else result.get("task")
    meta: Any = result.get("_meta")
    if isinstance(meta, dict):
        cast("dict[str, Any]", meta).pop(TASK, None)  # which is no server's to write
    if isinstance(task, dict) and "content" not in result:
        result.clear()
        result.update(content=[], _meta={TASK: task}, resultType="complete")


def _check_data(version: str, result: dict[str, Any]) -> None:
    """Ensure that a tool's answer contains the fields the SDK requires: contents, possibly empty, and data that it accepts."""
    data = result.get("structuredContent")
    if data is None:
        return
    contents: Any = result.get("content")
    if contents is None:
        contents = result["content"] = []
    if not isinstance(data, dict) and version < "2026" and isinstance(contents, list):
        result["content"] = [*cast("list[Any]", contents), {"type": "text", "text": to_json(data)}]
        del result["structuredContent"]


@cache
def _adapters(method: str, version: str, key: str) -> tuple[tuple[TypeAdapter[Any], TypeAdapter[Any]], ...]:
    """The types of the list and of an item that the SDK checks by: of the revision, and of its own."""
    rows: list[Any] = [methods.SERVER_RESULTS.get((method, version)), methods.MONOLITH_RESULTS.get(method)]
    adapters: list[tuple[TypeAdapter[Any], TypeAdapter[Any]]] = []
    for row in filter(None, rows):
        for model in getattr(row, "__args__", (row,)):
            for name, field in model.model_fields.items():
                if (field.alias or name) == key:
                    adapters.append((TypeAdapter(field.annotation), TypeAdapter(field.annotation.__args__[0])))
    return tuple(adapters)


def _fault(
    adapters: tuple[tuple[TypeAdapter[Any], TypeAdapter[Any]], ...], value: Any, *, whole: bool = False
) -> str | None:
    """The mistake in an item, or in the ``whole`` list; None without one."""
    if _is_deep(value):
        return f"it is nested more than {MAX_DEPTH} levels deep"
    for of_list, of_item in adapters:
        try:
            (of_list if whole else of_item).validate_python(value, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            return escape(clip(f"{where}: {first['msg']}" if where else first["msg"], 300))
    return None


def _is_deep(value: Any) -> bool:
    """Whether data is nested more than :data:`MAX_DEPTH` levels deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                inner += cast("list[Any]", each)
        if not inner:
            return False
        level = inner
    return True


def _without_hints(adapters: tuple[tuple[TypeAdapter[Any], TypeAdapter[Any]], ...], item: Any) -> Any:
    """A content without its annotations, if that makes it valid; they name its audience. Annotations of a tool describe its
    behaviour."""
    if not isinstance(item, dict) or "inputSchema" in item:
        return None
    plain = {key: value for key, value in cast("dict[str, Any]", item).items() if key not in ("annotations", "_meta")}
    return plain if len(plain) < len(cast("dict[str, Any]", item)) and _fault(adapters, plain) is None else None


def _stand_in(key: str, item: Any, fault: str) -> Any:
    """The item that says why one is left out; None for a list that has no place for it."""
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    text = f"[a part of the server's answer is left out, since it is not as the protocol says: {fault}]"
    match key:
        case "tools":
            name = fields.get("name")
            named = name if isinstance(name, str) else "a tool without a name"
            return {"name": named, "inputSchema": _OBJECT, "_meta": {REFUSED: fault}}
        case "content":
            return {"type": "text", "text": text}
        case "contents":
            uri = fields.get("uri")
            return {"uri": uri if isinstance(uri, str) else "about:blank", "text": text}
        case "messages":
            return {"role": "user", "content": {"type": "text", "text": text}}
        case _:
            _log.warning("an MCP server lists one of its %s wrongly, which is left out: %s", key, fault)
            return None
