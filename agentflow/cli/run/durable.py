"""``run --durable`` and ``resume``: runs that continue after the process was killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentflow.cli.run.execute import function_asked, raised_at, show_result, watching
from agentflow.cli.shared.amounts import counted
from agentflow.cli.shared.common import (
    CompileFailed,
    Exit,
    UsageError,
    exit_code,
    is_compile_error,
    parse_bindings,
    read_program,
    show_error,
    write_json,
    write_out,
)
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.open_waits import resume_line, show_waiting
from agentflow.cli.shared.printed_values import FailedTexts
from agentflow.cli.shared.references import arguments_for, function_named
from agentflow.cli.shared.run_options import CancelOptions, ChangeOptions, DurableOptions, ForkOptions, ResumeOptions
from agentflow.cli.shared.state import stored_at
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import AgentflowError, WorkflowError
from agentflow.core.data.limits import total
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.values import plain, to_json
from agentflow.lib.text.safe_text import clean

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.core.data.session import Session
    from agentflow.core.events.journal_rows import OnInflight
    from agentflow.durable.handle import DurableRun
    from agentflow.durable.plan import PlannedEffect, RunPlan
    from agentflow.flow.python import FlowCall
    from agentflow.lang.program import Program


def plan_data(plan: RunPlan) -> dict[str, Any]:
    """A plan as JSON data."""
    return {
        "run_id": plan.run_id,
        "complete": plan.complete,
        "error": plan.error,
        "reused": [_data(each) for each in plan.reused],
        "run": [_data(each) for each in plan.runs],
        "may_run": [_data(each) for each in plan.may_run],
        "about_usd": plan.about,
        "unused": [_data(each) for each in plan.unused],
    }


def plan_text(plan: RunPlan) -> str:
    """A plan as text: reused effects, effects that run or may run with their costs, and unknown facts."""
    are = "is" if len(plan.reused) == 1 else "are"
    lines = [f"{counted(len(plan.reused), 'effect')} {are} answered from records, which saves {_cost(plan.reused)}"]
    if plan.runs:
        lines += _listed(plan.runs, "runs" if len(plan.runs) == 1 else "run", "by what such calls cost before")
        if plan.may_run:
            lines += _listed(plan.may_run, "may run", "if the results lead on as the old ones did")
            lines.append(f"together about {_cost([*plan.runs, *plan.may_run])}")
        lines.append("later calls depend on the results")
        if plan.unused:
            lines.append(f"{counted(len(plan.unused), 'more record')}, of {_cost(plan.unused)}, may answer then")
    elif plan.error is not None:
        lines.append(f"nothing runs; the program ends with {plan.error}")
    elif plan.complete:
        lines.append("nothing runs")
    if plan.complete and plan.unused:
        are = "is" if len(plan.unused) == 1 else "are"
        lines.append(f"{counted(len(plan.unused), 'record')}, of {_cost(plan.unused)}, {are} no longer needed")
    return "\n".join(lines)


def _listed(effects: Sequence[PlannedEffect], run: str, why: str) -> list[str]:
    head = f"{counted(len(effects), 'effect')} {run}, at about {_cost(effects)}, {why}:"
    return [head, *[f"  {each.path}  {each.kind} {each.name}{_location(each)}  {_cost([each])}" for each in effects]]


def _cost(effects: Sequence[PlannedEffect]) -> str:
    requests = sum(each.usage.requests for each in effects if each.usage is not None)
    tokens = sum(each.usage.total_tokens for each in effects if each.usage is not None)
    unknown = [each for each in effects if each.usage is None or each.cost is None]
    dollars = total([each.cost for each in effects if each.cost is not None])
    cost = f" and ${dollars:.4f}" if dollars else ""
    more = f", and {len(unknown)} of unknown cost" if unknown else ""
    return f"{counted(requests, 'model call')}, {tokens:,} tokens{cost}{more}"


def _location(effect: PlannedEffect) -> str:
    if effect.span is None:
        return ""
    line, column = effect.span.source.position(effect.span.start)
    return f" ({effect.span.source.name}:{line}:{column})"


def _data(effect: PlannedEffect) -> dict[str, Any]:
    location = _location(effect).strip(" ()") or None
    return {
        "path": effect.path,
        "kind": effect.kind,
        "name": effect.name,
        "recorded_at": effect.recorded_at,
        "place": location,
        "usage": plain(effect.usage),
        "cost_usd": effect.cost,
    }


_OPTIONS = ("app", "model", "base_url", "root", "tasks", "workflows", "allow", "session")
"""The options of a command that belong to the user's request, not to the flow."""


async def execute_durably(name: str, text: str, options: DurableOptions) -> int:
    """Start or resume a durable run of a program and print its value. Returns the exit code. Raises UsageError."""
    bindings = parse_bindings(options.bind or [])
    async with open_flow(options, durable=stored_at(options.db)) as flow, watching(flow, options) as failed:
        try:
            program = flow.compile(Source.of(name, text), bindings=bindings, allow=options.allow)
        except AgentflowError as error:
            raise (CompileFailed(error) if is_compile_error(error) else error) from error
        try:
            run_id = options.run_id or await _run_id(flow, name, options)
            if options.detach:
                return await _detach(flow, program, bindings, run_id, options)
            run = await flow.find_run(run_id)
            async with _kept(flow, run_id, options) as kept, _session(flow, options.session) as session:
                if run is not None and run.base is not None and run.program == program.source.digest:
                    handle = await flow.resume(run_id)
                else:
                    handle = await flow.start(
                        program,
                        bindings,
                        run_id=run_id,
                        allow=options.allow,
                        session=session,
                        purse=options.purse,
                        batch=options.batch_within or options.batch,
                    )
                if handle.status == "failed" and options.run_id is None:
                    handle = await flow.resume(run_id, bindings=None)
                kept.run_id = handle.run_id
                return await _end(flow, handle, options, failed)
        except AgentflowError as error:
            adopted = error.details.get("adopt")
            if isinstance(adopted, str):
                error.hint = (
                    f"{resume_line(adopted, options, program=name)}\n  adopts the program as it is now: what it has in common with"
                    " the run is not paid for again"
                )
            show_error(error, as_json=options.as_json or options.events)
            return exit_code(error)


async def execute_function_durably(reference: str, options: DurableOptions) -> int:
    """Start or resume a durable run of a Python workflow and print its value. Returns the exit code. Raises UsageError."""
    if options.allow is not None:
        raise UsageError("--allow limits a program text, and a Python workflow is your own code", hint="leave it out")
    function, options = function_asked(reference, options)
    async with open_flow(options, durable=stored_at(options.db)) as flow, watching(flow, options) as failed:
        function = function or function_named(flow, reference, f"--app {options.app}")
        arguments = arguments_for(function, options.bind or (), reference)
        try:
            run_id = options.run_id or await _run_id(flow, reference, options)
            if options.detach:
                return await _detach(flow, function(**arguments), None, run_id, replace(options, allow=None))
            async with _kept(flow, run_id, options) as kept, _session(flow, options.session) as session:
                handle = await flow.start(
                    function(**arguments),
                    run_id=run_id,
                    session=session,
                    purse=options.purse,
                    batch=options.batch_within or options.batch,
                )
                if handle.status == "failed" and options.run_id is None:
                    handle = await flow.resume(run_id)
                kept.run_id = handle.run_id
                return await _end(flow, handle, options, failed, "python")
        except AgentflowError as error:
            show_error(error, as_json=options.as_json or options.events)
            return exit_code(error)


async def _detach(
    flow: AgentFlow,
    program: Program | FlowCall[Any],
    bindings: dict[str, Any] | None,
    run_id: str,
    options: DurableOptions,
) -> int:
    """Leave a run to workers, and print its id."""
    handle = await flow.start(
        cast(Any, program),
        bindings,
        run_id=run_id,
        allow=options.allow,
        priority=options.priority,
        tenant=options.tenant,
        purse=options.purse,
        batch=options.batch_within or options.batch,
        where="workers",
        queue=options.queue,
    )
    if options.as_json or options.events:
        write_json({"ok": True, "run_id": handle.run_id, "status": handle.status})
    else:
        write_out(clean(handle.run_id) + "\n")
    return Exit.OK


async def resume_run(run_id: str, options: ResumeOptions) -> int:
    """Resume a durable run, or its edited program, and print its value. Returns the exit code. Raises UsageError."""
    program = None if options.program is None else Source.of(*read_program(options.program))
    bindings, overrides = parse_bindings(options.bind or []), parse_overrides(options.override or [])
    chosen = cast("OnInflight | None", options.on_inflight)  # validated by resume
    if options.plan:
        return await _plan(
            options, lambda flow: flow.plan(run_id, program=program, overrides=overrides, bindings=bindings)
        )
    return await _change(
        run_id,
        options,
        lambda flow: flow.resume(run_id, program=program, overrides=overrides, bindings=bindings, on_inflight=chosen),
    )


async def fork_run(run_id: str, options: ForkOptions) -> int:
    """Repeat a durable run from one effect on, and print its value. Returns the exit code. Raises UsageError."""
    if not options.at:
        raise UsageError(
            "a fork needs the effect to begin at",
            hint=f"--at PATH; agentflow resume {run_id} --plan --json lists the paths",
        )
    bindings, overrides = parse_bindings(options.bind or []), parse_overrides(options.override or [])
    if options.plan:
        return await _plan(
            options, lambda flow: flow.plan(run_id, at=options.at, overrides=overrides, bindings=bindings)
        )
    return await _change(
        run_id,
        options,
        lambda flow: flow.fork(run_id, options.at, as_run=options.run_id, overrides=overrides, bindings=bindings),
    )


async def cancel_run(run_id: str, options: CancelOptions) -> int:
    """Cancel a durable run. Returns the exit code. Raises UsageError."""
    async with open_flow(options, durable=stored_at(options.db)) as flow, watching(flow, options):
        try:
            await flow.cancel(run_id)
            run = await flow.find_run(run_id)
        except AgentflowError as error:
            show_error(error, as_json=options.as_json or options.events)
            return exit_code(error)
    status = "cancelled" if run is None else run.status
    if options.as_json or options.events:
        write_json({"ok": True, "run_id": run_id, "status": status})
    else:
        write_out(clean(f"{run_id} is {status}") + "\n")
    return Exit.OK


async def _plan(options: ChangeOptions, make: Callable[[AgentFlow], Awaitable[RunPlan]]) -> int:
    async with open_flow(options, durable=stored_at(options.db)) as flow:
        try:
            plan = await make(flow)
        except AgentflowError as error:
            show_error(error, as_json=options.as_json)
            return exit_code(error)
    if options.as_json:
        write_json(plan_data(plan))
    else:
        say(plan_text(plan), sys.stdout)
    return Exit.OK


async def _change(run_id: str, options: ChangeOptions, begin: Callable[[AgentFlow], Awaitable[DurableRun]]) -> int:
    async with open_flow(options, durable=stored_at(options.db)) as flow, watching(flow, options) as failed:
        try:
            async with _kept(flow, run_id, options) as kept:
                handle = await begin(flow)
                kept.run_id = handle.run_id
                if handle.run_id != run_id:
                    how = "has a fork," if isinstance(options, ForkOptions) else "continues as"
                    say(f"{run_id} {how} {handle.run_id}")
                return await _end(flow, handle, options, failed)
        except AgentflowError as error:
            show_error(error, as_json=options.as_json or options.events)
            return exit_code(error)


def parse_overrides(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Parse ``task.field=value`` options by task; values are JSON or text, ``@file`` is the text of a file. ``@file.toml`` alone is a file of
    overrides. Raises UsageError, JournalError."""
    overrides: dict[str, dict[str, Any]] = {}
    for text in texts:
        if text.startswith("@"):
            from agentflow.durable.override_files import read_overrides

            for task, fields in read_overrides(Path(text[1:])).items():
                overrides.setdefault(task, {}).update(fields)
            continue
        name, _, value = text.partition("=")
        task, _, field = name.rpartition(".")
        if not task or not field or "=" not in text:
            raise UsageError(
                f"'{text}' is not an override",
                hint="write --set task.field=value, for example review.model=x, or --set @better.toml",
            )
        parsed = read_program(value[1:])[1] if value.startswith("@") else parse_bindings([f"v={value}"])["v"]
        overrides.setdefault(task, {})[field] = parsed
    return overrides


async def _end(
    flow: AgentFlow,
    handle: DurableRun,
    options: DurableOptions | ChangeOptions,
    failed: FailedTexts,
    surface: Surface | None = None,
) -> int:
    """Wait until a run ends or suspends, print its outcome, and report on standard error the calls that records saved."""
    try:
        if await handle.wait() == "waiting":
            return await show_waiting(flow, handle, options)
        result = await handle.result()
    except WorkflowError as error:
        error.hint = error.hint or raised_at(error.__cause__)
        raise
    finally:
        if handle.replayed:
            saved = handle.saved
            cost = f" and ${handle.saved_cost:.4f}" if handle.saved_cost else ""
            say(
                f"{handle.run_id}: {counted(handle.replayed, 'effect')} {'was' if handle.replayed == 1 else 'were'} answered"
                f" from records, which saved {counted(saved.requests, 'model call')}, {saved.total_tokens:,} tokens{cost}"
            )
    run = None if surface is not None else await flow.find_run(handle.run_id)
    surface = surface or ("sexp" if run is None else Source.of(run.name, "").surface)
    return show_result(flow, result, options, failed, surface)


@dataclass
class _Kept:
    """The run that a command works on: the one it names, or the generation or fork that it has started."""

    run_id: str


@contextlib.asynccontextmanager
async def _kept(flow: AgentFlow, run_id: str, options: DurableOptions | ChangeOptions) -> AsyncGenerator[_Kept, None]:
    """A block that prints the command to resume the run if it is interrupted."""
    kept = _Kept(run_id)
    try:
        yield kept
    except asyncio.CancelledError:
        line = flow.redact(resume_line(kept.run_id, options))
        say(f"{kept.run_id} is kept: the same command resumes it, or\n  {line}")
        raise


async def _run_id(flow: AgentFlow, name: str, options: DurableOptions) -> str:
    """The id of the run that a command means: that of its path, bindings and options, or the next one after a run that ended.

    If the run continued as an edited program, it is the id of its last generation.
    """
    base = _base_id(name, options)
    number = 1
    while True:
        run_id = base if number == 1 else f"{base}-{number}"
        run = await flow.find_run(run_id)
        while run is not None and run.successor is not None:
            run = await flow.find_run(run.successor)
        if run is None or run.status not in ("done", "cancelled"):
            return run_id if run is None else run.run_id
        number += 1


def _session(flow: AgentFlow, name: str | None) -> contextlib.AbstractAsyncContextManager[Session | None]:
    return contextlib.nullcontext() if name is None else flow.session(name)


def _base_id(name: str, options: DurableOptions) -> str:
    asked = [os.path.abspath(name), sorted(options.bind or []), [getattr(options, each) for each in _OPTIONS]]
    mark = blake2b(to_json(asked).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    stem = "".join(each if each.isascii() and each.isalnum() else "-" for each in Path(name).stem)[:60].strip("-")
    return f"{stem or 'run'}-{mark}"
