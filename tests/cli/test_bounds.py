"""``agentflow check --bounds``: what it prints, and when it refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from agentflow import AgentFlow, Price
from agentflow.cli.check.around import names_around
from agentflow.cli.check.bounds import Maxima, bounds_files
from agentflow.cli.check.language import check_files
from agentflow.cli.shared.common import Exit, UsageError
from agentflow.cli.shared.mcp_options import McpOptions
from agentflow.cli.shared.options import FlowOptions
from agentflow.cli.shared.progress import beside_bounds
from agentflow.cli.shared.tool_files import tools_in_files
from agentflow.core.events.events import Event, ProgramBounds, RunFinished
from agentflow.observe.report.observer import Report

REVIEW = '(defatom review (params (f string)) (instructions "Review {{f}}") (tools))\n'
ENDLESS = f'{REVIEW}(while (review (f "a")) 1)'
OFFLINE = FlowOptions(model="offline")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "review.sexp"
    path.write_text(f"{REVIEW}(pmap (lambda (f) (review (f f))) files 4)", "utf-8")
    return str(path)


async def test_bounds_are_printed(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls, width, money and what is called stand in a table; sizes that are given are filled in."""
    assert await bounds_files([program], OFFLINE, sizes=["files=50"], maxima=Maxima()) == Exit.OK
    out = capsys.readouterr().out
    assert (
        "model calls len(files) = 50" in out and "at once     4" in out and "may call    review len(files) = 50" in out
    )


async def test_past_a_maximum_is_exit_code_3(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """More than is allowed, a size that is not given, and no bound at all are errors, each with its code."""
    for sizes, code in ((["files=50"], "bounds/over-budget"), ([], "bounds/size")):
        found = await bounds_files([program], OFFLINE, sizes=sizes, maxima=Maxima(model_calls=40), as_json=True)
        assert found == Exit.DIAGNOSTICS
        report = json.loads(capsys.readouterr().out)
        assert [each["code"] for each in report["files"][0]["diagnostics"]] == [code]
    assert await bounds_files([program], OFFLINE, sizes=["files=9"], maxima=Maxima(model_calls=40)) == Exit.OK
    endless = Path(program).with_name("endless.sexp")
    endless.write_text(f'{REVIEW}(while (review (f "a")) 1)', "utf-8")
    capsys.readouterr()
    assert await bounds_files([str(endless)], OFFLINE, maxima=Maxima(model_calls=40)) == Exit.DIAGNOSTICS
    out = capsys.readouterr().out
    assert "no bound    2:1" in out and "error[bounds/unbounded]" in out


async def test_a_size_that_no_bound_depends_on_is_told(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that was misspelt is not passed over in silence."""
    assert await bounds_files([program], OFFLINE, sizes=["filez=50"], maxima=Maxima()) == Exit.OK
    assert "note: no bound depends on len(filez); they depend on len(files)\n" in capsys.readouterr().out
    await bounds_files([program], OFFLINE, sizes=["filez=50", "files=1"], maxima=Maxima(), as_json=True)
    assert json.loads(capsys.readouterr().out)["unused_sizes"] == ["len(filez)"]


async def test_the_hint_for_a_size_can_be_pasted_into_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text of a result has a name that a shell would take apart."""
    path = tmp_path / "p.sexp"
    text = '(loop (length (get (review (f "a")) "content")) (review (f "b")))'
    path.write_text(REVIEW + text, "utf-8")
    assert await bounds_files([str(path)], OFFLINE, maxima=Maxima(model_calls=9)) == Exit.DIAGNOSTICS
    hint = capsys.readouterr().out.split("hint: state the size: ")[1]
    given = shlex.split(hint)[1]
    assert given == "outcome(review).content=50"
    assert await bounds_files([str(path)], OFFLINE, sizes=[given], maxima=Maxima(model_calls=51)) == Exit.OK


async def test_a_size_is_a_name_and_a_number(program: str) -> None:
    """Anything else is an error of usage that says how one is written."""
    with pytest.raises(UsageError, match="not a size"):
        await bounds_files([program], OFFLINE, sizes=["files"], maxima=Maxima())


async def test_a_runs_table_shows_the_bound_beside_the_fact(program: str) -> None:
    """Below the table stand the model calls and the money there were, and the most there could be; nothing without a bound."""
    async with AgentFlow("offline") as flow:
        seen: list[Event] = []
        await flow.run(Path(program), bindings={"files": []})
        flow.subscribe(Report())
        flow.subscribe(seen.append)
        await flow.run(Path(program), bindings={"files": ["a", "b", "c"]})
        most = next(event.most for event in seen if isinstance(event, ProgramBounds))
        finished = next(event for event in seen if isinstance(event, RunFinished))
        assert most["model_calls"] == "3" and most["width"] == "3" and most["output_tokens"] == "24,576"
        assert beside_bounds(finished, most).plain == "model calls 3 of at most 3\n"
        assert beside_bounds(finished, {}).plain == "" and "model_calls" not in (await flow.bounds(ENDLESS)).to_text()
    price = {"anthropic:claude-sonnet-4-5": Price(input=3, output=15)}
    async with AgentFlow("anthropic:claude-sonnet-4-5", prices=price) as flow:
        most = (await flow.bounds(f'{REVIEW}(review (f "a"))')).to_text()
        assert most["model_calls"] == "1" and float(most["usd"]) > 0.5
        assert beside_bounds(finished, most).plain.startswith("model calls 3 of at most 1, money ")


async def test_tools_of_the_host_are_named_by_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spelt as for ``explore``; what they are called with is checked too, and they are not called."""
    (tmp_path / "tools.py").write_text("async def fetch(url: str) -> str:\n    raise AssertionError\n", "utf-8")
    path, tool = tmp_path / "p.sexp", f"fetch={tmp_path / 'tools.py'}"
    path.write_text('(map (lambda (u) (fetch (url u))) urls) (fetch (page "x"))', "utf-8")
    assert await bounds_files([str(path)], OFFLINE, maxima=Maxima(), tools=[tool]) == Exit.OK
    out = capsys.readouterr().out
    assert "tool calls  1 + len(urls)" in out and "fetch (writes)" in out and "no bound" not in out
    around = names_around(McpOptions(), tools=tools_in_files([tool]))
    assert check_files([str(path)], names=around.names) == Exit.DIAGNOSTICS
    assert "error[call/unknown-parameter]: 'fetch' has no parameter 'page'" in capsys.readouterr().out
    with pytest.raises(UsageError):
        tools_in_files(["fetch"])
