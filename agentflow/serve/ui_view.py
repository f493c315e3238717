"""A run as a message of the AI SDK: text, thinking, tool calls, and a data part for each task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentflow.core.data.values import plain
from agentflow.core.events.events import (
    Event,
    ModelFinished,
    ModelStarted,
    RunStarted,
    SubtaskFinished,
    SubtaskStarted,
    TaskFinished,
    TaskStarted,
    ToolFinished,
    ToolStarted,
)
from agentflow.core.events.questions import Question
from agentflow.serve.answer import Piece, Said
from agentflow.serve.front_end import arguments_of, subtask_name, text_of_model, text_of_result
from agentflow.serve.json_body import json_bytes
from agentflow.serve.run_api import run_data
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import Service
from agentflow.serve.talk import text_of_run

ASK = "ask_human"
"""The tool whose calls represent questions; its output is the answer."""
_APPROVAL = "approval"


class UiView:
    """Encodes the parts of a run's message; ``message_id`` is the id that the client already uses for it, if any."""

    def __init__(self, service: Service, run: ServedRun) -> None:
        self.message_id: str | None = None
        self._service = service
        self._run = run
        self._tasks: dict[int, dict[str, Any]] = {}
        self._models: dict[int, dict[str, Any]] = {}
        self._speaking: tuple[Said, int] | None = None
        self._spoken = 0
        self._has_text = False
        self._approvals: set[str] = set()

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
            case ToolStarted() if event.path not in self._approvals:  # else its call was sent with the approval
                return _frames(
                    {
                        **self._call(event.path),
                        "type": "tool-input-available",
                        "toolName": event.name,
                        "input": json.loads(arguments_of(event)),
                    }
                )
            case ToolFinished() if event.outcome != "suspended":
                call, text = self._call(event.path), text_of_result(event)
                if event.outcome == "ok":
                    return _frames({**call, "type": "tool-output-available", "output": text})
                return _frames({**call, "type": "tool-output-error", "errorText": text})
            case _:
                pass
        return b""

    def _call(self, path: str) -> dict[str, Any]:
        return {"toolCallId": f"{self._run.run_id}:{path}", "dynamic": True, "providerExecuted": True}

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
            if each.reason == "approval":
                path = each.path.rpartition("/")[0]  # the path of the call, which starts once it is approved
                self._approvals.add(path)
                call = self._call(path)
                frames += _frames(
                    {
                        **call,
                        "type": "tool-input-available",
                        "toolName": self._tool_of(each),
                        "input": {"question": each.question},
                    },
                    {"type": "tool-approval-request", "approvalId": name, "toolCallId": call["toolCallId"]},
                )
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

    def _tool_of(self, approval: Question) -> str:
        """The tool that waits for an approval; the approval's text starts with its name."""
        name = approval.question.partition(" ")[0]
        return name if name in self._service.flow.tools.names() else _APPROVAL

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


def _part(kind: Said) -> str:
    return "text" if kind == "text" else "reasoning"


def _task(task: Mapping[str, Any]) -> bytes:
    return _frames({"type": "data-task", "id": task["path"], "data": task})


def _frames(*chunks: Mapping[str, Any]) -> bytes:
    return b"".join([f"data: {json.dumps(each)}\n\n".encode() for each in chunks])


__all__ = ["UiView"]
