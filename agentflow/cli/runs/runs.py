"""``agentflow runs``: lists, shows, compares, answers, resumes, cancels and removes earlier runs.

Each command here parses its options, calls one function and exits with its code; without a command the runs are listed.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from agentflow.cli.shared.common import run_async
from agentflow.cli.shared.help_text import HelpGroup
from agentflow.cli.shared.options import AsJson, Database, Where, takes_options
from agentflow.cli.shared.run_options import CancelOptions, ForkOptions, ResumeOptions
from agentflow.core.data.event_log import LogBounds

runs = typer.Typer(cls=HelpGroup, invoke_without_command=True, help="List earlier runs, newest first, or look at one.")

Directory = Annotated[
    str | None,
    typer.Option("--dir", metavar="DIR", help="Read the event files in DIR instead of the command's own records."),
]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="The id of a run, its beginning or end, or a file of events. Default: the last one."
    ),
]


@runs.callback()
def list_(
    context: typer.Context,
    directory: Directory = None,
    db: Database = None,
    durable: Annotated[bool, typer.Option("--durable", help="List durable runs only.")] = False,
    where: Where = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="The same as --where status=STATUS.")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, metavar="NUMBER", help="Maximum number of runs.")] = 100,
    json: AsJson = False,
) -> None:
    """List earlier runs, newest first, or look at one.

    The command records its runs; the list shows the outcome, time and cost of each.
    """
    if context.invoked_subcommand is not None:
        return
    chosen = " ".join([*(where or ()), *([] if status is None else [f"status={status}"])])
    from agentflow.cli.runs.run_list import list_durable, list_runs

    if durable:
        sys.exit(run_async(partial(list_durable, db, where=chosen, limit=limit, as_json=json), as_json=json))
    sys.exit(run_async(partial(list_runs, directory, db, where=chosen, limit=limit, as_json=json), as_json=json))


runs.command("list", hidden=True)(list_)


@runs.command()
def show(
    run: Run = None,
    directory: Directory = None,
    db: Database = None,
    transcript: Annotated[
        bool,
        typer.Option("--transcript", help="Print prompts, answers, calls and questions instead, from top to bottom."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Show the effects of a run on its program's text, its cost and its failures.

    Each line starts with the state of the expressions that begin on it (+ done, = from records, > running, ~ suspended,
    - cancelled, x failed), their number of runs, time and cost.
    """
    from agentflow.cli.runs.run_read import show as show_run

    sys.exit(run_async(partial(show_run, run, directory, db, transcript=transcript, as_json=json), as_json=json))


@runs.command()
def tail(
    run: Run = None,
    directory: Directory = None,
    db: Database = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f", help="Wait for more until the run ends. Default: no.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print the events of a run, one per line."""
    from agentflow.cli.runs.run_read import tail as tail_run

    sys.exit(run_async(partial(tail_run, run, directory, db, follow=follow, as_json=json), as_json=json))


@runs.command()
def diff(
    one: Annotated[str, typer.Argument(metavar="FIRST", help="A run, as for show.")],
    other: Annotated[str, typer.Argument(metavar="SECOND", help="The run to compare it with.")],
    directory: Directory = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Compare two runs: other inputs, other outputs, in one run only."""
    from agentflow.cli.runs.run_read import compare

    sys.exit(run_async(partial(compare, one, other, directory, db, as_json=json), as_json=json))


@runs.command()
def gc(
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, metavar="NUMBER", help="Number of runs to keep. Default: 500.")
    ] = None,
    megabytes: Annotated[
        int | None, typer.Option("--megabytes", min=0, metavar="NUMBER", help="Megabytes to keep. Default: 1000.")
    ] = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Remove durable runs that have ended, with all their records.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Remove durable runs that ended longer ago, and results for reuse: 30d. Without other options nothing else.",
        ),
    ] = None,
    forget: Annotated[
        str | None,
        typer.Option(
            "--forget", metavar="TIME", help="Forget the summaries of removed durable runs that ended longer ago: 365d."
        ),
    ] = None,
    directory: Directory = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Remove the records of the oldest runs, except waiting or active ones.

    The command does this by itself, and keeps the records of durable runs that can continue. With --durable or --older-than it removes
    durable runs instead: those that have ended, and results for reuse, oldest first. agentflow runs past shows their
    summaries.
    """
    from agentflow.cli.runs.run_list import collect, collect_durable

    chosen = LogBounds()
    if durable and keep is None and megabytes is None and older_than is None:
        keep, megabytes = chosen.runs, chosen.bytes // 1_000_000
    if durable or older_than is not None or forget is not None:
        collecting = partial(collect_durable, older_than, keep, megabytes, forget, db, as_json=json)
        sys.exit(run_async(collecting, as_json=json))

    bounds = LogBounds(
        bytes=chosen.bytes if megabytes is None else megabytes * 1_000_000, runs=chosen.runs if keep is None else keep
    )
    sys.exit(run_async(partial(collect, directory, db, bounds, as_json=json), as_json=json))


@runs.command()
def past(
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, metavar="NUMBER", help="Maximum number of runs.")] = 100,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """List removed durable runs: their programs, outcomes and costs.

    agentflow runs gc keeps this summary of every run that it removes.
    """
    from agentflow.cli.runs.run_list import list_past

    sys.exit(run_async(partial(list_past, db, limit=limit, as_json=json), as_json=json))


@runs.command()
def load(db: Database = None, json: AsJson = False) -> None:
    """Show the load of workers, by queue and tenant.

    The numbers of queued, active and waiting runs, and how long the first has been queued.
    """
    from agentflow.cli.runs.run_list import show_load

    sys.exit(run_async(partial(show_load, db, as_json=json), as_json=json))


@runs.command()
def purses(db: Database = None, json: AsJson = False) -> None:
    """Show the purses of a database: the spending in their present periods, and when these end.

    The allowances of purses are in the application, or in [purses] of agentflow.toml.
    """
    from agentflow.cli.runs.run_list import show_purses

    sys.exit(run_async(partial(show_purses, db, as_json=json), as_json=json))


@runs.command()
def workers(db: Database = None, json: AsJson = False) -> None:
    """Show the workers: their hosts, their numbers of runs, and their builds.

    Workers with the same tools, tasks and workflows are of the same build.
    """
    from agentflow.cli.runs.run_list import show_workers

    sys.exit(run_async(partial(show_workers, db, as_json=json), as_json=json))


@runs.command()
def send(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the question.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The answer: JSON where it is JSON, else text.")],
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Answer a question or an approval of a durable run. The first answer counts.

    Answer an approval with yes or no, or with the reason why not; exactly {"approved": true, "arguments": {...}} is a yes
    with other arguments. Any other answer to an approval is a no.
    """
    from agentflow.cli.shared.open_waits import send_answer

    sys.exit(run_async(partial(send_answer, run, key, value, db, as_json=json), as_json=json))


@runs.command()
def say(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text that the model reads.")],
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="The task that shall read it, and no other.")
    ] = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Say something to a durable run at work, in whichever process.

    The outermost loop of a model with tools reads it before its next model call, as a message of the user.
    """
    from agentflow.cli.runs.run_mail_commands import say_to_run

    sys.exit(run_async(partial(say_to_run, run, text, task, db, as_json=json), as_json=json))


@runs.command()
def signal(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal.")],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="Its value: JSON where it is JSON, else text.")
    ] = "null",
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Send a signal to a durable run, which waits for it (flow.signal) or will."""
    from agentflow.cli.runs.run_mail_commands import signal_run

    sys.exit(run_async(partial(signal_run, run, name, value, db, as_json=json), as_json=json))


@runs.command()
def state(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")],
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Print the state that a durable run has published (flow.publish, ctx.state), also after its end."""
    from agentflow.cli.runs.run_mail_commands import show_state

    sys.exit(run_async(partial(show_state, run, db, as_json=json), as_json=json))


@runs.command()
@takes_options
def cancel(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")], options: CancelOptions
) -> None:
    """Cancel a durable run for good. Its finally forms run, as in any cancelled run.

    A waiting or interrupted run is first replayed from its records, as far as they go.
    """
    from agentflow.cli.run.durable import cancel_run

    work = partial(cancel_run, run, options)
    sys.exit(run_async(work, as_json=options.as_json or options.events, durable=True))


@runs.command("resume")
@takes_options
def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")], options: ResumeOptions
) -> None:
    """Resume a durable run, and print its value: the same as agentflow resume."""
    from agentflow.cli.run.durable import resume_run

    work = partial(resume_run, run, options)
    sys.exit(run_async(work, as_json=options.as_json or options.events, durable=True))


@runs.command("fork")
@takes_options
def fork(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a durable run.")], options: ForkOptions
) -> None:
    """Repeat a durable run from one effect on, as a new run, and print its value.

    The effect at the path and all that started after it had ended run again; everything else is answered from records.
    """
    from agentflow.cli.run.durable import fork_run

    work = partial(fork_run, run, options)
    sys.exit(run_async(work, as_json=options.as_json or options.events, durable=True))


@runs.command()
def report(
    run: Run = None,
    other: Annotated[str | None, typer.Argument(metavar="OTHER", help="An earlier run to compare with.")] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write it. Default: RUN.html here.")
    ] = None,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Write Markdown instead, to read from top to bottom: RUN.md; -o - prints it."),
    ] = False,
    directory: Directory = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Write a run as an HTML page, or in Markdown: its program, its timeline and every model call."""
    from agentflow.cli.runs.run_read import report_runs

    sys.exit(
        run_async(
            partial(report_runs, run, other, output, directory, db, markdown=markdown, as_json=json), as_json=json
        )
    )


@runs.command()
def export(
    run: Run = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help="chrome (Perfetto, speedscope) or otlp (OpenTelemetry collectors)."
        ),
    ] = "chrome",
    content: Annotated[
        bool, typer.Option("--content", help="Include the inputs and outputs of models and tools.")
    ] = False,
    directory: Directory = None,
    db: Database = None,
    json: AsJson = False,
) -> None:
    """Print a run as spans, for tools that show traces."""
    from agentflow.cli.runs.run_read import export_run

    sys.exit(run_async(partial(export_run, run, form, directory, db, content=content, as_json=json), as_json=json))
