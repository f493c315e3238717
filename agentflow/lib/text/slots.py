"""Parameters of a prompt that its texts do not use: their values would never reach the model."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentflow.lib.text.late_pattern import late_pattern

SLOT = late_pattern(r"\{\{\s*([^{}]*?)\s*\}\}")
"""A slot of a prompt or a system text; its group is a parameter, or a call of a task with parameters."""


def unused(names: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The parameters that no slot of the texts uses."""
    used = {word for text in texts for slot in SLOT.finditer(text) for word in re.findall(r"[\w-]+", slot[1])}
    return [name for name in names if name not in used]


def single_braces(name: str, text: str) -> re.Match[str] | None:
    """``{name}``, which the model would read as it stands, where ``{{name}}`` was meant."""
    return re.search(rf"(?<!\{{)\{{\s*{re.escape(name)}\s*\}}(?!\}})", text)


def not_filled(task: str, name: str) -> tuple[str, str]:
    """The message and the hint for ``{name}`` in the prompt of a task."""
    return (
        f"{{{name}}} in the prompt of '{task}' stands in single braces: the model would read it as it is",
        f"write {{{{{name}}}}}",
    )


def not_used(task: str, name: str) -> tuple[str, str]:
    """The message and the hint for a parameter of a task that its prompt does not use."""
    return f"the prompt of '{task}' does not use its parameter '{name}'", f"write {{{{{name}}}}} where it belongs"
