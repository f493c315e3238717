"""``agentflow run --policy``: a policy file is in force, and ``--explain`` lists what it would deny."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import said_by

PROGRAM = """(system:write_file (file_path "out.txt")
  (content (value-of (system:read_files (file_paths (list "page.txt"))))))
"""
POLICY = '[[sink]]\ntool = "system:write_file"\nargument = "content"\nallow = ["file:notes/*"]\n'


def prepared(root: Path) -> list[str]:
    """A program that copies a page, and a policy that lets notes be copied only."""
    (root / "copy.sexp").write_text(PROGRAM)
    (root / "policy.toml").write_text(POLICY)
    (root / "page.txt").write_text("obey me")
    return ["run", "copy.sexp", "--policy", "policy.toml", "--no-record"]


def test_a_policy_file_denies_an_effect(tmp_path: Path) -> None:
    """The file is not written; the error shows how the page came to the argument."""
    done = said_by(*prepared(tmp_path), cwd=tmp_path)
    assert done.returncode != 0 and not (tmp_path / "out.txt").exists()
    assert "provenance/denied" in done.stderr and "came by: system:read_files 2:22" in done.stderr
    assert "file:page.txt" in done.stderr


def test_explain_denies_nothing_and_lists_it(tmp_path: Path) -> None:
    """With --explain the effect happens, and the list names it."""
    done = said_by(*prepared(tmp_path), "--explain", "--json", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "out.txt").exists()
    assert "would have denied 1 effect:" in done.stderr and "'content' of system:write_file" in done.stderr
    assert json.loads(done.stdout)["sources"] == ["file:page.txt", "tool:system:write_file"]


def test_explain_needs_a_policy(tmp_path: Path) -> None:
    """Without one there is nothing to explain."""
    prepared(tmp_path)
    done = said_by("run", "copy.sexp", "--explain", cwd=tmp_path)
    assert done.returncode == 2 and "--policy FILE" in done.stderr


APP = """
from agentflow import AgentFlow, Provenance, ScriptedProvider, Sink

flow = AgentFlow(provider=ScriptedProvider(), root=".", provenance={policy})
"""


def test_a_policy_narrows_the_flow_of_a_module(tmp_path: Path) -> None:
    """With --app the file's policy must allow an effect beside the module's own, which cannot be widened."""
    arguments = prepared(tmp_path)
    (tmp_path / "wide.py").write_text(APP.format(policy="Provenance()"))
    (tmp_path / "narrow.py").write_text(APP.format(policy='Provenance(rules=[Sink("system:write_file", "content")])'))
    (tmp_path / "none.py").write_text(APP.format(policy="None"))
    for module in ("wide", "none"):
        done = said_by(*arguments, "--app", module, cwd=tmp_path)
        assert done.returncode != 0 and "provenance/denied" in done.stderr and not (tmp_path / "out.txt").exists()
    (tmp_path / "all.toml").write_text(POLICY.replace("notes/*", "*"))
    done = said_by("run", "copy.sexp", "--policy", "all.toml", "--no-record", "--app", "narrow", cwd=tmp_path)
    assert done.returncode != 0 and "provenance/denied" in done.stderr and not (tmp_path / "out.txt").exists()
    done = said_by("run", "copy.sexp", "--policy", "all.toml", "--no-record", "--app", "wide", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "out.txt").exists(), done.stderr


def test_what_tools_give_says_the_module(tmp_path: Path) -> None:
    """A file that names sources beside a module's policy is refused: so it could rename what its rules do not allow."""
    arguments = prepared(tmp_path)
    (tmp_path / "wide.py").write_text(APP.format(policy="Provenance()"))
    (tmp_path / "policy.toml").write_text(f'{POLICY}\n[sources]\n"system:read_files" = "user"\n')
    done = said_by(*arguments, "--app", "wide", cwd=tmp_path)
    assert done.returncode == 2 and "[sources] says what tools give" in done.stderr


def test_check_says_what_may_reach_what_a_policy_guards(tmp_path: Path) -> None:
    """``check --policy`` prints each guarded argument with the sources that may reach it, and --json the same as data."""
    prepared(tmp_path)
    done = said_by("check", "copy.sexp", "--policy", "policy.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sink        'content' of system:write_file may be reached by file:* (refused)" in done.stdout
    done = said_by("check", "copy.sexp", "--policy", "policy.toml", "--json", cwd=tmp_path)
    (sink,) = json.loads(done.stdout)["files"][0]["bounds"]["authority"]["sinks"]
    assert (sink["argument"], sink["may_reach"], sink["refused"]) == ("content", ["file:*"], ["file:*"])
