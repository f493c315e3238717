"""Faces last: what stands in which order, and who asks which call is executing."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "agentflow"


def names_in(tree: ast.AST) -> set[str]:
    """All names that a piece of code mentions, imports and attributes included."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names | {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_one_file_asks_which_call_is_executing() -> None:
    """``current_call`` is named where it is defined, and where it is set and asked for, nowhere else."""
    using = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "current_call" in (text := path.read_text("utf-8")) and "current_call" in names_in(ast.parse(text))
    }
    assert using == {"core/call/call.py"}


def test_the_call_is_set_in_three_places() -> None:
    """``HostCode``, ``LineCode`` and ``CallContext.ordered`` set the variable; each gives back what was there."""
    tree = ast.parse((ROOT / "core/call/call.py").read_text("utf-8"))
    setting: list[str] = []
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
            if ast.unparse(call.func) == "current_call.set":
                setting.append(function.name)
    assert sorted(setting) == ["__enter__", "__enter__", "ordered"]


def test_every_argument_of_the_composition_root_is_built_already() -> None:
    """In ``AgentFlow.__init__`` nothing is a lambda or a function of its own, and every attribute of the flow is used
    below the line that assigns it: the object graph is one straight line."""
    tree = ast.parse((ROOT / "app.py").read_text("utf-8"))
    (flow,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AgentFlow"]
    (init,) = [node for node in flow.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    later = [node for node in ast.walk(init) if isinstance(node, ast.Lambda | ast.FunctionDef) and node is not init]
    assert not later, [ast.unparse(node) for node in later]
    assigned: dict[str, int] = {}
    used: list[ast.Attribute] = []
    for node in ast.walk(init):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            if isinstance(node.ctx, ast.Store):
                assert node.attr not in assigned, f"self.{node.attr} is assigned twice"
                assigned[node.attr] = node.lineno
            else:
                used.append(node)
    wrong = [f"line {node.lineno}: self.{node.attr}" for node in used if assigned.get(node.attr, 10**9) >= node.lineno]
    assert used and not wrong, wrong
