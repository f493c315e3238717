"""In the edition that OpenTelemetry's own library for generative AI writes, names, kinds and types are those of the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.types import InputMessage, OutputMessage, TextPart

from agentflow import AgentFlow
from agentflow.core.data.errors import AgentflowError
from agentflow.observe.conventions import EDITIONS
from tests.observe.test_otel import Telemetry
from tests.support.model_server import ModelServer
from tests.support.model_server_wire import Reply

EDITION = EDITIONS["1.37.0"]
PREFIXES = ("gen_ai.", "server.", "error.")
OLDER = "gen_ai.usage.cache_creation.input_tokens"
"""What cache writes were called before; released viewers read it."""
PROGRAM = """
(defatom capital (params (country)) (instructions "The capital of {{country}}?") (system "Be short."))
(value-of (capital (country "France")))
(shout (text "hello"))
"""


class Oracle:
    """What the library writes for a workflow with an agent, a model call and a tool, all it can tell of them given."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.handler = TelemetryHandler(tracer_provider=provider, meter_provider=MeterProvider([self.reader]))

    def write(self, server: str, port: int) -> None:
        handler = self.handler
        with handler.workflow("flow", conversation_id="t-1") as workflow:
            workflow.output_messages = []
            with handler.invoke_local_agent(agent_name="capital") as agent:
                agent.input_tokens = 1
                agent.output_tokens = 2
                with handler.inference(
                    "anthropic", request_model="claude-test", server_address=server, server_port=port
                ) as call:
                    call.input_messages = [InputMessage("user", [TextPart("The capital of France?")])]
                    call.output_messages = [OutputMessage("assistant", [TextPart("Paris.")], "stop")]
                    call.system_instruction = [TextPart("Be short.")]
                    call.max_tokens = 10
                    call.request_stream = False
                    call.output_type = "text"
                    call.response_model_name = "claude-test"
                    call.response_id = "r"
                    call.finish_reasons = ["stop"]
                    call.input_tokens = 1
                    call.output_tokens = 2
                    call.cache_read_input_tokens = 3
                    call.cache_write_input_tokens = 4
                    call.reasoning_output_tokens = 5
            with handler.tool("shout", tool_type="function") as tool:
                tool.tool_call_id = "c-1"
                tool.arguments = {"text": "hello"}
                tool.tool_result = "HELLO"
        with pytest.raises(RuntimeError), handler.tool("broken", tool_type="function"):
            raise RuntimeError("broken")


async def shout(text: str) -> str:
    """Shout."""
    return text.upper()


def by_operation(spans: tuple[ReadableSpan, ...] | list[ReadableSpan]) -> dict[str, ReadableSpan]:
    """The first span of each operation, but for those that failed."""
    told: dict[str, ReadableSpan] = {}
    for span in spans:
        attributes = dict(span.attributes or {})
        if "error.type" not in attributes and "gen_ai.operation.name" in attributes:
            told.setdefault(str(attributes["gen_ai.operation.name"]), span)
    return told


def without_names(content: Any) -> Any:
    """Messages in JSON; the library gives each a name, which is null."""
    messages = json.loads(str(content))
    assert all(each.pop("name", None) is None for each in messages)
    return messages


async def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Telemetry, Oracle, str]:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    telemetry, oracle = Telemetry(content=True, edition=EDITION.name), Oracle()
    async with ModelServer(lambda request: Reply(text="Paris.", usage={"cache_read": 8, "cache_write": 4})) as server:
        options: dict[str, Any] = {"model": "anthropic:claude-test", "base_url": server.url, "api_key": "k"}
        async with AgentFlow(**options, root=tmp_path, tools=[shout]) as flow:
            flow.subscribe(telemetry.observer)
            await flow.run(PROGRAM, labels={"thread": "t-1"})
            with pytest.raises(AgentflowError):
                await flow.run("(car 1)")
    host, _, port = server.url.partition("//")[2].partition("/")[0].rpartition(":")
    oracle.write(host, int(port))
    return telemetry, oracle, host


async def test_spans_are_named_and_typed_as_the_conventions_library_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each operation name, kind and schema agree; each attribute of the conventions is one that the library writes, of
    its type. Sums over a workflow or an agent are named as the counts of a call.
    """
    telemetry, oracle, host = await traced(tmp_path, monkeypatch)
    ours, theirs = by_operation(telemetry.spans), by_operation(oracle.exporter.get_finished_spans())
    usage = {name for name in theirs["chat"].attributes or {} if name.startswith("gen_ai.usage")}
    assert ours.keys() == theirs.keys() == {"invoke_workflow", "invoke_agent", "chat", "execute_tool"}
    for operation, span in ours.items():
        other = theirs[operation]
        assert span.kind is other.kind
        assert span.name.partition(" ")[0] == other.name.partition(" ")[0] == operation
        scopes = span.instrumentation_scope, other.instrumentation_scope
        assert [scope.schema_url for scope in scopes if scope] == [EDITION.schema_url] * 2
        written = {name: value for name, value in (other.attributes or {}).items()}
        told = {name: value for name, value in (span.attributes or {}).items() if name.startswith(PREFIXES)}
        unknown = told.keys() - written.keys() - {OLDER} - (usage if operation.startswith("invoke") else set())
        assert not unknown, f"{operation}: {unknown}"
        assert {name: type(told[name]) for name in told.keys() & written.keys()} == {
            name: type(written[name]) for name in told.keys() & written.keys()
        }
    assert ours["execute_tool"].name == theirs["execute_tool"].name
    chat, their_chat = dict(ours["chat"].attributes or {}), dict(theirs["chat"].attributes or {})
    assert chat["server.address"] == host and chat["server.port"] == their_chat["server.port"]
    assert chat["gen_ai.provider.name"] == "anthropic" and ours["chat"].name == theirs["chat"].name
    for name in ("gen_ai.input.messages", "gen_ai.system_instructions"):
        assert without_names(chat[name]) == without_names(their_chat[name])


async def test_metrics_are_those_of_the_conventions_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each metric has the name, unit, description and bounds that the library gives it, and measured by no more attributes."""
    telemetry, oracle, _ = await traced(tmp_path, monkeypatch)
    data = oracle.reader.get_metrics_data()
    assert data is not None
    theirs = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    ours = telemetry.metrics()
    assert ours.keys() <= theirs.keys() and len(ours) >= 5
    for name, metric in ours.items():
        other = theirs[name]
        assert (metric.unit, metric.description) == (other.unit, other.description)
        point, their_point = metric.data.data_points[0], other.data.data_points[0]  # type: ignore[union-attr]
        assert list(point.explicit_bounds) == pytest.approx(list(their_point.explicit_bounds))  # type: ignore[union-attr]
        if name.startswith("gen_ai.client"):
            assert point.attributes.keys() <= {*their_point.attributes, "gen_ai.response.model"}, name
