"""One workflow in both surfaces: equal values, equal paths and contents of events, equal usage."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.core.data.messages import Message
from agentflow.journal.sqlite import SqliteJournal

PAIRS: dict[str, tuple[str, str]] = {
    "a task": ('(value-of (review (path "a")))', 'review("a")'),
    "a tool": ('(value-of (shout (text "a")))', 'shout(text="a")'),
    "a failed task raises": (
        '(try (value-of (fails)) (catch (e) (get-field e "code")))',
        "try:\n    out = fails()\nexcept TaskError as e:\n    out = e.code\nout",
    ),
    "parallel": (
        '(parallel (value-of (review (path "a"))) (value-of (shout (text "b"))))',
        'parallel(review("a"), shout("b"))',
    ),
    "nested parallel": (
        '(parallel (parallel (value-of (review (path "a"))) 1) (value-of (review (path "b"))))',
        'parallel(parallel(review("a"), 1), review("b"))',
    ),
    "pmap with a limit": (
        '(pmap (lambda (p) (value-of (review (path p)))) \'("a" "b" "c") 2)',
        'pmap(review, ["a", "b", "c"], limit=2)',
    ),
    "pmap of a procedure that calls two": (
        '(define (f p) (string-append (value-of (review (path p))) (value-of (shout (text p))))) (pmap f \'("a" "b"))',
        'def f(p):\n    return review(p) + shout(p)\npmap(f, ["a", "b"])',
    ),
    "race with a fallback": (
        '(race (value-of (fails)) (value-of (review (path "a"))))',
        'race(fails(), review("a"))',
    ),
    "a timeout": ('(timeout 30 (value-of (review (path "a"))))', 'timeout(30, review("a"))'),
    "a retry": ('(retry 2 (value-of (review (path "a"))))', 'retry(2, review("a"))'),
    "a loop": (
        "(define n 0) (while (< n 3) (review (path (number->string n))) (set! n (+ n 1))) n",
        "n = 0\nwhile n < 3:\n    review(str(n))\n    n += 1\nn",
    ),
    "a log line": (
        '(log-message "half way") (value-of (review (path "a")))',
        'print("half way")\nreview("a")',
    ),
    "a task of its own": (
        '(defatom ask (params (q)) (instructions "Answer {{q}}")) (value-of (ask (q "x")))',
        '@task\ndef ask(q):\n    """Answer {{q}}"""\nask("x")',
    ),
    "a finally": (
        '(try (value-of (review (path "a"))) (finally (shout (text "done"))))',
        'def main():\n    try:\n        return review("a")\n    finally:\n        shout("done")\n',
    ),
    "text of a model as data": (
        '(map (lambda (w) (string-upcase w)) (string-split (value-of (review (path "a"))) " "))',
        '[w.upper() for w in review("a").split(" ")]',
    ),
    "a task in each branch of a loop": (
        '(map (lambda (k) (parallel (value-of (review (path k))) (value-of (shout (text k))))) \'("a" "b"))',
        '[parallel(review(k), shout(k)) for k in ["a", "b"]]',
    ),
    "a timeout in a retry in a branch": (
        '(pmap (lambda (p) (retry 2 (timeout 30 (value-of (review (path p)))))) \'("a" "b"))',
        'pmap(lambda p: retry(2, timeout(30, review(p))), ["a", "b"])',
    ),
    "a failed branch that is caught": (
        '(try (parallel (+ 1 1) (value-of (fails))) (catch (e) (list "failed" (get-field e "code"))))',
        'try:\n    out = parallel(1 + 1, fails())\nexcept TaskError as e:\n    out = ["failed", e.code]\nout',
    ),
    "a result without raising": (
        "(define r (fails)) (list (status r) (failed? r))",
        'r = outcome(fails())\n[r.status, r.status == "FAILED"]',
    ),
    "recursion that asks at each level": (
        "(define (down n) (if (= n 0) '() (append (list (value-of (review (path (number->string n))))) (down (- n 1))))) (down 3)",
        "def down(n):\n    return [] if n == 0 else [review(str(n))] + down(n - 1)\ndown(3)",
    ),
    "a task as a value": (
        '(map (lambda (p) (value-of (review (path p)))) \'("a" "b"))',
        'list(map(review, ["a", "b"]))',
    ),
    "a program within the program": (
        '(eval-program \'(value-of (shout (text "a"))) (allow shout))',
        "eval_program(\"shout(text='a')\", allow=['shout'])",
    ),
}
DIFFERENT = {"a program within the program"}
"""Whose text, and so the content of its effect and the language of its event, is another in each surface."""
PLACES = {
    "span",
    "source",
    "program",
    "digest",
    "run_id",
    "seq",
    "started",
    "parent",
    "time",
    "text",
    "session",
    "language",
    "steps",
}
"""What events have of the text and of the run they were in."""


def answer(request: Any) -> Any:
    """A model that repeats the last words it was sent."""
    last: Message = request.messages[-1]
    return f"seen {last.text[-20:]}"


@asynccontextmanager
async def flow(durable: str | None = None) -> AsyncGenerator[AgentFlow]:
    """A flow with a task, a tool, and a tool that fails."""
    async with AgentFlow(provider=ScriptedProvider(answer), durable=durable) as made:

        @made.tool
        def shout(text: str) -> str:
            """Say it loud."""
            return text.upper()

        @made.tool
        async def fails() -> str:
            """Fail."""
            raise ValueError("no")

        await made.define('(defatom review (params (path)) (instructions "Review {{path}}"))')
        yield made


def told(event: Any) -> str:
    """An event without its place in the text, in the run and in time."""
    data = {k: v for k, v in event.to_dict().items() if k not in PLACES and not k.endswith(("_s", "_at", "_ms", "_id"))}
    if isinstance(error := data.get("error"), dict):
        data["error"] = {k: v for k, v in error.items() if k != "span"}
    text = json.dumps(data, sort_keys=True, default=str).replace("<python>", "<string>")
    return re.sub(r'"cache_key": "\w+"', "", text)


async def ran(text: str, surface: Any) -> tuple[Any, list[Any], Any]:
    """Value, events and usage of a run."""
    async with flow() as made, made.stream(text, surface=surface) as run:
        events = [told(each) async for each in run]
        try:
            value: Any = await run.value()
        except AgentflowError as error:
            value = error.code
        return value, sorted(events), run.account.usage


async def records(text: str, surface: Any, directory: Path) -> list[Any]:
    """The records of the effects of a durable run: keys, paths, what was asked for, how it ended, and what it used."""
    url = f"sqlite:///{directory / (surface or 'sexp')}.db"
    async with flow(url) as durable:
        handle = await durable.start(text, run_id="r", surface=surface)
        with contextlib.suppress(AgentflowError):
            await handle.result()
    journal = SqliteJournal(directory / f"{surface or 'sexp'}.db")
    rows = await journal.effects("r")
    await journal.aclose()
    return sorted([(each.key, each.path, each.kind, each.name, each.content, each.state, each.usage) for each in rows])


def test_there_are_twenty_of_them() -> None:
    """Twenty workflows are compared, at least."""
    assert len(PAIRS) >= 20


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - DIFFERENT))
async def test_both_surfaces_do_the_same(name: str) -> None:
    """Effects are numbered where they start, so both have the same events and the same usage."""
    sexp, python = PAIRS[name]
    assert await ran(sexp, None) == await ran(python, "python")


@pytest.mark.parametrize("name", sorted(DIFFERENT))
async def test_programs_within_have_equal_values_and_usage(name: str) -> None:
    """A text that another one runs is written in the language of that one: all but what is said of the text is equal."""
    sexp, python = [await ran(text, surface) for text, surface in zip(PAIRS[name], (None, "python"), strict=True)]
    assert (sexp[0], sexp[2], len(sexp[1])) == (python[0], python[2], len(python[1]))


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - DIFFERENT))
async def test_both_surfaces_have_the_same_keys(name: str, tmp_path: Path) -> None:
    """The journal of a durable run has the same records: a run may be gone on with in the other surface."""
    sexp, python = PAIRS[name]
    kept = await records(sexp, None, tmp_path)
    assert kept == await records(python, "python", tmp_path)
    assert kept or name == "a log line"


async def test_closures_of_each_surface_are_procedures_of_the_other(tmp_path: Path) -> None:
    """Values, defaults and environments cross over; a file's name says its language."""
    async with flow() as made:
        python = (await made.run("def f(x, y=2):\n    return x + y\nf", surface="python")).value
        sexp = (await made.run("(lambda (x) (* x 2))")).value
        assert (await made.run("(map f '(1 2))", bindings={"f": python})).value == [3, 4]
        assert (await made.run("[g(4), list(map(g, [1]))]", bindings={"g": sexp}, surface="python")).value == [8, [2]]
        assert await made.call(python, 3) == 5
        file = tmp_path / "add.py"
        file.write_text("@workflow\ndef main(n: int):\n    return n + 1\n")
        assert (await made.run(file, bindings={"n": 4})).value == 5
        with pytest.raises(AgentflowError) as caught:
            await made.run(file, surface="sexp")
        assert caught.value.code == "program/surface"


async def test_sets_leave_a_program_as_lists_in_order() -> None:
    """In results and in arguments of tools: nobody outside has to know what a set of a text is."""
    async with flow() as made:
        assert (await made.run("[{3, 1}, {'k': {2}}]", surface="python")).value == [[3, 1], {"k": [2]}]
