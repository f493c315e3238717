"""The commands. Each parses its options, calls one function and exits with its code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

from agentflow.cli.admin.local import local
from agentflow.cli.admin.mcp import mcp
from agentflow.cli.admin.memory import memory
from agentflow.cli.admin.sessions import sessions
from agentflow.cli.runs.runs import runs
from agentflow.cli.shared.case_options import CasesOptions, EvalOptions, ImproveCommandOptions, ProgramAndCases
from agentflow.cli.shared.common import guarded, read_either, run_async
from agentflow.cli.shared.help_text import HelpGroup
from agentflow.cli.shared.host_options import ScheduleOptions, ServeOptions, WorkerOptions
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.mcp_options import McpOptions
from agentflow.cli.shared.options import (
    Application,
    AsJson,
    Bound,
    DeclaredTools,
    Directory,
    EmbeddingModel,
    EmbeddingUrl,
    ExploreOptions,
    FlowOptions,
    Programs,
    Root,
    Tasks,
    takes_options,
)
from agentflow.cli.shared.references import names_function
from agentflow.cli.shared.run_options import DemoOptions, DurableOptions, ResumeOptions, RunCommandOptions

_EPILOG = """\b
To begin: agentflow demo, then agentflow repl.
Settings: options, AGENTFLOW_* variables, agentflow.toml in this directory.
Exit codes: 0 ok, 1 the workflow failed, 2 usage or settings, 3 diagnostics,
  4 model, provider or key, 5 a limit, 75 waits for an answer, 124 time-out,
  130 interrupted."""

GROUPS = {
    "Run": ("run", "resume", "repl", "demo"),
    "Check": ("check", "explore", "fmt", "lsp", "skill"),
    "Evaluate": ("eval", "improve", "cases"),
    "Look back": ("runs", "sessions", "memory"),
    "Serve": ("serve", "mcp", "worker", "schedule"),
    "Find": ("index", "search"),
    "This machine": ("doctor", "trust", "local"),
}
"""The commands by purpose, in the order of the help."""


class _Grouped(HelpGroup):
    """Lists the commands under the titles of :data:`GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = formatter.width - 6 - max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


app = typer.Typer(
    cls=_Grouped,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run LLM workflows. The result goes to standard output, progress to standard error.",
    epilog=_EPILOG,
)


app.add_typer(local, name="local")
app.add_typer(mcp, name="mcp")
app.add_typer(memory, name="memory")
app.add_typer(runs, name="runs")
app.add_typer(sessions, name="sessions")


def _show_version(requested: bool) -> None:
    if requested:
        from agentflow.lib.distribution import own_version

        print(f"agentflow {own_version()}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run LLM workflows."""
    from agentflow.cli.shared.terminal import prepare_streams

    prepare_streams()


def _execute(options: RunCommandOptions, read: Callable[[], tuple[str, str]]) -> NoReturn:
    """Run the program with the name and text that ``read`` returns, and exit with its code."""
    from agentflow.cli.run.execute import execute

    as_json = options.as_json or options.events
    sys.exit(guarded(lambda: run_async(partial(execute, *read(), options), as_json=as_json), as_json=as_json))


@app.command()
@takes_options
def run(
    options: DurableOptions,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|MODULE:FLOW.WORKFLOW]",
            help="A .sexp or .py program, or a workflow of your own Python module; - is standard input.",
        ),
    ] = None,
    expression: Annotated[
        str | None, typer.Option("-e", "--expression", metavar="TEXT", help="The text of a program, instead of FILE.")
    ] = None,
) -> None:
    """Run a program, or a Python workflow, and print its value.

    launch:flow.audit is the workflow audit of the flow in launch.py here, which runs as your own code; -b gives its arguments.

    With --durable, the results of tasks and tools are stored before the program continues: after a kill or Ctrl-C the same
    command resumes the run and pays for nothing twice. A run that has ended is started again, unless --run-id names it.
    """
    if not (
        options.durable
        or options.detach
        or options.run_id is not None
        or options.db is not None
        or options.session is not None
        or options.batch
        or options.batch_within
    ):
        if names_function(file, expression, options.app):
            from agentflow.cli.run.execute import execute_function

            sys.exit(
                run_async(partial(execute_function, file or "", options), as_json=options.as_json or options.events)
            )
        _execute(options, lambda: read_either(file, expression))
    from agentflow.cli.run.durable import execute_durably, execute_function_durably

    as_json = options.as_json or options.events
    work = partial(run_async, as_json=as_json, durable=True)
    if names_function(file, expression, options.app):
        sys.exit(work(partial(execute_function_durably, file or "", options)))
    sys.exit(guarded(lambda: work(partial(execute_durably, *read_either(file, expression), options)), as_json=as_json))


@app.command("trust")
def trust_settings(
    directory: Annotated[
        str | None, typer.Argument(metavar="DIR", help="The directory of an agentflow.toml. Default: this one.")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Stop trusting it.")] = False,
    json: AsJson = False,
) -> None:
    """Trust a directory's settings as they are now.

    Their file is agentflow.toml. Programs that it would run are trusted in their present state too.

    Shows its grants: roots elsewhere, commands that models may run, a shell, higher limits, MCP servers with all their
    options. After any change to the file, or to a program or script of the directory that it runs, it must be trusted
    again.
    """
    from pathlib import Path

    from agentflow.cli.admin.trust import trust_file

    sys.exit(guarded(lambda: trust_file(Path(directory or "."), forget=forget, as_json=json), as_json=json))


@app.command()
@takes_options
def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")], options: ResumeOptions
) -> None:
    """Resume a durable run, and print its value.

    Effects with stored results are not repeated; a failed run retries its last failures. With --program or --set it
    continues as another run: of the edited program, with all records that still apply.
    """
    from agentflow.cli.run.durable import resume_run

    work = partial(resume_run, run, options)
    sys.exit(run_async(work, as_json=options.as_json or options.events, durable=True))


@app.command("eval")
@takes_options
def evaluate(
    options: EvalOptions,
    paths: ProgramAndCases,
) -> None:
    """Evaluate a program, and variants of it, on cases.

    Only the calls that a variant changes are paid for: the answers of tasks are kept in the database of durable runs. CASES is
    a .jsonl, .json, .csv or .yaml file, see agentflow cases. Exit code 1: a threshold was not met, 5: a limit ended it.
    """
    from agentflow.cli.run.evaluate import evaluate_program

    sys.exit(run_async(partial(evaluate_program, paths, options), as_json=options.as_json))


@app.command()
@takes_options
def improve(
    options: ImproveCommandOptions,
    paths: ProgramAndCases,
) -> None:
    """Search for better instructions of the tasks of a program.

    Reads the cases with the lowest scores, tries candidates, and decides on cases held out. Prints a diff with its evidence, and
    applies nothing. The same call with --run-id continues a search. Exit code 1: nothing is better, 5: a limit ended it.
    """
    from agentflow.cli.run.improve import improve_program

    sys.exit(run_async(partial(improve_program, paths, options), as_json=options.as_json))


@app.command()
@takes_options
def cases(
    options: CasesOptions,
) -> None:
    """Print recorded runs as cases of agentflow eval, one a line."""
    from agentflow.cli.run.evaluate import print_cases

    sys.exit(run_async(partial(print_cases, options)))


@app.command()
@takes_options
def demo(
    options: DemoOptions,
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="What to ask about the repository.")
    ] = None,
) -> None:
    """Answer a question about a repository, without key or network.

    Prints the program, the answer as it arrives and the files it is based on. With --model a real model answers. A
    file without a summary is left out, named, and makes the exit code 1.
    """
    from agentflow.cli.run.demo import run_demo

    sys.exit(run_async(lambda: run_demo(question, options), as_json=options.as_json))


@app.command()
@takes_options
def check(
    options: McpOptions,
    files: Programs,
    bind: Bound = None,
    tasks: Tasks = None,
    app: Application = None,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds",
            help="Print upper bounds of the calls and costs of the programs, and everything without a bound.",
        ),
    ] = False,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=N", help="With --bounds, how many elements a list has (repeatable)."),
    ] = None,
    max_model_calls: Annotated[
        int | None, typer.Option("--max-model-calls", metavar="N", min=0, help="Exit 3 if there may be more.")
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option("--max-usd", metavar="USD", min=0, help="Exit 3 if it may cost more.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="DIALECT:NAME", help="With --bounds, use the prices of this model."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="FILE", help="With this policy, the bounds list the sources of guarded arguments."
        ),
    ] = None,
    tool: DeclaredTools = None,
    json: AsJson = False,
) -> None:
    """Report the errors in programs, without running them."""
    if bounds or size or policy or max_model_calls is not None or max_usd is not None:
        from agentflow.cli.check.bounds import Maxima, bounds_files
        from agentflow.cli.shared.options import FlowOptions

        flow = FlowOptions(model=model, tasks=tasks, app=app, policy=policy, **vars(options))
        most = Maxima(max_model_calls, max_usd)
        work = partial(
            bounds_files, files, flow, bind=bind or (), sizes=size or (), maxima=most, tools=tool or (), as_json=json
        )
        sys.exit(run_async(work, as_json=json))
    from agentflow.cli.check.around import names_around
    from agentflow.cli.check.language import check_files, names_of
    from agentflow.cli.shared.tool_files import tools_in_files

    def check_all() -> int:
        around = names_around(options, tasks=tasks, app=app, tools=tools_in_files(tool or ()))
        return check_files(files, as_json=json, bindings=names_of(bind), names=around.names, notes=around.notes)

    sys.exit(guarded(check_all, as_json=json))


@app.command()
@takes_options
def explore(
    options: ExploreOptions,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .sexp or .py program; - is standard input.")],
) -> None:
    """Explore the outcomes of a program, without models or tools.

    Models answer anything that their schemas allow, near the constants of the program; tasks and tools may fail. Reports
    each error that can be reached with the answers that cause it, endless loops, and the arms that no run reached.
    """
    from agentflow.cli.check.explore import explore_file

    sys.exit(run_async(partial(explore_file, file, options), as_json=options.as_json))


@app.command("fmt")
def format_programs(
    files: Programs,
    check_only: Annotated[bool, typer.Option("--check", help="Change nothing; exit 3 if a file would change.")] = False,
    json: AsJson = False,
) -> None:
    """Format programs in place."""
    from agentflow.cli.check.language import format_files

    sys.exit(guarded(lambda: format_files(files, check=check_only, as_json=json), as_json=json))


@app.command()
@takes_options
def lsp(
    options: McpOptions,
    tasks: Tasks = None,
    app: Application = None,
    bind: Bound = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Accepted because editors pass it; always on.")] = True,
) -> None:
    """Serve an editor: errors, completion, documentation, renaming.

    Speaks the Language Server Protocol over standard input and output; an editor starts it.
    """
    from agentflow.cli.check.language_server import serve_editor

    sys.exit(guarded(lambda: serve_editor(options, tasks=tasks, app=app, bindings=bind)))


@app.command()
def skill(
    context: typer.Context,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Where to write the folder agentflow. Default: .agents/skills here."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Write a skill (SKILL.md) for coding agents.

    It teaches them to write, check and test agentflow. SKILL.md and its references have the checker's messages, the commands and the languages of the installed version. Write it
    again after an update.
    """
    from agentflow.cli.check.skill import write_skill

    group: Any = context.find_root().command
    listed = {
        title: [(name, group.commands[name].get_short_help_str(200)) for name in names]
        for title, names in GROUPS.items()
    }
    sys.exit(guarded(lambda: write_skill(out, listed, as_json=json), as_json=json))


@app.command()
@takes_options
def repl(
    options: FlowOptions,
    surface: Annotated[
        str,
        typer.Option("--surface", metavar="LANGUAGE", help="sexp (S-expressions), or python (the subset of Python)."),
    ] = "sexp",
) -> None:
    """Type programs and see their values."""
    from agentflow.cli.run.repl import repl as converse
    from agentflow.cli.run.repl import surface_of

    async def talk() -> int:
        language = surface_of(surface)
        async with open_flow(options) as flow:
            return await converse(flow, surface=language)

    sys.exit(run_async(talk))


@app.command()
def index(
    directory: Directory = None,
    root: Root = None,
    history: Annotated[bool, typer.Option("--history/--no-history", help="Use git history for ranking.")] = True,
    embeddings: EmbeddingModel = None,
    embeddings_url: EmbeddingUrl = None,
    json: AsJson = False,
) -> None:
    """Index a directory, or update its index.

    Prints the skipped files. Searches update the index by themselves; only the first time takes long.
    """
    from agentflow.cli.admin.search import index_command

    where = directory or root or "."
    work = partial(index_command, where, history=history, embeddings=embeddings, embeddings_url=embeddings_url)
    sys.exit(run_async(lambda: work(as_json=json), as_json=json))


@app.command()
def search(
    query: Annotated[str | None, typer.Argument(metavar="WORDS", help="What to look for.")] = None,
    directory: Directory = None,
    root: Root = None,
    k: Annotated[int, typer.Option("-k", min=1, metavar="NUMBER", help="Maximum number of matches.")] = 10,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Find files (file, the default), symbol or commit; repeatable."),
    ] = None,
    embeddings: EmbeddingModel = None,
    embeddings_url: EmbeddingUrl = None,
    json: AsJson = False,
    serve: Annotated[
        bool, typer.Option("--serve-jsonl", help="Answer requests from standard input, one JSON object per line.")
    ] = False,
) -> None:
    """Find the files, definitions or commits a question is about."""
    from agentflow.cli.admin.search import search_command, serve_jsonl

    if serve:
        serving = partial(serve_jsonl, embeddings=embeddings, embeddings_url=embeddings_url)
        sys.exit(run_async(serving, as_json=True))
    where = directory or root or "."
    command = partial(search_command, query or "", where, k=k, kinds=kind or ["file"])
    work = partial(command, embeddings=embeddings, embeddings_url=embeddings_url)
    sys.exit(run_async(lambda: work(as_json=json), as_json=json))


@app.command()
@takes_options
def serve(
    options: ServeOptions,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="FILE|DIR...", help="Programs, each exported under its file's name.")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option("--new-key", metavar="NAME", help="Print a new key and its table; serve nothing.")
    ] = None,
) -> None:
    """Serve programs and tasks over HTTP.

    /v1 is an OpenAI-compatible endpoint with the exports as models; /runs starts runs, streams their events and takes
    answers to their questions; / is a page that shows runs live.
    """
    from agentflow.cli.admin.serve import print_new_key, serve_flow

    if new_key is not None:
        sys.exit(guarded(partial(print_new_key, new_key)))
    sys.exit(run_async(partial(serve_flow, paths or [], options)))


@app.command()
@takes_options
def worker(
    options: WorkerOptions,
    flow: Annotated[str | None, typer.Argument(metavar="MODULE:FLOW", help="Your flow, the same as --app.")] = None,
) -> None:
    """Execute runs that were left to workers.

    These are runs of flow.start(where="workers"). Any number of workers, on any machine, share a PostgreSQL database. If one
    dies, the others resume its runs.
    """
    from agentflow.cli.admin.worker import work

    sys.exit(run_async(partial(work, options if flow is None else replace(options, app=flow))))


@app.command()
@takes_options
def schedule(
    options: ScheduleOptions,
    cron: Annotated[
        str | None, typer.Argument(metavar="CRON", help="Minute, hour, day of the month, month, day of the week.")
    ] = None,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A .sexp or .py program; - is standard input.")
    ] = None,
) -> None:
    """Have workers run a program on a schedule.

    For example agentflow schedule '0 7 * * *' digest.sexp --db postgresql://... The program is stored as it is now. Without
    a program, the schedules are listed.
    """
    from agentflow.cli.admin.schedule import schedule as keep

    sys.exit(run_async(partial(keep, cron, file, options), as_json=options.as_json))


@app.command()
def doctor(json: AsJson = False) -> None:
    """Report the features that work here, and the missing ones."""
    from agentflow.cli.admin.doctor import doctor as examine

    sys.exit(run_async(lambda: examine(json), as_json=json))
