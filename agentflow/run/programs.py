"""Checking programs before there is an engine that could run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.core.ports.ports import TemplatePort, ToolPort
from agentflow.lang.allowance import Allowance
from agentflow.lang.diagnosis import check_program
from agentflow.lang.program import as_source
from agentflow.run.strand.compiling import beside_the_loop
from agentflow.run.strand.definitions import NamesInForce
from agentflow.run.strand.perform import EffectRunner
from agentflow.tasks.inputs import request_from_arguments


class ProgramCheck:
    """Checks program texts against the tasks and tools there are: what a library of workflows checks with."""

    def __init__(self, tasks: TemplatePort, tools: ToolPort, limits: Limits) -> None:
        self._effects = EffectRunner(tasks, tools, None, request_from_arguments)
        self._limits = limits

    async def check(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str]
    ) -> Sequence[AgentflowError]:
        """Everything wrong with a program that may call the names in ``allow`` only; empty when it may run."""
        here, source = NamesInForce(self._effects), as_source(program)

        def check(allowance: Allowance) -> Sequence[AgentflowError]:
            return check_program(
                source, names=here, limits=self._limits, allow=allow, env_names=names, allowance=allowance
            )

        return await beside_the_loop(source, check, self._limits)

    def declaration(self, source: Source, *, undecorated: bool = False) -> Mapping[str, Any] | None:
        """What a text in Python declares of itself by ``@workflow`` above ``main``, or with ``undecorated`` by ``main`` alone; None for every other text."""
        if source.surface != "python":
            return None
        from agentflow.lang.python.compiling import declared  # Most processes never see such a text.

        return declared(source, self._limits, undecorated=undecorated)
