"""``check`` and ``fmt``: report errors in program files, and format them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentflow.cli.shared.common import Exit, read_program, write_json, write_out
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import NameInfo, Names, info_of_schema
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.ports.ports import Tool
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.lang.diagnosis import diagnose
from agentflow.lang.formatter import format_text
from agentflow.lib.file_writer import write_file
from agentflow.lib.text.safe_text import clean
from agentflow.tasks.describe import task_info
from agentflow.tasks.template_registry import CompiledTemplate, prepare_definition

Reader = Callable[[str], tuple[str, str]]


def check_files(
    paths: Sequence[str],
    *,
    as_json: bool = False,
    allow: Iterable[str] | None = None,
    bindings: Iterable[str] | None = None,
    limits: Limits | None = None,
    names: Names | None = None,
    notes: Iterable[str] = (),
    reader: Reader = read_program,
) -> int:
    """Report all errors that can be found in programs without running them, and return the exit code.

    ``paths`` are files, ``-`` is standard input; ``allow`` are the only tasks and tools the programs may use; ``names`` are
    the existing tasks and tools; ``bindings`` are the variables bound by the host, other free names being errors (None: any
    name may be bound); ``notes`` are printed too; ``limits`` are those of a run; ``reader`` reads a file. With ``as_json`` one
    JSON object goes to standard output: ``ok``, ``notes`` and, per file, ``diagnostics`` in the form of
    ``AgentflowError.to_dict()`` with a ``severity``. It is ``error`` for invalid code and for code that will certainly fail
    when reached, ``warning`` for such code inside a handler that catches the failure, and for unbound names that resemble an
    existing one. Returns exit code 3 if there are errors, else 0. Raises UsageError for a file that cannot be read.
    """
    names = names or ShippedNames(())
    notes = [clean(each) for each in notes]
    files: list[dict[str, Any]] = []
    errors = warnings = 0
    for path in paths:
        name, text = reader(path)
        diagnostics = diagnose(
            Source.of(name, text),
            names=names,
            limits=limits,
            allow=allow,
            env_names=bindings or (),
            closed=None if bindings is None else True,
        )
        errors += sum(each.severity == "error" for each in diagnostics)
        warnings += sum(each.severity == "warning" for each in diagnostics)
        listed = [{"severity": each.severity, **each.error.to_dict()} for each in diagnostics]
        files.append({"file": name, "diagnostics": listed})
        if not as_json:
            for each in diagnostics:
                say(each.error.render().replace("error[", f"{each.severity}[", 1), sys.stdout)
    if as_json:
        write_json({"ok": not errors, "files": files, "notes": notes})
    else:
        for note in notes:
            say(f"note: {note}")
        counts = [_count(errors, "error"), _count(warnings, "warning")] if errors or warnings else ["nothing found"]
        say(f"{_count(len(paths), 'file')} checked, {', '.join(counts)}")
    return Exit.DIAGNOSTICS if errors else Exit.OK


def names_of(bind: Iterable[str] | None) -> list[str] | None:
    """The names in the bindings ``NAME`` or ``NAME=VALUE``; None without bindings."""
    return [each.partition("=")[0] for each in bind] if bind else None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


class ShippedNames:
    """The names every flow has, the tools that come with agentflow, the tasks of ``templates``, and ``tools``."""

    def __init__(self, templates: Iterable[TaskTemplate], tools: Iterable[Tool] = ()) -> None:
        self._names = {name: info_of_schema("tool", entry.schema) for name, entry in SCHEMAS.items()}
        self._names |= {tool.name: info_of_schema("tool", tool.spec.input_schema) for tool in tools}
        self._names |= {template.name: task_info(template) for template in templates}

    def describe(self, name: str) -> NameInfo | None:
        return self._names.get(name)

    def prepare(self, fields: Mapping[str, Any]) -> CompiledTemplate:
        return prepare_definition(fields)

    def known_names(self) -> Iterable[str]:
        return self._names


def format_files(
    paths: Sequence[str], *, check: bool = False, as_json: bool = False, reader: Reader = read_program
) -> int:
    """Format program files; a file is replaced atomically, ``-`` goes to standard output.

    With ``check`` nothing is written; exit code 3 says that a file would change. With ``as_json`` one JSON object on
    standard output says for each file whether it ``changed`` or which ``error`` it has. A file that cannot be formatted
    is left unchanged and reported, with exit code 3. Raises UsageError for a file that cannot be read.
    """
    report: list[dict[str, Any]] = []
    code = Exit.OK
    for path in paths:
        name, text = reader(path)
        entry: dict[str, Any] = {"file": name, "changed": False}
        report.append(entry)
        try:
            formatted = format_text(text, name=name)
        except AgentflowError as error:
            entry["error"] = error.to_dict()
            say(error.render())
            code = Exit.DIAGNOSTICS
            continue
        entry["changed"] = formatted != text
        if path == "-" and not check:
            if as_json:
                entry["text"] = formatted
            else:
                write_out(formatted)
        elif entry["changed"]:
            if check:
                code = Exit.DIAGNOSTICS
            else:
                write_file(Path(path), formatted.encode())
            if not as_json:
                say(f"{'would change' if check else 'changed'} {name}")
    if as_json:
        write_json({"ok": code == Exit.OK, "files": report})
    return code
