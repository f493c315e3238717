"""How one task call departs from the ordinary, and the small decisions that follow: model, tools, fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentflow.core.call import CallContext
from agentflow.core.ports import ContextFinder, PromptRunner
from agentflow.core.requests import SubtaskRequest
from agentflow.core.templates import TaskTemplate
from agentflow.core.values import to_json
from agentflow.tasks.functions import FunctionCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What a caller of a task may set beside its request.

    ``memory`` and ``prompts`` replace the system's own; ``available_models`` the models to choose from;
    ``inherited_context`` and ``previous_outputs`` texts of the caller; ``prompt`` replaces fields of the Prompt;
    ``functions`` the function calls around this one; ``depth`` how deep the caller was nested.
    """

    memory: ContextFinder | None = None
    prompts: PromptRunner | None = None
    available_models: Sequence[str] | None = None
    inherited_context: str = ""
    previous_outputs: str = ""
    prompt: Mapping[str, Any] = field(default_factory=dict[str, Any])
    functions: FunctionCalls | None = None
    depth: int = 0


ORDINARY = TaskOptions()
"""A task call that departs in nothing."""


def select_model(template: TaskTemplate, available: Sequence[str] | None) -> tuple[str | None, tuple[str, ...]]:
    """The model to use and its fallbacks: the template's preferences, in order, kept to ``available``.

    None for ``available`` means everything is; when nothing preferred is available, the first available one serves. A
    name without a dialect matches one with it (``claude`` and ``anthropic:claude``), and the available one's spelling
    is used.
    """
    wanted = [template.model, *template.fallbacks] if template.model else list(template.fallbacks)
    if available is None:
        return (wanted[0], tuple(wanted[1:])) if wanted else (None, ())
    kept: list[str] = []
    for name in wanted:
        found = next((other for other in available if name and _same_model(name, other)), None)
        if found is not None and found not in kept:
            kept.append(found)
    if not kept:
        kept = list(available[:1])
    return (kept[0], tuple(kept[1:])) if kept else (template.model, tuple(template.fallbacks))


def _same_model(a: str, b: str) -> bool:
    if a == b:
        return True
    bare = a.rpartition(":")[2], b.rpartition(":")[2]
    return bare[0] == bare[1] and (":" not in a or ":" not in b)


def offered_tools(template: TaskTemplate, call: CallContext) -> tuple[str, ...] | None:
    """The tools a task's model is offered (see Prompt.tools).

    A template that names tools gets those of them that its caller holds. None for one that names none: every ordinary
    tool under host authority, and under grants those among them (the turn loop sees to that).
    """
    if template.tools is None:
        return None
    return tuple(name for name in dict.fromkeys(template.tools) if call.grants is None or name in call.grants)


def fingerprint(name: str, request: SubtaskRequest) -> str:
    """What makes two requests identical: the template, its inputs, its files, and how the work was described."""
    try:
        said = to_json([name, request.inputs, request.file_paths or [], request.description])
    except ValueError:
        said = repr((name, sorted(request.inputs), request.file_paths))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
