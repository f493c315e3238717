"""Conversations as JSON: everything comes back, and what cannot be read is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow import AgentFlow, DataContext, MatchItem, ScriptedProvider, Session
from agentflow.core.data.message_json import PARTS, exchange_data, read_part
from agentflow.core.data.messages import (
    Citation,
    DocumentPart,
    ImagePart,
    Message,
    Native,
    OtherPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from agentflow.core.data.session import Unread
from agentflow.core.data.values import plain
from agentflow.errors import DataError

texts = st.text(st.characters(), max_size=20)
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
natives = st.builds(Native, st.sampled_from(["anthropic.messages", "openai.responses"]), data)
some_native = st.none() | natives
content: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        TextPart,
        texts,
        st.booleans(),
        some_native,
        st.lists(st.builds(Citation, texts, st.none() | texts, st.none() | texts, texts), max_size=2).map(tuple),
    ),
    st.builds(ImagePart, texts, st.none() | texts, st.none() | texts),
    st.builds(DocumentPart, texts, st.none() | texts, st.none() | texts, texts),
)
parts: st.SearchStrategy[Part] = st.one_of(
    content,
    st.builds(ThinkingPart, texts, some_native),
    st.builds(ToolCallPart, texts, texts, st.dictionaries(texts, data, max_size=3), some_native, texts),
    st.builds(ToolResultPart, texts, texts, texts, st.booleans(), st.lists(content, max_size=3).map(tuple)),
    st.builds(OtherPart, natives),
)
messages = st.builds(Message, st.sampled_from(["user", "assistant"]), st.lists(parts, max_size=4).map(tuple))
contexts = st.none() | st.builds(
    DataContext,
    items=st.lists(st.builds(MatchItem, path=texts, content=texts, score=st.floats(0, 1)), max_size=2),
    overall_summary=texts,
)


@settings(max_examples=75, deadline=None, derandomize=True)
@given(st.lists(st.lists(messages, max_size=3).map(tuple), max_size=3), contexts)
def test_a_session_comes_back_whole(turns: list[tuple[Message, ...]], context: DataContext | None) -> None:
    """Every kind of part, verbatim JSON of providers included, and the data context."""
    session = Session(data_context=context)
    for turn in turns:
        session.commit(turn)
    text = session.to_json()
    assert text.isascii() and json.loads(text)["session"] == 1
    again = Session.from_json(text.encode())
    assert again.turns() == turns and again.data_context == context
    assert again.to_json() == text


def test_every_part_says_what_it_is() -> None:
    """The JSON of a part has its type, so that thinking comes back as thinking."""
    assert set(PARTS) == {"text", "image", "document", "audio", "thinking", "tool_call", "tool_result", "other"}
    assert plain(ThinkingPart("hm"))["type"] == "thinking" and read_part(plain(ThinkingPart("hm"))) == ThinkingPart(
        "hm"
    )
    assert read_part({"type": "text", "text": "x", "mood": "new"}) == TextPart("x")


async def test_a_conversation_goes_on_elsewhere() -> None:
    """A session written by one process is gone on with by another; the model reads both turns."""
    chat = '(defatom chat (params (say string)) (instructions "{{say}}") (history_config true)) (value-of (chat (say text)))'
    async with AgentFlow(provider=ScriptedProvider(["Hello Ada."])) as flow:
        session = Session()
        await flow.run(chat, bindings={"text": "I am Ada."}, session=session)
        text = session.to_json()
    model = ScriptedProvider(["Your name is Ada."])
    async with AgentFlow(provider=model) as flow:
        await flow.run(chat, bindings={"text": "Who am I?"}, session=Session.from_json(text))
    assert [message.text for message in model.requests[0].messages] == ["I am Ada.", "Hello Ada.", "Who am I?"]


def test_a_fork_is_written_whole() -> None:
    """What a session was forked from is part of it."""
    session = Session()
    session.commit((Message("user", (TextPart("a"),)), Message("assistant", (TextPart("b"),))))
    fork = session.fork()
    fork.commit((Message("user", (TextPart("c"),)), Message("assistant", (TextPart("d"),))))
    assert [m.text for m in Session.from_json(fork.to_json()).messages] == ["a", "b", "c", "d"]


def turn(*parts: Any) -> dict[str, Any]:
    return {"session": 1, "turns": [[{"role": "user", "parts": list(parts)}]]}


@pytest.mark.parametrize(
    ("written", "code", "says"),
    [
        ("{", "session/invalid", "not a session"),
        ("[" * 100_000, "session/invalid", "not a session"),
        ("[1]", "session/invalid", "'session'"),
        ({"turns": []}, "session/invalid", "'session'"),
        ({"session": "1"}, "session/invalid", "'session'"),
        ({"session": 0}, "session/invalid", "'session'"),
        ({"session": 2, "turns": []}, "session/version", "version 2"),
        ({"session": 1, "turns": {}}, "session/invalid", "turns"),
        ({"session": 1, "turns": [1]}, "session/invalid", "turns"),
        ({"session": 1, "turns": [[1]]}, "message/invalid", "turn 1, message 1"),
        ({"session": 1, "turns": [[{"role": "system", "parts": []}]]}, "message/invalid", "user or assistant"),
        (turn(1), "message/part", "turn 1, message 1, part 1"),
        (turn({"type": "smell"}), "message/part", "'smell'"),
        (turn({"type": ["text"]}), "message/part", "no part has the type"),
        (turn({"type": "text"}), "message/part", "text"),
        (turn({"type": "tool_result", "call_id": "a", "name": "b", "text": "c", "parts": 1}), "message/part", "list"),
        ({"session": 1, "turns": [], "data_context": {"items": 1}}, "data/fields", "DataContext"),
    ],
)
def test_what_cannot_be_read_is_named(written: Any, code: str, says: str) -> None:
    """A text that is not a session, a later version, a message or part that cannot be: each has its own error."""
    with pytest.raises(DataError) as caught:
        Session.from_json(written if isinstance(written, str) else json.dumps(written))
    assert caught.value.code == code and says in caught.value.message


@given(st.lists(messages, max_size=3).map(tuple))
@settings(max_examples=100)
def test_an_exchange_is_written_as_any_data_is(exchange: tuple[Message, ...]) -> None:
    """The short way of writing an exchange gives what ``plain`` gives: digests of the two are the same."""
    assert exchange_data(exchange) == plain(exchange)
    assert json.dumps(exchange_data(exchange)) == json.dumps(plain(exchange))


def test_unread_exchanges_are_those_that_were_written() -> None:
    """An exchange that is read late counts, digests, forks, joins and reads as the one it was written from."""
    written = Session()
    for number in range(3):
        written.commit((Message("user", (TextPart(f"question {number}"),)), Message("assistant", (TextPart("yes"),))))
    late, joined = Session(), Session()
    for exchange in written.turns():
        late.add_unread(Unread(lambda exchange=exchange: plain(exchange)))
    joined.join([late.fork(), late])
    assert late.fork().turn_count == late.turn_count == joined.turn_count == 3
    assert late.digest(2) == written.digest(2) == joined.fork().digest(2)
    assert joined.turns() == late.fork().turns() == written.turns()
    mark = late.mark()
    late.add_unread(Unread(lambda: plain(written.turns()[0])))
    assert late.changes_since(mark) == {"turns": [plain(written.turns()[0])]}
    assert late.turns() == [*written.turns(), written.turns()[0]]
