"""Shows the waits of a suspended durable run, and sends answers to it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from agentflow.cli.shared.amounts import counted
from agentflow.cli.shared.application import option_name
from agentflow.cli.shared.asking import parse_value, read_answer
from agentflow.cli.shared.common import Exit, exit_code, moment, show_error, write_json
from agentflow.cli.shared.options import DatabaseOptions, FlowOptions
from agentflow.cli.shared.run_options import ChangeOptions, DurableOptions, ResumeOptions
from agentflow.cli.shared.state import stored_runs
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.batches import BatchWait
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.values import plain, to_json
from agentflow.core.events.questions import Question

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.durable.handle import DurableRun


_REPEATED = [
    *fields(DatabaseOptions),
    *fields(FlowOptions),
    *(each for each in fields(ResumeOptions) if each.name == "on_inflight"),
]
"""Options that locate the run and configure its flow; all others are stored with the run or apply to one command only."""


def resume_line(run_id: str, options: DurableOptions | ChangeOptions, *, program: str | None = None) -> str:
    """The command that resumes a run with the flow of ``options``; ``program`` names a file to use the current text of."""
    words = ["agentflow", "resume", run_id, *(() if program is None else ("--program", program))]
    for field in _REPEATED:
        value: Any = getattr(options, field.name, field.default)
        if value == field.default:
            continue
        for each in [value] if isinstance(value, str | int | float) else value:
            words += [option_name(field.name), str(each)]
    return shlex.join(words)


_IN_BATCHES = {
    "none": "in no batch yet",
    "new": "in a batch that is being sent",
    "unsure": "in a batch that was perhaps sent: the vendor's list cannot tell yet, and nothing is sent until it can",
    "sent": "in a batch that the vendor has",
    "cancelling": "in a batch that is cancelled, because its time is over",
}


def batch_line(wait: BatchWait) -> str:
    """A line about model calls that wait for a batch."""
    calls, due = counted(wait.calls, "call"), moment(wait.due)
    return f"{calls} of {wait.model}, {_IN_BATCHES[wait.state]}; without an answer by {due}, made as an ordinary call"


async def show_waiting(flow: AgentFlow, handle: DurableRun, options: DurableOptions | ChangeOptions) -> int:
    """Print the waits of a run, with the commands that answer them. Returns the exit code."""
    info = await flow.find_run(handle.run_id)
    batches = () if info is None else info.batches
    db = options.db if options.app is None else flow.database  # agentflow runs send has no option --app
    questions = flow.redact([_described(each) for each in handle.waiting])
    if options.as_json or options.events:
        body = {
            "ok": False,
            "status": "waiting",
            "run_id": handle.run_id,
            "waiting": questions,
            "wake_at": handle.wake_at,
            **({"batches": [plain(each) for each in batches]} if batches else {}),
        }
        write_json({**({"type": "result"} if options.events else {}), **body})
        return Exit.WAITING
    for each, asked in zip(questions, handle.waiting, strict=True):
        schema: Mapping[str, Any] | None = each["schema"]
        boolean = schema is not None and schema.get("type") == "boolean"
        wanted = "" if schema is None else f"\n  the answer must fit {to_json(schema)}"
        answer = flow.redact(answer_line(asked, "true" if boolean else "VALUE", db))
        say(f"{each['question']}{wanted}\n  {answer}")
    for each in batches:
        say(batch_line(each))
    resume = flow.redact(resume_line(handle.run_id, options))
    if handle.wake_at is not None:
        when = moment(handle.wake_at)
        say(f"{handle.run_id} waits until {when}")
    say(f"{handle.run_id} waits and is kept; this resumes it:\n  {resume}")
    return Exit.WAITING


async def send_answer(run_id: str, key: str, value: str, url: str | None, *, as_json: bool) -> int:
    """Answer a question of a durable run. Returns the exit code. Raises UsageError."""
    async with stored_runs(url) as flow:
        try:
            asked = next((each for each in await flow.questions(run_id) if each.key == key), None)
            await flow.send(run_id, key, parse_value(value) if asked is None else read_answer(asked, value))
            left = await flow.questions(run_id)
        except AgentflowError as error:
            show_error(error, as_json=as_json)
            return exit_code(error)
    if as_json:
        write_json({"ok": True, "run_id": run_id, "waiting": [_described(each) for each in left]})
        return Exit.OK
    rest = f"; {len(left)} more to answer" if left else ""
    resume = shlex.join(["agentflow", "resume", run_id, *_at(url)])
    say(
        f"answered{rest}; this resumes it:\n  {resume}\n"
        "add the options of the original command, such as --app, --model or --root, as printed when the run was suspended",
        sys.stdout,
    )
    return Exit.OK


def _described(question: Question) -> dict[str, Any]:
    return {
        "key": question.key,
        "question": question.question,
        "schema": question.schema,
        "reason": question.reason,
        "path": question.path,
        **({} if question.external is None else {"external": plain(question.external)}),
        **({} if question.call is None else {"call": plain(question.call)}),
        **({} if question.signal is None else {"signal": question.signal}),
    }


def answer_line(question: Question, answer: str, db: str | None) -> str:
    """The command that answers a question of a run stored in ``db``, or sends the signal that it waits for; None is the command's
    own database."""
    words = (
        ["send", question.run_id, question.key]
        if question.signal is None
        else ["signal", question.run_id, question.signal]
    )
    return shlex.join(["agentflow", "runs", *words, answer, *_at(db)])


def _at(db: str | None) -> list[str]:
    return [] if db is None else ["--db", db]
