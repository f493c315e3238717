"""The history of a request, adapted to its server: a conversation may have begun with another one.

Servers refuse ids, signatures and blocks that they did not issue, and some refuse parts that others send every day: a call
without its result, a text without a visible character, an answer that ends with thinking. The treatment of each part:

| part | from this server | from another, or from an unknown one |
|---|---|---|
| id of a tool call | kept | kept if :attr:`Traits.call_id` allows it and no other call has it, otherwise mapped to a valid one |
| keys that we do not read (``native``) | kept, as :attr:`Traits.echo` says | dropped |
| thinking, blocks of the dialect | kept if signed, where :attr:`Traits.signed` | dropped |
| text | kept | as plain text |
| text without a visible character | dropped, :data:`EMPTY` where nothing else is left | the same |
| image in an answer of the model | a line of text that names it | the same |
| call without a result | the result :data:`NO_RESULT` is added | the same |
| result without its call | text of the user | the same |
| thinking with nothing after it | dropped | dropped |
| two messages of one side in a row, or an answer first | joined, :data:`EMPTY` first, where :attr:`Traits.alternates` | the same |

An id of another server is mapped in the same way in each request, so that the cache of prompts stays valid.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, TypeGuard, cast

from agentflow.core.data.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    Native,
    OtherPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    text_of_parts,
)
from agentflow.providers.dialects.traits import Traits

EMPTY = "(no text)"
"""Stands for a message after all its parts were removed: servers refuse an empty one."""
NO_RESULT = "no result of this call was recorded"
"""The result added for a call without one."""
_CHAT = "openai.chat"
_OURS = re.compile(r"made_\d+").fullmatch
_HIDDEN = ("redacted_thinking", "reasoning")
"""Types of blocks of encrypted thinking."""


def made_id(messages: Iterable[Message], others: Collection[str]) -> str:
    """An id for a call without one from its server: unused in ``messages`` and among the ``others`` of its answer."""
    taken = {part.id for message in messages for part in message.parts if isinstance(part, ToolCallPart)}
    taken.update(others)
    number = len(taken) + 1
    while f"made_{number}" in taken:
        number += 1
    return f"made_{number}"


def is_fit(messages: Iterable[Message], issuer: str) -> bool:
    """Whether ``messages`` are fit for every server without changes: texts that can be seen, of the user and the model by turns."""
    last = "assistant"
    for message in messages:
        parts = message.parts
        if len(parts) != 1 or type(part := parts[0]) is not TextPart or message.role == last:
            return False
        native = part.native
        if (native is not None and (native.issuer != issuer or not issuer)) or not part.text or part.text.isspace():
            return False
        last = message.role
    return True


# History keeps its issuer: servers refuse ids and signatures of others (decision 36)
def fitted(messages: tuple[Message, ...], traits: Traits, issuer: str) -> tuple[Message, ...]:
    """``messages`` adapted to the server of ``traits``, which issued the parts of ``issuer``. See the table of this module."""
    return _Fitting(messages, traits, issuer).all()


class _Fitting:
    """One history on its way to one server."""

    def __init__(self, messages: tuple[Message, ...], traits: Traits, issuer: str) -> None:
        self._messages = messages
        self._traits = traits
        self._issuer = issuer
        self._fits = re.compile(traits.call_id).fullmatch
        calls = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
        self._own_ids = {call.id for call in calls if self._issued(call)}
        self._taken: set[str] = set()
        self._open: list[tuple[str, ToolCallPart]] = []
        """Calls of the last answer that wait for their results: their former ids, and as they are sent."""
        self._out: list[Message] = []

    def all(self) -> tuple[Message, ...]:
        """The whole history."""
        waiting: list[Message] = []  # of the user, since the last answer
        for message in self._messages:
            if message.role == "user":
                waiting.append(message)
                continue
            self._users(waiting)
            waiting = []
            self._add(message, self._answer(message.parts))
        self._users(waiting)
        return tuple(self._out)

    def _add(self, message: Message, parts: tuple[Part, ...]) -> None:
        parts = parts or (TextPart(EMPTY),)
        out, alternates = self._out, self._traits.alternates
        if alternates and not out and message.role == "assistant":
            out.append(Message("user", (TextPart(EMPTY),)))
        if alternates and out and out[-1].role == message.role:
            out[-1] = replace(out[-1], parts=(*out[-1].parts, *parts))
        else:
            out.append(message if parts is message.parts else replace(message, parts=parts))

    # --- Answers of the model ---

    def _own(self, native: Native | None) -> TypeGuard[Native]:
        return native is not None and native.issuer == self._issuer and self._issuer != ""

    def _issued(self, call: ToolCallPart) -> bool:
        """Whether the server itself gave the call its id."""
        return self._own(call.native) and not _OURS(call.id)

    def _answer(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        calls = any([isinstance(part, ToolCallPart) for part in parts])
        echo = self._traits.echo == "all" or (self._traits.echo == "calls" and calls)
        kept: list[Part] = []
        unpaired = False
        for part in parts:
            fit = self._said(part, echo)
            if fit is None:
                unpaired = unpaired or _thinks(part)
                continue
            if unpaired and fit is part:
                fit = _unpaired(fit)
            kept.append(fit)
        while kept and _thinks(kept[-1]):
            kept.pop()
        if all([_thinks(part) or (isinstance(part, OtherPart) and part.native.dialect == _CHAT) for part in kept]):
            kept.append(TextPart(EMPTY))
        if calls:
            self._mark(kept)
        return parts if _all_same(kept, parts) else tuple(kept)

    def _said(self, part: Part, echo: bool) -> Part | None:
        """The sent form of a part of an answer; None if it is not."""
        if isinstance(part, ToolCallPart):
            call = self._call(part, echo)
            self._open.append((part.id, call))
            return call
        if isinstance(part, TextPart):
            if part.native is not None:
                return part if self._own(part.native) else self._said(replace(part, native=None), echo)
            return part if part.text and not part.text.isspace() else None
        if isinstance(part, ThinkingPart | OtherPart):
            native = part.native
            return part if echo and self._own(native) and self._is_whole(_data(native)) else None
        if isinstance(part, ImagePart | DocumentPart | AudioPart):
            return TextPart(text_of_parts([part]))
        return TextPart(_orphan(part))

    def _is_whole(self, data: dict[str, Any]) -> bool:
        """Whether a block of thinking contains everything its server needs to read it again: the server stores nothing."""
        kind = data.get("type")
        if kind == "thinking":
            return bool(data.get("signature")) or not self._traits.signed
        if kind == "reasoning":
            return bool(data.get("encrypted_content") or (data.get("content") and not self._traits.signed))
        return True

    def _call(self, call: ToolCallPart, echo: bool) -> ToolCallPart:
        own, issued = self._own(call.native), self._issued(call)
        free = call.id not in self._taken and (issued or call.id not in self._own_ids)
        call_id = call.id if issued or (free and self._fits(call.id)) else self._mapped(call.id)
        self._taken.add(call_id)
        native = call.native if own and self._traits.echo != "none" else None
        if call_id == call.id and native is call.native:
            return call
        return replace(call, id=call_id, native=native)

    def _mapped(self, call_id: str) -> str:
        """An id that the server allows and that no call has, made from ``call_id``."""
        number = 0
        while True:
            seed = f"{number} {call_id}".encode("utf-8", "surrogatepass")
            digits = hashlib.blake2b(seed, digest_size=16).hexdigest()
            forms = [f"call_{digits[:24]}", digits[:9], digits]
            form = next(filter(self._fits, forms), forms[0])
            if form not in self._taken and form not in self._own_ids:
                return form
            number += 1

    def _mark(self, parts: list[Part]) -> None:
        """Add the fields that the server requires on a call written by another server."""
        traits = self._traits
        first = next((at for at, part in enumerate(parts) if isinstance(part, ToolCallPart)), None)
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        if traits.call_signature and first is not None and not any([self._own(call.native) for call in calls]):
            extra = {"extra_content": {"google": {"thought_signature": traits.call_signature}}}
            parts[first] = replace(calls[0], native=Native(_CHAT, extra, self._issuer))
        if traits.blank_thinking and not any([isinstance(part, ThinkingPart) for part in parts]):
            parts.insert(0, OtherPart(Native(_CHAT, {traits.blank_thinking: ""}, self._issuer)))

    # --- Messages of the user ---

    def _users(self, messages: list[Message]) -> None:
        """Add the messages of the user after an answer; the first holds the results of the answer's calls."""
        open_, self._open = self._open, []
        if not open_:
            for message in messages:
                self._add(message, self._heard(message.parts))
            return
        results: list[ToolResultPart | None] = [None] * len(open_)
        rest: list[tuple[Message, list[Part]]] = []
        for message in messages:
            others: list[Part] = []
            for part in message.parts:
                at = _waiting(open_, results, part)
                if at is None or not isinstance(part, ToolResultPart):
                    others.append(part)
                else:
                    call_id = open_[at][1].id
                    results[at] = part if part.call_id == call_id else replace(part, call_id=call_id)
            rest.append((message, others))
        answered = [result or _missing(call) for result, (_, call) in zip(results, open_, strict=True)]
        first, others = rest[0] if rest else (Message("user", ()), list[Part]())
        parts = (*answered, *self._heard(others))
        self._add(first, first.parts if _all_same(parts, first.parts) else parts)
        for message, others in rest[1:]:
            if others:
                self._add(message, self._heard(others))

    def _heard(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """The parts of a user's message other than results of open calls."""
        heard: list[Part] = []
        for part in parts:
            if isinstance(part, ToolResultPart):
                heard.append(TextPart(_orphan(part)))
            elif isinstance(part, TextPart):
                if part.text and not part.text.isspace():
                    heard.append(part)
            elif isinstance(part, OtherPart):
                if not part.native.issuer or self._own(part.native):  # a block that the host wrote has no issuer
                    heard.append(part)
            elif isinstance(part, ImagePart | DocumentPart | AudioPart):
                heard.append(part)
        return parts if isinstance(parts, tuple) and _all_same(heard, parts) else tuple(heard)


def _waiting(open_: list[tuple[str, ToolCallPart]], results: list[ToolResultPart | None], part: Part) -> int | None:
    """The place of the call that a result answers, among those without one."""
    if not isinstance(part, ToolResultPart):
        return None
    places = zip(open_, results, strict=True)
    return next((at for at, ((call_id, _), had) in enumerate(places) if had is None and call_id == part.call_id), None)


def _data(native: Native) -> dict[str, Any]:
    data: object = native.data
    return cast(dict[str, Any], data) if isinstance(data, dict) else {}


def _thinks(part: Part) -> bool:
    """Whether a part is thinking, which its conclusion must follow."""
    return isinstance(part, ThinkingPart) or (isinstance(part, OtherPart) and _data(part.native).get("type") in _HIDDEN)


def _unpaired(part: Part) -> Part:
    """An item sent without its reasoning, and without the id that would make its server require it."""
    if not isinstance(part, TextPart | ToolCallPart | OtherPart | ThinkingPart) or part.native is None:
        return part
    data = {key: value for key, value in _data(part.native).items() if key != "id"}
    return replace(part, native=replace(part.native, data=data))


def _missing(call: ToolCallPart) -> ToolResultPart:
    return ToolResultPart(call.id, call.name, NO_RESULT, is_error=True)


def _orphan(result: ToolResultPart) -> str:
    return f"[result of the tool {result.name}: {result.text}]"


def _all_same(some: tuple[Part, ...] | list[Part], others: tuple[Part, ...]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
