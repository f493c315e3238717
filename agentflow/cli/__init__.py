"""The ``agentflow`` command: options, one module per command, and their output.

The only room that knows a terminal. Its packages come with the extra ``cli``: the library does without them. Start
reading at ``main.py``.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

EXTRA = ("typer", "rich", "prompt_toolkit")
"""Packages of the extra ``cli``."""


def main() -> None:
    """Entry point of the ``agentflow`` command. Modules are imported when it runs."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        from agentflow.cli.shared.common import UsageError, exit_code, show_error
        from agentflow.lib.distribution import install

        error = UsageError(
            f"the command needs packages that are not installed: {', '.join(missing)}",
            code="cli/extra",
            hint=f"{install('cli')}; the library works without them",
        )
        show_error(error, as_json="--json" in sys.argv, colours=False)
        sys.exit(exit_code(error))
    from agentflow.cli.main import app
    from agentflow.cli.shared.common import exit_code, show_error
    from agentflow.cli.shared.streams import StandardStreams
    from agentflow.core.data.errors import AgentflowError

    streams = StandardStreams()
    try:
        app(prog_name="agentflow")
    except SystemExit as ended:
        sys.exit(streams.end(ended.code))
    except AgentflowError as error:  # raised by a module of ours while it was imported
        show_error(error, as_json="--json" in sys.argv)
        sys.exit(streams.end(exit_code(error)))
