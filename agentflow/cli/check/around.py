"""The tasks and tools that ``check`` and ``lsp`` know around a program. Both know the same, and nothing is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agentflow.cli.check.language import ShippedNames
from agentflow.cli.shared.mcp_names import KnownServers, servers_of, servers_of_flow
from agentflow.cli.shared.mcp_options import McpOptions
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Names
from agentflow.core.ports.ports import Tool
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.tasks.xml import read_directory

if TYPE_CHECKING:
    from agentflow.app import AgentFlow


@frozen
class Surroundings:
    """Tasks and tools around a program: their ``names``, their ``descriptions``, the names with descriptions from a
    server (``foreign``), and ``notes`` about unknown facts."""

    names: Names
    descriptions: Mapping[str, str]
    foreign: frozenset[str]
    notes: tuple[str, ...]


def names_around(
    options: McpOptions, *, tasks: str | None = None, app: str | None = None, tools: Sequence[Tool] = ()
) -> Surroundings:
    """The tasks and tools around programs: those of the flow ``app``, or those every flow has with the templates in the
    directory ``tasks``; and the tools last listed by MCP servers. ``tools`` are others that will exist.

    Raises UsageError for a flow that cannot be loaded, and ConfigurationError for options that name no valid server.
    """
    if app is not None:
        from agentflow.cli.shared.application import check_options, load_flow

        check_options(options)
        flow = load_flow(app)
        for tool in tools:
            flow.tools.add(tool)
        return _around(flow.engine.names(), _descriptions(flow), servers_of_flow(flow))
    templates = list(read_directory(tasks)) if tasks is not None else []
    descriptions = {name: entry.description for name, entry in SCHEMAS.items()}
    descriptions |= {template.name: template.description for template in templates}
    descriptions |= {tool.name: tool.spec.description for tool in tools}
    return _around(ShippedNames(templates, tools), descriptions, servers_of(options))


def _around(names: Names, descriptions: Mapping[str, str], servers: KnownServers) -> Surroundings:
    foreign = servers.tools.keys() - descriptions.keys()
    return Surroundings(
        servers.around(names), {**servers.descriptions, **descriptions}, frozenset(foreign), servers.notes
    )


def _descriptions(flow: AgentFlow) -> dict[str, str]:
    """The descriptions of the tasks and tools of a flow."""
    engine = flow.engine
    descriptions: dict[str, str] = {}
    for name in engine.tools.names():
        tool = engine.tools.find(name)
        descriptions[name] = tool.spec.description if tool is not None else ""
    for name in engine.tasks.template_names():
        compiled = engine.tasks.find_compiled(name)
        descriptions[name] = compiled.template.description if compiled is not None else ""
    return descriptions
