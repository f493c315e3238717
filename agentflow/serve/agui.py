"""``POST /agui/NAME``: an export as an agent for front ends that speak AG-UI 1.0.

The run's answer becomes text, its tasks become steps and state, its approvals and questions interrupts. A tool of the front end
is called without a result: the front end sends that with its next request. Of an answer to an
interrupt, only the id and the answer are read from the client: the question itself is the server's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.core.call.run_state import applied
from agentflow.core.data.values import plain
from agentflow.core.events.events import (
    Event,
    HostData,
    ModelFinished,
    ModelStarted,
    RunStarted,
    StateChanged,
    SubtaskFinished,
    SubtaskStarted,
    TaskFinished,
    TaskStarted,
    ToolFinished,
    ToolStarted,
    as_data,
)
from agentflow.core.events.questions import Question
from agentflow.serve.answer import Piece, Said
from agentflow.serve.error_responses import RequestError, text_field
from agentflow.serve.front_end import (
    Shown,
    arguments_of,
    client_tools,
    come_back,
    leave_behind,
    subtask_name,
    text_of_model,
    text_of_result,
)
from agentflow.serve.incoming import read_body
from agentflow.serve.json_body import json_bytes
from agentflow.serve.keys import Key
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.talk import start_chat, text_of_run, usage_of
from agentflow.serve.waiting_runs import WaitingRuns, seconds_of

_OWN = "agentflow"
"""The key of the state beneath which the server reports the progress of the run."""
_BOOLEAN = {"type": "boolean"}
_DECISION = {
    "type": "object",
    "properties": {"approved": _BOOLEAN, "editedArgs": {"type": "object"}},
    "required": ["approved"],
}
"""The form of an answer about a call, as the protocol recommends it; the plain boolean is read, too."""


def run_of(interrupts: Iterable[str]) -> str:
    """The run that the interrupts with these ids belong to. Raises RequestError unless it is exactly one."""
    runs = {each.rpartition(".")[0] for each in interrupts}
    if len(runs) != 1:
        raise RequestError("all answers of a request must belong to one run", code="serve/field", param="resume")
    return runs.pop()


class AguiView:
    """Encodes the events of a run, which the client calls ``thread`` and ``run_id``; ``state`` is shared with it."""

    def __init__(
        self, service: ServedFlow, run: ServedRun, thread: str, run_id: str, state: Mapping[str, Any] | None = None
    ) -> None:
        self.state: Any = deepcopy(dict(state or {}))
        self._service = service
        self._run = run
        self._names = {"threadId": thread, "runId": run_id}
        self._own: dict[str, Any] = {"run_id": run.run_id, "export": run.export, "tasks": {}}
        self._tasks: dict[int, str] = {}
        self._models: dict[int, str] = {}
        self._told: set[str] = set()
        self._held: dict[str, ToolStarted] = {}
        self._outside = {each.path for each in run.waits.values() if each.external is not None}
        self._steps: dict[int, str] = {}
        self._subagents: dict[int, str] = {}
        self._speaking: tuple[Said, int] | None = None
        self._answering: set[int] = set()
        self._has_text = False
        self._slice = 1
        self._resting: dict[str, str] = {}

    def go_on(self, thread: str, run_id: str, told: Iterable[str]) -> None:
        """Continue in a new request of the client, which has the tool calls with the ids ``told``."""
        self._names = {"threadId": thread, "runId": run_id}
        self._told.update(told)

    def _id(self, kind: str, seq: int) -> str:
        return f"{self._run.run_id}:{kind}{self._slice}.{seq}"

    def begin(self) -> bytes:
        return _frames({"type": "RUN_STARTED", **self._names}) + self._snapshot()

    def _snapshot(self) -> bytes:
        """The state as a whole: that of the run, and the report of the server beneath a key of its own."""
        return _frames({"type": "STATE_SNAPSHOT", "snapshot": {**self.state, _OWN: self._own}})

    def _changed(self, event: StateChanged) -> bytes:
        for change in event.changes:
            self.state = applied(self.state, dict(change))
        if any([not change["path"] for change in event.changes]):  # the whole of it, and so the server's part too
            return self._snapshot()
        return _frames({"type": "STATE_DELTA", "delta": [as_data(change) for change in event.changes]})

    def take(self, event: Event, piece: Piece | None) -> bytes:
        if piece is not None:
            return self._say(piece.kind, piece.model, piece.text)
        match event:
            case RunStarted() if event.parent is None:  # event numbers restart in each slice of a run
                self._slice = event.slice
                self._answering.clear()
            case TaskStarted():
                return self._task_started(event)
            case TaskFinished():
                return self._task_finished(event)
            case ModelStarted():
                self._models[event.seq] = self._tasks.get(event.parent or 0, "")
            case ModelFinished():
                return self._model_finished(event)
            case StateChanged():
                return self._changed(event)
            case HostData():
                return _frames({"type": "CUSTOM", "name": event.name, "value": as_data(event.data)})
            case ToolStarted():
                return self._tool_started(event)
            case ToolFinished() if event.outcome != "suspended":
                return self._tool_finished(event)
            case SubtaskStarted():
                name = subtask_name(event)
                resting = self._resting.pop(event.path, None)
                self._subagents[event.seq] = resting or f"{self._run.run_id}:{event.path}"
                if resting is None:
                    started = {"type": "SUBAGENT_STARTED", "subagentRunId": self._subagents[event.seq], "name": name}
                    return _frames(started)
            case SubtaskFinished() if event.started in self._subagents:
                return self._subtask_finished(event)
            case _:
                pass
        return b""

    def _say(self, kind: Said, model: int, text: str) -> bytes:
        before = b""
        if self._speaking != (kind, model):
            before = self._stop_speaking()
            self._speaking = (kind, model)
            text = text.removeprefix("\n\n") if self._has_text else text  # this is a separate message
            if kind == "text":
                before += _frames(
                    {"type": "TEXT_MESSAGE_START", "messageId": self._id("m", model), "role": "assistant"}
                )
            else:
                named = {"messageId": self._id("h", model)}
                before += _frames(
                    {"type": "REASONING_START", "messageId": self._id("s", model)},
                    {"type": "REASONING_MESSAGE_START", **named, "role": "reasoning"},
                )
        self._answering.add(model)
        if kind == "text":
            self._has_text = True
            return before + _frames({"type": "TEXT_MESSAGE_CONTENT", "messageId": self._id("m", model), "delta": text})
        return before + _frames({"type": "REASONING_MESSAGE_CONTENT", "messageId": self._id("h", model), "delta": text})

    def _stop_speaking(self) -> bytes:
        speaking, self._speaking = self._speaking, None
        if speaking is None:
            return b""
        kind, model = speaking
        if kind == "text":
            return _frames({"type": "TEXT_MESSAGE_END", "messageId": self._id("m", model)})
        return _frames(
            {"type": "REASONING_MESSAGE_END", "messageId": self._id("h", model)},
            {"type": "REASONING_END", "messageId": self._id("s", model)},
        )

    def _task_started(self, event: TaskStarted) -> bytes:
        self._tasks[event.seq] = event.name
        self._steps[event.seq] = step = f"{event.name}@{event.path}"
        self._own["tasks"][event.path] = task = {"name": event.name, "status": "running"}
        patch = {"op": "add", "path": f"/{_OWN}/tasks/{_pointer(event.path)}", "value": task}
        return _frames({"type": "STEP_STARTED", "stepName": step}, {"type": "STATE_DELTA", "delta": [patch]})

    def _task_finished(self, event: TaskFinished) -> bytes:
        self._own["tasks"][event.path] = task = {"name": event.name, "status": event.outcome}
        patch = {"op": "add", "path": f"/{_OWN}/tasks/{_pointer(event.path)}", "value": task}
        changed = _frames({"type": "STATE_DELTA", "delta": [patch]})
        step = self._steps.pop(event.started, None)
        return changed if step is None else changed + _frames({"type": "STEP_FINISHED", "stepName": step})

    def _model_finished(self, event: ModelFinished) -> bytes:
        if self._speaking is not None and self._speaking[1] == event.started:
            return self._stop_speaking()
        task, text = self._models.pop(event.started, ""), text_of_model(event)
        if event.started in self._answering or not text:
            return b""
        message = {"task": task, "text": text}
        return _frames(
            {
                "type": "ACTIVITY_SNAPSHOT",
                "messageId": self._id("a", event.started),
                "activityType": "TASK_TEXT",
                "content": message,
            }
        )

    def _tool_started(self, event: ToolStarted) -> bytes:
        if event.external:  # its call is sent once it is known whether the front end is asked
            self._held[event.path] = event
            return b""
        return self._call(f"{self._run.run_id}:{event.path}", event.name, arguments_of(event.arguments))

    def _call(self, call_id: str, name: str, arguments: str) -> bytes:
        """The call of a tool; nothing for one that the client knows, which a later slice of the run begins once more."""
        if call_id in self._told:
            return b""
        self._told.add(call_id)
        call = {"toolCallId": call_id}
        return _frames(
            {"type": "TOOL_CALL_START", **call, "toolCallName": name},
            {"type": "TOOL_CALL_ARGS", **call, "delta": arguments},
            {"type": "TOOL_CALL_END", **call},
        )

    def _tool_finished(self, event: ToolFinished) -> bytes:
        held, call_id = self._held.pop(event.path, None), f"{self._run.run_id}:{event.path}"
        if held is not None:
            if any([path.startswith(f"{event.path}/") for path in self._outside]):
                return b""  # the client has the result, which is its own
            before = self._call(call_id, held.name, arguments_of(held.arguments))
        else:
            before = b""
        if call_id not in self._told:
            return before
        result = {"messageId": f"{call_id}:result", "toolCallId": call_id, "content": text_of_result(event)}
        return before + _frames({"type": "TOOL_CALL_RESULT", **result, "role": "tool"})

    def _subtask_finished(self, event: SubtaskFinished) -> bytes:
        named = {"subagentRunId": self._subagents.pop(event.started)}
        if event.outcome == "suspended":  # it continues in the next slice of the run
            self._resting[event.path] = named["subagentRunId"]
            return b""
        if event.outcome == "ok":
            return _frames({"type": "SUBAGENT_FINISHED", **named, "outcome": {"type": "success"}})
        fault = (
            self._service.fault(self._run, event.error)["error"]
            if event.error is not None
            else {"message": event.outcome}
        )
        return _frames(
            {
                "type": "SUBAGENT_ERROR",
                **named,
                "message": fault["message"],
                "code": fault.get("code", event.outcome),
            }
        )

    def _close(self, outcome: dict[str, Any]) -> bytes:
        """End all open parts, and drop the records of ended ones. ``outcome`` applies to subagents."""
        steps, self._steps = self._steps, {}
        subagents = [*self._resting.values(), *self._subagents.values()]
        self._subagents, self._resting = {}, {}
        return self._stop_speaking() + _frames(
            *[{"type": "STEP_FINISHED", "stepName": each} for each in steps.values()],
            *[{"type": "SUBAGENT_FINISHED", "subagentRunId": each, "outcome": outcome} for each in reversed(subagents)],
        )

    def ask(self, questions: Mapping[str, Question]) -> bytes:
        seconds = seconds_of(self._run)
        ends = {} if seconds is None else {"expiresAt": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}
        interrupts: list[dict[str, Any]] = []
        calls = b""
        for key, each in questions.items():
            if each.external is not None:
                self._outside.add(each.path)
                name, arguments = each.external.name, json.dumps(plain(each.external.arguments))
                calls += self._call(f"{self._run.run_id}.{key}", name, arguments)
                continue
            approval = each.reason == "approval"
            schema, bound = _BOOLEAN if approval else plain(each.schema), {}
            if each.call is not None:
                call_id = f"{self._run.run_id}:{each.path.rpartition('/')[0]}"  # the path of the call, which starts when it is approved
                calls += self._call(call_id, each.call.name, json.dumps(plain(each.call.arguments)))
                schema, bound = _DECISION, {"toolCallId": call_id}
            reason = "confirmation" if approval else "input_required"
            interrupts.append(
                {
                    "id": f"{self._run.run_id}.{key}",
                    "reason": "tool_call" if bound else reason,
                    "message": each.question,
                    **bound,
                    **ends,
                    **({} if schema is None else {"responseSchema": schema}),
                }
            )
        suspended: dict[str, Any] = {"type": "success"}
        outcome: dict[str, Any] = {"type": "success"}
        if interrupts:  # calls alone are not interrupt: the client carries them out, and says so in its next request
            suspended = {"type": "suspended", "interruptIds": [each["id"] for each in interrupts]}
            outcome = {"type": "interrupt", "interrupts": interrupts}
        finished = _frames({"type": "RUN_FINISHED", **self._names, "outcome": outcome})
        return self._stop_speaking() + calls + self._close(suspended) + finished

    async def end(self, *, cut_off: bool) -> bytes:  # an event of the protocol says so of no text, so it is an error
        before = self._close({"type": "success"})
        failure = self._run.failure
        if self._run.status == "cancelled":
            return before + _frames({"type": "RUN_FINISHED", **self._names, "outcome": {"type": "cancelled"}})
        if failure is not None:
            fault = self._service.fault(self._run, failure)["error"]
            return before + _frames({"type": "RUN_ERROR", "message": fault["message"], "code": fault["code"]})
        if not self._has_text and (text := text_of_run(self._service, self._run)):
            before += self._say("text", 0, text) + self._stop_speaking()
        assert self._run.result is not None
        usage = usage_of(self._run)
        finished = {
            "type": "RUN_FINISHED",
            **self._names,
            "outcome": {"type": "success"},
            "result": self._service.redact(plain(self._run.result.value)),
            "usage": [
                {
                    "inputTokens": usage.input_tokens,
                    "outputTokens": usage.output_tokens,
                    "reasoningTokens": usage.reasoning_tokens,
                    "cachedInputTokens": usage.cache_read_tokens,
                }
            ],
        }
        return before + b"data: " + await json_bytes(finished) + b"\n\n"


def _pointer(path: str) -> str:
    return path.replace("~", "~0").replace("/", "~1")


def _frames(*events: Mapping[str, Any]) -> bytes:
    return b"".join([f"data: {json.dumps(each)}\n\n".encode() for each in events])


_IS_OPEN = re.compile(r"[^/]+\.[0-9a-f]+").fullmatch
"""Whether an id is one of a call that waits: of a run and the key of its question. Those of other calls have paths."""
_PASSED_OVER = ("tool", "activity", "reasoning")


class AguiRoute:
    """The route, and the runs that wait for an answer of their client."""

    def __init__(self) -> None:
        self._waiting: WaitingRuns[Shown[AguiView]] = WaitingRuns()

    async def __call__(self, service: ServedFlow, request: Request, key: Key) -> Response:
        """Start a run for a conversation, or resume one that asked. If the client disconnects, its run is cancelled."""
        body = await read_body(request)
        offer = service.offer(request.path_params["export"], key, "export")
        thread, run_id = text_field(body, "threadId"), text_field(body, "runId")
        if not thread or not run_id:
            raise RequestError("'threadId' and 'runId' are strings", code="serve/field", param="runId")
        answers = _answers(body["resume"]) if body.get("resume") else {}
        results, calls, state = _results(body), [*_calls(body)], _state_of(body)
        if answers or results:

            def view(run: ServedRun) -> AguiView:
                return AguiView(service, run, thread, run_id)

            run_that_asks = run_of(answers) if answers else [*results][-1].rpartition(".")[0]
            shown = come_back(service, run_that_asks, key, offer, view, self._waiting)
            if body.get("state") and state != shown.view.state:  # a client that keeps none sends an empty one
                shown.asked.state, shown.view.state = state, deepcopy(state)
            await _answer(shown, answers)
            await _finish(shown, results)
            shown.view.go_on(thread, run_id, calls)
        else:
            tools = client_tools(body.get("tools"))
            await leave_behind(service, calls, key, offer, self._waiting)
            run = await start_chat(
                service,
                key,
                offer,
                partial(_messages, body),
                naming="export",
                lasting=True,
                tools=tools,
                state=state or None,
            )
            shown = Shown(service, run, offer, AguiView(service, run, thread, run_id, state), self._waiting)
        return shown.stream({})


def _objects(value: object) -> list[dict[str, Any]]:
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in rows if isinstance(each, dict)]


def _messages(body: Mapping[str, Any]) -> object:
    """The messages of the conversation, without those of tools, activities and thinking, which report the work of a run.

    The ``context`` that the front end adds stands before them.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        return messages
    rows: list[Any] = [
        each
        for each in cast("list[Any]", messages)
        if not (isinstance(each, dict) and cast("dict[str, Any]", each).get("role") in _PASSED_OVER)
    ]
    context = [f"{each.get('description')}: {each.get('value')}" for each in _objects(body.get("context"))]
    return [{"role": "system", "content": "\n".join(context)}, *rows] if context else rows


def _state_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The state in a request, without the report of the server beneath a key of its own. Raises RequestError."""
    state = body.get("state")
    if state is not None and not isinstance(state, dict):
        raise RequestError(
            "'state' is an object", code="serve/field", param="state", hint='write "state": {"steps": [...]}'
        )
    return {name: value for name, value in cast("dict[str, Any]", state or {}).items() if name != _OWN}


def _results(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The results that a client sends of calls of its tools, by their ids: the messages of tools after the last of the user's."""
    results: dict[str, Mapping[str, Any]] = {}
    for each in reversed(_objects(body.get("messages"))):
        if each.get("role") == "user":
            break
        call_id = each.get("toolCallId")
        if each.get("role") == "tool" and isinstance(call_id, str) and _IS_OPEN(call_id):
            results[call_id] = each
    return dict(reversed(results.items()))


def _calls(body: Mapping[str, Any]) -> Iterator[str]:
    """The ids of the tool calls that a client has in its messages."""
    for message in _objects(body.get("messages")):
        for each in _objects(message.get("toolCalls")):
            if isinstance(each.get("id"), str):
                yield each["id"]


def _answers(resume: object) -> dict[str, Mapping[str, Any]]:
    """The answers of a client by the ids of the interrupts. Raises RequestError."""
    answers: dict[str, Mapping[str, Any]] = {}
    for each in cast("list[Any]", resume) if isinstance(resume, list) else [None]:
        entry = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        name = entry.get("interruptId")
        if not isinstance(name, str):
            raise RequestError(
                "'resume' is a list of answers",
                code="serve/field",
                param="resume",
                hint='{"interruptId": ..., "status": ...}',
            )
        answers[name] = entry
    return answers


async def _answer(shown: Shown[AguiView], answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Pass answers on; an invalid one leaves its question open, and it is asked again."""
    for name, entry in answers.items():
        key = name.rpartition(".")[2]
        question = shown.asked.open.get(key)
        if question is None:
            continue
        payload = entry.get("payload")
        if question.reason == "approval":
            await shown.asked.answer(key, _decision(payload) if entry.get("status") == "resolved" else False)
        elif entry.get("status") == "resolved":
            await shown.asked.answer(key, payload)
        else:
            await shown.asked.decline(key)


def _decision(payload: object) -> object:
    """The answer about a call in our form: a payload in exactly the protocol's is translated, any other is passed on."""
    if not isinstance(payload, dict) or "approved" not in payload:
        return cast(object, payload)
    form = cast("dict[str, Any]", payload)
    if form.keys() == {"approved", "editedArgs"} and form["approved"] is True:
        return {"approved": True, "arguments": form["editedArgs"]}
    return form["approved"] if form.keys() == {"approved"} and isinstance(form["approved"], bool) else form


async def _finish(shown: Shown[AguiView], results: Mapping[str, Mapping[str, Any]]) -> None:
    """Pass on the results of calls of the client's tools; a message with an ``error`` is of a call that failed."""
    for name, message in results.items():
        key = name.rpartition(".")[2]
        question = shown.asked.open.get(key)
        if question is None or question.external is None or name != f"{shown.run.run_id}.{key}":
            continue
        content, fault = message.get("content"), message.get("error")
        text = content if isinstance(content, str) else json.dumps(content)
        await shown.asked.finish(key, text, (fault if isinstance(fault, str) else text) if fault else None)
