"""Shared by the chat protocols: the conversation as a session, and the run that answers its last message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from starlette.requests import Request

from agentflow.core.data.errors import AgentflowError, cut
from agentflow.core.data.messages import Message, TextPart, ToolSpec, Usage, user
from agentflow.core.data.session import Session
from agentflow.core.data.walk import Work, in_slices, slices
from agentflow.core.events.events import WaitStarted
from agentflow.observe.stream import Subscriber
from agentflow.serve.answer import AnswerReader, text_of
from agentflow.serve.error_responses import RequestError
from agentflow.serve.exports import Offer
from agentflow.serve.keys import Key
from agentflow.serve.served_flow import Inputs, ServedFlow
from agentflow.serve.served_runs import ServedRun

Finish: TypeAlias = Literal["stop", "length"]
"""How an answer ended: complete, or cut off at the output limit."""
_SYSTEM = ("system", "developer")
_PART = 128
"""Number of messages to process before others may run."""


def message_of(offer: Offer, param: str) -> str:
    """The export's parameter for a chat client's message; ``param`` is the field that names the export.

    Raises RequestError (``serve/no-message``) if it has none.
    """
    if offer.message is None:
        raise RequestError(
            f"the export '{offer.name}' takes no message",
            code="serve/no-message",
            param=param,
            hint="POST /runs takes its parameters by name",
        )
    return offer.message


async def start_chat(
    service: ServedFlow,
    key: Key,
    offer: Offer,
    messages: Callable[[], object],
    *,
    naming: str = "model",
    param: str = "messages",
    lasting: bool = False,
    tools: tuple[ToolSpec, ...] = (),
    state: Mapping[str, Any] | None = None,
) -> ServedRun:
    """Start the run that answers a conversation. ``naming`` and ``param`` are the fields for the export and the messages.
    ``tools`` are those of the client, ``state`` is shared with the run.

    ``messages`` reads them from the request. They are read once the key is admitted, in slices of the loop.

    ``lasting``: it is durable if the flow stores runs, and attended by its client: see :meth:`ServedRuns.start`.

    Raises RequestError, and the errors of :meth:`Service.start`.
    """
    name = message_of(offer, naming)

    async def inputs() -> Inputs:
        message, session = await in_slices(conversation(messages(), param))
        session.keep_partial = True
        session.tools = tools
        return Inputs({name: message}, session, state)

    return await service.start(offer, inputs, key, lasting=lasting, attended=lasting)


def conversation(messages: object, param: str = "messages") -> Work[tuple[str, Session]]:
    """The last message, and a session of the messages before it: exchanges of a question and an answer.

    A client's ``system`` text goes to the beginning of the first message, because it is not an instruction of the server.
    ``param`` is the field that holds ``messages``. Raises RequestError.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError(f"'{param}' must be a list with at least one message", code="serve/messages", param=param)
    rows: list[tuple[str, str]] = []
    for part in slices(cast("list[Any]", messages), _PART):
        yield len(part)
        rows += [_role_and_text(row, param, at) for at, row in enumerate(part, len(rows))]
    if rows[-1][0] != "user":
        raise RequestError(
            "the last message must be the user's", code="serve/messages", param=f"{param}.{len(rows) - 1}"
        )
    system = [text for role, text in rows if role in _SYSTEM and text]
    turns: list[tuple[str, list[str]]] = []
    for part in slices(rows, _PART):
        yield len(part)
        for role, text in part:
            side = "assistant" if role in ("assistant", "tool") else "user"
            if role in _SYSTEM:
                continue
            if turns and turns[-1][0] == side:
                turns[-1][1].append(text)
            else:
                turns.append((side, [text]))
    texts: list[tuple[str, str]] = []
    for part in slices(turns, _PART):
        yield len(part)
        texts += [(side, "\n\n".join([text for text in parts if text])) for side, parts in part]
    if texts[0][0] == "assistant":  # a greeting shown by the front end
        texts.insert(0, ("user", "(begins)"))
    if system:
        texts[0] = ("user", "\n\n".join([*system, texts[0][1]]))
    session = Session()
    for at in range(0, len(texts) - 1, 2):
        if at % _PART == 0:
            yield 1
        asked, answered = texts[at][1], texts[at + 1][1]
        session.commit((user(asked), Message("assistant", (TextPart(answered or "(nothing)"),))))
    return texts[-1][1], session


def _role_and_text(row: object, param: str, at: int) -> tuple[str, str]:
    where = f"{param}.{at}"
    if not isinstance(row, dict):
        raise RequestError("a message must be an object with role and content", code="serve/messages", param=where)
    message = cast("dict[str, Any]", row)
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "tool", *_SYSTEM):
        raise RequestError(
            f"a message cannot have the role {cut(str(role), 40)!r}", code="serve/messages", param=f"{where}.role"
        )
    if content is None:
        return role, ""
    if isinstance(content, str):
        return role, content
    if not isinstance(content, list):
        raise RequestError("content must be text or a list of parts", code="serve/messages", param=f"{where}.content")
    texts: list[str] = []
    for part in cast("list[Any]", content):
        fields = cast("Mapping[str, Any]", part if isinstance(part, dict) else {})
        text = fields.get("text")
        if fields.get("type") not in ("text", "input_text", "output_text") or not isinstance(text, str):
            raise RequestError(
                f"content of the type {cut(str(fields.get('type')), 40)!r} is not supported",
                code="serve/content",
                param=f"{where}.content",
                hint="send text; files are read by the export's own tools",
            )
        texts.append(text)
    return role, "\n\n".join(texts)


class Reply(NamedTuple):
    """The whole answer of a run that has ended, or the ``failure`` that it ended with."""

    text: str
    finish: Finish = "stop"
    failure: BaseException | None = None


async def reply_of(
    service: ServedFlow, request: Request, run: ServedRun, events: Subscriber, answer: AnswerReader
) -> Reply:
    """Wait for the end of a run answered as a whole. A run that asks a question is cancelled, and the reply says
    so.

    The run is also cancelled if the client disconnects meanwhile.
    """
    asked: str | None = None
    async with service.until_gone(request, run):
        async for event in events:
            answer.take(event)
            if isinstance(event, WaitStarted) and event.key and not event.signal:
                asked = cannot(event)
                break
        else:
            await run.wait()
    if asked is not None:
        await run.cancel()
        return Reply(asked)
    if answer.is_cut_off(run.failure):
        return Reply(service.redact(answer.text), "length")
    return Reply("", failure=run.failure) if run.failure is not None else Reply(text_of_run(service, run))


def cannot(event: WaitStarted) -> str:
    """The text sent when a run would have to wait for an answer."""
    what = "an approval" if event.reason == "approval" else "an answer"
    return f"This needs {what}, which cannot be given in a chat:\n\n{event.question}"


def text_of_run(service: ServedFlow, run: ServedRun) -> str:
    """The value of a run that has ended, as text."""
    assert run.result is not None
    return service.redact(text_of(run.result.value))


def usage_of(run: ServedRun) -> Usage:
    """The known usage of a run."""
    if run.result is not None:
        return run.result.usage
    return (run.error.usage if isinstance(run.error, AgentflowError) else None) or Usage()
