"""Watching changes nothing: a run gives the same value, the same error and the same events whoever looks on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow import AgentFlow, CallContext, ModelRequest, ScriptedProvider, TaskError
from agentflow.core.data.values import plain, to_json
from agentflow.errors import AgentflowError
from agentflow.events import DELTAS, BranchFinished, BranchStarted, Event, FinishedBase

SECRET = "tomato-harbour-71-violet"
ASK = '(defatom ask (params (q string)) (instructions "{{q}}"))'

WORDS = {"s": SECRET, "t": f"the key is {SECRET}.", "u": "plain words"}
words = st.sampled_from([*WORDS, '"quoted words"'])
TEMPLATES = [
    "(log-message {w})",
    "(keep (word {w}))",
    "(value-of (keep (word {w})))",
    "(fail (word {w}))",
    "(refuse (word {w}))",
    "(value-of (refuse (word {w})))",
    "(host {w})",
    "(error {w} {w})",
    "(raise (list {w} 1))",
    "(value-of (ask (q {w})))",
    "(try {a} (catch (e) (get-field e 'message)))",
    "(try {a} (catch (e) (list (get-field e 'details) (get-field e 'cause))))",
    "(try {a} (catch (e) (raise e)))",
    "(try {a} (finally {b}))",
    "(begin {a} {b})",
    "(list {a} {b})",
    # a failing branch cancels the others, and how far they are depends on the clock: each catches its own
    "(parallel (try {a} (catch (e) (get-field e 'message))) (try {b} (catch (e) (get-field e 'code))))",
    "(pmap (lambda (x) (try {a} (catch (e) (list x (get-field e 'message))))) (list 1 2))",
    "(retry 1 {a})",
    # the first branch fails before it waits for anything, so that the other is never cut off by a winner
    '(race (error "lost") (try {a} (catch (e) (get-field e \'code))))',
    '(try (race (error "lost") (begin {a} (error "too"))) (catch (e) (get-field e \'message)))',
]
leaves = st.builds(lambda form, w: form.format(w=w), st.sampled_from(TEMPLATES[:10]), words) | words
programs = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda form, a, b: form.replace("{a}", a).replace("{b}", b), st.sampled_from(TEMPLATES[10:]), inner, inner
    ),
    max_leaves=8,
)


@dataclass(frozen=True)
class Outcome:
    """What a host sees of a run: a value or an error, and the paths its tools were called at."""

    value: Any
    error: str | None
    paths: tuple[str, ...]


class Run:
    """One flow with tools that keep, fail and refuse; each run of it is watched by other observers."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def tools(self) -> list[Callable[..., Any]]:
        async def keep(word: str, ctx: CallContext) -> dict[str, str]:
            """Give it back."""
            self.paths.append(ctx.path)
            return {"got": word}

        async def fail(word: str, ctx: CallContext) -> str:
            """End the program with it."""
            self.paths.append(ctx.path)
            raise TaskError(f"bad key {word}", details={"key": word}) from ValueError(word)

        async def refuse(word: str, ctx: CallContext) -> str:
            """Give a FAILED result with it."""
            self.paths.append(ctx.path)
            raise ValueError(f"no {word}")

        return [keep, fail, refuse]

    async def __call__(self, program: str, *observers: Callable[[Event], Any]) -> Outcome:
        self.paths = []

        def host(word: str) -> str:
            raise KeyError(word)

        def echo(request: ModelRequest) -> str:
            return request.messages[-1].text or "nothing"

        async with AgentFlow(provider=ScriptedProvider(echo), api_key=SECRET, tools=self.tools()) as flow:
            for observer in observers:
                flow.subscribe(observer)
            value, error = None, None
            try:
                value = (await flow.run(f"{ASK} {program}", bindings={"host": host, **WORDS})).value
            except AgentflowError as caught:
                assert_clean(caught)
                shown = (
                    type(caught),
                    caught.message,
                    caught.code,
                    caught.hint,
                    plain(caught.details),
                    str(caught.span),
                )
                error = repr((*shown, repr(caught.__cause__)))
        return Outcome(plain(value), error, tuple(sorted(self.paths)))


def assert_clean(error: BaseException) -> None:
    """No secret can be read off an error, its causes and its traceback."""
    lines = "".join(traceback.format_exception(error))
    shown = error.render() + repr(error.details) if isinstance(error, AgentflowError) else ""
    assert SECRET not in lines + shown + repr(error.args) + str(vars(error))
    if error.__cause__ is not None:
        assert_clean(error.__cause__)


def lifecycle(events: list[Event]) -> dict[str, list[tuple[str, str, str]]]:
    """The events that are counted, strand by strand in order: how strands take turns depends on the clock."""
    strands: dict[str, list[tuple[str, str, str]]] = {}
    for event in events:
        if not isinstance(event, DELTAS):
            branch = isinstance(event, BranchStarted | BranchFinished)
            strand = event.path if branch else event.path.rpartition("/")[0]
            outcome = event.outcome if isinstance(event, FinishedBase) else ""
            strands.setdefault(strand, []).append((event.type, event.path, outcome))
    return strands


@settings(max_examples=40, deadline=None, derandomize=True)
@given(programs)
def test_watched_unwatched_and_badly_watched_runs_are_equal(program: str) -> None:
    """Value, error, paths and lifecycle events are the same, whether nobody, somebody or a failing observer watches."""

    def fails(event: Event) -> None:
        if event.seq > 3:
            raise RuntimeError(event)

    async def fails_late(event: Event) -> None:
        await asyncio.sleep(0)
        raise RuntimeError(event)

    async def check() -> None:
        run = Run()
        alone: list[Event] = []
        beside: list[Event] = []
        unwatched = await run(program)
        assert await run(program, alone.append) == unwatched
        assert await run(program, fails) == unwatched
        assert await run(program, fails, fails_late, beside.append) == unwatched
        assert lifecycle(beside) == lifecycle(alone)
        for events in (alone, beside):
            assert [event.seq for event in events] == sorted({event.seq for event in events})
            assert SECRET not in "".join(to_json(event.to_dict()) + repr(event) for event in events)

    logging.disable(logging.WARNING)  # each failing observer is logged with its traceback
    try:
        asyncio.run(check())
    finally:
        logging.disable(logging.NOTSET)


@contextlib.asynccontextmanager
async def failing_flow(error: Exception) -> AsyncGenerator[AgentFlow]:
    async def fail() -> str:
        """Fail."""
        raise error

    async with AgentFlow(api_key=SECRET, tools=[fail]) as flow:
        yield flow


@pytest.mark.parametrize("watched", [False, True])
async def test_the_host_gets_a_redacted_copy_of_the_error(watched: bool) -> None:
    """Same class, attributes, notes, traceback and cause; the error inside the run keeps what it says."""

    class OutOfStamps(TaskError):
        def __init__(self, count: int, *, wanted: str) -> None:
            super().__init__(f"{count} stamps for {wanted}")
            self.wanted = wanted

    live = OutOfStamps(3, wanted=SECRET)
    live.__cause__ = OSError(2, "no such file", f"/tmp/{SECRET}")
    live.add_note(f"looked for {SECRET}")
    async with failing_flow(live) as flow:
        if watched:
            flow.subscribe(lambda event: None)
        seen: list[str] = (await flow.run("(try (fail) (catch (e) (list (get-field e 'message))))")).value
        with pytest.raises(OutOfStamps) as caught:
            await flow.run("(fail)")
    error = caught.value
    assert seen == [f"3 stamps for {SECRET}"] and live.wanted == SECRET and live.message == seen[0]
    assert error is not live and error.message == "3 stamps for [redacted]" and error.wanted == "[redacted]"
    assert isinstance(error.__cause__, FileNotFoundError) and error.__cause__.filename == "/tmp/[redacted]"
    assert error.__cause__.errno == 2 and error.__notes__ == ["looked for [redacted]"]
    assert error.__context__ is not live and error.code == live.code and error.reason == live.reason
    assert "in fail\n" in "".join(traceback.format_exception(error))
    assert_clean(error)


async def test_an_error_without_secrets_leaves_as_it_is() -> None:
    """Nothing is copied where there is nothing to take out."""
    live = TaskError("no stamps")
    async with failing_flow(live) as flow:
        with pytest.raises(TaskError) as caught:
            await flow.run("(fail)")
    assert caught.value is live


async def test_a_secret_written_in_a_program_is_masked_where_errors_point() -> None:
    """The excerpt under an error keeps its columns; stars stand where the secret stood."""
    async with AgentFlow(api_key=SECRET) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(f'(begin "{SECRET}" (car 1))')
    error = caught.value
    assert error.span is not None and error.span.text == "1"
    assert f'"{"*" * len(SECRET)}" (car 1)' in error.render() and SECRET not in error.render()
