"""Options of commands that run a program on cases, to evaluate or to improve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from agentflow.cli.shared.options import AsJson, Batch, BatchWithin, DatabaseOptions, FlowOptions, Where

ProgramAndCases = Annotated[
    list[str],
    typer.Argument(
        metavar="[PROGRAM] CASES",
        help="A .sexp or .py program, or with --app a task or workflow; then the cases. Without a program the cases are recorded runs.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class CaseOptions(DatabaseOptions, FlowOptions):
    """The options of commands that run a program on cases."""

    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FILTER",
            help="Only the cases that fit: 'tag=hard name=refund* metadata.level>2' (repeatable).",
        ),
    ] = None
    scorer: Annotated[
        list[str] | None,
        typer.Option(
            "--scorer",
            metavar="SCORER",
            help="exact, contains, json_equal, close, cost, latency, calls, steps, matches=REGEX, judge=CRITERION, or MODULE:NAME (repeatable). Default: exact.",
        ),
    ] = None
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", min=1, help="How often each case is drawn under each variant.")
    ] = 1
    live_tool: Annotated[
        list[str] | None,
        typer.Option(
            "--live-tool",
            metavar="NAME",
            help="Call this tool although it does not declare that it may be repeated (repeatable).",
        ),
    ] = None
    run_id: Annotated[
        str | None,
        typer.Option(
            "--run-id",
            metavar="ID",
            help="The evaluation or search to continue: one that a limit ended pays for the rest.",
        ),
    ] = None
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print the reused calls, the new calls and their cost; run nothing."),
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask on the terminal before anything is paid for.")
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class EvalOptions(CaseOptions):
    """The options of the command that evaluates a program on cases."""

    batch: Batch = False
    batch_within: BatchWithin = None
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="NAME=FILE",
            help="A variant: a TOML file with a table of fields for each task, or another program; the name may be left out (repeatable).",
        ),
    ] = None
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TASK.FIELD=VALUE",
            help="One field of a task in a variant called 'set'; * stands for all tasks (repeatable).",
        ),
    ] = None
    fail_below: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-below", metavar="SCORE=NUMBER", help="Exit 1 if the mean of a variant is lower (repeatable)."
        ),
    ] = None
    fail_drop: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-drop",
            metavar="SCORE=NUMBER",
            help="Exit 1 unless the interval of the difference from the baseline stays above minus NUMBER (repeatable).",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="NAME",
            help="Compare with this variant, or with a saved report: a .jsonl file of --save. Default: base.",
        ),
    ] = None
    primary: Annotated[
        list[str] | None,
        typer.Option(
            "--primary",
            metavar="SCORE",
            help="A primary score: the intervals of these hold together, and --until is about them (repeatable).",
        ),
    ] = None
    until: Annotated[
        float | None,
        typer.Option(
            "--until",
            metavar="NUMBER",
            help="Stop when the difference in the primary scores (default: the first) is known to NUMBER up and down.",
        ),
    ] = None
    save: Annotated[
        list[str] | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Write the report to FILE, by its ending: .html, .xml (JUnit), .md, .jsonl, .txt (repeatable).",
        ),
    ] = None
    rerun: Annotated[
        list[str] | None,
        typer.Option(
            "--rerun",
            metavar="NAME",
            help="Run this tool or task again, and its callers, in place of their records (repeatable).",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ImproveCommandOptions(CaseOptions):
    """The options of the command that searches for a better program."""

    edit: Annotated[
        list[str] | None,
        typer.Option(
            "--edit",
            metavar="TASK",
            help="A task whose instructions may change (repeatable). Default: all that the cases call.",
        ),
    ] = None
    by: Annotated[
        str, typer.Option("--by", metavar="NAME", help="own, or gepa with the extra gepa: it proposes instructions.")
    ] = "own"
    proposer: Annotated[
        str | None,
        typer.Option("--proposer", metavar="MODEL", help="The model that proposes. Default: that of the flow."),
    ] = None
    operator: Annotated[
        list[str] | None,
        typer.Option(
            "--operator",
            metavar="NAME",
            help="Also try: model, effort, few_shot, critic, vote, retry, check, drop, merge, split, concurrent (repeatable).",
        ),
    ] = None
    try_model: Annotated[
        list[str] | None,
        typer.Option("--try-model", metavar="MODEL", help="A model for --operator model (repeatable)."),
    ] = None
    holdout: Annotated[
        float, typer.Option("--holdout", metavar="PART", help="The part of the cases that decides at the end.")
    ] = 0.3
    generations: Annotated[
        int, typer.Option("--generations", metavar="N", min=1, help="Maximum number of generations of candidates.")
    ] = 4
    width: Annotated[int, typer.Option("--width", metavar="N", min=1, help="Proposals in each generation.")] = 3
    primary: Annotated[
        str | None, typer.Option("--primary", metavar="SCORE", help="The score to raise. Default: the first one.")
    ] = None
    finalists: Annotated[
        int, typer.Option("--finalists", metavar="N", min=1, help="Candidates that are drawn on the held-out cases.")
    ] = 2
    save: Annotated[
        str | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Write the best candidate, if one is better: a .toml file of fields of tasks; a changed program next to it, .sexp or .py.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CasesOptions(DatabaseOptions):
    """The options of the command that prints recorded runs as cases."""

    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Only runs with this label (repeatable)."),
    ] = None
    where: Where = None
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of runs.")] = 100
