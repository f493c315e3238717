"""The sources of a task's context: literal paths, a description or question for memory, a command's output."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, cast, runtime_checkable

from pydantic import ValidationError

from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.call.reading import found_in
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput, InheritedContext
from agentflow.core.data.errors import DataError, PathDenied, RunStopped, TaskError, clip
from agentflow.core.data.frozen import frozen, slotted
from agentflow.core.data.models import validation_messages
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.values import pairs_to_dict
from agentflow.core.events.events import ContextStarted
from agentflow.core.ports.executor_ports import CommandPort, FilePort
from agentflow.core.ports.memory_ports import ContextFinder
from agentflow.tasks.template import text_of
from agentflow.tasks.template_registry import CompiledTemplate, words

MAX_QUERY = 4_000
"""Maximum number of characters of one text in a question to memory."""


@runtime_checkable
class DescriptionFinder(Protocol):
    """A memory with a way of its own to answer a description in words."""

    async def find_described(self, description: str, call: CallContext) -> AssociativeMatchResult: ...


@slotted
class FoundPaths:
    """Absolute paths without duplicates, in the order of their sources; ``errors`` of the sources that failed."""

    paths: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])

    @property
    def error(self) -> str | None:
        """All errors as one text, or None."""
        return "; ".join(self.errors) or None


@frozen
class ContextSources:
    """Queries memory, files and commands, if available."""

    memory: ContextFinder | None = None
    files: FilePort | None = None
    commands: CommandPort | None = None

    def absolute(self, path: str) -> str:
        """The absolute form of a path; a relative one starts at the first root. Raises PathDenied."""
        return self.files.absolute(path) if self.files is not None else os.path.abspath(path)

    async def ask(
        self, question: ContextGenerationInput, call: CallContext, memory: ContextFinder | None = None
    ) -> AssociativeMatchResult:
        """Query memory, between Context events.

        Raises TaskError: dependency_error without a memory, context_retrieval_failure if it fails or reports an error.
        """
        finder = self._available(memory)
        return await _answer(question, call, lambda inner: finder.find(question, inner))

    async def ask_described(
        self, description: str, call: CallContext, memory: ContextFinder | None = None
    ) -> AssociativeMatchResult:
        """Query memory with a description in words, in its own way for those if it has one; otherwise as :meth:`ask`."""
        finder = self._available(memory)
        question = ContextGenerationInput(query=description)
        if not isinstance(finder, DescriptionFinder):
            return await self.ask(question, call, finder)
        return await _answer(question, call, lambda inner: finder.find_described(description, inner))

    def _available(self, memory: ContextFinder | None) -> ContextFinder:
        finder = memory or self.memory
        if finder is None:
            raise TaskError(
                "a task needs fresh context, and there is no memory system here",
                reason="dependency_error",
                code="tasks/no-memory",
                hint="give the task system a memory_system, or say fresh_context 'disabled'",
            )
        return finder

    async def resolve(
        self,
        literal: Sequence[str],
        question: object = None,
        source: Mapping[str, Any] | None = None,
        *,
        call: CallContext,
        memory: ContextFinder | None = None,
        commands: CommandPort | None = None,
    ) -> FoundPaths:
        """The union of all sources: ``literal`` paths, a ``question`` to memory, and a ``file_paths_source``.

        The error of one source is returned together with the paths of the others. Order: literal, question, description,
        command.
        """
        result = FoundPaths()
        source = source or {}
        kind = source.get("type", "literal")
        self._add(result, literal)
        self._add(result, literal_paths(source))
        try:
            if question is not None:
                self._add(result, (await self.ask(_question(question), call, memory)).file_paths)
        except TaskError as error:
            result.errors.append(error.message)
        try:
            if kind in ("description", "context_description"):
                text = str(source.get("description") or source.get("context_query") or source.get("value") or "")
                if not text:
                    raise _bad_source("a description source has no 'description'")
                self._add(result, (await self.ask_described(text, call, memory)).file_paths)
            elif kind == "command":
                self._add(
                    result, await self._command(str(source.get("command") or source.get("value") or ""), commands, call)
                )
            elif kind != "literal":
                raise _bad_source(f"a source of type {kind!r} is unknown: literal, description or command")
        except TaskError as error:
            result.errors.append(error.message)
        return result

    def _add(self, result: FoundPaths, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                absolute = self.absolute(path)
            except PathDenied as error:
                result.errors.append(error.message)
                continue
            if absolute not in result.paths:
                result.paths.append(absolute)

    async def _command(self, command: str, commands: CommandPort | None, call: CallContext) -> Sequence[str]:
        if not command.strip():
            raise _bad_source("a command source has no 'command'")
        commands = commands or self.commands
        if commands is None:
            raise TaskError(
                "a command source needs something that runs commands",
                reason="dependency_error",
                code="tasks/no-commands",
            )
        try:
            # A program cannot define such a source: the command is the host's, and so is its authority.
            with HostCode(call.at(call.path)) as code:
                files = await code.to_end(commands.find_files(command))
        except RunStopped:
            raise
        except Exception as error:  # the commands may be any object: any error of it is a failed lookup
            raise _lookup_failed(f"the command {command!r} failed: {error}") from error
        if files.error is not None:
            call.warn("commands/no-files", f"a command that finds files gave none: {clip(files.error, 500)}")
            raise _lookup_failed(f"the command {command!r} failed: {files.error}")
        return files.paths


async def _answer(
    question: ContextGenerationInput,
    call: CallContext,
    find: Callable[[CallContext], Awaitable[AssociativeMatchResult]],
) -> AssociativeMatchResult:
    with call.scope(ContextStarted, input=question) as scope:
        try:
            answer = await find(scope.call)
        except (RunStopped, TaskError):
            raise
        except Exception as error:  # the memory may be any object: any error of it is a failed lookup
            raise _lookup_failed(str(error) or type(error).__name__) from error
        if answer.error is not None:
            raise _lookup_failed(answer.error)
        scope.set(paths=tuple(answer.file_paths), **found_in(call.reading, answer.file_paths))
    return answer


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


def _question(question: object) -> ContextGenerationInput:
    if isinstance(question, ContextGenerationInput):
        return question
    if isinstance(question, str):
        return ContextGenerationInput(query=question)
    try:
        return ContextGenerationInput.model_validate(question)
    except ValidationError as error:
        raise _bad_source(f"_context_input: {'; '.join(validation_messages(error)[:3])}") from error


def literal_of(paths: object) -> Sequence[str]:
    """The literal paths of a template that a host gives: a list of texts, or one text. Raises DataError."""
    listed: object = [paths] if isinstance(paths, str) else paths or ()
    if isinstance(listed, list | tuple) and all([isinstance(path, str) for path in cast("list[object]", listed)]):
        return cast("Sequence[str]", listed)
    raise _wrong_field("file_paths", "a list of texts", paths)


def source_of(source: object) -> Mapping[str, Any] | None:
    """The ``file_paths_source`` of a template that a host gives. Raises DataError."""
    if source is None or isinstance(source, Mapping):
        return cast("Mapping[str, Any] | None", source)
    pairs = pairs_to_dict(source)
    if pairs is None:
        raise _wrong_field("file_paths_source", "a dict with its 'type'", source)
    return pairs


def _wrong_field(name: str, wanted: str, value: object) -> DataError:
    return DataError(f"{name} is a {type(value).__name__}", code="data/argument", hint=f"give {wanted}")


def literal_paths(source: Mapping[str, Any] | None) -> list[str]:
    """The paths that a ``file_paths_source`` of type ``literal`` names; none for another."""
    if source is None or source.get("type", "literal") != "literal":
        return []
    paths = cast("Sequence[str]", source.get("paths") or source.get("path") or ())
    return [paths] if isinstance(paths, str) else list(paths)


def rendered_source(compiled: CompiledTemplate, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """A template's ``file_paths_source`` with its slots filled; in a command, values are quoted."""
    source = compiled.template.file_paths_source
    if source is None:
        return None
    rendered = dict(source)
    for key, text in compiled.source:
        if key == "command":
            quoted = {name: shlex.quote(text_of(value)) for name, value in values.items()}
            rendered[key] = text.render(quoted)
        elif key != "type":
            rendered[key] = text.render(values)
    return rendered


def question_of(
    compiled: CompiledTemplate, request: SubtaskRequest, values: Mapping[str, Any], inherited: str, previous: str
) -> ContextGenerationInput:
    """The question to memory for a fresh lookup of a task: its request's description, else its own with the values.

    Raises TaskError if a value lacks a field that the description needs.
    """
    template = compiled.template
    described = request.description or compiled.described.render(values)
    return ContextGenerationInput(
        template_description=described[:MAX_QUERY],
        template_type=template.type,
        template_subtype=template.subtype,
        inputs={name: text_of(value)[:MAX_QUERY] for name, value in values.items() if value is not None},
        inherited_context=inherited[:MAX_QUERY],
        previous_outputs=previous[:MAX_QUERY],
    )


def subset_of(material: InheritedContext, request_text: str) -> InheritedContext:
    """The part of inherited material that a request concerns.

    Files with a name, stem or whole path among the request's words; paragraphs of the text that share a word of
    at least four letters with it.
    """
    request_words = {word for word in words(request_text) if len(word) > 3}
    low = request_text.lower()
    paths = tuple(
        path
        for path in material.paths
        if os.path.basename(path).lower() in low or request_words & words(os.path.splitext(os.path.basename(path))[0])
    )
    paragraphs = [p for p in material.text.split("\n\n") if request_words & words(p)]
    return InheritedContext("\n\n".join(paragraphs), paths)
