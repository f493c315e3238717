"""``improve``: search for better instructions, models and programs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from agentflow.cli.run.evaluate import ended_by_forecast, program_named, scorer_named
from agentflow.cli.shared.case_options import ImproveCommandOptions
from agentflow.cli.shared.common import Exit, UsageError, write_json, write_out
from agentflow.cli.shared.made_flows import open_flow, parse_limits
from agentflow.cli.shared.references import is_reference, resolve
from agentflow.cli.shared.state import stored_at
from agentflow.core.data.limits import Limits
from agentflow.lib.text.safe_text import clean

if TYPE_CHECKING:
    from agentflow.evals.improvement.candidates import ProgramCandidate
    from agentflow.evals.improvement.improve_options import By


async def improve_program(paths: list[str], options: ImproveCommandOptions) -> int:
    """Search for a better form of a program and print the report. Returns 1 if there is none, 5 at a limit, 130 if the user at the
    terminal declines the forecast.

    Raises UsageError, and the errors of :meth:`agentflow.AgentFlow.improve`.
    """
    from agentflow.evals.case_files import read_cases

    if len(paths) > 2:
        raise UsageError(
            "improve takes a program and a file of cases", hint="agentflow improve answer.sexp cases.jsonl"
        )
    scorers = [scorer_named(text) for text in options.scorer or ["exact"]]
    cases = await asyncio.to_thread(partial(read_cases, Path(paths[-1]), where=" ".join(options.where or ())))
    function = None
    if len(paths) == 2 and is_reference(paths[0]):
        function, app = resolve(paths[0], options.app)
        options = replace(options, app=app)
    limits = parse_limits(options.limit or (), options.settings().make_limits())
    limits = limits.lowered(options.max_cost, options.max_tokens)
    async with open_flow(options, durable=stored_at(options.db), limits=Limits(), approve=None) as flow:
        improve = partial(
            flow.improve,
            (function or program_named(flow, paths[0], options)) if len(paths) == 2 else None,
            cases,
            scorers,
            edit=options.edit,
            by=cast("By", options.by),
            model=options.proposer,
            operators=options.operator or (),
            models=options.try_model or (),
            holdout=options.holdout,
            generations=options.generations,
            width=options.width,
            finalists=options.finalists,
            repeat=options.repeat,
            primary=options.primary,
            limits=limits,
            live_tools=options.live_tool or (),
            run_id=options.run_id,
            told=_told(),
        )
        if (code := await ended_by_forecast(improve, options)) is not None:
            return code
        report = await improve()
    saved = report.save(options.save) if options.save is not None and report.improved else []
    if options.as_json:
        write_json({"ok": report.improved and not report.partial, "saved": [*map(str, saved)], **report.to_dict()})
    else:
        write_out(clean("\n".join([str(report), *[f"saved: {each}" for each in saved]])) + "\n")
    return Exit.LIMIT if report.partial else Exit.OK if report.improved else Exit.FAILED


def _told() -> Callable[[ProgramCandidate], None] | None:
    """Shows each candidate on a terminal as its figures become known."""
    if not sys.stderr.isatty():
        return None

    def told(candidate: ProgramCandidate) -> None:
        score = "" if candidate.score is None else f" {candidate.score:.3g}"
        print(clean(f"{candidate.name}: {candidate.change}: {candidate.stage}{score}"), file=sys.stderr, flush=True)

    return told
