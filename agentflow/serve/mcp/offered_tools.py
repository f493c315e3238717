"""The tools offered to a key, and the results of their runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.json_parse import parsed
from agentflow.core.data.walk import in_slices
from agentflow.core.events.questions import Question
from agentflow.serve.answer import text_of
from agentflow.serve.error_responses import ProgramRefused, diagnosis_of
from agentflow.serve.exports import Offer
from agentflow.serve.json_body import json_bytes
from agentflow.serve.keys import Key
from agentflow.serve.run_api import asked_data, run_data
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun

RUN_PROGRAM = "run_program"
"""The tool that runs a program sent by the client."""
_MAX_NAME = 128
_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "value": {"description": "The value of the run."},
        "run_id": {"type": "string"},
        "usage": {"type": ["object", "null"], "description": "Tokens, and requests to models."},
        "cost_usd": {"type": ["number", "null"], "description": "null if a price is unknown."},
        "waiting": {
            "type": "array",
            "items": {"type": "object"},
            "description": "For a run that has not ended: its open questions and approvals, each with its key.",
        },
    },
    "required": ["value", "run_id", "usage", "cost_usd"],
}
_RUN_PROGRAM = Tool(
    name=RUN_PROGRAM,
    description="Run a program in the workflow language; the resource agentflow://language describes the language."
    " Errors are reported with their line.",
    input_schema={
        "type": "object",
        "properties": {
            "program": {"type": "string", "description": "The text of the program."},
            "bindings": {"type": "object", "description": "Its variables by name."},
        },
        "required": ["program"],
        "additionalProperties": False,
    },
    output_schema=_OUTPUT,
)


def offers_by_tool(service: ServedFlow, key: Key) -> dict[str, Offer]:
    """The exports that ``key`` may call by their tool names, which consist of letters, digits and ``_ . / -``."""
    named: dict[str, Offer] = {}
    for name, offer in service.offers.items():
        if not key.may_call(name):
            continue
        tool = fitting = re.sub(r"[^A-Za-z0-9_./-]", "_", name)[:_MAX_NAME] or "_"
        count = 1
        while tool in named or (tool == RUN_PROGRAM and service.takes_programs(key)):
            count += 1
            tool = f"{fitting[: _MAX_NAME - 6]}_{count}"
        named[tool] = offer
    return named


def tools_of(service: ServedFlow, key: Key) -> list[Tool]:
    """The tools that ``key`` may call."""
    tools = [
        Tool(
            name=tool,
            description=offer.description or f"Runs the workflow '{offer.name}'.",
            input_schema=offer.input_schema,
            output_schema=_OUTPUT,
        )
        for tool, offer in offers_by_tool(service, key).items()
    ]
    return [*tools, *([_RUN_PROGRAM] if service.takes_programs(key) else [])]


async def result_of(service: ServedFlow, run: ServedRun) -> CallToolResult:
    """The result of a run that has ended: text, and data with the run's id and its cost; or the error."""
    if run.failure is not None:
        return failed(service, run.failure, service.fault(run, run.failure))
    assert run.result is not None
    data = await run_data(service, run)
    wanted = {name: data[name] for name in ("value", "run_id", "usage", "cost_usd")}
    structured = await in_slices(parsed((await json_bytes(wanted)).decode()))
    text = service.redact(text_of(run.result.value))
    return CallToolResult(content=[TextContent(text=sendable(text))], structured_content=structured)


async def waiting_of(service: ServedFlow, run: ServedRun, questions: Mapping[str, Question]) -> CallToolResult:
    """The result for a run that waits for answers the client cannot give: it names them and how to answer."""
    data = await run_data(service, run)
    wanted = {name: data[name] for name in ("value", "run_id", "usage", "cost_usd")}
    wanted["waiting"] = asked_data(questions)
    asked = "\n".join([f"- {each.reason} {key}: {each.question}" for key, each in questions.items()])
    text = (
        f"The run {run.run_id} waits, and continues when it is answered:\n{asked}\n"
        f"POST /runs/{run.run_id}/answers/KEY answers it; the resource agentflow://runs/{run.run_id} shows how it continues."
    )
    structured = await in_slices(parsed((await json_bytes(wanted)).decode()))
    return CallToolResult(content=[TextContent(text=sendable(text))], structured_content=structured)


def failed(service: ServedFlow, error: BaseException, body: dict[str, Any]) -> CallToolResult:
    """The result for an error with its ``body``: message, position and hint, so that a model can correct its call."""
    if isinstance(error, ProgramRefused):
        wrong = [
            f"{each.code} ({diagnosis_of(each)}){f': {each.hint}' if each.hint else ''}" for each in error.diagnostics
        ]
        return refusal(service.redact("\n".join(wrong)))
    told = body["error"]
    span = error.span if isinstance(error, AgentflowError) else None
    where = f" (line {span.line}, column {span.column})" if span is not None else ""
    return refusal(service.redact(f"{told['code']}{where}: {told['message']}"))


def refusal(text: str) -> CallToolResult:
    """A result that reports a failed call with ``text``."""
    return CallToolResult(content=[TextContent(text=sendable(text))], is_error=True)


def sendable(text: str) -> str:
    """``text`` with an escape for each lone surrogate, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()
