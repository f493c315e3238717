"""The seven system tools: context, files, commands and the data context of a session, for programs and models.

Each takes a dict of parameters and a call, and returns a TaskResult; an error becomes a FAILED result with a reason of
specification document 4.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.reading import found_in, written_from
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.data.errors import FileFailure, PathDenied, RunStopped
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.reasons import Reason
from agentflow.core.data.result_notes import ErrorInfo, FailedPart, Notes
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import plain, to_json
from agentflow.core.events.events import ContextStarted
from agentflow.core.ports.executor_ports import CommandPort, CommandResult, FilePort
from agentflow.core.ports.memory_ports import ContextFinder
from agentflow.core.ports.ports import DataContextPort, Tool
from agentflow.executors.tool_specs import SCHEMAS, problem_with
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.suggest import did_you_mean

_FILE_TAG = late_pattern(r"<(?=\s*/?\s*file\b)", re.IGNORECASE)


_FAILED: Mapping[str, Reason] = {
    "system:get_context": "context_retrieval_failure",
    "system:read_files": "unexpected_error",
    "system:list_directory": "unexpected_error",
    "system:write_file": "unexpected_error",
    "system:execute_shell_command": "unexpected_error",
    "system:clear_handler_data_context": "unexpected_error",
    "system:prime_handler_data_context": "context_priming_failure",
}
"""The reason of an unforeseen failure, by tool."""
Method = Callable[[dict[str, Any], CallContext], Awaitable[TaskResult]]


class SystemTools:
    """The system tools' implementation.

    Parameters: ``memory`` answers context queries, ``files`` reads and writes files, ``commands`` runs commands,
    ``contexts`` primes sessions (None: the two data-context tools return FAILED, dependency_error).
    """

    def __init__(
        self,
        memory: ContextFinder | None,
        files: FilePort,
        commands: CommandPort,
        contexts: DataContextPort | None = None,
    ) -> None:
        self._memory = memory
        self._files = files
        self._commands = commands
        self._contexts = contexts
        self._methods: dict[str, Method] = {
            "system:get_context": self._get_context,
            "system:read_files": self._read_files,
            "system:list_directory": self._list_directory,
            "system:write_file": self._write_file,
            "system:execute_shell_command": self._execute_shell_command,
            "system:clear_handler_data_context": self._clear_handler_data_context,
            "system:prime_handler_data_context": self._prime_handler_data_context,
        }

    def tools(self) -> list[Tool]:
        """The seven tools, to be registered. They are built in: a model is offered them only where a task names them.

        ``system:execute_shell_command`` does not ask for approval as a tool. The command policy does, with an approval
        bound to the program and arguments that will run, unless a rule allows or denies them.
        """
        tools: list[Tool] = []
        for name, entry in SCHEMAS.items():
            tools.append(
                Tool(
                    spec=ToolSpec(name, entry.description, entry.schema),
                    call=self._as_tool(name),
                    read_only=entry.read_only,
                    idempotent=entry.idempotent,
                    sequential=entry.sequential,
                    approval=entry.approval,
                    returns=entry.returns,
                    builtin=True,
                    prepare=self._prepare_command if name == "system:execute_shell_command" else None,
                )
            )
        return tools

    async def _prepare_command(
        self, params: dict[str, Any], call: CallContext
    ) -> Callable[[CallContext], Awaitable[TaskResult]]:
        refusal = _refusal("system:execute_shell_command", params)
        run = None if refusal is not None else await self._commands.prepare(*_command(params), call)

        async def start(inner: CallContext) -> TaskResult:
            return _command_result(await run()) if run is not None else cast(TaskResult, refusal)

        return start

    def _as_tool(self, name: str) -> Callable[[dict[str, Any], CallContext], Awaitable[TaskResult]]:
        async def call_tool(arguments: dict[str, Any], call: CallContext) -> TaskResult:
            return await self.run(name, arguments, call)

        return call_tool

    async def run(self, name: str, params: dict[str, Any], call: CallContext) -> TaskResult:
        """Run the tool ``name`` with ``params``. Any exception, except a limit, becomes a FAILED result."""
        refusal = _refusal(name, params)
        if refusal is not None:
            return refusal
        try:
            return await self._methods[name](params, call)
        except RunStopped:
            raise
        except Exception as error:  # noqa: BLE001 - any part may be an object of the host; document 4 requires a result
            return TaskResult.from_error(error, reason=_FAILED[name])

    # -- context ----------------------------------------------------------------------------------------------------

    async def _get_context(self, params: dict[str, Any], call: CallContext) -> TaskResult:
        question = ContextGenerationInput(
            query=params["query"],
            inherited_context=params.get("history") or "",
            target_files=params.get("target_files") or [],
        )
        with call.scope(ContextStarted, input=question) as scope:
            answer = await self._lookup(question, scope.call)
            if isinstance(answer, AssociativeMatchResult):
                outcome = "failed" if _nothing(answer) else "ok"
                scope.set(paths=tuple(answer.file_paths), outcome=outcome, **found_in(call.reading, answer.file_paths))
            else:
                scope.set(outcome="failed", error=answer.error)
        if isinstance(answer, TaskResult):
            return answer
        if _nothing(answer):
            return TaskResult.failure(
                "context_retrieval_failure",
                f"the context lookup failed: {answer.error}",
                details={"code": "context/failed"},
            )
        paths = answer.file_paths
        if call.reading is not None:
            call.reading.say(call.reading.guard.of_files(paths))
        result = TaskResult.complete(
            to_json(paths),
            paths,
            file_paths=paths,
            context_summary=answer.context_summary,
            matches=[plain(match) for match in answer.matches],
        )
        if answer.error:
            result = result.with_notes(warning=answer.error)
        return result.with_notes(skipped=answer.skipped) if answer.skipped else result

    async def _lookup(self, question: ContextGenerationInput, call: CallContext) -> AssociativeMatchResult | TaskResult:
        if self._memory is None:
            return TaskResult.failure(
                "context_retrieval_failure",
                "there is no memory system to search",
                details={"code": "context/no-memory"},
            )
        return await self._memory.find(question, call)

    async def _clear_handler_data_context(self, params: dict[str, Any], call: CallContext) -> TaskResult:
        if self._contexts is None:
            return _no_handler()
        self._contexts.clear(call)
        return TaskResult.complete("the data context is cleared")

    async def _prime_handler_data_context(self, params: dict[str, Any], call: CallContext) -> TaskResult:
        if self._contexts is None:
            return _no_handler()
        query, files = params.get("query"), params.get("initial_files")
        if not query and not files:
            return _invalid("there is nothing to prime with: pass query, initial_files or both")
        primed = await self._contexts.prime(query, files, call)
        count = len(primed.items)
        result = TaskResult.complete(
            f"the data context holds {count} item{'' if count == 1 else 's'}",
            None,
            item_count=count,
            context_summary=primed.overall_summary,
        )
        return result.with_notes(failed_parts=primed.failed_parts) if primed.failed_parts else result

    # -- files ------------------------------------------------------------------------------------------------------

    async def _read_files(self, params: dict[str, Any], call: CallContext) -> TaskResult:
        texts: list[str] = []
        skipped: list[str] = []
        errors: list[dict[str, str]] = []
        failed: list[FailedPart] = []
        digests: dict[str, str] = {}
        for path in cast(list[str], params["file_paths"]):
            try:
                file = await self._files.read(path)
                if file.binary:
                    raise FileFailure(f"{path!r} is binary", code="files/binary")
            except (PathDenied, FileFailure) as error:
                skipped.append(path)
                errors.append({"path": path, "code": error.code, "message": error.message})
                failed.append(FailedPart(path, _file_error(error), exception=error))
                continue
            digests[path] = file.digest
            texts.append(f'<file path="{_attribute(path)}">\n{_FILE_TAG.sub("&lt;", file.text)}\n</file>')
        if call.reading is not None:
            call.reading.say(call.reading.guard.of_files(digests))
        notes: dict[str, Any] = {"files_read_count": len(texts), "skipped_files": skipped, "digests": digests}
        if errors:
            notes["errors"] = errors
        if failed and params.get("missing") != "skip":
            notes["failed_parts"] = failed
        return TaskResult.complete("\n".join(texts), None, **notes)

    async def _list_directory(self, params: dict[str, Any], call: CallContext) -> TaskResult:
        try:
            names = await self._files.list(params["directory_path"])
        except (PathDenied, FileFailure) as error:
            return TaskResult("FAILED", error.message, notes=Notes(error=_file_error(error)), exception=error)
        return TaskResult.complete(to_json(names), names, directory_contents=names)

    async def _write_file(self, params: dict[str, Any], call: CallContext) -> TaskResult:
        path, content = params["file_path"], params["content"]
        try:
            async with written_from(call.reading, path):
                await self._files.write(
                    path,
                    content,
                    overwrite=params.get("overwrite") or False,
                    expected_digest=params.get("expected_digest"),
                )
        except (PathDenied, FileFailure) as error:
            return TaskResult("FAILED", error.message, notes=Notes(error=_file_error(error)), exception=error)
        return TaskResult.complete(f"wrote {len(content.encode())} bytes to {path}", None, file_path=path)

    # -- commands ---------------------------------------------------------------------------------------------------

    async def _execute_shell_command(self, params: dict[str, Any], call: CallContext) -> TaskResult:
        return _command_result(await self._commands.execute_command_safely(*_command(params), call))


def _command(params: dict[str, Any]) -> tuple[str, str | None, float | None]:
    return params["command"], params.get("cwd"), params.get("timeout")


def _command_result(ended: CommandResult) -> TaskResult:
    notes: dict[str, Any] = {
        "success": ended.success,
        "exit_code": ended.exit_code,
        "stdout": ended.stdout,
        "stderr": ended.stderr,
        "stdout_bytes": ended.stdout_bytes,
        "stderr_bytes": ended.stderr_bytes,
        "duration_s": round(ended.duration_s, 3),
    }
    if ended.success:
        return TaskResult.complete(ended.stdout, None, **notes)
    message = ended.error or "the command failed"
    details: dict[str, Any] = {"code": ended.code, "exit_code": ended.exit_code, "timed_out": ended.timed_out}
    if ended.hint:
        details["hint"] = ended.hint
    result = TaskResult.failure(ended.reason or "tool_execution_error", message, details=details, **notes)
    explains = ended.exit_code is not None and bool(ended.stderr.strip())
    outputs = [
        each for each in (ended.stdout, ended.stderr) if each.strip()
    ]  # many programs report failures on the first
    return replace(result, content="\n".join([*([] if explains else [message]), *outputs])) if outputs else result


def _file_error(error: PathDenied | FileFailure) -> ErrorInfo:
    """The description of a file operation that was refused or failed; its details hold the code."""
    info = ErrorInfo.of_exception(error, "tool_execution_error")
    return replace(info, details={"cause": "refused" if isinstance(error, PathDenied) else "failed", **info.details})


def _nothing(answer: AssociativeMatchResult) -> bool:
    return bool(answer.error) and not answer.matches


def _refusal(name: str, params: object) -> TaskResult | None:
    """A FAILED result if ``params`` do not match the tool's schema, else None."""
    if not isinstance(params, dict):
        return _invalid(f"{name} takes an object of named parameters, not {type(params).__name__}")
    arguments = cast(dict[str, Any], params)
    properties: dict[str, dict[str, Any]] = SCHEMAS[name].schema["properties"]
    for key in arguments:
        if key not in properties:
            hint = did_you_mean(str(key), list(properties)) or f"it takes {', '.join(properties) or 'none'}"
            return _invalid(f"{name} has no parameter {str(key)!r}; {hint}")
    for key in SCHEMAS[name].schema["required"]:
        if key not in arguments:
            return _invalid(f"{name} needs the parameter {key!r}: {properties[key]['description']}")
    for key, value in arguments.items():
        if value is None and key not in SCHEMAS[name].schema["required"]:
            continue
        wrong = problem_with(value, properties[key])
        if wrong is not None:
            return _invalid(f"{name}: {key!r} {wrong}")
    return None


def _invalid(message: str) -> TaskResult:
    return TaskResult.failure("input_validation_failure", message, details={"code": "tool/arguments"})


def _no_handler() -> TaskResult:
    return TaskResult.failure(
        "dependency_error",
        "there is no handler with a data context",
        details={"code": "executors/handler"},
    )


def _attribute(path: str) -> str:
    text = path.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(char if char.isprintable() else f"&#{ord(char)};" for char in text)
