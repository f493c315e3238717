"""``agentflow runs show``, ``tail`` and ``diff``: read recorded runs back."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from agentflow.cli.runs.run_list import open_catalogue
from agentflow.cli.runs.run_show import head, head_rows, show_run
from agentflow.cli.runs.written_run import run_markdown, transcript_text
from agentflow.cli.shared.amounts import money, seconds
from agentflow.cli.shared.common import Exit, UsageError, write_json, write_out
from agentflow.cli.shared.terminal import print_text, screen
from agentflow.cli.shared.wrapping import columns
from agentflow.core.events.journal_rows import EffectState
from agentflow.durable.catalogue import RunCatalogue, RunSummary, summary_of
from agentflow.durable.stored_input import reference_in
from agentflow.durable.values.codec import lasting
from agentflow.lib.file_writer import write_private
from agentflow.lib.text.safe_text import clean
from agentflow.observe.files import SUFFIX, read_events, read_infos
from agentflow.observe.joined_runs import EffectPair, joined, pairs_of, recorded_effects
from agentflow.observe.run_view import RunView, message_of
from agentflow.observe.transcript import passages

_MOST_SHOWN = 100


def differences(pairs: Iterable[EffectPair]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The effects of two runs, each with its changes, and their number by change."""
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        effect, both = pair.either, (pair.first, pair.second)
        rows.append(
            {
                "change": pair.change,
                "kind": effect.kind,
                "name": effect.name,
                "path": effect.path,
                "line": effect.site.line if effect.site else None,
                "seconds": [each.seconds if each else None for each in both],
                "tokens": [each.tokens if each else None for each in both],
            }
        )
    counts = {
        name: sum(row["change"] == name for row in rows) for name in ("same", "input", "output", "first", "second")
    }
    return rows, counts


def show_difference(
    one: RunSummary,
    other: RunSummary,
    pairs: Iterable[EffectPair],
    *,
    as_json: bool,
) -> None:
    """Print the effects that differ between two runs: a changed input, a changed output only, or present in one run only."""
    rows, counts = differences(pairs)
    if as_json:
        runs = [{"run_id": each.run_id, "state": each.state, "cost_usd": each.cost_usd} for each in (one, other)]
        write_json({"runs": runs, "counts": counts, "effects": rows})
        return
    print_text(screen(sys.stdout), _table(one, other, rows, counts))


_WORDS = {
    "input": "other input",
    "output": "other output",
    "first": "only in the first",
    "second": "only in the second",
}


def _table(one: RunSummary, other: RunSummary, rows: list[dict[str, Any]], counts: Mapping[str, int]) -> Text:
    shown = Text()
    for label, run in (("first", one), ("second", other)):
        took = "" if run.duration_s is None else seconds(run.duration_s)
        shown.append(f"{label:<7}", "dim").append(clean(f"{run.run_id}  {run.state}  {took}  {money(run.cost_usd)}\n"))
    shown.append(", ".join(f"{counts[name]} {words}" for name, words in _WORDS.items()))
    shown.append(f", {counts['same']} the same\n")
    changed = [row for row in rows if row["change"] != "same"]
    for row in changed[:_MOST_SHOWN]:
        line = f"line {row['line']}" if row["line"] else ""
        took = " -> ".join("" if each is None else seconds(each) for each in row["seconds"])
        shown.append(f"  {_WORDS[row['change']]:<19}", "yellow")
        shown.append(clean(f"{row['kind']} {row['name']}  {line}  {row['path']}  {took}\n"))
    if len(changed) > _MOST_SHOWN:
        shown.append(f"  ... and {len(changed) - _MOST_SHOWN} more; --json has them all\n")
    return shown


async def show(
    run: str | None, directory: str | None, db: str | None, *, transcript: bool = False, as_json: bool
) -> int:
    """Print one run; without an id the latest. With ``transcript`` print its conversation. Returns the exit code."""
    async with open_catalogue(directory, db) as catalogue:
        summary, events = await read_run(catalogue, run)
        if transcript:
            return _transcript(summary, events, await _answers(catalogue, summary.run_id), as_json=as_json)
        row = await catalogue.row(summary.run_id)
        questions = await catalogue.questions(summary.run_id)
        records = [] if events else await catalogue.effects(summary.run_id)
    text = row.program if row is not None and not events else ""
    function = reference_in(text)
    show_run(
        summary,
        events,
        questions,
        as_json=as_json,
        text="" if function else text,
        function=function,
        records=records,
        db=db,
    )
    return Exit.OK


def _transcript(summary: RunSummary, events: list[dict[str, Any]], answers: Mapping[str, Any], *, as_json: bool) -> int:
    if not events:
        raise _no_events(summary.run_id)
    written = passages(events, answers)
    if as_json:
        write_json({"run_id": summary.run_id, "passages": [asdict(each) for each in written]})
    else:
        console = screen(sys.stdout)
        print_text(console, head(summary, RunView(events)))
        write_out(f"{transcript_text(written, columns(sys.stdout))}\n")
    return Exit.OK


async def _answers(catalogue: RunCatalogue, run_id: str) -> dict[str, Any]:
    """The answers of people in a durable run, by the paths of their questions."""
    asked = [
        each for each in await catalogue.effects(run_id) if each.kind in ("question", "approval", "limit", "signal")
    ]
    return {each.path: _outcome(each.value).get("ok") for each in asked if each.state == EffectState.OK}


def _no_events(run_id: str) -> UsageError:
    return UsageError(
        f"the events of {run_id} were not recorded, or were removed", hint="agentflow runs show prints what is known"
    )


async def compare(one: str, other: str, directory: str | None, db: str | None, *, as_json: bool) -> int:
    """Print the differences of two runs by their events, or by their journals where the events are incomplete. Returns the exit code."""
    async with open_catalogue(directory, db) as catalogue:
        first, events = await read_run(catalogue, one)
        second, more = await read_run(catalogue, other)
        durable = [await catalogue.row(each.run_id) is not None for each in (first, second)]
        if all(durable) and not (events and more and not _from_records(events, more)):
            a, b = [recorded_effects(await catalogue.effects(each.run_id), _outcome) for each in (first, second)]
            pairs = joined(a, b)
        else:
            for summary, read in ((first, events), (second, more)):
                if not read:
                    raise _no_events(summary.run_id)
            pairs = pairs_of(events, more)
    show_difference(first, second, pairs, as_json=as_json)
    return Exit.OK


async def tail(run: str | None, directory: str | None, db: str | None, *, follow: bool, as_json: bool) -> int:
    """Print the events of a run, one per line; with ``follow`` also new ones until it ends. Returns the exit code."""
    async with open_catalogue(directory, db) as catalogue:
        summary = await _find(catalogue, run)

        def write(event: Mapping[str, Any]) -> None:
            if as_json:
                write_json(event)
            elif line := event_text(event, summary.started):
                write_out(clean(line) + "\n")

        if follow:
            async with (
                catalogue.listening() as changes,
                contextlib.aclosing(catalogue.follow(summary.run_id, changes=changes)) as events,
            ):
                async for event in events:
                    write(event)
        else:
            for event in await catalogue.events(summary.run_id):
                write(event)
    return Exit.OK


def _outcome(value: Any) -> Any:
    """The value or error of a recorded effect, without its cost or the process that ran it."""
    record: Mapping[str, Any] = value or {}
    return {name: lasting(data) for name, data in record.items() if name in ("ok", "error")}


def _from_records(*runs: list[dict[str, Any]]) -> bool:
    """Whether events of some effects are missing because records answered them."""
    return any(event.get("type") == "effect_replayed" for events in runs for event in events)


async def _find(catalogue: RunCatalogue, run: str | None) -> RunSummary:
    if run is not None:
        return await catalogue.find(run)
    runs = await catalogue.list(limit=1)
    if not runs:
        raise UsageError("there are no runs yet", hint="agentflow run FILE records one")
    return runs[0]


async def read_run(catalogue: RunCatalogue, run: str | None) -> tuple[RunSummary, list[dict[str, Any]]]:
    """Find a run by its id, by the beginning of it, or by a file of events; return it with its events. Raises UsageError."""
    if run is not None and (run.endswith(SUFFIX) or "/" in run):
        return await asyncio.to_thread(_read_file, Path(run))
    summary = await _find(catalogue, run)
    return summary, await catalogue.events(summary.run_id)


def _read_file(path: Path) -> tuple[RunSummary, list[dict[str, Any]]]:
    logs = read_infos(path)
    if not logs:
        raise UsageError(f"{path} is not a file of events", code="cli/unreadable", hint="--events-file writes one")
    with path.open("rb") as file:
        events = [event for event in read_events(file) if event.get("run_id") == logs[0].run_id]
    return summary_of(logs[0]), events


def event_text(event: Mapping[str, Any], began: float) -> str:
    """One event as a line for people; empty for events that do not interest them."""
    kind = str(event["type"])
    if kind.endswith("_delta") or kind in ("program_loaded", "attempt_started", "partial_output"):
        return ""
    at = float(event.get("time") or began) - began
    name = event.get("name") or event.get("model") or event.get("reason") or event.get("code") or event.get("message")
    parts = [f"{at:8.2f}s", kind.replace("_", " "), str(name or ""), str(event.get("path") or "")]
    if event.get("duration_s") is not None:
        parts += [str(event.get("outcome")), seconds(float(event["duration_s"])), message_of(event) or ""]
    return "  ".join(" ".join(part.split()) for part in parts if part)


async def report_runs(
    run: str | None,
    other: str | None,
    output: str | None,
    directory: str | None,
    db: str | None,
    *,
    markdown: bool = False,
    as_json: bool,
) -> int:
    """Write a recorded run as an HTML page, or in Markdown, with ``other`` also its difference to that run. Returns the exit
    code."""
    from agentflow.observe.report.html import report_html
    from agentflow.providers.shown import wire_of
    from agentflow.providers.table import Router
    from agentflow.settings import load_settings

    runs: list[list[dict[str, Any]]] = []
    names: list[str] = []
    summaries: list[RunSummary] = []
    async with open_catalogue(directory, db) as catalogue:
        for name in (run, other) if other is not None else (run,):
            summary, events = await read_run(catalogue, name)
            if not events:
                raise _no_events(summary.run_id)
            runs.append(events)
            names.append(summary.run_id)
            summaries.append(summary)
        answers = await _answers(catalogue, names[0]) if markdown else {}
        questions = await catalogue.questions(names[0]) if markdown else []
    if markdown:
        view = RunView(runs[0])
        difference = None
        if other is not None:
            rows, counts = differences(pairs_of(runs[1], runs[0]))
            difference = _table(summaries[1], summaries[0], rows, counts).plain
        page = run_markdown(
            head_rows(summaries[0], view),
            view,
            passages(runs[0], answers),
            questions,
            error=summaries[0].error,
            difference=difference,
            db=db,
        )
        if output == "-":
            write_out(page)
            return Exit.OK
    else:
        settings = load_settings()
        router = Router(settings.model, **settings.for_router())
        page = await asyncio.to_thread(lambda: report_html(*runs, wire=wire_of(router)))
    path = Path(output or f"{names[0]}.{'md' if markdown else 'html'}")
    try:
        await asyncio.to_thread(write_private, path, page)
    except OSError as error:
        raise UsageError(f"the report cannot be written to {path}: {error.strerror or error}") from error
    if as_json:
        write_json({"ok": True, "file": str(path), "runs": names})
    else:
        write_out(f"{path}\n")
    return Exit.OK


async def export_run(
    run: str | None, form: str, directory: str | None, db: str | None, *, content: bool, as_json: bool
) -> int:
    """Export a recorded run in the format of another tool. Returns the exit code."""
    from agentflow.observe.export import chrome_trace, otlp

    if form not in ("chrome", "otlp"):
        raise UsageError(
            f"--format {form}: write chrome or otlp", hint="chrome is for Perfetto and speedscope, otlp for collectors"
        )
    async with open_catalogue(directory, db) as catalogue:
        _, events = await read_run(catalogue, run)
    write_json(chrome_trace(events) if form == "chrome" else otlp(events, content=content))
    return Exit.OK
