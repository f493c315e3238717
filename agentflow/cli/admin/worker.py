"""``agentflow worker``: executes runs that others started."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from agentflow.cli.shared.application import check_durable, load_flow
from agentflow.cli.shared.common import Exit, UsageError
from agentflow.cli.shared.host_options import WorkerOptions
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import JournalError

if TYPE_CHECKING:
    from agentflow.app import AgentFlow

MEASURE_S = 15.0
"""Seconds between two measurements of the queues."""
_EXTRA = "agentflow worker --db postgresql://user@host/database"


async def work(options: WorkerOptions) -> int:
    """Execute runs of others until the process is asked to stop. Returns the exit code. Raises UsageError."""
    queues = parse_queues(options.queue or ["default"])
    if options.app is not None:
        if options.db is not None:
            raise UsageError(
                f"--db and --app: the runs are those of the database that the flow of {options.app} stores runs in",
                code="cli/app",
                hint="leave --db out; for a database of each place let the module read it: durable=os.environ['DATABASE_URL']",
            )
        check_durable(load_flow(options.app), options.app)
    elif options.db is None:
        raise UsageError("a worker needs the PostgreSQL database of the runs", hint=_EXTRA)
    async with open_flow(options, durable=options.db, approve=None, answer=None) as flow:
        stop = asyncio.Event()
        _stop_at_signals(stop)
        names = ", ".join(name if not limit else f"{name} (at most {limit})" for name, limit in queues.items())
        say(f"working on {names}, {options.slots} runs at a time")
        async with asyncio.TaskGroup() as group:
            measuring = group.create_task(_measure(flow)) if options.otel else None
            await flow.work(queues, slots=options.slots, stop=stop, drain_s=options.drain)
            if measuring is not None:
                measuring.cancel()
    return Exit.OK


async def _measure(flow: AgentFlow) -> None:
    """Write spans and metrics of runs, and measure the queues regularly."""
    from agentflow.observe.otel import FleetCounters, OpenTelemetry, QueueGauges

    flow.subscribe(OpenTelemetry())
    gauges, counters = QueueGauges(), FleetCounters()
    while True:
        counters.record(flow.store.counts())
        try:
            gauges.record(await flow.store.load())
        except JournalError as error:
            say(f"the queues cannot be measured: {error.message}")
        await asyncio.sleep(MEASURE_S)


def parse_queues(texts: list[str]) -> dict[str, int]:
    """Parse ``name`` or ``name:number`` options by name; 0 without a number. Raises UsageError."""
    queues: dict[str, int] = {}
    for text in texts:
        name, colon, number = text.partition(":")
        if not name or (colon and not (number.isascii() and number.isdigit() and int(number) > 0)):
            raise UsageError(f"--queue {text}: a queue is NAME or NAME:NUMBER", hint="for example --queue slow:5")
        queues[name] = int(number or 0)
    return queues


def _stop_at_signals(stop: asyncio.Event) -> None:
    """Set ``stop`` on the first SIGTERM or Ctrl-C; the second ends the process at once."""
    if sys.platform == "win32":
        return  # Ctrl-C cancels there, and another worker takes the runs over
    loop = asyncio.get_running_loop()

    def told() -> None:
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
        say("no more runs are started; a second signal ends the active ones")

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, told)
