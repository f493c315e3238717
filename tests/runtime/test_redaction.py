"""Secrets do not come out of a run: not in events, not across the borders of chunks, not in errors."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider, Secret, TaskError
from agentflow.events import Event, ModelStarted, TextDelta

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
    lines = [json.dumps(e.to_dict(), default=str) for e in events if not isinstance(e, ModelStarted)]
    assert not any(SECRET in line for line in lines)
