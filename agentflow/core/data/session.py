"""Sessions: the state of a conversation. Handlers hold none of it; each run has its own session."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Any, Protocol, cast

from agentflow.core.data.context import DataContext
from agentflow.core.data.errors import DataError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.message_json import exchange_data, read_message
from agentflow.core.data.messages import Message, ToolSpec
from agentflow.core.data.values import plain

VERSION = 1
"""The version of a session's JSON shape."""


@frozen
class Compaction:
    """A summary that may be sent in place of the first ``turns`` turns of a conversation."""

    turns: int
    summary: str


class Unread:
    """A stored exchange of a replayed run: most are never read again, and a run may have thousands.

    ``decode`` gives the JSON data of its messages.
    """

    __slots__ = ("decode",)

    def __init__(self, decode: Callable[[], list[Any]]) -> None:
        self.decode = decode

    def read(self) -> tuple[Message, ...]:
        """Its messages. Raises DataError."""
        return _read_turn(self.decode(), 1)


class _Exchanges(list["tuple[Message, ...] | Unread"]):
    """A sequence of exchanges that continues the first ``length`` of ``base``: forks share the exchanges before them.

    ``unread``: some are still in their stored form; ``digests`` and ``sizes`` (of the first n, for every n) are cached once
    computed.
    """

    base: _Exchanges | None = None
    length = 0
    unread = False
    digests: list[bytes] | None = None
    sizes: list[int] | None = None

    def read(self, length: int) -> list[tuple[Message, ...]]:
        """The first ``length``."""
        if self.unread:
            for at, exchange in enumerate(self[:length]):
                if isinstance(exchange, Unread):
                    self[at] = exchange.read()
            self.unread = length < len(self)
        return cast("list[tuple[Message, ...]]", self[:length])


@frozen
class SessionMark:
    """A moment in a session: its list of exchanges with its length, its data context and summary, compared by identity."""

    exchanges: Sequence[tuple[Message, ...] | Unread]
    length: int
    data_context: DataContext | None
    compaction: Compaction | None


class SessionKeeper(Protocol):
    """Stores a session that lasts."""

    async def begin(self) -> None:
        """A run begins in the session. Raises SessionBusy while another unfinished run holds it."""
        ...

    async def keep(self) -> None:
        """Store the additions to the session; called after every run in it."""
        ...


class Session:
    """Conversation history and data context.

    History is a list of exchanges. An exchange is the messages from a user's prompt to the model's last answer, with
    exactly one result for every tool call; it is committed as a whole or not at all. ``keeper`` stores a lasting session.

    Several runs may use one session concurrently: each sees the exchanges before it began and its own, and adds its own
    when it ends.

    Parameters: ``data_context`` is material that precedes every prompt; ``scope`` names a lasting conversation (a user, a
    thread), which is then ``named``.

    ``keep_partial``: a turn that is stopped is committed, too: the prompt, the finished tool calls and the text that was shown,
    marked ``interrupted``. A turn that fails is kept once its model has said anything.

    ``tools`` are carried out by the other side of the conversation, such as a front end: tasks that take part in it are offered
    them, and a call is a question of the run.
    """

    __slots__ = (
        "_begun",
        "_own",
        "_root",
        "_runs",
        "_scope",
        "_stopped",
        "compaction",
        "data_context",
        "keep_partial",
        "keeper",
        "named",
        "tools",
    )

    def __init__(
        self, *, data_context: DataContext | None = None, scope: str | None = None, keep_partial: bool = False
    ) -> None:
        self._own = _Exchanges()
        self._begun: tuple[Session, SessionMark, SessionMark] | None = None
        self._runs = 0
        self._root: Session | None = None
        self._scope = scope
        self._stopped: tuple[Message, ...] | None = None
        self.keep_partial = keep_partial
        self.named = scope is not None
        self.data_context: DataContext | None = data_context
        self.compaction: Compaction | None = None
        self.keeper: SessionKeeper | None = None
        self.tools: tuple[ToolSpec, ...] = ()

    @property
    def scope(self) -> str:
        """The identity of the conversation: its name, else its own id. Forks share it."""
        root = self._root or self
        if root._scope is None:
            root._scope = secrets.token_hex(8)
        return root._scope

    def turns(self, last: int | None = None) -> list[tuple[Message, ...]]:
        """The committed exchanges, oldest first; with ``last``, at most that many of the newest."""
        exchanges: list[tuple[Message, ...]] = []
        for part, length in self._lineage():
            exchanges.extend(part.read(length))
        if last is None:
            return exchanges
        return exchanges[-last:] if last > 0 else []

    def _lineage(self) -> list[tuple[_Exchanges, int]]:
        """Its exchanges and those they continue, oldest first, each with their number."""
        part = self._own
        chain = [(part, len(part))]
        while part.base is not None:
            chain.append((part.base, part.length))
            part = part.base
        chain.reverse()
        return chain

    def digest(self, last: int | None = None, *, compacted: bool = False) -> str:
        """A digest of :meth:`turns`, equal for equal exchanges in every process; each exchange is read once for it.

        ``compacted`` takes the summary for the turns it stands for.
        """
        digests: list[bytes] = []
        for part, length in self._lineage():
            if part.digests is None:
                part.digests = []
            cached = part.digests
            for exchange in part[len(cached) : length]:
                data = exchange.decode() if isinstance(exchange, Unread) else exchange_data(exchange)
                text = json.dumps(data, sort_keys=True)
                cached.append(blake2b(text.encode("ascii"), digest_size=16).digest())
            digests.extend(cached[:length])
        count = len(digests)
        if last is not None:
            digests = digests[-last:] if last > 0 else []
        if compacted and self.compaction is not None:
            summary = self.compaction.summary.encode("utf-8", "surrogatepass")
            rest = digests[max(0, self.compaction.turns - (count - len(digests))) :]
            digests = [blake2b(summary, digest_size=16).digest(), *rest]
        return blake2b(b"".join(digests), digest_size=16).hexdigest()

    def size(self, measure: Callable[[Message], int], start: int = 0) -> int:
        """The sum of ``measure`` over the messages of all exchanges from number ``start`` on.

        Each message is measured once in its life, so ``measure`` must always be the same.
        """
        total = 0
        for part, length in self._lineage():
            if part.sizes is None:
                part.sizes = [0]
            sums = part.sizes
            if len(sums) <= length:
                for exchange in part.read(length)[len(sums) - 1 :]:
                    sums.append(sums[-1] + sum(map(measure, exchange)))
            skipped = min(start, length)
            start -= skipped
            total += sums[length] - sums[skipped]
        return total

    @property
    def turn_count(self) -> int:
        """The number of committed exchanges."""
        if self._own.base is None:
            return len(self._own)
        return sum([length for _, length in self._lineage()])

    @property
    def messages(self) -> tuple[Message, ...]:
        """All committed messages, oldest first."""
        return tuple(message for exchange in self.turns() for message in exchange)

    @property
    def agent(self) -> str | None:
        """The name of the task that gave the last answer: after a handoff the one that the conversation was handed to, so that
        the next run may begin with it. None before the first answer of a task."""
        for exchange in reversed(self.turns()):
            if exchange and exchange[-1].agent:
                return exchange[-1].agent
        return None

    @property
    def busy(self) -> bool:
        """Whether an unfinished run uses the session."""
        return self._runs > 0

    @property
    def given(self) -> bool:
        """Whether this is the copy of a session for a run in it."""
        return self._begun is not None

    def goes_on_with(self, session: Session) -> bool:
        """Whether this is the copy of a run in ``session``."""
        return self._begun is not None and self._begun[0] is session

    @property
    def grown(self) -> bool:
        """Whether exchanges were committed to this session itself, rather than to the one it was forked from."""
        return bool(self._own)

    def commit(self, exchange: tuple[Message, ...]) -> None:
        """Append an exchange."""
        self._stopped = None
        self._own.append(exchange)

    def commit_stopped(self, exchange: tuple[Message, ...], *, recorded: bool) -> None:
        """Append the exchange of a turn that was stopped. One that is not ``recorded`` is appended only if its run ends with it: a
        resumed run may not stop at the same word, and would send another conversation."""
        if recorded:
            self.commit(exchange)
        else:
            self._stopped = exchange

    def forget_stopped(self) -> None:
        """Leave out a turn that was stopped and is not recorded: its run continues."""
        self._stopped = None

    def compact(self, turns: int, summary: str) -> None:
        """Have ``summary`` stand for the first ``turns`` exchanges in prompts that compact their history."""
        self.compaction = Compaction(turns, summary)

    def reset(self) -> None:
        """Clear the history; the data context stays."""
        self.compaction = None
        self._own = _Exchanges()

    # Branches fork the session: interleaved messages are refused by servers (decision 11)
    def fork(self) -> Session:
        """A session that starts with the current history and then grows separately. Takes constant time."""
        child = Session(data_context=self.data_context)
        child._root = self._root or self
        child.named = self.named
        child.keep_partial = self.keep_partial
        child.tools = self.tools
        own = self._own
        if own or own.base is not None:
            child._own.base = own
            child._own.length = len(own)
            child.compaction = self.compaction
        return child

    def join(self, branches: list[Session]) -> None:
        """Append the branches' own exchanges, in order."""
        for branch in branches:
            self._own.extend(branch._own)
            self._own.unread |= branch._own.unread

    def mark(self) -> SessionMark:
        """The state of the conversation now, for :meth:`changes_since`."""
        return SessionMark(self._own, len(self._own), self.data_context, self.compaction)

    def changes_since(self, mark: SessionMark) -> dict[str, Any] | None:
        """The changes since ``mark`` (exchanges, resets, summaries, data context), as JSON data for :meth:`apply`; None if nothing was."""
        changes: dict[str, Any] = {}
        start = mark.length
        if self._own is not mark.exchanges:
            changes["reset"] = True
            start = 0
        if len(self._own) > start:
            changes["turns"] = [exchange_data(each) for each in self._own.read(len(self._own))[start:]]
        if self.data_context is not mark.data_context:
            changes["data_context"] = plain(self.data_context)
        if self.compaction is not mark.compaction:
            changes["compaction"] = plain(self.compaction)
        return changes or None

    def whole(self) -> dict[str, Any]:
        """All of the conversation, as changes of an empty one for :meth:`apply`."""
        changes: dict[str, Any] = {
            "turns": [exchange_data(each) for each in self.turns()],
            "data_context": plain(self.data_context),
        }
        if self.compaction is not None:
            changes["compaction"] = plain(self.compaction)
        if self.keep_partial:
            changes["keep_partial"] = True
        if self.tools:
            changes["tools"] = plain(self.tools)
        return changes

    def go_back(self, mark: SessionMark) -> None:
        """Remove the exchanges committed since ``mark``, unless the history was cleared meanwhile."""
        own = self._own
        if own is mark.exchanges:
            self.compaction = mark.compaction
            del own[mark.length :]
            del (own.digests or [])[mark.length :]
            del (own.sizes or [])[mark.length + 1 :]

    def take_back_stopped(self, mark: SessionMark) -> None:
        """Remove the turns that were stopped since ``mark``: they are tried again."""
        self._stopped = None
        later = self._own.read(len(self._own))[mark.length :] if self._own is mark.exchanges else []
        if any([each[-1].interrupted for each in later]):
            self.go_back(mark)
            self._own.extend([each for each in later if not each[-1].interrupted])

    def add_unread(self, exchange: Unread) -> None:
        """Append an exchange decoded when it is needed."""
        self._own.append(exchange)
        self._own.unread = True

    def apply(self, changes: dict[str, Any]) -> None:
        """Change the conversation as :meth:`changes_since` says. Raises DataError."""
        if changes.get("reset"):
            self.reset()
        self._read_turns(changes.get("turns", []))
        if "data_context" in changes:
            context = changes["data_context"]
            self.data_context = None if context is None else DataContext.of(context)
        if "compaction" in changes:
            self._read_compaction(changes["compaction"])
        if "keep_partial" in changes:
            self.keep_partial = changes["keep_partial"]
        if "tools" in changes:
            self.tools = tuple([ToolSpec(**each) for each in changes["tools"]])

    def _read_compaction(self, data: Any) -> None:
        """Take over a summary written as data; one that stands for missing turns is skipped."""
        if isinstance(data, dict):
            turns, summary = cast(dict[str, Any], data).get("turns"), cast(dict[str, Any], data).get("summary")
            if type(turns) is int and isinstance(summary, str) and 0 < turns <= self.turn_count:
                self.compact(turns, summary)

    def _read_turns(self, turns: list[list[Any]]) -> None:
        for number, turn in enumerate(turns, 1):
            self.commit(_read_turn(turn, number))

    def to_json(self) -> str:
        """The conversation and the data context as JSON text, in ASCII; :meth:`from_json` reads it back.

        ``{"session": 1, "turns": [[message, ...], ...], "data_context": ...}``, where a message is ``{"role", "parts"}``
        and each part has its ``type``; a conversation with a name also has its ``scope``. Every part is kept, also the verbatim JSON of providers.
        """
        data: dict[str, Any] = {"session": VERSION, **self.whole()}
        data.pop("tools", None)  # which the other side states anew for each run
        if self.named:
            data["scope"] = self.scope
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str | bytes) -> Session:
        """The session that :meth:`to_json` wrote. Unknown fields are ignored.

        Raises DataError: ``session/invalid`` for data of another form, ``session/version`` for one of a later
        version, ``message/invalid`` and ``message/part`` for an unreadable message, each with its position.
        """
        try:
            read: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"this is not a session: {error}", code="session/invalid") from None
        data = cast(dict[str, Any], read) if isinstance(read, dict) else {}
        version, turns, context = data.get("session"), data.get("turns", []), data.get("data_context")
        if type(version) is not int or version < 1:
            raise DataError(
                "this is not a session: a session is a JSON object with the key 'session', its version",
                code="session/invalid",
                hint="write one with Session.to_json()",
            )
        if version > VERSION:
            raise DataError(
                f"this session is of version {version}, and this agentflow reads version {VERSION}",
                code="session/version",
                hint="read it with the agentflow that wrote it, or a later one",
            )
        if not isinstance(turns, list) or not all([isinstance(turn, list) for turn in cast(list[Any], turns)]):
            raise DataError("this is not a session: its turns are lists of messages", code="session/invalid")
        scope = data.get("scope")
        session = cls(
            data_context=None if context is None else DataContext.of(context),
            scope=scope if isinstance(scope, str) else None,
            keep_partial=data.get("keep_partial") is True,
        )
        session._read_turns(cast(list[list[Any]], turns))
        session._read_compaction(data.get("compaction"))
        return session

    def acquire(self) -> None:
        """Count a run that uses the session, which is :attr:`busy` until :meth:`release`."""
        self._runs += 1

    def release(self) -> None:
        """Count a run less."""
        self._runs -= 1

    def enter(self) -> Session:
        """A copy for a run that uses this session: it begins with the present exchanges. :meth:`leave` ends it."""
        run = self.fork()
        run._begun = (self, self.mark(), run.mark())
        self.acquire()
        return run

    def leave(self) -> None:
        """End the copy that :meth:`enter` made: add its changes to the session of the run.

        Exchanges that other runs added meanwhile stay, even if this one cleared the history.
        """
        assert self._begun is not None
        session, before, begun = self._begun
        session.release()
        if self._stopped is not None:
            self.commit(self._stopped)
        cleared = self._own is not begun.exchanges
        later = session._own[before.length if session._own is before.exchanges else 0 :]
        if cleared:
            unread = session._own.unread
            session.reset()
            session._own.extend(later)
            session._own.unread = unread
        session.join([self])
        if self.data_context is not begun.data_context:
            session.data_context = self.data_context
        summary = self.compaction
        if summary is not None and summary is not begun.compaction:
            seen = 0 if cleared else self.turn_count - len(self._own)
            if summary.turns <= seen or not later:
                session.compaction = summary  # else it would stand for exchanges of another run

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[Session]:
        """A copy for a block of a run, added when the block ends; a lasting session is stored then.

        Raises SessionBusy while a durable run has it, JournalError.
        """
        if self.keeper is not None:
            await self.keeper.begin()
        run = self.enter()
        try:
            yield run
        finally:
            run.leave()
            if self.keeper is not None:
                await self.keeper.keep()


def _read_turn(turn: list[Any], number: int) -> tuple[Message, ...]:
    return tuple([read_message(each, f"turn {number}, message {at}") for at, each in enumerate(turn, 1)])
