"""The ports of a rehearsal: models, files, commands and memory that return chosen answers and touch nothing."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput, MatchItem
from agentflow.core.data.errors import FileFailure, ResourceExhausted, TaskError
from agentflow.core.data.messages import Message, ModelResponse, TextPart, ToolCallPart, Usage
from agentflow.core.data.provider_errors import ServerError
from agentflow.core.data.values import to_json
from agentflow.core.ports.executor_ports import CommandResult, FileText, FoundFiles
from agentflow.core.ports.ports import Prompt, PromptOutcome, ToolPort
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.exploration.stand_ins import Answer, Answers, AnswerShape
from agentflow.handler.tool_registry import ToolTurn
from agentflow.handler.turn_loop import called_by_model, offered_to
from agentflow.lib.schema.json_schema import Schema

LATE_S = 1e8
"""Seconds after which a late answer arrives: longer than any reasonable time-out in a program."""
NO_JSON = "That cannot be said in JSON."
STRINGS: Mapping[str, Any] = {"type": "array", "items": {"type": "string"}}
_MODEL = "rehearsal"


class Stage:
    """Holds the answers of the current run, and the name and branch of the effect that asks."""

    def __init__(self) -> None:
        self.answers: Answers
        self.asking: ContextVar[tuple[str, str]] = ContextVar("agentflow_rehearsal", default=("", ""))
        self.files: dict[str, str | None] = {}

    def begin(self, answers: Answers) -> None:
        """Start a run with these answers and without any file contents."""
        self.answers = answers
        self.files = {}

    async def ask(self, shape: AnswerShape, name: str | None = None) -> Answer:
        """The next answer for the current effect, or for ``name`` in its branch; waits first if the answer is late."""
        effect, branch = self.asking.get()
        answer = self.answers.answer(name or effect, branch, shape)
        if answer.kind == "late":
            await asyncio.sleep(LATE_S)
        return answer


def failure(name: str) -> TaskError:
    """The error for a failure in a rehearsal."""
    error = ServerError("it fails", provider=_MODEL, model=_MODEL)
    error.details["rehearsed"] = name
    return error


class RehearsedPrompts:
    """The :class:`~agentflow.core.ports.ports.PromptRunner`: a model that gives the chosen answers."""

    def __init__(self, stage: Stage, tools: ToolPort) -> None:
        self._stage = stage
        self._tools = tools
        self._schemas: dict[int, tuple[object, Schema]] = {}

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        """Answer a prompt. Raises ServerError for a chosen failure, ResourceExhausted if the model uses up its turns."""
        json = prompt.json_output or prompt.output_schema is not None
        specs, toolbox = offered_to(prompt, call, self._tools)
        # Tools without visible effects do nothing here: a model calls those that have some, such as files.
        own = prompt.toolbox or ()
        seen = [(each.name, each.input_schema) for each in specs if each.name in SCHEMAS and each.name not in own]
        shape = AnswerShape((prompt.output_schema or {}) if json else None, json, turns=bool(specs), tools=tuple(seen))
        answer = await self._stage.ask(shape)
        if answer.kind in ("calls", "turns"):
            inner = called_by_model(prompt, call, specs, toolbox, self._tools)
            answer = await self._after_calls(answer, shape, prompt, inner)
        if answer.kind == "fails":
            raise failure(answer.name)
        if answer.kind == "no-json":
            text, value, wrong = NO_JSON, None, "Expecting value: line 1 column 1 (char 0)"
        else:
            value, wrong = answer.value if json else None, None
            text = to_json(answer.value) if json else str(answer.value)
        response = ModelResponse((TextPart(text),), "end", Usage(), _MODEL, provider=_MODEL)
        return PromptOutcome(
            response=response,
            turn=(Message("user", prompt.parts), response.message()),
            usage=Usage(),
            cost_usd=0.0,
            turns=1,
            value=value,
            parse_error=wrong,
            schema_errors=tuple(self._problems(prompt.output_schema, value)) if wrong is None else (),
            model=_MODEL,
        )

    async def _after_calls(self, answer: Answer, shape: AnswerShape, prompt: Prompt, inner: CallContext) -> Answer:
        """The answer of a model after it has called tools, which run like those of a real model below ``inner``."""
        allowed = prompt.max_turns if prompt.max_turns is not None else inner.run.limits.turns
        tool_turn, (_, branch) = ToolTurn(self._tools, inner), self._stage.asking.get()
        for number in range(1, allowed):
            if answer.kind != "calls":
                break
            tool = str(answer.value["tool"])
            token = self._stage.asking.set((tool, branch))
            try:
                await tool_turn.run([ToolCallPart(f"call-{number}", tool, dict(answer.value["arguments"]))])
            finally:
                self._stage.asking.reset(token)
            answer = await self._stage.ask(shape)
        if answer.kind not in ("calls", "turns"):
            return answer
        error = ResourceExhausted(
            f"the model has used its {allowed} turns without an answer",
            resource="turns",
            used=allowed,
            limit=allowed,
        )
        error.details["rehearsed"] = answer.name
        raise error

    def _problems(self, schema: dict[str, Any] | None, value: object) -> list[str]:
        """The violations of the requested schema: generated values satisfy only its common keywords."""
        if schema is None:
            return []
        cached = self._schemas.get(id(schema))
        if cached is None:
            cached = self._schemas[id(schema)] = (schema, Schema(schema))
        return cached[1].check(value)


class RehearsedFiles:
    """The :class:`~agentflow.core.ports.executor_ports.FilePort`: every path is a file unless the answer denies it."""

    roots = (Path("/"),)

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def absolute(self, path: str) -> str:
        """The path below the only root."""
        return posixpath.normpath(posixpath.join("/", path))

    def open_directory(self, path: str) -> int:
        """Raise FileFailure: directories do not exist here."""
        raise _no_file(path)

    async def read(self, path: str, *, max_bytes: int | None = None) -> FileText:
        """The text of a file. Raises FileFailure if the chosen answer fails."""
        key = self.absolute(path)
        if key not in self._stage.files:
            answer = await self._stage.ask(AnswerShape(), f"file {path}")
            self._stage.files[key] = str(answer.value) if answer.kind == "value" else None
        text = self._stage.files[key]
        if text is None:
            raise _no_file(path)
        return FileText(path, text, len(text), hashlib.blake2b(text.encode(), digest_size=16).hexdigest())

    async def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of a file. Raises FileFailure if the chosen answer fails."""
        return (await self.read(path)).text.encode()

    async def write(
        self, path: str, content: str | bytes, *, overwrite: bool = False, expected_digest: str | None = None
    ) -> None:
        """Keep a text for later reads in this run. Raises FileFailure if the chosen answer fails."""
        if (await self._stage.ask(AnswerShape({"const": True}))).kind == "fails":
            raise _no_file(path)
        self._stage.files[self.absolute(path)] = (
            content if isinstance(content, str) else content.decode("utf-8", "replace")
        )

    async def list(self, path: str) -> list[str]:
        """File names. Raises FileFailure if the chosen answer fails."""
        answer = await self._stage.ask(AnswerShape(STRINGS), f"directory {path}")
        if answer.kind == "fails":
            raise _no_file(path)
        return [f"{number}-{name}" for number, name in enumerate(answer.value, 1)]

    async def exists(self, path: str) -> bool:
        """Whether the file exists in this run."""
        try:
            await self.read(path)
        except FileFailure:
            return False
        return True


def _no_file(path: str) -> FileFailure:
    error = FileFailure(f"{path!r} cannot be read or written", code="files/failed")
    error.details["rehearsed"] = f"file {path}"
    return error


class RehearsedCommands:
    """The :class:`~agentflow.core.ports.executor_ports.CommandPort`: runs nothing; each command ends as chosen."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def execute_command_safely(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> CommandResult:
        """The chosen end of the command."""
        answer = await self._stage.ask(AnswerShape())
        if answer.kind == "fails":
            wrong = "it exited with code 1"
            return CommandResult(False, 1, "", "it fails", wrong, "tool_execution_error", code="commands/exit")
        return CommandResult(True, 0, str(answer.value), "")

    async def prepare(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> Callable[[], Awaitable[CommandResult]]:
        """Allow every command."""

        async def run() -> CommandResult:
            return await self.execute_command_safely(command, cwd, timeout, call)

        return run

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        """The lines of the output."""
        return output.splitlines()

    async def find_files(self, command: str | Sequence[str], call: CallContext | None = None) -> FoundFiles:
        """The chosen files."""
        answer = await self._stage.ask(AnswerShape(STRINGS), "files of a command")
        if answer.kind == "fails":
            return FoundFiles((), "the command fails")
        return FoundFiles(tuple(paths(len(answer.value))))


class RehearsedMemory:
    """The :class:`~agentflow.core.ports.memory_ports.ContextFinder`: returns a chosen number of files for a question."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def find(self, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult:
        """The chosen files or error."""
        answer = await self._stage.ask(AnswerShape({"type": "integer", "minimum": 0, "maximum": 3}))
        if answer.kind == "fails":
            return AssociativeMatchResult(error="it fails")
        matches = [MatchItem(path=path, content="text", score=0.5) for path in paths(int(answer.value))]
        return AssociativeMatchResult(context_summary="files", matches=matches)


def paths(count: int) -> list[str]:
    """``count`` file names."""
    return [f"file-{number}.md" for number in range(1, count + 1)]
