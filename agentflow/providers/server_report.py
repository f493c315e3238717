"""Reports on one of your own model servers, for ``agentflow doctor``: its own description, and a test of its schemas."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers.dialects.wire import record, records, string
from agentflow.providers.known_servers import MODELS, SLOTS, slots_of

_PROBE_S = 60.0
"""Seconds that the answer to one short prompt may take; a server may have to load its model meanwhile."""
_ADMITTED = {"colour": "green"}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
_MOST_SHOWN = 20


async def described(look: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    """A server's report about itself, read by ``look``: whether it is ``reachable``, its ``models`` and ``slots``, and, for
    llama.cpp, the ``context`` of a slot in tokens and whether its prompt template supports ``tools``. Missing facts are
    left out."""
    bodies = {path: await look(path) for path in (MODELS, *SLOTS)}
    models = [string(record(each).get("id")) for each in records(record(bodies[MODELS]).get("data"))]
    props = record(bodies["/props"])
    context = record(props.get("default_generation_settings")).get("n_ctx")
    template = props.get("chat_template")
    said: dict[str, Any] = {
        "reachable": any([body is not None for body in bodies.values()]),
        "models": models[:_MOST_SHOWN],
        "slots": next((slots for path, body in bodies.items() if (slots := slots_of(path, body))), None),
        "context": context if type(context) is int else None,
        "tools": "tools" in template if isinstance(template, str) else None,
    }
    return {name: value for name, value in said.items() if value not in (None, [])}


async def enforces_schema(adapter: ProviderAdapter, model: str) -> bool:
    """Whether a server keeps its model to an output schema: it is asked for one colour under a schema that admits another alone.

    Costs one short answer. Raises ProviderError if there is none.
    """
    request = ModelRequest(
        (user("Answer with the one word red, and with nothing else."),),
        model=model,
        output_schema=_SCHEMA,
        max_output_tokens=64,
        timeout_s=_PROBE_S,
    )
    text = ""
    async with aclosing(adapter.stream(request)) as deltas:
        async for delta in deltas:
            if delta.response is not None:
                text = delta.response.text
    try:
        return json.loads(text) == _ADMITTED
    except ValueError:
        return False
