"""A flow of the user's own, for the commands that run or check programs with it: ``--app MODULE:FLOW``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from agentflow.cli.common import UsageError

if TYPE_CHECKING:
    from agentflow.app import AgentFlow

_MAKES = ("model", "base_url", "root", "tasks", "workflows", "notes", "sandbox", "db", "mcp_server", "mcp_config")
"""Options that make a flow, which one that is there cannot be given."""


def load_flow(where: str) -> AgentFlow:
    """The flow called FLOW in the module MODULE, imported as from the working directory; FLOW is ``flow`` if left out.

    Raises UsageError (``cli/app``), naming what is missing.
    """
    from agentflow.app import AgentFlow

    module, _, name = where.partition(":")
    name = name or "flow"
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    hint = "write --app MODULE:FLOW, for example --app invoices.app:flow"
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"--app {where}: '{module}' is no module's name", code="cli/app", hint=hint)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _failed(where, error) from error
        raise UsageError(f"--app {where}: there is no module '{error.name}' here", code="cli/app", hint=hint) from None
    except Exception as error:
        raise _failed(where, error) from error
    flow = getattr(imported, name, None)
    if not isinstance(flow, AgentFlow):
        names = [each for each, value in vars(imported).items() if isinstance(value, AgentFlow)]
        found = (
            f"flows there: {', '.join(names)}"
            if names
            else f"{name} = AgentFlow(...) at the top of the module makes it"
        )
        raise UsageError(f"--app {where}: '{name}' is no flow of the module '{module}'", code="cli/app", hint=found)
    return flow


def check_options(options: Any) -> None:
    """Raise UsageError (``cli/app``) for an option that configures a flow when ``--app`` names one."""
    given = [option_name(name) for name in _MAKES if getattr(options, name, None) is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} and --app: the module says how its flow is made",
            code="cli/app",
            hint=f"leave out {', '.join(given)}, or change AgentFlow(...) there",
        )


def option_name(field: str) -> str:
    """How the option of a field is written."""
    return f"--{field.removesuffix('_server').replace('_', '-')}"


def check_durable(flow: AgentFlow, where: str) -> None:
    """Raise UsageError (``cli/app``) for a flow that stores no runs."""
    if not flow.is_durable:
        raise UsageError(
            f"--app {where}: its flow stores no runs",
            code="cli/app",
            hint="make it AgentFlow(durable='sqlite:///runs.db')",
        )


def _failed(where: str, error: Exception) -> UsageError:
    return UsageError(f"--app {where}: importing it raised {type(error).__name__}: {error}", code="cli/app")
