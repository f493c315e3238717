"""BaseHandler: specification document 5, based on the turn loop, the tool registry and a session."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, overload

from agentflow.core.call.call import CallContext, executing_call
from agentflow.core.data.context import DataContext
from agentflow.core.data.errors import ConfigurationError, RunStopped, TaskError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Message
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.events.events import Event, ModelStarted, TextDelta
from agentflow.core.ports.executor_ports import CommandPort, FilePort, FoundFiles, HostCommandPort
from agentflow.core.ports.memory_ports import MemoryPort
from agentflow.core.ports.ports import ModelRouter, Prompt, PromptRunner, ProviderAdapter, Tool
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.file_access import FileAccessManager
from agentflow.flow.python import in_run
from agentflow.handler.data_context import DataContexts
from agentflow.handler.model_turn import PromptEvents, watch
from agentflow.handler.prompting import PromptLike, make_prompt, to_result
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.turn_loop import Fallback, OneModel, TurnLoop
from agentflow.lang.words import WORDS
from agentflow.lib.event_loop import running_loop
from agentflow.lib.read_only import ReadOnlyList
from agentflow.providers.prices import Prices
from agentflow.run.engine import Engine
from agentflow.spec.argument_types import check_argument, check_texts
from agentflow.spec.default_model import DefaultModel
from agentflow.spec.host import HandlerCommands, commands_of, finder_of, hosts
from agentflow.spec.host_files import files_of
from agentflow.spec.host_tasks import LOOKED_UP, RUN, check_double
from agentflow.spec.joining import Face, House, Joint, Parts, over
from agentflow.spec.task_system import TaskSystem
from agentflow.spec.wiring import parts_of
from agentflow.tasks.prompt_runners import NO_PROMPTS, HandlerPrompts
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.service import TaskService

_log = logging.getLogger(__name__)

DEFAULT_SYSTEM_PROMPT = "You are a careful assistant. Answer what is asked, from what you are given."
_CONFIG_KEYS = frozenset({"base_system_prompt", "model", "debug"})
_ITS_OWN = ("tool_executors", "direct_tool_executors", "registered_tools", "session", "own_session", "data_context")
"""Informative properties of the handler, never read inside."""


@frozen
class ToolByHand:
    """A tool as a function of one arguments dict, for hosts."""

    registry: ToolRegistry
    joint: Joint
    name: str

    async def __call__(self, params: dict[str, Any]) -> TaskResult:
        async with in_run(self.joint.engine, self.name) as call:
            return await self.registry.execute(self.name, params, call)


class ToolExecutors(MutableMapping[str, Callable[..., Any]], dict[str, Callable[..., Any]]):  # pyright: ignore
    """The executors of a handler's tools by name: a dict that registers a tool when you set its entry.

    See :meth:`~agentflow.handler.tool_registry.ToolRegistry.set_executor`. Deleting an entry removes the tool.
    """

    def __init__(self, registry: ToolRegistry, joint: Joint) -> None:
        self._registry = registry
        self._joint = joint

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if self._registry.find(name) is None:
            raise KeyError(name)
        return self._registry.executors.get(name) or ToolByHand(self._registry, self._joint, name)

    def __setitem__(self, name: str, executor: Callable[..., Any]) -> None:
        self._registry.set_executor(name, executor)

    def __delitem__(self, name: str) -> None:
        if not self._registry.remove(name):
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.names())

    def __len__(self) -> int:
        return len(self._registry.names())

    def __ior__(self, other: Any) -> ToolExecutors:
        self.update(other)
        return self

    def __or__(self, other: Any) -> dict[str, Callable[..., Any]]:
        return dict(self) | other

    def __ror__(self, other: Any) -> dict[str, Callable[..., Any]]:
        return other | dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def copy(self) -> dict[str, Callable[..., Any]]:
        """The present executors."""
        return dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))


class BaseHandler(Face):
    """Models, tools and a conversation behind the specification's methods.

    Parameters: ``task_system`` and ``memory_system`` as in the specification (priming queries memory); ``model_provider``
    an adapter (None: the first prompt opens that of ``config["model"]``, else of the model of the settings or of
    ``AGENTFLOW_MODEL``, else Anthropic's; it fails with ``config/no-key`` without a key for it, and :meth:`aclose`
    closes it); ``config`` with ``base_system_prompt``, ``model``, ``debug``. ``registry`` holds the tools, ``router``
    resolves models, ``turn_loop`` runs prompts, ``file_manager`` and ``command_executor`` access the roots (default: the
    working directory, see :meth:`aclose`), ``session`` is the conversation, ``limits`` apply to the runs of a handler built
    alone, ``fallback`` combines a prompt's model with its fallbacks, ``redact`` is applied to log lines, ``engine`` is the
    flow's. An unknown config key is ignored and logged.

    Inside a run (in a tool) the methods use the run's session, outside the handler's own; two concurrent prompts in one
    session raise SessionBusy.

    Attributes may be assigned later; the next run has them. A subclass may override ``execute_prompt``, which tasks then
    call, ``execute_file_path_command``, ``prime_data_context`` and ``clear_data_context``. Raises ConfigurationError
    (``config/part``) for a part that lacks a method, and for overriding a property never read.
    """

    parts = frozenset({"task_system", "memory_system", "file_manager", "command_executor", "registry", "limits"})

    def __init__(
        self,
        task_system: Any,
        memory_system: MemoryPort | None,
        model_provider: ProviderAdapter | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        registry: ToolRegistry | None = None,
        router: ModelRouter | None = None,
        turn_loop: PromptRunner | None = None,
        file_manager: FilePort | None = None,
        command_executor: CommandPort | HostCommandPort | None = None,
        session: Session | None = None,
        limits: Limits | None = None,
        fallback: Fallback | None = None,
        redact: Callable[[str], str] | None = None,
        engine: Engine | None = None,
    ) -> None:
        check_argument("BaseHandler", "config", config, Mapping, optional=True)
        settings = dict(config or {})
        for key in sorted(set(settings) - _CONFIG_KEYS):
            _log.warning("the handler's config has no key %r, it is ignored", key)
        self._opened: list[Callable[[], object]] = []
        self.memory_system = memory_system
        self.file_manager = file_manager if file_manager is not None else self._open_roots(["."])
        self.command_executor = command_executor if command_executor is not None else self._make_commands()
        self.limits = limits
        self._provider = model_provider
        prices = Prices()
        self._default: DefaultModel | None = None
        if model_provider is None and router is None and turn_loop is None:
            router = self._default = DefaultModel(settings.get("model"), prices)
        self._router = router or (turn_loop.router if isinstance(turn_loop, TurnLoop) else None)
        self.debug_mode = False
        self.registry = registry if registry is not None else ToolRegistry(words=WORDS)
        self._session = session or Session()
        self._redact = redact or str
        self._loop: PromptRunner = turn_loop or TurnLoop(
            router or OneModel(cast(ProviderAdapter, model_provider), settings.get("model")),
            self.registry,
            base_system=DEFAULT_SYSTEM_PROMPT,
            fallback=fallback,
            pricing=prices,
        )
        if "base_system_prompt" in settings:
            self.base_system_prompt = settings["base_system_prompt"]
        closed = hosts(self, BaseHandler, *_ITS_OWN)
        if closed:
            raise ConfigurationError(
                f"{type(self).__name__} overrides {closed[0]}, which no code reads",
                code="config/part",
                hint="register tools with register_tool, and pass session= for a conversation",
            )
        self.task_system = task_system
        self._alone = TaskService(AtomicTaskExecutor(NO_PROMPTS), words=WORDS)
        self._house = House()
        shared = task_system.joint.given if isinstance(task_system, TaskSystem) else None
        self.joint = Joint(self._home, self._parts, engine or shared, open=engine is None)
        if isinstance(task_system, TaskSystem):
            task_system.adopt(self)
        if engine is None:
            self._parts()  # an unfit part is refused now
        if settings.get("debug"):
            self.set_debug_mode(True)

    def _home(self) -> House:
        return self.task_system.house if isinstance(self.task_system, TaskSystem) else self._house

    def _parts(self) -> Parts:
        system, memory = self.task_system, self.memory_system
        if isinstance(system, TaskSystem):
            return system.parts_with(self, memory)
        if system is not None:
            check_double(system)
            return parts_of(system, self, memory, own=(*LOOKED_UP, *RUN), lookups=memory)
        parts = parts_of(None, self, memory, own=(), lookups=memory)
        return replace(parts, system=self, tasks=over(self._alone))

    @property
    def prompts(self) -> PromptRunner:
        """Runs the prompts of tasks: the turn loop, or :meth:`execute_prompt` if a host overrides it."""
        return HandlerPrompts(self, whole=True) if hosts(self, BaseHandler, "execute_prompt") else self._loop

    @property
    def commands(self) -> CommandPort:
        """The commands of tasks: those of the executor, and :meth:`execute_file_path_command` where a host overrides it."""
        commands = cast(CommandPort, commands_of(self.command_executor))
        finds = hosts(self, BaseHandler, "execute_file_path_command")
        return cast(CommandPort, HandlerCommands(commands, self)) if finds else commands

    @property
    def base_system_prompt(self) -> str:
        """The beginning of every system text. Raises ConfigurationError if it is set together with the host's own turn
        loop."""
        return self._loop.base_system if isinstance(self._loop, TurnLoop) else DEFAULT_SYSTEM_PROMPT

    @base_system_prompt.setter
    def base_system_prompt(self, text: str) -> None:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"base_system_prompt is text, not {type(text).__name__}", code="config/setting", hint="pass a str"
            )
        if not isinstance(self._loop, TurnLoop):
            raise ConfigurationError(
                f"a {type(self._loop).__name__} has no base system text to be set", code="config/part"
            )
        self._loop.base_system = text

    def _open_roots(self, roots: Sequence[str | os.PathLike[str]]) -> FileAccessManager:
        files = FileAccessManager(roots)
        self._opened.append(weakref.finalize(self, files.close))
        return files

    def _make_commands(self) -> CommandExecutor:
        files = self.file_manager
        if isinstance(files, FileAccessManager):
            return CommandExecutor(files)
        return CommandExecutor(self._open_roots(getattr(files, "roots", ()) or ["."]))

    async def aclose(self) -> None:
        """Close everything the handler opened itself: the directories of its file manager and command executor, and the
        adapter of a model that was not passed in."""
        for close in self._opened:
            close()
        if self._default is not None:
            await self._default.aclose()

    @property
    def model_provider(self) -> ProviderAdapter | None:
        """The provider passed in, else that of the model of the flow, or of the settings for a handler built without one;
        it is opened here unless a prompt did so. None with the host's own turn loop.

        Raises ConfigurationError if that model cannot be used (no key, no model).
        """
        if self._provider is not None or self._router is None:
            return self._provider
        return self._router.resolve(None)[0]

    # -- tools ---------------------------------------------------------------------------------------------------

    def register_tool(self, tool_spec: Mapping[str, Any], executor_func: Callable[..., Any]) -> bool:
        """Register a tool by ``{"name", "description", "input_schema"}`` and an executor of one dict, async or plain.

        The executor returns a TaskResult, a dict in its shape, or any plain value. Replaces a tool of the same name.
        Returns whether it was registered; if not, a log line says why.
        """
        if not isinstance(tool_spec, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - the specification's False
            _log.error("a tool was not registered: its spec is %s, not a dict", type(tool_spec).__name__)
            return False
        if tool_spec.get("name") in WORDS:
            _log.error("a tool was not registered: in programs '%s' is the language's own", tool_spec["name"])
            return False
        try:
            self.registry.register(tool_spec, executor_func)
        except ConfigurationError as error:
            _log.error("a tool was not registered: %s", error.message)
            return False
        self.log_debug(f"registered tool {tool_spec['name']}")
        return True

    def add_tool(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Register a Tool or a typed function. Raises ConfigurationError for a function that cannot be a tool."""
        return self.registry.add(tool)

    @property
    def registered_tools(self) -> dict[str, dict[str, Any]]:
        """The specs by name; read-only (``data/read-only``), :meth:`register_tool` adds to them."""
        return self.registry.specs

    @property
    def tool_executors(self) -> dict[str, Callable[..., Any]]:
        """The executors by name, each a function of one arguments dict; setting an entry registers it.

        For a tool from :meth:`register_tool` it is the registered executor; for any other it runs the tool.
        """
        return ToolExecutors(self.registry, self.joint)

    @property
    def direct_tool_executors(self) -> dict[str, Callable[..., Any]]:
        """:attr:`tool_executors` under its older name."""
        return self.tool_executors

    # -- conversation ----------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The current session: the run's inside of a run, the handler's own outside."""
        call = executing_call()
        return call.session if call is not None else self._session

    @property
    def own_session(self) -> Session:
        """The handler's own session, also inside of a run."""
        return self._session

    @property
    def conversation_history(self) -> list[Message]:
        """The messages of the current session, oldest first: a copy that can be read only (``data/read-only``)."""
        instead = "prompts add to it, and reset_conversation() clears it; Session.commit adds a whole exchange"
        return ReadOnlyList(list(self.session.messages), "the conversation's history", instead)

    def reset_conversation(self) -> None:
        """Clear the history; the data context and the tools stay."""
        self.session.reset()
        self.log_debug("conversation reset")

    @property
    def data_context(self) -> DataContext | None:
        """The data context of the current session."""
        return self.session.data_context

    async def prime_data_context(self, query: str | None = None, initial_files: list[str] | None = None) -> DataContext:
        """Look up ``query``, read ``initial_files``, and send the result before every later prompt of the session.

        Replaces the data context. Raises TaskError (context_priming_failure) if nothing could be found or read, and
        then keeps the old one.
        """
        check_argument("prime_data_context", "query", query, str, optional=True)
        check_texts("prime_data_context", "initial_files", initial_files, optional=True)
        async with in_run(self.joint.engine, "handler.prime_data_context", self._session) as call:
            contexts = DataContexts(finder_of(self.memory_system), files_of(self.file_manager))
            context = await contexts.prime(query, initial_files, call)
        self.log_debug(f"primed with {len(context.items)} items")
        return context

    def clear_data_context(self) -> None:
        """Clear the session's data context."""
        self.session.data_context = None

    # -- prompts -----------------------------------------------------------------------------------------------------

    async def execute_prompt(self, prompt: PromptLike, **options: Any) -> TaskResult:
        """Run a prompt, with tools, and return the answer as a TaskResult.

        ``prompt`` is text, a list of texts, paths of files and parts (``["What is this?", Path("photo.png")]``; see
        :func:`~agentflow.core.data.media.attachment`), or a :class:`~agentflow.core.ports.ports.Prompt`; options are Prompt's fields (``system``,
        ``model``, ``tools``, ``output_schema``, ``output_model``, ``json_output``, ``history``, ``max_turns``,
        ``timeout_s`` ...). A failure is a FAILED result; RunStopped, SessionBusy and cancellation are raised.
        """
        check_argument("execute_prompt", "prompt", prompt, str, list, tuple, Prompt)
        request = await make_prompt(prompt, options, self.registry)
        async with in_run(self.joint.engine, "handler.execute_prompt", self._session) as call:
            return await self._execute(request, call)

    async def _execute(self, prompt: Prompt, call: CallContext) -> TaskResult:
        try:
            outcome = await self._loop.run_prompt(prompt, call)
        except (TaskError, ConfigurationError) as error:
            self.log_debug(f"prompt failed: {error.message}")
            return TaskResult.from_error(error)
        return to_result(outcome, prompt)

    @overload
    def stream_prompt(
        self, prompt: PromptLike, *, events: Literal[False] = False, **options: Any
    ) -> AsyncGenerator[str, None]: ...
    @overload
    def stream_prompt(
        self, prompt: PromptLike, *, events: Literal[True], **options: Any
    ) -> AsyncGenerator[Event, None]: ...
    async def stream_prompt(
        self, prompt: PromptLike, *, events: bool = False, **options: Any
    ) -> AsyncGenerator[Any, None]:
        """Run a prompt and yield its text as it streams; with ``events=True``, every event of the prompt instead.

        Options as for :meth:`execute_prompt`. Raises the errors of the turn loop, after yielding everything before them.
        Leaving the loop stops the prompt: at once with ``contextlib.aclosing``, otherwise when the iterator is collected.
        The text of all turns is yielded; the text of subtasks is only in the events, which name its origin.
        """
        check_argument("stream_prompt", "prompt", prompt, str, list, tuple, Prompt)
        request = await make_prompt(prompt, options, self.registry)
        opened: asyncio.Future[PromptEvents] = running_loop().create_future()
        # A task group cannot be held open across the yields of a generator; the finally below does its work.
        producer = asyncio.create_task(self._produce(request, opened, events), name="stream_prompt")
        try:
            await asyncio.wait([producer, opened], return_when=asyncio.FIRST_COMPLETED)
            if opened.done():
                watched = opened.result()
                answer_path: str | None = None
                while (event := await watched.next()) is not None:
                    if events:
                        yield event
                    elif isinstance(event, ModelStarted):
                        answer_path = answer_path if answer_path is not None else _above(event.path)
                    elif isinstance(event, TextDelta) and _above(event.path) == answer_path:
                        yield event.text
            await producer
        finally:
            producer.cancel()
            await asyncio.wait([producer])
            if not producer.cancelled():
                producer.exception()  # seen: it was raised above, or the reader has left

    async def _produce(self, prompt: Prompt, opened: asyncio.Future[PromptEvents], events: bool) -> None:
        engine = self.joint.engine
        async with in_run(engine, "handler.stream_prompt", self._session) as call:
            # Text is the prompt's value and given unchanged; events are shown, as all events are.
            redaction = engine.redaction() if events else None
            show = redaction.show if redaction is not None else None
            watched, inner = watch(call, prompt.model, prompt.system, prompt.parts, show=show)
            opened.set_result(watched)
            try:
                await self._loop.run_prompt(prompt, inner)
            finally:
                watched.end()

    # -- commands and logs ---------------------------------------------------------------------------------------------

    async def execute_file_path_command(self, command: str) -> list[str]:
        """Absolute paths of the existing files that a command's output names, one per line.

        The command may only read: the workspace is read-only to it, and unconfined only the commands of
        :func:`~agentflow.executors.policy.only_reads` are run. Empty, with a Warning event, if it is refused, fails or
        takes too long.
        """
        executor = cast(CommandPort, commands_of(self.command_executor))
        async with in_run(self.joint.engine, "handler.execute_file_path_command") as call:
            try:
                files = await executor.find_files(command, call)
            except RunStopped:
                raise
            except Exception as error:  # noqa: BLE001 - document 5: after any error of an executor the list is empty
                files = FoundFiles(error=f"{type(error).__name__}: {error}")
            if files.error is not None:
                self.log_debug(f"command gave no paths: {files.error}")
                call.warn("commands/no-files", f"a command that finds files gave none: {clip(files.error, 500)}")
        return list(files.paths)

    def log_debug(self, message: str) -> None:
        """Log ``[DEBUG] message`` (level DEBUG, logger ``agentflow.spec.handler``) if debug mode is on.

        Inside a run it is also published as a Log event.
        """
        if not self.debug_mode:
            return
        text = self._redact(f"[DEBUG] {message}")
        _log.debug("%s", text)
        call = executing_call()
        if call is not None:
            call.log(text, "debug")

    def set_debug_mode(self, enabled: bool) -> None:
        """Turn debug logging on or off; the change is logged if it was on or is now."""
        was = self.debug_mode
        self.debug_mode = was or enabled
        self.log_debug(f"debug mode is {'on' if enabled else 'off'}")
        self.debug_mode = bool(enabled)


def _above(path: str) -> str:
    return path.rpartition("/")[0]
