"""Findings of an exploration as pytest tests, each of which fails as long as the program does what was found."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agentflow.core.errors import ConfigurationError
from agentflow.core.ports import Tool
from agentflow.exploration.answers import Answer
from agentflow.exploration.findings import Finding
from agentflow.handler.tools import tool_from_function

MARK = "Written by `agentflow explore"
"""How the docstring of a written file begins: a file that begins otherwise is somebody's own."""
_LONGEST_NAME = 60


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """What a file of tests is about.

    ``program`` is the file of the program, ``directory`` where the tests will stand; ``tools`` are files of Python by the names of the
    tools in them, ``app`` the ``MODULE:FLOW`` whose tasks and tools the program calls.
    """

    program: Path
    directory: Path
    bindings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tools: Mapping[str, Path] = field(default_factory=dict[str, Path])
    app: str | None = None

    @property
    def path(self) -> Path:
        """The file of tests."""
        stem = re.sub(r"\W+", "_", self.program.stem).strip("_") or "program"
        return self.directory / f"test_{stem}_explored.py"

    def text(self, findings: Sequence[Finding]) -> str:
        """The file's text: a test for each finding, named as :func:`names` says."""
        answered = any([finding.script for finding in findings])
        imports = [*(["Answer"] if answered else []), *(["load_tool"] if self.tools else []), "rehearse"]
        lines = [
            f'"""{MARK} {self.program.name}`: each of these tests fails as long as the program does so."""',
            "",
            "import asyncio",
            "from pathlib import Path",
            "",
        ]
        options = ["bindings=BINDINGS"]
        if self.app is not None:
            module, _, flow = self.app.partition(":")
            lines += [f"from {module} import {flow or 'flow'}"]
            options.append(f"flow={flow or 'flow'}")
        lines += [f"from agentflow.testing import {', '.join(imports)}", "", "HERE = Path(__file__).parent"]
        lines += [f"PROGRAM = HERE / {literal(self._relative(self.program))}", f"BINDINGS = {literal(self.bindings)}"]
        if self.tools:
            loaded = [
                f"load_tool({literal(name)}, HERE / {literal(self._relative(path))})"
                for name, path in self.tools.items()
            ]
            lines.append(f"TOOLS = [{', '.join(loaded)}]")
            options.append("tools=TOOLS")
        for name, finding in zip(names(findings), findings, strict=True):
            said = str(finding).replace("\\", "\\\\").replace('"""', "'''")
            lines += [
                "",
                "",
                f"def {name}() -> None:",
                f'    """{said} """' if said.endswith('"') else f'    """{said}"""',
            ]
            answers = [f"        {_written(answer)}," for answer in finding.script]
            lines += ["    answers = [", *answers, "    ]"] if answers else []
            given = f"{'answers' if answers else '[]'}, {', '.join(options)}"
            lines.append(f"    asyncio.run(rehearse(PROGRAM, {given}))")
        return "\n".join(lines) + "\n"

    def write(self, findings: Sequence[Finding]) -> None:
        """Write the file. Raises ConfigurationError where there is one that was not written so."""
        if self.path.exists() and not self.path.read_text("utf-8", "replace").startswith(f'"""{MARK}'):
            raise ConfigurationError(
                f"{self.path} is there, and agentflow explore has not written it",
                code="explore/exists",
                hint="move it away, or write to another directory",
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text(findings), "utf-8")

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path.resolve(), self.directory.resolve()).replace(os.sep, "/")


def names(findings: Sequence[Finding]) -> list[str]:
    """The names of the tests of findings: what brings them about, else what they are."""
    taken: dict[str, int] = {}
    found: list[str] = []
    for finding in findings:
        text = finding.when or finding.code or finding.message
        worded = text.lower().replace("[]", "none").replace('""', "empty").replace("{}", "empty")
        slug = re.sub(r"[^a-z0-9]+", "_", worded).strip("_")[:_LONGEST_NAME].strip("_") or "fault"
        taken[slug] = taken.get(slug, 0) + 1
        found.append(f"test_{slug}" if taken[slug] == 1 else f"test_{slug}_{taken[slug]}")
    return found


def _written(answer: Answer) -> str:
    """An answer as Python."""
    parts = [literal(answer.name)]
    if answer.kind in ("value", "late", "calls"):
        parts.append(literal(answer.value))
    if answer.kind != "value":
        parts.append(f"kind={literal(answer.kind)}")
    if answer.branch:
        parts.append(f"branch={literal(answer.branch)}")
    if answer.always:
        parts.append("always=True")
    return f"Answer({', '.join(parts)})"


def literal(value: Any) -> str:
    """JSON data as Python, in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return "{" + ", ".join([f"{literal(key)}: {literal(each)}" for key, each in entries]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join([literal(each) for each in cast("Sequence[Any]", value)]) + "]"
    return repr(value)


def load_tool(name: str, path: str | os.PathLike[str]) -> Tool:
    """The function ``name`` of a file of Python, as a tool. Raises ConfigurationError (``explore/tool``) if there is none."""
    where = Path(path)
    spec = importlib.util.spec_from_file_location(f"agentflow_tools_{where.stem}", where)
    if spec is None or spec.loader is None or not where.is_file():
        raise ConfigurationError(f"{where} is no file of Python", code="explore/tool", hint="write --tool NAME=FILE.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigurationError(
            f"{where}: loading it raised {type(error).__name__}: {error}", code="explore/tool"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigurationError(
            f"{where} defines no function '{name}'",
            code="explore/tool",
            hint=f"write the tool's signature there: async def {name}(...) -> ...: ...",
        )
    return tool_from_function(function)


__all__ = ["MARK", "WrittenFile", "literal", "load_tool", "names"]
