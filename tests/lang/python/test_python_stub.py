"""The stub with which editors and pyright understand workflow texts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import agentflow
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import UNKNOWN
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.python.compiling import findings_of
from agentflow.lang.python.failure import CLASSES
from agentflow.lang.python.forms import FORMS

STUB = Path(agentflow.__file__).with_name("workflow.pyi")
TEXT = '''from typing import Literal
from agentflow.workflow import TaskError, ask, fetch, outcome, pmap, race, retry, task, timeout, workflow

class Review:
    worst: str
    grade: Literal["low", "high"]

@task(model="m", tools=["search"], history=False)
def review(path: str, text: str) -> Review:
    """Name the worst bug in {{path}}: {{text}}"""
    ...

@workflow(allow=["review", "fetch"])
def main(paths: list[str]) -> list[str]:
    """Review files and name the worst bugs."""
    def attempt(p: str) -> str:
        try:
            return retry(2, review(p, fetch(path=p))).worst
        except TaskError as e:
            return e.code
    count: int = timeout(5, race(ask("How many?", output=int), 3))
    status: Literal["COMPLETE", "FAILED", "CONTINUATION"] = outcome(review("a", "b")).status
    return pmap(attempt, paths, limit=count) + [status]
'''


def test_the_stub_names_what_texts_find() -> None:
    """Every form and decorator, and the class of errors that Python has not."""
    tree = ast.parse(STUB.read_text("utf-8"))
    names = {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    forms = {name for name in FORMS if "." not in name} - {"print"}
    assert forms | {"task", "workflow", "TaskError"} <= names and "TaskError" in CLASSES
    assert names - forms == {"task", "workflow", "TaskError", "Outcome", "__getattr__"}


def test_the_text_is_one_that_runs() -> None:
    """What pyright is shown has no mistake for the language either."""
    assert not findings_of(Source("t.py", TEXT, "python"), lambda _: UNKNOWN, Limits(), None, None)[0]


@pytest.mark.parametrize("rest", ["", "...", "raise NotImplementedError"])
def test_a_prompt_may_stand_before_what_type_checkers_want(rest: str) -> None:
    """Pyright wants ``...`` where there is no code, mypy ``raise NotImplementedError``: both mean nothing in the body of a task, other code is refused."""
    declared = f'@task\ndef name(path: str) -> str:\n    """Name {{{{path}}}}"""\n    {rest}\nname("a")'
    assert not findings_of(Source("t.py", declared, "python"), lambda _: UNKNOWN, Limits(), None, None)[0]
    other = declared.replace(
        '\nname("a")', "raise ValueError\nname('a')" if not rest else "; raise ValueError\nname('a')"
    )
    error, *_ = findings_of(Source("t.py", other, "python"), lambda _: UNKNOWN, Limits(), None, None)[0]
    assert isinstance(error, AgentflowError) and error.code == "defatom/instructions"


@pytest.mark.slow
def test_pyright_understands_a_workflow_text(tmp_path: Path) -> None:
    """No error in a text with tasks, records, branches and tools; a wrong argument is one."""
    (tmp_path / "good.py").write_text(TEXT)
    (tmp_path / "bad.py").write_text(TEXT.replace("pmap(attempt, paths, limit=count)", "pmap(attempt, [1], limit='x')"))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"reportMissingModuleSource": "none"}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert {Path(each["file"]).name for each in found} == {"bad.py"}, found
