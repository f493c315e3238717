"""AgentFlow: the composition root. Every object is built once, bottom-up; this is the only place that names them all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar, overload

from typing_extensions import Unpack

from agentflow.arguments import (
    adapter_rates,
    base_system_of,
    check_interpreter,
    dependencies_of,
    directory,
    durable_runs,
    embedder_of,
    existing,
    finder_of,
    has_lock,
    is_own_memory,
    mcp_servers,
    middleware,
    notes_of,
    paths_of,
    patterns,
    policy_of,
    purses_of,
    recording_of,
    reuse_in,
    services_of,
    tasks_in,
    templates_in,
    tools_of_notes,
    unknown_parameter,
)
from agentflow.connect.connections import McpConnections
from agentflow.core.call.approval import Approver
from agentflow.core.call.provenance import PolicyInForce, Provenance
from agentflow.core.data.limits import Limits, OnLimit, Rate
from agentflow.core.data.messages import PromptCache
from agentflow.core.data.remembered import NoteSharing
from agentflow.core.data.session import Session
from agentflow.core.data.source import Surface
from agentflow.core.events.questions import Answerer
from agentflow.core.ports.memory_ports import CandidateSource, Embedder, MemoryPort
from agentflow.core.ports.ports import ModelMiddleware, Observer, ProviderAdapter, ToolMiddleware
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.policy import DENIED, CommandPolicy
from agentflow.executors.system_tools import SystemTools
from agentflow.exploration.explorer import FlowExplorer
from agentflow.flow.durable_methods import DurableMethods
from agentflow.flow.flow_host import FlowHost
from agentflow.flow.program_files import check_surface
from agentflow.flow.program_methods import ProgramMethods, at_limit_in, check_run
from agentflow.flow.task_options import SkillsLike
from agentflow.handler.data_context import DataContexts
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import ToolSettings, tool_from_function
from agentflow.handler.turn_loop import TurnLoop
from agentflow.journal.urls import Durable, durable_of, open_store
from agentflow.lang.words import TOOL_FORMS, WORDS
from agentflow.lib.option_table import over
from agentflow.lib.redact import Redactor, Secret, passwords_in
from agentflow.lib.redacted_copy import redacted
from agentflow.memory.finder import FileFinder
from agentflow.providers.fallback import FallbackProvider, FallbackRouter
from agentflow.providers.prices import Price, Prices, read_prices
from agentflow.providers.rates import RateTable, read_rates
from agentflow.providers.table import Provider, Router
from agentflow.run.bounds.estimator import LateEstimator
from agentflow.run.bounds.flow_facts import Facts
from agentflow.run.engine import Engine, ProgramCheck
from agentflow.settings import Settings, load_settings
from agentflow.tasks.granted import GrantedNames
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService
from agentflow.tasks.solve import Solver
from agentflow.tasks.workflows import WorkflowLibrary

if TYPE_CHECKING:
    from agentflow.connect.servers import McpServer
    from agentflow.core.data.allowances import Allowance
    from agentflow.core.data.source import Source
    from agentflow.evals.cases import Case, Cases, Scorer
    from agentflow.evals.forecast import Forecast
    from agentflow.evals.improvement.improve_options import ImproveOptions
    from agentflow.evals.improvement.improvement_forecast import ImprovementForecast
    from agentflow.evals.improvement.improvement_report import ImprovementReport
    from agentflow.evals.online import OnlineScoring
    from agentflow.evals.options import EvaluationOptions
    from agentflow.evals.report import EvaluationReport
    from agentflow.run.purses import Purses
    from agentflow.spec.evaluator import SexpEvaluator
    from agentflow.spec.executors import SystemExecutorFunctions
    from agentflow.spec.handler import BaseHandler
    from agentflow.spec.task_system import TaskSystem

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_NO_NOTES = "this flow keeps no notes: AgentFlow(notes='session') or notes='flow' does, --notes on the command line"


def _language_card(surface: Surface = "sexp") -> str:
    from agentflow.lang.card import language_card  # for programs that models write

    return language_card(surface)


# Named last, so that no room knows another's concrete classes (decision 1)
class AgentFlow(ProgramMethods, DurableMethods):
    """LLM workflows inside your asyncio application.

    Parameters:
        model: ``dialect:name`` (``anthropic:``, ``openai:`` = responses, ``openai-chat:``), ``offline`` or ``scripted``.
        system: the text before the system text of every task and prompt; None: that of the settings. It is the
            handler's ``base_system_prompt``.
        root: the directory that file tools and the index may see; a sequence for several.
        base_url: the address of the model server; else the variable of the model's SDK.
        api_key: the key of that server; else ``AGENTFLOW_API_KEY`` for a ``base_url``, or the SDK's variable, which is
            sent only to the vendor's hosts.
        provider: a ready ProviderAdapter, instead of ``model``; or :class:`Provider`, the options of the adapter that the flow
            builds for ``model``.
        memory: an object with ``get_relevant_context_for``, instead of the built-in MemorySystem.
        sources: propose files for a question, in addition to those from the index (:class:`CandidateSource`).
        embeddings: a model to find files by meaning; its key is ``AGENTFLOW_EMBEDDINGS_KEY``. Needs the extra
            ``embeddings``. Texts of the files are sent to it.
        embeddings_url: the server of that model, with ``/embeddings``; OpenAI's by default.
        tools: typed functions, async or plain; signature and docstring define their schemas.
        limits: the limits of each run (:class:`Limits`).
        on_limit: what a run does that would pass its limit of ``usd``, ``tokens``, ``model_calls`` or ``wall_s``: ``end``, or ``wait``
            with a question until the limit is raised (``answer``, :meth:`send`, :meth:`resume`).
        warn_at: the share of each of these limits, between 0 and 1, at which a LimitNear event is published, once.
        wrap_up: keep the last turn of each agent that its limits allow for the answer: it is told to finish, and has no tools then.
        rates: the most to send to models per minute: ``{"anthropic:*": Rate(requests_per_min=50, tokens_per_min=40_000)}``;
            shared by all processes if ``durable`` is PostgreSQL.
        prices: the prices of models, added to the built-in prices: ``{"openai-chat:llama*": Price(input=0, output=0)}``.
        durable: the database of durable runs, ``sqlite:///runs.db`` or, for several machines, ``postgresql://user@host/db``, or
            :class:`Durable` with its options; see :meth:`start`.
        purses: named accounts across runs, with an allowance for each period:
            ``Purses({"user-*": Allowance(usd=5, per="1d")})``. A run names the one to charge: ``flow.run(..., purse="user-42")``.
            The spending is kept in memory, or in the database of ``durable``. None: those of the settings.
        prompt_cache: how long providers are asked to cache the beginning of a prompt, so that the next call reads it for less:
            ``5m``, ``1h``, or False. Default: five minutes, where tools or history are sent or the beginning was sent before.
        fallbacks: models to try, in order, when a call fails before anything was delivered.
        approve: asked before a tool call that needs approval (takes an ApprovalRequest, returns a bool; may be async).
        answer: asked the questions of ``ask-human`` in programs (takes a Question, returns the answer; may be async). Without it, and
            without ``approve``, a durable run waits until :meth:`send` answers.
        approval_ttl: seconds that questions and approvals of other runs wait for :meth:`send` before they are denied.
        tasks: tasks and workflows declared without a flow (:func:`agentflow.task`), for programs, durable runs and
            workers; a directory of XML task templates; or a list of both.
        workflows: a directory of saved workflows.
        notes: the scope of ``remember`` and ``recall``: ``session``, within a conversation; ``flow``, for every run of
            this root; None: without these tools. In the SQLite file of ``durable``, else in the user's state directory.
        record: keep the events of each run, for ``agentflow runs``: True next to the durable runs, else in the user's state
            directory; or a directory. At most 1 GB or 500 runs are kept, the oldest go first.
        index_cache: keep the index of the files on disk, shared by processes: True for the user's cache directory, or a
            directory. Each process indexes in memory otherwise.
        allow_commands: patterns of commands that models may run unasked (``git log *``), added to those of the settings;
            ``python`` means that of the running environment.
        shell: allow command texts with shell operators.
        sandbox: the back-end of commands: ``auto``, ``bubblewrap``, ``landlock`` or ``none``.
        readable: files and directories that commands and MCP servers may read in the sandbox, added to the roots, the system's
            and those of the settings.
        surface: the language of the programs that models write for ``solve``: ``sexp``, the default, or ``python``.
        skills: directories of Agent Skills (folders with a ``SKILL.md``), which the models of all tasks and questions in Python may
            read, unless these have ``skills=`` of their own.
        mcp: the MCP servers of the flow (:class:`~agentflow.mcp.McpStdio`, :class:`~agentflow.mcp.McpHttp`). Their tools,
            named ``server:tool``, are available after :meth:`connect`, which ``async with`` awaits.
        provenance: the policy of where values may go (:class:`Provenance`), or the path of its file; with one, values carry their
            sources, and effects check them. None: nothing is followed.
        deps: makes the dependencies of each run without its own: a function of any of ``run_id``, ``session``, ``bindings``
            and ``labels``, async or plain, or an async context manager, which is entered when a run begins, when a durable
            run is resumed, and on workers. Tools read them as ``ctx.deps``.
        around_tool: async functions around each call of a tool, ``async def careful(call, run, ctx)``, the outermost first.
        around_model: async functions around each call of a model, ``async def redact(request, run, ctx)``.
        warm: import the SDK of ``model``, and open a connection to a vendor, in parallel with the code after :meth:`connect`, so that
            the first call of a process takes no longer than the second. False: at the first call.
        settings: a ready :class:`Settings`; else ``agentflow.toml`` of the working directory (never of a root) and
            ``AGENTFLOW_*`` variables are read.

    Attributes:
        settings: the settings in force.
        limits: the limits of a run without its own.
        tools: the registry of the flow's tools; ``tools=flow.tools`` offers them all.
        workflows: the library of saved workflows.
        notes: the stored notes of ``remember``; None without ``notes=``.
        database: the address of the durable runs, as in ``durable=``; None without.
        files: the roots, and access to the files in them.
        commands: runs commands under the flow's policy, in its sandbox.
        mcp: the connections to MCP servers.
        router: finds the provider of a model by its name, with prices and rates.
        redactor: removes secrets from the data that leaves a run.
        engine: opens runs and compiles programs; for code that extends the package.
        facts: the facts about the flow's tasks and tools, for forecasts.
        estimator: forecasts the work and cost of programs, see :meth:`bounds`.
        solver: has a model write programs, see :meth:`solve`.

    Use it with ``async with``, or call :meth:`aclose` at the end. Raises ConfigurationError (``config/option`` for any other parameter, with the intended
    one). You need no key and no network before the first model call: :meth:`connect` works without them.
    """

    # One straight line: each part takes only those built before it (decision 22)
    def __init__(
        self,
        model: str | None = None,
        *,
        system: str | None = None,
        root: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        provider: ProviderAdapter | Provider | None = None,
        memory: MemoryPort | None = None,
        sources: Sequence[CandidateSource] = (),
        embeddings: str | Embedder | None = None,
        embeddings_url: str | None = None,
        tools: Iterable[Callable[..., Any]] = (),
        limits: Limits | None = None,
        on_limit: OnLimit | None = None,
        warn_at: float | None = None,
        wrap_up: bool | None = None,
        prices: Mapping[str, Price] | None = None,
        rates: Mapping[str, Rate] | None = None,
        durable: str | Durable | None = None,
        purses: Purses | Mapping[str, Allowance] | None = None,
        prompt_cache: PromptCache | None = None,
        fallbacks: Sequence[str] = (),
        approve: Approver | None = None,
        answer: Answerer | None = None,
        approval_ttl: float = 0.0,
        tasks: str | os.PathLike[str] | Sequence[Any] | None = None,
        workflows: str | os.PathLike[str] | None = None,
        notes: NoteSharing | None = None,
        record: bool | str | os.PathLike[str] = False,
        index_cache: bool | str | os.PathLike[str] = False,
        allow_commands: Iterable[str] = (),
        shell: bool = False,
        sandbox: str | None = None,
        readable: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        surface: Surface | None = None,
        skills: SkillsLike = (),
        mcp: Sequence[McpServer] = (),
        provenance: Provenance | str | os.PathLike[str] | None = None,
        deps: Callable[..., Any] | None = None,
        around_tool: Sequence[ToolMiddleware] = (),
        around_model: Sequence[ModelMiddleware] = (),
        warm: bool = True,
        settings: Settings | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise unknown_parameter(unknown, AgentFlow)
        check_interpreter(has_lock())
        roots = paths_of(root)
        settings = settings or load_settings()
        self.settings = settings
        check_run(None, limits)
        base_system = base_system_of(system, settings.system)
        roots = roots or [settings.root, *settings.roots]
        self.limits = limits or settings.make_limits()
        stored = durable_of(durable)
        url = self.database = stored and stored.url
        passwords = [each for url in (url or "").split() for each in passwords_in(url)]
        self.redactor = Redactor.from_environment(os.environ, [*passwords, *([api_key] if api_key else [])])

        self.files = FileAccessManager([directory("root", each) for each in roots])
        self.commands = CommandExecutor(
            self.files,
            policy=CommandPolicy(
                allow=(*settings.allow_commands, *patterns(allow_commands)),
                deny=(*DENIED, *settings.deny_commands),
                shell=shell or settings.shell,
            ),
            programs=dict.fromkeys(("python", "python3"), sys.executable) if sys.executable else None,
            sandbox=sandbox or settings.sandbox,
            readable=[existing("readable", each) for each in (*settings.readable, *paths_of(readable))],
        )
        paces = RateTable(read_rates(rates or {}), read_rates(settings.rates))
        self._rates, pace = adapter_rates(paces, url)
        adapter, wanted = (None, provider) if isinstance(provider, Provider) else (provider, Provider())
        self.router = Router(
            model or settings.model,
            provider=adapter,
            base_url=base_url or settings.base_url,
            api_key=api_key.reveal() if isinstance(api_key, Secret) else api_key,
            settings=settings.model_settings,
            traits=over(settings.traits, wanted.traits),
            clocks=over(settings.clocks, wanted.clocks),
            retry=over(settings.retry, wanted.retry),
            gate=settings.concurrency,
            prices=Prices(
                read_prices(prices or {}),
                offered=read_prices(settings.prices),
                vouched=settings.prices_name_models,
            ),
            rates=pace,
        )
        store = None if stored is None else open_store(stored.url, stored.sync)
        reuse = None if store is None else reuse_in(store, self.redactor)
        self.tools = ToolRegistry({} if notes else dict.fromkeys(TOOL_FORMS, _NO_NOTES), reuse, WORDS)
        others = tuple(fallbacks) or tuple(settings.fallbacks)
        self.router.check(*others)
        self._prompts = TurnLoop(
            FallbackRouter(self.router, others) if others else self.router,
            self.tools,
            base_system=base_system,
            fallback=FallbackProvider,
            pricing=self.router.prices,
            rated=paces.counts_tokens,
            prompt_cache=settings.prompt_cache if prompt_cache is None else prompt_cache,
        )
        executor = AtomicTaskExecutor(self._prompts, self.files)
        rerank = executor.run_template if settings.rerank and memory is None else None
        embedder = (embeddings or settings.embeddings) if memory is None else None
        if isinstance(embedder, str):
            embedder = embedder_of(
                embedder, base_url=embeddings_url or settings.embeddings_url, prices=self.router.prices, rates=pace
            )
        self._memory: Any = memory
        self._index = (
            FileFinder(self.files, cache=index_cache, rerank=rerank, sources=sources, embedder=embedder)
            if memory is None
            else None
        )
        finder = self._index or finder_of(memory)
        templates = self._templates = TaskService(
            executor, finder, commands=self.commands, decompose=settings.decompose, reuse=reuse, words=WORDS
        )
        directories, declared = tasks_in(tasks)
        for template in templates_in(directories or settings.tasks):
            templates.register_template(template)
        for built_in in SystemTools(finder, self.files, self.commands, DataContexts(finder, self.files)).tools():
            self.tools.add(built_in)
        self.notes = notes_of(notes, os.path.realpath(roots[0]), url, self.redactor)
        for tool in tools_of_notes(self.notes):
            self.tools.add(tool)
        in_force = PolicyInForce(policy_of(provenance, settings.provenance))
        language = check_surface(surface) or settings.surface
        saved = workflows or settings.workflows
        self.workflows = WorkflowLibrary(
            ProgramCheck(templates, self.tools, self.limits), Path(saved) if saved else None
        )
        explorer = FlowExplorer(templates, self.tools)
        self.solver = Solver(
            executor,
            _language_card,
            GrantedNames(templates, self.tools, self.workflows),
            explorer=explorer,
            surface=language,
        )
        asks = rerank is not None or embedder is not None
        self.facts = Facts(
            templates,
            self.tools,
            self.limits,
            self.workflows,
            looks_up=asks,
            decompose=settings.decompose > 0,
            in_force=in_force,
        )
        self.estimator = LateEstimator(self.facts, self.router, self.limits, looks_up=asks, fallbacks=others)
        self.engine = Engine(
            templates,
            self.tools,
            finder,
            solver=self.solver,
            workflows=self.workflows,
            limits=self.limits,
            at_limit=at_limit_in({"on_limit": on_limit, "warn_at": warn_at, "wrap_up": wrap_up}),
            approver=approve,
            answerer=answer,
            approval_ttl=approval_ttl,
            redactor=self.redactor,
            estimator=self.estimator,
            in_force=in_force,
            roots=tuple(map(str, self.files.roots)),
            dependencies=dependencies_of(deps),
            around_tool=middleware("around_tool", around_tool),
            around_model=middleware("around_model", around_model),
        )
        self.engine.router = self.router
        self._stored_purses = None if store is None else store.purses
        self.engine.purses = purses_of(purses, self._stored_purses, settings.purses)
        self._recording = recording_of(record, url, self.redactor, self.router) if record else None
        if self._recording is not None:
            self.engine.subscribe(self._recording.recorder)
        self._durable = (
            None
            if store is None or stored is None
            else durable_runs(self.engine, store, self.redactor, stored, records=self._recording)
        )
        self._stored = stored
        self._host = FlowHost(
            self.engine,
            self.tools,
            self.estimator,
            self._recording,
            skills=skills,
            readable=(*map(str, self.files.roots), *self.commands.readable),
        )
        self._session = Session()
        self._provider = adapter
        self._warms = warm
        self._online: OnlineScoring | None = None
        self._warming: asyncio.Task[None] | None = None
        self._base_system = base_system
        for function in tools:
            self.tools.add(function)
        servers = mcp_servers(settings.mcp, mcp)
        self.tools.servers = frozenset([each.name for each in servers])
        if declared:
            self._host.declare(declared)
        self.mcp = McpConnections(
            servers,
            self.tools,
            partial(services_of, self.files, self.commands),
            self._prompts,
            redactor=self.redactor,
            roots=tuple(map(str, self.files.roots)),
            answers=self,
        )
        self.engine.news = self.mcp.news if servers else None

    @property
    def purses(self) -> Purses:
        """The purses of the flow: ``await flow.purses.look("user-42")`` gives a balance."""
        if self.engine.purses is None:
            self.engine.purses = purses_of({}, self._stored_purses)
            assert self.engine.purses is not None
        return self.engine.purses

    @cached_property
    def memory_system(self) -> Any:
        """The ``memory=`` of the flow, else a :class:`~agentflow.MemorySystem` over its files."""
        if self._index is None:
            return self._memory
        from agentflow.spec.memory import MemorySystem

        return MemorySystem(service=self._index.service, engine=self.engine)

    @cached_property
    def _conversing(self) -> tuple[TaskSystem, BaseHandler]:
        """The task system and the handler: they are made together, since tasks run in the handler's conversation."""
        from agentflow.spec.handler import BaseHandler
        from agentflow.spec.task_system import TaskSystem

        system = TaskSystem(None, self.memory_system, service=self._templates, engine=self.engine)
        handler = BaseHandler(
            system,
            self.memory_system,
            self._provider,
            {"base_system_prompt": self._base_system} if self._base_system else {},
            registry=self.tools,
            turn_loop=self._prompts,
            file_manager=self.files,
            command_executor=self.commands,
            redact=self.redactor.redact,
            session=self._session,
            engine=self.engine,
        )
        return system, handler

    @property
    def task_system(self) -> TaskSystem:
        """The tasks of the flow as the specification's :class:`~agentflow.TaskSystem`."""
        return self._conversing[0]

    @property
    def handler(self) -> BaseHandler:
        """The model, the tools and a conversation of the flow as the specification's :class:`~agentflow.BaseHandler`."""
        return self._conversing[1]

    @cached_property
    def executors(self) -> SystemExecutorFunctions:
        """The system tools of the flow as the specification's :class:`~agentflow.SystemExecutorFunctions`."""
        from agentflow.spec.executors import SystemExecutorFunctions

        return SystemExecutorFunctions(self.memory_system, self.files, self.commands, self.handler, engine=self.engine)

    @cached_property
    def evaluator(self) -> SexpEvaluator:
        """The flow as the specification's :class:`~agentflow.SexpEvaluator`."""
        from agentflow.spec.evaluator import SexpEvaluator

        return SexpEvaluator(self.task_system, self.handler, self.memory_system, engine=self.engine)

    async def __aenter__(self) -> AgentFlow:
        try:
            await self.connect()
            if self._durable is not None and self._stored is not None:
                if self._stored.is_there:
                    self._durable.gather_again()
                if self._stored.takes_over:
                    await self._durable.take_over()
        except BaseException:  # nothing stays open of a flow that could not connect, even when cancelled
            await self.aclose()
            raise
        return self

    async def connect(self) -> None:
        """Connect the MCP servers, concurrently, and register their tools; ``async with`` calls it. A second call does
        nothing. The model's SDK and connection get ready meanwhile and afterwards (``warm``).

        Raises ConfigurationError (``mcp/down``, with the server's last output) if a required server cannot be
        connected.
        """
        if self._warms and self._warming is None and (warming := self.router.warming()) is not None:
            self._warming = asyncio.create_task(warming, name="preparation of the first call")
        await self.mcp.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close connections, the index and the roots' descriptors. All runs must have ended."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.files.aclose)
            stack.push_async_callback(self.commands.aclose)
            if self._index is not None:
                stack.push_async_callback(self._index.aclose)
            elif is_own_memory(self._memory):
                stack.push_async_callback(self._memory.aclose)
            if self._rates is not None:
                stack.push_async_callback(self._rates.aclose)
            stack.push_async_callback(self.router.aclose)
            if self._warming is not None:
                stack.push_async_callback(_ended, self._warming)
            if self._recording is not None:
                stack.push_async_callback(self._recording.aclose)
            if self.notes is not None:
                stack.push_async_callback(self.notes.aclose)
            stack.push_async_callback(self.mcp.aclose)
            if self._durable is not None:
                stack.push_async_callback(self._durable.aclose)
            stack.callback(setattr, self.engine, "closed", True)
            if (
                self._durable is not None
            ):  # while the flow is open: "it is closed" would be stored as the failure of a run
                stack.push_async_callback(self._durable.suspend)
            if self._online is not None:  # its judges are runs of the flow
                stack.push_async_callback(self._online.aclose)

    @overload
    def tool(self, function: F, **options: Unpack[ToolSettings]) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolSettings]) -> Callable[[F], F]: ...
    def tool(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Register a typed function as a tool, also as a decorator. Returns the function.

        The options are those of :func:`agentflow.tool`. Raises ConfigurationError: ``config/option`` for an unknown one,
        ``tool/options``, and ``config/durable`` for ``reuse`` without a database.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.tools.add(tool_from_function(function, **options) if options else function)
            return function

        return register if function is None else register(function)

    @overload
    async def evaluate(
        self, program: Any, cases: Cases, *, forecast: Literal[True], **options: Unpack[EvaluationOptions]
    ) -> Forecast: ...
    @overload
    async def evaluate(
        self, program: Any, cases: Cases, *, forecast: Literal[False] = False, **options: Unpack[EvaluationOptions]
    ) -> EvaluationReport: ...
    async def evaluate(
        self, program: Any, cases: Cases, *, forecast: bool = False, **options: Unpack[EvaluationOptions]
    ) -> EvaluationReport | Forecast:
        """Run cases under variants of a program, and score them; only the calls that a variant changes are paid for.

        ``program`` is a workflow or task of the flow, a text, or a Path; None where every case is a recorded run. ``cases`` are
        those of :func:`agentflow.evals.read_cases`, or its arguments. ``variants`` are by name: overrides of tasks
        (``{"reply": {"model": "openai:gpt-5-mini"}}``, ``*`` for all tasks), another program, or ``{}`` for an unchanged
        repetition, drawn anew; ``base`` is the unchanged program, or the recorded run itself. ``scorers`` judge each sample, see
        :mod:`agentflow.evals`. Each case is drawn ``repeat`` times under each variant. ``limits`` bound the whole evaluation in
        dollars and tokens, and each sample otherwise; at the limit the report is ``partial``, and the same call with
        ``run_id=report.run_id`` and a higher limit does the rest. No answer is paid for twice.

        Only tools that declare ``read_only`` or ``idempotent`` are carried out, and those in ``live_tools``; others are answered
        from the records of the case, or end the sample as blocked, as does a question that neither those records nor the case, ``answer``
        (a function, or a task that plays the person) and ``approve`` answer. Tools and tasks in ``rerun`` are carried out anew, with their callers, although records answer. ``deps``
        are the dependencies of every sample: tasks with functions that may read them are carried out each time. ``baseline`` is the
        variant to compare with (default: ``base``), or the Path of a saved report: its samples of the same cases are the
        variant ``before``. The intervals of the ``primary`` scores hold together. ``until=0.02`` stops when their differences
        (default: that of the first score; with one variant, its mean) are known to 0.02 up and down, after 30 cases at least. At most
        ``concurrency`` cases are carried out at a time, shuffled by ``seed``. ``told`` gets each sample, its number and that of all.

        With ``forecast=True`` nothing is carried out or stored: all samples are replayed from the records, and a
        :class:`~agentflow.evals.Forecast` says which model calls are reused, run and may run, and their cost.

        Returns the report. A sample that fails is part of it. Raises ConfigurationError (``evals/cases``, ``evals/variant``,
        ``evals/rerun``, ``config/option``, ``config/durable`` for a flow without ``durable=``), JournalError ``durable/override``.
        """
        from agentflow.evals.options import plan_of

        plan = await plan_of(program, cases, options)
        if forecast:
            from agentflow.evals.forecast import Forecaster

            return await Forecaster(self.engine, self._durable_runs(), self.ask, plan, self._host.bounds).forecast()
        from agentflow.evals.evaluation import Evaluation

        return await Evaluation(self.engine, self._durable_runs(), self.ask, plan).report()

    @overload
    async def improve(
        self,
        program: Any,
        cases: Cases,
        scorers: Sequence[Scorer] = ...,
        *,
        forecast: Literal[True],
        **options: Unpack[ImproveOptions],
    ) -> ImprovementForecast: ...
    @overload
    async def improve(
        self,
        program: Any,
        cases: Cases,
        scorers: Sequence[Scorer] = ...,
        *,
        forecast: Literal[False] = False,
        **options: Unpack[ImproveOptions],
    ) -> ImprovementReport: ...
    async def improve(
        self,
        program: Any,
        cases: Cases,
        scorers: Sequence[Scorer] = (),
        *,
        forecast: bool = False,
        **options: Unpack[ImproveOptions],
    ) -> ImprovementReport | ImprovementForecast:
        """Search for better instructions of the tasks of a program, by evaluations that pay only for the calls that a candidate
        changes.

        ``program``, ``cases`` and ``scorers`` are those of :meth:`evaluate`. ``edit`` are the tasks whose instructions may change, as
        functions or by name (default: all that the cases call). In each of at most ``generations`` (default 4) generations a task
        reads the ``shown`` (4) cases with the lowest scores, with the records of their runs, and writes ``width`` (3) candidates:
        new instructions for one task each. ``model`` writes them (default: the flow's). With ``by="gepa"`` the optimiser of the
        extra ``gepa`` proposes. Candidates are compared on the same draws, first in these cases and then in all cases of the search.
        ``operators`` add candidates of their own (:mod:`agentflow.evals.improvement.operators`): ``model``, one of ``models``, ``effort`` and ``few_shot``
        change fields of tasks; ``critic``, ``vote``, ``retry``, ``check``, ``drop``, ``merge``, ``split`` and ``concurrent`` the text of the program,
        if it is one. The part ``holdout`` (0.3) of the cases has no share in that: at the end the best ``finalists`` (2) and their parents are
        drawn there, each from its first step. ``primary`` is the score to raise (default: the first one); more is better.

        ``limits`` bound the whole search in dollars and tokens, and each sample otherwise; a part is held back for the end. The
        same call with ``run_id=report.run_id`` continues an interrupted search, or with a higher limit one that it ended, and no
        answer is paid for twice. ``told`` gets each candidate when its figures are known. The other options are those of
        :meth:`evaluate`.

        With ``forecast=True`` nothing is carried out: an ``ImprovementForecast`` has the cost of the first evaluation, and the most that follows.

        Returns the report: ``report.best``, its ``diff`` and ``evidence``, ``report.save("better.toml")``. Nothing is applied.
        Raises ConfigurationError (``evals/edit``, ``evals/holdout``, ``evals/budget``, ``evals/scorer``, ``evals/score``, those of
        :meth:`evaluate`, ``config/extra`` without the extra).
        """
        from agentflow.evals.improvement.improve_options import carried_out, improvement_plan_of
        from agentflow.evals.improvement.search import Search

        plan = await improvement_plan_of(program, cases, scorers, options)

        async def explore(source: Source, inputs: Mapping[str, Any]) -> frozenset[str]:
            from agentflow.exploration.flow_rehearsal import explored_in_flow

            explored = await explored_in_flow(self.engine.tasks, self.engine.tools, source, inputs)
            return frozenset([f"{each.kind} {each.code}: {each.message}" for each in explored.errors])

        search = Search(self.engine, self._durable_runs(), self.ask, plan, self._host.bounds, explore)
        return await search.forecast() if forecast else await carried_out(search, options.get("by", "own"))

    async def cases(self, where: str = "", *, since: str | None = None, limit: int = 100, **labels: str) -> list[Case]:
        """Recorded runs as cases of an evaluation: at most ``limit`` durable runs that ended, the last changed first.

        They fit the filter ``where`` (``name=answer* cost>0.10``), were changed ``since`` a duration ago (``7d``) or a date, and
        have these ``labels``. Each has the name of its run, and no expectation. Raises the errors of :meth:`runs`.
        """
        from agentflow.evals.cases import Case

        runs = await self._durable_runs().ended(limit, where, since, labels)
        return [Case(run_id=each.run_id, name=each.run_id, metadata={"program": each.name}) for each in runs]

    def score(self, *scorers: Scorer, sample: float = 1.0, where: str = "", purse: str | None = None) -> OnlineScoring:
        """Score the durable runs that end from now on, in the background (see :mod:`agentflow.evals.online`): ``sample`` of
        those that fit the filter ``where``; ``purse`` pays for judges. Returns the counts. Raises ConfigurationError."""
        if self._online is None:
            from agentflow.evals.online import OnlineScoring

            self._online = OnlineScoring(self.engine, self._durable_runs(), self.ask)
        self._online.add(scorers, sample, where, purse)
        return self._online

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Send every event of every later run to ``observer``, plain or async. Call the returned function to unsubscribe."""
        return self.engine.subscribe(observer)

    def redact(self, value: T) -> T:
        """A text, or data of texts, without secrets: the value itself if it holds none, else a copy."""
        return redacted(value, self.redactor)


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])
