"""``agentflow runs show``: prints a run over the text of its programs, its costs by task, and its failures."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from rich.text import Text

from agentflow.cli.shared.amounts import counted, money, seconds, tokens
from agentflow.cli.shared.common import moment, write_json
from agentflow.cli.shared.cost_table import cost_table
from agentflow.cli.shared.open_waits import answer_line, batch_line
from agentflow.cli.shared.terminal import print_text, screen
from agentflow.cli.shared.wrapping import columns, wrapped
from agentflow.core.data.limits import added, total
from agentflow.core.data.source import Source, Span
from agentflow.core.events.journal_rows import BATCH, EffectRow, EffectState
from agentflow.core.events.questions import Question
from agentflow.durable.catalogue import RunSummary
from agentflow.durable.values.codec import read_usage
from agentflow.durable.values.record_values import span_of
from agentflow.lib.text.safe_text import clean
from agentflow.observe.run_view import RunView, Site, State, Tally, record_message

_WAITS = frozenset({"question", "approval", "limit", "signal", "timer", BATCH})
_How = Literal["ok", "failed", "suspended", "running"]


def fold_records(records: Sequence[EffectRow], source: Source, view: RunView) -> None:
    """Count the ``records`` of a run among the tasks and the expressions of ``view``; ``source`` is its program.

    An expression with a waiting effect is suspended; one with an unfinished effect, or with steps of one, is running. An
    expression without records was not reached, or contains no recorded effects.
    """
    keys = {each.key for each in records}
    begun: set[bytes] = set()
    for each in records:
        if each.state == EffectState.LOST:
            continue
        if each.kind in ("task", "tool"):
            _count(each, _how(each), view.tasks.setdefault(f"{each.kind} {each.name}", Tally(each.name)))
        site = _site_of(each, source)
        if site is None:
            continue
        if each.leaf is None:
            _count(each, _how(each), view.sites.setdefault(site, Tally(each.name)))
        elif each.leaf not in keys and each.leaf not in begun:  # a step of an unfinished task
            begun.add(each.leaf)
            tally = view.sites.setdefault(site, Tally())
            tally.calls += 1
            tally.running += 1


def _how(record: EffectRow) -> _How:
    match record.state:
        case EffectState.OPEN:
            return "suspended" if record.kind in _WAITS else "running"
        case EffectState.OK:
            return "ok"
        case _:
            return "failed"


def _count(record: EffectRow, how: _How, tally: Tally) -> None:
    usage = read_usage(record.usage)
    tally.input_tokens += usage.input_tokens
    tally.cached_tokens += usage.cache_read_tokens
    tally.output_tokens += usage.output_tokens
    tally.cost_usd = added(tally.cost_usd, record.cost)
    tally.calls += 1
    if how == "running":
        tally.running += 1
        return
    tally.outcomes[how] = tally.outcomes.get(how, 0) + 1
    if how != "suspended":
        tally.seconds += (record.ended or 0.0) - (record.started or 0.0)
    if how == "failed":
        tally.error = tally.error or record_message(record.value)


def _site_of(record: EffectRow, source: Source) -> Site | None:
    site = span_of(record)
    if site is None or site[1] > len(source.text):
        return None
    span = Span(source, *site)
    return Site(source.name, span.line, span.column, span.end_line, span.end_column)


MARKS: Mapping[State, tuple[str, str]] = {
    "ok": ("+", "green"),
    "replayed": ("=", "cyan"),
    "running": (">", "yellow"),
    "suspended": ("~", "yellow"),
    "cancelled": ("-", "dim"),
    "failed": ("x", "bold red"),
    "error": ("x", "bold red"),
}
"""The sign and style for each state of an expression."""
_MOST_LINES = 2_000
_BRANCHES = frozenset({"parallel", "pmap", "race"})


def show_run(
    summary: RunSummary,
    events: Sequence[Mapping[str, Any]],
    questions: Sequence[Question] = (),
    *,
    as_json: bool,
    text: str = "",
    function: str | None = None,
    records: Sequence[EffectRow] = (),
    db: str | None = None,
) -> None:
    """Print a run of ``db`` and its open ``questions``.

    For runs without events ``records`` are its effects, and ``text`` is its program, or ``function`` the reference of a
    Python function, because its text is not stored.
    """
    view = RunView(events)
    if text:
        view.texts.setdefault(summary.name, text)
    fold_records(records, Source.of(summary.name, text), view)
    if as_json:
        write_json({**run_data(summary, view, function), "waiting": [_asked(each) for each in questions]})
        return
    console = screen(sys.stdout)
    for part in (
        head(summary, view, function),
        *[open_question(each, db) for each in questions],
        *[program(name, view) for name in view.texts],
        cost_table(view.tasks, columns(sys.stdout)),
        remarks(view),
    ):
        if part:
            print_text(console, part)


def _asked(question: Question) -> dict[str, Any]:
    return {**asdict(question), "key": question.key}


def open_question(question: Question, db: str | None) -> Text:
    """A question of a waiting run of ``db``, with the command that answers it."""
    text = Text("asks    " if question.signal is None else "awaits  ", style="dim").append(
        " ".join(clean(question.question).split()), style="bold yellow"
    )
    schema = "" if question.schema is None else f"  (answer: {json.dumps(question.schema)})"
    text.append(clean(schema), style="not bold dim")
    answer = answer_line(question, "ANSWER", db)
    return text.append(f"\n        {clean(answer)}", style="not bold not dim")


def run_data(summary: RunSummary, view: RunView, function: str | None = None) -> dict[str, Any]:
    """The JSON form of a run, for ``--json``."""
    return {
        **asdict(summary),
        **({} if function is None else {"function": function}),
        "model_calls": view.model_calls,
        "replayed": view.replayed,
        "programs": view.texts,
        "expressions": [
            {**site._asdict(), "name": tally.name, **tally.to_dict()} for site, tally in view.sites.items()
        ],
        "tasks": {name: tally.to_dict() for name, tally in view.tasks.items()},
        "sources": list(view.sources),
        "denials": view.denials,
        "warnings": [{name: each.get(name) for name in ("code", "message", "path")} for each in view.warnings],
    }


def head_rows(summary: RunSummary, view: RunView, function: str | None = None) -> list[tuple[str, str]]:
    """The run's id, outcome and totals; ``function`` is the Python function that it runs, if the text is unknown."""
    usage = summary.usage or view.usage
    rows = [
        ("run", f"{summary.run_id}  {summary.name}"),
        ("began", moment(summary.started)),
        ("state", summary.state + (f" in {summary.slices} slices" if summary.slices > 1 else "")),
    ]
    if summary.labels:
        rows.append(("labels", ", ".join(f"{name}={value}" for name, value in summary.labels.items())))
    if summary.scores:
        rows.append(("scores", ", ".join(f"{name} {score:g}" for name, score in summary.scores.items())))
    if summary.duration_s is not None:
        rows.append(("time", seconds(summary.duration_s)))
    rows += [("batch", batch_line(each)) for each in summary.batches]
    if view.sources:
        rows.append(("sources", f"its value depends on {', '.join(view.sources)}"))
    if summary.recorded:
        calls = counted(view.model_calls, "model call")
        replayed = counted(view.replayed, "effect")
        rows.append(("calls", calls + (f", {replayed} answered from records" if view.replayed else "")))
        rows.append(("tokens", tokens(usage)))
        rows.append(("cost", money(summary.cost_usd)))
    else:
        below = "the stored program with what its records tell" if function is None else "what its records tell"
        rows.append(("events", f"not recorded, or removed: below is {below}"))
    if function is not None:
        rows.append(("program", f"the Python function {function}, whose text is not stored with the run"))
    return rows


def head(summary: RunSummary, view: RunView, function: str | None = None) -> Text:
    """The rows of :func:`head_rows` and the error of the run, as text for a terminal."""
    shown = Text()
    width = columns(sys.stdout)
    for name, value in head_rows(summary, view, function):
        label, text = f"{name:<8}", wrapped(f"{name:<8}{clean(value)}", width)
        shown.append(label, "dim").append(text[len(label) :] + "\n")
    if summary.error:
        text = wrapped(f"error   {clean(summary.error)}", width)
        shown.append("error   ", "dim").append(text[len("error   ") :] + "\n", "bold red")
    return shown


def program(name: str, view: RunView) -> Text:
    """A program's text; each line shows the state, calls, time and cost of the expressions that start on it."""
    lines: dict[int, list[Tally]] = {}
    for site, tally in sorted(view.sites.items(), key=lambda each: each[0]):
        if site.source == name:
            lines.setdefault(site.line, []).append(tally)
    shown = Text(f"\n{clean(name)}\n", style="bold")
    shown.append(f"    {'calls':>7} {'time':>9} {'cost':>9}\n", "dim")
    for number, line in enumerate(view.texts[name].splitlines()[:_MOST_LINES], 1):
        tallies = lines.get(number, [])
        shown.append_text(_gutter(tallies)).append(f" {number:>4} ", "dim").append(clean(line) + "\n", "")
        for tally in tallies:
            if tally.error:
                why = f"{tally.name}: {tally.error}" if tally.name else tally.error
                shown.append(f"{'':>37}{clean(_one_line(why))}\n", "red")
        for name, sources in _sourced(tallies):
            shown.append(f"{'':>37}{clean(_one_line(f'{name} comes from {sources}'))}\n", "dim")
    return shown


def _sourced(tallies: Sequence[Tally]) -> list[tuple[str, str]]:
    """The calls of a line with values that depend on sources, each with its sources."""
    return [(each.name or "it", ", ".join(sorted(each.sources))) for each in tallies if each.sources]


def _gutter(tallies: Sequence[Tally]) -> Text:
    if not tallies:
        return Text(f"{'':>31}")
    states: list[State] = [*MARKS]
    mark, style = MARKS[states[max(states.index(tally.state) for tally in tallies)]]
    # Skip the branches of a form: they contain other expressions of its line, which would be counted twice.
    tallies = [tally for tally in tallies if tally.name not in _BRANCHES] or tallies
    cost = total([tally.cost_usd for tally in tallies])
    shown = Text().append(f"  {mark} ", style)
    calls = sum(tally.calls for tally in tallies)
    took = seconds(sum(tally.seconds for tally in tallies)) if calls else ""
    shown.append(f"{calls or '':>7} {took:>9} {money(cost) if cost != 0 else '':>9}")
    return shown


def remarks(view: RunView) -> Text:
    """The warnings of a run and the denials of its policy, repeated ones once."""
    counts: dict[tuple[str, str], int] = {}
    said = [(f"warning[{each.get('code')}]", str(each.get("message"))) for each in view.warnings]
    for key in [*[("denied", each) for each in view.denials], *said]:
        counts[key] = counts.get(key, 0) + 1
    shown = Text()
    width = columns(sys.stdout)
    for (title, message), count in list(counts.items())[:20]:
        label, times = clean(title), f" ({count} times)" if count > 1 else ""
        text = wrapped(f"{label} {clean(_one_line(message))}{times}", width)
        shown.append(label, "yellow").append(text[len(label) :] + "\n")
    return shown


def _one_line(text: str, limit: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]} ..."
