"""Every example runs as a new user would run it, and docs/examples.md shows what it prints."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from agentflow.testing import Script
from tests.docs.examples_page import EXAMPLES, INTRO, LISTED, PAGE, Example, run, section, transcript

HEAVY = ("caching.py", "cloud.py")
"""Examples that import a vendor's SDK: seconds of processor time."""


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(each, marks=[pytest.mark.slow] if each.file in HEAVY else [], id=each.file)
        for each in LISTED
        if not each.needs_postgres
    ],
)
def test_an_example_prints_what_the_page_shows(example: Example, tmp_path: Path) -> None:
    """Without key and network; ``python -m tests.docs.examples_page`` writes the page anew."""
    assert section(example, transcript(example, tmp_path)) in PAGE.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("example", [each for each in LISTED if each.needs_postgres], ids=lambda example: example.file)
@pytest.mark.usefixtures("postgres_server")
def test_a_fleet_prints_what_the_page_shows(example: Example, tmp_path: Path) -> None:
    """The same with a server of its own, where there is one to be had, and a fifth of the documents."""
    printed = transcript(example, tmp_path, DOCUMENTS="100").replace("100", "500")
    assert section(example, printed) in PAGE.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("example", [each for each in LISTED if each.takes_any_model], ids=lambda example: example.file)
def test_an_example_runs_with_any_model(example: Example, tmp_path: Path) -> None:
    """Nothing in an example depends on what its script answers: one that fits the schema and no more is no crash."""
    done = run(example, tmp_path, AGENTFLOW_MODEL="offline")
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout or done.stderr


def test_the_page_has_every_example_and_nothing_else() -> None:
    """An example is one file of less than 120 lines, and each has its section."""
    page = PAGE.read_text("utf-8")
    found = (path for path in EXAMPLES.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    files = {path.relative_to(EXAMPLES).as_posix() for path in found}
    assert files == {example.file for example in LISTED}
    assert page.startswith(INTRO) and page.count("\n## ") == len(LISTED)
    assert not [name for name in files if len((EXAMPLES / name).read_text("utf-8").splitlines()) >= 120]


def test_an_example_is_in_python_or_says_which_language_it_shows() -> None:
    """An example with a program in S-expressions says so in its listing, with its Python form."""
    sexp = re.compile(r"\((?:defatom|define|lambda \(|value-of|get-field|string-append|solve) ?")
    silent = [
        each.file
        for each in LISTED
        if sexp.search(each.path.read_text("utf-8")) and not ("S-expressions" in each.note and "Python" in each.note)
    ]
    assert not silent


async def test_the_run_of_a_stream_ends_when_the_browser_goes_away() -> None:
    """In examples/sse.py a response that nobody reads any more cancels its model call, at whatever point it stands."""
    spec = importlib.util.spec_from_file_location("sse_example", EXAMPLES / "sse.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    scope = {"type": "http", "asgi": {"version": "3.0"}, "method": "GET", "path": "/poem", "raw_path": b"/poem"}
    scope |= {"query_string": b"about=rain", "headers": [], "http_version": "1.1", "scheme": "http", "root_path": ""}
    for app in (example.starlette_app, example.fastapi_app):
        for waits_for_model in (True, False):
            await _leave(example, app, dict(scope), waits_for_model)
    await example.flow.aclose()


async def _leave(example: Any, app: Any, scope: dict[str, Any], waits_for_model: bool) -> None:
    """Ask for a stream and go away, while its model has not answered or while a piece of its answer is sent."""
    ended, gone, began = asyncio.Event(), asyncio.Event(), False

    async def answer(_: object) -> str:
        if waits_for_model:
            gone.set()
            await asyncio.Event().wait()
        return "one two three four"

    async def receive() -> dict[str, Any]:
        nonlocal began
        if not began:
            began = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            gone.set()
            await asyncio.Event().wait()

    script = Script()
    script.on("poem", answer)
    unsubscribe = example.flow.subscribe(lambda event: ended.set() if event.type == "run_finished" else None)
    with script.answers(example.flow):
        await app(scope, receive, send)
        await ended.wait()
    unsubscribe()
