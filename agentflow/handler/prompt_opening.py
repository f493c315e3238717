"""The messages that a prompt begins with: the history of its session, or a conversation handed over, and the data
context; and whether the provider is asked to cache this beginning, with a watch over what breaks the cache."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import DataContext
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    PromptCache,
    TextPart,
    ToolSpec,
    user,
)
from agentflow.core.data.session import Compaction, Session
from agentflow.core.data.templates import HistoryConfig
from agentflow.handler.token_estimate import size_of, size_of_message
from agentflow.lib.text.late_pattern import late_pattern

_CLOSING = late_pattern(
    r"<(?=/?\s*(?:data_context|item|(?:conversation_)?summary(?:_so_far)?|conversation)\b)", re.IGNORECASE
)


@frozen
class Opening:
    """The messages a prompt begins with: those before the index ``at`` are history, the prompt's own is the last.

    ``size`` is the estimated number of characters of the history, from cached sizes.
    """

    messages: list[Message]
    at: int
    size: int


def opening(session: Session, history: HistoryConfig, prompt: Message) -> Opening:
    """History as ``history`` says, then the prompt.

    The data context precedes the first user message, as a separate part that the provider may cache: it is the same for
    every prompt, and its text never has the authority of a system prompt.
    """
    messages: list[Message] = []
    size = 0
    if history.use_session_history:
        count = session.turn_count
        if count:
            size = _add_history(messages, session, history, count)
    at = len(messages)
    messages.append(prompt)
    if session.data_context is not None:
        text = render(session.data_context)
        if text:
            first = messages[0]
            messages[0] = Message(first.role, (TextPart(text, cache="auto"), *first.parts))
            if at:
                size += size_of(text)
    return Opening(messages, at, size)


def opening_of_handoff(kept: Sequence[Message], parts: tuple[Part, ...]) -> Opening:
    """The messages of the handed-over conversation, then the prompt of the task that continues, in one message with the
    results of the handoff: roles alternate."""
    messages = list(kept)
    if messages and messages[-1].role == "user":
        parts = following(messages.pop().parts, parts)
    size = sum(map(size_of_message, messages))
    return Opening([*messages, Message("user", parts)], len(messages), size)


def following(before: tuple[Part, ...], parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of one message, ``parts`` after those ``before``. Two texts have a blank line between them, in the second: servers
    refuse a text of white space alone."""
    first = parts[0]
    if isinstance(first, TextPart) and before and isinstance(before[-1], TextPart):
        parts = (replace(first, text=f"\n\n{first.text}"), *parts[1:])
    return (*before, *parts)


def _add_history(messages: list[Message], session: Session, history: HistoryConfig, count: int) -> int:
    """Add the exchanges that ``history`` asks for, of ``count``. Returns their estimated characters."""
    compaction = session.compaction if history.compact_after_tokens is not None else None
    messages.extend(summary_messages(compaction))
    most = history.history_turns_to_include
    start = 0 if most is None else count - min(count, max(0, most))
    if compaction is not None:
        start = max(start, compaction.turns)
    size = sum(map(size_of_message, messages)) + session.size(size_of_message, start)
    for exchange in session.turns(max(0, count - start)):
        messages.extend(exchange)
    return size


def opening_sources(session: Session, history: HistoryConfig) -> frozenset[str]:
    """The sources of the session history sent with a prompt; a summary has the sources of the turns it replaces."""
    if not history.use_session_history or not session.turn_count:
        return frozenset()
    most = history.history_turns_to_include
    shortened = session.compaction is not None and history.compact_after_tokens is not None
    turns = session.turns(None if shortened or most is None else max(0, most))
    return frozenset[str]().union(*[message.sources for turn in turns for message in turn])


def summary_messages(compaction: Compaction | None) -> tuple[Message, ...]:
    """The exchange sent instead of the summarised turns; empty without a summary. Its text cannot close its own element."""
    if compaction is None:
        return ()
    text = f"<conversation_summary>\n{contained(compaction.summary)}\n</conversation_summary>"
    return (
        user(f"The conversation before this, shortened:\n\n{text}"),
        Message("assistant", (TextPart("I go on from there."),)),
    )


def render(data: DataContext) -> str:
    """A data context as text for the model; empty if it has no items.

    Each item is an element. In its content, every ``<`` that would open or close one of these elements becomes
    ``&lt;``, so that no content can end its own element. All other characters are unchanged.
    """
    if not data.items and not data.overall_summary:
        return ""
    lines = ["<data_context>"]
    if data.overall_summary:
        lines.append(f"<summary>{contained(data.overall_summary)}</summary>")
    for item in data.items:
        position = f' lines="{item.start_line}-{item.end_line}"' if item.start_line is not None else ""
        lines.append(
            f'<item path="{_attribute(item.path)}"{position}>\n{contained(item.content or item.relevance)}\n</item>'
        )
    lines.append("</data_context>\n\n")
    return "\n".join(lines)


def contained(text: str) -> str:
    """``text`` escaped so that it cannot open or close an element of the data context."""
    return _CLOSING.sub("&lt;", text)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


SEEN_S = 300.0
"""Seconds that a prefix is considered likely to be sent again: the cache lifetime of providers."""
WORTH = 1_500
"""Minimum of characters of a prefix worth caching: no provider caches fewer than 512 tokens."""
_MOST_SEEN = 4_096
_MOST_CONVERSATIONS = 512


@frozen
class LastRequest:
    """The last request of a conversation, as far as another prompt may break its cache: tools, system text, the digest of the data
    context, and ``tokens`` of input; sent ``at`` a time of the clock. ``told`` are the causes that a Warning named before."""

    tools: tuple[ToolSpec, ...]
    system: str
    context: str
    tokens: int
    at: float
    told: set[str]


class PromptCaching:
    """Decides for the prompts of a turn loop whether to ask for caching, and keeps the last requests of its conversations. ``default``
    is for prompts that do not say.

    ``clock`` returns monotonic seconds.
    """

    __slots__ = ("_clock", "_last", "_seen", "default")

    def __init__(self, default: PromptCache | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.default: PromptCache | None = default
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._last: dict[str, LastRequest] = {}

    def sent(self, conversation: str, request: ModelRequest, tokens: int) -> None:
        """Keep a request of a ``conversation``, which had ``tokens`` of input, as its last one."""
        last = self._last.pop(conversation, None)
        told = set[str]() if last is None else last.told
        self._last[conversation] = LastRequest(
            request.tools, request.system, _context_of(request), tokens, self._clock(), told
        )
        if len(self._last) > _MOST_CONVERSATIONS:
            del self._last[next(iter(self._last))]

    def broken(self, conversation: str, request: ModelRequest) -> LastRequest | None:
        """The last request of a ``conversation`` if the provider may have cached it, and ``request`` does not begin like it."""
        last = self._last.get(conversation)
        if last is None or self._clock() - last.at >= SEEN_S:
            return None
        same = last.tools == request.tools and last.system == request.system and last.context == _context_of(request)
        return None if same else last

    def plan(
        self,
        stated: PromptCache | None,
        session: Session,
        model: str,
        system: str,
        messages: Sequence[Message],
        *,
        tools: bool,
    ) -> tuple[PromptCache | None, str]:
        """The caching to request from the provider for a prompt, and the key shared by requests with the same beginning.

        ``stated`` is the prompt's own setting. The key is empty if nothing is worth caching.
        """
        cache = self.default if stated is None else stated
        if cache is False:
            return False, ""
        if tools or len(messages) > 1:
            return cache or "5m", conversation_key(session, model)
        if cache or len(system) >= WORTH or session.data_context is not None:
            key = prefix_key(model, system, messages[0])
            return "5m" if self.seen(key) and cache is None else cache, key
        return None, ""

    def seen(self, key: str) -> bool:
        """Whether the prefix with this key was sent within the last five minutes. It counts as sent from now on."""
        now = self._clock()
        before = self._seen.pop(key, None)
        self._seen[key] = now
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return before is not None and now - before < SEEN_S


class CacheWatch:
    """Warns of the requests of one prompt that do not begin with what the provider has likely cached: the prompt's request before, or
    the last one of the ``conversation`` that it continues (empty: none). ``repeats`` says that a loop with tools sends its requests again,
    each with more behind it."""

    __slots__ = ("_caching", "_conversation", "_last", "_repeats", "_told")

    def __init__(self, caching: PromptCaching, conversation: str, *, repeats: bool) -> None:
        self._caching = caching
        self._conversation = conversation
        self._repeats = repeats
        self._last: tuple[ModelRequest, ModelResponse] | None = None
        self._told = set[str]()

    def before(self, request: ModelRequest, call: CallContext, *, first: bool, cleared: bool) -> None:
        """Warn of what a request changes; ``first``: it is the prompt's first, ``cleared``: messages were changed on purpose."""
        if self._last is not None:
            last, answer = self._last
            if not _continues(last, request):
                from agentflow.handler.cache_breaks import warn_of_breaks  # few loops change

                warn_of_breaks(last, request, self._told, call, tokens=answer.usage.input_tokens, cleared=cleared)
        elif first and self._conversation:
            broken = self._caching.broken(self._conversation, request)
            if broken is not None:
                from agentflow.handler.cache_breaks import warn_of_other_beginning  # few conversations change

                warn_of_other_beginning(broken.tools, broken.system, request, broken.told, call, tokens=broken.tokens)

    def after(self, request: ModelRequest, response: ModelResponse, call: CallContext, *, fallbacks: bool) -> None:
        """Keep a request with its answer. Warns of an answer of another model, which has cached nothing, if the prompt has ``fallbacks``."""
        if fallbacks and self._last is not None and self._last[1].model != response.model:
            from agentflow.handler.cache_breaks import warn_of_other_model  # few calls fall back

            warn_of_other_model(self._last[1], response, self._told, call)
        if self._conversation:
            self._caching.sent(self._conversation, request, response.usage.input_tokens)
        if self._repeats:
            self._last = (request, response)


def _continues(before: ModelRequest, now: ModelRequest) -> bool:
    """Whether a request begins with the one before it."""
    same = now.tools == before.tools and now.system == before.system
    return same and now.messages[: len(before.messages)] == before.messages


def prefix_key(model: str, system: str, first: Message) -> str:
    """The key of the beginning of a prompt without history or tools: its system text and the data context."""
    part = first.parts[0]
    return _key(model, system, part.text if isinstance(part, TextPart) and part.cache else "")


def conversation_key(session: Session, model: str) -> str:
    """The key of a conversation; it does not reveal the session's name."""
    return _key(model, session.scope)


def _context_of(request: ModelRequest) -> str:
    """The digest of the data context in a request; empty without one."""
    first = request.messages[0].parts[0]
    return _key(first.text) if isinstance(first, TextPart) and first.cache else ""


def _key(*texts: str) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
