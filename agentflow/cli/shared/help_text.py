"""The help of the commands: breaks its lines at spaces only, where click breaks words at their hyphens too."""

from __future__ import annotations

from typing import Any, cast

from typer.core import TyperGroup

_HYPHEN = "\u2011"
"""Replaces a hyphen while lines are broken."""
_Context: Any = TyperGroup.context_class
_Formatter: Any = _Context.formatter_class


class _WordFormatter(_Formatter):
    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _HYPHEN))  # pyright: ignore[reportUnknownMemberType]

    def write_dl(self, rows: Any, *arguments: Any, **named: Any) -> None:
        super().write_dl([(term, text.replace("-", _HYPHEN)) for term, text in rows], *arguments, **named)  # pyright: ignore[reportUnknownMemberType]

    def write(self, string: str) -> None:
        super().write(string.replace(_HYPHEN, "-"))  # pyright: ignore[reportUnknownMemberType]


class _WordContext(_Context):
    formatter_class = _WordFormatter


class HelpGroup(TyperGroup):
    """A group of commands that breaks no word in its help, nor in that of its commands."""

    context_class = cast(Any, _WordContext)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, with our help."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.context_class = self.context_class
        return command
