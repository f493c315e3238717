"""``POST /v1/responses``: an export as a model for clients of OpenAI's newer API.

The conversation is sent whole, as ``input``; nothing is kept between requests. Everything else works as for chat completions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.core.data.errors import cut
from agentflow.core.events.events import Event, WaitStarted
from agentflow.serve.answer import AnswerReader, Piece, Said
from agentflow.serve.error_responses import RequestError, text_field
from agentflow.serve.incoming import read_body
from agentflow.serve.json_body import json_response
from agentflow.serve.keys import Key
from agentflow.serve.served_flow import ServedFlow
from agentflow.serve.served_runs import ServedRun
from agentflow.serve.streaming import EventStream
from agentflow.serve.talk import Finish, cannot, reply_of, start_chat, text_of_run, usage_of

_STATUS: dict[Finish, str] = {"stop": "completed", "length": "incomplete"}
_KEPT = ("previous_response_id", "conversation", "prompt")


async def respond(service: ServedFlow, request: Request, key: Key) -> Response:
    """Answer a conversation, streamed or whole. If the client disconnects, its run is cancelled."""
    body = await read_body(request)
    offer = service.offer(body.get("model"), key, "model")
    for name in _KEPT:
        if body.get(name) is not None:
            raise RequestError(
                f"'{name}' refers to stored data, but this server stores none",
                code="serve/field",
                param=name,
                hint="send the whole conversation as input",
            )
    if body.get("background") is True:
        raise RequestError(
            "background responses are not supported",
            code="serve/field",
            param="background",
            hint="POST /runs starts a run that continues without the client",
        )
    run = await start_chat(service, key, offer, partial(_messages, body), param="input")
    reader = run.reader()
    answer = _Answer(service, run, offer.name)
    if body.get("stream") is True:
        chunks = answer.events(reader.__aiter__(), AnswerReader(offer))
        return EventStream(chunks, {"x-request-id": run.run_id}, after=partial(service.left, run))
    reply = await reply_of(service, request, run, reader, AnswerReader(offer))
    if reply.failure is not None:
        return service.failed_answer(run, reply.failure)
    answer.say(Piece("text", reply.text, 0))
    status = _STATUS[reply.finish]
    answer.close(status)
    return await json_response(answer.response(status), headers={"x-request-id": run.run_id})


def _messages(body: Mapping[str, Any]) -> list[Any]:
    """The messages of ``input``, which is text or a list; items of thinking are skipped. Raises RequestError."""
    items = body.get("input")
    instructions = text_field(body, "instructions")
    before = [] if not instructions else [{"role": "system", "content": instructions}]
    if isinstance(items, str):
        return [*before, {"role": "user", "content": items}]
    if not isinstance(items, list):
        raise RequestError("'input' must be text or a list of messages", code="serve/messages", param="input")
    messages: list[Any] = []
    for at, item in enumerate(cast("list[Any]", items)):
        kind = cast("dict[str, Any]", item).get("type", "message") if isinstance(item, dict) else "message"
        if kind == "message":
            messages.append(item)
        elif kind != "reasoning":
            raise RequestError(
                f"an item of the type {cut(str(kind), 40)!r} is not supported",
                code="serve/content",
                param=f"input.{at}",
                hint="send messages; an export has tools of its own",
            )
    return [*before, *messages]


class _Answer:
    """One response: its items, thinking and text, and the events that report them."""

    def __init__(self, service: ServedFlow, run: ServedRun, model: str) -> None:
        self._service = service
        self._run = run
        self._model = model
        self._output: list[dict[str, Any]] = []
        self._open: Said | None = None
        self._text: list[str] = []
        self._count = 0

    async def events(
        self, events: AsyncGenerator[Event, None] | Any, answer: AnswerReader
    ) -> AsyncGenerator[bytes, None]:
        """The events of the stream."""
        yield self._event("response.created", response=self.response("in_progress"))
        yield self._event("response.in_progress", response=self.response("in_progress"))
        async for event in events:
            piece = answer.take(event)
            if isinstance(event, WaitStarted) and event.key and not event.signal:
                before = "\n\n" if answer.has_text else ""
                piece = Piece("text", before + cannot(event), 0)
            if piece is not None:
                yield b"".join(self.say(piece))
            if isinstance(event, WaitStarted) and event.key and not event.signal:
                await self._run.cancel()
                break
        else:
            await self._run.wait()
            if answer.is_cut_off(self._run.failure):
                yield b"".join(self.close("incomplete"))
                yield self._event("response.incomplete", response=self.response("incomplete"))
                return
            if self._run.failure is not None:
                yield b"".join(self.close("incomplete"))
                error = self._service.fault(self._run, self._run.failure)["error"]
                failed = self.response("failed", {"code": error["code"], "message": error["message"]})
                yield self._event("response.failed", response=failed)
                return
            if not answer.has_text:
                yield b"".join(self.say(Piece("text", text_of_run(self._service, self._run), 0)))
        yield b"".join(self.close())
        yield self._event("response.completed", response=self.response("completed"))

    def say(self, piece: Piece) -> list[bytes]:
        """The events for a piece; a change between thinking and text starts another item."""
        events: list[bytes] = []
        if self._open != piece.kind:
            events += [*self.close(), *self._begin(piece.kind)]
        self._text.append(piece.text)
        kind = "output_text" if piece.kind == "text" else "reasoning_text"
        extra: dict[str, Any] = {"logprobs": []} if piece.kind == "text" else {}
        return [
            *events,
            self._event(f"response.{kind}.delta", **self._where(), content_index=0, delta=piece.text, **extra),
        ]

    def _begin(self, kind: Said) -> list[bytes]:
        number = len(self._output)
        if kind == "text":
            item: dict[str, Any] = {
                "id": f"msg_{self._run.run_id}_{number}",
                "type": "message",
                "role": "assistant",
                "content": [],
            }
        else:
            item = {"id": f"rs_{self._run.run_id}_{number}", "type": "reasoning", "summary": [], "content": []}
        self._output.append({**item, "status": "in_progress"})
        self._open, self._text = kind, []
        added = self._event("response.output_item.added", output_index=number, item=self._output[-1])
        part = self._part("")
        return [added, self._event("response.content_part.added", **self._where(), content_index=0, part=part)]

    def close(self, status: str = "completed") -> list[bytes]:
        """The events that end the open item, if there is one."""
        if self._open is None:
            return []
        text, where = "".join(self._text), self._where()
        part = self._part(text)
        kind = "output_text" if self._open == "text" else "reasoning_text"
        extra: dict[str, Any] = {"logprobs": []} if self._open == "text" else {}
        item = self._output[-1] = {**self._output[-1], "status": status, "content": [part]}
        self._open = None
        return [
            self._event(f"response.{kind}.done", **where, content_index=0, text=text, **extra),
            self._event("response.content_part.done", **where, content_index=0, part=part),
            self._event("response.output_item.done", output_index=where["output_index"], item=item),
        ]

    def _part(self, text: str) -> dict[str, Any]:
        if self._open == "text":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "reasoning_text", "text": text}

    def _where(self) -> dict[str, Any]:
        return {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = json.dumps({"type": kind, "sequence_number": self._count, **fields})
        self._count += 1
        return f"event: {kind}\ndata: {data}\n\n".encode()

    def response(self, status: str, error: dict[str, Any] | None = None) -> dict[str, Any]:
        """The response in its current state."""
        usage = usage_of(self._run)
        return {
            "id": f"resp_{self._run.run_id}",
            "object": "response",
            "created_at": int(self._run.created),
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "metadata": {},
            "model": self._model,
            "output": self._output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": None
            if self._run.ended is None
            else {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.input_tokens + usage.output_tokens,
            },
        }
