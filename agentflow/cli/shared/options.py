"""Options that several commands share, and how a command takes the fields of a dataclass as its options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from agentflow.cli.shared.mcp_options import McpOptions

if TYPE_CHECKING:
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
            metavar="SCOPE",
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
