"""AgentFlow: the composition root. Every object is built once, bottom-up; this is the only place that names them all."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, overload

from agentflow.arguments import directory, loaded, notes_of, patterns, recording_of, roots_of
from agentflow.core.errors import ConfigurationError, JournalError
from agentflow.core.journal import OnInflight
from agentflow.core.limits import Limits, Rate
from agentflow.core.memory_ports import CandidateSource, Embedder, MemoryPort
from agentflow.core.names import Definitions
from agentflow.core.ports import Observer, ProviderAdapter
from agentflow.core.questions import Answerer, Question
from agentflow.core.remembered import NoteSharing
from agentflow.core.reuse import seconds_of
from agentflow.core.session import Session
from agentflow.core.source import Source
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.note_tools import note_tools
from agentflow.executors.policy import DENIED, CommandPolicy
from agentflow.executors.system_tools import SystemTools
from agentflow.handler.data_context import DataContexts
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import tool_from_function
from agentflow.handler.turn_loop import TurnLoop
from agentflow.journal.sqlite import Sync
from agentflow.journal.urls import open_store
from agentflow.lang.card import language_card
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.event_loop import running_loop
from agentflow.lib.redact import Redactor, Secret
from agentflow.lib.redacted_copy import redacted
from agentflow.memory.file_memory import FileMemory, default_cache_dir
from agentflow.memory.rerank import LlmRanker
from agentflow.providers.base import DEFAULT_GATE
from agentflow.providers.embeddings import Embeddings
from agentflow.providers.fallback import FallbackProvider, FallbackRouter
from agentflow.providers.prices import Price, Prices, read_prices
from agentflow.providers.rates import ProcessRates, read_rates
from agentflow.providers.table import Router
from agentflow.runtime.compiling import is_small
from agentflow.runtime.conversations import LastingSession
from agentflow.runtime.durable import DurableRuns
from agentflow.runtime.durable_run import DurableRun, RunInfo
from agentflow.runtime.engine import Engine
from agentflow.runtime.generations import Change, Overrides
from agentflow.runtime.handle import OwnReader, RunResult, RunStream
from agentflow.runtime.plan import RunPlan
from agentflow.runtime.program_files import ProgramLike, load_program, source_of
from agentflow.runtime.programs import ProgramCheck
from agentflow.runtime.questions import no_such_question
from agentflow.runtime.reuse import Reuse
from agentflow.runtime.run import Approver
from agentflow.settings import Settings, load_settings
from agentflow.spec.evaluator import SexpEvaluator
from agentflow.spec.executors import SystemExecutorFunctions
from agentflow.spec.handler import BaseHandler
from agentflow.spec.host import finder_of
from agentflow.spec.joining import executing_call, in_run
from agentflow.spec.memory import MemorySystem
from agentflow.spec.task_system import TaskSystem
from agentflow.tasks.executor import AtomicTaskExecutor
from agentflow.tasks.service import TaskService
from agentflow.tasks.solve import Solver
from agentflow.tasks.workflows import WorkflowLibrary
from agentflow.tasks.xml import read_directory

T = TypeVar("T")

_NO_NOTES = "this flow keeps no notes: AgentFlow(notes='session') or notes='flow' does, --notes on the command line"


class AgentFlow:
    """LLM workflows inside your asyncio application.

    Parameters:
        model: ``dialect:name`` (``anthropic:``, ``openai:`` = responses, ``openai-chat:``), ``offline`` or ``scripted``.
        root: what file tools and the index may see; a sequence for several.
        base_url, api_key: of the model server; else the SDKs' own environment variables.
        provider: a ready ProviderAdapter, instead of ``model``.
        memory: an object with ``get_relevant_context_for``, instead of the built-in MemorySystem.
        sources: propose files for a question, besides those that the index finds (:class:`CandidateSource`).
        embeddings: a model that finds files by what they mean, on the server with ``/embeddings`` at ``embeddings_url``
            (default: OpenAI's); its key is ``AGENTFLOW_EMBEDDINGS_KEY``. Needs the extra ``embeddings``. Texts of the files
            are sent there.
        tools: typed functions, async or plain; schemas come from signature and docstring.
        limits: of each run (:class:`Limits`).
        rates: how much models are sent a minute: ``{"anthropic:*": Rate(requests_per_min=50, tokens_per_min=40_000)}``.
        prices: what models cost, beside the prices that are known: ``{"openai-chat:llama*": Price(input=0, output=0)}``.
        durable: where durable runs are stored, ``sqlite:///runs.db``; see :meth:`start`. sync: ``normal`` survives a killed
            process, ``full`` a power cut too. on_inflight: what becomes of a tool marked ``idempotent=False`` that was at work
            when its durable run was interrupted: ``retry`` it, ``ask`` (the run is ``interrupted`` until somebody decides by
            :meth:`resume`), or ``fail``.
        fallbacks: models to try, in order, when a call fails before anything was delivered.
        approve: asked before a tool call that needs approval (takes an ApprovalRequest, gives a bool; may be async).
        answer: asked what programs ask with ``ask-human`` (takes a Question, gives the answer; may be async). Without it, and
            without ``approve``, a durable run waits until :meth:`send` answers.
        approval_ttl: seconds for which questions and approvals of other runs wait for :meth:`send` before they are denied.
        tasks: a directory of XML task templates. workflows: a directory of saved workflows.
        notes: what ``remember`` keeps and ``recall`` finds: ``session``, within a conversation; ``flow``, for every run of
            this root; None: there are no such tools. In the database of ``durable``, else in the user's state directory.
        record: keep the events of each run, for ``agentflow runs``: True beside the durable runs, else in the user's state
            directory; or a directory. At most 1 GB or 500 runs are kept, the oldest go first.
        index_cache: keep the index of the files on disk, shared by processes: True for the user's cache directory, or a
            directory. Each process indexes in memory otherwise.
        allow_commands: patterns of commands that models may run unasked (``git log *``), besides those of the settings;
            ``python`` is that of the running environment. shell: grants command texts with shell operators.
        sandbox: the back-end of commands: ``auto``, ``bubblewrap``, ``landlock`` or ``none``.
        settings: a ready :class:`Settings`; else ``agentflow.toml`` of the working directory (never of a root) and
            ``AGENTFLOW_*`` variables are read.

    Use as ``async with``; :meth:`aclose` otherwise. Raises ConfigurationError. No key and no network is needed before
    the first model call.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        root: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        provider: ProviderAdapter | None = None,
        memory: MemoryPort | None = None,
        sources: Sequence[CandidateSource] = (),
        embeddings: str | Embedder | None = None,
        embeddings_url: str | None = None,
        tools: Iterable[Callable[..., Any]] = (),
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        rates: Mapping[str, Rate] | None = None,
        durable: str | None = None,
        sync: Sync = "normal",
        on_inflight: OnInflight = "retry",
        fallbacks: Sequence[str] = (),
        approve: Approver | None = None,
        answer: Answerer | None = None,
        approval_ttl: float = 0.0,
        tasks: str | os.PathLike[str] | None = None,
        workflows: str | os.PathLike[str] | None = None,
        notes: NoteSharing | None = None,
        record: bool | str | os.PathLike[str] = False,
        index_cache: bool | str | os.PathLike[str] = False,
        allow_commands: Iterable[str] = (),
        shell: bool = False,
        sandbox: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        roots = roots_of(root)
        settings = settings or load_settings()
        self.settings = settings
        roots = roots or [settings.root, *settings.roots]
        self.limits = limits or settings.make_limits()
        self.redactor = Redactor.from_environment(os.environ, [api_key] if api_key else [])

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
        )
        paces = read_rates({**settings.rates, **(rates or {})})
        self.router = Router(
            model or settings.model,
            provider=provider,
            base_url=base_url or settings.base_url,
            api_key=api_key.reveal() if isinstance(api_key, Secret) else api_key,
            settings=settings.model_settings,
            gate=settings.concurrency or DEFAULT_GATE,
            prices=Prices(read_prices(prices or {}), offered=read_prices(settings.prices)),
            rates=ProcessRates(paces) if paces else None,
        )
        store = None if durable is None else open_store(durable, sync)
        reuse = None if store is None else Reuse(store.results, self.redactor)
        self.tools = ToolRegistry({} if notes else dict.fromkeys(("remember", "recall"), _NO_NOTES), reuse)
        others = tuple(fallbacks) or tuple(settings.fallbacks)
        self.router.check(*others)
        prompts = TurnLoop(
            FallbackRouter(self.router, others) if others else self.router,
            self.tools,
            base_system=settings.system,
            fallback=FallbackProvider,
            pricing=self.router.prices,
            rated=any([rate.tokens_per_min is not None for rate in paces.values()]),
        )
        executor = AtomicTaskExecutor(prompts, self.files)
        ranker = LlmRanker(executor.run_template) if settings.rerank else None
        cached = {"cache_dir": default_cache_dir() if index_cache is True else Path(index_cache)} if index_cache else {}
        embedder = (embeddings or settings.embeddings) if memory is None else None
        if isinstance(embedder, str):
            url = embeddings_url or settings.embeddings_url
            embedder = Embeddings(embedder, base_url=url, prices=self.router.prices)
        index = (
            FileMemory(cached, files=self.files, ranker=ranker, sources=sources, embedder=embedder)
            if memory is None
            else None
        )
        finder = index or finder_of(memory)
        templates = TaskService(executor, finder, commands=self.commands, decompose=settings.decompose, reuse=reuse)
        for template in read_directory(directory("tasks", where)) if (where := tasks or settings.tasks) else ():
            templates.register_template(template)
        for built_in in SystemTools(finder, self.files, self.commands, DataContexts(finder, self.files)).tools():
            self.tools.add(built_in)
        self.notes = notes_of(notes, os.path.realpath(roots[0]), durable, self.redactor)
        for tool in note_tools(self.notes) if self.notes is not None else ():
            self.tools.add(tool)
        saved = workflows or settings.workflows
        self.workflows = WorkflowLibrary(
            ProgramCheck(templates, self.tools, self.limits), Path(saved) if saved else None
        )
        self.solver = Solver(executor, language_card(), templates, self.tools, self.workflows)
        self.engine = Engine(
            templates,
            self.tools,
            finder,
            solver=self.solver,
            workflows=self.workflows,
            limits=self.limits,
            approver=approve,
            answerer=answer,
            approval_ttl=approval_ttl,
            redactor=self.redactor,
        )
        self._recording = recording_of(record, durable, self.redactor) if record else None
        if self._recording is not None:
            self.engine.subscribe(self._recording.recorder)
        self._records = None if self._recording is None else self._recording.events
        self._durable = (
            None
            if store is None
            else DurableRuns(self.engine, store, self.redactor, on_inflight=on_inflight, records=self._records)
        )
        self.memory_system: Any = MemorySystem(service=index, engine=self.engine) if memory is None else memory
        self.task_system = TaskSystem(None, self.memory_system, service=templates, engine=self.engine)
        self.handler = BaseHandler(
            self.task_system,
            self.memory_system,
            provider,
            {"base_system_prompt": settings.system} if settings.system else {},
            registry=self.tools,
            turn_loop=prompts,
            file_manager=self.files,
            command_executor=self.commands,
            redact=self.redactor.redact,
            engine=self.engine,
        )
        self.executors = SystemExecutorFunctions(
            self.memory_system, self.files, self.commands, self.handler, engine=self.engine
        )
        self.evaluator = SexpEvaluator(self.task_system, self.handler, self.memory_system, engine=self.engine)
        for function in tools:
            self.tools.add(function)

    async def __aenter__(self) -> AgentFlow:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close connections, the index and the roots' descriptors. Runs must have ended."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.files.aclose)
            stack.push_async_callback(self.commands.aclose)
            if isinstance(self.memory_system, MemorySystem):
                stack.push_async_callback(self.memory_system.aclose)
            stack.push_async_callback(self.router.aclose)
            if self._recording is not None:
                stack.push_async_callback(self._recording.aclose)
            if self.notes is not None:
                stack.push_async_callback(self.notes.aclose)
            if self._durable is not None:
                stack.push_async_callback(self._durable.aclose)

    @overload
    def tool(self, function: Callable[..., Any], *, reuse: str | None = None) -> Callable[..., Any]: ...
    @overload
    def tool(self, *, reuse: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
    def tool(self, function: Callable[..., Any] | None = None, *, reuse: str | None = None) -> Any:
        """Register a typed function as a tool; usable as a decorator. Gives the function back.

        ``reuse="1d"`` gives the result of an equal call, of any run of a flow with the same ``durable=`` database, that is
        not older than that. Raises ConfigurationError (``config/durable`` without a database).
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.tools.add(function if reuse is None else tool_from_function(function, reuse=reuse))
            return function

        return register if function is None else register(function)

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Give every event of every later run to ``observer``, plain or async; call what is returned to end that."""
        return self.engine.subscribe(observer)

    def redact(self, value: T) -> T:
        """A text, or data of texts, without secrets: the value itself if it holds none, else a copy."""
        return redacted(value, self.redactor)

    def compile(
        self,
        program: ProgramLike,
        *,
        bindings: Mapping[str, Any] | None = None,
        allow: Iterable[str] | None = None,
    ) -> Program:
        """Check and compile a program (text, a Path to a file, a Source). The result is cached and reusable.

        This is start-up code: it works on the spot, some milliseconds for a thousand characters, and longer for macros.
        :meth:`run` and :meth:`stream` compile what is long beside the event loop.

        ``bindings`` are the names it will find bound, ``allow`` the only tasks and tools it may name.
        Raises SexpSyntaxError and SexpEvaluationError with the place.
        """
        return self.engine.compile(
            source_of(program), bindings=bindings or (), grants=None if allow is None else frozenset(allow)
        )

    async def run(
        self,
        program: ProgramLike,
        *,
        bindings: Mapping[str, Any] | None = None,
        env: SexpEnvironment | None = None,
        session: Session | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        priority: int = 0,
    ) -> RunResult:
        """Run a program to its end.

        ``bindings`` are variables it finds; ``env`` an environment whose variables and tasks it shares; ``session`` a
        conversation to go on with; ``allow`` runs it as an untrusted program that may call only the tasks and tools
        named; ``limits`` and ``approve`` replace the flow's for this run. ``run_id`` names the run, which else gets an id
        of its own, and ``labels`` say what it belongs to (a user, a thread); its events carry both. ``max_cost`` (USD) and
        ``max_tokens`` lower the limits in force, and never raise them; where
        runs wait for rates or connections, that of the highest ``priority`` (-1000 to 1000) goes first. Called from inside a
        tool, the program runs within that tool's run, under its name: ``limits`` can only narrow that run's, and the
        result's usage is the program's own. Raises the program's error: SexpSyntaxError, SexpEvaluationError, TaskError,
        LimitExceeded, SessionBusy; ConfigurationError for a ``run_id`` or ``labels`` that cannot be.
        """
        if max_cost is not None or max_tokens is not None:
            limits = self._lowered(limits, max_cost, max_tokens)
        return await self._main(program, bindings, env, session, limits, allow, approve, run_id, labels, None, priority)

    def stream(
        self,
        program: ProgramLike,
        *,
        bindings: Mapping[str, Any] | None = None,
        env: SexpEnvironment | None = None,
        session: Session | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        priority: int = 0,
    ) -> RunStream:
        """Run a program and watch it: ``async with flow.stream(text) as run: async for event in run: ...``.

        Parameters as for :meth:`run`. ``await run.value()`` gives the value or raises the program's error.
        """
        if max_cost is not None or max_tokens is not None:
            limits = self._lowered(limits, max_cost, max_tokens)
        return RunStream(
            lambda own: self._main(
                program, bindings, env, session, limits, allow, approve, run_id, labels, own, priority
            )
        )

    async def start(
        self,
        program: ProgramLike,
        bindings: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        labels: Mapping[str, str] | None = None,
        session: Session | None = None,
    ) -> DurableRun:
        """Start a durable run: what its tasks and tools gave is stored, and never paid for again.

        Started again under the same ``run_id``, in this process or another, a run that was interrupted goes on, and one
        that has ended gives its recorded end. The other parameters are as for :meth:`run`; the run has ``session`` until
        it ends. Raises ConfigurationError
        (``config/durable``) for a flow without ``durable=``, JournalError when the run cannot be stored, belongs to a
        living process, or is one of another program; SessionBusy; and what :meth:`compile` raises.
        """
        runs = self._durable_runs()
        if executing_call() is not None:
            raise JournalError(
                "a durable run cannot be started inside a call of another run",
                code="durable/nested",
                hint="use flow.run there: what it does is part of the run around it, and as durable as that",
            )
        values = dict(bindings or {})
        grants = None if allow is None else frozenset(allow)
        source = await load_program(program)
        compiled = await self._compiled(source, SexpEnvironment(values), grants, limits, None)
        return await runs.start(
            compiled,
            values,
            run_id=run_id,
            limits=limits,
            allow=allow,
            approve=approve,
            labels=labels,
            session=session,
        )

    async def resume(
        self,
        run_id: str,
        *,
        program: ProgramLike | None = None,
        overrides: Overrides | None = None,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        on_inflight: OnInflight | None = None,
    ) -> DurableRun:
        """Go on with a durable run by what is stored of it; a failed one tries its last failures again.

        ``bindings`` are those that are not stored, because they are secret or no data; ``limits`` and ``approve`` replace
        the run's, ``on_inflight`` the flow's. With ``program``, the text as it is now, or ``overrides``, fields of tasks by the task's name
        (``{"review": {"model": "openai:gpt-5"}}``), the run goes on as a new generation with an id of its own: each effect
        that asks for what a recorded one asked for is answered from that record, wherever it stands. ``bindings`` may
        then replace and add to the run's. Asked for again it is the same generation. Raises as :meth:`start`, and
        JournalError ``durable/unknown-run``, ``durable/bindings`` and ``durable/override``.
        """
        runs = self._durable_runs()
        if program is None and not overrides:
            return await runs.resume(run_id, bindings=bindings, limits=limits, approve=approve, on_inflight=on_inflight)
        source = None if program is None else await loaded(program)
        change = Change(overrides=overrides or {})
        return await runs.derive(run_id, change, source=source, bindings=bindings, limits=limits, approve=approve)

    async def plan(
        self,
        run_id: str,
        *,
        program: ProgramLike | None = None,
        overrides: Overrides | None = None,
        at: str | None = None,
        bindings: Mapping[str, Any] | None = None,
    ) -> RunPlan:
        """What :meth:`resume` with these arguments, or with ``at`` :meth:`fork`, would do; nothing is carried out or stored.

        The program is replayed from the records, as far as they go. What follows from an effect that has none cannot be
        known, and the plan says so. Raises as these do.
        """
        source = None if program is None else await loaded(program)
        change = Change(overrides=overrides or {}, cut=at) if overrides or at or source else None
        return await self._durable_runs().plan(run_id, change, source=source, bindings=bindings)

    async def remove_runs(self, older_than: str) -> int:
        """Remove durable runs that ended longer ago than ``older_than`` (``30d``), and results for reuse that are older.

        None that waits, works or is to go on is removed, nor one whose records such a run may need. Gives the number of
        runs. Raises ValueError for what is no length of time, and as :meth:`start`.
        """
        return await self._durable_runs().gc(seconds_of(older_than))

    async def fork(
        self,
        run_id: str,
        at: str,
        *,
        as_run: str | None = None,
        overrides: Overrides | None = None,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
    ) -> DurableRun:
        """Run a durable run again from one of its effects on, beside it, as another run.

        ``at`` is the path of that effect: it and what started after it had ended are carried out, everything else is
        answered from records. ``as_run`` is the id of the fork, which else gets one that is the same for the same fork.
        The other parameters and errors are those of :meth:`resume`; ``durable/path`` for a path without a record.
        """
        change = Change(overrides=overrides or {}, cut=at)
        return await self._durable_runs().derive(
            run_id, change, as_run=as_run, bindings=bindings, limits=limits, approve=approve
        )

    def session(self, name: str, *, wait_s: float = 0.0) -> LastingSession:
        """A conversation that lasts: ``async with flow.session("user-42") as session``, to be passed to runs.

        It is loaded from the database of the durable runs, belongs to the block alone, in all processes, and is stored
        after each run in it and at the end of the block. A durable run that was interrupted keeps it, until it is gone on
        with or cancelled. Entering the block raises SessionBusy when somebody else has had the session for ``wait_s``
        seconds, and JournalError. Raises ConfigurationError: ``config/durable`` for a flow without ``durable=``,
        ``config/session`` for what is no name.
        """
        return self._durable_runs().sessions.session(name, wait_s)

    async def cancel(self, run_id: str) -> None:
        """Cancel a durable run for good, whether it works here or was interrupted. Raises as :meth:`resume`."""
        await self._durable_runs().cancel(run_id)

    async def send(self, run_id: str, key: str, answer: Any) -> None:
        """Answer a question or an approval of a run, which it then goes on with: the first answer counts.

        ``key`` is that of the :class:`Question`, and of the WaitStarted event. The answer must fit the question's schema; that
        of an approval is True or False. Raises DataError: ``question/answer`` for one that does not fit, ``question/unknown``
        when nothing is open under this key, or no more; and as :meth:`resume`.
        """
        if self.engine.questions.answer(run_id, key, answer):
            return
        if self._durable is None:
            raise no_such_question(run_id, key, self.engine.questions.of(run_id))
        await self._durable.send(run_id, key, answer)

    async def questions(self, run_id: str) -> list[Question]:
        """The open questions and approvals of a run, in the order in which they were asked. Raises as :meth:`resume`."""
        open_here = self.engine.questions.of(run_id)
        if open_here or self._durable is None:
            return open_here
        return await self._durable.questions(run_id)

    async def runs(self, limit: int = 100) -> list[RunInfo]:
        """The durable runs, the last changed first. Raises as :meth:`start`."""
        return await self._durable_runs().list(limit)

    async def find_run(self, run_id: str) -> RunInfo | None:
        """The durable run of this id, or None. Raises as :meth:`start`."""
        return await self._durable_runs().find(run_id)

    def _durable_runs(self) -> DurableRuns:
        if self._durable is None:
            raise ConfigurationError(
                "this flow stores no runs", code="config/durable", hint="AgentFlow(durable='sqlite:///runs.db')"
            )
        return self._durable

    async def eval(self, program: ProgramLike, **options: Any) -> Any:
        """The value of a program; :meth:`run` without the rest of its result."""
        return (await self.run(program, **options)).value

    async def define(self, program: ProgramLike, bindings: Mapping[str, Any] | None = None) -> list[str]:
        """Run a program with the host's authority and make the tasks it defines the flow's: all, or none when it fails.

        Every later run finds them. Gives their names. Raises the program's error.
        """
        source = await load_program(program)
        async with in_run(self.engine, "define", self.handler.session) as call:
            return await self.engine.define(source, bindings, call)

    async def call(self, function: Any, *arguments: Any) -> Any:
        """Call a Closure (or Python callable) from the host; inside a tool, within that tool's run."""
        outer = executing_call()
        if outer is not None and outer.run.services is self.engine:
            return await outer.call(function, *arguments)
        async with in_run(self.engine, "call", self.handler.session) as call:
            return await call.call(function, *arguments)

    def _lowered(self, limits: Limits | None, usd: float | None, tokens: int | None) -> Limits | None:
        """``limits``, or those in force where this is called, with no more money and tokens than this."""
        outer = executing_call()
        return (limits or (self.limits if outer is None else outer.run.limits)).lowered(usd, tokens)

    async def _main(
        self,
        program: ProgramLike,
        bindings: Mapping[str, Any] | None,
        env: SexpEnvironment | None,
        session: Session | None,
        limits: Limits | None,
        allow: Iterable[str] | None,
        approve: Approver | None,
        run_id: str | None,
        labels: Mapping[str, str] | None,
        own: OwnReader | None,
        priority: int,
    ) -> RunResult:
        grants = None if allow is None else frozenset(allow)
        outer = executing_call()
        if outer is not None and outer.grants is not None:
            grants = outer.grants if grants is None else grants & outer.grants
        source = await load_program(program)
        if env is not None:
            environment = env.with_bindings(bindings) if bindings else env
        else:
            environment = SexpEnvironment(dict(bindings or {}))
        if outer is not None and limits is not None:
            limits = limits.within(outer.run.limits)
        defined = outer.definitions if outer is not None else None
        compiled = await self._compiled(source, environment, grants, limits, defined)
        if outer is not None:
            path = outer.next_path("program", compiled.source.digest, bindings or {})
            part, call = self.engine.join(
                outer, path, session=session, limits=limits, grants=grants, own=own, approver=approve
            )
            if own is not None:
                own.run = part
            async with self.engine.called_back(outer), part.clock():
                value = await self.engine.evaluate(compiled, environment, call, fitted=True)
            return RunResult(value, part.usage, part.cost_usd, part.run_id, part.budget.steps_used)
        async with self.engine.open(
            compiled.source.name,
            session=session,
            program=compiled.source.digest,
            limits=limits,
            grants=grants,
            own=own,
            approver=approve,
            run_id=run_id,
            labels=labels,
            priority=priority,
        ) as (run, call):
            if own is not None:
                own.run = run
            value = await self.engine.evaluate(compiled, environment, call, fitted=True)
        return RunResult(value, run.usage, run.cost_usd, run.run_id, run.budget.steps_used, self._records)

    async def _compiled(
        self,
        source: str | Source | Program,
        env: SexpEnvironment,
        grants: frozenset[str] | None,
        limits: Limits | None,
        defined: Definitions | None,
    ) -> Program:
        """Compile at once what is ready or small, and on a thread what would hold the loop."""
        if is_small(source if isinstance(source, str) else source.text):
            return self.engine.compile(source, env=env, grants=grants, limits=limits, defined=defined)
        running_loop()  # raises, in words, where there is none
        return await self.engine.compiled(source, env=env, grants=grants, limits=limits, defined=defined)
