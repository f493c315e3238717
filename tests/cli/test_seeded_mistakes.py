"""``agentflow check`` finds every mistake of a file in one go, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentflow.cli.check.language import check_files
from agentflow.cli.shared.common import Exit

SEEDED = """\
(defatom review (params (path string) (most integer)) (instructions "Review {{path}}, {{most}} remarks"))
(define (total first-count rest-count)
  (+ first-count rest-cuont))
(define (main path)
  (list (length path path)
        (total 1)
        (review (path path) (depth 3) (most 5))
        (review (path path))
        (review (path path) (path path) (most 5))
        (review (path path) (most 5) (context {"fresh_contxt" "enabled"}))
        (review (path path) (most "many"))))
(main "a.py")
"""


def marked(span: dict[str, int]) -> tuple[int, int, str]:
    """The line, the column and the text of a mistake that stands on one line."""
    assert span["line"] == span["end_line"]
    line = SEEDED.splitlines()[span["line"] - 1]
    return span["line"], span["column"], line[span["column"] - 1 : span["end_column"] - 1]


def test_eight_of_eight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each seeded mistake is a diagnostic at its own line and column with a hint, and the exit code is 3."""
    path = tmp_path / "seeded.sexp"
    path.write_text(SEEDED)
    assert check_files([str(path)], as_json=True) == Exit.DIAGNOSTICS
    (report,) = json.loads(capsys.readouterr().out)["files"]
    found = [(marked(each["span"]), each["code"]) for each in report["diagnostics"]]
    assert found == [
        ((3, 18, "rest-cuont"), "name/suspicious"),
        ((5, 9, "(length path path)"), "arity/primitive"),
        ((6, 9, "(total 1)"), "arity/closure"),
        ((7, 29, "(depth 3)"), "call/unknown-parameter"),
        ((8, 9, "(review (path path))"), "call/missing-parameter"),
        ((9, 29, "(path path)"), "call/duplicate"),
        ((10, 38, '(context {"fresh_contxt" "enabled"})'), "call/unknown-key"),
        ((11, 29, '(most "many")'), "call/argument"),
    ]
    assert "rest-count" in report["diagnostics"][0]["hint"]
    assert "fresh_context" in report["diagnostics"][6]["hint"]


def test_mistakes_within_one_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One operand's mistake does not hide the next one's."""
    path = tmp_path / "one.sexp"
    path.write_text('(list (if) (car 1 2) (system:read_files (paths "a")) (let ((x)) x))')
    assert check_files([str(path)], as_json=True) == Exit.DIAGNOSTICS
    (report,) = json.loads(capsys.readouterr().out)["files"]
    assert [each["code"] for each in report["diagnostics"]] == [
        "form/arity",
        "arity/primitive",
        "call/missing-parameter",
        "call/unknown-parameter",
        "form/bindings",
    ]


def test_it_never_says_nothing_below_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning leaves the exit code at 0, and is counted."""
    path = tmp_path / "warned.sexp"
    path.write_text("(define total 1) (+ totla 1)")
    assert check_files([str(path)]) == Exit.OK
    said = capsys.readouterr()
    assert "warning[name/suspicious]" in said.out
    assert said.err == "1 file checked, 0 errors, 1 warning\n"


def test_names_the_host_binds(tmp_path: Path) -> None:
    """Told which names the host binds, every other free name is an error."""
    path = tmp_path / "free.sexp"
    path.write_text("(list question answer)")
    assert check_files([str(path)]) == Exit.OK
    assert check_files([str(path)], bindings=["question"]) == Exit.DIAGNOSTICS
    assert check_files([str(path)], bindings=["question", "answer"]) == Exit.OK
