"""Texts that are shown in part: whatever cuts one leaves a mark, beside which redaction looks for the rest of a secret."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import agentflow

ROOT = Path(agentflow.__file__).parent
SHORTEST = 40
"""Characters of a slice that may show a part of a secret."""
NAMES = {
    ("durable/generations.py", "root[:190]"),
    ("providers/dialects/wire.py", "wire[:55]"),
    ("lang/naming.py", "_UNSAFE.sub('_', name)[:40]"),
    ("serve/mcp/tool_calls.py", "event.name[:_MAX_TEXT]"),
}
"""Names that are made of others, and no texts; of events, which hold no secret any more."""
SENT = {
    ("observe/report/html.py", "text[:MAX_TEXT]"),
    ("memory/file_memory.py", "texts.get(location, '')[:4000]"),
    ("tasks/prompt_runners.py", "first[:500]"),
}
"""What is cut after it was redacted, or is sent to a model and not shown."""

_MAY = re.compile(r"\{[^{}\n]*\[:_?[A-Z0-9_]+\]")


def sliced(part: ast.AST) -> bool:
    """Whether an expression is the beginning of a text, of a fixed length."""
    if not isinstance(part, ast.Subscript) or not isinstance(part.slice, ast.Slice):
        return False
    cut = part.slice
    if cut.lower is not None or cut.upper is None or cut.step is not None:
        return False
    if isinstance(cut.upper, ast.Constant):
        return isinstance(cut.upper.value, int) and cut.upper.value >= SHORTEST
    return isinstance(cut.upper, ast.Name) and cut.upper.id.isupper()


def test_texts_in_messages_are_not_sliced() -> None:
    """``cut`` and ``clip`` say where they cut; a slice in an f-string does not, unless an ellipsis follows it."""
    wrong: list[str] = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if _MAY.search(text) else ():
            if not isinstance(node, ast.JoinedStr):
                continue
            for at, part in enumerate(node.values):
                if not isinstance(part, ast.FormattedValue) or not sliced(part.value):
                    continue
                after = node.values[at + 1] if at + 1 < len(node.values) else None
                marked = isinstance(after, ast.Constant) and str(after.value).startswith(("...", "…"))
                shown = ast.unparse(part.value)
                if not marked and (name, shown) not in NAMES | SENT:
                    wrong.append(f"{name}:{node.lineno}: {{{shown}}}: write cut({ast.unparse(part.value.value)}, ...)")  # type: ignore[attr-defined]
    assert not wrong, "\n".join(wrong)
