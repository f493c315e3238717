"""``POST /v1/chat/completions``: an export as a model for clients of OpenAI's API.

The last message is the export's message; what was said before is the history that its tasks see. Where a run asks for an
approval, which such clients cannot give, the answer says so and ends.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import Response

from agentflow.core.events import Event, SubtaskFinished, SubtaskStarted, TaskFinished, TaskStarted, WaitStarted
from agentflow.core.messages import Message, TextPart, Usage, user
from agentflow.core.session import Session
from agentflow.serve.answer import AnswerReader, Piece, text_of
from agentflow.serve.faults import RequestError, error_response
from agentflow.serve.json_body import json_response
from agentflow.serve.keys import Key
from agentflow.serve.requests import read_body
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import Service
from agentflow.serve.streaming import EventStream

_SYSTEM = ("system", "developer")
_MAX_COMMENT = 200


async def complete(service: Service, request: Request, key: Key) -> Response:
    """Answer a chat, streamed or whole. A client that goes away has its run cancelled."""
    body = await read_body(request)
    offer = service.offer(body.get("model"), key, "model")
    if offer.message is None:
        raise RequestError(
            f"the export '{offer.name}' takes no message",
            code="serve/no-message",
            param="model",
            hint="POST /runs takes its parameters by name",
        )
    if body.get("n") not in (None, 1):
        raise RequestError("an export gives one answer", code="serve/field", param="n")
    said, session = conversation(body.get("messages"))
    run = await service.start(offer, {offer.message: said}, key, session=session)
    reader = run.reader()
    chat = _Chat(service, run, offer.name)
    if body.get("stream") is True:
        options = body.get("stream_options")
        usage = isinstance(options, dict) and cast("dict[str, Any]", options).get("include_usage") is True
        chunks = chat.chunks(reader.__aiter__(), AnswerReader(offer), usage=usage)
        return EventStream(chunks, {"x-request-id": run.run_id})
    asked = None
    async with service.until_gone(request, run):
        async for event in reader:
            if isinstance(event, WaitStarted) and event.key:
                asked = _cannot(event)
                break
        else:
            await run.wait()
    if asked is not None:
        await run.cancel()
    elif run.failure is not None:
        return error_response(run.failure, run_id=run.run_id, body=service.fault(run.failure))
    return await json_response(chat.whole(asked), headers={"x-request-id": run.run_id})


def conversation(messages: object) -> tuple[str, Session]:
    """The last message, and the session of those before it: exchanges of what was asked and answered.

    What a client gives as ``system`` stands at the beginning of the first message: it is no instruction of the server's.
    Raises RequestError.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError("'messages' is a list that is not empty", code="serve/messages", param="messages")
    rows = [_said(row, at) for at, row in enumerate(cast("list[Any]", messages))]
    if rows[-1][0] != "user":
        raise RequestError("the last message is the user's", code="serve/messages", param=f"messages.{len(rows) - 1}")
    system = [text for role, text in rows if role in _SYSTEM and text]
    turns: list[tuple[str, list[str]]] = []
    for role, text in rows:
        side = "assistant" if role in ("assistant", "tool") else "user"
        if role in _SYSTEM:
            continue
        if turns and turns[-1][0] == side:
            turns[-1][1].append(text)
        else:
            turns.append((side, [text]))
    texts = [(side, "\n\n".join([text for text in parts if text])) for side, parts in turns]
    if texts[0][0] == "assistant":  # a greeting that the front end shows
        texts.insert(0, ("user", "(begins)"))
    if system:
        texts[0] = ("user", "\n\n".join([*system, texts[0][1]]))
    session = Session()
    for at in range(0, len(texts) - 1, 2):
        asked, answered = texts[at][1], texts[at + 1][1]
        session.commit((user(asked), Message("assistant", (TextPart(answered or "(nothing)"),))))
    return texts[-1][1], session


def _said(row: object, at: int) -> tuple[str, str]:
    where = f"messages.{at}"
    if not isinstance(row, dict):
        raise RequestError("a message is an object with role and content", code="serve/messages", param=where)
    message = cast("dict[str, Any]", row)
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "tool", *_SYSTEM):
        raise RequestError(f"a message has no role {str(role)[:40]!r}", code="serve/messages", param=f"{where}.role")
    if content is None:
        return role, ""
    if isinstance(content, str):
        return role, content
    if not isinstance(content, list):
        raise RequestError("content is text, or a list of parts", code="serve/messages", param=f"{where}.content")
    texts: list[str] = []
    for part in cast("list[Any]", content):
        fields = cast("Mapping[str, Any]", part if isinstance(part, dict) else {})
        text = fields.get("text")
        if fields.get("type") not in ("text", "input_text", "output_text") or not isinstance(text, str):
            raise RequestError(
                f"content of the type {str(fields.get('type'))[:40]!r} is not taken",
                code="serve/content",
                param=f"{where}.content",
                hint="send text; files are read by the export's own tools",
            )
        texts.append(text)
    return role, "\n\n".join(texts)


class _Chat:
    """One answer, in the shapes of OpenAI's API."""

    def __init__(self, service: Service, run: ServedRun, model: str) -> None:
        self._service = service
        self._run = run
        self._head = {"id": f"chatcmpl-{run.run_id}", "created": int(run.created), "model": model}

    def whole(self, instead: str | None) -> dict[str, Any]:
        """The answer of a run that has ended, or what is said ``instead``."""
        text = self._text() if instead is None else instead
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_data(self._usage())}

    async def chunks(
        self, events: AsyncGenerator[Event, None] | Any, answer: AnswerReader, *, usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """The events of the stream. The run is cancelled when they are closed before its end."""
        run = self._run
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            async for event in events:
                piece = answer.take(event)
                if piece is not None:
                    yield self._chunk(_delta(piece))
                elif isinstance(event, WaitStarted) and event.key:
                    before = "\n\n" if answer.said else ""
                    yield self._chunk({"content": before + _cannot(event)})
                    await run.cancel()
                    break
                elif (comment := _progress(event)) is not None:
                    yield comment
            else:
                await run.wait()
                if run.failure is not None:
                    yield _frame(self._service.fault(run.failure))
                    return
                if not answer.said:
                    yield self._chunk({"content": self._text()})
            yield self._chunk({}, finish="stop")
            if usage:
                yield _frame({**self._body(), "choices": [], "usage": usage_data(self._usage())})
            yield b"data: [DONE]\n\n"
        finally:
            await self._service.left(run)

    def _text(self) -> str:
        assert self._run.result is not None
        return self._service.redact(text_of(self._run.result.value))

    def _usage(self) -> Usage:
        return Usage() if self._run.result is None else self._run.result.usage

    def _body(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _chunk(self, delta: dict[str, Any], finish: Literal["stop"] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _frame({**self._body(), "choices": [choice]})


def _delta(piece: Piece) -> dict[str, Any]:
    return {"content": piece.text} if piece.kind == "text" else {"reasoning_content": piece.text}


def _cannot(event: WaitStarted) -> str:
    """What is said where a run would have to wait for somebody's answer."""
    what = "an approval" if event.reason == "approval" else "an answer"
    return f"This needs {what}, which cannot be given in a chat:\n\n{event.question}"


def _progress(event: Event) -> bytes | None:
    """A line for whoever reads the stream, which clients pass over."""
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
    """Tokens in the shape of OpenAI's API."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


async def list_models(service: Service, request: Request, key: Key) -> Response:
    """The exports that a key may talk to."""
    names: Iterable[str] = [name for name, offer in service.offers.items() if offer.message and key.may_call(name)]
    return await json_response({"object": "list", "data": [_model(service, name) for name in names]})


async def show_model(service: Service, request: Request, key: Key) -> Response:
    """One of them."""
    offer = service.offer(request.path_params["model"], key, "model")
    return await json_response(_model(service, offer.name))


def _model(service: Service, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(service.started), "owned_by": "agentflow"}


__all__ = ["complete", "conversation", "list_models", "show_model", "usage_data"]
