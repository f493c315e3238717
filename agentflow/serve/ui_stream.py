"""``POST /ui/NAME``: an export behind ``useChat`` of Vercel's AI SDK.

A client sends all its messages. If the last one is the assistant's, it answers questions of the run behind it, or has the
results of tools that the client carries out: only ids, answers and results are read from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.core.call.run_state import applied
from agentflow.core.data.messages import INTERRUPTED
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
from agentflow.serve.error_responses import RequestError
from agentflow.serve.front_end import (
    Shown,
    arguments_of,
    client_tools,
    come_back,
    leave_behind,
    output_of,
    subtask_name,
    text_of_model,
    text_of_result,
)
from agentflow.serve.incoming import read_body
from agentflow.serve.json_body import json_bytes
from agentflow.serve.keys import Key
from agentflow.serve.run_api import run_data
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.talk import start_chat, text_of_run
from agentflow.serve.waiting_runs import WaitingRuns

ASK = "ask_human"
"""The tool that represents questions by its calls; its output is the answer."""
_APPROVAL = "approval"


class UiView:
    """Encodes the parts of a run's message; ``message_id`` is the id that the client already uses for it, if any."""

    def __init__(self, service: ServedFlow, run: ServedRun) -> None:
        self.message_id: str | None = None
        self._service = service
        self._run = run
        self._tasks: dict[int, dict[str, Any]] = {}
        self._models: dict[int, dict[str, Any]] = {}
        self._speaking: tuple[Said, int] | None = None
        self._spoken = 0
        self._has_text = False
        self._approvals: set[str] = set()
        self._held: dict[str, ToolStarted] = {}
        self._outside = {each.path for each in run.waits.values() if each.external is not None}
        self._state: Any = deepcopy(run.state)

    def begin(self) -> bytes:
        named = {
            "messageId": self.message_id or f"msg_{self._run.run_id}",
            "messageMetadata": {"run_id": self._run.run_id},
        }
        return _frames({"type": "start", **named}, {"type": "start-step"})

    def take(self, event: Event, piece: Piece | None) -> bytes:
        if piece is not None:
            return self._say(piece.kind, piece.model, piece.text)
        match event:
            case RunStarted() if event.parent is None:  # event numbers restart in each slice of a run
                self._tasks, self._models = {}, {}
            case TaskStarted() | SubtaskStarted():
                name = event.name if isinstance(event, TaskStarted) else f"subtask {subtask_name(event)}"
                self._tasks[event.seq] = task = {"name": name, "path": event.path, "status": "running"}
                return _task(task)
            case TaskFinished() | SubtaskFinished() if event.started in self._tasks:
                return _task({**self._tasks.pop(event.started), "status": event.outcome})
            case ModelStarted():
                self._models[event.seq] = self._tasks.get(event.parent or 0, {})
            case ModelFinished():
                return self._model_finished(event)
            case ToolStarted() if event.external:  # its call is sent once it is known whether the client is asked
                self._held[event.path] = event
            case ToolStarted() if event.path not in self._approvals:  # else its call was sent with the approval
                return self._tool_started(event)
            case ToolFinished() if event.outcome != "suspended":
                return self._tool_finished(event)
            case HostData():
                return _frames({"type": f"data-{event.name}", "data": as_data(event.data)})
            case StateChanged():
                for change in event.changes:
                    self._state = applied(self._state, dict(change))
                return _frames({"type": "data-state", "id": "state", "data": as_data(self._state)})
            case _:
                pass
        return b""

    def _tool_started(self, event: ToolStarted) -> bytes:
        return _frames(self._input(event.path, event.name, json.loads(arguments_of(event.arguments))))

    def _input(self, path: str, name: str, arguments: Any) -> dict[str, Any]:
        """A call of a tool of the server. Those of the host are typed parts, others are unknown to the author of the page."""
        dynamic = {"dynamic": True} if ":" in name or name == _APPROVAL else {}
        call = {**self._call(path), **dynamic, "toolName": name, "input": arguments}
        return {"type": "tool-input-available", **call}

    def _tool_finished(self, event: ToolFinished) -> bytes:
        held, before = self._held.pop(event.path, None), b""
        if held is not None:
            if any([path.startswith(f"{event.path}/") for path in self._outside]):
                return b""  # the client has the result, which is its own
            before = self._tool_started(held)
        call = self._call(event.path)
        if event.outcome == "ok":
            return before + _frames({**call, "type": "tool-output-available", "output": output_of(event)})
        if event.path in self._approvals and _was_refused(event):
            return before + _frames({"type": "tool-output-denied", "toolCallId": call["toolCallId"]})
        return before + _frames({**call, "type": "tool-output-error", "errorText": text_of_result(event)})

    def _call(self, path: str) -> dict[str, Any]:
        return {"toolCallId": f"{self._run.run_id}:{path}", "providerExecuted": True}

    def _say(self, kind: Said, model: int, text: str) -> bytes:
        name, before = _part(kind), b""
        if self._speaking != (kind, model):
            before = self._stop_speaking()
            self._speaking = (kind, model)
            self._spoken += 1
            text = text.removeprefix("\n\n") if self._has_text else text  # this is a separate part
            before += _frames({"type": f"{name}-start", "id": str(self._spoken)})
        self._has_text = self._has_text or kind == "text"
        self._models.pop(model, None)
        return before + _frames({"type": f"{name}-delta", "id": str(self._spoken), "delta": text})

    def _stop_speaking(self) -> bytes:
        speaking, self._speaking = self._speaking, None
        return b"" if speaking is None else _frames({"type": f"{_part(speaking[0])}-end", "id": str(self._spoken)})

    def _model_finished(self, event: ModelFinished) -> bytes:
        if self._speaking is not None and self._speaking[1] == event.started:
            return self._stop_speaking()
        task, text = self._models.pop(event.started, None), text_of_model(event)
        if not task or not text:
            return b""
        task["text"] = text
        return _task(task)

    def ask(self, questions: Mapping[str, Question]) -> bytes:
        frames = self._stop_speaking() + _frames(
            {"type": "finish-step"}, {"type": "start-step"}
        )  # a step of its own, so that it is complete
        for key, each in questions.items():
            name = f"{self._run.run_id}.{key}"
            if each.external is not None:
                self._outside.add(each.path)
                call = {"toolCallId": name, "toolName": each.external.name}
                arguments = plain(each.external.arguments)
                frames += _frames(
                    {"type": "tool-input-start", **call}, {"type": "tool-input-available", **call, "input": arguments}
                )
            elif each.reason == "approval":
                path = each.path.rpartition("/")[0]  # the path of the call, which starts once it is approved
                self._approvals.add(path)
                told = {"question": each.question}
                call = self._input(path, _APPROVAL, told)
                if each.call is not None:
                    call = self._input(path, each.call.name, plain(each.call.arguments)) | {"toolMetadata": told}
                asks = {"type": "tool-approval-request", "approvalId": name, "toolCallId": call["toolCallId"]}
                frames += _frames(call, asks)
            else:
                asked = {"question": each.question, "schema": plain(each.schema)}
                frames += _frames(
                    {
                        "type": "tool-input-available",
                        "toolCallId": name,
                        "toolName": ASK,
                        "dynamic": True,
                        "input": asked,
                    }
                )
        return frames + _frames({"type": "finish-step"}, {"type": "finish", "finishReason": "tool-calls"}) + _DONE

    async def end(self, *, cut_off: bool) -> bytes:
        before = self._stop_speaking()
        failure = self._run.failure
        if self._run.status == "cancelled":
            return before + _frames({"type": "abort", "reason": "the run was cancelled"}) + _DONE
        if failure is not None and not cut_off:
            fault = self._service.fault(self._run, failure)["error"]
            return before + _frames({"type": "error", "errorText": f"{fault['code']}: {fault['message']}"}) + _DONE
        if failure is None and not self._has_text and (text := text_of_run(self._service, self._run)):
            before += self._say("text", 0, text) + self._stop_speaking()
        data = await run_data(self._service, self._run)
        metadata = {name: data[name] for name in ("run_id", "value", "usage", "cost_usd")}
        finish = await json_bytes(
            {"type": "finish", "finishReason": "length" if cut_off else "stop", "messageMetadata": metadata}
        )
        return before + _frames({"type": "finish-step"}) + b"data: " + finish + b"\n\n" + _DONE


_DONE = b"data: [DONE]\n\n"


def _was_refused(event: ToolFinished) -> bool:
    """Whether a call did not run because of a refusal."""
    error = None if event.result is None else event.result.notes.error
    return error is not None and error.details.get("code") == "tool/not-approved"


def _part(kind: Said) -> str:
    return "text" if kind == "text" else "reasoning"


def _task(task: Mapping[str, Any]) -> bytes:
    return _frames({"type": "data-task", "id": task["path"], "data": task})


def _frames(*chunks: Mapping[str, Any]) -> bytes:
    return b"".join([f"data: {json.dumps(each)}\n\n".encode() for each in chunks])


HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}


class UiRoute:
    """The route, and the runs that wait for an answer of their client."""

    def __init__(self) -> None:
        self._waiting: WaitingRuns[Shown[UiView]] = WaitingRuns()

    async def __call__(self, service: ServedFlow, request: Request, key: Key) -> Response:
        """Start a run for a conversation, or resume one that asked. If the client disconnects, its run is cancelled."""
        body = await read_body(request)
        offer = service.offer(request.path_params["export"], key, "export")
        messages = body.get("messages")
        last = _objects(cast("list[Any]", messages)[-1:] if isinstance(messages, list) else None)
        if last and last[0].get("role") == "assistant":
            answers = _answers(last[0])
            shown = come_back(service, _run_of(answers), key, offer, lambda run: UiView(service, run), self._waiting)
            await _answer(shown, answers)
            name = last[0].get("id")
            shown.view.message_id = name if isinstance(name, str) else None
        else:
            tools = client_tools(_listed(body.get("tools")))
            await leave_behind(service, _calls(cast("object", messages)), key, offer, self._waiting)
            run = await start_chat(
                service, key, offer, partial(_texts, messages), naming="export", lasting=True, tools=tools
            )
            shown = Shown(service, run, offer, UiView(service, run), self._waiting)
        return shown.stream(HEADERS)


def _listed(tools: object) -> object:
    """Tools by name, as front ends of the AI SDK send them, as a list."""
    if not isinstance(tools, dict):
        return tools
    named = cast("dict[str, Any]", tools)
    return [
        {**cast("dict[str, Any]", each), "name": name} if isinstance(each, dict) else each
        for name, each in named.items()
    ]


def _calls(messages: object) -> Iterator[str]:
    """The ids of the tool calls in a client's messages."""
    for message in _objects(messages):
        for part in _objects(message.get("parts")):
            if isinstance(part.get("toolCallId"), str):
                yield part["toolCallId"]


def _objects(value: object) -> list[dict[str, Any]]:
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in rows if isinstance(each, dict)]


_UNFINISHED = ("streaming", "input-streaming", "input-available")
"""The states of the last parts of a stream that ended early, and of calls without a result."""


def _texts(messages: object) -> list[Any]:
    return [_text_only(each) for each in _objects(messages)]


def _text_only(message: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a message, without tool calls, steps and data, which report the work of a run. Files stay, to be refused later.

    An answer that the user stopped says so, as it does in sessions.
    """
    every = _objects(message.get("parts"))
    parts = [each for each in every if each.get("type") in ("text", "file")]
    if message.get("role") == "assistant" and any([each.get("state") in _UNFINISHED for each in every]):
        parts.append({"type": "text", "text": INTERRUPTED.strip()})
    return {"role": message.get("role"), "content": parts}


def _answers(message: Mapping[str, Any]) -> dict[str, tuple[bool, Any]]:
    """The answers in an assistant's message by the ids of the questions: whether each is answered, and the answer, or the error
    of a call that failed."""
    return {name: answer for part in _objects(message.get("parts")) for name, answer in _answers_in(part)}


def _answers_in(part: Mapping[str, Any]) -> Iterator[tuple[str, tuple[bool, Any]]]:
    state, approval, name = part.get("state"), part.get("approval"), part.get("toolCallId")
    if state == "approval-responded" and isinstance(approval, dict):
        approved = cast("dict[str, Any]", approval)
        if isinstance(approved.get("id"), str):
            said, reason = approved.get("approved"), approved.get("reason")
            yield approved["id"], (True, reason if said is False and isinstance(reason, str) else said)
    elif state in ("output-available", "output-error") and isinstance(name, str) and approval is None:
        failed = state == "output-error"
        yield name, (not failed, part.get("errorText") if failed else part.get("output"))


def _run_of(answers: Mapping[str, object]) -> str:
    """The run that the last of the answers belongs to. Raises RequestError without answers."""
    runs = [each.rpartition(".")[0] for each in answers if "." in each]
    if not runs:
        raise RequestError(
            "the last message must be the user's, or answer a question", code="serve/messages", param="messages"
        )
    return runs[-1]


async def _answer(shown: Shown[UiView], answers: Mapping[str, tuple[bool, Any]]) -> None:
    """Pass answers on; an invalid one leaves its question open, and it is asked again."""
    for name, (is_answered, answer) in answers.items():
        run_id, _, key = name.rpartition(".")
        if run_id != shown.run.run_id or key not in shown.asked.open:
            continue
        if shown.asked.open[key].external is not None:
            await shown.asked.finish(key, answer, None if is_answered else str(answer or "the client gave no reason"))
        elif is_answered:
            await shown.asked.answer(key, answer)
        else:
            await shown.asked.decline(key)
