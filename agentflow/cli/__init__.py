"""The ``agentflow`` command."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``agentflow`` command. Everything it needs is imported when it runs."""
    from agentflow.cli.main import app

    app(prog_name="agentflow")
