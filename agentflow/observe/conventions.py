"""The editions of the GenAI conventions of OpenTelemetry that agentflow writes: one table of the names that differ.

Source: the semantic conventions for generative AI, since release 0.1.0 in a repository of their own
(github.com/open-telemetry/semantic-conventions-genai), with the stability *development*. Names that all editions share are
in :mod:`agentflow.observe.event_spans`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.lib.text.suggest import did_you_mean

CHOSEN = "AGENTFLOW_OTEL_EDITION"
"""The variable that chooses the edition where the program does not."""

SECONDS = tuple(0.01 * 2**power for power in range(14))
"""The buckets of the conventions for the durations of calls."""
_TOKENS = tuple(float(4**power) for power in range(14))
_TURNS = tuple(0.1 * 2**power for power in range(13))


@frozen
class Instrument:
    """A metric of the conventions: its name, unit and description; ``buckets`` makes it a histogram, none a counter."""

    name: str
    unit: str
    about: str
    buckets: tuple[float, ...] | None = None


@frozen
class TokenMeasure:
    """A count of a model call that an instrument measures: the ``count`` of its usage, and the attributes that it adds."""

    instrument: Instrument
    count: str
    attributes: Mapping[str, str]
    always: bool = True
    """Whether a call without usage counts as 0."""
    errors: bool = False
    """Whether the error of a call is an attribute."""


@frozen(kw_only=True)
class ConventionEdition:
    """An edition of the conventions: the names that it gives to values that other editions name otherwise.

    ``dated`` says when and where it was published. ``finish_reasons`` are its names of the reasons for which an answer ended,
    by ours; one that is missing is written as it is.
    """

    name: str
    dated: str
    schema_url: str
    workflow: str
    cache_writes: tuple[str, ...]
    finish_reasons: Mapping[str, str]
    model_duration: Instrument
    first_chunk: Instrument
    tokens: tuple[TokenMeasure, ...]
    durations: Mapping[str, Instrument]
    """The instrument for the duration of a step, by the type of the event that ends it."""

    @property
    def instruments(self) -> Mapping[str, Instrument]:
        """All instruments of the edition, by name."""
        each = [self.model_duration, self.first_chunk, *self.durations.values()]
        return {one.name: one for one in [*each, *(measure.instrument for measure in self.tokens)]}


_TOOL = Instrument("gen_ai.execute_tool.duration", "s", "Measures the duration of a tool execution.", SECONDS)
_AGENT = Instrument(
    "gen_ai.invoke_agent.duration", "s", "Measures the duration of an in-process agent invocation.", _TURNS
)
_USAGE = Instrument(
    "gen_ai.client.token.usage", "{token}", "Number of input and output tokens used by GenAI clients", _TOKENS
)


def _used(kind: str, count: str, about: str) -> TokenMeasure:
    instrument = Instrument(f"gen_ai.client.inference.usage.{kind}_tokens", "{token}", about)
    return TokenMeasure(instrument, count, {"gen_ai.token.modality": "unknown"})


def _per_call(kind: str, about: str) -> TokenMeasure:
    instrument = Instrument(f"gen_ai.client.inference.operation.{kind}_tokens", "{token}", about, _TOKENS)
    return TokenMeasure(instrument, f"{kind}_tokens", {}, errors=True)


_RELEASE = ConventionEdition(
    name="0.1.0",
    dated="the first release of the repository of the GenAI conventions, autumn 2026",
    schema_url="https://opentelemetry.io/schemas/gen-ai/0.1.0",
    workflow="gen_ai.agent.name",
    cache_writes=("gen_ai.usage.cache_write.input_tokens",),
    finish_reasons={
        "end": "stop",
        "stop_sequence": "stop",
        "tool_calls": "tool_call",
        "max_tokens": "length",
        "context_window": "length",
        "refusal": "content_filter",
    },
    model_duration=Instrument(
        "gen_ai.client.inference.duration", "s", "GenAI client inference operation duration.", SECONDS
    ),
    first_chunk=Instrument(
        "gen_ai.client.inference.time_to_first_chunk", "s", "Time to receive the first chunk", SECONDS
    ),
    tokens=(
        _used("input", "input_tokens", "The number of input (prompt) tokens used, including cached tokens."),
        _used("output", "output_tokens", "The number of output (completion) tokens used, including reasoning tokens."),
        _used(
            "cache_read.input",
            "cache_read_tokens",
            "The number of input tokens served from a provider-managed cache.",
        ),
        _used(
            "cache_write.input",
            "cache_write_tokens",
            "The number of input tokens written to a provider-managed cache.",
        ),
        _used(
            "reasoning.output",
            "reasoning_tokens",
            "The number of output tokens used for reasoning (e.g. chain-of-thought, extended thinking).",
        ),
        _per_call("input", "The number of input (prompt) tokens used per inference operation."),
        _per_call("output", "The number of output (completion) tokens used per inference operation."),
    ),
    durations={
        "tool_finished": _TOOL,
        "task_finished": _AGENT,
        "run_finished": _AGENT,
        "context_finished": Instrument("gen_ai.retrieval.duration", "s", "Duration of a retrieval.", SECONDS),
    },
)

_DRAFT = ConventionEdition(
    name="1.37.0",
    dated="core conventions 1.37.0 with the drafts that opentelemetry-util-genai 1.3b0 (October 2026) writes",
    schema_url="https://opentelemetry.io/schemas/1.37.0",
    workflow="gen_ai.workflow.name",
    # the older name of cache writes too, which released viewers read
    cache_writes=("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
    finish_reasons={},
    model_duration=Instrument("gen_ai.client.operation.duration", "s", "Duration of GenAI client operation", SECONDS),
    first_chunk=Instrument(
        "gen_ai.client.operation.time_to_first_chunk", "s", "Time to receive the first chunk", SECONDS
    ),
    tokens=tuple(
        TokenMeasure(_USAGE, f"{kind}_tokens", {"gen_ai.token.type": kind}, always=False)
        for kind in ("input", "output")
    ),
    durations={
        "tool_finished": _TOOL,
        "task_finished": _AGENT,
        "run_finished": Instrument(
            "gen_ai.invoke_workflow.duration",
            "s",
            "Measures the duration of a workflow execution.",
            (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0),
        ),
    },
)

EDITIONS: Mapping[str, ConventionEdition] = MappingProxyType({each.name: each for each in (_RELEASE, _DRAFT)})
"""The stored editions by name, the newest first."""
NEWEST = next(iter(EDITIONS))


def edition_of(name: str | None) -> ConventionEdition:
    """The edition ``name``; None is the one of the variable AGENTFLOW_OTEL_EDITION, else the newest.

    Raises ConfigurationError (``config/otel-edition``) for a name that is not stored; the message lists those that are.
    """
    chosen = (os.environ.get(CHOSEN) or NEWEST) if name is None else name
    edition = EDITIONS.get(chosen)
    if edition is None:
        where = f"the variable {CHOSEN}" if name is None else "edition="
        raise ConfigurationError(
            f"{where}: no edition {chosen!r} of the GenAI conventions is stored; stored are {', '.join(EDITIONS)}",
            code="config/otel-edition",
            hint=did_you_mean(chosen, EDITIONS) or f"leave it out for {NEWEST}, the newest",
        )
    return edition
