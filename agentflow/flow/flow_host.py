"""Carries out the calls of one flow: programs, Python functions and questions, alone or within the executing run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from agentflow.core.call.call import CallContext, executing_call
from agentflow.core.call.endings import Handoff
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.known_names import Definitions, narrowed
from agentflow.core.data.labels import NO_SOURCES
from agentflow.core.data.limits import Limits
from agentflow.core.data.session import Session
from agentflow.core.data.templates import QUESTION
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.toolbox import Toolbox
from agentflow.flow.host_spans import HostSpans
from agentflow.flow.program_files import ProgramLike, load_program, source_in
from agentflow.flow.python import FlowCall, FlowWork, python_work
from agentflow.flow.task_options import Task, TaskSettings
from agentflow.handler.tool_lists import read_tools
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.option_table import wrong_value
from agentflow.run.bounds.estimator import LateEstimator
from agentflow.run.engine import Engine
from agentflow.run.handle import Recorded, RunResult
from agentflow.run.run_spec import PLAIN, RunSpec
from agentflow.run.strand.program_compiler import beside_the_loop
from agentflow.tasks.from_function import Returns

if TYPE_CHECKING:
    from agentflow.flow.skills import SkillReader
    from agentflow.run.bounds.estimate import Bounds
    from agentflow.run.run_stream import OwnReader

_MOST_ASKED = 200
_PROMPT = {"name": QUESTION, "params": {"prompt": "string"}, "instructions": "{{prompt}}"}
_PROMPT_WITH_MEDIA = {**_PROMPT, "params": {"prompt": "string", "attached": "any"}}


class FlowHost:
    """The host of a flow's calls; implements :class:`~agentflow.flow.python.Host`.

    Parameters: ``engine`` opens runs, ``tools`` are the flow's, ``estimator`` works out bounds; ``records`` reads the recorded
    events of runs (None: nothing is recorded). ``skills`` are the directories of the flow's skills, ``readable`` the directories
    that commands may read.
    """

    def __init__(
        self,
        engine: Engine,
        tools: ToolRegistry,
        estimator: LateEstimator,
        records: Recorded | None = None,
        *,
        skills: object = (),
        readable: Sequence[str] = (),
    ) -> None:
        self.engine = engine
        engine.host = self
        self.tools = tools
        self.estimator = estimator
        self.records = records
        self.spans = HostSpans()
        self.workflows: dict[str, Tool] = {}
        """The workflows of the flow as tools, by name."""
        self._asked: dict[Any, Task[Any]] = {}
        self._bound: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._speaks_of_tools = False
        self._readable = readable
        self._skills: SkillReader | None = None
        self.skills: Tool | None = self.read_skills(skills, "AgentFlow")
        """The tool that reads the skills of the flow."""

    # -- runs -------------------------------------------------------------------------------------------------------

    async def run_alone(self, call: FlowCall[Any]) -> Any:
        return (await self.run(call, PLAIN)).value

    async def run(
        self, program: ProgramLike | FlowCall[Any], spec: RunSpec, own: OwnReader | None = None
    ) -> RunResult[Any]:
        """Run a program or a call as part of the executing run, or as a run of its own. ``own`` reads its events."""
        outer = executing_call()
        if outer is not None and spec.limits is not None:
            spec = replace(spec, limits=spec.limits.within(outer.run.limits))
        if isinstance(program, FlowCall):
            program.bind(self)
            if program.session is not None:
                spec = replace(spec, session=_session_of(program, spec.session))
            if program.purse is not None and spec.purse is None:
                spec = replace(spec, purse=program.purse)
            if program.deps is not None and spec.deps is None:
                spec = replace(spec, deps=program.deps)
            work = python_work(program, spec.bindings, spec.env)
            grants = None if spec.allow is None else frozenset(spec.allow)
            if outer is None:
                await self.engine.turn()
            else:
                grants = narrowed(outer.grants, grants)
        else:
            work, grants = await self._compiled(program, spec, outer)
        if outer is not None:
            return await self._part(outer, work, spec, grants, own)
        async with self.engine.open(work.name, spec, program=work.digest, grants=grants, own=own) as (run, call):
            if own is not None:
                own.run = run
            if work.program is not None and self.engine.shows_bounds:
                await self.engine.admission.announce(work.program, spec.bindings, grants, call)
            value = await work.evaluate(call)
        return RunResult(
            value,
            run.usage,
            run.cost_usd,
            run.run_id,
            run.budget.steps_used,
            self.records,
            sources=NO_SOURCES if call.reading is None else call.reading.sources,
        )

    async def _part(
        self, outer: CallContext, work: FlowWork, spec: RunSpec, grants: frozenset[str] | None, own: OwnReader | None
    ) -> RunResult[Any]:
        """Do the work as a part of the run of ``outer``."""
        path = outer.next_path("program", work.digest, spec.bindings or {})
        async with nullcontext(Session()) if spec.session is None else spec.session.used() as copy:
            part, call = self.engine.join(outer, path, spec, session=copy, grants=grants, own=own)
            if own is not None:
                own.run = part
            async with self.engine.called_back(outer, call), part.clock():
                value = await work.evaluate(call)
        return RunResult(
            value,
            part.usage,
            part.cost_usd,
            part.run_id,
            part.budget.steps_used,
            sources=NO_SOURCES if call.reading is None else call.reading.sources,
        )

    async def _compiled(
        self, program: ProgramLike, spec: RunSpec, outer: CallContext | None
    ) -> tuple[FlowWork, frozenset[str] | None]:
        """A program ready to run, and its grants."""
        if outer is None:  # compiling is most of the work of starting a run
            await self.engine.turn()
        source = await load_program(program)
        bindings = await self.engine.given(spec.bindings) if spec.bindings else None
        if spec.env is not None:
            environment = spec.env.with_bindings(bindings) if bindings else spec.env
        else:
            environment = SexpEnvironment(dict(bindings or {}))
        defined = outer.definitions if outer is not None else None
        compiler = self.engine.compiler
        grants = None if spec.allow is None else await compiler.granted(spec.allow, source, environment, defined)
        if outer is not None:
            grants = narrowed(outer.grants, outer.held if spec.allow is None else grants)
        compiled = await compiler.compiled(source, env=environment, grants=grants, limits=spec.limits, defined=defined)
        evaluate = partial(self.engine.evaluate, compiled, environment, fitted=True)
        return FlowWork(compiled.source.name, compiled.source.digest, evaluate, compiled), grants

    async def bounds(
        self,
        program: ProgramLike,
        *,
        bindings: Mapping[str, Any] | None = None,
        allow: frozenset[str] | None = None,
        limits: Limits | None = None,
        defined: Definitions | None = None,
    ) -> Bounds:
        """The most that a program may do and cost; see :meth:`agentflow.AgentFlow.bounds`. ``defined`` are tasks in the
        place of those of the flow."""
        loaded = await load_program(program)
        source = source_in(loaded)
        granted = loaded.allow if allow is None and isinstance(loaded, Program) else allow
        estimator = await self.estimator.ready()
        names, in_force = self.engine.names(), limits or self.engine.limits

        def work(allowance: StepAllowance) -> Bounds:
            return estimator.bounds(
                source, names, bindings=bindings, allow=granted, defined=defined, allowance=allowance, limits=in_force
            )

        bounds = await beside_the_loop(source, work, self.engine.limits, at_once=False)
        unmet = await self.engine.unmet_rules(source, bindings or {})
        return replace(bounds, notes=(*bounds.notes, *unmet)) if unmet else bounds

    # -- tools and questions ----------------------------------------------------------------------------------------

    def read_tools(self, tools: object, where: str) -> tuple[list[str] | None, Toolbox]:
        self._speaks_of_tools = True
        return read_tools(self.all_bound(tools), self.tools, where)

    def read_skills(self, directories: object, where: str) -> Tool | None:
        if directories == () or directories == []:
            return None
        if self._skills is None:
            from agentflow.flow.skills import SkillReader  # few flows have skills

            self._skills = SkillReader(self._readable)
        return self._skills.tool(directories, where)

    # The author of a function does not determine the flow: each flow compiles it with its own tools (decision 56)
    def bound(self, declared: Any) -> Any:
        if isinstance(declared, Handoff):
            return replace(declared, task=self.bound(declared.task))
        if not hasattr(declared, "bound_to"):
            return declared
        own = self._bound.get(declared)
        if own is None:
            own = declared.bound_to(self)
            if own is not declared:
                self._bound[declared] = own
        return own

    def all_bound(self, listed: Any) -> Any:
        return [*map(self.bound, cast("Sequence[object]", listed))] if isinstance(listed, list | tuple) else listed

    def declare(self, tasks: Sequence[Any]) -> None:
        """Let programs, durable runs and workers find ``tasks``, tasks and workflows without a flow. Raises ConfigurationError
        (``config/option``) for anything else, and for two of one name."""
        names: set[str] = set()
        for each in tasks:
            own = self.bound(each)
            if own is each or own.of_class:
                why = "is called on an object" if own is not each else "was not declared without a flow"
                how = "write @agentflow.task above the function; give a method of an object: tasks=[support.reply]"
                raise wrong_value("AgentFlow", "tasks", each, why, how)
            if own.name in names:
                how = "give one of them another: with_options(name='...')"
                raise wrong_value("AgentFlow", "tasks", each, "has the name of another one", how)
            names.add(own.name)
            own.declare()

    def add_workflow(self, tool: Tool) -> None:
        before = self.workflows.get(tool.name)
        self.tools.add(tool, replace=before is not None and self.tools.find(tool.name) is before)
        self.workflows[tool.name] = tool

    def tell_not_offered(self, call: CallContext) -> None:
        """Warn, once, about a question without ``tools=`` in a flow with tools."""
        if self._speaks_of_tools or not self.tools.ordinary(call):
            return
        self._speaks_of_tools = True
        call.warn(
            "tools/not-offered",
            "flow.ask offers its model no tools, although the flow has some: write tools=flow.tools to offer all of them, "
            "or tools=[] to say that none is meant",
        )

    def asking(self, output: Any, settings: dict[str, Any], attached: bool) -> Task[Any]:
        """The task behind ``flow.ask`` for an output and options, made once."""
        try:
            key = (output, attached, *sorted(settings.items()))
            task = self._asked.get(key)
        except TypeError:  # an option that cannot be a key
            key = task = None
        if task is None:
            fields = _PROMPT_WITH_MEDIA if attached else _PROMPT
            task = Task(self, fields, Returns[Any](output, "ask"), cast(TaskSettings, settings))
            if key is not None:
                if len(self._asked) >= _MOST_ASKED:
                    self._asked.clear()
                self._asked[key] = task
        return task


def _session_of(call: FlowCall[Any], session: Session | None) -> Session | None:
    """The conversation of a run of a single call that has its own. Raises ConfigurationError where the run names another."""
    if session is None:
        return call.session
    call.close()
    raise ConfigurationError(
        f"{call.label} continues with its own session, and its run got another one",
        code="config/session",
        hint="pass session= once",
    )
