"""``agentflow demo``: prints a workflow, then runs it to answer a question about a repository."""

from __future__ import annotations

import importlib.resources
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from agentflow.cli.common import CompileFailed, Exit, UsageError, exit_code, is_compile_error, show_error, write_out
from agentflow.cli.options import FlowOptions, open_flow
from agentflow.core.errors import AgentflowError
from agentflow.core.source import Source
from agentflow.core.values import plain
from agentflow.lib.private_files import make_private_directory
from agentflow.lib.terminal import clean
from agentflow.observe.console import Console, Totals
from agentflow.observe.jsonl import JsonlWriter
from agentflow.settings import load_settings

QUESTION = "how are paths opened beneath a root so that symlinks cannot escape?"
EXAMPLE = "explain_repo.sexp"


def example_text() -> str:
    """The demo program: the example of the checkout, or the copy in the package."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / EXAMPLE
    if checkout.is_file():
        return checkout.read_text("utf-8")
    return (importlib.resources.files("agentflow") / "examples" / EXAMPLE).read_text("utf-8")


def default_root() -> Path:
    """agentflow's own checkout, or the installed package if there is none."""
    package = Path(__file__).resolve().parents[1]
    return package.parent if (package.parent / "pyproject.toml").is_file() else package


def state_directory() -> Path:
    """Where run files go: ``$XDG_STATE_HOME/agentflow``, else ``~/.local/state/agentflow``, else a new temporary one."""
    base = os.environ.get("XDG_STATE_HOME")
    path = (Path(base) if base else Path.home() / ".local" / "state") / "agentflow"
    try:
        make_private_directory(path)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        # a name that can be guessed, in a directory that all can write to, may be somebody else's by now
        return Path(tempfile.mkdtemp(prefix=f"agentflow-{os.getuid()}-"))
    return path


def _within(path: str, root: Path) -> str:
    """``path`` relative to the root."""
    relative = os.path.relpath(path, root)
    return path if relative.startswith("..") else relative


class Answer:
    """Writes the streamed answer to standard output, on lines of its own."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.text = ""

    def __call__(self, text: str) -> None:
        """Write the next piece of the answer."""
        self.text += text
        self._out.write(text)
        self._out.flush()


async def run_demo(
    *,
    question: str | None,
    root: str | None,
    model: str | None,
    base_url: str | None,
    as_json: bool,
    events_file: str | None,
) -> int:
    """Run the demo. Returns the exit code."""
    where = Path(root) if root is not None else default_root()
    if not where.is_dir():
        what = "is not a directory" if where.exists() else "does not exist"
        raise UsageError(f"the root {where} {what}", code="cli/root", hint="give a directory: --root DIR")
    program_text = example_text()
    query = question or QUESTION
    chosen = model or load_settings().model or "offline"
    say = sys.stderr
    print(clean(program_text), file=say)
    print(f"root      {where}\nmodel     {chosen}\nquestion  {clean(query)}\n", file=say, flush=True)
    if chosen == "offline":
        print("(offline is an extractive stand-in, no language model; --model uses a real one)\n", file=say)

    began = time.perf_counter()
    answer = Answer(sys.stdout)
    totals = Totals()
    options = FlowOptions(model=chosen, base_url=base_url, root=str(where))
    async with open_flow(options) as flow:
        writer = JsonlWriter(
            Path(events_file) if events_file else state_directory() / "runs" / f"demo-{time.time_ns():x}.jsonl",
            flow.redact,
        )
        try:
            flow.subscribe(totals)
            flow.subscribe(
                Console(
                    say,
                    clean=lambda text: flow.redact(clean(text)),
                    answer=None if as_json else answer,
                    answer_task="answer-question",
                )
            )
            flow.subscribe(writer)
            try:
                program = flow.compile(Source(f"examples/{EXAMPLE}", program_text), bindings={"question": query})
            except AgentflowError as error:
                raise (CompileFailed(error) if is_compile_error(error) else error) from error
            try:
                result = await flow.run(program, bindings={"question": query})
            except AgentflowError as error:
                if answer.text:
                    print("the answer above was cut off; it is no result", file=say)
                show_error(error, as_json=as_json)
                return exit_code(error)
        finally:
            await writer.aclose()
        value = result.value
        if as_json:
            body = {"ok": True, "value": plain(value), "run_id": result.run_id, "usage": plain(result.usage)}
            write_out(flow.redact(json.dumps(body, ensure_ascii=False)) + "\n")
        else:
            if not answer.text:
                answer(clean(str(value["answer"])) + "\n")
            write_out(
                "\nfiles it rests on:\n" + "".join(f"  {clean(_within(path, where))}\n" for path in value["files"])
            )
        usage = result.usage
        cost = "unknown" if result.cost is None else f"${result.cost:.4f}"
        print(
            f"\ntime         {time.perf_counter() - began:.2f} s\n"
            f"calls        {totals.tasks} tasks, {totals.model_calls} model calls, {totals.tools} tool calls\n"
            f"tokens       {usage.input_tokens:,} in, {usage.output_tokens:,} out; cost {cost}\n"
            f"concurrency  {totals.peak} model calls at once\n"
            f"events       {writer.path}",
            file=say,
        )
    return Exit.OK
