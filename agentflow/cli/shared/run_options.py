"""Options of commands that run a program, and of those that continue a durable run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.shared.options import (
    Batch,
    BatchWithin,
    DatabaseOptions,
    ModelOptions,
    OutputOptions,
    Purse,
    QueueOptions,
    WatchOptions,
)


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions(WatchOptions):
    """The options of a command that runs a program."""

    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="NAME",
            help='Do not trust the program: it may call this task or tool, and no other (repeatable; "" for none).',
        ),
    ] = None
    purse: Purse = None


@dataclass(frozen=True, kw_only=True)
class DurableOptions(DatabaseOptions, QueueOptions, RunCommandOptions):
    """The options of the command that runs a program, durably if asked to."""

    durable: Annotated[
        bool, typer.Option("--durable", help="Store the results of effects: after a kill, the same command resumes.")
    ] = False
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", metavar="ID", help="The id of the durable run; a finished run returns its result."),
    ] = None
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="NAME", help="The stored conversation to continue; with --durable."),
    ] = None
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="Leave the run to agentflow worker, and print its id; with --db postgresql://..."
        ),
    ] = False
    batch: Batch = False
    batch_within: BatchWithin = None


@dataclass(frozen=True, kw_only=True)
class ChangeOptions(DatabaseOptions, WatchOptions):
    """The options of a command that continues a durable run, optionally with changed tasks."""

    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TASK.FIELD=VALUE",
            help="Override a field of a task: review.model=openai:gpt-5, review.instructions=@file.txt; JSON where "
            "it is JSON; or @better.toml, a file with a table for each task (repeatable). Exactly these tasks, and what depends on them, run again.",
        ),
    ] = None
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the reused calls, the new calls and their cost; run nothing.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(ChangeOptions):
    """The options of the command that resumes a durable run."""

    program: Annotated[
        str | None,
        typer.Option(
            "--program",
            metavar="FILE",
            help="The edited program. Unchanged effects are answered from records, wherever they are in the text.",
        ),
    ] = None
    on_inflight: Annotated[
        str | None,
        typer.Option(
            "--on-inflight",
            metavar="WHAT",
            help="For commands and writes that an interruption cut off: retry (the default), ask (stop there), or fail.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CancelOptions(DatabaseOptions, WatchOptions):
    """The options of the command that cancels a durable run and may call tools to clean up."""


@dataclass(frozen=True, kw_only=True)
class ForkOptions(ChangeOptions):
    """The options of the command that forks a durable run."""

    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="PATH", help="The path of the effect to begin at; resume RUN --plan --json lists them."
        ),
    ] = ""
    run_id: Annotated[str | None, typer.Option("--run-id", metavar="ID", help="The id of the fork.")] = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions(OutputOptions, ModelOptions):
    """The options of the demo."""

    root: Annotated[
        str | None, typer.Option("--root", metavar="DIR", help="The repository. Default: agentflow's own.")
    ] = None
