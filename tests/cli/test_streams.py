"""Standard streams that are closed, full or without a reader; directories that are gone; interpreters that leave things out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_command import Done, environment


def slow(*values: str) -> Any:
    """A case beside one that runs each time."""
    return pytest.param(*values, marks=pytest.mark.slow)


COMMAND = f"{sys.executable} -m agentflow"
RUN = f"{COMMAND} run -e '(+ 1 2)' --model offline --no-record"


async def shell(line: str, tmp_path: Path, **extra: str) -> Done:
    """A line of the shell, which fails with the first command of a pipe that fails."""
    arguments = ["bash", "-c", f"set -o pipefail; {line}"]
    variables = environment(tmp_path, **extra)
    done = await asyncio.to_thread(
        subprocess.run, arguments, cwd=tmp_path, env=variables, capture_output=True, timeout=60
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("redirection", [slow("<&-"), slow("2>&-"), "<&- 2>&-", "2>/dev/full"])
async def test_the_answer_needs_standard_output_only(redirection: str, tmp_path: Path) -> None:
    """Services, cron and pythonw start programs without standard input and error."""
    done = await shell(f"{RUN} {redirection}", tmp_path)
    assert (done.code, done.out, done.err) == (0, "3\n", "")


@pytest.mark.parametrize(
    ("redirection", "why"),
    [slow(">&-", "it is closed"), (">/dev/full", "No space left on device"), ("<&- >&-", "closed")],
)
async def test_an_answer_that_is_lost_is_a_failure(redirection: str, why: str, tmp_path: Path) -> None:
    """Exit code 0 says that the answer was written."""
    done = await shell(f"{RUN} {redirection}", tmp_path)
    assert done.code == 1
    assert done.err == f"error[cli/output]: standard output could not be written: {done.err.rpartition(': ')[2]}"
    assert why in done.err


@pytest.mark.parametrize("arguments", [slow("--help"), slow("--version"), "doctor"])
async def test_whatever_a_command_prints_counts(arguments: str, tmp_path: Path) -> None:
    """Help and tables are written by other means than values."""
    done = await shell(f"{COMMAND} {arguments} >/dev/full", tmp_path)
    assert done.code == 1 and "error[cli/output]" in done.err


async def test_a_reader_that_has_read_enough_is_no_error(tmp_path: Path) -> None:
    """``| head -1``, of an answer longer than a pipe holds."""
    (tmp_path / "long.sexp").write_text('"' + "0123456789\n" * 20_000 + '"')
    done = await shell(f"{COMMAND} run long.sexp --model offline --no-record | head -1", tmp_path)
    assert (done.code, done.out, done.err) == (0, "0123456789\n", "")


async def test_a_pipe_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    """Node and others hand such pipes on: a slow reader has the whole answer."""
    (tmp_path / "long.sexp").write_text('"' + "0123456789" * 20_000 + '"')
    (tmp_path / "slow.py").write_text(
        "import os, subprocess, sys, time\n"
        "r, w = os.pipe(); os.set_blocking(w, False)\n"
        "run = subprocess.Popen(sys.argv[1:], stdout=w); os.close(w); time.sleep(1.5)\n"
        "print(len(open(r, 'rb').read()), run.wait())\n"
    )
    done = await shell(f"{sys.executable} slow.py {COMMAND} run long.sexp --model offline --no-record", tmp_path)
    assert (done.out, done.err) == ("200001 0\n", "")


@pytest.mark.parametrize("arguments", ["run -e 1 --model offline", "index", "doctor", "worker app:flow", "--version"])
async def test_a_working_directory_that_was_removed(arguments: str, tmp_path: Path) -> None:
    """A sentence and the code of settings, where one is needed."""
    done = await shell(f"mkdir gone; cd gone; rmdir ../gone; {COMMAND} {arguments}", tmp_path)
    assert "Traceback" not in done.err
    if arguments in ("doctor", "--version"):
        assert done.code == 0
    else:
        assert done.code == 2 and "error[config/directory]: the working directory" in done.err


async def test_optimised_python_does_the_same(tmp_path: Path) -> None:
    """``-O`` leaves out assertions, which nothing depends on."""
    done = await shell(f"PYTHONOPTIMIZE=1 {RUN}", tmp_path)
    assert (done.code, done.out, done.err) == (0, "3\n", "")


async def test_python_without_docstrings_is_refused(tmp_path: Path) -> None:
    """``-OO`` leaves out what tasks and tools are described by: prompts would be empty."""
    done = await shell(f"PYTHONOPTIMIZE=2 {RUN}", tmp_path)
    assert done.code == 2 and "Traceback" not in done.err
    assert done.err.startswith("error[config/no-docstrings]: Python was started with -OO")
    done = await shell(f"{sys.executable} -OO -c 'from agentflow import AgentFlow'", tmp_path)
    assert "ConfigurationError: Python was started with -OO" in done.err


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
async def test_arguments_are_utf8_whatever_the_locale(locale: str, tmp_path: Path) -> None:
    """A locale that knows ASCII only takes nothing from a program, its variables and its answer."""
    variables = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    line = f"{COMMAND} run -e '(string-append \"é\" a)' -b a=ü --model offline --no-record --json"
    done = await shell(line, tmp_path, **variables)
    assert done.code == 0, done.err
    assert '"éü"' in done.out or r'"\u00e9\u00fc"' in done.out


async def test_arguments_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """What is not UTF-8 is said to be none, as of a file."""
    for arguments in ("run -e $'\"\\xe9\"'", "run -e a -b $'a=\\xe9'"):
        done = await shell(f"{COMMAND} {arguments} --model offline", tmp_path)
        assert done.code == 2 and "error[cli/unreadable]" in done.err and "is not UTF-8" in done.err


@pytest.mark.parametrize("name", ["/dev/full", "here/report.html"])
async def test_what_the_system_refuses_is_a_sentence(name: str, tmp_path: Path) -> None:
    """A report on a full device, or in a place that is a file."""
    (tmp_path / "here").write_text("a file")
    done = await shell(f"{RUN} --report {name}", tmp_path)
    assert done.code == 2 and done.err.startswith(f"error[cli/usage]: the report cannot be written to {name}: ")
    assert os.stat("/dev/full").st_rdev == os.makedev(1, 7)
