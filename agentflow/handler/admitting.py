"""Decides whether a tool call may start, and its arguments: a chain of steps, before anything of the call is recorded or
run.

The order within a call is: its arguments fit the tool's schema; the policy allows them; a person approves them, if needed;
then the registry records its start, looks for a result to reuse, and runs the function with its time-out and retries. So
approval is never asked for a call that could not run, and time-outs stop while a person thinks. Arguments that the approver
changed go through schema and policy again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from typing import Any, cast

from agentflow.core.call.approval import ApprovalRequest, Denied, refusal
from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.data.errors import RunStopped, TaskError, clip
from agentflow.core.data.frozen import slotted
from agentflow.core.data.labels import NO_SOURCES
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import to_json
from agentflow.core.ports.ports import Tool
from agentflow.lib.schema.json_schema import Schema, is_large
from agentflow.lib.schema.partial_json import data_of
from agentflow.lib.signature import ToolInputError
from agentflow.lib.text.safe_text import escape

_log = logging.getLogger(__name__)


@slotted
class ToolAdmission:
    """A call on its way to its start.

    ``tool`` is the tool to run, or the FAILED result in its place, which ends the chain; ``schema`` the schema of its
    arguments, None if the tool checks them itself. ``edited``: the approver has replaced the ``arguments``.
    """

    tool: Tool | TaskResult
    schema: Schema | None
    arguments: dict[str, Any]
    call: CallContext
    edited: bool = False


async def admitted(
    tool: Tool, schema: Schema | None, arguments: dict[str, Any], call: CallContext
) -> tuple[Tool | TaskResult, dict[str, Any], bool]:
    """The tool, ready to start, its arguments, and whether its approver changed them; a FAILED result in its place if it may not run."""
    admission = ToolAdmission(tool, schema, arguments, call)
    for step in _CHAIN:
        if isinstance(admission.tool, Tool):
            await step(admission, admission.tool)
    return admission.tool, admission.arguments, admission.edited


async def fitted(tool: Tool, schema: Schema | None, arguments: Any) -> tuple[Tool | TaskResult, Any]:
    """The tool and its arguments; the FAILED result in place of the tool if it cannot take them.

    A list or object that a model wrote as JSON text is read where the schema wants no text.
    """
    answer = await _fits(tool, schema, arguments)
    if schema is None or isinstance(answer, Tool):
        return answer, arguments
    read = _with_data(schema, arguments)
    if read is not arguments and isinstance(await _fits(tool, schema, read), Tool):
        return tool, read
    return answer, arguments


async def _fits(tool: Tool, schema: Schema | None, arguments: object) -> Tool | TaskResult:
    """The tool, or the FAILED result if it cannot take these arguments."""
    if not isinstance(arguments, dict):
        return TaskResult.from_error(
            ToolInputError(f"tool '{tool.name}' takes an object of named arguments, not {type(arguments).__name__}")
        )
    problems: list[str] = []
    if schema is not None:
        value = cast(object, arguments)
        problems = await asyncio.to_thread(schema.check, value) if is_large(value) else schema.check(value)
    if not problems:
        return tool
    names = list(tool.spec.input_schema.get("properties") or ())
    return TaskResult.from_error(
        ToolInputError(
            f"tool '{tool.name}' cannot take these arguments: {'; '.join(problems)}",
            hint=f"its parameters are {', '.join(names)}" if names else "it takes no arguments",
            details={"problems": problems, "parameters": names},
        )
    )


def _with_data(schema: Schema, arguments: Any) -> Any:
    """``arguments`` with the data in place of the JSON text of lists and objects that ``schema`` refuses."""
    if not isinstance(arguments, dict) or is_large(cast(object, arguments)):
        return cast(Any, arguments)
    changed = cast("dict[str, Any]", arguments)
    for name, value in changed.items():
        data = data_of(value)
        if data is not None and len(schema.check(other := {**changed, name: data})) < len(schema.check(changed)):
            changed = other
    return changed


async def _fit(admission: ToolAdmission, tool: Tool) -> None:
    """Check the arguments against the schema, or as the tool itself will."""
    if tool.check is None or not isinstance(admission.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        admission.tool, admission.arguments = await fitted(tool, admission.schema, admission.arguments)
        return
    try:
        await tool.check(admission.arguments, admission.call)
    except ToolInputError as error:
        admission.tool = TaskResult.from_error(error)


async def _approve(admission: ToolAdmission, tool: Tool) -> None:
    """Have the call approved, if it needs that. An approver's other arguments are checked again, and take the place of the first."""
    call = admission.call
    if not tool.approval or call.host_authority or not await _needs_approval(tool, admission.arguments, call):
        return
    decision = await call.run.approve(_request(tool, admission.arguments), call)
    if isinstance(decision, Denied):
        admission.tool = _refused(tool, decision)
    elif decision.arguments is not None and dict(decision.arguments) != admission.arguments:
        admission.arguments, admission.edited = dict(decision.arguments), True
        await _fit(admission, tool)
        if admission.tool is tool:
            admission.tool = judged(tool, admission.arguments, call) or tool


async def _prepare(admission: ToolAdmission, tool: Tool) -> None:
    """Let a tool that handles approval itself ask for it; the function it returns is run in its place."""
    if tool.prepare is None:
        return
    try:
        run = await tool.prepare(admission.arguments, admission.call)
    except (TaskError, RunStopped):
        raise
    except Exception as error:  # noqa: BLE001 - the tool may be any: its exception is a failure
        admission.tool = TaskResult.from_error(error, reason="tool_execution_error")
        return

    async def start(arguments: dict[str, Any], inner: CallContext) -> Any:
        return await run(inner)

    admission.tool = replace(tool, call=start)


_CHAIN: tuple[Callable[[ToolAdmission, Tool], Awaitable[None]], ...] = (_fit, _approve, _prepare)


async def _needs_approval(tool: Tool, arguments: dict[str, Any], call: CallContext) -> bool:
    """Whether a call needs approval: yes, unless the tool's own function returns exactly ``False``.

    A durable run keeps the function's first result.
    """
    if isinstance(tool.approval, bool):
        return tool.approval
    inner = call.at(call.marked_path("needs-approval", tool.name))
    try:
        with HostCode(inner) as code:
            answer: object = tool.approval(arguments, inner)
            said = await code.to_end(answer) if isawaitable(answer) else answer
    except (TaskError, RunStopped):
        raise
    except Exception as error:  # noqa: BLE001 - code of the host: where it fails, the approver is asked
        said = True
        _warn_of_predicate(tool, f"raised {type(error).__name__}: {clip(str(error), 300)}", call)
    if said is not True and said is not False:
        _warn_of_predicate(tool, f"gave a value of type {type(said).__name__}, neither True nor False", call)
    journal = call.run.journal
    needed = said is not False
    return needed if journal is None else journal.pin("approval", inner.path, "yes" if needed else "no", inner) != "no"


def _warn_of_predicate(tool: Tool, what: str, call: CallContext) -> None:
    call.warn("tool/approval-function", f"the approval function of tool '{tool.name}' {what}: an approval is asked for")


def _request(tool: Tool, arguments: dict[str, Any]) -> ApprovalRequest:
    text = f"{tool.name} {to_json(arguments)}"
    # a tool may change at its server between two questions; the answer is for its earlier form
    covered = text if not tool.origin else f"{text}\n{tool.origin}\n{to_json(tool.spec.input_schema)}"
    digest = hashlib.blake2b(covered.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    shown = escape(text) + (f"\n  from: {escape(clip(tool.origin, 500))}" if tool.origin else "")
    reason = "the tool asks for approval"
    return ApprovalRequest(tool.name, shown, digest, reason, dict(arguments), identity=tool.identity, editable=True)


def _refused(tool: Tool, denied: Denied) -> TaskResult:
    return TaskResult.failure(
        "tool_execution_error",
        refusal(f"the call of the tool '{tool.name}'", denied),
        details={"cause": "not_approved", "code": "tool/not-approved", "why": denied.why},
    )


def judged(tool: Tool, arguments: dict[str, Any], call: CallContext) -> TaskResult | None:
    """The FAILED result if the policy does not allow changed ``arguments``. A changed argument may contain its old value, so it
    keeps its sources."""
    reading = call.reading
    if reading is None:
        return None
    labels = {name: reading.labels.get(name, NO_SOURCES) for name in arguments}
    error = reading.guard.judge(tool.name, labels, reading.around, call.span, call, tool=True, arguments=arguments)
    return None if error is None else TaskResult.from_error(error, reason="tool_execution_error")
