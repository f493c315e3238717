"""``agentflow skill``: writes a folder that teaches a coding agent to write, check and test agentflow.

Its text is ``skill.md``; the checker's messages, the commands and the pages of the languages are those of the installed
version. The folder follows the convention of Agent Skills: ``SKILL.md`` with a name and a description, and references.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from agentflow.cli.check.language import ShippedNames
from agentflow.cli.shared.common import Exit, write_json, write_out
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.lang.card import language_card
from agentflow.lang.diagnosis import diagnose
from agentflow.lib.distribution import own_version
from agentflow.lib.file_writer import write_file

NAME = "agentflow"
"""The name of the skill, and of its folder."""
DEFAULT = ".agents/skills"
"""The destination of the folder: several coding agents look there."""
_TASK = '@task\ndef review(path: str) -> str:\n    """Review {{path}}."""\n    ...\n\n\n'
MISTAKES = (
    ("review.py", f"{_TASK}review('a.py', depth=3)", "give a task the parameters that it declares"),
    ("review.py", f"{_TASK}await review(path='a.py')\nreviw(path='b.py')", "call a name that exists"),
    ("review.py", "import re\nre.findall('a', text)", "import from agentflow.workflow alone; use methods of text"),
    ("review.py", "with open('a.txt') as file:\n    file.read()", "read files with a tool: system.read_files(file_paths=[...])"),
    ("review.py", "from agentflow import AgentFlow", "a text makes no flow: agentflow run makes it, or --app names yours"),
    ("review.py", "'{}'.format(1)", "write an f-string"),
    ("review.sexp", '(defatom review (params (path string)) (instructions "Review {{path}}."))\n(review "a.py")', "give a task named arguments: (review (path \"a.py\"))"),
    ("review.sexp", "(concat \"a\" \"b\")", "join texts with string-append"),
    ("review.sexp", "(let (x 1) x)", "write a list of bindings: (let ((x 1)) x)"),
    ("review.sexp", "(first (list 1 2) 3)", "give a primitive as many arguments as it takes"),
)  # fmt: skip
"""Wrong texts, each with the name of its file and the right way; the checker reports their mistakes."""


def write_skill(out: str | None, commands: Mapping[str, Iterable[tuple[str, str]]], *, as_json: bool) -> int:
    """Write the skill below the directory ``out``. ``commands`` are those of the command line, by their group, each with its
    effect. Returns the exit code. Raises OSError."""
    folder = Path(out or DEFAULT) / NAME
    files = {folder / name: text for name, text in skill_files(commands).items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode())
    if as_json:
        write_json({"ok": True, "files": [str(path) for path in files]})
    else:
        write_out("".join([f"{path}\n" for path in files]))
        say("a coding agent that looks elsewhere finds it with --out, such as --out .claude/skills")
    return Exit.OK


def skill_files(commands: Mapping[str, Iterable[tuple[str, str]]]) -> dict[str, str]:
    """The files of the skill by their path in its folder."""
    text = resources.files("agentflow.cli.check").joinpath("skill.md").read_text("utf-8")
    listed = [
        f"- {group}: " + ", ".join([f"`{name}` ({about})" for name, about in rows]) for group, rows in commands.items()
    ]
    name, wrong, _ = MISTAKES[0]
    parts = {
        "{version}": own_version(),
        "{message}": f"```text\n{message_for(name, wrong)}\n```",
        "{mistakes}": "\n".join(["| written | the checker says | instead |", "|---|---|---|", *map(_row, MISTAKES)]),
        "{commands}": "\n".join(listed),
    }
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return {
        "SKILL.md": text,
        "references/python.md": language_card("python"),
        "references/sexp.md": language_card("sexp"),
    }


def message_for(name: str, text: str) -> str:
    """The checker's first message about a text in the file ``name``, as printed."""
    return _first(name, text).render()


def _row(mistake: tuple[str, str, str]) -> str:
    name, wrong, instead = mistake
    error = _first(name, wrong)
    line = wrong.splitlines()[error.span.line - 1] if error.span is not None else wrong
    cells = [f"`{line.strip()}`", f"`{error.code}`: {error.message}", instead]
    return "| " + " | ".join([cell.replace("|", "\\|") for cell in cells]) + " |"


def _first(name: str, text: str) -> AgentflowError:
    listed = diagnose(Source.of(name, text), names=ShippedNames(()), env_names=("text",), closed=True)
    return min(listed, key=lambda each: each.severity != "error").error
