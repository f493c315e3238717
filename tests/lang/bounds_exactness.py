"""How near the bounds of programs are to what they do: the programs of the manual and of the examples that have effects.

    python tests/lang/bounds_exactness.py
    python tests/lang/bounds_exactness.py --surface python

Each program runs with several models; of each task, tool and lookup the most calls of any run are compared with the bound.
Sizes that a bound depends on are those of the lists in the answers.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import collections
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.source import Source, Surface
from agentflow.core.events.events import ContextFinished, Event, TaskFinished, TaskStarted, ToolFinished, ToolStarted
from agentflow.core.events.questions import Question
from agentflow.run.bounds.estimate import Bounds
from tests.spec.test_manual import PAGES, add_up, broken, shout
from tests.spec_python.test_python_manual import PAGES as PYTHON_PAGES
from tests.support.manual import blocks
from tests.support.python_manual import python_blocks

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(steps=20_000, effects=500, wall_s=60.0)
"""What ends a run are steps and effects, never how busy the machine is."""


@dataclass
class Case:
    """A program with effects: its ``name``, text, bindings, and what models say."""

    name: str
    text: str
    bindings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    replies: tuple[list[str], ...] = ()
    surface: Surface = "sexp"

    @property
    def source(self) -> Source:
        """The program as a text of its surface."""
        return Source.unnamed(self.text, self.surface)


@dataclass
class Seen:
    """The most calls of each effect in any run, and the longest list of each name in answers."""

    calls: collections.Counter[str] = field(default_factory=collections.Counter[str])
    lengths: dict[str, int] = field(default_factory=dict[str, int])

    def note_lengths(self, name: str, value: Any) -> None:
        """Keep the length of a list, and of those within it."""
        if isinstance(value, list | str | dict):
            self.lengths[f"len({name})"] = max(self.lengths.get(f"len({name})", 0), len(value))
        if isinstance(value, list):
            for each in value:
                self.note_lengths(f"{name}.*", each)
        elif isinstance(value, dict):
            for key, each in value.items():
                self.note_lengths(f"{name}.{key}", each)


def manual(surface: Surface) -> Iterator[Case]:
    """The programs of the manual: of each block, what it comes to."""
    read, pages = (blocks, PAGES) if surface == "sexp" else (python_blocks, PYTHON_PAGES)
    for page in pages:
        for block in read(page):
            programs = [each.program for each in block.expectations]
            if programs:
                yield Case(str(block), max(programs, key=len), {}, (list(block.replies),), surface)


GIVEN: Mapping[str, Mapping[str, Any]] = {
    "explain_file.sexp": {"question": "What is it?"},
    "explain_repo.py": {"question": "What is it?"},
    "explain_repo.sexp": {"question": "What is it?"},
    "improve_text.py": {"topic": "tides"},
    "improve_text.sexp": {"topic": "tides"},
    "overview.py": {"directory": "."},
    "streaming.py": {"cities": ["Rome", "Oslo"]},
    "serve.py": {"first": "Chile", "second": "Peru"},
    "write_code.py": {"wanted": "a function", "tests": "assert True"},
}
"""What the programs of examples are given."""


def examples(surface: Surface) -> Iterator[Case]:
    """The programs of the examples, with what a run of each is given."""
    if surface == "python":
        for path in sorted((ROOT / "examples" / "texts").glob("*.py")):
            yield Case(path.name, path.read_text("utf-8"), GIVEN[path.name], surface="python")
        return
    for path in sorted((ROOT / "examples").glob("*.*")):
        if path.suffix == ".sexp":
            yield Case(path.name, path.read_text("utf-8"), GIVEN.get(path.name, {}))
        elif path.suffix == ".py":
            for number, node in enumerate(ast.walk(ast.parse(path.read_text("utf-8")))):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and node.value.strip().startswith("(")
                ):
                    yield Case(f"{path.name}#{number}", node.value, GIVEN.get(path.name, {}))


def filled(schema: Mapping[str, Any], number: int) -> Any:
    """A value of a schema, its numbers and the lengths of its lists as ``number`` says."""
    kind, choices = schema.get("type"), schema.get("enum")
    if choices:
        return choices[min(number, len(choices) - 1)]
    if kind == "object":
        return {key: filled(each, number) for key, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [filled(schema.get("items", {}), number)] * min(number, schema.get("maxItems", 3), 3)
    return {"integer": number, "number": number, "boolean": number > 0, "null": None}.get(
        str(kind), "yes" if number else "no"
    )


def model(number: int) -> Any:
    """A model that says the same every time: what fits the schema, if it is given one."""

    def reply(request: ModelRequest) -> str:
        schema = request.output_schema
        return "yes" if number else "no" if schema is None else json.dumps(filled(schema, number))

    return reply


async def watch(case: Case, replies: Any, seen: Seen, root: Path, *, works: bool = True) -> None:
    """Run a program once and keep what it did; its tools fail unless it ``works``."""
    calls: collections.Counter[str] = collections.Counter()

    def note(event: Event) -> None:
        if isinstance(event, TaskStarted):
            calls[f"task:{event.name}"] += 1
        elif isinstance(event, ToolStarted):
            calls[f"tool:{event.name}"] += 1
        elif isinstance(event, ContextFinished):
            calls["context"] += 1
            seen.note_lengths("context", list(event.paths))
        elif isinstance(event, TaskFinished | ToolFinished) and event.result is not None and not event.result.failed:
            result = event.result
            seen.note_lengths(event.name, result.content if result.parsed_content is None else result.parsed_content)

    def answer(question: Question) -> Any:
        calls["ask:ask-human"] += 1
        return "yes" if question.schema is None else filled(question.schema, 1)

    async with flow_of(root, ScriptedProvider(replies), answer, works=works) as flow:
        flow.subscribe(note)
        with contextlib.suppress(AgentflowError):
            await flow.run(case.source, bindings=dict(case.bindings), limits=LIMITS)
    for key, count in calls.items():
        seen.calls[key] = max(seen.calls[key], count)


def flow_of(
    root: Path, provider: ScriptedProvider | None = None, answer: Any = None, *, works: bool = True
) -> AgentFlow:
    """A flow with the tools that the programs call."""

    async def fail(**arguments: Any) -> str:
        raise ValueError("it does not work")

    tools: list[Any] = [shout, add_up, broken]
    flow = AgentFlow(
        None if provider else "offline", provider=provider, root=root, tools=tools, notes="session", answer=answer
    )
    if not works:
        for name in ("shout", "add_up"):
            flow.tools.register({"name": name, "input_schema": {}}, lambda arguments: fail(**arguments))
    return flow


async def compared(case: Case, root: Path) -> tuple[str, str] | None:
    """``exact``, ``over``, ``below`` or ``unbounded``, and the difference; None for a program that had no effect, or is refused."""
    async with flow_of(root) as flow:
        try:
            said = await flow.bounds(case.source, bindings=dict(case.bindings))
        except AgentflowError:
            return None
    if not said.calls and not said.unbounded:
        return None
    seen = Seen()
    for replies in (*case.replies, model(0), model(9)):
        await watch(case, replies, seen, root)
    await watch(case, model(1), seen, root, works=False)
    return verdict(said, seen) if seen.calls else None


def verdict(said: Bounds, seen: Seen) -> tuple[str, str]:
    """How a bound compares with what was seen."""
    if said.unbounded:
        return "unbounded", "; ".join(dict.fromkeys(each.reason for each in said.unbounded))
    differences: list[str] = []
    for key, ran in seen.calls.items():
        if key not in said.calls and not (key == "context" and any(each.startswith("context:") for each in said.calls)):
            return "below", f"{key}: {ran} ran, and none was said"
    for key, bound in said.calls.items():
        ran = seen.calls["context" if key.startswith("context:") else key]
        most = bound.at({size: seen.lengths.get(size, 0) for size in bound.sizes}) or 0
        if ran > most:
            return "below", f"{key}: {ran} ran, and at most {most} ({bound}) were said"
        if ran < most:
            differences.append(f"{key}: {ran} ran, {most} ({bound}) were said")
    return ("over", "; ".join(differences)) if differences else ("exact", "")


async def measured(surface: Surface = "sexp") -> dict[str, tuple[str, str]]:
    """By program of a surface that has effects, how its bound compares with what it did."""
    outcomes: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "readme.md").write_text("# A project\n\nIt does things.\n", "utf-8")
        for case in (*examples(surface), *manual(surface)):  # which write files
            outcome = await compared(case, root)
            if outcome is not None:
                outcomes[case.name] = outcome
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--surface", choices=("sexp", "python"), default="sexp")
    outcomes = asyncio.run(measured(parser.parse_args().surface))
    print(
        json.dumps(collections.Counter(kind for kind, _ in outcomes.values())), len(outcomes), "programs with effects"
    )
    for name, (kind, difference) in outcomes.items():
        if kind != "exact":
            print(f"{kind:10}{name}: {difference}")


if __name__ == "__main__":
    main()
