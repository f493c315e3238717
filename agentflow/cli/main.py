"""The commands. Each parses its options, calls one function and exits with its code."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from agentflow.cli.common import UsageError, exit_code, parse_bindings, read_program, run_async, show_error
from agentflow.cli.options import (
    Allow,
    Approve,
    AsJson,
    BaseUrl,
    Bindings,
    Events,
    EventsFile,
    FlowOptions,
    LimitOptions,
    Model,
    Progress,
    Root,
    Sandbox,
    Tasks,
    Workflows,
)
from agentflow.core.errors import AgentflowError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run LLM workflows that are programs. The result goes to standard output, progress to standard error.",
)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"agentflow {version('agentflow')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run LLM workflows that are programs."""
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("TERM", "dumb")


def _options(
    model: str | None,
    base_url: str | None,
    root: str | None,
    tasks: str | None,
    workflows: str | None,
    limit: list[str] | None,
    approve: str,
    sandbox: str | None,
) -> FlowOptions:
    return FlowOptions(
        model=model,
        base_url=base_url,
        root=root,
        tasks=tasks,
        workflows=workflows,
        limits=tuple(limit or ()),
        approve=approve,
        sandbox=sandbox,
    )


def _execute(
    name: str,
    text: str,
    options: FlowOptions,
    bindings: dict[str, Any],
    allow: list[str] | None,
    as_json: bool,
    events: bool,
    events_file: str | None,
    progress: bool | None,
) -> NoReturn:
    """Run a program text on a new event loop and exit with its code; used by ``run`` and ``eval``."""
    from agentflow.cli.execute import execute

    sys.exit(
        run_async(
            lambda: execute(
                name,
                text,
                options,
                bindings=bindings,
                allow=allow,
                as_json=as_json,
                events=events,
                events_file=events_file,
                progress=progress,
            ),
            as_json=as_json or events,
        )
    )


@app.command()
def run(
    file: Annotated[str, typer.Argument(help="A .sexp program; - is standard input.")],
    bind: Bindings = None,
    model: Model = None,
    base_url: BaseUrl = None,
    root: Root = None,
    tasks: Tasks = None,
    workflows: Workflows = None,
    limit: LimitOptions = None,
    allow: Allow = None,
    approve: Approve = "ask",
    sandbox: Sandbox = None,
    json: AsJson = False,
    events: Events = False,
    events_file: EventsFile = None,
    progress: Progress = None,
) -> None:
    """Run a program and print its value."""
    try:
        bindings = parse_bindings(bind or [])
        name, text = read_program(file)
    except AgentflowError as error:
        show_error(error, as_json=json)
        sys.exit(exit_code(error))
    options = _options(model, base_url, root, tasks, workflows, limit, approve, sandbox)
    _execute(name, text, options, bindings, allow, json, events, events_file, progress)


@app.command("eval")
def evaluate(
    expression: Annotated[str, typer.Argument(help="A program text.")],
    bind: Bindings = None,
    model: Model = None,
    base_url: BaseUrl = None,
    root: Root = None,
    tasks: Tasks = None,
    workflows: Workflows = None,
    limit: LimitOptions = None,
    allow: Allow = None,
    approve: Approve = "ask",
    sandbox: Sandbox = None,
    json: AsJson = False,
    events: Events = False,
    events_file: EventsFile = None,
    progress: Progress = None,
) -> None:
    """Evaluate a program text and print its value."""
    text = sys.stdin.read() if expression == "-" else expression
    try:
        bindings = parse_bindings(bind or [])
    except UsageError as error:
        show_error(error, as_json=json)
        sys.exit(exit_code(error))
    options = _options(model, base_url, root, tasks, workflows, limit, approve, sandbox)
    _execute("<eval>", text, options, bindings, allow, json, events, events_file, progress)


@app.command()
def demo(
    question: Annotated[str | None, typer.Argument(help="What to ask about the repository.")] = None,
    root: Root = None,
    model: Model = None,
    base_url: BaseUrl = None,
    json: AsJson = False,
    events_file: EventsFile = None,
) -> None:
    """Ask a question about a repository: the whole of agentflow in one run, without key or network."""
    from agentflow.cli.demo import run_demo

    sys.exit(
        run_async(
            lambda: run_demo(
                question=question, root=root, model=model, base_url=base_url, as_json=json, events_file=events_file
            ),
            as_json=json,
        )
    )


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(help="Programs; - is standard input.")],
    json: AsJson = False,
) -> None:
    """Say everything that is wrong with programs, without running them."""
    from agentflow.cli.language import check_files

    sys.exit(check_files(files, as_json=json))


@app.command("fmt")
def format_programs(
    files: Annotated[list[str], typer.Argument(help="Programs; - is standard input.")],
    check_only: Annotated[bool, typer.Option("--check", help="Change nothing; exit 3 when something would.")] = False,
    json: AsJson = False,
) -> None:
    """Format programs in place."""
    from agentflow.cli.language import format_files

    sys.exit(format_files(files, check=check_only, as_json=json))


@app.command()
def repl(
    model: Model = None,
    base_url: BaseUrl = None,
    root: Root = None,
    tasks: Tasks = None,
    workflows: Workflows = None,
    limit: LimitOptions = None,
    approve: Approve = "ask",
    sandbox: Sandbox = None,
) -> None:
    """Type programs and see their values; ,help says more."""
    from agentflow.cli.options import open_flow
    from agentflow.cli.repl import repl as converse

    options = _options(model, base_url, root, tasks, workflows, limit, approve, sandbox)

    async def talk() -> int:
        async with open_flow(options) as flow:
            return await converse(flow)

    sys.exit(run_async(talk))


@app.command()
def index(
    root: Annotated[str, typer.Argument(help="The directory to index.")] = ".",
    history: Annotated[bool, typer.Option("--history/--no-history", help="Use git history for ranking.")] = True,
    json: AsJson = False,
) -> None:
    """Build or update the index of a directory and say what was left out."""
    from agentflow.cli.search import index_command

    sys.exit(run_async(lambda: index_command(root, history=history, as_json=json), as_json=json))


@app.command()
def search(
    query: Annotated[str | None, typer.Argument(help="What to look for.")] = None,
    root: Annotated[str, typer.Option("--root", help="The directory to search.")] = ".",
    k: Annotated[int, typer.Option("-k", min=1, help="At most so many matches.")] = 10,
    json: AsJson = False,
    serve: Annotated[bool, typer.Option("--serve-jsonl", help="Answer JSON lines from standard input.")] = False,
) -> None:
    """Find the files a question is about."""
    from agentflow.cli.search import search_command, serve_jsonl

    if serve:
        sys.exit(run_async(serve_jsonl, as_json=True))
    if query is None:
        error = UsageError("search: nothing to look for", hint='write agentflow search "words"')
        show_error(error, as_json=json)
        sys.exit(exit_code(error))
    sys.exit(run_async(lambda: search_command(query, root, k=k, as_json=json), as_json=json))


@app.command()
def runs(
    directory: Annotated[str | None, typer.Option("--dir", help="Where the event files lie.")] = None,
    json: AsJson = False,
) -> None:
    """List earlier runs by their event files, newest first."""
    from agentflow.cli.runs import list_runs

    sys.exit(list_runs(directory, json))


@app.command()
def doctor(json: AsJson = False) -> None:
    """Say what this machine offers and what is missing."""
    from agentflow.cli.doctor import doctor as examine

    sys.exit(run_async(lambda: examine(json), as_json=json))
