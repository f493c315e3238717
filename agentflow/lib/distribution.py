"""The installed distribution: its name, its version, and the command that installs one of its extras."""

from __future__ import annotations

from agentflow.core.data.errors import ConfigurationError

NAME = "agentflow"
"""The published name of the package. No other line of the package spells it; ``pyproject.toml`` has it too."""


def own_version() -> str:
    """The version of the installed distribution. Raises PackageNotFoundError where it is not installed."""
    from importlib.metadata import version

    return version(NAME)


def tested_versions() -> list[str]:
    """The Python versions covered by the tests, oldest first, from the distribution's classifiers."""
    from importlib.metadata import metadata

    classifiers = metadata(NAME).get_all("Classifier") or []
    return [each.rpartition(" ")[2] for each in classifiers if each.startswith("Programming Language :: Python :: 3.")]


def with_extras(*extras: str) -> str:
    """The requirement that brings the extras too, as ``pip`` reads it."""
    return f"{NAME}[{','.join(extras)}]"


def install(*extras: str) -> str:
    """The command that installs the extras."""
    return f"pip install '{with_extras(*extras)}'"


def extra_missing(message: str, extra: str, *, code: str = "config/extra") -> ConfigurationError:
    """The error for a use of the package without its extra installed; its hint is the command that installs it."""
    return ConfigurationError(message, code=code, hint=install(extra))
