"""The two kinds of ``.py`` files: workflow texts, which agentflow reads, and Python modules that make a flow."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

from agentflow.lib.text.python_trees import parsed


def is_workflow_text(file: Path) -> bool:
    """Whether a file imports from ``agentflow.workflow``, which only workflow texts do."""
    try:
        tree = parsed(file.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return False
    return any([isinstance(each, ast.ImportFrom) and each.module == "agentflow.workflow" for each in tree.body])


def command_for_module(path: str, text: str) -> str | None:
    """The command that runs a Python module with a flow, or its first workflow; None for any other text."""
    if "AgentFlow" not in text:
        return None
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not _makes_flow(tree):
        return None
    declared = _declared(tree)
    if not declared:
        return f"python {shlex.quote(path)}"
    parts = Path(path).with_suffix("").parts
    module = parts[-1] if Path(path).is_absolute() else ".".join(parts)
    flow, name = declared[0]
    return f"agentflow run {module}:{f'{flow}.' if flow else ''}{name}"


def _makes_flow(tree: ast.Module) -> bool:
    """Whether a module imports the class AgentFlow, or names it as that of the package."""
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and (each.module or "").partition(".")[0] == "agentflow":
            if any([name.name == "AgentFlow" for name in each.names]):
                return True
        elif isinstance(each, ast.Attribute) and each.attr == "AgentFlow":
            return True
    return False


def _declared(tree: ast.Module) -> list[tuple[str, str]]:
    """The workflows that a module declares, each with the name of its flow; empty for ``@agentflow.workflow``."""
    listed: list[tuple[str, str]] = []
    for each in tree.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in each.decorator_list:
            match decorator:
                case ast.Attribute(value=ast.Name(id=target), attr="workflow"):
                    listed.append(("" if target == "agentflow" else target, each.name))
                case ast.Name(id="workflow"):
                    listed.append(("", each.name))
                case _:
                    pass
    return listed
