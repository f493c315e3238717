"""Messages are for whoever reads them: no S-expression for authors in Python, no call in Python for authors of TOML, no path of
the server for clients of HTTP."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from agentflow import AgentFlow, AgentflowError, Limits, ScriptedProvider
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms import FORMS
from agentflow.lib.text.toml_words import in_toml
from agentflow.settings import Settings, read_file
from tests.cli.test_command import ROOT
from tests.support.commands import said_by
from tests.support.served import served

WRONG = (
    '"x"', "-1", "true", "[1]", "{ zzz = 1 }", "{ a = -1 }", "{ a = { zzz = 1 } }", '{ a = { input = "x", output = 1 } }',
    "{ a = { usd = -1 } }", '{ a = { per = "x" } }', '{ a = { requests_per_min = "x" } }', "{ a = { command = 1 } }",
    '{ a = { url = "x" } }', '{ output = "zzz" }', "{ attempts = 0 }", '{ connect_s = "x" }', "{ sink = [{ name = 1 }] }",
)  # fmt: skip
"""Values of the wrong kind for the settings and their tables."""
_PYTHON = re.compile(r"\w\([a-z_]+=|\bNone\b|\bTrue\b|\bFalse\b|\{'|\bflow\.")
_FORM = re.compile(
    rf"\((?:{'|'.join(map(re.escape, sorted({*FORMS, *PRIMITIVES} - {'and', 'or', 'not', 'if', 'list'})))}) [^)]"
)
"""The beginning of an S-expression whose operator is not a word of English prose in brackets."""
TEXTS = (
    "x", "x()", "1 / 0", "[1][5]", "{}['a']", "None + 1", "'a' + 1", "int('x')", "max([])", "[].pop()", "raise ValueError('x')",
    "sorted([1, 'a'])", "ask(1, 2, 3)", "pmap(1, [2])", "parallel()", "race()", "retry(0, 1)", "timeout('x', 1)", "solve()",
    "fetch('a')", "fetch(path=1, other=2)", "fetch()", "fetch", "review(1)", "review()", "outcome(1)", "sleep('x')", "ask_human()",
    "def f(x):\n    return x\nf()", "for x in 5:\n    pass", "a, b = [1]", "assert False, 'no'", "while True:\n    pass",
    "director_evaluator_loop(1, 2, 3, 4, 5, 6)", "eval_program('(')", "call_workflow('none')", "json.loads('{')", "'a'.foo()",
    "x = [1]\npmap(lambda y: x.append(y), [1])", "system.read_files(file_paths=['nope'])", "remember(1)", "import os\nos.getcwd()",
)  # fmt: skip


def settings_texts() -> list[str]:
    """Files with one wrong setting each."""
    tables = [f"[limits]\n{field.name} = {value}" for field in fields(Limits) for value in ('"x"', "-1", "true")]
    return [*[f"{name} = {value}" for name in Settings.model_fields for value in WRONG], *tables]


def test_errors_of_a_settings_file_are_in_its_own_words(tmp_path: Path) -> None:
    """Whatever is wrong in ``agentflow.toml``, neither message nor hint calls anything in Python."""
    seen = 0
    for text in settings_texts():
        (tmp_path / "agentflow.toml").write_text(f"{text}\n")
        try:
            read_file(tmp_path, trusting=True)
        except AgentflowError as error:
            seen += 1
            assert not _PYTHON.search(f"{error.message}\n{error.hint or ''}"), (text, error.message, error.hint)
    assert seen > 300


def test_options_of_the_command_line_are_in_their_own_words(tmp_path: Path) -> None:
    """A wrong limit, clock or number of attempts is named as the option has it."""
    for option, name in (("--limit", "usd=-1"), ("--clock", "idle_s=-1"), ("--retries", "attempts=0")):
        done = said_by("run", "-e", "1", option, name, cwd=tmp_path)
        assert done.returncode == 2 and not _PYTHON.search(done.stderr), done.stderr
        assert name.replace("=", " = ") in done.stderr


@pytest.mark.parametrize(
    ("message", "toml"),
    [
        ("Price(input=-1): a price is a number", "input = -1: a price is a number"),
        ("for example Allowance(usd=5, per='1d')", 'for example usd = 5, per = "1d"'),
        ("a clock is a number, or None", "a clock is a number, or left out"),
        ("write Provider(traits={'output': 'prompt'}) or more", 'write traits = { output = "prompt" } or more'),
        ("no call (at all), and f(x) neither", "no call (at all), and f(x) neither"),
        ("AgentFlow(model", "AgentFlow(model"),
    ],
)
def test_a_call_in_python_becomes_the_fields_of_a_table(message: str, toml: str) -> None:
    """The fields of a call are written as TOML has them; anything else stays."""
    assert in_toml(message) == toml


async def test_errors_of_texts_in_python_have_no_s_expressions() -> None:
    """What is wrong with a text in Python, at compile time or at run time, is said in Python."""
    seen = 0

    async with AgentFlow(provider=ScriptedProvider(lambda request: "x"), limits=Limits(steps=10_000)) as flow:

        @flow.tool
        async def fetch(path: str) -> str:
            """Fetch."""
            return path

        @flow.task
        async def review(path: str) -> int:
            """Review {{path}}."""

        for text in TEXTS:
            try:
                await flow.run(text, surface="python")
            except AgentflowError as error:
                seen += 1
                assert not _FORM.search(f"{error.message}\n{error.hint}"), (text, error.message, error.hint)
    assert seen > 30


def test_rooms_that_serve_both_languages_write_neither() -> None:
    """Outside of the rooms of S-expressions no message or hint has one: tasks, tools, runs and flows are called from Python
    too. Texts that are chosen by language are the exceptions."""
    chosen = {"tasks/granted.py", "cli/check/skill.py", "cli/run/repl.py", "cli/shared/common.py", "serve/exports.py"}
    literal = re.compile(r'(?:hint=|Error\(\s*)f?"([^"\n]*)"')
    wrong = [
        f"{path.relative_to(ROOT / 'agentflow')}: {text}"
        for path in (ROOT / "agentflow").rglob("*.py")
        if path.relative_to(ROOT / "agentflow").parts[0] not in ("lang", "spec")
        if str(path.relative_to(ROOT / "agentflow")) not in chosen
        for text in literal.findall(path.read_text("utf-8"))
        if _FORM.search(text) or re.search(r"\(\{\w+\} \(", text)
    ]
    assert not wrong, wrong


async def test_clients_of_a_server_read_no_path_of_it(tmp_path: Path) -> None:
    """Programs, workflows and tools that fail, files that are missing: no body or event has the server's directories."""
    programs = {
        "bad.sexp": "(define (f x) (car x))\n(f (list))",
        "wrong.py": "def main(message):\n    return {}[message]\n",
        "reads.sexp": '(value-of (system:read_files (file_paths (list "none.txt"))))',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    async with AgentFlow(provider=ScriptedProvider(["x"]), root=tmp_path) as flow:

        @flow.workflow
        async def opens(message: str) -> str:
            """Open a file that is not there."""
            return (tmp_path / message).read_text()

        exports = [*[tmp_path / name for name in programs], opens]
        async with served(flow, exports) as server:
            bodies: list[str] = []
            for export in ("bad", "wrong", "reads", "opens", "none"):
                for bindings in ({"message": "x"}, {}, {"other": 1}):
                    answer = await server.post("/runs", {"export": export, "bindings": bindings})
                    bodies.append(answer.text)
                    if answer.status_code == 201:
                        run_id = answer.json()["run_id"]
                        bodies.append(str(await server.ended(run_id)))
                        bodies += [str(event) async for event in server.events(run_id)]
            for path in ("/", "/none", "/runs", "/runs/none", "/runs/none/events"):
                bodies.append((await server.get(path)).text)
    assert len(bodies) > 25
    for body in bodies:
        assert str(tmp_path) not in body and str(ROOT) not in body, body
