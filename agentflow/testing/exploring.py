"""Exploring programs from Python: what can happen to a program, and one run of it again with given answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentflow.core.ports import Tool
from agentflow.exploration.answers import Answer, GivenAnswers
from agentflow.exploration.findings import Exploration
from agentflow.exploration.rehearsal import Rehearsal, Setting, tools_of
from agentflow.exploration.search import RUNS, SURE_EFFECTS, SURE_STEPS
from agentflow.exploration.search import explore as search
from agentflow.exploration.virtual_time import in_virtual_time
from agentflow.handler.tools import tool_from_function
from agentflow.lang.program import Program, as_source
from agentflow.runtime.program_files import ProgramLike, load_program

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.core.source import Source


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
    """What can happen to a program, without a model, a tool or the time it would take.

    Parameters:
        program: text, a Path, a Source or a compiled program.
        bindings: its variables.
        runs: how often it is run at most.
        tools: functions of the host that it calls. They are not called: their arguments are checked, and what they give is
            what their annotations say.
        flow: the flow whose tasks and tools it calls; nothing of it is called either.
        allow: the only tasks and tools it may name, as for ``flow.run``.
        assume: what answers are like, as rules of a JSON Schema for fields, tasks and tools by name:
            ``{"grade": {"minimum": 0, "maximum": 10}}``.

    Raises SexpSyntaxError and SexpEvaluationError for a text that is no program.
    """
    source = await _source_of(program)
    setting = setting_of(bindings, tools=tools, flow=flow, allow=allow, assume=assume)
    return await explore_source(source, setting, runs)


async def explore_source(source: Source, setting: Setting, runs: int = RUNS) -> Exploration:
    """What can happen to a program in this setting. Raises SexpSyntaxError and SexpEvaluationError."""

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
    """Run a program once with these answers, and give its value: nothing is called, and no time goes by.

    Answers go to whom they name, within their branch, in order; who has none left gives the plainest one that its schema allows.
    Other parameters as for :func:`explore`. Raises the program's error; LimitExceeded after 600 calls of tasks, tools and people.
    """
    source = await _source_of(program)
    setting = setting_of(bindings, tools=tools, flow=flow)

    async def work(_: Callable[[], bool]) -> Any:
        rehearsal = Rehearsal(source, setting)
        given = GivenAnswers(answers, rehearsal.values)
        trial = await rehearsal.run(given, steps=SURE_STEPS, effects=SURE_EFFECTS)
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
    """What a program is explored with. Parameters as for :func:`explore`. Raises ConfigurationError for what is no tool."""
    own = tuple([tool if isinstance(tool, Tool) else tool_from_function(tool) for tool in tools])
    if flow is None:
        return Setting(bindings=dict(bindings or {}), tools=own, grants=_grants(allow), assumed=dict(assume or {}))
    tasks, registry = flow.engine.tasks, flow.engine.tools
    found = [tasks.find_compiled(name) for name in tasks.template_names()]
    registered = [registry.find(name) for name in registry.names()]
    return Setting(
        bindings=dict(bindings or {}),
        templates=tuple([each for each in found if each is not None]),
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
