"""``check`` and ``fmt``: report errors in program files, and format them."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agentflow.cli.common import Exit, read_program, write_out
from agentflow.core.errors import AgentflowError, SexpEvaluationError
from agentflow.core.limits import Limits
from agentflow.core.source import Source
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.formatter import format_text
from agentflow.lang.forms import FORMS
from agentflow.lang.program import check_program, compile_program
from agentflow.lang.reader import read
from agentflow.lang.syntax import Form, Name, Node
from agentflow.lib.suggest import did_you_mean
from agentflow.lib.terminal import clean

SHORTEST_MISSPELLING = 4
"""Minimum length of a name to check; shorter ones resemble too many others."""

Reader = Callable[[str], tuple[str, str]]


def check_files(
    paths: Sequence[str],
    *,
    as_json: bool = False,
    allow: Iterable[str] | None = None,
    known: Iterable[str] = (),
    limits: Limits | None = None,
    reader: Reader = read_program,
) -> int:
    """Report all errors that can be found in programs without running them.

    ``paths`` are files, ``-`` standard input; ``allow`` the only tasks and tools the programs may name; ``known`` the
    names of tasks and tools that will exist. With ``as_json`` one JSON object goes to standard output: ``ok`` and, per
    file, ``diagnostics`` in the shape of ``AgentflowError.to_dict()`` with a ``severity``: ``error``, or ``warning``
    for a name that nothing binds and that resembles an existing one. Returns exit code 3 if there are errors, else 0.
    Raises UsageError for a file that cannot be read.
    """
    granted = None if allow is None else frozenset(allow)
    files: list[dict[str, Any]] = []
    count = 0
    for path in paths:
        name, text = reader(path)
        source = Source(name, text)
        errors = check_program(source, limits=limits, allow=granted)
        doubts = [] if errors else suspicious_names(source, known)
        count += len(errors)
        listed = [{"severity": "error", **each.to_dict()} for each in errors]
        listed += [{"severity": "warning", **each.to_dict()} for each in doubts]
        files.append({"file": name, "diagnostics": listed})
        if not as_json:
            for each in errors:
                write_out(clean(each.render()) + "\n")
            for each in doubts:
                write_out(clean(each.render()).replace("error[", "warning[", 1) + "\n")
    if as_json:
        write_out(json.dumps({"ok": not count, "files": files}, ensure_ascii=False) + "\n")
    elif not count:
        print(f"{len(paths)} file{'' if len(paths) == 1 else 's'} checked, nothing found", file=sys.stderr)
    return Exit.DIAGNOSTICS if count else Exit.OK


def suspicious_names(source: Source, known: Iterable[str] = ()) -> list[SexpEvaluationError]:
    """Free names of a valid program that are not bound and resemble an existing name.

    The host may bind a free name, so this is a warning. Each name is reported once, at its first occurrence.
    """
    free = compile_program(source).free
    exists = [*known, *PRIMITIVES, *FORMS, *(name for name, info in free.items() if info.kind != "unknown")]
    pending: list[Node] = list(reversed(read(source)))
    suspects: dict[str, SexpEvaluationError] = {}
    while pending:
        node = pending.pop()
        if isinstance(node, Name):
            unknown = node.name in free and free[node.name].kind == "unknown"
            if unknown and node.name not in suspects and node.name not in exists:
                near = did_you_mean(node.name, exists) if len(node.name) >= SHORTEST_MISSPELLING else None
                if near is not None:
                    message = f"nothing here binds '{node.name}'"
                    span = source.span(node.start, node.end)
                    suspects[node.name] = SexpEvaluationError(message, code="name/suspicious", span=span, hint=near)
        elif isinstance(node, Form):
            pending.extend(reversed(node.items))
    return list(suspects.values())


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
            print(clean(error.render()), file=sys.stderr)
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
                _replace(Path(path), formatted)
            if not as_json:
                print(f"{'would change' if check else 'changed'} {name}", file=sys.stderr)
    if as_json:
        write_out(json.dumps({"ok": code == Exit.OK, "files": report}, ensure_ascii=False) + "\n")
    return code


def _replace(path: Path, text: str) -> None:
    """Replace a file through a temporary one, so that an interruption leaves the old text or the new one."""
    target = path.resolve()
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=target.parent, prefix=f".{target.name}.", delete=False
    ) as temporary:
        temporary.write(text)
    try:
        os.chmod(temporary.name, target.stat().st_mode & 0o7777)
        os.replace(temporary.name, target)
    except OSError:
        os.unlink(temporary.name)
        raise
