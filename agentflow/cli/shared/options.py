"""Options that several commands share, and the flow built from them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from agentflow.cli.shared.approving import answerer, approver
from agentflow.cli.shared.common import UsageError
from agentflow.cli.shared.mcp_options import McpOptions, servers_of
from agentflow.cli.shared.state import can_record
from agentflow.core.data.errors import ConfigurationError

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.core.data.limits import Limits
    from agentflow.settings import Settings


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Root = Annotated[
    str | None,
    typer.Option("--root", metavar="DIR", help="The directory of the index and the file tools. Default: this one."),
]
Directory = Annotated[
    str | None, typer.Argument(metavar="DIR", help="The directory, the same as --root. Default: this one.")
]
EmbeddingModel = Annotated[
    str | None,
    typer.Option(
        "--embeddings", metavar="MODEL", help="An embedding model for searches by meaning; it is sent the files."
    ),
]
EmbeddingUrl = Annotated[
    str | None, typer.Option("--embeddings-url", metavar="URL", help="Its server. Default: OpenAI's.")
]
Tasks = Annotated[str | None, typer.Option("--tasks", metavar="DIR", help="XML task templates that programs may call.")]
Programs = Annotated[list[str], typer.Argument(metavar="FILE...", help="Programs; - is standard input.")]
Bound = Annotated[
    list[str] | None,
    typer.Option(
        "--bind", "-b", metavar="NAME", help="A name that will be bound (repeatable); others are then errors."
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--bind",
        "-b",
        metavar="NAME=VALUE",
        help="A variable of the program: JSON where it is JSON, else text (repeatable).",
    ),
]
Application = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:FLOW",
        help="Your own flow from a Python module, with its tasks, tools and workflows, instead of one made from options.",
    ),
]
DeclaredTools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME=FILE.py",
        help="A tool that the program calls, as a typed function of that name; it is not called (repeatable).",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--db", metavar="URL", help="The database of durable runs, as sqlite:///runs.db. Default: the command's own."
    ),
]


Purse = Annotated[
    str | None,
    typer.Option(
        "--purse",
        metavar="NAME",
        help="The purse that pays for the run: one of the application's, see --app, or of [purses] in agentflow.toml.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only those that match: 'status=failed label.product=support cost>0.10 since=7d' (repeatable).",
    ),
]
Record = Annotated[
    bool, typer.Option("--record/--no-record", help="Record the events for agentflow runs. Default: yes.")
]
Otel = Annotated[
    bool,
    typer.Option(
        "--otel",
        help="Write spans and metrics to the OpenTelemetry SDK of the process: opentelemetry-instrument agentflow ...",
    ),
]

Batch = Annotated[
    bool,
    typer.Option("--batch", help="Make the model calls in the vendor's batches: half the price, within a day."),
]
BatchWithin = Annotated[
    str | None,
    typer.Option(
        "--batch-within",
        metavar="TIME",
        help="As --batch; a call without an answer by then (2h) is made as an ordinary one.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model that answers, and its location. Each field is an option of the command line; see :func:`takes_options`."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="DIALECT:NAME",
            help="The model, for example anthropic:claude-sonnet-5-5 or openai:gpt-5; openai-chat:NAME with --base-url "
            "for a server of your own; local for a small model without a key; offline for a stand-in.",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="The model server, for example http://localhost:8080/v1."),
    ] = None
    root: Root = None


@dataclass(frozen=True, kw_only=True)
class FlowOptions(McpOptions, ModelOptions):
    """The options of a command that configure its flow. A field named like a setting overrides it."""

    app: Application = None
    tasks: Tasks = None
    workflows: Annotated[
        str | None, typer.Option("--workflows", metavar="DIR", help="Saved workflows that programs may call.")
    ] = None
    notes: Annotated[
        str | None,
        typer.Option(
            "--notes",
            metavar="WHOSE",
            help="Let programs and models remember and recall: session, within a conversation, or flow, for every run "
            "below this root; agentflow memory shows the notes, with the same --db.",
        ),
    ] = None
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=NUMBER",
            help="A limit of the run: steps, wall_s, turns, tokens, usd, ... (repeatable).",
        ),
    ] = None
    clock: Annotated[
        list[str] | None,
        typer.Option(
            "--clock",
            metavar="NAME=SECONDS",
            help="How long a model call may take: connect_s, first_byte_s, plain_first_byte_s, idle_s, wall_s; none for no limit (repeatable).",
        ),
    ] = None
    retries: Annotated[
        list[str] | None,
        typer.Option(
            "--retries",
            metavar="NAME=NUMBER",
            help="How a failed model call is made again: attempts (1 for never), base_s, cap_s, retry_after_cap_s (repeatable).",
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", metavar="USD", min=0, help="Maximum cost of the run; can only lower a limit."),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", min=0, help="Maximum tokens of the run; can only lower a limit."),
    ] = None
    approve: Annotated[
        str,
        typer.Option(
            "--approve",
            metavar="HOW",
            help="Tool calls that need an approval: ask on the terminal (refuse where there is none), never or always.",
        ),
    ] = "ask"
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Follow the sources of values, and deny calls by this policy (TOML: default, strict, [[sink]], [sources]).",
        ),
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Deny nothing: list the calls that the policy would deny.")
    ] = False
    sandbox: Annotated[
        str | None,
        typer.Option("--sandbox", metavar="NAME", help="The sandbox for commands: auto, bubblewrap, landlock or none."),
    ] = None
    readable: Annotated[
        list[str] | None,
        typer.Option(
            "--readable",
            metavar="PATH",
            help="A file or directory that commands and MCP servers may read in the sandbox, besides the roots and the system's (repeatable).",
        ),
    ] = None

    def settings(self) -> Settings:
        """The settings in force. Raises ConfigurationError."""
        from agentflow.settings import Settings, load_settings

        return load_settings(**{name: getattr(self, name, None) for name in Settings.model_fields})


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output of a command in addition to its result."""

    as_json: AsJson = False
    events_file: Annotated[
        str | None,
        typer.Option(
            "--events-file",
            metavar="FILE",
            help="Append the events to FILE as JSON lines, without the pieces of streamed text; "
            "agentflow runs show FILE reads it.",
        ),
    ] = None
    record: Record = True


@dataclass(frozen=True, kw_only=True)
class WatchOptions(OutputOptions, FlowOptions):
    """The options of a command that runs a program: its variables, and the display of the run."""

    bind: Variables = None
    events: Annotated[
        bool, typer.Option("--events", help="Print every event as a JSON line, then the result as the last one.")
    ] = False
    report: Annotated[
        str | None,
        typer.Option(
            "--report", metavar="FILE", help="Write the run as an HTML page: program, timeline, every model call."
        ),
    ] = None
    otel: Otel = False
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="Show progress on standard error. Default: on a terminal; elsewhere only messages of the program and warnings.",
        ),
    ] = None


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
class DatabaseOptions:
    """The location of durable runs."""

    db: Database = None


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """The queue of a run left to workers, and its priority."""

    queue: Annotated[str, typer.Option("--queue", metavar="NAME", help="The queue of the workers to leave it to.")] = (
        "default"
    )
    priority: Annotated[
        int,
        typer.Option(
            "--priority", metavar="NUMBER", min=-1000, max=1000, help="Workers start runs of higher priority first."
        ),
    ] = 0
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="The tenant of the run; workers prefer those with fewer runs."),
    ] = None


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


@dataclass(frozen=True, kw_only=True)
class ExploreOptions:
    """The options of the command that explores a program."""

    bind: Variables = None
    runs: Annotated[int, typer.Option("--runs", metavar="N", min=1, help="Maximum number of runs.")] = 300
    tools: DeclaredTools = None
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            metavar="RULE",
            help="A constraint on answers: 'grade in 0..10', 'kind in bug,feature' (repeatable).",
        ),
    ] = None
    write: Annotated[
        str | None, typer.Option("--write", metavar="DIR", help="Write a failing test for each error to DIR.")
    ] = None
    strict: Annotated[
        bool, typer.Option("--strict", help="Treat an unhandled failure of a task or tool as an error.")
    ] = False
    tasks: Tasks = None
    app: Application = None
    as_json: AsJson = False


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a command with a parameter ``options``, a dataclass, into one with an option per field."""
    hints = get_type_hints(command, include_extras=True)
    options: type[Any] = hints["options"]
    rows = get_type_hints(options, include_extras=True)
    defaults = {field.name: field.default for field in fields(options)}
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "options"]
    parameters = [
        *(each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=rows[name])
            for name, default in defaults.items()
        ),
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        command(options=options(**{name: values.pop(name) for name in defaults}), **values)

    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue] - typer reads it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def parse_limits(texts: Iterable[str], base: Limits) -> Limits:
    """Apply ``name=number`` options to ``base``. Raises UsageError, and ConfigurationError for an unknown limit."""
    from agentflow.settings import read_limits

    with _in_words():
        return read_limits(numbers_of("--limit", texts, lambda name: read_limits({name: None})), base)


@contextlib.contextmanager
def _in_words() -> Generator[None]:
    """A block with errors that name options as the command line does, and not as calls in Python."""
    try:
        yield
    except ConfigurationError as error:
        from agentflow.lib.text.toml_words import reworded

        raise reworded(error, "") from error


def numbers_of(option: str, texts: Iterable[str], check_name: Callable[[str], object]) -> dict[str, Any]:
    """The ``name=number`` texts of a repeatable option. Raises UsageError, and the error of ``check_name`` for an unknown
    name."""
    values: dict[str, Any] = {}
    for text in texts:
        name, _, number = text.partition("=")
        check_name(name)
        try:
            values[name] = None if number == "none" else float(number) if "." in number else int(number)
        except ValueError:
            raise UsageError(
                f"{option} {text}: the value is a number, or none", hint=f"write {option} {name}=1000"
            ) from None
    return values


@contextlib.asynccontextmanager
async def open_flow(options: FlowOptions, **overrides: Any) -> AsyncGenerator[AgentFlow, None]:
    """The flow that ``options`` and the settings describe; ``overrides`` are arguments of AgentFlow."""
    async with make_flow(options, **overrides) as flow:
        if flow.mcp.servers:
            from agentflow.cli.shared.mcp_names import remember

            await asyncio.to_thread(remember, flow)
        yield flow


def make_flow(options: FlowOptions, **overrides: Any) -> AgentFlow:
    """The same flow, not entered: nothing is connected or taken over."""
    if options.app is not None:
        return _application(options.app, options, overrides)
    from agentflow.app import AgentFlow
    from agentflow.providers.clocks import clocks_of
    from agentflow.providers.dialects.retry import retry_of
    from agentflow.providers.table import Provider

    settings = options.settings()
    with _in_words():
        clocks = numbers_of("--clock", options.clock or (), lambda name: clocks_of({name: 1}))
        retry = numbers_of("--retries", options.retries or (), lambda name: retry_of({name: 1}))
        clocks_of(clocks)
        retry_of(retry)
        provider = Provider(clocks=clocks, retry=retry)
    arguments: dict[str, Any] = {
        "settings": settings.model_copy(update={"mcp": {}}) if settings.mcp else settings,
        "provider": provider,
        "limits": parse_limits(options.limit or (), settings.make_limits()).lowered(
            options.max_cost, options.max_tokens
        ),
        "approve": approver(options.approve),
        "answer": None if "durable" in overrides else answerer(),
        "index_cache": True,
        "notes": options.notes,
        "mcp": servers_of(settings, options),
        "record": getattr(options, "record", False) and can_record(),
        "provenance": options.policy,
        **overrides,
    }
    return _explaining(AgentFlow(**cast(Any, arguments)), options)


def _explaining(flow: AgentFlow, options: FlowOptions) -> AgentFlow:
    """The flow, which denies nothing with ``--explain``. Raises UsageError if it has no policy."""
    if not options.explain:
        return flow
    engine = flow.engine
    if engine.provenance is None:
        raise UsageError("--explain tells what a policy denies, and there is none", hint="give one with --policy FILE")
    engine.follow(replace(engine.provenance, explain=True))
    return flow


def _application(where: str, options: FlowOptions, overrides: Mapping[str, Any]) -> AgentFlow:
    """The flow of ``--app``, within the limits of the command line, asking on the terminal.

    ``overrides`` may name other callbacks to ask.
    """
    from agentflow.cli.shared.application import check_durable, check_options, load_flow, narrow

    check_options(options)
    flow = load_flow(where)
    if options.policy is not None:
        narrow(flow, options.policy, where)
    durable = "durable" in overrides
    if durable:
        check_durable(flow, where)
    limits = parse_limits(options.limit or (), flow.limits).lowered(options.max_cost, options.max_tokens)
    flow.limits = flow.engine.limits = limits
    approve = overrides["approve"] if "approve" in overrides else approver(options.approve)
    answer = overrides["answer"] if "answer" in overrides else None if durable else answerer()
    flow.engine.attend(approve, answer)
    return _explaining(flow, options)


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(DatabaseOptions, FlowOptions):
    """The options of the command that executes runs of others."""

    slots: Annotated[
        int, typer.Option("--slots", metavar="NUMBER", min=1, help="Maximum number of concurrent runs.")
    ] = 100
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME[:NUMBER]",
            help="A queue to work on; with a number, the maximum of concurrent runs in all workers together "
            "(repeatable). Default: default.",
        ),
    ] = None
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0,
            help="How long runs may continue after SIGTERM or Ctrl-C; then other workers resume them.",
        ),
    ] = 30.0
    record: Record = True
    otel: Otel = False


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(DatabaseOptions, QueueOptions, FlowOptions):
    """The options of the command that schedules programs."""

    purse: Purse = None
    bind: Variables = None
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="Do not trust the program: it may call only NAME (repeatable)."),
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The schedule's name. Default: that of the file.")
    ] = None
    zone: Annotated[str, typer.Option("--zone", metavar="ZONE", help="The time zone of CRON.")] = "UTC"
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Remove this schedule.")] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ServeOptions(FlowOptions):
    """The options of the command that serves a flow."""

    export: Annotated[
        list[str] | None,
        typer.Option("--export", metavar="NAME", help="A task, tool or Python workflow to serve (repeatable)."),
    ] = None
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", metavar="NUMBER", min=0, max=65_535, help="The port; 0 picks a free one.")
    ] = 8000
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="The keys file, with the limits of each key: TOML. Default: AGENTFLOW_SERVE_KEYS. Without keys only "
            "this machine is served.",
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another host name of the server (repeatable)."),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin", metavar="URL", help="Let pages of this site use the server (repeatable). Default: none."
        ),
    ] = None
    programs: Annotated[
        bool,
        typer.Option(
            "--programs", help="Run programs sent by clients, untrusted: they may call only the names in --allow."
        ),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="A task or tool that sent programs may call (repeatable)."),
    ] = None
    fleet: Annotated[
        bool,
        typer.Option(
            "--fleet",
            help="Also show, answer and cancel the runs of workers and of other processes with the same --db. With keys, the "
            "key says so: fleet = true.",
        ),
    ] = False
    on_disconnect: Annotated[
        str,
        typer.Option(
            "--on-disconnect",
            metavar="WHAT",
            help="When a chat client disconnects, its run can cancel or continue. Runs of POST /runs continue.",
        ),
    ] = "cancel"
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0, help="How long runs may continue after Ctrl-C.")
    ] = 10.0
    record: Record = True


@dataclass(frozen=True, kw_only=True)
class McpServeOptions(FlowOptions):
    """The options of the command that is an MCP server."""

    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export", "--task", metavar="NAME", help="A task, tool or Python workflow to offer (repeatable)."
        ),
    ] = None
    run_program: Annotated[
        bool,
        typer.Option(
            "--run-program", help="Offer a tool that runs untrusted programs: they may call only the names in --allow."
        ),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="A task or tool that such programs may call (repeatable)."),
    ] = None
    record: Record = True
