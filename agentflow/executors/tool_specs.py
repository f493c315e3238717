"""Specifications of the system tools: names, parameters, and flags."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, cast

from agentflow.core.data.errors import cut
from agentflow.core.data.frozen import frozen

_TEXT: dict[str, Any] = {"type": "string"}
_PATHS: dict[str, Any] = {"type": "array", "items": {"type": "string", "minLength": 1}}


@frozen(kw_only=True)
class SystemTool:
    """One system tool; the flags are those of :class:`~agentflow.core.ports.ports.Tool`."""

    description: str
    schema: dict[str, Any]
    read_only: bool = False
    idempotent: bool | None = None
    sequential: bool = False
    approval: bool = False
    returns: dict[str, Any] | None = None


def _object(required: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _with(schema: dict[str, Any], description: str, **more: Any) -> dict[str, Any]:
    return {**schema, **more, "description": description}


SCHEMAS = MappingProxyType(
    {
        "system:get_context": SystemTool(
            description="Find the files that are relevant to a query. Returns a JSON list of paths, best first.",
            schema=_object(
                ("query",),
                query=_with(_TEXT, "the question, in plain words", minLength=1),
                history=_with(_TEXT, "earlier conversation to take into account"),
                target_files=_with(_PATHS, "paths to prefer"),
            ),
            read_only=True,
            idempotent=True,
            returns=_PATHS,
        ),
        "system:read_files": SystemTool(
            description="Read text files. Each comes in a <file> element; a file that cannot be read is an error.",
            schema=_object(
                ("file_paths",),
                file_paths=_with(_PATHS, "paths of the files, relative to the root"),
                missing=_with(
                    _TEXT, '"skip" leaves out files that cannot be read (default "fail")', enum=["fail", "skip"]
                ),
            ),
            read_only=True,
            idempotent=True,
            returns=_TEXT,
        ),
        "system:list_directory": SystemTool(
            description="List the names in a directory as a JSON list.",
            schema=_object(
                ("directory_path",),
                directory_path=_with(_TEXT, 'the directory, relative to the root; "." is the root', minLength=1),
            ),
            read_only=True,
            idempotent=True,
            returns={"type": "array", "items": _TEXT},
        ),
        "system:write_file": SystemTool(
            description="Write a text file. An existing file is replaced only with overwrite or its expected digest.",
            schema=_object(
                ("file_path", "content"),
                file_path=_with(_TEXT, "the file, relative to the root", minLength=1),
                content=_with(_TEXT, "all of the file's text"),
                overwrite={"type": "boolean", "description": "replace an existing file (default false)"},
                expected_digest=_with(_TEXT, "replace the file only if its content still has this digest"),
            ),
            idempotent=False,
            sequential=True,
            approval=True,
            returns=_TEXT,
        ),
        "system:execute_shell_command": SystemTool(
            description="Run one program with arguments and return its output. No pipes or redirections: no shell.",
            schema=_object(
                ("command",),
                command=_with(_TEXT, 'program and arguments, for example "git log -n 5"', minLength=1),
                cwd=_with(_TEXT, "the directory to run in, relative to the root", minLength=1),
                timeout={"type": "integer", "minimum": 1, "description": "time-out in seconds"},
            ),
            idempotent=False,
            sequential=True,
            returns=_TEXT,
        ),
        "system:clear_handler_data_context": SystemTool(
            description="Remove the context that the conversation was primed with.",
            schema=_object(),
            idempotent=True,
            sequential=True,
            returns=_TEXT,
        ),
        "system:prime_handler_data_context": SystemTool(
            description="Prime the conversation with context: the files that a query finds, the named files, or both.",
            schema=_object(
                query=_with(_TEXT, "the question, in plain words"),
                initial_files=_with(_PATHS, "paths of files to include"),
            ),
            sequential=True,
            returns=_TEXT,
        ),
    }
)
"""The system tools by name."""


def problem_with(value: object, schema: dict[str, Any]) -> str | None:
    """The problem with ``value`` under ``schema``, worded to follow the parameter's name; None if it is valid."""
    kind = schema["type"]
    if kind == "string":
        if not isinstance(value, str):
            return f"must be text, not {_kind_of(value)}"
        if not value.strip() and schema.get("minLength"):
            return "must not be empty"
        if value not in schema.get("enum", (value,)):
            return f"must be {' or '.join(map(repr, schema['enum']))}, not {cut(value, 40)!r}"
    elif kind == "boolean":
        if not isinstance(value, bool):
            return f"must be true or false, not {_kind_of(value)}"
    elif kind == "integer":
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, not {_kind_of(value)}"
        if value < schema["minimum"]:
            return f"must be at least {schema['minimum']}, not {value}"
    elif not isinstance(value, list):
        return f"must be a list of texts, not {_kind_of(value)}"
    else:
        for index, item in enumerate(cast(list[object], value)):
            if not isinstance(item, str):
                return f"must be a list of texts; item {index} is {_kind_of(item)}"
    return None


def _kind_of(value: object) -> str:
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return "nothing" if value is None else type(value).__name__


# bool before int, its base class
_KINDS = (
    (bool, "a boolean"),
    (int, "a number"),
    (float, "a number"),
    (list, "a list"),
    (dict, "an object"),
    (str, "text"),
)
