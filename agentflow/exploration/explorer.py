"""The explorer of a flow. Exploration is a tenth of the package, so it is imported with the first explored program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.source import Source
from agentflow.core.ports.ports import TemplatePort, ToolPort
from agentflow.lib.own_threads import loaded


@dataclass(frozen=True)
class FlowExplorer:
    """The :class:`~agentflow.core.ports.ports.ProgramExplorer` of a flow; none of its tasks and tools is called."""

    templates: TemplatePort
    tools: ToolPort

    async def explore(
        self, program: str | Source, allow: frozenset[str], inputs: Mapping[str, Any], call: CallContext
    ) -> Sequence[str]:
        """The errors and endless loops that a program can reach, as text.

        Empty if ``inputs`` are not plain data, since the program cannot be tried then.
        """
        await loaded("agentflow.exploration.flow_rehearsal")
        from agentflow.exploration.flow_rehearsal import explore_in_flow

        return await explore_in_flow(self.templates, self.tools, program, allow, inputs, call)
