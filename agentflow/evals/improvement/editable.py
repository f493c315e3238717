"""The tasks with instructions that a search may rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from agentflow.core.data.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask
from agentflow.core.data.source import Source
from agentflow.core.data.templates import TaskTemplate
from agentflow.evals.cases import Case
from agentflow.evals.improvement.proposals import Trace
from agentflow.evals.scoring import is_function
from agentflow.flow.program_files import load_program, source_in
from agentflow.lang.bounds.texts import readied
from agentflow.lib.option_table import wrong_value
from agentflow.lib.text.suggest import did_you_mean
from agentflow.run.engine import Engine


@frozen
class EditableTask:
    """A task of the program, with its ``instructions``, the names of its ``parameters`` and its ``model``. ``is_plain``: it answers with
    text and names no tools."""

    name: str
    instructions: str
    parameters: tuple[str, ...]
    model: str | None = None
    is_plain: bool = True


async def editable_tasks(
    engine: Engine, program: Any, edit: Sequence[Any] | None, cases: Sequence[Case]
) -> dict[str, EditableTask]:
    """The tasks that ``edit`` names, as functions or by name; None: all tasks of the flow and the program.

    Raises ConfigurationError (``evals/edit``) for a name that no task has, and a task without instructions of its own.
    """
    own = await _own_tasks(engine, program, cases)
    registered = {name: engine.tasks.find_compiled(name) for name in engine.tasks.template_names()}
    templates = {**{name: each.template for name, each in registered.items() if each is not None}, **own}
    if edit is None:
        return {name: _editable(name, each) for name, each in templates.items() if _why_not(each) is None}
    if isinstance(edit, str):
        raise wrong_value("flow.improve", "edit", edit, "is one text, and a list is wanted", f"edit=['{edit}']")
    chosen: dict[str, EditableTask] = {}
    for each in edit:
        name, template = _named(each, templates)
        why = _why_not(template)
        if why is not None:
            raise ConfigurationError(
                f"the instructions of '{name}' cannot be edited: {why}",
                code="evals/edit",
                hint="name tasks with a text as instructions: edit=[reply]",
            )
        chosen[name] = _editable(name, template)
    if not chosen:
        raise wrong_value("flow.improve", "edit", edit, "names no task", "name tasks, or leave it out for all")
    return chosen


def check_called(
    tasks: Mapping[str, EditableTask], traces: Iterable[Trace], edit: Sequence[Any] | None
) -> Mapping[str, EditableTask]:
    """Those of the tasks that the cases call. Raises ConfigurationError (``evals/edit``) if ``edit`` names another."""
    called = {row.name for each in traces for row in each.rows if row.kind == "task"}
    unused = [name for name in tasks if name not in called]
    if unused and edit is not None:
        raise ConfigurationError(
            f"no case calls the task '{unused[0]}', so other instructions of it change nothing",
            code="evals/edit",
            hint=f"these are called: {', '.join(sorted(called)) or 'none'}",
        )
    kept = {name: each for name, each in tasks.items() if name in called}
    if not kept:
        raise ConfigurationError(
            "no case calls a task with instructions", code="evals/edit", hint="is this the program?"
        )
    return kept


def _named(each: Any, templates: Mapping[str, TaskTemplate]) -> tuple[str, TaskTemplate]:
    name = each if isinstance(each, str) else getattr(each, "name", None)
    if isinstance(name, str) and name in templates:
        return name, templates[name]
    if not isinstance(name, str):
        problem, hint = f"edit: {clip(repr(each), 80)} is not a task", "name tasks: edit=[reply], or edit=['reply']"
    elif hasattr(each, "carry_out"):
        problem, hint = f"edit: '{name}' is a workflow, which has no instructions", "name the tasks that it calls"
    else:
        problem = f"edit: no task here is called '{clip(name, 80)}'"
        hint = did_you_mean(name, templates) or f"there are {', '.join(sorted(templates)) or 'none'}"
    raise ConfigurationError(problem, code="evals/edit", hint=hint)


def _why_not(template: TaskTemplate) -> str | None:
    """Why the instructions of a task cannot be edited; None if they can."""
    if template.prompt_function is not None:
        return "its function writes the prompt"
    if template.is_function:
        return "no model answers it"
    return None if template.instructions.strip() else "it has none"


def _editable(name: str, template: TaskTemplate) -> EditableTask:
    answers_text = template.output_model is None and template.output_format.get("type", "text") == "text"
    is_plain = answers_text and not template.tools
    return EditableTask(name, template.instructions, tuple(template.params), template.model, is_plain)


async def _own_tasks(engine: Engine, program: Any, cases: Sequence[Case]) -> dict[str, TaskTemplate]:
    """The tasks that a program text defines itself. Raises the errors of its text."""
    if program is None or is_function(program):
        return {}
    source = source_in(await load_program(program))
    bound = {name for case in cases for name in case.inputs}
    text = readied(source, names=engine.names(), limits=engine.limits, env_names=bound)
    own: dict[str, TaskTemplate] = {}
    for name, several in text.templates.items():
        template = several[-1]
        try:
            compiled = (
                engine.tasks.prepare(cast("Mapping[str, Any]", template)) if isinstance(template, Mapping) else template
            )
        except AgentflowError:
            continue
        own[name] = cast(CompiledTask, compiled).template
    return own


def as_text(program: Any) -> Source | None:
    """The text of a program; None for a Python function, or the programs of recorded runs. Blocks for a Path."""
    if program is None or is_function(program):
        return None
    from agentflow.flow.program_files import source_of

    return source_in(source_of(program))
