"""The names of the newest edition of the GenAI conventions, against an extract of the conventions; and the choice of an edition."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from agentflow import AgentFlow, ConfigurationError, OpenTelemetry, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.provider_errors import Overloaded
from agentflow.core.events.live_scores import LiveScore
from agentflow.observe import event_spans, otel
from agentflow.observe.conventions import CHOSEN, EDITIONS, NEWEST, edition_of
from agentflow.observe.span_content import fitting, fitting_messages, shortened
from tests.observe.test_otel import Telemetry

CONVENTIONS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "support" / "genai_conventions.json").read_text())
PROGRAM = """
(defatom capital (params (country)) (instructions "The capital of {{country}}?") (system "Be short.") (tools shout))
(value-of (capital (country "France")))
(get_context (query "Paris"))
"""


async def shout(text: str) -> str:
    """Shout."""
    return text.upper()


async def traced(tmp_path: Path, **options: Any) -> Telemetry:
    """A run with a task, a tool, an answer, a lookup and a failure, as an edition writes it."""
    telemetry = Telemetry(content=True, first_chunk=True, **options)
    replies = [{"tool_calls": [{"name": "shout", "arguments": {"text": "hey"}}]}, "Paris."]
    async with AgentFlow(provider=ScriptedProvider(replies), root=tmp_path, tools=[shout]) as flow:
        flow.subscribe(telemetry.observer)
        await flow.run(PROGRAM, labels={"thread": "t-1"})
        with pytest.raises(AgentflowError):
            await flow.run("(car 1)")
    return telemetry


def of_the_conventions(names: Any) -> set[str]:
    return {name for name in names if name.startswith("gen_ai.")}


async def test_every_name_is_one_of_the_newest_edition(tmp_path: Path) -> None:
    """Each attribute, metric and event is in the extract of the conventions, none of them removed or deprecated there; metrics have its
    kind and unit.
    """
    telemetry = await traced(tmp_path)
    points = [p for m in telemetry.metrics().values() for p in m.data.data_points]
    used = {name for each in [*telemetry.spans, *points] for name in each.attributes or {}}
    known = CONVENTIONS["attributes"]
    assert of_the_conventions(used) <= known.keys() and len(of_the_conventions(used)) > 20
    assert {known[name] for name in of_the_conventions(used)} == {"development"}
    metrics = {name: metric for name, metric in telemetry.metrics().items() if name.startswith("gen_ai.")}
    kinds = {"Sum": "counter", "Histogram": "histogram"}
    assert {name: [kinds[type(m.data).__name__], m.unit] for name, m in metrics.items()} == {
        name: CONVENTIONS["metrics"][name] for name in EDITIONS[NEWEST].instruments
    }
    assert not (used | metrics.keys()) & CONVENTIONS["removed"].keys()


def test_no_other_name_is_in_the_source() -> None:
    """Also the names that a run writes seldom: each literal of the exporter is a name of the conventions."""
    literals = {
        name
        for module in (event_spans, otel)
        for name in re.findall(r'"(gen_ai\.[a-z_.]+)"', Path(str(module.__file__)).read_text())
    }
    assert len(literals) > 30
    assert literals <= CONVENTIONS["attributes"].keys() | CONVENTIONS["events"].keys()
    assert CONVENTIONS["edition"] == NEWEST


async def test_an_edition_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``edition=`` chooses the names; without it the variable does, else the newest is written. The schema URL says which."""
    newest, older = await traced(tmp_path), await traced(tmp_path, edition="1.37.0")
    monkeypatch.setenv(CHOSEN, "1.37.0")
    by_variable = await traced(tmp_path)

    def run(telemetry: Telemetry) -> tuple[Any, Any, Any]:
        span = next(each for each in telemetry.spans if each.name.startswith("invoke_workflow"))
        scope, attributes = span.instrumentation_scope, span.attributes or {}
        assert scope is not None
        return scope.schema_url, "gen_ai.agent.name" in attributes, "gen_ai.workflow.name" in attributes

    assert run(newest) == ("https://opentelemetry.io/schemas/gen-ai/0.1.0", True, False)
    assert run(older) == run(by_variable) == ("https://opentelemetry.io/schemas/1.37.0", False, True)
    assert "gen_ai.client.token.usage" in older.metrics() and "gen_ai.client.token.usage" not in newest.metrics()
    reasons = [(each.named("chat")[-1].attributes or {})["gen_ai.response.finish_reasons"] for each in (newest, older)]
    assert reasons == [("stop",), ("end",)]


@pytest.mark.parametrize(
    ("name", "hint"), [("1.37.1", "did you mean '1.37.0'?"), ("latest", "leave it out for 0.1.0, the newest")]
)
def test_a_wrong_edition_is_an_error_that_lists_those_stored(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says where the name stands, lists the stored editions, and says what to write."""
    with pytest.raises(ConfigurationError) as raised:
        OpenTelemetry(edition=name)
    assert raised.value.code == "config/otel-edition" and raised.value.hint == hint
    assert str(raised.value).startswith(f"edition=: no edition '{name}'") and "stored are 0.1.0, 1.37.0" in str(
        raised.value
    )
    monkeypatch.setenv(CHOSEN, name)
    with pytest.raises(ConfigurationError, match=f"the variable {CHOSEN}: no edition '{name}'"):
        edition_of(None)


def test_the_page_lists_the_editions() -> None:
    """The table of the page has a row for each stored edition, with its names; the newest comes first."""
    page = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| `\d[\d.]+`", line)]
    assert [re.findall(r"`([^`]+)`", row[0])[0] for row in rows] == [*EDITIONS]
    for edition, row in zip(EDITIONS.values(), rows, strict=True):
        assert row[2] == f"`{edition.workflow}`" and row[3] == f"`{edition.model_duration.name}`"
    assert set(EDITIONS[NEWEST].instruments) <= set(re.findall(r"gen_ai[a-z_.]+", page)) | {
        f"gen_ai.client.inference.{kind}.{name}_tokens"
        for kind in ("usage", "operation")
        for name in re.findall(r"`\.([a-z_.]+)_tokens`", page)
    }


async def test_a_failed_call_counts_no_tokens(tmp_path: Path) -> None:
    """The newest edition measures failed calls too: with 0 tokens, and with their error where it has that attribute."""
    telemetry = Telemetry()
    busy = Overloaded("busy", provider="scripted", model="m")
    async with AgentFlow(provider=ScriptedProvider([busy]), root=tmp_path) as flow:
        flow.subscribe(telemetry.observer)
        await flow.run('(defatom t (params) (instructions "hello")) (t)')
    metrics = telemetry.metrics()
    [call] = metrics["gen_ai.client.inference.operation.input_tokens"].data.data_points
    assert call.sum == 0 and call.count == 1 and "error.type" in call.attributes
    [used] = metrics["gen_ai.client.inference.usage.output_tokens"].data.data_points
    assert (
        used.value == 0
        and used.attributes["gen_ai.token.modality"] == "unknown"
        and "error.type" not in used.attributes
    )


def test_a_score_is_an_event_of_the_conventions() -> None:
    """The score of an evaluation has the event and the attributes of the conventions."""
    exporter, provider = InMemoryLogRecordExporter(), LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    observer = OpenTelemetry(logger_provider=provider)
    for score in (
        LiveScore(run_id="r", name="polite", value=True),
        LiveScore(run_id="r", name="right", error="no idea"),
    ):
        observer.scored(score)
    records = [each.log_record for each in exporter.get_finished_logs()]
    assert {record.event_name for record in records} <= CONVENTIONS["events"].keys()
    used = {name for record in records for name in record.attributes or {}}
    assert of_the_conventions(used) <= CONVENTIONS["attributes"].keys() and len(of_the_conventions(used)) == 4


def message(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text} for text in texts]}


def test_messages_lose_whole_parts_the_oldest_first() -> None:
    """What is left of messages is valid JSON: the newest parts, whole. The newest message is the last to go."""
    history = [message("user", f"{n}a" * 30, f"{n}b" * 30) for n in range(10)] + [message("user", "the question")]
    whole, cut = fitting_messages(history, 100_000)
    assert json.loads(whole) == history and not cut
    for most in range(80, len(whole)):
        text, cut = fitting_messages(history, most)
        left = json.loads(text)
        assert cut and len(text) <= most
        parts = [part for each in left for part in each["parts"]]
        assert parts == [part for each in history for part in each["parts"]][-len(parts) :] and parts
        assert left[-1] == history[-1] and len(left) <= len(history)


def test_a_message_that_is_too_long_alone_is_shortened() -> None:
    """The last part stays, with its text cut: also where characters are escaped, and in the arguments of a call."""
    for content in ("x" * 5_000, '"\n' * 5_000, "ä\u0000" * 5_000):
        text, cut = fitting_messages([message("user", "old"), message("user", "older", content)], 1_000)
        [left] = json.loads(text)
        assert cut and 900 <= len(text) <= 1_000 and content.startswith(left["parts"][0]["content"])
    call = {"type": "tool_call", "id": "c-1", "name": "write", "arguments": {"path": "a.txt", "text": "y" * 9_000}}
    text, _ = fitting_messages([{"role": "assistant", "parts": [call]}], 1_000)
    [part] = json.loads(text)[0]["parts"]
    assert part["name"] == "write" and part["arguments"]["path"] == "a.txt" and len(text) <= 1_000
    assert call["arguments"]["text"].startswith(part["arguments"]["text"]) and len(part["arguments"]["text"]) > 800  # type: ignore[index]


def test_values_are_shortened_as_data() -> None:
    """An object keeps its keys, a list its newest items, and the result is valid JSON."""
    value = {"path": "a", "rows": list(range(1_000)), "text": "z" * 1_000}
    text, cut = fitting(value, 500)
    left = json.loads(text)
    assert cut and len(text) <= 500 and left.keys() == value.keys() and left["path"] == "a"
    assert left["rows"][-1] == 999 and set(left["text"]) == {"z"}
    assert shortened(7, 1) == 7 and fitting([1, 2], 100) == ("[1, 2]", False)


async def test_long_content_of_a_call_is_cut_as_data(tmp_path: Path) -> None:
    """The messages of a long call are valid JSON within the limit, with the newest one whole."""
    telemetry = Telemetry(content=True)
    request = '(value-of (ask (q (string-join (map (lambda (i) "blah") (range 20000)) " "))))'

    def answer(request: ModelRequest) -> str:
        return "the answer"

    async with AgentFlow(provider=ScriptedProvider(answer), root=tmp_path) as flow:
        flow.subscribe(telemetry.observer)
        await flow.run(f'(defatom ask (params (q)) (instructions "{{{{q}}}}")) {request}')
    (call,) = telemetry.named("chat")
    attributes = call.attributes or {}
    text = str(attributes["gen_ai.input.messages"])
    assert len(text) <= event_spans.MAX_CONTENT and attributes["agentflow.content.cut"] is True
    assert json.loads(text)[-1]["parts"][-1]["content"].startswith("blah blah")
