"""``agentflow demo``: prints a workflow, then runs it to answer a question about a repository.

A file without a summary (because of a bad answer, say) is left out, named at the end, and makes the exit code 1.
"""

from __future__ import annotations

import importlib.resources
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agentflow
from agentflow.cli.shared.common import (
    CompileFailed,
    Exit,
    events_to_file,
    exit_code,
    is_compile_error,
    show_error,
    write_json,
    write_out,
)
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.options import FlowOptions
from agentflow.cli.shared.progress import AnswerText, Progress, Totals
from agentflow.cli.shared.run_options import DemoOptions
from agentflow.cli.shared.state import can_record
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.core.data.values import plain
from agentflow.lib.own_threads import own_thread
from agentflow.lib.text.safe_text import clean
from agentflow.providers.local_weights import WHAT_IT_IS
from agentflow.settings import load_settings

if TYPE_CHECKING:
    from agentflow.run.handle import RunResult

QUESTION = "how are paths opened beneath a root so that symlinks cannot escape?"
EXAMPLE = "explain_repo.sexp"
SMALL_EXAMPLE = "explain_file.sexp"
"""The program for the small model on this machine: any other program would take it minutes to read."""


def example_text(name: str) -> str:
    """The demo program ``name``: the example of the checkout, or the copy in the package."""
    checkout = Path(agentflow.__file__).resolve().parents[1] / "examples" / name
    if checkout.is_file():
        return checkout.read_text("utf-8")
    return (importlib.resources.files("agentflow") / "examples" / name).read_text("utf-8")


def usual_model() -> str:
    """The model of a demo that names none: the small real one, if installed. Blocking."""
    from agentflow.providers.local_weights import find_weights

    return "local" if find_spec("xllamacpp") is not None and find_weights() is not None else "offline"


def default_root() -> Path:
    """agentflow's own checkout, or the installed package if there is none."""
    package = Path(agentflow.__file__).resolve().parent
    return package.parent if (package.parent / "pyproject.toml").is_file() else package


def _within(path: str, root: Path) -> str:
    """``path`` relative to the root."""
    relative = os.path.relpath(path, root)
    return path if relative.startswith("..") else relative


async def run_demo(question: str | None, options: DemoOptions) -> int:
    """Run the demo. Returns the exit code. Raises UsageError."""
    where = Path(options.root) if options.root is not None else default_root()
    model = options.model or load_settings().model or await own_thread(usual_model)
    example = SMALL_EXAMPLE if model == "local" else EXAMPLE
    text, query = example_text(example), question or QUESTION
    began = time.perf_counter()
    answer, totals = AnswerText(sys.stdout, lambda task: task.name == "answer-question"), Totals()
    record = options.record and can_record()
    async with open_flow(FlowOptions(model=model, base_url=options.base_url, root=str(where)), record=record) as flow:
        _announce(text, where, model, query)
        async with events_to_file(flow, options.events_file):
            flow.subscribe(totals)
            flow.subscribe(
                Progress(
                    sys.stderr,
                    clean=lambda text: flow.redact(clean(text)),
                    answer=None if options.as_json else answer,
                    table=False,
                )
            )
            try:
                program = flow.compile(Source(f"examples/{example}", text), bindings={"question": query})
            except AgentflowError as error:
                raise (CompileFailed(error) if is_compile_error(error) else error) from error
            try:
                result = await flow.run(program, bindings={"question": query})
            except AgentflowError as error:
                if answer.text:
                    say("the answer above was cut off and is not a result")
                show_error(error, as_json=options.as_json)
                return exit_code(error)
        if options.as_json:
            body = {
                "ok": not result.value["left_out"],
                "value": plain(result.value),
                "run_id": result.run_id,
                "usage": plain(result.usage),
            }
            write_json(flow.redact(body))
        else:
            _show_rest(result.value, answer, where)
    seen = f"agentflow runs show {result.run_id}" if record else options.events_file
    _show_totals(result, totals, time.perf_counter() - began, seen)
    left_out: list[str] = result.value["left_out"]
    for path in left_out:
        say(f"left out: {_within(path, where)} has no summary; the answer is based on the others")
    return Exit.FAILED if left_out else Exit.OK


def _announce(text: str, where: Path, model: str, question: str) -> None:
    print(clean(text), file=sys.stderr)
    say(f"root      {where}\nmodel     {model}\nquestion  {question}\n")
    if model == "offline":
        say("(offline is an extractive stand-in, not a language model; --model uses a real one)\n")
    elif model == "local":
        say(f"({WHAT_IT_IS})\n")


def _show_rest(value: Any, answer: AnswerText, where: Path) -> None:
    """Print the parts that were not streamed: the files, and the answer if the model sent it in one piece."""
    if not answer.text:
        answer.write(clean(str(value["answer"])) + "\n")
    write_out("\nbased on the files:\n" + "".join(f"  {clean(_within(path, where))}\n" for path in value["files"]))


def _show_totals(result: RunResult, totals: Totals, seconds: float, events: str | None) -> None:
    usage = result.usage
    cost = "unknown" if result.cost is None else f"${result.cost:.4f}"
    say(
        f"\ntime         {seconds:.2f} s\n"
        f"calls        {totals.tasks} tasks, {totals.model_calls} model calls, {totals.tools} tool calls\n"
        f"tokens       {usage.input_tokens:,} in, {usage.output_tokens:,} out; cost {cost}\n"
        f"concurrency  {totals.peak} model calls at once\n"
        f"events       {events or 'not recorded'}"
    )
