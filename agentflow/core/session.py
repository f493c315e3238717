"""Sessions: the state of a conversation. Handlers hold none of it; each run has its own session."""

from __future__ import annotations

from agentflow.core.context import DataContext
from agentflow.core.errors import SessionBusy
from agentflow.core.messages import Message


class Session:
    """Conversation history and data context.

    History is a list of exchanges. An exchange is the messages from a user's prompt to the model's last answer, with
    exactly one result for every tool call; it is committed whole or not at all.
    """

    __slots__ = ("_base", "_base_length", "_busy", "_own", "data_context")

    def __init__(self, *, data_context: DataContext | None = None) -> None:
        self._base: Session | None = None
        self._base_length = 0
        self._own: list[tuple[Message, ...]] = []
        self._busy = False
        self.data_context: DataContext | None = data_context

    def turns(self, last: int | None = None) -> list[tuple[Message, ...]]:
        """The committed exchanges, oldest first; with ``last``, at most that many of the newest."""
        chain: list[tuple[Session, int]] = [(self, len(self._own))]
        at = self
        while at._base is not None:
            chain.append((at._base, at._base_length))
            at = at._base
        exchanges: list[tuple[Message, ...]] = []
        for session, length in reversed(chain):
            exchanges.extend(session._own[:length])
        if last is None:
            return exchanges
        return exchanges[-last:] if last > 0 else []

    @property
    def messages(self) -> tuple[Message, ...]:
        """All committed messages, oldest first."""
        return tuple(message for exchange in self.turns() for message in exchange)

    @property
    def grown(self) -> bool:
        """Whether exchanges were committed to this session itself, rather than to the one it was forked from."""
        return bool(self._own)

    def commit(self, exchange: tuple[Message, ...]) -> None:
        """Append an exchange."""
        self._own.append(exchange)

    def reset(self) -> None:
        """Clear the history; the data context stays."""
        self._base = None
        self._base_length = 0
        self._own = []

    def fork(self) -> Session:
        """A session that starts with the current history and then grows separately. Takes constant time."""
        child = Session(data_context=self.data_context)
        if self._own or self._base is not None:
            child._base = self
            child._base_length = len(self._own)
        return child

    def join(self, branches: list[Session]) -> None:
        """Append the branches' own exchanges, in order."""
        for branch in branches:
            self._own.extend(branch._own)

    def acquire(self) -> None:
        """Reserve the session for a run. Raises SessionBusy while another run has it."""
        if self._busy:
            raise SessionBusy(
                "this session is in use by a run that has not ended",
                hint="await the first run, or give the second a session of its own (Session(), or session.fork())",
            )
        self._busy = True

    def release(self) -> None:
        """Release the session."""
        self._busy = False
