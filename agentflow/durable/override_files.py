"""Files of overrides: TOML with a table of fields for each task."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from agentflow.core.data.errors import JournalError, clip
from agentflow.durable.generations import Overrides

_BARE = re.compile(r"[A-Za-z0-9_-]+")
OVERRIDES = ".toml"
"""The ending of the name of such a file."""


def read_overrides(overrides: Overrides | Path | None) -> Overrides:
    """The overrides themselves, or those of a file. Blocks for a file. Raises JournalError (``durable/override``) for one that
    cannot be read, and for another form."""
    if not isinstance(overrides, Path):
        if overrides is not None and not isinstance(cast(object, overrides), Mapping):
            raise _unreadable(
                f"overrides={clip(repr(overrides), 80)}: a dict of the fields of each task, or the Path of a file"
            )
        return overrides or {}
    try:
        tables: dict[str, Any] = tomllib.loads(overrides.read_text("utf-8"))
    except OSError as error:
        raise _unreadable(f"the overrides {overrides} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise _unreadable(f"{overrides} is not valid TOML: {error}") from None
    for task, table in tables.items():
        if not isinstance(table, dict):
            raise _unreadable(f"{overrides} has the entry '{task}' outside of the table of a task")
    return tables


def overrides_text(overrides: Overrides, comment: str = "") -> str:
    """The overrides as the text of such a file, below the lines of ``comment``."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    for task, table in overrides.items():
        lines += ["", f"[{_key(task)}]", *[f"{_key(name)} = {_value(value)}" for name, value in table.items()]]
    return "\n".join(lines).strip() + "\n"


def _value(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return f'"""\n{_escaped(value)}"""'
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, cast('list[Any]', value)))}]"
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        return f"{{ {', '.join([f'{_key(name)} = {_value(each)}' for name, each in entries])} }}"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'.replace("\n", "\\n")


def _escaped(text: str) -> str:
    """A text as the inside of a basic string of several lines."""
    body = json.dumps(text, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")
    return body.replace("\\n", "\n")


def _unreadable(problem: str) -> JournalError:
    return JournalError(
        problem, code="durable/override", hint='write a table for each task: [reply] and below it model = "..."'
    )
