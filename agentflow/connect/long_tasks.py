"""Tasks of a server (the protocol's *tasks*): calls that it carries out later, which are asked for until they have ended.

A server answers such a call at once, with the task's id. In a durable run the id is a record, and the run waits outside of
memory between two requests; a resumed run asks for the task by its id. Both revisions are read into one form: the tasks of
2025-11-25, and the extension ``io.modelcontextprotocol/tasks`` of later ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    CreateMessageRequest,
    ElicitRequest,
    InputRequiredResult,
    InputResponses,
    Request,
    RequestParams,
)
from pydantic import TypeAdapter, ValidationError

from agentflow.connect.content import failed
from agentflow.connect.in_flight import InFlight
from agentflow.connect.items import CALL, TASK, check_items
from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.results import TaskResult
from agentflow.lib.text.safe_text import clean

if TYPE_CHECKING:
    from agentflow.connect.live import Live

POLL_S = 5.0
"""Seconds between two requests for a task, unless its server says otherwise."""
LONGEST_POLL_S = 30.0
"""A task that has taken long is asked for less often, up to this, so that its run can leave the memory."""
MIN_POLL_S, MAX_POLL_S = 0.02, 86_400.0
CANCEL_S = 2.0
"""Seconds for telling the server that a task is no longer needed."""
MAX_LOST = 5
"""Requests for a task that may fail in succession while its server is away."""
_ENDED = frozenset({"completed", "failed", "cancelled"})
_STATUSES = _ENDED | {"working", "input_required"}
_DATA: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])

Send: TypeAlias = Callable[[ClientSession], Any]


@frozen(kw_only=True)
class ServerTask:
    """A task as its server last described it: times in seconds, ``began`` as unix time, ``lasts_s`` None if it is kept for ever.

    ``content`` is the whole description, with the result or the questions of the newer revision.
    """

    id: str
    status: str
    message: str
    poll_s: float
    began: float
    lasts_s: float | None
    content: Mapping[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """The data by which a resumed run finds it again."""
        return {"id": self.id, "poll_s": self.poll_s, "began": self.began, "lasts_s": self.lasts_s}

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> ServerTask:
        return cls(status="working", message="", content={}, **record)


def task_in(answer: object) -> ServerTask | None:
    """The task that an answer to a call stands for; None if the answer is the result."""
    meta = cast("Mapping[str, Any]", getattr(answer, "meta", None) or {})
    return None if TASK not in meta else read_task(meta[TASK])


def read_task(data: Any) -> ServerTask:
    """A task of either revision. Raises ValueError for anything else."""
    content = cast("Mapping[str, Any]", data if isinstance(data, dict) else {})
    name, status = content.get("taskId"), content.get("status")
    if not isinstance(name, str) or not 0 < len(name) <= 1_000 or status not in _STATUSES:
        raise ValueError("it is not a task of the protocol: it has no id, or no status")
    lasts = _seconds(content.get("ttlMs", content.get("ttl")))
    poll = _seconds(content.get("pollIntervalMs", content.get("pollInterval")))
    return ServerTask(
        id=name,
        status=str(status),
        message=clean(clip(str(content.get("statusMessage") or ""), 500)),
        poll_s=POLL_S if poll is None else min(max(poll, MIN_POLL_S), MAX_POLL_S),
        began=_time(content.get("createdAt")),
        lasts_s=lasts,
        content=content,
    )


def _seconds(milliseconds: Any) -> float | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not milliseconds >= 0:
        return None
    return milliseconds / 1_000


def _time(text: Any) -> float:
    """The unix time of a text; now if it is not one, or ahead of the clock here."""
    now = time.time()
    with suppress(ValueError, TypeError, OverflowError):
        return min(now, datetime.fromisoformat(text).timestamp())
    return now


class _TaskParams(RequestParams):
    task_id: str
    input_responses: InputResponses | None = None


class _TaskRequest(Request[_TaskParams, str]):
    """A request about a task; its id is also the header ``Mcp-Name``."""

    name_param = "taskId"


def about(session: ClientSession, verb: str, task: ServerTask, answers: InputResponses | None = None) -> Any:
    """Send a request about a task, ``tasks/VERB``, and return its answer as data."""
    params = _TaskParams(task_id=task.id, input_responses=answers)
    return session.send_request(_TaskRequest(method=f"tasks/{verb}", params=params), cast(Any, _DATA))


class LongTask:
    """A task of ``server``, waited for by ``call``.

    ``ask`` sends a request on the current connection, again if that was lost, and returns its answer or a FAILED result;
    ``live`` returns the connection; ``answering`` makes the request of a call, which answers the server's questions.
    """

    def __init__(
        self,
        task: ServerTask,
        call: CallContext,
        *,
        ask: Callable[[Send], Any],
        live: Callable[[], Any],
        answering: Callable[[CallContext], InFlight],
    ) -> None:
        self._task = task
        self._call = call
        self._ask = ask
        self._live = live
        self._answering = answering
        self._answered: set[str] = set()
        self._lost = 0
        self._told = ""

    async def result(self, *, again: bool) -> CallToolResult | TaskResult:
        """The result of the task, or a FAILED result. ``again``: it was found by its record, and is asked for at once.

        A cancelled call cancels the task; one whose run only leaves the memory does not.
        """
        try:
            if not again:
                await self._pause()
            while True:
                outcome = await self._poll()
                if outcome is not None:
                    return outcome
                await self._pause()
        except asyncio.CancelledError:
            journal = self._call.run.journal
            if journal is None or not journal.suspending:
                await self._cancel()
            raise

    async def _pause(self) -> None:
        if self._task.status in _ENDED:
            return
        task, journal = self._task, self._call.run.journal
        if task.message and task.message != self._told:
            self._told = task.message
            self._call.progress(round(time.time() - task.began, 1), None, task.message)
        seconds = max(task.poll_s, min((time.time() - task.began) / 10, LONGEST_POLL_S))
        if journal is None:
            await asyncio.sleep(seconds)
        else:
            await journal.rest(seconds, self._call)

    async def _poll(self) -> CallToolResult | TaskResult | None:
        """Ask for the task once. Returns its result, a FAILED result, or None while it works."""
        if self._task.status not in _ENDED or not self._task.content:
            answer = await self._ask(lambda session: about(session, "get", self._task))
            if isinstance(answer, TaskResult):
                return self._missed(answer)
            self._lost = 0
            try:
                self._task = read_task(answer)
            except ValueError as error:
                return failed(
                    "protocol_error", f"the server's answer about its task is invalid: {error}", code="mcp/protocol"
                )
        task = self._task
        if task.status == "working":
            return None
        if task.status == "input_required":
            return await self._input(task)
        if task.status == "cancelled":
            return failed(
                "tool_execution_error", _worded("the server has cancelled its task", task), code="mcp/task-cancelled"
            )
        return await self._end(task)

    def _missed(self, failure: TaskResult) -> TaskResult | None:
        """The failure of a request for the task; None if the server may only be away."""
        error = failure.notes.error
        self._lost += 1
        if error is None or error.reason not in ("connection_error", "execution_timeout") or self._lost > MAX_LOST:
            return failure
        return None

    async def _end(self, task: ServerTask) -> CallToolResult | TaskResult:
        """The result of a task that has ended, in the newer revision part of its description."""
        error = task.content.get("error")
        if isinstance(error, dict):
            told = clean(clip(str(cast("dict[str, Any]", error).get("message") or ""), 2_000))
            return failed("tool_execution_error", told or "the task failed without a message", code="mcp/task-failed")
        data = task.content.get("result")
        if data is None:
            data = await self._ask(lambda session: about(session, "result", task))
        if isinstance(data, TaskResult):
            return data
        return self._read(data)

    async def _input(self, task: ServerTask) -> CallToolResult | TaskResult | None:
        """Answer the questions of a task: those in its description, or in the older revision those asked while its result is
        awaited."""
        requests = task.content.get("inputRequests")
        if not isinstance(requests, dict):
            data = await self._ask(lambda session: about(session, "result", task))
            if isinstance(data, TaskResult):
                return self._missed(data)
            return self._read(data)
        shape: dict[str, Any] = {"resultType": "input_required", "inputRequests": requests, "requestState": ""}
        try:
            asked = InputRequiredResult.model_validate(shape, by_name=False).input_requests or {}
        except ValidationError:
            return failed("protocol_error", "the questions of the server's task are invalid", code="mcp/protocol")
        answers: InputResponses = {}
        for key, each in asked.items():
            if key in self._answered or not isinstance(each, ElicitRequest | CreateMessageRequest):
                continue
            # a path of its own: a resumed run may find the first of several questions answered
            inner = self._call.at(self._call.marked_path("mcp-input", key))
            answers[key] = await self._answering(inner).answer(each.params)
        if answers:
            sent = await self._ask(lambda session: about(session, "update", task, answers))
            if isinstance(sent, TaskResult):
                return self._missed(sent)
            self._answered |= answers.keys()
        return None

    def _read(self, data: Any) -> CallToolResult | TaskResult:
        try:
            check_items(CALL, self._live().client.protocol_version, data)
            return CallToolResult.model_validate(data, by_name=False)
        except (ValidationError, AttributeError, TypeError):
            return failed("protocol_error", "the result of the server's task is invalid", code="mcp/protocol")

    async def _cancel(self) -> None:
        with suppress(MCPError, TimeoutError, ValidationError, AssertionError):
            live: Live | None = self._live()
            if live is not None and self._task.status not in _ENDED:
                async with asyncio.timeout(CANCEL_S):
                    await about(live.session, "cancel", self._task)


def _worded(text: str, task: ServerTask) -> str:
    return f"{text}: {task.message}" if task.message else text
