"""Builds the command that resumes a durable run in another process, with the options of the current command."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from agentflow.cli.shared.application import option_name
from agentflow.cli.shared.options import ChangeOptions, DatabaseOptions, DurableOptions, FlowOptions, ResumeOptions

_REPEATED = [
    *fields(DatabaseOptions),
    *fields(FlowOptions),
    *(each for each in fields(ResumeOptions) if each.name == "on_inflight"),
]
"""Options that locate the run and configure its flow; all others are stored with the run or apply to one command only."""


def resume_line(run_id: str, options: DurableOptions | ChangeOptions, *, program: str | None = None) -> str:
    """The command that resumes a run with the flow of ``options``; ``program`` names a file whose current text to use."""
    words = ["agentflow", "resume", run_id, *(() if program is None else ("--program", program))]
    for field in _REPEATED:
        value: Any = getattr(options, field.name, field.default)
        if value == field.default:
            continue
        for each in [value] if isinstance(value, str | int | float) else value:
            words += [option_name(field.name), str(each)]
    return shlex.join(words)
