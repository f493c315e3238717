"""Checks what a task may read on behalf of code with grants: its caller, or the program that defined it.

Code that chooses a file, or asks for a lookup, needs a grant for it. A host's template chooses with the host's authority;
what a call or an untrusted template adds is checked against their grants.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import TaskError
from agentflow.core.data.names import ALL_FILES, FILES, READ_FILES, file_grants
from agentflow.core.data.requests import SubtaskRequest
from agentflow.tasks.context_rules import ContextSettings
from agentflow.tasks.registry import CompiledTemplate

_LOOK_UP = frozenset({"get_context", "system:get_context"})


def settings_within_grants(
    compiled: CompiledTemplate, request: SubtaskRequest, settings: ContextSettings, call: CallContext
) -> ContextSettings:
    """The context settings of a task in ``call``, whose fresh lookup needs a grant unless the host's template asks for it.

    A lookup that is only the subtype's default of an untrusted template is dropped; one that is asked for raises
    TaskError (``name/not-granted``).
    """
    if call.grants is None or settings.fresh_context != "enabled" or call.grants & _LOOK_UP:
        return settings
    asked = (request.context_management, compiled.template.context_management)
    if compiled.grants is None:
        by_host = compiled.context is not None and compiled.context.fresh_context == "enabled"
        if by_host or request.context_management is None:
            return settings
    elif not any(layer is not None and layer.fresh_context == "enabled" for layer in asked):
        return replace(settings, fresh_context="disabled")
    raise _not_granted(f"task '{compiled.name}' may not look files up for this program", "get_context")


def check_files(compiled: CompiledTemplate, paths: Sequence[str], roots: Sequence[Path], call: CallContext) -> None:
    """Raise TaskError (``name/not-granted``) for a file among ``paths``, all absolute, that the grants do not cover.

    ``system:read_files`` covers all, ``files:GLOB`` those whose path below one of ``roots`` (or whole, for an absolute
    pattern) matches: ``*`` is anything within a name, ``**`` any number of directories.
    """
    granted = file_grants(call.grants)
    if ALL_FILES in granted:
        return
    globs = [PurePath(name.removeprefix(FILES)) for name in granted]
    for path in map(PurePath, paths):
        below = [path.relative_to(root) for root in roots if path.is_relative_to(root)]
        if not any([_matches(name.parts, glob.parts) for glob in globs for name in (*below, path)]):
            shown = str(below[0] if below else path)
            raise _not_granted(f"task '{compiled.name}' may not be given {shown!r} by this program", READ_FILES, shown)


def _matches(names: Sequence[str], glob: Sequence[str]) -> bool:
    """Whether the components of a path match those of a pattern; ``states`` are the positions in the pattern reached."""
    states = _past_stars({0}, glob)
    for name in names:
        states = _past_stars(
            {
                at if glob[at] == "**" else at + 1
                for at in states
                if at < len(glob) and (glob[at] == "**" or fnmatch.fnmatchcase(name, glob[at]))
            },
            glob,
        )
    return len(glob) in states


def _past_stars(states: set[int], glob: Sequence[str]) -> set[int]:
    for at in sorted(states):
        while at < len(glob) and glob[at] == "**":
            at += 1
            states.add(at)
    return states


def _not_granted(message: str, name: str, path: str | None = None) -> TaskError:
    names = f"'{name}'" if path is None else f"'{name}', or '{FILES}{path}'"
    return TaskError(
        message,
        reason="input_validation_failure",
        code="name/not-granted",
        hint=f"grant it {names}, by allow=[...]; a task's own model is granted by its tools",
        details={"cause": "not_granted", "name": name},
    )
