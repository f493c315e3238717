"""Per-call overrides, and the rules that pick model and tools."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.frozen import frozen
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.data.values import to_json
from agentflow.core.ports.memory_ports import ContextFinder
from agentflow.core.ports.ports import PromptRunner
from agentflow.tasks.template_functions import FunctionCalls
from agentflow.tasks.template_registry import CompiledTemplate


@frozen(kw_only=True)
class TaskOptions:
    """Overrides that the caller of a task may set in addition to its request.

    ``memory`` and ``prompts`` replace the service's own; ``available_models`` the models to choose from;
    ``inherited_context`` and ``previous_outputs`` texts of the caller; ``prompt`` replaces fields of the Prompt;
    ``functions`` the enclosing function calls; ``depth`` the nesting depth of the caller.
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
"""The default overrides."""


def select_model(template: TaskTemplate, available: Sequence[str] | None) -> tuple[str | None, tuple[str, ...]]:
    """The model to use and its fallbacks: the template's preferences, in order, restricted to ``available``.

    None for ``available`` means all models; if no preferred model is available, the first available one is used. A name
    without a dialect matches one with it (``claude`` and ``anthropic:claude``); the spelling in ``available`` is used.
    """
    preferred = [template.model, *template.fallbacks] if template.model else list(template.fallbacks)
    if available is None:
        return (preferred[0], tuple(preferred[1:])) if preferred else (None, ())
    kept: list[str] = []
    for name in preferred:
        match = next((other for other in available if name and _same_model(name, other)), None)
        if match is not None and match not in kept:
            kept.append(match)
    if not kept:
        kept = list(available[:1])
    return (kept[0], tuple(kept[1:])) if kept else (template.model, tuple(template.fallbacks))


def _same_model(a: str, b: str) -> bool:
    if a == b:
        return True
    bare = a.rpartition(":")[2], b.rpartition(":")[2]
    return bare[0] == bare[1] and (":" not in a or ":" not in b)


def offered_tools(compiled: CompiledTemplate, call: CallContext) -> tuple[str, ...] | None:
    """The tools offered to a task's model (see Prompt.tools).

    A template that names tools is offered those that its caller holds, and those that the host gave it as objects. None for a
    template without ``tools``: all ordinary tools under host authority, and the granted ones under grants (enforced by
    the turn loop).
    """
    names, grants, own = compiled.template.tools, call.grants, compiled.toolbox
    if names is None:
        return None
    return tuple(name for name in dict.fromkeys(names) if grants is None or name in grants or name in own)


def task_mark(name: str, request: SubtaskRequest) -> str:
    """The mark of a running task in the chains of the calls within it."""
    return f"task:{fingerprint(name, request)}"


def fingerprint(name: str, request: SubtaskRequest) -> str:
    """A digest, equal for identical requests: template, inputs, files, description and history."""
    history = request.history_context or ""
    try:
        content = to_json([name, request.inputs, request.file_paths or [], request.description, history])
    except ValueError:
        content = repr((name, sorted(request.inputs), request.file_paths))
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
