"""Ports: the Protocols through which rooms use each other. Each has a fake in the tests and a real implementation."""

from __future__ import annotations

import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import field, replace
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from agentflow.core.call.approval import Denied
from agentflow.core.call.call import CallContext, EventScope, RunPort
from agentflow.core.call.endings import HandedOver
from agentflow.core.call.spending import PriceQuote
from agentflow.core.data.context import DataContext
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask, Definitions, NameInfo
from agentflow.core.data.messages import (
    Batching,
    Effort,
    Message,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Part,
    PromptCache,
    ToolSpec,
    Usage,
)
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.templates import Clear, HistoryConfig, TaskTemplate
from agentflow.core.data.values import to_json
from agentflow.core.events.effects import CallWorkflow, Solve
from agentflow.core.events.events import Event
from agentflow.core.events.facts import TaskFacts, ToolFacts, WorkflowFacts

Observer = Callable[[Event], None | Awaitable[None]]
"""A plain or async callable that receives every event."""


@runtime_checkable
class ProviderAdapter(Protocol):
    """An adapter for a model dialect; one adapter serves many models and many concurrent calls.

    It may have ``async def warm(self)``, which a flow calls in parallel with its start: it does the work that the first call would wait for, such as
    imports and a connection.
    """

    def profile(self, model: str) -> ModelProfile:
        """The profile of ``model``."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call. The last delta holds the whole response, unless the stream raises.

        Close the generator (``contextlib.aclosing``) to abandon the call: its connection is released then.
        Raises ProviderError and ConfigurationError.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens of ``request``, counted by the provider if it can, else estimated."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class Pricing(Protocol):
    """Knows the prices of calls."""

    async def quote(
        self, adapter: ProviderAdapter, model: str, input_tokens: int, prompt_cache: PromptCache | None = None
    ) -> PriceQuote | None:
        """The highest cost of a call of ``input_tokens`` over its routes; None if a route's price is unknown.

        ``prompt_cache`` is how long the provider is to cache its input.
        """
        ...

    def cost_of(self, adapter: ProviderAdapter, model: str, usage: Usage) -> float | None:
        """Dollars for ``usage`` at the dearest route; None if a route's price is unknown."""
        ...

    def batched(self, quote: PriceQuote) -> PriceQuote:
        """The most that a call may cost in a batch, from its quote as an ordinary one."""
        ...

    def unpriced(self, adapter: ProviderAdapter, model: str) -> str:
        """The first route whose price is unknown, as ``dialect:name``; ``model`` if all are known."""
        ...


class RateLimiter(Protocol):
    """Spreads calls over time, so that no model gets more than its rate. ``key`` is the ``dialect:model`` of a call."""

    def ready(self, key: str, tokens: int) -> bool:
        """Whether a call of about ``tokens`` may go now; if so, it is counted."""
        ...

    async def take(self, key: str, tokens: int, priority: int = 0) -> None:
        """Wait until a call may go, and count it. The highest priority first, then the first come."""
        ...

    def correct(self, key: str, tokens: int) -> None:
        """Count ``tokens`` more (or fewer) than a call was estimated at."""
        ...

    def hold(self, key: str, seconds: float) -> None:
        """Let no call go for ``seconds``: the server has refused one."""
        ...

    def learn(self, key: str, headers: Mapping[bytes, bytes]) -> None:
        """Lower the rate to the limits in the headers of an answer."""
        ...


class ModelRouter(Protocol):
    """Resolves a model name, as users write it, to an adapter and the adapter's own name for the model."""

    def resolve(self, model: str | None) -> tuple[ProviderAdapter, str]:
        """Adapter and bare name for ``dialect:name``, a bare name in the flow's dialect, or None for the flow's model.

        Raises ConfigurationError for an unknown dialect, a missing key, or no model at all.
        """
        ...

    def full_name(self, model: str | None) -> str:
        """``dialect:name`` of the model that :meth:`resolve` would resolve; ``model`` itself if it cannot. Needs no key."""
        ...


NeedsApproval: TypeAlias = Callable[[dict[str, Any], CallContext], bool | Awaitable[bool]]
"""Says whether a call with these arguments has to be approved; plain or async."""

Prepare: TypeAlias = Callable[[dict[str, Any], CallContext], Awaitable[Callable[[CallContext], Awaitable[Any]]]]
"""Called with a tool's arguments and call before it starts; the function it returns is run."""


ToolChooser: TypeAlias = Callable[[CallContext], Awaitable[tuple[Sequence[str] | None, Mapping[str, "Tool"]]]]
"""Chooses the tools of a turn: returns their names, None for all ordinary tools, and the objects among them."""
AnswerCheck: TypeAlias = Callable[[str, Any, CallContext], Awaitable[tuple[Any] | None]]
"""Judges an answer by its text and its value. Returns None to accept it, or a tuple of the value to put in its place; raises
Retry to have it repaired."""


@frozen(kw_only=True)
class TurnRules:
    """The host's rules for the turns of a prompt.

    ``chooser`` chooses more tools before each turn; ``choice_lasts`` says that the prompt's tool choice holds for every turn;
    ``check`` judges each answer of the right form, and ``rounds`` is how often an answer may be repaired; ``clear`` says when old
    results of tools are cleared from the requests (None: never).
    """

    chooser: ToolChooser | None = None
    choice_lasts: bool = False
    check: AnswerCheck | None = None
    rounds: int = 1
    clear: Clear | None = None


USUAL_RULES = TurnRules()
"""The rules of a prompt without host rules."""


@frozen
class ToolCall:
    """A call of a tool, as middleware sees it: the tool's ``name``, its ``arguments``, and the ``call_id`` of the model that
    asks for it (None: a program or the host calls).

    ``repeatable`` says whether a call may be repeated: the tool declares that it is ``read_only`` or ``idempotent``, or is a task
    or workflow of the flow: its own calls pass the middleware themselves.
    ``dataclasses.replace(call, arguments={...})`` is the same call with other arguments.
    """

    name: str
    arguments: dict[str, Any]
    call_id: str | None = None
    repeatable: bool = False


class ModelCall(Protocol):
    """A model call that middleware may carry out: await it for the answer, or iterate over its deltas; the last has the
    answer."""

    def __await__(self) -> Generator[Any, Any, ModelResponse]: ...
    def __aiter__(self) -> AsyncIterator[ModelDelta]: ...


ToolMiddleware: TypeAlias = Callable[
    [ToolCall, Callable[[ToolCall], Awaitable[TaskResult]], CallContext], Awaitable[TaskResult | Denied]
]
"""A function around calls of tools; its first argument carries the call out."""
ModelMiddleware: TypeAlias = Callable[
    [ModelRequest, Callable[[ModelRequest], ModelCall], CallContext],
    Awaitable[ModelResponse] | AsyncIterator[ModelDelta],
]
"""A function around calls of models: a coroutine function, or an async generator of deltas."""


@frozen(kw_only=True)
class Tool:
    """A tool: its specification, its function, and how it may be run.

    ``call`` takes the arguments dict and the CallContext. ``kind`` ``direct`` runs it; ``subtask`` runs the SubtaskRequest
    that it returns. ``read_only`` changes nothing; ``idempotent`` True may be repeated, False may not: a durable run
    interrupted in it does not repeat it without a decision (``on_inflight``); ``sequential`` never runs concurrently with
    another tool call of its turn. ``timeout_s`` bounds one attempt, ``retries`` is the number of further attempts after a
    failure; ``reuse`` the maximum age of an equal call's result for it to be reused (``1d``). ``approval`` asks the run's
    approver before each call made with granted (not host) authority, or, if it is a function of arguments and call, before
    calls where it does not return False. ``builtin`` tools are offered to a model only if named. ``validates`` says
    that ``call`` checks its arguments itself, as ``check`` does without running it; the arguments of other tools are
    checked against the schema first. ``prepare`` is for a tool that decides itself which calls need an approval: it asks
    before the tool starts, and returns the function to run in place of ``call``. ``function`` is the host function it was
    made from, ``version`` the version it declares, ``task`` the compiled template that a ``subtask`` runs instead of looking one up by name. ``origin`` names
    its owner, if not the host: approvers are shown it. ``declares_data``: a dict returned by ``call`` is an instance of its
    declared class, not a result. ``deps`` is the type of the run's dependencies that its function declares, if any. ``ends``: its
    result ends the task of the calling model. ``defer_loading``: it is offered once the model has found it with ``search_tools``. ``around`` is
    the middleware around its calls. ``external``: someone else carries it out. ``resumes``: it finds its work again
    in a durable run that was interrupted, and says itself when something begins that may not be repeated. ``prompted`` is a text for the system prompt of a
    task that has it as an object. ``code``: it runs programs that call these tools.
    """

    spec: ToolSpec
    call: Callable[[dict[str, Any], CallContext], Awaitable[Any]]
    kind: Literal["direct", "subtask"] = "direct"
    read_only: bool = False
    idempotent: bool | None = None
    sequential: bool = False
    timeout_s: float | None = None
    retries: int = 0
    approval: bool | NeedsApproval = False
    reuse: str | None = None
    builtin: bool = False
    validates: bool = False
    check: Callable[[dict[str, Any], CallContext], Awaitable[object]] | None = None
    prepare: Prepare | None = None
    origin: str = ""
    source: str | None = None
    sinks: Mapping[str, str] = field(default_factory=dict[str, str])
    returns: Mapping[str, Any] | Callable[[], Mapping[str, Any] | None] | None = None
    calls_models: bool = False
    declares_data: bool = False
    function: Any = None
    task: Any = None
    reuse_key: str | None = None
    version: str | None = None
    deps: Any = None
    ends: bool = False
    defer_loading: bool = False
    around: Sequence[ToolMiddleware] = ()
    external: bool = False
    prompted: str = ""
    resumes: bool = False
    code: Any = None

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.spec.name

    def spec_in(self, run: RunPort) -> ToolSpec:
        """Its specification in ``run``, which may override that of the task that it runs."""
        declared, journal = self.task, run.journal
        task: Any = declared if journal is None or declared is None else journal.template(declared)
        if task is declared:
            return self.spec
        before, now = [each.template.description or each.template.instructions for each in (cast(Any, declared), task)]
        return replace(self.spec, description=self.spec.description.replace(before, now))

    @property
    def reference(self) -> str:
        """Module and qualified name of its function, with the ``reuse_key`` and the ``version``, if it has them."""
        target = self.function
        while isinstance(target, functools.partial):
            target = cast(Any, target).func  # pyright: ignore[reportUnknownMemberType]
        parts = [each for each in (self.reuse_key, self.version and f"version {self.version}") if each]
        if target is not None:
            target = cast(Any, target if hasattr(target, "__qualname__") else type(target))
            parts.insert(0, f"{target.__module__}:{target.__qualname__}")
        return " ".join(parts)

    @property
    def identity(self) -> str:
        """A digest of its schema and origin: another tool of the same name has another one."""
        text = f"{self.name}\n{self.origin}\n{to_json(self.spec.input_schema)}"
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def facts(self) -> ToolFacts:
        """The facts known before it is called."""
        returns = self.returns
        return ToolFacts(
            name=self.name,
            read_only=self.read_only,
            idempotent=self.idempotent,
            source=self.source or f"tool:{self.name}",
            sinks=self.sinks,
            returns=returns() if callable(returns) else returns,
            calls_models=self.calls_models or self.kind == "subtask",
            approval=bool(self.approval) or self.prepare is not None,
            origin=self.origin,
            identity=self.identity,
        )


class ToolPort(Protocol):
    """The tool registry as the runtime and the turn loop see it."""

    @property
    def revision(self) -> object:
        """A token that stays the same until a tool is registered or removed, and then is another for good."""
        ...

    @property
    def defers(self) -> bool:
        """Whether the loading of any of them is deferred."""
        ...

    @property
    def edition(self) -> object:
        """The ``tools`` of a run that begins now, so that later changes by servers do not affect it."""
        ...

    def find(self, name: str, call: CallContext | None = None) -> Tool | None:
        """The tool called ``name`` in the run of ``call`` (None: in one that begins now), or None."""
        ...

    def hint_for(self, name: str) -> str | None:
        """Advice for ``name``, which is not a tool: switch it on, or use a similar name; None without any."""
        ...

    def names(self) -> Sequence[str]:
        """All names, sorted."""
        ...

    def ordinary(self, call: CallContext | None = None) -> tuple[ToolSpec, ...]:
        """The specs of all tools but the built-in ones, sorted by name: those offered to a model by default in the run of
        ``call`` (None: in one that begins now).
        """
        ...

    def describe(self, name: str) -> NameInfo | None:
        """The arguments of the tool called ``name``; the same object until it is registered again."""
        ...

    async def execute(
        self,
        name: str,
        arguments: dict[str, Any],
        call: CallContext,
        *,
        call_id: str | None = None,
        within: EventScope | None = None,
    ) -> TaskResult:
        """Check grants and approval, validate, run under the tool's time-out and retries, publish Tool events.

        Middleware comes first; a call that it carries out is ``within`` the scope of the whole. The subtask that a CONTINUATION asks
        for is run, and its result is the tool's. A failure is a FAILED result; TaskError, RunStopped and cancellation pass
        through unwrapped.
        """
        ...


@frozen(kw_only=True)
class Prompt:
    """A request to a handler: one user message, with everything needed to answer it.

    ``tools`` names the tools offered (None: every tool but the built-in ones); those in ``toolbox`` are its own objects.
    ``output_schema`` is a JSON Schema for the answer; ``json_output`` asks for JSON without one; ``output_model`` a
    pydantic model for the validated value and for partials. ``tool_choice`` is for the first turn, unless ``rules`` say that it
    is for each. ``max_turns`` bounds the tool loop. ``settings`` are native to
    the dialect. ``prompt_cache`` is how long the provider is to cache its input
    (:data:`~agentflow.core.data.messages.PromptCache`; None: the turn loop's own), ``effort`` how hard the model is to
    think; with ``batch`` its model calls are made in the vendor's batches; ``provider_tools`` are tools of the provider, in its own form, offered in addition to ours. ``schema_text``
    describes the form of the answer in words, after the parts and for this prompt only: it is sent if no schema is, or to a
    server that may ignore one, and never becomes part of the history. Without ``base_system`` the turn loop's own system
    text is left out. ``agent`` is the name of the task that asks; ``handed`` is the conversation that it continues in
    place of the session's.
    """

    parts: tuple[Part, ...]
    system: str = ""
    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    toolbox: Mapping[str, Tool] | None = None
    tool_choice: str = "auto"
    rules: TurnRules = USUAL_RULES
    output_schema: dict[str, Any] | None = None
    json_output: bool = False
    output_model: Any = None
    history: HistoryConfig = field(default_factory=HistoryConfig)
    max_turns: int | None = None
    max_output_tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    timeout_s: float | None = None
    prompt_cache: PromptCache | None = None
    effort: Effort | None = None
    batch: Batching | None = None
    provider_tools: tuple[dict[str, Any], ...] = ()
    schema_text: str = ""
    base_system: bool = True
    agent: str = ""
    handed: HandedOver | None = None


@frozen(kw_only=True)
class PromptOutcome:
    """The outcome of a prompt: the last response, the whole exchange, usage and, for JSON, the parsed value.

    ``parse_error`` says why the text is not JSON; ``schema_errors`` where valid JSON violates the schema,
    ``refused`` why the prompt's check did not accept the last answer. ``handed``: the conversation is handed over, and has no
    answer yet.
    """

    response: ModelResponse
    turn: tuple[Message, ...]
    usage: Usage
    cost_usd: float | None
    turns: int
    value: Any = None
    parse_error: str | None = None
    schema_errors: tuple[str, ...] = ()
    refused: str | None = None
    model: str = ""
    handed: HandedOver | None = None


class PromptRunner(Protocol):
    """The turn loop: runs a prompt, publishes model and tool events, returns the outcome."""

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Run a prompt in ``call.session``.

        Raises ProviderError, ConfigurationError, ResourceExhausted (context, output, turns) and LimitExceeded.
        The session gets the whole exchange or nothing.
        """
        ...


class TemplatePort(Protocol):
    """The task system as the runtime uses it."""

    @property
    def revision(self) -> object:
        """A token that stays the same until a template is registered, and then is another for good."""
        ...

    def find_template(self, identifier: str) -> TaskTemplate | None: ...
    def template_names(self) -> Sequence[str]: ...
    def find_compiled(self, identifier: str, defined: Definitions | None = None) -> CompiledTask | None:
        """The template of ``identifier``: one ``defined`` around the call, else a registered one."""
        ...

    def prepare(self, fields: Mapping[str, Any]) -> CompiledTask:
        """Check and parse the template of a definition without registering it. Raises DataError."""
        ...

    def publish(self, templates: Iterable[Any]) -> list[str]:
        """Register templates that programs defined, all or none. Returns their names."""
        ...

    def run(self, compiled: Any, request: SubtaskRequest, call: CallContext) -> Coroutine[Any, Any, TaskResult]:
        """Run the template ``compiled``, which this task system gave, within ``call`` (to be awaited): context, files,
        prompt, output. Publishes Task events.
        """
        ...

    def content(self, compiled: Any, request: SubtaskRequest, call: CallContext) -> Any:
        """The request of the template ``compiled`` at ``call`` beyond its arguments: data, equal for equal tasks."""
        ...

    async def run_subtask(self, request: SubtaskRequest, call: CallContext, task: Any = None) -> TaskResult:
        """Run the subtask of a CONTINUATION within ``call``. Publishes Subtask events."""
        ...


class NameFacts(Protocol):
    """Facts about the tasks and tools that programs call, before any of them is called."""

    def task(
        self,
        name: str,
        defined: Definitions | None = None,
        grants: frozenset[str] | None = None,
        *,
        turns: int | None = None,
    ) -> TaskFacts | None:
        """A task that programs ``defined``, or a registered one, called with ``grants`` (None: the host's); or None.

        ``turns`` are those of the run (None: the flow's).
        """
        ...

    def own_task(
        self,
        template: Mapping[str, Any] | CompiledTask,
        grants: frozenset[str] | None = None,
        *,
        turns: int | None = None,
        defined: Definitions | None = None,
    ) -> TaskFacts:
        """A task that a program itself defines, by its fields, among those ``defined`` before. Raises DataError."""
        ...

    def tool(self, name: str) -> ToolFacts | None:
        """The tool called ``name``, or None."""
        ...

    def workflow(self, name: str) -> WorkflowFacts | None:
        """The saved workflow called ``name``, or None; of those that were loaded, see :meth:`ready`."""
        ...

    def guards(self) -> Callable[[str, Iterable[str]], Mapping[str, Sequence[str]]] | None:
        """The guarded arguments of a callable other than a tool, with their allowed sources; None if there are none."""
        ...

    async def ready(self) -> None:
        """Load the stored data. Raises DataError."""
        ...

    def task_names(self) -> Sequence[str]:
        """The names of all registered tasks."""
        ...

    def tool_names(self) -> Sequence[str]:
        """The names of all registered tools."""
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
        """See :meth:`~agentflow.core.call.call.RunPort.take_over`."""
        ...

    async def guide(self, allow: frozenset[str], surface: Surface, call: CallContext) -> tuple[str, Mapping[str, str]]:
        """See :meth:`~agentflow.core.call.run_port.EngineServicesOf.guide`."""
        ...


class WorkflowPort(Protocol):
    """Carries out ``call-workflow``."""

    async def load_names(self) -> Sequence[str]:
        """The names of all saved workflows."""
        ...

    async def call_workflow(self, effect: CallWorkflow, call: CallContext) -> Any: ...


class ProgramChecker(Protocol):
    """Checks program texts against the existing names. The runtime implements it."""

    async def check(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str]
    ) -> Sequence[AgentflowError]:
        """The faults of a program that may call only the tasks and tools in ``allow``; empty if it may run.

        ``names`` are the variables it finds bound.
        """
        ...

    def declaration(self, source: Source, *, undecorated: bool = False) -> Mapping[str, Any] | None:
        """The declaration of a text as a workflow: ``params``, ``allow`` and ``description``; None without one.

        With ``undecorated`` any text that has a ``main`` counts. Raises AgentflowError for an invalid text or declaration.
        """
        ...


class ProgramExplorer(Protocol):
    """Tries programs out without calling anything."""

    async def explore(
        self, program: str | Source, allow: frozenset[str], inputs: Mapping[str, Any], call: CallContext
    ) -> Sequence[str]:
        """The errors and endless loops of a program that may call only the names in ``allow``, as text.

        ``inputs`` are its variables.
        """
        ...


class EvaluatorPort(Protocol):
    """The evaluator as task system and handler use it."""

    async def evaluate_string(self, sexp_string: str, initial_env: Any = None) -> Any: ...


class DataContextPort(Protocol):
    """Priming of sessions, as the system tools use it."""

    async def prime(self, query: str | None, initial_files: list[str] | None, call: CallContext) -> DataContext:
        """Prime ``call.session``. Raises TaskError (context_priming_failure)."""
        ...

    def clear(self, call: CallContext) -> None:
        """Clear the data context of ``call.session``."""
        ...


class HandlerPort(Protocol):
    """The handler as executors and evaluator use it."""

    async def prime_data_context(
        self, query: str | None = None, initial_files: list[str] | None = None
    ) -> DataContext: ...
    def clear_data_context(self) -> None: ...
