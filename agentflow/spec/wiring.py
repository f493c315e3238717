"""Reads the parts of an engine off the faces that a host has wired, each as the port behind it or the host's own methods."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.ports.executor_ports import CommandPort, FilePort, HostCommandPort
from agentflow.core.ports.memory_ports import MemoryPort
from agentflow.core.ports.ports import PromptRunner
from agentflow.spec.host import commands_of, finder_of
from agentflow.spec.host_files import files_of
from agentflow.spec.host_tasks import tasks_of
from agentflow.spec.joining import Parts
from agentflow.tasks.prompt_runners import NO_PROMPTS, prompts_of


def parts_of(
    system: object,
    handler: Any,
    memory: MemoryPort | None,
    *,
    own: tuple[str, ...],
    lookups: MemoryPort | None,
    prompts: PromptRunner | None = None,
    files: FilePort | None = None,
    commands: CommandPort | HostCommandPort | None = None,
) -> Parts:
    """The parts of a run of ``system`` with the tools, the model, the files and the commands of ``handler``, any object or None.

    ``memory`` is asked by programs, ``lookups`` by tasks; ``own`` are the host's methods of the system;
    ``prompts``, ``files`` and ``commands`` come before the handler's. Raises ConfigurationError (``config/part``).
    """
    files = files if files is not None else getattr(handler, "file_manager", None)
    mine = commands_of(commands)
    if mine is None and handler is not None:
        mine = getattr(handler, "commands", None) or commands_of(getattr(handler, "command_executor", None))
    return Parts(
        system,
        tasks_of,
        prompts or _prompts(handler),
        tools=getattr(handler, "registry", None),
        memory=finder_of(memory),
        lookups=finder_of(lookups),
        files=None if files is None else files_of(files),
        commands=mine,
        limits=getattr(handler, "limits", None),
        own=own,
    )


def _prompts(handler: object) -> PromptRunner:
    if handler is None:
        return NO_PROMPTS
    try:
        return prompts_of(handler)
    except ConfigurationError:  # a handler with nothing but tools: tasks name the missing part when they are run
        return NO_PROMPTS
