"""docs/examples.md: every example with what it prints. ``python -m tests.docs.examples_page`` runs them and writes it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.children import HANG_S, pytest_command
from tests.support.commands import run_command
from tests.support.postgres import Server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "examples.md"
INTRO = """# Examples

Each example is one file that you can run unchanged, without key and network: its model is a script, or the small extractive model
`offline`. For a real model, set `AGENTFLOW_MODEL`, for example to `anthropic:claude-sonnet-5-5`. The outputs are real:
`python -m tests.docs.examples_page` runs every example and writes this page, and a test runs each of them again.
"""
PROJECT = {
    "reader.py": '''def read(stream):
    """Read a stream; one that is cut off raises Truncated."""
    data = stream.read()
    if not data.endswith(b"END"):
        raise Truncated("the stream was cut off")
    return data
''',
    "README.md": "# Weather\n\nPrints the weather of a city.\n",
}
"""The files of the directory that examples run in."""


@dataclass(frozen=True)
class Example:
    """An example: its ``file``, a ``title``, the ``arguments`` of its command, and what to say that it does not itself.

    One that ``needs_postgres`` gets a new database by ``DATABASE_URL``.
    """

    file: str
    title: str
    arguments: tuple[str, ...] = ()
    note: str = ""
    needs_postgres: bool = False

    @property
    def path(self) -> Path:
        return EXAMPLES / self.file

    @property
    def language(self) -> str:
        return {".py": "python", ".sexp": "lisp", ".ipynb": "python"}[self.path.suffix]

    @property
    def is_text(self) -> bool:
        """Whether it is a workflow text, which ``agentflow run`` runs."""
        return self.path.suffix == ".sexp" or self.file.startswith("texts/")

    @property
    def command(self) -> list[str]:
        """The command as a reader types it."""
        shown = f"examples/{self.file}"
        if self.is_text:
            return ["agentflow", "run", shown, *self.arguments]
        if self.path.suffix == ".ipynb":
            return ["jupyter", "lab", shown]
        return ["pytest" if self.file.startswith("test_") else "python", shown, *self.arguments]

    @property
    def takes_any_model(self) -> bool:
        """Whether it takes its model from the environment: all but tests, whose models are scripted always, and a fleet."""
        return not self.is_text and not self.file.startswith("test_") and not self.needs_postgres

    def text(self) -> str:
        """The example as the page shows it; of a notebook the cells."""
        text = self.path.read_text("utf-8")
        return "\n\n".join(cells(text)) + "\n" if self.path.suffix == ".ipynb" else text


LISTED = (
    Example("map_reduce.py", "One question about every file, typed answers"),
    Example("review_bot.py", "A reviewer with tools, and an approval before a command"),
    Example("batch.py", "500 workflows under one budget", (">", "results.jsonl")),
    Example("notebook.ipynb", "A notebook"),
    Example("streaming.py", "Events as they come"),
    Example("chat.py", "A chat that survives restarts"),
    Example("approval.py", "An approval that comes tomorrow"),
    Example("support_desk.py", "A support desk: tools of one user, an agent as a tool of another"),
    Example("airline.py", "A chat with a hand-over: dependencies, a check, the agent of the conversation"),
    Example("guards.py", "Guards: a judge during the answer, around a tool and around the model"),
    Example("long_loop.py", "A long loop that stays cheap: programs in place of calls, and old results cleared"),
    Example("messages.py", "Messages to a run at work: a word to its model, a signal, its state, a raised limit"),
    Example("compare_prompts.py", "Is the cheaper model good enough? Recorded runs, evaluated again"),
    Example("better_prompt.py", "A better prompt, found from recorded runs"),
    Example(
        "killed.py",
        "A killed run that continues as an edited program",
        (),
        "The workflow is a text in Python, so that the edited one can continue the run. A killed workflow in a Python function is in `asyncio_tasks.py`.",
    ),
    Example("asyncio_tasks.py", "A durable workflow in plain asyncio, killed among its tasks"),
    Example("reuse.py", "Results that other runs use again"),
    Example("fleet.py", "500 documents, three workers, one of them killed", needs_postgres=True),
    Example("skills.py", "Skills: instructions that a model reads when it needs them"),
    Example("mcp_tools.py", "Tools of an MCP server"),
    Example(
        "mcp_server.py",
        "A program as a tool for MCP clients",
        (),
        "Shows S-expressions: the served file is a program. A Python workflow is served in the same way, with `--app MODULE:FLOW --export NAME`.",
    ),
    Example("write_code.py", "Write code until its tests pass"),
    Example(
        "saved_workflow.py",
        "A workflow by a model, saved and used again",
        (),
        'Shows S-expressions, which the model writes here. With `flow.solve(..., surface="python")` it writes a text in Python, and the rest is the same.',
    ),
    Example(
        "untrusted.py",
        "An untrusted program",
        (),
        'Shows S-expressions: the programs are foreign texts. Texts in Python are run with the same grants and limits, with `surface="python"`.',
    ),
    Example(
        "provenance.py",
        "A page with orders for the model, and a policy",
        (),
        "Shows S-expressions and Python: the same policy for a program, and for texts of both languages.",
    ),
    Example("sse.py", "Streaming into a web page"),
    Example("serve.py", "As a model, as runs and as a page"),
    Example("front_ends.py", "Behind AG-UI and `useChat`"),
    Example("front_end_tools.py", "A page with tools and a state"),
    Example("media.py", "Images, documents and sound"),
    Example(
        "caching.py",
        "Effort and prompt caching",
        (),
        "Run this one from a checkout of the repository: the cache is that of its tests' server, *simulated*.",
    ),
    Example(
        "cloud.py",
        "Claude on Amazon Bedrock",
        (),
        "Run this one from a checkout of the repository: the cloud is a server of its tests.",
    ),
    Example("test_triage.py", "Tests of an application"),
    Example(
        "find_errors.py",
        "Errors found without a model",
        (),
        "Shows S-expressions: only texts can be explored. A text in Python is explored in the same way: pass the `Path` of its `.py` file.",
    ),
    Example(
        "explain_repo.sexp",
        "Explain a repository",
        ("-b", "question=how are streams that are cut off detected?", "--model", "offline"),
        "Shows S-expressions; its Python form is the next but one. Finds the relevant files for your question, summarises them in parallel, and answers from the summaries.",
    ),
    Example(
        "improve_text.sexp",
        "Write, judge, rewrite",
        ("-b", "topic=tides", "--model", "offline"),
        "Shows S-expressions; its Python form follows below. A director-evaluator loop over three tasks. The model `offline` quotes its input and gives constant grades.",
    ),
    Example(
        "texts/explain_repo.py",
        "Explain a repository, in Python",
        ("-b", "question=how are streams that are cut off detected?", "--model", "offline"),
        "The program of `explain_repo.sexp` as a text in the [subset of Python](python-texts.md), with the same grants, limits and events. You run it with the same command.",
    ),
    Example(
        "texts/improve_text.py",
        "Write, judge, rewrite, in Python",
        ("-b", "topic=tides", "--model", "offline"),
        "The program of `improve_text.sexp` as a Python text, with a loop instead of the director-evaluator form.",
    ),
    Example(
        "texts/overview.py",
        "One question about every file, as a text",
        ("--model", "offline"),
        "The workflow of `map_reduce.py`, without its host program: tasks with typed answers, a branch for each file. `offline` fills schemas with constants.",
    ),
    Example(
        "explain_file.sexp",
        "A question for a small model",
        ("-b", "question=how are streams that are cut off detected?", "--model", "offline"),
        "Shows S-expressions, not Python: it is the program that `agentflow demo` prints for the small model. Judges the beginnings of three files in parallel, with typed answers, and answers from the best. With `--model local` a [small real model](local-models.md) needs seconds for it.",
    ),
)


def cells(notebook: str) -> list[str]:
    """The code cells of a notebook."""
    return ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]


def run(example: Example, directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an example in ``directory`` as a new user would, with these ``variables`` of the environment."""
    for name, text in PROJECT.items():
        (directory / name).write_text(text, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTFLOW_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(directory / "state"), "NO_COLOR": "1", **variables}
    tool, _, *arguments = example.command
    script = None
    if tool == "agentflow":
        command = ["run", "--no-record", str(example.path), *arguments[1:]]
    elif tool == "pytest":
        (directory / "pytest.ini").write_text("[pytest]\n", "utf-8")
        _, *command = pytest_command(directory / "base", "-c", "pytest.ini", str(example.path))
    elif tool == "jupyter":
        command = ["-m", "tests.docs.examples_page", str(example.path)]
    else:
        script, command = example.path, arguments[: arguments.index(">") if ">" in arguments else None]
    if tool in {"agentflow", "python"}:
        done = run_command(command, cwd=directory, environment=environment, script=script)
        return subprocess.CompletedProcess(command, done.code, done.out.decode(), done.err.decode())
    return subprocess.run(
        [sys.executable, *command],
        env=environment, capture_output=True, text=True, cwd=directory, timeout=HANG_S, check=False,
    )  # fmt: skip


def transcript(example: Example, directory: Path, **variables: str) -> str:
    """What an example prints, run in ``directory`` with these ``variables`` of the environment. Raises AssertionError if it fails."""
    with contextlib.ExitStack() as stack:
        if example.needs_postgres:
            server = Server()
            stack.callback(server.remove)
            server.start()
            variables["DATABASE_URL"] = server.schema()
        done = run(example, directory, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stderr if ">" in example.arguments else done.stdout
    for prefix in (f"{directory}/", f"{os.path.realpath(directory)}/"):
        printed = printed.replace(prefix, "")
    return re.sub(r"\bin \d+\.\d+s\b", "in 0.1s", printed)


def section(example: Example, printed: str) -> str:
    """The section of the page for an example that printed this."""
    shown = " ".join(f"'{word}'" if " " in word else word for word in example.command)
    note = f"{example.note}\n\n" if example.note else ""
    link = f"[examples/{example.file}](../examples/{example.file})"
    return (
        f"\n## {example.title}\n\n{note}{link}\n\n```{example.language}\n{example.text()}```\n\n"
        f"```text\n$ {shown}\n{printed.rstrip()}\n```\n"
    )


def run_notebook(path: Path) -> None:
    """Run the cells of a notebook one after the other, as a kernel does: with ``await`` outside of functions."""
    codes = [
        compile(cell, f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for number, cell in enumerate(cells(path.read_text("utf-8")), 1)
    ]

    async def run() -> None:
        names: dict[str, object] = {"__name__": "__main__"}
        for code in codes:
            waiting = eval(code, names)
            if waiting is not None:
                await waiting

    asyncio.run(run())


def main() -> None:
    """Run every example and write the page; or, with an argument, run that notebook."""
    if sys.argv[1:]:
        run_notebook(Path(sys.argv[1]))
        return
    page = INTRO
    for example in LISTED:
        with tempfile.TemporaryDirectory() as directory:
            page += section(example, transcript(example, Path(directory)))
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
