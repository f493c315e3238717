"""Converts the handler's plain arguments to prompts, and outcomes of the turn loop to results."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeAlias

from agentflow.core.data.errors import cut
from agentflow.core.data.media import PromptParts, load_parts
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import to_json
from agentflow.core.ports.ports import Prompt, PromptOutcome
from agentflow.core.ports.toolbox import NO_TOOLBOX
from agentflow.handler.tool_lists import ToolTable, read_tools
from agentflow.lib.schema.json_schema import Schema
from agentflow.lib.schema.tagged_unions import asked_schema

PromptLike: TypeAlias = "PromptParts | Prompt"
JSON_ONLY = "Answer with one JSON value and nothing else."


_OPTIONS = frozenset([each.name for each in fields(Prompt)]) - {"parts", "toolbox"}
"""The keyword arguments of a prompt."""


async def make_prompt(prompt: PromptLike, options: dict[str, Any], tools: ToolTable) -> Prompt:
    """Build a Prompt from text or parts, and options named like its fields; for a Prompt, options replace its fields.

    ``tools=`` among the options may hold objects, as everywhere; ``tools`` are the handler's. Files among the parts are
    read in a thread. Raises ConfigurationError (``config/option``) for an unknown option, and the errors of
    :func:`~agentflow.core.data.media.attachment` and :func:`~agentflow.handler.tool_lists.read_tools` do.
    """
    if not options.keys() <= _OPTIONS:
        from agentflow.lib.option_hints import unknown_field

        raise unknown_field(next(name for name in options if name not in _OPTIONS), "a prompt", _OPTIONS)
    if options.get("tools") is not None:
        names, toolbox = read_tools(options["tools"], tools, "the prompt")
        offered = None if names is None else tuple(names)
        options = {**options, "tools": offered, "toolbox": None if toolbox is NO_TOOLBOX else toolbox}
    if isinstance(prompt, Prompt):
        return replace(prompt, **options) if options else prompt
    built = Prompt(parts=await load_parts(prompt), **options)
    if "schema_text" in options:
        return built  # the caller has said which rules the answer must meet
    schema = built.output_schema
    if schema is not None:
        Schema(schema)  # refuse an invalid schema before a model is called
    elif built.output_model is not None:
        from pydantic import TypeAdapter

        schema = asked_schema(built.output_model, TypeAdapter[Any](built.output_model).json_schema())
    if schema is not None:
        text = f"\n\n{JSON_ONLY} It must meet this JSON Schema:\n{to_json(schema)}"
        return replace(built, schema_text=text)
    return replace(built, schema_text=f"\n\n{JSON_ONLY}") if built.json_output else built


def to_result(outcome: PromptOutcome, prompt: Prompt) -> TaskResult:
    """The outcome as the specification's TaskResult.

    An answer still not in JSON after the repair round is COMPLETE with ``notes.parseError``; valid JSON that
    violates the schema is FAILED (output_format_failure).
    """
    notes: dict[str, Any] = {"model": outcome.model, "turns": outcome.turns}
    if outcome.cost_usd is not None:
        notes["cost_usd"] = outcome.cost_usd
    text = outcome.response.text
    if outcome.schema_errors:
        result = TaskResult.failure(
            "output_format_failure",
            f"the answer does not meet the schema: {'; '.join(outcome.schema_errors)}",
            details={
                "code": "tasks/schema-missed",
                "violations": list(outcome.schema_errors),
                "content": cut(text, 2_000),
            },
            **notes,
        )
    elif outcome.parse_error is not None:
        result = TaskResult.complete(text, None, **notes, parseError=outcome.parse_error)
    else:
        result = TaskResult.complete(text, outcome.value, **notes)
    return replace(result, usage=outcome.usage)
