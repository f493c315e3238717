"""What traces cost the runs that nobody traces: nothing, whether OpenTelemetry is installed or not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import asyncio, gc, json, sys
from collections import Counter

if sys.argv[1] == "absent":
    sys.modules["opentelemetry"] = None  # as where it is not installed
from agentflow import AgentFlow, Limits, ScriptedProvider

if sys.argv[1] == "imported":
    import opentelemetry.trace
    from agentflow import OpenTelemetry

PROGRAM = '''
(defatom ask (params (q string)) (instructions "{{q}}") (tools (look)))
(list (pmap (lambda (i) (content (ask (q "one")))) (range 10) 2) (race 1 1) (retry 2 (look (at 1))))
'''


async def look(at: int) -> str:
    '''Look at something.'''
    return "seen"


counts, least = Counter(), Counter()


def count(frame, event, argument):
    file = frame.f_code.co_filename
    if event == "call" and ("/agentflow/" in file or "/opentelemetry/" in file):
        counts[f"{file.rpartition('/agentflow/')[2]}:{frame.f_code.co_name}"] += 1


async def main():
    flow = AgentFlow(provider=ScriptedProvider(lambda request: "yes"), tools=[look], limits=Limits(memory=None))
    async with flow:
        for number in range(-3, 12):
            counts.clear()
            gc.disable()
            sys.setprofile(count if number >= 0 else None)
            try:
                await flow.run(PROGRAM)
            finally:
                sys.setprofile(None)
                gc.enable()
            if number >= 0:
                least.update(counts) if not number else least.__iand__(counts)


asyncio.run(main())
loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "opentelemetry" and sys.modules[name])
print(json.dumps([least, loaded, [name for name in sys.modules if name.startswith("agentflow.observe")]]))
"""


def probe(tmp_path: Path, state: str) -> tuple[dict[str, int], list[str], list[str]]:
    """Package calls of a run by function, and which modules of OpenTelemetry and of our observers are loaded after it."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, state], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    counts, loaded, ours = json.loads(done.stdout)
    return counts, loaded, ours


@pytest.mark.slow
def test_a_run_that_nobody_traces_does_not_know_of_opentelemetry(tmp_path: Path) -> None:
    """With the package importable a run makes the calls that it makes without, none of them the traces', and loads nothing."""
    pytest.importorskip("opentelemetry.trace")
    absent, _, _ = probe(tmp_path, "absent")
    present, loaded, ours = probe(tmp_path, "present")
    imported, _, _ = probe(tmp_path, "imported")
    assert loaded == [] and not {"agentflow.observe.otel", "agentflow.observe.event_spans"} & {*ours}
    assert sum(absent.values()) > 200
    for counts in (present, imported):
        assert not [
            name
            for name in counts
            if "opentelemetry" in name or name.startswith(("observe/otel", "observe/event_spans"))
        ]
        assert abs(sum(counts.values()) - sum(absent.values())) <= 0.02 * sum(absent.values())  # workers begin by time
