"""Substitutes for the turn loop: one that always fails, the script of test mode, and a handler passed to a call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, cast, runtime_checkable

from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.call.host_threads import as_async
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Message, ModelResponse, TextPart, Usage
from agentflow.core.data.results import TaskResult, warn_of_failure
from agentflow.core.data.values import to_json
from agentflow.core.ports.ports import Prompt, PromptOutcome, PromptRunner
from agentflow.lib.schema.json_schema import check

TEST_MODEL = "test-mode"


class NoPrompts:
    """The turn loop of a task system built without one: every prompt fails and names the part to pass."""

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        raise ConfigurationError(
            "this task system has nothing to run prompts with",
            code="tasks/no-handler",
            hint="build a BaseHandler on it, pass prompts= to it or handler= to the call, or use AgentFlow(model=...)",
        )


NO_PROMPTS = NoPrompts()
"""The one instance that faces without a handler share."""


class TestModePrompts:
    """The script of test mode: no model, the same answer to the same prompt, JSON that conforms to the schema."""

    __test__ = False

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Answer with the first text of the prompt, or with a minimal value of its schema."""
        first = next((part.text for part in prompt.parts if isinstance(part, TextPart)), "")
        value: Any = None
        text = f"Test mode answer to: {first[:500]}"
        if prompt.json_output or prompt.output_schema is not None:
            value = sample(prompt.output_schema or {"type": "object"})
            text = to_json(value)
        response = ModelResponse((TextPart(text),), "end", Usage(requests=0), TEST_MODEL, provider="test")
        turn = (Message("user", prompt.parts), response.message())
        return PromptOutcome(
            response=response, turn=turn, usage=Usage(), cost_usd=0.0, turns=1, value=value, model=TEST_MODEL
        )


def sample(schema: Mapping[str, Any], depth: int = 0) -> Any:
    """A small value that conforms to the common keywords of a JSON Schema; None for other schemas."""
    if depth > 20:
        return None
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return sample(schema[key][0], depth + 1)
    declared: Any = schema.get("type")
    kind = str(cast(Sequence[Any], declared)[0]) if isinstance(declared, Sequence) and declared else ""
    if isinstance(declared, str):
        kind = declared
    match kind:
        case "object":
            properties = cast(Mapping[str, Mapping[str, Any]], schema.get("properties", {}))
            return {
                name: sample(properties.get(name, {}), depth + 1) for name in schema.get("required", list(properties))
            }
        case "array":
            return [sample(schema.get("items", {}), depth + 1)] * int(schema.get("minItems", 0))
        case "string":
            return "test".ljust(int(schema.get("minLength", 0)), ".")
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case _:
            return None


@runtime_checkable
class _ExecutesPrompts(Protocol):
    async def execute_prompt(self, prompt: str, **options: Any) -> Any: ...


@frozen
class HandlerPrompts:
    """Uses the ``execute_prompt`` of a handler as a turn loop.

    It is given the prompt's text (texts and media, where there are both) and ``system=``, and if it is ``whole`` every
    option of :class:`~agentflow.core.ports.ports.Prompt` that differs from its default.
    """

    handler: _ExecutesPrompts
    whole: bool = False

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Send the prompt through the handler. Raises the error of a FAILED answer."""
        texts = [part.text for part in prompt.parts if isinstance(part, TextPart)]
        said: Any = "".join(texts)
        options: dict[str, Any] = {"system": prompt.system}
        if self.whole:
            options = _changed(prompt)
            if len(texts) < len(prompt.parts):
                said = [part.text if isinstance(part, TextPart) else part for part in prompt.parts]
        with HostCode(call) as code:
            answer = TaskResult.of(await code.to_end(as_async(self.handler.execute_prompt)(said, **options)))
        warn_of_failure(answer, call.warn)
        if answer.failed:
            answer.value()
        response = ModelResponse((TextPart(answer.content),), "end", answer.usage, answer.notes.model or "")
        value, error = answer.parsed_content, answer.notes.parse_error
        if prompt.json_output and value is None and error is None:
            try:
                value = json.loads(answer.content)
            except (ValueError, RecursionError) as failure:
                error = str(failure)
        return PromptOutcome(
            response=response,
            turn=(Message("user", prompt.parts), response.message()),
            usage=answer.usage,
            cost_usd=answer.notes.get("cost_usd"),
            turns=answer.notes.get("turns") or 1,
            value=value,
            schema_errors=()
            if error is not None or not prompt.output_schema
            else tuple(check(value, prompt.output_schema)),
            parse_error=str(error) if error is not None else None,
            model=response.model,
        )


def _changed(prompt: Prompt) -> dict[str, Any]:
    """The options that distinguish a prompt from a plain one; the schema of its answer is part of its text."""
    values = {each.name: getattr(prompt, each.name) for each in fields(Prompt) if each.name != "parts"}
    changed = {name: value for name, value in values.items() if value != getattr(_PLAIN, name)}
    own = changed.pop("toolbox", None)
    if own is not None and len(own):
        changed["tools"] = [own.get(name, name) for name in prompt.tools or ()]
    return {**changed, "schema_text": prompt.schema_text} if prompt.output_schema or prompt.json_output else changed


_PLAIN = Prompt(parts=())


def prompts_of(handler: object) -> PromptRunner:
    """A handler as a PromptRunner. Raises ConfigurationError if it has neither of the two methods."""
    if callable(getattr(handler, "run_prompt", None)):
        return cast(PromptRunner, handler)
    loop = getattr(handler, "prompts", None)
    if callable(getattr(loop, "run_prompt", None)):
        return cast(PromptRunner, loop)
    if isinstance(handler, _ExecutesPrompts):
        return HandlerPrompts(handler)
    raise ConfigurationError(
        f"a {type(handler).__name__} is not a handler: it has neither run_prompt nor execute_prompt",
        code="tasks/no-handler",
        hint="pass a BaseHandler, or anything with async execute_prompt(text, system=...)",
    )
