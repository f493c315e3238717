"""``check`` and ``fmt``: exit codes, machine-readable findings, files replaced whole."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agentflow.cli.check.language import check_files, format_files
from agentflow.cli.shared.common import Exit, UsageError
from tests.support.commands import said_by

BROKEN = "(let ((x)) x)\n(if)\n(cond 5)\n"


def write(path: Path, text: str) -> str:
    """The name of a file with that text."""
    path.write_text(text, "utf-8")
    return str(path)


def test_check_reports_several_findings_per_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each mistake is a diagnostic with code, place and hint; the exit code says that something was found."""
    files = [write(tmp_path / "good.sexp", "(+ 1 2)"), write(tmp_path / "bad.sexp", BROKEN)]
    assert check_files(files, as_json=True) == Exit.DIAGNOSTICS
    report = json.loads(capsys.readouterr().out)
    good, bad = report["files"]
    assert report["ok"] is False and good["diagnostics"] == []
    assert [(d["code"], d["span"]["line"], d["span"]["column"]) for d in bad["diagnostics"]] == [
        ("form/bindings", 1, 7),
        ("form/arity", 2, 1),
        ("form/clause", 3, 7),
    ]
    assert all(d["severity"] == "error" and d["hint"] for d in bad["diagnostics"])


def test_check_of_a_sound_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing found is exit code 0."""
    assert check_files([write(tmp_path / "a.sexp", "(define (f x) (g x))")]) == Exit.OK
    assert capsys.readouterr().out == ""


def test_a_misspelling_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A free name the host may bind is not an error; near a known name it is worth a word."""
    assert check_files([write(tmp_path / "a.sexp", "(lenght '(1))")], as_json=True) == Exit.OK
    (finding,) = json.loads(capsys.readouterr().out)["files"][0]["diagnostics"]
    assert finding["severity"] == "warning" and finding["hint"] == "did you mean 'length'?"


def test_check_with_granted_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With names granted, any other task or tool is an error."""
    path = write(tmp_path / "a.sexp", '(search (query "x")) (delete (path "y"))')
    assert check_files([path], as_json=True, allow=["search"]) == Exit.DIAGNOSTICS
    (finding,) = json.loads(capsys.readouterr().out)["files"][0]["diagnostics"]
    assert finding["code"] == "name/not-granted" and "delete" in finding["message"]


def test_fmt_rewrites_files_and_keeps_their_mode(tmp_path: Path) -> None:
    """A file is replaced whole, with its permissions; doing it again changes nothing."""
    path = tmp_path / "a.sexp"
    write(path, "(define (f x)\n(* x 2)) ; twice\n")
    os.chmod(path, 0o640)
    assert format_files([str(path)]) == Exit.OK
    assert path.read_text("utf-8") == "(define (f x)\n  (* x 2))  ; twice\n"
    assert path.stat().st_mode & 0o777 == 0o640
    before = path.stat().st_mtime_ns
    assert format_files([str(path)]) == Exit.OK and path.stat().st_mtime_ns == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.sexp"]


def test_fmt_check_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With check, a file that would change is a finding and stays as it is."""
    path = write(tmp_path / "a.sexp", "(a   b)")
    assert format_files([path], check=True, as_json=True) == Exit.DIAGNOSTICS
    assert json.loads(capsys.readouterr().out)["files"][0]["changed"] is True
    assert Path(path).read_text("utf-8") == "(a   b)"


def test_fmt_leaves_broken_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read as a program is reported with its place, and the others are laid out."""
    bad, good = write(tmp_path / "bad.sexp", "(a"), write(tmp_path / "good.sexp", "(a  b)")
    assert format_files([bad, good]) == Exit.DIAGNOSTICS
    assert "never closed" in capsys.readouterr().err
    assert Path(bad).read_text("utf-8") == "(a" and Path(good).read_text("utf-8") == "(a b)\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Is a usage error that names it."""
    with pytest.raises(UsageError):
        check_files([str(tmp_path / "none.sexp")])


def test_check_knows_the_tasks_of_a_directory(tmp_path: Path) -> None:
    """With --tasks a call of a template is checked like any other: its parameters, and whether it is there at all."""
    (tmp_path / "issues.xml").write_text(
        '<task name="issues"><parameters><parameter name="code" type="string"/></parameters>'
        "<instructions>{{code}}</instructions></task>"
    )
    for name, text in (("good", '(issues (code "x"))'), ("bad", '(issues (cod "x"))')):
        (tmp_path / f"{name}.sexp").write_text(text)

    def check(name: str, *options: str) -> subprocess.CompletedProcess[str]:
        return said_by("check", str(tmp_path / f"{name}.sexp"), "-b", "other", *options)

    assert check("good").returncode == 3
    assert check("good", "--tasks", str(tmp_path)).returncode == 0
    refused = check("bad", "--tasks", str(tmp_path))
    assert refused.returncode == 3 and "'code'" in refused.stdout
