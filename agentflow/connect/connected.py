"""A server's tools as tools of the flow: registered on connection, and again whenever the server's list changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    ElicitRequest,
    GetPromptResult,
    InputRequiredResult,
    InputResponse,
    InputResponses,
    ListRootsRequest,
    ListRootsResult,
    ReadResourceResult,
    Resource,
    TaskMetadata,
)
from pydantic import TypeAdapter, ValidationError

from agentflow.connect.accounts import Accounts, UserAccount
from agentflow.connect.content import failed, parts_of, resource_part, result_of
from agentflow.connect.http import TERMINATED, challenged
from agentflow.connect.in_flight import InFlight, TimeIsUp
from agentflow.connect.listing import ListedTool, all_pages, list_all
from agentflow.connect.live import Live, was_closed
from agentflow.connect.long_tasks import LongTask, ServerTask, task_in
from agentflow.connect.server_connection import Connection, SignedOut, described
from agentflow.connect.servers import McpHttp, McpServer
from agentflow.connect.sign_in import SignIn
from agentflow.connect.size_limits import MAX_DESCRIPTION, MAX_NAMES, MAX_ROUNDS, MAX_SIGN_INS
from agentflow.connect.user_connections import UserConnections
from agentflow.core.call.call import CallContext, JournalPort
from agentflow.core.data.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.data.messages import TextPart, ToolSpec, text_of_parts
from agentflow.core.data.results import NO_USAGE, TaskResult
from agentflow.core.ports.ports import PromptRunner, Tool
from agentflow.core.ports.service_port import ServicePort
from agentflow.lib.redact import Redactor
from agentflow.lib.text.safe_text import clean, escape

R = TypeVar("R")
Ask: TypeAlias = "Callable[[ClientSession, InputResponses | None, str | None], Awaitable[R | InputRequiredResult]]"
"""Performs one round of a request: takes the session, the answers to the last round's questions, and its state."""

LOOK_AGAIN_S = 30.0
"""Seconds between two looks whether the user who lists the tools of a server has signed in."""
STATE_WAIT_S = 0.05
ENDING_S = 1.0
"""Seconds for a program that lost its connection to write why it ended."""
_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


class RequestInterrupted(AgentflowError):
    """The connection broke during a request, which may or may not have been carried out."""

    default_code = "mcp/connection-lost"
    default_reason = "connection_error"


async def call_tool(
    session: ClientSession,
    answers: InputResponses | None,
    state: str | None,
    *,
    name: str,
    arguments: dict[str, Any],
    request: InFlight,
    as_task: bool = False,
) -> CallToolResult | InputRequiredResult:
    """One round of a tool call. Unlike the SDK's, it does not evaluate the server's schemas on the result."""
    task = TaskMetadata() if as_task else None
    params = CallToolRequestParams(
        name=name, arguments=arguments, input_responses=answers, request_state=state, task=task
    )

    async def send() -> CallToolResult | InputRequiredResult:
        return await session.send_request(CallToolRequest(params=params), _ANSWER, progress_callback=request.progressed)

    try:
        return await send()
    except MCPError as error:
        if error.code != HEADER_MISMATCH:
            raise
        await list_all(session)  # the SDK derives headers from the schemas last listed
        return await send()


async def requested(
    connection: Connection,
    call: CallContext,
    make: Callable[[InFlight], Ask[R]],
    *,
    repeatable: bool,
    check: Callable[[Live], None] = lambda live: None,
    sent_back: SentBack | None = None,
) -> R | TaskResult:
    """Send a request and return its answer, or a FAILED result that describes the error.

    ``make`` builds the function that performs a round; a ``repeatable`` request is sent again if the connection is lost,
    and any request that was refused because the session had expired.
    ``check`` raises AgentflowError to prevent the request on a particular connection. If the server wants the user of the
    connection to sign in, they are asked to, and the request is sent again; ``sent_back`` records that.
    """
    try:
        for _ in range(MAX_SIGN_INS):
            try:
                return await _requested(connection, call, make, repeatable=repeatable, check=check)
            except SignedOut as error:
                if connection.account is None:
                    raise
                if sent_back is not None:
                    await sent_back.refused()
                await connection.account.ask(call, error.challenge)
                if sent_back is not None:
                    await sent_back.again()
        raise cast(UserAccount, connection.account).refused()
    except ConfigurationError as error:
        return TaskResult.from_error(error)


async def _requested(
    connection: Connection,
    call: CallContext,
    make: Callable[[InFlight], Ask[R]],
    *,
    repeatable: bool,
    check: Callable[[Live], None],
) -> R | TaskResult:
    """The same for a user who has signed in. Raises SignedOut for one who has to, or has too few rights."""
    server = connection.server
    for last in (False, True):
        try:
            live = await connection.live(server.timeout_s)
            check(live)
        except SignedOut:
            raise
        except AgentflowError as error:
            return TaskResult.from_error(error)
        try:
            request = InFlight(call, server, connection.prompts)
            live.in_flight.add(request)
            try:
                answer = await _rounds(live, request, make(request))
            finally:
                live.leave(request)
            connection.worked()
            return answer
        except TimeIsUp as up:
            why = "with progress, for which total_s= gives it more" if up.in_all else "without progress"
            return failed(
                "execution_timeout",
                f"the MCP server '{server.name}' took longer than its {up.seconds:g} s {why}",
                code="mcp/timeout",
                timeout_s=up.seconds,
            )
        except MCPError as error:
            challenge = None if connection.account is None else challenged(error)
            if challenge is not None:
                raise SignedOut(cast(McpHttp, server), challenge) from None
            if not was_closed(error) and error.message != TERMINATED:
                connection.worked()
                return _refused(error)
            expired = error.message == TERMINATED and not last
            if expired:
                connection.renew(live)
            else:
                connection.lose(live, escape(clip(error.message, 500)))
            if last or not (repeatable or expired):
                return TaskResult.from_error(await _lost(connection, live))
            call.warn(
                "mcp/reconnected", f"the connection to the MCP server '{server.name}' was lost; the call is repeated"
            )
        except ValidationError as error:
            connection.worked()
            return failed(
                "protocol_error",
                f"the MCP server '{server.name}' sent an invalid answer: {described(error)}",
                code="mcp/protocol",
            )
    raise AssertionError  # the second attempt returns or raises


class SentBack:
    """Records, in the durable run of ``call``, that a tool which may not be repeated was not carried out, because its user had to sign in."""

    def __init__(self, call: CallContext, journal: JournalPort, name: str) -> None:
        self._journal = journal
        self._name = name
        self._refused = call.at(call.marked_path("mcp-refused", name))
        self._again = call.at(call.marked_path("mcp-sent-again", name))

    async def is_open(self) -> bool:
        """Whether the call was refused before an interruption, and not sent again since."""
        refused = await self._journal.recall("mcp-refused", self._name, {}, self._refused)
        return bool(refused) and await self._journal.recall("mcp-sent-again", self._name, {}, self._again) is None

    async def refused(self) -> None:
        """Record the refusal; a second one is not recorded, so that its call counts as begun."""
        await self._note("mcp-refused", self._refused)

    async def again(self) -> None:
        """Record that the call is sent again."""
        await self._note("mcp-sent-again", self._again)

    async def _note(self, kind: str, at: CallContext) -> None:
        if await self._journal.recall(kind, self._name, {}, at) is None:
            await self._journal.keep(kind, self._name, {}, True, at, NO_USAGE, 0.0)


class Refusal(AgentflowError):
    """An unsent request."""

    default_code = "mcp/changed"
    default_reason = "tool_execution_error"


async def _rounds(live: Live, request: InFlight, ask: Ask[R]) -> R:
    """Repeat a request until the server asks no more questions. Raises the errors of a round, and TimeIsUp."""
    answers: InputResponses | None = None
    state: str | None = None
    for number in range(MAX_ROUNDS):
        answer = await request.run(cast(Any, ask(live.session, answers, state)))
        if not isinstance(answer, InputRequiredResult):
            return cast(R, answer)
        state = answer.request_state
        answers = None
        if answer.input_requests:
            answers = {key: await _answered(each, request) for key, each in answer.input_requests.items()}
        else:
            await asyncio.sleep(STATE_WAIT_S * 2 ** min(number, 3))
    raise MCPError(INVALID_PARAMS, f"the server asked for more input {MAX_ROUNDS} times")


async def _answered(asked: object, request: InFlight) -> InputResponse:
    """The answer to one input that a server requests. Raises MCPError if it is unsupported or refused."""
    if isinstance(asked, ElicitRequest | CreateMessageRequest):
        return await request.answer(asked.params)
    if isinstance(asked, ListRootsRequest):
        return ListRootsResult(roots=[])
    raise MCPError(INVALID_PARAMS, "the server asked for an input that is not supported")


def _refused(error: MCPError) -> TaskResult:
    if error.code == REQUEST_TIMEOUT:
        return failed("execution_timeout", clean(clip(error.message, MAX_DESCRIPTION)), code="mcp/timeout")
    return failed(
        "input_validation_failure" if error.code == INVALID_PARAMS else "tool_execution_error",
        clean(clip(error.message, MAX_DESCRIPTION)) or "the server refused the request and did not say why",
        code=f"mcp/{error.code}",
    )


_MAYBE_DONE = "the request may or may not have been carried out; check before repeating it"


async def _lost(connection: Connection, live: Live) -> RequestInterrupted:
    """The error for a lost connection; waits briefly for the program's last words."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_S):
            await live.closed.wait()
    stderr = connection.said(live)
    return RequestInterrupted(
        f"the connection to the MCP server '{connection.server.name}' was lost ({live.ending})",
        hint="; ".join(filter(None, (_MAYBE_DONE, connection.refused(live)))),
        details={"server": connection.server.name, **({"stderr": stderr} if stderr else {})},
    )


ConnectionOf: TypeAlias = Callable[[CallContext], AbstractAsyncContextManager[Connection]]
_Method = Callable[[dict[str, Any], CallContext], Awaitable[TaskResult]]
_TEXT = {"type": "string", "minLength": 1}
_ANY_TEXT = {"type": "string"}
_RESOURCES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "uri": _ANY_TEXT,
            "name": _ANY_TEXT,
            "title": _ANY_TEXT,
            "description": _ANY_TEXT,
            "mime_type": _ANY_TEXT,
            "size": {"type": "integer"},
        },
        "required": ["uri", "name"],
        "additionalProperties": False,
    },
}
_MESSAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"role": {"enum": ["user", "assistant"]}, "text": _ANY_TEXT},
        "required": ["role", "text"],
        "additionalProperties": False,
    },
}
"""The results of the tools."""


def material_tools(connection: Connection, live: Live, of: ConnectionOf) -> list[Tool]:
    """The tools for the resources and prompts that the server announced; ``of`` gives the connection of a call."""
    server, has = connection.server, live.client.server_capabilities
    tools: list[Tool] = []

    def add(
        name: str,
        description: str,
        properties: dict[str, Any],
        required: Sequence[str],
        run: _Method,
        returns: Mapping[str, Any],
    ) -> None:
        schema = {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}
        tools.append(
            Tool(
                spec=ToolSpec(f"{server.name}:{name}", description, schema),
                call=run,
                read_only=True,
                idempotent=True,
                builtin=True,
                approval=server.approve == "all",
                calls_models=server.sampling,
                returns=returns,
            )
        )

    material = _Material(of)
    if has.resources is not None:
        add(
            "list_resources",
            f"The resources of the server '{server.name}'.",
            {},
            (),
            material.list_resources,
            _RESOURCES,
        )
        add(
            "read_resource",
            f"A resource of the server '{server.name}', by its address.",
            {"uri": _TEXT},
            ("uri",),
            material.read_resource,
            _ANY_TEXT,
        )
    if has.prompts is not None:
        texts = {"type": "object", "additionalProperties": {"type": "string"}}
        add(
            "get_prompt",
            f"A prompt of the server '{server.name}', by its name.",
            {"name": _TEXT, "arguments": texts},
            ("name",),
            material.get_prompt,
            _MESSAGES,
        )
    return tools


class _Material:
    """The functions of these tools. Each method takes the arguments and the call."""

    def __init__(self, of: ConnectionOf) -> None:
        self._of = of

    async def _requested(self, ask: Ask[R], call: CallContext) -> R | TaskResult:
        def make(request: InFlight) -> Ask[R]:
            return ask

        async with self._of(call) as connection:
            return await requested(connection, call, make, repeatable=True)

    async def list_resources(self, arguments: dict[str, Any], call: CallContext) -> TaskResult:
        async def ask(session: ClientSession, answers: InputResponses | None, state: str | None) -> list[Resource]:
            return (await all_pages(lambda at: session.list_resources(params=at), lambda page: page.resources))[0]

        answer = await self._requested(ask, call)
        if isinstance(answer, TaskResult):
            return answer
        kept = {"uri", "name", "title", "description", "mime_type", "size"}
        return TaskResult.of([each.model_dump(mode="json", include=kept, exclude_none=True) for each in answer])

    async def read_resource(self, arguments: dict[str, Any], call: CallContext) -> TaskResult:
        async def ask(
            session: ClientSession, answers: InputResponses | None, state: str | None
        ) -> ReadResourceResult | InputRequiredResult:
            return await session.read_resource(
                arguments["uri"], input_responses=answers, request_state=state, allow_input_required=True
            )

        answer = await self._requested(ask, call)
        if isinstance(answer, TaskResult):
            return answer
        parts = tuple([await resource_part(each) for each in answer.contents])
        result = TaskResult.complete(text_of_parts(parts))
        return result if all([isinstance(part, TextPart) for part in parts]) else result.with_notes(parts=parts)

    async def get_prompt(self, arguments: dict[str, Any], call: CallContext) -> TaskResult:
        async def ask(
            session: ClientSession, answers: InputResponses | None, state: str | None
        ) -> GetPromptResult | InputRequiredResult:
            return await session.get_prompt(
                arguments["name"],
                arguments.get("arguments"),
                input_responses=answers,
                request_state=state,
                allow_input_required=True,
            )

        answer = await self._requested(ask, call)
        if isinstance(answer, TaskResult):
            return answer
        messages = [
            {"role": each.role, "text": text_of_parts(await parts_of([each.content]))} for each in answer.messages
        ]
        return TaskResult.complete("\n\n".join([each["text"] for each in messages]), messages)


News = Callable[[str, str], None]
"""Takes the code and the text of a warning for the next run."""


class Registry(Protocol):
    """The tool registry, as far as it is needed here."""

    def find(self, name: str) -> Tool | None: ...
    def exchange(self, gone: Iterable[str], new: Iterable[Tool]) -> None: ...


class Connected:
    """A ``server`` and its registered tools.

    Parameters: ``tools`` is the registry; ``services``, ``prompts``, ``redactor`` and ``roots`` are those of
    :class:`Connection`; ``news`` takes warnings about tools that changed or were left out.
    """

    def __init__(
        self,
        server: McpServer,
        tools: Registry,
        services: ServicePort,
        prompts: PromptRunner,
        *,
        redactor: Redactor,
        roots: tuple[str, ...],
        news: News,
    ) -> None:
        self.server = server
        self._tools = tools
        self._news = news
        self._listed: Mapping[str, ListedTool] | None = None
        self._approved: dict[str, str] = {}
        self._registered: dict[str, Tool] = {}
        self._refused: set[str] = set()
        self.accounts: Accounts | None = None
        self.lists_as: str | None = None
        self.signed_in = asyncio.Event()
        lister: UserAccount | None = None
        if isinstance(server, McpHttp) and isinstance(server.credentials, SignIn):
            self.accounts = Accounts(server, redactor)
            self.lists_as = server.credentials.lists_as
            if self.lists_as is not None:
                lister = UserAccount(self.accounts, self.lists_as, redactor.add)
        self.connection = Connection(
            server,
            services,
            prompts,
            redactor=redactor,
            roots=roots,
            listed=self.listed,
            refuse=self._refuse,
            account=lister,
        )
        self._users: UserConnections | None = None
        if isinstance(server, McpHttp) and server.credentials is not None:

            def connect(own: McpHttp, secret: Callable[[str], None], account: UserAccount | None) -> Connection:
                connected = partial(Connection, own, services, prompts, redactor=redactor, roots=roots, secret=secret)
                # the flow's own connection lists the tools
                return connected(listed=_ignored, refuse=_ignored, account=account)

            self._users = UserConnections(server, connect, redactor, self.accounts)

    def of(self, call: CallContext) -> AbstractAsyncContextManager[Connection]:
        """A block with the connection for a call: that of its user, if the server has credentials of users."""
        return nullcontext(self.connection) if self._users is None else self._users.of(call)

    async def opened(self) -> AgentflowError | None:
        """Connect, and register the tools. Returns the error if the server cannot be connected."""
        try:
            live = await self.connection.live()
        except AgentflowError as error:
            return error
        self._exchange((), material_tools(self.connection, live, self.of))
        return None

    def can_wait(self, error: AgentflowError) -> bool:
        """Whether a flow starts without this server: it is optional, or waits for the user who lists its tools."""
        return self.server.optional or (isinstance(error, SignedOut) and self.lists_as is not None)

    async def signed_in_after(self, error: AgentflowError) -> None:
        """Wait for the sign-in that ``error`` asks for, if it does; some time at most, since it may end in another process."""
        if isinstance(error, SignedOut):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self.signed_in.wait()
            self.signed_in.clear()

    async def aclose(self) -> None:
        """Close the connection and unregister the tools."""
        self._exchange(list(self._registered), ())
        if self._users is not None:
            await self._users.aclose()
        await self.connection.aclose()

    @property
    def tools(self) -> list[Tool]:
        """The registered tools, sorted by name."""
        return [self._registered[name] for name in sorted(self._registered)]

    def listed(self, tools: Mapping[str, ListedTool]) -> None:
        """Register the new and changed ones of ``tools``, the server's current list, and unregister those it no longer has.

        Warns of the changes, except for the first list.
        """
        before = self._listed
        if len(self._approved.keys() | tools.keys()) > MAX_NAMES:
            self._refuse("*", f"its tools have had more than {MAX_NAMES:,} names; further ones are left out")
            tools = {name: tool for name, tool in tools.items() if name in self._approved}
        self._listed = tools
        old = before or {}
        gone = sorted(old.keys() - tools.keys())
        new = sorted(tools.keys() - old.keys())
        changed = sorted([name for name in tools.keys() & old.keys() if tools[name].digest != old[name].digest])
        for name in new:
            self._approved.setdefault(name, tools[name].digest)
        if gone or new or changed:
            self._exchange(map(self._full, gone), [self._tool(tools[name]) for name in (*new, *changed)])
        if before is not None and (gone or new or changed):
            parts = {"added": new, "removed": gone, "changed": changed}
            changes = "; ".join([f"{what} {', '.join(names[:20])}" for what, names in parts.items() if names])
            self._news("mcp/tools-changed", f"the MCP server '{self.server.name}' changed its tools: {changes}")

    def _full(self, name: str) -> str:
        return f"{self.server.name}:{name}"

    def _exchange(self, gone: Iterable[str], new: Iterable[Tool]) -> None:
        """Unregister and register tools, for runs that start from now on; the host's own tools of these names stay."""
        gone = tuple(gone)
        away = [name for name in gone if self._is_ours(name)]
        for name in gone:
            self._registered.pop(name, None)
        added: list[Tool] = []
        for tool in new:
            ours = self._registered.get(tool.name) if self._is_ours(tool.name) else None
            if self._tools.find(tool.name) is None or (ours is not None and ours.builtin == tool.builtin):
                added.append(tool)
            else:
                self._refuse(tool.name, "the flow has a tool of this name")
        self._registered.update({tool.name: tool for tool in added})
        self._tools.exchange(away, added)

    def _is_ours(self, name: str) -> bool:
        ours = self._registered.get(name)
        return ours is not None and self._tools.find(name) is ours

    def _refuse(self, name: str, why: str) -> None:
        shown = escape(clip(name, 120))
        if shown not in self._refused and len(self._refused) < MAX_NAMES:
            self._refused.add(shown)
            self._news(
                "mcp/tool-refused", f"the tool '{shown}' of the MCP server '{self.server.name}' is left out: {why}"
            )

    def _tool(self, listed: ListedTool) -> Tool:
        server = self.server
        # the host chose its trust for the tool as first listed, so a changed tool needs approval again
        other = self._approved[listed.name] != listed.digest
        asks = server.approve == "all" or (server.approve == "writes" and (other or not listed.read_only))
        return Tool(
            spec=ToolSpec(self._full(listed.name), _description(server, listed.description), listed.input_schema),
            call=partial(self._call, listed, asks),
            read_only=listed.read_only,
            idempotent=listed.idempotent,
            approval=asks,
            calls_models=server.sampling,
            source=f"mcp:{server.name}",
            returns=listed.output_schema,
            resumes=True,
            defer_loading=server.defer_loading,
            origin=f"the MCP server '{server.name}', which describes it as: {listed.description or '(no description)'}",
        )

    async def _call(self, listed: ListedTool, asks: bool, arguments: dict[str, Any], call: CallContext) -> TaskResult:
        async with self.of(call) as connection:
            return await self._call_on(connection, listed, asks, arguments, call)

    async def _call_on(
        self, connection: Connection, listed: ListedTool, asks: bool, arguments: dict[str, Any], call: CallContext
    ) -> TaskResult:
        def check(live: Live) -> None:
            now = live.tools.get(listed.name)
            if asks and not call.host_authority and (now is None or now.digest != listed.digest):
                raise Refusal(
                    f"the tool '{self._full(listed.name)}' has changed since it was approved",
                    hint="the next run uses the server's new list of tools",
                )

        journal, name = call.run.journal, self._full(listed.name)
        as_task = listed.task == "required" or (listed.task == "optional" and journal is not None)

        def make(request: InFlight) -> Any:
            return partial(call_tool, name=listed.name, arguments=arguments, request=request, as_task=as_task)

        at, content = call, {"the arguments": arguments}
        record: Any = None
        sent_back: SentBack | None = None
        if journal is not None:
            if connection.account is not None and listed.idempotent is False:
                sent_back = SentBack(call, journal, name)
            at = call.at(call.marked_path("mcp-task", name, arguments))
            record = await journal.recall("mcp-task", name, content, at)
            if record is None and listed.idempotent is False:
                open_again = sent_back is not None and await sent_back.is_open()
                if open_again and sent_back is not None:
                    await sent_back.again()
                elif not await journal.begin(call):
                    return _begun_before(name)
        if record is not None:
            answer = await self._waited(connection, ServerTask.recorded(record), at, again=True)
        else:
            repeatable = listed.read_only or listed.idempotent is True
            answer = await requested(connection, call, make, repeatable=repeatable, check=check, sent_back=sent_back)
            try:
                task = task_in(answer)
            except ValueError as error:
                return failed("protocol_error", f"the server's task is invalid: {error}", code="mcp/protocol")
            if task is not None:
                if journal is not None:
                    await journal.keep("mcp-task", name, content, task.record, at, NO_USAGE, 0.0)
                answer = await self._waited(connection, task, at, again=False)
        return answer if isinstance(answer, TaskResult) else await result_of(answer, listed.output_schema)

    def _waited(
        self, connection: Connection, task: ServerTask, call: CallContext, *, again: bool
    ) -> Awaitable[CallToolResult | TaskResult]:
        """The result of a task of the server."""

        def ask(send: Callable[[ClientSession], Any]) -> Awaitable[Any]:
            async def once(session: ClientSession, answers: InputResponses | None, state: str | None) -> Any:
                return await send(session)

            return requested(connection, call, lambda request: once, repeatable=True)

        def answering(inner: CallContext) -> InFlight:
            return InFlight(inner, self.server, connection.prompts)

        return LongTask(task, call, ask=ask, live=lambda: connection.current, answering=answering).result(again=again)


async def open_all(every: Sequence[Connected]) -> list[tuple[Connected, AgentflowError]]:
    """Connect servers concurrently. Returns those without which the flow starts, with their errors; raises the first error of another one,
    after closing them all."""
    try:
        async with asyncio.TaskGroup() as group:
            opening = [group.create_task(each.opened()) for each in every]
        absent = [(each, error) for each, task in zip(every, opening, strict=True) if (error := task.result())]
        for each, error in absent:
            if not each.can_wait(error):
                raise error
    except BaseException:  # no server outlives a start that failed or was cancelled
        await close_all(every)
        raise
    return absent


async def close_all(every: Sequence[Connected]) -> None:
    """Close servers concurrently."""
    async with asyncio.TaskGroup() as group:
        for each in every:
            group.create_task(each.aclose())


def _ignored(*_: object) -> None:
    """Take the list of a user's connection."""


def _begun_before(name: str) -> TaskResult:
    return failed(
        "tool_execution_error",
        f"the run was interrupted while the tool '{name}' worked, and its progress is unknown",
        code="durable/in-flight",
        hint="check its effects before it is repeated",
    )


def _description(server: McpServer, text: str) -> str:
    """The description shown to models; it says first who wrote it, because it is text from outside."""
    return f"(A tool of the server '{server.name}', in that server's words.) {text}".rstrip()
