"""What protocols of chats share: the conversation as a session, and the run that answers its last message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from starlette.requests import Request

from agentflow.core.errors import cut
from agentflow.core.events import WaitStarted
from agentflow.core.messages import Message, TextPart, Usage, user
from agentflow.core.session import Session
from agentflow.observe.stream import Subscriber
from agentflow.serve.answer import text_of
from agentflow.serve.exports import Offer
from agentflow.serve.faults import RequestError
from agentflow.serve.keys import Key
from agentflow.serve.runs import ServedRun
from agentflow.serve.service import Service

_SYSTEM = ("system", "developer")


def message_of(offer: Offer, param: str) -> str:
    """The parameter of an export that takes what a chat client says. Raises RequestError (``serve/no-message``)."""
    if offer.message is None:
        raise RequestError(
            f"the export '{offer.name}' takes no message",
            code="serve/no-message",
            param=param,
            hint="POST /runs takes its parameters by name",
        )
    return offer.message


async def start_chat(
    service: Service,
    key: Key,
    offer: Offer,
    messages: object,
    *,
    naming: str = "model",
    param: str = "messages",
    lasting: bool = False,
) -> ServedRun:
    """Begin the run that answers a conversation. ``naming`` and ``param`` are the fields of the export and of the messages.

    A ``lasting`` one is durable where the flow stores runs, and its client's: see :meth:`ServedRuns.start`.

    Raises RequestError, and as :meth:`Service.start`.
    """
    name = message_of(offer, naming)
    said, session = conversation(messages, param)
    return await service.start(offer, {name: said}, key, session=session, lasting=lasting, attended=lasting)


def conversation(messages: object, param: str = "messages") -> tuple[str, Session]:
    """The last message, and the session of those before it: exchanges of what was asked and answered.

    What a client gives as ``system`` stands at the beginning of the first message: it is no instruction of the server's.
    ``param`` is the field that has them. Raises RequestError.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError(f"'{param}' is a list that is not empty", code="serve/messages", param=param)
    rows = [_said(row, f"{param}.{at}") for at, row in enumerate(cast("list[Any]", messages))]
    if rows[-1][0] != "user":
        raise RequestError("the last message is the user's", code="serve/messages", param=f"{param}.{len(rows) - 1}")
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


def _said(row: object, where: str) -> tuple[str, str]:
    if not isinstance(row, dict):
        raise RequestError("a message is an object with role and content", code="serve/messages", param=where)
    message = cast("dict[str, Any]", row)
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "tool", *_SYSTEM):
        raise RequestError(
            f"a message has no role {cut(str(role), 40)!r}", code="serve/messages", param=f"{where}.role"
        )
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
                f"content of the type {cut(str(fields.get('type')), 40)!r} is not taken",
                code="serve/content",
                param=f"{where}.content",
                hint="send text; files are read by the export's own tools",
            )
        texts.append(text)
    return role, "\n\n".join(texts)


async def wait_for_end(service: Service, request: Request, run: ServedRun, events: Subscriber) -> str | None:
    """Wait for the end of a run that is answered whole. Gives what is said instead where it asks somebody, and cancels it.

    It is cancelled too when the client goes away meanwhile.
    """
    asked: str | None = None
    async with service.until_gone(request, run):
        async for event in events:
            if isinstance(event, WaitStarted) and event.key:
                asked = cannot(event)
                break
        else:
            await run.wait()
    if asked is not None:
        await run.cancel()
    return asked


def cannot(event: WaitStarted) -> str:
    """What is said where a run would have to wait for somebody's answer."""
    what = "an approval" if event.reason == "approval" else "an answer"
    return f"This needs {what}, which cannot be given in a chat:\n\n{event.question}"


def text_of_run(service: Service, run: ServedRun) -> str:
    """The value of a run that has ended, as an answer."""
    assert run.result is not None
    return service.redact(text_of(run.result.value))


def usage_of(run: ServedRun) -> Usage:
    """What a run used, as far as that is known."""
    return Usage() if run.result is None else run.result.usage


__all__ = ["cannot", "conversation", "message_of", "start_chat", "text_of_run", "usage_of", "wait_for_end"]
