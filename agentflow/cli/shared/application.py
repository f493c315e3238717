"""Loads the user's own flow, for the commands that run or check programs with it: ``--app MODULE:FLOW``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentflow.cli.shared.common import UsageError
from agentflow.cli.shared.references import import_module

if TYPE_CHECKING:
    from agentflow.app import AgentFlow

_MAKES = (
    "model",
    "base_url",
    "root",
    "tasks",
    "workflows",
    "notes",
    "clock",
    "retries",
    "sandbox",
    "readable",
    "db",
    "mcp_server",
    "mcp_config",
)
"""Options that configure a flow, and so cannot apply to one that exists already."""


def load_flow(where: str) -> AgentFlow:
    """Import the flow FLOW of the module MODULE, searched from the working directory; FLOW defaults to ``flow``.

    Raises UsageError (``cli/app``), which names the missing part.
    """
    from agentflow.app import AgentFlow

    module, _, name = where.partition(":")
    name = name or "flow"
    hint = "write --app MODULE:FLOW, for example --app invoices.app:flow"
    imported = import_module(module, f"--app {where}", hint)
    flow = getattr(imported, name, None)
    if not isinstance(flow, AgentFlow):
        names = [each for each, value in vars(imported).items() if isinstance(value, AgentFlow)]
        hint = (
            f"flows there: {', '.join(names)}"
            if names
            else f"{name} = AgentFlow(...) at the top of the module creates it"
        )
        raise UsageError(f"--app {where}: '{name}' is not a flow of the module '{module}'", code="cli/app", hint=hint)
    return flow


def check_options(options: Any) -> None:
    """Raise UsageError (``cli/app``) for an option that configures a flow when ``--app`` names one."""
    conflicting = [option_name(name) for name in _MAKES if getattr(options, name, None) is not None]
    if conflicting:
        raise UsageError(
            f"{', '.join(conflicting)} and --app: the module itself configures its flow",
            code="cli/app",
            hint=f"leave out {', '.join(conflicting)}, or change AgentFlow(...) in the module",
        )


def narrow(flow: AgentFlow, path: str, where: str) -> None:
    """Have a flow allow only effects that the policy in a file allows too; a flow without a policy gets this one.

    Raises UsageError (``cli/app``) for a file that renames sources which the flow's own policy renames, and
    ConfigurationError (``provenance/policy``).
    """
    from agentflow.core.call.provenance import Provenance

    policy, own = Provenance.load(path), flow.engine.provenance
    if own is not None and policy.sources:
        raise UsageError(
            f"--policy {path}: [sources] says what tools give, which the policy of {where} says already",
            code="cli/app",
            hint="leave [sources] out: beside the module's policy, a file can only narrow what may be done",
        )
    flow.engine.follow(policy if own is None else own.narrowed(policy))


def option_name(field: str) -> str:
    """The command-line option for a field."""
    return f"--{field.removesuffix('_server').replace('_', '-')}"


def check_durable(flow: AgentFlow, where: str) -> None:
    """Raise UsageError (``cli/app``) for a flow that does not store runs."""
    if not flow.is_durable:
        raise UsageError(
            f"--app {where}: its flow does not store runs",
            code="cli/app",
            hint="create it with AgentFlow(durable='sqlite:///runs.db')",
        )
