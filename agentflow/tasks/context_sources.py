"""Where a task's context comes from: paths written out, a description or question to memory, a command's output."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

from pydantic import ValidationError

from agentflow.core.call import CallContext, HostCode
from agentflow.core.context import AssociativeMatchResult, ContextGenerationInput, InheritedContext
from agentflow.core.errors import AgentflowError, LimitExceeded, PathDenied, TaskError
from agentflow.core.events import ContextStarted
from agentflow.core.models import validation_messages
from agentflow.core.ports import CommandPort, ContextFinder, FilePort
from agentflow.core.requests import SubtaskRequest
from agentflow.core.templates import TaskTemplate
from agentflow.tasks.registry import CompiledTemplate, words
from agentflow.tasks.template import text_of

MAX_QUERY = 4_000
"""Most characters of one text that goes into a question to memory."""


@runtime_checkable
class PathCommandRunner(Protocol):
    """A handler that runs a command and reads file paths from its output."""

    async def execute_file_path_command(self, command: str) -> list[str]: ...


@dataclass(slots=True)
class FoundPaths:
    """Absolute paths, each once, in the order of their sources; ``errors`` of the sources that failed."""

    paths: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])

    @property
    def error(self) -> str | None:
        """All errors as one text, or None."""
        return "; ".join(self.errors) or None


@dataclass(frozen=True, slots=True)
class ContextSources:
    """Asks memory, files and commands, whichever are there."""

    memory: ContextFinder | None = None
    files: FilePort | None = None
    commands: CommandPort | None = None

    def absolute(self, path: str) -> str:
        """The absolute form of a path; relative ones are taken from the first root. Raises PathDenied."""
        return self.files.absolute(path) if self.files is not None else os.path.abspath(path)

    async def ask(
        self, question: ContextGenerationInput, call: CallContext, memory: ContextFinder | None = None
    ) -> AssociativeMatchResult:
        """Ask memory, between Context events.

        Raises TaskError: dependency_error without a memory, context_retrieval_failure when it fails or says it did.
        """
        memory = memory or self.memory
        if memory is None:
            raise TaskError(
                "fresh context was asked for, and there is no memory system here",
                reason="dependency_error",
                code="tasks/no-memory",
                hint="give the task system a memory_system, or say fresh_context 'disabled'",
            )
        with call.scope(ContextStarted, input=question) as scope:
            found = await _answer(memory, question, scope.call)
            scope.set(paths=tuple(found.file_paths))
            return found

    async def resolve(
        self,
        literal: Sequence[str],
        question: object = None,
        source: Mapping[str, Any] | None = None,
        *,
        call: CallContext,
        memory: ContextFinder | None = None,
        runner: PathCommandRunner | None = None,
    ) -> FoundPaths:
        """The union of all sources: ``literal`` paths, a ``question`` to memory, and a ``file_paths_source``.

        The failure of one source is reported beside the paths of the others. Order: literal, question, description,
        command.
        """
        found = FoundPaths()
        source = source or {}
        kind = source.get("type", "literal")
        self._add(found, literal)
        if kind == "literal":
            self._add(found, cast(Sequence[str], source.get("paths") or source.get("path") or ()))
        try:
            if question is not None:
                self._add(found, (await self.ask(_question(question), call, memory)).file_paths)
        except TaskError as error:
            found.errors.append(error.message)
        try:
            if kind in ("description", "context_description"):
                text = str(source.get("description") or source.get("context_query") or source.get("value") or "")
                if not text:
                    raise _bad_source("a description source has no 'description'")
                self._add(found, (await self.ask(ContextGenerationInput(query=text), call, memory)).file_paths)
            elif kind == "command":
                self._add(
                    found, await self._command(str(source.get("command") or source.get("value") or ""), runner, call)
                )
            elif kind != "literal":
                raise _bad_source(f"a source of type {kind!r} is unknown: literal, description or command")
        except TaskError as error:
            found.errors.append(error.message)
        return found

    def _add(self, found: FoundPaths, paths: Sequence[str]) -> None:
        for path in [paths] if isinstance(paths, str) else paths:
            try:
                absolute = self.absolute(path)
            except PathDenied as error:
                found.errors.append(error.message)
                continue
            if absolute not in found.paths:
                found.paths.append(absolute)

    async def _command(self, command: str, runner: PathCommandRunner | None, call: CallContext) -> list[str]:
        if not command.strip():
            raise _bad_source("a command source has no 'command'")
        if self.commands is not None:
            done = await self.commands.execute_command_safely(command)
            if not done.success:
                why = done.error or f"exit code {done.exit_code}: {done.stderr.strip()[:500]}"
                raise _lookup_failed(f"the command {command!r} failed: {why}")
            return self.commands.parse_file_paths_from_output(done.stdout)
        if runner is None:
            raise TaskError(
                "a command source needs something that runs commands",
                reason="dependency_error",
                code="tasks/no-commands",
            )
        try:
            with HostCode(call):
                return await runner.execute_file_path_command(command)
        except AgentflowError as error:
            raise _lookup_failed(f"the command {command!r} failed: {error.message}") from error


async def _answer(memory: ContextFinder, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult:
    try:
        found = await memory.find(question, call)
    except (LimitExceeded, TaskError):
        raise
    except Exception as error:  # memory may be anybody's object: whatever it raises is the failed lookup
        raise _lookup_failed(str(error) or type(error).__name__) from error
    if found.error is not None:
        raise _lookup_failed(found.error)
    return found


def _lookup_failed(why: str) -> TaskError:
    return TaskError(
        f"context retrieval failed: {why}", reason="context_retrieval_failure", code="tasks/context-retrieval"
    )


def _bad_source(message: str) -> TaskError:
    return TaskError(
        f"file_paths_source: {message}",
        reason="input_validation_failure",
        code="tasks/file-source",
    )


def _question(given: object) -> ContextGenerationInput:
    if isinstance(given, ContextGenerationInput):
        return given
    if isinstance(given, str):
        return ContextGenerationInput(query=given)
    try:
        return ContextGenerationInput.model_validate(given)
    except ValidationError as error:
        raise _bad_source(f"_context_input: {'; '.join(validation_messages(error)[:3])}") from error


def rendered_source(compiled: CompiledTemplate, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """A template's ``file_paths_source`` with its places filled; in a command, values are quoted for the splitter."""
    source = compiled.template.file_paths_source
    if source is None:
        return None
    made = dict(source)
    for key, text in compiled.source:
        if key == "command":
            quoted = {name: shlex.quote(text_of(value)) for name, value in values.items()}
            made[key] = text.render(quoted)
        elif key != "type":
            made[key] = text.render(values)
    return made


def question_of(
    template: TaskTemplate, request: SubtaskRequest, values: Mapping[str, Any], inherited: str, previous: str
) -> ContextGenerationInput:
    """The question a fresh lookup puts to memory for a task."""
    described = request.description or template.description or template.instructions
    return ContextGenerationInput(
        template_description=described[:MAX_QUERY],
        template_type=template.type,
        template_subtype=template.subtype,
        inputs={name: text_of(value)[:MAX_QUERY] for name, value in values.items() if value is not None},
        inherited_context=inherited[:MAX_QUERY],
        previous_outputs=previous[:MAX_QUERY],
    )


def subset_of(material: InheritedContext, wanted: str) -> InheritedContext:
    """The part of inherited material that a request is about.

    Files whose name, stem or whole path occurs among the request's words; paragraphs of the text that share a word of
    four letters or more with it.
    """
    asked = {word for word in words(wanted) if len(word) > 3}
    low = wanted.lower()
    paths = tuple(
        path
        for path in material.paths
        if os.path.basename(path).lower() in low or asked & words(os.path.splitext(os.path.basename(path))[0])
    )
    paragraphs = [p for p in material.text.split("\n\n") if asked & words(p)]
    return InheritedContext("\n\n".join(paragraphs), paths)
