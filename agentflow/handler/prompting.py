"""Between the handler's plain arguments and the turn loop's types: prompts in, results out."""

from __future__ import annotations

from typing import Any

from agentflow.core.messages import TextPart
from agentflow.core.ports import Prompt, PromptOutcome
from agentflow.core.results import TaskResult
from agentflow.core.values import to_json
from agentflow.lib.json_schema import check

JSON_ONLY = "Answer with one JSON value and nothing else."


def make_prompt(prompt: str | Prompt, options: dict[str, Any]) -> Prompt:
    """A Prompt from text and options named like its fields; a Prompt is taken as it is, options replace its fields."""
    import dataclasses

    if isinstance(prompt, Prompt):
        return dataclasses.replace(prompt, **options) if options else prompt
    made = Prompt(parts=(TextPart(prompt),), **options)
    if not (made.json_output or made.output_schema is not None or made.output_model is not None):
        return made
    asked = JSON_ONLY
    if made.output_schema is not None:
        check(None, made.output_schema)  # a schema that is wrong is refused before a model is asked
        asked = f"{JSON_ONLY} It must meet this JSON Schema:\n{to_json(made.output_schema)}"
    elif made.output_model is not None:
        from pydantic import TypeAdapter

        asked = (
            f"{JSON_ONLY} It must meet this JSON Schema:\n{to_json(TypeAdapter[Any](made.output_model).json_schema())}"
        )
    return dataclasses.replace(made, parts=(*made.parts, TextPart(f"\n\n{asked}")))


def to_result(outcome: PromptOutcome, prompt: Prompt) -> TaskResult:
    """The outcome as the specification's TaskResult.

    JSON that did not come after the repair round is COMPLETE with ``notes.parseError``; valid JSON that misses the
    schema is FAILED (output_format_failure).
    """
    notes: dict[str, Any] = {"model": outcome.model, "turns": outcome.turns}
    if outcome.cost_usd is not None:
        notes["cost_usd"] = outcome.cost_usd
    text = outcome.response.text
    if outcome.schema_errors:
        result = TaskResult.failure(
            "output_format_failure",
            f"the answer does not meet the schema: {'; '.join(outcome.schema_errors)}",
            details={"violations": list(outcome.schema_errors), "content": text[:2_000]},
            **notes,
        )
    elif outcome.parse_error is not None:
        result = TaskResult.complete(text, None, **notes, parseError=outcome.parse_error)
    else:
        result = TaskResult.complete(text, outcome.value, **notes)
    return result.with_usage(outcome.usage)
