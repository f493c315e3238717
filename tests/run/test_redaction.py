"""Secrets do not come out of a run: not in events, not across the borders of chunks, not in errors."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider, Secret, SexpEvaluationError, TaskError
from agentflow.core.data.errors import DataError
from agentflow.events import Event, ModelStarted, PartialOutput, TextDelta
from agentflow.observe.files import EventFiles

SECRET = "tomato-harbour-71-violet"
ASK = '(defatom ask (params (q string)) (instructions "{{q}}"))'


@pytest.mark.parametrize("size", [1, 3, 4, 7, 50])
@pytest.mark.parametrize("form", [SECRET, base64.b64encode(SECRET.encode()).decode()])
async def test_a_secret_in_a_stream_is_taken_out_wherever_it_is_cut(size: int, form: str, tmp_path: Path) -> None:
    """The deltas together do not hold the secret, in plain or base64, whatever the size of the pieces."""
    text = f"the key is {form} and so on, tom and tomato-harbour are fine"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    class Cut(ScriptedProvider):
        async def stream(self, request):  # type: ignore[no-untyped-def]
            async for delta in super().stream(request):
                if delta.text:
                    for piece in pieces:
                        yield type(delta)(text=piece)
                    pieces.clear()
                else:
                    yield delta

    events: list[Event] = []
    async with AgentFlow(provider=Cut([text]), api_key=Secret(SECRET), root=tmp_path) as flow:
        flow.subscribe(events.append)
        await flow.run(f'{ASK} (ask (q "x"))')
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert form not in shown
    assert form[6:] not in shown
    assert shown.startswith("the key is ")
    assert shown.endswith(" and so on, tom and tomato-harbour are fine")
    assert [event.seq for event in events] == sorted({event.seq for event in events})


async def test_secrets_are_taken_out_of_results_arguments_logs_and_errors(tmp_path: Path) -> None:
    """Tool arguments and results, log lines and error messages lose the secret; the program's own value does not."""

    async def leak(word: str) -> dict[str, str]:
        """Give it back."""
        return {"got": word}

    async def fail(word: str) -> str:
        """Raise with it."""
        raise TaskError(f"bad key {word}", details={"key": word})

    events: list[Event] = []
    async with AgentFlow(api_key=SECRET, tools=[leak, fail], root=tmp_path) as flow:
        flow.subscribe(events.append)
        value = (await flow.run("(log-message s) (value-of (leak (word s)))", bindings={"s": SECRET})).value
        assert value == {"got": SECRET}
        with pytest.raises(TaskError) as caught:
            await flow.run("(fail (word s))", bindings={"s": SECRET})
    assert SECRET not in str(caught.value) + repr(caught.value) + caught.value.render() + str(caught.value.details)
    assert not any(SECRET in json.dumps(event.to_dict()) for event in events)


async def test_a_line_of_a_programs_log_reaches_the_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At INFO, watched or not, without secrets and without line breaks; the program's value is the text itself."""
    async with AgentFlow(api_key=SECRET, root=tmp_path) as flow:
        with caplog.at_level(logging.INFO, logger="agentflow.program"):
            result = await flow.run('(log-message "key:" s "\nERROR forged" 3)', bindings={"s": SECRET}, run_id="r-1")
        assert result.value == f"key: {SECRET} \nERROR forged 3"
        (record,) = [each for each in caplog.records if each.name == "agentflow.program"]
        assert record.levelno == logging.INFO and vars(record)["run_id"] == "r-1"
        said = record.getMessage()
        assert said.startswith("key: ") and said.endswith(" \\nERROR forged 3") and SECRET not in said
        caplog.clear()
        await flow.run("(log-message 'quiet)")
    assert caplog.records == []


async def test_secrets_are_taken_out_of_what_goes_to_a_model_and_comes_from_it(tmp_path: Path) -> None:
    """The request of each turn, the response's structured parts and every attempt: the model itself gets the text."""
    events: list[Event] = []
    reply = json.dumps({"note": f"it is {SECRET}, keep it", "rest": "x"})
    provider = ScriptedProvider([{"tool_calls": [{"name": "look", "arguments": {"word": SECRET}}]}, reply])

    async def look(word: str) -> str:
        """Look it up."""
        return f"found {word}"

    text = '(defatom ask (params (q string)) (instructions "{{q}}") (tools look) (output_format ((type "json"))))'
    async with AgentFlow(provider=provider, api_key=SECRET, tools=[look], root=tmp_path) as flow:
        flow.subscribe(events.append)
        await flow.run(f"{text} (ask (q s))", bindings={"s": f"what of {SECRET}?"})
    assert any(SECRET in message.text for message in provider.requests[1].messages)
    requests = [event.request for event in events if isinstance(event, ModelStarted)]
    assert [len(request.messages) for request in requests if request is not None] == [1, 3]
    partials = [event.value for event in events if isinstance(event, PartialOutput)]
    assert partials[-1] == {"note": "it is [redacted], keep it", "rest": "x"}
    assert not any(SECRET[:12] in json.dumps(event.to_dict()) for event in events)


async def test_a_private_key_in_base64_is_noticed_one_character_at_a_time(tmp_path: Path) -> None:
    """What begins a key is longer than a piece, and its end lies far off."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
    encoded = base64.b64encode(key.encode()).decode()

    class Slow(ScriptedProvider):
        async def stream(self, request):  # type: ignore[no-untyped-def]
            async for delta in super().stream(request):
                for piece in delta.text or [""]:
                    yield replace(delta, text=piece)

    events: list[Event] = []
    async with AgentFlow(provider=Slow([f"see {encoded} there"]), root=tmp_path) as flow:
        flow.subscribe(events.append)
        await flow.run(f'{ASK} (ask (q "x"))')
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert encoded[-40:-4] not in shown and shown.endswith(" there")


async def test_a_prompts_events_are_redacted_and_its_text_is_its_value(tmp_path: Path) -> None:
    """`stream_prompt` gives the answer as it is, and with `events=True` events like any others."""
    answer = f"the key is {SECRET} indeed"
    provider = ScriptedProvider([answer, answer])
    async with AgentFlow(provider=provider, api_key=SECRET, root=tmp_path) as flow:
        text = "".join([piece async for piece in flow.handler.stream_prompt("say")])
        events = [event async for event in flow.handler.stream_prompt(f"say {SECRET}", events=True)]
    assert text == answer and SECRET in provider.requests[1].messages[-1].text
    assert not any(SECRET in json.dumps(event.to_dict()) for event in events)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == answer.replace(SECRET, "[redacted]")
    assert [event.seq for event in events] == sorted({event.seq for event in events})


@pytest.mark.parametrize(
    "where", ["log", "argument", "wide argument", "result", pytest.param("answer", marks=pytest.mark.slow), "prompt"]
)
async def test_large_values_are_searched_in_slices(where: str, tmp_path: Path) -> None:
    """A secret in the midst of something large is taken out of all events, and the program's own value keeps it."""
    half = "word of text " * 40_000
    large = f"{half}{SECRET} {half}"
    wide = [["row", at] for at in range(30_000)] + [["row", SECRET]]

    async def give(value: object = None) -> object:
        """Give it back."""
        return large if value is None else value

    texts = {
        "log": "(log-message x)",
        "argument": "(get-field (give (value x)) 'content)",
        "wide argument": "(get-field (give (value xs)) 'status)",
        "result": "(get-field (give) 'content)",
        "answer": f'{ASK} (get-field (ask (q "a")) \'content)',
        "prompt": f"{ASK} (get-field (ask (q x)) 'content)",
    }
    events: list[Event] = []
    provider = ScriptedProvider([large] if where != "prompt" else ["fine"])
    limits = Limits(output_chars=10**7)
    async with AgentFlow(provider=provider, tools=[give], api_key=Secret(SECRET), limits=limits, root=tmp_path) as flow:
        flow.subscribe(events.append)
        result = await flow.run(texts[where], bindings={"x": large, "xs": wide})
        shown = "".join(json.dumps(event.to_dict()) for event in events)
        assert SECRET not in shown and "[redacted]" in shown
        assert sum(len(event.text) for event in events if isinstance(event, TextDelta)) < len(large) + len(SECRET)
        if where not in ("prompt", "wide argument"):
            assert result.value == large
        assert not flow.redactor.examined


async def test_large_values_are_recorded_without_secrets(tmp_path: Path) -> None:
    """What a recorder writes of large values beforehand is what observers are shown of them."""
    wide = [["row", at] for at in range(30_000)] + [["row", SECRET]]
    long = f"{'word of text ' * 10_000}{SECRET}"

    async def give(value: object) -> object:
        """Give it back."""
        return value

    events: list[Event] = []
    provider = ScriptedProvider([long])
    async with AgentFlow(provider=provider, tools=[give], api_key=Secret(SECRET), record=tmp_path) as flow:
        flow.subscribe(events.append)
        run = await flow.run(f"{ASK} (give (value xs)) (ask (q x)) (log-message x)", bindings={"xs": wide, "x": long})
    recorded = list(EventFiles(tmp_path).read(run.run_id))
    shown = [event.to_dict() for event in events if not isinstance(event, TextDelta)]
    assert recorded == json.loads(json.dumps(shown))
    assert SECRET not in json.dumps(recorded) and json.dumps(recorded).count("[redacted]") >= 6


async def test_a_long_delta_is_shown_in_pieces(tmp_path: Path) -> None:
    """A model that answers a megabyte at once does not hold the loop: its text comes in parts, whole and in order."""
    text = "".join(f"{at:07} " for at in range(100_000))
    events: list[Event] = []

    class AtOnce(ScriptedProvider):
        async def stream(self, request):  # type: ignore[no-untyped-def]
            async for delta in super().stream(request):
                if not delta.text:
                    yield delta
                elif text.startswith(delta.text):
                    yield type(delta)(text=text)

    async with AgentFlow(provider=AtOnce([text]), root=tmp_path) as flow:
        flow.subscribe(events.append)
        assert (await flow.run(f'{ASK} (get-field (ask (q "x")) \'content)')).value == text
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(pieces) == text and max(map(len, pieces)) < 100_000


@pytest.mark.parametrize("at", [185, 199])
async def test_a_question_that_is_shown_in_part_shows_no_part_of_a_secret(at: int, tmp_path: Path) -> None:
    """Errors about a question quote its beginning: a secret that is cut there is taken out, as a whole one is."""
    question = f"{'x' * (at - 1)} {SECRET} {'y' * 2_000}"
    async with AgentFlow(api_key=SECRET, root=tmp_path) as flow:
        with pytest.raises(SexpEvaluationError) as nobody:
            await flow.run("(ask-human question)", bindings={"question": question})
    async with AgentFlow(api_key=SECRET, root=tmp_path, approval_ttl=30, durable=f"sqlite:///{tmp_path}/r.db") as flow:
        run = await flow.start(
            '(ask-human question {"type" "integer"})', {"question": question[at - 50 :]}, run_id="asks"
        )
        while not (asked := run.waiting):
            await asyncio.sleep(0.005)
        with pytest.raises(DataError) as wrong:
            await flow.send("asks", asked[0].key, "x")
        with pytest.raises(DataError) as unknown:
            await flow.send("asks", "none", 1)
        await run.cancel()
    for error in (nobody.value, wrong.value, unknown.value):
        assert SECRET[:5] not in flow.redact(str(error)) and SECRET[:5] not in flow.redact(repr(error.to_dict())), error
    assert SECRET[:5] not in str(nobody.value)
