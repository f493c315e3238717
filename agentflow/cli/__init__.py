"""The ``agentflow`` command."""


def main() -> None:
    """Entry point of the ``agentflow`` command."""
