"""``explore``: the possible outcomes of a program, without models, tools or real waits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentflow.cli.shared.common import Exit, UsageError, parse_bindings, read_program, write_json, write_out
from agentflow.cli.shared.options import ExploreOptions
from agentflow.cli.shared.tool_files import tool_files
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.exploration.findings import Exploration, Finding
from agentflow.lib.text.safe_text import clean
from agentflow.testing.exploring import explore_source, rehearse, setting_of
from agentflow.testing.written import WrittenFile, load_tool, names

if TYPE_CHECKING:
    from agentflow.app import AgentFlow

_ASSUMED = re.compile(r"\s*([^\s=]+?)\s+in\s+(.+)")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")


async def explore_file(path: str, options: ExploreOptions) -> int:
    """Explore a program and print the findings. Returns exit code 3 if an error or an endless loop can be reached."""
    if options.write is not None and path == "-":
        raise UsageError("--write needs a program file, which the tests refer to", hint="write the program to a file")
    name, text = read_program(path)
    source = Source.of(name, text)
    bindings = parse_bindings(options.bind or [])
    files = tool_files(options.tools or ())
    tools = [load_tool(tool, file) for tool, file in files.items()]
    flow = _flow(options)
    try:
        setting = setting_of(bindings, tools=tools, flow=flow, assume=parse_assumptions(options.assume or ()))
        explored = await explore_source(source, setting, options.runs)
        counted = explored.found if options.strict else explored.errors
        written: dict[Finding, str] = {}
        if options.write is not None:
            file = WrittenFile(
                program=Path(path), directory=Path(options.write), bindings=bindings, tools=files, app=options.app
            )
            sure = [each for each in counted if await _happens_again(source, each, bindings, tools, flow)]
            if sure:
                file.write(sure)
            written = {each: f"{file.path}::{test}" for each, test in zip(sure, names(sure), strict=True)}
    finally:
        if flow is not None and options.app is None:
            await flow.aclose()
    if options.as_json:
        findings = [{**each.to_dict(), "test": written.get(each)} for each in explored.found]
        write_json({"ok": not counted, "file": name, **explored.to_dict(), "found": findings})
    else:
        write_out(clean(rendered(name, explored, written, strict=options.strict)))
    return Exit.DIAGNOSTICS if counted else Exit.OK


def rendered(name: str, explored: Exploration, written: dict[Finding, str], *, strict: bool) -> str:
    """The findings as text."""
    reached = len(explored.arms) - len(explored.missed)
    lines = [f"{name}: {explored.runs} runs, {reached} of {len(explored.arms)} arms"]
    for finding in explored.found:
        lines.append(f"error: {finding}" if strict and finding.kind == "unhandled" else str(finding))
        if finding in written:
            lines.append(f"  test written: {written[finding]}")
    lines += [f"not reached: {arm}" for arm in explored.missed]
    lines += [f"warning: {warning}" for warning in explored.warnings]
    return "\n".join(lines) + "\n"


def parse_assumptions(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse ``grade in 0..10`` and ``kind in bug,feature`` to rules of a JSON Schema, by name. Raises UsageError."""
    assumed: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _ASSUMED.fullmatch(text)
        if match is None:
            raise UsageError(
                f"'{text}' is not an assumption",
                hint="write --assume 'grade in 0..10', or --assume 'kind in bug,feature'",
            )
        ends = _RANGE.fullmatch(match[2])
        if ends is not None:
            least, most = [float(end) if "." in end else int(end) for end in ends.groups()]
            if least > most:
                raise UsageError(
                    f"no number is in {match[2].strip()}", hint=f"write --assume '{match[1]} in {ends[2]}..{ends[1]}'"
                )
            assumed[match[1]] = {"minimum": least, "maximum": most}
        else:
            assumed[match[1]] = {"enum": [word.strip() for word in match[2].split(",")]}
    return assumed


def _flow(options: ExploreOptions) -> AgentFlow | None:
    """The flow with the tasks and tools that the program calls. It is not entered, so nothing is connected."""
    if options.app is not None:
        from agentflow.cli.shared.application import load_flow

        if options.tasks is not None:
            raise UsageError("--tasks and --app: the module itself configures its flow", code="cli/app")
        return load_flow(options.app)
    if options.tasks is None:
        return None
    from agentflow.app import AgentFlow

    return AgentFlow("offline", tasks=options.tasks)


async def _happens_again(source: Source, finding: Finding, bindings: Any, tools: Any, flow: Any) -> bool:
    """Whether a finding recurs with its answers: tests that would not show the fault are not written."""
    try:
        await rehearse(source, finding.script, bindings, tools=tools, flow=flow)
    except AgentflowError as error:
        return finding.kind != "error" or (error.code, error.span) == (finding.code, finding.span)
    return False
