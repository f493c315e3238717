"""``agentflow schedule``: programs that workers run at certain times."""

from __future__ import annotations

from pathlib import Path

from agentflow.cli.shared.common import UsageError, moment, parse_bindings, print_rows, read_program
from agentflow.cli.shared.host_options import ScheduleOptions
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.state import stored_at
from agentflow.core.data.source import Source
from agentflow.core.events.journal_rows import Schedule


async def schedule(cron: str | None, file: str | None, options: ScheduleOptions) -> int:
    """Store, list or remove schedules, as ``options`` ask for. Returns the exit code. Raises UsageError."""
    if (cron is None) != (file is None) or (cron is not None and options.remove is not None):
        raise UsageError(
            "a schedule needs a cron expression and a program", hint="agentflow schedule '0 7 * * *' FILE --db URL"
        )
    if options.db is None and options.app is None:
        raise UsageError(
            "schedules need a PostgreSQL database, which workers share",
            hint="agentflow schedule '0 7 * * *' FILE --db postgresql://user@host/database",
        )
    async with open_flow(options, durable=stored_at(options.db), approve=None, answer=None) as flow:
        if cron is not None and file is not None:
            name, text = read_program(file)
            stored = await flow.schedule(
                cron,
                Source.of(name, text),
                parse_bindings(options.bind or []),
                name=options.name or Path(name).stem,
                zone=options.zone,
                allow=options.allow,
                queue=options.queue,
                priority=options.priority,
                tenant=options.tenant or "",
                purse=options.purse,
            )
            schedules = [stored]
        elif options.remove is not None:
            if not await flow.store.unschedule(options.remove):
                raise UsageError(
                    f"there is no schedule '{options.remove}'", hint="agentflow schedule --db URL lists them"
                )
            schedules = []
        else:
            schedules = await flow.store.schedules()
    nothing = "removed" if options.remove is not None else "nothing is scheduled"
    return print_rows(schedules, _line, nothing, as_json=options.as_json)


def _line(each: Schedule) -> str:
    return f"{moment(each.next)}  {each.name}  {each.cron} ({each.zone})  {each.program}  {each.last or ''}"
