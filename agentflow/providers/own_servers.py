"""Your own server (llama.cpp, Ollama, vLLM on this machine or network) differs from a vendor's: it answers few calls at
once, and slowly.

Calls beyond what it answers at once wait here, in order of priority, where their clocks stand still. Its first byte may
take as long as a prompt takes to read on a processor, and a call that was not answered in time is not sent again: the
server may still be working on it, and a second one would take another of its few slots.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers.clocks import Clocks
from agentflow.providers.dialects.wire import record, records, string

OWN_GATE = 4
"""Calls at once to a server of unknown capacity."""
OWN_LIMIT = 2_048
"""Tokens of an answer without a stated maximum: such servers have no default, and a small model may never end."""
OWN_CLOCKS = Clocks(first_byte_s=600.0, wall_s=1_800.0)
LOOK_CLOCKS = Clocks(connect_s=2.0, first_byte_s=2.0, plain_first_byte_s=2.0, idle_s=2.0, wall_s=5.0)
"""The clocks of a question about the server itself, which an idle server answers at once."""
SLOTS = MappingProxyType({"/props": "total_slots", "/info": "max_concurrent_requests"})
"""Where servers say how many calls they answer at once: llama.cpp (github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md,
2026-11) and TGI (huggingface.github.io/text-generation-inference, 2026-11). Neither is below ``/v1``."""
MODELS = "/v1/models"
_BATCHING = MappingProxyType({"vllm": 256, "sglang": 256})
"""By ``owned_by`` of a model: servers that put calls into batches, with the usual size of one (``--max-num-seqs`` of vLLM)."""
_PROBE_S = 60.0
"""Seconds that the answer to one short prompt may take, in which a server may have to load its model."""
_ADMITTED = {"colour": "green"}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
_MOST_SLOTS = 4_096
_MOST_SHOWN = 20


def slots_of(path: str, body: Any) -> int:
    """The number of calls at once that a server reports at ``path``; 0 if it reports no valid number."""
    if path == MODELS:
        owners = [record(model).get("owned_by") for model in records(record(body).get("data"))]
        return max([_BATCHING.get(owner, 0) for owner in owners if isinstance(owner, str)], default=0)
    said = record(body).get(SLOTS[path])
    return said if type(said) is int and 0 < said <= _MOST_SLOTS else 0


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


class Observed:
    """Observations of the calls to one of your own servers: how many answers arrived concurrently, and how often none came
    in time."""

    __slots__ = ("answering", "asked", "timed_out", "widest")

    def __init__(self) -> None:
        self.answering: set[object] = set()
        self.widest = self.timed_out = 0
        self.asked = False

    def begin(self, call: object) -> None:
        """The answer to ``call`` has begun."""
        self.answering.add(call)
        self.widest = max(self.widest, len(self.answering))

    def silence(self, first_byte_s: float | None, gate: int) -> str:
        """The hint for a call whose first byte did not arrive in time."""
        self.timed_out += 1
        if self.timed_out > 1 and 0 < self.widest < gate:
            return (
                f"the server answers {self.widest} at a time, and {gate} calls were sent to it: write traits={{'slots': {self.widest}}} or "
                f"concurrency={self.widest}, so that the others wait here"
            )
        return (
            f"its first byte did not come within {first_byte_s:g} s, and the call is not sent again while the server may be working on it: "
            "raise clocks={'first_byte_s': ...}, shorten the prompt, or send fewer calls at once (concurrency=1)"
        )
