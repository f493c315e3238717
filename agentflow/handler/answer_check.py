"""Checks that a model's answer is usable: neither cut off nor refused, with tool calls that can be answered."""

from __future__ import annotations

from dataclasses import replace

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ResourceExhausted, clip
from agentflow.core.data.messages import WRITTEN, ModelRequest, ModelResponse, ToolCallPart
from agentflow.core.data.provider_errors import ProtocolError, Refused
from agentflow.core.ports.ports import ProviderAdapter


def checked_calls(
    response: ModelResponse, request: ModelRequest, adapter: ProviderAdapter, longest: int
) -> tuple[ToolCallPart, ...]:
    """The tool calls of the answer to ``request``, before any tool has run.

    Raises ResourceExhausted (``output``, ``context``) for an answer that was cut off or has more than ``longest``
    characters, Refused, and ProtocolError for tool calls that cannot be answered: none where some were announced, a
    missing or duplicate id, arguments that are not an object, any where no tool was offered.
    """
    calls = response.tool_calls
    if calls and not (request.tools or request.provider_tools):
        raise _unanswerable(
            response, f"the model called '{clip(calls[0].name, 80)}', and no tool is offered", "no tool was run"
        )
    if response.stop_reason not in ("end", "pause", "stop_sequence"):
        _check_stop(response, request, adapter, calls)
    seen: set[str] = set()
    for part in calls:
        problem = None
        if not part.id:
            problem = f"the call of '{clip(part.name, 80)}' has no id"
        elif part.id in seen:
            problem = f"two tool calls have the id '{clip(part.id, 80)}'"
        elif not isinstance(part.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - adapters are foreign code
            problem = f"the arguments of '{clip(part.name, 80)}' are no object"
        if problem:
            raise _unanswerable(
                response,
                f"the model's tool calls cannot be answered: {problem}",
                "the server is at fault; no tool was run",
            )
        seen.add(part.id)
    size = 0
    for part in response.parts:
        if isinstance(part, WRITTEN):
            size += len(part.text)
    if size > longest:
        raise ResourceExhausted(
            f"the answer has {size:,} characters, at most {longest:,} fit into a string",
            resource="output",
            used=size,
            limit=longest,
            hint="ask for a shorter answer, or raise limits.string",
        )
    return calls


def without_calls(response: ModelResponse, call: CallContext, *, checked: bool) -> ModelResponse:
    """An answer to a prompt that offers no tools, and in which tools are called: its text alone, with a Warning.

    One without text is left as it is, unless it is ``checked``, and so sent back to be repaired.
    """
    calls = response.tool_calls
    if not checked and not response.text.strip():
        return response
    called = clip(calls[0].name, 80)
    call.warn(
        "handler/no-tools",
        f"the model called '{called}', and no tool is offered: its text alone is the answer",
        model=response.model,
    )
    parts = tuple([part for part in response.parts if not isinstance(part, ToolCallPart)])
    stop = "end" if response.stop_reason == "tool_calls" else response.stop_reason
    return replace(response, parts=parts, stop_reason=stop)


def _check_stop(
    response: ModelResponse, request: ModelRequest, adapter: ProviderAdapter, calls: tuple[ToolCallPart, ...]
) -> None:
    stop = response.stop_reason
    if stop == "max_tokens":
        used = response.usage.output_tokens
        error = ResourceExhausted(
            "the answer was cut off: the model reached its output limit",
            resource="output",
            used=used,
            limit=request.max_output_tokens or used,
            hint="raise max_output_tokens, or ask for a shorter answer",
        )
        error.partial, error.model = response.text, response.model
        error.details["partial"] = clip(response.text)
        error.details["request_id"] = response.request_id
        raise error
    if stop == "context_window":
        window = adapter.profile(request.model).context_window
        raise ResourceExhausted(
            "the answer was cut off: the model's context window is full",
            resource="context",
            used=response.usage.total_tokens,
            limit=window or response.usage.total_tokens,
            hint="give it less: fewer files, fewer history turns, or split the task",
        )
    if stop == "refusal":
        raise Refused(
            f"the model refused to answer{': ' + clip(response.text, 500) if response.text else ''}",
            request_id=response.request_id,
            partial=response.text,
            provider=response.provider,
            model=response.model,
        )
    if stop == "tool_calls" and not calls:
        raise _unanswerable(response, "the model stopped to call tools, but its answer has no tool call")


def _unanswerable(response: ModelResponse, message: str, hint: str | None = None) -> ProtocolError:
    return ProtocolError(
        message,
        request_id=response.request_id,
        partial=response.text,
        provider=response.provider,
        model=response.model,
        hint=hint,
    )
