"""``POST /ui/NAME``: an export behind ``useChat`` of Vercel's AI SDK.

A client sends all its messages. If the last one is the assistant's, it answers questions of the run behind it: only ids
and answers are read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.serve.faults import RequestError
from agentflow.serve.front_end import Shown, come_back
from agentflow.serve.keys import Key
from agentflow.serve.requests import read_body
from agentflow.serve.service import Service
from agentflow.serve.talk import start_chat
from agentflow.serve.ui_view import UiView
from agentflow.serve.waiting_runs import WaitingRuns

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}


class UiRoute:
    """The route, and the runs that wait for an answer of their client."""

    def __init__(self) -> None:
        self._waiting: WaitingRuns[Shown[UiView]] = WaitingRuns()

    async def __call__(self, service: Service, request: Request, key: Key) -> Response:
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
            run = await start_chat(service, key, offer, partial(_texts, messages), naming="export", lasting=True)
            shown = Shown(service, run, offer, UiView(service, run), self._waiting)
        return shown.stream(HEADERS)


def _objects(value: object) -> list[dict[str, Any]]:
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in rows if isinstance(each, dict)]


def _texts(messages: object) -> list[Any]:
    return [_text_only(each) for each in _objects(messages)]


def _text_only(message: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a message, without tool calls, steps and data, which report what a run did. Files stay, to be refused later."""
    parts = [each for each in _objects(message.get("parts")) if each.get("type") in ("text", "file")]
    return {"role": message.get("role"), "content": parts}


def _answers(message: Mapping[str, Any]) -> dict[str, tuple[bool, Any]]:
    """The answers in an assistant's message by the ids of the questions: whether each is answered, and the answer."""
    return {name: answer for part in _objects(message.get("parts")) for name, answer in _answers_in(part)}


def _answers_in(part: Mapping[str, Any]) -> Iterator[tuple[str, tuple[bool, Any]]]:
    state, approval, name = part.get("state"), part.get("approval"), part.get("toolCallId")
    if state == "approval-responded" and isinstance(approval, dict):
        approved = cast("dict[str, Any]", approval)
        if isinstance(approved.get("id"), str):
            said, reason = approved.get("approved"), approved.get("reason")
            yield approved["id"], (True, reason if said is False and isinstance(reason, str) else said)
    elif state in ("output-available", "output-error") and isinstance(name, str) and approval is None:
        yield name, (state == "output-available", part.get("output"))


def _run_of(answers: Mapping[str, object]) -> str:
    """The run that the last of the answers belongs to. Raises RequestError if there are no answers."""
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
        if is_answered:
            await shown.asked.answer(key, answer)
        else:
            await shown.asked.decline(key)


__all__ = ["UiRoute"]
