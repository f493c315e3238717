"""The command as a user meets it: a real process, real files, a loopback model server speaking two wire formats."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.children import HANG_S
from tests.support.commands import run_command
from tests.support.local_model import INSTALLED, needs_local
from tests.support.model_server import ModelServer, Request
from tests.support.model_server_wire import Reply

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/explain_repo.sexp"
ASK = '(defatom ask (params (q string)) (instructions "{{q}}")) (value-of (ask (q "Why?")))'


@dataclass
class Done:
    code: int
    out: str
    err: str


def environment(tmp_path: Path, **extra: str) -> dict[str, str]:
    base = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and not k.startswith("AGENTFLOW_")}
    return {
        **base,
        "COLUMNS": "400",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
        **extra,
    }


FOREGROUND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from agentflow.cli import main; main()"
)
"""The command with Ctrl-C as in a terminal, also where the tests run in the background and inherit it ignored."""


async def agentflow(*arguments: str, tmp_path: Path, stdin: bytes = b"", cwd: Path = ROOT, **extra: str) -> Done:
    done = await asyncio.to_thread(
        run_command, arguments, cwd=cwd, environment=environment(tmp_path, **extra), stdin=stdin
    )
    return Done(done.code, done.out.decode(), done.err.decode())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small tree with something to ask about."""
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    (root / "src" / "stream.py").write_text(
        '"""Streams."""\n\ndef read_stream():\n    """A cut off stream is detected by its missing terminal event."""\n'
    )
    (root / "src" / "retry.py").write_text('"""Retries after a cut off stream."""\n\ndef retry():\n    pass\n')
    (root / "notes.md").write_text("# Notes\n\nStreams that are cut off raise IncompleteStream.\n")
    return root


def prompt_of(request: Request) -> str:
    return json.dumps(request.body)


def good(request: Request) -> Any:
    """Answers like a model that does what it is told."""
    if "Summarise what the file" in prompt_of(request):
        return json.dumps({"summary": "about streams", "key_points": ["terminal event"]})
    return "A cut off stream lacks its terminal event."


MODEL = "anthropic:claude-test"
MODELS = [
    MODEL,
    *(pytest.param(each, marks=pytest.mark.slow) for each in ("openai-chat:gpt-test", "openai:gpt-test")),
]
"""One dialect says how the command behaves; that the others do alike takes long, and the conformance suite says most."""


def model_options(model: str, url: str) -> list[str]:
    return ["--model", model, "--base-url", url]


KEYS = {"ANTHROPIC_API_KEY": "test-key", "OPENAI_API_KEY": "test-key"}


async def test_demo_answers_without_key_or_network(tmp_path: Path) -> None:
    """`agentflow demo` shows the program, streams the answer, names its files, and ends with totals."""
    stand_in = ("--model", "offline") if INSTALLED else ()
    done = await agentflow("demo", "how are streams cut off detected?", *stand_in, tmp_path=tmp_path)
    assert done.code == 0, done.err
    assert "(defatom summarise-file" in done.err
    assert "> task answer-question" in done.err
    assert "< task answer-question" in done.err
    assert "based on the files:" in done.out
    for word in ("time", "calls", "tokens", "concurrency", "events"):
        assert word in done.err
    events = [json.loads(line) for line in next((tmp_path / "state").rglob("*.jsonl")).read_text().splitlines()]
    started = {event["seq"] for event in events if event["type"].endswith("_started")}
    finished = [event["started"] for event in events if event["type"].endswith("_finished")]
    assert sorted(finished) == sorted(started)
    assert events[-1]["type"] == "run_finished"
    assert events[-1]["outcome"] == "ok"


@needs_local
@pytest.mark.slow
async def test_demo_asks_the_small_model_where_it_is_installed(repository: Path, tmp_path: Path) -> None:
    """Without --model, with a program of little text; it says what the model is, and counts the tokens of its answers."""
    done = await agentflow("demo", "how are streams cut off detected?", "--root", str(repository), tmp_path=tmp_path)
    assert done.code == 0, done.err
    assert "based on the files:" in done.out
    assert "model     local" in done.err and "a small model" in done.err and "cost $0.0000" in done.err


@pytest.mark.parametrize("model", MODELS)
async def test_the_same_program_on_a_real_sdk(model: str, repository: Path, tmp_path: Path) -> None:
    """The demo and `run` give the model's answer through each SDK."""
    async with ModelServer(good) as server:
        options = [*model_options(model, server.url), "--root", str(repository)]
        done = await agentflow("demo", "cut off streams?", *options, tmp_path=tmp_path, **KEYS)
        assert done.code == 0, done.err
        assert "A cut off stream lacks its terminal event." in done.out
        assert "stream.py" in done.out
        done = await agentflow(
            "run", EXAMPLE, "-b", "question=cut off streams?", "--json", *options, tmp_path=tmp_path, **KEYS
        )
        assert done.code == 0, done.err
        value = json.loads(done.out)["value"]
        assert value["answer"] == "A cut off stream lacks its terminal event."
        assert any(path.endswith("stream.py") for path in value["files"])
        assert server.live == 0 or await settled(server)


async def settled(server: ModelServer) -> bool:
    for _ in range(50):
        if server.live == 0:
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize("model", MODELS)
async def test_a_stream_cut_in_the_middle_is_no_answer(model: str, repository: Path, tmp_path: Path) -> None:
    """A cut stream ends with exit 4, says so, and nothing partial is printed as a result."""

    def cut(request: Request) -> Any:
        if "Summarise what the file" in prompt_of(request):
            return good(request)
        return Reply(text="A cut off stream lacks", cut=5)  # in every dialect after the first word

    async with ModelServer(cut) as server:
        options = [*model_options(model, server.url), "--root", str(repository)]
        done = await agentflow("demo", "cut off streams?", *options, tmp_path=tmp_path, **KEYS)
        assert done.code == 4, done.err
        assert "is not a result" in done.err
        assert "based on the files" not in done.out
        options.append("--events")  # somebody takes deltas, so the call streams
        done = await agentflow("run", EXAMPLE, "-b", "question=cut off streams?", *options, tmp_path=tmp_path, **KEYS)
    assert done.code == 4, done.err
    assert '"ok": true' not in done.out
    assert "provider/" in done.err
    assert "IncompleteStream" in done.err or "provider/incomplete-stream" in done.err


@pytest.mark.parametrize("model", MODELS)
async def test_an_answer_that_is_not_json(model: str, repository: Path, tmp_path: Path) -> None:
    """A model that does not give the JSON asked for, not even when told so, fails the workflow with its place."""
    async with ModelServer(lambda request: "I would rather not answer in JSON.") as server:
        options = [*model_options(model, server.url), "--root", str(repository)]
        done = await agentflow("run", EXAMPLE, "-b", "question=cut off streams?", *options, tmp_path=tmp_path, **KEYS)
    assert done.code == 1, done.err
    assert "JSON" in done.err
    assert EXAMPLE in done.err
    assert done.out.strip() == ""


async def test_a_file_that_cannot_be_read_is_left_out_and_said(repository: Path, tmp_path: Path) -> None:
    """A file that is found but cannot be read (not UTF-8 any more) is named in the progress; the rest is answered."""
    program = (
        (ROOT / EXAMPLE)
        .read_text()
        .replace(
            "(define files (get_context (query question) (max_results 6)))",
            '(define files (list "src/stream.py" "src/gone.py"))',
        )
    )
    path = tmp_path / "p.sexp"
    path.write_text(program)
    async with ModelServer(good) as server:
        options = [*model_options(MODEL, server.url), "--root", str(repository), "--progress"]
        done = await agentflow("run", str(path), "-b", "question=q", "--json", *options, tmp_path=tmp_path, **KEYS)
    assert done.code == 0, done.err
    assert json.loads(done.out)["value"]["files"] == ["src/stream.py"]
    assert "cannot be read, left out: src/gone.py" in done.err


@pytest.mark.parametrize("model", MODELS[:2])
async def test_interrupting_leaves_nothing_behind(model: str, repository: Path, tmp_path: Path) -> None:
    """Ctrl-C during a slow stream: exit 130 before its end, no child process, no open connection."""

    def slow(request: Request) -> Any:
        return Reply(text="word " * 1000, chunk_s=0.05)

    async with ModelServer(slow) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            FOREGROUND,
            "demo",
            "cut off streams?",
            "--root",
            str(repository),
            *model_options(model, server.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=environment(tmp_path, **KEYS),
        )
        while not server.requests:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), HANG_S)
        assert process.returncode == 130, err.decode()
        assert "interrupted" in err.decode()
        assert "Traceback" not in err.decode()
        assert not any(child.is_running() for child in children)
        assert await settled(server)


BAD: list[tuple[list[str], bytes, int, list[str]]] = [
    (["run", "no/such/file.sexp"], b"", 2, ["no/such/file.sexp", "cli/unreadable"]),
    (["run", "-"], b"(+ 1 (list 2", 3, ["<stdin>:1:", "^", "opened"]),
    (["run", "-"], b"\xff\xfe(", 2, ["UTF-8"]),
    (["run", "-e", "(if)"], b"", 3, ["if", "<eval>:1:1"]),
    (["run", "-e", "(strng-append 1)"], b"", 1, ["strng-append", "string-append"]),
    (["run", "-e", "(+ 1 x)"], b"", 1, ["'x'", "-b x=VALUE"]),
    (["run", "-e", "1", "--root", "no/such/dir"], b"", 2, ["no/such/dir", "does not exist"]),
    (["run", "-e", "1", "--tasks", "no/such/dir"], b"", 2, ["no/such/dir", "--tasks"]),
    (["index", "no/such/dir"], b"", 2, ["no/such/dir"]),
    (["check", "no/such/file.sexp"], b"", 2, ["no/such/file.sexp", "cli/unreadable"]),
    (["check", "-", "--tasks", "no/such/dir"], b"1", 2, ["no/such/dir"]),
    (["fmt", "."], b"", 2, ["cli/unreadable", "directory"]),
    (["run", "(+ 1 2)"], b"", 2, ["agentflow run -e '(+ 1 2)'"]),
    (["run", "-e", "review.sexp"], b"", 2, ["agentflow run review.sexp"]),
    (["run", "-e", "1", "--sandbox", "bublewrap"], b"", 2, ["bublewrap", "bubblewrap"]),
    (["run", "-e", "1", "--base-url", "localhost:8080"], b"", 2, ["localhost:8080", "http://"]),
    (["run", "-e", "1", "--events-file", "."], b"", 2, ["--events-file", "directory"]),
    (["run", "-e", "1", "-b", "nonsense"], b"", 2, ["nonsense", "name=value"]),
    (["run", "-e", "1", "--limit", "stps=3"], b"", 2, ["stps", "steps"]),
    (["run", "-e", "1", "--clock", "frist_byte_s=3"], b"", 2, ["frist_byte_s", "first_byte_s"]),
    (["run", "-e", "1", "--clock", "wall_s=soon"], b"", 2, ["--clock wall_s=soon", "--clock wall_s=1000"]),
    (["run", "-e", "1", "--clock", "idle_s=0"], b"", 2, ["idle_s", "positive"]),
    (["run", "-e", "1", "--retries", "attempts=0"], b"", 2, ["attempts", "1 or more"]),
    (["run", "-e", "1", "--retries", "3"], b"", 2, ["'3'", "attempts, base_s"]),
    (["run", "-e", "(define (f) (f)) (f)", "--limit", "steps=1000"], b"", 5, ["limits/steps", "1,000"]),
    (["run", "-e", "(define (f) (f)) (f)", "--limit", "wall_s=0.2", "--limit", "steps=none"], b"", 124, ["wall"]),
    (["run", "-e", ASK], b"", 4, ["model"]),
    (["run", "-e", "1", "--model", "gpt-5"], b"", 4, ["openai:gpt-5"]),
    (["demo", "--model", "gpt-5"], b"", 4, ["openai:gpt-5"]),
    (["repl", "--surface", "lisp"], b"", 2, ["--surface lisp", "sexp, or python"]),
    (["run", "-e", ASK, "--model", "antropic:x"], b"", 4, ["antropic", "anthropic"]),
    (["run", "-e", ASK, "--model", "anthropic:x"], b"", 4, ["ANTHROPIC_API_KEY"]),
    (["run", "-e", ASK, "--model", "openai:x"], b"", 4, ["OPENAI_API_KEY"]),
    (["run", "-e", ASK.replace('(q "Why?")', ""), "--model", "offline"], b"", 1, ["q"]),
    (["run", "-e", ASK.replace("ask (q", "ask (qq"), "--model", "offline"], b"", 1, ["q"]),
    (["nonsense"], b"", 2, ["nonsense"]),
]


@pytest.mark.parametrize(("arguments", "stdin", "code", "said"), BAD, ids=[" ".join(b[0])[:50] for b in BAD])
async def test_bad_input_gets_one_screen_and_its_exit_code(
    arguments: list[str], stdin: bytes, code: int, said: list[str], tmp_path: Path
) -> None:
    """Each kind of bad input: the right exit code, one screen that names the place and the mend, no traceback."""
    done = await agentflow(*arguments, tmp_path=tmp_path, stdin=stdin)
    assert done.code == code, (done.code, done.err)
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 24
    assert done.out == ""
    for words in said:
        assert words in done.err, done.err


@pytest.mark.parametrize("value", ["({})", "(content ({}))", "(let ((r ({}))) (string-append (content r)))"])
async def test_what_a_failed_result_says_is_a_failure(value: str, tmp_path: Path) -> None:
    """A program that gives the text of a failed result ends with the exit code of one that gives the result; --json says ``ok: false``."""
    text = value.format('system:read_files (paths (list "README.md"))')
    done = await agentflow("run", "-e", text, tmp_path=tmp_path)
    assert done.code == 1 and "'file_paths' is missing" in done.err, (done.out, done.err)
    told = json.loads((await agentflow("run", "-e", text, "--json", tmp_path=tmp_path)).out)
    assert told["ok"] is False
    fine = await agentflow("run", "-e", text.replace("(paths", "(file_paths"), tmp_path=tmp_path)
    assert fine.code == 0 and fine.out, fine.err


@pytest.mark.slow
async def test_clocks_and_retries_are_options(tmp_path: Path) -> None:
    """``--retries attempts=1`` asks once, over a file that says more; a ``--clock`` ends a call whose first byte does not come."""
    (tmp_path / "agentflow.toml").write_text("[retry]\nattempts = 3\nbase_s = 0.01\n")
    busy = Reply(status=503, error={"type": "api_error", "message": "busy"})
    asked: dict[str, int] = {}
    for name, options in {
        "file": (),
        "option": ("--retries", "attempts=1"),
        "wait": ("--clock", "first_byte_s=0.2"),
    }.items():
        server = ModelServer([Reply("late", delay_s=30) if name == "wait" else busy], repeat=True)
        async with server:
            there = {"AGENTFLOW_MODEL": "openai-chat:m", "AGENTFLOW_BASE_URL": f"{server.url}/v1"}
            done = await agentflow("run", "-e", ASK, *options, tmp_path=tmp_path, cwd=tmp_path, **there)
        assert done.code == 4, done.err
        asked[name] = len(server.requests)
    assert asked == {"file": 3, "option": 1, "wait": 1}


async def test_values_print_as_text_or_json(tmp_path: Path) -> None:
    """Text prints as it is, data as program text, and --json gives one object with value, usage and run id."""
    assert (await agentflow("run", "-e", '"plain text"', tmp_path=tmp_path)).out == "plain text\n"
    assert (await agentflow("run", "-e", '(list 1 \'a "b")', tmp_path=tmp_path)).out == '(1 a "b")\n'
    done = await agentflow("run", "-e", "(+ n 1)", "-b", "n=41", "--json", tmp_path=tmp_path)
    body = json.loads(done.out)
    assert body["ok"] is True
    assert body["value"] == 42
    assert body["run_id"]


async def test_what_a_program_says_is_written_where_nobody_watches(tmp_path: Path) -> None:
    """Messages and warnings go to standard error, without the secrets in them; the value alone to standard output."""
    (tmp_path / "said.py").write_text('print("hello\\x1b[31m", 3)\n7\n', "utf-8")
    (tmp_path / "policy.toml").write_text('[[sink]]\ntool = "mail:send"\nargument = "to"\nallow = ["user"]\n', "utf-8")
    done = await agentflow("run", "said.py", "--policy", "policy.toml", tmp_path=tmp_path, cwd=tmp_path)
    assert done.out == "7\n"
    warned, said = done.err.splitlines()
    assert warned.startswith("warning[provenance/unmet]: ") and said.startswith("hello") and "\x1b" not in said
    done = await agentflow("run", "said.py", "--no-progress", tmp_path=tmp_path, cwd=tmp_path)
    assert (done.out, done.err) == ("7\n", "")


async def test_events_are_json_lines_ending_with_the_result(tmp_path: Path) -> None:
    """--events prints every event as a JSON line, then the result as the last line."""
    done = await agentflow("run", "-e", '(log-message "hi") 7', "--events", tmp_path=tmp_path)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["type"] for line in lines] == ["run_started", "program_loaded", "log", "run_finished", "result"]
    assert lines[-1]["value"] == 7


async def test_json_errors_are_data(tmp_path: Path) -> None:
    """--json gives an error as an object with code, message and span, and the exit code stays."""
    done = await agentflow("run", "-e", "(+ 1 x)", "--json", tmp_path=tmp_path)
    body = json.loads(done.out)
    assert done.code == 1
    assert body["ok"] is False
    assert body["error"]["code"] == "name/unbound"
    assert body["error"]["span"]["column"] == 6


async def test_a_program_from_standard_input(tmp_path: Path) -> None:
    """`run -` reads the program from standard input."""
    assert (await agentflow("run", "-", tmp_path=tmp_path, stdin=b"(* 6 7)")).out == "42\n"


async def test_settings_file_and_environment(tmp_path: Path) -> None:
    """agentflow.toml is read, the environment wins over it, and a wrong entry is named."""
    (tmp_path / "agentflow.toml").write_text('model = "offline"\n[limits]\nsteps = 50\n')
    done = await agentflow("run", "-e", "(define (f) (f)) (f)", tmp_path=tmp_path, cwd=tmp_path)
    assert done.code == 5, done.err
    (tmp_path / "agentflow.toml").write_text('modle = "offline"\n')
    done = await agentflow("run", "-e", "1", tmp_path=tmp_path, cwd=tmp_path)
    assert done.code == 2
    assert "model" in done.err
    assert "agentflow.toml" in done.err


async def test_a_value_with_a_failed_part_is_no_success(repository: Path, tmp_path: Path) -> None:
    """What could be read is printed, what could not is an error, and the exit code says that the workflow failed."""
    program = '(system:read_files (file_paths (list "notes.md" "gone.md")))'
    done = await agentflow("run", "-e", program, "--root", str(repository), "--model", "offline", tmp_path=tmp_path)
    assert done.code == 1 and "IncompleteStream" in done.out and "files/not-found" in done.err


async def test_events_that_could_not_be_written_fail_the_command(tmp_path: Path) -> None:
    """The value is printed, the file that was asked for is said to be incomplete, and the exit code says so."""
    done = await agentflow("run", "-e", "(+ 1 2)", "--events-file", "/dev/full", tmp_path=tmp_path)
    assert (done.code, done.out) == (1, "3\n")
    assert "cli/incomplete-events" in done.err and "Traceback" not in done.err
