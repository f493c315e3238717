"""Saved workflows: named programs with declared parameters, called like tasks.

A workflow is one ``.sexp`` or ``.py`` file: a header of comment lines that hold JSON, then the program::

    ;;; agentflow workflow 1
    ;;; {
    ;;;   "name": "review",
    ;;;   "params": {"path": {"type": "string"}},
    ;;;   "allow": ["summarise"],
    ;;;   "description": "Review a file"
    ;;; }
    (summarise (path path))

So the file is also an ordinary program. Its parameters are bound as variables. ``allow`` names the tasks, tools and
workflows it may use, restricted to those of its caller; null means all of the caller's. In a ``.py`` file the lines of the
header begin with ``###``; without one, ``@workflow(allow=[...])`` above ``main`` declares the workflow, named like the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError, field_validator

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, DataError, TaskError, cut
from agentflow.core.data.known_names import narrowed
from agentflow.core.data.models import MappingModel, validation_messages
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult, warn_of_failure
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.templates import Parameter, TaskTemplate
from agentflow.core.events.effects import CallWorkflow
from agentflow.core.events.events import TaskStarted
from agentflow.core.ports.ports import ProgramChecker
from agentflow.lib.file_writer import write_file
from agentflow.lib.own_threads import own_thread
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.template import resolve_beside

COMMENTS: Mapping[Surface, str] = MappingProxyType({"sexp": ";;;", "python": "###"})
"""The prefixes of header lines."""
MAGIC = ";;; agentflow workflow 1"
MAGIC_PYTHON = "### agentflow workflow 1"
MAX_FILE_BYTES = 4_000_000
MAX_NESTING = 1_000
"""Maximum nesting of workflow calls (and at most the run's ``depth``)."""

_MAGIC: Mapping[str, Surface] = MappingProxyType({MAGIC: "sexp", MAGIC_PYTHON: "python"})
_SUFFIXES: Mapping[Surface, str] = MappingProxyType({"sexp": ".sexp", "python": ".py"})
_NAME = late_pattern(r"[A-Za-z][A-Za-z0-9_-]{0,99}(?:[:.][A-Za-z0-9_-]{1,100}){0,8}")


class Workflow(MappingModel):
    """A named, parameterised program.

    ``params`` as in a TaskTemplate; ``allow`` the names it may call (None: all that its caller may); ``program`` its
    text, written in ``surface``.
    """

    name: str
    params: dict[str, Parameter] = Field(default_factory=dict[str, Parameter])
    program: str
    description: str = ""
    allow: list[str] | None = None
    surface: Surface = "sexp"

    @field_validator("params", mode="before")
    @classmethod
    def _read_params(cls, value: object) -> object:
        return TaskTemplate.model_validate({"name": "workflow", "params": value}).params

    @classmethod
    def from_result(cls, result: TaskResult, name: str, **fields: Any) -> Workflow:
        """The workflow of a successful plan, a result of ``solve``. ``fields``: params, description, allow.

        Unless ``allow`` says otherwise, it has the grants of the plan. Raises DataError if the result has no program, or a
        field is invalid.
        """
        program = result.notes.program
        if result.failed or program is None:
            raise DataError(
                "only a COMPLETE result of solve holds a program to save",
                code="workflow/no-program",
                hint='look at its notes: ["program"] is the text',
            )
        surface = result.notes.get("surface", "sexp")
        written = {"program": program, "allow": result.notes.get("allow"), "surface": surface}
        return make_workflow({"name": name, **written, **fields})

    @property
    def source(self) -> Source:
        """The program to compile."""
        return Source(f"{self.name}.{'py' if self.surface == 'python' else 'sexp'}", self.program, self.surface)

    def render(self) -> str:
        """The text of the workflow's file."""
        header = self.model_dump(mode="json", include={"name", "description", "allow"})
        header["params"] = {
            name: parameter.model_dump(mode="json", exclude_unset=True) for name, parameter in self.params.items()
        }
        lines = json.dumps(header, indent=2, ensure_ascii=False).split("\n")
        comment = COMMENTS[self.surface]
        return "\n".join(
            [f"{comment} agentflow workflow 1", *(f"{comment} {line}" for line in lines), "", self.program.strip(), ""]
        )


def make_workflow(fields: Mapping[str, Any], source: str = "workflow") -> Workflow:
    """Build and check a workflow from its fields. Raises DataError (``workflow/invalid``)."""
    try:
        workflow = Workflow.model_validate(dict(fields))
    except ValidationError as error:
        raise DataError(f"{source}: {'; '.join(validation_messages(error)[:5])}", code="workflow/invalid") from error
    if _NAME.fullmatch(workflow.name) is None:
        raise DataError(
            f"{source}: '{cut(workflow.name, 100)}' is not a workflow name",
            code="workflow/invalid",
            hint="names begin with a letter and hold letters, digits, '-', '_', ':' and '.'",
        )
    if not workflow.program.strip():
        raise DataError(f"{source}: workflow '{workflow.name}' has no program", code="workflow/invalid")
    return workflow


def parse_workflow(text: str, source: str = "workflow") -> Workflow:
    """Parse a workflow from the text of its file. Raises DataError (``workflow/invalid``) that names its fault."""
    lines = text.removeprefix("\ufeff").split("\n")
    surface = _MAGIC.get(lines[0].strip())
    if surface is None:
        hint = f"its first line is '{MAGIC}', or '{MAGIC_PYTHON}'"
        raise DataError(f"{source} is not a workflow file", code="workflow/invalid", hint=hint)
    end = 1
    while end < len(lines) and lines[end].startswith(COMMENTS[surface]):
        end += 1
    try:
        header = json.loads("\n".join(line[3:] for line in lines[1:end]))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: the header is not JSON: {error}", code="workflow/invalid") from None
    if not isinstance(header, dict):
        raise DataError(f"{source}: the header is not a JSON object", code="workflow/invalid")
    return make_workflow({**header, "program": "\n".join(lines[end:]).strip(), "surface": surface}, source)


class WorkflowLibrary:
    """The workflows of a directory.

    Parameters: ``checker`` checks programs before they are saved; ``directory`` holds their files (None: memory only).
    The run of a call runs them.
    """

    def __init__(self, checker: ProgramChecker, directory: str | Path | None = None) -> None:
        self.checker = checker
        self.directory = Path(directory) if directory is not None else None
        self._workflows: dict[str, Workflow] = {}
        self._loaded = directory is None

    def names(self) -> list[str]:
        """Names of the loaded and saved workflows, sorted."""
        return sorted(self._workflows)

    def find(self, name: str) -> Workflow | None:
        """The loaded or saved workflow of that name, or None."""
        return self._workflows.get(name)

    async def load_names(self) -> list[str]:
        """Names of all workflows, sorted; those of the directory are loaded before."""
        return self.names() if self._loaded else await self.load()

    async def load(self) -> list[str]:
        """Read the directory's ``.sexp`` and ``.py`` workflow files. Returns their names. Raises DataError naming a faulty file.

        Programs that declare no workflow are skipped.
        """
        if self.directory is not None:
            loaded = await own_thread(_read_directory, self.directory, self.checker.declaration)
            self._workflows.update((workflow.name, workflow) for workflow in loaded)
        self._loaded = True
        return self.names()

    async def save(self, workflow: Workflow) -> Path | None:
        """Check a workflow and write its file atomically. Returns its path (None without a directory).

        Raises DataError (``workflow/invalid``) that lists all faults of its program.
        """
        workflow = make_workflow(workflow.model_dump(exclude_unset=True))
        await self._check(workflow)
        path: Path | None = None
        if self.directory is not None:
            path = self.directory / f"{workflow.name.replace(':', '%3A')}{_SUFFIXES[workflow.surface]}"
            await own_thread(_write, path, workflow)
        self._workflows[workflow.name] = workflow
        return path

    async def _check(self, workflow: Workflow) -> None:
        if workflow.allow is None:
            return  # it may call the names of its caller, which is checked at the call
        allow, names = frozenset(workflow.allow), frozenset(workflow.params)
        faults: Sequence[AgentflowError] = await self.checker.check(workflow.source, allow, names)
        if faults:
            raise DataError(
                f"workflow '{workflow.name}' has faults: " + "; ".join(fault.message for fault in list(faults)[:5]),
                code="workflow/invalid",
                details={"faults": [fault.to_dict() for fault in list(faults)[:50]]},
            )

    async def call_workflow(self, effect: CallWorkflow, call: CallContext) -> TaskResult:
        """Run a workflow within ``call``, between Task events, for ``(call-workflow name (param value) ...)``.

        Returns the program's value as a TaskResult (a TaskResult unchanged). Unknown names, missing or invalid
        parameters and nesting past the limit are FAILED results; errors of the program pass through.
        """
        await self.load_names()
        workflow = self._workflows.get(effect.name)
        if call.run.journal is not None:
            text = None if workflow is None else workflow.render()
            stored = call.run.journal.pin("workflow", effect.name, text, call)
            workflow = None if stored is None else parse_workflow(stored, f"the stored workflow '{effect.name}'")
        if workflow is None:
            return TaskResult.failure(
                "input_validation_failure",
                f"there is no workflow '{effect.name}'",
                details={
                    "cause": "workflow_not_found",
                    "code": "workflow/not-found",
                    "hint": did_you_mean(effect.name, self._workflows),
                },
            )
        nested = 1 + next((int(mark[9:]) for mark in call.subtask_chain if mark.startswith("workflow:")), 0)
        # One counting mark instead of one per level: chains are copied at each call.
        chain = (*(mark for mark in call.subtask_chain if not mark.startswith("workflow:")), f"workflow:{nested}")
        request = SubtaskRequest(subtype="workflow", name=workflow.name, inputs=dict(effect.arguments))
        with call.nested(TaskStarted, name=workflow.name, request=request) as scope:
            scope.call.subtask_chain = chain
            result = await self._run(workflow, effect.arguments, scope.call, nested)
            scope.set(result=result, usage=result.usage)
        return result

    async def _run(
        self, workflow: Workflow, arguments: Mapping[str, Any], call: CallContext, nested: int
    ) -> TaskResult:
        allowed = min(MAX_NESTING, call.run.limits.depth)
        if nested > allowed:
            return TaskResult.failure(
                "execution_halted",
                f"workflow '{workflow.name}' is nested {nested} deep; at most {allowed} is allowed",
                details={"cause": "depth", "code": "workflow/depth"},
            )
        try:
            values, undeclared = await resolve_beside(workflow.name, workflow.params, arguments)
        except TaskError as error:
            return TaskResult.from_error(error, workflow=workflow.name)
        allow = None if workflow.allow is None else frozenset(workflow.allow)
        if allow is not None:
            allow = narrowed(narrowed(call.grants, call.held), allow)
        value = await call.run.run_program(workflow.source, allow, values, call)
        result = warn_of_failure(TaskResult.of(value), call.warn)
        if undeclared:
            result = result.with_notes(undeclared_parameters=undeclared)
        return result.with_notes(workflow=workflow.name)


def _read_directory(directory: Path, declaration: Callable[[Source], Mapping[str, Any] | None]) -> list[Workflow]:
    if not directory.is_dir():
        raise DataError(f"{directory} is not a directory", code="workflow/unreadable")
    by_name: dict[str, Workflow] = {}
    for path in sorted([*directory.glob("*.sexp"), *directory.glob("*.py")]):
        try:
            with path.open("rb") as handle:
                text = handle.read(MAX_FILE_BYTES + 1).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read: {error}", code="workflow/unreadable") from error
        if len(text) > MAX_FILE_BYTES:
            raise DataError(f"{path} has more than {MAX_FILE_BYTES:,} bytes", code="workflow/unreadable")
        workflow = _workflow_in(text, path, declaration)
        if workflow is None:
            continue
        if workflow.name in by_name:
            raise DataError(f"{path}: workflow '{workflow.name}' is in another file too", code="workflow/invalid")
        by_name[workflow.name] = workflow
    return list(by_name.values())


def declared_parts(source: Source, checker: ProgramChecker) -> Mapping[str, Any] | None:
    """The ``params``, ``allow`` and ``description`` that a program declares: in the header of its file, else by its ``main``.

    None for a program that declares none. Raises DataError and AgentflowError.
    """
    text = source.text.removeprefix("\ufeff")
    if text.partition("\n")[0].strip() in _MAGIC:
        return dict(parse_workflow(text, source.name))
    return checker.declaration(source, undecorated=True)


def _workflow_in(text: str, path: Path, declaration: Callable[[Source], Mapping[str, Any] | None]) -> Workflow | None:
    """The workflow that a file declares, by its header or its code; None for any other program."""
    text = text.removeprefix("\ufeff")
    if text.partition("\n")[0].strip() in _MAGIC:
        return parse_workflow(text, str(path))
    if path.suffix != ".py" or "@workflow" not in text:
        return None
    try:
        fields = declaration(Source(str(path), text, "python"))
    except AgentflowError as error:
        raise DataError(f"{path}: {error.message}", code="workflow/invalid", hint=error.hint) from error
    if fields is None:
        return None
    name = path.stem.replace("%3A", ":")
    return make_workflow({"name": name, **fields, "program": text, "surface": "python"}, str(path))


def _write(path: Path, workflow: Workflow) -> None:
    for suffix in _SUFFIXES.values():
        other = path.with_name(path.name.removesuffix(path.suffix) + suffix)
        if other != path and other.exists():
            raise DataError(
                f"{path} would be a second file of '{workflow.name}', beside {other.name}",
                code="workflow/unwritable",
                hint=f"remove {other.name}, or save under another name",
            )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, workflow.render().encode(), mode=0o644)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror}", code="workflow/unwritable", hint="check the directory"
        ) from error
