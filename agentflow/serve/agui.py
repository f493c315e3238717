"""``POST /agui/NAME``: an export as an agent for front ends that speak AG-UI 1.0.

The run's answer becomes text, its tasks become steps and state, its approvals and questions interrupts. Of an answer to an
interrupt, only the id and the answer are read from the client: the question itself is the server's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.serve.agui_view import AguiView, run_of
from agentflow.serve.faults import RequestError, text_field
from agentflow.serve.front_end import Shown, come_back
from agentflow.serve.keys import Key
from agentflow.serve.requests import read_body
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import Service
from agentflow.serve.talk import start_chat
from agentflow.serve.waiting_runs import WaitingRuns

_PASSED_OVER = ("tool", "activity", "reasoning")


class AguiRoute:
    """The route, and the runs that wait for an answer of their client."""

    def __init__(self) -> None:
        self._waiting: WaitingRuns[Shown[AguiView]] = WaitingRuns()

    async def __call__(self, service: Service, request: Request, key: Key) -> Response:
        """Start a run for a conversation, or resume one that asked. If the client disconnects, its run is cancelled."""
        body = await read_body(request)
        offer = service.offer(request.path_params["export"], key, "export")
        thread, run_id = text_field(body, "threadId"), text_field(body, "runId")
        if not thread or not run_id:
            raise RequestError("'threadId' and 'runId' are strings", code="serve/field", param="runId")
        if body.get("resume"):
            answers = _answers(body["resume"])

            def view(run: ServedRun) -> AguiView:
                return AguiView(service, run, thread, run_id)

            shown = come_back(service, run_of(answers), key, offer, view, self._waiting)
            await _answer(shown, answers)
            shown.view.go_on(thread, run_id)
        else:
            run = await start_chat(service, key, offer, partial(_messages, body), naming="export", lasting=True)
            shown = Shown(service, run, offer, AguiView(service, run, thread, run_id), self._waiting)
        return shown.stream({})


def _messages(body: Mapping[str, Any]) -> object:
    """The messages of the conversation, without those of tools, activities and thinking, which report what a run did."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return messages
    rows: list[Any] = [
        each
        for each in cast("list[Any]", messages)
        if not (isinstance(each, dict) and cast("dict[str, Any]", each).get("role") in _PASSED_OVER)
    ]
    return rows


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
            await shown.asked.answer(key, payload if entry.get("status") == "resolved" else False)
        elif entry.get("status") == "resolved":
            await shown.asked.answer(key, payload)
        else:
            await shown.asked.decline(key)


__all__ = ["AguiRoute"]
