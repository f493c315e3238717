"""Traces and metrics of runs, as OpenTelemetry's own SDK records them in memory."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from agentflow import AgentFlow, CallContext, OpenTelemetry, Price, ScriptedProvider, SubtaskRequest
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.messages import ModelRequest, ToolSpec
from agentflow.core.data.provider_errors import Overloaded
from agentflow.core.ports.ports import Tool
from agentflow.observe.conventions import EDITIONS, NEWEST
from agentflow.observe.event_spans import MAX_CONTENT, provider_attributes


class Open(SpanProcessor):
    """The spans that have begun and not ended."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.names[span.name] += 1

    def on_end(self, span: ReadableSpan) -> None:
        self.names[span.name] -= 1


class Telemetry:
    """An SDK in memory, and an observer that writes to it."""

    def __init__(self, **options: Any) -> None:
        self.exporter, self.open, self.reader = InMemorySpanExporter(), Open(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider.add_span_processor(self.open)
        self.tracer = self.provider.get_tracer("host")
        meters = MeterProvider([self.reader])
        self.observer = OpenTelemetry(tracer_provider=self.provider, meter_provider=meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        assert not +self.open.names, f"never ended: {+self.open.names}"
        return list(self.exporter.get_finished_spans())

    def tree(self) -> list[str]:
        """The spans as ``child < parent < ...``, sorted."""
        by_id = {span.context.span_id: span for span in self.spans if span.context is not None}

        def line(span: ReadableSpan) -> str:
            parent = by_id.get(span.parent.span_id) if span.parent is not None else None
            return span.name if parent is None else f"{span.name} < {line(parent)}"

        return sorted(map(line, self.spans))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}


@contextmanager
def quiet_context(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No complaint of OpenTelemetry's context is logged, and the caller's context is the one it was."""
    before = context.get_current()
    with caplog.at_level(logging.WARNING, logger="opentelemetry"):
        yield
    assert [record.message for record in caplog.records if record.name.startswith("opentelemetry")] == []
    assert context.get_current() == before


def answer(request: ModelRequest) -> str:
    return f"re: {request.messages[-1].text}"


TASK = '(defatom t (params (x)) (instructions "{{x}}"))'


async def test_a_run_is_a_tree_of_spans(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Branches, tasks, calls and tools nest as the program ran, with its places; the caller's span is the root's parent."""
    telemetry = Telemetry()

    async def shout(text: str) -> str:
        """Shout."""
        with telemetry.tracer.start_as_current_span("host work"):
            return text.upper()

    def plain(text: str) -> str:
        """A plain tool, on a thread."""
        with telemetry.tracer.start_as_current_span("thread work"):
            return text

    text = f"""{TASK}
(parallel (value-of (t (x "a"))) (value-of (shout (text "b"))))
(pmap (lambda (x) (value-of (t (x x)))) (list "c" "d"))
(race (value-of (plain (text "e"))))"""
    async with AgentFlow(provider=ScriptedProvider(answer), root=tmp_path, tools=[shout, plain]) as flow:
        flow.subscribe(telemetry.observer)
        with quiet_context(caplog), telemetry.tracer.start_as_current_span("request"):
            await flow.run(text, labels={"thread": "t-1", "user": "ada"}, run_id="r1")
    root = "invoke_workflow <string> < request"
    tree = telemetry.tree()
    (run,) = [span for span in telemetry.spans if span.name.startswith("invoke_workflow")]
    root = f"{run.name} < request"
    assert tree == sorted(
        [
            "request",
            root,
            f"branch parallel[0] < {root}",
            f"invoke_agent t < branch parallel[0] < {root}",
            f"chat < invoke_agent t < branch parallel[0] < {root}",
            f"branch parallel[1] < {root}",
            f"execute_tool shout < branch parallel[1] < {root}",
            f"host work < execute_tool shout < branch parallel[1] < {root}",
            *(
                line
                for at in (0, 1)
                for line in (
                    f"branch pmap[{at}] < {root}",
                    f"invoke_agent t < branch pmap[{at}] < {root}",
                    f"chat < invoke_agent t < branch pmap[{at}] < {root}",
                )
            ),
            f"branch race[0] < {root}",
            f"execute_tool plain < branch race[0] < {root}",
            f"thread work < execute_tool plain < branch race[0] < {root}",
        ]
    )
    assert run.attributes is not None and run.instrumentation_scope is not None
    assert run.instrumentation_scope.schema_url == EDITIONS[NEWEST].schema_url
    expected = {"agentflow.run.id": "r1", "gen_ai.conversation.id": "t-1", "agentflow.label.user": "ada"}
    assert expected.items() <= dict(run.attributes).items()
    lines = {span.name: span.attributes["code.line.number"] for span in telemetry.spans if "branch" in span.name}  # type: ignore[index]
    assert lines["branch parallel[0]"] == 2 and lines["branch pmap[1]"] == 3 and lines["branch race[0]"] == 4
    assert all(
        "agentflow.path" in (span.attributes or {})
        for span in telemetry.spans
        if "work" not in span.name and span.name != "request"
    )


async def test_one_call_is_one_chat_span(tmp_path: Path) -> None:
    """Attempts are events of the call's span, a retry of the form is another call; tokens and reasons are on each."""
    replies = [Overloaded("busy", provider="scripted", model="m"), "fine"]
    telemetry = Telemetry()
    async with AgentFlow(provider=ScriptedProvider(replies), root=tmp_path) as flow:
        flow.subscribe(telemetry.observer)
        await flow.run(f'{TASK} (retry 3 (t (x "a")))')
    failed, fine = telemetry.named("chat")
    assert failed.attributes is not None and fine.attributes is not None
    assert failed.status.status_code is StatusCode.ERROR and failed.attributes["error.type"] == "provider/overloaded"
    assert fine.status.status_code is StatusCode.UNSET and "error.type" not in fine.attributes
    assert fine.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert fine.attributes["gen_ai.usage.output_tokens"] > 0 and fine.attributes["gen_ai.provider.name"] == "scripted"  # type: ignore[operator]
    assert [(event.name, (event.attributes or {}).get("error.type")) for event in failed.events] == [
        ("agentflow.attempt", "provider/overloaded")
    ]


async def test_what_a_model_call_does_nests_below_its_span(tmp_path: Path) -> None:
    """The chat span is the current one while the request is made, so that instrumented clients say whose request it is; that of a
    Python workflow's call is below the workflow's run, and side by side each has its own.
    """
    telemetry = Telemetry()

    async def wire(request: ModelRequest) -> str:
        with telemetry.tracer.start_as_current_span(f"POST {request.messages[-1].text}"):
            await asyncio.sleep(0)
            return "ok"

    async with AgentFlow(provider=ScriptedProvider(wire), root=tmp_path) as flow:
        flow.subscribe(telemetry.observer)

        @flow.task(history=False)
        async def say(x: str) -> str:
            """{{x}}"""

        @flow.workflow
        async def both() -> list[str]:
            return await flow.map(say, ["a", "b"])

        await both()
    root = "invoke_workflow both"
    for at, text in enumerate("ab"):
        assert f"POST {text} < chat < invoke_agent say < branch pmap[{at}] < {root}" in telemetry.tree()


async def test_losers_and_time_outs_are_cancelled_and_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is cancelled ends, says so and is not an error; a form that timed out leaves the caller's context as it was."""
    telemetry = Telemetry()

    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    async def quick() -> str:
        """Answer."""
        return "won"

    async with AgentFlow(provider=ScriptedProvider(answer), root=tmp_path, tools=[hang, quick]) as flow:
        flow.subscribe(telemetry.observer)
        with quiet_context(caplog):
            await flow.run('(race (hang) (quick)) (try (timeout 0.01 (hang)) (catch (e) "late"))')
    spans = telemetry.named("execute_tool hang")
    assert [(span.attributes or {})["error.type"] for span in spans] == ["cancelled", "cancelled"]
    assert all(span.status.status_code is StatusCode.UNSET for span in spans)


async def test_subtasks_and_tools_of_models_nest(tmp_path: Path) -> None:
    """A tool that a model calls stands in its task; the subtask that it asks for, with its own call, beside it."""
    telemetry = Telemetry()

    async def ask(arguments: dict[str, Any], call: CallContext) -> SubtaskRequest:
        return SubtaskRequest(name="sub", inputs={"x": arguments["what"]})

    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    delegate = Tool(spec=ToolSpec("delegate", "Have something done.", schema), call=ask, kind="subtask")
    replies = [{"tool_calls": [{"name": "delegate", "arguments": {"what": "w"}}]}, "inner", "outer"]
    text = '(defatom sub (params (x)) (instructions "{{x}}")) (defatom main (params) (instructions "go")) (value-of (main))'
    async with AgentFlow(provider=ScriptedProvider(replies), root=tmp_path) as flow:
        flow.tools.add(delegate)
        flow.subscribe(telemetry.observer)
        assert (await flow.run(text)).value == "outer"
    tree = [line.split(" < invoke_workflow")[0] for line in telemetry.tree()]
    assert "execute_tool delegate < invoke_agent main" in tree and tree.count("chat < invoke_agent main") == 2
    assert any(line.startswith("chat < invoke_agent sub < invoke_agent sub") for line in tree), tree
    (call,) = telemetry.named("execute_tool delegate")
    assert (call.attributes or {})["gen_ai.tool.call.id"]


async def test_content_is_recorded_on_request_only(tmp_path: Path) -> None:
    """Without content no prompt, answer or argument is in any span; with it they are, redacted, bounded, as JSON."""
    secret = "sk-ant-" + "a1B2" * 20
    text = f'{TASK} (value-of (t (x (string-append "tell {secret} " (string-join (map (lambda (i) "blah") (range 20000)) " ")))))'
    for content in (False, True):
        telemetry = Telemetry(content=content)
        async with AgentFlow(provider=ScriptedProvider(["the answer"]), root=tmp_path) as flow:
            flow.subscribe(telemetry.observer)
            await flow.run(text)
        everything = json.dumps([dict(span.attributes or {}) for span in telemetry.spans])
        assert secret not in everything and ("the answer" in everything) == content == ("blah" in everything)
    (call,) = telemetry.named("chat")
    assert call.attributes is not None
    assert MAX_CONTENT - 100 < len(str(call.attributes["gen_ai.input.messages"])) <= MAX_CONTENT
    assert call.attributes["agentflow.content.cut"]
    (said,) = json.loads(str(call.attributes["gen_ai.output.messages"]))
    assert said == {"role": "assistant", "parts": [{"type": "text", "content": "the answer"}], "finish_reason": "stop"}


async def test_metrics_have_the_conventions_names_and_no_labels(tmp_path: Path) -> None:
    """Tokens and durations are measured by operation, provider and model; a run's id and labels never are."""
    telemetry = Telemetry(first_chunk=True)

    async def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    async with AgentFlow(provider=ScriptedProvider(answer), root=tmp_path, tools=[shout]) as flow:
        flow.subscribe(telemetry.observer)
        await flow.run(f'{TASK} (t (x "a")) (shout (text "b"))', labels={"user": "ada"})
    metrics = telemetry.metrics()
    usage = [
        f"{kind}_tokens" for kind in ("input", "output", "cache_read.input", "cache_write.input", "reasoning.output")
    ]
    assert set(metrics) == {
        "gen_ai.client.inference.duration",
        "gen_ai.client.inference.time_to_first_chunk",
        "gen_ai.client.inference.operation.input_tokens",
        "gen_ai.client.inference.operation.output_tokens",
        *(f"gen_ai.client.inference.usage.{kind}" for kind in usage),
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
    }
    points = metrics["gen_ai.client.inference.operation.output_tokens"].data.data_points
    assert all(point.explicit_bounds[:3] == (1.0, 4.0, 16.0) for point in points)
    points = metrics["gen_ai.invoke_agent.duration"].data.data_points
    assert {point.attributes["gen_ai.operation.name"] for point in points} == {"invoke_agent", "invoke_workflow"}
    used = {key for metric in metrics.values() for point in metric.data.data_points for key in point.attributes}
    allowed = {"operation.name", "response.model", "provider.name", "token.modality"}
    assert used == {f"gen_ai.{name}" for name in allowed}
    (call,) = telemetry.named("chat")
    assert "gen_ai.response.time_to_first_chunk" in (call.attributes or {})


async def test_what_was_spent_and_waited_for_is_measured(tmp_path: Path) -> None:
    """Dollars by model, seconds by what was waited for; a call without a price spends nothing."""
    telemetry = Telemetry()
    prices = {"scripted:*": Price(1_000_000, 1_000_000)}
    async with AgentFlow(provider=ScriptedProvider(answer), root=tmp_path, prices=prices) as flow:
        flow.subscribe(telemetry.observer)
        result = await flow.run(f'{TASK} (pmap (lambda (x) (t (x x))) (list "a" "b") 1)')
    async with AgentFlow(provider=ScriptedProvider(answer), root=tmp_path) as flow:
        flow.subscribe(telemetry.observer)
        await flow.run(f'{TASK} (t (x "a"))')
    metrics = telemetry.metrics()
    [spent] = metrics["agentflow.cost"].data.data_points
    assert spent.value == result.cost and result.cost and "gen_ai.provider.name" in spent.attributes
    [waited] = metrics["agentflow.wait.duration"].data.data_points
    assert dict(waited.attributes) == {"agentflow.wait.reason": "permit"} and waited.count == 1 and waited.sum > 0


async def test_a_thousand_branches_and_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every branch has its own span and tool below it; the error that ends a run is on its span, with its code."""
    telemetry = Telemetry()

    async def touch(n: int, ctx: CallContext) -> int:
        """Touch."""
        await asyncio.sleep(0)
        return n

    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path, tools=[touch]) as flow:
        flow.subscribe(telemetry.observer)
        with quiet_context(caplog), pytest.raises(AgentflowError):
            await flow.run("(pmap (lambda (n) (value-of (touch (n n)))) (range 1000) 100) (car 1)")
    by_id = {span.context.span_id: span.name for span in telemetry.spans if span.context is not None}
    parents = Counter(by_id[span.parent.span_id] for span in telemetry.named("execute_tool touch") if span.parent)
    assert len(parents) == 1000 and set(parents.values()) == {1}
    (run,) = [span for span in telemetry.spans if span.name.startswith("invoke_workflow")]
    assert run.status.status_code is StatusCode.ERROR and (run.attributes or {})["error.type"] == "type/argument"


@pytest.mark.parametrize(
    ("dialect", "server", "name"),
    [
        ("openai-chat", "api.openai.com", "OPENAI"),
        ("anthropic", "api.anthropic.com", "ANTHROPIC"),
        ("bedrock", "bedrock-runtime.eu-west-1.amazonaws.com", "AWS_BEDROCK"),
        ("vertex", "europe-west1-aiplatform.googleapis.com", "GCP_VERTEX_AI"),
        ("foundry", "me.services.ai.azure.com", "AZURE_AI_INFERENCE"),
        ("openai", "me.openai.azure.com", "AZURE_AI_OPENAI"),
    ],
)
def test_providers_are_called_what_the_conventions_call_them(dialect: str, server: str, name: str) -> None:
    """Each cloud has the name that the conventions list for it; a dialect they do not know keeps its own."""
    values = pytest.importorskip(
        "opentelemetry.semconv._incubating.attributes.gen_ai_attributes"
    ).GenAiProviderNameValues
    told = provider_attributes({"type": "attempt_started", "provider": dialect, "server": server})
    assert told == {"gen_ai.provider.name": values[name].value, "server.address": server}
