"""The answer of a prompt: read as its form asks, given by the host in its place, and as the conversation keeps it."""

from __future__ import annotations

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import TaskError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelResponse
from agentflow.core.data.values import to_json
from agentflow.handler.model_turn import OutputSchema


@frozen
class ParsedAnswer:
    """A parsed answer: ``fault`` describes the invalid parts to the model, ``refused`` why the check refused it, ``text`` replaces
    the answer's text."""

    value: object = None
    parse_error: str | None = None
    schema_errors: tuple[str, ...] = ()
    fault: str | None = None
    text: str | None = None
    refused: str | None = None


AS_TEXT = ParsedAnswer()
"""The result of parsing an answer that may be any text."""


async def read_answer(response: ModelResponse, shape: OutputSchema, call: CallContext) -> ParsedAnswer:
    """The answer of a model read as the ``shape`` that it must have. One of another form is published as a Warning."""
    value, parse_error, schema_errors = await shape.read_aside(response.text)
    if parse_error is not None:
        fault = f"Your answer is not valid JSON: {parse_error}\nAnswer again with the corrected JSON only."
    elif schema_errors:
        listed = "\n".join(f"- {error}" for error in schema_errors)
        fault = f"Your JSON does not meet the schema:\n{listed}\nAnswer again with the corrected JSON only."
    else:
        fault = None
    if fault is not None:
        call.warn("handler/bad-output", "the answer is not the JSON asked for", problem=clip(fault, 500))
    text = response.text if parse_error is not None else shape.text_of(response.text)
    return ParsedAnswer(value, parse_error, schema_errors, fault, None if text == response.text else text)


def answer_of_host(value: object, what: str, shape: OutputSchema | None) -> ParsedAnswer:
    """A value that code of the host gives in place of the model's answer. Raises TaskError (``tasks/value``) if it is not of
    the form that the answer must have."""
    if shape is None:
        return ParsedAnswer(text=value if isinstance(value, str) else to_json(value))
    try:
        read, text, problems = shape.of_value(value)
    except ValueError as error:
        read, text, problems = value, "", (str(error),)
    if not problems:
        return ParsedAnswer(read, text=text)
    raise TaskError(
        f"{what} {clip(repr(value), 200)}, which does not match the task's return type: {'; '.join(problems[:5])}",
        reason="output_format_failure",
        code="tasks/value",
        hint="give a value of the type that the task returns",
    )
