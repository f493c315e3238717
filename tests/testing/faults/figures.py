"""What exploration finds, as a table: ``python -m tests.testing.faults.figures [SET ...]``.

The sets are ``development``, ``held_out``, ``third`` (programs with seeded faults), ``clean``, ``examples`` and
``long``: programs of 100 lines, which the clean ones are put together to; ``held_out_python``, ``clean_python`` and ``long_python``
are texts in Python. With ``--tests`` every finding is written as a test too, and each test is run ten times.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentflow.core.data.source import Source, Surface
from agentflow.lang.printer import print_value
from agentflow.testing import Answer, Exploration, Finding, explore
from tests.testing.faults.tools import TOOLS

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
BINDINGS: dict[str, dict[str, Any]] = {
    "explain_file": {"question": "why?"},
    "explain_repo": {"question": "why?"},
    "improve_text": {"topic": "tides"},
    "overview": {"directory": "."},
}
_BLOCK = re.compile(r"^## (.*?)\n\n```(lisp|python)\n(.*?)```", re.DOTALL | re.MULTILINE)
_TASK = re.compile(r"\(defatom ([\w?!*-]+)")
_TEXTS = re.compile(r'"(\\.|[^"\\])*"|;.*')


@dataclass(frozen=True)
class Case:
    """A program, its bindings, and, if it has a fault, the code and the lines at which that is to be reported, and answers that cause it."""

    name: str
    text: str
    bindings: dict[str, Any]
    code: str | None = None
    lines: tuple[int, int] = (0, 0)
    when: tuple[Answer, ...] = ()
    surface: Surface = "sexp"

    @property
    def source(self) -> Source:
        """The text, as it stands in a file."""
        return Source.of(f"{self.name}.{'py' if self.surface == 'python' else 'sexp'}", self.text)

    def hits(self, found: Finding) -> bool:
        """Whether a finding is the fault."""
        if found.span is None or not self.lines[0] <= found.span.line <= self.lines[1]:
            return False
        return found.kind == "endless" if self.code == "no-end" else (found.kind, found.code) == ("error", self.code)

    async def explore(self, runs: int = 300) -> Exploration:
        """What exploration says of the program."""
        return await explore(self.source, self.bindings, runs, tools=TOOLS)


def cases(name: str) -> Iterator[Case]:
    """The programs of a set."""
    if name == "examples":
        for path in sorted(EXAMPLES.glob("*.sexp")):
            yield Case(path.stem, path.read_text("utf-8"), BINDINGS[path.stem])
        for path in sorted((EXAMPLES / "texts").glob("*.py")):
            yield Case(path.stem, path.read_text("utf-8"), BINDINGS[path.stem], surface="python")
        return
    if name in ("long", "long_python"):
        yield from _long(100) if name == "long" else _long_python(100)
        return
    for title, language, text in _BLOCK.findall((HERE / f"{name}.md").read_text("utf-8")):
        surface: Surface = "python" if language == "python" else "sexp"
        given = re.search(r"^[;#] bindings: (.*)", text, re.MULTILINE)
        bindings: dict[str, Any] = json.loads(given[1]) if given else {}
        fault = re.search(r"[;#] fault: (\S+)", text)
        if fault is None:
            yield Case(title, text, bindings, surface=surface)
            continue
        line = text[: fault.start()].count("\n") + 1
        end_of = _end_of_statement if surface == "python" else _end_of_form
        last = end_of(text, line) if fault[1] == "no-end" else line
        when = re.search(r"^[;#] when: (.*)", text, re.MULTILINE)
        yield Case(title, text, bindings, fault[1], (line, last), _answers(when[1]) if when else (), surface)


def _long(lines: int) -> Iterator[Case]:
    """Programs of at least so many lines: the clean ones one after the other, each with its own variables and names of tasks."""
    texts: list[str] = []
    for number, case in enumerate(cases("clean")):
        text = case.text
        for name in set(_TASK.findall(text)):
            text = re.sub(rf"(?<![\w?!*>/<-]){re.escape(name)}(?![\w?!*>/<-])", f"{name}-{number}", text)
        given = " ".join(f"({name} '{print_value(value)})" for name, value in case.bindings.items())
        texts.append(f"(let ({given})\n{text})\n")
        if sum(each.count("\n") for each in texts) >= lines:
            yield Case(f"long {number}", "\n".join(texts), {})
            texts = []


def _long_python(lines: int) -> Iterator[Case]:
    """Texts of at least so many lines: the clean ones one after the other, with their bindings as variables."""
    texts: list[str] = []
    for number, case in enumerate(cases("clean_python")):
        given = "".join(f"{name} = {value!r}\n" for name, value in case.bindings.items())
        texts.append(f"{given}{case.text}\n")
        if sum(each.count("\n") for each in texts) >= lines:
            yield Case(f"long {number}", "\n".join(texts), {}, surface="python")
            texts = []


def _answers(text: str) -> tuple[Answer, ...]:
    """Answers as they are written in a set."""
    rows: list[Any] = json.loads(text)
    return tuple([Answer(row[0], row[1], **(row[2] if len(row) > 2 else {})) for row in rows])


def _end_of_form(text: str, line: int) -> int:
    """The last line of what is opened on a line: a loop may be reported anywhere within it."""
    depth = 0
    for number, each in enumerate(text.splitlines()[line - 1 :], line):
        code = _TEXTS.sub("", each)
        depth += code.count("(") - code.count(")")
        if depth <= 0:
            return number
    return line


def _end_of_statement(text: str, line: int) -> int:
    """The last line of the smallest statement that begins on a line."""
    ends = [
        node.end_lineno or line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno == line
    ]
    return min(ends, default=line)


async def main(names: list[str]) -> int:
    """Print the figures; exit code 1 if they fall short of 90 % of the faults, or a clean program has an error."""
    short = False
    for name in names:
        hits: list[bool] = []
        arms, reached, seconds, worst = 0, 0, 0.0, 0.0
        every = [*cases(name)]
        for case in every:
            began = time.process_time()
            explored = await case.explore()
            spent = time.process_time() - began
            seconds, worst = seconds + spent, max(worst, spent)
            hit = any(map(case.hits, explored.found)) if case.code else not explored.errors
            hits.append(hit)
            arms, reached = arms + len(explored.arms), reached + len(explored.arms) - len(explored.missed)
            if not hit:
                print(f"  {case.name}: {'; '.join(map(str, explored.errors)) or 'nothing'}")
        clean = name in ("clean", "clean_python", "examples", "long", "long_python")
        what = "without an error" if clean else "faults found"
        print(
            f"{name:<12}{sum(hits)} of {len(every)} {what}, {reached} of {arms} arms, {seconds:.1f} s of CPU, worst {worst:.2f} s"
        )
        short = short or sum(hits) < (1 if clean else 0.9) * len(every) or reached < 0.95 * arms
    return short


if __name__ == "__main__":
    chosen = [name for name in sys.argv[1:] if name != "--tests"] or [
        "development",
        "held_out",
        "held_out_python",
        "third",
        "clean",
        "clean_python",
        "examples",
    ]
    code = asyncio.run(main(chosen))
    if "--tests" in sys.argv:
        from tests.exploration.test_written import check

        with tempfile.TemporaryDirectory() as directory:
            counted = asyncio.run(check([case for name in chosen for case in cases(name)], Path(directory), 300, 10))
        print(f"{counted} written tests failed as found, ten times of ten")
    sys.exit(code)
