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
