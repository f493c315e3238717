"""What identifies a task besides its arguments: the part of its record's key that tells whether a recorded answer is valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import NOTHING_INHERITED
from agentflow.core.data.errors import TaskError
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.values import plain
from agentflow.core.ports.ports import Tool
from agentflow.lib.schema.json_types import left_out, without
from agentflow.tasks.context_rules import STANDARD, ContextSettings, resolve_settings
from agentflow.tasks.registry import CompiledTemplate

_NOT_CONTENT = frozenset({"priority", "prompt_cache", "reuse"})
"""Fields of a task that change what it costs, or when it has its turn, not what it answers."""

PARTS = (
    "the definition of the task",
    "the model",
    "the conversation",
    "the data context",
    "what earlier steps gave",
)
"""What messages call the parts that :func:`content_of` gives, in their order."""

Find = Callable[[str], CompiledTemplate | None]


def content_of(
    compiled: CompiledTemplate,
    request: SubtaskRequest,
    call: CallContext,
    *,
    model: str,
    find: Find,
    settled: bool = True,
) -> list[Any]:
    """Template, model, and what is sent of the conversation and of earlier steps, as data that is equal for equal tasks.

    ``model`` is the full name of the model, ``find`` returns the templates that texts call. The contents of files and the
    results of lookups do not count; nor, with ``settled``, the conversation in concurrent host code, whose order differs
    from run to run.
    """
    history = compiled.history_with(request.history_config)
    sends = history.use_session_history and not (settled and "/~" in call.path)
    session = call.session
    return [
        definition_of(compiled, find),
        model,
        session.digest(history.history_turns_to_include, compacted=history.compact_after_tokens is not None)
        if sends
        else None,
        None if session.data_context is None else plain(session.data_context),
        _handed_on(compiled, request, call),
    ]


def definition_of(compiled: CompiledTemplate, find: Find) -> str | list[Any]:
    """The digest of a template, and of the templates that its texts call, in whatever order they are called."""
    digest, called = _own(compiled)
    if not called:
        return digest
    seen: dict[str, CompiledTemplate | None] = {compiled.name: compiled}
    pending = [compiled]
    while pending:
        for name in _own(pending.pop())[1]:
            if name not in seen:
                seen[name] = other = find(name)
                if other is not None:
                    pending.append(other)
    return [[name, None if each is None else _own(each)[0]] for name, each in sorted(seen.items())]


def _own(compiled: CompiledTemplate) -> tuple[str, tuple[str, ...]]:
    """A digest of a template's fields, and the templates that its texts call. What only saves money does not count."""
    cached = compiled.memo.get("content")
    if cached is None:
        fields = {name: value for name, value in compiled.fields.items() if name not in _NOT_CONTENT}
        data: list[Any] = [fields] if compiled.output.model is None else [fields, compiled.output.schema]
        if compiled.toolbox:
            data.append([_tool(compiled.toolbox[name]) for name in sorted(compiled.toolbox)])
        text = json.dumps(plain(data), sort_keys=True)
        digest = blake2b(text.encode("ascii"), digest_size=16).hexdigest()
        cached = compiled.memo["content"] = (digest, compiled.functions)
    return cached


def _tool(tool: Tool) -> list[Any]:
    """What the record of a task depends on of a tool. A parameter more that may be left out is none of it: what was answered, and
    what it called, still fits."""
    schema = tool.spec.input_schema
    return [tool.name, without(schema, left_out(schema)), tool.reference]


def _handed_on(compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext) -> Any:
    """The material that the task inherits from the surrounding task and from earlier steps."""
    material = call.material
    inherits = material is not None and material is not NOTHING_INHERITED
    if not inherits and call.steps is None:
        return None
    settings = _settings(compiled, request)
    steps = call.steps if settings.accumulate_data else None
    return [
        None if steps is None else steps.previous_outputs(settings.accumulation_format, call.grants),
        [material.text, list(material.paths)]
        if material is not None and inherits and settings.inherit_context != "none"
        else None,
    ]


def _settings(compiled: CompiledTemplate, request: SubtaskRequest) -> ContextSettings:
    if request.context_management is None:
        return STANDARD if compiled.context is None else compiled.context
    try:
        return resolve_settings(
            compiled.template.subtype, compiled.template.context_management, request.context_management
        )
    except TaskError:
        return STANDARD  # a contradiction, which the task itself reports
