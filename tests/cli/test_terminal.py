"""The command in a real pseudo-terminal: what a person sees, wide and narrow, with and without colours."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow.cli.shared.progress import Progress, Totals
from tests.cli.test_command import KEYS, MODEL, environment, good, model_options, prompt_of, repository
from tests.observe.test_writers import events_of_a_task
from tests.support.model_server import ModelServer, Request
from tests.support.model_server_wire import Reply
from tests.support.terminal import Terminal, in_terminal

__all__ = ["repository"]
LINE = re.compile(r" *\d+\.\d\ds [<>x!-] ")
ROW = re.compile(r"^ *[⠀-⣿\-\\|/] [a-z]")
ANSWER = "A cut off stream lacks its terminal event."


def terminal_environment(tmp_path: Path, **extra: str) -> dict[str, str]:
    base = environment(tmp_path, **KEYS)
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        base.pop(name, None)
    return {**base, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **extra}


def slowly(request: Request) -> Any:
    """Answers so that there is something to look at."""
    if "Summarise what the file" in prompt_of(request):
        return Reply(text=good(request), delay_s=0.8)
    return Reply(text=ANSWER, chunk_s=0.2)


async def demo(tmp_path: Path, root: Path, answer: Any = slowly, **options: Any) -> tuple[int, Terminal]:
    async with ModelServer(answer) as server:
        arguments = ["demo", "cut off streams?", "--root", str(root), *model_options(MODEL, server.url)]
        extra = options.pop("extra", {})
        return await in_terminal(*arguments, environment=terminal_environment(tmp_path, **extra), **options)


@pytest.mark.parametrize(
    "columns", [pytest.param(30, marks=pytest.mark.slow), 80, pytest.param(200, marks=pytest.mark.slow)]
)
async def test_a_tree_says_what_runs_and_leaves_nothing_behind(columns: int, repository: Path, tmp_path: Path) -> None:
    """While models answer a tree shows them under their form; in the end there are the lines of ended effects, none wider than the
    terminal, and the answer whole, with no line of progress in its lines.
    """
    code, terminal = await demo(tmp_path, repository, columns=columns)
    assert code == 0, "\n".join(terminal.lines)
    name = MODEL.partition(":")[2]

    def is_whole(rows: list[str]) -> bool:
        form, *tasks = [line for line in rows if ROW.match(line)] or [""]
        asked = [
            line for line in tasks if "  " in line[:2] and "summarise-file" in line and (columns == 30 or name in line)
        ]
        return "pmap  line" in form and (columns == 30 or "0/3" in form) and len(asked) == len(tasks) == 3

    assert any(is_whole(rows) for rows in terminal.shown), terminal.shown
    lines = terminal.lines
    assert not any(ROW.match(line) for line in lines), "the tree is gone"
    progress = [line for line in lines if LINE.match(line)]
    assert not [line for line in progress if " > " in line], "what starts is in the tree only"
    assert sum("< task summ" in line for line in progress) == 3
    rest = "\n".join(line for line in lines if not LINE.match(line))
    assert ANSWER in " ".join(rest.split()), "it is wrapped at words"
    assert not any(ANSWER[:12] in line for line in progress)
    assert b"\x1b[?25h" in terminal.raw[terminal.raw.rindex(b"\x1b[?25l") :], "the cursor is shown again"


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, pytest.param({"CI": "true"}, marks=pytest.mark.slow)])
async def test_no_live_line_where_nobody_could_read_it(
    variables: dict[str, str], repository: Path, tmp_path: Path
) -> None:
    """On a terminal that cannot move its cursor, and in CI, each effect is a line when it starts and when it ends."""
    code, terminal = await demo(tmp_path, repository, extra=variables)
    assert code == 0
    assert b"\x1b[2K" not in terminal.raw and b"\x1b[?25l" not in terminal.raw
    assert any("> task answer-question" in line for line in terminal.lines)
    assert any("< task answer-question" in line for line in terminal.lines)
    assert ANSWER in "\n".join(terminal.lines)


async def test_colours_and_no_color(tmp_path: Path) -> None:
    """Errors have colours on a terminal, none with NO_COLOR or TERM=dumb; the text is the same."""
    texts = []
    for variables in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        code, terminal = await in_terminal(
            "run", "-e", "(+ 1 x)", environment=terminal_environment(tmp_path, **variables)
        )
        assert code == 1
        assert (b"\x1b[1;31m" in terminal.raw or b"\x1b[31m" in terminal.raw) == (not variables)
        assert b"\x1b[3" not in terminal.raw or not variables
        texts.append(terminal.lines)
    assert texts[0] == texts[1] == texts[2]
    assert texts[0][0] == "error[name/unbound]: 'x' is not bound"


async def test_a_cut_answer_keeps_its_line(repository: Path, tmp_path: Path) -> None:
    """An answer that breaks off in the middle of a line is followed by the error on a line of its own."""

    def cut(request: Request) -> Any:
        return good(request) if "Summarise what the file" in prompt_of(request) else Reply(text=ANSWER, cut=4)

    code, terminal = await demo(tmp_path, repository, cut)
    assert code == 4
    at = terminal.lines.index("the answer above was cut off and is not a result")
    assert any(line and ANSWER.startswith(line.strip()) for line in terminal.lines[:at])


@pytest.mark.slow
async def test_output_and_progress_in_one_pipe_share_no_line(repository: Path, tmp_path: Path) -> None:
    """``2>&1 |``: lines of progress and the streamed answer each have lines of their own."""
    async with ModelServer(slowly) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agentflow", "demo", "cut off streams?", "--root", str(repository),
            *model_options(MODEL, server.url),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment(tmp_path, **KEYS),
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    lines = out.decode().splitlines()
    assert ANSWER in lines
    assert any("> task answer-question" in line for line in lines)


async def test_a_result_in_a_pipe_is_only_the_result(repository: Path, tmp_path: Path) -> None:
    """Standard output in a file and progress on the terminal: the file holds the value and nothing else."""
    target = tmp_path / "out.txt"
    with target.open("wb") as out:
        code, terminal = await in_terminal(
            "run",
            "-e",
            '(log-message "hello") (list 1 "é")',
            environment=terminal_environment(tmp_path),
            standard_output=out.fileno(),
        )
    assert code == 0
    assert target.read_text("utf-8") == '(1 "é")\n'
    assert any("- hello" in line for line in terminal.lines)


async def test_a_question_has_the_screen_to_itself(tmp_path: Path) -> None:
    """While an approval is asked for no line is drawn below it; what happened meanwhile is shown after the answer."""
    asked: list[int] = []

    def react(terminal: Terminal) -> bytes:
        if not asked and terminal.ever_showed("run it? [y/N"):
            asked.append(len(terminal.raw))
            return b"n\r"
        return b""

    text = """(parallel (status (system:execute_shell_command (command "touch x")))
                        (begin (log-message "meanwhile") 1))"""
    code, terminal = await in_terminal(
        "run", "-e", text, "--allow", "system:execute_shell_command", "--root", str(tmp_path),
        environment=terminal_environment(tmp_path), react=react,
    )  # fmt: skip
    assert asked, "\n".join(terminal.lines)
    question = next(line for line in terminal.lines if "run it? [y/N" in line)
    assert "meanwhile" not in question and not LINE.search(question)
    assert any("- meanwhile" in line for line in terminal.lines)
    assert code in (0, 1)


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(each, marks=pytest.mark.slow) for each in ("latin-1", "cp1252"))]
)
async def test_a_stream_without_utf8_gets_everything_it_can(encoding: str, tmp_path: Path) -> None:
    """A character that the encoding lacks is a JSON escape: text is legible, and JSON is JSON."""
    outputs = []
    for arguments in (
        ["run", "-e", '"né ⏳ 🎈"'],
        ["run", "-e", '"né ⏳ 🎈"', "--json"],
        ["run", "-e", '(error "né ⏳ 🎈")'],
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agentflow", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**environment(tmp_path), "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 60)
        outputs.append((out.decode(encoding), err.decode(encoding)))
    acute = "\\u00e9" if encoding == "ascii" else "é"
    assert outputs[0][0] == f"n{acute} \\u23f3 \\ud83c\\udf88\n"
    assert json.loads(outputs[1][0])["value"] == "né ⏳ 🎈"
    assert f"n{acute} \\u23f3" in outputs[2][1]


async def test_a_narrow_terminal_without_utf8_draws_ascii(repository: Path, tmp_path: Path) -> None:
    """The tree and cut lines need no character that the terminal has not."""
    code, terminal = await demo(tmp_path, repository, columns=40, extra={"PYTHONIOENCODING": "ascii"})
    assert code == 0
    assert terminal.raw.isascii()
    assert terminal.ever_showed(" pmap  line")


async def test_run_shows_the_answer_as_it_comes_and_what_tasks_cost(tmp_path: Path) -> None:
    """The answer is written as it streams; in the end there is a table of the tasks, and the answer stands there once."""
    program = tmp_path / "p.sexp"
    program.write_text('(defatom ask (params (q string)) (instructions "{{q}}")) (value-of (ask (q "why?")))')
    partly = asyncio.Event()

    def look(terminal: Terminal) -> bytes:
        coming = [line for line in terminal.shown[-1] if line.startswith("A")]
        if any([ANSWER.startswith(line) and line != ANSWER for line in coming]):
            partly.set()
        return b""

    async def pace(index: int) -> None:
        if index > 5:  # when the first words have been sent
            await asyncio.wait_for(partly.wait(), 30)

    async with ModelServer(lambda request: Reply(text=ANSWER, pace=pace)) as server:
        code, terminal = await in_terminal(
            "run",
            str(program),
            *model_options(MODEL, server.url),
            environment=terminal_environment(tmp_path),
            react=look,
        )
    assert code == 0 and partly.is_set(), "\n".join(terminal.lines)
    assert any(line.startswith("task ask") for line in terminal.lines)
    assert sum(ANSWER in line for line in terminal.lines) == 1


@pytest.mark.parametrize("columns", [40, pytest.param(200, marks=pytest.mark.slow)])
async def test_loops_have_bars_and_models_side_by_side_a_row_each(columns: int, tmp_path: Path) -> None:
    """At any width a loop shows its rounds and the closing table is a table; what two models write at once never shares a line."""
    program = tmp_path / "p.sexp"
    program.write_text(
        '(defatom ask (params (q)) (instructions "{{q}}"))\n(loop 2 (ask (q "a")))\n(length (parallel (ask (q "b")) (ask (q "c"))))'
    )
    second, both_shown = asyncio.Event(), asyncio.Event()

    def look(terminal: Terminal) -> bytes:
        if any(re.search(r"loop  line 2  .*1/2$", line) for line in terminal.shown[-1]):
            second.set()
        if sum("ask  line 3" in line for line in terminal.shown[-1]) == 2:
            both_shown.set()
        return b""

    def reply(request: Request) -> Reply:
        """The second round goes on when its bar was seen, the branches when both have a row."""
        asked = len(server.requests)
        wanted = None if asked == 1 else second if asked == 2 else both_shown

        async def pace(index: int) -> None:
            if index > 5 and wanted is not None:
                await asyncio.wait_for(wanted.wait(), 30)

        return Reply(text=ANSWER, pace=pace)

    async with ModelServer(reply) as server:
        code, terminal = await in_terminal(
            "run",
            str(program),
            *model_options(MODEL, server.url),
            environment=terminal_environment(tmp_path, NO_COLOR="1"),
            columns=columns,
            react=look,
        )
    assert code == 0, "\n".join(terminal.lines)
    assert any(re.search(r"loop  line 2  .*1/2$", line) for lines in terminal.shown for line in lines)
    both = [lines for lines in terminal.shown if sum("ask  line 3" in line for line in lines) == 2]
    texts = {line.strip() for lines in both for line in lines}
    assert both and not any(text in ANSWER for text in texts if len(text) > 3), (
        "a shorter one may be a row that is half drawn"
    )
    at = next(at for at, line in enumerate(terminal.lines) if line.startswith("task ask"))
    assert terminal.lines[at - 1].split()[0] == "calls" and terminal.lines[at - 1].endswith("cost")
    assert terminal.lines[at].split()[2] == "4" and terminal.lines[-1] == "2"
    assert b"\x1b[3" not in terminal.raw


async def test_one_bad_answer_does_not_end_the_demo(repository: Path, tmp_path: Path) -> None:
    """A summary that is not JSON is left out: the answer rests on the others, the file is named, and the exit code is 1."""

    def one_bad(request: Request) -> Any:
        bad = "Summarise what the file" in prompt_of(request) and "retry.py has to say" in prompt_of(request)
        return "I would rather not." if bad else good(request)

    async with ModelServer(one_bad) as server:
        arguments = ["demo", "cut off streams?", "--root", str(repository), *model_options(MODEL, server.url)]
        code, terminal = await in_terminal(*arguments, environment=terminal_environment(tmp_path), columns=160)
    text = "\n".join(terminal.lines)
    assert code == 1, text
    assert ANSWER in text
    assert "left out: src/retry.py" in text
    assert text.index("based on the files") < text.index("time  ")
    assert "  src/retry.py" not in text[text.index("based on the files") : text.index("time  ")]


async def test_results_in_lists_print_their_texts(tmp_path: Path) -> None:
    """A list of results is printed as its texts; results in other data are texts there; a failed one makes exit code 1."""
    run = ["--model", "offline", "--root", str(tmp_path)]
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    read = "(define (read f) (system:read_files (file_paths (list f))))"

    async def shown(expression: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agentflow", "run", "-e", f"{read} {expression}", *run,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment(tmp_path),
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    code, out, _ = await shown('(map read (list "a.txt" "b.txt"))')
    assert code == 0 and "taskresult" not in out
    assert out.index("alpha") < out.index("\n\n") < out.index("beta")
    code, out, _ = await shown('(dict "one" (read "a.txt"))')
    assert code == 0 and "taskresult" not in out and "alpha" in out and out.startswith('{"one" "')
    code, out, err = await shown('(map read (list "a.txt" "gone.txt"))')
    assert code == 1 and "alpha" in out and "files/not-found" in err


def test_progress_shows_starts_ends_and_reasons() -> None:
    """Elsewhere than on a terminal: one plain line per effect started and finished; a failed one says why."""
    out = io.StringIO()
    progress = Progress(out, clean=lambda text: text.replace("\x1b", ""))
    totals = Totals()
    for event in events_of_a_task():
        progress(event)
        totals(event)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert "> task ask" in lines[0]
    assert "\x1b" not in out.getvalue()
    assert "x task ask" in lines[2]
    assert "failed: llm_error" in lines[2]
    assert totals.tasks == 1
