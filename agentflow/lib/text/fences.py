"""Finds the program in a model's answer, which may have code blocks and words around it."""

from __future__ import annotations

import re

from agentflow.lib.text.late_pattern import late_pattern

_FENCE = late_pattern(r"```([^\n`]*)\n(.*?)```", re.DOTALL)
_PYTHON_FENCES = frozenset(("", "python", "py", "python3"))


def program_of(answer: str, surface: str = "sexp") -> str:
    """The program in a model's answer, empty if there is none.

    It consists of the code blocks that may hold one, joined; without one, an answer in S-expressions from its first parenthesis, and in
    Python the whole.
    """
    blocks = [(tag.strip().lower(), block.strip()) for tag, block in _FENCE.findall(answer)]
    if surface == "python":
        marked = [block for tag, block in blocks if tag in _PYTHON_FENCES and block]
        every = marked or [block for _, block in blocks if block]
        return "\n\n".join(every) if blocks else answer.strip()
    forms = [block for _, block in blocks if "(" in block or "[" in block]
    if forms:
        return "\n\n".join(forms)
    start = answer.find("(")
    return answer[start:].strip().removesuffix("```").strip() if start >= 0 else ""
