"""Fakes of what the task system stands on: a scripted PromptRunner, files on a real directory, commands, a checker."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, FileFailure, PathDenied, SexpEvaluationError
from agentflow.core.data.messages import Message, ModelResponse, TextPart, Usage
from agentflow.core.data.source import Source
from agentflow.core.ports.executor_ports import CommandResult, FileText, FoundFiles
from agentflow.core.ports.ports import Prompt, PromptOutcome
from agentflow.lib.schema.json_schema import check


class FakePrompts:
    """A PromptRunner that plays replies in order; the last one repeats.

    A reply is text, data (sent as JSON), an exception to raise, a PromptOutcome, or a function (plain or async) of
    prompt and call giving one of these. ``prompts`` records what was asked, ``calls`` where.
    """

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies) or ["an answer"]
        self.prompts: list[Prompt] = []
        self.calls: list[CallContext] = []

    async def run_prompt(self, prompt: Prompt, call: CallContext) -> PromptOutcome:
        self.prompts.append(prompt)
        self.calls.append(call)
        await asyncio.sleep(0)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if callable(reply):
            reply = reply(prompt, call)
            if asyncio.iscoroutine(reply):
                reply = await reply
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, PromptOutcome):
            return reply
        return outcome(reply, prompt)

    @property
    def text(self) -> str:
        """All text of the last prompt."""
        return text_of(self.prompts[-1])


def text_of(prompt: Prompt) -> str:
    """The text parts of a prompt, joined."""
    return "".join(part.text for part in prompt.parts if isinstance(part, TextPart))


def outcome(reply: Any, prompt: Prompt) -> PromptOutcome:
    """The outcome a real turn loop makes of an answer, JSON read and checked where it was asked for."""
    text = reply if isinstance(reply, str) else json.dumps(reply)
    value, parse_error, schema_errors = None, None, ()
    if prompt.json_output or prompt.output_schema is not None:
        try:
            value = json.loads(text)
            schema_errors = tuple(check(value, prompt.output_schema)) if prompt.output_schema else ()
        except ValueError as error:
            parse_error = str(error)
    usage = Usage(10, 5, requests=1)
    response = ModelResponse((TextPart(text),), "end", usage, "fake-1")
    return PromptOutcome(
        response=response,
        turn=(Message("user", prompt.parts), response.message()),
        usage=usage,
        cost_usd=0.5,
        turns=1,
        value=value,
        parse_error=parse_error,
        schema_errors=schema_errors,
        model="fake-1",
    )


class DirectoryFiles:
    """A FilePort over one real directory, good enough for tests: paths outside it are refused."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.roots = (root,)
        self.read_paths: list[str] = []

    def absolute(self, path: str) -> str:
        joined = (self.root / path).as_posix()
        if "\0" in path:
            raise PathDenied("a path has a NUL", hint="remove it")
        return joined

    def _within(self, path: str) -> Path:
        found = Path(self.absolute(path)).resolve()
        if not found.is_relative_to(self.root.resolve()):
            raise PathDenied(f"{path} is outside the roots", hint="name a file within them")
        return found

    async def read(self, path: str, *, max_bytes: int | None = None) -> FileText:
        data = await self.read_bytes(path)
        binary = b"\0" in data
        text = "" if binary else data.decode("utf-8")
        return FileText(path, text, len(data), hashlib.blake2b(data, digest_size=16).hexdigest(), binary)

    async def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes:
        self.read_paths.append(path)
        try:
            return await asyncio.to_thread(self._within(path).read_bytes)
        except OSError as error:
            raise FileFailure(f"{path} cannot be read: {error.strerror}", hint="check the path") from error

    async def write(self, path: str, content: Any, *, overwrite: bool = False, expected_digest: Any = None) -> None:
        raise PathDenied("read only")

    async def list(self, path: str) -> list[str]:
        return sorted(entry.name for entry in self._within(path).iterdir())

    async def exists(self, path: str) -> bool:
        return self._within(path).exists()


class FakeCommands:
    """A CommandPort that gives one result to every command; paths are the lines of its output."""

    def __init__(self, stdout: str = "", *, error: str | None = None) -> None:
        self.stdout = stdout
        self.error = error
        self.commands: list[Any] = []

    async def execute_command_safely(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> CommandResult:
        self.commands.append(command)
        if self.error is not None:
            return CommandResult(False, 1, "", self.error, error=self.error)
        return CommandResult(True, 0, self.stdout, "")

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        return [line for line in output.splitlines() if line]

    async def find_files(self, command: str | Sequence[str], call: CallContext | None = None) -> FoundFiles:
        ended = await self.execute_command_safely(command, call=call)
        return FoundFiles(tuple(self.parse_file_paths_from_output(ended.stdout)), ended.error)


class FakeChecker:
    """Checks and runs programs of a "language" that is a table of program texts.

    ``programs`` maps a text to a value, an exception to raise, or an (async) function of inputs and call. A text that is
    not in the table is a fault; so is a name in ``needs`` that was not granted.
    """

    def __init__(self, programs: Mapping[str, Any], needs: Mapping[str, Sequence[str]] | None = None) -> None:
        self.programs = programs
        self.needs = needs or {}
        self.ran: list[tuple[str, frozenset[str] | None, dict[str, Any]]] = []

    async def check(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str] = frozenset(), defined: Any = None
    ) -> list[AgentflowError]:
        text = program if isinstance(program, str) else program.text
        if text not in self.programs:
            return [SexpEvaluationError(f"unknown program {text!r}", code="name/unbound", hint="write a known one")]
        return [
            SexpEvaluationError(f"'{name}' is not granted", code="name/not-granted")
            for name in self.needs.get(text, ())
            if name not in allow
        ]

    def declaration(self, source: Source, *, undecorated: bool = False) -> Mapping[str, Any] | None:
        return None

    async def run(
        self,
        program: str | Source,
        allow: frozenset[str] | None,
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        steps: int | None = None,
    ) -> Any:
        text = program if isinstance(program, str) else program.text
        self.ran.append((text, allow, dict(inputs)))
        value = self.programs[text]
        if isinstance(value, Callable):
            value = value(inputs, call)
            if asyncio.iscoroutine(value):
                value = await value
        if isinstance(value, BaseException):
            raise value
        return value
