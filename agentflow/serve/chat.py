"""``POST /v1/chat/completions``: an export as a model for clients of OpenAI's API.

The last message is the export's message; the ones before it are the history that its tasks see. If a run needs an
approval, which such clients cannot give, the answer says so and ends.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.core.data.messages import Usage
from agentflow.core.events.events import Event, SubtaskFinished, SubtaskStarted, TaskFinished, TaskStarted, WaitStarted
from agentflow.serve.answer import AnswerReader, Piece
from agentflow.serve.error_responses import RequestError
from agentflow.serve.incoming import read_body
from agentflow.serve.json_body import json_response
from agentflow.serve.keys import Key
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.streaming import EventStream
from agentflow.serve.talk import Finish, Reply, cannot, reply_of, start_chat, text_of_run, usage_of

_MAX_COMMENT = 200


async def complete(service: ServedFlow, request: Request, key: Key) -> Response:
    """Answer a chat, streamed or whole. If the client disconnects, its run is cancelled."""
    body = await read_body(request)
    offer = service.offer(body.get("model"), key, "model")
    if body.get("n") not in (None, 1):
        raise RequestError("an export returns one answer", code="serve/field", param="n")
    run = await start_chat(service, key, offer, partial(body.get, "messages"))
    reader = run.reader()
    chat = _Chat(service, run, offer.name)
    if body.get("stream") is True:
        options = body.get("stream_options")
        usage = isinstance(options, dict) and cast("dict[str, Any]", options).get("include_usage") is True
        chunks = chat.chunks(reader.__aiter__(), AnswerReader(offer), usage=usage)
        return EventStream(chunks, {"x-request-id": run.run_id}, after=partial(service.left, run))
    reply = await reply_of(service, request, run, reader, AnswerReader(offer))
    if reply.failure is not None:
        return service.failed_answer(run, reply.failure)
    return await json_response(chat.whole(reply), headers={"x-request-id": run.run_id})


class _Chat:
    """One answer, in the format of OpenAI's API."""

    def __init__(self, service: ServedFlow, run: ServedRun, model: str) -> None:
        self._service = service
        self._run = run
        self._head = {"id": f"chatcmpl-{run.run_id}", "created": int(run.created), "model": model}

    def whole(self, reply: Reply) -> dict[str, Any]:
        """The answer of a run that has ended."""
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish, "logprobs": None}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_data(usage_of(self._run)),
        }

    async def chunks(
        self, events: AsyncGenerator[Event, None] | Any, answer: AnswerReader, *, usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """The server-sent events of the stream, with the token usage at the end if ``usage``."""
        run, finish = self._run, cast(Finish, "stop")
        yield self._chunk({"role": "assistant", "content": ""})
        async for event in events:
            piece = answer.take(event)
            if piece is not None:
                yield self._chunk(_delta(piece))
            elif isinstance(event, WaitStarted) and event.key and not event.signal:
                before = "\n\n" if answer.has_text else ""
                yield self._chunk({"content": before + cannot(event)})
                await run.cancel()
                break
            elif (comment := _progress(event)) is not None:
                yield comment
        else:
            await run.wait()
            if answer.is_cut_off(run.failure):
                finish = "length"
            elif run.failure is not None:
                yield _frame(self._service.fault(run, run.failure))
                return
            elif not answer.has_text:
                yield self._chunk({"content": text_of_run(self._service, run)})
        yield self._chunk({}, finish)
        if usage:
            yield _frame({**self._body(), "choices": [], "usage": usage_data(usage_of(self._run))})
        yield b"data: [DONE]\n\n"

    def _body(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _chunk(self, delta: dict[str, Any], finish: Finish | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _frame({**self._body(), "choices": [choice]})


def _delta(piece: Piece) -> dict[str, Any]:
    return {"content": piece.text} if piece.kind == "text" else {"reasoning_content": piece.text}


def _progress(event: Event) -> bytes | None:
    """A comment line for people who read the stream; clients ignore it. None if the event is not progress."""
    if isinstance(event, TaskStarted):
        name = event.name
    elif isinstance(event, TaskFinished):
        name = f"{event.name} {event.outcome}"
    elif isinstance(event, SubtaskStarted | SubtaskFinished):
        name = f"subtask {event.path}"
    else:
        return None
    line = "".join([each if each.isprintable() else " " for each in f": {name} {event.path}"[:_MAX_COMMENT]])
    return f"{line}\n\n".encode("utf-8", "replace")


def _frame(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def usage_data(usage: Usage) -> dict[str, Any]:
    """Tokens in the format of OpenAI's API."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


async def list_models(service: ServedFlow, request: Request, key: Key) -> Response:
    """List the exports that a key may call."""
    names: Iterable[str] = [name for name, offer in service.offers.items() if offer.message and key.may_call(name)]
    return await json_response({"object": "list", "data": [_model(service, name) for name in names]})


async def show_model(service: ServedFlow, request: Request, key: Key) -> Response:
    """Show one export that a key may call."""
    offer = service.offer(request.path_params["model"], key, "model")
    return await json_response(_model(service, offer.name))


def _model(service: ServedFlow, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(service.started), "owned_by": "agentflow"}
