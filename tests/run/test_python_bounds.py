"""Bounds of texts in Python where flows use them: refusals before the first effect, one approval, workflows, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Limits
from agentflow.cli.check.bounds import Maxima, bounds_files
from agentflow.cli.shared.common import Exit
from agentflow.cli.shared.options import FlowOptions
from agentflow.core.data.errors import AgentflowError
from agentflow.core.events.events import Event, ProgramBounds
from agentflow.lang.bounds.polynomial import UNBOUNDED
from agentflow.providers.scripted import ScriptedProvider
from tests.hostile.test_hostile_manifest import Desk

TASK = '(defatom ask (params (x string)) (instructions "Ask {{x}}") (tools))'
REVIEW = '''
@task(tools=[])
def review(path: str) -> str:
    """Review {{path}}"""

def main(files: list[str]):
    return pmap(review, files, limit=4)
'''


async def test_a_text_has_the_bounds_of_its_tasks() -> None:
    """Tasks that the text defines, asks of a model and schemas with lengths count as in S-expressions."""
    async with AgentFlow("offline") as flow:
        found = await flow.bounds(REVIEW, surface="python")
        assert (str(found.model_calls), str(found.width)) == ("len(files)", "4")
        assert found.authority.tasks == ("review",) and found.authority.complete
        assert found.at({"files": 50})["model_calls"] == 50
        asked = await flow.bounds("def main(files):\n    return [ask(f'{f}') for f in files]", surface="python")
        assert str(asked.model_calls) == "len(files)"
        endless = await flow.bounds("while True:\n    ask('x')", surface="python")
        assert endless.model_calls == UNBOUNDED and endless.unbounded[0].span.line == 1


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("list[str]", "2 + len(plan)"),
        ("Annotated[list[str], Field(max_length=8)]", "10"),
        ("Annotated[list[str], MaxLen(5)]", "7"),
        ("Annotated[list[Annotated[str, Field(max_length=80)]], Field(min_length=1, max_length=3)]", "5"),
    ],
)
async def test_a_length_in_a_type_is_a_bound(kind: str, bound: str) -> None:
    """A list that its type bounds counts as that many, as in S-expressions."""
    text = (
        f'@task(tools=[])\ndef plan(x: str) -> {kind}:\n    """Plan {{{{x}}}}"""\n\n'
        '@task(tools=[])\ndef step(s: str) -> str:\n    """Do {{s}}"""\n\n[step(s) for s in plan("x")]'
    )
    async with AgentFlow("offline") as flow:
        assert str((await flow.bounds(text, surface="python")).model_calls) == bound


async def test_a_compiled_text_counts_its_calls() -> None:
    """``flow.compile(text).bounds()`` of a Python text, by name of the effect."""
    async with AgentFlow("offline") as flow:
        await flow.define(TASK)
        found = flow.compile("[ask(x=f) for f in files]", bindings={"files": []}, surface="python").bounds()
        assert str(found.counts["task:ask"]) == "len(files)"


async def test_a_program_past_what_is_left_is_refused_before_its_first_effect() -> None:
    """eval_program and solve refuse a text in Python whose bound is above the model calls that are left; nothing of it runs."""
    model = ScriptedProvider(["[ask(x=i) for i in range(9)]", "ask(x='1')", "done"])
    async with AgentFlow(provider=model, limits=Limits(model_calls=4)) as flow:
        await flow.define(TASK)
        text = "eval_program('for i in range(5):\\n    ask(x=i)', allow=['ask'])"
        with pytest.raises(AgentflowError) as caught:
            await flow.run(text, surface="python")
        assert caught.value.code == "bounds/over-budget" and "5 model calls, and 4 are left" in caught.value.message
        assert not model.requests
        assert await flow.solve("ask nine times", allow=["ask"], surface="python") == "done"
        assert "9 model calls, and 3 are left" in str(model.requests[1])


async def test_a_loose_task_is_told_as_it_is_written_here() -> None:
    """What to write at a task that names no tools is in the syntax of the text."""

    def look(x: str) -> str:
        """Look something up."""
        return x

    async with AgentFlow("offline", tools=[look]) as flow:
        found = await flow.bounds(
            '@task\ndef plan(x: str) -> str:\n    """Plan {{x}}."""\nplan(x="a")', surface="python"
        )
        assert "'plan' names no tools" in found.loose[0] and found.loose[0].endswith(
            "@task(tools=[]) offers none, @task(max_turns=4) fewer turns"
        )


async def test_tasks_of_the_text_around_count_where_one_is_refused() -> None:
    """A text that calls tasks which the text around it defines is bounded, and refused, as one that calls those of the flow; so it runs
    where there is enough left."""
    text = '@task(tools=[])\ndef say(n: int) -> str:\n    """Say {{n}}."""\neval_program("[say(n=n) for n in range(5)]", allow=["say"])'
    model = ScriptedProvider(["a", "b", "c", "d", "e"])
    async with AgentFlow(provider=model) as flow:
        with pytest.raises(AgentflowError, match="5 model calls, and 4 are left"):
            await flow.run(text, surface="python", limits=Limits(model_calls=4))
        assert not model.requests
        assert (await flow.run(text, surface="python", limits=Limits(model_calls=5))).value == ["a", "b", "c", "d", "e"]


async def test_one_program_in_python_is_approved_instead_of_its_calls() -> None:
    """The approver sees the text, what it reaches and its bounds, once; then it runs, and may call nothing else."""
    desk = Desk()
    async with desk.flow("for line in [*lines, 1]:\n    write(text=line)") as flow:
        allow = ["write", "wipe", "note"]
        await flow.solve("write them", allow=allow, surface="python", inputs={"lines": ["a", "b"]})
    assert desk.done == ["write a", "write b", "write 1"]
    (request,) = desk.asked
    manifest = request.manifest
    assert request.tool == "program" and manifest is not None
    assert (manifest.covers, manifest.tool_calls, manifest.model_calls) == (("write",), "3", "0")
    assert all(grants is not None and "wipe" not in grants and "note" not in grants for grants in desk.grants)


async def test_a_python_program_that_may_call_what_it_does_not_show_asks_for_each_call() -> None:
    """Functions out of data have no bound, and so no approval as a whole."""
    desk = Desk()
    async with desk.flow(
        "write(text=1)\nf = note(text=2)\ng = [f]\nwrite(text=len(g))\ng[0]() if False else 1"
    ) as flow:
        await flow.solve("write", allow=["write", "wipe", "note"], surface="python")
    assert desk.done == ["write 1", "write 1"] and [each.tool for each in desk.asked] == ["write", "write"]


async def test_workflows_of_both_surfaces_are_followed_by_name(tmp_path: Path) -> None:
    """A saved workflow in Python is followed with the sizes of what it is given, from either surface."""
    (tmp_path / "each.py").write_text(
        "@workflow(allow=['ask'])\ndef main(xs: list[str]):\n    return [ask(x=x) for x in xs]\n"
    )
    async with AgentFlow("offline", workflows=tmp_path) as flow:
        await flow.define(TASK)
        sexp = await flow.bounds("(call-workflow each (xs (append files files)))")
        python = await flow.bounds("call_workflow('each', xs=files + files)", surface="python")
        assert str(sexp.model_calls) == str(python.model_calls) == "2*len(files)"


async def test_a_program_that_changes_what_it_is_given_is_seen_to(tmp_path: Path) -> None:
    """Lists that are given to a program in Python may be other ones afterwards: their lengths are not known any more."""
    (tmp_path / "grow.py").write_text("@workflow(allow=[])\ndef main(xs):\n    xs.append('a')\n")
    (tmp_path / "look.py").write_text("@workflow(allow=[])\ndef main(xs):\n    return len(xs)\n")
    counted = "[ask(x=x) for x in xs]"
    async with AgentFlow("offline", workflows=tmp_path) as flow:
        await flow.define(TASK)
        for name, bound in {"grow": "no bound", "look": "1"}.items():
            found = await flow.bounds(f"xs = [1]\ncall_workflow('{name}', xs=xs)\n{counted}", surface="python")
            assert str(found.model_calls) == bound
            sexp = f"(define xs (list 1)) (call-workflow {name} (xs xs)) (map (lambda (x) (ask (x x))) xs)"
            assert str((await flow.bounds(sexp)).model_calls) == bound
        inner = f"xs = [1]\neval_program('xs.append(2)', bindings={{'xs': xs}})\n{counted}"
        assert (await flow.bounds(inner, surface="python")).model_calls == UNBOUNDED
        ran = await flow.run(f"xs = [1]\ncall_workflow('grow', xs=xs)\n{counted}", surface="python")
        assert len(ran.value) == 2


async def test_files_in_python_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``agentflow check --bounds review.py`` prints the table, and is a gate."""
    path = tmp_path / "review.py"
    path.write_text(REVIEW, "utf-8")
    options = FlowOptions(model="offline")
    assert await bounds_files([str(path)], options, sizes=["files=50"], maxima=Maxima()) == Exit.OK
    assert "model calls len(files) = 50" in capsys.readouterr().out
    found = await bounds_files([str(path)], options, sizes=["files=50"], maxima=Maxima(model_calls=40), as_json=True)
    assert found == Exit.DIAGNOSTICS
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert [each["code"] for each in file["diagnostics"]] == ["bounds/over-budget"]


class _Watching:
    """An observer that asks for the bounds of programs."""

    bounds = True

    def __init__(self) -> None:
        self.most: list[Any] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, ProgramBounds):
            self.most.append(event.most)


async def test_the_bound_of_a_run_is_told() -> None:
    """A run of a text in Python publishes what it may do at most, where an observer asks for it."""
    watching = _Watching()
    async with AgentFlow("offline") as flow:
        flow.subscribe(watching)
        await flow.run(REVIEW, bindings={"files": ["a", "b"]}, surface="python")
    assert [each["model_calls"] for each in watching.most] == ["2"]
