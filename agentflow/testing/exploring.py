"""Exploring programs from Python: the possible outcomes of a program, and repeating one run with prescribed answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentflow.core.ports.ports import Tool
from agentflow.exploration.answer_search import RUNS, SURE_EFFECTS, SURE_STEPS
from agentflow.exploration.answer_search import explore as search
from agentflow.exploration.findings import Exploration
from agentflow.exploration.rehearsal import Rehearsal, Setting, tools_of
from agentflow.exploration.stand_ins import Answer, PrescribedAnswers
from agentflow.exploration.virtual_time import in_virtual_time
from agentflow.flow.program_files import ProgramLike, load_program
from agentflow.handler.tools import tool_from_function
from agentflow.lang.program import Program, as_source

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.core.data.source import Source


async def explore(
    program: ProgramLike,
    bindings: Mapping[str, Any] | None = None,
    runs: int = RUNS,
    *,
    tools: Sequence[Callable[..., Any] | Tool] = (),
    flow: AgentFlow | None = None,
    allow: Iterable[str] | None = None,
    assume: Mapping[str, Mapping[str, Any]] | None = None,
) -> Exploration:
    """Explore the possible outcomes of a program, without calling a model or a tool and without real waits.

    Parameters:
        program: text, a Path, a Source or a compiled program.
        bindings: its variables.
        runs: maximum number of runs.
        tools: functions of the host that the program calls. They are not executed: their arguments are checked, and values
            that fit their return annotations stand for their results.
        flow: the flow with the tasks and tools that the program calls; they are not executed either.
        allow: the only tasks and tools the program may use, as for ``flow.run``.
        assume: constraints on answers, as rules of a JSON Schema for fields, tasks and tools by name:
            ``{"grade": {"minimum": 0, "maximum": 10}}``.

    Returns the Exploration, with its findings. Raises SexpSyntaxError and SexpEvaluationError for an invalid program.
    """
    source = await _source_of(program)
    setting = setting_of(bindings, tools=tools, flow=flow, allow=allow, assume=assume)
    return await explore_source(source, setting, runs)


async def explore_source(source: Source, setting: Setting, runs: int = RUNS) -> Exploration:
    """Explore the program ``source`` in ``setting``, at most ``runs`` times. Raises SexpSyntaxError and SexpEvaluationError."""

    async def work(stopped: Callable[[], bool]) -> Exploration:
        return await search(Rehearsal(source, setting), runs, stopped)

    return await in_virtual_time(work)


async def rehearse(
    program: ProgramLike,
    answers: Iterable[Answer] = (),
    bindings: Mapping[str, Any] | None = None,
    *,
    tools: Sequence[Callable[..., Any] | Tool] = (),
    flow: AgentFlow | None = None,
) -> Any:
    """Run a program once with prescribed answers and return its value; nothing is called, and waits take no time.

    Each answer goes to the task, tool or person it names, within its branch, in order; once they are used up, the simplest
    value that fits the schema is used. Other parameters as for :func:`explore`. Raises the program's error, and LimitExceeded
    after 600 calls of tasks, tools and people.
    """
    source = await _source_of(program)
    setting = setting_of(bindings, tools=tools, flow=flow)

    async def work(_: Callable[[], bool]) -> Any:
        rehearsal = Rehearsal(source, setting)
        prescribed = PrescribedAnswers(answers, rehearsal.values)
        trial = await rehearsal.run(prescribed, steps=SURE_STEPS, effects=SURE_EFFECTS)
        if trial.error is not None:
            raise trial.error
        return trial.value

    return await in_virtual_time(work)


def setting_of(
    bindings: Mapping[str, Any] | None = None,
    *,
    tools: Sequence[Callable[..., Any] | Tool] = (),
    flow: AgentFlow | None = None,
    allow: Iterable[str] | None = None,
    assume: Mapping[str, Mapping[str, Any]] | None = None,
) -> Setting:
    """The setting to explore a program in. Parameters as for :func:`explore`. Raises ConfigurationError for a non-tool in ``tools``."""
    own = tuple([tool if isinstance(tool, Tool) else tool_from_function(tool) for tool in tools])
    if flow is None:
        return Setting(bindings=dict(bindings or {}), tools=own, grants=_grants(allow), assumed=dict(assume or {}))
    tasks, registry = flow.engine.tasks, flow.engine.tools
    compiled = [tasks.find_compiled(name) for name in tasks.template_names()]
    registered = [registry.find(name) for name in registry.names()]
    return Setting(
        bindings=dict(bindings or {}),
        templates=tuple([each for each in compiled if each is not None]),
        tools=(*tools_of([each for each in registered if each is not None]), *own),
        grants=_grants(allow),
        assumed=dict(assume or {}),
    )


def _grants(allow: Iterable[str] | None) -> frozenset[str] | None:
    return None if allow is None else frozenset(allow)


async def _source_of(program: ProgramLike) -> Source:
    loaded = await load_program(program)
    return loaded.source if isinstance(loaded, Program) else as_source(loaded)


__all__ = ["explore", "explore_source", "rehearse", "setting_of"]
