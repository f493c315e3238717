"""Tools that someone else carries out: those of the host, and those of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.values import to_json
from agentflow.core.events.questions import ExternalCall
from agentflow.core.ports.ports import Prompt, Tool, ToolPort
from agentflow.core.ports.toolbox import NO_TOOLBOX, Toolbox
from agentflow.handler.tools import parameters_schema
from agentflow.lib.schema.json_schema import Schema


def external(
    name: str,
    parameters: Mapping[str, Any],
    *,
    description: str = "",
    returns: Mapping[str, Any] | None = None,
) -> Tool:
    """Build a tool that someone else carries out: a person, a front end, another service, later and elsewhere.

    ``parameters`` are its arguments, ``{name: type}`` with simple type names or JSON Schemas, or the JSON Schema of an object;
    ``returns`` is the JSON Schema of the result (None: any data). A call is a question of the run
    (:class:`~agentflow.core.events.questions.Question`), with name, arguments and call id in its ``external``;
    ``flow.send(run_id, key, result)`` gives the result, or ``TaskResult.failure(...)`` where the call failed. A durable run waits
    for it outside of memory. Raises ConfigurationError (``tool/signature``).
    """
    if not isinstance(parameters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"external tool '{clip(name, 120)}': its parameters are {clip(repr(parameters), 120)}, which say no types",
            code="tool/signature",
            hint="write external('choose_seat', {'rows': 'integer[]'})",
        )
    form = dict(parameters) if parameters.get("type") == "object" else parameters_schema(parameters)

    async def ask(arguments: dict[str, Any], call: CallContext) -> Any:
        asking = call.for_host().start(call.span, "External", name, arguments)
        outside = ExternalCall(name, arguments, call.call_id)
        return await call.run.ask(f"{name} {to_json(arguments)}", returns, asking, outside)

    return Tool(spec=ToolSpec(name, description, form), call=ask, returns=returns, external=True)


def with_external(prompt: Prompt, call: CallContext, tools: ToolPort) -> Prompt:
    """``prompt`` with the tools of its conversation, after its own; the host's one of the same name comes first."""
    own = cast("Toolbox | None", prompt.toolbox) or NO_TOOLBOX
    named = {*(prompt.tools or ()), *own}
    if prompt.tools is None:
        named.update([spec.name for spec in tools.ordinary(call)])
    taken = [spec.name for spec in call.session.tools if spec.name in named]
    if taken:
        call.warn(
            "tool/shadowed",
            f"the client offers tools of names that the host has: {clip(', '.join(taken), 300)}; those of the host are called",
        )
    others = [
        external(spec.name, spec.input_schema, description=spec.description)
        for spec in call.session.tools
        if spec.name not in named
    ]
    names = None if prompt.tools is None else (*prompt.tools, *[tool.name for tool in others])
    return replace(
        prompt,
        toolbox=own.with_others(Toolbox([(tool, Schema(tool.spec.input_schema)) for tool in others])),
        tools=names,
    )
