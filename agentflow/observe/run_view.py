"""Folds the events of a run: the work of each expression of its program, the cost of its tasks, its failures.

Reads events as JSON data, of version 1 too; unknown types and fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from agentflow.core.data.limits import added

State: TypeAlias = Literal["ok", "replayed", "running", "suspended", "cancelled", "failed", "error"]
"""States of an expression, the worst last."""
_RANK: Mapping[str, int] = {
    "ok": 0, "replayed": 1, "running": 2, "suspended": 3, "cancelled": 4, "failed": 5, "error": 6,
}  # fmt: skip
_EFFECTS = frozenset({"task", "tool", "context", "subtask", "branch"})
_WAITS = frozenset({"question", "approval", "limit", "signal", "timer"})
"""Waits of an expression itself, other than for its turn."""
MOST_WARNINGS = 1_000


class Site(NamedTuple):
    """An expression: where it begins and ends in the text named ``source``, in lines and columns from 1."""

    source: str
    line: int
    column: int
    end_line: int
    end_column: int

    @classmethod
    def of(cls, span: object) -> Site | None:
        """The site of an event's ``span``."""
        if not isinstance(span, dict):
            return None
        fields = cast("dict[str, Any]", span)
        try:
            return cls(str(fields["source"]), *(int(fields[name]) for name in cls._fields[1:]))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(slots=True)
class Tally:
    """The events at a site or in a task: number of calls and of each outcome, seconds, tokens, USD, the first error, the
    sources of its result."""

    name: str = ""
    calls: int = 0
    running: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    error: str | None = None
    sources: set[str] = field(default_factory=set[str])

    @property
    def state(self) -> State:
        """The worst outcome."""
        worst = max(self.outcomes, key=lambda outcome: _RANK.get(outcome, 0), default="ok")
        state = worst if worst in _RANK else "error"
        return cast(State, state if not self.running or _RANK[state] > _RANK["running"] else "running")

    @property
    def failures(self) -> int:
        """The number of calls that failed."""
        return self.outcomes.get("failed", 0) + self.outcomes.get("error", 0)

    def end(self, event: Mapping[str, Any]) -> None:
        """Count the end of a call."""
        outcome = str(event.get("outcome", "ok"))
        self.running -= 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.seconds += event.get("duration_s") or 0.0
        usage: Mapping[str, Any] = event.get("usage") or {}
        self.input_tokens += usage.get("input_tokens", 0)
        self.cached_tokens += usage.get("cache_read_tokens", 0)
        self.output_tokens += usage.get("output_tokens", 0)
        if "cost_usd" in event:
            self.cost_usd = added(self.cost_usd, event["cost_usd"])
        if outcome != "ok" and self.error is None:
            self.error = message_of(event)
        self.sources.update(sources_of(event))

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "state": self.state, "calls": self.calls, "running": self.running, "outcomes": dict(self.outcomes),
            "seconds": round(self.seconds, 6), "input_tokens": self.input_tokens, "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens, "cost_usd": self.cost_usd, "error": self.error, "sources": sorted(self.sources),
        }  # fmt: skip


class RunView:
    """Folds the events of a run, one by one.

    ``texts`` are its programs by name; ``sites`` has a tally for each expression, ``tasks`` for each task and tool;
    ``model_calls`` and ``replayed`` are counts, ``warnings`` the Warning events, ``sources`` the sources of its value,
    ``denials`` the denials of its policy. ``outcome`` is None while it runs.
    """

    def __init__(self, events: Iterable[Mapping[str, Any]] = ()) -> None:
        self.run_id = ""
        self.name = ""
        self.slice = 1
        self.started = 0.0
        self.seconds: float | None = None
        self.outcome: str | None = None
        self.error: str | None = None
        self.usage: Mapping[str, Any] = {}
        self.cost_usd: float | None = None
        self.labels: Mapping[str, str] = {}
        self.texts: dict[str, str] = {}
        self.sites: dict[Site, Tally] = {}
        self.tasks: dict[str, Tally] = {}
        self.model_calls = 0
        self.replayed = 0
        self.warnings: list[Mapping[str, Any]] = []
        self.sources: tuple[str, ...] = ()
        self.denials: list[str] = []
        self._open: dict[int, tuple[Tally | None, Tally | None]] = {}
        self._at: dict[int, Site] = {}
        for event in events:
            self.apply(event)

    def apply(self, event: Mapping[str, Any]) -> None:
        """Fold one event."""
        kind = str(event.get("type"))
        if kind == "run_started":
            self._begin(event)
        elif kind == "run_finished":
            self._end(event)
        elif kind == "program_loaded":
            name = str(event.get("name"))
            if event.get("host") or name not in self.texts:
                self.texts[name] = str(event.get("text"))
        elif kind == "policy_denied":
            if len(self.denials) < MOST_WARNINGS:
                self.denials.append(str(event.get("message")))
        elif kind == "warning":
            if len(self.warnings) < MOST_WARNINGS:
                self.warnings.append(event)
        elif kind == "effect_replayed":
            self.replayed += 1
            self._site(event, str(event.get("name"))).outcomes.setdefault("replayed", 0)
            tally = self._site(event, str(event.get("name")))
            tally.calls += 1
            tally.outcomes["replayed"] += 1
        elif kind == "model_started":
            self.model_calls += 1
        elif kind == "wait_started" and event.get("reason") in _WAITS:
            self._start(event, "wait")
        elif kind.endswith("_started") and kind.removesuffix("_started") in _EFFECTS:
            self._start(event, kind.removesuffix("_started"))
        elif kind.endswith("_finished"):
            self._finish(event)

    def _begin(self, event: Mapping[str, Any]) -> None:
        self._open.clear()
        self._at.clear()
        self.outcome = self.seconds = self.error = None
        self.slice = event.get("slice", 1)
        if self.slice == 1:
            self.run_id = str(event.get("run_id"))
            self.started = float(event.get("time") or 0.0)
            self.name = str(event.get("name") or "")
            self.labels = event.get("labels") or {}
        for tally in (*self.sites.values(), *self.tasks.values()):
            tally.running = 0
            tally.calls -= tally.outcomes.pop("suspended", 0)  # it is being resumed

    def _end(self, event: Mapping[str, Any]) -> None:
        self.outcome = str(event.get("outcome"))
        self.seconds = event.get("duration_s")
        self.usage = event.get("usage") or {}
        self.cost_usd = event.get("cost_usd")
        self.sources = sources_of(event)
        self.error = message_of(event)
        error = event.get("error")
        site = Site.of(cast("dict[str, Any]", error).get("span")) if isinstance(error, dict) else None
        if site is not None:  # the failed expression need not be an effect
            here = self.sites.setdefault(site, Tally())
            here.outcomes.setdefault("error", 0 if here.calls else 1)
            here.error = here.error or self.error

    def _start(self, event: Mapping[str, Any], kind: str) -> None:
        request: Mapping[str, Any] = event.get("request") or {}
        name = str(event.get("name") or event.get("form") or request.get("name") or event.get("reason") or kind)
        seq, site = event.get("seq", 0), Site.of(event.get("span"))
        tally: Tally | None = None
        if kind not in ("branch", "wait"):
            tally = self.tasks.setdefault(f"{kind} {name}" if kind != "context" else kind, Tally(name))
        here: Tally | None = None
        if site is not None:
            self._at[seq] = site
            # The effects of a task itself, its tools and lookups, have the expression that called the task.
            if self._at.get(event.get("parent") or 0) != site:
                here = self._site(event, name)
        for each in (tally, here):
            if each is not None:
                each.calls += 1
                each.running += 1
        self._open[seq] = (tally, here)

    def _finish(self, event: Mapping[str, Any]) -> None:
        self._at.pop(event.get("started", 0), None)
        for tally in self._open.pop(event.get("started", 0), ()):
            if tally is not None:
                tally.end(event)

    def _site(self, event: Mapping[str, Any], name: str) -> Tally:
        site = Site.of(event.get("span")) or Site("", 0, 0, 0, 0)
        return self.sites.setdefault(site, Tally(name))


def sources_of(event: Mapping[str, Any]) -> tuple[str, ...]:
    """The sources that the value of a Finished event depends on."""
    sources: object = event.get("sources")
    return tuple([str(each) for each in cast("list[object]", sources)]) if isinstance(sources, list | tuple) else ()


def message_of(event: Mapping[str, Any]) -> str | None:
    """The error or FAILED result of a Finished event, on one line; None if it succeeded or is suspended."""
    error = event.get("error")
    if event.get("outcome") == "suspended":
        return None
    if isinstance(error, dict):
        fields = cast("dict[str, Any]", error)
        return f"{fields.get('code')}: {fields.get('message')}"
    result: Any = event.get("result")
    try:
        described = result["notes"]["error"]
        return f"{described['reason']}: {described['message']}"
    except (KeyError, TypeError):
        return None


def record_message(value: Any) -> str | None:
    """Why a recorded effect failed: the message of its error, or that of its FAILED result."""
    match value:
        case {"error": [_, {"message": str(message)}, *_]}:
            return message
        case {"ok": {"$r": ["FAILED", _, _, _, {"error": {"message": str(message)}}, *_]}}:
            return message
        case {"ok": {"$r": ["FAILED", str(content), *_]}}:
            return content
        case _:
            return None
