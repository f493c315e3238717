"""``eval`` and ``cases``: evaluate a program on cases, and print recorded runs as cases."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentflow.cli.run.durable import parse_overrides
from agentflow.cli.shared.approving import answerer
from agentflow.cli.shared.case_options import CaseOptions, CasesOptions, EvalOptions
from agentflow.cli.shared.common import Exit, UsageError, write_json, write_out
from agentflow.cli.shared.made_flows import open_flow, parse_limits
from agentflow.cli.shared.references import function_named, is_reference, resolve
from agentflow.cli.shared.state import stored_at, stored_runs
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.limits import Limits
from agentflow.core.events.questions import Question
from agentflow.lib.text.safe_text import clean
from agentflow.lib.text.suggest import did_you_mean

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.evals.forecast import Forecast
    from agentflow.evals.improvement.improvement_forecast import ImprovementForecast
    from agentflow.evals.report import EvaluationReport
    from agentflow.evals.sample import Sample

_PLAIN = ("exact", "contains", "json_equal", "close")


async def evaluate_program(paths: list[str], options: EvalOptions) -> int:
    """Evaluate a program on cases and print the report. Returns 1 for a missed threshold, 5 at a limit, 130 if
    the user at the terminal declines the forecast.

    Raises UsageError, and the errors of :meth:`agentflow.AgentFlow.evaluate`.
    """
    from agentflow.evals.case_files import read_cases

    if len(paths) > 2:
        raise UsageError("eval takes a program and a file of cases", hint="agentflow eval answer.sexp cases.jsonl")
    scorers = [scorer_named(text) for text in options.scorer or ["exact"]]
    below, drop = _thresholds("--fail-below", options.fail_below), _thresholds("--fail-drop", options.fail_drop)
    variants = _variants(options)
    cases = await asyncio.to_thread(partial(read_cases, Path(paths[-1]), where=" ".join(options.where or ())))
    function = None
    if len(paths) == 2 and is_reference(paths[0]):
        function, app = resolve(paths[0], options.app)
        options = replace(options, app=app)
    settings = options.settings()
    limits = parse_limits(options.limit or (), settings.make_limits()).lowered(options.max_cost, options.max_tokens)
    async with open_flow(options, durable=stored_at(options.db), limits=Limits(), approve=None) as flow:
        evaluate = partial(
            flow.evaluate,
            (function or program_named(flow, paths[0], options)) if len(paths) == 2 else None,
            cases,
            variants=variants,
            scorers=scorers,
            repeat=options.repeat,
            batch=options.batch_within or options.batch,
            limits=limits,
            live_tools=options.live_tool or (),
            rerun=options.rerun or (),
            baseline=_baseline(options.baseline),
            primary=options.primary or (),
            until=options.until,
            run_id=options.run_id,
            told=_told(),
        )
        if (code := await ended_by_forecast(evaluate, options)) is not None:
            return code
        report = await evaluate()
    for name in options.save or ():
        report.save(name)
    wrong = [*report.below(below), *_dropped(report, drop)]
    if options.as_json:
        write_json({"ok": not (wrong or report.partial), "thresholds": wrong, **_summary(report)})
    else:
        write_out(clean("\n".join([str(report), *[f"not met: {each}" for each in wrong]])) + "\n")
    return Exit.FAILED if wrong else Exit.LIMIT if report.partial else Exit.OK


async def ended_by_forecast(work: Callable[..., Awaitable[Any]], options: CaseOptions) -> int | None:
    """The exit code where the forecast of ``work`` is all that is wanted, or a person does not agree to it; None: neither."""
    if options.plan:
        return _show_forecast(await work(forecast=True), options)
    answer = None if options.yes or os.environ.get("CI") else answerer()
    if answer is not None and not await _agreed(await work(forecast=True), answer):
        return Exit.INTERRUPTED
    return None


def _show_forecast(forecast: Forecast | ImprovementForecast, options: CaseOptions) -> int:
    """Print a forecast. Returns the exit code."""
    if options.as_json:
        write_json(forecast.to_dict())
    else:
        write_out(clean(str(forecast)) + "\n")
    return Exit.OK


async def _agreed(forecast: Forecast | ImprovementForecast, answer: Any) -> bool:
    """Whether the user at the terminal agrees to a forecast; one that costs nothing needs no answer."""
    if getattr(forecast, "free", False):
        return True
    say(f"{forecast}\n")
    return await answer(Question(question="Run it?", schema={"type": "boolean"}))


async def print_cases(options: CasesOptions) -> int:
    """Print recorded runs as JSON lines. Returns the exit code."""
    labels = dict(_pair("--label", text) for text in options.label or ())
    async with stored_runs(options.db) as flow:
        listed = await flow.cases(" ".join(options.where or ()), limit=options.limit, **labels)
    write_out("".join([json.dumps(each.to_dict(), ensure_ascii=False) + "\n" for each in listed]))
    return Exit.OK


def program_named(flow: AgentFlow, name: str, options: CaseOptions) -> Any:
    """The program to evaluate: a file, or a task or workflow of the application by its name."""
    path = Path(name)
    if path.suffix in (".sexp", ".py") or path.exists():
        return path
    if options.app is not None:
        return function_named(flow, name, f"--app {options.app}")
    raise UsageError(
        f"there is no program '{name}'",
        hint="name a .sexp or .py file, or a workflow or task of your own: launch:flow.audit",
    )


def _baseline(name: str | None) -> str | Path | None:
    """The baseline variant, or the file of a saved report."""
    return Path(name) if name is not None and name.endswith(".jsonl") else name


def _variants(options: EvalOptions) -> dict[str, Any]:
    variants: dict[str, Any] = {}
    for text in options.variant or ():
        name, sep, file = text.partition("=")
        path = Path(file if sep else text)
        name = name if sep else path.stem
        if name in variants:
            raise UsageError(f"two variants are called '{name}'", hint="--variant NAME=FILE names them")
        if not path.exists():
            raise UsageError(f"there is no file {path} of the variant '{name}'", hint="--variant NAME=FILE")
        variants[name] = path
    if options.override:
        variants["set"] = parse_overrides(options.override)
    return variants


def scorer_named(text: str) -> Any:
    """The scorer of a text of ``--scorer``. Raises UsageError."""
    from agentflow import evals
    from agentflow.evals.scorers import ACCOUNT

    name, sep, argument = text.partition("=")
    if name in _PLAIN and not sep:
        return getattr(evals, name)()
    if name in ACCOUNT and not sep:
        return getattr(evals, name)
    if name == "close" and sep:
        return evals.close(_thresholds("--scorer", [text])["close"])
    if name in ("matches", "judge", "contains") and sep:
        return getattr(evals, name)(argument)
    module, colon, function = text.partition(":")
    if colon and not sep:
        if (here := os.getcwd()) not in sys.path:
            sys.path.insert(0, here)
        try:
            return getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"--scorer {text}: {error}", hint="MODULE:NAME, a function of a case and a run") from None
    names = (*_PLAIN, *ACCOUNT, "matches", "judge")
    hint = did_you_mean(name, names) or f"it is one of {', '.join(names)}, or MODULE:NAME"
    raise UsageError(f"--scorer {text} is not a scorer", hint=hint)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, sep, value = text.partition("=")
    if not sep or not name:
        raise UsageError(f"{option} {text} has no value", hint=f"write {option} NAME=VALUE")
    return name, value


def _thresholds(option: str, texts: list[str] | None) -> dict[str, float]:
    values: dict[str, float] = {}
    for text in texts or ():
        name, value = _pair(option, text)
        try:
            values[name] = float(value)
        except ValueError:
            raise UsageError(f"{option} {text}: '{value}' is not a number", hint=f"write {option} {name}=0.8") from None
    return values


def _dropped(report: EvaluationReport, most: dict[str, float]) -> list[str]:
    """The variants that may have lost more than a threshold against the baseline."""
    return [
        f"{score} of {name} may have dropped by more than {number:g}: {difference}"
        for score, number in most.items()
        for name in report.variants
        if name != report.baseline and not (difference := report[name].difference(score)).low > -number
    ]


def _summary(report: EvaluationReport) -> dict[str, Any]:
    from dataclasses import asdict, is_dataclass

    rows = [
        {
            key: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            for key, value in row.items()
        }
        for row in report.rows()
    ]
    failures = [each.to_dict() for each in report.failures()]
    ended = {"run_id": report.run_id, "partial": report.partial, "enough": report.enough}
    return {**ended, "variants": rows, "failures": failures}


def _told() -> Any:
    """Shows the number of samples so far on a terminal."""
    if not sys.stderr.isatty():
        return None

    def told(sample: Sample, count: int, total: int) -> None:
        end = "\n" if count == total else ""
        print(f"\r{count:,} of {total:,} samples", end=end, file=sys.stderr, flush=True)

    return told
