"""Substitutes for the turn loop: one that always fails, the script of test mode, and a handler passed to a call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from agentflow.core.call import CallContext
from agentflow.core.errors import ConfigurationError
from agentflow.core.host_code import HostCode
from agentflow.core.messages import Message, ModelResponse, TextPart, Usage
from agentflow.core.ports import Prompt, PromptOutcome, PromptRunner
from agentflow.core.results import TaskResult, warn_of_reason
from agentflow.core.values import to_json
from agentflow.lib.json_schema import check

TEST_MODEL = "test-mode"


class NoPrompts:
    """The turn loop of a task system built without one: every prompt fails and says what to pass."""

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Raises ConfigurationError."""
        raise ConfigurationError(
            "this task system has nothing to run prompts with",
            code="tasks/no-handler",
            hint="build it through AgentFlow(model=...), pass executor=AtomicTaskExecutor(...), or a handler to the call",
        )


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
    """A small value that conforms to the common keywords of a JSON Schema; None for what it does not support."""
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


class HandlerPrompts:
    """Uses a handler with only ``execute_prompt(text, system=...) -> TaskResult`` as a turn loop."""

    def __init__(self, handler: _ExecutesPrompts) -> None:
        self._handler = handler

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Send the prompt's text through the handler. Raises the error of a FAILED answer."""
        text = "".join(part.text for part in prompt.parts if isinstance(part, TextPart))
        with HostCode(call):
            answer = TaskResult.of(await self._handler.execute_prompt(text, system=prompt.system))
        warn_of_reason(answer, call.warn)
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
            cost_usd=None,
            turns=1,
            value=value,
            schema_errors=()
            if error is not None or not prompt.output_schema
            else tuple(check(value, prompt.output_schema)),
            parse_error=str(error) if error is not None else None,
            model=response.model,
        )


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
        f"a {type(handler).__name__} is no handler: it has neither run_prompt nor execute_prompt",
        code="tasks/no-handler",
        hint="pass a BaseHandler, or anything with async execute_prompt(text, system=...)",
    )
