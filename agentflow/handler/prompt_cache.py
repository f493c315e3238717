"""Decides which prompts ask their provider to cache what it reads, so that later calls pay less for the same beginning.

A provider that is paid for keeping a prefix (Anthropic: a quarter more for five minutes, as much again for an hour, and a
tenth for each time it is read; https://platform.claude.com/docs/en/build-with-claude/prompt-caching) should be asked for
it only where it is read again. So it is asked when a conversation is sent or tools are offered, since another call is
likely to follow, and for a long beginning that was sent a short while ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b

from agentflow.core.data.messages import Message, PromptCache, TextPart
from agentflow.core.data.session import Session

SEEN_S = 300.0
"""Seconds for which a prefix counts as likely to be sent again: as long as providers keep it."""
WORTH = 1_500
"""Minimum of characters of a prefix worth caching: no provider caches fewer than 512 tokens."""
_MOST_SEEN = 4_096


class PromptCaching:
    """Decides for the prompts of a turn loop whether to ask for caching. ``default`` is for prompts that do not say.

    ``clock`` returns monotonic seconds.
    """

    __slots__ = ("_clock", "_seen", "default")

    def __init__(self, default: PromptCache | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.default: PromptCache | None = default
        self._clock = clock
        self._seen: dict[str, float] = {}

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
        """What to ask of the provider for a prompt, and the key shared by requests with the same beginning.

        ``stated`` is what the prompt says. The key is empty if nothing is worth caching.
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


def prefix_key(model: str, system: str, first: Message) -> str:
    """The key of the beginning of a prompt without history or tools: its system text and the data context."""
    part = first.parts[0]
    return _key(model, system, part.text if isinstance(part, TextPart) and part.cache else "")


def conversation_key(session: Session, model: str) -> str:
    """The key of a conversation; it does not reveal the session's name."""
    return _key(model, session.scope)


def _key(*texts: str) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


__all__ = ["SEEN_S", "WORTH", "PromptCaching", "conversation_key", "prefix_key"]
