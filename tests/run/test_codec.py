"""The encoding of records: every value the language can make comes back as it was, in another process too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentflow import errors
from agentflow.core.data.context import MatchItem
from agentflow.core.data.errors import AgentflowError, LimitExceeded, SexpEvaluationError, TaskError
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import DocumentPart, TextPart, Usage
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.result_notes import FailedPart
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.data.values import SharedList, Symbol
from agentflow.core.events.journal_rows import JsonText
from agentflow.durable.values.codec import Codec, NotData
from agentflow.durable.values.error_codec import TAGS
from agentflow.durable.values.record_values import counted, exchanges_of, fingerprint, quick_fingerprint
from agentflow.journal.rows import dump
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.closure import Closure
from agentflow.lang.environment import SexpEnvironment
from agentflow.run.strand.recovery import ErrorValue
from tests.support.fake_run import FakeFlow
from tests.support.world import World

TEXT = st.one_of(
    st.text(alphabet=st.characters(), max_size=12),
    st.lists(st.sampled_from(["\ud83d", "\ude00", "\x00", "$", "a", "\u2028", "😀"]), max_size=6).map("".join),
)
ATOMS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-9, 9).map(lambda number: number * 10**5_000),
    st.floats(),
    TEXT,
    TEXT.map(Symbol),
    st.sampled_from(["car", "+", "map"]).map(PRIMITIVES.__getitem__),
)
KEYS = st.one_of(TEXT, st.integers(), st.booleans(), st.none(), TEXT.map(Symbol))
SHAPES = st.sampled_from([list, tuple, SharedList.of])


def results(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    notes = st.dictionaries(st.one_of(TEXT, st.sampled_from(["model", "error", "turns", "program"])), inner, max_size=3)
    good = st.builds(
        TaskResult,
        st.sampled_from(["COMPLETE", "CONTINUATION"]),
        TEXT,
        inner,
        st.one_of(st.none(), TEXT),
        notes.map(lambda each: {key: value for key, value in each.items() if key != "error"}),
        st.builds(Usage, *[st.integers(0, 9)] * 6),
    )
    failed = st.builds(lambda text, value: TaskResult.failure("llm_error", text, details={"d": value}), TEXT, inner)
    raised = st.builds(lambda text, value: TaskResult.from_error(TaskError(text, details={"d": value})), TEXT, ATOMS)
    return st.one_of(good, failed, raised)


def raised_values(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def made(text: str, value: Any, cause: str | None) -> ErrorValue:
        error = SexpEvaluationError(text, hint=text or None)
        error.value = value
        error.__cause__ = KeyError(cause) if cause is not None else None
        return ErrorValue.of(error)

    return st.builds(made, TEXT, inner, st.one_of(st.none(), TEXT))


def matches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda path, score, meta: MatchItem(path=path, score=score, metadata=meta),
        TEXT,
        st.floats(0, 1),
        st.dictionaries(TEXT, inner, max_size=2),
    )


def requests(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda name, inputs: SubtaskRequest(
            name=name, inputs=inputs, history_config=cast(Any, {"use_session_history": False}), max_depth=3
        ),
        TEXT,
        st.dictionaries(TEXT, inner, max_size=2),
    )


VALUES: st.SearchStrategy[Any] = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(SHAPES, st.lists(inner, max_size=5)).map(lambda pair: pair[0](pair[1])),
        st.dictionaries(KEYS, inner, max_size=4),
        results(inner),
        raised_values(inner),
        matches(inner),
        requests(inner),
    ),
    max_leaves=25,
)


def same(a: Any, b: Any) -> bool:
    """Equal with equal types, keys in order, sequences as lists; a reference for what is not deep."""
    if isinstance(a, list | tuple | SharedList) and isinstance(b, list | tuple | SharedList):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is float and type(b) is float:
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, TaskResult):
        return same([*a.values(), a.usage, shown(a.exception)], [*b.values(), b.usage, shown(b.exception)])
    if isinstance(a, ErrorValue):
        names = [name for name in ErrorValue.__slots__ if name != "_error"]
        return same([getattr(a, name) for name in names], [getattr(b, name) for name in names])
    if isinstance(a, dict | Mapping | MatchItem):
        return same([(key, a[key]) for key in iter(a.keys())], [(key, b[key]) for key in iter(b.keys())])
    return a == b


def shown(error: Any) -> Any:
    return None if error is None else [type(error).__name__, error.to_dict(), error.cause_text]


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_every_value_comes_back(value: Any) -> None:
    """``decode(encode(x)) == x`` through JSON text, and what came back is encoded to the very same text."""
    codec = Codec()
    text = json.dumps(codec.encode(value), allow_nan=False)
    assert text.isascii()
    back = codec.decode(json.loads(text))
    assert same(back, value)
    assert json.dumps(codec.encode(back)) == text
    assert fingerprint("tool", back) == fingerprint("tool", value)


def test_deep_and_shared_data_takes_the_room_it_has() -> None:
    """Data nested thirty thousand deep, or doubled sixty times, comes back; what was shared is shared again."""
    deep: Any = "bottom"
    for number in range(30_000):
        deep = [deep] if number % 2 else {"k": deep}
    doubled: Any = ["x" * 2_000]
    for _ in range(60):
        doubled = [doubled, {"again": doubled}]
    long = ["y" * 100_000] * 3_000
    codec = Codec()
    for value in (deep, doubled, long, TaskResult.complete("r", {"deep": doubled, "shallow": 1})):
        text = json.dumps(codec.encode(value))
        assert len(text) < 4_000_000
        back = codec.decode(json.loads(text))
        assert json.dumps(codec.encode(back)) == text
    back = codec.decode(codec.encode(doubled))
    assert back[0] is back[1]["again"] and codec.decode(codec.encode(long)) == long
    at = codec.decode(codec.encode(deep))
    for number in reversed(range(30_000)):
        at = at[0] if number % 2 else at["k"]
    assert at == "bottom"


async def test_procedures_come_back_with_what_they_captured() -> None:
    """A closure over data and over other procedures is stored as its text; one whose variable is changed is not data."""
    program = """
    (define (double x) (* 2 x))
    (define (adder n) (lambda (x) (+ n (double x))))
    (define counter 0)
    (define (count) (begin (set! counter (+ counter 1)) counter))
    (list (adder 5) count)
    """
    add, count = await FakeFlow()(program)
    codec = Codec()
    back = codec.decode(json.loads(json.dumps(codec.encode({"f": [add]}))))["f"][0]
    assert isinstance(back, Closure) and back.info.text == add.info.text
    flow = FakeFlow()
    assert await flow("(f 10)", env=SexpEnvironment({"f": back})) == 25
    with pytest.raises(NotData, match="counter"):
        codec.encode([count])


async def test_procedures_come_back_with_their_authority() -> None:
    """A record of a closure keeps what its author was granted, however its procedures call each other."""
    program = """
    (let () (define (ev n) (if (= n 0) true (od (- n 1)))) (define (od n) (if (= n 0) false (ev (- n 1))))
      (lambda (n) (ev n)))
    """
    even = await World().run(program, allow=["shout"])
    codec = Codec()
    back = codec.decode(json.loads(json.dumps(codec.encode(even))))
    assert isinstance(back, Closure) and back.grants == even.grants == frozenset({"shout"})
    assert await World().run("(f 10)", SexpEnvironment({"f": back})) is True


class Form(BaseModel):
    name: str
    size: int


def test_what_is_no_data_is_said() -> None:
    """An object of the host has no record; a model becomes the dict of its fields; nothing else is ever guessed."""
    codec = Codec()
    for value in (
        object(),
        [1, {"a": open}],
        {(1, 2): 3},
        bytearray(b"bytes"),
        TaskResult.complete("", {"c": object()}),
    ):
        with pytest.raises(NotData):
            codec.encode(value)
    itself: list[Any] = []
    itself.append([itself])
    with pytest.raises(NotData, match="contains itself"):
        codec.encode(itself)
    assert codec.decode(codec.encode([Form(name="a", size=2)])) == [{"name": "a", "size": 2}]
    with pytest.raises(ValueError, match=r"\$x"):
        codec.decode({"$x": 1})
    assert codec.decode(codec.encode({"$x": 1, "$s": "a"})) == {"$x": 1, "$s": "a"}


def test_every_class_of_error_has_a_tag() -> None:
    """Each error comes back with its class and all it says; a host's own class as the nearest of ours."""
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AgentflowError)}
    assert kinds == set(TAGS.values())

    class Mine(errors.RateLimited):
        pass

    codec = Codec()
    source = Source("p", "(f 1)")
    limited = Mine("slow down", status=429, request_id="q", partial="half", retry_after=1.5, provider="p", model="m")
    limited.attempts = 3
    limited.add_note("a note")
    limited.at(source.span(1, 2))
    limited.__cause__ = OSError("reset")
    exhausted = errors.ResourceExhausted("full", resource="context", used=2, limit=1)
    unbound = errors.UnboundSymbolError("what?", code="name/unbound", hint="h")
    unbound.name = "x"
    for error in (limited, exhausted, unbound, LimitExceeded("no", limit="usd", allowed=1.0, used=2.0)):
        back: Any = codec.decode_error(json.loads(json.dumps(codec.encode_error(error))), source)
        assert back.to_dict() == error.to_dict() and str(back) == str(error) and back.cause_text == error.cause_text
        assert isinstance(error, type(back)) and getattr(back, "__notes__", None) == getattr(error, "__notes__", None)
        for name in ("retry_after", "attempts", "partial", "resource", "used", "name", "allowed", "kind"):
            assert getattr(back, name, None) == getattr(error, name, None)
    elsewhere = codec.decode_error(codec.encode_error(limited), Source("q", "(g 1)"))
    assert elsewhere.span is None, "a span in another text is not read"


def test_notes_keep_what_they_know() -> None:
    """Failed parts with their exceptions, parts for a model and a subtask request come back as what they were."""
    part = FailedPart.of_exception("a.txt", errors.FileFailure("gone"))
    result = TaskResult.complete("x", failed_parts=[part], parts=[TextPart("t"), DocumentPart(data="ZA==")])
    asked = TaskResult("CONTINUATION", notes={"subtask_request": SubtaskRequest(name="n", inputs={"a": [1]})})
    codec = Codec()
    back = codec.decode(json.loads(json.dumps(codec.encode([result, asked]))))
    assert back == [result, asked] and back[0].notes.parts == result.notes.parts
    assert isinstance(back[0].problem(), errors.FileFailure)
    assert back[1].notes.subtask_request == asked.notes.subtask_request


def test_content_is_the_same_in_any_order() -> None:
    """A fingerprint depends on what is asked for, not on the order of keys, on addresses or on shared parts."""
    shared = ["a"]
    assert fingerprint("tool", "n", {"a": 1, "b": [shared, shared]}) == fingerprint(
        "tool", "n", {"b": [["a"], ["a"]], "a": 1}
    )
    assert fingerprint("tool", "n", {"a": 1}) != fingerprint("tool", "n", {"a": 2})
    assert fingerprint("tool", "n", object()) == fingerprint("tool", "n", object())
    assert fingerprint("tool", "n", [1]) != fingerprint("task", "n", [1])
    assert Limits().steps is None or fingerprint("x", Limits()) == fingerprint("x", Limits(steps=1))


class Text(str):
    """A text whose content is written at length."""


@settings(max_examples=60, deadline=None)
@given(st.one_of(VALUES, st.dictionaries(st.sampled_from(["b", "a", "$c"]), ATOMS), st.lists(ATOMS, max_size=4)))
def test_the_quick_way_gives_the_same_fingerprint(value: Any) -> None:
    """What is asked for has one fingerprint, whether it is short enough to be digested as it stands or not."""
    assert quick_fingerprint("tool", "n", value) in (None, fingerprint("tool", Text("n"), value))


def test_most_effects_go_the_quick_way() -> None:
    """Short arguments, and what is asked for besides by a task, need not be written first."""
    assert (
        quick_fingerprint("task", "ask", {"q": 1, "name": "x"}, ["0af1", "model", None, None, [None, None]]) is not None
    )
    assert quick_fingerprint("task", "ask", {"q": "x" * 2_000}) is None


def test_exchanges_are_counted_without_reading_them() -> None:
    """What an effect added to the conversation begins with the number of exchanges, unless it added anything else."""

    def text_of(data: dict[str, Any]) -> JsonText:
        return JsonText(dump(data))

    turns = [[{"role": "user", "parts": []}], []]
    assert exchanges_of(text_of(counted({"turns": turns}))) == exchanges_of(counted({"turns": turns})) == 2
    for other in ({"turns": turns, "data_context": None}, {"reset": True}):
        assert exchanges_of(text_of(counted(other))) is exchanges_of(counted(other)) is None
    assert exchanges_of(text_of({"turns": turns})) is None, "as it was stored before there were numbers"
