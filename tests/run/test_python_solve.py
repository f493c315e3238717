"""Programs in Python that models write, and saved workflows in Python, beside those in S-expressions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.core.data.errors import DataError
from agentflow.lang.card import language_card
from agentflow.lang.python.reference import EXAMPLES
from agentflow.lib.text.fences import program_of
from agentflow.tasks.workflows import Workflow, make_workflow


@asynccontextmanager
async def flow(model: Callable[[Any], Any] | None = None, **options: Any) -> AsyncGenerator[AgentFlow]:
    """A flow with a tool and a task, whose model is ``model``."""
    async with AgentFlow(provider=ScriptedProvider(model or (lambda request: "?")), **options) as made:

        @made.tool
        def fetch(path: str) -> str:
            """Read an invented file."""
            return "one two two"

        await made.define('(defatom ask-about (params (question)) (instructions "Q {{question}}"))')
        yield made


class Author:
    """A model that writes one program after the other, and remembers what it was sent."""

    def __init__(self, *programs: str) -> None:
        self.programs = list(programs)
        self.sent: list[str] = []

    def __call__(self, request: Any) -> str:
        text = request.messages[-1].text
        if text.startswith("Q "):
            return f"re: {text[2:]}"
        self.sent.append(f"{request.system}\n{text}")
        return self.programs.pop(0)


def test_the_card_is_short_and_complete() -> None:
    """At most 900 tokens, three characters each; every function and method of the tables stands in it."""
    card = language_card("python")
    assert len(card) / 3 <= 900
    assert all(example.program in card for example in EXAMPLES)
    assert all(word in card for word in ("json.loads", "sorted", "removeprefix", "setdefault", "pmap(f, xs, limit=8)"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.about)
async def test_the_examples_of_the_card_run(example: Any) -> None:
    """Each gives the value that it says; a task whose name has a hyphen is called with an underscore."""
    async with flow(Author()) as made:
        assert (await made.run(example.program, surface="python")).value == (await made.run(example.value)).value


async def test_a_model_writes_python_and_mends_it_by_python_diagnostics() -> None:
    """The card, the granted names and what was wrong are told in Python's syntax; the program may call what is granted."""
    author = Author(
        "```python\nimport os\nlen(fetch(pat='a'))\n```",
        "Better:\n```python\nrow = fetch(path=name)\n[ask_about(w) for w in row.splt()]\n```",
        "```python\npmap(ask_about, fetch(path=name).split()[:2])\n```",
    )
    async with flow(author) as made:
        result = await made.run(made.solve("g", allow=["fetch", "ask-about"], inputs={"name": "n"}, surface="python"))
    assert result.value == ["re: one", "re: two"]
    first, second, third = author.sent
    assert "pmap(f, xs, limit=8)" in first and "fetch(path: str) -> str tool: Read an invented file." in first
    assert "ask_about(question: Any) task" in first and "(define" not in first
    assert "'import os'" in second and "no parameter 'pat'" in second and "did you mean 'path'?" in second
    assert "there is no method 'splt'" in third and "did you mean 'split'?" in third


async def test_what_is_not_granted_does_not_run_in_either_surface() -> None:
    """A program that names an ungranted tool is refused before anything of it runs."""
    for surface, program in (("python", "fetch(path='x')"), ("sexp", '(fetch (path "x"))')):
        async with flow(Author(program)) as made:
            with pytest.raises(AgentflowError) as caught:
                await made.solve("g", max_rounds=1, surface=surface)  # type: ignore[arg-type]
            assert "is no" in caught.value.message or "not granted" in caught.value.message


async def test_the_flow_says_in_which_surface_solve_writes() -> None:
    """``AgentFlow(surface=)`` is the default of ``solve``, in texts of both surfaces; an argument goes before it."""
    async with flow(Author("1 + 1", "2 * 3", "(+ 4 5)"), surface="python") as made:
        assert (await made.run('(value-of (solve "g"))')).value == 2
        assert (await made.run('solve("g").parsed_content', surface="python")).value == 6
        assert await made.solve("g", surface="sexp") == 9
    with pytest.raises(AgentflowError, match="no surface 'lisp'"):
        async with flow(surface="lisp"):
            pass


def test_the_program_of_an_answer_is_its_python() -> None:
    """Fenced blocks of Python or of nothing, joined; without a fence the whole; other languages only if nothing else is there."""
    assert program_of("Sure\n```python\na = 1\n```\nand\n```\na\n```", "python") == "a = 1\n\na"
    assert program_of("```sh\nls\n```\n```py\n1\n```", "python") == "1"
    assert program_of("1 + 1\n", "python") == "1 + 1"
    assert program_of("```lisp\n(f)\n```", "python") == "(f)"


DECLARED = '''
class Row:
    name: str

@workflow(allow=["fetch", "shout"])
def main(path: str, rows: list[Row], times: int = 2) -> list[str]:
    """Read a file, and say it."""
    return [call_workflow("shout", text=fetch(path))] * times + [r.name for r in rows]
'''


async def test_workflows_of_both_surfaces_call_each_other(tmp_path: Path) -> None:
    """A ``.py`` file declares itself by ``@workflow``, or has a header; grants, parameters and calls are those of S-expressions."""
    (tmp_path / "read.py").write_text(DECLARED)
    (tmp_path / "plain.py").write_text("1 + 1")
    async with flow(workflows=tmp_path) as made:
        await made.workflows.load()
        read = made.workflows.find("read")
        assert read is not None and read.allow == ["fetch", "shout"] and read.description == "Read a file, and say it."
        assert [each.required for each in read.params.values()] == [True, True, False]
        shout = {"name": "shout", "params": {"text": "string"}, "program": "text.upper()", "allow": []}
        await made.workflows.save(make_workflow({**shout, "surface": "python"}))
        nested = '(value-of (call-workflow read (path "p") (rows (list {"name" "x"}))))'
        await made.workflows.save(make_workflow({"name": "lisp", "params": {}, "program": nested, "allow": None}))
        assert (tmp_path / "shout.py").read_text().startswith("### agentflow workflow 1\n")
    async with flow(workflows=tmp_path) as again:
        assert (await again.run('call_workflow("lisp")', surface="python")).value == [
            "ONE TWO TWO",
            "ONE TWO TWO",
            "x",
        ]
        assert again.workflows.names() == ["lisp", "read", "shout"]
        wrong = 'call_workflow("read", path="p", rows=[{"nme": 1}])'
        narrow = await again.run(f"outcome({wrong}).status", surface="python")
        assert narrow.value == "FAILED"
        with pytest.raises(AgentflowError, match="nme"):
            await again.run(wrong, surface="python")
        with pytest.raises(AgentflowError, match="not granted"):
            await again.run('call_workflow("lisp")', surface="python", allow=["lisp", "read", "shout"])


async def test_workflows_with_faults_are_refused(tmp_path: Path) -> None:
    """Of the program when it is saved, of the declaration when it is read; and a second file of the same workflow."""
    async with flow(workflows=tmp_path) as made:
        fields = {"name": "w", "params": {}, "surface": "python", "allow": []}
        with pytest.raises(DataError, match="not granted to this program"):
            await made.workflows.save(make_workflow({**fields, "program": "fetch(path='x')"}))
        await made.workflows.save(make_workflow({**fields, "program": "1"}))
        with pytest.raises(DataError, match=r"a second file of 'w', beside w\.py"):
            await made.workflows.save(make_workflow({"name": "w", "params": {}, "program": "1", "allow": []}))
    (tmp_path / "bad.py").write_text("@workflow(alow=[])\ndef main(x: Path):\n    return x\n")
    async with flow(workflows=tmp_path) as made:
        with pytest.raises(DataError, match="takes the names that it may call"):
            await made.workflows.load()


async def test_a_plan_in_python_is_saved_as_it_was_written(tmp_path: Path) -> None:
    """The result of ``solve`` says its surface, and so does the workflow that is made of it."""
    async with flow(Author("[n * 2]"), workflows=tmp_path, surface="python") as made:
        plan = ((await made.run('(solve "g" (inputs {"n" 2}))')).value).with_notes()
        await made.workflows.save(Workflow.from_result(plan, "plan", params="n"))
    async with flow(workflows=tmp_path) as again:
        assert ((await again.run("(call-workflow plan (n 4))")).value).parsed_content == [8]
