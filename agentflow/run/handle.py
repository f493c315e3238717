"""The result of a run, and its account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from agentflow.core.call.run_port import RunShared
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.event_log import EventId
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.events.events import EventBase
from agentflow.lang.printer import print_value
from agentflow.lib.file_writer import write_private

T = TypeVar("T", default=Any)
E = TypeVar("E", bound=EventBase)
_SHOWN = 20_000


class Recorded(Protocol):
    """The recorded events of runs. ``wire`` returns the HTTP request of a model call, if it is known."""

    @property
    def wire(self) -> Callable[..., Any] | None: ...

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """The recorded events of a run, as JSON data."""
        ...

    async def has(self, run_id: str) -> bool:
        """Whether events of a run were recorded."""
        ...

    def batches(self, run_id: str, after: EventId) -> AsyncGenerator[list[dict[str, Any]]]:
        """The recorded events of a run after ``after``, some at a time."""
        ...


@frozen
class RunResult(Generic[T]):
    """A finished run: its ``value``, the tokens used, the ``cost`` in US dollars (None: a price is unknown), its id.

    ``steps`` is the number of steps taken; ``records`` reads its recorded events, None if there are none; ``reports`` are
    the paths of the pages written about it. ``sources`` are the sources of the value, other than the program and its user,
    in a flow with a policy (``AgentFlow(provenance=)``); empty otherwise.
    """

    value: T
    usage: Usage
    cost: float | None
    run_id: str
    steps: int = 0
    records: Recorded | None = field(default=None, repr=False, compare=False)
    reports: list[str] = field(default_factory=list[str], repr=False, compare=False)
    sources: frozenset[str] = frozenset()

    async def report(self, path: str | Path) -> None:
        """Write the run as an HTML page to ``path``; only the file's owner may read it.

        Raises ConfigurationError (``report/not-recorded``) for a run of a flow without records, OSError.
        """
        if self.records is None:
            raise ConfigurationError(
                f"run {self.run_id} was not recorded, so there is nothing to report",
                code="report/not-recorded",
                hint="AgentFlow(record=True), or subscribe a Report before the run",
            )
        from agentflow.observe.report.html import report_html

        events, wire = await self.records.events(self.run_id), self.records.wire
        await asyncio.to_thread(lambda: write_private(Path(path), report_html(events, wire=wire)))
        self.reports.append(str(path))

    def _repr_html_(self) -> str:
        """The value, the account, and a link to the report that was written last, for notebooks."""
        import html

        cost = "an unknown price" if self.cost is None else f"${self.cost:.4f}"
        tokens = f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out"
        value = self.value if isinstance(self.value, str) else print_value(self.value, limit=_SHOWN)
        if self.reports:
            page = html.escape(self.reports[-1])
            seen = f' · <a href="{page}">{page}</a>'
        else:
            seen = "" if self.records is None else " · <code>await result.report('run.html')</code> shows it"
        account = f"run {html.escape(self.run_id)}: {tokens}, {cost}, {self.steps:,} steps{seen}"
        return f"<pre>{html.escape(clip(value, _SHOWN))}</pre><small>{account}</small>"


@frozen
class Account:
    """The usage of a run so far: its id, the tokens, the ``cost`` in US dollars (None: a price is unknown), the steps.

    A model call in progress counts with its input and the received part of its answer, by estimate; so does an aborted
    one. ``estimated_tokens`` are those among the tokens. ``reserved_tokens`` and ``reserved_usd`` are the most that the
    calls in progress may cost, reserved from the run's limits and its purse; 0 for a run without both.
    """

    run_id: str = ""
    usage: Usage = NO_USAGE
    cost: float | None = 0.0
    steps: int = 0
    reserved_tokens: int = 0
    reserved_usd: float = 0.0

    @property
    def estimated_tokens(self) -> int:
        """Tokens that count by estimate."""
        return self.usage.estimated_tokens


class AccountedRun(Protocol):
    """The attributes of a run used for its account."""

    run_id: str

    @property
    def shared(self) -> RunShared:
        """Its state and its inbox."""
        ...

    @property
    def steps_used(self) -> int: ...
    @property
    def reserved(self) -> tuple[int, float]:
        """The tokens and US dollars reserved for calls in progress."""
        ...

    def so_far(self) -> tuple[Usage, float | None]:
        """Its usage and cost, with the calls in progress."""
        ...


def state_in(run: AccountedRun) -> dict[str, Any]:
    """A copy of the state of ``run``, empty if it has none."""
    state = run.shared.state
    return {} if state is None else state.plain()


def account_of(run: AccountedRun) -> Account:
    """The usage of ``run`` so far."""
    return Account(run.run_id, *run.so_far(), run.steps_used, *run.reserved)
