"""Copies this tree without its journal, to see what durable runs cost those that are not durable.

    python tests/benchmarks/without_journal.py DIRECTORY
    python tests/benchmarks/compare.py DIRECTORY/without DIRECTORY/with --figures call,chain,fan-out,control --bound 1.01
    python tests/benchmarks/bytecodes.py DIRECTORY/without DIRECTORY/with

DIRECTORY is an absolute path. In the one copy no run has a journal, and nobody asks whether it has one: what is done only
for a run that has one is gone. The other is the tree as it is, for the place of a tree alone may make some percent.
"""

from __future__ import annotations

import argparse
import ast
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parents[2]
TRUE, FALSE = ast.Constant(True), ast.Constant(False)


class WithoutJournal(ast.NodeTransformer):
    """Takes out what depends on ``journal``: a name, or an attribute of a run. ``removed`` counts the questions for it."""

    def __init__(self) -> None:
        self.removed = 0

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == "journal" and isinstance(node.ctx, ast.Load):
            return ast.Constant(None)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        asks = isinstance(node.value, ast.Attribute) and node.value.attr == "journal"
        if asks and [ast.unparse(target) for target in node.targets] == ["journal"]:
            return ast.Pass()
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        asked = node.left.attr if isinstance(node.left, ast.Attribute) else getattr(node.left, "id", "")
        if asked == "journal" and isinstance(node.ops[0], ast.Is | ast.IsNot):
            self.removed += 1
            return TRUE if isinstance(node.ops[0], ast.Is) else FALSE
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2:
            asked = node.args[0].attr if isinstance(node.args[0], ast.Attribute) else getattr(node.args[0], "id", "")
            if asked == "journal":
                self.removed += 1
                return FALSE
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and node.operand in (TRUE, FALSE):
            return TRUE if node.operand is FALSE else FALSE
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        settles = FALSE if isinstance(node.op, ast.And) else TRUE
        node.values = [each for each in node.values if each not in (TRUE, FALSE) or each is settles]
        if settles in node.values:
            node.values = node.values[: node.values.index(settles) + 1]
        if not node.values:
            return TRUE if settles is FALSE else FALSE
        return node.values[0] if len(node.values) == 1 else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if node.test not in (TRUE, FALSE):
            return node
        return (node.body if node.test is TRUE else node.orelse) or ast.Pass()

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if node.test not in (TRUE, FALSE):
            return node
        return node.body if node.test is TRUE else node.orelse


def without_journal(directory: Path) -> int:
    """Make the copies. Gives the number of places where it was asked whether a run is durable."""
    for name in ("with", "without"):
        copy = directory / name / "agentflow"
        shutil.copytree(ROOT / "agentflow", copy, ignore=shutil.ignore_patterns("__pycache__"))
    removed = 0
    for file in sorted((directory / "without" / "agentflow").rglob("*.py")):
        text = file.read_text()
        if "journal" in text:
            transformer = WithoutJournal()
            tree = cast(ast.Module, transformer.visit(ast.parse(text)))
            if transformer.removed:
                file.write_text(ast.unparse(ast.fix_missing_locations(tree)))
                removed += transformer.removed
    return removed


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the copies where the command says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path, help="which does not exist yet")
    directory = parser.parse_args(arguments).directory
    print(f"{without_journal(directory)} questions for a journal removed in {directory.resolve() / 'without'}")


if __name__ == "__main__":
    main()
