"""Ports: how the rooms of the first floor know each other. Each has a fake in the tests and one real implementation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from agentflow.core.call import CallContext
from agentflow.core.context import AssociativeMatchResult, ContextGenerationInput, DataContext
from agentflow.core.effects import CallWorkflow, Solve
from agentflow.core.errors import AgentflowError
from agentflow.core.events import Event
from agentflow.core.messages import (
    Message,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Part,
    ToolSpec,
    Usage,
)
from agentflow.core.names import CompiledTask, Definitions, NameInfo
from agentflow.core.reasons import Reason
from agentflow.core.requests import SubtaskRequest
from agentflow.core.results import TaskResult
from agentflow.core.templates import HistoryConfig, TaskTemplate

Observer = Callable[[Event], None | Awaitable[None]]
"""A plain or async callable that gets every event."""


@runtime_checkable
class ProviderAdapter(Protocol):
    """A model dialect. One adapter serves many models and many concurrent calls."""

    def profile(self, model: str) -> ModelProfile:
        """What is known of ``model``."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call. The last delta carries the whole response; without it the stream raised.

        Close the generator (``contextlib.aclosing``) to abandon the call: its connection is released then.
        Raises ProviderError and ConfigurationError.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens ``request`` would use, counted by the provider where it can, else estimated."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class ModelRouter(Protocol):
    """From a model name as users write it to an adapter and the adapter's own name for it."""

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        """Adapter and bare name for ``dialect:name``, a bare name in the flow's dialect, or None for the flow's model.

        Raises ConfigurationError for an unknown dialect, a missing key, or no model at all.
        """
        ...


ToolFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A callable action: its specification, the function behind it and how it may be run.

    ``call`` takes the arguments dict and the CallContext. ``kind`` ``direct`` runs it; ``subtask`` makes the turn loop
    run the SubtaskRequest it returns. ``read_only`` changes nothing; ``idempotent`` may be repeated; ``sequential``
    never runs beside another tool call of its turn. ``timeout_s`` bounds one try, ``retries`` more tries follow a
    failure. ``approval`` asks the run's approver before each call made with granted (not host) authority. ``builtin``
    tools are offered to a model only when named. ``validates`` says that ``call`` checks its arguments itself; those of
    other tools are checked against the schema before.
    """

    spec: ToolSpec
    call: Callable[[dict[str, Any], CallContext], Awaitable[Any]]
    kind: Literal["direct", "subtask"] = "direct"
    read_only: bool = False
    idempotent: bool = False
    sequential: bool = False
    timeout_s: float | None = None
    retries: int = 0
    approval: bool = False
    builtin: bool = False
    validates: bool = False

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.spec.name


class ToolPort(Protocol):
    """The tool registry as the runtime and the turn loop see it."""

    def find(self, name: str) -> Tool | None:
        """The tool called ``name``."""
        ...

    def names(self) -> Sequence[str]:
        """All names, sorted."""
        ...

    def describe(self, name: str) -> NameInfo | None:
        """What a call of the tool called ``name`` takes; the same object until it is registered anew."""
        ...

    async def execute(
        self, name: str, arguments: dict[str, Any], call: CallContext, *, call_id: str | None = None
    ) -> TaskResult:
        """Check grants and approval, validate, run under the tool's time-out and retries, publish Tool events.

        A failure is a FAILED result; a TaskError, a LimitExceeded and a cancellation go through unwrapped.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a task asks of a handler: one user turn, with everything needed to answer it.

    ``tools`` names the tools offered (None: every tool that is not built in). ``output_schema`` a JSON Schema for the
    answer; ``json_output`` asks for JSON without one; ``output_model`` a pydantic model for the validated value and for
    partials. ``max_turns`` bounds the tool loop. ``settings`` are native to the dialect.
    """

    parts: tuple[Part, ...]
    system: str = ""
    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    tool_choice: str = "auto"
    output_schema: dict[str, Any] | None = None
    json_output: bool = False
    output_model: Any = None
    history: HistoryConfig = field(default_factory=HistoryConfig)
    max_turns: int | None = None
    max_output_tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOutcome:
    """The end of a prompt: the last response, the whole turn, what it used, the parsed value where JSON was asked for.

    ``parse_error`` says why the text is not the JSON asked for; ``schema_errors`` where valid JSON misses the schema.
    """

    response: ModelResponse
    turn: tuple[Message, ...]
    usage: Usage
    cost_usd: float | None
    turns: int
    value: Any = None
    parse_error: str | None = None
    schema_errors: tuple[str, ...] = ()
    model: str = ""


class PromptRunner(Protocol):
    """The turn loop: prompt in, outcome out; model and tool events on the way."""

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Run a prompt in ``call.session``.

        Raises ProviderError, ConfigurationError, ResourceExhausted (context, output, turns) and LimitExceeded.
        The session gets the whole turn or nothing.
        """
        ...


class MemoryPort(Protocol):
    """The one retrieval entry point. Anything with this method can be a flow's memory."""

    async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
        """What is relevant, best first; ``error`` set when the lookup failed."""
        ...


class ContextFinder(Protocol):
    """Memory as services ask it: within a call."""

    async def find(self, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult:
        """What is relevant, best first; ``error`` set when the lookup failed."""
        ...


class Ranker(Protocol):
    """Orders candidates by how well they answer a question."""

    async def rank(
        self, question: ContextGenerationInput, candidates: Mapping[str, str], call: CallContext | None
    ) -> list[tuple[str, float]]:
        """``(path, score in 0..1)`` of the best ``question.max_results`` candidates, best first.

        ``candidates`` maps paths to what describes them, by ``question.matching_strategy``. ``call`` is where in a run
        that is; None outside of one.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileText:
    """A file that was read: ``path`` as asked for, ``text`` decoded (empty when ``binary``), ``digest`` blake2b-16."""

    path: str
    text: str
    size: int
    digest: str
    binary: bool = False
    newline: str = "\n"


class FilePort(Protocol):
    """Files within the roots. Every method raises PathDenied or FileFailure."""

    @property
    def roots(self) -> tuple[Path, ...]: ...
    def absolute(self, path: str) -> str:
        """The absolute form of ``path``, relative ones taken from the first root. Does not touch the disk."""
        ...

    def open_directory(self, path: str) -> int:
        """A descriptor of a directory below the roots, for callers on a worker thread, who close it."""
        ...

    async def read(self, path: str, *, max_bytes: int | None = None) -> FileText: ...
    async def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes: ...
    async def write(
        self, path: str, content: str | bytes, *, overwrite: bool = False, expected_digest: str | None = None
    ) -> None: ...
    async def list(self, path: str) -> list[str]: ...
    async def exists(self, path: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. ``exit_code`` is None when it was not started or was killed; ``error`` says why it failed.

    ``stdout`` and ``stderr`` are head and tail of the output; ``stdout_bytes`` and ``stderr_bytes`` count all of it.
    ``reason`` is the task-failure reason and ``code`` the stable ``family/name`` of a failure.
    """

    success: bool
    exit_code: int | None
    stdout: str
    stderr: str
    error: str | None = None
    reason: Reason | None = None
    timed_out: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration_s: float = 0.0
    code: str | None = None


class HostCommandPort(Protocol):
    """Processes as the specification has them. Anything with these methods can be a face's command executor."""

    async def execute_command_safely(
        self, command: str | Sequence[str], cwd: str | None = None, timeout: float | None = None
    ) -> CommandResult:
        """Run a command. Refusals, failures and time-outs are results, not exceptions."""
        ...

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        """Absolute paths of the existing files the output names, one a line."""
        ...


class CommandPort(Protocol):
    """Processes, under policy and sandbox."""

    async def execute_command_safely(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> CommandResult:
        """Run a command with the authority of ``call``, None being the host's.

        Refusals, failures and time-outs are results, not exceptions.
        """
        ...

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        """Absolute paths of the existing files the output names, one a line."""
        ...


class TemplatePort(Protocol):
    """The task system as the language's runtime sees it."""

    def find_template(self, identifier: str) -> TaskTemplate | None: ...
    def template_names(self) -> Sequence[str]: ...
    def find_compiled(self, identifier: str, defined: Definitions | None = None) -> CompiledTask | None:
        """The template ``identifier`` names: one of those ``defined`` around the call, else a registered one."""
        ...

    def prepare(self, fields: Mapping[str, Any]) -> CompiledTask:
        """The template of a definition, checked and parsed but not registered. Raises DataError."""
        ...

    def publish(self, templates: Iterable[Any]) -> list[str]:
        """Register templates that programs defined, all or none; their names."""
        ...

    async def run_request(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run an atomic task within ``call``: context, files, prompt, output. Publishes Task events."""
        ...

    async def run_subtask(self, request: SubtaskRequest, call: CallContext) -> TaskResult:
        """Run what a CONTINUATION asks for, nested under ``call``. Publishes Subtask events."""
        ...


class SolverPort(Protocol):
    """Carries out ``solve``, and takes over tasks that ran out of context or output."""

    async def solve(self, effect: Solve, call: CallContext) -> TaskResult: ...
    async def decompose(
        self,
        template: TaskTemplate,
        request: SubtaskRequest,
        goal: str,
        failed: TaskResult,
        call: CallContext,
        *,
        rounds: int,
    ) -> TaskResult:
        """What :meth:`~agentflow.core.call.RunPort.take_over` does."""
        ...


class WorkflowPort(Protocol):
    """Carries out ``call-workflow``."""

    async def call_workflow(self, effect: CallWorkflow, call: CallContext) -> Any: ...


class ProgramChecker(Protocol):
    """Checks program texts against the names there are. The runtime implements it."""

    def check(self, text: str, allow: frozenset[str], names: frozenset[str]) -> Sequence[AgentflowError]:
        """Everything wrong with a program that may call the tasks and tools in ``allow`` only and finds the variables
        ``names`` bound; empty when it may run."""
        ...


class EvaluatorPort(Protocol):
    """The evaluator as task system and handler see it."""

    async def evaluate_string(self, sexp_string: str, initial_env: Any = None) -> Any: ...


class DataContextPort(Protocol):
    """What sessions are primed with, as the system tools see it."""

    async def prime(self, query: str | None, initial_files: list[str] | None, call: CallContext) -> DataContext:
        """Prime ``call.session``. Raises TaskError (context_priming_failure)."""
        ...

    def clear(self, call: CallContext) -> None:
        """Forget what ``call.session`` was primed with."""
        ...


class HandlerPort(Protocol):
    """The handler as executors and evaluator see it."""

    async def prime_data_context(
        self, query: str | None = None, initial_files: list[str] | None = None
    ) -> DataContext: ...
    def clear_data_context(self) -> None: ...


ByteSource = AsyncIterator[bytes]
